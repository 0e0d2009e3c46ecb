"""Gets, lists, pages and the shapes of answers. The expected answers are those of kube-apiserver 1.34.3."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.local.apiserver.driving import CONFIG_MAPS, FOOS, NAMESPACES, TABLE, Answer, Driver, driver, foo

PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
LISTED = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
MEDIA = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
STREAMS = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
PARSE = "resourceVersion: Invalid value: "


async def filled(count: int = 5) -> tuple[Driver, list[Answer]]:
    """A server with the Foos o0, o1, ...; odd ones have the label p=1."""
    api = await driver()
    return api, [
        await api.post(FOOS, foo(f"o{number}", {"a": number}, labels={"p": str(number % 2)})) for number in range(count)
    ]


async def test_a_list_has_all_objects_in_order_under_one_version() -> None:
    """Of one namespace, or of all."""
    api, _ = await filled(2)
    await api.post(NAMESPACES, {"metadata": {"name": "a"}})
    await api.post(FOOS.replace("default", "a"), foo("z"))
    answer = await api.get(FOOS)
    assert (answer.obj["kind"], answer.obj["apiVersion"], answer.names) == ("FooList", "ex.io/v1", ["o0", "o1"])
    assert answer.obj["metadata"] == {"continue": "", "resourceVersion": str(api.server.store.version)}
    everywhere = await api.get("/apis/ex.io/v1/foos")
    assert everywhere.names == ["z", "o0", "o1"]
    assert (await api.get(FOOS.replace("default", "nope"))).names == []
    assert (await api.get(CONFIG_MAPS)).obj["metadata"].keys() == {"resourceVersion"}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("labelSelector=p=1", ["o1", "o3"]),
        ("labelSelector=p+notin+(1),p", ["o0", "o2", "o4"]),
        ("fieldSelector=metadata.name=o3", ["o3"]),
        ("fieldSelector=metadata.name=o3,metadata.namespace=other", []),
        ("fieldSelector=metadata.name!=o3&labelSelector=p=1", ["o1"]),
        ("limit=-1", ["o0", "o1", "o2", "o3", "o4"]),
        ("limit=2&resourceVersion=0", ["o0", "o1", "o2", "o3", "o4"]),
    ],
)
async def test_selectors_and_limits_that_are_none(query: str, names: list[str]) -> None:
    """A list from the cache knows no limit."""
    api, _ = await filled()
    assert (await api.get(f"{FOOS}?{query}")).names == names


async def test_pages_show_one_state() -> None:
    """What happens between two pages is not in the second; with a selector nobody counts what is left."""
    api, made = await filled()
    first = await api.get(f"{FOOS}?limit=2")
    token = first.obj["metadata"]["continue"]
    assert (first.names, first.obj["metadata"]["remainingItemCount"]) == (["o0", "o1"], 3)
    assert json.loads(base64.b64decode(token + "==")) == {
        "v": "meta.k8s.io/v1",
        "rv": int(made[-1].version),
        "start": "/o1\x00",
    }
    await api.delete(f"{FOOS}/o2")
    await api.post(FOOS, foo("o25"))
    await api.merge(f"{FOOS}/o4", {"spec": {"a": 99}})
    second = await api.get(f"{FOOS}?limit=2&continue={token}")
    assert (second.names, second.version) == (["o2", "o3"], first.version)
    third = await api.get(f"{FOOS}?continue={second.obj['metadata']['continue']}")
    assert (third.names, third.obj["items"][0]["spec"]["a"]) == (["o4"], 4)
    assert third.obj["metadata"]["continue"] == ""
    selected = await api.get(f"{FOOS}?limit=1&labelSelector=p=1")
    assert "remainingItemCount" not in selected.obj["metadata"]
    await api.post(NAMESPACES, {"metadata": {"name": "a"}})
    await api.post(FOOS.replace("default", "a"), foo("x"))
    across = await api.get("/apis/ex.io/v1/foos?limit=1")
    rest = await api.get(f"/apis/ex.io/v1/foos?limit=1&continue={across.obj['metadata']['continue']}")
    assert (across.names, rest.names) == (["x"], ["o0"])


async def test_a_page_whose_state_is_forgotten_offers_an_inconsistent_one() -> None:
    """410 with a token that goes on in what is there now."""
    api, _ = await filled()
    token = (await api.get(f"{FOOS}?limit=2")).obj["metadata"]["continue"]
    await api.delete(f"{FOOS}/o2")
    api.server.store.forget()
    gone = await api.get(f"{FOOS}?limit=2&continue={token}")
    assert gone.told[:2] == (410, "Expired")
    assert gone.obj["message"].startswith("The provided continue parameter is too old to display a consistent list")
    goes_on = await api.get(f"{FOOS}?limit=2&continue={gone.obj['metadata']['continue']}")
    assert (goes_on.names, goes_on.version) == (["o3", "o4"], str(api.server.store.version))


async def test_a_list_as_of_a_version() -> None:
    """Exactly, or not older than."""
    api, made = await filled()
    second = made[1].version
    exact = await api.get(f"{FOOS}?resourceVersion={second}&resourceVersionMatch=Exact")
    assert (exact.names, exact.version) == (["o0", "o1"], second)
    paged = await api.get(f"{FOOS}?resourceVersion={second}&limit=1")
    assert (paged.names, paged.version, paged.obj["metadata"]["remainingItemCount"]) == (["o0"], second, 1)
    later = await api.get(f"{FOOS}?resourceVersion={second}&resourceVersionMatch=NotOlderThan")
    assert (len(later.names), later.version) == (5, made[-1].version)
    api.server.store.forget()
    old = await api.get(f"{FOOS}?resourceVersion={second}&resourceVersionMatch=Exact")
    assert old.told == (410, "Expired", "The resourceVersion for the provided list is too old.")


FORBIDDEN = 'ListOptions.meta.k8s.io "" is invalid: '
REFUSED: dict[str, tuple[int, str, str]] = {
    "continue=zzz": (
        400,
        "BadRequest",
        "invalid continue token: continue key is not valid: invalid character 'Ï' looking for beginning of value",
    ),
    "continue=e30": (
        400,
        "BadRequest",
        "invalid continue token: continue key is not valid: server does not recognize this encoded version ",
    ),
    "continue=!!": (
        400,
        "BadRequest",
        "invalid continue token: continue key is not valid: illegal base64 data at input byte 0",
    ),
    "continue=e30&resourceVersion=5": (
        400,
        "BadRequest",
        "specifying resource version is not allowed when using continue",
    ),
    "limit=x": (400, "BadRequest", 'strconv.ParseInt: parsing "x": invalid syntax'),
    "limit=99999999999999999999": (
        400,
        "BadRequest",
        'strconv.ParseInt: parsing "99999999999999999999": value out of range',
    ),
    "timeoutSeconds=1.5": (400, "BadRequest", 'strconv.ParseInt: parsing "1.5": invalid syntax'),
    "resourceVersion=abc": (
        400,
        "BadRequest",
        f'invalid resource version: {PARSE}"abc": strconv.ParseUint: parsing "abc": invalid syntax',
    ),
    "resourceVersion=-1": (
        400,
        "BadRequest",
        f'invalid resource version: {PARSE}"-1": strconv.ParseUint: parsing "-1": invalid syntax',
    ),
    "resourceVersionMatch=Exact": (
        422,
        "Invalid",
        FORBIDDEN
        + "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
    ),
    "resourceVersion=0&resourceVersionMatch=Exact": (
        422,
        "Invalid",
        FORBIDDEN
        + 'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
    ),
    "resourceVersion=5&resourceVersionMatch=X": (
        422,
        "Invalid",
        FORBIDDEN + 'resourceVersionMatch: Unsupported value: "X": supported values: "Exact", "NotOlderThan", ""',
    ),
    "sendInitialEvents=true": (
        422,
        "Invalid",
        FORBIDDEN + "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
    ),
    "labelSelector===": (400, "BadRequest", "found '==', expected: !, identifier, or 'end of string'"),
    "fieldSelector=spec.a=1": (400, "BadRequest", "field label not supported: spec.a"),
}


@pytest.mark.parametrize("query", REFUSED)
async def test_a_list_that_is_refused(query: str) -> None:
    """In the real server's words."""
    api = await driver()
    assert (await api.get(f"{FOOS}?{query}")).told == REFUSED[query]


@pytest.mark.parametrize("url", [f"{FOOS}?resourceVersion=99999", f"{FOOS}/o0?resourceVersion=99999"])
async def test_a_version_that_has_not_been(url: str) -> None:
    """504, and the client is told to come again."""
    api, _ = await filled(1)
    answer = await api.get(url)
    now = api.server.store.version
    assert answer.told == (504, "Timeout", f"Timeout: Too large resource version: 99999, current: {now}")
    assert answer.obj["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    assert answer.headers == {"Retry-After": "1"}


async def test_a_get_of_what_is_not_there_or_no_version() -> None:
    """404 names the resource; what is no number is the real server's inner error."""
    api, _ = await filled(1)
    missing = await api.get(f"{FOOS}/nope")
    assert missing.told == (404, "NotFound", 'foos.ex.io "nope" not found')
    assert missing.obj["details"] == {"name": "nope", "group": "ex.io", "kind": "foos"}
    assert (await api.get(f"{FOOS}/o0?resourceVersion=0")).code == 200
    assert (await api.get(f"{FOOS}/o0?resourceVersion=x")).told == (
        500,
        "",
        f'{PARSE}"x": strconv.ParseUint: parsing "x": invalid syntax',
    )


async def test_shapes() -> None:
    """Tables, metadata only, YAML; of an object and of a list."""
    api, made = await filled(2)
    table = await api.get(f"{FOOS}?limit=1", accept=TABLE)
    assert (table.obj["kind"], table.obj["metadata"]["remainingItemCount"]) == ("Table", 1)
    assert [column["name"] for column in table.obj["columnDefinitions"]] == ["Name", "Age"]
    assert [row["cells"] for row in table.obj["rows"]] == [["o0", "0s"]]
    one = await api.get(f"{FOOS}/o0?includeObject=Object", accept=TABLE)
    assert (one.version, one.obj["rows"][0]["object"]) == (made[0].version, made[0].obj)
    partial = await api.get(f"{FOOS}/o0", accept=PARTIAL)
    assert partial.obj == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made[0].obj["metadata"],
    }
    listed = await api.get(FOOS, accept=LISTED)
    assert (listed.obj["kind"], listed.names) == ("PartialObjectMetadataList", ["o0", "o1"])
    assert "kind: FooList\n" in (await api.get(FOOS, accept="application/yaml")).obj


NOT_ACCEPTABLE: list[tuple[str, str, int, str]] = [
    (f"{FOOS}/o0", "text/html", 406, f"only the following media types are accepted: {MEDIA}"),
    (
        f"{FOOS}/o0",
        "application/json;as=Bogus;v=v1;g=meta.k8s.io",
        406,
        f"only the following media types are accepted: {MEDIA}",
    ),
    (
        f"{FOOS}?watch=1",
        "text/html",
        406,
        f"only the following media types are accepted: {STREAMS}",
    ),
    (CONFIG_MAPS, "text/html", 406, f"406: Not Acceptable\n\nAvailable representations: {MEDIA}, {STREAMS}"),
    (
        FOOS,
        PARTIAL,
        406,
        "you requested PartialObjectMetadata, but the requested object is a list (*unstructured.UnstructuredList)",
    ),
    (f"{FOOS}/o0", LISTED, 500, "content is not a list"),
    (
        f"{FOOS}?includeObject=X",
        TABLE,
        400,
        (
            'Unable to convert to Table as requested: includeObject: Invalid value: "X": '
            "must be 'Metadata', 'Object', 'None', or empty"
        ),
    ),
    ("/version", "text/plain", 406, "406: Not Acceptable\n\nAvailable representations: application/json"),
]


@pytest.mark.parametrize(("url", "accept", "code", "message"), NOT_ACCEPTABLE)
async def test_shapes_that_there_are_not(url: str, accept: str, code: int, message: str) -> None:
    """406 says what there is."""
    api, _ = await filled(1)
    answer = await api.get(url, accept=accept)
    assert (answer.code, answer.obj["message"]) == (code, message)


@pytest.mark.parametrize(
    "accept",
    [
        "*/*",
        "application/*",
        "application/json;q=0.5, text/html",
        "application/json;as=Bogus;v=v1;g=meta.k8s.io,application/json",
        "application/vnd.kubernetes.protobuf,application/json",
    ],
)
async def test_the_first_shape_that_there_is_is_taken(accept: str) -> None:
    """And what cannot be had is passed over."""
    api, made = await filled(1)
    assert (await api.get(f"{FOOS}/o0", accept=accept)).obj == made[0].obj


NO_RESOURCE: Any = (404, "404 page not found\n")
NOTHING: Any = (404, "the server could not find the requested resource")
NO_METHOD: Any = (405, "the server does not allow this method on the requested resource")
PATHS: list[tuple[str, str, tuple[int, str]]] = [
    ("GET", "/apis/ex.io/v9/foos", NO_RESOURCE),
    ("GET", "/apis/ex.io/v1/bars", NO_RESOURCE),
    ("GET", "/apis/nope.io/v1", NO_RESOURCE),
    ("GET", "/apis//ex.io/v1//foos", NO_RESOURCE),
    ("GET", "/nowhere", NO_RESOURCE),
    ("GET", "/apis/ex.io/v1/foos/a", NO_RESOURCE),
    ("POST", "/apis/ex.io/v1/foos", NO_RESOURCE),
    ("DELETE", "/apis/ex.io/v1/foos", NO_RESOURCE),
    ("GET", f"{FOOS}/%zz", (400, "400 Bad Request")),
    ("GET", f"{FOOS}/a%2Fb", (404, 'foos.ex.io "a" not found')),
    ("GET", f"{FOOS}/a/scale", (404, 'foos.ex.io "a" not found')),
    ("GET", "/api/v1/bars", NOTHING),
    ("GET", "/api/v2/configmaps", NOTHING),
    ("GET", "/api/v2", NOTHING),
    ("GET", "/api/v1/configmaps/a", NOTHING),
    ("GET", f"{CONFIG_MAPS}/a/status", NOTHING),
    ("GET", f"{NAMESPACES}/default/namespaces", NOTHING),
    ("POST", "/api/v1/configmaps", NO_METHOD),
    ("DELETE", "/api/v1/configmaps", NO_METHOD),
    ("DELETE", NAMESPACES, NO_METHOD),
    ("POST", f"{CONFIG_MAPS}/x", NO_METHOD),
    ("PUT", CONFIG_MAPS, NO_METHOD),
    ("OPTIONS", CONFIG_MAPS, NO_METHOD),
    ("GET", f"{NAMESPACES}/default/finalize", NO_METHOD),
    ("POST", "/version", NO_METHOD),
    ("POST", f"{FOOS}/a/status", (405, 'create is not supported on resources of kind "foos.ex.io"')),
    ("DELETE", f"{FOOS}/a/status", (405, 'delete is not supported on resources of kind "foos.ex.io"')),
    ("OPTIONS", FOOS, (405, ' is not supported on resources of kind "foos.ex.io"')),
]


@pytest.mark.parametrize(("method", "url", "told"), PATHS)
async def test_paths_that_lead_nowhere(method: str, url: str, told: tuple[int, str]) -> None:
    """The part that has the custom resources says it in text, the other in JSON."""
    api = await driver()
    answer = await api.ask(method, url)
    assert (answer.code, answer.obj if isinstance(answer.obj, str) else answer.obj["message"]) == told


async def test_what_is_served_beside_objects() -> None:
    """Health, version, discovery, OpenAPI; to HEAD the answer is the same."""
    api = await driver()
    for name in ("healthz", "livez", "readyz", "readyz/ping"):
        assert (await api.get(f"/{name}")).obj == "ok"
    assert "[+]ping ok\n" in (await api.get("/readyz?verbose")).obj
    assert (await api.get("/version")).obj["minor"] == "34"
    assert (await api.get("/api")).obj["versions"] == ["v1"]
    assert "ex.io" in [group["name"] for group in (await api.get("/apis")).obj["groups"]]
    assert (await api.get("/apis/ex.io")).obj["preferredVersion"]["version"] == "v1"
    assert [one["name"] for one in (await api.get("/apis/ex.io/v1")).obj["resources"]] == ["foos", "foos/status"]
    assert "/apis/ex.io/v1" in (await api.get("/")).obj["paths"]
    index = (await api.get("/openapi/v3")).obj["paths"]["apis/ex.io/v1"]["serverRelativeURL"]
    assert "io.ex.v1.Foo" in (await api.get(index)).obj["components"]["schemas"]
    assert (await api.get("/openapi/v3/apis/nope/v1")).code == 404
    for url in (FOOS, "/apis/ex.io", f"{FOOS}/nope"):
        assert (await api.ask("HEAD", url)) == (await api.get(url))


_NOT_FOUND = "the server could not find the requested resource"
_NOT_ALLOWED = "the server does not allow this method on the requested resource"
_NO_PAGE = "404 page not found\n"


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("GET /apis/coordination.k8s.io/v2", 404, _NOT_FOUND),
        ("GET /apis/coordination.k8s.io/v2/leases", 404, _NOT_FOUND),
        ("GET /apis/coordination.k8s.io//leases", 404, _NOT_FOUND),
        ("GET /api/v1//configmaps", 404, _NOT_FOUND),
        ("GET /api/v2", 404, _NOT_FOUND),
        ("GET /version/x", 404, _NOT_FOUND),
        ("GET /apis/ex.io/v2", 404, _NO_PAGE),
        ("GET /apis/nope.io/v1/foos", 404, _NO_PAGE),
        ("GET /apis//v1", 404, _NO_PAGE),
        ("GET //api/v1", 404, _NO_PAGE),
        ("GET /healthz/", 404, _NO_PAGE),
        ("GET /livez/ping/", 404, _NO_PAGE),
        ("GET /openapi/v3/", 404, ""),
        ("GET /openapi/v3/api/v1/", 404, ""),
        ("GET /openapi/v3/nope", 404, ""),
        ("GET /openapi", 404, _NO_PAGE),
        ("POST /api", 405, _NOT_ALLOWED),
        ("POST /api/v1", 405, _NOT_ALLOWED),
        ("POST /version", 405, _NOT_ALLOWED),
        ("POST /apis/coordination.k8s.io/v1/", 405, _NOT_ALLOWED),
        ("POST /api/v1/configmaps", 405, _NOT_ALLOWED),
    ],
)
async def test_paths_and_methods_that_lead_nowhere(line: str, code: int, told: str) -> None:
    """In the form that the part of the real server has for it that would have the path."""
    method, _, url = line.partition(" ")
    answer = await (await driver()).ask(method, url)
    assert (answer.code, answer.obj["message"] if isinstance(answer.obj, dict) else answer.obj) == (code, told)


@pytest.mark.parametrize("url", ["/", "/apis", "/apis/ex.io", "/apis/ex.io/v1", "/openapi/v3", "/healthz"])
async def test_documents_for_any_method(url: str) -> None:
    """The real server does not look at the method of these."""
    api = await driver()
    assert (await api.ask("DELETE", url)) == (await api.get(url))


async def test_objects_of_built_in_kinds_do_not_say_in_lists_what_they_are() -> None:
    """As in the real server; alone they do."""
    api = await driver()
    await api.post(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    listed = (await api.get(CONFIG_MAPS)).obj["items"]
    alone = (await api.get(f"{CONFIG_MAPS}/a")).obj
    assert [{"kind": "ConfigMap", "apiVersion": "v1", **item} for item in listed] == [alone]
    assert "kind" not in listed[0]
    as_yaml = (await api.get(CONFIG_MAPS, accept="application/yaml")).obj
    assert "kind: ConfigMap\n" not in as_yaml
    assert "kind: ConfigMapList\n" in as_yaml
    events = "/apis/events.k8s.io/v1/namespaces/default/events"
    await api.post("/api/v1/namespaces/default/events", {"metadata": {"name": "e"}, "involvedObject": {}})
    assert [item["metadata"]["name"] for item in (await api.get(events)).obj["items"]] == ["e"]
    assert (await api.get(f"{events}/e")).obj["apiVersion"] == "events.k8s.io/v1"
