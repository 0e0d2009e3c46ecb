"""Sets of field paths: their algebra, and FieldsV1."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.local.apiserver.fieldsets import (
    MAX_DEPTH,
    BadFields,
    FieldSet,
    Path,
    field,
    in_order,
    key,
    shown,
    value,
)

A, B, C = field("a"), field("b"), field("c")
elements = st.sampled_from([A, B, C, key({"n": "x"}), key({"n": 1}), value("x"), value(2), "i:0"])
paths = st.lists(elements, min_size=1, max_size=4).map(tuple)
path_sets = st.sets(paths, max_size=12)


def made(of: set[Path]) -> FieldSet:
    return FieldSet.of(*of)


@given(path_sets, path_sets)
def test_algebra_is_that_of_sets(left: set[Path], right: set[Path]) -> None:
    """Union, intersection and difference have the paths that sets of paths would have."""
    for ours, theirs in (
        (made(left) | made(right), left | right),
        (made(left) & made(right), left & right),
        (made(left) - made(right), left - right),
    ):
        assert (set(ours), ours, bool(ours)) == (theirs, made(theirs), bool(theirs))


@given(path_sets, path_sets)
def test_difference_of_trees(left: set[Path], right: set[Path]) -> None:
    """A path goes with every path that begins it."""
    expected = {path for path in left if not any(path[:length] in right for length in range(1, len(path) + 1))}
    assert made(left).without_trees(made(right)) == made(expected)


@given(path_sets, path_sets)
def test_operations_leave_their_arguments(left: set[Path], right: set[Path]) -> None:
    """Sets that were handed out do not change."""
    mine, other = made(left), made(right)
    for _ in (mine | other, mine & other, mine - other, mine.without_trees(other)):
        assert (mine, other) == (made(left), made(right))


@given(path_sets, paths)
def test_membership(members: set[Path], path: Path) -> None:
    """A set has what was put in, and not the prefixes of that."""
    assert (path in made(members)) == (path in members)


@given(path_sets)
def test_fields_v1_round_trip(members: set[Path]) -> None:
    """FieldsV1 says all of a set, also as JSON text."""
    fields = made(members).to_fields()
    assert made(members) == FieldSet.from_fields(fields) == FieldSet.from_fields(json.loads(json.dumps(fields)))
    assert list(fields) == in_order(fields)


def test_fields_v1_as_the_server_writes_it() -> None:
    """A member that has members below has a dot."""
    fields = FieldSet.of((A,), (A, B), (C,), (B, key({"p": 80, "n": "x"}), A))
    assert fields.to_fields() == {"f:a": {".": {}, "f:b": {}}, "f:b": {'k:{"n":"x","p":80}': {"f:a": {}}}, "f:c": {}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, FieldSet()),
        (None, FieldSet()),
        ({".": {}}, FieldSet()),
        ({"f:a": None}, FieldSet.of((A,))),
        ({"f:a": {".": {}}}, FieldSet.of((A,))),
        ({"f:a": {"z:what": {}}}, FieldSet.of((A,))),
        ({'k:{"b": 1.0, "a": "x"}': {}}, FieldSet.of((key({"a": "x", "b": 1}),))),
        ({"v: 1": {}, "i:01": {}}, FieldSet.of((value(1),), ("i:1",))),
    ],
)
def test_reading_leniently(fields: Any, expected: FieldSet) -> None:
    """Other spellings are read as the canonical one; what is not known is left out."""
    assert FieldSet.from_fields(fields) == expected


def nested(depth: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for _ in range(depth):
        fields = {"f:a": fields}
    return fields


@pytest.mark.parametrize(
    "fields",
    [
        [],
        3,
        {"f:a": 3},
        {"a": {}},
        {"abc": {}},
        {"k:[]": {}},
        {"k:{": {}},
        {"v:x": {}},
        {"i:x": {}},
        {"k:" + "[" * 300: {}},
        {"v:" + "[" * 100_000: {}},
        nested(MAX_DEPTH + 2),
    ],
    ids=lambda fields: str(fields)[:20],
)
def test_what_is_no_fields_v1(fields: Any) -> None:
    """It is refused, however deep it is."""
    with pytest.raises(BadFields):
        FieldSet.from_fields(fields)


def test_order() -> None:
    """Fields, keys, values, indices; numbers before texts before truth, and numerically."""
    expected = [
        field("A"),
        field("b"),
        key({"a": 2}),
        key({"a": 10}),
        key({"a": "1"}),
        key({"a": "1", "b": 1}),
        key({"b": 0}),
        value(2),
        value(10),
        value("1"),
        value(True),
        "i:2",
        "i:10",
    ]
    assert in_order(reversed(expected)) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ((field("spec"), field("a.b")), ".spec.a.b"),
        ((A, key({"port": 80, "protocol": "TCP"}), B), '.a[port=80,protocol="TCP"].b'),
        (
            (
                A,
                key({"port": 1_000_000}),
            ),
            ".a[port=1e+06]",
        ),
        ((A, value("x/y")), '.a[="x/y"]'),
        ((A, value(True)), ".a[=true]"),
        ((A, "i:3"), ".a[3]"),
    ],
)
def test_shown(path: Path, expected: str) -> None:
    """Paths in messages are Go's."""
    assert shown(path) == expected


def test_elements_are_safe_in_html() -> None:
    """As the real server writes them."""
    assert (key({"a": "<&>"}), value("\u2028\b")) == ('k:{"a":"\\u003c\\u0026\\u003e"}', 'v:"\\u2028\\u0008"')
