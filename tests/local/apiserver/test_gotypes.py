"""Values read into Go's types."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.local.apiserver import gotypes
from kargo_py.local.apiserver.coretypes import EVENT, LEASE, NAMESPACE, SECRET, SERVICE_ACCOUNT
from kargo_py.local.apiserver.crdtypes import CUSTOM_RESOURCE_DEFINITION
from kargo_py.local.apiserver.gotypes import Bytes, Mistyped, Struct


def read(struct: Struct, value: Any) -> tuple[Any, list[str]]:
    """What becomes of *value*, and the fields that are not known."""
    unknown: list[str] = []
    return struct.decode(value, unknown), unknown


def wrong(struct: Struct, value: Any) -> str:
    """What is said about *value*."""
    with pytest.raises(Mistyped) as caught:
        struct.decode(value, [])
    return str(caught.value)


def test_fields_that_are_empty_are_left_out() -> None:
    given = {"metadata": {"labels": {}, "annotations": None, "generation": 0}, "data": {}, "type": ""}
    assert read(SECRET, given) == ({"metadata": {}}, [])


def test_pointers_structs_and_times_are_not_left_out() -> None:
    assert read(SECRET, {"immutable": False}) == ({"immutable": False, "metadata": {}}, [])
    assert read(LEASE, {"spec": {"holderIdentity": "", "leaseTransitions": 0}})[0]["spec"] == {
        "holderIdentity": "",
        "leaseTransitions": 0,
    }
    assert read(EVENT, {})[0] == {
        "metadata": {},
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    }


def test_null_is_nothing_in_a_field_and_zero_in_a_list_or_map() -> None:
    given = {"metadata": {"finalizers": [None], "labels": {"a": None}}, "data": {"k": None}, "type": None}
    expected = {"metadata": {"finalizers": [""], "labels": {"a": ""}}, "data": {"k": ""}}
    assert read(SECRET, given)[0] == expected


def test_a_null_struct_in_a_list_is_an_empty_one() -> None:
    owner = {"apiVersion": "", "kind": "", "name": "", "uid": ""}
    assert read(SECRET, {"metadata": {"ownerReferences": [None]}})[0] == {"metadata": {"ownerReferences": [owner]}}


def test_unknown_fields_have_paths() -> None:
    given = {
        "a": 1,
        "metadata": {"b": 1, "ownerReferences": [{"uid": "u"}, {"c": 1}]},
        "secrets": [{"d": 1}],
    }
    paths = ["a", "metadata.b", "metadata.ownerReferences[1].c", "secrets[0].d"]
    assert read(SERVICE_ACCOUNT, given)[1] == paths


def test_unknown_fields_within_a_map_have_its_key() -> None:
    schema = {"properties": {"x": {"items": {"bad": 1}}}}
    given = {"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}}
    path = "spec.versions[0].schema.openAPIV3Schema.properties.x.items.bad"
    assert read(CUSTOM_RESOURCE_DEFINITION, given)[1] == [path]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"data": {"x": 1}}, "number into Go struct field Secret.data of type []uint8"),
        ({"data": []}, "array into Go struct field Secret.data of type map[string][]uint8"),
        ({"type": 3}, "number into Go struct field Secret.type of type v1.SecretType"),
        ({"immutable": "yes"}, "string into Go struct field Secret.immutable of type bool"),
        ({"metadata": []}, "array into Go struct field Secret.metadata of type v1.ObjectMeta"),
        ({"metadata": {"labels": {"a": 1}}}, "number into Go struct field ObjectMeta.metadata.labels of type string"),
        (
            {"metadata": {"ownerReferences": [{"apiVersion": True}]}},
            "bool into Go struct field OwnerReference.metadata.ownerReferences.apiVersion of type string",
        ),
        (
            {"metadata": {"generation": 1.5}},
            "number 1.5 into Go struct field ObjectMeta.metadata.generation of type int64",
        ),
        ({"metadata": {"generation": 1 << 63}}, f"number {1 << 63} into Go struct field"),
        ({"metadata": {"deletionTimestamp": 1}}, "number into Go struct field ObjectMeta.metadata.deletionTimestamp"),
        (["x"], "array into Go value of type v1.Secret"),
    ],
)
def test_a_value_of_the_wrong_type(given: Any, words: str) -> None:
    assert words in wrong(SECRET, given)
    assert wrong(SECRET, given).startswith("json: cannot unmarshal ")


def test_the_first_of_several_is_told() -> None:
    assert "Secret.type" in wrong(SECRET, {"type": 1, "data": 1})
    assert "Secret.data" in wrong(SECRET, {"data": 1, "type": 1})


@pytest.mark.parametrize(
    ("text", "stored"),
    [("YQ==", "YQ=="), ("YR==", "YQ=="), ("YW\r\nJj", "YWJj"), ("YQ=\n=", "YQ=="), ("", ""), ([1, 255], "Af8=")],
)
def test_bytes(text: Any, stored: str) -> None:
    assert Bytes().decode(text, []) == stored


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("!!", 0),
        ("YQ", 0),
        ("Y Q==", 1),
        ("YQ==\nYQ==", 5),
        ("YQ=", 3),
        ("YQ=x", 2),
        ("YQ===", 4),
        ("YWJj=", 4),
        ("YWJjZ", 4),
        ("=", 0),
        ("é", 0),
    ],
)
def test_no_bytes(text: str, place: int) -> None:
    with pytest.raises(Mistyped, match=f"^illegal base64 data at input byte {place}$"):
        Bytes().decode(text, [])


@given(st.binary(max_size=40), st.lists(st.integers(0, 60), max_size=4))
def test_bytes_with_line_ends_within(data: bytes, breaks: list[int]) -> None:
    text = base64.b64encode(data).decode()
    broken = text
    for place in breaks:
        broken = broken[:place] + "\r\n" + broken[place:]
    assert Bytes().decode(broken, []) == text


@given(st.text(alphabet="YQ=\n!", max_size=9))
def test_any_text_is_bytes_or_an_error(text: str) -> None:
    try:
        stored = Bytes().decode(text, [])
    except Mistyped:
        return
    assert stored == "".join(text.split()) or stored == base64.b64encode(base64.b64decode(text)).decode()


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["metadata", "spec", "status", "type", "conditions", "labels", "x"]), inner)
    ),
    max_leaves=12,
)


@given(json)
def test_reading_twice_is_reading_once(value: Any) -> None:
    try:
        once, _ = read(NAMESPACE, value)
    except Mistyped:
        return
    assert read(NAMESPACE, once) == (once, [])


def test_openapi_refers_to_structs_and_describes_each_once() -> None:
    found = gotypes.definitions([LEASE])
    assert found["io.k8s.api.coordination.v1.Lease"]["properties"]["spec"] == {
        "allOf": [{"$ref": "#/components/schemas/io.k8s.api.coordination.v1.LeaseSpec"}],
        "default": {},
        "description": "The holder and its times.",
    }
    assert found["io.k8s.api.coordination.v1.LeaseSpec"]["properties"]["leaseTransitions"] == {
        "type": "integer",
        "format": "int32",
        "description": "How often the holder changed.",
    }


def test_openapi_without_references_ends_where_a_struct_is_within_itself() -> None:
    schema = gotypes.inline(CUSTOM_RESOURCE_DEFINITION)
    version = schema["properties"]["spec"]["properties"]["versions"]["items"]
    inner = version["properties"]["schema"]["properties"]["openAPIV3Schema"]["properties"]["not"]
    assert inner["x-kubernetes-preserve-unknown-fields"] is True
    assert "$ref" not in str(schema).replace("'$ref': {", "")
