"""Planted faults: what the search must find, or it finds nothing.

Each is one mistake in the decision or in the shell, put into the protocol as the code has it, which has no other that a
search finds in that setting; and the law that falls first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from kargo_py.argocd.operation import Verb, Waiting
from tests.explorer.laws import (
    DOUBLE_START,
    FALSE_RECORD,
    FALSE_SUCCESS,
    LOST_ENDING,
    MISCOUNTED,
    NOT_STOPPED,
    ORPHAN,
    TRESPASS,
)
from tests.explorer.model import ALICE, RUNNING, SUCCEEDED, TERMINATING, App, Budget, Setting
from tests.explorer.protocol import CODE, Answer, Decide, Protocol, Question, identity
from tests.explorer.settings import USED


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake, where it shows, and the law that falls."""

    name: str
    law: str
    setting: Setting
    protocol: Protocol


def _held_by_others(app: App, q: Question) -> bool:
    return app.in_progress and app.mark != q.mark


class Case(NamedTuple):
    """A decision that was made."""

    app: App
    q: Question
    answer: Answer


def _is_orphan_of_ours(c: Case) -> bool:
    return c.app.mark == c.q.mark and c.app.in_progress and not c.app.op


def _instead(wrong: Verb, when: Callable[[Case], bool], *, repeatable: bool = False) -> Decide:
    """The decision, with *wrong* for its answer in some cases."""

    @cache
    def decide(app: App, q: Question) -> Answer:
        answer = CODE.decide(app, q)
        waiting = Waiting.HELD_UP if wrong is Verb.WAIT else None
        return Answer(wrong, waiting, repeatable) if when(Case(app, q, answer)) else answer

    return decide


# -- faults in the decision --------------------------------------------------------------------------------------------


def _starts_over_orphans(app: App, q: Question) -> Answer:
    return CODE.decide(app, q._replace(clock=2) if _held_by_others(app, q) and not app.op else q)


def _ignores_seen_stamp(app: App, q: Question) -> Answer:
    return CODE.decide(app, q._replace(seen=app.stamp))


def _accepts_any_uid(app: App, q: Question) -> Answer:
    return CODE.decide(app, q._replace(uid=app.uid))


def _does_not_settle(app: App, q: Question) -> Answer:
    return CODE.decide(app, q._replace(clock=2) if app.stamp == q.mark and not app.phase and not app.op else q)


def _does_not_settle_elsewhere(app: App, q: Question) -> Answer:
    return CODE.decide(app, q._replace(clock=2) if app.stamp not in {q.mark, q.seen} else q)


def _forgets_ours_when_overwritten(app: App, q: Question) -> Answer:
    return CODE.decide(app, q._replace(clock=2) if app.op >= ALICE and not app.phase else q)


DECISIONS: Sequence[tuple[str, str, Decide, tuple[str, ...], tuple[str, ...], Budget]] = (
    (
        "starts while another operation is requested",
        TRESPASS,
        _instead(Verb.START, lambda c: c.answer.waiting is Waiting.FOREIGN and c.app.op >= ALICE and not c.app.phase),
        ("start",),
        ("ok",),
        Budget(acts=1),
    ),
    (
        "starts while another operation runs",
        TRESPASS,
        _instead(Verb.START, lambda c: c.answer.waiting is Waiting.FOREIGN and c.app.op >= ALICE and c.app.in_progress),
        ("start",),
        ("ok",),
        Budget(acts=1),
    ),
    (
        "starts over what somebody else left, at once",
        TRESPASS,
        _starts_over_orphans,
        ("start", "take back"),
        ("ok",),
        Budget(acts=2),
    ),
    (
        "terminates what somebody else runs",
        TRESPASS,
        _instead(Verb.TERMINATE, lambda c: c.q.stopping and _held_by_others(c.app, c.q)),
        ("start",),
        ("ok", "hook"),
        Budget(acts=1, aborts=1),
    ),
    (
        "looks at the request, not at what runs, to tell whose it is",
        TRESPASS,
        _instead(Verb.TERMINATE, lambda c: c.q.stopping and c.app.op == c.q.mark and _held_by_others(c.app, c.q)),
        ("start", "take back"),
        ("ok", "hook"),
        Budget(acts=2, aborts=1),
    ),
    (
        "ignores which stamp it had seen",
        DOUBLE_START,
        _ignores_seen_stamp,
        ("start stamped",),
        ("fails",),
        Budget(acts=1, crashes=1),
    ),
    ("accepts any uid", DOUBLE_START, _accepts_any_uid, ("delete",), ("ok",), Budget(acts=1)),
    (
        "concludes superseded at once when its operation is gone",
        DOUBLE_START,
        _does_not_settle,
        ("take back",),
        ("ok", "hook"),
        Budget(acts=1),
    ),
    (
        "concludes superseded at once when its operation was overwritten",
        DOUBLE_START,
        _forgets_ours_when_overwritten,
        ("overwrite",),
        ("ok",),
        Budget(acts=1),
    ),
    (
        "concludes superseded at once when another stamp stands there",
        NOT_STOPPED,
        _does_not_settle_elsewhere,
        ("take back", "start stamped"),
        ("ok", "hook"),
        Budget(acts=2, aborts=1),
    ),
    (
        "concludes superseded when another request stands beside its running sync",
        DOUBLE_START,
        _instead(
            Verb.SUPERSEDED,
            lambda c: c.app.mark == c.q.mark and c.app.in_progress and c.app.op >= ALICE,
            repeatable=True,
        ),
        ("overwrite",),
        ("ok", "hook"),
        Budget(acts=1),
    ),
    (
        "makes a new attempt though the history shows one of ours",
        FALSE_RECORD,
        _instead(Verb.SUPERSEDED, lambda c: c.answer.verb is Verb.SUPERSEDED, repeatable=True),
        ("start",),
        ("ok",),
        Budget(acts=1, crashes=1),
    ),
    (
        "calls a failed sync one to another revision",
        FALSE_RECORD,
        _instead(Verb.MISMATCHED, lambda c: c.answer.verb is Verb.FAILED, repeatable=True),
        (),
        ("fails",),
        Budget(),
    ),
    (
        "accepts any revision",
        FALSE_SUCCESS,
        _instead(Verb.SUCCEEDED, lambda c: c.answer.verb is Verb.MISMATCHED),
        ("retarget",),
        ("ok",),
        Budget(acts=1),
    ),
    (
        "takes somebody else's success for its own",
        FALSE_SUCCESS,
        _instead(Verb.SUCCEEDED, lambda c: c.app.phase == SUCCEEDED and c.app.stamp == c.q.mark),
        ("overwrite",),
        ("ok",),
        Budget(acts=1),
    ),
    (
        "takes a success from before its start for its own",
        FALSE_SUCCESS,
        _instead(Verb.SUCCEEDED, lambda c: c.app.phase == SUCCEEDED),
        ("start",),
        ("ok",),
        Budget(acts=1),
    ),
    (
        "succeeds while the sync still runs",
        FALSE_SUCCESS,
        _instead(Verb.SUCCEEDED, lambda c: c.app.mark == c.q.mark and c.app.phase == RUNNING),
        (),
        ("ok",),
        Budget(),
    ),
    (
        "takes Terminating for the end",
        NOT_STOPPED,
        _instead(Verb.STOPPED, lambda c: c.q.stopping and c.app.phase == TERMINATING),
        (),
        ("ok",),
        Budget(aborts=1),
    ),
    (
        "calls what was requested not started",
        NOT_STOPPED,
        _instead(Verb.NOT_STARTED, lambda c: c.q.stopping and c.app.op == c.q.mark and not c.app.phase),
        (),
        ("ok",),
        Budget(aborts=1),
    ),
    (
        "calls what is gone not started",
        FALSE_RECORD,
        _instead(Verb.NOT_STARTED, lambda c: c.q.stopping and c.answer.verb is Verb.SUPERSEDED),
        ("overwrite",),
        ("ok",),
        Budget(acts=1, aborts=1),
    ),
    (
        "calls an orphan of its own stopped",
        NOT_STOPPED,
        _instead(
            Verb.STOPPED, lambda c: c.q.stopping and c.app.mark == c.q.mark and c.app.in_progress and not c.app.op
        ),
        ("take back",),
        ("ok", "hook"),
        Budget(acts=1, aborts=1),
    ),
    (
        "never ends an orphan of its own",
        LOST_ENDING,
        _instead(Verb.WAIT, _is_orphan_of_ours),
        ("take back",),
        ("ok", "hook"),
        Budget(acts=1),
    ),
    (
        "waits for what somebody else left, for ever",
        LOST_ENDING,
        _instead(Verb.WAIT, lambda c: _held_by_others(c.app, c.q) and not c.app.op),
        ("start", "take back"),
        ("ok", "hook"),
        Budget(acts=2),
    ),
    (
        "waits for its vanished operation, for ever",
        LOST_ENDING,
        _instead(Verb.WAIT, lambda c: c.app.stamp == c.q.mark and c.q.mark not in {c.app.mark, c.app.op}),
        ("take back",),
        ("ok",),
        Budget(acts=1),
    ),
    (
        "waits for what is deleted, for ever",
        LOST_ENDING,
        _instead(Verb.WAIT, lambda c: c.answer.verb is Verb.LOST),
        ("delete",),
        ("ok",),
        Budget(acts=1),
    ),
)

# -- faults in the shell -----------------------------------------------------------------------------------------------

SHELLS: Sequence[tuple[str, str, dict[str, Any], Setting]] = (
    (
        "does not keep an ending that an event showed",
        FALSE_RECORD,
        {"latches": False},
        Setting("", ("start",), ("fails",), Budget(acts=1)),
    ),
    (
        "starts before the intent is recorded",
        NOT_STOPPED,
        {"records_first": False},
        Setting("", (), ("ok",), Budget(crashes=1, aborts=1)),
    ),
    (
        "uses the same stamp for the second attempt",
        LOST_ENDING,
        {"new_stamps": False},
        Setting("", ("retarget",), ("ok",), Budget(acts=1)),
    ),
    (
        "makes attempts without limit",
        DOUBLE_START,
        {"limits_attempts": False},
        Setting("", ("retarget",), ("ok",), Budget(acts=2)),
    ),
    (
        "starts without a guard",
        TRESPASS,
        {"guards_start": False},
        Setting("", ("start",), ("ok",), Budget(acts=1), lag=1),
    ),
    (
        "terminates without a guard",
        TRESPASS,
        {"guards_end": False},
        Setting("", ("start",), ("ok",), Budget(acts=1, aborts=1), lag=4),
    ),
    (
        "sends the start again with a new guard",
        DOUBLE_START,
        {"same_bytes": False},
        Setting("", (), ("ok",), Budget(unknowns=1)),
    ),
    (
        "ends an orphan without its operation",
        LOST_ENDING,
        {"restores_operation": False},
        Setting("", ("take back",), ("ok", "hook"), Budget(acts=1)),
    ),
    (
        "does not fence before Aborted",
        NOT_STOPPED,
        {"fences": False},
        Setting("", (), ("ok",), Budget(unknowns=1, aborts=1)),
    ),
    (
        "takes what it has sent for never sent",
        DOUBLE_START,
        {"knows_issued": False},
        Setting("", ("start stamped",), ("fails",), Budget(acts=1, crashes=1)),
    ),
    (
        "takes an accepted termination for the end",
        NOT_STOPPED,
        {"doubts_ok": False},
        Setting("", (), ("ok",), Budget(aborts=1)),
    ),
    (
        "removes the operation on abort",
        ORPHAN,
        {"keeps_operation": False},
        Setting("", (), ("ok", "hook"), Budget(aborts=1)),
    ),
    (
        "takes a conflict after an unknown outcome for 'never sent'",
        DOUBLE_START,
        {"remembers_unknown": False},
        Setting("", ("start stamped",), ("fails",), Budget(acts=1, unknowns=1), lag=4),
    ),
    (
        "makes an attempt Refused that has ended",
        FALSE_RECORD,
        {"keeps_ends": False},
        Setting("", ("retarget", "skip"), ("ok",), Budget(acts=2)),
    ),
    (
        "concludes superseded from a frozen cache",
        DOUBLE_START,
        {"looks_before_superseded": False},
        Setting("", ("take back",), ("ok", "hook"), Budget(acts=1), lag=2, frozen_watch=True),
    ),
    (
        "terminates late before that is recorded",
        FALSE_RECORD,
        {"records_before_ending": False},
        Setting("", (), ("ok", "hook"), Budget(timeouts=1, crashes=1), terminates=True),
    ),
    (
        "gives up as not started what may have been carried out",
        FALSE_RECORD,
        {"doubts_absence": False},
        Setting("", ("take back", "start stamped"), ("ok",), Budget(acts=2, aborts=1, patience=1)),
    ),
    (
        "does not adopt in order to abort",
        NOT_STOPPED,
        {"adopts_to_stop": False},
        Setting("", (), ("ok",), Budget(aborts=1), adopts=True, first=App(op=1, target=True)),
    ),
    (
        "pursues what it terminates late",
        FALSE_RECORD,
        {"only_ends_when_late": False},
        Setting("", (), ("ok", "hook"), Budget(timeouts=1), terminates=True),
    ),
)

# -- faults in what follows an error, or no answer ---------------------------------------------------------------------

AGAIN: Sequence[tuple[str, str, dict[str, Any], Setting]] = (
    (
        "records as not started, when the time is over, what may land yet",
        FALSE_RECORD,
        {"settles": False},
        Setting("", (), ("ok",), Budget(unknowns=1, timeouts=1)),
    ),
    (
        "records as refused what may land yet",
        FALSE_RECORD,
        {"settles": False},
        Setting("", (), ("ok",), Budget(crashes=1, unknowns=1, refusals=1)),
    ),
    (
        "gives up as not started what may land yet",
        NOT_STOPPED,
        {"doubts_unsettled": False},
        Setting("", (), ("ok",), Budget(unknowns=1, aborts=1, patience=1)),
    ),
    (
        "counts an error before the end is on record",
        MISCOUNTED,
        {"counts_with_end": False},
        Setting("", (), ("fails",), Budget(), threshold=3),
    ),
    (
        "tries again without end",
        MISCOUNTED,
        {"limits_errors": False},
        Setting("", (), ("fails",), Budget(), threshold=2),
    ),
    (
        "uses the same stamp after an error",
        MISCOUNTED,
        {"new_stamps": False},
        Setting("", (), ("ok", "fails"), Budget(crashes=1), threshold=2),
    ),
    (
        "takes the end of an earlier attempt for that of the next",
        FALSE_RECORD,
        {"tells_apart": False},
        Setting("", (), ("fails",), Budget(), threshold=2),
    ),
    (
        "tries again after what may have succeeded",
        DOUBLE_START,
        {"follows_certain": False},
        Setting("", ("start",), ("ok",), Budget(acts=1, crashes=1), threshold=2),
    ),
)

# -- faults with an Application that an ApplicationSet owns ------------------------------------------------------------

_LEFT_BY_ALICE = App(mark=ALICE, phase=SUCCEEDED, history=((1, 2),))


def _ignores_seen_state(app: App, q: Question) -> Answer:
    return CODE.decide(app, q._replace(seen_state=None))


def _ignores_start_time(app: App, q: Question) -> Answer:
    now = identity(app)
    same = q.seen_state and now and now.split()[1:] == q.seen_state.split()[1:]
    return CODE.decide(app, q._replace(seen_state=now) if same else q)


OWNED: Sequence[tuple[str, str, Protocol, Setting]] = (
    (
        "ignores which operation it had seen",
        DOUBLE_START,
        Protocol(_ignores_seen_state),
        Setting("", ("start",), ("fails",), Budget(acts=1, crashes=1), owned=True, first=USED),
    ),
    (
        "takes two operations of one user for the same",
        DOUBLE_START,
        Protocol(_ignores_start_time),
        Setting("", ("start",), ("fails",), Budget(acts=1, crashes=1), owned=True, first=_LEFT_BY_ALICE),
    ),
    (
        "records the intent again with the operation that it had seen before",
        LOST_ENDING,
        Protocol(records_state_again=False),
        Setting("", ("start",), ("fails",), Budget(acts=1), owned=True, first=USED),
    ),
    (
        "gives up as not started what an ApplicationSet has removed the trace of",
        FALSE_RECORD,
        Protocol(doubts_other_state=False),
        Setting(
            "",
            ("start",),
            ("fails",),
            Budget(acts=1, crashes=1, aborts=1, patience=1),
            owned=True,
            first=_LEFT_BY_ALICE,
        ),
    ),
)

FAULTS = (
    *(
        Fault(
            name,
            law,
            Setting(name, acts, ends, budget, first=USED if name.endswith("for its own") else App()),
            dataclasses.replace(CODE, decide=decide),
        )
        for name, law, decide, acts, ends, budget in DECISIONS
    ),
    *(Fault(name, law, dataclasses.replace(setting, name=name), protocol) for name, law, protocol, setting in OWNED),
    *(
        Fault(name, law, dataclasses.replace(setting, name=name), dataclasses.replace(CODE, **flags))
        for name, law, flags, setting in (*SHELLS, *AGAIN)
    ),
)
