"""What to do about one operation of one Application, and how it ended.

Everything here is a plain function from the Application as seen, the recorded intent and what this process knows of the
attempt, to a decision with a sentence in it. The rules rest on experiments with real Argo CD 3.5 and 3.6 controllers;
the recorded objects are the tests' material. The ones that matter most:

* While ``operationState`` is in progress only ``operationState.operation`` says whose operation it is: the worker goes
  on with that copy whatever stands in ``.operation``.
* When ``operationState`` is absent or complete, ``.operation`` is a request that was not picked up yet. The worker may
  have read it already, and then carries it out though somebody has overwritten or removed it meanwhile: what becomes of
  such a request is known once the worker has written something else, or nothing for :data:`SETTLED` seconds.
* The end is one patch that sets a final phase and clears ``.operation``. One operation's state is kept only: a later
  operation replaces it, so our ending may be visible for a moment only and is latched by the caller.
* The stamp annotation written with the start survives all that. It tells "carried out, and its trace is gone" from
  "never carried out". A full sync that succeeded is in the history too, which tells by whom, but not for which attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeGuard

from kargo_py.argocd.application import Application, InitiatedBy, OperationState, describe, initiator, mark_of
from kargo_py.argocd.revisions import newer_than_desired, unmet
from kargo_py.kube.resources import Key

PICK_UP_TIME = 10.0
"""Seconds after which an operation that was not picked up is worth a nudge (spec 1.12: an idle worker sleeps till
the next update event of that Application)."""

NUDGE_AGAIN = 30.0
"""Seconds between nudges."""

SETTLED = 35.0
"""Seconds after which a worker that was in the middle of something would have shown it: it looks at each operation
every 30 seconds at the latest."""

_MAX_MESSAGE = 1500
_MAX_RESOURCES = 3


class Verb(Enum):
    """What follows from what is seen."""

    START = "start"
    WAIT = "wait"
    NUDGE = "nudge"
    TERMINATE = "terminate"
    FENCE = "fence"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    MISMATCHED = "mismatched"
    SUPERSEDED = "superseded"
    LOST = "lost"
    REFUSED = "refused"
    NOT_STARTED = "not started"


class Waiting(Enum):
    """What a WAIT waits for; everything but RUNNING is worth telling the user."""

    RUNNING = "running"
    PICK_UP = "pick-up"
    FOREIGN = "another operation"
    HELD_UP = "retry, hook, sync window, or somebody's mistake"
    STOPPING = "the end of a termination"


@dataclass(frozen=True, slots=True)
class Intent:
    """What was recorded before the start was issued.

    ``mark`` names the attempt: its stamp, or for an adopted operation (see :attr:`adopted`) that of
    :func:`~kargo_py.argocd.application.mark_of`. ``desired`` has one entry per source of the Application, "" where the
    step has no opinion. ``seen_stamp`` is the stamp annotation ("" for none), and ``history_id`` the newest entry of
    the history (None for none), at that moment; ``initiator`` is who appears as the one who started the operation.
    """

    application: Key
    uid: str
    mark: str
    desired: tuple[str, ...] = ()
    seen_stamp: str = ""
    history_id: int | None = None
    initiator: str = ""
    adopted: bool = False
    accept_newer: bool = False


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What this process knows of an attempt beside the Application.

    ``latched``: its ending, if it was seen. ``never_issued``: no start of it was ever sent. ``fenced``: none that was
    sent can land any more. ``stopping``: it is to be stopped. ``unchanged``: seconds, by our own clock, for which the
    Application's operation has been as it is now, and ``nudges`` how many were sent in that time.
    """

    latched: OperationState | None = None
    never_issued: bool = False
    fenced: bool = False
    stopping: bool = False
    unchanged: float = 0.0
    nudges: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do and why; ``message`` is a sentence a user reads.

    ``look_after``: seconds after which time alone may change the decision. ``repeatable`` (of SUPERSEDED and
    MISMATCHED): a new attempt cannot deploy a second time what was deployed already. ``revisions`` are the applied
    ones, times are Argo CD's own RFC3339 texts.
    """

    verb: Verb
    message: str
    waiting: Waiting | None = None
    look_after: float | None = None
    repeatable: bool = False
    revisions: tuple[str, ...] = ()
    started_at: str | None = None
    finished_at: str | None = None


def operation_aspect(app: Application) -> object:
    """What a decision about an operation rests on; equal for two versions that differ in other things only."""
    state = app.status.operation_state
    return (
        app.metadata.uid,
        app.metadata.annotations.stamp,
        app.metadata.annotations.skip_reconcile,
        app.metadata.deletion_timestamp is None,
        app.operation,
        state and (state.mark, state.phase, state.finished_at, state.message, state.retry_count),
    )


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


def decide_operation(app: Application | None, intent: Intent, known: Knowledge) -> Decision:
    """Decide about the attempt that *intent* records.

    *app* must be at least as new as every write of ours that was answered. START, TERMINATE and FENCE are safe on an
    outdated *app* too, as long as what is written is guarded by what was decided on.
    """
    if known.latched is not None:
        return _ended(known.latched, intent, app, stopping=known.stopping)
    if app is None:
        return Decision(Verb.LOST, f"{describe(intent.application)} does not exist any more")
    if app.metadata.uid != intent.uid:
        return Decision(Verb.LOST, f"{app} was deleted and created again, and its operation went with it")
    if app.unreadable:
        return _wait(Waiting.HELD_UP, f"{app} cannot be read: {app.unreadable}; correct that field")
    state = app.status.operation_state
    if state is not None and state.mark == intent.mark:
        if state.completed:
            return _ended(state, intent, app, stopping=known.stopping)
        return _in_progress(app, state, known)
    if mark_of(app.operation) == intent.mark:
        return _requested(app, state, known)
    annotated = app.metadata.annotations.stamp or ""
    if annotated == intent.mark or intent.adopted:
        return _vanished(app, state, intent, known)
    if annotated != intent.seen_stamp and not known.never_issued:
        return Decision(
            Verb.SUPERSEDED,
            f"{app}: another Promotion started a sync since ({annotated or 'its stamp was removed'}), and whether the "
            "sync of this one was carried out before that cannot be told any more; promote again if it is still wanted",
        )
    return _not_carried_out(app, state, known)


# -- ours is there ---------------------------------------------------------------------------------------------------


def _in_progress(app: Application, state: OperationState, known: Knowledge) -> Decision:
    """Ours is the operation the worker goes on with."""
    if app.operation is None:
        removed = f"{app}: somebody removed the operation while it was {state.phase}, so Argo CD does not go on with it"
        if known.stopping or known.unchanged >= SETTLED:
            return Decision(Verb.TERMINATE, f"{removed}; ending it")
        return _wait(Waiting.HELD_UP, removed, state, look_after=SETTLED - known.unchanged)
    if state.phase == "Terminating":
        return _patient(app, known, Waiting.STOPPING, f"{app}: the sync is being terminated", state)
    if known.stopping:
        return Decision(Verb.TERMINATE, f"{app}: terminating the sync")
    if state.phase != "Running":
        known_phases = f"phase {state.phase!r}, which this version does not know; waiting for its end"
        return _wait(Waiting.HELD_UP, f"{app}: the sync is in {known_phases}", state)
    if state.finished_at:
        attempts = f"attempt {state.retry_count} failed" if state.retry_count else "an attempt failed"
        return _wait(Waiting.HELD_UP, f"{app}: {attempts}, Argo CD will retry: {_cut(state.message)}", state)
    if state.message.startswith(("waiting for ", "Sync operation blocked")):
        return _wait(Waiting.HELD_UP, f"{app}: {_cut(state.message)}", state)
    return _wait(Waiting.RUNNING, f"{app}: the sync is running", state)


def _requested(app: Application, state: OperationState | None, known: Knowledge) -> Decision:
    """Ours stands in ``.operation``, and the worker has not taken it up."""
    if _busy(state):
        # The worker goes on with the other one, and clears ours unrun at its end.
        return _wait(
            Waiting.FOREIGN, f"{app}: an operation started by {initiator(state.operation)} is {state.phase} before ours"
        )
    if known.stopping:
        return Decision(Verb.TERMINATE, f"{app}: ending the sync before Argo CD takes it up")
    if app.metadata.deletion_timestamp:
        return _wait(Waiting.HELD_UP, f"{app} is being deleted, and Argo CD has not picked up the sync")
    if app.metadata.annotations.skip_reconcile == "true":
        return _wait(
            Waiting.HELD_UP,
            f"{app} was given the annotation argocd.argoproj.io/skip-reconcile, so Argo CD does not run the sync; "
            "remove it to go on",
        )
    return _patient(app, known, Waiting.PICK_UP, f"{app}: Argo CD has not picked up the sync yet")


def _patient(
    app: Application, known: Knowledge, waiting: Waiting, message: str, state: OperationState | None = None
) -> Decision:
    """Wait for the worker to do what is its turn; nudge it when it does not."""
    due = PICK_UP_TIME + NUDGE_AGAIN * known.nudges
    if known.unchanged >= due:
        return Decision(Verb.NUDGE, f"{app}: asking Argo CD to look at it")
    if known.nudges:
        message += "; it does not process operations of this Application: is its application controller running?"
    return _wait(waiting, message, state, look_after=due - known.unchanged)


# -- ours is not there -----------------------------------------------------------------------------------------------


def _vanished(app: Application, state: OperationState | None, intent: Intent, known: Knowledge) -> Decision:
    """Ours was written (the annotation proves it) and no trace of its operation is left."""
    by = app.operation or (state.operation if state is not None and state.phase else None)
    what = f"replaced by that of {initiator(by)}" if by is not None else "removed by somebody"
    if (state is None or not state.phase) and known.unchanged < SETTLED:
        # The worker may have read it before that, and bring it back.
        return _wait(
            Waiting.FOREIGN,
            f"{app}: the sync of this Promotion was {what} before Argo CD took it up; waiting for what comes of it",
            look_after=SETTLED - known.unchanged,
        )
    gone = (
        f"the sync of this Promotion was superseded by an operation started by {initiator(by)}"
        if by
        else ("the sync of this Promotion was removed by somebody")
    )
    if doubt := _may_have_succeeded(app, intent):
        return Decision(
            Verb.SUPERSEDED, f"{app}: {gone}, and how it ended was not seen: {doubt}; look before promoting again"
        )
    return Decision(Verb.SUPERSEDED, f"{app}: {gone} before it could succeed", repeatable=True)


def _may_have_succeeded(app: Application, intent: Intent) -> str | None:
    """Why the history leaves it open that ours was carried out; None if it shows that it was not."""
    newer = [entry for entry in app.status.history if intent.history_id is None or entry.id > intent.history_id]
    if app.spec.revision_history_limit == 0:
        return "this Application keeps no history"
    oldest = min((entry.id for entry in newer), default=None)
    if oldest is not None and oldest > (intent.history_id if intent.history_id is not None else -1) + 1:
        return f"the history since then is not complete any more, it begins with {oldest}"
    # Auto-sync has no name, but says that it is automated; Argo CD before 2.9 says nothing at all.
    ours = next((e for e in newer if e.initiator == intent.initiator or e.initiated_by == InitiatedBy()), None)
    return f"the history has sync {ours.id} by {ours.initiator or 'somebody unnamed'} since" if ours else None


def _not_carried_out(app: Application, state: OperationState | None, known: Knowledge) -> Decision:
    """There is no trace of ours: start, unless somebody else holds the Application."""
    if known.stopping:
        if known.never_issued or known.fenced:
            return Decision(Verb.NOT_STARTED, f"{app}: the sync was not started")
        return Decision(Verb.FENCE, f"{app}: making sure that no start is on its way any more")
    if reason := controllable(app):
        return Decision(Verb.REFUSED, reason)
    if _busy(state):
        whose = f"the operation started by {initiator(state.operation)}, which is {state.phase}"
        if app.operation is not None:
            return _wait(Waiting.FOREIGN, f"{app}: waiting for {whose}")
        if known.unchanged < SETTLED:
            return _wait(
                Waiting.FOREIGN,
                f"{app}: waiting for {whose}, though somebody removed it",
                look_after=SETTLED - known.unchanged,
            )
        return Decision(Verb.START, f"{app}: starting a sync in the place of what is left of {whose}")
    if app.operation is not None:
        message = f"{app}: waiting for the operation requested by {initiator(app.operation)}, not picked up yet"
        return _wait(Waiting.FOREIGN, message)
    return Decision(Verb.START, f"{app}: starting a sync")


def _busy(state: OperationState | None) -> TypeGuard[OperationState]:
    return state is not None and state.in_progress


# -- ours has ended --------------------------------------------------------------------------------------------------


def _ended(state: OperationState, intent: Intent, app: Application | None, *, stopping: bool) -> Decision:
    """Ours is complete: judge it."""
    name = describe(intent.application)
    terminated = state.phase == "Failed" and state.message.startswith("Operation terminated")
    if terminated and stopping:
        return _end(Verb.STOPPED, f"{name}: {_failure(state)}", state)
    if state.phase != "Succeeded":
        whose = "; by somebody else, or because somebody had removed the operation while it ran" if terminated else ""
        return _end(Verb.FAILED, f"{name}: sync failed: {_failure(state)}{whose}", state)
    applied = state.sync_result.applied if state.sync_result is not None else ()
    if not (mismatch := unmet(intent.desired, state)):
        return _end(Verb.SUCCEEDED, f"{name}: {_cut(state.message) or 'synced'}", state, applied)
    if intent.accept_newer and app is not None and (later := newer_than_desired(app, intent.desired, applied)):
        return _end(Verb.SUCCEEDED, f"{name}: {mismatch}, which is accepted because {later}", state, applied)
    return _end(Verb.MISMATCHED, f"{name}: the sync succeeded, but {mismatch}", state, applied)


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


def _wait(
    waiting: Waiting, message: str, state: OperationState | None = None, *, look_after: float | None = None
) -> Decision:
    started = (state.started_at or None) if state else None
    return Decision(Verb.WAIT, message, waiting, look_after=look_after, started_at=started)


def _end(verb: Verb, message: str, state: OperationState, revisions: tuple[str, ...] = ()) -> Decision:
    return Decision(
        verb,
        message,
        repeatable=verb is Verb.MISMATCHED,
        revisions=revisions,
        started_at=state.started_at or None,
        finished_at=state.finished_at,
    )


def _cut(text: str, limit: int = _MAX_MESSAGE) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
