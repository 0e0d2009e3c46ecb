"""The names that the expressions of a Promotion have: ``ctx``, ``vars``, ``outputs``, ``task`` and ``stepMetas``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


class Later(Mapping[str, Value]):
    """A map that is made when it is first read."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], dict[str, Value]]) -> None:
        self._make = make
        self._made: dict[str, Value] | None = None

    @property
    def made(self) -> dict[str, Value]:
        """The map itself."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, name: str) -> Value:
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.made)

    def __len__(self) -> int:
        return len(self.made)


class Environment(Mapping[str, Value]):
    """Names with their values; who reads one that is a :class:`Later` gets the map itself."""

    __slots__ = ("parts",)

    def __init__(self, parts: Mapping[str, Value]) -> None:
        self.parts = parts

    def __getitem__(self, name: str) -> Value:
        part = self.parts[name]
        return part.made if type(part) is Later else part

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)


def with_variables(names: Mapping[str, Value], variables: Mapping[str, Value]) -> Environment:
    """*names* with *variables* as ``vars``; what is made later is made once for both."""
    parts = names.parts if isinstance(names, Environment) else names
    return Environment({**parts, "vars": variables})


def environment(
    context: Context,
    *,
    alias: str = "",
    variables: Mapping[str, Value] | None = None,
    outputs: Mapping[str, Value] | None = None,
    steps: Sequence[StepExecutionMetadata] = (),
) -> Environment:
    """The environment of the step *alias*; without outputs, that of the Promotion's variables.

    What grows with the number of steps is made only for expressions that read it: else the work for a whole Promotion
    would grow with the square of that number.
    """
    made: dict[str, Value] = {"ctx": context.value(alias), "vars": dict(variables or {})}
    if outputs is None:
        return Environment(made)
    made["outputs"] = Later(lambda: dict(outputs))
    made["stepMetas"] = Later(lambda: {step.alias: step_record(step) for step in steps})
    task = alias.rpartition(SEPARATOR)[0]
    if task:
        made["task"] = Later(lambda: {"outputs": _outputs_within(task, outputs)})
    return Environment(made)


def _outputs_within(task: str, outputs: Mapping[str, Value]) -> dict[str, Value]:
    prefix = task + SEPARATOR
    return {name.removeprefix(prefix): value for name, value in outputs.items() if name.startswith(prefix)}


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
        here = dataclasses.replace(scope, environment=with_variables(scope.environment, made))
        try:
            rendered = render(variable.value, here)
        except ExpressionError as error:
            raise VariableError(variable.name, error) from error
        if rendered.secrecy and scope.witness is not None:
            scope.witness.taint(variable.name, rendered.secrecy)
        made = {**made, variable.name: rendered.variable()}
    return made
