"""Whether something is much to look at is found without looking at much of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kargo_py.api.promotion import ExpressionVariable, PromotionStep
from kargo_py.engine.effort import are_many, exceeds, is_much

EXPRESSION = f"${{{{ {'1 + ' * 1000}1 }}}}"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], False),
        ([1, None, "x", True, 2.5], False),
        ([[0] * 98], False),
        ([[0] * 101], True),
        ([{str(n): [n] for n in range(60)}], True),
        (["x" * 6000], False),
        (["x" * 7000], True),
        (["${{ a }}"] * 11, False),
        (["${{ a }}"] * 12, True),
        (["${% a %}"] * 12, True),
        (["$ { a }"] * 12, False),
    ],
)
def test_exceeds(values: list[Any], expected: bool) -> None:
    """Values, long texts and templates count, whichever there are many of."""
    assert exceeds(100, values, len) is expected


def test_looks_at_little() -> None:
    """What is too much is not looked through."""
    seen = []

    def values() -> Iterator[Any]:
        for number in range(1_000_000):
            seen.append(number)
            yield number

    assert exceeds(100, values(), len)
    assert len(seen) == 101


@pytest.mark.parametrize(
    ("step", "count", "expected"),
    [
        ({"uses": "x", "config": {"a": "${{ outputs.build.digest }}", "b": ["y", 1, True]}}, 10, False),
        ({"uses": "x"}, 1000, True),
        ({"uses": "x", "config": {"a": EXPRESSION}}, 1, True),
        ({"uses": "x", "if": EXPRESSION}, 1, True),
        ({"uses": "x", "vars": [{"name": "a", "value": EXPRESSION}]}, 1, True),
        ({"uses": "x", "config": {"a": "x" * 400_000}}, 1, True),
    ],
)
def test_steps(step: dict[str, Any], count: int, expected: bool) -> None:
    """What people write is not much; many steps, values and long expressions are."""
    assert is_much([PromotionStep.model_validate(step)] * count, ()) is expected


def test_variables() -> None:
    """They count, too."""
    variable = ExpressionVariable(name="a", value="${{ ctx.stage }}")
    assert not is_much((), [variable] * 20)
    assert is_much((), [variable] * 500)


def test_copies() -> None:
    """Of what is only copied, the values count, and not what stands in them."""
    step = PromotionStep.model_validate({"uses": "x", "config": {"a": "${{ vars.image + vars.tag }}", "b": [0] * 90}})
    assert not are_many([step] * 40, ())
    assert are_many([step] * 50, ())
    assert are_many((), [ExpressionVariable(name="a", value="x")] * 5000)
