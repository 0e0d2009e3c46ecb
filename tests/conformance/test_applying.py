"""Server-side apply: who owns which field, who may take it, and what managedFields tell of it."""

from __future__ import annotations

import re
from typing import Any

from tests.conformance.asking import refused
from tests.conformance.definitions import GROUP, config_map, maps, widget, widgets
from tests.conformance.servers import MERGE, JsonObject, Server


def applied(server: Server, namespace: str, manager: str, *, force: bool = False, **spec: Any) -> JsonObject:
    """Apply a Widget."""
    return server.apply(widgets(namespace, "w"), widget("w", **spec), manager=manager, force=force).ok()


def owned(obj: JsonObject) -> dict[tuple[str, str, str], JsonObject]:
    """Return the fields of each manager, operation and subresource."""
    return {
        (each["manager"], each["operation"], each.get("subresource", "")): each["fieldsV1"]
        for each in obj["metadata"].get("managedFields", [])
    }


def conflicting(*conflicts: tuple[str, str]) -> JsonObject:
    """What an apply is answered that would take these fields of these managers."""
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": field}
        for manager, field in conflicts
    ]
    managers = {manager: [field for owner, field in conflicts if owner == manager] for manager, _ in conflicts}
    if len(managers) == len(conflicts) == 1:
        text = f"Apply failed with 1 conflict: conflict with {conflicts[0][0]}: {conflicts[0][1]}"
    else:
        lines = [
            f"conflicts with {manager}:\n" + "\n".join(f"- {field}" for field in fields)
            for manager, fields in managers.items()
        ]
        text = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    return refused(409, "Conflict", text, causes=causes)


def test_creates(server: Server, namespace: str) -> None:
    """Applying what is not there creates it (201), with the applied fields owned."""
    answer = server.apply(widgets(namespace, "w"), widget("w", size=4, tags=["a"]), manager="ann")

    made = answer.ok()
    assert answer.code == 201
    assert made["spec"] == {"size": 4, "mode": "safe", "tags": ["a"]}
    (entry,) = made["metadata"]["managedFields"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry.pop("time"))
    assert entry == {
        "apiVersion": f"{GROUP}/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:size": {}, "f:tags": {'v:"a"': {}}}},
        "manager": "ann",
        "operation": "Apply",
    }


def test_again(server: Server, namespace: str) -> None:
    """The same once more changes nothing, not even the version."""
    first = applied(server, namespace, "ann", size=4)

    assert applied(server, namespace, "ann", size=4) == first


def test_yaml(server: Server, namespace: str) -> None:
    """The body is YAML; JSON is YAML."""
    text = f"apiVersion: {GROUP}/v1\nkind: Widget\nmetadata: {{name: w}}\nspec:\n  size: 4\n"

    assert server.apply(widgets(namespace, "w"), text).ok()["spec"]["size"] == 4


def test_what_is_left_out_goes(server: Server, namespace: str) -> None:
    """A field that its only owner applies no more is removed; with a default, it gets that."""
    applied(server, namespace, "ann", size=4, owner="ann", labels={"a": "1", "b": "2"}, tags=["x", "y"])

    made = applied(server, namespace, "ann", labels={"b": "2"}, tags=["y"])

    assert made["spec"] == {"size": 3, "mode": "safe", "labels": {"b": "2"}, "tags": ["y"]}


def test_conflict(server: Server, namespace: str) -> None:
    """Another's field with another value is refused, and all are named."""
    applied(server, namespace, "ann", size=4, owner="ann")

    one = server.apply(widgets(namespace, "w"), widget("w", size=5), manager="bob")
    two = server.apply(widgets(namespace, "w"), widget("w", size=5, owner="bob"), manager="bob")

    assert one.refusal == conflicting(('"ann"', ".spec.size"))
    assert two.refusal == conflicting(('"ann"', ".spec.owner"), ('"ann"', ".spec.size"))


def test_conflict_with_an_update(server: Server, namespace: str) -> None:
    """Who wrote by another verb owns what he wrote; the message says how and in which version."""
    server.send("POST", widgets(namespace, query="?fieldManager=eve"), widget("w", size=4)).ok()

    refusal = server.apply(widgets(namespace, "w"), widget("w", size=5), manager="bob").refusal

    assert refusal == conflicting((f'"eve" using {GROUP}/v1', ".spec.size"))


def test_force(server: Server, namespace: str) -> None:
    """It takes the field away from the other."""
    applied(server, namespace, "ann", size=4, owner="ann")

    made = applied(server, namespace, "bob", force=True, size=5)

    assert made["spec"]["size"] == 5
    assert owned(made) == {
        ("ann", "Apply", ""): {"f:spec": {"f:owner": {}}},
        ("bob", "Apply", ""): {"f:spec": {"f:size": {}}},
    }


def test_shared(server: Server, namespace: str) -> None:
    """The same value is owned together: it stays until the last owner leaves it out."""
    applied(server, namespace, "ann", code="AB1", size=4)
    both = applied(server, namespace, "bob", code="AB1")
    assert owned(both) == {
        ("ann", "Apply", ""): {"f:spec": {"f:code": {}, "f:size": {}}},
        ("bob", "Apply", ""): {"f:spec": {"f:code": {}}},
    }

    assert applied(server, namespace, "ann", size=4)["spec"]["code"] == "AB1"
    gone = applied(server, namespace, "bob")
    assert "code" not in gone["spec"]
    assert owned(gone) == {("ann", "Apply", ""): {"f:spec": {"f:size": {}}}, ("bob", "Apply", ""): {"f:spec": {}}}


def test_elements_of_lists(server: Server, namespace: str) -> None:
    """Lists with keys and sets have many owners, atomic ones one."""
    applied(server, namespace, "ann", parts=[{"name": "a", "amount": 1}], tags=["x"], steps=["1"])

    both = applied(server, namespace, "bob", parts=[{"name": "b"}, {"name": "a", "colour": "red"}], tags=["y"])
    refusal = server.apply(widgets(namespace, "w"), widget("w", steps=["2"]), manager="bob").refusal

    assert both["spec"]["parts"] == [{"name": "b", "amount": 1}, {"name": "a", "amount": 1, "colour": "red"}]
    assert both["spec"]["tags"] == ["x", "y"]
    assert owned(both) == {
        ("ann", "Apply", ""): {
            "f:spec": {
                "f:parts": {'k:{"name":"a"}': {".": {}, "f:amount": {}, "f:name": {}}},
                "f:steps": {},
                "f:tags": {'v:"x"': {}},
            }
        },
        ("bob", "Apply", ""): {
            "f:spec": {
                "f:parts": {
                    'k:{"name":"a"}': {".": {}, "f:colour": {}, "f:name": {}},
                    'k:{"name":"b"}': {".": {}, "f:name": {}},
                },
                "f:tags": {'v:"y"': {}},
            }
        },
    }
    assert refusal == conflicting(('"ann"', ".spec.steps"))
    less = applied(server, namespace, "bob")
    assert less["spec"]["parts"] == [{"name": "a", "amount": 1}]
    assert less["spec"]["tags"] == ["x"]


def test_conflict_in_an_element(server: Server, namespace: str) -> None:
    """The path shows the key."""
    applied(server, namespace, "ann", parts=[{"name": "a", "amount": 1}])

    refusal = server.apply(
        widgets(namespace, "w"), widget("w", parts=[{"name": "a", "amount": 2}]), manager="bob"
    ).refusal

    assert refusal == conflicting(('"ann"', '.spec.parts[name="a"].amount'))


def test_order_of_elements(server: Server, namespace: str) -> None:
    """The applied order is kept."""
    applied(server, namespace, "ann", tags=["c", "a", "b"], parts=[{"name": "z"}, {"name": "y"}])

    made = applied(
        server, namespace, "ann", tags=["b", "c", "a", "d"], parts=[{"name": "y"}, {"name": "x"}, {"name": "z"}]
    )

    assert made["spec"]["tags"] == ["b", "c", "a", "d"]
    assert [part["name"] for part in made["spec"]["parts"]] == ["y", "x", "z"]


def test_updates_are_recorded(server: Server, namespace: str) -> None:
    """Other verbs own what they change, under the manager named or the user agent's first part."""
    path = widgets(namespace, "w")
    server.send("POST", widgets(namespace), widget("w", size=4), user_agent="maker/1.2 (linux)").ok()
    server.send("PATCH", path, {"spec": {"mode": "fast"}}, as_=MERGE, user_agent="changer").ok()
    made = server.send("PATCH", path + "?fieldManager=named", {"spec": {"size": 5}}, as_=MERGE, user_agent="x/1").ok()

    assert owned(made) == {
        ("maker", "Update", ""): {"f:spec": {}},
        ("changer", "Update", ""): {"f:spec": {"f:mode": {}}},
        ("named", "Update", ""): {"f:spec": {"f:size": {}}},
    }


def test_metadata_is_recorded(server: Server, namespace: str) -> None:
    """Labels, annotations, finalizers and owners are owned one by one; identity is nobody's."""
    made = widget("w", metadata={"labels": {"a": "1"}, "annotations": {"b": "2"}, "finalizers": ["example.com/x"]})
    # Of a kind that is not served: a garbage collector lets alone what such a one owns.
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "other.example.com/v1", "kind": "Other", "name": "o", "uid": "1"}
    ]

    created = server.create(widgets(namespace), made)

    assert owned(created) == {
        ("unknown", "Update", ""): {
            "f:metadata": {
                "f:annotations": {".": {}, "f:b": {}},
                "f:finalizers": {".": {}, 'v:"example.com/x"': {}},
                "f:labels": {".": {}, "f:a": {}},
                "f:ownerReferences": {".": {}, 'k:{"uid":"1"}': {}},
            },
            "f:spec": {".": {}, "f:mode": {}, "f:size": {}},
        }
    }
    server.patch(widgets(namespace, "w"), {"metadata": {"finalizers": None}}).ok()


def test_status_is_recorded_apart(server: Server, namespace: str) -> None:
    """A writer of the status is another manager, with its subresource."""
    path = widgets(namespace, "w")
    applied(server, namespace, "ann", size=4)
    condition = {"type": "Ready", "status": "True"}

    status = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "status": {"conditions": [condition]},
    }
    made = server.apply(path + "/status", status, manager="ann").ok()

    assert made["status"] == {"conditions": [condition]}
    assert owned(made) == {
        ("ann", "Apply", ""): {"f:spec": {"f:size": {}}},
        ("ann", "Apply", "status"): {
            "f:status": {"f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:status": {}, "f:type": {}}}}
        },
    }
    again = applied(server, namespace, "ann", size=4)
    assert again == made
    merged = server.send("PATCH", path + "/status?fieldManager=eve", {"status": {"phase": "x"}}, as_=MERGE).ok()
    assert owned(merged)[("eve", "Update", "status")] == {"f:status": {"f:phase": {}}}


def test_status_applied_through_the_main_door(server: Server, namespace: str) -> None:
    """It is left alone and owned by nobody."""
    path = widgets(namespace, "w")
    made = server.apply(path, widget("w", size=4, status={"phase": "x"}), manager="ann").ok()

    assert "status" not in made
    assert owned(made) == {("ann", "Apply", ""): {"f:spec": {"f:size": {}}}}


def test_managed_fields_may_be_cleared(server: Server, namespace: str) -> None:
    """An empty list by another verb forgets all owners; to the next apply, what is there is another's."""
    path = widgets(namespace, "w")
    applied(server, namespace, "ann", size=4)

    cleared = server.patch(path, {"metadata": {"managedFields": [{}]}}).ok()
    made = server.apply(path, widget("w", size=5), manager="bob")

    assert "managedFields" not in cleared["metadata"]
    assert made.refusal == conflicting((f'"before-first-apply" using {GROUP}/v1', ".spec.size"))


def test_built_in(server: Server, namespace: str) -> None:
    """A ConfigMap's entries are owned one by one."""
    path = maps(namespace, "m")
    server.apply(path, config_map("m", a="1", b="2"), manager="ann").ok()

    refusal = server.apply(path, config_map("m", a="3"), manager="bob").refusal
    made = server.apply(path, config_map("m", c="3"), manager="bob").ok()
    less = server.apply(path, config_map("m", b="2"), manager="ann").ok()

    assert refusal == conflicting(('"ann"', ".data.a"))
    assert made["data"] == {"a": "1", "b": "2", "c": "3"}
    assert owned(made) == {
        ("ann", "Apply", ""): {"f:data": {"f:a": {}, "f:b": {}}},
        ("bob", "Apply", ""): {"f:data": {"f:c": {}}},
    }
    assert less["data"] == {"b": "2", "c": "3"}


def test_an_update_takes_fields(server: Server, namespace: str) -> None:
    """A merge patch needs no force: it takes what it changes, and what it removes is nobody's."""
    path = widgets(namespace, "w")
    applied(server, namespace, "ann", size=4, code="AB1")

    made = server.send("PATCH", path + "?fieldManager=eve", {"spec": {"size": 5, "code": None}}, as_=MERGE).ok()

    assert owned(made) == {("eve", "Update", ""): {"f:spec": {"f:size": {}}}}
    refusal = server.apply(path, widget("w", size=6), manager="eve").refusal
    assert refusal == conflicting((f'"eve" using {GROUP}/v1', ".spec.size"))


def test_null_is_not_nothing(server: Server, namespace: str) -> None:
    """What other writes take for a field that is not there is refused in an apply, unless there is a default."""
    answer = server.apply(widgets(namespace, "w"), widget("w", tags=None), manager="ann")

    assert answer.code == 422
    assert 'spec.tags in body must be of type array: "null"' in answer.refusal["message"]
    assert server.apply(widgets(namespace, "w"), widget("w", size=1, mode=None), manager="ann").ok()["spec"] == {
        "size": 1,
        "mode": "safe",
    }
