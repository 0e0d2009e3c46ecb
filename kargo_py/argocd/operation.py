"""What to do about one operation of one Application, and how it ended.

Everything here is a plain function from the Application as seen and the recorded intent to a decision with a sentence
in it. The rules rest on experiments with real Argo CD 3.5 and 3.6 controllers; the recorded objects are the tests'
material. The ones that matter most:

* While ``operationState`` is in progress only ``operationState.operation`` says whose operation it is: the worker goes
  on with that copy whatever stands in ``.operation``.
* When ``operationState`` is absent or complete, ``.operation`` is a request that was not picked up yet.
* The end is one patch that sets a final phase and clears ``.operation``. One operation's state is kept only: a later
  operation replaces it, so our ending may be visible for a moment only and is latched by the caller (``latched``).
* The stamp annotation written with the start survives all that. It tells "carried out, and its trace is gone" from
  "never carried out".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kargo_py.argocd.application import Application, OperationState, describe, initiator, stamp_of
from kargo_py.argocd.revisions import unmet
from kargo_py.kube.resources import Key

_MAX_MESSAGE = 1500
_MAX_RESOURCES = 3


class Verb(Enum):
    """What follows from what is seen."""

    START = "start"
    WAIT = "wait"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    LOST = "lost"
    REFUSED = "refused"


class Waiting(Enum):
    """What a WAIT waits for; everything but RUNNING is worth telling the user."""

    RUNNING = "running"
    PICK_UP = "pick-up"
    FOREIGN = "another operation"
    HELD_UP = "retry, hook or sync window"


@dataclass(frozen=True, slots=True)
class Intent:
    """What was recorded before the start was issued.

    ``desired`` has one entry per source of the Application, "" where the step has no opinion. ``seen_stamp`` is the
    stamp annotation ("" for none) at that moment.
    """

    application: Key
    uid: str
    stamp: str
    desired: tuple[str, ...] = ()
    seen_stamp: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do and why; ``message`` is a sentence a user reads.

    ``revisions`` are the applied ones (SUCCEEDED), times are Argo CD's own RFC3339 texts.
    """

    verb: Verb
    message: str
    waiting: Waiting | None = None
    revisions: tuple[str, ...] = ()
    started_at: str | None = None
    finished_at: str | None = None


def controllable(app: Application) -> str | None:
    """Why no operation can be started on *app* now or later; None when one can."""
    if app.unreadable:
        return f"{app} cannot be read: {app.unreadable}; correct that field"
    if app.metadata.deletion_timestamp:
        return f"{app} is being deleted"
    if app.metadata.annotations.skip_reconcile == "true":
        return (
            f"{app} has the annotation argocd.argoproj.io/skip-reconcile, so Argo CD would never run a sync; "
            "remove it and promote again"
        )
    if app.spec.source_hydrator is not None:
        return f"{app} uses spec.sourceHydrator; promoting hydrated Applications is not supported"
    if not app.spec.effective_sources:
        return f"{app} has neither spec.source nor spec.sources; there is nothing to sync"
    return None


def decide_operation(
    app: Application | None, intent: Intent, latched: OperationState | None = None, *, never_issued: bool = False
) -> Decision:
    """Decide about the attempt that *intent* records.

    *never_issued*: this process recorded the intent and knows that no start of it was ever sent. Otherwise another
    stamp than the one seen then means that somebody started something since, perhaps over ours: that cannot be told
    any more, and is never taken for "not carried out".

    *app* must be at least as new as every write of ours that was answered. START is safe on an outdated *app* too, as
    long as the start is guarded by its resourceVersion.
    """
    if latched is not None:
        return _ended(latched, intent)
    if app is None:
        return Decision(Verb.LOST, f"{describe(intent.application)} does not exist any more")
    if app.metadata.uid != intent.uid:
        return Decision(Verb.LOST, f"{app} was deleted and created again, and its operation went with it")
    state = app.status.operation_state
    if state is not None and state.stamp == intent.stamp:
        return _ended(state, intent) if state.completed else _in_progress(app, state)
    if stamp_of(app.operation) == intent.stamp:
        return _requested(app, state)
    annotated = app.metadata.annotations.stamp or ""
    if annotated == intent.stamp:
        return _superseded(app, state)
    if annotated != intent.seen_stamp and not never_issued:
        return Decision(
            Verb.SUPERSEDED,
            f"{app}: another Promotion started a sync since ({annotated or 'its stamp was removed'}), and whether the "
            "sync of this one was carried out before that cannot be told any more; promote again if it is still wanted",
        )
    return _not_carried_out(app, state)


def _in_progress(app: Application, state: OperationState) -> Decision:
    """Ours is the operation the worker goes on with."""
    if app.operation is None:
        return _wait(
            Waiting.HELD_UP,
            f"{app}: somebody removed the operation while it was {state.phase}; Argo CD does not go on with it",
        )
    if state.phase == "Terminating":
        return _wait(Waiting.HELD_UP, f"{app}: the sync is being terminated", state)
    if state.finished_at:
        attempts = f"attempt {state.retry_count} failed" if state.retry_count else "an attempt failed"
        return _wait(Waiting.HELD_UP, f"{app}: {attempts}, Argo CD will retry: {_cut(state.message)}", state)
    if state.message.startswith(("waiting for ", "Sync operation blocked")):
        return _wait(Waiting.HELD_UP, f"{app}: {_cut(state.message)}", state)
    return _wait(Waiting.RUNNING, f"{app}: the sync is running", state)


def _requested(app: Application, state: OperationState | None) -> Decision:
    """Ours stands in ``.operation``, and the worker has not taken it up."""
    if state is not None and state.phase and not state.completed:
        return _wait(
            Waiting.FOREIGN, f"{app}: an operation started by {initiator(state.operation)} is {state.phase} before ours"
        )
    return _wait(Waiting.PICK_UP, f"{app}: Argo CD has not picked up the sync yet")


def _superseded(app: Application, state: OperationState | None) -> Decision:
    """Ours was carried out (the annotation proves it) and no trace of its operation is left."""
    by = app.operation or (state.operation if state is not None else None)
    if by is None:
        return Decision(Verb.SUPERSEDED, f"{app}: the sync of this Promotion was removed by somebody")
    return Decision(
        Verb.SUPERSEDED,
        f"{app}: the sync of this Promotion was superseded by an operation started by {initiator(by)}, "
        "and how it ended was not seen",
    )


def _not_carried_out(app: Application, state: OperationState | None) -> Decision:
    """There is no trace of ours: start, unless somebody else holds the Application."""
    if reason := controllable(app):
        return Decision(Verb.REFUSED, reason)
    if state is not None and state.phase and not state.completed:
        message = f"{app}: waiting for the operation started by {initiator(state.operation)}, which is {state.phase}"
        return _wait(Waiting.FOREIGN, message)
    if app.operation is not None:
        message = f"{app}: waiting for the operation requested by {initiator(app.operation)}, not picked up yet"
        return _wait(Waiting.FOREIGN, message)
    return Decision(Verb.START, f"{app}: starting a sync")


def _ended(state: OperationState, intent: Intent) -> Decision:
    """Ours is complete: judge it."""
    name = describe(intent.application)
    if state.phase != "Succeeded":
        return _end(Verb.FAILED, f"{name}: sync failed: {_failure(state)}", state)
    applied = state.sync_result.applied if state.sync_result is not None else ()
    if mismatch := unmet(intent.desired, state):
        return _end(Verb.FAILED, f"{name}: the sync succeeded, but {mismatch}", state, applied)
    return _end(Verb.SUCCEEDED, f"{name}: {_cut(state.message) or 'synced'}", state, applied)


def _failure(state: OperationState) -> str:
    """Argo CD's message, and the resources that failed where it does not quote them."""
    message = _cut(state.message) or f"the operation ended as {state.phase} without a message"
    rows = state.sync_result.resources if state.sync_result is not None else ()
    failed = [row for row in rows if row.failed and row.message and row.message not in state.message]
    if not failed:
        return message
    shown = "; ".join(f"{row.kind} {row.name}: {_cut(row.message, 300)}" for row in failed[:_MAX_RESOURCES])
    more = f"; and {len(failed) - _MAX_RESOURCES} more" if len(failed) > _MAX_RESOURCES else ""
    return f"{message} ({shown}{more})"


def _wait(waiting: Waiting, message: str, state: OperationState | None = None) -> Decision:
    return Decision(Verb.WAIT, message, waiting, started_at=(state.started_at or None) if state else None)


def _end(verb: Verb, message: str, state: OperationState, revisions: tuple[str, ...] = ()) -> Decision:
    return Decision(
        verb, message, revisions=revisions, started_at=state.started_at or None, finished_at=state.finished_at
    )


def _cut(text: str, limit: int = _MAX_MESSAGE) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
