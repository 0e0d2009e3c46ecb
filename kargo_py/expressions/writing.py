"""Values as texts: Go's ``%v``, JSON and YAML. A value must have been measured before it is written."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final

import yaml

from kargo_py.expressions.errors import Fault, LimitFault
from kargo_py.expressions.gotime import Duration, Named, Time, Zone, format_time
from kargo_py.expressions.numbers import format_float, format_json_float
from kargo_py.expressions.values import AnyMap, Budget, Function, Guess, Record, Value, type_name

_ESCAPED: Final = re.compile('["\\\\\x00-\x1f<>&\u2028\u2029\ud800-\udfff]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_RFC3339: Final = "2006-01-02T15:04:05.999999999Z07:00"


def to_text(value: Value) -> str:
    """As Go's ``%v`` writes it."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case float():
            return format_float(value)
        case bytes() | list():
            return f"[{' '.join(map(to_text, value))}]"
        case dict():
            return f"map[{' '.join(f'{key}:{to_text(value[key])}' for key in sorted(value))}]"
        case AnyMap():
            pairs = sorted(value.entries.values(), key=lambda pair: _order(pair[0]))
            return f"map[{' '.join(f'{to_text(key)}:{to_text(item)}' for key, item in pairs)}]"
        case Record():
            return value.text if value.text is not None else f"&{{{' '.join(map(to_text, value.values.values()))}}}"
        case Guess():
            return value.text
        case Function():
            raise Fault("a function has no text")
    return str(value)


def _order(key: Value) -> tuple[int, Any]:
    if key is None:
        return 0, 0
    if type(key) in {int, float}:
        return 1, key
    if type(key) is bool:
        return 2, key
    return (3, key) if type(key) is str else (4, to_text(key))


def quoted(text: str) -> str:
    """*text* as Go's JSON writes it: safe within HTML too."""
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    return _SHORT.get(char) or ("\\ufffd" if "\ud800" <= char <= "\udfff" else f"\\u{ord(char):04x}")


def to_json(value: Value, indent: str | None = None) -> str:
    """As Go's encoder writes it; *indent* puts each item on a line. Raises Fault for what JSON does not have."""
    parts: list[str] = []
    _write(value, indent, "\n", parts)
    return "".join(parts)


def _write(value: Value, indent: str | None, line: str, parts: list[str]) -> None:
    match value:
        case None:
            parts.append("null")
        case bool():
            parts.append("true" if value else "false")
        case str():
            parts.append(quoted(value))
        case int():
            parts.append(str(value))
        case float():
            if not math.isfinite(value):
                raise Fault("json: unsupported value: {}", format_float(value))
            parts.append(format_json_float(value))
        case bytes():
            parts.append(f'"{base64.b64encode(value).decode()}"')
        case Duration():
            parts.append(str(value.nanoseconds))
        case Named():
            parts.append(str(value.value))
        case Time():
            parts.append(quoted(format_time(value, _RFC3339)))
        case list():
            _brackets("[]", [("", item) for item in value], indent, line, parts)
        case Record() if value.text is not None:
            parts.append(quoted(value.text))
        case dict() | AnyMap() | Record():
            _brackets("{}", _pairs(value, ": " if indent is not None else ":"), indent, line, parts)
        case Guess():
            _write(value.value, indent, line, parts)
        case Zone():
            parts.append("{}")
        case _:
            raise Fault(f"json: unsupported type: {type_name(value)}")


def _pairs(value: dict[str, Value] | AnyMap | Record, colon: str) -> list[tuple[str, Value]]:
    if isinstance(value, Record):
        return [(quoted(name) + colon, item) for name, item in value.written().items()]
    named = value.named() if isinstance(value, AnyMap) else value
    if named is None:
        raise Fault("json: unsupported type: a map whose keys are no strings")
    return [(quoted(name) + colon, named[name]) for name in sorted(named)]


def _brackets(
    brackets: str, pairs: Sequence[tuple[str, Value]], indent: str | None, line: str, parts: list[str]
) -> None:
    parts.append(brackets[0])
    inner = line + (indent or "")
    for number, (before, item) in enumerate(pairs):
        if number:
            parts.append(",")
        if indent is not None:
            parts.append(inner)
        parts.append(before)
        _write(item, indent, inner, parts)
    if pairs and indent is not None:
        parts.append(line)
    parts.append(brackets[1])


def plain(value: Value) -> Any:
    """*value* as JSON alone, without Go's types. Raises Fault for what JSON does not have."""
    match value:
        case Guess():
            return plain(value.value)
        case list():
            return [plain(item) for item in value]
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case Record() if value.text is None:
            return {name: plain(item) for name, item in value.written().items()}
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
    return json.loads(to_json(value))


class _Dumper(yaml.SafeDumper):
    """YAML as Go's library indents it; no anchors, which readers of plain YAML refuse."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text.rstrip("\n") or text.endswith("\n") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(value: Value) -> str:
    """*value* as YAML, keys in order. Raises Fault for what JSON does not have."""
    written: str = yaml.dump(
        plain(value), Dumper=_Dumper, indent=4, allow_unicode=True, sort_keys=True, default_flow_style=False,
        width=1 << 30,
    )  # fmt: skip
    return written.removesuffix("...\n")


def from_json(text: str, budget: Budget) -> Value:
    """The value that *text* says in JSON; numbers are floats, as Go reads them. Raises Fault."""
    if _nesting(text) > 500:
        raise LimitFault("the JSON nests more than 500 deep")
    try:
        value = json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_refuse)
    except ValueError as error:
        raise Fault("invalid JSON: {}", error) from error
    budget.measure(value)
    return _paired(value) if _SURROGATE.search(text) else value


_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def _paired(value: Value) -> Value:
    """*value* with half pairs of UTF-16 replaced, as Go replaces them."""
    if type(value) is str:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if type(value) is list:
        return [_paired(item) for item in value]
    if type(value) is dict:
        return {_paired(key): _paired(item) for key, item in value.items()}
    return value


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"number {text[:80]} is out of range")
    return number


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _nesting(text: str) -> int:
    """At least how deep *text* nests, brackets within texts included."""
    depth = most = 0
    for char in text:
        if char in "[{":
            depth += 1
            most = max(most, depth)
        elif char in "]}":
            depth -= 1
    return most


_GO_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
    "\a": "\\a",
    "\v": "\\v",
}


def go_quoted(text: str) -> str:
    """*text* as Go's ``%q`` writes it."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_go_char, text))}"'


def _go_char(char: str) -> str:
    if char in _GO_ESCAPES:
        return _GO_ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
