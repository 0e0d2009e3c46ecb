"""What is wrong with an expression, and where."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

_SHOWN = 120
"""Characters of a line that are shown; an expression may be of any length."""


class Kind(StrEnum):
    """When an error was found."""

    SYNTAX = "syntax"
    """Before evaluation: the text is no expression."""
    EVALUATION = "evaluation"
    """While evaluating: a value is not what an operator or function takes."""
    LIMIT = "limit"
    """The expression asks for more than is allowed."""


class _Untold:
    """Stands in a text for what is not to be told, however that would have been written."""

    def __repr__(self) -> str:
        return "…"


class Fault(Exception):
    """An error that does not know its position yet; never leaves the package."""

    kind = Kind.EVALUATION

    def __init__(self, text: str, *data: object) -> None:
        """*data* are values, or say something of some: *text* has ``{}`` for each. Without any it stays as it is."""
        super().__init__(text.format(*data) if data else text)
        self.untold = text.format(*[_Untold()] * len(data)) if data else text
        """What is wrong without the data."""


class LimitFault(Fault):
    """A bound was met; as :class:`Fault`."""

    kind = Kind.LIMIT


class ExpressionError(Exception):
    """An expression has no value; the text has the position and points at it."""

    def __init__(self, why: str, source: str, at: int, kind: Kind, *, untold: str | None = None) -> None:
        """*at* is the index of a character in *source*; *untold* is *why* without data, where that has some."""
        self.why = why
        self.untold = why if untold is None else untold
        self.kind = kind
        self.source = source
        at = max(0, min(at, len(source)))
        self.at = at
        start = source.rfind("\n", 0, at) + 1
        self.line = source.count("\n", 0, at) + 1
        self.column = at - start + 1
        super().__init__(f"{why} ({self.line}:{self.column}){self._pointer(start)}")

    def without_data(self) -> Self:
        """The same error for an expression that has looked at something secret."""
        return type(self)(self.untold, self.source, self.at, self.kind)

    def _pointer(self, start: int) -> str:
        end = self.source.find("\n", start)
        line = self.source[start : len(self.source) if end < 0 else end].replace("\t", " ").replace("\r", " ")
        if not line:
            return ""
        column = self.column - 1
        left = max(0, column - _SHOWN // 2)
        before = "..." if left else ""
        after = "..." if left + _SHOWN < len(line) else ""
        shown = f"{before}{line[left : left + _SHOWN]}{after}"
        return f"\n | {shown}\n | {'.' * (column - left + len(before))}^"
