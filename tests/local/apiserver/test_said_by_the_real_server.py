"""Literal answers of a real kube-apiserver 1.34 to requests that the differential fuzzer found answered otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from tests.local.apiserver.driving import APPLY, CONFIG_MAPS, FOOS, MERGE, NAMESPACES, STRATEGIC, driver, foo

SECRETS = "/api/v1/namespaces/default/secrets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EVENTS = "/api/v1/namespaces/default/events"
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "o", "uid": "u"}
AS_IT_IS = "unable to convert unstructured object to /v1, Kind=Secret"


@pytest.mark.parametrize(
    ("url", "body", "expected"),
    [
        (f"{LEASES}/b", {"spec": {"leaseDurationSeconds": 1.5}}, "cannot convert float64 to int32"),
        (f"{LEASES}/b", {"spec": {"leaseDurationSeconds": "a"}}, "unrecognized type: int32"),
        (f"{LEASES}/b", {"spec": {"leaseDurationSeconds": True}}, "unrecognized type: int32"),
        (f"{LEASES}/b", {"spec": 5}, "cannot restore struct from: int64"),
        (f"{LEASES}/b", {"spec": {"holderIdentity": 1.5}}, "unrecognized type: string"),
        (f"{LEASES}/b", {"metadata": {"managedFields": {"a": 1}}}, "cannot restore slice from map"),
        (f"{LEASES}/b", {"metadata": {"finalizers": [1]}}, "cannot convert int64 to string"),
        (f"{LEASES}/b", {"kind": 5}, "cannot convert int64 to string"),
        (f"{LEASES}/b", {"apiVersion": {}}, "unrecognized type: string"),
        (
            f"{LEASES}/b",
            {"spec": {"acquireTime": 5}},
            "json: cannot unmarshal number into Go value of type string",
        ),
        (f"{SECRETS}/b", {"data": {"a": 5}}, "cannot restore slice from int64"),
        (f"{SECRETS}/b", {"data": {"a": ["x"]}}, "unrecognized type: uint8"),
        (f"{SECRETS}/b", {"type": 5}, "cannot convert int64 to v1.SecretType"),
        (f"{SECRETS}/b", {"immutable": "x"}, "unrecognized type: bool"),
        (f"{SECRETS}/b", {"data": ["x"]}, "cannot restore map from slice"),
        (f"{SECRETS}/b", {"data": {"a": "YQ"}}, "error decoding from json: illegal base64 data at input byte 0"),
    ],
    ids=str,
)
async def test_a_strategic_merge_patch_that_no_go_type_can_hold(url: str, body: Any, expected: str) -> None:
    api = await driver()
    await api.post(url.removesuffix("/b"), {"metadata": {"name": "b"}})
    answer = await api.ask("PATCH", url, body, STRATEGIC)
    assert answer.code == 422
    assert answer.obj["message"].endswith(f'": {expected}')


@pytest.mark.parametrize("media", [MERGE, STRATEGIC])
async def test_a_patch_of_nothing_is_not_read(media: str) -> None:
    api = await driver()
    answer = await api.ask("PATCH", f"{SECRETS}/nope", "a", media)
    assert answer.told == (404, "NotFound", 'secrets "nope" not found')


async def test_applying_what_a_go_type_cannot_hold() -> None:
    api = await driver()
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"a": "YQ"}}
    answer = await api.ask("PATCH", f"{SECRETS}/a?fieldManager=m", body, APPLY)
    why = f"failed to convert new object (/a; /v1, Kind=Secret) to proper version: {AS_IT_IS}: error decoding from json"
    assert answer.told == (500, "", f"{why}: illegal base64 data at input byte 0")


async def test_a_time_that_cannot_be_read_is_told_before_all_else() -> None:
    api = await driver()
    answer = await api.post(EVENTS, {"metadata": {"name": "a"}, "count": "x", "firstTimestamp": "yesterday"})
    why = 'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"'
    assert answer.told == (400, "BadRequest", f'Event in version "v1" cannot be handled as a Event: {why}')


@pytest.mark.parametrize(
    ("body", "validation", "expected"),
    [
        ("{}", "Ignore", "Foo in version \"v1\" cannot be handled as a Foo: Object 'Kind' is missing in '{}'"),
        (
            '{"kind":"Foo","metadata":4}',
            "Warn",
            (
                'Foo in version "" cannot be handled as a Foo: json: cannot unmarshal number into Go value of type '
                "v1.ObjectMeta"
            ),
        ),
        (
            '{"kind":"G","apiVersion":"v1","metadata":{"x":1}}',
            "Strict",
            'G in version "v1" cannot be handled as a G: strict decoding error: unknown field "metadata.x"',
        ),
        (
            '{"kind":"Foo","metadata":{"x":1}}',
            "Strict",
            "Object 'apiVersion' is missing in 'object has no apiVersion field'",
        ),
        (
            '{"kind":"Foo","apiVersion":"x/y/z"}',
            "Warn",
            (
                "the object provided is unrecognized (must be of type Foo): unexpected GroupVersion string: x/y/z "
                '({"kind":"Foo","apiVersion":"x/ ...)'
            ),
        ),
    ],
)
async def test_custom_resources_that_are_not_what_they_should_be(body: str, validation: str, expected: str) -> None:
    api = await driver()
    answer = await api.post(f"{FOOS}?fieldValidation={validation}", body)
    assert answer.told == (400, "BadRequest", expected)


async def test_owners_that_are_named_twice() -> None:
    api = await driver()
    body = {"metadata": {"name": "a", "ownerReferences": [OWNER, OWNER]}}
    created = await api.post(f"{CONFIG_MAPS}?dryRun=All", body)
    rest = "may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: u"
    dedups = "API server dedups owner references in 1.20+, and"
    assert created.warnings == [f".metadata.ownerReferences contains duplicate entries; {dedups} {rest}"]
    assert created.obj["metadata"]["ownerReferences"] == [OWNER]


async def test_only_new_finalizers_are_warned_of() -> None:
    api = await driver()
    created = await api.post(FOOS, foo("a", finalizers=["bad"]))
    assert len(created.warnings) == 1
    assert (await api.merge(f"{FOOS}/a", {"metadata": {"labels": {"a": "b"}}})).warnings == []


async def test_an_update_may_create_a_lease_whatever_version_it_has() -> None:
    api = await driver()
    answer = await api.put(f"{LEASES}/a", {"metadata": {"name": "a", "resourceVersion": "1"}})
    assert answer.code == 201


async def test_a_namespace_without_a_phase_is_active() -> None:
    api = await driver()
    await api.post(NAMESPACES, {"metadata": {"name": "a"}})
    answer = await api.put(f"{NAMESPACES}/a/status", {"metadata": {"name": "a"}})
    assert (answer.code, answer.obj["status"]) == (200, {"phase": "Active"})


async def test_without_its_version_a_built_in_object_has_no_name() -> None:
    api = await driver()
    await api.post(CONFIG_MAPS, {"metadata": {"name": "a"}})
    answer = await api.merge(f"{CONFIG_MAPS}/a", {"apiVersion": None})
    why = "the name of the object (a based on URL) was undeterminable: name must be provided"
    assert answer.told == (400, "BadRequest", why)
    assert answer.warnings == ['unknown field "metadata"']


async def test_a_null_that_is_applied_is_refused() -> None:
    api = await driver()
    answer = await api.apply(f"{FOOS}/a", foo("a", {"a": None}))
    assert (answer.code, answer.obj["details"]["causes"][0]["message"]) == (
        422,
        'Invalid value: "null": spec.a in body must be of type integer: "null"',
    )


async def test_a_selector_that_cannot_be_read_is_told_first() -> None:
    api = await driver()
    answer = await api.get(f"{CONFIG_MAPS}?labelSelector===&resourceVersionMatch=Exact")
    assert answer.told == (400, "BadRequest", "found '==', expected: !, identifier, or 'end of string'")


async def test_a_name_that_is_taken_where_one_might_have_been_generated() -> None:
    api = await driver()
    await api.post(CONFIG_MAPS, {"metadata": {"name": "b"}})
    answer = await api.post(CONFIG_MAPS, {"metadata": {"generateName": "g-", "name": "b"}})
    why = 'configmaps "b" already exists, the server was not able to generate a unique name for the object'
    assert answer.told == (409, "AlreadyExists", why)
    assert answer.obj["details"] == {"name": "b", "kind": "configmaps", "retryAfterSeconds": 1}
