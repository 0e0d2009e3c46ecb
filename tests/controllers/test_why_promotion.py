"""What a Promotion waits for, in words: every cause, and any object whatsoever."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kargo_py.api.abort import ABORT_KEY, ANNOTATION_ABORT
from kargo_py.api.stamp import STATE_KEY, make_stamp
from kargo_py.argocd.application import Application, ApplicationCodec
from kargo_py.argocd.options import SyncOptions
from kargo_py.cli.why import lines
from kargo_py.controllers.running import Options, assemble
from kargo_py.controllers.why import Explanation, Hidden, Seen
from kargo_py.controllers.why_promotion import PromotionFacts, explain_promotion
from kargo_py.controllers.why_promotion_targets import targets
from kargo_py.deployers.base import Before, Record, TargetState
from kargo_py.kube.codec import encode
from kargo_py.kube.resources import Key
from kargo_py.local.apiserver.client import client_of
from kargo_py.steps.registry import BUILT_IN
from tests.in_process import api_server

JsonObject = dict[str, Any]

PAGE = Path(__file__).parents[2] / "docs/how-to/find-out-why.md"

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
APP = Key("argocd", "shop-dev")
NAMED = 'Argo CD Application "shop-dev" in namespace "argocd"'
SHA = "3f1a0f6a5cc6f4ca0e620d9fe9168b8eb724f66e"
STAMP = str(make_stamp("here", "shop", "dev.1", "u1", "update", 1))
THEIRS = {"initiatedBy": {"username": "alice"}, "sync": {}}
OURS = {"info": [{"name": "kargo-py.io/stamp", "value": STAMP}], "sync": {}}


def at(**earlier: float) -> str:
    """The time that much before noon."""
    return (NOON - timedelta(**earlier)).strftime("%Y-%m-%dT%H:%M:%SZ")


def promotion(name: str = "dev.1", status: JsonObject | None = None, **spec: Any) -> JsonObject:
    steps = [{"uses": "argocd-update", "as": "update", "config": {"apps": [{"name": "shop-dev"}]}}]
    return {
        "apiVersion": "kargo.akuity.io/v1alpha1",
        "kind": "Promotion",
        "metadata": {"name": name, "namespace": "shop", "uid": "u1", "creationTimestamp": at(seconds=30)},
        "spec": {"stage": "dev", "freight": "f1", "steps": steps, **spec},
        **({"status": status} if status is not None else {}),
    }


def with_metadata(obj: JsonObject, **metadata: Any) -> JsonObject:
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


def record(**changes: Any) -> Record:
    parts = {"kind": "argocd", "namespace": "argocd", "name": "shop-dev", "uid": "a1", "step": "update", "attempt": 1}
    return Record(**{**parts, "stamp": STAMP, "resource_version": "5", **changes})


def running(*records: Record, message: str = "", state: JsonObject | None = None, **step: Any) -> JsonObject:
    entered = {"alias": "update", "status": "Running", "startedAt": at(seconds=20), **step}
    return {
        "phase": "Running",
        "startedAt": at(seconds=20),
        "currentStep": 0,
        "stepExecutionMetadata": [{**entered, **({"message": message} if message else {})}],
        "state": {STATE_KEY: [each.wire() for each in records], **(state or {})},
    }


def ended(phase: str, *records: Record, message: str = "", **more: Any) -> JsonObject:
    return {
        **running(*records),
        "phase": phase,
        "finishedAt": at(seconds=5),
        "message": message,
        "stepExecutionMetadata": [
            {"alias": "update", "status": "Failed" if phase == "Failed" else phase, "finishedAt": at(seconds=5)}
        ],
        **more,
    }


def stage(current: str | None = None, **status: Any) -> JsonObject:
    step = {"uses": "argocd-update", "config": {}}
    return {
        "apiVersion": "kargo.akuity.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": "dev", "namespace": "shop"},
        "spec": {
            "requestedFreight": [{"origin": {"kind": "Warehouse", "name": "wh"}, "sources": {"direct": True}}],
            "promotionTemplate": {"spec": {"steps": [step]}},
        },
        "status": {**({"currentPromotion": {"name": current}} if current else {}), **status},
    }


FREIGHT: JsonObject = {
    "metadata": {"name": "f1", "namespace": "shop"},
    "origin": {"kind": "Warehouse", "name": "wh"},
}


def application(**parts: Any) -> Application:
    source = {"repoURL": "https://git.example.com/shop", "targetRevision": "main"}
    raw = {
        "metadata": {"name": "shop-dev", "namespace": "argocd", "uid": "a1", "resourceVersion": "9"},
        "spec": {"source": source},
        **parts,
    }
    return ApplicationCodec().object(encode(raw))


def state(phase: str, operation: JsonObject, **parts: Any) -> JsonObject:
    return {"phase": phase, "operation": operation, "startedAt": "2026-11-30T12:03:04Z", **parts}


def explained(
    raw: JsonObject,
    on: Seen[JsonObject] = None,
    app: Seen[Application] = None,
    freight: Seen[JsonObject] = FREIGHT,
    others: list[JsonObject] | Hidden | None = None,
) -> Explanation:
    others = others if isinstance(others, Hidden) else [raw, *(others or [])]
    return explain_promotion(PromotionFacts(raw, on, freight, others, {APP: app}, NOON))


def said(explanation: Explanation) -> str:
    """All of it, in lines."""
    reasons = [
        " ".join(
            filter(None, [s.text, s.since and f"since {s.since}", s.at and f"at {s.at}", s.clock and f"by {s.clock}"])
        )
        for s in explanation.reasons
    ]
    return "\n".join([*reasons, *explanation.unseen])


OLD = with_metadata(promotion(), creationTimestamp=at(minutes=7))
FOREIGN = application(operation=THEIRS, status={"operationState": state("Running", THEIRS)})
WINDOW = application(
    operation=OURS, status={"operationState": state("Running", OURS, message="Sync operation blocked by sync window")}
)
HOOK = application(
    operation=OURS,
    status={"operationState": state("Running", OURS, message="waiting for completion of hook batch/Job/migrate")},
)
DONE = application(status={"operationState": state("Succeeded", OURS, finishedAt="2026-11-30T12:04:00Z")})

FAILED = promotion(
    status=ended(
        "Failed",
        record(
            state=TargetState.FAILED,
            message="no such Service",
            before=(Before("/spec/source/targetRevision", "main"), Before("/spec/new")),
        ),
        message='step "update": no such Service',
    )
)

PENDING = [
    pytest.param({"raw": promotion()}, ['Stage "dev" does not exist in namespace "shop"'], [], id="no Stage"),
    pytest.param(
        {"raw": promotion(), "on": Hidden("forbidden")},
        ['Stage "dev" could not be seen: forbidden'],
        ["exist"],
        id="Stage hidden",
    ),
    pytest.param(
        {"raw": promotion(), "on": stage() | {"spec": {}}},
        ["Stage cannot be read: spec.requestedFreight"],
        [],
        id="Stage unreadable",
    ),
    pytest.param(
        {"raw": promotion(), "on": with_metadata(stage(), deletionTimestamp=at(minutes=1))},
        [f'Stage "dev" is being deleted, so nothing begins there any more since {at(minutes=1)}'],
        ["turn"],
        id="Stage goes",
    ),
    pytest.param(
        {"raw": promotion(), "on": stage() | {"spec": {**stage()["spec"], "promotionTemplate": None}}},
        ['Stage "dev" has no steps'],
        ["turn"],
        id="control flow",
    ),
    pytest.param(
        {"raw": promotion(), "on": stage("dev.0"), "others": [promotion("dev.0", running()), promotion("dev.2")]},
        [
            f"kargo-py why promotion dev.0 says what it waits for since {at(seconds=20)}",
            'Promotion "dev.0" runs on Stage "dev", and only one does at a time',
            "number 1 of 2",
        ],
        ["controller"],
        id="behind another",
    ),
    pytest.param(
        {
            "raw": promotion("dev.3"),
            "on": stage("dev.0"),
            "others": [
                with_metadata(promotion("a"), creationTimestamp=at(minutes=3)),
                promotion("prod.1", stage="prod"),
                promotion("dev.0", running()),
            ],
        },
        ["number 2 of 2 that wait"],
        [],
        id="place by age",
    ),
    pytest.param(
        {"raw": promotion("dev.3"), "on": stage(), "others": [promotion("dev.1")]},
        ['Promotion "dev.1" comes first on Stage "dev"', "number 2 of 2"],
        ["its turn"],
        id="another first",
    ),
    pytest.param(
        {"raw": promotion(), "on": stage("dev.0"), "others": [promotion("dev.0", ended("Succeeded"))]},
        ['Stage "dev" still names Promotion "dev.0" as the one that runs', "number 1 of 1"],
        ["only one does at a time"],
        id="behind one that has ended",
    ),
    pytest.param(
        {"raw": promotion(), "on": stage("dev.0"), "others": Hidden("no list")},
        ["the queue could not be seen: no list", '"dev.0" runs'],
        ["number"],
        id="queue hidden",
    ),
    pytest.param(
        {
            "raw": promotion(),
            "on": stage(
                health={"status": "Progressing"},
                lastPromotion={"name": "dev.0", "finishedAt": at(seconds=10), "status": {"phase": "Succeeded"}},
            ),
        },
        ['Stage "dev" is Progressing, and waits for a verdict', "before the next one begins: 20s at most"],
        ["its turn"],
        id="judging",
    ),
    pytest.param(
        {
            "raw": promotion(),
            "on": stage(
                health={"status": "Unknown"},
                lastPromotion={"name": "dev.0", "finishedAt": at(seconds=40), "status": {"phase": "Succeeded"}},
            ),
        },
        ["its turn"],
        ["verdict"],
        id="judged long enough",
    ),
    pytest.param(
        {"raw": promotion(), "on": stage("dev.1")},
        ["it is its turn"],
        ["nothing has happened", "Errored"],
        id="its turn",
    ),
    pytest.param(
        {"raw": OLD, "on": stage()},
        ['nothing has happened for 7m, so it seems that no controller acts on Stage "dev"'],
        ["shard"],
        id="no controller",
    ),
    pytest.param(
        {"raw": OLD, "on": with_metadata(stage(), labels={"kargo.akuity.io/shard": "eu"})},
        ['Stage "dev" of shard "eu"'],
        [],
        id="no controller of the shard",
    ),
    pytest.param(
        {
            "raw": OLD,
            "on": stage(
                "dev.1", conditions=[{"type": "Promoting", "status": "True", "lastTransitionTime": at(seconds=5)}]
            ),
        },
        ["its turn"],
        ["nothing has happened"],
        id="acknowledged a moment ago",
    ),
    pytest.param(
        {"raw": promotion(), "on": stage(), "freight": None}, ['Freight "f1" does not exist'], [], id="no Freight"
    ),
    pytest.param(
        {"raw": promotion(), "on": stage(), "freight": Hidden("forbidden")},
        ['Freight "f1" could not be seen: forbidden'],
        ["Errored"],
        id="Freight hidden",
    ),
    pytest.param(
        {"raw": promotion(), "on": stage(), "freight": {**FREIGHT, "origin": 1}},
        ['Freight "f1" cannot be read'],
        [],
        id="Freight unreadable",
    ),
    pytest.param(
        {"raw": promotion(), "on": stage(), "freight": {**FREIGHT, "origin": {"kind": "Warehouse", "name": "other"}}},
        ["as things are now it ends as Errored", 'which Stage "dev" does not request'],
        [],
        id="Freight not available",
    ),
    pytest.param(
        {"raw": promotion(freight=None, origin={"kind": "Warehouse", "name": "wh"}), "on": stage()},
        ["it is its turn"],
        ["ends as Errored"],
        id="origin",
    ),
    pytest.param({"raw": promotion(steps=None), "on": stage()}, ["it is its turn"], ["ends as Errored"], id="no steps"),
    pytest.param(
        {"raw": promotion(steps=[{"uses": "git-clone"}]), "on": stage()},
        ['the kind of step "git-clone" is none of those that kargo-py has by itself (argocd-update, argocd-wait, '],
        [],
        id="unknown step",
    ),
    pytest.param({"raw": promotion(steps=[{"as": "x"}]), "on": stage()}, ["the step has no uses"], [], id="task"),
    pytest.param(
        {"raw": with_metadata(promotion(), annotations={ANNOTATION_ABORT: "terminate"}), "on": stage()},
        ["it is to be aborted, as controller:kargo-py asked"],
        ["turn"],
        id="abort not seen",
    ),
    pytest.param(
        {"raw": with_metadata(promotion(), annotations={ANNOTATION_ABORT: "stop!"}), "on": stage()},
        ["the annotation kargo.akuity.io/abort is 'stop!'", "its turn"],
        ["to be aborted"],
        id="abort not understood",
    ),
    pytest.param(
        {"raw": with_metadata(promotion(), deletionTimestamp=at(seconds=9)), "on": stage()},
        [f"it is being deleted since {at(seconds=9)}"],
        [],
        id="deleted",
    ),
    pytest.param(
        {"raw": promotion(status={"phase": "Dancing"}), "on": stage()},
        ["status.phase 'Dancing' is not known"],
        [],
        id="unknown phase",
    ),
    pytest.param(
        {"raw": promotion(stage=7), "on": stage()}, ["Promotion cannot be read: spec.stage"], [], id="unreadable"
    ),
]

RUNNING = [
    pytest.param(
        {"raw": promotion(status=running(record())), "on": stage("dev.1"), "app": FOREIGN},
        [
            f"{NAMED}: waiting for the operation started by alice",
            "which is Running since 2026-11-30T12:03:04Z by Argo CD",
            "does not run while others hold",
            f'step 1 of 1, "update" of kind argocd-update, runs since {at(seconds=20)}',
        ],
        ["times out in"],
        id="foreign",
    ),
    pytest.param(
        {"raw": promotion(status=running(record())), "on": stage("dev.1"), "app": application(operation=THEIRS)},
        ["waiting for the operation requested by alice"],
        ["by Argo CD"],
        id="foreign, requested",
    ),
    pytest.param(
        {"raw": promotion(status=running(record())), "on": stage("dev.1"), "app": WINDOW},
        [
            f"{NAMED}: Sync operation blocked by sync window since 2026-11-30T12:03:04Z by Argo CD",
            "times out in 4m40s; it may take 5m",
        ],
        [],
        id="sync window",
    ),
    pytest.param(
        {"raw": promotion(status=running(record())), "on": stage("dev.1"), "app": HOOK},
        ["waiting for completion of hook batch/Job/migrate"],
        [],
        id="hook",
    ),
    pytest.param(
        {"raw": promotion(status=running(record())), "on": stage("dev.1"), "app": application(operation=OURS)},
        ["Argo CD has not picked up the sync yet"],
        [],
        id="not picked up",
    ),
    pytest.param(
        {
            "raw": promotion(status=running(record(), message="it does not look")),
            "on": stage("dev.1"),
            "app": application(operation=OURS),
        },
        ["the controller says of it: it does not look"],
        [],
        id="the controller's word",
    ),
    pytest.param(
        {"raw": promotion(status=running(record())), "on": stage("dev.1"), "app": application()},
        ["starting a sync; the Application shows nothing of it yet"],
        [],
        id="not written yet",
    ),
    pytest.param(
        {"raw": promotion(status=running(record())), "on": stage("dev.1"), "app": DONE},
        ["a controller that runs takes this in within a second at 2026-11-30T12:04:00Z by Argo CD"],
        [],
        id="end not taken in",
    ),
    pytest.param(
        {
            "raw": promotion(status=running(record(sync=SyncOptions(revision=SHA)))),
            "on": stage("dev.1"),
            "app": DONE,
        },
        [f"{SHA[:8]}"],
        [],
        id="end of a sync to a revision of its own",
    ),
    pytest.param(
        {"raw": promotion(status=running(record())), "on": stage("dev.1")},
        [f"{NAMED} does not exist any more"],
        [],
        id="Application gone",
    ),
    pytest.param(
        {"raw": promotion(status=running(record())), "on": stage("dev.1"), "app": Hidden("forbidden")},
        [f"{NAMED} could not be seen: forbidden", "step 1 of 1", "times out in"],
        [],
        id="Application hidden",
    ),
    pytest.param(
        {
            "raw": promotion(
                status=running(
                    record(state=TargetState.SUPERSEDED, message="undone"), record(attempt=2, stamp=STAMP[:-1] + "2")
                )
            ),
            "on": stage("dev.1"),
            "app": FOREIGN,
        },
        [f"{NAMED}: this is attempt 2", f"{NAMED}: attempt 1 ended as Superseded: undone"],
        [],
        id="attempts",
    ),
    pytest.param(
        {
            "raw": promotion(
                status=running(
                    record(state=TargetState.FAILED, message=f"{NAMED}: bad", finished_at="2026-11-30T12:04:00Z")
                )
            ),
            "on": stage("dev.1"),
            "app": FOREIGN,
        },
        [f"{NAMED}: Failed: bad at 2026-11-30T12:04:00Z by Argo CD"],
        ["alice"],
        id="ended among others",
    ),
    pytest.param(
        {"raw": promotion(status=running(record(), startedAt=at(minutes=6))), "on": stage("dev.1"), "app": WINDOW},
        ["may take 5m, and has had its time"],
        [],
        id="time over",
    ),
    pytest.param(
        {
            "raw": promotion(status=running(record(free_since=at(minutes=1)), startedAt=at(minutes=6))),
            "on": stage("dev.1"),
            "app": WINDOW,
        },
        ["times out in 4m"],
        [],
        id="its own time",
    ),
    pytest.param(
        {
            "raw": promotion(
                status=running(record()), steps=[{"uses": "argocd-update", "as": "update", "retry": {"timeout": "0s"}}]
            ),
            "on": stage("dev.1"),
            "app": WINDOW,
        },
        ["the step has no time-out"],
        [],
        id="no time-out",
    ),
    pytest.param(
        {"raw": promotion(status=running()), "on": stage("dev.1")}, ["nothing on record"], [], id="nothing recorded"
    ),
    pytest.param(
        {"raw": promotion(status=running(), steps=[{"uses": "http", "as": "update"}]), "on": stage("dev.1")},
        ['step 1 of 1, "update" of kind http, runs', "no time-out"],
        ["nothing on record"],
        id="a kind that leaves nothing behind",
    ),
    pytest.param(
        {"raw": promotion(status=running(state={STATE_KEY: 7})), "on": stage("dev.1")},
        ["the recorded operations cannot be read back"],
        [],
        id="records damaged",
    ),
    pytest.param(
        {
            "raw": promotion(
                status={"phase": "Running", "freight": {"name": "f"}, "message": "no answer; step will be retried"}
            ),
            "on": stage("dev.1"),
        },
        ['step 1 of 1, "update", has not begun', "the controller says of it: no answer; step will be retried"],
        [],
        id="entered",
    ),
    pytest.param(
        {"raw": promotion(status={"phase": "Running"}), "on": stage("dev.1")},
        ['step 1 of 1, "update", has not begun'],
        [],
        id="only running",
    ),
    pytest.param(
        {"raw": promotion(status={"phase": "Running", "currentStep": 3}), "on": stage("dev.1")},
        ["do not say which step is running"],
        [],
        id="no step",
    ),
    pytest.param(
        {"raw": promotion(status=running()), "on": stage()}, ['Stage "dev" does not name it'], [], id="not named"
    ),
    pytest.param(
        {"raw": promotion(status=running()), "on": stage("dev.0")},
        ['Stage "dev" names Promotion "dev.0"'],
        [],
        id="another named",
    ),
    pytest.param(
        {
            "raw": promotion(
                status=running(record(), state={ABORT_KEY: {"actor": "email:a@b", "since": at(seconds=8)}})
            ),
            "on": stage("dev.1"),
            "app": HOOK,
        },
        [
            "it is being aborted, as email:a@b asked; what runs is ended and waited for",
            f"as long as --abort-timeout of the controller says since {at(seconds=8)}",
            f"{NAMED}: terminating the sync",
        ],
        [],
        id="being aborted",
    ),
    pytest.param(
        {
            "raw": promotion(status=running(state={ABORT_KEY: {"actor": "a", "since": at(seconds=8), "force": True}})),
            "on": stage("dev.1"),
        },
        ["it is being aborted by force, as a asked"],
        [],
        id="by force",
    ),
]

OTHER_KINDS = [
    pytest.param(
        {
            "raw": promotion(
                status=running(record(kind="approval", namespace="shop", name="release"), message="waiting for a yes"),
                steps=[{"uses": "approval", "as": "update"}],
            ),
            "on": stage("dev.1"),
        },
        ["the controller says of it: waiting for a yes"],
        ["Application", "sync"],
        id="a kind of one's own",
    ),
    pytest.param(
        {
            "raw": promotion(
                status=ended(
                    "Aborted",
                    record(kind="approval", namespace="shop", name="release", state=TargetState.STOPPED, message="no"),
                )
            )
        },
        ['approval "release" in namespace "shop": Stopped: no'],
        ["Application"],
        id="a kind of one's own, ended",
    ),
    pytest.param(
        {
            "raw": promotion(
                status=ended(
                    "Failed",
                    record(state=TargetState.SUCCEEDED, revisions=(SHA,)),
                    record(kind="argocd-wait", step="settled", state=TargetState.FAILED, message="Degraded"),
                )
            )
        },
        [f"{NAMED}: Succeeded at {SHA}", f"{NAMED}: Failed: Degraded"],
        ["attempt"],
        id="two steps on one Application",
    ),
]

WAIT = [{"uses": "argocd-wait", "as": "update", "config": {"apps": [{"name": "shop-dev"}]}}]


def waiting(looked: bool = True) -> JsonObject:
    """A Promotion in the step argocd-wait."""
    return promotion(
        status=running(record(kind="argocd-wait", entries=(0,), seen_health="Healthy", looked=looked)), steps=WAIT
    )


EDITED = promotion(steps=[{**WAIT[0], "config": {"apps": [{"name": "another"}]}}])


def of_health(health: str, **status: Any) -> Application:
    """An Application that Argo CD has looked at."""
    compared = {"source": {"repoURL": "https://git.example.com/shop", "targetRevision": "main"}}
    sync = {"status": "Synced", "comparedTo": compared}
    return application(status={"health": {"status": health}, "sync": sync, "reconciledAt": at(seconds=9), **status})


IN_WAIT = [
    pytest.param(
        {"raw": waiting(), "on": stage("dev.1"), "app": of_health("Progressing")},
        [f"{NAMED}: health is Progressing, waiting for Healthy", "step 1 of 1", "times out in"],
        ["starting a sync", "nothing on record"],
        id="not healthy yet",
    ),
    pytest.param(
        {"raw": waiting(), "on": stage("dev.1"), "app": of_health("Healthy")},
        [f"{NAMED} is as it is waited for; a controller"],
        ["starting a sync"],
        id="healthy by now",
    ),
    pytest.param(
        {"raw": waiting(), "on": stage("dev.1"), "app": of_health("Degraded")},
        ["Degraded", "a controller that runs takes this in"],
        ["starting a sync"],
        id="worse by now",
    ),
    pytest.param(
        {"raw": waiting(looked=False), "on": stage("dev.1"), "app": of_health("Healthy")},
        ["Argo CD"],
        ["starting a sync", "as it is waited for"],
        id="not looked at yet",
    ),
    pytest.param(
        {"raw": waiting(), "on": stage("dev.1"), "app": Hidden("forbidden")},
        [f"{NAMED} could not be seen: forbidden", "step 1 of 1"],
        [],
        id="what is waited for is hidden",
    ),
    pytest.param(
        {"raw": {**waiting(), "spec": EDITED["spec"]}, "on": stage("dev.1"), "app": of_health("Healthy")},
        [f"{NAMED} is not among the apps of the step any more"],
        [],
        id="the step was edited",
    ),
    pytest.param(
        {"raw": waiting(), "on": stage("dev.1")},
        [NAMED, "a controller that runs takes this in"],
        ["starting a sync"],
        id="what is waited for is gone",
    ),
]

ENDED = [
    pytest.param(
        {
            "raw": promotion(
                status=ended("Aborted"), steps=[{"uses": "http", "as": "update"}, {"uses": "http", "as": "never"}]
            )
        },
        ['step 1 of 2, "update", is Aborted'],
        ["never"],
        id="before the last step",
    ),
    pytest.param(
        {
            "raw": promotion(
                status=ended(
                    "Succeeded",
                    record(
                        state=TargetState.SUCCEEDED,
                        revisions=(SHA,),
                        finished_at="2026-11-30T12:04:00Z",
                        before=(Before("/spec/x", 1),),
                    ),
                )
            )
        },
        [f"{NAMED}: Succeeded at {SHA} at 2026-11-30T12:04:00Z by Argo CD", "kargo-py why stage dev"],
        ["changed"],
        id="succeeded",
    ),
    pytest.param(
        {
            "raw": FAILED,
        },
        [
            f'step "update": no such Service at {at(seconds=5)}',
            'step 1 of 1, "update", is Failed',
            f"{NAMED}: Failed: no such Service",
            "the start changed /spec/source/targetRevision, which was main",
            "the start added /spec/new",
        ],
        ["healthy"],
        id="failed",
    ),
    pytest.param(
        {
            "raw": promotion(
                status=ended(
                    "Aborted",
                    record(state=TargetState.DETACHED, message="left"),
                    state={
                        STATE_KEY: [record(state=TargetState.DETACHED, message="left").wire()],
                        ABORT_KEY: {"actor": "kubernetes:ann", "since": at(seconds=9)},
                    },
                )
            )
        },
        [f"kubernetes:ann asked for the abort at {at(seconds=9)}", "Detached: left"],
        [],
        id="aborted",
    ),
    pytest.param(
        {"raw": promotion(status=ended("Errored", record(state=TargetState.REFUSED, before=(Before("/spec/x", 1),))))},
        [f"{NAMED}: Refused"],
        ["changed"],
        id="never started",
    ),
    pytest.param(
        {"raw": promotion(status=ended("Errored", state={STATE_KEY: "?"}))},
        ["cannot be read back"],
        [],
        id="records damaged",
    ),
    pytest.param({"raw": promotion(status={"phase": "Failed"})}, [], [], id="no record at all"),
]


@pytest.mark.parametrize(("facts", "told", "not_told"), [*PENDING, *RUNNING, *IN_WAIT, *OTHER_KINDS, *ENDED])
def test_causes(facts: dict[str, Any], told: list[str], not_told: list[str]) -> None:
    """Each cause is told, with since when and by whose clock; what is not the cause is not."""
    text = said(explained(**facts))
    for words in told:
        assert words in text
    for words in not_told:
        assert words not in text


def test_unknown_kinds_of_steps() -> None:
    """They are told once each, in the order of the steps."""
    kinds = ["git-clone", "kustomize-build", "helm-template", "git-commit", "git-push", "git-clone"]
    told = said(explained(promotion(steps=[{"uses": uses} for uses in kinds]), on=stage()))

    assert re.findall(r'the kind of step "([^"]+)"', told) == kinds[:-1]


def test_headline() -> None:
    """What is explained, how it stands, and since when."""
    pending, run, over = (
        explained(p) for p in (promotion(), promotion(status=running()), promotion(status=ended("Failed")))
    )
    assert [(e.kind, e.namespace, e.name) for e in (pending, run, over)] == [("Promotion", "shop", "dev.1")] * 3
    assert [(e.state, e.since) for e in (pending, run, over)] == [
        ("Pending", at(seconds=30)),
        ("Running", at(seconds=20)),
        ("Failed", at(seconds=5)),
    ]


def test_as_json() -> None:
    """The same as data, without empty members."""
    told = explained(promotion(status=running(record())), stage("dev.1"), FOREIGN).wire()
    assert told["state"] == "Running"
    assert told["reasons"][0]["since"] == "2026-11-30T12:03:04Z"
    assert told["reasons"][0]["clock"] == "Argo CD"
    assert told["unseen"] == []
    assert all("" not in reason.values() for reason in told["reasons"])


@pytest.mark.parametrize(
    "facts",
    [
        {"raw": promotion(status=running(record())), "on": stage("dev.1"), "app": FOREIGN},
        {
            "raw": promotion("dev.3"),
            "on": stage("dev.1"),
            "freight": None,
            "others": [promotion("dev.2"), promotion("dev.1", running())],
        },
        {"raw": OLD, "on": with_metadata(stage(), labels={"kargo.akuity.io/shard": "eu"})},
        {"raw": FAILED},
    ],
    ids=["runs", "has not begun", "no controller", "has ended"],
)
def test_the_page(facts: dict[str, Any]) -> None:
    """The outputs on the page "Find out why" are what is said."""
    told = explained(**facts)
    output = "\n".join([f"$ kargo-py why promotion {told.name}", *lines(told, NOON)])
    assert f"```console\n{output}\n```\n" in PAGE.read_text()


def test_targets() -> None:
    """What has to be read: each Application on record once, a bounded number of them, none of a damaged record."""
    many = running(*(record(name=f"a{n}") for n in range(1000)))
    assert targets(promotion(status=running(record(), record(attempt=2)))) == [APP]
    assert 1 < len(targets(promotion(status=many))) < 100
    assert targets(promotion(status=running(state={STATE_KEY: [7]}))) == targets({"spec": 1}) == []


def test_kinds_of_steps() -> None:
    """The kinds that are known here are those that the controllers have, with the same default time-outs."""
    client = client_of(api_server(lambda: NOON))
    steps = assemble(client, client, "here", Options()).world.steps
    default = {uses: kind.default_timeout for uses, kind in BUILT_IN.items()}

    assert {uses: runner.default_timeout for uses, runner in steps.items()} == default


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=5)
    | st.sampled_from(
        [at(), STAMP, "Running", "Pending", "dev.1", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.lists(
    st.builds(
        lambda **parts: record(**parts).wire(),
        state=st.sampled_from(TargetState),
        attempt=st.integers(0, 3),
        name=st.sampled_from(["shop-dev", "other"]),
        free_since=st.sampled_from([None, at(), "9999-12-31T23:59:59Z"]),
        stopping_since=st.sampled_from([None, at()]),
        finished_at=st.none() | st.text(max_size=3),
        message=st.text(max_size=3),
        before=st.lists(st.builds(Before, st.text(max_size=3), JSON), max_size=2).map(tuple),
    ),
    max_size=3,
)
STATUS = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Errored", "Aborted", "x"]) | JSON,
        "startedAt": st.sampled_from([at(), "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"]),
        "finishedAt": st.just(at()) | JSON,
        "message": st.text(max_size=5),
        "currentStep": st.integers(-2, 2) | JSON,
        "stepExecutionMetadata": st.lists(
            st.fixed_dictionaries(
                {"alias": st.just("update"), "status": st.just("Running")},
                optional={"startedAt": st.sampled_from([at(), "0001-01-01T00:00:00+14:00"])},
            ),
            max_size=2,
        )
        | JSON,
        "state": st.fixed_dictionaries({}, optional={STATE_KEY: RECORDS | JSON, ABORT_KEY: JSON, "update": JSON})
        | JSON,
        "conditions": JSON,
    },
)
STAGE_STATUS = st.fixed_dictionaries(
    {},
    optional={
        "currentPromotion": st.sampled_from([{"name": "dev.1"}, {"name": "x"}]) | JSON,
        "lastPromotion": st.just({"name": "x", "finishedAt": "9999-12-31T23:59:59Z", "status": {"phase": "Succeeded"}})
        | JSON,
        "health": st.just({"status": "Unknown"}) | JSON,
        "conditions": st.just(
            [{"type": "Promoting", "status": "True", "lastTransitionTime": "0001-01-01T00:00:00+14:00"}]
        )
        | JSON,
    },
)
SEEN = st.none() | st.just(Hidden("forbidden"))
APPS = SEEN | st.sampled_from(
    [
        FOREIGN,
        WINDOW,
        HOOK,
        DONE,
        application(),
        application(operation=OURS),
        Application(DONE.metadata, unreadable="spec: no"),
    ]
)


@settings(max_examples=400)
@given(
    STATUS | JSON,
    SEEN | STAGE_STATUS.map(lambda status: stage() | {"status": status}) | st.dictionaries(st.text(max_size=4), JSON),
    APPS,
    SEEN | st.just(FREIGHT) | st.fixed_dictionaries({"spec": JSON}),
)
def test_any_status(status: Any, on: Any, app: Any, freight: Any) -> None:
    """Whatever stands in the objects there is an answer, and it can be written as JSON."""
    raw = {**promotion(), "status": status}
    others = [{"metadata": {"name": "x"}, "status": status}, raw]
    told = explain_promotion(PromotionFacts(raw, on, freight, others, dict.fromkeys(targets(raw), app), NOON))
    encode(told.wire())
    assert told.kind == "Promotion"
    assert told.reasons or told.unseen or told.state in {"Failed", "Errored", "Aborted"}


@given(JSON, JSON, JSON)
def test_any_object(spec: Any, status: Any, labels: Any) -> None:
    """The same for a spec and labels that no server would have let in."""
    raw = {"metadata": {"name": "x", "namespace": "y", "labels": labels}, "spec": spec, "status": status}
    assert explain_promotion(PromotionFacts(raw, raw, raw, [raw], {}, NOON)).name == "x"
