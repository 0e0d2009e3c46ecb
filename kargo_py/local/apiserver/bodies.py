"""Bodies of requests: from bytes to JSON values as the real server sees them, or its words for what is wrong.

What the real server does and most parsers do not: bytes that are no UTF-8 and lone surrogates become U+FFFD, a whole
number is an integer however it is written, integers beyond 64 bits lose digits, and keys that are given twice are told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec

from kargo_py.local.apiserver.gojson import why_not
from kargo_py.local.apiserver.wire import encode

MAX_BODY: Final = 3 * 1024 * 1024
MAX_DEPTH: Final = 150
"""Levels of lists and objects in each other. The real server allows 10,000; here, walkers recurse."""
_BIG: Final = 1 << 63
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Undecodable(Exception):
    """The body cannot be read; the text says why, as Go does."""

    @property
    def unrecognized(self) -> str:
        """The text where a whole object was looked for."""
        return str(self)


class BadJson(Undecodable):
    """It is no JSON."""

    @property
    def unrecognized(self) -> str:
        return f"couldn't get version/kind; json parse error: {self}"


class BadNumber(Undecodable):
    """It is JSON, with a number that is too large to be one."""


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON value, and the keys that were given twice as strict decoding reports them."""

    value: Any
    twice: tuple[str, ...] = ()


def decode_json(body: bytes) -> Document:
    """The JSON in *body*. Raises Undecodable."""
    try:
        value = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return _decode_slowly(body)
    if _deeper_than(MAX_DEPTH, value, body):
        return _decode_slowly(body)
    # Where a key was given twice, encoding what is left gives fewer quotation marks.
    if body.count(b'"') != encode(value).count(b'"') or b"\\u0022" in body or _LONG_NUMBER.search(body):
        return _decode_slowly(body)
    return Document(value)


def decode_yaml(body: bytes, *, guess: bool = True) -> Document:
    """The YAML in *body*. What begins as JSON does is taken for that, as the real decoder *guesses*.

    Raises:
        Undecodable: it is neither.
    """
    if guess and body.lstrip()[:1] == b"{":
        return decode_json(body)
    from kargo_py.local.apiserver.yamlbodies import load  # noqa: PLC0415  (YAML bodies are rare, and its import is slow)

    value, twice = load(body.decode(errors="replace"), MAX_DEPTH)
    # Through JSON, so that numbers and texts are as in every other body.
    return Document(_decoder.decode(encode(value)), twice)


def _float(text: str) -> float | int:
    number = float(text)
    if number in {float("inf"), float("-inf")}:
        raise _TooLarge(text)
    if number.is_integer() and abs(number) < 1e21:  # from there on Go writes an exponent
        return int(Decimal(repr(number)))  # as Go prints it: digits beyond the precision are zeros
    return number


class _TooLarge(Exception):
    pass


class _Overflow(msgspec.DecodeError):
    pass


def _hook(text: str) -> float | int:
    try:
        return _float(text)
    except _TooLarge as error:
        raise _Overflow from error


_decoder: Final = msgspec.json.Decoder(float_hook=_hook)


def _deeper_than(limit: int, value: Any, body: bytes) -> bool:
    if body.count(b"{") + body.count(b"[") <= limit:
        return False
    level = [value]
    for _ in range(limit + 1):
        if not level:
            return False
        level = [child for parent in level for child in _children(parent)]
    return True


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from (child for child in value.values() if isinstance(child, dict | list))
    elif isinstance(value, list):
        yield from (child for child in value if isinstance(child, dict | list))


def _decode_slowly(body: bytes) -> Document:
    if (wrong := why_not(body, max_depth=MAX_DEPTH)) is not None:
        raise BadJson(wrong)
    twice: list[_Twice] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) != len(found):
            twice.append(_Twice(made, _repeated(found)))
        return made

    try:
        value = json.loads(body.decode(errors="replace"), object_pairs_hook=pairs, parse_float=_float)
    except _TooLarge as error:
        raise BadNumber(f"json: cannot unmarshal number {error} into Go value of type float64") from error
    except ValueError as error:  # an integer with thousands of digits
        raise BadNumber("json: cannot unmarshal number into Go value of type float64") from error
    try:
        mended = _mended(value)
    except _TooLarge as error:
        raise BadNumber(f"json: cannot unmarshal number {error} into Go value of type float64") from error
    return Document(mended, tuple(_paths(value, twice)))


@dataclass(frozen=True, slots=True)
class _Twice:
    within: dict[str, Any]
    keys: tuple[str, ...]


def _repeated(found: list[tuple[str, Any]]) -> tuple[str, ...]:
    seen: set[str] = set()
    again: dict[str, None] = {}
    for key, _ in found:
        if key in seen:
            again[key] = None
        seen.add(key)
    return tuple(again)


def _paths(value: Any, twice: list[_Twice]) -> Iterator[str]:
    if not twice:
        return
    keys = {id(entry.within): entry.keys for entry in twice}

    def walk(value: Any, path: str) -> Iterator[str]:
        if isinstance(value, dict):
            for key in keys.get(id(value), ()):
                yield f'duplicate field "{path}{key}"'
            for key, child in value.items():
                yield from walk(child, f"{path}{key}.")
        elif isinstance(value, list):
            for index, child in enumerate(value):
                yield from walk(child, f"{path[:-1]}[{index}].")

    yield from walk(value, "")


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_SURROGATE.sub("\ufffd", key): _mended(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_mended(child) for child in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -_BIG <= value < _BIG:
        return _float(str(value))
    return value
