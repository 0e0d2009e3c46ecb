"""The story of the demo: a table of scenes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kargo_py.argocd.application import APPLICATIONS
from kargo_py.controllers.world import FREIGHTS, PROMOTIONS, STAGES
from kargo_py.demo.acts import Act, Annotate, Create, Hang, Look, Ref, Scene, Wait
from kargo_py.demo.pipeline import ARGOCD, FIRST, PROJECT, SECOND, Release, application_name, pipeline, promotion
from kargo_py.kube.resources import Key

_ENDS: Final = ("Succeeded", "Failed", "Errored", "Aborted")

HELD_UP: Final = (
    f'Argo CD Application "{application_name("prod")}" in namespace "{ARGOCD}": '
    f"waiting for completion of hook batch/Job/{application_name('prod')}-hook"
)
"""What the Promotion with the hanging sync says."""


def scenes() -> Sequence[Scene]:
    """All of it, from the first object to Freight in production."""
    return [
        Scene(
            "A Project",
            "Three Stages, dev → staging → prod, with an Argo CD Application each, and two pieces of Freight. "
            "dev takes Freight directly, each of the others only what was verified in the one before.",
            [
                Create("pipeline.yaml", pipeline()),
                Wait(_app("prod"), ("status", "sync", "status"), "OutOfSync"),
            ],
        ),
        Scene(
            "A sync that fails",
            "The Deployment of shop-1.0 is invalid. The Promotion ends as the sync does, "
            "and says which resource it was and what the cluster said to it.",
            [
                *_promoted("dev.1", "dev", FIRST, "Failed"),
                Look(_promotion("dev.1"), ("status", "message"), [FIRST.invalid]),
            ],
        ),
        Scene(
            "Through dev and staging",
            "shop-1.1 has mended it. A Promotion succeeds when its very sync has; "
            "the Freight is verified when the Stage is healthy with it.",
            [*_verified("dev.2", "dev"), *_verified("staging.1", "staging")],
        ),
        Scene(
            "A sync that hangs",
            "The sync of shop-prod waits for a Job that never ends. The Promotion says so; aborting it ends the sync, "
            "and it is Aborted only when that has stopped.",
            [
                Hang(application_name("prod")),
                Create("prod-1.yaml", [promotion("prod.1", "prod", SECOND)]),
                Wait(_promotion("prod.1"), ("status", "stepExecutionMetadata", 0, "message"), HELD_UP),
                Look(_app("prod"), ("status", "operationState", "phase"), ["Running"]),
                Annotate(_promotion("prod.1"), {"kargo.akuity.io/abort": "terminate"}),
                Wait(_promotion("prod.1"), ("status", "phase"), "Aborted", _others("Aborted")),
                Look(_promotion("prod.1"), ("status", "message"), [application_name("prod")]),
                Look(_app("prod"), ("status", "operationState", "phase"), ["Failed"]),
                Look(_app("prod"), ("status", "operationState", "message"), ["Operation terminated"]),
            ],
        ),
        Scene(
            "Into production",
            "The Job has been mended; the same Freight is promoted again.",
            _verified("prod.2", "prod"),
        ),
    ]


def _promotion(name: str) -> Ref:
    return Ref(PROMOTIONS, Key(PROJECT, name))


def _app(stage: str) -> Ref:
    return Ref(APPLICATIONS, Key(ARGOCD, application_name(stage)))


def _others(phase: str) -> list[str]:
    return [end for end in _ENDS if end != phase]


def _promoted(name: str, stage: str, release: Release, phase: str) -> Sequence[Act]:
    return [
        Create(f"{name.replace('.', '-')}.yaml", [promotion(name, stage, release)]),
        Wait(_promotion(name), ("status", "phase"), phase, _others(phase)),
    ]


def _verified(name: str, stage: str) -> Sequence[Act]:
    return [
        *_promoted(name, stage, SECOND, "Succeeded"),
        Wait(Ref(STAGES, Key(PROJECT, stage)), ("status", "health", "status"), "Healthy"),
        Wait(Ref(FREIGHTS, Key(PROJECT, SECOND.freight)), ("status", "verifiedIn", stage, "verifiedAt")),
    ]
