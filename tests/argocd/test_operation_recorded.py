"""Decisions about operations, on Application objects recorded from a real Argo CD in each operation state.

The recordings were made by another client; where a test is about *our* operation, our stamp is put among the info of
the recorded operation, which is where it would have been.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kargo_py.api.stamp import STAMP_KEY
from kargo_py.argocd.application import Application
from kargo_py.argocd.operation import Decision, Intent, Knowledge, Verb, Waiting, decide_operation

RECORDED = Path(__file__).parent / "recorded"

JsonObject = dict[str, Any]
Recorded = Callable[[str], JsonObject]
Parse = Callable[[JsonObject], Application]

STAMP = "v1/instance/shop/dev.01k/uid/update/1"


def sign(obj: JsonObject) -> JsonObject:
    """Make the recorded operation ours."""
    for operation in (obj.get("operation"), ((obj.get("status") or {}).get("operationState") or {}).get("operation")):
        if operation:
            operation.setdefault("info", []).append({"name": STAMP_KEY, "value": STAMP})
    obj["metadata"].setdefault("annotations", {})[STAMP_KEY] = STAMP
    return obj


def decide(app: Application, *desired: str) -> Decision:
    """Decide about our attempt on exactly this Application."""
    return decide_operation(app, Intent(app.key, app.metadata.uid, STAMP, desired), Knowledge())


@pytest.mark.parametrize(
    ("name", "verb", "waiting", "words"),
    [
        ("10-running-first", Verb.WAIT, Waiting.RUNNING, "running"),
        ("11-succeeded", Verb.SUCCEEDED, None, "successfully synced"),
        ("12-after-refresh", Verb.SUCCEEDED, None, "successfully synced"),
        ("16-dry-run", Verb.SUCCEEDED, None, "synced"),
        ("20-error-unknown-revision", Verb.FAILED, None, "ComparisonError: Failed to load target state"),
        ("15-op-without-sync", Verb.FAILED, None, "Invalid operation request: no operation specified"),
        ("21-failed-invalid-manifest", Verb.FAILED, None, "must be between 1 and 65535"),
        ("22-retry-waiting", Verb.WAIT, Waiting.HELD_UP, "Argo CD will retry"),
        ("23-failed-after-retries", Verb.FAILED, None, "(retried 2 times)"),
        ("30-running-waiting-hook", Verb.WAIT, Waiting.HELD_UP, "waiting for completion of hook batch/Job/slow"),
        ("31-terminating", Verb.WAIT, Waiting.STOPPING, "being terminated"),
        ("32-terminated", Verb.FAILED, None, "Operation terminated"),
        ("34-hook-succeeded", Verb.SUCCEEDED, None, "synced"),
        ("35-hook-failed", Verb.FAILED, None, "Job slow: Job has reached the specified backoff limit"),
        ("42-operation-removed-stuck", Verb.WAIT, Waiting.HELD_UP, "somebody removed the operation"),
        ("50-blocked-by-window", Verb.WAIT, Waiting.WINDOW, "Sync operation blocked by sync window"),
        ("63-multi-source", Verb.SUCCEEDED, None, "synced"),
    ],
)
def test_our_operation(
    recorded: Recorded, parse: Parse, name: str, verb: Verb, waiting: Waiting | None, words: str
) -> None:
    """What is seen of our own operation is told apart by phase, finishedAt, `.operation` and message."""
    decision = decide(parse(sign(recorded(name))))

    assert (verb, waiting) == (decision.verb, decision.waiting)
    assert words in decision.message


@pytest.mark.parametrize(
    ("name", "verb", "words"),
    [
        ("00-created-outofsync", Verb.START, "starting"),
        ("11-succeeded", Verb.START, "starting"),
        ("21-failed-invalid-manifest", Verb.START, "starting"),
        ("10-running-first", Verb.WAIT, "promoter"),
        ("22-retry-waiting", Verb.WAIT, "promoter"),
        ("30-running-waiting-hook", Verb.WAIT, "promoter"),
        ("31-terminating", Verb.WAIT, "Terminating"),
        ("42-operation-removed-stuck", Verb.WAIT, "promoter"),
        ("60-autosync", Verb.START, "starting"),
    ],
)
def test_somebody_elses_operation(recorded: Recorded, parse: Parse, name: str, verb: Verb, words: str) -> None:
    """An operation of others is waited for as long as it is in progress, and is no obstacle once it is complete."""
    decision = decide(parse(recorded(name)))

    assert verb is decision.verb
    assert words in decision.message


@pytest.mark.parametrize(
    ("name", "desired", "verb"),
    [
        ("11-succeeded", ["f7076ec009c69980903ee4ced107aa597e2ea8e2"], Verb.SUCCEEDED),
        ("11-succeeded", ["f7076ec"], Verb.SUCCEEDED),
        ("11-succeeded", ["main"], Verb.MISMATCHED),
        ("11-succeeded", ["0" * 40], Verb.MISMATCHED),
        ("14-no-revision", ["main"], Verb.SUCCEEDED),
        ("14-no-revision", ["other"], Verb.MISMATCHED),
        ("63-multi-source", ["826c8813ee9a61b283b75d5f3b54b94501bbe08a", ""], Verb.SUCCEEDED),
        ("63-multi-source", ["826c881", "40ec10c"], Verb.SUCCEEDED),
        ("63-multi-source", ["40ec10c", "826c881"], Verb.MISMATCHED),
        ("63-multi-source", ["826c881"], Verb.MISMATCHED),
    ],
)
def test_revision(recorded: Recorded, parse: Parse, name: str, desired: list[str], verb: Verb) -> None:
    """A success counts only at the desired revision: a SHA, its prefix, or the branch the operation was to resolve."""
    decision = decide(parse(sign(recorded(name))), *desired)

    assert verb is decision.verb
    if verb is Verb.MISMATCHED:
        assert desired[0] in decision.message


@pytest.mark.parametrize("name", sorted(path.stem for path in RECORDED.glob("*.yaml")))
def test_every_recording_is_read(recorded: Recorded, parse: Parse, name: str) -> None:
    """Nothing a real Argo CD writes makes an Application unreadable."""
    assert parse(recorded(name)).unreadable == ""


def test_hydrated_application_is_refused(recorded: Recorded, parse: Parse) -> None:
    """Editing spec.source of an Application with a source hydrator would change nothing."""
    decision = decide(parse(recorded("81-hydrator-synced")))

    assert Verb.REFUSED is decision.verb
    assert "spec.sourceHydrator" in decision.message
