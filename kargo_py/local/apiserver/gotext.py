"""Values as Go prints them: the API server's messages are Go's formatting verbs."""

from __future__ import annotations

import json
import math
from typing import Any, Final

_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


class Verbatim(str):
    """A text that is JSON already, in an order of keys that is to be kept."""

    __slots__ = ()


def quoted(text: str) -> str:
    """``%q``."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_quoted_char, text))}"'


def _quoted_char(char: str) -> str:
    if short := _ESCAPES.get(char):
        return short
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def number(value: float) -> str:
    """``%v`` of an integer or a float."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    digits, exponent = _scientific(value)
    if exponent < -4 or exponent >= 6:
        return _with_exponent(value, digits, exponent)
    places = max(len(digits) - 1 - exponent, 0)
    return f"{value:.{places}f}"


def go_shown(value: Any) -> str:
    """JSON as ``%v`` of Go's values for it."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, dict):
        return "map[" + " ".join(f"{name}:{go_shown(value[name])}" for name in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_shown, value)) + "]"
    return str(value)


def go_source(value: Any) -> str:
    """The same as ``%#v``."""
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        inner = ", ".join(f"{quoted(name)}:{go_source(value[name])}" for name in sorted(value))
        return "map[string]interface {}{" + inner + "}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(map(go_source, value)) + "}"
    return go_shown(value)


def compact(value: Any, *, sort_keys: bool = True) -> str:
    """``encoding/json``: no spaces, markup escaped; keys are sorted for a map, and not for a struct."""
    text = json.dumps(_whole(value), ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _whole(value: Any) -> Any:
    """*value* with floats that are whole as integers, which is how Go writes them."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    return value


def _scientific(value: float) -> tuple[str, int]:
    """The shortest digits that mean *value*, and the exponent of the first one."""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0").rstrip("0") or "0"
    leading = len(whole + fraction) - len((whole + fraction).lstrip("0"))
    return digits, 0 if value == 0 else int(exponent or 0) + len(whole) - 1 - leading


def _with_exponent(value: float, digits: str, exponent: int) -> str:
    point = f".{digits[1:]}" if len(digits) > 1 else ""
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}{point}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
