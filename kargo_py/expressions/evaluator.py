"""Expressions evaluated: a tree becomes functions once, and is then run against environments.

Bounded in steps, in the number of items and characters made, and in depth. An expression reaches its environment, the
functions it is given and the time it is told, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from kargo_py.expressions import gotime
from kargo_py.expressions.builtins import Call
from kargo_py.expressions.compiled import Code, Functions, Positioned, Run
from kargo_py.expressions.compiler import compile_tree
from kargo_py.expressions.errors import ExpressionError, Fault, Kind
from kargo_py.expressions.parser import parse
from kargo_py.expressions.tree import Node
from kargo_py.expressions.values import Allowance, Budget, Value


@dataclass(frozen=True)
class Expression:
    """An expression ready to be evaluated any number of times."""

    source: str
    tree: Node
    _code: Code

    def evaluate(
        self,
        environment: Mapping[str, Value],
        functions: Functions | None = None,
        *,
        now: datetime | None = None,
        allowance: Allowance | None = None,
    ) -> Value:
        """The value in *environment*; without *now*, ``now()`` is 1970. Raises ExpressionError.

        What it takes is taken from *allowance*, if it is one of several expressions.
        """
        budget = Budget(allowance)
        moment = gotime.Time.of(now or datetime.fromtimestamp(0, UTC))
        run = Run(environment, functions or {}, Call(budget, moment), budget)
        try:
            if allowance is not None:
                allowance.check()
            value = self._code(run)
            budget.measure(value)
        except Positioned as error:
            raise _placed(error.fault, self.source, error.at) from None
        except Fault as fault:
            raise _placed(fault, self.source, self.tree.at) from None
        except RecursionError:
            raise _too_deep(self.source) from None
        finally:
            if allowance is not None:
                allowance.steps -= budget.spent
        return value


def _placed(fault: Fault, source: str, at: int) -> ExpressionError:
    return ExpressionError(str(fault), source, at, fault.kind, untold=fault.untold)


def _too_deep(source: str) -> ExpressionError:
    """The parser's own limit comes first, unless the caller has left little of the stack."""
    return ExpressionError("the expression nests too deeply", source, 0, Kind.LIMIT)


REMEMBERED_LENGTH: Final = 500
"""Longer sources are prepared anew each time, so that what is remembered takes some 60 MB at worst."""


@lru_cache(maxsize=256)
def _prepared(source: str) -> Expression:
    try:
        tree = parse(source)
        return Expression(source, tree, compile_tree(tree))
    except RecursionError:
        raise _too_deep(source) from None


def prepare(source: str) -> Expression:
    """The expression that *source* is. Raises ExpressionError where it is none."""
    if len(source) > REMEMBERED_LENGTH:
        return _prepared.__wrapped__(source)
    return _prepared(source)


def evaluate(
    source: str,
    environment: Mapping[str, Value],
    functions: Functions | None = None,
    *,
    now: datetime | None = None,
) -> Value:
    """The value of *source*; as :meth:`Expression.evaluate`."""
    return prepare(source).evaluate(environment, functions, now=now)
