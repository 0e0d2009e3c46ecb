"""What the demo promotes: a repository with two commits, and a Project of three Stages with an Application each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kargo_py.kube.client import JsonObject
from kargo_py.local.argocd.engine import Manifest

PROJECT: Final = "shop"
ARGOCD: Final = "argocd"
STAGES: Final = ("dev", "staging", "prod")

REPOSITORY: Final = "https://git.example.com/shop.git"
PATH: Final = "deploy"

KARGO: Final = "kargo.akuity.io/v1alpha1"
ORIGIN: Final[JsonObject] = {"kind": "Warehouse", "name": "shop"}

INVALID: Final = (
    'Deployment.apps "shop" is invalid: spec.template.spec.containers[0].resources.requests: Invalid value: "2Gi": '
    "must be less than or equal to memory limit of 1Gi"
)
"""What the cluster says to the Deployment of the first commit."""


@dataclass(frozen=True, slots=True)
class Release:
    """A piece of Freight, and the commit in it; ``invalid``: why the cluster refuses its Deployment."""

    freight: str
    commit: str
    invalid: str = ""


FIRST: Final = Release("shop-1.0", "6e2f0c1b8a4d5793e1f06a2b9c8d7e4f50312a6b", INVALID)
SECOND: Final = Release("shop-1.1", "b7d94a3e02c1f58d6a7b9e8f4c3d2a1b0e5f6c78")
RELEASES: Final = (FIRST, SECOND)


def commits() -> Mapping[str, Sequence[Manifest]]:
    """What each commit deploys."""
    return {release.commit: _deployed(release) for release in RELEASES}


def pipeline() -> Sequence[JsonObject]:
    """The Project with its namespace, Freight, Applications and Stages, in the order in which they can be created."""
    return [
        {"apiVersion": KARGO, "kind": "Project", "metadata": {"name": PROJECT}},
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": PROJECT, "labels": {"kargo.akuity.io/project": "true"}},
        },
        *[_freight(release) for release in RELEASES],
        *[_application(stage) for stage in STAGES],
        *[_stage(stage, upstream) for stage, upstream in zip(STAGES, (None, *STAGES), strict=False)],
    ]


def promotion(name: str, stage: str, release: Release) -> JsonObject:
    """A Promotion as Kargo's webhook would complete it: with a name, and with the steps of its Stage."""
    return {
        "apiVersion": KARGO,
        "kind": "Promotion",
        "metadata": {"name": name, "namespace": PROJECT},
        "spec": {"stage": stage, "freight": release.freight, "steps": _steps(stage, release.commit)},
    }


def application_name(stage: str) -> str:
    """The Application of a Stage."""
    return f"{PROJECT}-{stage}"


def _deployed(release: Release) -> Sequence[Manifest]:
    return [
        Manifest("ConfigMap", "shop-settings", content=release.commit),
        Manifest("Service", "shop"),
        Manifest("Deployment", "shop", "apps", content=release.commit, invalid=release.invalid),
    ]


def _freight(release: Release) -> JsonObject:
    return {
        "apiVersion": KARGO,
        "kind": "Freight",
        "metadata": {
            "name": release.freight,
            "namespace": PROJECT,
            "labels": {"kargo.akuity.io/alias": release.freight},
        },
        "alias": release.freight,
        "origin": ORIGIN,
        "commits": [{"repoURL": REPOSITORY, "id": release.commit, "branch": "main"}],
    }


def _application(stage: str) -> JsonObject:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {
            "name": application_name(stage),
            "namespace": ARGOCD,
            "annotations": {"kargo.akuity.io/authorized-stage": f"{PROJECT}:{stage}"},
        },
        "spec": {
            "project": "default",
            "source": {"repoURL": REPOSITORY, "path": PATH, "targetRevision": "main"},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": application_name(stage)},
        },
    }


def _stage(stage: str, upstream: str | None) -> JsonObject:
    sources: JsonObject = {"stages": [upstream]} if upstream else {"direct": True}
    return {
        "apiVersion": KARGO,
        "kind": "Stage",
        "metadata": {"name": stage, "namespace": PROJECT},
        "spec": {
            "requestedFreight": [{"origin": ORIGIN, "sources": sources}],
            "promotionTemplate": {"spec": {"steps": _steps(stage, f'${{{{ commitFrom("{REPOSITORY}").ID }}}}')}},
        },
    }


def _steps(stage: str, revision: str) -> Sequence[JsonObject]:
    source = {"repoURL": REPOSITORY, "desiredRevision": revision, "updateTargetRevision": True}
    app = {"name": application_name(stage), "sources": [source]}
    return [{"uses": "argocd-update", "as": "sync", "config": {"apps": [app]}}]
