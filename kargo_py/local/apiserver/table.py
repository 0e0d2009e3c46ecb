"""What clients ask for in place of the objects: a Table of cells, or metadata alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from weakref import WeakKeyDictionary

from kargo_py.local.apiserver import gotime, jsonpath
from kargo_py.local.apiserver.failures import bad_request
from kargo_py.local.apiserver.kinds import Column, Kind
from kargo_py.local.apiserver.metatypes import OBJECT_META
from kargo_py.local.apiserver.wire import JsonObject

META_VERSION: Final = "meta.k8s.io/v1"
INCLUDES: Final = ("None", "Metadata", "Object")
UNKNOWN_AGE: Final = "<unknown>"
INVALID_AGE: Final = "<invalid>"

_NAME: Final = Column("Name", "string", ".metadata.name", "name", OBJECT_META.fields["name"].description)
_AGE: Final = Column(
    "Age", "date", ".metadata.creationTimestamp", "", OBJECT_META.fields["creationTimestamp"].description
)

Cell = Callable[[JsonObject, datetime], Any]


@dataclass(frozen=True, slots=True)
class _Layout:
    headers: list[JsonObject]
    cells: list[Cell]


_layouts: WeakKeyDictionary[Kind, _Layout] = WeakKeyDictionary()


def included(value: str) -> str:
    """What ``includeObject`` asks for. Raises Failure."""
    if not value:
        return "Metadata"
    if value not in INCLUDES:
        raise bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{value}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    return value


def table(
    kind: Kind,
    objects: Iterable[JsonObject],
    *,
    metadata: JsonObject,
    now: datetime,
    include: str = "Metadata",
    headers: bool = True,
    meta_version: str = META_VERSION,
) -> JsonObject:
    """A Table of *objects*. ``metadata`` is the list's, or the resourceVersion of the one object.

    A watch gives the headers in its first event only.
    """
    layout = _layout(kind)
    return {
        "kind": "Table",
        "apiVersion": meta_version,
        "metadata": metadata,
        "columnDefinitions": layout.headers if headers else None,
        "rows": [_row(obj, layout.cells, now, include, meta_version) for obj in objects],
    }


def partial(obj: JsonObject, meta_version: str = META_VERSION) -> JsonObject:
    """PartialObjectMetadata of *obj*."""
    return {"kind": "PartialObjectMetadata", "apiVersion": meta_version, "metadata": obj["metadata"]}


def partial_list(
    objects: Iterable[JsonObject], *, metadata: JsonObject, meta_version: str = META_VERSION
) -> JsonObject:
    """PartialObjectMetadataList of *objects*."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": meta_version,
        "metadata": metadata,
        "items": [partial(obj, meta_version) for obj in objects],
    }


def age(stamp: str | None, now: datetime) -> str:
    """How long ago *stamp* was, as kubectl shows it: ``5m30s``."""
    if not stamp:
        return UNKNOWN_AGE
    try:
        then = gotime.parse(stamp)
    except gotime.TimeError:
        return INVALID_AGE
    return human_duration((now - then).total_seconds())


def human_duration(seconds: float) -> str:
    """A duration in at most two units. Source: k8s.io/apimachinery/pkg/util/duration."""
    whole = int(seconds)
    if whole < -1:
        return INVALID_AGE
    if whole < 120:
        return f"{max(whole, 0)}s"
    minutes = whole // 60
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    years = days // 365
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"


def _row(obj: JsonObject, cells: Sequence[Cell], now: datetime, include: str, meta_version: str) -> JsonObject:
    shown = None if include == "None" else obj if include == "Object" else partial(obj, meta_version)
    return {"cells": [cell(obj, now) for cell in cells], "object": shown}


def _layout(kind: Kind) -> _Layout:
    layout = _layouts.get(kind)
    if layout is None:
        columns = _columns(kind)
        layout = _layouts[kind] = _Layout(
            [_header(column, kind) for column in columns], [_cell(column) for column in columns]
        )
    return layout


def _columns(kind: Kind) -> list[Column]:
    if kind.columns and not kind.custom:
        return list(kind.columns)
    # The real server gives the name, and no other column, when one path of the definition cannot be read.
    if not all(_readable(column) for column in kind.columns):
        return [_NAME]
    return [_NAME, *(kind.columns or (_AGE,))]


def _readable(column: Column) -> bool:
    try:
        jsonpath.JSONPath(column.json_path)
    except jsonpath.JSONPathError:
        return False
    return True


def _header(column: Column, kind: Kind) -> JsonObject:
    description = column.description
    if not description and kind.custom:
        description = f"Custom resource definition column (in JSONPath format): {column.json_path}"
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": description,
        "priority": column.priority,
    }


def _cell(column: Column) -> Cell:
    if column is _NAME:
        return lambda obj, _: obj["metadata"].get("name", "")
    if column.cell is not None:
        return column.cell
    path = jsonpath.JSONPath(column.json_path)
    if column.type == "date":
        return lambda obj, now: _date(path.first(obj), now)
    convert = _CONVERSIONS.get(column.type, _nothing)

    def cell(obj: JsonObject, _: datetime) -> Any:
        found = path.first(obj)
        return None if found is None else convert(found[0])

    return cell


def _date(found: tuple[Any] | None, now: datetime) -> str | None:
    if found is None or type(found[0]) is not str:
        return None
    return UNKNOWN_AGE if found[0] == "null" else age(found[0], now)


def _nothing(_: Any) -> Any:
    return None


def _string(value: Any) -> Any:
    return value if type(value) is str else jsonpath.text(value)


def _integer(value: Any) -> Any:
    if type(value) not in {int, float}:
        return None
    # An overflow gives what it gives on amd64.
    return int(value) if -(1 << 63) <= value < 1 << 63 else -(1 << 63)


def _number(value: Any) -> Any:
    return value if type(value) in {int, float} else None


def _boolean(value: Any) -> Any:
    return value if type(value) is bool else None


_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
}
