"""The kinds as they are read: nothing is lost, and the plain questions about them have plain answers."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from kargo_py.api.freight import (
    ApprovedStage,
    CurrentStage,
    Freight,
    FreightOrigin,
    FreightReference,
    FreightStatus,
    GitCommit,
    VerifiedStage,
    soak,
)
from kargo_py.api.meta import KubeObject
from kargo_py.api.project import Project
from kargo_py.api.promotion import (
    FreightCollection,
    Promotion,
    PromotionPhase,
    PromotionStep,
    StepStatus,
    phase_of,
    queue_order,
)
from kargo_py.api.stage import HealthState, Stage, VerificationInfo, VerificationPhase, worst
from kargo_py.api.types import Duration, JsonObject, Time
from kargo_py.api.warehouse import Warehouse

WAREHOUSE = {"kind": "Warehouse", "name": "wh"}
REFERENCE = {
    "name": "3f1a0f6",
    "origin": WAREHOUSE,
    "commits": [{"repoURL": "https://h/x", "id": "abc", "healthCheckCommit": "of an old version"}],
}
COLLECTION = {
    "id": "b858cb282617fb0956d960215c8e84d1ccf909c6",
    "items": {"Warehouse/wh": REFERENCE},
    "verificationHistory": [
        {
            "id": "1",
            "phase": "Successful",
            "startTime": "2026-01-31T12:00:00Z",
            "analysisRun": {"namespace": "shop", "name": "dev.01", "phase": "Successful"},
        }
    ],
}

PROMOTION: JsonObject = {
    "apiVersion": "kargo.akuity.io/v1alpha1",
    "kind": "Promotion",
    "metadata": {
        "name": "dev.01jyz8q4n8v5k2m3r7t9w1x6ab.3f1a0f6",
        "namespace": "shop",
        "creationTimestamp": "2026-01-31T12:00:00Z",
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        "ownerReferences": [{"apiVersion": "kargo.akuity.io/v1alpha1", "kind": "Stage", "name": "dev", "uid": "u"}],
    },
    "spec": {
        "stage": "dev",
        "freight": "3f1a0f6",
        "target": "of the commercial edition",
        "vars": [{"name": "image", "value": "${{ vars.other }}"}],
        "steps": [
            {
                "uses": "argocd-update",
                "as": "update",
                "if": "${{ always() }}",
                "continueOnError": False,
                "retry": {"timeout": "90m", "errorThreshold": 3},
                "config": {"apps": [{"name": "shop", "n": 1.0, "none": None}], "unicode": "ü\u2028"},
            }
        ],
    },
    "status": {
        "phase": "Running",
        "currentStep": 0,
        "freight": REFERENCE,
        "freightCollection": COLLECTION,
        "startedAt": "2026-01-31T12:00:01Z",
        "stepExecutionMetadata": [{"alias": "update", "status": "Running", "startedAt": "2026-01-31T12:00:01+00:00"}],
        "healthChecks": [{"uses": "argocd-update", "config": {"apps": []}}],
        "state": {"update": {"apps": []}, "kargo-py.io/operations": []},
        "operations": [{"kind": "argocd", "state": "Running", "attempt": 1, "changedFields": ["/spec/source"]}],
        "promotionWindowStatus": {"closed": True},
    },
}
STAGE: JsonObject = {
    "apiVersion": "kargo.akuity.io/v1alpha1",
    "kind": "Stage",
    "metadata": {"name": "dev", "namespace": "shop", "generation": 2},
    "spec": {
        "shard": "east",
        "requestedFreight": [
            {
                "origin": WAREHOUSE,
                "sources": {
                    "direct": False,
                    "stages": ["test"],
                    "requiredSoakTime": "1.5h",
                    "availabilityStrategy": "All",
                    "autoPromotionOptions": {"selectionPolicy": "MatchUpstream"},
                },
            },
            {"origin": {"kind": "Warehouse", "name": "other"}, "sources": {"direct": True}},
        ],
        "promotionTemplate": {"spec": {"steps": [{"task": {"name": "deploy", "kind": "ClusterPromotionTask"}}]}},
        "verification": {"analysisTemplates": [{"name": "smoke"}], "args": [{"name": "a", "value": "b"}]},
        "targets": {"selectors": [{"matchLabels": {"a": "b"}}]},
    },
    "status": {
        "conditions": [{"type": "Ready", "status": "True", "reason": "Verified", "message": "", "other": 1}],
        "freightHistory": [COLLECTION, {"id": "old"}],
        "freightSummary": "3f1a0f6",
        "health": {"status": "Degraded", "issues": ["new word"], "output": [{"applicationStatuses": []}]},
        "currentPromotion": {"name": "dev.2"},
        "lastPromotion": {"name": "dev.1", "status": PROMOTION["status"], "finishedAt": "2026-01-31T12:00:05Z"},
        "autoPromotionHolds": {"Warehouse/wh": {"freightName": "3f1a0f6", "actor": "admin"}},
        "lastPromotionRequest": {"name": "of the commercial edition"},
    },
}
FREIGHT: JsonObject = {
    "apiVersion": "kargo.akuity.io/v1alpha1",
    "kind": "Freight",
    "metadata": {"name": "3f1a0f6", "namespace": "shop"},
    "alias": "brave-bee",
    "origin": WAREHOUSE,
    "commits": REFERENCE["commits"],
    "images": [{"repoURL": "nginx", "tag": "1.27", "digest": "sha256:aa", "annotations": {"a": "b"}}],
    "artifacts": [{"artifactType": "t", "version": "1", "metadata": [1, {"deep": None}]}],
    "status": {
        "currentlyIn": {"dev": {"since": "2026-01-31T12:00:00Z"}},
        "verifiedIn": {"dev": {"verifiedAt": "2026-01-31T12:00:00Z", "longestSoak": "1h0m0.5s"}},
        "approvedFor": {"prod": {"approvedAt": "2026-01-31T12:00:00Z"}},
        "metadata": {"ticket": {"id": 5}},
    },
}
WAREHOUSE_OBJECT: JsonObject = {
    "apiVersion": "kargo.akuity.io/v1alpha1",
    "kind": "Warehouse",
    "metadata": {"name": "wh", "namespace": "shop"},
    "spec": {"interval": "10m", "subscriptions": [{"git": {"repoURL": "https://h/x"}, "name": "app"}]},
    "status": {"lastFreightID": "3f1a0f6", "discoveredArtifacts": {"git": [{"repoURL": "https://h/x"}]}},
}
PROJECT: JsonObject = {
    "apiVersion": "kargo.akuity.io/v1alpha1",
    "kind": "Project",
    "metadata": {"name": "shop"},
    "spec": {"promotionPolicies": "of an old version"},
    "status": {"stats": {"stages": {"count": 3, "health": {"healthy": 2}}}},
}


@pytest.mark.parametrize(
    ("model", "wire"),
    [(Promotion, PROMOTION), (Stage, STAGE), (Freight, FREIGHT), (Warehouse, WAREHOUSE_OBJECT), (Project, PROJECT)],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_nothing_is_lost(model: type[KubeObject], wire: JsonObject) -> None:
    """An object read and written is the object it was, known fields or not, to the last digit."""
    read = model.model_validate(wire)
    assert json.dumps(read.wire(), sort_keys=True) == json.dumps(wire, sort_keys=True)
    assert (read.name, read.namespace) == (wire["metadata"]["name"], wire["metadata"].get("namespace", ""))
    assert model.kind_name == wire["kind"]


@pytest.mark.parametrize(
    ("model", "wire", "place"),
    [
        (Promotion, {"spec": {"freight": "a"}}, ("spec", "stage")),
        (Promotion, {"spec": {"stage": "Dev", "freight": "a"}}, ("spec", "stage")),
        (Promotion, {"spec": {"stage": "dev", "steps": []}}, ("spec", "steps")),
        (Promotion, {"spec": {"stage": "dev", "vars": [{"name": "1a"}]}}, ("spec", "vars", 0, "name")),
        (Stage, {"spec": {"requestedFreight": []}}, ("spec", "requestedFreight")),
        (
            Stage,
            {"spec": {"requestedFreight": [{"origin": {"kind": "Stage", "name": "a"}, "sources": {}}]}},
            ("spec", "requestedFreight", 0, "origin", "kind"),
        ),
        (Freight, {"alias": "a"}, ("origin",)),
        (Warehouse, {"spec": {"subscriptions": []}}, ("spec", "subscriptions")),
    ],
)
def test_what_is_wrong_is_named(model: type[KubeObject], wire: JsonObject, place: tuple[Any, ...]) -> None:
    """An object that breaks a rule of its CRD cannot be read, and the error names the field as users know it."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(wire)
    assert [error["loc"] for error in caught.value.errors()] == [place]


# --- Promotion ------------------------------------------------------------------------------------------------------


def _promotion(status: JsonObject | None, **metadata: Any) -> Promotion:
    wire: JsonObject = {"metadata": metadata, "spec": {"stage": "dev", "freight": "a"}}
    return Promotion.model_validate(wire if status is None else {**wire, "status": status})


@pytest.mark.parametrize(
    ("status", "phase", "finished"),
    [
        (None, PromotionPhase.PENDING, False),
        ({}, PromotionPhase.PENDING, False),
        ({"phase": ""}, PromotionPhase.PENDING, False),
        ({"phase": "Pending"}, PromotionPhase.PENDING, False),
        ({"phase": "Running"}, PromotionPhase.RUNNING, False),
        ({"phase": "Succeeded"}, PromotionPhase.SUCCEEDED, True),
        ({"phase": "Failed"}, PromotionPhase.FAILED, True),
        ({"phase": "Errored"}, PromotionPhase.ERRORED, True),
        ({"phase": "Aborted"}, PromotionPhase.ABORTED, True),
        ({"phase": "Paused"}, "Paused", False),
    ],
    ids=str,
)
def test_phase(status: JsonObject | None, phase: PromotionPhase | str, finished: bool) -> None:
    """No phase is Pending, four are final, and one that a newer Kargo may bring stays the text it is."""
    promotion = _promotion(status)
    assert promotion.phase == phase
    assert promotion.finished is finished
    assert promotion.running is (phase == "Running")
    assert phase_of(promotion.wire()) == phase
    assert promotion.wire().get("status") == status


def test_queue_order() -> None:
    """Promotions run in the order of creation, then of the ULID in the name, then of the name."""
    ulids = ["01jyz8q4n8v5k2m3r7t9w1x6ab", "01jyz8q4n8v5k2m3r7t9w1x6ac"]
    earlier, later = "2026-01-31T12:00:00Z", "2026-01-31T12:00:01Z"
    expected = [
        _promotion(None, name="z", creationTimestamp=earlier),
        _promotion(None, name=f"b.{ulids[0]}.x", creationTimestamp=earlier),
        _promotion(None, name=f"a.{ulids[1]}.x", creationTimestamp=earlier),
        _promotion(None, name="a", creationTimestamp=later),
        _promotion(None, name="b", creationTimestamp=later),
        _promotion(None, name=f"a.b.{ulids[0]}.x", creationTimestamp=later),
    ]
    assert sorted([*expected[3:], *expected[:3]], key=lambda promotion: promotion.queue_order) == expected


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "a.b.c",
        "a.01JYZ8Q4N8V5K2M3R7T9W1X6AB.x",
        "a.81jyz8q4n8v5k2m3r7t9w1x6ab.x",
        "a.01jyz8q4n8v5k2m3r7t9w1x6al.x",
    ],
    ids=["plain", "dots", "upper case", "too large", "no letter of Crockford's"],
)
def test_only_a_ulid_orders(name: str) -> None:
    """A part of a name that only looks like a ULID does not count."""
    assert queue_order(name, None) == ("", "", name)


def test_step_alias() -> None:
    """A step without alias is called by its number, from 1."""
    assert PromotionStep(uses="http").alias(0) == "step-1"
    assert PromotionStep(uses="http", as_="call").alias(0) == "call"
    assert PromotionStep(uses="http", as_=" call ").alias(0) == "call"
    assert PromotionStep(uses="http", as_="  ").alias(2) == "step-3"


def test_severity_of_steps() -> None:
    """The worst step decides how a Promotion ends."""
    order = ["Succeeded", "Skipped", "Running", "Aborted", "Failed", "Errored"]
    assert sorted(StepStatus, key=lambda status: status.severity) == order


# --- Freight --------------------------------------------------------------------------------------------------------

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_freight_reference() -> None:
    """The copy has what the Freight contains, no empty lists, and what we do not know of it."""
    freight = Freight.model_validate(FREIGHT)
    assert freight.reference().wire() == {
        "name": "3f1a0f6",
        **{field: FREIGHT[field] for field in ("origin", "commits", "images", "artifacts")},
    }


def test_collection_with_freight() -> None:
    """New Freight takes the place of what its origin has, others stay, and the verifications are not for it."""
    collection = FreightCollection.model_validate(COLLECTION)
    other = FreightReference(name="b", origin=FreightOrigin(kind="Warehouse", name="other"))
    both = collection.with_freight(other)
    assert both.names == ["3f1a0f6", "b"]
    assert not both.verification_history
    newer = FreightReference(name="c", origin=FreightOrigin(kind="Warehouse", name="wh"), commits=[GitCommit(id="d")])
    assert both.with_freight(newer).names == ["c", "b"]
    assert both.with_freight(newer).id != both.id


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (FreightStatus(), timedelta()),
        (FreightStatus(currently_in={"dev": CurrentStage(since=Time.of(NOON - HOUR))}), timedelta()),
        (FreightStatus(verified_in={"dev": VerifiedStage()}), timedelta()),
        (FreightStatus(verified_in={"dev": VerifiedStage(longest_soak=Duration("2h"))}), 2 * HOUR),
        (
            FreightStatus(
                currently_in={"dev": CurrentStage(since=Time.of(NOON - HOUR))},
                verified_in={"dev": VerifiedStage(longest_soak=Duration("2h"))},
            ),
            2 * HOUR,
        ),
        (
            FreightStatus(
                currently_in={"dev": CurrentStage(since=Time.of(NOON - 3 * HOUR))},
                verified_in={"dev": VerifiedStage(longest_soak=Duration("2h"))},
            ),
            3 * HOUR,
        ),
        (
            FreightStatus(
                currently_in={"dev": CurrentStage(since=Time.of(NOON - HOUR))},
                approved_for={"dev": ApprovedStage()},
                verified_in={"test": VerifiedStage(longest_soak=Duration("2h"))},
            ),
            timedelta(),
        ),
    ],
    ids=["nowhere", "not verified", "verified and left", "left", "was longer before", "longest now", "elsewhere"],
)
def test_soak(status: FreightStatus, expected: timedelta) -> None:
    """Freight soaks where it is verified: as long as it is there, or as it was at most."""
    assert soak(status, "dev", Time.of(NOON)) == expected


# --- Stage ----------------------------------------------------------------------------------------------------------


def test_stage() -> None:
    """A Stage tells what it asks for, what is in it, and whether it deploys anything."""
    stage = Stage.model_validate(STAGE)
    assert list(stage.origins) == ["Warehouse/wh", "Warehouse/other"]
    assert stage.origins["Warehouse/wh"].sources.stages == ["test"]
    assert stage.current_freight is not None
    assert stage.current_freight.names == ["3f1a0f6"]
    assert not stage.is_control_flow
    verification = VerificationInfo.model_validate(stage.current_freight.verification_history[0])
    assert VerificationPhase(verification.phase).terminal
    assert verification.analysis_run is not None
    assert verification.analysis_run.name == "dev.01"


@pytest.mark.parametrize("template", [None, {"spec": {}}], ids=["no template", "no steps"])
def test_control_flow_stage(template: JsonObject | None) -> None:
    """A Stage without steps only passes Freight on; nothing is in it before the first Promotion."""
    spec = {key: value for key, value in STAGE["spec"].items() if key != "promotionTemplate"}
    stage = Stage.model_validate({"spec": spec if template is None else {**spec, "promotionTemplate": template}})
    assert stage.is_control_flow
    assert stage.current_freight is None


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], "Healthy"),
        (["Healthy", "NotApplicable"], "NotApplicable"),
        (["Progressing", "NotApplicable", "Healthy"], "Progressing"),
        (["Progressing", "Unknown"], "Unknown"),
        (["Unhealthy", "Unknown", "Healthy"], "Unhealthy"),
    ],
)
def test_worst_health(states: list[str], expected: str) -> None:
    """The health of many is that of the worst; nothing to judge is healthy."""
    assert worst(HealthState(state) for state in states) is HealthState(expected)
    assert worst(HealthState(state) for state in reversed(states)) is HealthState(expected)


def test_verification_phases() -> None:
    """A verification goes on while it is pending or running."""
    assert [phase for phase in VerificationPhase if not phase.terminal] == ["Pending", "Running"]
