"""Lists: selection, pages, versions; and the ways to ask for less than whole objects."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from tests.conformance.asking import bad, refused
from tests.conformance.definitions import GROUP, config_map, gadget, gadgets, maps, widget, widgets
from tests.conformance.servers import JsonObject, Server, names

LABELS: dict[str, dict[str, str]] = {
    "a": {"tier": "web", "env": "dev", "n": "5"},
    "b": {"tier": "web", "env": "prod"},
    "c": {"tier": "db", "env": "prod", "example.com/x": "1"},
    "d": {},
    "e": {"tier": ""},
}


@pytest.fixture(scope="module")
def labelled(server: Server) -> str:
    """Name of a namespace with Widgets and ConfigMaps of these labels."""
    namespace = server.namespace()
    for name, labels in LABELS.items():
        mode = "fast" if name in "ab" else "safe"
        server.create(widgets(namespace), widget(name, mode=mode, metadata={"labels": labels}))
        server.create(maps(namespace), {"metadata": {"name": name, "labels": labels}})
    return namespace


@pytest.mark.parametrize("path", [widgets, maps])
@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("tier=web", "ab"),
        ("tier==web", "ab"),
        ("tier!=web", "cde"),
        ("tier=web,env=prod", "b"),
        ("tier in (web,db)", "abc"),
        ("tier in (web, )", "abe"),
        ("tier notin (web,db)", "de"),
        ("tier", "abce"),
        ("!tier", "d"),
        ("tier=", "e"),
        ("tier,tier!=web", "ce"),
        ("example.com/x=1", "c"),
        ("n>4", "a"),
        ("n<5", ""),
        ("n>4,n<6", "a"),
        (" tier = web , env in (dev) ", "a"),
        ("tier in ()", "e"),
        ("", "abcde"),
        ("in=web", ""),
        ("a.b_c-d=x.y_z-1", ""),
    ],
)
def test_label_selectors(server: Server, labelled: str, path: object, selector: str, selected: str) -> None:
    """The grammar of labels, on both sorts of kinds."""
    assert callable(path)
    listed = server.get(path(labelled, query=f"?labelSelector={quote(selector)}")).ok()

    assert "".join(names(listed)) == selected


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("metadata.name=b", "b"),
        ("metadata.name==b", "b"),
        ("metadata.name!=b", "acde"),
        ("metadata.name=b,metadata.name=c", ""),
        ("metadata.name!=a,metadata.name!=b", "cde"),
        ("spec.mode=fast", "ab"),
        ("spec.mode!=fast", "cde"),
        ("spec.mode=fast,metadata.name=a", "a"),
        ("metadata.name=", ""),
        ("", "abcde"),
        (" ", "abcde"),
    ],
)
def test_field_selectors(server: Server, labelled: str, selector: str, selected: str) -> None:
    """By name, and by the fields that the definition says."""
    if selector == " ":
        assert server.get(widgets(labelled, query="?fieldSelector=%20")).code == 400
        return
    listed = server.get(widgets(labelled, query=f"?fieldSelector={quote(selector)}")).ok()

    assert "".join(names(listed)) == selected


def test_namespace_as_a_field(server: Server, labelled: str) -> None:
    """Across namespaces it selects one."""
    listed = server.get(f"/apis/{GROUP}/v1/widgets?fieldSelector=metadata.namespace%3D{labelled}").ok()

    assert "".join(names(listed)) == "abcde"


def test_list(server: Server, labelled: str) -> None:
    """Items by name; a version of the whole; kinds in each item of a custom list, in none of a built-in one."""
    custom = server.get(widgets(labelled)).ok()
    built_in = server.get(maps(labelled)).ok()

    assert (custom["kind"], custom["apiVersion"]) == ("WidgetList", f"{GROUP}/v1")
    assert custom["metadata"].keys() == {"continue", "resourceVersion"}
    assert custom["items"][0]["kind"] == "Widget"
    assert (built_in["kind"], built_in["apiVersion"]) == ("ConfigMapList", "v1")
    assert built_in["metadata"].keys() == {"resourceVersion"}
    assert "kind" not in built_in["items"][0]
    assert "apiVersion" not in built_in["items"][0]
    assert int(built_in["metadata"]["resourceVersion"]) >= int(built_in["items"][-1]["metadata"]["resourceVersion"])


def test_empty_list(server: Server, namespace: str) -> None:
    """A list that nothing is in is an empty list, also in a namespace that is not there."""
    assert server.get(widgets(namespace)).ok()["items"] == []
    assert server.get(maps("nope")).ok()["items"] == []


def test_across_namespaces(server: Server, labelled: str) -> None:
    """All namespaces at once, in the order of namespaces and names."""
    other = server.namespace()
    server.create(widgets(other), widget("a"))

    items = server.get(f"/apis/{GROUP}/v1/widgets").ok()["items"]

    found = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in items]
    assert {(labelled, "a"), (other, "a")} <= set(found)
    assert found == sorted(found)


def test_pages(server: Server, labelled: str) -> None:
    """Pages follow each other; each tells how many are left, if nothing is selected."""
    path = widgets(labelled, query="?limit=2")
    first = server.get(path).ok()
    second = server.get(f"{path}&continue={first['metadata']['continue']}").ok()
    third = server.get(f"{path}&continue={second['metadata']['continue']}").ok()

    assert [names(page) for page in (first, second, third)] == [["a", "b"], ["c", "d"], ["e"]]
    assert [page["metadata"].get("remainingItemCount") for page in (first, second, third)] == [3, 1, None]
    assert third["metadata"].get("continue", "") == ""
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1


def test_pages_of_a_selection(server: Server, labelled: str) -> None:
    """The limit counts what is selected; how many are left is not known."""
    path = maps(labelled, query="?limit=1&labelSelector=tier%3Dweb")
    first = server.get(path).ok()
    second = server.get(f"{path}&continue={first['metadata']['continue']}").ok()

    assert [names(first), names(second)] == [["a"], ["b"]]
    assert "remainingItemCount" not in first["metadata"]


def test_pages_are_of_one_moment(server: Server, namespace: str) -> None:
    """What is written between two pages is not on the second."""
    for name in "abc":
        server.create(maps(namespace), config_map(name, n="old"))
    first = server.get(maps(namespace, query="?limit=1")).ok()
    server.create(maps(namespace), config_map("aa"))
    server.patch(maps(namespace, "b"), {"data": {"n": "new"}}).ok()
    server.send("DELETE", maps(namespace, "c")).ok()

    rest = server.get(maps(namespace, query=f"?continue={first['metadata']['continue']}")).ok()

    assert [(item["metadata"]["name"], item["data"]["n"]) for item in rest["items"]] == [("b", "old"), ("c", "old")]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_continue_token(server: Server, labelled: str) -> None:
    """It is URL-safe base64 of JSON with a version, and cannot be made to leave its namespace."""
    page = server.get(maps(labelled, query="?limit=1")).ok()
    token = page["metadata"]["continue"]
    told = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert told == {"v": "meta.k8s.io/v1", "rv": int(page["metadata"]["resourceVersion"]), "start": "/a\u0000"}

    forged = base64.urlsafe_b64encode(json.dumps({**told, "start": "../x"}).encode()).decode().rstrip("=")
    refusal = server.get(maps(labelled, query=f"?limit=1&continue={forged}")).refusal
    assert refusal == bad("invalid continue token: continue key is not valid: ../x")


@pytest.mark.parametrize(
    "query", ["", "?resourceVersion=0", "?resourceVersion={now}", "?resourceVersion={now}&limit=1"]
)
def test_versions_of_lists(server: Server, labelled: str, query: str) -> None:
    """Not older than asked for."""
    now = server.get(maps(labelled)).ok()["metadata"]["resourceVersion"]

    listed = server.get(maps(labelled, query=query.format(now=now))).ok()

    assert names(listed)[0] == "a"
    assert int(listed["metadata"]["resourceVersion"]) >= int(now)


def test_exact_version(server: Server, namespace: str) -> None:
    """A list as it was."""
    then = server.create(maps(namespace), config_map("a"))["metadata"]["resourceVersion"]
    server.create(maps(namespace), config_map("b"))

    old = server.get(maps(namespace, query=f"?resourceVersion={then}&resourceVersionMatch=Exact")).ok()
    new = server.get(maps(namespace, query=f"?resourceVersion={then}&resourceVersionMatch=NotOlderThan")).ok()

    assert (names(old), old["metadata"]["resourceVersion"]) == (["a"], then)
    assert names(new) == ["a", "b"]


def test_a_version_that_is_not_yet(server: Server, labelled: str) -> None:
    """After a while the server gives up and says how long to wait."""
    answer = server.get(maps(labelled, query="?resourceVersion=999999999999"))

    refusal = answer.refusal
    message = refusal.pop("message")
    assert message.startswith("Timeout: Too large resource version: 999999999999, current: ")
    assert refusal == {
        "code": 504,
        "reason": "Timeout",
        "details": {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    }
    assert answer.headers["retry-after"] == "1"


def test_versions_of_gets(server: Server, namespace: str) -> None:
    """A get may name the least version it wants."""
    made = server.create(maps(namespace), config_map("a"))

    for version in ("", "0", made["metadata"]["resourceVersion"]):
        assert server.get(maps(namespace, "a", query=f"?resourceVersion={version}")).ok() == made


METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def test_metadata_only(server: Server, labelled: str) -> None:
    """An object without what is in it."""
    whole = server.get(widgets(labelled, "a")).ok()

    partial = server.get(widgets(labelled, "a"), accept=METADATA)

    assert partial.ok() == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": whole["metadata"],
    }


def test_metadata_list(server: Server, labelled: str) -> None:
    """A list of them; whoever can take both says so."""
    listed = server.get(maps(labelled), accept=METADATA_LIST + ",application/json").ok()

    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert {item["kind"] for item in listed["items"]} == {"PartialObjectMetadata"}
    assert {item["apiVersion"] for item in listed["items"]} == {"meta.k8s.io/v1"}
    assert names(listed) == list("abcde")


def test_metadata_of_what_cannot(server: Server, labelled: str) -> None:
    """A list is no object; who insists is refused, who takes JSON, too, gets that."""
    insisted = server.get(maps(labelled), accept=METADATA)

    assert insisted.refusal["code"] == 406


def test_table(server: Server, labelled: str) -> None:
    """Rows for people: the columns of the definition, with the metadata of each object."""
    table = server.get(widgets(labelled), accept=TABLE).ok()

    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"].keys() == {"resourceVersion"}
    assert [
        (column["name"], column["type"], column["format"], column["priority"]) for column in table["columnDefinitions"]
    ] == [
        ("Name", "string", "name", 0),
        ("Size", "integer", "", 0),
        ("Phase", "string", "", 0),
        ("Mode", "string", "", 1),
        ("Age", "date", "", 0),
    ]
    assert table["columnDefinitions"][1]["description"] == "How big it is."
    row = table["rows"][0]
    assert row["cells"][:4] == ["a", 3, None, "fast"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "a"
    assert len(table["rows"]) == 5


def test_table_of_one(server: Server, labelled: str) -> None:
    """One object is a table with one row."""
    table = server.get(maps(labelled, "a"), accept=TABLE + ",application/json").ok()

    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["rows"][0]["cells"][:2] == ["a", 0]
    assert len(table["rows"]) == 1


def test_table_with_and_without_objects(server: Server, labelled: str) -> None:
    """As much of the object as is wanted."""
    path = maps(labelled, "a")

    assert server.get(path + "?includeObject=None", accept=TABLE).ok()["rows"][0]["object"] is None
    whole = server.get(path + "?includeObject=Object", accept=TABLE).ok()["rows"][0]["object"]
    assert (whole["kind"], whole["apiVersion"]) == ("ConfigMap", "v1")
    assert server.get(path + "?includeObject=Some", accept=TABLE).refusal == bad(
        'Unable to convert to Table as requested: includeObject: Invalid value: "Some": '
        "must be 'Metadata', 'Object', 'None', or empty"
    )


def test_table_of_a_kind_without_columns(server: Server, namespace: str) -> None:
    """It has a name and an age."""
    name = f"t-{namespace}"
    server.create(gadgets(), gadget(name))

    table = server.get(gadgets(name), accept=TABLE).ok()

    server.send("DELETE", gadgets(name)).ok()
    assert [(column["name"], column["type"]) for column in table["columnDefinitions"]] == [
        ("Name", "string"),
        ("Age", "date"),
    ]
    assert table["rows"][0]["cells"][0] == name


def test_table_of_an_error(server: Server, labelled: str) -> None:
    """A refusal is a Status also to who wants tables."""
    assert server.get(maps(labelled, "nope"), accept=TABLE).refusal == refused(
        404, "NotFound", 'configmaps "nope" not found', name="nope", kind="configmaps"
    )


@pytest.mark.parametrize("verb", ["POST", "PUT", "PATCH", "DELETE"])
def test_table_of_a_write(server: Server, namespace: str, verb: str) -> None:
    """Writers may ask for it, too; kubectl does."""
    path = maps(namespace, "m")
    if verb != "POST":
        server.create(maps(namespace), config_map("m"))
    body: JsonObject | None = {"POST": config_map("m"), "PUT": config_map("m", a="1"), "PATCH": {}}.get(verb)

    answer = server.send(
        verb,
        maps(namespace) if verb == "POST" else path,
        body,
        as_="application/merge-patch+json" if verb == "PATCH" else "application/json",
        accept=TABLE + ",application/json",
    )

    assert answer.ok()["kind"] == ("Status" if verb == "DELETE" else "Table")


def test_forgotten_versions(server: Server, namespace: str) -> None:
    """What is older than the history the server keeps is answered 410, in its own words in each case."""
    for name in "abc":
        server.create(maps(namespace), config_map(name))
    page = server.get(maps(namespace, query="?limit=1")).ok()
    then = page["metadata"]["resourceVersion"]
    server.patch(maps(namespace, "c"), {"data": {"n": "new"}}).ok()

    server.forget_history()

    following = server.get(maps(namespace, query=f"?limit=1&continue={page['metadata']['continue']}")).json
    assert (following["code"], following["reason"]) == (410, "Expired")
    rest = server.get(maps(namespace, query=f"?limit=2&continue={following['metadata']['continue']}")).ok()
    assert [(item["metadata"]["name"], item.get("data")) for item in rest["items"]] == [
        ("b", None),
        ("c", {"n": "new"}),
    ]
    assert following["message"] == (
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
        "the results. Continuing with the provided token results in an inconsistent list - objects that were "
        "created, modified, or deleted between the time the first chunk was returned and now may show up in the "
        "list."
    )
    exact = server.get(maps(namespace, query=f"?resourceVersion={then}&resourceVersionMatch=Exact")).refusal
    assert (exact["code"], exact["reason"]) == (410, "Expired")
    assert exact["message"] == "The resourceVersion for the provided list is too old."
    assert names(server.get(maps(namespace, query=f"?resourceVersion={then}")).ok()) == ["a", "b", "c"]
    with server.watch(maps(namespace, query=f"?watch=1&resourceVersion={then}")) as watch:
        assert watch.code == 200
        event = watch.event()
    assert (event["type"], event["object"]["kind"], event["object"]["code"]) == ("ERROR", "Status", 410)
    assert event["object"]["reason"] == "Expired"
    assert event["object"]["message"].startswith(f"too old resource version: {then} (")
    assert names(server.get(maps(namespace)).ok()) == ["a", "b", "c"]
