"""How much there is to do with what somebody wrote, judged by its size alone: what is much is done in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Any, Final

from kargo_py.api.promotion import ExpressionVariable, PromotionStep

_QUICK: Final = 4000
"""What is checked or compared while all else waits: a hundredth of a second or two, where a value counts one."""
_EACH_STEP: Final = 20
_MOST_STEPS: Final = _QUICK // _EACH_STEP
_EACH_CHARACTER: Final = 2
_PLAIN: Final = 64
"""Characters of a text that count as much as a value, also where no expressions are among them."""


def exceeds(most: int, values: Iterable[Any], template: Callable[[str], int]) -> bool:
    """Whether *values*, JSON, are more than *most*: each in them counts one, a template what *template* says besides.

    Asked each time, so that it looks at no more than *most* of them.
    """
    for value in values:
        waiting = [value]
        while waiting:
            one = waiting.pop()
            most -= 1
            if isinstance(one, str):
                most -= len(one) // _PLAIN
                if most >= 0 and ("${{" in one or "${%" in one):
                    most -= template(one)
            elif isinstance(one, dict | list):
                if len(one) > most:
                    return True
                waiting += one.values() if isinstance(one, dict) else one
            if most < 0:
                return True
    return False


def are_many(steps: Iterable[PromotionStep], variables: Iterable[ExpressionVariable]) -> bool:
    """Whether there are so many values in *steps* or *variables* that even to copy them takes long."""
    values = chain((variable.value for variable in variables), chain.from_iterable(map(_values, steps)))
    return exceeds(_QUICK, values, lambda _: 0)


def is_much(steps: Iterable[PromotionStep], variables: Iterable[ExpressionVariable]) -> bool:
    """Whether there is much in *steps* or *variables* to be checked, or compared with others."""
    some = list(islice(steps, _MOST_STEPS))
    values = chain((variable.value for variable in variables), chain.from_iterable(map(_values, some)))
    return len(some) == _MOST_STEPS or exceeds(_QUICK - _EACH_STEP * len(some), values, _effort)


def _values(step: PromotionStep) -> Iterable[Any]:
    return (step.if_, step.config, *(variable.value for variable in step.vars))


def _effort(source: str) -> int:
    return _EACH_CHARACTER * len(source)
