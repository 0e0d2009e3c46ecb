"""The exhaustive search: the protocol as it is, where needed as it would be repaired, and with planted faults."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.explorer.faults import FAULTS, Fault
from tests.explorer.model import (
    ALICE,
    FAILED,
    NOBODY,
    NONE,
    OPEN,
    P_ABORTED,
    P_FAILED,
    P_SUCCEEDED,
    R_SUCCEEDED,
    R_SUPERSEDED,
    R_WRONG_REVISION,
    RUNNING,
    SUCCEEDED,
    TERMINATING,
    WORDS,
    App,
    Budget,
    Setting,
)
from tests.explorer.others import ACTS
from tests.explorer.protocol import CODE
from tests.explorer.search import CounterExample, explore
from tests.explorer.settings import SETTINGS
from tests.explorer.worker import worker_moves

NO_STAMP = (
    "an annotation that somebody removes by hand leaves no proof of a start whose operation state was replaced; no "
    "repair is known but not to remove it"
)
STATE_AGAIN = (
    "operation._overtaken: the worker's second final patch takes our start away and puts the operation state back that "
    "was there at the intent; it is started again. What it took away is never run, so nothing is synced twice"
)
KNOWN = {
    "the stamp annotation is removed": NO_STAMP,
    "an ApplicationSet removes the annotation, and the final patch comes again": STATE_AGAIN,
}
"""The searches that find something in the code as it is, and what; no repair is known. The xfails are strict."""


def _expected(setting: Setting, reason: str | None) -> Any:
    marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
    return pytest.param(setting, id=setting.name, marks=marks)


@pytest.mark.parametrize("setting", [_expected(s, KNOWN.get(s.name)) for s in SETTINGS])
def test_as_it_is(setting: Setting) -> None:
    """The protocol as the code has it keeps all laws in every history of the setting."""
    outcome = explore(setting, CODE)
    assert outcome.found is None, f"after {outcome.states} states, {outcome.found}"


@cache
def _sound(setting: Setting) -> CounterExample | None:
    return explore(setting, CODE).found


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in FAULTS])
def test_planted_fault_is_found(fault: Fault) -> None:
    """The search finds the fault, by the law that it breaks; without the fault it finds nothing there."""
    found = explore(fault.setting, fault.protocol).found
    assert found is not None
    assert found.law == fault.law, str(found)
    sound = _sound(dataclasses.replace(fault.setting, name=""))
    assert sound is None, str(sound)


def test_every_end_is_reached() -> None:
    """The searches are not empty: Promotions end in every phase, records in every state, some with three attempts."""
    acts = ("retarget", "take back", "skip", "delete", "start")
    setting = Setting("", acts, ("ok", "fails"), Budget(acts=2, crashes=1, aborts=1, timeouts=1))
    outcome = explore(setting, CODE)
    ends = outcome.ends
    assert outcome.found is None
    assert {phase for phase, _ in ends} == {P_SUCCEEDED, P_FAILED, P_ABORTED}
    assert {state for _, states in ends for state in states} == set(WORDS) - {OPEN}
    assert (P_SUCCEEDED, (R_WRONG_REVISION, R_SUPERSEDED, R_SUCCEEDED)) in ends


def test_counter_example_reads_as_a_story() -> None:
    """A counter-example is the shortest history, one line per act, the same every time."""
    setting = Setting("", ("start",), ("ok",), Budget(aborts=1))
    fault = next(f for f in FAULTS if f.name == "takes an accepted termination for the end")
    assert str(explore(setting, fault.protocol).found).splitlines() == [
        "law 5 abort means stopped: Aborted was recorded, but attempt 1 runs or can still begin",
        "  1. kargo-py: records the intent of attempt 1",
        "  2. kargo-py: starts attempt 1",
        "  3. the user: asks to abort the Promotion",
        "  4. kargo-py: keeps the request to abort in the status",
        "  5. kargo-py: records Aborted: Stopped",
        "     then: operation our attempt 1, state Terminating (our attempt 1), stamp our attempt 1",
    ]


# -- the worker is that of the spec ------------------------------------------------------------------------------------


def _work(app: App, ends: str, between: Callable[[App], App | None] | None) -> App:
    """Let the worker look once, at *app*; *between* its read and what it writes next, somebody else writes."""
    setting = Setting("", ends=(ends,))
    state = setting.initial()._replace(app=app)
    steps = 0
    while move := next(worker_moves(state, setting), None):
        state = move.state
        steps += 1
        if steps == 1 and between is not None:
            changed = between(state.app)
            assert changed is not None
            state = state._replace(app=changed)
        if state.worker is None:
            break
    return state.app


_REQUEST = App(op=1)
_RUNS = App(op=1, mark=1, phase=RUNNING)
_STALE = App(op=1, mark=ALICE, phase=TERMINATING)

WORK = [
    ("1.4: a request is carried out", _REQUEST, "ok", "", (NOBODY, 1, SUCCEEDED, False)),
    (
        "1.4: a request replaces a complete state",
        _REQUEST._replace(mark=ALICE, phase=FAILED),
        "fails",
        "",
        (NOBODY, 1, FAILED, False),
    ),
    ("1.7: one with a hook waits", _REQUEST, "hook", "", (1, 1, RUNNING, False)),
    (
        "1.8: taken back before pick-up, it is carried out all the same",
        _REQUEST,
        "ok",
        "take back",
        (NOBODY, 1, SUCCEEDED, False),
    ),
    (
        "1.8: taken back before pick-up, one with a hook is left Running for ever",
        _REQUEST,
        "hook",
        "take back",
        (NOBODY, 1, RUNNING, False),
    ),
    ("1.8: Terminating ends it", _RUNS._replace(phase=TERMINATING), "ok", "", (NOBODY, 1, FAILED, True)),
    ("1.8: Terminating in the gap is overwritten", _RUNS, "hook", "terminate", (1, 1, RUNNING, False)),
    ("1.8: a stale Terminating kills the next, and shows the old one", _STALE, "ok", "", (NOBODY, ALICE, FAILED, True)),
    (
        "1.8: Terminating without operation is left as it is",
        _STALE._replace(op=NOBODY),
        "ok",
        "",
        (NOBODY, ALICE, TERMINATING, False),
    ),
    (
        "1.9: what overwrites a running operation is cleared unrun",
        _RUNS,
        "ok",
        "overwrite",
        (NOBODY, 1, SUCCEEDED, False),
    ),
    (
        "1.9: a running operation without request is not gone on with",
        _RUNS._replace(op=NOBODY),
        "ok",
        "",
        (NOBODY, 1, RUNNING, False),
    ),
    (
        "1.9: a new request on such a state resumes the old one",
        _RUNS._replace(op=ALICE),
        "ok",
        "",
        (NOBODY, 1, SUCCEEDED, False),
    ),
    (
        "1.9: without its state a running operation starts over",
        _RUNS._replace(mark=NOBODY, phase=NONE),
        "hook",
        "",
        (1, 1, RUNNING, False),
    ),
    ("1.9: nothing happens with skip-reconcile", _REQUEST._replace(skip=True), "ok", "", (1, NOBODY, NONE, False)),
]


@pytest.mark.parametrize(("app", "ends", "act", "after"), [pytest.param(*case, id=name) for name, *case in WORK])
def test_worker(app: App, ends: str, act: str, after: tuple[int, int, int, bool]) -> None:
    """The worker of the model does what the real one was seen to do (spec/argocd.md, paragraph by paragraph)."""
    left = _work(app, ends, ACTS[act][1] if act else None)
    assert (left.op, left.mark, left.phase, left.killed) == after
