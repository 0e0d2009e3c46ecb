"""Creating, replacing, deleting: what the server adds to an object, what it guards, and what a dry run leaves alone."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.conformance.asking import refused
from tests.conformance.definitions import (
    GROUP,
    config_map,
    gadget,
    gadgets,
    maps,
    widget,
    widgets,
)
from tests.conformance.servers import JSON_PATCH, JsonObject, Server, names

UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def test_created(server: Server, namespace: str) -> None:
    """The server gives an identity, a version, a time and a generation; what was given is kept."""
    made = server.create(
        widgets(namespace), widget("w", size=4, metadata={"labels": {"a": "b"}, "annotations": {"c": "d"}})
    )

    metadata = made.pop("metadata")
    assert made == {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "spec": {"size": 4, "mode": "safe"}}
    assert UID.fullmatch(metadata.pop("uid"))
    assert TIME.fullmatch(metadata.pop("creationTimestamp"))
    assert metadata.pop("resourceVersion").isdigit()
    assert len(metadata.pop("managedFields")) == 1
    assert metadata == {
        "name": "w",
        "namespace": namespace,
        "generation": 1,
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
    }


def test_created_built_in(server: Server, namespace: str) -> None:
    """The same of a built-in kind, which has no generation."""
    made = server.create(maps(namespace), {"metadata": {"name": "m"}, "data": {"a": "1"}})

    assert (made["kind"], made["apiVersion"], made["data"]) == ("ConfigMap", "v1", {"a": "1"})
    assert set(made["metadata"]) == {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
    }


def test_what_a_client_may_not_set(server: Server, namespace: str) -> None:
    """Identity, time, generation and deletion are the server's."""
    theirs = {"uid": "x", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7, "selfLink": "/x"}
    theirs |= {"deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5}

    metadata = server.create(widgets(namespace), widget("w", metadata=theirs))["metadata"]

    assert UID.fullmatch(metadata["uid"])
    assert metadata["creationTimestamp"] > "2026"
    assert metadata["generation"] == 1
    assert {"selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"}.isdisjoint(metadata)


@pytest.mark.parametrize("path", [widgets, maps])
def test_generated_name(server: Server, namespace: str, path: Callable[[str], str]) -> None:
    """Five characters that cannot be mistaken come after the prefix, which is cut so that the name has at most 63."""
    made = [server.create(path(namespace), _unnamed(path, "gen-")) for _ in range(2)]
    long = server.create(path(namespace), _unnamed(path, "g" * 70))

    for each in made:
        assert re.fullmatch("gen-[bcdfghjklmnpqrstvwxz2456789]{5}", each["metadata"]["name"])
        assert each["metadata"]["generateName"] == "gen-"
    assert len({each["metadata"]["name"] for each in made}) == 2
    assert re.fullmatch("g{58}[a-z0-9]{5}", long["metadata"]["name"])


def _unnamed(path: Callable[[str], str], prefix: str) -> JsonObject:
    made = widget() if path is widgets else config_map()
    return {**made, "metadata": {"generateName": prefix}}


def test_yaml(server: Server, namespace: str) -> None:
    """YAML is taken, and given when it is asked for."""
    text = f"apiVersion: {GROUP}/v1\nkind: Widget\nmetadata:\n  name: w\nspec: {{size: 4}}\n"

    created = server.send("POST", widgets(namespace), text, as_="application/yaml")
    read = server.get(widgets(namespace, "w"), accept="application/yaml")

    assert created.ok()["spec"] == {"size": 4, "mode": "safe"}
    assert (read.code, read.headers["content-type"]) == (200, "application/yaml")
    assert read.body.startswith(f"apiVersion: {GROUP}/v1\nkind: Widget\nmetadata:\n  creationTimestamp: ".encode())


def test_read(server: Server, namespace: str) -> None:
    """What was answered to the writer is what is read, byte by byte."""
    answer = server.send("POST", widgets(namespace), widget())

    assert server.get(widgets(namespace, "w")).body == answer.body
    assert server.get(widgets(namespace, "w")).headers["content-type"] == "application/json"


def test_generation(server: Server, namespace: str) -> None:
    """It grows with spec, and not with labels, status, or a write that changes nothing."""
    path = widgets(namespace, "w")
    server.create(widgets(namespace), widget())

    def generation(patch: JsonObject, part: str = "") -> int:
        number: int = server.patch(path + part, patch).ok()["metadata"]["generation"]
        return number

    assert generation({"spec": {"size": 4}}) == 2
    assert generation({"metadata": {"labels": {"a": "b"}}}) == 2
    assert generation({"status": {"phase": "x"}}, "/status") == 2
    assert generation({"spec": {"size": 4}}) == 2
    assert generation({"metadata": {"generation": 9}}) == 2
    assert generation({"spec": {"size": 5}, "metadata": {"generation": 9}}) == 3


def test_a_write_that_changes_nothing(server: Server, namespace: str) -> None:
    """The version stays, whichever way it is written."""
    created = server.create(widgets(namespace), widget(size=4))
    path = widgets(namespace, "w")

    same = [
        server.send("PUT", path, created).ok(),
        server.patch(path, {"spec": {"size": 4}}).ok(),
        server.patch(path, [], as_=JSON_PATCH).ok(),
        server.patch(path, [{"op": "replace", "path": "/spec/size", "value": 4}], as_=JSON_PATCH).ok(),
    ]

    assert [each["metadata"]["resourceVersion"] for each in same] == [created["metadata"]["resourceVersion"]] * 4


def test_status_isolation(server: Server, namespace: str) -> None:
    """The two halves of an object are written through two doors."""
    path = widgets(namespace, "w")
    created = server.create(widgets(namespace), widget(size=4, status={"phase": "mine"}))
    assert "status" not in created

    through_main = server.patch(path, {"status": {"phase": "x"}}).ok()
    through_status = server.patch(
        path + "/status", {"status": {"phase": "y"}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}}
    ).ok()
    replaced = server.send("PUT", path, {**through_status, "status": {"phase": "z"}, "spec": {"size": 5}}).ok()

    assert "status" not in through_main
    assert through_main["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    assert (through_status["status"], through_status["spec"]["size"]) == ({"phase": "y"}, 4)
    assert "labels" not in through_status["metadata"]
    assert (replaced["status"], replaced["spec"]["size"]) == ({"phase": "y"}, 5)
    assert server.get(path + "/status").ok() == server.get(path).ok()


def test_optimistic_concurrency(server: Server, namespace: str) -> None:
    """Who writes on what he has not seen is refused, by every verb that carries a version."""
    path = widgets(namespace, "w")
    first = server.create(widgets(namespace), widget())
    server.patch(path, {"spec": {"size": 4}}).ok()
    old = first["metadata"]["resourceVersion"]
    conflict = refused(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on widgets.{GROUP} "w": the object has been modified; '
        "please apply your changes to the latest version and try again",
        name="w",
        group=GROUP,
        kind="widgets",
    )

    assert server.send("PUT", path, {**first, "spec": {"size": 5}}).refusal == conflict
    assert server.send("PUT", path + "/status", {**first, "status": {"phase": "x"}}).refusal == conflict
    assert server.patch(path, {"metadata": {"resourceVersion": old}, "spec": {"size": 5}}).refusal == conflict
    applied = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"resourceVersion": old}, "spec": {"size": 5}}
    assert server.apply(path, applied, force=True).refusal == conflict
    assert server.get(path).ok()["spec"]["size"] == 4


def test_unconditional_update(server: Server, namespace: str) -> None:
    """A built-in kind lets a PUT without a version pass; a custom one does not (test_bad_input)."""
    server.create(maps(namespace), config_map(a="1"))

    updated = server.send("PUT", maps(namespace, "m"), config_map(b="2")).ok()

    assert updated["data"] == {"b": "2"}


def test_json_patch_test(server: Server, namespace: str) -> None:
    """The other way to guard a write."""
    path = widgets(namespace, "w")
    server.create(widgets(namespace), widget(size=4))

    def guarded(seen: int) -> list[JsonObject]:
        return [
            {"op": "test", "path": "/spec/size", "value": seen},
            {"op": "replace", "path": "/spec/size", "value": 5},
        ]

    assert server.patch(path, guarded(3), as_=JSON_PATCH).refusal == refused(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    )
    assert server.patch(path, guarded(4), as_=JSON_PATCH).ok()["spec"]["size"] == 5


def test_uid_of_an_update(server: Server, namespace: str) -> None:
    """A PUT that names another uid does not overwrite the object's successor."""
    created = server.create(widgets(namespace), widget())
    path = widgets(namespace, "w")
    server.send("DELETE", path)
    again = server.create(widgets(namespace), widget())
    mine = {**again, "metadata": {**again["metadata"], "uid": created["metadata"]["uid"]}}

    refusal = server.send("PUT", path, mine).refusal

    assert (refusal["code"], refusal["reason"]) == (409, "Conflict")
    assert refusal["message"].startswith(f'Operation cannot be fulfilled on widgets.{GROUP} "w": ')
    assert refusal["message"].endswith(
        f"Precondition failed: UID in precondition: {created['metadata']['uid']}, "
        f"UID in object meta: {again['metadata']['uid']}"
    )


def test_deleted(server: Server, namespace: str) -> None:
    """A custom resource is answered with a Status that names it; so is a built-in one."""
    made = server.create(widgets(namespace), widget())
    server.create(maps(namespace), config_map())

    custom = server.send("DELETE", widgets(namespace, "w"))
    built_in = server.send("DELETE", maps(namespace, "m"))

    assert custom.ok() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "w", "group": GROUP, "kind": "widgets", "uid": made["metadata"]["uid"]},
    }
    assert built_in.ok()["details"].keys() == {"name", "kind", "uid"}
    assert server.get(widgets(namespace, "w")).code == 404
    assert server.send("DELETE", widgets(namespace, "w")).code == 404


def test_delete_preconditions(server: Server, namespace: str) -> None:
    """Only what was meant is deleted."""
    made = server.create(widgets(namespace), widget())["metadata"]
    path = widgets(namespace, "w")

    def delete(**preconditions: str) -> JsonObject:
        return server.send("DELETE", path, {"preconditions": preconditions}).json

    other = delete(uid="x")
    assert (other["code"], other["reason"]) == (409, "Conflict")
    assert other["message"] == (
        f'Operation cannot be fulfilled on Widget.{GROUP} "w": the UID in the precondition (x) does not match the UID '
        f"in record ({made['uid']}). The object might have been deleted and then recreated"
    )
    old = delete(resourceVersion="1")
    assert (old["code"], old["reason"]) == (409, "Conflict")
    assert old["message"] == (
        f'Operation cannot be fulfilled on Widget.{GROUP} "w": the ResourceVersion in the precondition (1) does not '
        f"match the ResourceVersion in record ({made['resourceVersion']}). The object might have been modified"
    )
    assert server.get(path).code == 200
    assert delete(uid=made["uid"], resourceVersion=made["resourceVersion"])["status"] == "Success"


def test_finalizers(server: Server, namespace: str) -> None:
    """A deleted object stays, marked, until the last finalizer is gone; nothing new may hold it."""
    path = widgets(namespace, "w")
    made = server.create(widgets(namespace), widget(metadata={"finalizers": ["example.com/a", "example.com/b"]}))

    dying = server.send("DELETE", path)
    again = server.send("DELETE", path).ok()
    fewer = server.patch(path, {"metadata": {"finalizers": ["example.com/b"]}}).ok()
    more = server.patch(path, {"metadata": {"finalizers": ["example.com/b", "example.com/c"]}})
    changed = server.patch(path, {"spec": {"size": 9}}).ok()
    last = server.patch(path, {"metadata": {"finalizers": []}}).ok()

    assert dying.code == 200
    marked = dying.ok()["metadata"]
    assert TIME.fullmatch(marked["deletionTimestamp"])
    assert marked["deletionGracePeriodSeconds"] == 0
    assert marked["generation"] == made["metadata"]["generation"] + 1
    assert again["metadata"]["resourceVersion"] == marked["resourceVersion"]
    assert fewer["metadata"]["finalizers"] == ["example.com/b"]
    assert more.refusal["details"]["causes"][:1] == [
        {
            "reason": "FieldValueForbidden",
            "message": "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
            '[]string{"example.com/c"}',
            "field": "metadata.finalizers",
        }
    ]
    assert changed["spec"]["size"] == 9
    assert last["metadata"]["deletionTimestamp"] == marked["deletionTimestamp"]
    assert server.get(path).code == 404


def test_a_name_is_free_again(server: Server, namespace: str) -> None:
    """An object that is dying keeps its name; one that is gone does not, and its successor is another."""
    path = widgets(namespace, "w")
    held = widget(metadata={"finalizers": ["example.com/a"]})
    first = server.create(widgets(namespace), held)
    server.send("DELETE", path)

    refusal = server.send("POST", widgets(namespace), widget()).refusal
    server.patch(path, {"metadata": {"finalizers": None}}).ok()
    second = server.create(widgets(namespace), widget())

    assert refusal["reason"] == "AlreadyExists"
    assert refusal["message"] in {
        f'widgets.{GROUP} "w" already exists',
        f'object is being deleted: widgets.{GROUP} "w" already exists',
    }
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


def test_delete_collection(server: Server, namespace: str) -> None:
    """All that are selected go; the answer lists them."""
    for name in "abc":
        server.create(maps(namespace), {"metadata": {"name": name, "labels": {"kind": "x" if name < "c" else "y"}}})

    answer = server.send("DELETE", maps(namespace, query="?labelSelector=kind%3Dx")).ok()

    assert (answer["kind"], answer["apiVersion"]) == ("ConfigMapList", "v1")
    assert names(answer) == ["a", "b"]
    assert names(server.get(maps(namespace)).ok()) == ["c"]
    assert names(server.send("DELETE", maps(namespace, query="?fieldSelector=metadata.name%3Dnope")).ok()) == []
    server.send("DELETE", maps(namespace)).ok()
    assert names(server.get(maps(namespace)).ok()) == []


def test_delete_collection_of_custom_resources(server: Server, namespace: str) -> None:
    """Those with finalizers stay, marked."""
    server.create(widgets(namespace), widget("a"))
    server.create(widgets(namespace), widget("b", metadata={"finalizers": ["example.com/a"]}))

    answer = server.send("DELETE", widgets(namespace)).ok()

    assert (answer["kind"], names(answer)) == ("WidgetList", ["a", "b"])
    left = server.get(widgets(namespace)).ok()["items"]
    assert [(item["metadata"]["name"], "deletionTimestamp" in item["metadata"]) for item in left] == [("b", True)]
    server.patch(widgets(namespace, "b"), {"metadata": {"finalizers": None}})


def test_dry_run(server: Server, namespace: str) -> None:
    """Every verb answers as if it had been done, and nothing has."""
    path, dry = widgets(namespace, "w"), "?dryRun=All"

    created = server.send("POST", widgets(namespace, query=dry), widget("x"))
    generated = server.send("POST", widgets(namespace, query=dry), {**widget(), "metadata": {"generateName": "g-"}})
    assert created.code == 201
    assert created.ok()["metadata"]["generation"] == 1
    assert "resourceVersion" not in created.ok()["metadata"]
    assert re.fullmatch("g-[a-z0-9]{5}", generated.ok()["metadata"]["name"])
    assert server.get(widgets(namespace, "x")).code == 404

    made = server.create(widgets(namespace), widget(size=4))
    put = server.send("PUT", path + dry, {**made, "spec": {"size": 5}})
    patched = server.patch(path + dry, {"spec": {"size": 6}})
    applied = server.apply(path + dry, {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "spec": {"size": 7}}, force=True)
    status = server.patch(path + "/status" + dry, {"status": {"phase": "x"}})
    new = server.apply(widgets(namespace, "new") + dry, widget("new"))
    assert [each.ok()["spec"]["size"] for each in (put, patched, applied)] == [5, 6, 7]
    assert put.ok()["metadata"]["generation"] == 2
    assert put.ok()["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert status.ok()["status"] == {"phase": "x"}
    assert new.code == 201
    deleted = server.send("DELETE", path + dry)
    in_body = server.send("DELETE", path, {"dryRun": ["All"]})
    collection = server.send("DELETE", widgets(namespace, query=dry))
    assert (deleted.ok()["status"], in_body.ok()["status"]) == ("Success", "Success")
    assert names(collection.ok()) == ["w"]

    assert server.get(widgets(namespace)).ok()["items"] == [made]


def test_dry_run_is_refused_as_the_real_run_is(server: Server, namespace: str) -> None:
    """Validation, existence and versions are looked at."""
    server.create(widgets(namespace), widget())
    dry = "?dryRun=All"

    assert server.send("POST", widgets(namespace, query=dry), widget()).refusal["reason"] == "AlreadyExists"
    assert server.send("POST", widgets(namespace, query=dry), widget("x", size=11)).refusal["reason"] == "Invalid"
    assert server.patch(widgets(namespace, "x") + dry, {}).refusal["reason"] == "NotFound"
    old = widget(metadata={"resourceVersion": "1"})
    assert server.send("PUT", widgets(namespace, "w") + dry, old).refusal["reason"] == "Conflict"


def test_cluster_scoped(server: Server, namespace: str) -> None:
    """An object outside namespaces; the namespace it may be given is forgotten."""
    name = f"g-{namespace}"

    made = server.create(gadgets(), gadget(name, metadata={"name": name, "namespace": "other"}, anything=[1]))

    assert "namespace" not in made["metadata"]
    assert made["anything"] == [1]
    assert server.get(gadgets(name)).ok() == made
    server.send("DELETE", gadgets(name)).ok()


def test_large(server: Server, namespace: str) -> None:
    """An object of 900 KB is no trouble."""
    made = server.create(maps(namespace), config_map(a="x" * 900_000))

    assert server.get(maps(namespace, "m")).ok() == made


def test_numbers(server: Server, namespace: str) -> None:
    """Whole numbers of 64 bits are kept to the last digit, larger ones to the 17th; fractions stay fractions."""
    name = f"n-{namespace}"
    text = (
        f'{{"apiVersion":"{GROUP}/v1","kind":"Gadget","metadata":{{"name":"{name}"}},'
        '"numbers":[9007199254740993,-9223372036854775808,0.5,1e3,1.0,9223372036854775807,1e21,12345678901234567890]}'
    )

    answer = server.send("POST", gadgets(), text)
    server.send("DELETE", gadgets(name))

    assert answer.code == 201
    numbers = answer.ok()["numbers"]
    assert numbers == [
        9007199254740993,
        -9223372036854775808,
        0.5,
        1000,
        1,
        9223372036854775807,
        1e21,
        12345678901234567000,
    ]
    assert [type(number) for number in numbers] == [int, int, float, int, int, int, float, int]


def test_text(server: Server, namespace: str) -> None:
    """Any text comes back as it was."""
    values = {"a": "ünïcödé 💥", "b": "line\nline\ttab", "c": '"quoted" <html> & more', "d": " "}

    made = server.create(maps(namespace), config_map(**values))

    assert server.get(maps(namespace, "m")).ok()["data"] == made["data"] == values
