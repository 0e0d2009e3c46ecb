"""The rules of the built-in kinds."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kargo_py.local.apiserver import builtin
from kargo_py.local.apiserver.crdtypes import CUSTOM_RESOURCE_DEFINITION
from kargo_py.local.apiserver.events import as_core_event, as_new_event
from kargo_py.local.apiserver.failures import Failure
from kargo_py.local.apiserver.typedrules import TypedRules
from kargo_py.local.apiserver.wire import JsonObject

KINDS = {kind.qualified: kind for kind in builtin.kinds(TypedRules(CUSTOM_RESOURCE_DEFINITION))}
LEASES, NEW_EVENTS = "leases.coordination.k8s.io", "events.events.k8s.io"


def admitted(kind: str, body: JsonObject, old: JsonObject | None = None, subresource: str = "") -> JsonObject:
    """*body* as it is after the kind's rules have changed it."""
    obj = copy.deepcopy({"metadata": {"name": "x", "namespace": "n"}, **body})
    rules = KINDS[kind].rules
    assert rules.prune(obj) == []
    rules.default(obj)
    rules.prepare(obj, old, subresource)
    return obj


def said(kind: str, body: JsonObject, old: JsonObject | None = None, subresource: str = "") -> list[str]:
    """What the kind's rules say about *body*."""
    obj = admitted(kind, body, old, subresource)
    return [str(error) for error in KINDS[kind].rules.validate(obj, old, subresource)]


# Namespaces


def test_a_new_namespace() -> None:
    made = admitted("namespaces", {"metadata": {"name": "x"}, "status": {"phase": "Odd"}})
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["status"] == {"phase": "Active"}


def test_finalizers_of_a_new_namespace_are_kept() -> None:
    made = admitted("namespaces", {"spec": {"finalizers": ["a/b"]}})
    assert made["spec"]["finalizers"] == ["a/b", "kubernetes"]


@pytest.mark.parametrize(
    ("subresource", "spec", "status"),
    [("", "old", "old"), ("status", "old", "new"), ("finalize", "new", "old")],
)
def test_what_an_update_of_a_namespace_changes(subresource: str, spec: str, status: str) -> None:
    old = admitted("namespaces", {})
    new = {"spec": {}, "status": {"phase": "Terminating"}}
    made = admitted("namespaces", new, old, subresource)
    assert made["spec"] == {"old": old, "new": new}[spec]["spec"]
    assert made["status"] == {"old": old, "new": new}[status]["status"]


def test_finalizers_of_a_namespace_have_names() -> None:
    words = "name is neither a standard finalizer name nor is it fully qualified"
    assert said("namespaces", {"spec": {"finalizers": ["x"]}}) == [f'spec.finalizers: Invalid value: "x": {words}']
    old = admitted("namespaces", {})
    assert said("namespaces", {"spec": {"finalizers": ["x"]}}, old, "finalize") == [
        f'spec.finalizers[0]: Invalid value: "x": {words}'
    ]


@pytest.mark.parametrize(
    ("phase", "deleted", "words"),
    [
        ("Active", False, []),
        ("Terminating", True, []),
        ("Odd", False, ["may only be 'Active' if `deletionTimestamp` is empty"]),
        ("Active", True, ["may only be 'Terminating' if `deletionTimestamp` is not empty"]),
    ],
)
def test_the_phase_of_a_namespace(phase: str, deleted: bool, words: list[str]) -> None:
    metadata = {"name": "x", **({"deletionTimestamp": "2026-11-30T00:00:00Z"} if deleted else {})}
    found = said("namespaces", {"metadata": metadata, "status": {"phase": phase}}, admitted("namespaces", {}), "status")
    assert found == [f'status.Phase: Invalid value: "{phase}": {each}' for each in words]


# Secrets and ConfigMaps


def test_text_of_a_secret_becomes_data() -> None:
    made = admitted("secrets", {"data": {"a": "YQ==", "b": "Yg=="}, "stringData": {"a": "é", "c": ""}})
    assert made["data"] == {"a": "w6k=", "b": "Yg==", "c": ""}
    assert made["type"] == "Opaque"
    assert "stringData" not in made


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        ({}, []),
        ({"data": {"a b": ""}}, ['data[a b]: Invalid value: "a b": a valid config key']),
        ({"stringData": {"a": "x" * 1_048_577}}, ["data: Too long: may not be more than 1048576 bytes"]),
        ({"stringData": {"a": "x" * 1_048_576}}, []),
        ({"type": "kubernetes.io/tls"}, ["data[tls.crt]: Required value", "data[tls.key]: Required value"]),
        ({"type": "kubernetes.io/ssh-auth", "data": {"ssh-privatekey": ""}}, ["data[ssh-privatekey]: Required value"]),
        (
            {"type": "kubernetes.io/basic-auth"},
            ["data[username]: Required value", "data[password]: Required value"],
        ),
        ({"type": "kubernetes.io/basic-auth", "data": {"password": ""}}, []),
        (
            {"type": "kubernetes.io/service-account-token"},
            ["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
        ({"type": "kubernetes.io/dockercfg"}, ["data[.dockercfg]: Required value"]),
        (
            {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{"}},
            ['data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": unexpected end of JSON input'],
        ),
        (
            {"type": "kubernetes.io/dockercfg", "stringData": {".dockercfg": "[]"}},
            ['data[.dockercfg]: Invalid value: "<secret contents redacted>": json: cannot unmarshal array'],
        ),
        ({"type": "kubernetes.io/dockercfg", "stringData": {".dockercfg": ' {"a":1}'}}, []),
    ],
)
def test_what_a_secret_must_have(secret: JsonObject, words: list[str]) -> None:
    found = said("secrets", secret)
    assert [each[: len(word)] for each, word in zip(found, words, strict=True)] == words


def test_the_type_of_a_secret_stays() -> None:
    old = admitted("secrets", {"type": "a"})
    assert said("secrets", {"type": "b"}, old) == ['type: Invalid value: "b": field is immutable']


@pytest.mark.parametrize(("kind", "field"), [("secrets", "data"), ("configmaps", "data"), ("configmaps", "binaryData")])
def test_what_is_immutable_stays(kind: str, field: str) -> None:
    old = admitted(kind, {"immutable": True, field: {"a": "YQ=="}})
    words = "Forbidden: field is immutable when `immutable` is set"
    assert said(kind, {"immutable": True, field: {"a": "YQ=="}}, old) == []
    assert said(kind, {field: {}}, old) == [f"immutable: {words}", f"{field}: {words}"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"data": {"a": "1"}, "binaryData": {"b": "YQ=="}}, []),
        ({"data": {"": ""}}, ['data[]: Invalid value: "": a valid config key']),
        ({"binaryData": {"..": ""}}, ["binaryData[..]: Invalid value: \"..\": must not be '..'"]),
        (
            {"data": {"a": ""}, "binaryData": {"a": ""}},
            ['data[a]: Invalid value: "a": duplicate of key present in binaryData'],
        ),
        ({"data": {"a": "é" * 524_289}}, ["[]: Too long: may not be more than 1048576 bytes"]),
    ],
)
def test_what_a_config_map_must_have(config: JsonObject, words: list[str]) -> None:
    found = said("configmaps", config)
    assert [each[: len(word)] for each, word in zip(found, words, strict=True)] == words


# Leases, service accounts


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"leaseDurationSeconds": 1, "leaseTransitions": 0}, []),
        ({"leaseDurationSeconds": 0}, ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"]),
        (
            {"leaseTransitions": -1},
            ["spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"],
        ),
    ],
)
def test_the_numbers_of_a_lease(spec: JsonObject, words: list[str]) -> None:
    assert said(LEASES, {"spec": spec}) == words


def test_coordinated_election_is_off() -> None:
    spec = {"holderIdentity": "x", "strategy": "s", "preferredHolder": "p"}
    assert admitted(LEASES, {"spec": spec})["spec"] == {"holderIdentity": "x"}
    assert admitted(LEASES, {"spec": spec}, {"spec": spec})["spec"] == spec


def test_a_service_account_keeps_names_of_secrets() -> None:
    made = admitted("serviceaccounts", {"secrets": [{"name": "a", "kind": "Secret"}, {"kind": "Secret"}]})
    assert made["secrets"] == [{"name": "a"}, {}]


# Events

REPORTED: JsonObject = {
    "eventTime": "2026-11-30T00:00:00.000000Z",
    "reportingInstance": "i",
    "action": "a",
    "reason": "r",
}
NEW: JsonObject = {**REPORTED, "reportingController": "c/d", "type": "Normal", "regarding": {"namespace": "n"}}
MISMATCH = "does not match event.namespace"


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"involvedObject": {"namespace": "n"}}, []),
        ({}, [f'involvedObject.namespace: Invalid value: "": {MISMATCH}']),
        ({"involvedObject": {"namespace": "m"}}, [f'involvedObject.namespace: Invalid value: "m": {MISMATCH}']),
        ({"metadata": {"name": "x", "namespace": "default"}}, []),
        ({**REPORTED, "reportingComponent": "c", "involvedObject": {"namespace": "m"}}, []),
        (
            {"eventTime": REPORTED["eventTime"], "involvedObject": {"namespace": "n"}, "message": "x" * 1025},
            [
                "reportingComponent: Required value",
                'reportingComponent: Invalid value: "": name part must be non-empty',
                'reportingComponent: Invalid value: "": name part must consist of',
                "reportingInstance: Required value",
                "action: Required value",
                "reason: Required value",
                'message: Invalid value: "": can have at most 1024 characters',
            ],
        ),
    ],
)
def test_what_an_event_must_have(event: JsonObject, words: list[str]) -> None:
    found = said("events", event)
    assert [each[: len(word)] for each, word in zip(found, words, strict=True)] == words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, []),
        ({"type": "Odd"}, ['type: Invalid value: "": has invalid value: Odd']),
        ({"deprecatedCount": 1}, ['count: Invalid value: "": needs to be unset']),
        ({"deprecatedSource": {"host": "h"}}, ['source: Invalid value: "": needs to be unset']),
        (
            {"series": {"count": 1}},
            ['series.count: Invalid value: "": should be at least 2', "series.lastObservedTime: Required value"],
        ),
    ],
)
def test_what_an_event_of_the_new_group_must_have(change: JsonObject, words: list[str]) -> None:
    assert said(NEW_EVENTS, {**NEW, **change}) == words


def test_what_is_fixed_in_an_event_of_the_new_group() -> None:
    old = admitted(NEW_EVENTS, NEW)
    series = {"count": 2, "lastObservedTime": "2026-11-30T00:00:00.000000Z"}
    assert said(NEW_EVENTS, {**NEW, "series": series}, old) == []
    found = said(NEW_EVENTS, {**NEW, "note": "n", "regarding": {"namespace": "n", "kind": "K"}}, old)
    assert found == [
        (
            'involvedObject: Invalid value: {"Kind":"K","Namespace":"n","Name":"","UID":"","APIVersion":"",'
            '"ResourceVersion":"","FieldPath":""}: field is immutable'
        ),
        'message: Invalid value: "n": field is immutable',
    ]


def test_an_event_is_the_same_in_both_groups() -> None:
    core = {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": "x"},
        "involvedObject": {"kind": "Pod"},
        "message": "m",
        "source": {"component": "c"},
        "firstTimestamp": "2026-11-30T00:00:00Z",
        "lastTimestamp": None,
        "count": 3,
        "eventTime": None,
        "reportingComponent": "c",
        "reportingInstance": "",
        "series": {"count": 2, "lastObservedTime": None},
    }
    new = as_new_event(core)
    assert (new["regarding"], new["note"], new["deprecatedCount"]) == ({"kind": "Pod"}, "m", 3)
    assert (new["apiVersion"], new["reportingController"]) == ("events.k8s.io/v1", "c")
    assert as_core_event(new) == core


# Reviews


def review(spec: JsonObject, metadata: JsonObject | None = None) -> JsonObject:
    """A SelfSubjectAccessReview as it comes."""
    return {"kind": "SelfSubjectAccessReview", "metadata": metadata or {}, "spec": spec}


def test_everything_is_allowed() -> None:
    assert builtin.allowed(review({"resourceAttributes": {"verb": "get"}}))["status"] == {"allowed": True}
    rules = builtin.everything_allowed({"kind": "k", "apiVersion": "v", "metadata": {}, "spec": {"namespace": "n"}})
    assert rules["status"]["resourceRules"] == [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (review({}), "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
        (
            review({"resourceAttributes": {}, "nonResourceAttributes": {"path": "/"}}),
            '{"Path":"/","Verb":""}: cannot be specified in combination with resourceAttributes',
        ),
        (review({"resourceAttributes": {}}, {"name": "x"}), "must be empty"),
    ],
)
def test_a_review_asks_one_thing(asked: JsonObject, words: str) -> None:
    with pytest.raises(Failure) as caught:
        builtin.allowed(asked)
    assert caught.value.code == 422
    assert words in caught.value.message


def test_rules_are_those_of_a_namespace() -> None:
    with pytest.raises(Failure, match="no namespace on request"):
        builtin.everything_allowed({"kind": "k", "apiVersion": "v", "metadata": {}, "spec": {}})


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.qualified)
def test_a_schema_has_every_field_of_the_type(kind: Any) -> None:
    assert set(kind.schema["properties"]) == set(kind.struct.fields)
