"""What is known of an attempt on an Application: the durable record of it, and what this process keeps beside that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from kargo_py.api.stamp import Stamp, StampError, parse_stamp
from kargo_py.argocd.application import Application, JsonObject, OperationState, mark_of, stamp_of
from kargo_py.argocd.operation import Decision, Intent, Verb, Waiting, may_have_moved, state_identity
from kargo_py.argocd.options import EVERYTHING
from kargo_py.argocd.sources import SourceEdit
from kargo_py.argocd.waiting import Asked
from kargo_py.deployers.argocd_admission import owner_of
from kargo_py.deployers.base import Before, Record, TargetState, WaitCause

KIND = "argocd"

_STATES = {
    Verb.SUCCEEDED: TargetState.SUCCEEDED,
    Verb.FAILED: TargetState.FAILED,
    Verb.STOPPED: TargetState.STOPPED,
    Verb.MISMATCHED: TargetState.WRONG_REVISION,
    Verb.SUPERSEDED: TargetState.SUPERSEDED,
    Verb.LOST: TargetState.LOST,
    Verb.REFUSED: TargetState.REFUSED,
    Verb.NOT_STARTED: TargetState.NOT_STARTED,
}


@dataclass(slots=True)
class Watched:
    """What this process has seen of an Application that is waited for only; times are of the loop's clock.

    ``since``: since when it is waited for. ``standing``: since when ``reconciled_at`` is what it is. ``asked``: when
    Argo CD was last asked to look at it. ``refused``: why it could not be asked the last time, "" if it could.
    """

    since: float
    standing: float
    reconciled_at: str | None
    asked: Asked | None = None
    refused: str = ""


@dataclass(slots=True)
class Attempt:
    """What this process keeps about one attempt; all of it may be lost, times are of the loop's clock.

    ``latched``: its ending, kept before a queue or a newer state can hide it. ``never_issued``: no start was ever
    sent. ``since``: since when the Application's operation has been as it is (``aspect``), and ``nudges`` how many
    were sent since. ``terminated_at``: when it was last asked to end. ``told``: an Event tells its start. The
    step's own: ``held``, somebody else's operation had the Application when we last looked; ``free_since``, the
    time it became free, until that is written; ``repeat_at``, when the next attempt may follow; ``give_up_at``,
    until when its end is waited for; ``failed_at``, when a request about it last failed; ``seen_at_end``, it was
    seen live after the time of the step was up; ``one_more_try``, by then it could not.
    """

    latched: OperationState | None = None
    never_issued: bool = False
    aspect: object = None
    since: float | None = None
    nudges: int = 0
    terminated_at: float | None = None
    told: bool = False
    watched: Watched | None = None
    held: bool = False
    free_since: str | None = None
    repeat_at: float | None = None
    give_up_at: float | None = None
    failed_at: float = 0.0
    seen_at_end: bool = False
    one_more_try: bool = False

    def unchanged(self, aspect: object, now: float) -> float:
        """Seconds for which the Application's operation has been like *aspect*, as it is now."""
        if self.since is None or self.aspect != aspect:
            self.aspect, self.since, self.nudges = aspect, now, 0
        return now - self.since


def new_record(app: Application, edit: SourceEdit, step: str, attempt: int, mark: str, initiator_name: str) -> Record:
    return Record(
        kind=KIND,
        namespace=app.metadata.namespace,
        name=app.metadata.name,
        uid=app.metadata.uid,
        step=step,
        attempt=attempt,
        stamp=mark,
        resource_version=app.metadata.resource_version,
        history_id=app.history_id,
        desired=edit.desired if any(edit.desired) else (),
        before=tuple(Before(pointer, value) for pointer, value in sorted(edit.before.items())) if attempt else (),
        seen_stamp=app.metadata.annotations.stamp or "",
        seen_state=state_identity(app) if owner_of(app) is not None else None,
        initiator=initiator_name,
        sync=edit.sync if attempt else EVERYTHING,
    )


def orphan_record(app: Application, stamp: Stamp) -> Record:
    """A record of the attempt *stamp*, which *app* has under way and whose own record is gone."""
    return new_record(app, SourceEdit(()), stamp.step, stamp.attempt, str(stamp), "")


def renewed(record: Record, app: Application, edit: SourceEdit) -> Record | None:
    """*record* as it would be made now, for a start on *app* with *edit*; None if it is true of that start."""
    now = new_record(app, edit, record.step, record.attempt, record.stamp, record.initiator)
    kept = {"entries": record.entries, "free_since": record.free_since, "after_errors": record.after_errors}
    now = msgspec.structs.replace(now, **kept)
    return now if _rests_on(now) != _rests_on(record) else None


def intent_of(record: Record, *, accept_newer: bool = False) -> Intent:
    """What *record* says was intended, for who looks at its Application."""
    return Intent(
        record.key,
        record.uid,
        record.stamp,
        record.desired,
        record.seen_stamp,
        record.history_id,
        record.initiator,
        record.seen_state,
        sync=record.sync,
        adopted=record.attempt == 0,
        accept_newer=accept_newer,
    )


def _rests_on(record: Record) -> object:
    """What must be as recorded when the start is made."""
    wanted = (record.uid, record.desired, record.before, record.sync)
    return (*wanted, record.seen_stamp, record.seen_state, record.history_id)


def may_have_begun(app: Application | None, record: Record, attempt: Attempt) -> bool:
    """False if *app* shows that the attempt was certainly not started."""
    if app is None or record.attempt == 0:
        return True
    if attempt.never_issued:
        return False
    moved = (app.metadata.annotations.stamp or "") != record.seen_stamp or may_have_moved(app, record.seen_state)
    return moved or operation_of(app, record.stamp) is not None


def operation_of(app: Application, mark: str) -> JsonObject | None:
    """The operation *mark* if *app* has it, requested, under way or complete."""
    state = app.status.operation_state
    found = (app.operation, state.operation if state is not None else None)
    return next((operation for operation in found if mark_of(operation) == mark), None)


def updated(record: Record, decision: Decision) -> Record:
    state = _STATES.get(decision.verb)
    if state is None:
        running = decision.waiting in {Waiting.RUNNING, Waiting.HELD_UP, Waiting.WINDOW, Waiting.STOPPING}
        return msgspec.structs.replace(record, state=TargetState.RUNNING if running else TargetState.PENDING)
    return msgspec.structs.replace(
        record,
        state=state,
        message=decision.message,
        revisions=decision.revisions,
        started_at=decision.started_at,
        finished_at=decision.finished_at,
    )


def unfinished(app: Application) -> JsonObject | None:
    """The operation that the worker goes on with, or else the one it is asked for."""
    state = app.status.operation_state
    return state.operation if state is not None and state.in_progress else app.operation


UNDER_WAY = "under way"
"""Name of the index of Applications by the uid of the Promotion whose operation they have under way."""


def promotions_under_way(app: Application) -> Iterable[str]:
    """Index: see :data:`UNDER_WAY`."""
    text = stamp_of(unfinished(app))
    try:
        return (parse_stamp(text).uid,) if text is not None else ()
    except StampError:
        return ()


def wait_cause(decision: Decision, *, present: bool) -> WaitCause:
    """Why the attempt is waited for; one that was not made can only wait for somebody else's operation."""
    if decision.waiting is None or not (present or decision.waiting is Waiting.FOREIGN):
        return WaitCause.OTHER
    return WaitCause[decision.waiting.name]
