"""JSONPath as Kubernetes has it in printer columns and selectable fields: ``.status.conditions[?(@.type=="Ready")]``.

A path is compiled once to a :class:`JSONPath`, whose :meth:`~JSONPath.find` gives the values in an object. What is
missing gives nothing; indexing what is no list is an error. Source: k8s.io/client-go/util/jsonpath.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from kargo_py.local.apiserver.gotext import number

VALUES_LIMIT: Final = 100_000
DEPTH_LIMIT: Final = 32
LENGTH_LIMIT: Final = 4096

Step: TypeAlias = Callable[[list[Any]], list[Any]]


class JSONPathError(ValueError):
    """The path cannot be read, or asks of a value what it is not."""


class JSONPath:
    """A compiled path, as in a CustomResourceDefinition: without braces around it."""

    def __init__(self, text: str) -> None:
        """Raise JSONPathError if *text* is no path."""
        if len(text) > LENGTH_LIMIT:
            raise JSONPathError(f"path is longer than {LENGTH_LIMIT} characters")
        self.text = text
        self._steps = _Parser(text).parse()
        self._keys = _plain_keys(text)

    def find(self, obj: Any) -> list[Any]:
        """The values at the path. Raises JSONPathError."""
        if self._keys is not None:
            return _walk(obj, self._keys)
        return _run(self._steps, [obj])

    def first(self, obj: Any) -> tuple[Any] | None:
        """The first value, in a tuple since it may be None; nothing where there is none, or on an error."""
        try:
            values = self.find(obj)
        except JSONPathError:
            return None
        return (values[0],) if values else None


_is_plain = re.compile(r"(?:\.[A-Za-z_][\w-]*)+", re.ASCII).fullmatch


def _plain_keys(text: str) -> list[str] | None:
    return text[1:].split(".") if _is_plain(text) else None


def _walk(value: Any, keys: list[str]) -> list[Any]:
    for key in keys:
        if type(value) is not dict or key not in value:
            return []
        value = value[key]
    return [value]


def _run(steps: Sequence[Step], values: list[Any]) -> list[Any]:
    for step in steps:
        values = step(values)
        if len(values) > VALUES_LIMIT:
            raise JSONPathError("path matches too many values")
    return values


_SLICE: Final = re.compile(r"(-?\d*)(:-?\d*)?(:-?\d*)?", re.ASCII)
_KEY: Final = re.compile(r"'([^']*)'")
_COMPARISON: Final = re.compile(r"([^!<>=]+)([!<>=]+)(.+)", re.DOTALL)
_NUMBER: Final = re.compile(r"[+-]?[\d.]*", re.ASCII)
_ENDS: Final = frozenset(" \t\r\n.,[]$@{}")


class _Parser:
    def __init__(self, text: str, depth: int = 0) -> None:
        if depth > DEPTH_LIMIT:
            raise JSONPathError("path is nested too deeply")
        self._text = text
        self._position = 0
        self._depth = depth

    def parse(self) -> list[Step]:
        steps: list[Step] = []
        recursive = False
        while self._position < len(self._text):
            rest = self._text[self._position : self._position + 3]
            if rest.startswith(
                "}"
            ):  # whatever follows an action is text to a template, and no part of the first result
                break
            descends = rest.startswith("..")
            if descends and recursive:
                raise JSONPathError("invalid multiple recursive descent")
            steps += self._step(rest)
            recursive = descends and self._text[self._position - 1] == "."
        return steps

    def _step(self, rest: str) -> list[Step]:
        if rest == "[?(":
            return [self._filter()]
        if rest.startswith(".."):
            self._position += 2
            following = self._text[self._position : self._position + 1]
            return [_recursive, *(self._field() if _is_word(following) else ())]
        character = rest[0]
        if character in "\r\n":
            raise JSONPathError("unclosed action")
        if character in " @$":
            self._position += 1
            return []
        if character == "[":
            return self._brackets()
        if character in "\"'":
            return [_constant(self._quoted(character), once=True)]
        if character == ".":
            self._position += 1
            return self._field()
        if character in "+-" or character.isdigit():
            return [self._number()]
        if _is_word(character):
            return [self._word()]
        raise JSONPathError(f"unrecognized character in action: U+{ord(character):04X} {character!r}")

    def _until_end(self, *, escapes: bool) -> str:
        start = self._position
        while self._position < len(self._text) and self._text[self._position] not in _ENDS:
            self._position += 2 if escapes and self._text[self._position] == "\\" else 1
        self._position = min(self._position, len(self._text))
        return self._text[start : self._position]

    def _field(self) -> list[Step]:
        name = self._until_end(escapes=True)
        return [_wildcard] if name == "*" else [_field(name.replace("\\", ""))]

    def _word(self) -> Step:
        word = self._until_end(escapes=False)
        if word in {"true", "false"}:
            return _constant(word == "true")
        return _failing(f"unrecognized identifier {word}")

    def _number(self) -> Step:
        match = _NUMBER.match(self._text, self._position)
        text = match[0] if match else ""
        self._position += len(text)
        try:
            return _constant(int(text))
        except ValueError:
            pass
        try:
            return _constant(float(text))
        except ValueError:
            raise JSONPathError(f"cannot parse number {text}") from None

    def _quoted(self, quote: str) -> str:
        end = self._position + 1
        while True:
            end = self._text.find(quote, end)
            if end < 0 or "\n" in self._text[self._position : end]:
                raise JSONPathError("unterminated quoted string")
            if self._text[end - 1] != "\\":
                break
            end += 1
        body = self._text[self._position + 1 : end]
        self._position = end + 1
        return _unquoted(body, quote)

    def _brackets(self) -> list[Step]:
        end = self._text.find("]", self._position)
        if end < 0 or "\n" in self._text[self._position : end]:
            raise JSONPathError("unterminated array")
        inside = self._text[self._position + 1 : end]
        self._position = end + 1
        if "," in inside:
            parts = [self._sub(f"[{part.strip(' ')}]") for part in inside.split(",")]
            return [_union(parts)]
        key = _KEY.fullmatch(inside)
        if key:
            return self._sub(f".{key[1]}")
        bounds = _SLICE.fullmatch(":" if inside == "*" else inside)
        if bounds is None:
            raise JSONPathError(f"invalid array index {inside}")
        return [_slice(bounds)]

    def _filter(self) -> Step:
        start = self._position + 3
        position, quote, closed = start, "", False
        while True:
            if position >= len(self._text) or self._text[position] == "\n":
                raise JSONPathError("unterminated filter")
            character = self._text[position]
            if character in "\"'":
                if not quote:
                    quote = character
                elif character == quote and self._text[position - 1] != "\\":
                    closed = True
            elif character == ")" and bool(quote) == closed:
                break
            position += 1
        if self._text[position + 1 : position + 2] != "]":
            raise JSONPathError("unclosed array expect ]")
        inside = self._text[start:position]
        self._position = position + 2
        match = _COMPARISON.fullmatch(inside)
        if match is None:
            return _existing(self._sub(inside))
        return _comparing(self._sub(match[1]), match[2], self._sub(match[3]))

    def _sub(self, text: str) -> list[Step]:
        return _Parser(text, self._depth + 1).parse()


def _is_word(character: str) -> bool:
    return character == "_" or character.isalnum()


_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.)|\Z)", re.DOTALL)


def _unquoted(body: str, quote: str) -> str:
    def replace(match: re.Match[str]) -> str:
        for group, base in ((match[1], 16), (match[2], 16), (match[3], 16), (match[4], 8)):
            if group is not None:
                number = int(group, base)
                if number > 0x10FFFF:
                    raise JSONPathError(f"unquote string {quote}{body}{quote} error invalid syntax")
                return chr(number)
        if match[5] == quote:
            return quote
        if match[5] not in _ESCAPES:
            raise JSONPathError(f"unquote string {quote}{body}{quote} error invalid syntax")
        return _ESCAPES[match[5]]

    return _ESCAPE.sub(replace, body)


# Steps


def _field(name: str) -> Step:
    return lambda values: [value[name] for value in values if type(value) is dict and name in value]


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list):
        return value
    return list(value.encode(errors="surrogatepass")) if isinstance(value, str) else []


def _wildcard(values: list[Any]) -> list[Any]:
    return [child for value in values for child in _children(value)]


def _recursive(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    stack: list[Iterator[Any]] = [iter(values)]
    while stack:
        for value in stack[-1]:
            children = _children(value)
            if children:
                found.append(value)
                if len(found) > VALUES_LIMIT:
                    raise JSONPathError("path matches too many values")
                stack.append(iter(children))
                break
        else:
            stack.pop()
    return found


def _constant(value: Any, *, once: bool = False) -> Step:
    return (lambda _: [value]) if once else (lambda values: [value] * len(values))


def _failing(message: str) -> Step:
    """What can be read, and is an error only when it is used."""

    def fail(_: list[Any]) -> list[Any]:
        raise JSONPathError(message)

    return fail


def _union(parts: list[list[Step]]) -> Step:
    return lambda values: [found for part in parts for found in _run(part, values)]


def _slice(bounds: re.Match[str]) -> Step:
    first, second, third = bounds[1], bounds[2], bounds[3]
    start = int(first) if first not in {"", "-"} else None
    if "-" in {first, (second or "")[1:], (third or "")[1:]}:
        raise JSONPathError(f"array index {bounds[0]} is not a number")
    derived = second is None
    stop = (start or 0) + 1 if second is None else int(second[1:]) if second[1:] else None
    step = int(third[1:]) if third and third[1:] else 1

    def cut(values: list[Any]) -> list[Any]:
        found: list[Any] = []
        for value in values:
            if value is None:
                continue
            if type(value) is not list:
                raise JSONPathError(f"{type(value).__name__} is not array or slice")
            length = len(value)
            begin = start or 0
            begin += length if begin < 0 else 0
            end = length if stop is None else stop
            if end < 0 or (end == 0 and derived):
                end += length
            if begin == end:
                return found
            if not 0 <= begin < length:
                raise JSONPathError(f"array index out of bounds: index {begin}, length {length}")
            if not 0 <= end <= length:
                raise JSONPathError(f"array index out of bounds: index {end - 1}, length {length}")
            if begin > end:
                raise JSONPathError(f"starting index {begin} is greater than ending index {end}")
            if step <= 0:
                raise JSONPathError("step must be > 0")
            found += value[begin:end:step]
        return found

    return cut


def _items(values: list[Any]) -> Iterator[Any]:
    for value in values:
        if type(value) is not list:
            raise JSONPathError(f"{value} is not array or slice and cannot be filtered")
        yield from value


def _existing(steps: list[Step]) -> Step:
    return lambda values: [item for item in _items(values) if _run(steps, [item])]


def _comparing(left: list[Step], operator: str, right: list[Step]) -> Step:
    compare = _COMPARE.get(operator)

    def passes(item: Any) -> bool:
        lefts = _run(left, [item])
        if not lefts:
            return False
        rights = _run(right, [item]) if len(lefts) == 1 else []
        if len(lefts) > 1 or len(rights) > 1:
            raise JSONPathError("can only compare one element at a time")
        if not rights:
            return False
        if compare is None:
            raise JSONPathError(f"unrecognized filter operator {operator}")
        return compare(lefts[0], rights[0])

    return lambda values: [item for item in _items(values) if passes(item)]


def _comparable(left: Any, right: Any, *, ordered: bool) -> None:
    if type(left) is not type(right) or type(left) not in {str, bool, int, float}:
        raise JSONPathError("incompatible types for comparison")
    if ordered and type(left) is bool:
        raise JSONPathError("invalid type for comparison")


def _equal(left: Any, right: Any) -> bool:
    _comparable(left, right, ordered=False)
    return bool(left == right)


def _less(left: Any, right: Any) -> bool:
    _comparable(left, right, ordered=True)
    return bool(left < right)


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _less,
    "<=": lambda left, right: _less(left, right) or _equal(left, right),
    ">": lambda left, right: not _less(left, right) and not _equal(left, right),
    ">=": lambda left, right: not _less(left, right),
}


# Text


def text(value: Any) -> str:
    """A value as Kubernetes prints it."""
    if isinstance(value, (dict, list)):
        dumped = "".join(_pieces(value))
        return dumped.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    if value is None:
        return "<no value>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        value = float(value)  # beyond 64 bits, Go reads a number as a float
    return number(value) if isinstance(value, float) else str(value)


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield "{"
        for index, key in enumerate(sorted(value)):
            yield f"{',' if index else ''}{_string(key)}:"
            yield from _pieces(value[key])
        yield "}"
    elif isinstance(value, list):
        yield "["
        for index, item in enumerate(value):
            yield "," if index else ""
            yield from _pieces(item)
        yield "]"
    elif isinstance(value, float):
        yield str(int(value)) if value.is_integer() and abs(value) < 1e21 else json.dumps(value)
    else:
        yield _string(value)


def _string(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
