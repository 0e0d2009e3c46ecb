"""managedFields of every writer, and server-side apply."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import assume, given, strategies as st

from kargo_py.local.apiserver.failures import Failure
from kargo_py.local.apiserver.fieldsets import FieldSet, field, key, value
from kargo_py.local.apiserver.fieldtypes import Types
from kargo_py.local.apiserver.managed import (
    LAST_APPLIED,
    Applied,
    Writing,
    apply,
    resets,
    update,
    with_old_times,
)
from kargo_py.local.apiserver.managedentries import FieldsV1
from kargo_py.local.apiserver.patches import without_nulls
from kargo_py.local.apiserver.structured import equal
from kargo_py.local.apiserver.wire import JsonObject, copied, encode

STRING: Final[JsonObject] = {"type": "string"}
SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "a": STRING,
                "b": STRING,
                "map": {"type": "object", "additionalProperties": STRING},
                "set": {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
                "list": {"type": "array", "items": STRING},
                "items": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["n"],
                    "items": {"type": "object", "properties": {"n": STRING, "v": STRING}},
                },
            },
        },
        "status": {"type": "object", "properties": {"phase": STRING}},
    },
}
TYPES: Final = Types.of(SCHEMA)
MAIN: Final = Writing(types=TYPES, api_version="x.y/v1", kind="Thing", reset=resets("status"))
STATUS: Final = Writing(types=TYPES, api_version="x.y/v1", kind="Thing", subresource="status", reset=resets("spec"))
START: Final = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def thing(spec: JsonObject | None = None, **metadata: Any) -> JsonObject:
    made: JsonObject = {"apiVersion": "x.y/v1", "kind": "Thing", "metadata": {"name": "n", **metadata}}
    return made if spec is None else {**made, "spec": spec}


def stored(obj: JsonObject) -> JsonObject:
    """As it comes back from the store, in which no null is (validation refuses what apply leaves null)."""
    made: JsonObject = without_nulls(obj)
    made["metadata"].setdefault("uid", "u")
    return made


def applied(
    live: JsonObject | None, spec: JsonObject, manager: str, seconds: int = 0, *, force: bool = False, **metadata: Any
) -> JsonObject:
    made = apply(live, thing(spec, **metadata), manager=manager, now=at(seconds), through=MAIN, force=force)
    return stored(made.object)


def updated(
    live: JsonObject | None, new: JsonObject, manager: str, seconds: int = 0, through: Writing = MAIN
) -> JsonObject:
    new = copied(new)
    entries = update(live, new, manager=manager, now=at(seconds), through=through)
    new["metadata"].pop("managedFields", None)
    if entries:
        new["metadata"]["managedFields"] = entries
    return stored(new)


def owners(obj: JsonObject) -> dict[tuple[str, str], Any]:
    return {
        (entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])
    }


def changed(live: JsonObject, **spec: Any) -> JsonObject:
    """*live* with other fields in its spec; None removes one."""
    new: JsonObject = copied(live)
    new["spec"] = {name: value for name, value in {**new.get("spec", {}), **spec}.items() if value is not None}
    return new


def test_create() -> None:
    """Who creates an object owns every field of it but the server's own."""
    new = thing({"a": "1", "map": {"x": "1"}, "items": [{"n": "i"}]}, labels={"l": "1"}, uid="u", generation=1)
    made = updated(None, new, "me")
    assert made["metadata"]["managedFields"] == [
        {
            "manager": "me",
            "operation": "Update",
            "apiVersion": "x.y/v1",
            "time": "2026-01-02T03:04:05Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
                "f:spec": {
                    ".": {},
                    "f:a": {},
                    "f:items": {".": {}, 'k:{"n":"i"}': {".": {}, "f:n": {}}},
                    "f:map": {".": {}, "f:x": {}},
                },
            },
        }
    ]


def test_update_takes_what_it_changes() -> None:
    """The others keep the rest; what is removed belongs to nobody."""
    live = updated(None, thing({"a": "1", "b": "1", "map": {"x": "1"}}), "one")
    made = updated(live, changed(live, a="2", map=None), "two", 1)
    assert owners(made) == {
        ("one", "Update"): {"f:spec": {".": {}, "f:b": {}}},
        ("two", "Update"): {"f:spec": {"f:a": {}}},
    }
    assert [entry["time"][-3:] for entry in made["metadata"]["managedFields"]] == ["05Z", "06Z"]


def test_update_of_the_same_manager() -> None:
    """It has one entry for all its updates, with the time of the last."""
    live = updated(None, thing({"a": "1"}), "one")
    made = updated(live, changed(live, b="1"), "one", 5)
    assert owners(made) == {("one", "Update"): {"f:spec": {".": {}, "f:a": {}, "f:b": {}}}}
    assert made["metadata"]["managedFields"][0]["time"] == "2026-01-02T03:04:10Z"


def test_update_that_changes_nothing() -> None:
    """All entries stay as they are."""
    live = updated(None, thing({"a": "1"}), "one")
    assert updated(live, live, "two", 5) == live


def test_update_that_only_removes() -> None:
    """Nobody gets a new entry or time."""
    live = updated(None, thing({"a": "1", "b": "1"}), "one")
    made = updated(live, changed(live, b=None), "two", 5)
    assert owners(made) == {("one", "Update"): {"f:spec": {".": {}, "f:a": {}}}}
    assert made["metadata"]["managedFields"][0]["time"] == "2026-01-02T03:04:05Z"


def test_status_has_an_entry_of_its_own() -> None:
    """A write of the resource owns no status, one of the status no spec."""
    live = updated(None, {**thing({"a": "1"}), "status": {"phase": "sent"}}, "one")
    live.pop("status")
    new = {**changed(live, a="2"), "status": {"phase": "p"}}
    made = updated(live, new, "one", 0, STATUS)
    assert owners(live) == {("one", "Update"): {"f:spec": {".": {}, "f:a": {}}}}
    entries = made["metadata"]["managedFields"]
    assert [(entry.get("subresource", ""), entry["fieldsV1"]) for entry in entries] == [
        ("", {"f:spec": {".": {}, "f:a": {}}}),
        ("status", {"f:status": {".": {}, "f:phase": {}}}),
    ]


@pytest.mark.parametrize("reset", [[], [{}], [{"manager": "", "time": None}]], ids=str)
def test_reset(reset: list[Any]) -> None:
    """A client may take all entries away; nobody is tracked then until somebody applies."""
    live = updated(None, thing({"a": "1"}), "one")
    new = changed(live, b="1")
    new["metadata"]["managedFields"] = reset
    made = updated(live, new, "two")
    assert owners(made) == {}
    assert owners(updated(made, changed(made, b="2"), "three")) == {}
    assert owners(applied(made, {"b": "1"}, "four")) == {
        ("four", "Apply"): {"f:spec": {"f:b": {}}},
        ("before-first-apply", "Update"): {"f:spec": {".": {}, "f:a": {}, "f:b": {}}},
    }


@pytest.mark.parametrize(
    "sent",
    [
        None,
        [{"manager": "x"}],
        [{"manager": "x", "operation": "Update", "apiVersion": "x.y/v1"}],
        [{"manager": "x", "operation": "Update", "apiVersion": "x.y/v1", "fieldsType": "FieldsV2"}],
        [{"manager": "x", "operation": "Move", "apiVersion": "x.y/v1", "fieldsType": "FieldsV1"}],
        [{"manager": "x", "operation": "Update", "apiVersion": "", "fieldsType": "FieldsV1"}],
        [{"manager": 3, "operation": "Update", "apiVersion": "x.y/v1", "fieldsType": "FieldsV1"}],
        [
            {
                "manager": "x",
                "operation": "Update",
                "apiVersion": "x.y/v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"a": {}},
            }
        ],
        [{"manager": "x", "operation": "Update", "apiVersion": "x.y/v1", "fieldsType": "FieldsV1", "time": "noon"}],
        ["x"],
        "x",
    ],
    ids=str,
)
def test_what_cannot_be_read_is_not_taken(sent: Any) -> None:
    """The entries that were there are kept."""
    live = updated(None, thing({"a": "1"}), "one")
    new = copied(live)
    new["metadata"]["managedFields"] = sent
    assert owners(updated(live, new, "two")) == owners(live)


def test_a_client_may_change_entries() -> None:
    """What it sends counts; times are kept to the second, in UTC."""
    live = updated(None, thing({"a": "1"}), "one")
    new = copied(live)
    entry = new["metadata"]["managedFields"][0]
    entry.update(manager="other", time="2026-01-02T05:04:05.5+01:00", fieldsV1={"f:spec": {"f:b": {}, "z:q": {}}})
    made = updated(live, new, "two")["metadata"]["managedFields"]
    assert made == [{**entry, "time": "2026-01-02T04:04:05Z", "fieldsV1": {"f:spec": {"f:b": {}}}}]


def test_through_a_subresource_nobody_changes_entries() -> None:
    """They are those of the stored object."""
    live = updated(None, thing({"a": "1"}), "one")
    new = copied(live)
    new["metadata"]["managedFields"] = [{}]
    assert owners(updated(live, new, "two", 0, STATUS)) == owners(live)


def test_old_updates_are_put_together() -> None:
    """There are at most ten; the oldest are one."""
    live = updated(None, thing({"a": "0"}), "m0")
    for number in range(1, 13):
        spec = {**live["spec"], "map": {**live["spec"].get("map", {}), f"k{number}": "v"}}
        live = updated(live, {**live, "spec": spec}, f"m{number}", number)
    entries = live["metadata"]["managedFields"]
    assert [entry["manager"] for entry in entries] == ["ancient-changes", *(f"m{number}" for number in range(4, 13))]
    assert entries[0]["fieldsV1"]["f:spec"]["f:map"].keys() == {".", "f:k1", "f:k2", "f:k3"}
    assert entries[0]["time"] == "2026-01-02T03:04:08Z"


def test_apply_creates() -> None:
    """The applier owns the leaves that it applied."""
    made = apply(None, thing({"a": "1", "map": {}, "set": ["x"]}), manager="me", now=START, through=MAIN)
    assert made.changed
    assert made.object["spec"] == {"a": "1", "map": {}, "set": ["x"]}
    assert owners(made.object) == {("me", "Apply"): {"f:spec": {"f:a": {}, "f:map": {}, "f:set": {'v:"x"': {}}}}}


def test_apply_removes_what_it_no_longer_applies() -> None:
    """But not what somebody else owns, too."""
    live = applied(None, {"a": "1", "b": "1", "set": ["x", "y"], "items": [{"n": "i", "v": "1"}]}, "one")
    live = applied(live, {"b": "1", "set": ["y"]}, "two")
    made = applied(live, {}, "one")
    assert made["spec"] == {"b": "1", "set": ["y"]}
    assert owners(made) == {
        ("one", "Apply"): {"f:spec": {}},
        ("two", "Apply"): {"f:spec": {"f:b": {}, "f:set": {'v:"y"': {}}}},
    }


def test_apply_removes_items_with_what_others_have_put_into_them() -> None:
    """Who applied an item owns it whole; it stays if somebody else has applied it, too."""
    live = applied(None, {"items": [{"n": "i"}, {"n": "j"}, {"n": "k"}]}, "one")
    live = applied(live, {"items": [{"n": "j", "v": "2"}]}, "two")
    live = updated(live, changed(live, items=[{"n": "i", "v": "3"}, *live["spec"]["items"][1:]]), "three")
    assert applied(live, {"items": [{"n": "k"}]}, "one")["spec"] == {"items": [{"n": "j", "v": "2"}, {"n": "k"}]}


def test_an_empty_list_holds_nothing() -> None:
    """Nobody owns an empty list of owned items, and it does not keep what it is in: the real server drops both."""
    live = applied(None, {"a": "1", "set": []}, "one")
    made = apply(live, thing({}), manager="one", now=START, through=MAIN).object
    assert ("spec" in made, owners(made)) == (False, {("one", "Apply"): {"f:spec": {}}})


def test_what_apply_empties_is_null() -> None:
    """As in the real server: its validation refuses that later."""
    live = applied(None, {"items": [{"n": "i"}]}, "one")
    live = updated(live, changed(live, items=[{"n": "i", "v": "2"}]), "two")
    assert apply(live, thing({}), manager="one", now=START, through=MAIN).object["spec"] == {"items": None}


def test_conflict() -> None:
    """The message and its causes are the real server's."""
    live = applied(None, {"a": "1"}, "one")
    live = updated(live, changed(live, b="1", items=[{"n": "i", "v": "1"}]), "two")
    with pytest.raises(Failure) as caught:
        applied(live, {"a": "2", "b": "2", "items": [{"n": "i", "v": "2"}]}, "three")
    failure = caught.value
    assert (failure.code, failure.reason) == (409, "Conflict")
    assert failure.message == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .spec.a\n'
        'conflicts with "two" using x.y/v1:\n- .spec.b\n- .spec.items[n="i"].v'
    )
    assert failure.details == {
        "causes": [
            {"reason": "FieldManagerConflict", "message": f"conflict with {whom}", "field": path}
            for whom, path in (
                ('"one"', ".spec.a"),
                ('"two" using x.y/v1', ".spec.b"),
                ('"two" using x.y/v1', '.spec.items[n="i"].v'),
            )
        ]
    }


def test_order_of_conflicts() -> None:
    """Paths are in the order of the fields, whether something was there before or not."""
    live = applied(None, {"a": "1", "map": {"x": "1"}, "set": ["x"]}, "one", labels={"l": "1"})
    live["spec"].pop("a")
    with pytest.raises(Failure) as caught:
        applied(live, {"a": "2", "map": {"x": "2"}}, "two", labels={"l": "2"})
    causes = (caught.value.details or {})["causes"]
    assert [cause["field"] for cause in causes] == [
        ".metadata.labels.l",
        ".spec.a",
        ".spec.map.x",
    ]


def test_single_conflict() -> None:
    """It has a message of its own."""
    live = stored({**thing({}), "status": {"phase": "p"}})
    live["metadata"]["managedFields"] = update(None, live, manager="one", now=START, through=STATUS)
    new = {**thing({}), "status": {"phase": "q"}}
    with pytest.raises(Failure) as caught:
        apply(live, new, manager="two", now=START, through=STATUS)
    assert caught.value.message == (
        'Apply failed with 1 conflict: conflict with "one" with subresource "status" using x.y/v1: .status.phase'
    )


def test_force() -> None:
    """It takes the fields from the others."""
    live = applied(None, {"a": "1", "b": "1"}, "one")
    made = applied(live, {"a": "2"}, "two", force=True)
    assert made["spec"] == {"a": "2", "b": "1"}
    assert owners(made) == {
        ("one", "Apply"): {"f:spec": {"f:b": {}}},
        ("two", "Apply"): {"f:spec": {"f:a": {}}},
    }


def test_sharing() -> None:
    """Applying the value that is there makes a co-owner, which is written without a time."""
    live = applied(None, {"a": "1"}, "one")
    made = applied(live, {"a": "1"}, "two", 7)
    assert owners(made) == {("one", "Apply"): {"f:spec": {"f:a": {}}}, ("two", "Apply"): {"f:spec": {"f:a": {}}}}
    assert [entry.get("time") for entry in made["metadata"]["managedFields"]] == [None, "2026-01-02T03:04:05Z"]


specs = st.fixed_dictionaries(
    {},
    optional={
        "a": st.sampled_from("12"),
        "b": st.sampled_from("12"),
        "map": st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12"), max_size=2),
        "set": st.lists(st.sampled_from("xyz"), min_size=1, max_size=3, unique=True),
        "list": st.lists(st.sampled_from("xyz"), max_size=2),
        "items": st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12"), min_size=1, max_size=2).map(
            lambda made: [{"n": name, "v": value} for name, value in made.items()]
        ),
    },
)
managers = st.sampled_from(["one", "two", "three"])
histories = st.lists(st.tuples(st.booleans(), managers, specs), min_size=1, max_size=6)


def played(history: list[tuple[bool, str, JsonObject]]) -> JsonObject:
    live: JsonObject | None = None
    for seconds, (applies, manager, spec) in enumerate(history):
        if applies:
            live = applied(live, spec, manager, seconds, force=True)
        else:
            new = thing(spec) if live is None else {**live, "spec": spec}
            live = updated(live, new, manager, seconds)
    assert live
    return live


@given(histories, managers, specs)
def test_applying_twice(history: list[tuple[bool, str, JsonObject]], manager: str, spec: JsonObject) -> None:
    """The second time there is nothing to write, and the time stays."""
    live = apply(played(history), thing(spec), manager=manager, now=at(100), through=MAIN, force=True).object
    assume(owners(live) and live == without_nulls(live))
    again = apply(live, thing(spec), manager=manager, now=at(200), through=MAIN)
    assert again == Applied(live, changed=False)


@given(histories, managers, specs)
def test_what_was_applied_is_there(history: list[tuple[bool, str, JsonObject]], manager: str, spec: JsonObject) -> None:
    """And arguments stay as they were."""
    live = played(history)
    kept = copied(live)
    made = applied(live, spec, manager, force=True)
    for name in ("a", "b", "list"):
        if name in spec:
            assert made["spec"][name] == spec[name]
    assert [item for item in made.get("spec", {}).get("set") or [] if item in spec.get("set", [])] == spec.get(
        "set", []
    )
    assert live == kept


@given(histories)
def test_every_leaf_has_an_owner(history: list[tuple[bool, str, JsonObject]]) -> None:
    """As long as anybody is tracked: nothing is left that nobody manages, and nobody manages what is not there."""
    assume(all(owners(played(history[:length])) for length in range(1, len(history))))
    live = played(history)
    owned = FieldSet()
    for fields in owners(live).values():
        owned |= FieldSet.from_fields(fields)
    spec = live.get("spec") or {}
    for name in ("a", "b", "list"):
        assert (name in spec) == ((field("spec"), field(name)) in owned)
    for item in spec.get("set") or ():
        assert (field("spec"), field("set"), value(item)) in owned
    for item in spec.get("items") or ():
        path = (field("spec"), field("items"), key({"n": item["n"]}) if "n" in item else "")
        assert "v" not in item or (*path, field("v")) in owned or "n" not in item


@given(histories)
def test_entries_survive_the_wire(history: list[tuple[bool, str, JsonObject]]) -> None:
    """What is known of an entry that this server wrote, and what is read from its JSON, is the same."""
    live = played(history)
    read = json.loads(encode(live))
    assert updated(live, changed(live, a="9"), "late", 50) == updated(read, changed(read, a="9"), "late", 50)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({}, "invalid object type: /, Kind="),
        ({"apiVersion": "v1", "kind": "Thing"}, "invalid object type: /v1, Kind=Thing"),
        ({"apiVersion": "x.y/v1", "kind": "Other"}, "invalid object type: x.y/v1, Kind=Other"),
        (thing({}, managedFields=[]), "metadata.managedFields must be nil"),
    ],
    ids=str,
)
def test_what_may_not_be_applied(sent: JsonObject, message: str) -> None:
    """400."""
    with pytest.raises(Failure) as caught:
        apply(None, sent, manager="me", now=START, through=MAIN)
    assert (caught.value.code, caught.value.reason, caught.value.message) == (400, "BadRequest", message)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"a": 1}, ".spec.a: expected string, got &value.valueUnstructured{Value:1}"),
        ({"zz": 1}, ".spec.zz: field not declared in schema"),
        ({"set": ["x", "x"]}, '.spec.set: duplicate entries for key [="x"]'),
    ],
)
def test_what_is_not_of_the_types(spec: JsonObject, problem: str) -> None:
    """500 without a reason, as the real server has it."""
    with pytest.raises(Failure) as caught:
        applied(None, spec, "me", namespace="ns")
    assert caught.value.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"failed to create typed patch object (ns/n; x.y/v1, Kind=Thing): {problem}",
        "code": 500,
    }


def last_applied(obj: JsonObject) -> Any:
    return json.loads(obj["metadata"]["annotations"][LAST_APPLIED])


def test_kubectl_goes_over_to_server_side_apply() -> None:
    """It owns what its annotation says that it has applied before, and keeps the annotation true."""
    before = thing({"a": "1"})
    annotations = {LAST_APPLIED: json.dumps(before)}
    live = updated(None, thing({"a": "1", "b": "1"}, annotations=annotations), "kubectl-client-side-apply")
    made = applied(live, {"a": "<2>"}, "kubectl")
    assert made["spec"] == {"a": "<2>", "b": "1"}
    assert last_applied(made) == thing({"a": "<2>"})
    assert "\\u003c2" in made["metadata"]["annotations"][LAST_APPLIED]
    with pytest.raises(Failure, match=r"1 conflict: .*\.spec\.b"):
        applied(live, {"a": "2", "b": "2"}, "kubectl")
    with pytest.raises(Failure, match=r"1 conflict: .*\.spec\.a"):
        applied(live, {"a": "2"}, "somebody")


@pytest.mark.parametrize(
    "annotation",
    ["", "{", "[]", "3", json.dumps({**thing({"a": "1"}), "apiVersion": "x.y/v2"}), '{"apiVersion":"x.y/v1"}'],
)
def test_kubectl_has_applied_nothing_that_can_be_read(annotation: str) -> None:
    """Then it conflicts as anybody."""
    live = updated(None, thing({"a": "1"}, annotations={LAST_APPLIED: annotation}), "x")
    with pytest.raises(Failure, match="1 conflict"):
        applied(live, {"a": "2"}, "kubectl")


def test_an_annotation_that_would_be_too_large_is_left_out() -> None:
    """All annotations have 256 KiB together."""
    live = updated(None, thing({"a": "1"}, annotations={LAST_APPLIED: json.dumps(thing({"a": "1"}))}), "x")
    made = applied(live, {"a": "x" * 256 * 1024}, "kubectl")
    assert LAST_APPLIED not in made["metadata"]["annotations"]


def test_other_versions() -> None:
    """What was managed in another version's words is still managed, unless there is no such version any more."""
    live = applied(None, {"a": "1"}, "one")
    second = Writing(types=TYPES, api_version="x.y/v2", kind="Thing", others={"x.y/v1": TYPES})
    new = {**thing({"a": "2"}), "apiVersion": "x.y/v2"}
    before = {**live, "apiVersion": "x.y/v2"}
    with pytest.raises(Failure, match='conflict with "one"'):
        apply(before, new, manager="two", now=START, through=second)
    forgetful = Writing(types=TYPES, api_version="x.y/v2", kind="Thing")
    made = apply(before, new, manager="two", now=START, through=forgetful, force=True)
    assert owners(made.object).keys() == {("two", "Apply")}
    entries = update(before, new, manager="two", now=START, through=forgetful)
    assert [entry["manager"] for entry in entries] == ["two"]


def test_only_times_are_different() -> None:
    """Then the live object is as good as the new one."""
    live = updated(None, thing({"a": "1"}), "one")
    new = copied(live)
    new["metadata"]["managedFields"][0]["time"] = "2030-01-01T00:00:00Z"
    assert with_old_times(live, new) is live
    new["spec"]["a"] = "2"
    assert with_old_times(live, new) is new


def test_entries_know_their_sets() -> None:
    """An entry that did not change is not written again."""
    live = updated(None, thing({"a": "1"}), "one")
    before = update(None, live, manager="one", now=START, through=MAIN)
    live["metadata"]["managedFields"] = before
    after = update(live, changed(live, b="1"), manager="two", now=START, through=MAIN)
    assert isinstance(before[0]["fieldsV1"], FieldsV1)
    assert after[0]["fieldsV1"] is before[0]["fieldsV1"]


def test_results_are_private() -> None:
    """A caller may change what apply has made."""
    live = applied(None, {"map": {"x": "1"}, "items": [{"n": "i"}]}, "one")
    kept = copied(live)
    made = apply(live, thing({"a": "1"}), manager="two", now=START, through=MAIN).object
    made["spec"]["map"]["x"] = "2"
    made["spec"]["items"][0]["n"] = "j"
    made["metadata"]["name"] = "z"
    assert equal(live, kept)
