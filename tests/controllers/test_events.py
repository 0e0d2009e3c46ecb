"""What Events say, and under which name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.api.freight import Freight
from kargo_py.api.names import EVENT_PREFIX
from kargo_py.api.promotion import Promotion
from kargo_py.api.stage import Stage
from kargo_py.api.stamp import STATE_KEY
from kargo_py.api.types import Time
from kargo_py.controllers.events import (
    MOST_JSON,
    abort_not_understood_event,
    applications_of,
    bounded_json,
    created_event,
    ended_event,
    ended_event_name,
    ends_of_operations,
    no_stage_event,
    operation_news,
    promotion_annotations,
    verified_event,
)
from kargo_py.deployers.base import Record, TargetState, WaitCause
from kargo_py.kube.resources import Key

TARGET = Key("argocd", "shop")
ORIGIN = {"kind": "Warehouse", "name": "wh"}
COMMIT = {"repoURL": "https://git.example.com/shop", "id": "3f1a"}
REFERENCE = {"name": "f1", "origin": ORIGIN, "commits": [COMMIT], "charts": [{"name": "c", "version": "1.0.0"}]}


def promotion(phase: str = "Succeeded", **status: Any) -> Promotion:
    step = {"uses": "argocd-update", "config": {"apps": [{"name": "shop"}, {"name": "b", "namespace": "team"}, 7]}}
    return Promotion.model_validate(
        {
            "metadata": {
                "name": "dev.1",
                "namespace": "shop",
                "uid": "u1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"stage": "dev", "freight": "f1", "steps": [step]},
            "status": {"phase": phase, **status},
        }
    )


def freight(**more: Any) -> Freight:
    meta = {"name": "f1", "namespace": "shop", "uid": "f", "creationTimestamp": "2025-12-31T00:00:00Z"}
    return Freight.model_validate({"metadata": meta, "origin": ORIGIN, "commits": [COMMIT], **more})


def stage(**spec: Any) -> Stage:
    requested = [{"origin": ORIGIN, "sources": {"direct": True}}]
    meta = {"name": "dev", "namespace": "shop"}
    return Stage.model_validate({"metadata": meta, "spec": {"requestedFreight": requested, **spec}})


def record(state: TargetState = TargetState.PENDING, attempt: int = 1, name: str = "shop") -> Record:
    return Record(
        "argocd", "argocd", name, "u", "sync", attempt, f"v1/s/{attempt}", "7", state=state, message="so it is"
    )


def with_records(*records: Record) -> Promotion:
    return promotion("Running", state={STATE_KEY: [each.wire() for each in records]})


def short(annotations: Any) -> dict[str, str]:
    return {name.removeprefix(EVENT_PREFIX): value for name, value in annotations.items()}


@pytest.mark.parametrize(
    ("phase", "type_"), [("Succeeded", "Normal"), ("Aborted", "Normal"), ("Failed", "Warning"), ("Errored", "Warning")]
)
def test_ends(phase: str, type_: str) -> None:
    """Reason, type and message are Kargo's; verification is only pending after a success."""
    event = ended_event(promotion(phase, message="because"), freight(), stage(verification={}), "argocd")

    assert (event.reason, event.type, event.message) == (f"Promotion{phase}", type_, f"Promotion {phase}: because")
    assert event.name == ended_event_name(promotion(phase))
    pending = short(event.annotations).get("verification-pending")
    assert pending == ("true" if phase == "Succeeded" else None)


def test_content_comes_from_the_record() -> None:
    """What was promoted is told, whatever the Freight says now; from the object come alias and creation time."""
    told = short(promotion_annotations(promotion(freight=REFERENCE), freight(alias="hippo", commits=[]), "argocd"))

    assert json.loads(told["freight-commits"]) == [COMMIT]
    assert json.loads(told["freight-charts"]) == REFERENCE["charts"]
    assert told["freight-alias"] == "hippo"
    assert told["freight-create-time"] == "2025-12-31T00:00:00Z"
    assert told["freight-warehouse-name"] == "wh"
    assert told["actor"] == "controller:promotion-controller"
    assert "freight-images" not in told


def test_freight_that_is_gone() -> None:
    """What is not known is left out; the name is."""
    assert short(promotion_annotations(promotion("Errored"), None, "argocd")) == {
        "actor": "controller:promotion-controller",
        "project": "shop",
        "promotion-name": "dev.1",
        "promotion-create-time": "2026-01-01T00:00:00Z",
        "stage-name": "dev",
        "freight-name": "f1",
        "applications": '[{"Namespace":"argocd","Name":"shop"},{"Namespace":"team","Name":"b"}]',
    }


def test_applications() -> None:
    """Those on record, each once; where there is no record, or none that can be read, those of the steps."""
    assert applications_of(with_records(record(), record(attempt=2), record(name="other")), "argocd") == [
        TARGET,
        Key("argocd", "other"),
    ]
    configured = [TARGET, Key("team", "b")]
    assert applications_of(promotion(), "argocd") == configured
    assert applications_of(promotion(state={STATE_KEY: "edited"}), "argocd") == configured


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5) | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


@given(ANY_JSON)
def test_any_configuration(config: Any) -> None:
    """A step's configuration of whatever form makes no Event fail."""
    spec = {"stage": "dev", "freight": "f1", "steps": [{"uses": "argocd-update", "config": {"apps": config}}]}
    made = Promotion.model_validate({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec})

    event = ended_event(made, None, None, "argocd")

    assert all(event.annotations.values())


@given(
    st.lists(st.dictionaries(st.text(max_size=8), st.text(max_size=80), max_size=4), max_size=60), st.integers(2, 400)
)
def test_bounded_json(items: list[dict[str, str]], most: int) -> None:
    """It is JSON, no longer than allowed, and the first items that fit."""
    text = bounded_json(items, most)

    assert len(text.encode()) <= most
    kept = json.loads(text) if text else []
    assert kept == items[: len(kept)]
    if len(kept) < len(items):
        assert len(json.dumps(items[: len(kept) + 1], ensure_ascii=False, separators=(",", ":")).encode()) > most


def test_all_of_it_is_bounded() -> None:
    """An Event on a Promotion with a thousand of everything stays far below what the server takes."""
    many = [
        {"repoURL": f"https://example.com/{n}", "tag": "x" * 900, "annotations": {"a": "b" * 900}} for n in range(1000)
    ]
    commits = [{**COMMIT, "message": "m" * 3000} for _ in range(1000)]
    reference = {**REFERENCE, "images": many, "commits": commits, "artifacts": [{"metadata": {"x": "y" * 100_000}}]}
    apps = [record(name=f"app-{n}") for n in range(3000)]
    big = promotion(freight=reference, state={STATE_KEY: [each.wire() for each in apps]})
    big.metadata.annotations["kargo.akuity.io/create-actor"] = "a" * 200_000

    event = ended_event(big, freight(), stage(), "argocd")

    size = sum(len(name) + len(text.encode()) for name, text in event.annotations.items())
    assert size < 5 * MOST_JSON
    assert json.loads(event.annotations[f"{EVENT_PREFIX}applications"])[0] == {"Namespace": "argocd", "Name": "app-0"}
    assert f"{EVENT_PREFIX}freight-artifacts" not in event.annotations


def test_verified() -> None:
    """On the Freight; one for each verification."""
    at = Time("2026-01-01T10:00:00Z")
    event = verified_event(freight(), stage(), "v1", at=at, promotion="dev.1")

    assert (event.reason, event.message) == ("FreightVerificationSucceeded", 'Freight was verified in Stage "dev"')
    assert (event.regarding.resource.kind, event.regarding.uid, event.key.namespace) == ("Freight", "f", "shop")
    told = short(event.annotations)
    assert told["verification-start-time"] == told["verification-finish-time"] == at
    assert (told["actor"], told["promotion-name"], told["stage-name"]) == (
        "controller:stage-controller",
        "dev.1",
        "dev",
    )
    assert event.name == verified_event(freight(), stage(), "v1", at=None).name
    assert event.name != verified_event(freight(), stage(), "v2", at=at).name


def test_names_tell_promotions_apart() -> None:
    """A Promotion that was deleted and created anew under its name has Events of its own."""
    one, two = promotion(), promotion()
    two = two.replace(metadata=two.metadata.replace(uid="u2"))

    assert ended_event_name(one) != ended_event_name(two)
    assert ended_event_name(one) != ended_event_name(promotion("Failed"))
    assert len(created_event(one, None, "argocd").name) <= 253


def test_warnings() -> None:
    """What keeps a Promotion from being as asked for."""
    for event in (no_stage_event(promotion("")), abort_not_understood_event(promotion(""), "it is 7")):
        assert (event.type, event.regarding.uid) == ("Warning", "u1")


CAUSES: Any = [
    (WaitCause.FOREIGN, {"OperationWaiting"}),
    (WaitCause.OTHER, set()),
    (WaitCause.PICK_UP, {"OperationRequested"}),
    (WaitCause.ASLEEP, {"OperationRequested", "OperationWaiting"}),
    (WaitCause.RUNNING, {"OperationRequested", "OperationPickedUp"}),
    (WaitCause.WINDOW, {"OperationRequested", "OperationPickedUp", "OperationWaiting"}),
    (WaitCause.HELD_UP, {"OperationRequested", "OperationPickedUp", "OperationWaiting"}),
    (WaitCause.STOPPING, {"OperationRequested", "OperationPickedUp"}),
]


@pytest.mark.parametrize(("cause", "reasons"), CAUSES, ids=[cause for cause, _ in CAUSES])
def test_operations(cause: WaitCause, reasons: set[str]) -> None:
    """What can be told of an operation that is waited for; nothing of one that has ended."""
    records = [record(), record(TargetState.SUCCEEDED, name="done")]
    events = list(operation_news(promotion("Running"), records, {TARGET: cause}, "waiting"))

    assert {event.reason for event in events} == reasons
    assert len({event.name for event in events}) == len(reasons)
    again = operation_news(promotion("Running"), [record(attempt=2)], {TARGET: cause}, "waiting")
    assert not {event.name for event in events} & {event.name for event in again}


@pytest.mark.parametrize(
    ("state", "reasons"),
    [
        (TargetState.STOPPED, {"OperationRequested", "OperationTerminated"}),
        (TargetState.SUCCEEDED, {"OperationRequested"}),
        (TargetState.NOT_STARTED, set()),
        (TargetState.REFUSED, set()),
        (TargetState.LOST, set()),
    ],
    ids=lambda value: value.value if isinstance(value, TargetState) else "",
)
def test_ends_of_operations(state: TargetState, reasons: set[str]) -> None:
    """What was too quick to be seen is told at its end; what never began is not told."""
    before, after = with_records(record()), with_records(record(state))

    assert {event.reason for event in ends_of_operations(before, after)} == reasons
    assert list(ends_of_operations(after, after)) == []
