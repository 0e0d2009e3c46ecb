"""Namespaces, Secrets, ConfigMaps, Events, Leases and ServiceAccounts: their own rules."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.conformance.asking import NS, Asked, bad, case, done, invalid, outcome, patch, post, refused
from tests.conformance.definitions import config_map, maps
from tests.conformance.servers import MERGE, JsonObject, Server, names

SECRETS, MAPS = f"/api/v1/namespaces/{NS}/secrets", maps(NS)
EVENTS, NEW_EVENTS = f"/api/v1/namespaces/{NS}/events", f"/apis/events.k8s.io/v1/namespaces/{NS}/events"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NS}/leases"
ACCOUNTS = f"/api/v1/namespaces/{NS}/serviceaccounts"
NOW = "2026-11-30T12:00:00.123456Z"


def encoded(text: str) -> str:
    """Return base64 of *text*."""
    return base64.b64encode(text.encode()).decode()


def secret(name: str = "s", **fields: Any) -> JsonObject:
    """Make a Secret."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **fields}


def lease(name: str = "l", **spec: Any) -> JsonObject:
    """Make a Lease."""
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


def event(name: str = "e", *, namespace: str = NS, **fields: Any) -> JsonObject:
    """Make a core Event about a ConfigMap."""
    made: JsonObject = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}}
    made |= {"involvedObject": {"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "namespace": namespace}}
    return made | {"reason": "Tried", "message": "for the suite", "type": "Normal", **fields}


def new_event(name: str = "e", **fields: Any) -> JsonObject:
    """Make an Event as our recorder writes it."""
    made: JsonObject = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name}}
    made |= {"eventTime": NOW, "reportingController": "example.com/c", "reportingInstance": "c-0", "action": "Try"}
    made |= {"regarding": {"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "namespace": NS}}
    return made | {"reason": "Tried", "note": "for the suite", "type": "Normal", **fields}


def prepare(server: Server, namespace: str) -> None:
    """Make what the cases are tried on."""
    server.create(maps(namespace), config_map("m", a="1"))
    server.create(maps(namespace), {**config_map("fixed", a="1"), "immutable": True})
    server.create(SECRETS.replace(NS, namespace), secret("s", stringData={"a": "1"}))
    server.create(SECRETS.replace(NS, namespace), secret("fixed", immutable=True, stringData={"a": "1"}))
    server.create(LEASES.replace(NS, namespace), lease("l", holderIdentity="me"))


@pytest.fixture(scope="module")
def furnished(server: Server) -> str:
    """Name of a namespace with objects of each kind."""
    namespace = server.namespace()
    prepare(server, namespace)
    return namespace


DRY = "?dryRun=All"
REFUSED = [
    case(
        "ConfigMap: a key with a slash",
        post(MAPS, config_map("q", **{"a/b": ""})),
        invalid(
            "ConfigMap",
            "q",
            (
                "data[a/b]",
                "Invalid",
                (
                    'Invalid value: "a/b": a valid config key must consist of alphanumeric characters, '
                    "'-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for "
                    "validation is '[-._a-zA-Z0-9]+')"
                ),
            ),
            group="",
        ),
    ),
    case(
        "ConfigMap: a key of dots",
        post(MAPS, config_map("q", **{"..": ""})),
        invalid("ConfigMap", "q", ("data[..]", "Invalid", "Invalid value: \"..\": must not be '..'"), group=""),
    ),
    case(
        "ConfigMap: an empty key",
        post(MAPS, config_map("q", **{"": ""})),
        invalid(
            "ConfigMap",
            "q",
            (
                "data[]",
                "Invalid",
                (
                    "Invalid value: \"\": a valid config key must consist of alphanumeric characters, '-', "
                    "'_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for "
                    "validation is '[-._a-zA-Z0-9]+')"
                ),
            ),
            group="",
        ),
    ),
    case(
        "ConfigMap: a long key",
        post(MAPS, config_map("q", **{"x" * 254: ""})),
        invalid(
            "ConfigMap",
            "q",
            (
                ("data[" + "x" * 254 + "]"),
                "Invalid",
                ('Invalid value: "' + "x" * 254 + '": must be no more than 253 characters'),
            ),
            group="",
        ),
    ),
    case(
        "ConfigMap: a key in both",
        post(MAPS, {**config_map("q", a="1"), "binaryData": {"a": encoded("1")}}),
        invalid(
            "ConfigMap",
            "q",
            ("data[a]", "Invalid", 'Invalid value: "a": duplicate of key present in binaryData'),
            group="",
        ),
    ),
    case(
        "ConfigMap: no base64",
        post(MAPS, {**config_map("q"), "binaryData": {"a": "?"}}),
        bad('ConfigMap in version "v1" cannot be handled as a ConfigMap: illegal base64 data at input byte 0'),
    ),
    case("ConfigMap: null in data", post(MAPS + DRY, {**config_map("q"), "data": {"a": None}}), done(201)),
    case(
        "ConfigMap: immutable data",
        patch(maps(NS, "fixed"), {"data": {"a": "2"}}, MERGE),
        invalid(
            "ConfigMap",
            "fixed",
            ("data", "Forbidden", "Forbidden: field is immutable when `immutable` is set"),
            group="",
        ),
    ),
    case(
        "ConfigMap: immutable for ever",
        patch(maps(NS, "fixed"), {"immutable": False}, MERGE),
        invalid(
            "ConfigMap",
            "fixed",
            ("immutable", "Forbidden", "Forbidden: field is immutable when `immutable` is set"),
            group="",
        ),
    ),
    case(
        "ConfigMap: labels of an immutable one",
        patch(maps(NS, "fixed") + DRY, {"metadata": {"labels": {"a": "b"}}}, MERGE),
        done(200),
    ),
    case(
        "Secret: no base64",
        post(SECRETS, secret("q", data={"a": "?"})),
        bad('Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte 0'),
    ),
    case(
        "Secret: a number",
        post(SECRETS, secret("q", data={"a": 1})),
        bad(
            'Secret in version "v1" cannot be handled as a Secret: json: cannot unmarshal number '
            "into Go struct field Secret.data of type []uint8"
        ),
    ),
    case(
        "Secret: a bad key",
        post(SECRETS, secret("q", data={"a/b": ""})),
        invalid(
            "Secret",
            "q",
            (
                "data[a/b]",
                "Invalid",
                (
                    'Invalid value: "a/b": a valid config key must consist of alphanumeric characters, '
                    "'-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for "
                    "validation is '[-._a-zA-Z0-9]+')"
                ),
            ),
            group="",
        ),
    ),
    case(
        "Secret: too large",
        post(SECRETS, secret("q", stringData={"a": "x" * 1050000})),
        invalid("Secret", "q", ("data", "TooLong", "Too long: may not be more than 1048576 bytes"), group=""),
    ),
    case(
        "Secret: another type",
        patch(SECRETS + "/s", {"type": "example.com/x"}, MERGE),
        invalid("Secret", "s", ("type", "Invalid", 'Invalid value: "example.com/x": field is immutable'), group=""),
    ),
    case(
        "Secret: immutable",
        patch(SECRETS + "/fixed", {"stringData": {"a": "2"}}, MERGE),
        invalid(
            "Secret", "fixed", ("data", "Forbidden", "Forbidden: field is immutable when `immutable` is set"), group=""
        ),
    ),
    case(
        "Secret: basic auth without anything",
        post(SECRETS, secret("q", type="kubernetes.io/basic-auth")),
        invalid(
            "Secret",
            "q",
            ("data[username]", "Required", "Required value"),
            ("data[password]", "Required", "Required value"),
            group="",
        ),
    ),
    case(
        "Secret: ssh without key",
        post(SECRETS, secret("q", type="kubernetes.io/ssh-auth")),
        invalid("Secret", "q", ("data[ssh-privatekey]", "Required", "Required value"), group=""),
    ),
    case(
        "Secret: TLS without certificate",
        post(SECRETS, secret("q", type="kubernetes.io/tls", stringData={"tls.key": "x"})),
        invalid("Secret", "q", ("data[tls.crt]", "Required", "Required value"), group=""),
    ),
    case(
        "Secret: docker configuration that is none",
        post(SECRETS, secret("q", type="kubernetes.io/dockerconfigjson", stringData={".dockerconfigjson": "x"})),
        invalid(
            "Secret",
            "q",
            (
                "data[.dockerconfigjson]",
                "Invalid",
                ("Invalid value: \"<secret contents redacted>\": invalid character 'x' looking for beginning of value"),
            ),
            group="",
        ),
    ),
    case(
        "Secret: docker configuration that is not there",
        post(SECRETS, secret("q", type="kubernetes.io/dockercfg")),
        invalid("Secret", "q", ("data[.dockercfg]", "Required", "Required value"), group=""),
    ),
    case(
        "Secret: a token without account",
        post(SECRETS, secret("q", type="kubernetes.io/service-account-token")),
        invalid(
            "Secret",
            "q",
            ("metadata.annotations[kubernetes.io/service-account.name]", "Required", "Required value"),
            group="",
        ),
    ),
    case(
        "Lease: a duration of zero",
        post(LEASES, lease("q", leaseDurationSeconds=0)),
        invalid(
            "Lease",
            "q",
            ("spec.leaseDurationSeconds", "Invalid", "Invalid value: 0: must be greater than 0"),
            group="coordination.k8s.io",
        ),
    ),
    case(
        "Lease: negative transitions",
        post(LEASES, lease("q", leaseTransitions=-1)),
        invalid(
            "Lease",
            "q",
            ("spec.leaseTransitions", "Invalid", "Invalid value: -1: must be greater than or equal to 0"),
            group="coordination.k8s.io",
        ),
    ),
    case(
        "Lease: a time that is none",
        post(LEASES, lease("q", renewTime="now")),
        bad(
            'Lease in version "v1" cannot be handled as a Lease: parsing time "now" as '
            '"2006-01-02T15:04:05.000000Z07:00": cannot parse "now" as "2006"'
        ),
    ),
    case(
        "Lease: a time without fraction",
        post(LEASES + DRY, lease("q", renewTime="2026-11-30T12:00:00Z")),
        bad(
            'Lease in version "v1" cannot be handled as a Lease: parsing time '
            '"2026-11-30T12:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as '
            '".000000"'
        ),
    ),
    case(
        "Lease: a number for the holder",
        post(LEASES, lease("q", holderIdentity=1)),
        bad(
            'Lease in version "v1" cannot be handled as a Lease: json: cannot unmarshal number '
            "into Go struct field LeaseSpec.spec.holderIdentity of type string"
        ),
    ),
    case("Lease: an empty holder", post(LEASES + DRY, lease("q", holderIdentity="")), done(201)),
    case("Lease: preferred holder without strategy", post(LEASES + DRY, lease("q", preferredHolder="x")), done(201)),
    case(
        "Event: another namespace",
        post(EVENTS, event("q", namespace="other")),
        invalid(
            "Event",
            "q",
            ("involvedObject.namespace", "Invalid", 'Invalid value: "other": does not match event.namespace'),
            group="",
        ),
    ),
    case(
        "Event: about nothing",
        post(EVENTS, event("q", involvedObject={})),
        invalid(
            "Event",
            "q",
            ("involvedObject.namespace", "Invalid", 'Invalid value: "": does not match event.namespace'),
            group="",
        ),
    ),
    case(
        "Event: about nothing in a namespace",
        post(EVENTS + DRY, event("q", involvedObject={"kind": "Namespace", "name": "x", "apiVersion": "v1"})),
        invalid(
            "Event",
            "q",
            ("involvedObject.namespace", "Invalid", 'Invalid value: "": does not match event.namespace'),
            group="",
        ),
    ),
    case("Event: a type of one's own", post(EVENTS + DRY, event("q", type="Odd")), done(201)),
    case(
        "Event: a count of text",
        post(EVENTS, event("q", count="x")),
        bad(
            'Event in version "v1" cannot be handled as a Event: json: cannot unmarshal string '
            "into Go struct field Event.count of type int32"
        ),
    ),
    case(
        "Event: a time that is none",
        post(EVENTS, event("q", eventTime="now")),
        bad(
            'Event in version "v1" cannot be handled as a Event: parsing time "now" as '
            '"2006-01-02T15:04:05.000000Z07:00": cannot parse "now" as "2006"'
        ),
    ),
    case(
        "Event: with eventTime and without controller",
        post(EVENTS, event("q", eventTime=NOW)),
        invalid(
            "Event",
            "q",
            ("reportingComponent", "Required", "Required value"),
            ("reportingComponent", "Invalid", 'Invalid value: "": name part must be non-empty'),
            (
                "reportingComponent",
                "Invalid",
                (
                    "Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or "
                    "'.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
                    "'my.name',  or '123-abc', regex used for validation is "
                    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                ),
            ),
            ("reportingInstance", "Required", "Required value"),
            ("action", "Required", "Required value"),
            group="",
        ),
    ),
    case(
        "Event, new: no time",
        post(NEW_EVENTS, {key: value for key, value in new_event("q").items() if key != "eventTime"}),
        invalid("Event", "q", ("eventTime", "Required", "Required value"), group=""),
    ),
    case(
        "Event, new: no controller",
        post(NEW_EVENTS, new_event("q", reportingController="")),
        invalid(
            "Event",
            "q",
            ("reportingController", "Required", "Required value"),
            ("reportingController", "Invalid", 'Invalid value: "": name part must be non-empty'),
            (
                "reportingController",
                "Invalid",
                (
                    "Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or "
                    "'.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
                    "'my.name',  or '123-abc', regex used for validation is "
                    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                ),
            ),
            group="",
        ),
    ),
    case(
        "Event, new: a controller that is no name",
        post(NEW_EVENTS, new_event("q", reportingController="a b")),
        invalid(
            "Event",
            "q",
            (
                "reportingController",
                "Invalid",
                (
                    "Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or "
                    "'.', and must start and end with an alphanumeric character (e.g. 'MyName',  or "
                    "'my.name',  or '123-abc', regex used for validation is "
                    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                ),
            ),
            group="",
        ),
    ),
    case(
        "Event, new: no instance",
        post(NEW_EVENTS, new_event("q", reportingInstance="")),
        invalid("Event", "q", ("reportingInstance", "Required", "Required value"), group=""),
    ),
    case(
        "Event, new: no action",
        post(NEW_EVENTS, new_event("q", action="")),
        invalid("Event", "q", ("action", "Required", "Required value"), group=""),
    ),
    case(
        "Event, new: a long action",
        post(NEW_EVENTS, new_event("q", action="x" * 129)),
        invalid("Event", "q", ("action", "Invalid", 'Invalid value: "": can have at most 128 characters'), group=""),
    ),
    case(
        "Event, new: no reason",
        post(NEW_EVENTS, new_event("q", reason="")),
        invalid("Event", "q", ("reason", "Required", "Required value"), group=""),
    ),
    case(
        "Event, new: a long reason",
        post(NEW_EVENTS, new_event("q", reason="x" * 129)),
        invalid("Event", "q", ("reason", "Invalid", 'Invalid value: "": can have at most 128 characters'), group=""),
    ),
    case(
        "Event, new: a long note",
        post(NEW_EVENTS, new_event("q", note="x" * 1025)),
        invalid("Event", "q", ("message", "Invalid", 'Invalid value: "": can have at most 1024 characters'), group=""),
    ),
    case(
        "Event, new: a type of one's own",
        post(NEW_EVENTS, new_event("q", type="Odd")),
        invalid("Event", "q", ("type", "Invalid", 'Invalid value: "": has invalid value: Odd'), group=""),
    ),
    case(
        "Event, new: another namespace",
        post(NEW_EVENTS + DRY, new_event("q", regarding={"kind": "ConfigMap", "name": "m", "namespace": "other"})),
        done(201),
    ),
    case(
        "Event, new: a series of one",
        post(NEW_EVENTS, new_event("q", series={"count": 1, "lastObservedTime": NOW})),
        invalid("Event", "q", ("series.count", "Invalid", 'Invalid value: "": should be at least 2'), group=""),
    ),
    case(
        "Event, new: a series without time",
        post(NEW_EVENTS, new_event("q", series={"count": 2})),
        invalid("Event", "q", ("series.lastObservedTime", "Required", "Required value"), group=""),
    ),
    case(
        "Event, new: the old count",
        post(NEW_EVENTS, new_event("q", deprecatedCount=1)),
        invalid("Event", "q", ("count", "Invalid", 'Invalid value: "": needs to be unset'), group=""),
    ),
    case(
        "ServiceAccount: a capital",
        post(ACCOUNTS, {"metadata": {"name": "A"}}),
        invalid(
            "ServiceAccount",
            "A",
            (
                "metadata.name",
                "Invalid",
                (
                    'Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case '
                    "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
                    "character (e.g. 'example.com', regex used for validation is "
                    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                ),
            ),
            group="",
        ),
    ),
    case(
        "ServiceAccount: a number for secrets",
        post(ACCOUNTS, {"metadata": {"name": "q"}, "secrets": 1}),
        bad(
            'ServiceAccount in version "v1" cannot be handled as a ServiceAccount: json: cannot '
            "unmarshal number into Go struct field ServiceAccount.secrets of type "
            "[]v1.ObjectReference"
        ),
    ),
    case(
        "Namespace: there already",
        post("/api/v1/namespaces", {"metadata": {"name": "default"}}),
        refused(409, "AlreadyExists", 'namespaces "default" already exists', name="default", kind="namespaces"),
    ),
    case(
        "Namespace: a bad name",
        post("/api/v1/namespaces", {"metadata": {"name": "A"}}),
        invalid(
            "Namespace",
            "A",
            (
                "metadata.name",
                "Invalid",
                (
                    'Invalid value: "A": a lowercase RFC 1123 label must consist of lower case '
                    "alphanumeric characters or '-', and must start and end with an alphanumeric "
                    "character (e.g. 'my-name',  or '123-abc', regex used for validation is "
                    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                ),
            ),
            group="",
        ),
    ),
    case(
        "Namespace: one that is protected",
        Asked("DELETE", "/api/v1/namespaces/default"),
        refused(
            403,
            "Forbidden",
            'namespaces "default" is forbidden: this namespace may not be deleted',
            name="default",
            kind="namespaces",
        ),
    ),
    case(
        "Namespace: a bad finalizer",
        post("/api/v1/namespaces", {"metadata": {"name": "q"}, "spec": {"finalizers": ["x"]}}),
        invalid(
            "Namespace",
            "q",
            (
                "spec.finalizers",
                "Invalid",
                ('Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified'),
            ),
            group="",
        ),
    ),
    case(
        "a field that is not known",
        post(SECRETS + DRY, secret("q", dta={})),
        done(201, '299 - "unknown field \\"dta\\""'),
    ),
    case(
        "a Secret with a field that is not known, strictly",
        post(SECRETS + DRY + "&fieldValidation=Strict", secret("q", dta={})),
        bad('Secret in version "v1" cannot be handled as a Secret: strict decoding error: unknown field "dta"'),
    ),
    case(
        "a Lease with a field that is not known, strictly",
        post(LEASES + DRY + "&fieldValidation=Strict", lease("q", holder="x")),
        bad('Lease in version "v1" cannot be handled as a Lease: strict decoding error: unknown field "spec.holder"'),
    ),
]


@pytest.mark.parametrize(("asked", "expected"), REFUSED)
def test_refused(server: Server, furnished: str, asked: Asked, expected: object) -> None:
    """What each kind refuses; and the odd things it takes."""
    assert outcome(asked.of(server, furnished)) == expected


def test_namespace(server: Server, namespace: str) -> None:
    """It is active, held by a finalizer of its own, and labelled with its name."""
    made = server.get(f"/api/v1/namespaces/{namespace}").ok()

    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["status"] == {"phase": "Active"}
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace}


def test_first_namespaces(server: Server) -> None:
    """These are there from the beginning."""
    assert {"default", "kube-system", "kube-public"} <= set(names(server.get("/api/v1/namespaces").ok()))


def test_namespace_that_is_deleted(server: Server, namespace: str) -> None:
    """It is terminating; nothing new comes into it; what is in it can still be changed."""
    server.create(maps(namespace), {"metadata": {"name": "held", "finalizers": ["example.com/a"]}})

    deleted = server.send("DELETE", f"/api/v1/namespaces/{namespace}").ok()

    assert deleted["kind"] == "Namespace"
    assert deleted["status"]["phase"] == "Terminating"
    assert "deletionTimestamp" in deleted["metadata"]
    answer = server.send("POST", maps(namespace), config_map("x"))
    assert answer.refusal == refused(
        403,
        "Forbidden",
        f'configmaps "x" is forbidden: unable to create new content in namespace {namespace} '
        "because it is being terminated",
        name="x",
        kind="configmaps",
        causes=[
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
        ],
    )
    assert server.patch(maps(namespace, "held"), {"data": {"a": "1"}}).ok()["data"] == {"a": "1"}
    assert server.patch(maps(namespace, "held"), {"metadata": {"finalizers": None}}).code == 200


def test_finalize(server: Server) -> None:
    """A namespace's own finalizers are written through /finalize."""
    namespace = server.namespace()
    path = f"/api/v1/namespaces/{namespace}"
    server.create(maps(namespace), {"metadata": {"name": "held", "finalizers": ["example.com/a"]}})
    dying = server.send("DELETE", path).ok()

    through_main = server.patch(path, {"spec": {"finalizers": []}}).ok()
    finalized = server.send(
        "PUT",
        path + "/finalize",
        {
            **dying,
            "metadata": {**dying["metadata"], "resourceVersion": through_main["metadata"]["resourceVersion"]},
            "spec": {"finalizers": []},
        },
    )

    assert through_main["spec"] == {"finalizers": ["kubernetes"]}
    assert finalized.code == 200
    assert server.get(path).code == 404


def test_secret(server: Server, namespace: str) -> None:
    """Text is encoded and not kept as text; the type has a default."""
    path = SECRETS.replace(NS, namespace)

    made = server.create(path, secret(stringData={"a": "x", "b": "ü"}, data={"a": encoded("old"), "c": encoded("z")}))
    changed = server.patch(path + "/s", {"stringData": {"a": "new"}}).ok()

    assert made["type"] == "Opaque"
    assert made["data"] == {"a": encoded("x"), "b": encoded("ü"), "c": encoded("z")}
    assert "stringData" not in made
    assert changed["data"] == {**made["data"], "a": encoded("new")}


def test_lease(server: Server, namespace: str) -> None:
    """Times are kept to the microsecond, with six digits, in UTC."""
    path = LEASES.replace(NS, namespace)
    spec: JsonObject = {"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 2}

    made = server.create(
        path, lease(**spec, acquireTime="2026-11-30T12:00:00.000000Z", renewTime="2026-11-30T12:00:00.500000+01:00")
    )
    exact = server.patch(path + "/l", {"spec": {"renewTime": NOW}}).ok()

    assert made["spec"] == spec | {
        "acquireTime": "2026-11-30T12:00:00.000000Z",
        "renewTime": "2026-11-30T11:00:00.500000Z",
    }
    assert exact["spec"]["renewTime"] == NOW
    assert "generation" not in exact["metadata"]


def test_taking_a_lease(server: Server, namespace: str) -> None:
    """Of two that saw the same lease, one gets it."""
    path = LEASES.replace(NS, namespace)
    seen = server.create(path, lease(holderIdentity=""))

    first = server.send("PUT", path + "/l", {**seen, "spec": {"holderIdentity": "one"}})
    second = server.send("PUT", path + "/l", {**seen, "spec": {"holderIdentity": "two"}})

    assert (first.code, second.code) == (200, 409)
    assert second.refusal["message"] == (
        'Operation cannot be fulfilled on leases.coordination.k8s.io "l": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert server.get(path + "/l").ok()["spec"] == {"holderIdentity": "one"}


def test_one_event_two_groups(server: Server, namespace: str) -> None:
    """What is written as a new Event is read as an old one, in other words."""
    new, old = NEW_EVENTS.replace(NS, namespace), EVENTS.replace(NS, namespace)
    given = new_event()
    given["regarding"]["namespace"] = namespace

    made = server.create(new, given)
    read = server.get(old + "/e").ok()

    assert (made["apiVersion"], read["apiVersion"]) == ("events.k8s.io/v1", "v1")
    assert read["metadata"]["uid"] == made["metadata"]["uid"]
    assert read["involvedObject"] == made["regarding"]
    assert (read["message"], read["reportingComponent"]) == ("for the suite", "example.com/c")
    assert (read["eventTime"], made["eventTime"]) == (NOW, NOW)
    assert read["source"] == {}
    assert (read["firstTimestamp"], read["lastTimestamp"]) == (None, None)
    assert (made["deprecatedSource"], made["deprecatedFirstTimestamp"]) == ({}, None)


def test_events_by_fields(server: Server, namespace: str) -> None:
    """Events are found by what they are about, as kubectl describe does."""
    path = EVENTS.replace(NS, namespace)
    for name, kind in [("a", "ConfigMap"), ("b", "Secret")]:
        about = {"apiVersion": "v1", "kind": kind, "name": "m", "namespace": namespace, "uid": f"uid-{name}"}
        server.create(path, event(name, involvedObject=about, type="Warning" if name == "b" else "Normal"))

    def found(selector: str) -> list[str]:
        return names(server.get(f"{path}?fieldSelector={selector}").ok())

    assert found("involvedObject.kind%3DSecret") == ["b"]
    assert found("involvedObject.uid%3Duid-a,involvedObject.name%3Dm") == ["a"]
    assert found("type%3DWarning") == ["b"]
    assert found("reason%3DTried") == ["a", "b"]
    assert found("reason!%3DTried") == []
    assert server.get(f"{path}?fieldSelector=message%3Dx").code == 400


def test_secrets_by_type(server: Server, namespace: str) -> None:
    """Secrets may be selected by their type."""
    path = SECRETS.replace(NS, namespace)
    server.create(path, secret("a"))
    server.create(path, secret("b", type="example.com/x"))

    assert names(server.get(path + "?fieldSelector=type%3DOpaque").ok()) == ["a"]


def test_namespaces_by_phase(server: Server, namespace: str) -> None:
    """Namespaces may be selected by their phase."""
    listed = server.get(f"/api/v1/namespaces?fieldSelector=status.phase%3DActive,metadata.name%3D{namespace}").ok()

    assert names(listed) == [namespace]


def test_service_account(server: Server, namespace: str) -> None:
    """It is an object as others are."""
    path = ACCOUNTS.replace(NS, namespace)
    made = server.create(path, {"metadata": {"name": "a"}, "imagePullSecrets": [{"name": "x"}]})

    assert made["imagePullSecrets"] == [{"name": "x"}]
    assert "generation" not in made["metadata"]


@pytest.mark.parametrize(
    ("path", "obj", "columns", "cells"),
    [
        (SECRETS, secret(stringData={"a": "1"}), ["Name", "Type", "Data", "Age"], ["s", "Opaque", 1]),
        (MAPS, config_map("cm", a="1", b="2"), ["Name", "Data", "Age"], ["cm", 2]),
        (LEASES, lease(holderIdentity="me"), ["Name", "Holder", "Age"], ["l", "me"]),
        (ACCOUNTS, {"metadata": {"name": "a"}}, ["Name", "Secrets", "Age"], ["a", 0]),
    ],
)
def test_columns(
    server: Server, namespace: str, path: str, obj: JsonObject, columns: list[str], cells: list[object]
) -> None:
    """What kubectl get shows."""
    made = server.create(path.replace(NS, namespace), obj)

    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = server.get(f"{path.replace(NS, namespace)}/{made['metadata']['name']}", accept=accept).ok()

    assert [column["name"] for column in table["columnDefinitions"]] == columns
    assert table["rows"][0]["cells"][: len(cells)] == cells


def test_columns_of_namespaces_and_events(server: Server, namespace: str) -> None:
    """The same of these two."""
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    given = event(count=3)
    given["involvedObject"]["namespace"] = namespace
    server.create(EVENTS.replace(NS, namespace), given)

    spaces = server.get(f"/api/v1/namespaces/{namespace}", accept=accept).ok()
    events = server.get(EVENTS.replace(NS, namespace), accept=accept).ok()

    assert [column["name"] for column in spaces["columnDefinitions"]] == ["Name", "Status", "Age"]
    assert spaces["rows"][0]["cells"][:2] == [namespace, "Active"]
    assert [column["name"] for column in events["columnDefinitions"]] == [
        "Last Seen",
        "Type",
        "Reason",
        "Object",
        "Subobject",
        "Source",
        "Message",
        "First Seen",
        "Count",
        "Name",
    ]
    cells = events["rows"][0]["cells"]
    assert cells == ["<unknown>", "Normal", "Tried", "configmap/m", "", "", "for the suite", "<unknown>", 3, "e"]
