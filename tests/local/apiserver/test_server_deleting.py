"""Deletions, and what follows them: finalizers, garbage, namespaces, definitions.

The answers to requests are those of kube-apiserver 1.34.3; what follows is as the controller-manager documents it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kargo_py.local.apiserver.wire import JsonObject
from tests.local.apiserver.driving import (
    CONFIG_MAPS,
    DEFINITIONS,
    FOO,
    FOOS,
    NAMESPACES,
    Answer,
    Driver,
    definition,
    driver,
    foo,
    version,
)

HELD = ["ex.io/held"]


def owned(name: str, *owners: Answer, blocks: bool = False, **more: Any) -> JsonObject:
    """A Foo that belongs to *owners*."""
    return foo(name, ownerReferences=[reference(owner, blocks=blocks) for owner in owners], **more)


def reference(owner: Answer, *, blocks: bool = False) -> JsonObject:
    made = {"apiVersion": owner.obj["apiVersion"], "kind": owner.obj["kind"], "name": owner.obj["metadata"]["name"]}
    return {**made, "uid": owner.obj["metadata"]["uid"], **({"blockOwnerDeletion": True} if blocks else {})}


async def names(api: Driver, url: str = FOOS) -> list[str]:
    await api.settle()
    return (await api.get(url)).names


async def test_a_deletion_answers_with_a_status_and_its_uid() -> None:
    """Once; then there is nothing to delete."""
    api = await driver()
    created = await api.post(FOOS, foo("a"))
    answer = await api.delete(f"{FOOS}/a")
    assert (answer.code, answer.obj) == (
        200,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {"name": "a", "group": "ex.io", "kind": "foos", "uid": created.obj["metadata"]["uid"]},
        },
    )
    assert (await api.delete(f"{FOOS}/a")).told == (404, "NotFound", 'foos.ex.io "a" not found')


async def test_a_finalizer_keeps_an_object_until_it_is_taken_off() -> None:
    """It may be changed meanwhile, but gets no new finalizers; a second deletion changes nothing."""
    api = await driver()
    await api.post(FOOS, foo("a", {"a": 1}, finalizers=HELD))
    marked = await api.delete(f"{FOOS}/a")
    metadata = marked.obj["metadata"]
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"], metadata["generation"]) == (
        "2026-01-01T12:00:00Z",
        0,
        2,
    )
    assert (await api.delete(f"{FOOS}/a")).obj == marked.obj
    changed = await api.merge(f"{FOOS}/a", {"spec": {"a": 2}})
    assert (changed.code, changed.obj["metadata"]["generation"]) == (200, 3)
    more = await api.merge(f"{FOOS}/a", {"metadata": {"finalizers": [*HELD, "x.y/z"]}})
    assert more.code == 422
    assert 'found new finalizers []string{"x.y/z"}' in more.obj["message"]
    last = await api.merge(f"{FOOS}/a", {"metadata": {"finalizers": None}, "spec": {"a": 7}})
    assert (last.code, last.version, last.obj["spec"]["a"]) == (200, changed.version, 7)
    assert await names(api) == []


async def test_preconditions() -> None:
    """Of uid and version; the message names the kind, as the real server's does."""
    api = await driver()
    created = await api.post(FOOS, foo("a"))
    uid, number = created.obj["metadata"]["uid"], created.version
    what = 'Operation cannot be fulfilled on Foo.ex.io "a": the '
    wrong = await api.delete(f"{FOOS}/a", {"preconditions": {"uid": "x"}})
    assert wrong.told == (
        409,
        "Conflict",
        (
            f"{what}UID in the precondition (x) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated"
        ),
    )
    stale = await api.delete(f"{FOOS}/a", {"preconditions": {"resourceVersion": "1"}})
    assert stale.told == (
        409,
        "Conflict",
        (
            f"{what}ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({number}). "
            "The object might have been modified"
        ),
    )
    assert (await api.delete(f"{FOOS}/a", {"preconditions": {"uid": uid, "resourceVersion": number}})).code == 200


INVALID = 'DeleteOptions.meta.k8s.io "" is invalid: '
PARSE = "couldn't get version/kind; json parse error: "
OPTIONS: list[tuple[str, Any, int, str]] = [
    (
        "propagationPolicy=Bogus",
        None,
        422,
        INVALID + 'propagationPolicy: Unsupported value: "Bogus": supported values: "Foreground", "Background", '
        '"Orphan", "nil"',
    ),
    (
        "orphanDependents=true&propagationPolicy=Orphan",
        None,
        422,
        INVALID + 'propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be '
        "both set",
    ),
    ("gracePeriodSeconds=x", None, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
    (
        "",
        {"dryRun": ["X"]},
        422,
        INVALID + 'dryRun: Unsupported value: ["X"]: supported values: "All"',
    ),
    (
        "",
        {"preconditions": {"uid": 5}},
        500,
        "json: cannot unmarshal number into Go struct field Preconditions.preconditions.uid of type types.UID",
    ),
    ("", "{", 500, PARSE + "unexpected end of JSON input"),
    (
        "",
        {"kind": "Foo", "apiVersion": "ex.io/v1"},
        500,
        'no kind "Foo" is registered for version "ex.io/v1" in scheme "pkg/runtime/scheme.go:110"',
    ),
    (
        "",
        {"kind": "Status", "apiVersion": "v1"},
        500,
        "converting (v1.Status) to (v1.DeleteOptions): unknown conversion",
    ),
]


@pytest.mark.parametrize(("query", "body", "code", "message"), OPTIONS)
async def test_options_that_are_refused(query: str, body: Any, code: int, message: str) -> None:
    """Nothing is deleted."""
    api = await driver()
    await api.post(FOOS, foo("a"))
    answer = await api.delete(f"{FOOS}/a?{query}", body)
    assert (answer.code, answer.obj["message"]) == (code, message)
    assert await names(api) == ["a"]


async def test_a_collection_is_deleted_by_selectors() -> None:
    """The answer lists what there was; finalizers hold theirs."""
    api = await driver()
    await api.post(FOOS, foo("a", labels={"l": "1"}))
    await api.post(FOOS, foo("b", labels={"l": "1"}, finalizers=HELD))
    await api.post(FOOS, foo("c"))
    answer = await api.delete(f"{FOOS}?labelSelector=l=1")
    assert (answer.obj["kind"], answer.names) == ("FooList", ["a", "b"])
    assert "deletionTimestamp" not in answer.obj["items"][1]["metadata"]
    assert await names(api) == ["b", "c"]


# Garbage


async def test_dependents_go_after_their_owner() -> None:
    """In the background, through all generations, whatever the kind; what has another owner stays without this one."""
    api = await driver()
    owner, other = await api.post(FOOS, foo("owner")), await api.post(FOOS, foo("other"))
    child = await api.post(FOOS, owned("child", owner))
    await api.post(CONFIG_MAPS, {"metadata": owned("grandchild", child)["metadata"]})
    shared = await api.post(FOOS, owned("shared", owner, other))
    assert len(shared.obj["metadata"]["ownerReferences"]) == 2
    assert (await api.delete(f"{FOOS}/owner")).obj["status"] == "Success"
    assert (await api.get(f"{FOOS}/child")).code == 200
    assert await names(api) == ["other", "shared"]
    assert await names(api, CONFIG_MAPS) == []
    assert (await api.get(f"{FOOS}/shared")).obj["metadata"]["ownerReferences"] == [reference(other)]


async def test_an_object_whose_owner_never_was_goes() -> None:
    """So does one that names the right name and another uid; a kind that is not served is no reason."""
    api = await driver()
    owner = await api.post(FOOS, foo("owner"))
    owner.obj["metadata"]["uid"] = "another"
    await api.post(FOOS, owned("a", owner))
    owner.obj["kind"] = "Deployment"
    await api.post(FOOS, owned("b", owner))
    assert await names(api) == ["b", "owner"]


async def test_owners_are_looked_for_in_the_namespace_of_the_object() -> None:
    """One of the same name and uid elsewhere is none; one without a namespace is one everywhere."""
    api = await driver(FOO, definition("bars", "Bar", version(), scope="Cluster"))
    await api.post(NAMESPACES, {"metadata": {"name": "other"}})
    away = await api.post(FOOS.replace("default", "other"), foo("owner"))
    wide = await api.post("/apis/ex.io/v1/bars", {**foo("wide"), "kind": "Bar"})
    await api.post(FOOS, owned("a", away))
    await api.post(FOOS, owned("b", wide))
    assert await names(api) == ["b"]
    await api.delete("/apis/ex.io/v1/bars/wide")
    assert await names(api) == []


@pytest.mark.parametrize("how", ["query", "body", "old"])
async def test_orphans_lose_their_owner_and_stay(how: str) -> None:
    """The owner waits with the finalizer ``orphan`` until they have."""
    api = await driver()
    owner = await api.post(FOOS, foo("owner"))
    await api.post(FOOS, owned("a", owner))
    query = "?propagationPolicy=Orphan" if how == "query" else ""
    body = {"body": {"propagationPolicy": "Orphan"}, "old": {"orphanDependents": True}}.get(how)
    marked = await api.delete(f"{FOOS}/owner{query}", body)
    assert marked.obj["metadata"]["finalizers"] == ["orphan"]
    assert await names(api) == ["a"]
    assert "ownerReferences" not in (await api.get(f"{FOOS}/a")).obj["metadata"]


async def test_in_the_foreground_the_owner_goes_last() -> None:
    """It waits for those dependents that block it."""
    api = await driver()
    owner = await api.post(FOOS, foo("owner"))
    await api.post(FOOS, owned("blocks", owner, blocks=True, finalizers=HELD))
    await api.post(FOOS, owned("free", owner))
    marked = await api.delete(f"{FOOS}/owner?propagationPolicy=Foreground")
    assert marked.obj["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert await names(api) == ["blocks", "owner"]
    await api.merge(f"{FOOS}/blocks", {"metadata": {"finalizers": None}})
    assert await names(api) == []


async def test_a_dependent_with_a_finalizer_is_marked_once() -> None:
    """And goes when that is taken off."""
    api = await driver()
    owner = await api.post(FOOS, foo("owner"))
    await api.post(FOOS, owned("a", owner, finalizers=HELD))
    await api.delete(f"{FOOS}/owner")
    assert await names(api) == ["a"]
    await api.merge(f"{FOOS}/a", {"spec": {"a": 1}})
    await api.merge(f"{FOOS}/a", {"metadata": {"finalizers": []}})
    assert await names(api) == []


@pytest.mark.looptime
async def test_what_follows_can_take_time() -> None:
    """Each step as long as is said; closing the server ends it."""
    api = await driver(background_delay=lambda: 2.0)
    owner = await api.post(FOOS, foo("owner"))
    await api.post(FOOS, owned("a", owner))
    await api.delete(f"{FOOS}/owner")
    await asyncio.sleep(1.9)
    assert (await api.get(FOOS)).names == ["a"]
    await api.settle()
    assert ((await api.get(FOOS)).names, asyncio.get_running_loop().time()) == ([], 4.0)
    await api.delete(f"{NAMESPACES}/kube-node-lease")
    api.server.close()
    await api.settle()
    assert (await api.get(f"{NAMESPACES}/kube-node-lease")).code == 200


# Namespaces


async def test_a_namespace_goes_after_what_is_in_it() -> None:
    """It takes nothing new meanwhile."""
    api = await driver()
    await api.post(NAMESPACES, {"metadata": {"name": "n"}})
    inside = FOOS.replace("default", "n")
    await api.post(inside, foo("a"))
    await api.post(CONFIG_MAPS.replace("default", "n"), {"metadata": {"name": "c"}})
    marked = await api.delete(f"{NAMESPACES}/n")
    assert (marked.obj["status"], "deletionGracePeriodSeconds" in marked.obj["metadata"]) == (
        {"phase": "Terminating"},
        False,
    )
    refused = await api.post(inside, foo("b"))
    why = "unable to create new content in namespace n because it is being terminated"
    assert refused.told == (403, "Forbidden", f'foos.ex.io "b" is forbidden: {why}')
    assert refused.obj["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": "namespace n is being terminated",
            "field": "metadata.namespace",
        }
    ]
    assert (await api.apply(f"{inside}/b", foo("b"))).code == 403
    await api.settle()
    assert (await api.get(f"{NAMESPACES}/n")).code == 404
    assert (await api.get(inside)).names == []
    assert (await api.post(NAMESPACES, {"metadata": {"name": "n"}})).code == 201


async def test_a_namespace_says_what_it_waits_for() -> None:
    """Until the last finalizer in it is gone."""
    api = await driver()
    await api.post(NAMESPACES, {"metadata": {"name": "n"}})
    inside = FOOS.replace("default", "n")
    await api.post(inside, foo("a", finalizers=HELD))
    await api.delete(f"{NAMESPACES}/n")
    await api.settle()
    conditions = {one["type"]: one for one in (await api.get(f"{NAMESPACES}/n")).obj["status"]["conditions"]}
    remaining = conditions["NamespaceContentRemaining"]
    assert (remaining["status"], remaining["message"]) == (
        "True",
        "Some resources are remaining: foos.ex.io has 1 resource instances",
    )
    assert conditions["NamespaceFinalizersRemaining"]["message"] == (
        "Some content in the namespace has finalizers remaining: ex.io/held in 1 resource instances"
    )
    await api.merge(f"{inside}/a", {"metadata": {"finalizers": None}})
    assert await names(api, NAMESPACES) == ["default", "kube-node-lease", "kube-public", "kube-system"]


async def test_some_namespaces_may_not_be_deleted() -> None:
    """As in every cluster."""
    api = Driver()
    assert (await api.delete(f"{NAMESPACES}/default")).told == (
        403,
        "Forbidden",
        'namespaces "default" is forbidden: this namespace may not be deleted',
    )


async def test_finalizers_of_a_namespace_are_written_through_a_path_of_their_own() -> None:
    """Only there; when both kinds are gone, so is the namespace."""
    api = Driver()
    body = {"metadata": {"name": "n", "finalizers": HELD}, "spec": {"finalizers": ["x.y/z"]}}
    created = await api.post(NAMESPACES, body)
    assert created.obj["spec"]["finalizers"] == ["x.y/z", "kubernetes"]
    await api.merge(f"{NAMESPACES}/n", {"spec": {"finalizers": []}})
    await api.delete(f"{NAMESPACES}/n")
    await api.settle()
    assert (await api.get(f"{NAMESPACES}/n")).obj["spec"]["finalizers"] == ["x.y/z"]
    await api.put(f"{NAMESPACES}/n/finalize", {"metadata": {"name": "n", "finalizers": HELD}, "spec": {}})
    assert (await api.get(f"{NAMESPACES}/n")).code == 200
    await api.merge(f"{NAMESPACES}/n", {"metadata": {"finalizers": []}})
    assert (await api.get(f"{NAMESPACES}/n")).code == 404


# Definitions


async def test_a_definition_brings_its_kind_at_once_and_takes_it_away() -> None:
    """Its objects go first; meanwhile no new ones are made."""
    api = Driver()
    created = await api.post(DEFINITIONS, FOO)
    assert (created.code, created.obj["metadata"]["generation"]) == (201, 1)
    live = (await api.get(f"{DEFINITIONS}/foos.ex.io")).obj
    assert [(one["type"], one["status"]) for one in live["status"]["conditions"]] == [
        ("NamesAccepted", "True"),
        ("Established", "True"),
    ]
    await api.post(FOOS, foo("a", finalizers=HELD))
    await api.post(FOOS, foo("b"))
    marked = await api.delete(f"{DEFINITIONS}/foos.ex.io")
    assert marked.obj["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert marked.obj["status"]["conditions"][-1]["type"] == "Terminating"
    assert (await api.post(FOOS, foo("c"))).told == (
        403,
        "Forbidden",
        'foos.ex.io "c" is forbidden: create not allowed while custom resource definition is terminating',
    )
    assert await names(api) == ["a"]
    await api.merge(f"{FOOS}/a", {"metadata": {"finalizers": None}})
    await api.settle()
    assert (await api.get(FOOS)).obj == "404 page not found\n"
    assert (await api.get(f"{DEFINITIONS}/foos.ex.io")).code == 404
    assert "ex.io" not in [group["name"] for group in (await api.get("/apis")).obj["groups"]]
    assert (await api.post(DEFINITIONS, FOO)).code == 201
    assert (await api.get(FOOS)).names == []


async def test_a_changed_schema_holds_for_objects_that_are_there() -> None:
    """New defaults show, fields that went do not; what is not written again is not lost."""
    api = await driver()
    created = await api.post(FOOS, foo("a", {"a": 1}))
    spec = {"type": "object", "properties": {"b": {"type": "string"}, "c": {"type": "integer", "default": 7}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    changed = definition("foos", "Foo", version("v1", schema))
    answer = await api.merge(f"{DEFINITIONS}/foos.ex.io", {"spec": changed["spec"]})
    assert (answer.code, answer.obj["metadata"]["generation"]) == (200, 2)
    shown = await api.get(f"{FOOS}/a")
    assert (shown.version, shown.obj["spec"]) == (created.version, {"b": "x", "c": 7})
    assert [item["spec"] for item in (await api.get(FOOS)).obj["items"]] == [{"b": "x", "c": 7}]
    await api.merge(f"{DEFINITIONS}/foos.ex.io", {"spec": FOO["spec"]})
    assert (await api.get(f"{FOOS}/a")).obj["spec"] == {"a": 1, "b": "x"}


async def test_a_definition_whose_names_are_taken_is_not_served() -> None:
    """It says so, and the one that has them goes on."""
    api = await driver()
    answer = await api.post(DEFINITIONS, definition("others", "Foo", version()))
    assert answer.code == 201
    status = (await api.get(f"{DEFINITIONS}/others.ex.io")).obj["status"]
    assert [(one["type"], one["status"]) for one in status["conditions"]] == [
        ("NamesAccepted", "False"),
        ("Established", "False"),
    ]
    assert (await api.get("/apis/ex.io/v1/others")).code == 404
    assert (await api.get(FOOS)).code == 200


async def test_a_collector_that_is_refused_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """It may not write to an object that its schema no longer takes; nobody waits for it for ever."""
    api = await driver()
    gone, stays = [await api.post(CONFIG_MAPS, {"metadata": {"name": name}}) for name in ("gone", "stays")]
    owners = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": one.obj["metadata"]["name"],
            "uid": one.obj["metadata"]["uid"],
        }
        for one in (gone, stays)
    ]
    await api.post(FOOS, foo("a", {"a": 1}, ownerReferences=owners))
    strict = definition("foos", "Foo", version("v1", {"type": "object", "required": ["more"], "properties": {}}))
    await api.merge(f"{DEFINITIONS}/foos.ex.io", {"spec": strict["spec"]})
    await api.delete(f"{CONFIG_MAPS}/gone")
    async with asyncio.timeout(20):
        await api.settle()
    assert len((await api.get(f"{FOOS}/a")).obj["metadata"]["ownerReferences"]) == 2
    assert "Traceback" not in caplog.text
    await api.delete(f"{CONFIG_MAPS}/stays")
    await api.settle()
    assert (await api.get(f"{FOOS}/a")).code == 404
