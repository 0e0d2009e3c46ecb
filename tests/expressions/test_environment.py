"""The names that a step's expressions have: what grows with the number of steps is made only for those who read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, overload

import pytest

from kargo_py.api.promotion import ExpressionVariable, StepExecutionMetadata
from kargo_py.expressions.environment import Context, Environment, environment, evaluate_variables, with_variables
from kargo_py.expressions.evaluator import evaluate
from kargo_py.expressions.functions import status_functions
from kargo_py.expressions.templates import Scope

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Steps(Sequence[StepExecutionMetadata]):
    """Counts how often all of them are looked at."""

    def __init__(self) -> None:
        self.looks = 0
        self._steps = [
            StepExecutionMetadata(alias="t::a", status="Succeeded", error_count=2),
            StepExecutionMetadata(alias="b", status="Failed"),
        ]

    @overload
    def __getitem__(self, index: int) -> StepExecutionMetadata: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[StepExecutionMetadata]: ...

    def __getitem__(self, index: int | slice) -> StepExecutionMetadata | Sequence[StepExecutionMetadata]:
        return self._steps[index]

    def __iter__(self) -> Iterator[StepExecutionMetadata]:
        self.looks += 1
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)


class Outputs(Mapping[str, Any]):
    """Counts how often all of them are looked at."""

    def __init__(self) -> None:
        self.looks = 0
        self._outputs = {"t::a": {"k": "v"}, "b": {"k": "w"}}

    def __getitem__(self, name: str) -> Any:
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        self.looks += 1
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)


def of_task(steps: Steps | None = None, outputs: Outputs | None = None) -> Environment:
    return environment(
        Context("shop", "p1", "dev"),
        alias="t::me",
        variables={"x": 1},
        outputs=outputs or Outputs(),
        steps=steps or Steps(),
    )


@pytest.mark.parametrize(
    ("expression", "of_steps", "of_outputs"),
    [
        ("ctx.stage == 'dev' && vars.x == 1", 0, 0),
        ("absent", 0, 0),
        ("'vars' in $env ? 1 : 2", 1, 2),
        ("stepMetas.b.Status", 1, 0),
        ("stepMetas.b.Status + stepMetas.b.Status", 1, 0),
        ("map(1..9, stepMetas.b.Status)", 1, 0),
        ("outputs.b.k + outputs.b.k", 0, 1),
        ("task.outputs.a.k + task.outputs.a.k", 0, 1),
    ],
)
def test_made_when_read(expression: str, of_steps: int, of_outputs: int) -> None:
    """Only what an expression reads is made, and that once."""
    steps, outputs = Steps(), Outputs()
    evaluate(expression, of_task(steps, outputs))
    assert (steps.looks, outputs.looks) == (of_steps, of_outputs)


def test_made_once_for_all() -> None:
    """The expressions of a step have one between them, its variables among them."""
    steps, outputs = Steps(), Outputs()
    scope = Scope(of_task(steps, outputs), {}, NOW)
    variables = [ExpressionVariable(name=name, value="${{ stepMetas.b.Status + outputs.b.k }}") for name in "pq"]
    made = evaluate_variables(variables, scope, {"x": 1})
    here = with_variables(scope.environment, made)

    assert evaluate("[vars.x, vars.p, vars.q, stepMetas.b.Status]", here) == [1, "Failedw", "Failedw", "Failed"]
    assert (steps.looks, outputs.looks) == (1, 1)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("len(stepMetas)", 2),
        ("keys(stepMetas)", ["b", "t::a"]),
        ("'b' in stepMetas", True),
        ("'me' in stepMetas", False),
        ("type(stepMetas)", "map"),
        ("stepMetas['t::a'].errorCount", 2),
        ("stepMetas.nope", None),
        ("map(values(stepMetas), #.Status)", ["Failed", "Succeeded"]),
        ("toJSON({a: stepMetas.b})", '{\n  "a": {\n    "alias": "b",\n    "status": "Failed"\n  }\n}'),
        ("fromJSON(toJSON(stepMetas))['t::a'].errorCount", 2),
        ("toJSON(outputs.b)", '{\n  "k": "w"\n}'),
        ("len(outputs) + len(task.outputs)", 3),
        ("type(outputs) + type(task)", "mapmap"),
        ("outputs == {'t::a': {k: 'v'}, b: {k: 'w'}}", True),
        ("task == {outputs: {a: {k: 'v'}}}", True),
        ("keys($env)", ["ctx", "outputs", "stepMetas", "task", "vars"]),
        ("$env.task.outputs.a.k", "v"),
        ("type($env['stepMetas'])", "map"),
    ],
)
def test_as_any_map(expression: str, value: Any) -> None:
    """To an expression they are maps as all others, the whole environment among them."""
    assert evaluate(expression, of_task()) == value
    assert evaluate(expression, dict(of_task())) == value


def test_of_variables() -> None:
    """The Promotion's own variables know of no steps."""
    assert dict(environment(Context("shop", "p1", "dev"), variables={"x": 1})).keys() == {"ctx", "vars"}


def test_failure_is_found_once() -> None:
    """How the steps went is looked at when it is asked for, and not again each time."""
    steps = Steps()
    functions = status_functions("t::me", steps)
    assert steps.looks == 0
    assert evaluate("[count(1..9, failure()), success(), failure()]", {}, functions) == [9, False, True]
    assert steps.looks == 1
