"""Outputs as they are recorded: plain, bounded, with the texts of guesses."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.api.promotion import PromotionStatus
from kargo_py.api.stamp import STATE_KEY, TEXTS_KEY
from kargo_py.engine.outputs import (
    MOST_OUTPUT,
    MOST_PROMOTION,
    Output,
    OutputError,
    check_room,
    checked_output,
    in_bytes,
    output_of,
    outputs_of,
    with_output,
)
from kargo_py.expressions.values import Guess
from kargo_py.kube.codec import decode, encode


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("output", "recorded"),
    [
        ({}, {}),
        ({"a": (1, 2.5, True, None)}, {"a": [1, 2.5, True, None]}),
        ({"a": None, "b": {"c": None}, "d": [{"e": None}]}, {"b": {}, "d": [{}]}),
        ({"a": 42.0, "b": -0.0, "c": 2.0**60}, {"a": 42, "b": 0, "c": 2.0**60}),
        ({Colour.RED: Colour.RED}, {"red": "red"}),
    ],
)
def test_plain(output: dict[str, Any], recorded: dict[str, Any]) -> None:
    made = checked_output("s", output)

    assert made == recorded
    assert encode(dict(made)) == encode(recorded)
    assert made.texts == {}


def _itself() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["again"] = made
    return made


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ({"a": {"b": [float("inf")]}}, "output.a.b[0] of step s is the number inf, which is no JSON"),
        ({"a": b"x"}, "output.a of step s is of type bytes"),
        ({"a": {(1,): 2}}, "output.a of step s is an object with the name (1,)"),
        ({"a": 2**64}, "output.a of step s is an integer of more than 64 bits"),
        ({"a": "\ud800"}, "output.a of step s is a text with half a character"),
        ({"\ud800": 1}, "a text with half a character"),
        (_itself(), "nested more than 64 deep"),
        ({"a": [0] * 200_000}, "more than 100000 values"),
        ({"a": "x" * MOST_OUTPUT}, "output of step s is 512.1 KiB, at most 512 KiB"),
        ({"a": ["x" * 2**20] * 100}, "output of step s is more than 32 MiB, at most 512 KiB"),
    ],
    ids=range(10),
)
def test_refused(output: dict[str, Any], words: str) -> None:
    with pytest.raises(OutputError) as caught:
        checked_output("s", output)

    assert words in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_room() -> None:
    """The whole counts, and the names of fields twice: the API server keeps account of who wrote them."""
    fits = {"status": {"state": {"other": {"x": "y" * (MOST_PROMOTION - 1000)}}}}
    check_room("s", Output({}, {}), fits)
    names = {"status": {"state": {"other": {f"name-{i:020d}": 1 for i in range(20_000)}}}}
    assert len(encode(names)) < MOST_PROMOTION
    with pytest.raises(OutputError, match=r"1\.3 MiB, at most 1 MiB"):
        check_room("s", Output({}, {}), names)
    more = {"status": {"state": {**fits["status"]["state"], "more": {"n" * 500: 1}}}}
    with pytest.raises(OutputError, match=r"and with it the Promotion would be 1\.1 MiB, at most 1 MiB"):
        check_room("s", Output({}, {}), more)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (2_400_000, "2.3 MiB"), (2**20, "1 MiB")],
)
def test_sizes(size: int, text: str) -> None:
    assert in_bytes(size) == text


# -- in the status -----------------------------------------------------------------------------------------------------


def test_texts_stand_beside() -> None:
    """Under a key of ours, and only where there are some; what is put out anew replaces them."""
    status = PromotionStatus(state={STATE_KEY: []})
    guessed = checked_output("a", {"tag": Guess(1.3, "1.30"), "x/y": {"~": [Guess(True, "true")]}})
    once = with_output(status, "a", guessed)

    assert once.state == {
        STATE_KEY: [],
        "a": {"tag": 1.3, "x/y": {"~": [True]}},
        TEXTS_KEY: {"a": {"/tag": "1.30", "/x~1y/~0/0": "true"}},
    }
    assert output_of(once, "a") == {"tag": 1.3, "x/y": {"~": [True]}}
    assert outputs_of(once) == {"a": {"tag": Guess(1.3, "1.30"), "x/y": {"~": [Guess(True, "true")]}}}
    assert with_output(once, "a", checked_output("a", {"tag": 2})).state == {STATE_KEY: [], "a": {"tag": 2}}


def test_of_a_task() -> None:
    """Some kinds put out for their task, too: each adds to what is there, texts included."""
    status = with_output(
        PromotionStatus(), "t::one", checked_output("x", {"a": Guess(1, "1"), "b": 2}), propagates=True
    )
    status = with_output(status, "t::two", checked_output("x", {"b": Guess(3, "03")}), propagates=True)
    status = with_output(status, "t::three", checked_output("x", {"c": 4}))

    assert outputs_of(status) == {
        "t::one": {"a": Guess(1, "1"), "b": 2},
        "t::two": {"b": Guess(3, "03")},
        "t::three": {"c": 4},
        "t": {"a": Guess(1, "1"), "b": Guess(3, "03")},
    }
    assert with_output(PromotionStatus(), "one", {"a": 1}, propagates=True).state == {"one": {"a": 1}}


@pytest.mark.parametrize(
    "texts",
    [
        7,
        {"a": 7},
        {"a": {"/tag": 7}},
        {"a": {"/gone": "x", "/tag/deeper/0": "y"}},
        {"a": {"": "x"}},
        {"b": {"/x": "y"}},
    ],
)
def test_texts_that_were_edited(texts: Any) -> None:
    """They are of no account, and no harm."""
    made = outputs_of(PromotionStatus(state={"a": {"tag": "text"}, TEXTS_KEY: texts}))

    assert "tag" in str(made["a"])


JSONS = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
GUESSES = st.builds(Guess, st.booleans() | st.integers(-9, 9) | st.lists(st.integers(0, 9)), st.text())


@given(st.dictionaries(st.text(), JSONS | GUESSES | st.lists(GUESSES), max_size=5))
def test_what_is_recorded_is_read_back(output: dict[str, Any]) -> None:
    """Through the server's JSON and back expressions see the same, texts included."""
    made = checked_output("a", output)
    status = with_output(PromotionStatus(), "a", made)
    back = PromotionStatus.model_validate(decode(encode(status.wire())))

    assert outputs_of(back) == outputs_of(status)
    assert checked_output("a", outputs_of(back)["a"]) == made
    assert checked_output("a", outputs_of(back)["a"]).texts == made.texts
