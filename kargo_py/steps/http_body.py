"""The body of an answer as a value: JSON, YAML or text. Pure, and bounded whatever the body is."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from kargo_py.expressions.errors import Fault, LimitFault
from kargo_py.expressions.values import MAX_NESTING, MAX_STEPS, Budget, Value
from kargo_py.expressions.writing import from_json
from kargo_py.messages import Shown, message
from kargo_py.steps.http_config import ContentType

NOT_READABLE = message(
    "its body cannot be read as {what}: {why}",
    do="The server said that it is, or `responseContentType` does. Give `responseContentType` as it is; with "
    "`text/plain` any body is a string.",
    shown=Shown.PROMOTION,
)
TOO_MUCH = message(
    "it has more than {most} values, or nests more than {deep} deep",
    do="Part of *its body cannot be read*. Ask the server for less, or read it as `text/plain`.",
    shown=Shown.PROMOTION,
)
KEY_IS_NO_STRING = message(
    "a key in it is a list or a map",
    do="Part of *its body cannot be read*. JSON has no such keys. Read it as `text/plain`.",
    shown=Shown.PROMOTION,
)
UNKNOWN_ANCHOR = message(
    "it refers to what is not there or not complete",
    do="Part of *its body cannot be read*: an alias in the YAML names an anchor that does not stand before it.",
    shown=Shown.PROMOTION,
)

_YAML_TYPES: Final = frozenset({"application/yaml", "text/yaml", "application/x-yaml"})
_MOST_DIGITS: Final = 400


class UnreadableBody(ValueError):
    """The body is not what it is said to be; the text says why."""


def read_body(body: bytes, content_type: str, wanted: ContentType | None) -> Value:
    """What *body* says. *content_type* is the header's. Raises UnreadableBody.

    As in Kargo, an empty body is an empty map, and so is one of a type that is not known if it is no JSON.
    """
    if not body:
        return {}
    text = body.decode("utf-8-sig", "replace")
    declared = wanted.value if wanted is not None else content_type.partition(";")[0].strip().lower()
    if declared == ContentType.TEXT:
        return text
    if declared in _YAML_TYPES:
        return _yaml(text)
    try:
        return from_json(text, Budget())
    except LimitFault:
        raise UnreadableBody(NOT_READABLE(what="JSON", why=_too_much())) from None
    except Fault as fault:
        if declared == ContentType.JSON:
            raise UnreadableBody(NOT_READABLE(what="JSON", why=fault)) from None
        return {}


def _yaml(text: str) -> Value:
    try:
        value = _Builder().built(yaml.parse(text, Loader=yaml.CSafeLoader))
        # Aliases make a value large that is small in memory
        Budget().measure(value)
    except yaml.YAMLError as error:
        why = str(error).replace("\n", " ")
        raise UnreadableBody(NOT_READABLE(what="YAML", why=why)) from None
    except LimitFault:
        raise UnreadableBody(NOT_READABLE(what="YAML", why=_too_much())) from None
    except _YamlFault as fault:
        raise UnreadableBody(NOT_READABLE(what="YAML", why=fault)) from None
    return value


def _too_much() -> str:
    return TOO_MUCH(most=MAX_STEPS, deep=MAX_NESTING)


class _YamlFault(ValueError):
    """Why what was parsed has no value."""


_MERGE: Final = object()
"""Stands for the key ``<<``."""


@dataclass(slots=True)
class _Open:
    """A list or a map that is not complete yet."""

    value: Any
    anchor: str | None
    key: Any = None
    has_key: bool = False
    merged: list[dict[str, Value]] = field(default_factory=list)

    def add(self, value: Value, *, merge: bool) -> None:
        if isinstance(self.value, list):
            self.value.append(value)
        elif not self.has_key:
            self.key, self.has_key = (_MERGE if merge else _key(value)), True
        else:
            if self.key is _MERGE:
                self.merged += [each for each in (value if isinstance(value, list) else [value]) if type(each) is dict]
            else:
                self.value[self.key] = value
            self.has_key = False

    def complete(self) -> Value:
        for each in self.merged:
            for key, value in each.items():
                self.value.setdefault(key, value)
        return self.value


class _Builder:
    """The value of a stream of events. No recursion, and each alias is the value itself and no copy."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, Value] = {}
        self._made: Value = None
        self._count = 0
        self._merges = 0

    def built(self, events: Iterator[yaml.Event]) -> Value:
        """The value of the first document; nil if there is none."""
        for event in events:
            match event:
                case yaml.ScalarEvent():
                    merge = event.value == "<<" and event.implicit[0]
                    self._put(_scalar(event), event.anchor, merge=merge)
                case yaml.SequenceStartEvent():
                    self._begin(_Open([], event.anchor))
                case yaml.MappingStartEvent():
                    self._begin(_Open({}, event.anchor))
                case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                    self._end()
                case yaml.AliasEvent():
                    if event.anchor not in self._anchors:
                        raise _YamlFault(UNKNOWN_ANCHOR())
                    self._put(self._anchors[event.anchor], None, merge=False)
                case yaml.DocumentEndEvent():
                    break
        return self._made

    def _begin(self, part: _Open) -> None:
        if len(self._open) >= MAX_NESTING:
            raise _YamlFault(_too_much())
        self._open.append(part)

    def _end(self) -> None:
        part = self._open.pop()
        self._merges += sum(map(len, part.merged))
        self._bounded(self._merges)
        self._put(part.complete(), part.anchor, merge=False)

    def _put(self, value: Value, anchor: str | None, *, merge: bool) -> None:
        self._count += 1
        self._bounded(self._count)
        if anchor is not None:
            self._anchors[anchor] = value
        if self._open:
            self._open[-1].add(value, merge=merge)
        else:
            self._made = value

    @staticmethod
    def _bounded(count: int) -> None:
        if count > MAX_STEPS:
            raise _YamlFault(_too_much())


def _key(value: Value) -> str:
    """As in JSON: a text."""
    if isinstance(value, list | dict):
        raise _YamlFault(KEY_IS_NO_STRING())
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
    return str(value)


# As Go's library reads plain scalars, which is YAML 1.1 for the most part.
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_WORDS: Final = {
    **{each: True for word in ("true", "yes", "on") for each in (word, word.capitalize(), word.upper())},
    **{each: False for word in ("false", "no", "off") for each in (word, word.capitalize(), word.upper())},
}
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INTEGER: Final = re.compile(r"([-+]?)(?:0b([01]+)|0x([0-9a-fA-F]+)|0o?([0-7]+))")
_BASES: Final = (2, 16, 8)


def _scalar(event: yaml.ScalarEvent) -> Value:
    text = event.value
    if event.tag in {"!", "tag:yaml.org,2002:str"} or (event.tag is None and not event.implicit[0]):
        return text
    if text in _NULLS:
        return None
    if text in _WORDS:
        return _WORDS[text]
    number = _number(text.replace("_", "")) if text[0] in "+-.0123456789" and len(text) <= _MOST_DIGITS else None
    # Infinity and what is none have no JSON
    return text if number is None or not math.isfinite(number) else number


def _number(text: str) -> float | None:
    """All numbers are floats, as those of JSON are in Go."""
    if found := _INTEGER.fullmatch(text):
        sign, *digits = found.groups()
        number = next(int(part, base) for part, base in zip(digits, _BASES, strict=True) if part is not None)
        return float(f"{sign}{number}")
    return float(text) if _FLOAT.fullmatch(text) else None
