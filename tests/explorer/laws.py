"""The Laws of the protocol, judged by what really happened.

Each is a plain function from something that happened to what is wrong with it, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tests.explorer.model import (
    ALICE,
    ARGO,
    AT_MOST,
    ATTEMPTS,
    LATE,
    OPEN,
    P_ABORTED,
    P_DELETED,
    P_SUCCEEDED,
    PICKING_UP,
    R_DETACHED,
    R_FAILED,
    R_LOST,
    R_NOT_STARTED,
    R_REFUSED,
    R_STOPPED,
    R_SUCCEEDED,
    R_SUPERSEDED,
    R_WRONG_REVISION,
    START,
    SYNCING,
    TERMINATING,
    WE,
    WORDS,
    Move,
    Rec,
    Setting,
    State,
    is_ours,
    name,
)

DOUBLE_START = "1 no double start"
TRESPASS = "2 no trespass"
FALSE_SUCCESS = "3 no false success"
LOST_ENDING = "4 no lost ending"
NOT_STOPPED = "5 abort means stopped"
FALSE_RECORD = "7 the record says what happened"
ORPHAN = "10 no orphan"
MISCOUNTED = "an error is counted once"
NOT_TAKEN_BACK = "onAbort: revert puts back what was changed"


class Act(NamedTuple):
    """Something that happened: the state before, and the move to the state after."""

    before: State
    move: Move
    setting: Setting

    @property
    def after(self) -> State:
        """What it led to."""
        return self.move.state


def can_run(s: State, mark: int) -> bool:
    """Whether the sync of attempt *mark* runs, or can still begin.

    A worker that holds an Application which was deleted meanwhile does not count: nobody can reach it any more.
    """
    app, worker = s.app, s.worker
    if worker is not None and worker.uid != app.uid:
        worker = None
    return (
        app.op == mark
        or (app.mark == mark and app.in_progress)
        or (worker is not None and worker.mark == mark and worker.stage in {PICKING_UP, SYNCING})
        or any(request.kind == START and request.mark == mark for request in s.requests)
    )


def double_start(act: Act) -> str | None:
    """One stamp lands at most once; one sync to the desired revision; a new attempt only when the last is over.

    One that was lost with its Application does not count: see :func:`not_stopped`.
    """
    lost = {r.mark for r in act.after.promo.records if r.state == R_LOST}
    for mark, fate in zip(ATTEMPTS, act.after.fates, strict=True):
        if fate.landed > 1:
            return f"the start of attempt {mark} landed twice"
    fates = zip(ATTEMPTS, act.after.fates, strict=True)
    if sum(bool(fate.good) for mark, fate in fates if mark not in lost) > 1:
        return "the desired revision was synced twice by us"
    if act.move.actor == WE and len(act.after.promo.records) > len(act.before.promo.records) > 0:
        last = act.before.promo.records[-1].mark
        if can_run(act.after, last) and last not in lost:
            return f"a new attempt was recorded while attempt {last} could still run"
        if _same_reason(act.after.promo.records) >= AT_MOST:
            return f"more than {AT_MOST} attempts were made for one reason"
    return None


def _same_reason(records: Sequence[Rec]) -> int:
    """How many attempts ended as the one before the newest, since the last error that was counted; 0 after that."""
    *past, last, newest = records
    if newest.after_errors > last.after_errors:
        return 0
    return sum(r.state == last.state and r.after_errors == last.after_errors for r in (*past, last))


def miscounted(act: Act) -> str | None:
    """Each attempt that failed is counted once, and with its end; a new one follows only what was counted."""
    old, new = act.before.promo, act.after.promo
    ended = [r for r in new.records if r.state not in {OPEN, R_SUCCEEDED}]
    if new.errors > len(ended):
        return f"{new.errors} errors were counted, and {len(ended)} attempts have failed"
    if new.errors >= act.setting.threshold:
        return f"{new.errors} errors were counted, and the step goes on"
    if len(new.records) > len(old.records) > 0:
        last = old.records[-1]
        if last.state in {R_FAILED, R_LOST, R_REFUSED} and last.after_errors >= new.errors:
            return f"an attempt follows attempt {last.mark}, which was not counted"
    return None


def trespass(act: Act) -> str | None:
    """An operation that is not ours is never overwritten, removed or terminated by us."""
    old, new = act.before.app, act.after.app
    if act.move.actor not in {WE, LATE} or old == new:
        return None
    if old.op >= ALICE and new.op != old.op:
        return f"we took away {name(old.op)} operation"
    worker = act.before.worker
    held = old.op or (worker is not None and worker.mark == old.mark and worker.stage == SYNCING)
    if old.in_progress and old.mark >= ALICE and held and (new.mark, new.phase) != (old.mark, old.phase):
        return f"we touched the state of {name(old.mark)} operation"
    if new.phase == TERMINATING and not is_ours(new.mark) and new != old:
        return f"we asked for the end of {name(new.mark)} operation"
    return None


def false_success(act: Act) -> str | None:
    """Succeeded is recorded only for a sync of ours to the desired revision."""
    if act.after.promo.phase == P_SUCCEEDED and not act.after.fates[act.after.promo.records[-1].mark - 1].good:
        return "Succeeded was recorded, but no sync of that attempt to the desired revision succeeded"
    return None


def not_stopped(act: Act) -> str | None:
    """After Aborted no sync of ours runs or can begin, unless the record says that it was left.

    One that was lost with its Application may show up in the next one of that name, by a worker that had it in hand:
    an orphan, which whoever comes next starts over.
    """
    records = act.after.promo.records
    if act.after.promo.phase == P_ABORTED and not (records and records[-1].state in {R_DETACHED, R_LOST}):
        lost = {r.mark for r in records if r.state == R_LOST}
        running = [mark for mark in ATTEMPTS if mark not in lost and can_run(act.after, mark)]
        if running:
            return f"Aborted was recorded, but attempt {running[0]} runs or can still begin"
    return None


def _untrue(s: State, record: Rec) -> str | None:
    fate = s.fates[record.mark - 1]
    wrong = {
        R_SUCCEEDED: not fate.good,
        # A termination that is not on record as Stopped is told as somebody else's.
        R_FAILED: not fate.failed and (not fate.killed or fate.asked),
        R_STOPPED: not fate.killed,
        R_NOT_STARTED: bool(fate.landed),
        R_REFUSED: bool(fate.landed),
        R_SUPERSEDED: bool(fate.good or fate.wrong),
        R_WRONG_REVISION: not fate.wrong,
    }
    if wrong.get(record.state):
        return f"attempt {record.mark} is on record as {WORDS[record.state]}, which is not what happened"
    return None


def false_record(act: Act) -> str | None:
    """What is on record is what happened, for ever; an end that we were shown is recorded as that end."""
    if act.after.promo.phase == P_DELETED:
        return None
    for record in act.after.promo.records:
        if record.state == OPEN:
            continue
        if untrue := _untrue(act.after, record):
            return untrue
        ends = {R_SUCCEEDED, R_FAILED, R_STOPPED, R_WRONG_REVISION}
        if (
            record not in act.before.promo.records
            and act.before.fates[record.mark - 1].told
            and record.state not in ends
        ):
            return f"we were shown how attempt {record.mark} ended, but it is on record as {WORDS[record.state]}"
    return None


def orphan(act: Act) -> str | None:
    """No write of ours leaves an operation in progress without ``.operation``."""
    old, new = act.before.app, act.after.app
    if act.move.actor in {WE, LATE} and new.in_progress and not new.op and (old.op or not old.in_progress):
        return "a write of ours left an operation in progress without .operation"
    return None


def not_taken_back(act: Act) -> str | None:
    """After an abort with onAbort: revert the spec is as before our first start (nobody else sets the desired)."""
    s = act.after
    if not act.setting.reverts or s.promo.phase != P_ABORTED or act.before.promo.phase or not s.app.target:
        return None
    ours = [r.mark for r in s.promo.records if r.uid == s.app.uid and s.fates[r.mark - 1].landed]
    return f"Aborted was recorded, but the spec is as attempt {ours[0]} has left it" if ours else None


LAWS: Mapping[str, Callable[[Act], str | None]] = {
    DOUBLE_START: double_start,
    TRESPASS: trespass,
    FALSE_SUCCESS: false_success,
    NOT_STOPPED: not_stopped,
    FALSE_RECORD: false_record,
    ORPHAN: orphan,
    NOT_TAKEN_BACK: not_taken_back,
    MISCOUNTED: miscounted,
}


def broken(before: State, move: Move, setting: Setting) -> tuple[str, str] | None:
    """The first law that *move* breaks, and how; only what we and Argo CD do can break one."""
    if move.actor not in {WE, LATE, ARGO}:
        return None
    act = Act(before, move, setting)
    for law, judge in LAWS.items():
        if wrong := judge(act):
            return law, wrong
    return None


def has_ended(s: State) -> bool:
    """What law 4 demands to be reached: a terminal record; of a deleted Promotion, that nothing of ours runs.

    Nothing is demanded while somebody keeps Argo CD from acting (skip-reconcile): it is told, and the step's time-out
    ends it.
    """
    if s.app.skip:
        return True
    if s.promo.phase == P_DELETED:
        return not any(can_run(s._replace(requests=()), mark) for mark in ATTEMPTS)
    return bool(s.promo.phase)
