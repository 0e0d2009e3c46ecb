"""A reader of PromQL, as far as our dashboard and alerts use it: enough to refuse what Prometheus would.

There is no such reader for Python that is maintained, and Prometheus itself is no dependency that a test could have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<range>\[\d+[smhd]\])|(?P<number>\d+(?:\.\d+)?)"""
    r"""|(?P<word>[a-zA-Z_][a-zA-Z0-9_:]*)|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){},]))"""
)
AGGREGATIONS = {"sum", "max", "min", "avg", "count", "topk", "bottomk"}
FUNCTIONS = {"rate", "increase", "histogram_quantile", "absent"}
OVER_A_RANGE = {"rate", "increase"}
BINARY = {"+", "-", "*", "/", "%", "^", ">", "<", ">=", "<=", "==", "!=", "and", "or", "unless"}


class PromQLError(ValueError):
    """What Prometheus would refuse."""


@dataclass
class Query:
    """What a query names: metrics with the labels selected by, and the labels that it groups by."""

    selectors: list[tuple[str, Sequence[tuple[str, str, str]]]] = field(default_factory=list)
    grouped: list[tuple[Sequence[str], Sequence[str]]] = field(default_factory=list)
    """Labels, and the metrics inside of the aggregation."""


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.at = 0
        self.query = Query()

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self, text: str | None = None, kind: str | None = None) -> str:
        found = self.peek()
        if (text is not None and found[1] != text) or (kind is not None and found[0] != kind):
            raise PromQLError(f"expected {text or kind}, found {found[1] or 'the end'} as token {self.at}")
        self.at += 1
        return found[1]

    def expression(self) -> str:
        """Returns the type of the value."""
        type_ = self.operand()
        while self.peek()[1] in BINARY:
            self.take()
            other = self.operand()
            if "range" in {type_, other}:
                raise PromQLError("a range is no operand")
            type_ = "vector" if "vector" in {type_, other} else "scalar"
        return type_

    def operand(self) -> str:
        kind, text = self.peek()
        if text == "(":
            self.take("(")
            type_ = self.expression()
            self.take(")")
            return type_
        if kind == "number":
            self.take()
            return "scalar"
        name = self.take(kind="word")
        if name in AGGREGATIONS:
            return self.aggregation(name)
        if self.peek()[1] == "(":
            return self.call(name)
        return self.selector(name)

    def aggregation(self, name: str) -> str:
        labels: Sequence[str] = []
        if self.peek()[1] == "by":
            self.take()
            labels = self.names()
        first = len(self.query.selectors)
        self.take("(")
        if name in {"topk", "bottomk"}:
            self.take(kind="number")
            self.take(",")
        if self.expression() != "vector":
            raise PromQLError(f"{name} is over a vector")
        self.take(")")
        self.query.grouped.append((labels, [metric for metric, _ in self.query.selectors[first:]]))
        return "vector"

    def call(self, name: str) -> str:
        if name not in FUNCTIONS:
            raise PromQLError(f"there is no function {name}")
        self.take("(")
        if name == "histogram_quantile":
            self.take(kind="number")
            self.take(",")
        wanted = "range" if name in OVER_A_RANGE else "vector"
        if self.expression() != wanted:
            raise PromQLError(f"{name} is over a {wanted}")
        self.take(")")
        return "vector"

    def selector(self, name: str) -> str:
        matchers = []
        if self.peek()[1] == "{":
            self.take()
            while self.peek()[1] != "}":
                label = self.take(kind="word")
                sign = self.take()
                if sign not in {"=", "!=", "=~", "!~"}:
                    raise PromQLError(f"{sign} matches no label")
                matchers.append((label, sign, self.take(kind="string")[1:-1]))
                if self.peek()[1] == ",":
                    self.take()
            self.take("}")
        self.query.selectors.append((name, matchers))
        if self.peek()[0] == "range":
            self.take()
            return "range"
        return "vector"

    def names(self) -> Sequence[str]:
        self.take("(")
        found = [self.take(kind="word")]
        while self.peek()[1] == ",":
            self.take()
            found.append(self.take(kind="word"))
        self.take(")")
        return found


def _tokens(text: str) -> Sequence[tuple[str, str]]:
    found, at = [], 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        if match is None:
            raise PromQLError(f"cannot be read from {text[at : at + 20]!r} on")
        assert match.lastgroup is not None
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


def read(text: str) -> Query:
    """What *text* names; raises PromQLError."""
    reader = _Reader(text)
    if reader.expression() == "range":
        raise PromQLError("a range cannot be shown")
    reader.take(kind="end")
    return reader.query
