"""Whether an Application is as a step waits for it to be, from what Argo CD shows.

Nothing is concluded from what Argo CD showed before the step asked it to look. The asking has two traps. A refresh
annotation that stands already belongs to somebody whose look may have begun before ours was asked for, so it is waited
for first. And ``reconciledAt`` has a resolution of one second, so it must have stood for longer than that: only then
does the next look show as another time. Argo CD's times are compared with Argo CD's alone.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import TypeGuard

from kargo_py.argocd.application import Application, OperationState, describe, initiator
from kargo_py.argocd.health import ERRORS, SETTLE, until_settled
from kargo_py.argocd.operation import state_identity
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

PATIENCE = 10.0
"""Seconds Argo CD has to look at an Application before it is told that it does not; then it may be asked again."""

NOT_LOOKED = message(
    "{app}: Argo CD was asked to look at it and has not; is its application controller running?",
    do="The step goes on by itself once Argo CD has looked. See that the application controller runs and is the one "
    "responsible for this Application, and that the Application has no annotation "
    "`argocd.argoproj.io/skip-reconcile`.",
    shown=Shown.PROMOTION,
)
ASKED_TO_LOOK = message(
    "{app}: waiting for Argo CD to look at it",
    do="What Argo CD showed before the step began does not count. It looks within a second as a rule; nothing to do.",
    shown=Shown.PROMOTION,
)
GONE_WHILE_WAITING = message(
    "{app} was deleted while it was waited for",
    do="Promote again once the Application is there, or take it out of the step.",
    shown=Shown.PROMOTION,
)
CANNOT_TELL = message(
    "{app}: how it stands cannot be read: {why}",
    do="A field of the Application has a type that Argo CD does not define. Correct that field; the step goes on by "
    "itself.",
    shown=Shown.PROMOTION,
)
BROKEN = message(
    "{app}: Argo CD reports {condition}: {text}",
    do="A condition of the Application with Argo CD's own text: it cannot compare or use the spec. Correct the "
    "source, the access to its repository or the project that the text names, then promote again.",
    shown=Shown.PROMOTION,
)
OPERATION_FAILED = message(
    "{app}: the operation started by {initiator} failed while the step waited: {text}",
    do="Argo CD's own message. Mend what it names, then promote again.",
    shown=Shown.PROMOTION,
)
IN_OPERATION = message(
    "{app}: waiting for the end of the operation started by {initiator}",
    do="The step goes on by itself when the operation has ended. If it does not end, look at it in Argo CD.",
    shown=Shown.PROMOTION,
)
IN_OPERATION_SAYING = message(
    "{app}: waiting for the end of the operation started by {initiator}: {text}",
    do="As above, with Argo CD's own words: look at the hook or resource that they name.",
    shown=Shown.PROMOTION,
)
NOT_JUDGED_SINCE = message(
    "{app}: waiting until Argo CD has judged it after its last operation and change",
    do="As a rule that takes a second. After ten Argo CD is asked to look; if it stays so, look at its application "
    "controller.",
    shown=Shown.PROMOTION,
)
HEALTH_REGRESSED = message(
    "{app}: health has regressed from {was} to Degraded{why}",
    do="Look at the Application's resources in Argo CD, mend them, then promote again. With `degraded` in the step's "
    "`waitFor` it is what is waited for.",
    shown=Shown.PROMOTION,
)
NOT_OF_HEALTH = message(
    "{app}: health is {health}, waiting for {wanted}{why}",
    do="Argo CD's word on the Application's resources: look at them there. The step goes on by itself when it changes.",
    shown=Shown.PROMOTION,
)
NOT_SYNCED = message(
    "{app}: sync status is {status}, waiting for Synced",
    do="Nothing syncs the Application by itself unless it has auto-sync: put an `argocd-update` before the step, or "
    "sync it in Argo CD.",
    shown=Shown.PROMOTION,
)
NOT_SYNCED_SINCE_FAILURE = message(
    "{app}: sync status is {status}, waiting for Synced; its last operation, before the step, failed: {text}",
    do="Mend what Argo CD's message names and sync the Application again: the step goes on by itself then.",
    shown=Shown.PROMOTION,
)

_MAX_TEXT = 1000
_NO_STATUS = "not known yet"


class WaitFor(StrEnum):
    """What an Application can be waited to be."""

    HEALTH = "health"
    SYNC = "sync"
    OPERATION = "operation"
    SUSPENDED = "suspended"
    DEGRADED = "degraded"


_HEALTHS = {WaitFor.HEALTH: "Healthy", WaitFor.SUSPENDED: "Suspended", WaitFor.DEGRADED: "Degraded"}
"""Those that are about health, of which one is enough; all others must be true."""

_NOT_BETTER = frozenset({"", "Degraded", "Unknown"})
"""From these Degraded is no regression."""


# --- asking Argo CD to look -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """A refresh that was asked for: when, by our own clock, and which ``reconciledAt`` stood there."""

    at: float
    reconciled_at: str | None


class Look(Enum):
    """How it stands with Argo CD's look at an Application."""

    ASK = auto()
    WAIT = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True)
class Asking:
    """What to do about it; after ``look_after`` seconds time alone may change it, ``late``: it takes too long."""

    look: Look
    look_after: float | None = None
    late: bool = False


def decide_look(app: Application, asked: Asked | None, standing: float, since: float, now: float) -> Asking:
    """Whether Argo CD has looked since it was *asked*, or is to be asked.

    *standing*: since when ``reconciledAt`` is what it is, *since*: since when this is waited for, both by our clock.
    """
    pending = app.metadata.annotations.refresh is not None
    waited = now - (asked.at if asked is not None else since)
    if asked is not None and not pending and (_has_looked(app, asked) or _is_invalid(app)):
        return Asking(Look.DONE)
    if pending or (asked is not None and waited < PATIENCE):
        # Ours, or that of somebody else. Or it is gone without a look: somebody took it away.
        left = PATIENCE - waited
        return Asking(Look.WAIT, left if left > 0 else None, late=left <= 0)
    hold = standing + SETTLE - now
    if app.status.reconciled_at is not None and hold > 0:
        return Asking(Look.WAIT, hold)
    return Asking(Look.ASK)


def _has_looked(app: Application, asked: Asked) -> bool:
    return app.status.reconciled_at is not None and app.status.reconciled_at != asked.reconciled_at


def _is_invalid(app: Application) -> bool:
    """Argo CD leaves ``reconciledAt`` alone where it finds the spec to be invalid."""
    return any(condition.type == "InvalidSpecError" for condition in app.status.conditions)


# --- judging what it shows --------------------------------------------------------------------------------------------


class Standing(Enum):
    """How an Application stands."""

    READY = auto()
    NOT_YET = auto()
    FAILED = auto()
    BROKEN = auto()


@dataclass(frozen=True, slots=True)
class Judgement:
    """How an Application stands, and why.

    ``look_after``: seconds after which time alone may change it. ``refresh``: Argo CD should look again. ``passing``:
    it is over in a moment, and not worth telling.
    """

    standing: Standing
    message: str = ""
    look_after: float | None = None
    refresh: bool = False
    passing: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """What is on record of the Application as it was when the step began.

    ``operation`` names the operation that was complete then, "" for none. ``health`` is the first one seen that is
    better than Degraded, or else the one of then.
    """

    uid: str
    operation: str = ""
    health: str = ""


def completed_operation(app: Application) -> str:
    """What tells the operation that *app* shows as complete from any other, and from itself before it was complete."""
    state = app.status.operation_state
    return f"{state_identity(app)} {state.finished_at or ''}" if state is not None and state.completed else ""


def health_to_keep(kept: str, app: Application) -> str:
    """The health to keep on record: a regression is one from a health better than Degraded."""
    seen = app.status.health.status
    return seen if kept in _NOT_BETTER and seen not in _NOT_BETTER else kept


def judge(
    app: Application | None, key: Key, wanted: AbstractSet[WaitFor], start: Start, asking: Asking, unchanged_for: float
) -> Judgement:
    """Judge *app* as far as Argo CD has looked at it; *unchanged_for* is in seconds by our clock."""
    if app is None or app.metadata.uid != start.uid:
        return Judgement(Standing.FAILED, GONE_WHILE_WAITING(app=describe(key)))
    if app.unreadable:
        return Judgement(Standing.NOT_YET, CANNOT_TELL(app=app, why=_cut(app.unreadable)))
    state = app.status.operation_state
    if wanted & {WaitFor.OPERATION, WaitFor.SYNC} and (failed := _failed_since(app, state, start)):
        return failed
    if asking.look is not Look.DONE:
        said = NOT_LOOKED(app=app) if asking.late else ASKED_TO_LOOK(app=app)
        return Judgement(Standing.NOT_YET, said, asking.look_after, passing=not asking.late)
    for condition in app.status.conditions:
        if condition.type in ERRORS:
            said = BROKEN(app=app, condition=condition.type, text=_cut(condition.message))
            return Judgement(Standing.BROKEN, said)
    if WaitFor.OPERATION in wanted and (running := _in_operation(app, state)):
        return Judgement(Standing.NOT_YET, running)
    healths = {status for kind, status in _HEALTHS.items() if kind in wanted}
    if not healths and WaitFor.SYNC not in wanted:
        return Judgement(Standing.READY)
    settled = until_settled(app, unchanged_for)
    if settled is None:
        left = max(PATIENCE - unchanged_for, 0.0)
        return Judgement(Standing.NOT_YET, NOT_JUDGED_SINCE(app=app), left or None, refresh=not left)
    if settled > 0:
        return Judgement(Standing.NOT_YET, NOT_JUDGED_SINCE(app=app), settled, passing=True)
    unwell = _of_other_health(app, wanted, healths, start) if healths else None
    if WaitFor.SYNC in wanted and app.status.sync.status != "Synced":
        failed_before = _failed(state)
        if unwell is None or (failed_before and unwell.standing is Standing.NOT_YET):
            return Judgement(Standing.NOT_YET, _not_synced(app, state if failed_before else None))
    return unwell or Judgement(Standing.READY)


def _failed_since(app: Application, state: OperationState | None, start: Start) -> Judgement | None:
    """An operation that failed after the step began; one that was to change nothing does not count."""
    if not _failed(state) or completed_operation(app) == start.operation:
        return None
    text = _cut(state.message) or state.phase
    return Judgement(Standing.FAILED, OPERATION_FAILED(app=app, initiator=initiator(state.operation), text=text))


def _failed(state: OperationState | None) -> TypeGuard[OperationState]:
    """Whether the last operation failed that was to change anything."""
    return state is not None and state.phase in {"Failed", "Error"} and not state.dry_run


def _in_operation(app: Application, state: OperationState | None) -> str | None:
    if state is not None and state.in_progress:
        who = initiator(state.operation)
        if state.message:
            return IN_OPERATION_SAYING(app=app, initiator=who, text=_cut(state.message))
        return IN_OPERATION(app=app, initiator=who)
    return IN_OPERATION(app=app, initiator=initiator(app.operation)) if app.operation is not None else None


def _of_other_health(
    app: Application, wanted: AbstractSet[WaitFor], healths: AbstractSet[str], start: Start
) -> Judgement | None:
    status = app.status.health.status
    if status in healths:
        return None
    why = f": {_cut(app.status.health.message)}" if app.status.health.message else ""
    if status == "Degraded" and WaitFor.HEALTH in wanted and start.health not in _NOT_BETTER:
        return Judgement(Standing.FAILED, HEALTH_REGRESSED(app=app, was=start.health, why=why))
    looked_for = " or ".join(sorted(healths))
    return Judgement(Standing.NOT_YET, NOT_OF_HEALTH(app=app, health=status or _NO_STATUS, wanted=looked_for, why=why))


def _not_synced(app: Application, failed: OperationState | None) -> str:
    status = app.status.sync.status or _NO_STATUS
    if failed is not None:
        return NOT_SYNCED_SINCE_FAILURE(app=app, status=status, text=_cut(failed.message) or failed.phase)
    return NOT_SYNCED(app=app, status=status)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def news(app: Application) -> tuple[object, ...]:
    """All that this module looks at; while it stays equal, so does what it says."""
    status, state = app.status, app.status.operation_state
    return (
        app.metadata.uid,
        app.metadata.annotations.refresh,
        app.unreadable,
        app.operation is None,
        state and (completed_operation(app), state.phase, state.message, state.dry_run),
        status.reconciled_at,
        until_settled(app, 0.0),
        status.sync.status,
        status.health,
        tuple(condition for condition in status.conditions if condition.type in ERRORS),
    )
