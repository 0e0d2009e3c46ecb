"""Values as the vectors of the Go library write them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from kargo_py.expressions import gotime
from kargo_py.expressions.numbers import format_float
from kargo_py.expressions.values import AnyMap, Value, type_name

VECTORS = Path(__file__).parent / "vectors"


@cache
def vectors() -> dict[str, list[dict[str, Any]]]:
    """What ``go run .`` has written there."""
    found: dict[str, list[dict[str, Any]]] = json.loads((VECTORS / "vectors.json").read_text())
    return found


@cache
def environment() -> dict[str, Any]:
    """The environment of all vectors."""
    found: dict[str, Any] = json.loads((VECTORS / "environment.json").read_text())
    return found


def encoded(value: Value) -> Any:
    """*value* as the Go program writes it."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return {"int": str(value)}
        case float():
            return {"float": format_float(value)}
        case list() | bytes():
            return [encoded(item) for item in value]
        case gotime.Named():
            return {"int": str(value.value)}
        case gotime.Time():
            return {"time": str(value)}
        case gotime.Duration():
            return {"duration": str(value)}
        case dict():
            return {"map": [[key, encoded(item)] for key, item in sorted(value.items())]}
        case AnyMap():
            pairs = [[encoded(key), encoded(item)] for key, item in value.entries.values()]
            return {"map": sorted(pairs, key=lambda pair: str(pair[0]))}
    return {"go": type_name(value)}
