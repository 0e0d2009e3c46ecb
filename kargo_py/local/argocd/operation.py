"""The life of an operation: what the operation worker does with what it has read (spec 1.3 - 1.9).

Which operation is meant is decided in one place, :func:`begin`: a state in progress goes before ``.operation``,
whatever stands there by now. All the ways in which an operation is lost, swapped or killed by an old Terminating
follow from it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

from kargo_py.kube.client import JsonObject, PatchType
from kargo_py.local.argocd.documents import (
    IN_PROGRESS,
    Patch,
    is_skipped,
    merge,
    moment,
    operation_state,
    seconds,
    timestamp,
)
from kargo_py.local.argocd.timing import Version

BLOCKED = "Sync operation blocked by sync window"


class Beginning(Enum):
    """Why a turn of the worker begins as it does; all but RESUME begin with a write."""

    NEW = auto()
    RESUME = auto()
    RETRY = auto()
    TIMEOUT = auto()


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of the worker: go on with *state*."""

    beginning: Beginning
    state: JsonObject

    @property
    def cause(self) -> str:
        """What a termination in this turn is due to."""
        return ", triggered by controller sync timeout" if self.beginning is Beginning.TIMEOUT else ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before *until*."""

    until: datetime


def begin(app: JsonObject, now: datetime, *, sync_timeout: float = 0.0) -> Turn | Wait | None:
    """What a worker that has read *app* does; None when it is not its business."""
    operation = app.get("operation")
    if not operation or is_skipped(app):
        return None
    stored = operation_state(app)
    if not stored or stored.get("phase") not in IN_PROGRESS:
        copied = {"retry": {}} | copy.deepcopy(operation)
        return Turn(Beginning.NEW, {"operation": copied, "phase": "Running", "startedAt": timestamp(now)})
    state = copy.deepcopy(stored)
    if state["phase"] == "Terminating":
        return Turn(Beginning.RESUME, state)
    if state.get("finishedAt"):
        return _retry(state, now)
    if sync_timeout and now >= moment(state["startedAt"]) + timedelta(seconds=sync_timeout):
        state |= {"phase": "Terminating", "message": "operation is terminating due to timeout"}
        return Turn(Beginning.TIMEOUT, state)
    return Turn(Beginning.RESUME, state)


def _retry(state: JsonObject, now: datetime) -> Turn | Wait:
    """The next attempt, when its time has come: counted with the raised number of retries (spec 1.6)."""
    retry = state["operation"].get("retry") or {}
    until = moment(state["finishedAt"]) + _backoff(retry, state.get("retryCount", 0))
    if now < until:
        return Wait(until)
    del state["finishedAt"]
    state.pop("syncResult", None)
    state["message"] = f"Retrying operation. Attempt #{state.get('retryCount', 0)}"
    if retry.get("refresh") and (sync := state["operation"].get("sync")):
        sync.pop("revision", None)
        sync.pop("revisions", None)
    return Turn(Beginning.RETRY, state)


def _backoff(retry: JsonObject, count: int) -> timedelta:
    backoff = retry.get("backoff") or {}
    most = seconds(backoff.get("maxDuration") or "3m")
    return timedelta(
        seconds=min(seconds(backoff.get("duration") or "5s") * (backoff.get("factor") or 2) ** count, most)
    )


def conclude(turn: Turn, state: JsonObject, now: datetime) -> JsonObject:
    """*state* as it is written after a pass: with a retry where one is due, ended where it is complete.

    A terminated operation is never tried again. The time in the message is that of the old count (spec 1.6).
    """
    if state["phase"] in IN_PROGRESS:
        return state
    terminated = turn.state["phase"] == "Terminating"
    retry = state["operation"].get("retry") or {}
    count = state.get("retryCount", 0)
    limit = retry.get("limit", 0)
    ended = state | {"finishedAt": timestamp(now)}
    if terminated:
        ended["message"] += turn.cause
    if ended["phase"] == "Succeeded":
        return ended
    if not terminated and (count < limit or limit < 0):
        try:
            backoff = _backoff(retry, count)
        except ValueError as error:
            return ended | {"message": f"{ended['message']} (failed to retry: {error})"}
        at = (now + backoff).strftime("%I:%M%p").removeprefix("0")
        again = f"{ended['message']}. Retrying attempt #{count + 1} at {at}."
        return ended | {"phase": "Running", "retryCount": count + 1, "message": again}
    if count:
        ended["message"] += f" (retried {count} times)."
    return ended


def terminating_if_asked(state: JsonObject, latest: JsonObject) -> JsonObject:
    """*state*, which is still running, or a terminating one when the Application meanwhile says so."""
    if (operation_state(latest) or {}).get("phase") == "Terminating":
        return state | {"phase": "Terminating", "message": "operation is terminating"}
    return state


def state_patch(app: JsonObject, state: JsonObject, version: Version) -> Patch:
    """Write *state*, and clear ``.operation`` when it is complete; unconditional (spec 1.4, 1.12).

    The merge patch of 3.5 leaves message, syncResult and retryCount of the last operation where *state* has none.
    """
    complete = state["phase"] not in IN_PROGRESS
    if version.replaces_state and app.get("status"):
        body: list[JsonObject] = [{"op": "add", "path": "/status/operationState", "value": state}]
        if complete:  # the first makes the second possible, whether there is an operation by now or not
            body += [{"op": "add", "path": "/operation", "value": {}}, {"op": "remove", "path": "/operation"}]
        return Patch(PatchType.JSON, body)
    merged: JsonObject = {"status": {"operationState": {"finishedAt": None} | state}}
    return merge(merged | {"operation": None} if complete else merged)


def history_patch(app: JsonObject, state: JsonObject, now: datetime) -> Patch:
    """Remember what was deployed, up to spec.revisionHistoryLimit entries."""
    history: Sequence[JsonObject] = (app.get("status") or {}).get("history") or ()
    result = state["syncResult"]
    entry: dict[str, Any] = {
        "id": history[-1]["id"] + 1 if history else 0,
        "deployStartedAt": state["startedAt"],
        "deployedAt": timestamp(now),
        "initiatedBy": state["operation"].get("initiatedBy") or {},
    }
    names = ("revisions", "sources") if "sources" in result else ("revision", "source")
    entry |= {name: result[name] for name in names}
    limit = app["spec"].get("revisionHistoryLimit", 10)
    return merge({"status": {"history": [*history, entry][-limit:] if limit else []}})


def is_recorded(state: JsonObject) -> bool:
    """Whether the end of this operation is worth an entry: full, not dry, successful syncs are (spec 1.10)."""
    sync = state["operation"].get("sync") or {}
    return state["phase"] == "Succeeded" and not sync.get("dryRun") and not sync.get("resources")


def is_followed_by_refresh(state: JsonObject) -> bool:
    """Whether the verdict is made anew after this end: not for dry runs, nor without a sync (spec 1.10)."""
    sync = state["operation"].get("sync")
    return sync is not None and not sync.get("dryRun")
