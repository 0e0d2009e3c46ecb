"""The models: nothing is lost, and nothing is made up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.api.freight import Freight, FreightOrigin, FreightReference, collection_id, soak
from kargo_py.api.meta import Condition, KubeObject, drop_condition, set_condition
from kargo_py.api.project import Project
from kargo_py.api.promotion import FreightCollection, Promotion, PromotionPhase, StepStatus, queue_order
from kargo_py.api.stage import HealthState, Stage, worst
from kargo_py.api.types import Time
from kargo_py.api.warehouse import Warehouse

JsonObject = dict[str, Any]
NOON = Time("2026-11-30T12:00:00Z")

OBJECTS: list[tuple[type[KubeObject], JsonObject]] = [
    (
        Promotion,
        {
            "apiVersion": "kargo.akuity.io/v1alpha1",
            "kind": "Promotion",
            "metadata": {"name": "p", "managedFields": [{"manager": "x"}], "annotations": {"a": "b"}},
            "spec": {
                "stage": "dev",
                "freight": "f",
                "steps": [
                    {"uses": "x", "as": "a", "if": "${{ true }}", "config": {"n": 1.5, "b": None, "l": [1, "x", {}]}},
                    {"uses": "y", "retry": {"timeout": "5m0s", "errorThreshold": 3}, "continueOnError": False},
                ],
                "notOurs": {"deep": [1, 2]},
            },
            "status": {
                "phase": "Paused",
                "startedAt": "2026-11-30T12:00:00+00:00",
                "state": {"a": {"x": None}},
                "freight": {"name": "f", "origin": {"kind": "Warehouse", "name": "w", "zone": "eu"}},
            },
        },
    ),
    (
        Stage,
        {
            "kind": "Stage",
            "metadata": {"name": "dev"},
            "spec": {
                "requestedFreight": [
                    {"origin": {"kind": "Warehouse", "name": "w"}, "sources": {"requiredSoakTime": "1h30m"}}
                ],
                "targets": {"selectors": []},
                "verification": {"analysisTemplates": [{"name": "t"}]},
            },
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-30T12:00:00Z"}],
                "freightHistory": [{"id": "x", "items": {"Warehouse/w": {"name": "f"}}, "verificationHistory": []}],
                "promotionWindowStatus": {"closed": True},
            },
        },
    ),
    (
        Freight,
        {
            "metadata": {"name": "f"},
            "alias": "odd-otter",
            "origin": {"kind": "Warehouse", "name": "w"},
            "commits": [{"repoURL": "https://x", "id": "abc", "extra": 1}],
            "status": {"verifiedIn": {"dev": {"longestSoak": "36h0m0s"}}, "metadata": {"k": {"v": [None]}}},
        },
    ),
    (Project, {"metadata": {"name": "shop"}, "spec": {"old": True}, "status": {"stats": {"stages": {"count": 3}}}}),
    (Warehouse, {"metadata": {"name": "w"}, "spec": {"subscriptions": [{"git": {"repoURL": "x"}}], "interval": "5m"}}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "obj"), OBJECTS, ids=[m.kind_name for m, _ in OBJECTS])
def test_nothing_is_lost(model: type[KubeObject], obj: JsonObject) -> None:
    """What is read is written again exactly: unknown fields and phases, explicit nulls and empty lists included."""
    assert obj == model.model_validate(obj).wire()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, st.dictionaries(st.text(min_size=1), JSON, max_size=3))
def test_arbitrary_json(config: Any, more: JsonObject) -> None:
    """A step's config is any JSON, and unknown fields of any name and value survive beside it."""
    step = {**more, "uses": "x", "config": config}
    for name in ("task", "as", "if", "continueOnError", "retry", "vars"):
        step.pop(name, None)
    for name in ("as_", "if_", "continue_on_error"):
        step.pop(name, None)
    obj = {"metadata": {"name": "p"}, "spec": {"stage": "dev", "steps": [step]}}

    assert obj == Promotion.model_validate(obj).wire()


@pytest.mark.parametrize(
    ("phase", "finished"),
    [("", False), ("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True), ("Errored", True),
     ("Aborted", True), ("Paused", False)],
)  # fmt: skip
def test_phases(phase: str, finished: bool) -> None:
    """An absent phase is Pending; one we do not know is kept, and is no end."""
    promotion = Promotion.model_validate({"spec": {"stage": "dev"}, "status": {"phase": phase} if phase else {}})

    assert (phase or PromotionPhase.PENDING, finished) == (promotion.phase, promotion.finished)


def test_queue_order() -> None:
    """Creation time first, then the ULID, then the name: hand-named Promotions queue fairly."""
    early, late = "2026-11-30T12:00:00Z", "2026-11-30T12:00:01Z"
    ulid = "01k00000000000000000000000"
    names = [
        (f"a.{ulid[:-1]}2.f", late),
        (f"b.{ulid[:-1]}1.f", late),
        ("zzz", early),
        ("hand-named", late),
    ]

    ordered = sorted(names, key=lambda pair: queue_order(*pair))

    assert ["zzz", "hand-named", f"b.{ulid[:-1]}1.f", f"a.{ulid[:-1]}2.f"] == [name for name, _ in ordered]


def test_severity_and_badness() -> None:
    """The orders in which step states and health states get worse."""
    assert list(StepStatus) != sorted(StepStatus)
    assert sorted(StepStatus, key=lambda s: s.severity) == [
        StepStatus.SUCCEEDED,
        StepStatus.SKIPPED,
        StepStatus.RUNNING,
        StepStatus.ABORTED,
        StepStatus.FAILED,
        StepStatus.ERRORED,
    ]
    assert HealthState.UNHEALTHY is worst([HealthState.UNKNOWN, HealthState.UNHEALTHY, HealthState.HEALTHY])
    assert HealthState.HEALTHY is worst([])


def test_conditions_move_by_kubernetes_rules() -> None:
    """LastTransitionTime moves with the status, and only with it; order and other conditions stay."""
    ready = Condition(type="Ready", status="True", reason="A", message="")
    other = Condition(type="Healthy", status="True", reason="", message="")
    later = Time("2026-11-30T13:00:00Z").datetime
    first = set_condition((other,), ready, NOON.datetime)

    same = set_condition(first, ready.replace(reason="B"), later)
    flipped = set_condition(first, ready.replace(status="False"), later)

    assert [c.type for c in same] == ["Healthy", "Ready"]
    assert (same[1].reason, same[1].last_transition_time) == ("B", NOON)
    assert flipped[1].last_transition_time == "2026-11-30T13:00:00Z"
    assert (other,) == drop_condition(first, "Ready")


def test_collections() -> None:
    """New Freight takes the place of its origin's old one; the id is that of the names together."""
    old = FreightReference(name="b", origin=FreightOrigin(kind="Warehouse", name="w1"))
    new = FreightReference(name="a", origin=FreightOrigin(kind="Warehouse", name="w2"))

    both = FreightCollection().with_freight(old).with_freight(new)
    replaced = both.with_freight(FreightReference(name="c", origin=FreightOrigin(kind="Warehouse", name="w1")))

    assert both.names == ["b", "a"]
    assert collection_id(["a", "b"]) == both.id == collection_id(["b", "a"])
    assert {o: r.name for o, r in replaced.items.items()} == {"Warehouse/w1": "c", "Warehouse/w2": "a"}


@pytest.mark.parametrize(
    ("status", "hours"),
    [
        ({}, 0),
        ({"currentlyIn": {"dev": {"since": "2026-11-30T09:00:00Z"}}}, 0),
        ({"verifiedIn": {"dev": {}}, "currentlyIn": {"dev": {"since": "2026-11-30T09:00:00Z"}}}, 3),
        ({"verifiedIn": {"dev": {"longestSoak": "5h"}}}, 5),
        ({"verifiedIn": {"dev": {"longestSoak": "1h"}}, "currentlyIn": {"dev": {"since": "2026-11-30T09:00:00Z"}}}, 3),
    ],
)
def test_soak(status: JsonObject, hours: int) -> None:
    """Soaking needs verification, and counts the longest stay, the present one included."""
    freight = Freight.model_validate({"origin": {"kind": "Warehouse", "name": "w"}, "status": status})

    assert hours * 3600 == soak(freight.status, "dev", NOON).total_seconds()
