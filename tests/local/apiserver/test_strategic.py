"""Strategic merge patches, by hand; test_strategic_differential.py asks the real server."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from kargo_py.local.apiserver.failures import Failure
from kargo_py.local.apiserver.strategic import strategic_merge
from kargo_py.local.apiserver.wire import JsonObject, copied

_ITEM: Final[JsonObject] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "value": {"type": "string"}, "struct": {"type": "object"}},
}
SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "merged": {
            "type": "array",
            "items": _ITEM,
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": "name",
        },
        "retained": {
            "type": "array",
            "items": _ITEM,
            "x-kubernetes-patch-strategy": "merge,retainKeys",
            "x-kubernetes-patch-merge-key": "name",
        },
        "replaced": {"type": "array", "items": _ITEM},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-patch-strategy": "merge"},
        "struct": {"type": "object", "properties": {"a": {"type": "string"}}},
        "whole": {"type": "object", "x-kubernetes-patch-strategy": "replace"},
    },
}


def doc() -> JsonObject:
    return {
        "merged": [{"name": "a", "value": "1", "struct": {"x": 1}}, {"name": "b", "value": "2"}],
        "replaced": [{"name": "a"}, {"name": "b"}],
        "set": ["a", "b", "c"],
        "struct": {"a": "1", "b": "2"},
        "whole": {"a": "1"},
        "retained": [{"name": "a", "value": "1"}],
    }


@pytest.mark.parametrize(
    ("patch", "changed"),
    [
        ({}, {}),
        ({"struct": {"b": None, "c": "3"}}, {"struct": {"a": "1", "c": "3"}}),
        ({"struct": {"$patch": "replace", "c": "3"}}, {"struct": {"c": "3"}}),
        ({"struct": {"$patch": "delete", "c": "3"}}, {"struct": {}}),
        ({"struct": {"$retainKeys": ["a", "c"], "c": "3"}}, {"struct": {"a": "1", "c": "3"}}),
        ({"struct": ["x"]}, {"struct": ["x"]}),
        ({"whole": {"b": "2"}}, {"whole": {"b": "2"}}),
        ({"new": {"a": None, "b": {"c": None}}}, {"new": {"b": {}}}),
        ({"new": {"$patch": "delete"}, "other": None}, {}),
        ({"new": [{"$patch": "delete", "name": "a"}, {"name": "b"}, [1]]}, {"new": [{"name": "b"}, [1]]}),
        ({"replaced": [{"name": "c"}]}, {"replaced": [{"name": "c"}]}),
        ({"set": ["d"]}, {"set": ["d", "a", "b", "c"]}),
        ({"set": ["b"]}, {"set": ["a", "b", "c"]}),
        ({"set": []}, {"set": ["a", "b", "c"]}),
        ({"$deleteFromPrimitiveList/set": ["b", "z"]}, {"set": ["a", "c"]}),
        ({"$deleteFromPrimitiveList/none": ["b"]}, {}),
        ({"$setElementOrder/set": ["c", "a", "b"]}, {"set": ["c", "a", "b"]}),
        ({"$setElementOrder/set": ["c", "d"], "set": ["d"]}, {"set": ["a", "b", "c", "d"]}),
        ({"$setElementOrder/none": ["c"]}, {}),
        ({"$setElementOrder/new": ["c", "d"], "new": ["d"]}, {"new": ["d"]}),
        (
            {"merged": [{"name": "b", "value": None}]},
            {"merged": [{"name": "a", "value": "1", "struct": {"x": 1}}, {"name": "b"}]},
        ),
        (
            {"merged": [{"name": "a", "struct": {"y": 2}}]},
            {"merged": [{"name": "a", "value": "1", "struct": {"x": 1, "y": 2}}, {"name": "b", "value": "2"}]},
        ),
        ({"merged": [{"name": "a", "$patch": "delete"}]}, {"merged": [{"name": "b", "value": "2"}]}),
        ({"merged": [{"$patch": "replace"}, {"name": "c"}]}, {"merged": [{"name": "c"}]}),
        (
            {"$setElementOrder/merged": [{"name": "b"}, {"name": "a"}], "merged": [{"name": "b", "value": "3"}]},
            {"merged": [{"name": "b", "value": "3"}, {"name": "a", "value": "1", "struct": {"x": 1}}]},
        ),
        (
            {"retained": [{"name": "a", "$retainKeys": ["name"]}, {"name": "b"}]},
            {"retained": [{"name": "a"}, {"name": "b"}]},
        ),
    ],
    ids=str,
)
def test_patch(patch: JsonObject, changed: JsonObject) -> None:
    """What a patch changes; arguments stay as they were."""
    before, given_patch = doc(), copied(patch)
    assert strategic_merge(before, given_patch, SCHEMA) == {**doc(), **changed}
    assert (before, given_patch) == (doc(), patch)


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ({"$patch": "foo"}, 500, "unknown patch type: foo in map: map[$patch:foo]"),
        ({"struct": {"$patch": "merge"}}, 500, "unknown patch type: merge in map: map[$patch:merge]"),
        ({"struct": {"$retainKeys": ["x"], "a": "1"}}, 400, "invalid patch format of retainKeys"),
        ({"struct": {"$retainKeys": "a"}}, 400, "invalid patch format of retainKeys"),
        ({"$deleteFromPrimitiveList": []}, 400, "invalid patch format of primitive list"),
        ({"$setElementOrder": []}, 400, "invalid patch format of setElementOrder list"),
        ({"$setElementOrder/set": 3}, 500, "expected a []interface {}, but received a int64"),
        ({"$setElementOrder/set": ["a"], "set": "a"}, 500, "expected a []interface {}, but received a string"),
        (
            {"$setElementOrder/set": ["b"], "set": ["x"]},
            500,
            "The order in patch list:\n[x]\n doesn't match $setElementOrder list:\n[b]\n",
        ),
        ({"merged": [{"value": "a"}]}, 500, "map: map[value:a] does not contain declared merge key: name"),
        (
            {"merged": [{"$patch": "delete"}]},
            500,
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        ({"merged": [{"$patch": "merge"}]}, 500, "merging lists cannot yet be specified in the patch"),
        ({"merged": [{"$patch": 3}]}, 500, "unknown patch type: 3 in map: map[$patch:3]"),
        ({"set": [[]]}, 422, "the server rejected our request due to an error in our request"),
        ({"set": [3]}, 500, "list element types are not identical: [[a b c] [3]]"),
    ],
    ids=str,
)
def test_what_is_refused(patch: JsonObject, code: int, message: str) -> None:
    """The real server's codes and words."""
    with pytest.raises(Failure) as caught:
        strategic_merge(doc(), patch, SCHEMA)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_metadata_is_what_it_always_is() -> None:
    """Whatever the schema says."""
    before = {"metadata": {"finalizers": ["a"], "ownerReferences": [{"uid": "u", "name": "n"}]}}
    patch = {"metadata": {"finalizers": ["b"], "ownerReferences": [{"uid": "u", "kind": "K"}]}}
    assert strategic_merge(before, patch, {}) == {
        "metadata": {"finalizers": ["b", "a"], "ownerReferences": [{"uid": "u", "name": "n", "kind": "K"}]}
    }


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 2), st.sampled_from(["a", "b", "delete", "replace"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "name",
                    "value",
                    "set",
                    "merged",
                    "$patch",
                    "$retainKeys",
                    "$setElementOrder/set",
                    "$setElementOrder/merged",
                    "$deleteFromPrimitiveList/set",
                ]
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["merged", "set", "struct", "$setElementOrder/merged"]), anything))
def test_any_patch_applies_or_is_refused(patch: dict[str, Any]) -> None:
    """However odd it is."""
    try:
        code = 200 if strategic_merge(doc(), patch, SCHEMA) is not None else 0
    except Failure as failure:
        code = failure.code
    assert code in {200, 400, 422, 500}
