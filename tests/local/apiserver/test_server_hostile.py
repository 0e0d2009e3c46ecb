"""Bad input through the core: a code and a message of the real server, never an exception, and bounded work."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kargo_py.local.apiserver.bodies import MAX_BODY, MAX_DEPTH
from kargo_py.local.apiserver.wire import Request, Response, Stream
from tests.local.apiserver.driving import (
    APPLY,
    CONFIG_MAPS,
    DEFINITIONS,
    FOOS,
    JSON_PATCH,
    MERGE,
    NAMESPACES,
    STRATEGIC,
    Driver,
    definition,
    driver,
    foo,
    version,
)

UNRECOGNIZED = "the object provided is unrecognized (must be of type Foo): "
SYNTAX = UNRECOGNIZED + "couldn't get version/kind; json parse error: "
TYPE = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
BODIES: list[tuple[str | bytes, str]] = [
    ("", SYNTAX + "unexpected end of JSON input (<empty>)"),
    ("{", SYNTAX + "unexpected end of JSON input ({)"),
    ("[]", f"{SYNTAX}json: cannot unmarshal array into Go value of type {TYPE} (5b5d)"),
    ('"x"', f"{SYNTAX}json: cannot unmarshal string into Go value of type {TYPE} (227822)"),
    ("5", f"{SYNTAX}json: cannot unmarshal number into Go value of type {TYPE} (35)"),
    ("null", UNRECOGNIZED + "Object 'Kind' is missing in 'null' (6e756c6c)"),
    ("nonsense", SYNTAX + "invalid character 'o' in literal null (expecting 'u') (6e6f6e73656e7365)"),
    (
        '{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"q"}} trailing',
        SYNTAX + 'invalid character \'t\' after top-level value ({"apiVersion":"ex.io/v1","kind ...)',
    ),
    (b"\x1f\x8b", SYNTAX + "invalid character '\\x1f' looking for beginning of value (1f8b)"),
]


@pytest.mark.parametrize(("body", "message"), BODIES)
async def test_bodies_that_are_no_objects(body: str | bytes, message: str) -> None:
    """400 with the reason and the beginning of what was sent."""
    api = await driver()
    assert (await api.post(FOOS, body)).told == (400, "BadRequest", message)


async def test_bodies_of_other_types_or_sizes() -> None:
    """415 says what is taken, 413 the limit."""
    api = await driver()
    accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    what = "the body of the request was in an unknown format - accepted media types include: "
    for media in ("text/plain", MERGE):
        assert (await api.ask("POST", FOOS, foo("a"), media)).told == (415, "UnsupportedMediaType", what + accepted)
    assert (await api.post(FOOS, b"x" * (MAX_BODY + 1))).told == (
        413,
        "RequestEntityTooLarge",
        "Request entity too large: limit is 3145728",
    )
    assert (await api.ask("POST", FOOS, foo("a"), "application/json; charset=utf-8")).code == 201
    assert (await api.ask("POST", FOOS, foo("b"), "")).code == 201


async def test_objects_as_deep_as_is_allowed() -> None:
    """They can be created, read, patched, applied and listed; a patch may not make deeper ones."""
    api = await driver(definition("foos", "Foo", version("v1", OPEN)))
    deep: Any = 1
    for _ in range(MAX_DEPTH - 3):
        deep = {"a": deep}
    assert (await api.post(FOOS, {**foo("a"), "spec": deep})).code == 201
    assert (await api.apply(f"{FOOS}/a", {**foo("a"), "spec": deep})).code == 200
    assert (await api.merge(f"{FOOS}/a", {"spec": {"b": deep["a"]}})).code == 200
    assert (await api.merge(f"{FOOS}/a", {"spec": {"b": {"a": deep}, "c": {"d": deep}}})).code in {200, 400}
    path = "/spec" + "/a" * (MAX_DEPTH - 4)
    for _ in range(5):
        answer = await api.ask("PATCH", f"{FOOS}/a", [{"op": "add", "path": path, "value": deep}], JSON_PATCH)
        assert answer.code in {200, 400, 413, 422}
        path += "/a" * (MAX_DEPTH - 4)
    assert (await api.get(f"{FOOS}/a")).code == 200
    assert (await api.get(FOOS)).code == 200
    too_deep = '{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"b"},"spec":' + '{"a":' * 5000
    assert (await api.post(FOOS, too_deep + "1" + "}" * 5001)).obj["message"] == (
        SYNTAX + 'invalid character \'{\' exceeded max depth ({"apiVersion":"ex.io/v1","kind ...)'
    )


async def test_sizes_that_creep_up_on_the_limit() -> None:
    """Patches cannot make what a create could not."""
    api = await driver()
    await api.post(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "x" * 900_000}})
    answer = await api.merge(f"{CONFIG_MAPS}/a", {"data": {"l": "x" * 900_000}})
    assert (answer.code, answer.obj["message"]) == (
        422,
        'ConfigMap "a" is invalid: []: Too long: may not be more than 1048576 bytes',
    )


METHODS = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"])
PATHS = st.sampled_from(
    [
        FOOS,
        f"{FOOS}/a",
        f"{FOOS}/a/status",
        f"{FOOS}/a/scale",
        CONFIG_MAPS,
        f"{CONFIG_MAPS}/a",
        NAMESPACES,
        f"{NAMESPACES}/n",
        f"{NAMESPACES}/n/finalize",
        f"{NAMESPACES}/n/status",
        DEFINITIONS,
        f"{DEFINITIONS}/foos.ex.io",
        "/api/v1/namespaces/default/secrets",
        "/api/v1/namespaces/default/events/e",
        "/apis/events.k8s.io/v1/namespaces/default/events/e",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases/l",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis/ex.io/v1/watch/foos",
        "/apis",
        "/openapi/v3",
        "/",
        "/%zz",
        "/apis/ex.io/v1/namespaces/%00/foos/%ff",
    ]
)
WORDS = st.sampled_from(
    ["", "0", "1", "-1", "x", "true", "Exact", "NotOlderThan", "All", "Strict", "Orphan", "a=b", "!", "\x00", "9" * 30]
)
QUERIES = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch", "limit", "continue",
                "sendInitialEvents", "allowWatchBookmarks", "dryRun", "fieldManager", "fieldValidation", "force",
                "propagationPolicy", "gracePeriodSeconds", "orphanDependents", "pretty", "includeObject",
            ]
        ),
        WORDS,
    ),
    max_size=3,
)  # fmt: skip
KEYS = st.sampled_from(
    ["apiVersion", "kind", "metadata", "spec", "status", "data", "name", "finalizers", "labels", "a", "op", "path"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(
    ["", "a", "Foo", "ex.io/v1", "v1", "ConfigMap", "/spec/a", "add", "orphan", "x.y/z"]
)  # fmt: skip
JSON = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below, max_size=4), max_leaves=12
)
TYPES: list[dict[str, Any]] = [
    {"apiVersion": "ex.io/v1", "kind": "Foo"},
    {"apiVersion": "v1", "kind": "ConfigMap"},
    {"kind": "Namespace"},
    {},
]
META = st.sampled_from(
    [
        "finalizers", "labels", "ownerReferences", "uid", "resourceVersion", "managedFields", "generateName",
        "deletionTimestamp",
    ]
)  # fmt: skip
OBJECTS = st.builds(
    lambda kind, more, metadata: {**kind, **more, "metadata": {"name": "a", **metadata}},
    st.sampled_from(TYPES),
    st.dictionaries(KEYS, JSON, max_size=3),
    st.dictionaries(META, JSON, max_size=2),
)
MEDIA = st.sampled_from(["application/json", "application/yaml", MERGE, JSON_PATCH, STRATEGIC, APPLY, "text/plain", ""])
ACCEPTS = st.sampled_from(
    ["", "*/*", "application/yaml", "text/html", "application/json;as=Table;v=v1;g=meta.k8s.io", ";;=,"]
)
REQUESTS = st.lists(
    st.tuples(METHODS, PATHS, QUERIES, MEDIA, ACCEPTS, OBJECTS | JSON | st.binary(max_size=30)), min_size=2, max_size=12
)


@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(REQUESTS)
async def test_no_request_breaks_the_server(requests: list[Any]) -> None:
    """Each is answered with a Status or an object; what is stored stays readable."""
    api = await _prepared()
    for method, path, query, media, accept, body in requests:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": media, "accept": accept}
        answer = await api.server.handle(Request(method, path, query, headers, data))
        if isinstance(answer, Stream):
            await answer.lines.aclose()
            continue
        assert isinstance(answer, Response)
        assert 200 <= answer.code < 600
        if answer.content_type == "application/json" and answer.body:
            obj = json.loads(answer.body)
            assert answer.code < 400 or (obj["kind"], obj["code"]) == ("Status", answer.code)
        await api.settle()
    for path in (CONFIG_MAPS, NAMESPACES, DEFINITIONS):
        assert (await api.get(path)).code == 200


async def _prepared() -> Driver:
    api = await driver()
    await api.post(FOOS, foo("a", {"a": 1}))
    await api.post(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    await api.post(NAMESPACES, {"metadata": {"name": "n"}})
    return api
