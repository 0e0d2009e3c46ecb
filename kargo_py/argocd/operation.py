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
from kargo_py.argocd.options import EVERYTHING, SyncOptions, demanded
from kargo_py.argocd.revisions import newer_than_desired, unmet
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

UNREADABLE = message(
    "{app} cannot be read: {why}; correct that field",
    do="A field of the Application has a type that Argo CD does not define; correct it. A sync that is under way is "
    "waited for, a new one is not started before.",
    shown=Shown.PROMOTION | Shown.EVENT | Shown.LOG,
)
BEING_DELETED = message(
    "{app} is being deleted",
    do="Nothing is started on it any more. Promote again once the Application is there again, or take it out of the "
    "step.",
    shown=Shown.PROMOTION,
)
SKIPS_RECONCILE = message(
    "{app} has the annotation argocd.argoproj.io/skip-reconcile, so Argo CD would never run a sync; remove it and "
    "promote again",
    do="Remove the annotation from the Application, then create a new Promotion.",
    shown=Shown.PROMOTION,
)
IS_HYDRATED = message(
    "{app} uses spec.sourceHydrator; promoting hydrated Applications is not supported",
    do="Take the Application out of the step, or give it `spec.source` in the place of `spec.sourceHydrator`.",
    shown=Shown.PROMOTION,
)
HAS_NO_SOURCE = message(
    "{app} has neither spec.source nor spec.sources; there is nothing to sync",
    do="Give the Application a source, then create a new Promotion.",
    shown=Shown.PROMOTION,
)
IS_GONE = message(
    "{app} does not exist any more",
    do="Somebody deleted the Application while the step ran, and its sync went with it. Promote again once it is "
    "there.",
    shown=Shown.PROMOTION,
)
WAS_REPLACED = message(
    "{app} was deleted and created again, and its operation went with it",
    do="The Application that is there now has not seen this sync. Promote again.",
    shown=Shown.PROMOTION,
)
OVERTAKEN = message(
    "{app}: another Promotion started a sync since ({stamp}), and whether the sync of this one was carried out "
    "before that cannot be told any more; promote again if it is still wanted",
    do="The controller was down while another Promotion synced the same Application. Look at `status.history` of the "
    "Application, then promote again if this Freight is still wanted.",
    shown=Shown.PROMOTION,
)
OURS_WAS_OVERTAKEN = message(
    "{app}: another sync was started since; waiting for what comes of the one of this Promotion",
    do="Argo CD may still have this Promotion's sync in its hands. It is known within 35 seconds.",
    shown=Shown.PROMOTION,
)
TRACE_REMOVED = message(
    "{app}: whether the sync of this Promotion was carried out cannot be told any more, because an ApplicationSet "
    "removes the annotation that would say so; promote again if it is still wanted",
    do="The controller was down meanwhile. Name the annotation `kargo-py.io/stamp` in the ApplicationSet's "
    "`spec.preservedFields.annotations`; look at `status.history` of the Application, then promote again.",
    shown=Shown.PROMOTION,
)
WAS_ADOPTED = message(
    "a real Kargo had started it",
    do="Part of a message above: the sync was begun by Kargo before kargo-py took the Promotion over.",
    shown=Shown.PROMOTION,
)
ORPHANED = message(
    "{app}: somebody removed the operation while it was {phase}, so Argo CD does not go on with it",
    do="After 35 seconds without a change the operation is put back and ended, and the step becomes `Failed`; "
    "promote again then. To end a sync, terminate it in Argo CD instead of removing `.operation`.",
    shown=Shown.PROMOTION,
)
ENDING_ORPHANED = message(
    "{orphaned}; ending it",
    do="The operation is put back and terminated, which takes a moment. The step ends then; promote again.",
    shown=Shown.PROMOTION,
)
BEING_TERMINATED = message(
    "{app}: the sync is being terminated",
    do="Argo CD ends it as a rule at once, and the step ends with it. While a sync window blocks the sync, it ends "
    "only when the window opens.",
    shown=Shown.PROMOTION,
)
TERMINATING_SYNC = message(
    "{app}: terminating the sync",
    do='Argo CD is asked to end the sync, again each second until it has. Nothing to do; an abort with `"force": '
    "true` does not wait for it.",
    shown=Shown.PROMOTION,
)
IN_UNKNOWN_PHASE = message(
    "{app}: the sync is in phase {phase!r}, which this version does not know; waiting for its end",
    do="Argo CD may be newer than this kargo-py. The step goes on by itself once the phase is a final one.",
    shown=Shown.PROMOTION,
)
ATTEMPT_FAILED = message(
    "{app}: attempt {number} failed, Argo CD will retry: {message}",
    do="Argo CD tries again by itself, as the Application's `spec.syncPolicy.retry` says. Mend what the message "
    "names, or terminate the sync.",
    shown=Shown.PROMOTION,
)
AN_ATTEMPT_FAILED = message(
    "{app}: an attempt failed, Argo CD will retry: {message}",
    do="As above; Argo CD has not counted the attempt yet.",
    shown=Shown.PROMOTION,
)
ARGOCD_SAYS = message(
    "{app}: {message}",
    do="Argo CD's own message. `waiting for …`: look at the hook or resource that it names; `Sync operation blocked "
    "by sync window`: the sync begins when the window opens, and a window with `manualSync` lets a Promotion with "
    "the annotation `kargo.akuity.io/create-actor` pass.",
    shown=Shown.PROMOTION,
)
SYNCED = message(
    "{app}: synced",
    do="The sync succeeded, and Argo CD left no message. Nothing to do.",
    shown=Shown.PROMOTION,
)
SYNC_RUNS = message(
    "{app}: the sync is running",
    do="The step ends when the sync does. It is not written into the Promotion as long as nothing holds the sync up.",
    shown=Shown.PROMOTION,
)
BEHIND_ANOTHER = message(
    "{app}: an operation started by {initiator} is {phase} before ours",
    do="Somebody's operation got in first. Argo CD drops ours when that one ends, and it is started anew then by "
    "itself.",
    shown=Shown.PROMOTION,
)
ENDING_BEFORE_PICK_UP = message(
    "{app}: ending the sync before Argo CD takes it up",
    do="Argo CD is asked to end the sync unrun, which takes a moment. Nothing to do.",
    shown=Shown.PROMOTION,
)
DELETED_BEFORE_PICK_UP = message(
    "{app} is being deleted, and Argo CD has not picked up the sync",
    do="The step ends when the Application is gone. If it does not go, look at its finalizers.",
    shown=Shown.PROMOTION,
)
SKIPS_OUR_SYNC = message(
    "{app} was given the annotation argocd.argoproj.io/skip-reconcile, so Argo CD does not run the sync; remove it "
    "to go on",
    do="Remove the annotation from the Application: the sync begins then by itself. Otherwise the step ends at its "
    "time-out.",
    shown=Shown.PROMOTION,
)
NOT_PICKED_UP = message(
    "{app}: Argo CD has not picked up the sync yet",
    do="Argo CD is asked to look at the Application after 10 seconds, and every 30 seconds from then on. It is not "
    "written into the Promotion as long as it lasts.",
    shown=Shown.PROMOTION,
)
ASKING_TO_LOOK = message(
    "{app}: asking Argo CD to look at it",
    do="The annotation `argocd.argoproj.io/refresh` is written, which wakes an idle application controller. Nothing "
    "to do.",
    shown=Shown.PROMOTION,
)
NOT_PROCESSED = message(
    "{message}; it does not process operations of this Application: is its application controller running?",
    do="Argo CD was asked to look and did not react. See that its application controller runs, and that it is the "
    "one responsible for this Application's namespace and cluster.",
    shown=Shown.PROMOTION,
)
OURS_WAS_REPLACED = message(
    "{app}: the sync of this Promotion was replaced by that of {initiator} before Argo CD took it up; waiting for "
    "what comes of it",
    do="Argo CD may have read ours before it was overwritten. After at most 35 seconds it is clear; if it was not "
    "run, the sync is started again by itself.",
    shown=Shown.PROMOTION,
)
OURS_WAS_REMOVED = message(
    "{app}: the sync of this Promotion was removed by somebody before Argo CD took it up; waiting for what comes of it",
    do="Argo CD may have read it before it was removed. After at most 35 seconds it is clear; if it was not run, the "
    "sync is started again by itself.",
    shown=Shown.PROMOTION,
)
SUPERSEDED = message(
    "{app}: the sync of this Promotion was superseded by an operation started by {initiator} before it could succeed",
    do="The sync is started again by itself, three times in all. If the Promotion failed with this, see who else "
    "syncs the Application.",
    shown=Shown.PROMOTION,
)
SUPERSEDED_UNSEEN = message(
    "{app}: the sync of this Promotion was superseded by an operation started by {initiator}, and how it ended was "
    "not seen: {doubt}; look before promoting again",
    do="It may have succeeded, so it is not started again. Compare `status.history` of the Application with the "
    "Freight; promote again if it is not there.",
    shown=Shown.PROMOTION,
)
REMOVED = message(
    "{app}: the sync of this Promotion was removed by somebody before it could succeed",
    do="The sync is started again by itself, three times in all. If the Promotion failed with this, see who removes "
    "`.operation` of the Application.",
    shown=Shown.PROMOTION,
)
REMOVED_UNSEEN = message(
    "{app}: the sync of this Promotion was removed by somebody, and how it ended was not seen: {doubt}; look before "
    "promoting again",
    do="It may have succeeded, so it is not started again. Compare `status.history` of the Application with the "
    "Freight; promote again if it is not there.",
    shown=Shown.PROMOTION,
)
NO_HISTORY = message(
    "this Application keeps no history",
    do="Part of a message above. Set `spec.revisionHistoryLimit` of the Application to at least 1, and what became "
    "of a sync can be told.",
    shown=Shown.PROMOTION,
)
HISTORY_IS_CUT = message(
    "the history since then is not complete any more, it begins with {oldest}",
    do="Part of a message above: more syncs ran since than the Application keeps. Raise its "
    "`spec.revisionHistoryLimit` if that happens often.",
    shown=Shown.PROMOTION,
)
HISTORY_HAS_ONE = message(
    "the history has sync {number} by {initiator} since",
    do="Part of a message above: that entry of `status.history` may be the sync of this Promotion. Compare its "
    "revision with the Freight's.",
    shown=Shown.PROMOTION,
)
NO_TRACE = message(
    "a sync of some resources only leaves none in the history",
    do="Part of a message above: with `resources` Argo CD writes no entry of `status.history`. Look at these "
    "resources of the Application.",
    shown=Shown.PROMOTION,
)
NOT_STARTED = message(
    "{app}: the sync was not started",
    do="The abort or the time-out came first, and the Application was not touched. Promote again if it is still "
    "wanted.",
    shown=Shown.PROMOTION,
)
FENCING = message(
    "{app}: making sure that no start is on its way any more",
    do="The Application is written to once, so that a start sent earlier is refused. Nothing to do.",
    shown=Shown.PROMOTION,
)
WAITING_FOR_OPERATION = message(
    "{app}: waiting for the operation started by {initiator}, which is {phase}",
    do="Another operation is never overwritten: the sync begins when that one has ended, and the step's time counts "
    "from then. Wait, or terminate that operation in Argo CD.",
    shown=Shown.PROMOTION,
)
WAITING_FOR_ORPHANED = message(
    "{app}: waiting for the operation started by {initiator}, which is {phase}, though somebody removed it",
    do="Argo CD may still be in the middle of it. After 35 seconds without a change the sync is started in its place "
    "by itself.",
    shown=Shown.PROMOTION,
)
STARTING_INSTEAD = message(
    "{app}: starting a sync in the place of what is left of the operation started by {initiator}, which is {phase}",
    do="Somebody removed that operation while it ran, and Argo CD does not go on with it. Nothing to do.",
    shown=Shown.PROMOTION,
)
WAITING_FOR_REQUESTED = message(
    "{app}: waiting for the operation requested by {initiator}, not picked up yet",
    do="Argo CD takes an operation up at once as a rule, and the sync begins when that one has ended. If it does "
    "not, look at Argo CD's application controller.",
    shown=Shown.PROMOTION,
)
STARTING = message(
    "{app}: starting a sync",
    do="The sync is written into the Application. Nothing to do.",
    shown=Shown.PROMOTION,
)
SYNC_FAILED = message(
    "{app}: sync failed: {failure}",
    do="Argo CD's own message, and the resources that failed. Mend what it names, then create a new Promotion.",
    shown=Shown.PROMOTION,
)
SYNC_WAS_TERMINATED = message(
    "{app}: sync failed: {failure}; by somebody else, or because somebody had removed the operation while it ran",
    do="Somebody terminated the sync in Argo CD, or removed `.operation`. Promote again if this Freight is still "
    "wanted.",
    shown=Shown.PROMOTION,
)
ACCEPTED_NEWER = message(
    "{app}: {mismatch}, which is accepted because {history}",
    do="The step has `acceptNewer: true`, and the history shows the applied revision to be the later one. Nothing to "
    "do.",
    shown=Shown.PROMOTION,
)
MISMATCHED = message(
    "{app}: the sync succeeded, but {mismatch}",
    do="The source's `targetRevision` leads elsewhere. It is tried again, three times in all; if it stays so, set "
    "`updateTargetRevision: true`, correct `desiredRevision`, or allow later revisions with `acceptNewer: true`.",
    shown=Shown.PROMOTION,
)
ENDED_WITHOUT_MESSAGE = message(
    "the operation ended as {phase} without a message",
    do="Part of a message above: Argo CD left no reason. Look at the Application's sync result and at the log of its "
    "application controller.",
    shown=Shown.PROMOTION,
)

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
    """What a WAIT waits for; everything but RUNNING and PICK_UP is worth telling the user."""

    RUNNING = "running"
    PICK_UP = "pick-up"
    ASLEEP = "an application controller that does not look"
    FOREIGN = "another operation"
    HELD_UP = "retry, hook, or somebody's mistake"
    WINDOW = "sync window"
    STOPPING = "the end of a termination"


@dataclass(frozen=True, slots=True)
class Intent:
    """What was recorded before the start was issued.

    ``mark`` names the attempt: its stamp, or for an adopted operation (see :attr:`adopted`) that of
    :func:`~kargo_py.argocd.application.mark_of`. ``desired`` has one entry per source of the Application, "" where the
    step has no opinion. ``seen_stamp`` is the stamp annotation ("" for none), and ``history_id`` the newest entry of
    the history (None for none), at that moment; ``initiator`` is who appears as the one who started the operation.
    ``seen_state`` is the :func:`state_identity` of that moment where the annotation cannot be relied on, since an
    ApplicationSet removes it; else None. ``sync`` is how it was to sync.
    """

    application: Key
    uid: str
    mark: str
    desired: tuple[str, ...] = ()
    seen_stamp: str = ""
    history_id: int | None = None
    initiator: str = ""
    seen_state: str | None = None
    adopted: bool = False
    accept_newer: bool = False
    sync: SyncOptions = EVERYTHING


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
        controllable(app),
        app.operation,
        state and (state.mark, state.phase, state.finished_at, state.message, state.retry_count),
    )


def state_identity(app: Application) -> str:
    """What tells the operation in ``operationState`` from any other; "" where there is none. A start resets it."""
    state = app.status.operation_state
    return f"{state.started_at} {state.mark or initiator(state.operation)}" if state is not None and state.phase else ""


def may_have_moved(app: Application, seen_state: str | None) -> bool:
    """True if *app* may have seen a start of ours since *seen_state*, though no annotation says so.

    A start resets the state: one that shows none is no proof, neither then nor now.
    """
    return seen_state is not None and (not seen_state or state_identity(app) != seen_state)


def controllable(app: Application) -> str | None:
    """Why no operation can be started on *app* now or later; None when one can."""
    if app.unreadable:
        return UNREADABLE(app=app, why=app.unreadable)
    if app.metadata.deletion_timestamp:
        return BEING_DELETED(app=app)
    if app.metadata.annotations.skip_reconcile == "true":
        return SKIPS_RECONCILE(app=app)
    if app.spec.source_hydrator is not None:
        return IS_HYDRATED(app=app)
    if not app.spec.effective_sources:
        return HAS_NO_SOURCE(app=app)
    return None


def decide_operation(app: Application | None, intent: Intent, known: Knowledge) -> Decision:
    """Decide about the attempt that *intent* records.

    *app* must be at least as new as every write of ours that was answered. START, TERMINATE and FENCE are safe on an
    outdated *app* too, as long as what is written is guarded by what was decided on.
    """
    if known.latched is not None:
        return _ended(known.latched, intent, app, stopping=known.stopping)
    if app is None:
        return Decision(Verb.LOST, IS_GONE(app=describe(intent.application)))
    if app.metadata.uid != intent.uid and known.stopping and known.never_issued:
        return Decision(Verb.NOT_STARTED, NOT_STARTED(app=app))
    if app.metadata.uid != intent.uid:
        return Decision(Verb.LOST, WAS_REPLACED(app=app))
    if app.unreadable:
        return _wait(Waiting.HELD_UP, UNREADABLE(app=app, why=app.unreadable))
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
    if not known.never_issued and (why := _overtaken(app, annotated, intent)):
        if not _shown(state) and known.unchanged < SETTLED:
            # The worker may have read ours before, and bring it back.
            return _wait(Waiting.FOREIGN, OURS_WAS_OVERTAKEN(app=app), look_after=SETTLED - known.unchanged)
        return Decision(Verb.SUPERSEDED, why)
    return _not_carried_out(app, state, known)


def _overtaken(app: Application, annotated: str, intent: Intent) -> str | None:
    """Why it cannot be told any more whether ours was carried out; None if it certainly was not."""
    if annotated != intent.seen_stamp:
        return OVERTAKEN(app=app, stamp=annotated or "its stamp was removed")
    if may_have_moved(app, intent.seen_state):
        return TRACE_REMOVED(app=app)
    return None


def _shown(state: OperationState | None) -> bool:
    """True if the worker has written a state since the last start, which resets it."""
    return state is not None and bool(state.phase)


# -- ours is there ---------------------------------------------------------------------------------------------------


def _in_progress(app: Application, state: OperationState, known: Knowledge) -> Decision:
    """Ours is the operation the worker goes on with."""
    if app.operation is None:
        orphaned = ORPHANED(app=app, phase=state.phase)
        if known.stopping or known.unchanged >= SETTLED:
            return Decision(Verb.TERMINATE, ENDING_ORPHANED(orphaned=orphaned))
        return _wait(Waiting.HELD_UP, orphaned, state, look_after=SETTLED - known.unchanged)
    if state.phase == "Terminating":
        return _patient(app, known, Waiting.STOPPING, BEING_TERMINATED(app=app), state)
    if known.stopping:
        return Decision(Verb.TERMINATE, TERMINATING_SYNC(app=app))
    if state.phase != "Running":
        return _wait(Waiting.HELD_UP, IN_UNKNOWN_PHASE(app=app, phase=state.phase), state)
    if state.finished_at:
        said = _cut(state.message)
        failed = (
            ATTEMPT_FAILED(app=app, number=state.retry_count, message=said)
            if state.retry_count
            else AN_ATTEMPT_FAILED(app=app, message=said)
        )
        return _wait(Waiting.HELD_UP, failed, state)
    if state.message.startswith("Sync operation blocked"):
        return _wait(Waiting.WINDOW, ARGOCD_SAYS(app=app, message=_cut(state.message)), state)
    if state.message.startswith("waiting for "):
        return _wait(Waiting.HELD_UP, ARGOCD_SAYS(app=app, message=_cut(state.message)), state)
    return _wait(Waiting.RUNNING, SYNC_RUNS(app=app), state)


def _requested(app: Application, state: OperationState | None, known: Knowledge) -> Decision:
    """Ours stands in ``.operation``, and the worker has not taken it up."""
    if _busy(state):
        # The worker goes on with the other one, and clears ours unrun at its end.
        return _wait(Waiting.FOREIGN, BEHIND_ANOTHER(app=app, initiator=initiator(state.operation), phase=state.phase))
    if known.stopping:
        return Decision(Verb.TERMINATE, ENDING_BEFORE_PICK_UP(app=app))
    if app.metadata.deletion_timestamp:
        return _wait(Waiting.HELD_UP, DELETED_BEFORE_PICK_UP(app=app))
    if app.metadata.annotations.skip_reconcile == "true":
        return _wait(Waiting.HELD_UP, SKIPS_OUR_SYNC(app=app))
    return _patient(app, known, Waiting.PICK_UP, NOT_PICKED_UP(app=app))


def _patient(
    app: Application, known: Knowledge, waiting: Waiting, message: str, state: OperationState | None = None
) -> Decision:
    """Wait for the worker to do what is its turn; nudge it when it does not."""
    due = PICK_UP_TIME + NUDGE_AGAIN * known.nudges
    if known.unchanged >= due:
        return Decision(Verb.NUDGE, ASKING_TO_LOOK(app=app))
    if known.nudges:
        message = NOT_PROCESSED(message=message)
        waiting = Waiting.ASLEEP if waiting is Waiting.PICK_UP else waiting
    return _wait(waiting, message, state, look_after=due - known.unchanged)


# -- ours is not there -----------------------------------------------------------------------------------------------


def _vanished(app: Application, state: OperationState | None, intent: Intent, known: Knowledge) -> Decision:
    """Ours was written (the annotation proves it) and no trace of its operation is left."""
    by = app.operation or (state.operation if state is not None and state.phase else None)
    who = initiator(by)
    if not _shown(state) and known.unchanged < SETTLED:
        # The worker may have read it before that, and bring it back.
        gone = OURS_WAS_REPLACED(app=app, initiator=who) if by is not None else OURS_WAS_REMOVED(app=app)
        return _wait(Waiting.FOREIGN, gone, look_after=SETTLED - known.unchanged)
    if doubt := _may_have_succeeded(app, intent):
        unseen = SUPERSEDED_UNSEEN(app=app, initiator=who, doubt=doubt) if by else REMOVED_UNSEEN(app=app, doubt=doubt)
        return Decision(Verb.SUPERSEDED, unseen)
    undone = SUPERSEDED(app=app, initiator=who) if by else REMOVED(app=app)
    return Decision(Verb.SUPERSEDED, undone, repeatable=True)


def _may_have_succeeded(app: Application, intent: Intent) -> str | None:
    """Why the history leaves it open that ours was carried out; None if it shows that it was not."""
    if intent.adopted:
        return WAS_ADOPTED()
    if intent.sync.dry_run:
        return None  # it deploys nothing, however often
    if intent.sync.resources:
        return NO_TRACE()
    newer = [entry for entry in app.status.history if intent.history_id is None or entry.id > intent.history_id]
    if app.spec.revision_history_limit == 0:
        return NO_HISTORY()
    oldest = min((entry.id for entry in newer), default=None)
    if oldest is not None and oldest > (intent.history_id if intent.history_id is not None else -1) + 1:
        return HISTORY_IS_CUT(oldest=oldest)
    # Auto-sync has no name, but says that it is automated; Argo CD before 2.9 says nothing at all.
    ours = next((e for e in newer if e.initiator == intent.initiator or e.initiated_by == InitiatedBy()), None)
    return HISTORY_HAS_ONE(number=ours.id, initiator=ours.initiator or "somebody unnamed") if ours else None


def _not_carried_out(app: Application, state: OperationState | None, known: Knowledge) -> Decision:
    """There is no trace of ours: start, unless somebody else holds the Application."""
    if known.stopping:
        if known.never_issued or known.fenced:
            return Decision(Verb.NOT_STARTED, NOT_STARTED(app=app))
        return Decision(Verb.FENCE, FENCING(app=app))
    if reason := controllable(app):
        return Decision(Verb.REFUSED, reason)
    if _busy(state):
        who, phase = initiator(state.operation), state.phase
        if app.operation is not None:
            return _wait(Waiting.FOREIGN, WAITING_FOR_OPERATION(app=app, initiator=who, phase=phase))
        if known.unchanged < SETTLED:
            waited_for = WAITING_FOR_ORPHANED(app=app, initiator=who, phase=phase)
            return _wait(Waiting.FOREIGN, waited_for, look_after=SETTLED - known.unchanged)
        return Decision(Verb.START, STARTING_INSTEAD(app=app, initiator=who, phase=phase))
    if app.operation is not None:
        return _wait(Waiting.FOREIGN, WAITING_FOR_REQUESTED(app=app, initiator=initiator(app.operation)))
    return Decision(Verb.START, STARTING(app=app))


def _busy(state: OperationState | None) -> TypeGuard[OperationState]:
    return state is not None and state.in_progress


# -- ours has ended --------------------------------------------------------------------------------------------------


def _ended(state: OperationState, intent: Intent, app: Application | None, *, stopping: bool) -> Decision:
    """Ours is complete: judge it."""
    name = describe(intent.application)
    terminated = state.phase == "Failed" and state.message.startswith("Operation terminated")
    if terminated and stopping:
        return _end(Verb.STOPPED, ARGOCD_SAYS(app=name, message=_failure(state)), state)
    if terminated:
        return _end(Verb.FAILED, SYNC_WAS_TERMINATED(app=name, failure=_failure(state)), state)
    if state.phase != "Succeeded":
        return _end(Verb.FAILED, SYNC_FAILED(app=name, failure=_failure(state)), state)
    applied = state.sync_result.applied if state.sync_result is not None else ()
    wanted = demanded(intent.desired, intent.sync)
    if not (mismatch := unmet(wanted, state)):
        said = ARGOCD_SAYS(app=name, message=_cut(state.message)) if state.message else SYNCED(app=name)
        return _end(Verb.SUCCEEDED, said, state, applied)
    if intent.accept_newer and app is not None and (later := newer_than_desired(app, wanted, applied)):
        return _end(Verb.SUCCEEDED, ACCEPTED_NEWER(app=name, mismatch=mismatch, history=later), state, applied)
    return _end(Verb.MISMATCHED, MISMATCHED(app=name, mismatch=mismatch), state, applied)


def _failure(state: OperationState) -> str:
    """Argo CD's message, and the resources that failed where it does not quote them."""
    message = _cut(state.message) or ENDED_WITHOUT_MESSAGE(phase=state.phase)
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
