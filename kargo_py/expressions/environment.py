"""The names that the expressions of a Promotion have: ``ctx``, ``vars``, ``outputs``, ``task`` and ``stepMetas``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kargo_py.api.freight import FreightReference
from kargo_py.api.promotion import ExpressionVariable, StepExecutionMetadata
from kargo_py.expressions.errors import ExpressionError
from kargo_py.expressions.functions import SEPARATOR, step_record
from kargo_py.expressions.templates import Scope, render
from kargo_py.expressions.values import Value


@dataclass(frozen=True, slots=True)
class Context:
    """What ``ctx`` says."""

    project: str
    promotion: str
    stage: str
    ui_base_url: str = ""
    freight: FreightReference | None = None
    """What is being promoted."""
    freight_alias: str = ""
    actor: str = ""
    rollback: bool = False

    def value(self, alias: str = "") -> dict[str, Value]:
        """``ctx`` for the step *alias*."""
        target: dict[str, Value] = {"name": "", "alias": self.freight_alias, "origin": {"name": ""}}
        if self.freight is not None:
            origin = self.freight.origin.name if self.freight.origin else ""
            target |= {"name": self.freight.name, "origin": {"name": origin}}
        return {
            "project": self.project,
            "promotion": self.promotion,
            "stage": self.stage,
            "uiBaseUrl": self.ui_base_url,
            "targetFreight": target,
            "meta": {
                "promotion": {"actor": self.actor, "rollback": self.rollback},
                "step": {"alias": alias},
            },
        }


def environment(
    context: Context,
    *,
    alias: str = "",
    variables: Mapping[str, Value] | None = None,
    outputs: Mapping[str, Value] | None = None,
    steps: Sequence[StepExecutionMetadata] = (),
) -> dict[str, Value]:
    """The environment of the step *alias*; without outputs, that of the Promotion's variables."""
    made: dict[str, Value] = {"ctx": context.value(alias), "vars": dict(variables or {})}
    if outputs is None:
        return made
    made["outputs"] = dict(outputs)
    made["stepMetas"] = {step.alias: step_record(step) for step in steps}
    task = alias.rpartition(SEPARATOR)[0]
    if task:
        prefix = task + SEPARATOR
        own = {name.removeprefix(prefix): value for name, value in outputs.items() if name.startswith(prefix)}
        made["task"] = {"outputs": own}
    return made


class VariableError(Exception):
    """A variable has no value."""

    def __init__(self, name: str, error: ExpressionError) -> None:
        """*name* is that of the variable."""
        self.name = name
        self.error = error
        super().__init__(f"variable {name}: {error}")


def evaluate_variables(
    variables: Iterable[ExpressionVariable], scope: Scope, known: Mapping[str, Value] | None = None
) -> dict[str, Value]:
    """The values of *variables*, in order: each may use *known* and those before it. Raises VariableError."""
    made = dict(known or {})
    for variable in variables:
        here = dataclasses.replace(scope, environment={**scope.environment, "vars": made})
        try:
            rendered = render(variable.value, here)
        except ExpressionError as error:
            raise VariableError(variable.name, error) from error
        if rendered.secrecy and scope.taint is not None:
            scope.taint(variable.name, rendered.secrecy)
        made = {**made, variable.name: rendered.variable()}
    return made
