"""What stands in the open beside a secret."""

from __future__ import annotations

import pytest

from kargo_py.expressions.evaluator import prepare
from kargo_py.expressions.secret_parts import open_in, open_in_text


@pytest.mark.parametrize(("more", "found"), [(4000, {"production"}), (5000, set[str]())])
def test_an_output_may_be_large(more: int, found: set[str]) -> None:
    """It is not gone through for each expression that reads it, whatever is in it."""
    names = {"outputs": {"one": {"list": ["production", *[1] * more]}}}

    assert open_in(prepare("[outputs.one.list, secret('s').pw]"), names, ()) == found


@pytest.mark.parametrize(
    ("pieces", "found"),
    [
        ((r'{"a": "say \"hello\" to', None, r'\\\"all\"", "b": "\u00e9t\/"}'), {r'say "hello" to', r'\"all"', "ét/"}),
        ((r'["\ud83d\ude00", "a\u', None, '"]'), {"😀"}),
        (("[12345678.50, ", None, "]"), {"12345678.5"}),
    ],
)
def test_texts_as_they_are_read(pieces: tuple[str | None, ...], found: set[str]) -> None:
    """JSON may write a text in several ways."""
    assert found <= open_in_text(pieces)
