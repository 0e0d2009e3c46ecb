"""Our side: the real decisions, and the shell around them as the code has it.

The decision is :func:`kargo_py.argocd.operation.decide_operation` itself. The shell is that of
``deployers/argocd.py`` (``pursue``, ``stop``, ``_start``, ``outdated``), ``steps/argocd_update.py`` (``_look``,
``_repeat``), ``kube/writes.py`` (``guarded_patch``) and ``controllers/{promotion,sweep}.py``, one move for each turn of
their loops. A decision and the write that follows it are one move: what others do in between is the same as a cache
that is behind, or as a request that lands late.
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
from kargo_py.argocd.operation import SETTLED, Intent, Knowledge, Verb, Waiting, decide_operation
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
    is_current,
    is_ours,
    name,
    replaced,
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


def _state(mark: int, phase: int, killed: bool, good: bool, *, adopts: bool = False) -> OperationState | None:
    if not phase:
        return None
    result = SyncResult(revision=_GOOD if good else _OTHER) if phase == SUCCEEDED else None
    message = "Operation terminated" if killed else "one or more objects failed to apply" if phase == FAILED else ""
    return OperationState(_operation(mark, adopts=adopts) or {}, _PHASES[phase], message, "t", sync_result=result)


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
            _state(app.mark, app.phase, app.killed, app.good, adopts=adopts),
            tuple(HistoryEntry(number, initiated_by=InitiatedBy(users[who])) for number, who in app.history),
        ),
    )


@cache
def decide(app: App, q: Question) -> Answer:
    """Ask the real decision."""
    mark = KARGO_MARK + _PROMOTION if q.adopted else _stamp(q.mark)
    history = q.history or None
    intent = Intent(_KEY, f"uid-{q.uid}", mark, (_GOOD,), _stamp(q.seen), history, _USER, adopted=q.adopted)
    latched = _state(*q.latched, adopts=q.adopted) if q.latched is not None else None
    known = Knowledge(latched, q.never, q.fenced, q.stopping, _CLOCK[q.clock], q.nudges)
    decision = decide_operation(application(app, adopts=q.adopted), intent, known)
    return Answer(decision.verb, decision.waiting, decision.repeatable)


# -- the shell -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Protocol:
    """The decision, and what the shell holds to; as the code has it by default.

    The first group is what the shell does; a False there is a planted fault:

    * ``latches``: endings are kept from the event on. ``records_first``: the intent is durable before the start.
    * ``new_stamps``: each attempt has a stamp of its own. ``limits_attempts``: there are not more than allowed.
    * ``guards_start``, ``guards_end``: writes are guarded by what was decided on. ``same_bytes``: what is sent again is
      guarded as what was sent first. ``restores_operation``: an orphan is ended with its operation put back.
    * ``fences``: Aborted is not recorded before no start can land any more. ``knows_issued``: an attempt that was sent
      is not taken for one that was not.
    * ``only_ends_when_late``: what is on record as out of time is not pursued any more.
    * ``doubts_ok``: an accepted termination proves nothing. ``keeps_operation``: ``.operation`` is never removed.

    The second group is what the code lacks; each True is the smallest repair of a fault that the explorer has found:

    * ``remembers_unknown``: a conflict after an unknown outcome does not make an attempt "never issued" again.
    * ``keeps_ends``: an attempt that has ended is not made Refused when the next one cannot be made.
    * ``looks_before_superseded``: "superseded" is not concluded from the cache alone.
    * ``doubts_absence``: what is given up is "not started" only if the annotation is still the one that was seen
      before. Not a fault today, but one with the repair of the decision.
    * ``adopts_to_stop``: what a real Kargo has started is adopted also in order to abort it.
    * ``records_before_ending``: that the step has had its time is durable before anything is terminated for that.
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

    remembers_unknown: bool = False
    keeps_ends: bool = False
    looks_before_superseded: bool = False
    records_before_ending: bool = False
    doubts_absence: bool = False
    adopts_to_stop: bool = False


@cache
def decide_patiently(app: App, q: Question) -> Answer:
    """The real decision with two repairs.

    While the operation state is empty the worker may have ours in hand: so it is with "superseded before it was taken
    up" already, here also when another stamp stands in the annotation. And the history says nothing about an adopted
    operation, which may have succeeded before it was adopted.
    """
    answer = decide(app, q)
    if answer.verb is Verb.SUPERSEDED and q.adopted:
        return answer._replace(repeatable=False)
    seen_elsewhere = answer.verb is Verb.SUPERSEDED and q.latched is None and app.stamp != q.mark
    if seen_elsewhere and not app.phase and _CLOCK[q.clock] < SETTLED:
        return Answer(Verb.WAIT, Waiting.FOREIGN)
    return answer


AS_IS = Protocol()
"""The code as it is."""

REPAIRED = Protocol(
    decide_patiently,
    remembers_unknown=True,
    keeps_ends=True,
    looks_before_superseded=True,
    records_before_ending=True,
    doubts_absence=True,
    adopts_to_stop=True,
)
"""The code with the repairs of what the explorer has found."""

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
    )


def _looked(s: State, record: Rec, protocol: Protocol, *, stopping: bool = False) -> tuple[State, Answer]:
    """The decision on what is in the cache, or what a live read shows."""
    s = _read(s)
    answer = _ask(s, record, protocol, stopping=stopping)
    if answer.verb is Verb.SUPERSEDED and protocol.looks_before_superseded and not is_current(s):
        s = answered(s)
        answer = _ask(s, record, protocol, stopping=stopping)
    return s, answer


def _ask(s: State, record: Rec, protocol: Protocol, *, stopping: bool = False) -> Answer:
    question = _question(s, record, stopping=stopping)
    if not protocol.latches:
        question = question._replace(latched=None)
    if not protocol.fences:
        question = question._replace(fenced=True)
    if not protocol.knows_issued:
        question = question._replace(never=True)
    return protocol.decide(s.cache, question)


# -- towards success (pursue, outdated, _look, _repeat) ----------------------------------------------------------------


def _facts(app: App, mark: int, *, adopted: bool = False) -> Rec:
    """The record as ``intend`` makes it of the cache."""
    return Rec(mark, app.uid, app.stamp, app.history[-1][0] if app.history else 0, adopted=adopted)


def _run(s: State, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    s = _read(s)
    if not s.promo.records:
        yield _adopt(s) if setting.adopts else _intend(s, 1, protocol)
        return
    if not s.promo.saved:
        promo = s.promo._replace(saved=True)
        yield Move(WE, "records the intent", s._replace(promo=promo))
    record = s.promo.records[-1]
    s, answer = _looked(s, record, protocol)
    verb = answer.verb
    moved = s.cache.stamp != record.seen and record.mark in s.memory.never
    now = _facts(s.cache, record.mark, adopted=record.adopted)
    if s.cache.uid and (verb is Verb.START or moved) and now != record:
        records = (*s.promo.records[:-1], now)
        after = s._replace(promo=s.promo._replace(records=records))
        yield Move(WE, f"records the intent of attempt {record.mark} as it is now", after)
    elif verb is Verb.START:
        yield from _start(s, record.mark, setting, protocol)
    elif verb is Verb.NUDGE:
        yield from _nudge(s, setting)
    elif verb is Verb.TERMINATE:
        yield from _terminate(s, record.mark, setting, protocol)
    elif verb is Verb.WAIT:
        yield from _time_out(s, record, answer, setting, protocol)
    elif answer.repeatable:
        yield from _repeat(s, record, verb, protocol)
    else:
        end = _ENDS.get(verb, R_DOUBTFUL)
        yield _ended(s, P_SUCCEEDED if end == R_SUCCEEDED else P_FAILED, end)


def _intend(s: State, mark: int, protocol: Protocol, ended: tuple[Rec, ...] = ()) -> Move:
    """Record the intent of attempt *mark*; an Application that takes no sync is refused (from a live read)."""
    if not s.cache.uid or s.cache.skip:
        s = answered(s)
    if not s.cache.uid or s.cache.skip:
        if ended:
            # As _look has it: the record of the attempt before is made Refused.
            return _ended(s, P_FAILED, ended[-1].state if protocol.keeps_ends else R_REFUSED)
        return Move(WE, "ends: the Application takes no sync", _forgotten(s, P_FAILED))
    promo = s.promo._replace(records=(*ended, _facts(s.cache, mark)), saved=protocol.records_first)
    after = s._replace(promo=promo, memory=s.memory._replace(never=s.memory.never | {mark}, clock=0, nudges=0))
    return Move(WE, f"records the intent of attempt {mark}", after)


def _adopt(s: State) -> Move:
    """``intend`` where a real Kargo has started a sync for this Promotion: recorded as attempt 0, watched, not sent."""
    promo = s.promo._replace(records=(_facts(s.cache, 1, adopted=True),))
    return Move(WE, "adopts what Kargo has started", s._replace(promo=promo))


def _repeat(s: State, record: Rec, verb: Verb, protocol: Protocol) -> Iterator[Move]:
    """Another attempt, unless there were as many of that kind of end as are allowed."""
    end = _ENDS.get(verb, R_SUPERSEDED)
    last = record._replace(state=end)
    ended = (*s.promo.records[:-1], last)
    count = sum(r.state == end for r in ended)
    if (count >= AT_MOST and protocol.limits_attempts) or record.mark == len(s.fates):
        yield _ended(s, P_FAILED, end)
    elif protocol.new_stamps:
        yield _intend(s, record.mark + 1, protocol, ended)
    else:
        yield _intend(s, record.mark, protocol)


def _ended(s: State, phase: int, end: int) -> Move:
    """Write the last phase; the attempt on record has ended so."""
    records = s.promo.records
    if records and records[-1].state == OPEN:
        records = (*records[:-1], records[-1]._replace(state=end))
    s = s._replace(promo=s.promo._replace(records=records))
    how = {P_SUCCEEDED: "Succeeded", P_FAILED: "Failed", P_ABORTED: "Aborted"}[phase]
    return Move(WE, f"records {how}: {WORDS[end]}", _forgotten(s, phase))


def _forgotten(s: State, phase: int) -> State:
    """After the end our process remembers nothing; what is under way elsewhere goes on."""
    promo = s.promo._replace(phase=phase, abort=0)
    return s._replace(promo=promo, memory=Memory(), cache=s.app, feed=(), ahead=0, budget=Budget())


def _time_out(s: State, record: Rec, answer: Answer, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    """The step has had its time, which does not run while others hold the Application."""
    if not s.budget.timeouts or answer.waiting is Waiting.FOREIGN:
        return
    if setting.terminates:
        promo, budget = s.promo._replace(abort=3), s.budget._replace(timeouts=0)
        yield Move(TIME, "the time of the step is over", s._replace(promo=promo, budget=budget), fair=False)
        return
    yield _left(s, P_FAILED, record, protocol)


def _left(s: State, phase: int, record: Rec, protocol: Protocol) -> Move:
    """Nobody waits for it any longer (``_left``); without a trace of it that is told as not started."""
    app = s.cache
    present = app.stamp == record.mark or record.mark in {app.op, app.mark}
    if protocol.doubts_absence:
        present = present or (app.stamp != record.seen and record.mark not in s.memory.never)
    return _ended(s, phase, R_DETACHED if present else R_NOT_STARTED)._replace(fair=False)


def _run_out(s: State, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    """``_go_on`` after the time of the step, ``_time_out`` and ``_end_late``.

    Each target is pursued first; one that still waits then is stopped, and when that takes its time it is recorded that
    this was begun. A process that has begun with it does that before anything else.
    """
    s, answer = _looked(s, s.promo.records[-1], protocol)
    waits = answer.verb is Verb.WAIT and answer.waiting is not Waiting.FOREIGN
    if not waits and not s.memory.late:
        yield from _run(s, setting, protocol) if answer.verb is not Verb.WAIT else ()
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
            op=request.mark, mark=NOBODY, phase=NONE, killed=False, good=False, stamp=request.mark, target=True
        )
        landed = min(2, s.fates[request.mark - 1].landed + 1)
        s = s._replace(fates=replaced(s.fates, request.mark, landed=landed))
    elif request.kind == END_REQUESTED:
        changed = app._replace(mark=request.op, phase=TERMINATING, killed=False, good=False)
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
            yield _ended(after, P_ABORTED, R_STOPPED)
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
        yield _adopt(s) if setting.adopts and protocol.adopts_to_stop else _ended(s, P_ABORTED, R_NOT_STARTED)
        return
    record = s.promo.records[-1]
    s, answer = _looked(s, record, protocol, stopping=True)
    verb = answer.verb
    if verb in {Verb.TERMINATE, Verb.WAIT} and s.budget.patience:
        yield _left(s, phase, record, protocol)
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
        yield _ended(s, phase, _ENDS.get(verb, superseded))


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
    record = _facts(app, mark)
    answer = _ask(s, record, protocol, stopping=True)
    if answer.verb is Verb.TERMINATE:
        yield from _terminate(s, mark, setting, protocol)
    elif answer.verb is Verb.NUDGE:
        yield from _nudge(s, setting)
    elif answer.verb is Verb.FENCE:
        yield from _fence(s, setting)
