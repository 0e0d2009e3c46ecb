"""Metadata: how it is read, and what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from kargo_py.local.apiserver import objectmeta
from kargo_py.local.apiserver.builtin import kinds
from kargo_py.local.apiserver.crdtypes import CUSTOM_RESOURCE_DEFINITION
from kargo_py.local.apiserver.failures import FieldError
from kargo_py.local.apiserver.gotypes import Mistyped
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.names import dns_subdomain
from kargo_py.local.apiserver.typedrules import TypedRules
from kargo_py.local.apiserver.wire import JsonObject

KINDS = {kind.qualified: kind for kind in kinds(TypedRules(CUSTOM_RESOURCE_DEFINITION))}
CUSTOM = Kind("example.com", "v1", "widgets", "widget", "Widget", TypedRules(CUSTOM_RESOURCE_DEFINITION), custom=True)
GOOD: JsonObject = {"name": "a", "namespace": "n"}


def paths(errors: list[FieldError]) -> list[str]:
    """Where they are."""
    return [error.path for error in errors]


def said(metadata: JsonObject, kind: Kind = CUSTOM) -> list[str]:
    """What is said about *metadata* when the object is created."""
    return [str(error) for error in objectmeta.errors({**GOOD, **metadata}, None, kind)]


def test_it_is_brought_into_form() -> None:
    obj: JsonObject = {"metadata": {"name": "a", "labels": {"a": None}, "annotations": {}, "bogus": 1}}
    assert objectmeta.decode(obj) == ["metadata.bogus"]
    assert obj == {"metadata": {"name": "a", "labels": {"a": ""}}}


def test_there_is_always_some() -> None:
    obj: JsonObject = {"metadata": None}
    assert objectmeta.decode(obj) == []
    assert obj == {"metadata": {}}


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ([], "json: cannot unmarshal array into Go value of type v1.ObjectMeta"),
        (
            {"labels": []},
            "json: cannot unmarshal array into Go struct field ObjectMeta.labels of type map[string]string",
        ),
    ],
)
def test_it_has_types(metadata: Any, words: str) -> None:
    with pytest.raises(Mistyped) as caught:
        objectmeta.decode({"metadata": metadata})
    assert str(caught.value) == words


def test_good_metadata() -> None:
    metadata = {
        "generateName": "a-",
        "labels": {"example.com/a": "b", "c": ""},
        "annotations": {"UPPER.example/a": "any text\n"},
        "finalizers": ["example.com/f", "plain"],
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "K", "name": "n", "uid": "u", "controller": True}],
        "managedFields": [{"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1"}],
    }
    assert said(metadata) == []


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"name": ""}, "metadata.name: Required value: name or generateName is required"),
        ({"name": "A"}, 'metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain'),
        ({"generateName": "A"}, 'metadata.generateName: Invalid value: "A": a lowercase'),
        ({"namespace": ""}, "metadata.namespace: Required value"),
        ({"namespace": "a.b"}, 'metadata.namespace: Invalid value: "a.b": must not contain dots'),
        ({"generation": -1}, "metadata.generation: Invalid value: -1: must be greater than or equal to 0"),
        ({"labels": {"a b": ""}}, 'metadata.labels: Invalid value: "a b": name part'),
        ({"labels": {"a": "b c"}}, 'metadata.labels: Invalid value: "b c": a valid label'),
        ({"annotations": {"a b": ""}}, 'metadata.annotations: Invalid value: "a b": name part'),
        ({"annotations": {"a": "é" * 131_072}}, "metadata.annotations: Too long: may not be more than 262144 bytes"),
        ({"finalizers": ["a b"]}, 'metadata.finalizers: Invalid value: "a b": name part'),
        (
            {"finalizers": ["orphan", "foregroundDeletion"]},
            (
                'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and '
                "foregroundDeletion cannot be both set"
            ),
        ),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "n", "uid": "u"}]},
            (
                'metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"n","uid":"u"}: '
                "/v1, Kind=Event is disallowed from being an owner"
            ),
        ),
        (
            {"managedFields": [{"operation": "Do"}]},
            'metadata.managedFields[0].operation: Invalid value: "Do": must be `Apply` or `Update`',
        ),
        (
            {"managedFields": [{"operation": "Apply", "fieldsType": "V2"}]},
            'metadata.managedFields[0].fieldsType: Invalid value: "V2": must be `FieldsV1`',
        ),
        (
            {"managedFields": [{"operation": "Apply", "manager": "x" * 129}]},
            "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes",
        ),
        (
            {"managedFields": [{"operation": "Apply", "subresource": "x" * 257}]},
            "metadata.managedFields[0].subresource: Too long: may not be more than 256 bytes",
        ),
    ],
)
def test_one_thing_that_is_wrong(metadata: JsonObject, words: str) -> None:
    (found,) = said(metadata)
    assert found.startswith(words)


@pytest.mark.parametrize("api_version", ["", "a/b/c", "apps/", "/"])
def test_an_owner_has_a_version(api_version: str) -> None:
    owner = {"apiVersion": api_version, "kind": "K", "name": "n", "uid": "u"}
    assert said({"ownerReferences": [owner]}) == [
        f'metadata.ownerReferences.apiVersion: Invalid value: "{api_version}": version must not be empty'
    ]


def test_only_one_owner_is_the_controller() -> None:
    owners = [{"apiVersion": "v1", "kind": "K", "name": name, "uid": name, "controller": True} for name in "ab"]
    (found,) = said({"ownerReferences": owners})
    assert found.endswith('Found "true" in references for K/a and K/b')


def test_a_kind_without_namespaces_has_none() -> None:
    errors = objectmeta.validate(GOOD, namespaced=False, rule=dns_subdomain)
    assert [str(error) for error in errors] == ["metadata.namespace: Forbidden: not allowed on this type"]


def test_a_core_kind_asks_more_of_finalizers() -> None:
    assert said({"finalizers": ["plain"]}, KINDS["configmaps"]) == [
        (
            'metadata.finalizers[0]: Invalid value: "plain": name is neither a standard finalizer name nor is it fully '
            "qualified"
        )
    ]


def test_an_event_may_have_any_name_that_fits_into_a_path() -> None:
    assert said({"name": "A_"}, KINDS["events"]) == []
    assert said({"name": "a/b"}, KINDS["events"]) == ["metadata.name: Invalid value: \"a/b\": may not contain '/'"]


OLD: JsonObject = {**GOOD, "uid": "u", "resourceVersion": "5", "generation": 2}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"uid": "v"}, 'metadata.uid: Invalid value: "v": field is immutable'),
        ({"resourceVersion": ""}, 'metadata.resourceVersion: Invalid value: "": must be specified for an update'),
        ({"generation": 1}, "metadata.generation: Invalid value: 1: must not be decremented"),
        (
            {"deletionGracePeriodSeconds": 4},
            "metadata.deletionGracePeriodSeconds: Invalid value: 4: field is immutable",
        ),
    ],
)
def test_what_an_update_may_not_change(change: JsonObject, words: str) -> None:
    assert [str(error) for error in objectmeta.validate_update({**OLD, **change}, OLD)] == [words]


def test_an_object_that_is_being_deleted_gets_no_new_finalizers() -> None:
    old = {**OLD, "deletionTimestamp": "2026-11-30T00:00:00Z", "finalizers": ["a/b"]}
    assert objectmeta.validate_update({**old, "finalizers": []}, old) == []
    (error,) = objectmeta.validate_update({**old, "finalizers": ["a/b", "d/e", "c/d"]}, old)
    assert str(error) == (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"c/d", "d/e"}'
    )


def test_an_update_is_checked_as_often_as_the_real_server_does() -> None:
    new = {**OLD, "labels": {"a b": ""}, "finalizers": ["x y"]}
    labels, finalizers = "metadata.labels", "metadata.finalizers"
    assert paths(objectmeta.errors(new, OLD, CUSTOM)) == [labels, finalizers, labels, labels]
    assert paths(objectmeta.errors(new, OLD, KINDS["events"])) == [labels, finalizers, labels]
    assert paths(objectmeta.errors(new, OLD, KINDS["secrets"])) == [
        *(labels, finalizers, labels, labels),
        *(f"{finalizers}[0]", labels, finalizers, f"{finalizers}[0]"),
    ]


def test_a_manager_is_printable() -> None:
    (error,) = objectmeta.manager_errors("é\n", "fieldManager")
    assert str(error) == 'fieldManager: Invalid value: "é\\n": invalid character U+000A (at position 2)'
