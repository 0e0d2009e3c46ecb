"""What an expression is compiled to: functions of an evaluation under way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kargo_py.expressions.builtins import Call
from kargo_py.expressions.errors import Fault
from kargo_py.expressions.values import Budget, Function, Value

Functions: TypeAlias = Mapping[str, Function]
"""What an expression may call, by name; a function raises Fault for arguments it does not take."""


@dataclass(slots=True)
class Run:
    """One evaluation under way."""

    environment: Mapping[str, Value]
    functions: Functions
    call: Call
    budget: Budget
    variables: dict[str, Value] = field(default_factory=dict)
    item: Value = None
    index: int = 0
    total: Value = None


Code: TypeAlias = Callable[[Run], Value]


class Nil(Exception):
    """The value before a ``?.`` is nil: the chain ends."""


@dataclass(frozen=True, slots=True)
class Positioned(Exception):
    """A fault with the place where it happened; the source is known outside."""

    fault: Fault
    at: int


def guarded(at: int, code: Code) -> Code:
    """*code*, whose faults happen at *at*."""

    def run(r: Run) -> Value:
        try:
            return code(r)
        except Fault as fault:
            raise Positioned(fault, at) from None

    return run
