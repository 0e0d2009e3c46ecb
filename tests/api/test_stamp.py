"""Stamps: the name of one attempt."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from kargo_py.api.stamp import MAX_LENGTH, StampError, check_instance, make_stamp, parse_stamp

GOOD = "v1/instance/shop/dev.01k.f/uid-1/update/2"
TEXT = st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable())


@given(TEXT, st.integers(1, 999_999))
def test_round_trip(step: str, attempt: int) -> None:
    """A stamp reads back as what it was made of, whatever the step is called."""
    stamp = make_stamp("instance", "shop", "dev", "uid", step, attempt)

    assert stamp == parse_stamp(str(stamp))
    assert len(str(stamp).split("/")) == 7
    assert attempt + 1 == stamp.next_attempt().attempt


@given(st.text())
def test_parsing_is_strict(text: str) -> None:
    """Any text is either refused or exactly the text of what it is read as."""
    with suppress(StampError):
        assert text == str(parse_stamp(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("v1", "v2"), "version 'v2' is not one this program knows"),
        (GOOD + "/more", "has 7 parts"),
        (GOOD.replace("/uid-1", ""), "has 5 parts"),
        (GOOD.replace("uid-1", ""), "empty or wrongly encoded"),
        (GOOD.replace("update", "up%2date"), "wrongly encoded"),
        (GOOD.replace("update", "%41"), "normal form"),
        (GOOD[:-1] + "0", "attempt '0'"),
        (GOOD[:-1] + "02", "attempt '02'"),
        (GOOD.replace("instance", "in stance"), "instance id"),
        (GOOD + "x" * MAX_LENGTH, "at most 1024"),
        ("", "version ''"),
    ],
)
def test_what_is_no_stamp(text: str, words: str) -> None:
    """Forged, damaged and future stamps are refused with the reason."""
    with pytest.raises(StampError, match=re.escape(words)):
        parse_stamp(text)


@pytest.mark.parametrize("instance", ["", "-x", "x" * 64, "a/b", "a b"])
def test_instance_ids(instance: str) -> None:
    """An instance id that would not fit into a stamp is refused before anything runs."""
    with pytest.raises(StampError, match="must be 1 to 63 letters"):
        check_instance(instance)
