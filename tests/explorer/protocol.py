"""Our side: the real decisions, and the shell around them as the code has it.

The decision is :func:`kargo_py.argocd.operation.decide_operation` itself. The shell is that of
``deployers/argocd.py`` (``pursue``, ``stop``, ``_start``, ``outdated``), ``steps/argocd_update_looking.py``
(``_look``, ``_repeat``), ``kube/writes.py`` (``guarded_patch``) and ``controllers/{promotion,sweep}.py``, one move for
each turn of their loops. A decision and the write that follows it are one move: what others do in between is the same
as a cache that is behind, or as a request that lands late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from kargo_py.api.names import INFO_PROMOTION
from kargo_py.api.stamp import STAMP_KEY
from kargo_py.argocd.application import (
    KARGO_MARK,
    Annotations,
    Application,
    HistoryEntry,
    InitiatedBy,
    Metadata,
    OperationState,
    Spec,
    Status,
    SyncResult,
)
from kargo_py.argocd.operation import (
    SETTLED,
    Intent,
    Knowledge,
    Verb,
    Waiting,
    decide_operation,
    state_identity,
)
from kargo_py.kube.resources import Key
from tests.explorer.model import (
    ALICE,
    AT_MOST,
    END_ORPHAN,
    END_REQUESTED,
    END_RUNNING,
    FAILED,
    LATE,
    NOBODY,
    NONE,
    OPEN,
    P_ABORTED,
    P_DELETED,
    P_FAILED,
    P_SUCCEEDED,
    R_DETACHED,
    R_DOUBTFUL,
    R_FAILED,
    R_LOST,
    R_NOT_STARTED,
    R_REFUSED,
    R_STOPPED,
    R_SUCCEEDED,
    R_SUPERSEDED,
    R_WRONG_REVISION,
    RUNNING,
    START,
    SUCCEEDED,
    TERMINATING,
    TIME,
    WE,
    WORDS,
    App,
    Budget,
    Ending,
    Memory,
    Move,
    Rec,
    Request,
    Setting,
    State,
    answered,
    begun,
    is_current,
    is_ours,
    name,
    replaced,
    witnessed,
    written,
)

# -- the real decision -----------------------------------------------------------------------------------------------

_KEY = Key("argocd", "shop-dev")
_GOOD, _OTHER = "a" * 40, "b" * 40
_USER = "kargo-controller"
_PROMOTION = "dev.01"
_PHASES = {RUNNING: "Running", TERMINATING: "Terminating", SUCCEEDED: "Succeeded", FAILED: "Failed"}
_CLOCK = {0: 0.0, 1: 10.0, 2: SETTLED}


class Question(NamedTuple):
    """What is asked about an attempt: intent and knowledge."""

    mark: int
    uid: int
    seen: int
    history: int
    latched: Ending | None = None
    never: bool = False
    fenced: bool = False
    stopping: bool = False
    clock: int = 0
    nudges: int = 0
    adopted: bool = False
    seen_state: str | None = None


class Answer(NamedTuple):
    """What the decision says."""

    verb: Verb
    waiting: Waiting | None = None
    repeatable: bool = False


Decide = Callable[[App, Question], Answer]


def _stamp(mark: int) -> str:
    if not mark:
        return ""
    return f"v1/{'here' if mark < ALICE else 'elsewhere'}/shop/dev.01/uid/update/{mark}"


def _operation(mark: int, *, adopts: bool = False) -> dict[str, Any] | None:
    if not mark:
        return None
    if mark == ALICE:
        return {"initiatedBy": {"username": "alice"}, "sync": {}}
    if mark == 1 and adopts:
        return {"initiatedBy": {"username": _USER}, "info": [{"name": INFO_PROMOTION, "value": _PROMOTION}], "sync": {}}
    return {"initiatedBy": {"username": _USER}, "info": [{"name": STAMP_KEY, "value": _stamp(mark)}], "sync": {}}


def _state(e: Ending, began: int = 0, *, adopts: bool = False) -> OperationState | None:
    if not e.phase:
        return None
    result = SyncResult(revision=_GOOD if e.good else _OTHER) if e.phase == SUCCEEDED else None
    message = "Operation terminated" if e.killed else "one or more objects failed to apply" if e.phase == FAILED else ""
    operation = _operation(e.mark, adopts=adopts) or {}
    return OperationState(operation, _PHASES[e.phase], message, f"t{began}", sync_result=result)


@cache
def application(app: App, *, adopts: bool = False) -> Application | None:
    """What our program would have read; *adopts*: attempt 1 is what a real Kargo started."""
    if not app.uid:
        return None
    users = {1: _USER, 2: "alice"}
    return Application(
        Metadata(
            _KEY.name,
            _KEY.namespace,
            f"uid-{app.uid}",
            annotations=Annotations(stamp=_stamp(app.stamp) or None, skip_reconcile="true" if app.skip else None),
        ),
        Spec(source={"repoURL": "https://git.example.com/shop", "targetRevision": _GOOD if app.target else _OTHER}),
        _operation(app.op, adopts=adopts),
        Status(
            _state(Ending(app.mark, app.phase, app.killed, app.good), app.began, adopts=adopts),
            tuple(HistoryEntry(number, initiated_by=InitiatedBy(users[who])) for number, who in app.history),
        ),
    )


@cache
def identity(app: App, *, adopts: bool = False) -> str:
    """The real identity of the operation that *app* shows."""
    read = application(app, adopts=adopts)
    return state_identity(read) if read is not None else ""


@cache
def decide(app: App, q: Question) -> Answer:
    """Ask the real decision."""
    mark = KARGO_MARK + _PROMOTION if q.adopted else _stamp(q.mark)
    history = q.history or None
    intent = Intent(
        _KEY, f"uid-{q.uid}", mark, (_GOOD,), _stamp(q.seen), history, _USER, q.seen_state, adopted=q.adopted
    )
    latched = _state(q.latched, adopts=q.adopted) if q.latched is not None else None
    known = Knowledge(latched, q.never, q.fenced, q.stopping, _CLOCK[q.clock], q.nudges)
    decision = decide_operation(application(app, adopts=q.adopted), intent, known)
    return Answer(decision.verb, decision.waiting, decision.repeatable)


# -- the shell -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Protocol:
    """The decision, and what the shell holds to; a False is a planted fault.

    * ``latches``: endings are kept from the event on (``ArgoCD._latch``, ``attempt``; ``World`` asks for those on
      record before the first event). ``records_first``: the intent is durable before the start
      (``Stepping.go_on`` writes an ``Intend`` and calls again).
    * ``new_stamps``, ``limits_attempts``: each attempt has a stamp of its own, and there are not more than allowed
      (``Targets._repeat``).
    * ``guards_start``, ``guards_end``: writes are guarded by what was decided on (``start.start_patch``,
      ``stop.terminate_patch``). ``restores_operation``, ``keeps_operation``: an orphan is ended with its operation put
      back, and ``.operation`` is never removed (``stop.terminate_patch``).
    * ``same_bytes``: what is sent again is guarded as what was sent first (``writes.guarded_patch``).
    * ``fences``: Aborted is not recorded before no start can land any more (``ArgoCD.stop``,
      ``operation._not_carried_out``). ``knows_issued``: an attempt that was sent is not taken for one that was not
      (``ArgoCD._start``).
    * ``doubts_ok``: an accepted termination proves nothing (``ArgoCD.stop`` decides again after it).
    * ``only_ends_when_late``: what is on record as out of time is not pursued any more (``ArgoCDUpdate.run``).
    * ``remembers_unknown``: a conflict after an unknown outcome does not make an attempt "never issued" again
      (``ArgoCD._start``, by the cause that ``writes._settle`` and ``_look`` give it).
    * ``keeps_ends``: an attempt that has ended is not made Refused when the next one cannot be made
      (``Targets._repeat``).
    * ``looks_before_superseded``: "superseded" and "lost" are not concluded from the cache alone (``ArgoCD.pursue``,
      ``ArgoCD.stop``).
    * ``doubts_absence``: what is given up is "not started" only if the Application shows that
      (``argocd_records.may_have_begun``, ``argocd_update_records.left``).
    * ``adopts_to_stop``: what a real Kargo has started is adopted also in order to abort it (``ArgoCDUpdate.stop``,
      ``Aborting.abort``, ``ArgoCD.adopt``).
    * ``records_before_ending``: that the step has had its time is durable before anything is terminated for that
      (``ArgoCDUpdate._time_out``; ``promotion_waiting.is_urgent`` has it written at once).
    * ``records_state_again``: an intent that is recorded again has the operation that is seen then
      (``ArgoCD.outdated``, ``deployers.argocd._rests_on``).
    * ``doubts_other_state``: what is given up is "not started" only if the operation seen is that of the intent, where
      an ApplicationSet removes the annotation (``argocd_records.may_have_begun``).
    * ``keeps_pause``: an attempt that has ended, and waits for the next one to be made, keeps its end when the time of
      the step is over (``argocd_update_records.left``).
    * ``takes_back_all``: onAbort: revert puts back what any attempt has changed, not the last one only
      (``argocd_update_records.changes``).
    * ``knows_adopted``: what was adopted has begun, whatever the Application shows
      (``argocd_records.may_have_begun``).
    * ``doubts_no_state``: that there was no operation's state at the intent proves nothing later, a start resets it
      (``argocd_records.may_have_begun``; ``operation.may_have_moved``).
    * ``settles``: what had no answer can land no more when it is on record as not started, since the time is over, or
      as refused (``ArgoCD.settle``). ``doubts_unsettled``: where that could not be made sure of, it is not on record as
      not started (``Ending.end_all``, ``_let_go``).
    * ``counts_with_end``: an error and the end that it counts are in one write (``ArgoCDUpdate._failed``,
      ``stepping._erred``). ``limits_errors``: the threshold holds. ``follows_certain``: no attempt follows one of which
      it is not known what came of it (``Targets.may_follow``). ``tells_apart``: an ending that was kept is that
      of its own attempt (``ArgoCD.attempt``).
    """

    decide: Decide = decide

    latches: bool = True
    records_first: bool = True
    new_stamps: bool = True
    limits_attempts: bool = True
    guards_start: bool = True
    guards_end: bool = True
    same_bytes: bool = True
    restores_operation: bool = True
    fences: bool = True
    knows_issued: bool = True
    doubts_ok: bool = True
    keeps_operation: bool = True
    only_ends_when_late: bool = True
    remembers_unknown: bool = True
    keeps_ends: bool = True
    looks_before_superseded: bool = True
    doubts_absence: bool = True
    adopts_to_stop: bool = True
    records_before_ending: bool = True
    records_state_again: bool = True
    doubts_other_state: bool = True
    keeps_pause: bool = True
    takes_back_all: bool = True
    knows_adopted: bool = True
    doubts_no_state: bool = True
    settles: bool = True
    doubts_unsettled: bool = True
    counts_with_end: bool = True
    limits_errors: bool = True
    follows_certain: bool = True
    tells_apart: bool = True


CODE = Protocol()
"""The code."""


_ENDS = {
    Verb.SUCCEEDED: R_SUCCEEDED,
    Verb.FAILED: R_FAILED,
    Verb.STOPPED: R_STOPPED,
    Verb.MISMATCHED: R_WRONG_REVISION,
    Verb.LOST: R_LOST,
    Verb.REFUSED: R_REFUSED,
    Verb.NOT_STARTED: R_NOT_STARTED,
}


def our_moves(s: State, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    """What our process may do next."""
    if s.memory.sending is not None:
        yield from _settle(s, setting, protocol)
    elif s.promo.phase == P_DELETED:
        yield from _sweep(s, setting, protocol)
    elif s.promo.abort == 4 and protocol.only_ends_when_late:
        yield from _stop(s, setting, protocol, P_FAILED)
    elif s.promo.abort >= 3:
        yield from _run_out(s, setting, protocol)
    elif not s.promo.phase:
        if s.promo.abort == 1:
            kept = s.promo._replace(abort=2)
            yield Move(WE, "keeps the request to abort in the status", s._replace(promo=kept))
        if s.promo.abort < 2:
            yield from _run(s, setting, protocol)
        if s.promo.abort == 2:
            yield from _stop(s, setting, protocol)


def late_moves(s: State, setting: Setting) -> Iterator[Move]:
    """A request whose outcome is unknown may still land."""
    for request in s.requests:
        after = _landed(s, request, setting, answer=False)
        if after is not None:
            rest = tuple(r for r in after.requests if r != request)
            what = f"the start of {name(request.mark)}" if request.kind == START else "the request to terminate"
            yield Move(LATE, f"{what} lands", after._replace(requests=rest), fair=False)


def _read(s: State) -> State:
    """The cache, or after a conflict or an unknown outcome the server (``Cache.read``)."""
    if not s.memory.dirty:
        return s
    s = answered(s)
    return s._replace(memory=s.memory._replace(dirty=False))


def _question(s: State, record: Rec, *, stopping: bool = False) -> Question:
    memory = s.memory
    latched = next((e for e in memory.latched if e.mark == record.mark), None)
    return Question(
        record.mark,
        record.uid,
        record.seen,
        record.history,
        latched,
        record.mark in memory.never,
        memory.fenced and stopping,
        stopping,
        memory.clock,
        memory.nudges,
        record.adopted,
        record.seen_state,
    )


def _looked(s: State, record: Rec, protocol: Protocol, *, stopping: bool = False) -> tuple[State, Answer]:
    """The decision on what is in the cache, or what a live read shows."""
    s = _read(s)
    answer = _ask(s, record, protocol, stopping=stopping)
    if answer.verb in {Verb.SUPERSEDED, Verb.LOST} and protocol.looks_before_superseded and not is_current(s):
        s = answered(s)
        answer = _ask(s, record, protocol, stopping=stopping)
    return s, answer


def _ask(s: State, record: Rec, protocol: Protocol, *, stopping: bool = False) -> Answer:
    question = _question(s, record, stopping=stopping)
    if not protocol.tells_apart and s.memory.latched:
        question = question._replace(latched=s.memory.latched[0]._replace(mark=record.mark))
    if not protocol.latches:
        question = question._replace(latched=None)
    if not protocol.fences:
        question = question._replace(fenced=True)
    if not protocol.knows_issued:
        question = question._replace(never=True)
    return protocol.decide(s.cache, question)


# -- towards success (pursue, outdated, _look, _repeat) ----------------------------------------------------------------


def _facts(app: App, mark: int, setting: Setting, *, adopted: bool = False) -> Rec:
    """``_record``: as ``intend`` makes it of the cache."""
    return Rec(
        mark,
        app.uid,
        app.stamp,
        app.history[-1][0] if app.history else 0,
        adopted=adopted,
        seen_state=identity(app, adopts=setting.adopts) if setting.owned else None,
        before=setting.reverts and not app.target and not adopted,
    )


def _outdated(s: State, record: Rec, setting: Setting, protocol: Protocol) -> Rec | None:
    """``outdated``: the intent as it would be recorded now, if it is another and certainly not carried out."""
    app = s.cache
    moved = app.stamp != record.seen and record.mark in s.memory.never
    if not app.uid or not (moved or _ask(s, record, protocol).verb is Verb.START):
        return None
    now = _facts(app, record.mark, setting, adopted=record.adopted)._replace(after_errors=record.after_errors)
    if now == record:
        return None
    return now if protocol.records_state_again else now._replace(seen_state=record.seen_state)


def _run(s: State, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    s = _read(s)
    if not s.promo.records:
        yield _adopt(s, setting) if setting.adopts else _intend(s, 1, setting, protocol)
        return
    if not s.promo.saved:
        promo = s.promo._replace(saved=True)
        yield Move(WE, "records the intent", s._replace(promo=promo))
    record = s.promo.records[-1]
    if record.state != OPEN:
        # The pause before the next attempt.
        yield from _out_of_time(s, record, setting, protocol)
        yield from _try_again(s, record, setting, protocol)
        return
    now = _outdated(s, record, setting, protocol)
    if now is None:
        s, answer = _looked(s, record, protocol)
        verb = answer.verb
        now = _outdated(s, record, setting, protocol) if verb is Verb.START else None
    if now is not None:
        records = (*s.promo.records[:-1], now)
        after = s._replace(promo=s.promo._replace(records=records))
        yield Move(WE, f"records the intent of attempt {record.mark} as it is now", after)
    elif verb is Verb.START:
        yield from _start(s, record.mark, setting, protocol)
        yield from _too_late(s, record, setting, protocol)
        yield from _refused(s, record, setting, protocol)
    elif verb is Verb.NUDGE:
        yield from _nudge(s, setting)
    elif verb is Verb.TERMINATE:
        yield from _terminate(s, record.mark, setting, protocol)
    elif verb is Verb.WAIT:
        if answer.waiting is not Waiting.FOREIGN:
            yield from _out_of_time(s, record, setting, protocol)
    elif answer.repeatable:
        yield from _repeat(s, record, verb, setting, protocol)
    else:
        end = _ENDS.get(verb, R_DOUBTFUL)
        if end == R_SUCCEEDED:
            yield _ended(s, P_SUCCEEDED, end, setting, protocol)
        else:
            yield _failed(s, end, setting, protocol)


def _intend(s: State, mark: int, setting: Setting, protocol: Protocol, ended: tuple[Rec, ...] = ()) -> Move:
    """Record the intent of attempt *mark*; an Application that takes no sync is refused (from a live read)."""
    if not s.cache.uid or s.cache.skip:
        s = answered(s)
    if not s.cache.uid or s.cache.skip:
        if ended:
            last = ended[-1] if protocol.keeps_ends else ended[-1]._replace(state=R_REFUSED)
            s = s._replace(promo=s.promo._replace(records=(*ended[:-1], last)))
            return _failed(s, last.state, setting, protocol)
        return Move(WE, "ends: the Application takes no sync", _forgotten(s, P_FAILED))
    new = _facts(s.cache, mark, setting)._replace(after_errors=s.promo.errors)
    promo = s.promo._replace(records=(*ended, new), saved=protocol.records_first)
    after = s._replace(promo=promo, memory=s.memory._replace(never=s.memory.never | {mark}, clock=0, nudges=0))
    return Move(WE, f"records the intent of attempt {mark}", after)


def _adopt(s: State, setting: Setting) -> Move:
    """``intend`` where a real Kargo has started a sync for this Promotion: recorded as attempt 0, watched, not sent."""
    promo = s.promo._replace(records=(_facts(s.cache, 1, setting, adopted=True),))
    return Move(WE, "adopts what Kargo has started", witnessed(s._replace(promo=promo), s.cache))


def _repeat(s: State, record: Rec, verb: Verb, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    """Another attempt, unless there were as many of that kind of end as are allowed."""
    end = _ENDS.get(verb, R_SUPERSEDED)
    last = record._replace(state=end)
    ended = (*s.promo.records[:-1], last)
    count = sum(r.state == end for r in ended)
    if (count >= AT_MOST and protocol.limits_attempts) or record.mark == len(s.fates):
        yield _failed(s, end, setting, protocol)
    elif not protocol.new_stamps:
        yield _intend(s, record.mark, setting, protocol)
    elif end == R_WRONG_REVISION:
        after = s._replace(promo=s.promo._replace(records=ended))
        yield Move(WE, f"records that attempt {record.mark} ended as {WORDS[end]}, and pauses", after)
    else:
        yield _intend(s, record.mark + 1, setting, protocol, ended)


_FOLLOWED = frozenset({R_FAILED, R_LOST, R_REFUSED, R_WRONG_REVISION, R_SUPERSEDED})
"""Ends after which, once they were counted, another attempt may follow (``may_follow``)."""


def _failed(s: State, end: int, setting: Setting, protocol: Protocol) -> Move:
    """``_failed``, ``stepping._erred``: the end is an error that is counted, in the same write; or the last one."""
    last, promo = s.promo.records[-1], s.promo
    certain = end in _FOLLOWED or not protocol.follows_certain
    enough = promo.errors + 1 >= setting.threshold and protocol.limits_errors
    if not certain or enough or last.mark == len(s.fates) or setting.threshold == 1:
        return _ended(s, P_FAILED, end, setting, protocol)
    if not protocol.counts_with_end and last.state == OPEN and promo.errors == last.after_errors:
        return Move(WE, "counts an error", s._replace(promo=promo._replace(errors=promo.errors + 1)))
    records = (*promo.records[:-1], last._replace(state=end) if last.state == OPEN else last)
    counted = promo._replace(records=records, errors=promo.errors + 1)
    words = f"counts an error: attempt {last.mark} ended as {WORDS[end]}; and pauses"
    return Move(WE, words, s._replace(promo=counted, memory=s.memory._replace(fenced=False)))


def _try_again(s: State, record: Rec, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    """The pause is over: the next attempt, if it is still certain that nothing came of the last (``_try_again``)."""
    if record.state == R_SUPERSEDED and record.after_errors < s.promo.errors:
        s = answered(s)
        if not _ask(s, record, protocol).repeatable:
            yield _ended(s, P_FAILED, record.state, setting, protocol)
            return
    mark = record.mark + 1 if protocol.new_stamps else record.mark
    ended = s.promo.records if protocol.new_stamps else s.promo.records[:-1]
    yield _intend(s, mark, setting, protocol, ended)


def _settled(s: State, record: Rec, setting: Setting, protocol: Protocol) -> State | None:
    """``settle``: a live look, and a write if no start is there but one may be on its way; None if one is there."""
    s = answered(s)
    if protocol.settles and s.app.uid and record.mark not in s.memory.never:
        after = s if _may_have_begun(s, record, setting, protocol) else written(s, s.app, setting, answer=True)
        if after is None:
            return None
        s = after
    return s if _ask(s, record, protocol).verb is Verb.START else None


def _too_late(s: State, record: Rec, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    """The step has had its time, and no start is known to have landed (``look_last``): one may be on its way."""
    if setting.terminates:
        yield from _out_of_time(s, record, setting, protocol)
    elif s.budget.timeouts and (settled := _settled(s, record, setting, protocol)) is not None:
        yield _left(settled, P_FAILED, record, setting, protocol)


def _refused(s: State, record: Rec, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    """The start is refused for a reason that is not in the Application (``_refused``): an admission webhook's."""
    if not s.budget.refusals:
        return
    spent = s._replace(budget=s.budget._replace(refusals=s.budget.refusals - 1))
    never = record.mark in s.memory.never
    settled = spent if never else _settled(spent, record, setting, protocol)
    if settled is not None:
        yield _failed(settled, R_REFUSED, setting, protocol)._replace(fair=False)


def _ended(s: State, phase: int, end: int, setting: Setting, protocol: Protocol) -> Move:
    """Write the last phase; the attempt on record has ended so."""
    records = s.promo.records
    if records and records[-1].state == OPEN:
        records = (*records[:-1], records[-1]._replace(state=end))
    s = s._replace(promo=s.promo._replace(records=records))
    if setting.reverts and phase == P_ABORTED:
        s = _taken_back(s, setting, protocol)
    how = {P_SUCCEEDED: "Succeeded", P_FAILED: "Failed", P_ABORTED: "Aborted"}[phase]
    return Move(WE, f"records {how}: {WORDS[end]}", _forgotten(s, phase))


def _taken_back(s: State, setting: Setting, protocol: Protocol) -> State:
    """``_taken_back``, ``ArgoCD.revert``: the change of the last attempt is put back where it is as we left it."""
    records = s.promo.records if protocol.takes_back_all else s.promo.records[-1:]
    changed = any(r.before and r.state != R_NOT_STARTED and r.uid == s.app.uid for r in records)
    if not changed or not s.app.target:
        return s
    return written(s, s.app._replace(target=False), setting, answer=True) or s


def _forgotten(s: State, phase: int) -> State:
    """After the end our process remembers nothing; what is under way elsewhere goes on."""
    promo = s.promo._replace(phase=phase, abort=0)
    return s._replace(promo=promo, memory=Memory(), cache=s.app, feed=(), ahead=0, budget=Budget())


def _out_of_time(s: State, record: Rec, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    """``_time_out``: the step has had its time, which does not run while others hold the Application."""
    if not s.budget.timeouts:
        return
    if setting.terminates:
        promo, budget = s.promo._replace(abort=3), s.budget._replace(timeouts=0)
        yield Move(TIME, "the time of the step is over", s._replace(promo=promo, budget=budget), fair=False)
        return
    yield _left(s, P_FAILED, record, setting, protocol)


def _left(s: State, phase: int, record: Rec, setting: Setting, protocol: Protocol) -> Move:
    """Nobody waits for it any longer (``_left``); one that certainly has not begun is told as not started.

    So is, by the code, what waits for the pause after it to be over: its observation says that nothing is there.
    """
    present = record.state == OPEN and _may_have_begun(s, record, setting, protocol)
    end = R_DETACHED if present else R_NOT_STARTED
    if record.state != OPEN and protocol.keeps_pause:
        end = record.state
    s = s._replace(promo=s.promo._replace(records=(*s.promo.records[:-1], record._replace(state=end))))
    return _ended(s, phase, end, setting, protocol)._replace(fair=False)


def _may_have_begun(s: State, record: Rec, setting: Setting, protocol: Protocol) -> bool:
    """As :func:`kargo_py.deployers.argocd._may_have_begun`."""
    app = s.cache
    if not app.uid or record.mark in s.memory.never:
        return not app.uid
    if record.adopted and protocol.knows_adopted:
        return True
    moved = record.seen_state is not None and record.seen_state != identity(app, adopts=setting.adopts)
    moved = moved or (record.seen_state == "" and protocol.doubts_no_state)
    doubtful = app.stamp != record.seen or (moved and protocol.doubts_other_state)
    if not protocol.doubts_absence:
        doubtful = app.stamp == record.mark
    return doubtful or record.mark in {app.op, app.mark}


def _run_out(s: State, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    """``_go_on`` after the time of the step, ``_time_out`` and ``_end_late``.

    Each target is pursued first; one that still waits then is stopped, and when that takes its time it is recorded that
    this was begun. A process that has begun with it does that before anything else.
    """
    if s.promo.records[-1].state == OPEN:
        s, answer = _looked(s, s.promo.records[-1], protocol)
    else:
        answer = Answer(Verb.WAIT)
    waits = answer.verb is Verb.WAIT and answer.waiting is not Waiting.FOREIGN
    if not waits and not s.memory.late:
        yield from _run(s, setting, protocol) if answer.verb is not Verb.WAIT else ()
        if answer.verb is not Verb.START:
            return
    if s.promo.abort == 3:
        recorded = s._replace(promo=s.promo._replace(abort=4), memory=s.memory._replace(late=False))
        yield Move(WE, "records that the time of the step is over", recorded)
    if not protocol.records_before_ending or s.promo.abort == 4:
        for move in _stop(s, setting, protocol, P_FAILED):
            after = move.state
            late = not after.promo.phase and s.promo.abort == 3
            yield move._replace(state=after._replace(memory=after.memory._replace(late=late)))


# -- the writes --------------------------------------------------------------------------------------------------------


def _landed(s: State, request: Request, setting: Setting, *, answer: bool = True) -> State | None:
    """The request as the server carries it out; None if a guard by content does not hold."""
    app = s.app
    if request.kind == START:
        changed = app._replace(
            op=request.mark, mark=NOBODY, phase=NONE, killed=False, good=False, began=0, stamp=request.mark, target=True
        )
        landed = min(2, s.fates[request.mark - 1].landed + 1)
        s = s._replace(fates=replaced(s.fates, request.mark, landed=landed))
    elif request.kind == END_REQUESTED:
        s, began = begun(s, setting)
        changed = app._replace(mark=request.op, phase=TERMINATING, killed=False, good=False, began=began)
    elif request.kind == END_ORPHAN:
        changed = app._replace(op=request.op, phase=TERMINATING)
    elif (app.uid, app.op, app.mark, app.phase) == (request.uid, request.op, request.mark, request.phase):
        changed = app._replace(phase=TERMINATING)
    else:
        return None
    if request.kind in {END_REQUESTED, END_RUNNING} and is_ours(request.mark):
        s = s._replace(fates=replaced(s.fates, request.mark, asked=True))
    return written(s, changed, setting, answer=answer)


def _start(s: State, mark: int, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    """``_start``: one merge patch guarded by resourceVersion."""
    memory = s.memory
    first = mark in memory.never
    sent = s._replace(memory=memory._replace(never=memory.never - {mark}))
    request = Request(START, mark)
    if is_current(s) or (not protocol.guards_start and s.app.uid):
        after = _landed(sent, request, setting)
        if after is not None:
            yield Move(WE, f"starts attempt {mark}", after)
    else:
        yield Move(WE, f"would start attempt {mark}, gets a conflict", _dirty(s))
    if not s.budget.unknowns:
        return
    asking = sent._replace(
        memory=sent.memory._replace(sending=(mark, first)),
        budget=s.budget._replace(unknowns=s.budget.unknowns - 1),
    )
    words = f"sends the start of attempt {mark}, no answer comes"
    if not is_current(s):
        yield Move(WE, f"{words}: it was refused", asking, fair=False)
        return
    after = _landed(asking, request, setting, answer=False)
    if after is not None:
        yield Move(WE, f"{words}: it landed", after, fair=False)
    yield Move(WE, f"{words}: it is on its way", asking._replace(requests=(*s.requests, request)), fair=False)


def _dirty(s: State) -> State:
    return s._replace(memory=s.memory._replace(dirty=True))


def _settle(s: State, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    """``guarded_patch`` after an unknown outcome: the identical bytes again, and a live look after a conflict.

    It gives up after the fifth try, or when it cannot look: that, too, is an unknown outcome.
    """
    assert s.memory.sending is not None
    mark, first = s.memory.sending
    done = s._replace(memory=s.memory._replace(sending=None))
    request = Request(START, mark)
    given_up = done._replace(memory=done.memory._replace(dirty=True))
    yield Move(WE, f"cannot find out whether attempt {mark} was started", given_up, fair=False)
    if request in s.requests or (not protocol.same_bytes and s.app.uid):
        after = _landed(done, request, setting)
        if after is not None:
            yield Move(WE, f"sends the start of attempt {mark} again, it lands", after)
    elif s.app.stamp == mark:
        yield Move(WE, f"sends it again, gets a conflict, and sees that attempt {mark} was started", answered(done))
    else:
        certain = first and not protocol.remembers_unknown
        never = done.memory.never | {mark} if certain else done.memory.never
        after = done._replace(memory=done.memory._replace(never=never, dirty=True))
        yield Move(WE, f"sends it again, gets a conflict, and sees no trace of attempt {mark}", after)


def _nudge(s: State, setting: Setting) -> Iterator[Move]:
    """An unguarded write that changes nothing but the version."""
    if not s.app.uid:
        yield Move(WE, "would nudge Argo CD, but the Application is gone", _dirty(s))
        return
    after = written(s, s.app, setting, answer=True)
    if after is not None:
        nudges = s.memory.nudges + 1 if after.memory.clock == s.memory.clock else 0
        yield Move(WE, "nudges Argo CD", after._replace(memory=after.memory._replace(nudges=nudges)))


def _fence(s: State, setting: Setting) -> Iterator[Move]:
    """The same write; after its answer no start guarded by an older version can land."""
    if not s.app.uid:
        yield Move(WE, "would make sure that no start is on its way, but the Application is gone", _dirty(s))
        return
    after = written(s, s.app, setting, answer=True)
    if after is not None:
        memory = after.memory._replace(fenced=True)
        yield Move(WE, "makes sure that no start is on its way", after._replace(memory=memory))


def _terminate(s: State, mark: int, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    """``terminate_patch`` in its three forms, sent once; a refusal is a conflict."""
    view = s.cache
    if not protocol.keeps_operation:
        after = written(s, s.app._replace(op=NOBODY), setting, answer=True)
        if after is not None and s.app.op:
            yield Move(WE, "removes the operation", after)
        return
    if view.mark != mark or not view.phase:
        request = Request(END_REQUESTED, view.op, op=view.op)
    elif not view.op:
        request = Request(END_ORPHAN, view.mark, op=view.mark if protocol.restores_operation else NOBODY)
    else:
        request = Request(END_RUNNING, view.mark, view.uid, view.op, view.phase)
    if not protocol.guards_end:
        # It asks for the end of whatever is there.
        request = Request(END_ORPHAN, s.app.mark, op=s.app.op)
    by_contents = request.kind == END_RUNNING or not protocol.guards_end
    after = _landed(s, request, setting) if (by_contents or is_current(s)) and s.app.uid else None
    if after is not None:
        if not protocol.doubts_ok and s.promo.abort == 2:
            yield _ended(after, P_ABORTED, R_STOPPED, setting, protocol)
        else:
            yield Move(WE, f"asks Argo CD to terminate {name(mark)}", after)
    elif len(s.feed) < max(setting.lag, 1):
        yield Move(WE, f"would terminate {name(mark)}, gets a conflict", _dirty(s))
    if s.budget.unknowns and request not in s.requests and s.app.uid:
        asking = s._replace(
            budget=s.budget._replace(unknowns=s.budget.unknowns - 1),
            memory=s.memory._replace(dirty=True, fenced=False),
        )
        words = "sends a request to terminate, no answer comes"
        if by_contents or is_current(s):
            sent = asking._replace(requests=(*s.requests, request))
            yield Move(WE, f"{words}: it is on its way", sent, fair=False)


# -- towards an end (stop) ---------------------------------------------------------------------------------------------


def _stop(s: State, setting: Setting, protocol: Protocol, phase: int = P_ABORTED) -> Iterator[Move]:
    s = _read(s)
    if not s.promo.records:
        adopts = setting.adopts and protocol.adopts_to_stop
        yield _adopt(s, setting) if adopts else _ended(s, P_ABORTED, R_NOT_STARTED, setting, protocol)
        return
    record = s.promo.records[-1]
    if record.state != OPEN:
        yield _ended(s, phase, record.state, setting, protocol)
        return
    s, answer = _looked(s, record, protocol, stopping=True)
    verb = answer.verb
    if verb is Verb.FENCE and s.budget.patience:
        end = R_DETACHED if protocol.doubts_unsettled else R_NOT_STARTED
        yield _ended(s, phase, end, setting, protocol)._replace(fair=False)
    if verb in {Verb.TERMINATE, Verb.WAIT} and s.budget.patience:
        yield _left(s, phase, record, setting, protocol)
    if verb is Verb.TERMINATE:
        yield from _terminate(s, record.mark, setting, protocol)
    elif verb is Verb.NUDGE:
        yield from _nudge(s, setting)
    elif verb is Verb.FENCE:
        yield from _fence(s, setting)
    elif verb is Verb.WAIT:
        if s.memory.fenced:
            yield Move(WE, "waits", s._replace(memory=s.memory._replace(fenced=False)))
    else:
        superseded = R_SUPERSEDED if answer.repeatable else R_DOUBTFUL
        yield _ended(s, phase, _ENDS.get(verb, superseded), setting, protocol)


# -- the sweep ---------------------------------------------------------------------------------------------------------


def _sweep(s: State, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    """Ends what a deleted Promotion has under way; only after 30 s in which it stayed gone."""
    s = _read(s)
    app = s.cache
    mark = app.mark if app.in_progress else app.op
    if not is_ours(mark):
        memory = s.memory._replace(certain=False, fenced=False)
        if memory != s.memory:
            yield Move(WE, "sweeps: nothing of ours is there any more", s._replace(memory=memory))
        return
    if not s.memory.certain:
        return
    record = _facts(app, mark, setting)
    answer = _ask(s, record, protocol, stopping=True)
    if answer.verb is Verb.TERMINATE:
        yield from _terminate(s, mark, setting, protocol)
    elif answer.verb is Verb.NUDGE:
        yield from _nudge(s, setting)
    elif answer.verb is Verb.FENCE:
        yield from _fence(s, setting)
