"""Whether the steps that the author of a Promotion wrote are those of the Stage's template. Pure.

They are if they say the same: an absent field is its default, ``5m`` is ``5m0s``, and an expression of the template
may stand as it is or be what it becomes for the Freight of this Promotion. What only a running Promotion knows (outputs
of steps, Secrets and the like) is not evaluated: there the text must be the template's. So must it be if it becomes an
expression in its turn: texts of Freight, and the annotation that says who promotes, are written by others than the
Stage's owner, and what they say is never evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from kargo_py.api.promotion import ExpressionVariable, PromotionStep
from kargo_py.api.types import Duration, JsonObject
from kargo_py.engine.evaluation import EvaluationError, Position, Program, configuration, has_expressions
from kargo_py.engine.problems import Path, written
from kargo_py.expressions.lookups import Lookups, Missing
from kargo_py.expressions.templates import Rendered
from kargo_py.expressions.values import QUICK_STEPS, Allowance, as_text, guessed
from kargo_py.messages import Shown, message

MORE_STEPS = message(
    "the number of steps is {count}, and {wanted} in the template",
    do="Part of *the steps were replaced*: the Promotion and the Stage's template have another number of steps.",
    shown=Shown.EVENT,
)
MORE_VARIABLES = message(
    "the number of variables is {count}, and {wanted} in the Stage and its template",
    do="Part of *the variables were replaced*: the Promotion and the Stage have another number of variables.",
    shown=Shown.EVENT,
)
IS_ANOTHER = message(
    "{path} is {given}, and {wanted} in the template",
    do="Part of *the steps were replaced*: the first place in which the Promotion differs from the Stage's template.",
    shown=Shown.EVENT,
)

OF_SIZE = message(
    "a {kind} of {count}",
    do="Part of *the steps were replaced*: another list or map stands there.",
    shown=Shown.EVENT,
)
NOT_THERE = message(
    "not there",
    do="Part of *the steps were replaced*: one of the two does not have that field.",
    shown=Shown.EVENT,
)

_BEGINS = re.compile(r"\$\{\{|\$\{%")
_LATER = re.compile(r"\b(outputs|task|stepMetas|status|always|success|failure)\b")
"""What an expression has in it that only a running Promotion can tell."""

_MOST_EVALUATIONS = 2048
_MOST_QUICK = 256
_MOST_SHOWN = 80

Evaluate: TypeAlias = Callable[[str], Rendered | None]
"""What a template becomes; None if that cannot be told yet."""

EvaluateFor: TypeAlias = Callable[[PromotionStep], Evaluate]
"""How the templates of a step of the Stage's template are evaluated."""


@dataclass(slots=True)
class Evaluator:
    """Evaluates a bounded number of templates, with what is known before a Promotion begins.

    Together they may take as long as those of one step.

    ``program`` None: that cannot be told yet. ``quick``: no more is evaluated than while all else waits.
    """

    program: Program | None
    now: datetime
    quick: bool = False
    _left: int = field(init=False)
    _lookups: Lookups = field(default_factory=Lookups, init=False)

    def __post_init__(self) -> None:
        self._left = _MOST_QUICK if self.quick else _MOST_EVALUATIONS
        if self.quick:
            self._lookups.allowance = Allowance(QUICK_STEPS)

    @property
    def is_used_up(self) -> bool:
        """Whether more was to be evaluated than may be, so that a difference may be none."""
        return self._left < 0 or self._lookups.allowance.is_used_up

    def of(self, step: PromotionStep) -> Evaluate:
        """For the templates in *step*."""

        def evaluate(source: str) -> Rendered | None:
            if self.program is None or _LATER.search(source):
                return None
            self._left -= 1
            if self._left < 0:
                return None
            position = Position(step.as_ or "", step.replace(config=source))
            try:
                value = configuration(self.program, position, self._lookups, self.now, keep_texts=True)
            except (EvaluationError, Missing):
                return None
            text = as_text(value)
            return Rendered(guessed(value), text if isinstance(text, str) else None)

        return evaluate


@dataclass(frozen=True)
class _Comparison:
    """Compares JSON; ``evaluate`` is for the texts of the template."""

    evaluate: Evaluate

    def first(self, given: Any, wanted: Any, path: Path) -> tuple[Path, Any, Any] | None:
        """The first place in which the two differ, and what stands there; None if they say the same."""
        waiting = [(path, given, wanted)]
        while waiting:
            where, one, other = waiting.pop()
            if isinstance(one, dict) and isinstance(other, dict):
                names = sorted(one.keys() | other.keys(), reverse=True)
                waiting += [((*where, name), one.get(name, _ABSENT), other.get(name, _ABSENT)) for name in names]
            elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
                waiting += [((*where, i), one[i], other[i]) for i in range(len(one) - 1, -1, -1)]
            elif not (_equal(one, other) or ("config" in where[3:4] and self._becomes(one, other))):
                return where, one, other
        return None

    def _becomes(self, given: Any, wanted: Any) -> bool:
        """Whether *wanted* is a template of which *given* is the result."""
        if not isinstance(wanted, str) or given is _ABSENT or not _BEGINS.search(wanted) or has_expressions(given):
            return False
        became = self.evaluate(wanted)
        return became is not None and (_equal(given, became.value) or _equal(given, became.text))


def _equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same; True and 1 are not, in any depth."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


class _Absent:
    """Stands for a field that is not there."""


_ABSENT = _Absent()


def normal_step(step: PromotionStep, index: int) -> JsonObject:
    """The step at *index* as JSON, with its alias, and without what says the same as nothing."""
    wire = step.wire()
    wire["as"] = step.alias(index)
    retry = step.retry
    wire["retry"] = {
        **({"timeout": retry.timeout.nanoseconds} if retry is not None and retry.timeout is not None else {}),
        **({"errorThreshold": retry.error_threshold} if retry is not None and retry.error_threshold else {}),
    }
    wire["vars"] = [_normal_variable(variable) for variable in step.vars]
    if step.task is not None:
        wire["task"] = {"kind": "PromotionTask", **step.task.wire()}
    return {name: value for name, value in wire.items() if not _says_nothing(value)}


def _says_nothing(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, str | dict | list) and not value)


def _normal_variable(variable: ExpressionVariable) -> JsonObject:
    return {"name": variable.name, "value": variable.value}


def steps_differ(
    given: Sequence[PromotionStep], wanted: Sequence[PromotionStep], evaluate_for: EvaluateFor
) -> str | None:
    """How the steps of a Promotion differ from *wanted*, those of the template; None if they say the same."""
    if len(given) != len(wanted):
        return MORE_STEPS(count=len(given), wanted=len(wanted))
    for index, (one, other) in enumerate(zip(given, wanted, strict=True)):
        comparison = _Comparison(evaluate_for(other))
        path = ("spec", "steps", index)
        if (found := comparison.first(normal_step(one, index), normal_step(other, index), path)) is not None:
            return _told(*found)
    return None


def variables_differ(given: Sequence[ExpressionVariable], wanted: Sequence[ExpressionVariable]) -> str | None:
    """How the variables of a Promotion differ from *wanted*; None if they say the same."""
    one, other = ([_normal_variable(variable) for variable in variables] for variables in (given, wanted))
    if len(one) != len(other):
        return MORE_VARIABLES(count=len(one), wanted=len(other))
    found = _Comparison(_never).first(one, other, ("spec", "vars"))
    return _told(*found) if found is not None else None


def _never(_: str) -> None:
    return None


def _told(path: Path, given: Any, wanted: Any) -> str:
    if path[-1] == "timeout" and path[-2:-1] == ("retry",):
        given, wanted = (
            Duration.of_nanoseconds(value) if isinstance(value, int) else value for value in (given, wanted)
        )
    return IS_ANOTHER(path=written(path), given=_shown(given), wanted=_shown(wanted))


def _shown(value: Any) -> str:
    """*value* in a few characters; of what may be a secret in a list or map not more than its size."""
    if isinstance(value, _Absent):
        return NOT_THERE()
    if isinstance(value, dict | list):
        kind = "map" if isinstance(value, dict) else "list"
        return OF_SIZE(kind=kind, count=len(value))
    text = f'"{value}"' if isinstance(value, str) else str(value).lower()
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"
