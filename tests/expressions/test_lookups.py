"""Secrets in texts, however many of both; and evaluations that take long."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.expressions.errors import ExpressionError
from kargo_py.expressions.lookups import MASK, Lookup, Lookups, Secrets, Source, resolved
from kargo_py.expressions.templates import Scope, render
from kargo_py.expressions.values import MAX_ALL_STEPS

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def covered(text: str, secrets: list[str]) -> str:
    """*text* with a mask for each stretch of characters that belong to secrets overlapping each other."""
    spans = sorted(
        (at, at + len(secret)) for secret in secrets for at in range(len(text)) if text.startswith(secret, at)
    )
    merged: list[list[int]] = []
    for begin, end in spans:
        if merged and begin < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    shown, last = "", 0
    for begin, end in merged:
        shown, last = f"{shown}{text[last:begin]}{MASK}", end
    return shown + text[last:]


@given(st.lists(st.text("ab", min_size=4, max_size=8), max_size=6), st.text("abc", max_size=40))
def test_nothing_of_a_secret_is_left(texts: list[str], text: str) -> None:
    """Where secrets overlap, what is left of each would tell something of it."""
    secrets = Secrets()
    for one in texts:
        secrets.add(one)
    if text not in texts:
        assert secrets.mask(text) == covered(text, texts)


def test_thousands_of_secrets_and_a_long_text() -> None:
    """It takes no longer for that: a Secret may have ten thousand values, and an output half a megabyte."""
    secrets = Secrets()
    for number in range(10_000):
        secrets.add(f"secret-{number}")
    text = "not secret at all, " * 20_000
    began = time.process_time()
    assert secrets.mask({"a": text, "b": [f"see secret-{n}!" for n in range(1000)]}) == {
        "a": text,
        "b": ["see ***!"] * 1000,
    }
    assert time.process_time() - began < 5


async def nothing(lookup: Lookup) -> None:
    del lookup


@pytest.mark.parametrize(
    ("source", "long", "aside"),
    [
        ("${{ 1 + 1 }}", False, [False]),
        ("${{ 1 + 1 }}", True, [True]),
        ("${{ sum(map(1..20000, 1)) }}", False, [False, True]),
        ("${{ configMap('a') == {} ? 2 : 1 }}", False, [False, False]),
    ],
    ids=["short", "said to be long", "found to be long", "read first"],
)
async def test_what_takes_long_is_evaluated_aside(source: str, long: bool, aside: list[bool]) -> None:
    """Others have their turn meanwhile; what is short stays, since a thread takes longer than that."""
    lookups, threads = Lookups(), list[bool]()

    def evaluate() -> Any:
        threads.append(threading.current_thread() is not threading.main_thread())
        scope = Scope({}, {}, NOON, allowance=lookups.allowance)
        if "configMap" in source:
            return lookups.get(Lookup(Source.CONFIG_MAP, "a"))
        return render(source, scope).value

    await resolved(evaluate, lookups, nothing, aside=asyncio.to_thread, long=long)
    assert threads == aside


async def test_all_expressions_of_a_step_together() -> None:
    """They have one limit, which is told as such: in a thread, too."""
    lookups = Lookups()

    def evaluate() -> Any:
        for number in range(20):
            render(f"${{{{ count(1..40000, # == {number}) }}}}", Scope({}, {}, NOON, allowance=lookups.allowance))

    with pytest.raises(ExpressionError, match=f"take more than {MAX_ALL_STEPS} steps together"):
        await resolved(evaluate, lookups, nothing, aside=asyncio.to_thread)
