"""Creates, updates and patches through the core. The expected answers are those of kube-apiserver 1.34.3."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.local.apiserver.driving import (
    APPLY,
    CONFIG_MAPS,
    DEFINITIONS,
    FOO_SCHEMA,
    FOOS,
    JSON_PATCH,
    MERGE,
    NAMESPACES,
    STRATEGIC,
    TABLE,
    Driver,
    definition,
    driver,
    foo,
    version,
)

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
MISMATCH = "the namespace of the provided object does not match the namespace sent on the request"


def config_map(name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more}


async def test_a_create_fills_in_what_is_the_servers() -> None:
    """uid, times, version, generation, managers; defaults; no status, and nothing of what a client may not say."""
    api = await driver()
    sent = foo("a", {"a": 1}, uid="mine", generation=7, deletionTimestamp="2001-01-01T00:00:00Z", selfLink="/x")
    answer = await api.post(FOOS, {**sent, "status": {"x": 1}}, agent="kubectl/v1.32 (linux)")
    metadata = answer.obj["metadata"]
    assert answer.code == 201
    assert {
        "apiVersion": "ex.io/v1",
        "kind": "Foo",
        "metadata": {
            "name": "a",
            "namespace": "default",
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "generation": 1,
            "managedFields": [
                {
                    "manager": "kubectl",
                    "operation": "Update",
                    "apiVersion": "ex.io/v1",
                    "time": "2026-01-01T12:00:00Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {".": {}, "f:a": {}, "f:b": {}}},
                }
            ],
        },
        "spec": {"a": 1, "b": "x"},
    } == answer.obj
    assert metadata["uid"] != "mine"
    assert answer.obj == (await api.get(f"{FOOS}/a")).obj


REFUSED_CREATES: dict[str, tuple[str, Any, tuple[int, str, str]]] = {
    "there already": (FOOS, foo("there"), (409, "AlreadyExists", 'foos.ex.io "there" already exists')),
    "with a version": (
        FOOS,
        foo("b", resourceVersion="5"),
        (500, "", "resourceVersion should not be set on objects to be created"),
    ),
    "another namespace": (FOOS, foo("b", namespace="other"), (400, "BadRequest", MISMATCH)),
    "no such namespace": (
        FOOS.replace("default", "nope"),
        foo("b"),
        (404, "NotFound", 'namespaces "nope" not found'),
    ),
    "another version": (
        FOOS,
        {**foo("b"), "apiVersion": "ex.io/v2"},
        (
            400,
            "BadRequest",
            "the API version in the data (ex.io/v2) does not match the expected API version (ex.io/v1)",
        ),
    ),
    "another kind": (
        FOOS,
        {**foo("b"), "kind": "Bar"},
        (422, "Invalid", 'Bar.ex.io "b" is invalid: kind: Invalid value: "Bar": must be Foo'),
    ),
    "another built-in kind": (
        CONFIG_MAPS,
        {**config_map("b"), "kind": "Secret"},
        (
            400,
            "BadRequest",
            (
                'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): '
                "unknown conversion"
            ),
        ),
    ),
    "an unknown kind": (
        CONFIG_MAPS,
        {**config_map("b"), "apiVersion": "v2"},
        (
            400,
            "BadRequest",
            (
                'ConfigMap in version "v2" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for '
                'version "v2" in scheme "pkg/runtime/scheme.go:110"'
            ),
        ),
    ),
    "no kind": (
        FOOS,
        {"apiVersion": "ex.io/v1"},
        (
            400,
            "BadRequest",
            (
                "the object provided is unrecognized (must be of type Foo): Object 'Kind' is missing in "
                '\'{"apiVersion": "ex.io/v1"}\' ({"apiVersion": "ex.io/v1"})'
            ),
        ),
    ),
    "no name": (
        FOOS,
        {"apiVersion": "ex.io/v1", "kind": "Foo"},
        (
            422,
            "Invalid",
            'Foo.ex.io "" is invalid: metadata.name: Required value: name or generateName is required',
        ),
    ),
    "metadata of another type": (
        FOOS,
        {**foo("a"), "metadata": []},
        (
            400,
            "BadRequest",
            (
                'Foo in version "v1" cannot be handled as a Foo: json: cannot unmarshal array into Go value of type '
                "v1.ObjectMeta"
            ),
        ),
    ),
    "a field of another type": (
        FOOS,
        foo("q", {"a": "x"}),
        (
            422,
            "Invalid",
            (
                'Foo.ex.io "q" is invalid: spec.a: Invalid value: "string": spec.a in body must be of type integer: '
                '"string"'
            ),
        ),
    ),
    "too large": (
        f"{FOOS}/",
        foo("q", annotations={"a": "x" * 200_000}) | {"status": {}, "spec": {"b": "y" * 1_500_000}},
        (500, "", "etcdserver: request is too large"),
    ),
}


@pytest.mark.parametrize(("url", "body", "told"), REFUSED_CREATES.values(), ids=REFUSED_CREATES)
async def test_a_create_that_is_refused(url: str, body: Any, told: tuple[int, str, str]) -> None:
    """Nothing is stored, and the answer is the real server's."""
    api = await driver()
    await api.post(FOOS, foo("there"))
    before = api.server.store.version
    answer = await api.post(url, body)
    assert told == answer.told
    assert before == api.server.store.version


async def test_names_are_generated_until_one_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """After eight that are taken the server gives up."""
    api = await driver()
    first = await api.post(FOOS, {"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"generateName": "g" * 70}})
    assert (len(first.obj["metadata"]["name"]), first.obj["metadata"]["name"][:58]) == (63, "g" * 58)
    taken = iter("abcdefgh")
    for name in "abcdefgh":
        await api.post(FOOS, foo(f"n-{name}"))
    monkeypatch.setattr(api.server._writer, "_generated", lambda base: base + next(taken))
    body = {"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"generateName": "n-"}}
    why = 'foos.ex.io "n-h" already exists, the server was not able to generate a unique name for the object'
    assert (await api.post(FOOS, body)).told[::2] == (409, why)
    taken = iter("abz")
    assert (await api.post(FOOS, body)).obj["metadata"]["name"] == "n-z"


async def test_a_server_with_the_same_seed_makes_the_same_objects() -> None:
    """Uids and names come from the Random that is given."""
    body = {"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"generateName": "g-"}}
    one, other = await driver(), await driver()
    assert (await one.post(FOOS, body)).obj == (await other.post(FOOS, body)).obj


# Updates


async def test_an_update_replaces_all_but_what_is_the_servers() -> None:
    """The generation counts changes of the spec; a change of nothing is none; a version that is old is a conflict."""
    api = await driver()
    created = await api.post(FOOS, foo("a", {"a": 1}, labels={"x": "y"}))
    same = foo("a", {"a": 1}, labels={"x": "y"}, resourceVersion=created.version)
    assert created.version == (await api.put(f"{FOOS}/a", same)).version
    changed = await api.put(f"{FOOS}/a", foo("a", {"a": 2}, resourceVersion=created.version))
    assert (changed.obj["metadata"]["generation"], changed.obj["spec"]) == (2, {"a": 2, "b": "x"})
    assert "labels" not in changed.obj["metadata"]
    assert created.obj["metadata"]["uid"] == changed.obj["metadata"]["uid"]
    labelled = await api.put(f"{FOOS}/a", foo("a", {"a": 2}, labels={"l": "m"}, resourceVersion=changed.version))
    assert labelled.obj["metadata"]["generation"] == 2
    stale = await api.put(f"{FOOS}/a", foo("a", {"a": 3}, resourceVersion=created.version))
    assert (409, "Conflict", f'Operation cannot be fulfilled on foos.ex.io "a": {MODIFIED}') == stale.told


async def test_status_and_the_rest_are_written_apart() -> None:
    """Each through its own path, and neither changes what is the other's."""
    api = await driver()
    created = await api.post(FOOS, foo("a", {"a": 1}))
    body = {**foo("a", {"a": 9}, labels={"l": "1"}, resourceVersion=created.version), "status": {"p": 1}}
    status = await api.put(f"{FOOS}/a/status", body)
    assert (
        status.obj["spec"],
        status.obj["status"],
        status.obj["metadata"]["generation"],
    ) == ({"a": 1, "b": "x"}, {"p": 1}, 1)
    assert "labels" not in status.obj["metadata"]
    patched = await api.merge(f"{FOOS}/a", {"status": {"p": 2}, "spec": {"a": 3}})
    assert (patched.obj["spec"], patched.obj["status"]) == ({"a": 3, "b": "x"}, {"p": 1})
    assert (await api.get(f"{FOOS}/a/status")).obj == patched.obj


UPDATES: dict[str, tuple[str, Any, tuple[int, str, str]]] = {
    "no version": (
        f"{FOOS}/a",
        foo("a"),
        (
            422,
            "Invalid",
            'foos.ex.io "a" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update',
        ),
    ),
    "no number": (
        f"{FOOS}/a",
        foo("a", resourceVersion="abc"),
        (500, "", 'strconv.ParseUint: parsing "abc": invalid syntax'),
    ),
    "another name": (
        f"{FOOS}/a",
        foo("b"),
        (400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)"),
    ),
    "no name": (
        f"{FOOS}/a",
        foo(""),
        (
            400,
            "BadRequest",
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
    ),
    "another namespace": (f"{FOOS}/a", foo("a", namespace="other"), (400, "BadRequest", MISMATCH)),
    "not there": (f"{FOOS}/nope", foo("nope"), (404, "NotFound", 'foos.ex.io "nope" not found')),
    "no name in the path": (FOOS, foo("a"), (400, "BadRequest", "name must be provided")),
}


@pytest.mark.parametrize(("url", "body", "told"), UPDATES.values(), ids=UPDATES)
async def test_an_update_that_is_refused(url: str, body: Any, told: tuple[int, str, str]) -> None:
    """As the real server refuses it."""
    api = await driver()
    await api.post(FOOS, foo("a"))
    assert told == (await api.put(url, body)).told


async def test_an_update_may_demand_a_uid() -> None:
    """What was deleted and made again is not what the client knew."""
    api = await driver()
    created = await api.post(FOOS, foo("a"))
    uid = created.obj["metadata"]["uid"]
    answer = await api.put(f"{FOOS}/a", foo("a", uid="other", resourceVersion=created.version))
    why = f"Precondition failed: UID in precondition: other, UID in object meta: {uid}"
    assert (
        409,
        "Conflict",
        (
            'Operation cannot be fulfilled on foos.ex.io "a": StorageError: invalid object, Code: 4, '
            f"Key: /registry/ex.io/foos/default/a, ResourceVersion: 0, AdditionalErrorMsg: {why}"
        ),
    ) == answer.told


async def test_kinds_differ_in_what_an_update_may_do() -> None:
    """ConfigMaps are replaced without a version; Leases are created by an update, and replaced with one only."""
    api = await driver()
    await api.post(CONFIG_MAPS, config_map("a"))
    assert (await api.put(f"{CONFIG_MAPS}/a", config_map("a", data={"k": "v"}))).obj["data"] == {"k": "v"}
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    assert (await api.put(f"{LEASES}/l", lease)).code == 201
    assert (await api.put(f"{LEASES}/l", lease)).code == 422


# Patches


async def test_a_patch_of_each_kind() -> None:
    """JSON patch and merge patch for all, strategic merge for built-in kinds; a patch of nothing is no write."""
    api = await driver()
    created = await api.post(FOOS, foo("a", {"a": 1}))
    assert created.version == (await api.merge(f"{FOOS}/a", {"spec": {"a": 1}})).version
    operations = [{"op": "test", "path": "/spec/a", "value": 1}, {"op": "replace", "path": "/spec/a", "value": 2}]
    answer = await api.ask("PATCH", f"{FOOS}/a", operations, JSON_PATCH)
    assert (answer.code, answer.obj["spec"]["a"]) == (200, 2)
    await api.post(CONFIG_MAPS, config_map("c", data={"k": "v"}))
    answer = await api.ask("PATCH", f"{CONFIG_MAPS}/c", {"data": {"k": None, "l": "m"}}, STRATEGIC)
    assert answer.obj["data"] == {"l": "m"}
    assert answer.version == (await api.merge(f"{CONFIG_MAPS}/c", {"data": {"l": "m"}})).version


CUSTOM_TYPES = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
UNKNOWN = "the body of the request was in an unknown format - accepted media types include: "
PATCHES: dict[str, tuple[str, str, Any, tuple[int, str, str]]] = {
    "strategic merge of a custom resource": (
        f"{FOOS}/a",
        STRATEGIC,
        {},
        (415, "UnsupportedMediaType", UNKNOWN + CUSTOM_TYPES),
    ),
    "no patch": (
        f"{CONFIG_MAPS}/a",
        "application/json",
        {},
        (415, "UnsupportedMediaType", "415: Unsupported Media Type"),
    ),
    "a stale version": (
        f"{FOOS}/a",
        MERGE,
        {"metadata": {"resourceVersion": "1"}, "spec": {"a": 9}},
        (409, "Conflict", f'Operation cannot be fulfilled on foos.ex.io "a": {MODIFIED}'),
    ),
    "no version": (
        f"{FOOS}/a",
        MERGE,
        {"metadata": {"resourceVersion": None}},
        (
            422,
            "Invalid",
            'foos.ex.io "a" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update',
        ),
    ),
    "another name": (
        f"{FOOS}/a",
        MERGE,
        {"metadata": {"name": "b"}},
        (400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)"),
    ),
    "another uid": (
        f"{FOOS}/a",
        MERGE,
        {"metadata": {"uid": "u"}},
        (422, "Invalid", 'Foo.ex.io "a" is invalid: metadata.uid: Invalid value: "u": field is immutable'),
    ),
    "another kind": (
        f"{FOOS}/a",
        MERGE,
        {"kind": "Bar"},
        (422, "Invalid", 'Bar.ex.io "a" is invalid: kind: Invalid value: "Bar": must be Foo'),
    ),
    "another version of the kind": (
        f"{FOOS}/a",
        MERGE,
        {"apiVersion": "ex.io/v7"},
        (422, "Invalid", 'Foo.ex.io "a" is invalid: apiVersion: Invalid value: "ex.io/v7": must be ex.io/v1'),
    ),
    "no metadata": (
        f"{FOOS}/a",
        MERGE,
        {"metadata": None},
        (
            400,
            "BadRequest",
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
    ),
    "not there": (f"{FOOS}/nope", MERGE, {}, (404, "NotFound", 'foos.ex.io "nope" not found')),
    "no JSON": (
        f"{FOOS}/a",
        MERGE,
        "",
        (400, "BadRequest", "error decoding patch: unexpected end of JSON input"),
    ),
    "a list for a merge": (
        f"{FOOS}/a",
        MERGE,
        "[]",
        (
            400,
            "BadRequest",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
    ),
    "no YAML": (
        f"{FOOS}/a?fieldManager=m",
        APPLY,
        "a: [",
        (
            400,
            "BadRequest",
            "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content",
        ),
    ),
    "an apply of something else": (
        f"{FOOS}/a?fieldManager=m",
        APPLY,
        {"apiVersion": "ex.io/v1", "kind": "Bar"},
        (400, "BadRequest", "invalid object type: ex.io/v1, Kind=Bar"),
    ),
    "an apply by nobody": (
        f"{FOOS}/a",
        APPLY,
        foo("a"),
        (
            422,
            "Invalid",
            'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch',
        ),
    ),
    "a forced merge": (
        f"{FOOS}/a?force=true",
        MERGE,
        {},
        (
            422,
            "Invalid",
            'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch',
        ),
    ),
}


@pytest.mark.parametrize(("url", "media", "body", "told"), PATCHES.values(), ids=PATCHES)
async def test_a_patch_that_is_refused(url: str, media: str, body: Any, told: tuple[int, str, str]) -> None:
    """As the real server refuses it; nothing is written."""
    api = await driver()
    await api.post(FOOS, foo("a", {"a": 1}))
    await api.post(CONFIG_MAPS, config_map("a"))
    before = api.server.store.version
    assert told == (await api.ask("PATCH", url, body, media)).told
    assert before == api.server.store.version


async def test_apply_creates_merges_and_conflicts() -> None:
    """The fields that another manager has are a conflict, unless forced."""
    api = await driver()
    assert (await api.apply(f"{FOOS}/a", foo("a", {"a": 1}))).code == 201
    again = await api.apply(f"{FOOS}/a", foo("a", {"a": 1}))
    assert (again.code, again.obj["metadata"]["generation"]) == (200, 1)
    other = await api.ask("PATCH", f"{FOOS}/a?fieldManager=other", foo("a", {"a": 2}), APPLY)
    assert other.told[:2] == (409, "Conflict")
    assert '"applier"' in other.obj["message"]
    forced = await api.ask("PATCH", f"{FOOS}/a?fieldManager=other&force=true", foo("a", {"a": 2}), APPLY)
    assert (forced.code, forced.obj["spec"]["a"], forced.obj["metadata"]["generation"]) == (200, 2, 2)
    status = await api.apply(f"{FOOS}/a/status", {**foo("a"), "status": {"p": 1}})
    assert status.obj["status"] == {"p": 1}
    assert (await api.apply(f"{FOOS}/nope/status", foo("nope"))).code == 404


# Options

FIELDS = '{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"a","q":1},"spec":{"a":1,"a":2,"z":3},"top":1}'
COMPLAINTS = [
    'duplicate field "spec.a"',
    'unknown field "metadata.q"',
    'unknown field "spec.z"',
    'unknown field "top"',
]


@pytest.mark.parametrize(
    ("query", "warnings"),
    [("", COMPLAINTS), ("?fieldValidation=Warn", COMPLAINTS), ("?fieldValidation=Ignore", [])],
)
async def test_unknown_fields_are_pruned_and_told(query: str, warnings: list[str]) -> None:
    """The last of a duplicate wins."""
    api = await driver()
    answer = await api.post(f"{FOOS}{query}", FIELDS)
    assert (201, warnings, {"a": 2, "b": "x"}) == (answer.code, answer.warnings, answer.obj["spec"])


async def test_strict_validation_refuses_them() -> None:
    """In creates 400, in patches 422."""
    api = await driver()
    answer = await api.post(f"{FOOS}?fieldValidation=Strict", FIELDS)
    what = 'Foo in version "v1" cannot be handled as a Foo: strict decoding error: '
    assert (400, "BadRequest", what + ", ".join(COMPLAINTS)) == answer.told
    await api.post(FOOS, foo("a"))
    patched = await api.merge(f"{FOOS}/a?fieldValidation=Strict", {"spec": {"z": 1}})
    assert patched.code == 422
    assert patched.obj["message"].endswith('"z\\":1}}": strict decoding error: unknown field "spec.z"')
    assert [{key: cause[key] for key in ("reason", "field")} for cause in patched.obj["details"]["causes"]] == [
        {"reason": "FieldValueInvalid", "field": "patch"}
    ]
    warned = await api.merge(f"{FOOS}/a?fieldValidation=Warn", {"spec": {"z": 1}})
    assert (warned.code, warned.warnings) == (200, ['unknown field "spec.z"'])


DRY_RUNS = [
    ("POST", FOOS, foo("new"), "application/json"),
    ("PUT", f"{FOOS}/a", foo("a", {"a": 5}, resourceVersion="8"), "application/json"),
    ("PATCH", f"{FOOS}/a", {"spec": {"a": 5}}, MERGE),
    ("PATCH", f"{FOOS}/a?fieldManager=m&force=true", foo("a", {"a": 5}), APPLY),
    ("PATCH", f"{FOOS}/new?fieldManager=m", foo("new"), APPLY),
    ("PATCH", f"{FOOS}/a/status", {"status": {"a": 5}}, MERGE),
    ("DELETE", f"{FOOS}/a", None, "application/json"),
    ("DELETE", FOOS, None, "application/json"),
    ("POST", DEFINITIONS, definition("bars", "Bar", version()), "application/json"),
    ("DELETE", f"{NAMESPACES}/kube-node-lease", None, "application/json"),
]


@pytest.mark.parametrize(("method", "url", "body", "media"), DRY_RUNS)
async def test_a_dry_run_answers_and_writes_nothing(method: str, url: str, body: Any, media: str) -> None:
    """For everything that writes."""
    api = await driver()
    created = await api.post(FOOS, foo("a", {"a": 1}))
    if method == "PUT":
        body["metadata"]["resourceVersion"] = created.version
    before = api.server.store.version
    answer = await api.ask(method, f"{url}{'&' if '?' in url else '?'}dryRun=All", body, media)
    await api.settle()
    assert answer.code in {200, 201}
    assert before == api.server.store.version
    assert answer.code == (await api.ask(method, url, body, media)).code
    assert before < api.server.store.version


OPTIONS = {
    "dryRun=Some": 'dryRun: Unsupported value: ["Some"]: supported values: "All"',
    "fieldValidation=X": ('fieldValidation: Unsupported value: "X": supported values: "", "Ignore", "Strict", "Warn"'),
    f"fieldManager={'x' * 129}": "fieldManager: Too long: may not be more than 128 bytes",
}


@pytest.mark.parametrize("query", OPTIONS)
async def test_options_are_checked(query: str) -> None:
    """In the real server's words, with one cause for each."""
    api = await driver()
    answer = await api.post(f"{FOOS}?{query}", foo("a"))
    assert (422, "Invalid", f'CreateOptions.meta.k8s.io "" is invalid: {OPTIONS[query]}') == answer.told


@pytest.mark.parametrize(
    ("agent", "manager"), [("kubectl/v1 (x)", "kubectl"), ("", "unknown"), ("a b/c", "a b"), ("ü" * 99, "ü" * 64)]
)
async def test_a_manager_who_does_not_say_is_called_by_the_program(agent: str, manager: str) -> None:
    """128 bytes of it."""
    api = await driver()
    answer = await api.post(CONFIG_MAPS, config_map("a", data={"k": "v"}), agent=agent)
    assert manager == answer.obj["metadata"]["managedFields"][0]["manager"]


async def test_bodies_and_answers_may_be_yaml_and_answers_tables() -> None:
    """As kubectl and people ask."""
    api = await driver()
    text = "apiVersion: ex.io/v1\nkind: Foo\nmetadata: {name: a, labels: {l: 'yes'}}\nspec: {a: 0x10}\n"
    answer = await api.ask("POST", FOOS, text, "application/yaml", accept="application/yaml")
    assert answer.code == 201
    assert "  a: 16\n" in answer.obj
    assert "creationTimestamp: '2026-01-01T12:00:00Z'\n" in answer.obj
    table = await api.post(FOOS, foo("b"), accept=TABLE)
    assert (table.obj["kind"], table.obj["rows"][0]["cells"][0]) == ("Table", "b")
    wrong = await api.get(f"{FOOS}/nope", accept="application/yaml")
    assert wrong.obj.startswith("apiVersion: v1\ncode: 404\n")


async def test_versions_of_a_kind_show_the_same_objects() -> None:
    """Each with its own schema, apiVersion and defaults."""
    newer = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"b": {"type": "string"}}}}}
    api = await driver(definition("foos", "Foo", version("v1"), version("v2", newer, storage=False)))
    await api.post(FOOS, foo("a", {"a": 1}))
    at_v2 = FOOS.replace("v1", "v2")
    shown = await api.get(f"{at_v2}/a")
    assert (shown.obj["apiVersion"], shown.obj["spec"]) == ("ex.io/v2", {"b": "x"})
    assert (await api.get(at_v2)).names == ["a"]
    changed = await api.merge(f"{at_v2}/a", {"metadata": {"labels": {"l": "1"}}})
    assert (changed.code, changed.obj["apiVersion"]) == (200, "ex.io/v2")
    assert (await api.get(f"{FOOS}/a")).obj["apiVersion"] == "ex.io/v1"
    assert (await api.get(FOOS.replace("v1", "v3"))).code == 404


async def test_events_are_the_same_in_both_groups() -> None:
    """Only their words differ."""
    api = await driver()
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"namespace": "default", "name": "x"},
        "message": "hello",
        "reason": "R",
        "type": "Normal",
    }
    assert (await api.post("/api/v1/namespaces/default/events", event)).code == 201
    new = "/apis/events.k8s.io/v1/namespaces/default/events"
    shown = await api.get(f"{new}/e")
    assert (
        shown.obj["apiVersion"],
        shown.obj["note"],
        shown.obj["regarding"]["name"],
    ) == ("events.k8s.io/v1", "hello", "x")
    events = await api.watch(f"{new}?watch=1&resourceVersion=1")
    assert (await anext(events))["object"]["note"] == "hello"
    await events.aclose()
    assert (await api.merge(f"{new}/e", {"metadata": {"labels": {"l": "1"}}})).code == 200
    assert (await api.get("/api/v1/namespaces/default/events/e")).obj["metadata"]["labels"] == {"l": "1"}


async def test_what_is_answered_and_observed_cannot_change_what_is_stored() -> None:
    """Also when defaults, status and managers of the old object are carried over."""
    api = await driver(definition("foos", "Foo", version("v1", FOO_SCHEMA)))
    history: list[tuple[bytes, Any]] = []
    api.server.store.observers.append(lambda event: history.append((event.stored.data, event.stored.obj)))
    await api.post(FOOS, foo("a", {"a": 1}, labels={"l": "1"}))
    for number in range(5):
        await api.merge(f"{FOOS}/a/status", {"status": {"n": {"deep": number}}})
        await api.merge(f"{FOOS}/a", {"spec": {"a": number + 10}})
        await api.apply(f"{FOOS}/a", {**foo("a"), "status": {"n": None}})
    await api.merge(f"{NAMESPACES}/default", {"metadata": {"labels": {"l": "1"}}})
    await api.delete(f"{FOOS}/a")
    await asyncio.sleep(0)
    assert all(json.loads(data) == obj for data, obj in history)
    assert len(history) > 10


async def test_reviews_are_answered_and_not_stored() -> None:
    """`kubectl auth can-i` asks them."""
    api = Driver()
    body = {"spec": {"resourceAttributes": {"verb": "get", "resource": "secrets"}}}
    answer = await api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert (answer.code, answer.obj["status"]) == (201, {"allowed": True})
    assert (await api.get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")).code == 405


async def test_a_deprecated_version_warns_whoever_uses_it() -> None:
    """Reads, writes and failures; in its own words if it has some."""
    old = version("v1", deprecated=True)
    worded = version("v2", storage=False, deprecated=True, deprecationWarning="use v3")
    api = await driver(definition("foos", "Foo", old, worded, version("v3", storage=False)))
    words = {"v1": ["ex.io/v1 Foo is deprecated"], "v2": ["use v3"], "v3": []}
    for name, warnings in words.items():
        url = FOOS.replace("v1", name)
        body = {**foo(name), "apiVersion": f"ex.io/{name}"}
        answers = [await api.post(url, body), await api.get(url), await api.get(f"{url}/nope"), await api.delete(url)]
        assert [answer.warnings for answer in answers] == [warnings] * 4


async def test_a_finalizer_without_a_domain_is_warned_of() -> None:
    """Not those of Kubernetes."""
    api = await driver()
    answer = await api.post(FOOS, foo("a", finalizers=["mine", "x.y/z", "orphan"]))
    advice = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
    assert answer.warnings == [f'metadata.finalizers: "mine": {advice}']


async def test_warnings_come_with_failures_too() -> None:
    """What was unknown is told, whatever else is wrong."""
    api = await driver()
    answer = await api.post(CONFIG_MAPS, {"metadata": {"name": "A_b"}, "zork": 1})
    assert (answer.code, answer.warnings) == (422, ['unknown field "zork"'])


async def test_defaults_of_the_status_are_there_from_the_start() -> None:
    """Though what the client sends of it is not."""
    status = {"type": "object", "default": {}, "properties": {"phase": {"type": "string", "default": "Pending"}}}
    schema = {"type": "object", "properties": {"spec": {"type": "object"}, "status": status}}
    api = await driver(definition("foos", "Foo", version("v1", schema)))
    created = await api.post(FOOS, {**foo("a"), "status": {"phase": "Mine"}})
    assert created.obj["status"] == {"phase": "Pending"}
    applied = await api.apply(f"{FOOS}/b", foo("b"))
    assert applied.obj["status"] == {"phase": "Pending"}


async def test_a_member_that_no_patch_operation_has() -> None:
    """A warning, or strictly a failure."""
    api = await driver()
    await api.post(FOOS, foo("a", {"a": 1}))
    operations = [{"op": "replace", "path": "/spec/a", "value": 2, "more": 1}]
    warned = await api.ask("PATCH", f"{FOOS}/a", operations, JSON_PATCH)
    assert (warned.code, warned.warnings) == (200, ['json patch unknown field "[0].more"'])
    strict = await api.ask("PATCH", f"{FOOS}/a?fieldValidation=Strict", operations, JSON_PATCH)
    assert strict.code == 422
    assert strict.obj["message"].endswith('strict decoding error: json patch unknown field "[0].more"')


async def test_another_kind_is_found_after_the_version() -> None:
    """As it is a matter of validation."""
    api = await driver()
    created = await api.post(FOOS, foo("a"))
    wrong = {**foo("a"), "kind": "Bar"}
    assert "must be specified for an update" in (await api.put(f"{FOOS}/a", wrong)).obj["message"]
    wrong["metadata"]["resourceVersion"] = created.version
    assert "must be Foo" in (await api.put(f"{FOOS}/a", wrong)).obj["message"]


SKIPPED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


async def test_what_apply_has_emptied_is_null_and_judged() -> None:
    """So the real server: a field that may not be null cannot be emptied, and one of no schema can."""
    spec = {
        "type": "object",
        "properties": {
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "list": {
                "type": "array",
                "items": {"type": "string"},
                "x-kubernetes-list-type": "set",
            },
        },
        "x-kubernetes-validations": [{"rule": "true"}],
    }
    schema = {"type": "object", "properties": {"spec": spec}}
    api = await driver(definition("foos", "Foo", version(schema=schema)))
    await api.apply(f"{FOOS}/a", foo("a", {"map": {"x": "1"}, "free": {"x": {"y": 1}}, "list": ["x"]}))
    answer = await api.apply(f"{FOOS}/a", foo("a", {"map": {}, "free": {"x": {}}, "list": []}))
    told = 'spec.map: Invalid value: "null": spec.map in body must be of type object: "null"'
    assert answer.told == (422, "Invalid", f'Foo.ex.io "a" is invalid: [{told}, {SKIPPED}]')
    answer = await api.apply(f"{FOOS}/a", foo("a", {"free": {"x": {}}, "list": []}))
    assert (answer.code, answer.obj["spec"]) == (200, {"free": {"x": None}})
    answer = await api.apply(f"{FOOS}/b", foo("b", {"map": None}))
    assert answer.code == 422


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({}, "metadata.name: Required value: name or generateName is required"),
        (
            {"name": "a", "annotations": {"a": "x" * 262144}},
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
    ],
)
async def test_rules_are_not_asked_about_what_is_not_there(metadata: dict[str, Any], told: str) -> None:
    """Faults of metadata that leave something unknown keep CEL rules from being looked at."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"a": {"type": "integer"}}}},
        "x-kubernetes-validations": [{"rule": "self.spec.a < 10"}],
    }
    api = await driver(definition("foos", "Foo", version(schema=schema)))
    answer = await api.post(FOOS, {**foo("a", {"a": 20}), "metadata": metadata})
    name = metadata.get("name", "")
    assert answer.told == (422, "Invalid", f'Foo.ex.io "{name}" is invalid: [{told}, {SKIPPED}]')


async def test_formats_that_mean_nothing_are_warned_of_once() -> None:
    """Of strings, in any version; an update warns of those that are new."""

    def with_formats(**formats: str) -> dict[str, Any]:
        fields = {name: {"type": "string", "format": text} for name, text in formats.items()}
        fields["number"] = {"type": "integer", "format": "int32"}
        below = {"type": "array", "items": {"type": "string", "format": formats.get("a", "date-time")}}
        spec = {"type": "object", "properties": {**fields, "below": below}}
        return definition("foos", "Foo", version(schema={"type": "object", "properties": {"spec": spec}}))

    api = Driver()
    created = await api.post(DEFINITIONS, with_formats(a="nope", b="date-time", c="k8s-short-name"))
    assert created.warnings == ['unrecognized format "k8s-short-name"', 'unrecognized format "nope"']
    url = f"{DEFINITIONS}/foos.ex.io"
    assert (await api.merge(url, {"metadata": {"labels": {"a": "b"}}})).warnings == []
    changed = await api.merge(url, {"spec": with_formats(a="nope", b="new")["spec"]})
    assert changed.warnings == ['unrecognized format "new"']


@pytest.mark.parametrize("body", [{"status": {}}, {}, {"status": {"phase": ""}}])
async def test_a_namespace_is_active_where_nothing_is_said(body: dict[str, Any]) -> None:
    """The phase has a default, for its status, too."""
    api = await driver()
    answer = await api.put(f"{NAMESPACES}/default/status", {"metadata": {"name": "default"}, **body})
    assert (answer.code, answer.obj["status"]) == (200, {"phase": "Active"})


UNREGISTERED = 'no kind "{}" is registered for version "{}" in scheme "pkg/runtime/scheme.go:110"'
UNKNOWN_CONVERSION = "converting ({}) to (core.ConfigMap): unknown conversion"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"kind": "Nope"}, UNREGISTERED.format("Nope", "v1")),
        ({"apiVersion": "v2"}, UNREGISTERED.format("ConfigMap", "v2")),
        ({"apiVersion": "ex.io/v1", "kind": "Foo"}, UNREGISTERED.format("Foo", "ex.io/v1")),
        ({"kind": "Secret"}, UNKNOWN_CONVERSION.format("v1.Secret")),
        ({"kind": "Secret", "data": {"a": "1"}}, "illegal base64 data at input byte 0"),
        (
            {"kind": "Namespace", "metadata": {"name": 1}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
        ),
        ({"kind": "Status"}, UNKNOWN_CONVERSION.format("v1.Status")),
        ({"kind": "SecretList"}, UNKNOWN_CONVERSION.format("v1.SecretList")),
        ({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}, UNKNOWN_CONVERSION.format("v1.Lease")),
    ],
)
async def test_a_body_of_another_kind(said: dict[str, Any], why: str) -> None:
    """It is read as what it says that it is before it is refused; so is what a patch has made."""
    api = await driver()
    body = {**config_map("a"), **said}
    name, api_version = body["kind"], body["apiVersion"].rpartition("/")[2]
    told = f'{name} in version "{api_version}" cannot be handled as a ConfigMap: {why}'
    assert (await api.post(CONFIG_MAPS, body)).told == (400, "BadRequest", told)
    await api.post(CONFIG_MAPS, config_map("a"))
    refused = await api.merge(f"{CONFIG_MAPS}/a", said)
    assert (refused.code, refused.obj["message"].endswith(f": {why}")) == (422, True)


async def test_a_body_of_another_version() -> None:
    """Of the same kind in another group, and of nothing that CustomResourceDefinitions know."""
    api = await driver()
    event = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a"}}
    answer = await api.post("/api/v1/namespaces/default/events", event)
    why = "the API version in the data (events.k8s.io/v1) does not match the expected API version (v1)"
    assert answer.told == (400, "BadRequest", why)
    answer = await api.post(DEFINITIONS, config_map("a"))
    what = 'ConfigMap in version "v1" cannot be handled as a CustomResourceDefinition'
    assert answer.told == (400, "BadRequest", f"{what}: {UNREGISTERED.format('ConfigMap', 'v1')}")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"apiVersion": "v1", kind: ConfigMap, metadata: {"name": a}, data: {k: nul}}', {"k": "nul"}),
        ('{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"},}', {"k": "v"}),
        (
            '{"a":',
            "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content",
        ),
        ('{"a":tru}', "invalid object type: /, Kind="),
    ],
)
async def test_apply_is_yaml_even_in_braces(text: str, answer: Any) -> None:
    """What looks like JSON need not be."""
    got = await (await driver()).apply(f"{CONFIG_MAPS}/a", text)
    assert (got.obj["data"] if got.code == 201 else got.obj["message"]) == answer


UNTYPED = "failed to create typed patch object (/a; /v1, Kind=ConfigMap)"


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        (
            [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}],
            'ConfigMap "a" is invalid: metadata.ownerReferences.uid: Invalid value: "": must not be empty',
        ),
        (
            [{"name": "x"}, {"name": "y"}],
            f'{UNTYPED}: .metadata.ownerReferences: duplicate entries for key [uid=""]',
        ),
    ],
)
async def test_an_owner_without_a_uid_has_an_empty_one(reference: list[Any], told: str) -> None:
    """For apply, which knows owners by it."""
    api = await driver()
    body = {**config_map("a"), "metadata": {"name": "a", "ownerReferences": reference}}
    assert (await api.apply(f"{CONFIG_MAPS}/a", body)).obj["message"] == told


async def test_who_manages_an_event_is_forgotten_in_the_other_group() -> None:
    """So the real server: to it they are versions that the kind does not have; who comes next is managed again."""
    api = await driver()
    old = "/api/v1/namespaces/default/events"
    new = "/apis/events.k8s.io/v1/namespaces/default/events/a"
    event = {"metadata": {"name": "a"}, "involvedObject": {"name": "x"}, "reason": "R", "message": "m"}
    await api.post(f"{old}?fieldManager=one", event)
    changed = await api.merge(f"{new}?fieldManager=two", {"metadata": {"labels": {"a": "b"}}})
    assert _managers(changed.obj) == [("two", "events.k8s.io/v1")]
    changed = await api.merge(f"{old}/a?fieldManager=one", {"message": "n"})
    assert _managers(changed.obj) == [("one", "v1")]
    body = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a"}, "reason": "R"}
    applied = await api.apply(new, body)
    assert _managers(applied.obj) == [("applier", "events.k8s.io/v1")]


def _managers(obj: dict[str, Any]) -> list[tuple[str, str]]:
    return [(entry["manager"], entry["apiVersion"]) for entry in obj["metadata"]["managedFields"]]
