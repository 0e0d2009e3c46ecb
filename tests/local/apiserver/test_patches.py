"""JSON patch and merge patch."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.local.apiserver.bodies import MAX_DEPTH
from kargo_py.local.apiserver.failures import Failure
from kargo_py.local.apiserver.patches import MAX_OPERATIONS, json_patch, merge_patch
from kargo_py.local.apiserver.wire import JsonObject, copied

NOT_APPLIED = (422, "the server rejected our request due to an error in our request")
names = st.sampled_from(["a", "b", "c/d", "e~f"])
values = st.recursive(
    st.one_of(st.integers(0, 3), st.booleans(), st.text(max_size=2)),
    lambda inner: st.one_of(st.dictionaries(names, inner, max_size=3), st.lists(inner, max_size=3)),
    max_leaves=8,
)
documents = st.dictionaries(names, values, max_size=3)


def doc() -> JsonObject:
    return {"a": {"b": 1, "n": None}, "l": [1, 2, 3], "x/y": {"~": True}, "m": [{"k": "v"}]}


@pytest.mark.parametrize(
    ("operation", "changed"),
    [
        ({"op": "add", "path": "/a/c", "value": 2}, {"a": {"b": 1, "n": None, "c": 2}}),
        ({"op": "add", "path": "/a/b", "value": 2}, {"a": {"b": 2, "n": None}}),
        ({"op": "add", "path": "/a/c"}, {"a": {"b": 1, "n": None, "c": None}}),
        ({"op": "add", "path": "/l/-", "value": 4}, {"l": [1, 2, 3, 4]}),
        ({"op": "add", "path": "/l/3", "value": 4}, {"l": [1, 2, 3, 4]}),
        ({"op": "add", "path": "/l/0", "value": 4}, {"l": [4, 1, 2, 3]}),
        ({"op": "add", "path": "/l/-1", "value": 4}, {"l": [1, 2, 3, 4]}),
        ({"op": "add", "path": "/l/-4", "value": 4}, {"l": [4, 1, 2, 3]}),
        ({"op": "add", "path": "/x~1y/~0", "value": 4}, {"x/y": {"~": 4}}),
        ({"op": "add", "path": "ignored/z", "value": 4}, {"z": 4}),
        ({"op": "remove", "path": "/a/b"}, {"a": {"n": None}}),
        ({"op": "remove", "path": "/l/1"}, {"l": [1, 3]}),
        ({"op": "remove", "path": "/l/-1"}, {"l": [1, 2]}),
        ({"op": "replace", "path": "/a/b", "value": [1]}, {"a": {"b": [1], "n": None}}),
        ({"op": "replace", "path": "/a/none", "value": 1}, {"a": {"b": 1, "n": None, "none": 1}}),
        ({"op": "replace", "path": "/l/2", "value": 9}, {"l": [1, 2, 9]}),
        ({"op": "move", "from": "/a/b", "path": "/l/0"}, {"a": {"n": None}, "l": [1, 1, 2, 3]}),
        ({"op": "copy", "from": "/m/0", "path": "/m/-"}, {"m": [{"k": "v"}, {"k": "v"}]}),
        ({"op": "test", "path": "/a/b", "value": 1}, {}),
        ({"op": "test", "path": "/a/n", "value": None}, {}),
        ({"op": "test", "path": "/a/none"}, {}),
        ({"op": "test", "path": "/m", "value": [{"k": "v"}]}, {}),
    ],
    ids=str,
)
def test_json_patch(operation: JsonObject, changed: JsonObject) -> None:
    """One operation, and the document it makes; the old one stays as it was."""
    before = doc()
    assert json_patch(before, [operation]) == {**doc(), **changed}
    assert before == doc()


@pytest.mark.parametrize(
    "operation",
    [
        {},
        {"op": "test", "path": "/a/b", "value": 2},
        {"op": "test", "path": "/a/b", "value": 1.5},
        {"op": "test", "path": "/a/b", "value": True},
        {"op": "test", "path": "", "value": {}},
        {"op": "test", "path": "/l/3", "value": 1},
        {"op": "remove", "path": "/a/none"},
        {"op": "remove", "path": "/l/3"},
        {"op": "remove", "path": "/l/-"},
        {"op": "remove", "path": "/l/x"},
        {"op": "remove", "path": ""},
        {"op": "remove"},
        {"op": "replace", "path": "/none/none", "value": 1},
        {"op": "replace", "path": "", "value": 1},
        {"op": "add", "path": "/a/b/c", "value": 1},
        {"op": "add", "path": "/l/5", "value": 1},
        {"op": "add", "path": "/l/-5", "value": 1},
        {"op": "add", "path": "/l/1e0", "value": 1},
        {"op": "add", "path": "/l/99999999999999999999", "value": 1},
        {"op": "add", "path": "", "value": {}},
        {"op": "add", "path": "a", "value": {}},
        {"op": "move", "path": "/z", "from": "/none"},
        {"op": "move", "path": "/z"},
        {"op": "copy", "path": "/z/z", "from": "/a"},
        {"op": "jump", "path": "/z"},
    ],
    ids=str,
)
def test_json_patch_that_does_not_apply(operation: JsonObject) -> None:
    """The real server says 422 and no more."""
    with pytest.raises(Failure) as caught:
        json_patch(doc(), [{"op": "test", "path": "/a/b", "value": 1}, operation])
    assert (caught.value.code, caught.value.message) == NOT_APPLIED


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            b"{}",
            400,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            b"[1]",
            400,
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        ),
        (
            b'[{"op":1}]',
            400,
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        ),
        (b"[{", 400, "error decoding patch: unexpected end of JSON input"),
        (
            json.dumps([{"op": "test", "path": "/a/b", "value": 1}] * (MAX_OPERATIONS + 1)).encode(),
            413,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
        ),
    ],
    ids=["object", "number", "op", "syntax", "many"],
)
def test_what_is_no_json_patch(body: bytes, code: int, message: str) -> None:
    """The real server's words."""
    with pytest.raises(Failure) as caught:
        json_patch(doc(), body)
    assert (caught.value.code, caught.value.message) == (code, message)


@pytest.mark.parametrize(
    "operation",
    [{"op": "copy", "from": "/a", "path": "/a/-"}, {"op": "copy", "from": "", "path": "/a"}],
    ids=["doubling", "root"],
)
def test_copies_of_copies_are_bounded(operation: JsonObject) -> None:
    """What doubles with each operation ends before it fills the memory."""
    with pytest.raises(Failure) as caught:
        json_patch({"a": ["x" * 1000]}, [operation] * 5000)
    assert (caught.value.code, caught.value.message) == NOT_APPLIED


def test_depth_is_bounded() -> None:
    """What nests deeper with each operation is refused."""
    operations = [{"op": "add", "path": "/a" * depth, "value": {}} for depth in range(1, MAX_DEPTH + 2)]
    assert json_patch({}, operations[:100])
    with pytest.raises(Failure):
        json_patch({}, operations)


def test_a_copy_is_not_the_original() -> None:
    """What is done to a copy later does not change what it was copied from."""
    operations = [
        {"op": "copy", "from": "/a", "path": "/z"},
        {"op": "add", "path": "/z/new", "value": 1},
        {"op": "add", "path": "/a/other", "value": 2},
    ]
    made = json_patch(doc(), operations)
    assert (made["a"], made["z"]) == ({"b": 1, "n": None, "other": 2}, {"b": 1, "n": None, "new": 1})


def test_a_value_may_be_put_in_twice() -> None:
    """Values in the patch are not changed by later operations."""
    operations: list[Any] = [
        {"op": "add", "path": "/z", "value": {"q": {}}},
        {"op": "add", "path": "/z/q/r", "value": 1},
    ]
    assert json_patch(doc(), operations)["z"] == {"q": {"r": 1}}
    assert operations[0]["value"] == {"q": {}}


@given(documents, documents)
def test_json_patch_of_all_fields(before: JsonObject, after: JsonObject) -> None:
    """Removing all and adding all anew makes the other document."""
    operations: list[Any] = [{"op": "remove", "path": "/" + pointer(name)} for name in before]
    operations += [{"op": "add", "path": "/" + pointer(name), "value": value} for name, value in after.items()]
    kept = copied(before)
    assert (json_patch(before, operations), before) == (after, kept)


def pointer(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"a": 2}, {"a": 2, "b": {"c": 1, "d": [1]}}),
        ({"a": None, "none": None}, {"b": {"c": 1, "d": [1]}}),
        ({"b": {"c": None}}, {"a": 1, "b": {"d": [1]}}),
        ({"b": {"d": [{"x": None}, None]}}, {"a": 1, "b": {"c": 1, "d": [{}, None]}}),
        ({"b": [{"x": None}]}, {"a": 1, "b": [{"x": None}]}),
        ({"n": {"x": {"y": None, "z": 1}}}, {"a": 1, "b": {"c": 1, "d": [1]}, "n": {"x": {"z": 1}}}),
        ({"a": {"x": None}}, {"a": {}, "b": {"c": 1, "d": [1]}}),
    ],
    ids=str,
)
def test_merge_patch(patch: JsonObject, expected: JsonObject) -> None:
    """Nulls remove, objects merge, all else replaces; the old document stays as it was."""
    before: JsonObject = {"a": 1, "b": {"c": 1, "d": [1]}}
    kept = copied(before)
    assert (merge_patch(before, patch), before) == (expected, kept)


@given(documents, documents)
def test_merge_patch_that_makes_another_document(before: JsonObject, after: JsonObject) -> None:
    """The difference of two documents, as a patch, makes the one of the other."""
    assert merge_patch(before, difference(before, after)) == after


def difference(before: JsonObject, after: JsonObject) -> JsonObject:
    changes: JsonObject = dict.fromkeys(name for name in before if name not in after)
    for name, value in after.items():
        old = before.get(name)
        both = isinstance(old, dict) and isinstance(value, dict)
        changes[name] = difference(old, value) if both and old is not None else value
    return changes


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"null", "Invalid JSON Patch"),
        (b"[]", "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (b'"x"', "error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}"),
        (b"{", "error decoding patch: unexpected end of JSON input"),
    ],
)
def test_what_is_no_merge_patch(body: bytes, message: str) -> None:
    """The real server's words."""
    with pytest.raises(Failure) as caught:
        merge_patch(doc(), body)
    assert (caught.value.code, caught.value.message) == (400, message)
