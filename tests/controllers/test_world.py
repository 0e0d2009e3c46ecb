"""What the controllers share."""

from __future__ import annotations

from typing import Any

import pytest

from kargo_py.api.stage import Stage
from kargo_py.controllers.world import (
    STAGES,
    Models,
    Responsibility,
    event_name,
    project_promotion,
    stage_of,
    targets_of,
)
from kargo_py.kube.events import EventRecorder
from kargo_py.kube.resources import Key
from tests.kube.fakes import ScriptedClient

SHARD = "kargo.akuity.io/shard"


@pytest.mark.parametrize(
    ("responsibility", "labels", "spec_shard", "ours"),
    [
        (Responsibility(), {}, "", True),
        (Responsibility(), {SHARD: "eu"}, "", False),
        (Responsibility(), {}, "eu", False),
        (Responsibility("eu", default=False), {SHARD: "eu"}, "", True),
        (Responsibility("eu", default=False), {}, "eu", True),
        (Responsibility("eu", default=False), {}, "", False),
        (Responsibility("eu", default=True), {}, "", True),
        (Responsibility("eu", default=True), {SHARD: "us"}, "", False),
        (Responsibility(default=False), {}, "", False),
    ],
)
def test_responsibility(responsibility: Responsibility, labels: dict[str, str], spec_shard: str, ours: bool) -> None:
    """A controller acts on its shard, and as the default one on what has none."""
    assert ours == responsibility.covers(labels, spec_shard)


def test_projection() -> None:
    """Of a finished Promotion the cache keeps neither steps nor outputs, of others all but managedFields."""
    meta = {"name": "p", "managedFields": [1]}
    spec = {"stage": "dev", "steps": [{}], "vars": []}
    status = {"phase": "Succeeded", "state": {"x": 1}, "operations": [{}], "healthChecks": []}

    ended = project_promotion({"metadata": meta, "spec": spec, "status": status})
    fresh = project_promotion({"metadata": meta, "spec": spec})

    assert ended == {
        "metadata": {"name": "p"},
        "spec": {"stage": "dev"},
        "status": {"phase": "Succeeded", "healthChecks": []},
    }
    assert {"metadata": {"name": "p"}, "spec": spec} == fresh


def test_targets() -> None:
    """A running Promotion is found by the objects it recorded; one that has ended waits for nothing."""
    state = {"kargo-py.io/operations": [{"namespace": "argocd", "name": "a"}, {"namespace": "argocd", "name": "b"}]}

    assert {Key("argocd", "a"), Key("argocd", "b")} == set(targets_of({"status": {"phase": "Running", "state": state}}))
    assert not list(targets_of({"status": {"phase": "Failed", "state": state}}))
    assert not list(targets_of({"metadata": {}}))


def test_stage_of_what_cannot_be_read() -> None:
    """A Promotion without a readable Stage belongs to none, and raises nothing."""
    meta = {"name": "p", "namespace": "n"}
    specs: list[Any] = [None, {}, [], {"stage": 7}]

    assert [stage_of({"metadata": meta, "spec": spec}) for spec in specs] == [()] * 4
    assert stage_of({"metadata": meta}) == ()


def test_event_names() -> None:
    """The same thing has the same name, and a long one fits."""
    assert event_name("a", "R", "x") == event_name("a", "R", "x") != event_name("a", "R", "y")
    assert len(event_name("a" * 300, "R")) <= 253


async def test_unreadable_is_told_once(logged: list[Any]) -> None:
    """An object that cannot be read is counted and told once a version, and read again when it changed."""
    recorder = EventRecorder(ScriptedClient(), "kargo-py", "me")
    models = Models(Stage, STAGES, recorder)
    broken: dict[str, Any] = {"metadata": {"name": "s", "namespace": "n", "resourceVersion": "1"}, "spec": {}}
    request = {"origin": {"kind": "Warehouse", "name": "w"}, "sources": {"direct": True}}
    mended = {"metadata": broken["metadata"] | {"resourceVersion": "2"}, "spec": {"requestedFreight": [request]}}

    assert models.read(broken) is None
    assert models.read(broken) is None
    assert models.unreadable == 1
    assert len(logged) == 1
    assert "spec.requestedFreight: " in logged[0]["why"]
    assert isinstance(models.read(mended), Stage)
