"""The life of an operation, step by step (spec 1.3 - 1.9)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kargo_py.kube.client import PatchType
from kargo_py.local.apiserver.patches import json_patch, merge_patch
from kargo_py.local.argocd.documents import seconds, timestamp
from kargo_py.local.argocd.operation import (
    Beginning,
    Turn,
    Wait,
    begin,
    conclude,
    history_patch,
    is_followed_by_refresh,
    is_recorded,
    state_patch,
)
from kargo_py.local.argocd.timing import Version

JsonObject = dict[str, Any]

NOW = datetime(2026, 11, 30, 12, 0, 30, tzinfo=UTC)
MINE: JsonObject = {"info": [{"name": "id", "value": "mine"}], "sync": {"revision": "a"}}
OTHER: JsonObject = {"info": [{"name": "id", "value": "other"}], "sync": {}, "retry": {}}


def state(phase: str, operation: JsonObject = OTHER, **more: Any) -> JsonObject:
    """An operationState that began half a minute ago."""
    return {"operation": operation, "phase": phase, "startedAt": timestamp(NOW - timedelta(seconds=30)), **more}


def app(operation: JsonObject | None = MINE, stored: JsonObject | None = None, skip: str = "") -> JsonObject:
    """An Application with an operation and a state."""
    obj: JsonObject = {
        "metadata": {"name": "a", "annotations": {"argocd.argoproj.io/skip-reconcile": skip}},
        "spec": {},
    }
    if operation is not None:
        obj["operation"] = operation
    if stored is not None:
        obj["status"] = {"operationState": stored}
    return obj


NEW = Turn(Beginning.NEW, {"operation": {**MINE, "retry": {}}, "phase": "Running", "startedAt": timestamp(NOW)})
RETRY = {**OTHER, "retry": {"limit": 3, "backoff": {"duration": "5s", "factor": 3, "maxDuration": "1m"}}}


def waiting(ago: float, count: int, operation: JsonObject = RETRY) -> JsonObject:
    """A state between two attempts."""
    ended = timestamp(NOW - timedelta(seconds=ago))
    return state("Running", operation, finishedAt=ended, retryCount=count, message="no", syncResult={"revision": "b"})


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(app(None), None, id="no operation"),
        pytest.param(app(None, state("Running")), None, id="orphan"),
        pytest.param(app(None, state("Terminating")), None, id="stale terminating"),
        pytest.param(app(), NEW, id="first"),
        pytest.param(app(MINE, state("Succeeded", message="done", retryCount=2)), NEW, id="after another"),
        pytest.param(app(MINE, state("Failed")), NEW, id="after a failed one"),
        pytest.param(app(MINE, skip="true"), None, id="skipped"),
        pytest.param(app(MINE, skip="yes"), NEW, id="not skipped"),
        pytest.param(app(MINE, state("Running")), Turn(Beginning.RESUME, state("Running")), id="another runs"),
        pytest.param(app(MINE, state("Terminating")), Turn(Beginning.RESUME, state("Terminating")), id="stale kills"),
        pytest.param(app(OTHER, waiting(10, 1)), Wait(NOW + timedelta(seconds=5)), id="retry not due"),
        pytest.param(
            app(OTHER, waiting(15, 1)),
            Turn(Beginning.RETRY, state("Running", RETRY, retryCount=1, message="Retrying operation. Attempt #1")),
            id="retry due",
        ),
        pytest.param(app(OTHER, waiting(59, 9)), Wait(NOW + timedelta(seconds=1)), id="back-off has a cap"),
        pytest.param(
            app(OTHER, waiting(1, 1) | {"phase": "Terminating"}),
            Turn(Beginning.RESUME, waiting(1, 1) | {"phase": "Terminating"}),
            id="terminating does not wait",
        ),
    ],
)
def test_begin(obj: JsonObject, expected: Turn | Wait | None) -> None:
    """A state in progress goes before the operation, and without an operation nothing is touched."""
    assert begin(obj, NOW) == expected


@pytest.mark.parametrize(("timeout", "beginning"), [(0, "RESUME"), (31, "RESUME"), (30, "TIMEOUT")])
def test_sync_timeout(timeout: float, beginning: str) -> None:
    """What runs for too long is terminated by the controller itself."""
    turn = begin(app(OTHER, state("Running")), NOW, sync_timeout=timeout)

    assert isinstance(turn, Turn)
    assert turn.beginning is Beginning[beginning]
    assert turn.state["phase"] == ("Terminating" if beginning == "TIMEOUT" else "Running")


def test_a_retry_may_drop_the_revision() -> None:
    """With retry.refresh the next attempt takes what the target revision is by then."""
    pinned = {"sync": {"revision": "a", "prune": True}, "retry": {"limit": 1, "refresh": True}}
    turn = begin(app(MINE, waiting(60, 1, pinned)), NOW)

    assert isinstance(turn, Turn)
    assert turn.state["operation"]["sync"] == {"prune": True}


def ended(phase: str, *, retries: int = 0, limit: int = 0, **more: Any) -> JsonObject:
    """A state with the verdict of a pass."""
    operation = {"sync": {}, "retry": {"limit": limit, "backoff": {"duration": "30s"}} if limit else {}}
    return state(phase, operation, message="no", **({"retryCount": retries} if retries else {}), **more)


@pytest.mark.parametrize(
    ("began", "found", "expected"),
    [
        pytest.param("Running", ended("Running"), ("Running", "no", None, False), id="goes on"),
        pytest.param("Running", ended("Succeeded"), ("Succeeded", "no", None, True), id="succeeded"),
        pytest.param("Running", ended("Succeeded", retries=1), ("Succeeded", "no", 1, True), id="at last"),
        pytest.param("Running", ended("Failed"), ("Failed", "no", None, True), id="failed"),
        pytest.param(
            "Running",
            ended("Failed", limit=2),
            ("Running", "no. Retrying attempt #1 at 12:01PM.", 1, True),
            id="first retry",
        ),
        pytest.param(
            "Running",
            ended("Error", limit=2, retries=1),
            ("Running", "no. Retrying attempt #2 at 12:01PM.", 2, True),
            id="second retry",
        ),
        pytest.param(
            "Running", ended("Failed", limit=2, retries=2), ("Failed", "no (retried 2 times).", 2, True), id="used up"
        ),
        pytest.param(
            "Running",
            ended("Failed", limit=-1, retries=8),
            ("Running", "no. Retrying attempt #9 at 12:03PM.", 9, True),
            id="endless",
        ),
        pytest.param("Terminating", ended("Failed", limit=2), ("Failed", "no", None, True), id="terminated"),
        pytest.param(
            "Terminating",
            ended("Failed", limit=2, retries=1),
            ("Failed", "no (retried 1 times).", 1, True),
            id="terminated in a retry",
        ),
    ],
)
def test_conclude(began: str, found: JsonObject, expected: tuple[str, str, int | None, bool]) -> None:
    """What fails is tried again as long as the limit says; what was terminated is not."""
    written = conclude(Turn(Beginning.RESUME, state(began)), found, NOW)

    assert (
        written["phase"],
        written["message"],
        written.get("retryCount"),
        written.get("finishedAt") == timestamp(NOW),
    ) == expected


def test_a_back_off_that_cannot_be_read() -> None:
    """There is no retry, and the message says why."""
    found = ended("Failed", limit=2)
    found["operation"]["retry"]["backoff"]["duration"] = "soon"
    written = conclude(Turn(Beginning.RESUME, state("Running")), found, NOW)

    assert (written["phase"], "retryCount" in written) == ("Failed", False)
    assert written["message"].startswith("no (failed to retry: 'soon' is no duration")


def test_termination_by_timeout_says_so() -> None:
    """The cause is known in the turn that begins with the time-out."""
    turn = Turn(Beginning.TIMEOUT, state("Terminating"))

    assert conclude(turn, ended("Failed"), NOW)["message"] == "no, triggered by controller sync timeout"


LEFT = state("Succeeded", message="done", retryCount=2, finishedAt=timestamp(NOW), syncResult={"revision": "b"})


def written(version: Version, obj: JsonObject, new: JsonObject) -> JsonObject:
    """The Application after the patch."""
    patch = state_patch(obj, new, version)
    found: JsonObject = (json_patch if patch.type is PatchType.JSON else merge_patch)(obj, patch.body)
    return found


def test_3_6_replaces_the_state() -> None:
    """Nothing of the last operation stays."""
    after = written(Version.V3_6, app(MINE, LEFT), NEW.state)

    assert after["status"]["operationState"] == NEW.state


def test_3_5_merges_the_state() -> None:
    """Message, result and retries of the last operation stay until there are new ones; finishedAt does not."""
    after = written(Version.V3_5, app(MINE, LEFT), NEW.state)
    stayed = {"message": "done", "retryCount": 2, "syncResult": {"revision": "b"}}

    assert after["status"]["operationState"] == NEW.state | stayed


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("operation", [MINE, None], ids=["there", "taken back"])
@pytest.mark.parametrize("stored", [LEFT, None], ids=["status", "no status"])
def test_the_end_clears_the_operation(
    version: Version, operation: JsonObject | None, stored: JsonObject | None
) -> None:
    """Whatever operation is there by then, and if there is none."""
    after = written(version, app(operation, stored), ended("Failed", finishedAt=timestamp(NOW)))

    assert "operation" not in after
    assert after["status"]["operationState"]["phase"] == "Failed"


@pytest.mark.parametrize(("limit", "expected"), [(None, [0, 1, 2, 3]), (2, [2, 3]), (0, [])])
def test_history(limit: int | None, expected: list[int]) -> None:
    """Entries are numbered on, and the oldest go."""
    result = {"revision": "a", "source": {"repoURL": "r"}, "resources": [{}]}
    obj: JsonObject = {"spec": {} if limit is None else {"revisionHistoryLimit": limit}}
    obj["status"] = {"history": [{"id": number} for number in range(3)]}
    patch = history_patch(obj, ended("Succeeded", syncResult=result), NOW)
    entries = patch.body["status"]["history"]

    assert [entry["id"] for entry in entries] == expected
    assert not entries or entries[-1]["revision"] == "a"


@pytest.mark.parametrize(
    ("sync", "phase", "recorded", "refreshed"),
    [
        pytest.param({}, "Succeeded", True, True, id="full"),
        pytest.param({}, "Failed", False, True, id="failed"),
        pytest.param({"dryRun": True}, "Succeeded", False, False, id="dry run"),
        pytest.param({"resources": [{}]}, "Succeeded", False, True, id="partial"),
        pytest.param(None, "Error", False, False, id="no sync"),
    ],
)
def test_what_follows_an_end(sync: JsonObject | None, phase: str, recorded: bool, refreshed: bool) -> None:
    """Only full, successful syncs are history; only real ones lead to a new verdict."""
    operation = {} if sync is None else {"sync": sync}
    found = state(phase, operation)

    assert (is_recorded(found), is_followed_by_refresh(found)) == (recorded, refreshed)


@pytest.mark.parametrize(("text", "expected"), [("5s", 5), ("1m30s", 90), ("1.5h", 5400), ("250ms", 0.25)])
def test_durations(text: str, expected: float) -> None:
    """As Go writes them."""
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "5", "soon", "5s later"])
def test_no_durations(text: str) -> None:
    """The text says how to write one."""
    with pytest.raises(ValueError, match="write it like 5s or 1m30s"):
        seconds(text)
