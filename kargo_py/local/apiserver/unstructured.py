"""How a strategic merge patch and server-side apply bring plain maps into a built-in kind's Go type.

They do not go through JSON: fields are read in the order of the type, numbers wrap around, and errors have other words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kargo_py.local.apiserver.gotypes import Bool, Bytes, Float, GoType, Int, List, Map, Mistyped, Struct, Text

_TEXT: Final = Text()
_KINDS: Final[Mapping[type, str]] = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    list: "slice",
    dict: "map",
}
_LEAST: Final = -(1 << 63)
_BOUND: Final = 1 << 63


def restored(struct: Struct, obj: Mapping[str, Any]) -> dict[str, Any]:
    """*obj* in values that *struct* can hold, fields that it does not know as they were. Raises Mistyped."""
    head = {name: _restored(_TEXT, obj[name]) for name in ("kind", "apiVersion") if name in obj}
    return {**_fields(struct, {name: value for name, value in obj.items() if name not in head}), **head}


def _fields(struct: Struct, value: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: _restored(field.type, value[name]) for name, field in struct.fields.items() if name in value}
    return {name: known.get(name, item) for name, item in value.items()}


def _restored(type_: GoType, value: Any) -> Any:
    kind = _KINDS.get(type(value))
    if kind is None:  # null, or the server's own managed fields
        return value
    match type_:
        case Struct() if not type_.fields:  # it has another form in JSON, a time for one, and reads itself from that
            type_.decode(value, [])
        case Text() if kind != "string":
            raise Mistyped(f"cannot convert int64 to {type_.go}" if kind == "int64" else "unrecognized type: string")
        case Bool() if kind != "bool":
            raise Mistyped("unrecognized type: bool")
        case Int():
            return _whole(type_, value, kind)
        case Float() if kind not in {"int64", "float64"}:
            raise Mistyped("unrecognized type: float64")
        case Bytes():
            return _bytes(type_, value, kind)
        case List():
            if kind != "slice":
                raise Mistyped(f"cannot restore slice from {kind}")
            return [_restored(type_.item, item) for item in value]
        case Map():
            if kind != "map":
                raise Mistyped(f"cannot restore map from {kind}")
            return {name: _restored(type_.item, item) for name, item in value.items()}
        case Struct():
            if kind != "map":
                raise Mistyped(f"cannot restore struct from: {kind}")
            return _fields(type_, value)
    return value


def _whole(type_: Int, value: Any, kind: str) -> int:
    if kind not in {"int64", "float64"}:
        raise Mistyped(f"unrecognized type: {type_.go}")
    number = int(value)
    if number != value:
        raise Mistyped(f"cannot convert float64 to {type_.go}")
    if not _LEAST <= number < _BOUND:
        number = _LEAST  # what the processor makes of a float that is too large
    half = 1 << (int(type_.go.removeprefix("int")) - 1)
    return (number + half) % (2 * half) - half


def _bytes(type_: Bytes, value: Any, kind: str) -> Any:
    if kind == "string":
        try:
            return type_.decode(value, [])
        except Mistyped as error:
            raise Mistyped(f"error decoding from json: {error}") from error
    if kind != "slice":
        raise Mistyped(f"cannot restore slice from {kind}")
    for item in value:
        if type(item) not in {int, float}:
            raise Mistyped("unrecognized type: uint8")
    return [int(item) % 256 for item in value]
