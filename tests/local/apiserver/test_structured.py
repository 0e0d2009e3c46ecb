"""Merging and comparing by type."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from kargo_py.local.apiserver.fieldsets import FieldSet, field, key, value
from kargo_py.local.apiserver.fieldtypes import Atom, Types
from kargo_py.local.apiserver.structured import (
    TypingFailed,
    compare,
    equal,
    everything,
    field_set,
    merge,
    reconciled,
    validate,
    with_named,
    without,
)
from kargo_py.local.apiserver.wire import ABSENT, JsonObject, copied

STRING: Final[JsonObject] = {"type": "string"}
SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "text": STRING,
        "number": {"type": "integer"},
        "flag": {"type": "boolean"},
        "any": {"x-kubernetes-int-or-string": True},
        "struct": {"type": "object", "properties": {"a": STRING, "b": STRING}},
        "whole": {"type": "object", "properties": {"a": STRING, "b": STRING}, "x-kubernetes-map-type": "atomic"},
        "map": {"type": "object", "additionalProperties": STRING},
        "list": {"type": "array", "items": STRING},
        "set": {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["n", "p"],
            "items": {
                "type": "object",
                "properties": {"n": STRING, "p": {"type": "string", "default": "TCP"}, "v": {"type": "integer"}},
            },
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
ROOT: Final = Types.of(SCHEMA).root


def of(schema: JsonObject) -> Atom:
    """The type of a field with this schema."""
    found = Types.of({"type": "object", "properties": {"it": schema}}).root.map
    assert found
    return found.fields["it"]


words = st.sampled_from(["a", "b", "c"])
structs = st.fixed_dictionaries({}, optional={"a": words, "b": words})
anything = st.recursive(
    st.one_of(words, st.integers(0, 2), st.booleans(), st.none()),
    lambda inner: st.one_of(st.dictionaries(words, inner, max_size=2), st.lists(inner, max_size=2)),
    max_leaves=4,
)
items = st.lists(
    st.fixed_dictionaries({"n": words}, optional={"p": st.sampled_from(["TCP", "UDP"]), "v": st.integers(0, 2)}),
    max_size=3,
    unique_by=lambda item: (item["n"], item.get("p", "TCP")),
)
objects = st.fixed_dictionaries(
    {},
    optional={
        "text": words,
        "number": st.integers(0, 2),
        "flag": st.booleans(),
        "any": st.one_of(words, st.integers(0, 2)),
        "struct": structs,
        "whole": structs,
        "map": st.dictionaries(words, words, max_size=2),
        "list": st.lists(words, max_size=3),
        "set": st.lists(words, max_size=3, unique=True),
        "items": items,
        "free": st.dictionaries(words, anything, max_size=2),
    },
)


def reshaped(before: Any, after: Any) -> bool:
    """A map has become something else, here or below."""
    if not isinstance(before, dict) or after is None:
        return False
    if not isinstance(after, dict):
        return True
    return any(reshaped(before[name], after[name]) for name in before.keys() & after.keys())


@given(objects, objects)
def test_what_is_merged_is_there(live: JsonObject, applied: JsonObject) -> None:
    """All that was applied is in the result, and nothing of the old object is gone; arguments stay."""
    kept = copied(live), copied(applied)
    merged = merge(ROOT, live, applied)
    validate(ROOT, merged)
    lost = compare(ROOT, merged, applied)
    assert not lost.added
    assert not lost.modified & field_set(ROOT, applied)
    # What no schema describes may become something else, and then nothing is left of what it was.
    assert reshaped(live.get("free"), applied.get("free")) or not compare(ROOT, live, merged).removed
    assert (live, applied) == kept


@given(objects, objects)
def test_merging_twice_is_merging_once(live: JsonObject, applied: JsonObject) -> None:
    """Apply is idempotent."""
    merged = merge(ROOT, live, applied)
    assert equal(merge(ROOT, merged, applied), merged)


@given(objects)
def test_merging_with_itself(live: JsonObject) -> None:
    """Nothing changes."""
    assert equal(merge(ROOT, live, live), live)


@given(objects, objects)
def test_comparison(left: JsonObject, right: JsonObject) -> None:
    """Added one way is removed the other way; the fields of both and neither set are equal."""
    there, back = compare(ROOT, left, right), compare(ROOT, right, left)
    assert (there.added, there.removed, there.modified) == (back.removed, back.added, back.modified)
    for one, other in ((there.added, there.modified), (there.added, there.removed), (there.modified, there.removed)):
        assert not one & other
    assert not there.added - everything(ROOT, right)
    assert not there.removed - everything(ROOT, left)


@given(objects)
def test_comparison_with_itself(left: JsonObject) -> None:
    """Nothing is different, whether it is the same value or a copy."""
    for other in (left, copied(left)):
        found = compare(ROOT, left, other)
        assert not found.added | found.removed | found.modified


@given(objects)
def test_sets_of_fields(obj: JsonObject) -> None:
    """What is owned by applying a value is among all its fields."""
    owned = field_set(ROOT, obj)
    assert not owned - everything(ROOT, obj)
    assert reconciled(ROOT, owned) is owned


@given(objects)
def test_removal_of_everything(obj: JsonObject) -> None:
    """Nothing is left."""
    assert not without(ROOT, obj, with_named(ROOT, everything(ROOT, obj)))


@given(objects, objects)
def test_removal(live: JsonObject, applied: JsonObject) -> None:
    """What is removed is gone; arguments stay."""
    fields, kept = everything(ROOT, applied), copied(live)
    left = without(ROOT, live, fields) or {}
    gone = everything(ROOT, live) & fields
    assert not everything(ROOT, left) & FieldSet.of(*(path for path in gone if len(path) == 1))
    assert live == kept


@pytest.mark.parametrize(
    ("live", "applied", "expected"),
    [
        ("abc", "", "abc"),
        ("", "cab", "cab"),
        ("abc", "b", "abc"),
        ("abc", "ca", "bca"),
        ("abc", "xa", "xabc"),
        ("abc", "ax", "abcx"),
        ("abcd", "db", "acdb"),
        ("abc", "cx", "abcx"),
    ],
)
def test_order_of_merged_sets(live: str, applied: str, expected: str) -> None:
    """The applied items come in their own order; the others stay about where they were."""
    merged = merge(of({"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}), list(live), list(applied))
    assert "".join(merged) == expected


SET: Final = SCHEMA["properties"]["set"]
ITEMS: Final = SCHEMA["properties"]["items"]
STRINGS: Final[JsonObject] = {"type": "array", "items": STRING}
STRUCT: Final[JsonObject] = {"type": "object", "properties": {"n": STRING}}
BY_NAME: Final[JsonObject] = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["n"],
    "items": STRUCT,
}


@pytest.mark.parametrize(
    ("schema", "bad", "error"),
    [
        (STRING, 3, ": expected string, got &value.valueUnstructured{Value:3}"),
        (
            STRING,
            {"a": [None]},
            (
                ': expected string, got &value.valueUnstructured{Value:map[string]interface {}{"a":'
                "[]interface {}{interface {}(nil)}}}"
            ),
        ),
        ({"type": "integer"}, "x", ": expected numeric (int or float), got string"),
        ({"type": "integer"}, True, ": expected numeric (int or float), got bool"),
        ({"type": "integer"}, [], ": expected numeric (int or float), got []interface {}"),
        ({"type": "boolean"}, "x", ": expected boolean, got &{x}"),
        ({"type": "object"}, [1, "b"], ": expected map, got &{[1 b]}"),
        (STRINGS, {"a": 1}, ": expected list, got &{map[a:1]}"),
        (STRINGS, ["a", 2], "[1]: expected string, got &value.valueUnstructured{Value:2}"),
        (SET, ["a", "a"], ': duplicate entries for key [="a"]'),
        (SET, [None], ": element 0: associative list without keys has an element that's an explicit null"),
        (SET, [{}], ": element 0: associative list without keys has an element that's a map type"),
        (SET, [[]], ": element 0: not supported: associative list with lists as elements"),
        (ITEMS, [{"n": "a"}, {"n": "a", "p": "TCP"}], ': duplicate entries for key [n="a",p="TCP"]'),
        (ITEMS, [None], ": element 0: associative list with keys may not have a null element"),
        (ITEMS, ["x"], ": element 0: associative list with keys may not have non-map elements"),
        (STRUCT, {"b": 1}, ".b: field not declared in schema"),
        (
            BY_NAME,
            [{}],
            (
                ': element 0: associative list with keys has an element that omits all key fields ["n"]'
                " (and doesn't have default values for any key fields)"
            ),
        ),
    ],
)
def test_what_is_not_of_its_type(schema: JsonObject, bad: Any, error: str) -> None:
    """The real server's words."""
    root = Types.of({"type": "object", "properties": {"it": schema}}).root
    with pytest.raises(TypingFailed) as caught:
        validate(root, {"it": bad})
    assert str(caught.value) == f".it{error}"


def test_several_errors() -> None:
    """Each has a line."""
    with pytest.raises(TypingFailed) as caught:
        validate(ROOT, {"text": 1, "number": "x"})
    assert str(caught.value) == (
        "errors:\n  .number: expected numeric (int or float), got string\n"
        "  .text: expected string, got &value.valueUnstructured{Value:1}"
    )


@given(st.dictionaries(st.sampled_from(sorted(SCHEMA["properties"])), anything))
def test_anything_is_of_its_type_or_not(obj: JsonObject) -> None:
    """There is no value that validation cannot judge, and none that it lets through and others cannot take."""
    try:
        validate(ROOT, obj)
    except TypingFailed:
        return
    assert equal(merge(ROOT, {}, obj), obj)
    compare(ROOT, obj, {})
    without(ROOT, obj, field_set(ROOT, obj))


def test_duplicates_are_one_item() -> None:
    """An item that is there twice is owned as a whole, and is new when it becomes one."""
    once, twice = {"set": ["a", "b"]}, {"set": ["a", "b", "b"]}
    item = FieldSet.of((field("set"), value("b")))
    assert compare(ROOT, twice, {"set": ["a", "b", "b", "b"]}).modified == item
    assert compare(ROOT, once, twice).added == item
    assert compare(ROOT, twice, once).removed == item
    validate(ROOT, twice, duplicates=True)


def test_keys_have_defaults() -> None:
    """A key field that is left out has its default in the path."""
    path = (field("items"), key({"n": "a", "p": "TCP"}))
    assert path in field_set(ROOT, {"items": [{"n": "a"}]})
    assert merge(ROOT, {"items": [{"n": "a", "p": "TCP", "v": 1}]}, {"items": [{"n": "a", "v": 2}]}) == {
        "items": [{"n": "a", "p": "TCP", "v": 2}]
    }


def test_what_became_atomic_is_owned_as_a_whole() -> None:
    """An old entry that owned parts of it owns it."""
    owned = FieldSet.of((field("list"), "i:0"), (field("whole"), field("a")), (field("map"), field("x")))
    assert reconciled(ROOT, owned) == FieldSet.of((field("list"),), (field("whole"),), (field("map"), field("x")))


def test_metadata_is_what_it_always_is() -> None:
    """Whatever the schema says."""
    root = Types.of({"type": "object", "properties": {"metadata": STRING}}).root
    obj = {"metadata": {"finalizers": ["a"], "labels": {"b": "c"}, "ownerReferences": [{"uid": "d", "name": "e"}]}}
    metadata = field("metadata")
    assert field_set(root, obj) == FieldSet.of(
        (metadata, field("finalizers"), value("a")),
        (metadata, field("labels"), field("b")),
        (metadata, field("ownerReferences"), key({"uid": "d"})),
    )


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, 1.0, True),
        (1, True, False),
        ([0], [False], False),
        ({"a": [1]}, {"a": [1.0]}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1, "b": 2**70}, {"b": 2**70, "a": 1}, True),
        ({"a": 1}, {"b": 1}, False),
        (None, False, False),
        ("a", "a", True),
        ([], {}, False),
        ([1], [1, 2], False),
    ],
)
def test_equal(left: Any, right: Any, expected: bool) -> None:
    """JSON's own equality."""
    assert (equal(left, right), equal(right, left)) == (expected, expected)


def test_absent_is_false() -> None:
    """And is not null."""
    assert not ABSENT
    assert merge(ROOT, ABSENT, {"text": None}) == {"text": None}
