"""Checks of values: the quick answer is the thorough one's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.local.apiserver.checks import Check, Fault
from kargo_py.local.apiserver.wire import JsonObject

_NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 7, 1 << 63, -(1 << 63), 0.5, 2.0, 1e300])
_TEXTS = st.sampled_from(["", "a", "ab", "abc", "2026-01-01", "2026-01-01T00:00:00Z", "1s", "é"])
_LEAVES = st.none() | st.booleans() | _NUMBERS | _TEXTS
_KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner), max_leaves=8)
_SIZES = st.integers(0, 2)


def _bounds(*names: str, values: st.SearchStrategy[Any] = _SIZES) -> st.SearchStrategy[JsonObject]:
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, values))


def _schema(
    kind: str, *more: st.SearchStrategy[JsonObject], common: st.SearchStrategy[JsonObject]
) -> st.SearchStrategy[JsonObject]:
    return st.tuples(common, *more).map(
        lambda parts: {"type": kind} | {k: v for part in parts for k, v in part.items()}
    )


_ENUM = st.lists(_LEAVES.filter(lambda value: value is not None), min_size=1, max_size=3)
_COMMON = st.fixed_dictionaries({}, optional={"nullable": st.booleans(), "enum": _ENUM})
_FORMATS = st.fixed_dictionaries({}, optional={"format": st.sampled_from(["date", "date-time", "duration", "int32"])})
_TEXT = _schema(
    "string",
    _bounds("minLength", "maxLength"),
    _FORMATS,
    st.fixed_dictionaries({}, optional={"pattern": st.sampled_from(["^a", "b$", "^$"])}),
    common=_COMMON,
)
_NUMERIC = _bounds("minimum", "maximum", values=_NUMBERS)
_LEAF_SCHEMAS = st.one_of(
    _TEXT,
    _schema("integer", _NUMERIC, _FORMATS, common=_COMMON),
    _schema("number", _NUMERIC, st.fixed_dictionaries({}, optional={"multipleOf": _NUMBERS}), common=_COMMON),
    _schema("boolean", common=_COMMON),
    _COMMON.map(lambda common: {"x-kubernetes-int-or-string": True, **common}),
    _COMMON.map(lambda common: {"x-kubernetes-preserve-unknown-fields": True, **common}),
)


def _above(inner: st.SearchStrategy[JsonObject]) -> st.SearchStrategy[JsonObject]:
    fields = st.fixed_dictionaries(
        {}, optional={"properties": st.dictionaries(_KEYS, inner), "required": st.lists(_KEYS, max_size=2)}
    )
    more = st.fixed_dictionaries({}, optional={"additionalProperties": inner | st.booleans()})
    either = st.fixed_dictionaries({}, optional={"anyOf": st.lists(inner, min_size=1, max_size=2), "not": inner})
    return (
        _schema("object", fields, more, _bounds("minProperties", "maxProperties"), common=_COMMON)
        | _schema("array", inner.map(lambda items: {"items": items}), _bounds("minItems", "maxItems"), common=_COMMON)
        | _schema("object", fields, either, common=_COMMON)
    )


SCHEMAS = st.recursive(_LEAF_SCHEMAS, _above, max_leaves=5)


@given(SCHEMAS, VALUES)
def test_what_fits_has_no_faults_and_the_other_way_round(schema: JsonObject, value: Any) -> None:
    check = Check(schema)
    found: list[Fault] = []
    check.run(value, "", None, found)
    assert check.fits(value) is (not found)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "maxLength": 1}, "a", "ab"),
        ({"type": "string", "enum": ["a"]}, "a", "b"),
        ({"type": "string", "format": "date"}, "2026-02-28", "2026-02-30"),
        ({"type": "integer"}, 2.0, 2.5),
        ({"type": "integer", "maximum": 1}, 1, 2),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1}, [1], []),
        ({"type": "array", "items": {"type": "integer"}}, [1], ["a"]),
        ({"type": "object", "required": ["a"]}, {"a": None}, {}),
        ({"type": "object", "additionalProperties": False}, {}, {"a": 1}),
        ({"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}, {"a": "b"}, {"a": ""}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"a": "b"}, {"a": 1}),
        ({"type": "string", "nullable": True}, None, 1),
        ({"x-kubernetes-int-or-string": True}, 1, 1.5),
        ({"type": "string", "anyOf": [{"maxLength": 1}]}, "a", "ab"),
    ],
)
def test_what_fits(schema: JsonObject, good: Any, bad: Any) -> None:
    check = Check(schema)
    assert check.fits(good)
    assert not check.fits(bad)
