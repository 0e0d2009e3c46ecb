"""Stages without steps: what their status becomes, and what they pass on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kargo_py.api.freight import Freight
from kargo_py.api.promotion import Promotion
from kargo_py.api.stage import Stage
from kargo_py.controllers.availability import available_in
from kargo_py.controllers.control_flow import control_flow_status, is_control_flow, origins_passed_on, refusal

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
JsonObject = dict[str, Any]
STEPS = {"spec": {"steps": [{"uses": "argocd-update"}]}}


def stage(status: JsonObject | None = None, annotations: JsonObject | None = None, **sources: Any) -> Stage:
    """Stage gate, which takes Freight of Warehouse w."""
    return Stage.model_validate(
        {
            "metadata": {"name": "gate", "namespace": "shop", "generation": 4, "annotations": annotations or {}},
            "spec": {"requestedFreight": [{"origin": {"kind": "Warehouse", "name": "w"}, "sources": sources}]},
            "status": status or {},
        }
    )


LEFT = {
    "freightHistory": [{"id": "x", "items": {}}],
    "currentPromotion": {"name": "p"},
    "lastPromotion": {"name": "o", "status": {"phase": "Failed"}},
    "autoPromotionEnabled": True,
    "autoPromotionHolds": {"Warehouse/w": {}},
    "health": {"status": "Unhealthy", "issues": ["x"]},
    "metadata": {"kept": 1},
    "conditions": [
        {"type": t, "status": "False", "lastTransitionTime": "2026-11-30T11:00:00Z"}
        for t in ("Ready", "Healthy", "Promoting", "Verified", "Reconciling")
    ],
}


@pytest.mark.parametrize("before", [{}, LEFT], ids=["new", "had steps before"])
def test_status(before: JsonObject) -> None:
    """It is ready, health does not apply, and nothing of Promotions is left; looking again changes nothing."""
    status = control_flow_status(stage(before), NOON)
    again = control_flow_status(stage(status.wire()), NOON + timedelta(hours=1))

    (ready,) = status.wire().pop("conditions")
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "True", "Ready")
    assert ready["lastTransitionTime"] == "2026-11-30T12:00:00Z"
    assert {name: value for name, value in status.wire().items() if name != "conditions"} == {
        "freightSummary": "N/A",
        "health": {"status": "NotApplicable"},
        "observedGeneration": 4,
        **({"metadata": {"kept": 1}} if before else {}),
    }
    assert again.wire() == status.wire()


def test_refresh_is_answered() -> None:
    """As on any Stage."""
    asked = stage(annotations={"kargo.akuity.io/refresh": "now"})

    assert control_flow_status(asked, NOON).last_handled_refresh == "now"


SOAKED = {"stages": ["a", "b"], "requiredSoakTime": "1h"}


def there(**since: str) -> JsonObject:
    """Freight that is verified in these Stages and there since these times; "" is not any more."""
    return {
        "verifiedIn": {name: {"longestSoak": "5m"} for name in since},
        "currentlyIn": {name: {"since": time} for name, time in since.items() if time},
    }


@pytest.mark.parametrize(
    ("sources", "status", "minutes"),
    [
        ({"direct": True}, {}, 0),
        ({"stages": ["a"]}, {}, None),
        ({"stages": ["a"]}, there(a=""), 0),
        (SOAKED, {}, None),
        (SOAKED, there(a="2026-11-30T11:20:00Z"), 20),
        (SOAKED, there(a="2026-11-30T11:00:00Z"), 0),
        (SOAKED, there(a=""), None),
        (SOAKED, there(a="2026-11-30T11:20:00Z", b="2026-11-30T11:50:00Z"), 20),
        ({**SOAKED, "availabilityStrategy": "All"}, there(a="2026-11-30T11:20:00Z", b="2026-11-30T11:50:00Z"), 50),
        ({**SOAKED, "availabilityStrategy": "All"}, there(a="2026-11-30T11:20:00Z"), None),
        ({**SOAKED, "availabilityStrategy": "All"}, there(a="2026-11-30T10:00:00Z", b="2026-11-30T11:50:00Z"), 50),
        ({"stages": [], "requiredSoakTime": "1h"}, {}, None),
        (SOAKED, {"currentlyIn": {"a": {"since": "2026-11-30T11:00:00Z"}}}, None),
        (SOAKED, {"verifiedIn": {"a": {}}, "currentlyIn": {"a": {}}}, None),
    ],
)
def test_available_in(sources: JsonObject, status: JsonObject, minutes: int | None) -> None:
    """After which time Freight may be taken, if nothing happens; None if something has to."""
    freight = Freight.model_validate(
        {"metadata": {"name": "f"}, "origin": {"kind": "Warehouse", "name": "w"}, "status": status}
    )

    assert available_in(stage(**sources), freight, NOON) == (None if minutes is None else timedelta(minutes=minutes))


def test_available_of_another_origin() -> None:
    """What is not requested is never taken."""
    freight = Freight.model_validate({"metadata": {"name": "f"}, "origin": {"kind": "Warehouse", "name": "v"}})

    assert available_in(stage(direct=True), freight, NOON) is None


@pytest.mark.parametrize(
    "spec", [None, [], {}, {"promotionTemplate": 7}, {"promotionTemplate": {"spec": {"steps": []}}}]
)
def test_json_of_any_form(spec: Any) -> None:
    """Nonsense has no steps, and passes nothing on."""
    raw = {"metadata": {"name": "s", "namespace": "n"}, "spec": spec}

    assert is_control_flow(raw)
    assert origins_passed_on(raw) == []


def test_index() -> None:
    """A Stage without steps is found by the origins it requests; one with steps is not."""
    raw = stage(direct=True).wire()

    assert origins_passed_on(raw) == [("shop", "Warehouse/w")]
    assert origins_passed_on({**raw, "spec": {**raw["spec"], "promotionTemplate": STEPS}}) == []
    assert not is_control_flow({**raw, "spec": {"promotionTemplate": STEPS}})


@pytest.mark.parametrize(("phase", "refused"), [("", True), ("Pending", True), ("Running", False), ("Failed", False)])
def test_refusal(phase: str, refused: bool) -> None:
    """A Promotion that has not begun is told that there is nothing to run; what runs goes on to its end."""
    promotion = Promotion.model_validate(
        {"metadata": {"name": "p"}, "spec": {"stage": "gate"}, "status": {"phase": phase}}
    )

    why = refusal(stage(), promotion)

    assert (why is not None) is refused
    assert not refused or 'Stage "gate" has no steps' in str(why)
