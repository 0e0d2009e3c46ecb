"""The built-in kinds beside those of a real API server: metadata, names, values good and bad, updates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kargo_py.local.apiserver.wire import JsonObject
from tests.envtest.server import ApiServer
from tests.local.apiserver.both import Both

pytestmark = pytest.mark.envtest


@pytest.fixture(scope="module")
def both(apiserver_session: ApiServer) -> Iterator[Both]:
    with closing(Both(apiserver_session)) as servers:
        yield servers


OWNER = {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}
METADATA: list[Any] = [
    *({}, {"name": ""}, {"name": "A_b"}, {"name": "a/b"}, {"name": "."}, {"name": "a%b"}, {"name": "x" * 254}),
    *({"name": "é"}, {"name": "a\n"}, {"name": "a", "namespace": "other"}, {"generateName": "a-", "name": "B"}),
    *({"labels": {"a b": "c"}}, {"labels": {"a": "b c"}}, {"labels": {"x/y/z": ""}}, {"labels": {"": "v"}}),
    *(
        {"labels": {"/n": "1"}},
        {"labels": {"p_/x": "2"}},
        {"labels": {"l": "v" * 64}},
        {"labels": {"A.b/" + "x" * 64: ""}},
    ),
    *(
        {"annotations": {"A b": ""}},
        {"annotations": {"a": "x" * 262_144}},
        {"name": "ok1", "annotations": {"UPPER/x": "y"}},
    ),
    *({"finalizers": ["a b"]}, {"finalizers": ["noslash"]}, {"finalizers": ["orphan", "foregroundDeletion"]}),
    *({"name": "ok2", "finalizers": ["x/y", "x/y"]}, {"finalizers": [None]}, {"finalizers": "x"}),
    *({"ownerReferences": [{**OWNER, "apiVersion": version}]} for version in ("", "a/b/c", "apps/", "/")),
    *(
        {"ownerReferences": [{}]},
        {"ownerReferences": [None]},
        {"ownerReferences": {}},
        {"ownerReferences": [{"uid": 3}]},
    ),
    {"ownerReferences": [{**OWNER, "kind": "Event"}]},
    {"ownerReferences": [{**OWNER, "controller": True}, {**OWNER, "uid": "v", "controller": True}]},
    {"managedFields": [{"manager": "x", "operation": "Do", "fieldsType": "V2", "fieldsV1": {}}]},
    {"managedFields": [{"manager": "x\n" * 100, "operation": "Update", "subresource": "a" * 300}]},
    *({"managedFields": "x"}, {"managedFields": [{"time": "x"}]}, {"labels": []}, {"labels": {"a": 1}}, {"name": 1}),
    *({"generation": "x"}, {"generation": 1.5}, {"creationTimestamp": "x"}, {"deletionGracePeriodSeconds": "1"}),
    {
        "name": "ok3",
        "labels": None,
        "annotations": {},
        "finalizers": [],
        "generation": 7,
        "bogus": 1,
        "uid": "z",
        "deletionGracePeriodSeconds": 3,
        "deletionTimestamp": "2020-01-01T00:00:00Z",
    },
    *([], "x", 3),
]
COLLECTIONS = {
    "secrets": "/api/v1/namespaces/{}/secrets",
    "leases": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "events": "/api/v1/namespaces/{}/events",
}


@pytest.mark.parametrize("kind", COLLECTIONS)
@pytest.mark.parametrize("metadata", METADATA, ids=lambda value: json.dumps(value)[:50])
def test_metadata(both: Both, kind: str, metadata: Any) -> None:
    if isinstance(metadata, dict):
        metadata = {"name": "bad", **metadata} if "name" not in metadata and metadata else metadata
    body = {"metadata": metadata, **({"involvedObject": {"namespace": both.namespace}} if kind == "events" else {})}
    both.same("POST", COLLECTIONS[kind].format(both.namespace), body)


names = st.text(alphabet="abAB01-._/ é%", max_size=8)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["configmaps", "events", "serviceaccounts"]),
    metadata=st.fixed_dictionaries(
        {"name": names},
        optional={
            "generateName": names,
            "labels": st.dictionaries(names, names, max_size=1),
            "annotations": st.dictionaries(names, names, max_size=1),
            "finalizers": st.lists(names, max_size=2),
        },
    ),
)
def test_random_names(both: Both, kind: str, metadata: JsonObject) -> None:
    if not metadata["name"]:
        metadata = {**metadata, "generateName": ""}  # generated names are unlike
    body = {"metadata": metadata, "involvedObject": {"namespace": both.namespace}}
    both.same("POST", f"/api/v1/namespaces/{both.namespace}/{kind}?dryRun=All&fieldValidation=Ignore", body)


SECRETS: list[JsonObject] = [
    *({"data": None}, {"data": {}}, {"data": []}, {"data": "x"}),
    *({"data": {"x": value}} for value in (1, None, [1, 255], [256])),
    *({"data": {"k": text}} for text in ("!!", "YQ", "Y Q==", "YQ==\nYQ==", "YR==", "YQ=\n=", "YQ=", "YQ=x", "YQ===")),
    *({"data": {"k": text}} for text in ("YWJj=", "Y", "é", "YW\r\nJj", "=", "YWJjZ", "")),
    *({"stringData": value} for value in (None, {"a": 5}, {"a": None}, {"a": ""}, {"a": "é"}, {"a": "x" * 1_048_577})),
    *({"data": {key: ""}} for key in ("a b", "..", ".", "..x", "x" * 254, "")),
    *({"type": value} for value in (None, "", 3, "any", "kubernetes.io/tls", "kubernetes.io/ssh-auth")),
    *({"type": f"kubernetes.io/{value}"} for value in ("basic-auth", "dockercfg", "service-account-token")),
    {"type": "kubernetes.io/ssh-auth", "data": {"ssh-privatekey": ""}},
    *(
        {"type": "kubernetes.io/dockercfg", "stringData": {".dockercfg": text}}
        for text in ("[]", "{", "", "5", "{} x", '{"a":1}', "null", "true", '"')
    ),
    *({"immutable": value} for value in (False, None, "yes")),
    {"bogus": 1, "Data": {}},
]


@pytest.mark.parametrize("body", SECRETS, ids=lambda value: json.dumps(value)[:50])
def test_secrets(both: Both, body: JsonObject) -> None:
    path = f"/api/v1/namespaces/{both.namespace}/secrets?dryRun=All"
    both.same("POST", path, {"metadata": {"name": "s"}, **body})


CONFIG_MAPS: list[JsonObject] = [
    *({"data": value} for value in ("x", {"x": 1}, {"x": None}, {"a b": ""}, {"": ""}, {"a": "x" * 1_048_577})),
    *({"data": {"a": "é" * 524_288}}, {"data": {"a": "é" * 524_289}}, {"data": {"a": ""}, "binaryData": {"a": "YQ=="}}),
    *(
        {"binaryData": {"..": ""}},
        {"binaryData": {"a": "?"}},
        {"immutable": 1},
        {"kind": "Secret"},
        {"apiVersion": "v2"},
    ),
]


@pytest.mark.parametrize("body", CONFIG_MAPS, ids=lambda value: json.dumps(value)[:50])
def test_config_maps(both: Both, body: JsonObject) -> None:
    path = f"/api/v1/namespaces/{both.namespace}/configmaps?dryRun=All"
    both.same("POST", path, {"metadata": {"name": "c"}, **body})


TIMES = [
    *(
        "2026-11-30T00:00:00Z",
        "2026-11-30T00:00:00.1Z",
        "2026-11-30T00:00:00.1234567Z",
        "",
        "20260220",
        "2026-2-20T",
        "é",
    ),
    *("2026-11-30T00:00:00.123456+02:00", "2026-11-30t00:00:00.123456z", "2026-11-30T00:00:00,123456Z", '"\\\n'),
    *("2026-13-30T00:00:00.123456Z", "2026-02-30T00:00:00.123456Z", "2026-02-20T24:00:00.123456Z"),
    *("2026-02-20T23:60:00.123456Z", "2026-02-20T23:00:60.123456Z", "2026-02-20T23:00:00.123456Zx"),
    *("2026-02-20T23:00:00.123456+99:00", "2026-02-20T23:00:00.123456+01:99", "2026-02-20T23:00:00.123456+24:00"),
    *("2026-02-20T23:00:00.123456+0100", "0001-01-01T00:00:00.000000Z", "2026-00-01T00:00:00.000000Z"),
]
LEASES: list[Any] = [
    *({"renewTime": text} for text in (*TIMES, 5, None)),
    *({"leaseDurationSeconds": value} for value in ("5", 0, -1, 3_000_000_000, 1.5, None)),
    *(
        {"holderIdentity": ""},
        {"holderIdentity": "x", "strategy": "s", "preferredHolder": "y"},
        {"leaseTransitions": -1},
    ),
    *([], "x", None),
]


@pytest.mark.parametrize("spec", LEASES, ids=lambda value: json.dumps(value)[:50])
def test_leases(both: Both, spec: Any) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{both.namespace}/leases?dryRun=All"
    both.same("POST", path, {"metadata": {"name": "l"}, "spec": spec})


NOW = "2026-11-30T00:00:00.000000Z"
REPORTED = {"eventTime": NOW, "reportingInstance": "i", "action": "a", "reason": "r"}
EVENTS: list[JsonObject] = [
    *({}, {"involvedObject": {}}, {"involvedObject": {"namespace": "x"}}, {"involvedObject": []}, {"count": "x"}),
    *({"eventTime": NOW}, {**REPORTED, "reportingComponent": "a/b", "type": "Odd"}, {"firstTimestamp": "x"}),
    {"eventTime": NOW, "reportingComponent": "a b", "reportingInstance": "i" * 129, "message": "m" * 1025},
    *(
        {"series": {}, "related": {"kind": "x"}, "source": None, "firstTimestamp": "2026-11-30T00:00:00.5Z"},
        {"series": 1},
    ),
]


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("body", EVENTS, ids=lambda value: json.dumps(value)[:50])
def test_events(both: Both, body: JsonObject, inside: bool) -> None:
    own = {"involvedObject": {"namespace": both.namespace}} if inside else {}
    path = f"/api/v1/namespaces/{both.namespace}/events?dryRun=All"
    both.same("POST", path, {"metadata": {"name": "e"}, **own, **body})


NEW: JsonObject = {**REPORTED, "reportingController": "a/b", "type": "Normal"}
NEW_EVENTS: list[JsonObject] = [
    *(
        {},
        NEW,
        {**NEW, "note": 3},
        {**NEW, "type": "Odd"},
        {**NEW, "series": {"count": 1}},
        {**NEW, "deprecatedCount": 3},
    ),
    {**NEW, "series": {"count": 2, "lastObservedTime": NOW}, "note": "n", "related": {"name": "x"}},
    {**NEW, "deprecatedFirstTimestamp": "2026-11-30T00:00:00Z", "deprecatedSource": {"component": "x"}},
]


@pytest.mark.parametrize("body", NEW_EVENTS, ids=lambda value: json.dumps(value)[:50])
def test_events_of_the_new_group(both: Both, body: JsonObject) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{both.namespace}/events?dryRun=All"
    both.same("POST", path, {"metadata": {"name": "e"}, "regarding": {"namespace": both.namespace}, **body})


def test_an_event_is_in_both_groups(both: Both) -> None:
    core, new = (f"{base}/namespaces/{both.namespace}/events" for base in ("/api/v1", "/apis/events.k8s.io/v1"))
    both.same("POST", core, {"metadata": {"name": "old"}, "involvedObject": {"namespace": both.namespace}, "count": 2})
    both.same(
        "POST", new, {"metadata": {"name": "new"}, "regarding": {"namespace": both.namespace}, **NEW, "note": "n"}
    )
    for path in (core, new):
        for name in ("old", "new", "none"):
            both.same("GET", f"{path}/{name}")
    both.update(f"{new}/new", {"note": "z", "regarding": {}, "deprecatedCount": 3, "eventTime": None})
    both.update(f"{new}/new", {"series": {"count": 1, "lastObservedTime": None}})
    both.update(f"{new}/new", {"series": {"count": 3, "lastObservedTime": NOW}})


ACCOUNTS: list[JsonObject] = [
    {"secrets": [{"name": "a", "kind": "x"}, {}], "imagePullSecrets": [{"name": "b"}, {}]},
    *(
        {"automountServiceAccountToken": False},
        {"secrets": {}},
        {"secrets": [{"name": 3}]},
        {"imagePullSecrets": ["x"]},
    ),
]


@pytest.mark.parametrize("body", ACCOUNTS, ids=lambda value: json.dumps(value)[:50])
def test_service_accounts(both: Both, body: JsonObject) -> None:
    path = f"/api/v1/namespaces/{both.namespace}/serviceaccounts?dryRun=All"
    both.same("POST", path, {"metadata": {"name": "a"}, **body})


NAMESPACES: list[JsonObject] = [
    {"metadata": {"name": "new", "labels": {"kubernetes.io/metadata.name": "other"}}, "status": {"phase": "Odd"}},
    *({"metadata": {"name": "a.b"}}, {"metadata": {"name": "x" * 64}}, {"metadata": {"name": "new", "namespace": "x"}}),
    *({"metadata": {"name": "new"}, "spec": {"finalizers": value}} for value in (["x"], ["a b"], ["a/b"], "x")),
]


@pytest.mark.parametrize("body", NAMESPACES, ids=lambda value: json.dumps(value)[:50])
def test_namespaces(both: Both, body: JsonObject) -> None:
    both.same("POST", "/api/v1/namespaces?dryRun=All", body)


CHANGES: list[JsonObject] = [
    *(
        {"uid": "x"},
        {"name": "x"},
        {"namespace": "x"},
        {"creationTimestamp": "2020-01-01T00:00:00Z"},
        {"generation": -4},
    ),
    *({"resourceVersion": ""}, {"resourceVersion": "abc"}, {"resourceVersion": "1"}, {"generateName": "A_"}),
    *({"labels": {"a b": "c d"}, "finalizers": ["x y"]}, {"annotations": {"a b": ""}}, {"labels": {"q": "r"}}),
    {"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 4},
]
CREATED: dict[str, JsonObject] = {
    "/api/v1/namespaces/{}/secrets": {"data": {"a": "YQ=="}},
    "/api/v1/namespaces/{}/configmaps": {"data": {"a": "b"}},
    "/api/v1/namespaces/{}/serviceaccounts": {"secrets": [{"name": "a"}]},
    "/apis/coordination.k8s.io/v1/namespaces/{}/leases": {"spec": {"holderIdentity": "x"}},
}


@pytest.mark.parametrize("collection", CREATED)
def test_updates(both: Both, collection: str) -> None:
    path = collection.format(both.namespace)
    both.same("POST", path, {"metadata": {"name": "updated"}, **CREATED[collection]})
    for change in CHANGES:
        both.update(f"{path}/updated", {"metadata": change})


def test_updates_of_what_is_immutable(both: Both) -> None:
    secrets, config = (f"/api/v1/namespaces/{both.namespace}/{kind}" for kind in ("secrets", "configmaps"))
    for path in (secrets, config):
        both.same("POST", path, {"metadata": {"name": "fixed"}, "data": {"a": "YQ=="}, "immutable": True})
        both.update(f"{path}/fixed", {"immutable": False})
        both.update(f"{path}/fixed", {"data": {}})
        both.update(f"{path}/fixed", {"data": {"b": "YQ=="}, "immutable": None})
        both.update(f"{path}/fixed", {"bogus": 1})
    both.update(f"{secrets}/fixed", {"type": "x"})
    both.update(f"{secrets}/fixed", {"type": ""})
    both.update(f"{secrets}/fixed", {"stringData": {"a": "b"}})


def test_updates_of_a_namespace(both: Both) -> None:
    path = f"/api/v1/namespaces/{both.namespace}"
    for change in CHANGES[3:]:
        both.update(path, {"metadata": change})
    both.update(path, {"spec": {}, "status": {"phase": "x"}})
    both.update(path, {"metadata": {"labels": {}}})
    both.update(f"{path}/status", {"status": {"phase": "x"}})
    condition = {"type": "X", "status": "True"}
    both.update(f"{path}/status", {"spec": {}, "status": {"phase": "Active", "conditions": [condition]}})


def test_reviews(both: Both) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for spec in ({"resourceAttributes": {"verb": "get"}}, {}, {"nonResourceAttributes": {"path": "/x"}}, None):
        both.same("POST", path, {"spec": spec})
    both.same("POST", path, {"spec": {"resourceAttributes": {}, "nonResourceAttributes": {"path": "/x"}}})
    both.same("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {}})
