"""Label and field selectors, compiled to predicates on objects.

A selector that cannot be read is a :class:`Failure` 400 in the words of the real server. ``None`` selects everything,
which spares the caller a look at each object. Source: k8s.io/apimachinery/pkg/{labels,fields}/selector.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kargo_py.local.apiserver import names
from kargo_py.local.apiserver.failures import Cause, FieldError, bad_request
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.wire import JsonObject

Predicate: TypeAlias = Callable[[JsonObject], bool]
LabelTest: TypeAlias = Callable[[JsonObject], bool]

LENGTH_LIMIT: Final = 64 * 1024
"""Far above what fits into a URL, and what bounds the work for one selector."""


def both(*predicates: Predicate | None) -> Predicate | None:
    """What satisfies all of *predicates*."""
    given = [each for each in predicates if each is not None]
    if not given:
        return None
    if len(given) == 1:
        return given[0]
    return lambda obj: all(each(obj) for each in given)


# Labels

_tokens = re.compile(r"[ \t\r\n]*(?:([=!(),><]+)|([^=!(),>< \t\r\n]+)|\Z)")
_SYMBOLS: Final = frozenset({")", ",", "!", "==", "=", ">", "<", "!=", "("})
_END: Final = "end"
_NAME: Final = "name"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


class _SyntaxError(Exception):
    pass


def labels(selector: str) -> Predicate | None:
    """A predicate on objects for ``labelSelector``. Raises Failure."""
    test = label_test(selector)
    if test is None:
        return None

    def matches(obj: JsonObject) -> bool:
        return test(obj["metadata"].get("labels") or {})

    return matches


def label_test(selector: str) -> LabelTest | None:
    """A predicate on a set of labels. Raises Failure."""
    if not selector:
        return None
    if len(selector) > LENGTH_LIMIT:
        raise bad_request(f"label selector is longer than {LENGTH_LIMIT} characters")
    try:
        tests = _LabelParser(selector).parse()
    except _SyntaxError as wrong:
        raise bad_request(str(wrong)) from None
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda found: all(test(found) for test in tests)


def _scan(text: str) -> Iterator[_Token]:
    position = 0
    text = text.partition("\0")[0]  # the real lexer takes a zero byte for the end
    while position < len(text):
        match = _tokens.match(text, position)
        if match is None:  # pragma: no cover - the pattern matches anywhere
            break
        position = match.end()
        if match[1]:
            yield from _symbols(match[1])
        elif match[2]:
            yield _Token(_NAME, match[2])
    yield _Token(_END, "")


def _symbols(run: str) -> Iterator[_Token]:
    position = 0
    while position < len(run):
        two = run[position : position + 2]
        symbol = two if two in _SYMBOLS and len(two) == 2 else run[position]
        position += len(symbol)
        yield _Token(symbol, symbol)


class _LabelParser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_scan(text))
        self._position = 0

    def _peek(self) -> _Token:
        return self._tokens[self._position]

    def _next(self) -> _Token:
        token = self._tokens[self._position]
        self._position = min(self._position + 1, len(self._tokens) - 1)
        return token

    def parse(self) -> list[LabelTest]:
        tests: list[LabelTest] = []
        while True:
            token = self._peek()
            if token.kind == _END:
                return tests
            if token.kind not in {_NAME, "!"}:
                raise _SyntaxError(f"found '{token.text}', expected: !, identifier, or 'end of string'")
            try:
                tests.append(self._requirement())
            except _SyntaxError as wrong:
                raise _SyntaxError(f"unable to parse requirement: {wrong}") from None
            after = self._next()
            if after.kind == _END:
                return tests
            if after.kind != ",":
                raise _SyntaxError(f"found '{after.text}', expected: ',' or 'end of string'")
            if self._peek().kind not in {_NAME, "!"}:
                raise _SyntaxError(f"found '{self._peek().text}', expected: identifier after ','")

    def _requirement(self) -> LabelTest:
        token = self._next()
        absent = token.kind == "!"
        if absent:
            token = self._next()
        if token.kind != _NAME:
            raise _SyntaxError(f"found '{token.text}', expected: identifier")
        key = token.text
        complaints = names.qualified(key)
        if complaints:
            raise _SyntaxError(str(FieldError(Cause.INVALID, "<nil>", key, "; ".join(complaints))))
        if absent:
            return lambda found: key not in found
        if self._peek().kind in {_END, ","}:
            return lambda found: key in found
        operator = self._next().text
        if operator in {"in", "notin"}:
            values = self._values()
        elif operator in {"=", "==", "!=", ">", "<"}:
            values = {self._value()}
        else:
            raise _SyntaxError(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
        _check_values(key, operator, sorted(values))
        return _test(key, operator, values)

    def _value(self) -> str:
        if self._peek().kind in {_END, ","}:
            return ""
        token = self._next()
        if token.kind != _NAME:
            raise _SyntaxError(f"found '{token.text}', expected: identifier")
        return token.text

    def _values(self) -> set[str]:
        token = self._next()
        if token.kind != "(":
            raise _SyntaxError(f"found '{token.text}' expected: '('")
        first = self._peek()
        if first.kind == ")":
            self._next()
            return {""}
        if first.kind not in {_NAME, ","}:
            raise _SyntaxError(f"found '{first.text}', expected: ',', ')' or identifier")
        values = self._list()
        if self._next().kind != ")":
            raise _SyntaxError(f"found '{first.text}', expected: ')'")
        return values

    def _list(self) -> set[str]:
        values: set[str] = set()
        while True:
            token = self._next()
            after = self._peek()
            if token.kind == _NAME:
                values.add(token.text)
                if after.kind == ")":
                    return values
                if after.kind != ",":
                    raise _SyntaxError(f"found '{after.text}', expected: ',' or ')'")
            elif token.kind == ",":
                if not values:
                    values.add("")
                if after.kind == ")":
                    values.add("")
                    return values
                if after.kind == ",":
                    self._next()
                    values.add("")
            else:
                raise _SyntaxError(f"found '{token.text}', expected: ',', or identifier")


def _check_values(key: str, operator: str, values: list[str]) -> None:
    errors: list[str] = []
    if operator in {">", "<"} and _integer(values[0]) is None:
        detail = "for 'Gt', 'Lt' operators, the value must be an integer"
        errors.append(str(FieldError(Cause.INVALID, "values[0]", values[0], detail)))
    for index, value in enumerate(values):
        complaints = names.label_value(value)
        if complaints:
            errors.append(str(FieldError(Cause.INVALID, f"values[{index}][{key}]", value, "; ".join(complaints))))
    if errors:
        raise _SyntaxError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")


_is_integer = re.compile(r"[+-]?\d{1,100}", re.ASCII).fullmatch


def _integer(text: str) -> int | None:
    """A whole number of 64 bits."""
    value = int(text) if _is_integer(text) else 1 << 63
    return value if -(1 << 63) <= value < 1 << 63 else None


def _test(key: str, operator: str, values: set[str]) -> LabelTest:
    only = next(iter(values))
    if operator in {">", "<"}:
        return _comparison(key, operator, only)
    if operator in {"!=", "notin"}:
        return lambda found: key not in found or found[key] not in values
    if len(values) == 1:
        return lambda found: found.get(key) == only
    return lambda found: found.get(key) in values


def _comparison(key: str, operator: str, bound: str) -> LabelTest:
    limit = _integer(bound) or 0

    def compare(found: JsonObject) -> bool:
        value = _integer(found[key]) if key in found else None
        if value is None:
            return False
        return value > limit if operator == ">" else value < limit

    return compare


# Fields


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector: ``metadata.name=a``."""

    path: str
    value: str
    negated: bool


def field_terms(selector: str) -> list[FieldTerm]:
    """The terms of a ``fieldSelector``, in the order of their text. Raises Failure."""
    if len(selector) > LENGTH_LIMIT:
        raise bad_request(f"field selector is longer than {LENGTH_LIMIT} characters")
    terms: list[FieldTerm] = []
    for part in sorted(_split(selector)):
        if not part:
            continue
        match = _operator.search(part)
        if match is None:
            raise bad_request(f"invalid selector: '{selector}'; can't understand '{part}'")
        term = FieldTerm(part[: match.start()], _unescaped(part[match.end() :]), match[0] == "!=")
        if term.path or term.value:
            terms.append(term)
    return terms


def fields(selector: str, kind: Kind) -> Predicate | None:
    """A predicate on objects of *kind* for ``fieldSelector``. Raises Failure."""
    if not selector:
        return None
    tests = [_field_test(term, kind) for term in field_terms(selector)]
    return both(*tests)


def required_name(selector: str) -> str | None:
    """The name that an object must have by this ``fieldSelector``, if it says. Raises Failure."""
    for term in field_terms(selector):
        if term.path == "metadata.name" and not term.negated:
            return term.value
    return None


_operator = re.compile("!=|==|=")
_term = re.compile(r"(?:[^\\,]|\\.|\\\Z)*", re.DOTALL)


def _split(selector: str) -> Iterator[str]:
    position = 0
    while True:
        match = _term.match(selector, position)
        if match is None:  # pragma: no cover - the pattern matches anywhere
            return
        yield match[0]
        position = match.end() + 1
        if position > len(selector):
            return


def _unescaped(text: str) -> str:
    if not any(special in text for special in "\\,="):
        return text
    value: list[str] = []
    characters = iter(text)
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if escaped not in {"\\", ",", "="}:
                raise bad_request(f"invalid field selector: invalid escape sequence: \\{escaped}")
            value.append(escaped)
        elif character in ",=":
            raise bad_request(f"invalid field selector: unescaped character in value: {ord(character)}")
        else:
            value.append(character)
    return "".join(value)


def _field_test(term: FieldTerm, kind: Kind) -> Predicate:
    path = _supported(term.path, kind)
    read, expected, negated = _reader(path, kind), term.value, term.negated
    return lambda obj: (read(obj) == expected) is not negated


def _supported(path: str, kind: Kind) -> str:
    special = kind.custom or bool(kind.field_selectors)
    if path == "metadata.name" or (path == "metadata.namespace" and (kind.namespaced or not special)):
        return path
    if path in kind.field_selectors:
        return path
    if special:
        raise bad_request(f"field label not supported: {path}")
    raise bad_request(f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"')


def _reader(path: str, kind: Kind) -> Callable[[JsonObject], str]:
    if path == "metadata.name":
        return lambda obj: str(obj["metadata"].get("name", ""))
    if path == "metadata.namespace":
        return lambda obj: str(obj["metadata"].get("namespace", ""))
    derived = kind.field_readers.get(path)
    if derived is not None:
        return derived
    steps = path.split(".")
    return lambda obj: _text(_at(obj, steps))


def _at(value: Any, steps: list[str]) -> Any:
    for step in steps:
        if type(value) is not dict:
            return None
        value = value.get(step)
    return value


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    if value is None:
        return ""
    if type(value) is bool:
        return "true" if value else "false"
    return str(value)
