"""The syntax tree of a CEL expression, which the CEL library keeps to itself.

It is for looking at an expression (:mod:`cel_types`), not for evaluating it. What is no expression has been refused by
the library before; a text that this parser does not take, it is silent about (:class:`Unparsed`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

_TOKEN: Final = re.compile(
    r"""
    (?P<space>(?:\s+|//[^\n]*)+)
    |(?P<number>0x[0-9a-fA-F]+u?|\d+\.\d+(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+[uU]?)
    |(?P<text>[bBrR]{0,2}(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|\"(?:[^"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*|`[^`]+`)
    |(?P<symbol>&&|\|\||[=!<>]=|\.\?|\[\?|[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
)
SELECT: Final = "optional_select"
ITEMS: Final = "optional_items"
FIRST: Final = "optional_first"
FLAT: Final = "optional_flat"
SIZE: Final = "size_in_characters"
_RELATIONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})
_MAX_DEPTH: Final = 200


class Unparsed(Exception):
    """This parser does not take the text."""


@dataclass(slots=True, eq=False)
class Expr:
    """One operation, value or name. ``at`` is where an error about it is shown."""

    kind: str
    """literal, name, select, index, call, list, map, struct"""
    at: int
    name: str = ""
    """The name, the field or the function; operators as CEL calls them (``_+_``). A literal's type."""
    target: Expr | None = None
    args: list[Expr] = field(default_factory=list)
    optional: bool = False
    """``.?`` and ``[?``"""
    text: str = ""
    """A literal as it was written."""
    type: Any = None
    """What :mod:`cel_types` found."""


def parse(source: str) -> Expr:
    """The tree of *source*. Raises Unparsed."""
    parser = _Parser(_tokens(source))
    found = parser.expression()
    parser.take("")
    return found


def has_optionals(source: str) -> bool:
    """Whether *source* may have syntax for optional values."""
    return ".?" in source or "[?" in source or "optMap" in source or "optFlatMap" in source


def rewritten(expr: Expr, *, optional_old: bool, sizes: bool = False) -> str:
    """The source of *expr* for the CEL library, which has no syntax for optional values: functions stand for it.

    *sizes*: ``size`` is such a function, too, as the library's counts bytes.
    """
    return _Writer(optional_old=optional_old, sizes=sizes).write(expr)


class _Writer:
    def __init__(self, *, optional_old: bool, sizes: bool) -> None:
        self.optional_old = optional_old
        self.sizes = sizes

    def write(self, expr: Expr) -> str:
        args = [self.write(arg) for arg in expr.args]
        target = "" if expr.target is None else self.write(expr.target)
        wrapped = expr.optional or (expr.target is not None and self._is_optional(expr.target))
        match expr.kind:
            case "literal":
                return expr.text
            case "name":
                return expr.name
            case "select":
                return f"{SELECT}({target}, '{expr.name}')" if wrapped else f"{target}.{expr.name}"
            case "index":
                return f"{SELECT}({target}, {args[0]})" if wrapped else f"{target}[{args[0]}]"
            case "list":
                return f"[{', '.join(args)}]"
            case "map":
                pairs = zip(args[::2], args[1::2], strict=True)
                return f"{{{', '.join(f'{key}: {value}' for key, value in pairs)}}}"
            case "call":
                return self._call(expr, target, args)
        raise Unparsed(expr.kind)

    def _call(self, expr: Expr, target: str, args: list[str]) -> str:
        name = expr.name
        if name == "_?_:_":
            return f"({args[0]} ? {args[1]} : {args[2]})"
        if name in {"!_", "-_"}:
            return f"({name[0]}{args[0]})"
        if name == "@in":
            return f"({args[0]} in {args[1]})"
        if name.startswith("_") and len(name) > 2 and not name[1].isalnum():
            return f"({args[0]} {name[1:-1]} {args[1]})"
        if name in {"optMap", "optFlatMap"}:
            return f"{FIRST if name == 'optMap' else FLAT}({ITEMS}({target}).map({args[0]}, {args[1]}))"
        if name == "size" and self.sizes:
            name = SIZE
        return f"{target + '.' if target else ''}{name}({', '.join(args)})"

    def _is_optional(self, expr: Expr) -> bool:
        if expr.kind in {"select", "index"} and expr.target is not None:
            return expr.optional or self._is_optional(expr.target)
        if expr.kind == "name":
            return self.optional_old and expr.name == "oldSelf"
        if expr.kind != "call" or expr.target is None:
            return False
        return expr.name in {"optMap", "optFlatMap", "or"} or expr.target.name == "optional"


def _tokens(source: str) -> list[tuple[str, str, int]]:
    tokens: list[tuple[str, str, int]] = []
    at = 0
    while at < len(source):
        found = _TOKEN.match(source, at)
        if not found:
            raise Unparsed(f"character {at}")
        if found.lastgroup and found.lastgroup != "space":
            tokens.append((found.lastgroup, found[0], at))
        at = found.end()
    return [*tokens, ("end", "", len(source))]


class _Parser:
    def __init__(self, tokens: list[tuple[str, str, int]]) -> None:
        self.tokens = tokens
        self.next = 0
        self.depth = 0

    def sees(self, *texts: str) -> bool:
        kind, text, _ = self.tokens[self.next]
        return kind in {"symbol", "name", "end"} and text in texts

    def take(self, text: str) -> int:
        """Step over *text*; where it stands."""
        if not self.sees(text):
            raise Unparsed(f"character {self.tokens[self.next][2]}")
        self.next += 1
        return self.tokens[self.next - 1][2]

    def expression(self) -> Expr:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise Unparsed("too deep")
        found = self.either()
        if self.sees("?"):
            at = self.take("?")
            first = self.either()
            self.take(":")
            found = Expr("call", at, "_?_:_", args=[found, first, self.expression()])
        self.depth -= 1
        return found

    def either(self) -> Expr:
        found = self.both()
        while self.sees("||"):
            found = Expr("call", self.take("||"), "_||_", args=[found, self.both()])
        return found

    def both(self) -> Expr:
        found = self.relation()
        while self.sees("&&"):
            found = Expr("call", self.take("&&"), "_&&_", args=[found, self.relation()])
        return found

    def relation(self) -> Expr:
        found = self.sum()
        while self.sees(*_RELATIONS):
            text = self.tokens[self.next][1]
            name = "@in" if text == "in" else f"_{text}_"
            found = Expr("call", self.take(text), name, args=[found, self.sum()])
        return found

    def sum(self) -> Expr:
        found = self.product()
        while self.sees("+", "-"):
            text = self.tokens[self.next][1]
            found = Expr("call", self.take(text), f"_{text}_", args=[found, self.product()])
        return found

    def product(self) -> Expr:
        found = self.unary()
        while self.sees("*", "/", "%"):
            text = self.tokens[self.next][1]
            found = Expr("call", self.take(text), f"_{text}_", args=[found, self.unary()])
        return found

    def unary(self) -> Expr:
        for text in ("!", "-"):
            if self.sees(text):
                at = self.take(text)
                count = 1
                while self.sees(text):
                    self.take(text)
                    count += 1
                if text == "-" and count == 1 and self.tokens[self.next][0] == "number":
                    return self.member(self.literal(at, "-"))
                operand = self.member(self.primary())
                return operand if count % 2 == 0 else Expr("call", at, f"{text}_", args=[operand])
        return self.member(self.primary())

    def member(self, found: Expr) -> Expr:
        while True:
            if self.sees(".", ".?"):
                text = self.tokens[self.next][1]
                at = self.take(text)
                kind, name, _ = self.tokens[self.next]
                if kind != "name":
                    raise Unparsed(f"character {at}")
                self.next += 1
                if self.sees("(") and text == ".":
                    at = self.take("(")
                    found = Expr("call", at, name, target=found, args=self.listed(")"))
                else:
                    found = Expr("select", at, name.strip("`"), target=found, optional=text == ".?")
            elif self.sees("[", "[?"):
                text = self.tokens[self.next][1]
                at = self.take(text)
                found = Expr("index", at, "_[_]", target=found, args=[self.expression()], optional=text == "[?")
                self.take("]")
            elif self.sees("{") and found.kind in {"name", "select"}:
                at = self.take("{")
                self.entries()
                found = Expr("struct", at, target=found)
            else:
                return found

    def primary(self) -> Expr:
        kind, text, at = self.tokens[self.next]
        if kind in {"number", "text"}:
            return self.literal(at, "")
        if self.sees("("):
            self.take("(")
            found = self.expression()
            self.take(")")
            return found
        if self.sees("[", "[?"):
            self.take(text)
            if text == "[?":
                raise Unparsed("optional items")
            return Expr("list", at, args=self.listed("]"))
        if self.sees("{"):
            self.take("{")
            return Expr("map", at, args=self.entries())
        if self.sees("."):
            self.take(".")
            kind, text, at = self.tokens[self.next]
        if kind != "name":
            raise Unparsed(f"character {at}")
        self.next += 1
        if text in {"true", "false"}:
            return Expr("literal", at, "bool", text=text)
        if text == "null":
            return Expr("literal", at, "null", text=text)
        if self.sees("("):
            return Expr("call", self.take("("), text, args=self.listed(")"))
        return Expr("name", at, text)

    def literal(self, at: int, sign: str) -> Expr:
        kind, text, _ = self.tokens[self.next]
        self.next += 1
        if kind == "number":
            name = "uint" if text[-1] in "uU" else "int"
            if name == "int" and not text.startswith("0x") and set(text) & set(".eE"):
                name = "double"
            return Expr("literal", at, name, text=sign + text)
        prefix = re.match("[bBrR]*", text)
        return Expr("literal", at, "bytes" if prefix and "b" in prefix[0].lower() else "string", text=text)

    def listed(self, end: str) -> list[Expr]:
        found: list[Expr] = []
        while not self.sees(end):
            found.append(self.expression())
            if not self.sees(end):
                self.take(",")
        self.take(end)
        return found

    def entries(self) -> list[Expr]:
        """Keys and values in turn."""
        found: list[Expr] = []
        while not self.sees("}"):
            if self.sees("?"):
                raise Unparsed("optional entries")
            found.append(self.expression())
            self.take(":")
            found.append(self.expression())
            if not self.sees("}"):
                self.take(",")
        self.take("}")
        return found
