"""Passes of a sync: what is applied when, and what is waited for (spec 1.4, 1.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kargo_py.local.argocd.engine import Live, Manifest, Options, ResourceId, advance, terminate

JsonObject = dict[str, Any]

A, B = Manifest("ConfigMap", "a"), Manifest("ConfigMap", "b")
LATER = Manifest("ConfigMap", "later", wave=1)
BAD = Manifest("Service", "bad", invalid="no such port")
BEFORE, JOB, AFTER = (
    Manifest("Job", name, "batch", hook=hook)
    for name, hook in (("pre", "PreSync"), ("job", "Sync"), ("post", "PostSync"))
)
DONE = "successfully synced (all tasks run)"
FAILED = "one or more synchronization tasks completed unsuccessfully"


def passes(
    manifests: Sequence[Manifest], *hooks: dict[str, str], options: Options | None = None
) -> list[tuple[str, str]]:
    """Go through a sync pass by pass; *hooks* says how far the hooks are before each pass but the first."""
    rows: Sequence[JsonObject] = ()
    told = []
    for states in ({}, *hooks):
        live = Live(hooks={ResourceId("batch", "Job", "", name): phase for name, phase in states.items()})
        found = advance(manifests, rows, live, options or Options())
        told.append((found.phase, found.message))
        rows = found.rows
    return told


@pytest.mark.parametrize(
    ("manifests", "hooks", "expected"),
    [
        pytest.param([A, B], [], [("Succeeded", DONE)], id="one wave"),
        pytest.param([], [], [("Succeeded", "successfully synced (no more tasks)")], id="nothing"),
        pytest.param(
            [LATER, A, B],
            [{}],
            [("Running", "waiting for healthy state of /ConfigMap/a and 1 more resources"), ("Succeeded", DONE)],
            id="two waves",
        ),
        pytest.param(
            [A, BAD],
            [{}],
            [("Running", "waiting for healthy state of /ConfigMap/a"), ("Failed", f"{FAILED}, reason: no such port")],
            id="one is refused",
        ),
        pytest.param([BAD], [], [("Failed", f"{FAILED}, reason: no such port")], id="all are refused"),
        pytest.param(
            [A, JOB],
            [{"job": "Running"}, {"job": "Running"}, {"job": "Succeeded"}],
            [
                ("Running", "waiting for completion of hook batch/Job/job and 1 more resources"),
                ("Running", "waiting for completion of hook batch/Job/job"),
                ("Running", "waiting for completion of hook batch/Job/job"),
                ("Succeeded", "successfully synced (no more tasks)"),
            ],
            id="hook succeeds",
        ),
        pytest.param(
            [JOB],
            [{"job": "Failed"}],
            [("Running", "waiting for completion of hook batch/Job/job"), ("Failed", FAILED)],
            id="hook fails",
        ),
        pytest.param(
            [AFTER, A, BEFORE],
            [{"pre": "Running"}, {"pre": "Succeeded"}, {"post": "Running"}, {"post": "Succeeded"}],
            [
                ("Running", "waiting for completion of hook batch/Job/pre"),
                ("Running", "waiting for completion of hook batch/Job/pre"),
                ("Running", "waiting for healthy state of /ConfigMap/a"),
                ("Running", "waiting for completion of hook batch/Job/post"),
                ("Succeeded", "successfully synced (no more tasks)"),
            ],
            id="hooks before and after",
        ),
    ],
)
def test_passes(
    manifests: Sequence[Manifest], hooks: Sequence[dict[str, str]], expected: list[tuple[str, str]]
) -> None:
    """Pass by pass until the end."""
    assert passes(manifests, *hooks) == expected


def test_a_leftover_hook_is_made_anew() -> None:
    """A hook of an earlier operation is deleted, and a new one started."""
    found = advance([JOB], (), Live(hooks={JOB.id: "Succeeded"}), Options())

    assert (found.hooks_deleted, found.hooks_started) == ([JOB.id], [JOB.id])


def test_a_leftover_hook_that_stays_is_waited_for() -> None:
    """Nothing is applied meanwhile."""
    found = advance([A, JOB], (), Live(hooks={JOB.id: "Running"}, deletions_hang=True), Options())

    assert (found.phase, found.message) == ("Running", "waiting for deletion of hook batch/Job/job")
    assert (found.rows, found.applied, found.hooks_deleted) == ((), (), [JOB.id])


@pytest.mark.parametrize(
    ("live", "told"), [({}, "created"), ({A.id: ""}, "unchanged"), ({A.id: "old"}, "configured")], ids=str
)
def test_rows(live: dict[ResourceId, str], told: str) -> None:
    """A row of a single wave says what was done, and keeps hookPhase Running."""
    (row,) = advance([A], (), Live(live), Options()).rows

    assert (row["status"], row["hookPhase"], row["message"]) == ("Synced", "Running", f"configmap/a {told}")


def test_a_dry_run_does_nothing() -> None:
    """There are rows, but nothing is applied."""
    found = advance([A, JOB], (), Live(), Options(dry_run=True))

    assert (found.phase, found.message) == ("Succeeded", "successfully synced (no more tasks)")
    assert ([row["name"] for row in found.rows], found.applied, found.hooks_started) == (["a"], (), ())


@pytest.mark.parametrize(
    ("options", "status", "pruned"),
    [(Options(), "PruneSkipped", ()), (Options(prune=True), "Pruned", [B.id]), (Options(partial=True), None, ())],
    ids=["kept", "pruned", "partial"],
)
def test_what_is_no_longer_wanted(options: Options, status: str | None, pruned: Sequence[ResourceId]) -> None:
    """It is deleted only when the operation says so."""
    found = advance([A], (), Live(owned=frozenset({A.id, B.id})), options)
    (row, *more) = found.rows

    assert row["name"] == "a"
    assert [one["status"] for one in more] == ([status] if status else [])
    assert found.pruned == pruned


def test_termination_ends_the_hooks() -> None:
    """Those that run are deleted and marked; what was applied stays as it is."""
    rows = advance([A, JOB], (), Live(), Options()).rows
    found = terminate(rows, Live(hooks={JOB.id: "Running"}))

    assert (found.phase, found.message, found.hooks_deleted) == ("Failed", "Operation terminated", [JOB.id])
    assert [(row["hookPhase"], row["message"]) for row in found.rows] == [
        ("Running", "configmap/a created"),
        ("Failed", "Terminated"),
    ]


def test_an_unknown_kind_of_hook() -> None:
    """The known ones are listed."""
    with pytest.raises(ValueError, match="Job x: hook is one of PreSync, Sync, PostSync, not 'Skip'"):
        Manifest("Job", "x", hook="Skip")
