"""Tables and metadata in place of objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kargo_py.local.apiserver import table as tables
from kargo_py.local.apiserver.builtin import kinds
from kargo_py.local.apiserver.crdtypes import CUSTOM_RESOURCE_DEFINITION
from kargo_py.local.apiserver.events import as_new_event
from kargo_py.local.apiserver.failures import Failure
from kargo_py.local.apiserver.kinds import Column, Kind
from kargo_py.local.apiserver.typedrules import TypedRules
from kargo_py.local.apiserver.wire import JsonObject

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
RULES = TypedRules(CUSTOM_RESOURCE_DEFINITION)
KINDS = {kind.qualified: kind for kind in kinds(RULES)}
CREATED = "2026-11-30T11:00:00Z"


def custom(*columns: Column) -> Kind:
    """A custom resource with these columns."""
    return Kind("example.com", "v1", "widgets", "widget", "Widget", RULES, columns=columns, custom=True)


def cells(kind: Kind, obj: JsonObject) -> list[Any]:
    """The row of *obj*."""
    shown = tables.table(kind, [obj], metadata={}, now=NOON)
    row: list[Any] = shown["rows"][0]["cells"]
    assert len(row) == len(shown["columnDefinitions"])
    return row


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119.9, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (7 * 3600 + 59 * 60, "7h59m"),
        (8 * 3600 + 59 * 60, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (731 * 86400, "2y1d"),
        (8 * 365 * 86400 + 86400, "8y"),
    ],
)
def test_a_duration(seconds: float, shown: str) -> None:
    assert tables.human_duration(seconds) == shown


@pytest.mark.parametrize(
    ("stamp", "shown"),
    [(None, "<unknown>"), ("", "<unknown>"), ("x", "<invalid>"), (CREATED, "60m"), ("2026-11-30T13:00:00+01:00", "0s")],
)
def test_an_age(stamp: str | None, shown: str) -> None:
    assert tables.age(stamp, NOON) == shown


@pytest.mark.parametrize(
    ("kind", "obj", "row"),
    [
        ("namespaces", {"status": {"phase": "Active"}}, ["x", "Active", "60m"]),
        ("secrets", {"type": "Opaque", "data": {"a": "", "b": ""}}, ["x", "Opaque", 2, "60m"]),
        ("configmaps", {"data": {"a": ""}, "binaryData": {"b": ""}}, ["x", 2, "60m"]),
        ("serviceaccounts", {}, ["x", 0, "60m"]),
        ("leases.coordination.k8s.io", {"spec": {"holderIdentity": "me"}}, ["x", "me", "60m"]),
        ("leases.coordination.k8s.io", {"spec": {}}, ["x", "", "60m"]),
        ("customresourcedefinitions.apiextensions.k8s.io", {}, ["x", CREATED]),
    ],
)
def test_the_columns_of_built_in_kinds(kind: str, obj: JsonObject, row: list[Any]) -> None:
    assert cells(KINDS[kind], {"metadata": {"name": "x", "creationTimestamp": CREATED}, **obj}) == row


SEEN = {"firstTimestamp": "2026-11-30T10:00:00Z", "lastTimestamp": CREATED, "count": 3}
SERIES = {
    "eventTime": "2026-11-30T10:00:00.000000Z",
    "series": {"count": 5, "lastObservedTime": "2026-11-30T11:50:00.000000Z"},
}


@pytest.mark.parametrize(
    ("event", "row"),
    [
        ({}, ["<unknown>", "", "", "pod", "", "", "", "<unknown>", 1, "e"]),
        (
            {**SEEN, "type": "Normal", "reason": "R", "message": " m \n", "source": {"component": "c", "host": "h"}},
            ["60m", "Normal", "R", "pod", "", "c, h", "m", "120m", 3, "e"],
        ),
        (
            {**SERIES, "reportingComponent": "c", "reportingInstance": "i"},
            ["10m", "", "", "pod", "", "c, i", "", "120m", 5, "e"],
        ),
        ({"eventTime": SERIES["eventTime"]}, ["120m", "", "", "pod", "", "", "", "120m", 1, "e"]),
    ],
)
def test_events_in_both_groups(event: JsonObject, row: list[Any]) -> None:
    whole = {"kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"}, **event}
    assert cells(KINDS["events"], whole) == row
    assert cells(KINDS["events.events.k8s.io"], as_new_event(whole)) == row


@pytest.mark.parametrize(
    ("type_", "value", "cell"),
    [
        ("string", "s", "s"),
        ("string", 5, "5"),
        ("string", None, "<no value>"),
        ("string", {"a": 1}, '{"a":1}'),
        ("integer", 5, 5),
        ("integer", 1.7, 1),
        ("integer", "5", None),
        ("integer", True, None),
        ("integer", 1e20, -(1 << 63)),
        ("number", 1.5, 1.5),
        ("number", "1.5", None),
        ("boolean", True, True),
        ("boolean", "true", None),
        ("date", CREATED, "60m"),
        ("date", "x", "<invalid>"),
        ("date", "", "<unknown>"),
        ("date", "null", "<unknown>"),
        ("date", 5, None),
        ("other", "x", None),
    ],
)
def test_a_cell_of_a_custom_resource(type_: str, value: Any, cell: Any) -> None:
    kind = custom(Column("C", type_, ".v"))
    assert cells(kind, {"metadata": {"name": "x"}, "v": value}) == ["x", cell]
    assert cells(kind, {"metadata": {"name": "x"}}) == ["x", None]


def test_a_custom_resource_without_columns_has_its_age() -> None:
    assert cells(custom(), {"metadata": {"name": "x", "creationTimestamp": CREATED}}) == ["x", "60m"]


def test_a_path_that_cannot_be_read_leaves_the_name() -> None:
    assert cells(custom(Column("A", "string", ".a"), Column("B", "string", ".b[")), {"metadata": {"name": "x"}}) == [
        "x"
    ]


def test_headers() -> None:
    kind = custom(Column("A", "string", ".a", "byte", "", 1), Column("B", "date", ".b", description="when"))
    shown = tables.table(kind, [], metadata={"resourceVersion": "5"}, now=NOON)
    assert (shown["kind"], shown["apiVersion"], shown["metadata"]) == (
        "Table",
        "meta.k8s.io/v1",
        {"resourceVersion": "5"},
    )
    name, a, b = shown["columnDefinitions"]
    assert (name["name"], name["format"]) == ("Name", "name")
    described = "Custom resource definition column (in JSONPath format): .a"
    assert a == {"name": "A", "type": "string", "format": "byte", "description": described, "priority": 1}
    assert b["description"] == "when"
    assert tables.table(kind, [], metadata={}, now=NOON, headers=False)["columnDefinitions"] is None


@pytest.mark.parametrize(
    ("include", "shown"),
    [
        ("None", None),
        ("Metadata", {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "x"}}),
        ("Object", {"metadata": {"name": "x"}, "a": 1}),
    ],
)
def test_what_is_beside_the_cells(include: str, shown: Any) -> None:
    obj: JsonObject = {"metadata": {"name": "x"}, "a": 1}
    assert tables.included(include) == include
    made = tables.table(custom(), [obj], metadata={}, now=NOON, include=include)
    assert made["rows"][0]["object"] == shown


def test_metadata_is_included_by_default() -> None:
    assert tables.included("") == "Metadata"
    with pytest.raises(Failure) as caught:
        tables.included("All")
    assert caught.value.code == 400
    assert "must be 'Metadata', 'Object', 'None', or empty" in caught.value.message


def test_metadata_alone() -> None:
    made = tables.partial_list([{"metadata": {"name": "x"}, "a": 1}], metadata={}, meta_version="meta.k8s.io/v1beta1")
    item = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1beta1", "metadata": {"name": "x"}}
    assert made["items"] == [item]
    assert made["kind"] == "PartialObjectMetadataList"


def test_an_age_moves_with_the_time_that_is_given() -> None:
    obj: JsonObject = {"metadata": {"name": "x", "creationTimestamp": CREATED}}
    kind = custom()
    assert cells(kind, obj)[1] == "60m"
    later = tables.table(kind, [obj], metadata={}, now=NOON + timedelta(hours=1))
    assert later["rows"][0]["cells"][1] == "120m"
