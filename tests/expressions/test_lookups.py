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
from kargo_py.expressions.functions import promotion_functions
from kargo_py.expressions.hiding import MASK, Secrets
from kargo_py.expressions.lookups import Lookup, Lookups, Missing, Source, resolved
from kargo_py.expressions.templates import ConfigurationError, Scope, render, render_all
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


CUT = 64
"""Of a longer secret this much of its beginning or end is masked."""


def spans_of(text: str, secret: str) -> set[tuple[int, int]]:
    """Where *secret* stands in *text*; of a long one, also so much of its beginning or end."""
    if len(secret) <= CUT:
        return {(at, at + len(secret)) for at in range(len(text)) if text.startswith(secret, at)}
    found = set()
    for at in range(len(text) - CUT + 1):
        end = at + CUT
        if text.startswith(secret[:CUT], at):
            found.add((at, at + max(n for n in range(CUT, len(secret) + 1) if text[at:].startswith(secret[:n]))))
        if text.startswith(secret[-CUT:], at):
            found.add((end - max(n for n in range(CUT, len(secret) + 1) if text[:end].endswith(secret[-n:])), end))
    return found


@given(st.lists(st.tuples(st.integers(0, 150), st.integers(4, 120)), max_size=4), st.data())
def test_parts_of_long_secrets(places: list[tuple[int, int]], data: st.DataObject) -> None:
    """Cut out of one text, so that they begin, end and overlap alike; and so is the text that quotes them."""
    whole = "".join("ab"[n * n % 7 % 2] + "c" * (n % 11 == 0) for n in range(200))
    kept = [whole[at : at + length] for at, length in places]
    pieces = data.draw(st.lists(st.tuples(st.integers(0, 150), st.integers(1, 120), st.sampled_from(["", "x"]))))
    text = "".join(whole[at : at + length] + after for at, length, after in pieces)
    secrets, masked = Secrets(), list[list[int]]()
    for one in kept:
        secrets.add(one)
    for begin, end in sorted(set().union(*(spans_of(text, one) for one in kept if len(one) >= 4))):
        if masked and begin < masked[-1][1]:
            masked[-1][1] = max(masked[-1][1], end)
        else:
            masked.append([begin, end])
    shown, last = "", 0
    for begin, end in masked:
        shown, last = f"{shown}{text[last:begin]}{MASK}", end
    if text not in kept:
        assert secrets.mask(text) == shown + text[last:]


@pytest.mark.parametrize(
    ("secrets", "text"),
    [
        ([f"{n:05}" * 20 for n in range(10_000)], "not secret at all, " * 20_000),
        (["0123456789abcdef" * 7], f"{'0123456789abcdef' * 4} " * 5_000),
        (["a" * n + "b" for n in range(4, 1000)], "a" * 50_000),
        (["b" + "a" * n for n in range(100, 1000)], ("a" * 300 + "c") * 150),
    ],
    ids=["many long ones", "many parts", "many that begin alike", "many that end alike"],
)
def test_secrets_that_make_much_work(secrets: list[str], text: str) -> None:
    """Who writes a Secret in his own Project does not hold up all others with it."""
    made = Secrets()
    for one in secrets:
        made.add(one)
    began = time.process_time()
    made.mask(text)
    assert time.process_time() - began < 10


def rendered(source: Any, lookups: Lookups) -> Any:
    """*source* with its expressions evaluated; ``secret`` has two values in each Secret."""
    functions = promotion_functions((), lookups)
    while True:
        try:
            return render_all(source, Scope({}, functions, NOON, lookups))
        except Missing as missing:
            lookups.put(missing.lookup, {"pw": "geheim-eins", "both": "user:first-word,user:other-word"})


def test_what_was_made_of_no_secret_is_none() -> None:
    """Whichever expression the evaluation has ended in, since a second Secret was still to be read."""
    lookups = Lookups()
    config = {"a": "${{ 'registry/' + 'image' }}", "b": "${{ secret('one').pw + secret('two').pw }}"}
    assert rendered(config, lookups) == {"a": "registry/image", "b": "geheim-einsgeheim-eins"}
    assert lookups.secrets.mask("geheim-eins of registry/image") == "*** of registry/image"


def test_nor_after_an_expression_that_failed() -> None:
    lookups = Lookups()
    with pytest.raises(ConfigurationError):
        rendered({"a": "${{ int(secret('one').pw) }}", "b": "${{ 'registry/' + 'image' }}"}, lookups)
    assert lookups.secrets.mask("registry/image") == "registry/image"


@pytest.mark.parametrize("made", ["split(secret('s').both, ',')", "{'x': split(secret('s').both, ',')}"])
def test_parts_of_what_was_made_of_a_secret(made: str) -> None:
    """A step gets them one by one, and tells one of them."""
    lookups = Lookups()
    rendered({"a": f"${{{{ {made} }}}}"}, lookups)
    assert lookups.secrets.mask("no user:first-word here, nor user:other-word") == "no *** here, nor ***"
