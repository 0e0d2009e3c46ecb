"""A Pratt parser of expr-lang."""

from __future__ import annotations

import math
import re
from typing import Final, NoReturn

from kargo_py.expressions.errors import ExpressionError, Kind
from kargo_py.expressions.lexer import Token, Type, is_letter, tokens
from kargo_py.expressions.tree import (
    Array,
    Binary,
    Builtin,
    Call,
    Chain,
    Comparison,
    Conditional,
    Let,
    Literal,
    Map,
    Member,
    Name,
    Node,
    Pointer,
    Predicate,
    Sequence,
    Slice,
    Unary,
)

MAX_SOURCE: Final = 65_536
"""Characters of an expression."""
MAX_NODES: Final = 10_000
"""Parts of an expression; the limit is that of the Go library."""
MAX_DEPTH: Final = 80
"""How deep brackets and operators may nest."""

_UNARY: Final = {"not": 50, "!": 50, "-": 90, "+": 90}
_BINARY: Final = {
    "|": 0,
    **dict.fromkeys(("or", "||"), 10),
    **dict.fromkeys(("and", "&&"), 15),
    **dict.fromkeys(("==", "!=", "<", ">", ">=", "<=", "in", "matches", "contains", "startsWith", "endsWith"), 20),
    "..": 25,
    **dict.fromkeys(("+", "-"), 30),
    **dict.fromkeys(("*", "/", "%"), 60),
    **dict.fromkeys(("**", "^"), 100),
    "??": 500,
}
_RIGHT: Final = frozenset({"**", "^"})
_COMPARISONS: Final = frozenset({"<", ">", "<=", ">="})
_NEGATABLE: Final = frozenset({"contains", "matches", "startsWith", "endsWith", "in"})
_SAME: Final = {"||": "or", "&&": "and", "!": "not", "^": "**"}
"""Operators that are other spellings."""

PREDICATES: Final = {
    **dict.fromkeys(
        ("all", "none", "any", "one", "filter", "map", "find", "findIndex", "findLast", "findLastIndex", "groupBy"),
        (2, 2),
    ),
    **dict.fromkeys(("count", "sum"), (1, 2)),
    **dict.fromkeys(("sortBy", "reduce"), (2, 3)),
}
"""Builtins whose second argument is a predicate: the least and the greatest number of arguments."""
BUILTINS: Final = frozenset(
    {
        *("len", "type", "abs", "ceil", "floor", "round", "int", "float", "string", "trim", "trimPrefix", "trimSuffix"),
        *("upper", "lower", "split", "splitAfter", "replace", "repeat", "join", "indexOf", "lastIndexOf", "hasPrefix"),
        *("hasSuffix", "max", "min", "mean", "median", "toJSON", "fromJSON", "toBase64", "fromBase64", "now"),
        *("duration", "date", "timezone", "first", "last", "get", "take", "keys", "values", "toPairs", "fromPairs"),
        *("reverse", "uniq", "concat", "flatten", "sort", "bitand", "bitor", "bitxor", "bitnand", "bitshl", "bitshr"),
        *("bitushr", "bitnot"),
    }
)
_INTEGER: Final = re.compile(r"0[xX][0-9a-fA-F]{1,16}|0[oO][0-7]{1,22}|0[bB][01]{1,64}|[0-9]{1,400}")
_FLOAT: Final = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def parse(source: str) -> Node:
    """The expression that *source* is. Raises ExpressionError."""
    if len(source) > MAX_SOURCE:
        raise ExpressionError(
            f"the expression has {len(source)} characters, at most {MAX_SOURCE}", source, 0, Kind.LIMIT
        )
    return _Parser(source).parse()


class _Parser:
    """One pass over the tokens; the methods are named by what they take."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = list(tokens(source))
        self.index = 0
        self.current = self.tokens[0]
        self.nodes = 0
        self.depth = 0
        self.predicates = 0
        self.variables: list[str] = []

    def parse(self) -> Node:
        node = self._sequence()
        if self.current.type is not Type.END:
            self._unexpected()
        return node

    # What tokens say

    def _fail(self, why: str, token: Token, kind: Kind = Kind.SYNTAX) -> NoReturn:
        raise ExpressionError(why, self.source, token.at, kind)

    def _unexpected(self) -> NoReturn:
        self._fail(f"unexpected {self.current}", self.current)

    def _next(self) -> Token:
        token = self.current
        if token.type is Type.END:
            self._fail("unexpected end of expression", token)
        self.index += 1
        self.current = self.tokens[self.index]
        return token

    def _is(self, value: str) -> bool:
        return self.current.value == value and self.current.type in {Type.OPERATOR, Type.BRACKET}

    def _take(self, value: str) -> bool:
        if self._is(value):
            self._next()
            return True
        return False

    def _expect(self, value: str) -> None:
        if not self._take(value):
            self._unexpected()

    def _name(self) -> Token:
        if self.current.type is not Type.NAME:
            self._unexpected()
        return self._next()

    def _count(self, token: Token) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self._fail(f"the expression has more than {MAX_NODES} parts", token, Kind.LIMIT)

    def _chained(self, links: int, token: Token) -> None:
        if links > MAX_DEPTH:
            self._fail(f"more than {MAX_DEPTH} calls, choices or slices in a row", token, Kind.LIMIT)

    # Expressions

    def _sequence(self) -> Node:
        before = len(self.variables)
        start = self.current
        nodes = [self._expression(0)]
        while self._take(";"):
            if self.current.type is Type.END:
                break
            nodes.append(self._expression(0))
        del self.variables[before:]
        return nodes[0] if len(nodes) == 1 else Sequence(tuple(nodes), start.at)

    def _expression(self, precedence: int) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self._fail(f"the expression nests more than {MAX_DEPTH} deep", self.current, Kind.LIMIT)
        self._count(self.current)
        if precedence == 0 and self._is("let"):
            node = self._let()
        elif precedence == 0 and self._is("if"):
            node = self._if()
        else:
            node = self._operators(self._primary(), precedence)
            if precedence == 0:
                node = self._ternary(node)
        self.depth -= 1
        return node

    def _operators(self, left: Node, precedence: int) -> Node:
        previous = ""
        pipes = 0
        while self.current.type is Type.OPERATOR:
            token, negated = self.current, False
            if token.value == "not":
                following = self.tokens[self.index + 1]
                if following.value not in _NEGATABLE or following.type is not Type.OPERATOR:
                    self._next()
                    self._unexpected()
                token, negated = following, True
            binding = _BINARY.get(token.value)
            if binding is None or binding < precedence:
                break
            self._count(token)
            if negated:
                self._next()
            self._next()
            if token.value == "|":
                pipes += 1
                self._chained(pipes, token)
                left = self._call(self._name(), left)
            elif previous == "??" and token.value != "??":
                self._fail(f"operator {token.value} and ?? cannot be mixed; wrap either side in parentheses", token)
            elif token.value in _COMPARISONS:
                left = self._comparison(left, token, binding)
            else:
                right = self._expression(binding if token.value in _RIGHT else binding + 1)
                left = Binary(_SAME.get(token.value, token.value), left, right, token.at)
                if negated:
                    left = Unary("not", left, token.at)
            previous = token.value
        return left

    def _comparison(self, first: Node, token: Token, binding: int) -> Node:
        rest = [(token.value, self._expression(binding + 1), token.at)]
        while self.current.type is Type.OPERATOR and self.current.value in _COMPARISONS:
            following = self._next()
            rest.append((following.value, self._expression(binding + 1), following.at))
        return Comparison(first, tuple(rest), token.at)

    def _let(self) -> Node:
        self._next()
        name = self._name()
        if name.value in BUILTINS or name.value in PREDICATES:
            self._fail(f"cannot redeclare builtin {name.value}", name)
        if name.value in self.variables:
            self._fail(f"cannot redeclare variable {name.value}", name)
        self._expect("=")
        value = self._expression(0)
        self._expect(";")
        self.variables.append(name.value)
        return Let(name.value, value, self._sequence_in_scope(), name.at)

    def _sequence_in_scope(self) -> Node:
        node = self._sequence()
        self.variables.pop()
        return node

    def _if(self) -> Node:
        at = self._next().at
        condition = self._expression(0)
        self._expect("{")
        yes = self._sequence()
        self._expect("}")
        self._expect("else")
        if self._is("if"):
            no = self._expression(0)
        else:
            self._expect("{")
            no = self._sequence()
            self._expect("}")
        return Conditional(condition, yes, no, at)

    def _ternary(self, node: Node) -> Node:
        choices = 0
        while self._is("?"):
            choices += 1
            self._chained(choices, self.current)
            at = self._next().at
            if self._take(":"):
                node = Conditional(node, None, self._expression(0), at)
            else:
                yes = self._expression(0)
                self._expect(":")
                node = Conditional(node, yes, self._expression(0), at)
        return node

    # Operands

    def _primary(self) -> Node:
        token = self.current
        if token.type is Type.OPERATOR:
            if token.value in _UNARY:
                self._next()
                operand = self._expression(_UNARY[token.value])
                return self._postfix(Unary(_SAME.get(token.value, token.value), operand, token.at))
            if self.predicates and token.value in {"#", "."}:
                return self._postfix(self._pointer(token))
            if token.value == "::":
                self._next()
                return self._postfix(self._call(self._name()))
        elif self._take("("):
            node = self._sequence()
            self._expect(")")
            return self._postfix(node)
        return self._operand(token)

    def _pointer(self, token: Token) -> Node:
        if token.value == ".":
            return Pointer("", token.at)
        self._next()
        if self.current.type is not Type.NAME:
            return Pointer("", token.at)
        name = self._next()
        if name.value not in {"acc", "index"}:
            self._fail(f"unknown pointer #{name.value}", token)
        return Pointer(name.value, token.at)

    def _operand(self, token: Token) -> Node:
        node: Node
        match token.type:
            case Type.NAME:
                self._next()
                if token.value in {"true", "false", "nil"}:
                    return Literal({"true": True, "false": False, "nil": None}[token.value], token.at)
                node = self._call(token) if self._is("(") else Name(token.value, token.at)
            case Type.NUMBER:
                self._next()
                return Literal(self._number(token), token.at)
            case Type.TEXT:
                self._next()
                node = Literal(token.value, token.at)
            case Type.BYTES:
                self._next()
                node = Literal(token.value.encode("latin-1"), token.at)
            case _ if self._is("["):
                self._next()
                node = Array(self._items("]"), token.at)
            case _ if self._is("{"):
                node = self._map(token)
            case _:
                self._unexpected()
        return self._postfix(node)

    def _number(self, token: Token) -> int | float:
        text = token.value.replace("_", "")
        if _INTEGER.fullmatch(text):
            number = int(text, 0) if text[:2].lower() in {"0x", "0o", "0b"} else int(text)
            if number < 1 << 63:
                return number
            self._fail(f"{text[:40]} is not within 64 bits", token)
        if _FLOAT.fullmatch(text) and math.isfinite(value := float(text)):
            return value
        return self._fail(f"invalid number {text[:40]!r}", token)

    def _items(self, closing: str) -> tuple[Node, ...]:
        """Expressions with commas between them, and the bracket that ends them."""
        items: list[Node] = []
        while not self._is(closing):
            if items:
                self._expect(",")
                if self._is(closing):
                    break
            items.append(self._expression(0))
        self._expect(closing)
        return tuple(items)

    def _map(self, token: Token) -> Node:
        self._next()
        pairs: list[tuple[Node, Node]] = []
        while not self._is("}"):
            if pairs:
                self._expect(",")
                if self._is("}"):
                    break
            key: Node
            if self.current.type in {Type.NUMBER, Type.TEXT, Type.NAME}:
                self._count(self.current)
                named = self._next()
                key = Literal(named.value, named.at)
            elif self._is("("):
                key = self._expression(0)
            else:
                self._fail(
                    "a map key must be a quoted string, a number, an identifier, or an expression in parentheses "
                    f"(unexpected {self.current})",
                    self.current,
                )
            self._expect(":")
            pairs.append((key, self._expression(0)))
        self._expect("}")
        return Map(tuple(pairs), token.at)

    # Calls

    def _call(self, token: Token, *piped: Node) -> Node:
        name = token.value
        self._count(token)
        if name in PREDICATES:
            return self._predicate_call(token, piped)
        self._expect("(")
        arguments = (*piped, *self._items(")"))
        if name in BUILTINS:
            return Builtin(name, arguments, token.at)
        return Call(Name(name, token.at), arguments, token.at)

    def _predicate_call(self, token: Token, piped: tuple[Node, ...]) -> Node:
        least, most = PREDICATES[token.value]
        arguments = list(piped)
        self._expect("(")
        for index in range(len(piped), most):
            if self._is(")"):
                if index >= least:
                    break
                self._fail(f"{token.value} takes at least {least} arguments", self.current)
            if index > 0 and not (index == 1 and piped):
                self._expect(",")
                if self._is(")") and index >= least:
                    break
            arguments.append(self._predicate() if index == 1 else self._expression(0))
        self._take(",")
        self._expect(")")
        return Builtin(token.value, tuple(arguments), token.at)

    def _predicate(self) -> Node:
        start = self.current
        self.predicates += 1
        if self._take("{"):
            body = self._sequence()
            self._expect("}")
        else:
            body = self._expression(0)
            if self._is(";"):
                self._fail("wrap predicate with brackets { and }", self.current)
        self.predicates -= 1
        return Predicate(body, start.at)

    # Members

    def _postfix(self, node: Node) -> Node:
        links = 0
        while self.current.type in {Type.OPERATOR, Type.BRACKET}:
            token = self.current
            # A chain of members is one part, however long; calls and slices are apart
            links += not isinstance(node, Member | Chain)
            self._chained(links, token)
            if token.value == "?." and self.tokens[self.index + 1].value == "[":
                self._next()
                node = self._index(node, optional=True)
            elif token.value in {".", "?."}:
                node = self._member(node, optional=token.value == "?.")
            elif token.value == "[" and token.type is Type.BRACKET:
                node = self._index(node, optional=False)
            else:
                break
            self._count(token)
        return node

    def _member(self, node: Node, *, optional: bool) -> Node:
        self._next()
        name = self.current
        if name.type is not Type.NAME and not (name.type is Type.OPERATOR and is_letter(name.value[0])):
            self._fail("expected name", name)
        self._next()
        chained = isinstance(node, Chain)
        inner = node.node if isinstance(node, Chain) else node
        made: Node = Member(inner, Literal(name.value, name.at), optional, name.at)
        if self._take("("):
            made = Call(made, self._items(")"), name.at)
        return Chain(made, name.at) if chained or optional else made

    def _index(self, node: Node, *, optional: bool) -> Node:
        at = self._next().at
        start = None if self._is(":") else self._expression(0)
        if self._take(":"):
            end = None if self._is("]") else self._expression(0)
            self._expect("]")
            return Slice(node, start, end, at)
        self._expect("]")
        assert start is not None  # noqa: S101 - without a colon there was an expression
        made = Member(node, start, optional, at)
        return Chain(made, at) if optional else made
