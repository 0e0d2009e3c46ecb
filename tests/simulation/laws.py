"""The Laws, judged by what the API server saw.

Each is a function from a history to what breaks it. The names are those by which the exhaustive search of the protocol
(tests/explorer) calls the same Laws over its model.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kargo_py.api.types import Duration
from kargo_py.kube.resources import Key
from tests.explorer.laws import (
    DOUBLE_START,
    FALSE_RECORD,
    FALSE_SUCCESS,
    LOST_ENDING,
    NOT_STOPPED,
    NOT_TAKEN_BACK,
    ORPHAN,
    TRESPASS,
)
from tests.simulation.history import (
    COMPLETE,
    TERMINAL,
    History,
    JsonObject,
    Write,
    desired_by,
    in_progress,
    operations_of,
    phase_of,
    requested,
    revisions_in,
    shown,
    state_of,
    target_of,
    uid,
)

ONE_AT_A_TIME = "6 one at a time per Stage"
CRASHED = "8 bad input never crashes"
CLOCKS_COMPARED = "9 clocks are never compared across machines"
RESTLESS = "at rest nothing is written again and again"

APPLICATION, PROMOTION, STAGE = "Application", "Promotion", "Stage"

ABANDONED = 30.0
"""An operation that nobody works on any more may be started over after that time, see SETTLED in the protocol."""

AFTER_ALL_WAS_MISSED = 130.0
"""Seconds in which an end is recorded at the latest, whatever was missed: a watch lasts a minute at most."""

BY_EVENT = 70.0
"""Seconds in which it is where nothing stood in the way."""

SWEPT = 150.0
"""Seconds after which nothing runs any more of a Promotion that was deleted."""

TO_TAKE_IN = 0.5
"""Seconds from the arrival of an event until it certainly counts in what is decided."""

AT_REST = 2
"""How often one object may be written by us within the seconds of REST: Argo CD's verdict may change."""

_TIMED_OUT = re.compile(r"timed out after (\w+)")

REST = 100.0
"""Seconds of which there is nothing to say."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A Law that is broken, how, and by which write (0: by none in particular)."""

    law: str
    how: str
    number: int = 0

    def __str__(self) -> str:
        return f"law {self.law}: {self.how}" + (f" (write #{self.number})" if self.number else "")


Law: TypeAlias = Callable[[History], Iterator[str | tuple[Write, str]]]


def started(history: History, write: Write) -> str | None:
    """The stamp of the start that *write* is; None if it is none of ours.

    A start resets the state; the operation that is put back to be ended brings one.
    """
    mark = requested(write.new)
    if not write.ours or write.new is None or mark == requested(write.old) or state_of(write.new):
        return None
    return mark if history.is_ours(mark) else None


def starts(history: History) -> Iterator[tuple[Write, str]]:
    """All starts of ours."""
    for write in history.of(APPLICATION):
        if (mark := started(history, write)) is not None:
            yield write, mark


def ends(history: History) -> Iterator[tuple[Write, str, JsonObject]]:
    """The completed states of our operations, each at the write that first shows it."""
    for write in history.of(APPLICATION):
        state, mark = state_of(write.new), shown(write.new)
        if state.get("phase") in COMPLETE and mark is not None and history.is_ours(mark):
            before = state_of(write.old)
            if write.old is None or (before.get("phase"), shown(write.old)) != (state["phase"], mark):
                yield write, mark, state


def no_double_start(history: History) -> Iterator[str | tuple[Write, str]]:
    """One stamp is started once, after it was recorded, and a further attempt only when the last cannot run."""
    seen: set[tuple[str, str]] = set()
    for write, mark in starts(history):
        assert write.new is not None
        stamp = history.stamp(mark)
        assert stamp is not None
        if (uid(write.new), mark) in seen:
            yield write, f"{mark} is started again"
        seen.add((uid(write.new), mark))
        promotion = history.at(PROMOTION, Key(stamp.namespace, stamp.name), write.number)
        recorded = {(target_of(o), o["stamp"]) for o in operations_of(promotion)}
        if (write.key, mark) not in recorded and promotion is not None and uid(promotion) == stamp.uid:
            yield write, f"{mark} is started before that is on record"
        for running in {requested(write.old), shown(write.old) if in_progress(write.old) else None}:
            other = history.stamp(running)
            if other is not None and other.uid == stamp.uid and running != mark:
                yield write, f"{mark} is started while {running} can still run"
    good: dict[tuple[str, str, str], str] = {}
    for write, mark, state in ends(history):
        assert write.new is not None
        stamp = history.stamp(mark)
        assert stamp is not None
        promotion = history.at(PROMOTION, Key(stamp.namespace, stamp.name), write.number)
        if promotion is None or state["phase"] != "Succeeded" or not _as_desired(promotion, write.key, state):
            continue
        first = good.setdefault((uid(write.new), stamp.uid, stamp.step), mark)
        if first != mark:
            yield write, f"{first} had synced what is wanted, and {mark} has synced it again"


def _as_desired(promotion: JsonObject, target: Key, state: JsonObject) -> bool:
    desired = desired_by(promotion, target)
    return not desired or desired in revisions_in(state)


def no_trespass(history: History) -> Iterator[str | tuple[Write, str]]:
    """An operation that is not ours is never overwritten, removed or ended by us."""
    since: dict[Key, float] = {}
    for write in history.of(APPLICATION):
        old, new = write.old, write.new
        if write.ours and old is not None and new is not None:
            lasted = write.time - since.get(write.key, write.time)
            yield from ((write, how) for how in _trespasses(history, old, new, lasted))
        if _operation(old) != _operation(new):
            since[write.key] = write.time


def _operation(app: JsonObject | None) -> object:
    return (app or {}).get("operation"), state_of(app)


def _trespasses(history: History, old: JsonObject, new: JsonObject, lasted: float) -> Iterator[str]:
    theirs = "operation" in old and not history.is_ours(requested(old))
    if theirs and new.get("operation") != old["operation"]:
        yield f"somebody else's request was {'overwritten' if 'operation' in new else 'removed'} by us"
    foreign = in_progress(old) and not history.is_ours(shown(old))
    abandoned = "operation" not in old and lasted >= ABANDONED
    if foreign and state_of(new) != state_of(old) and not abandoned:
        yield f"somebody else's operation, {state_of(old)['phase']}, was touched by us"
    ending = state_of(new).get("phase") == "Terminating" and state_of(new) != state_of(old)
    if ending and not history.is_ours(shown(new)):
        yield "we asked for the end of somebody else's operation"


def no_false_success(history: History) -> Iterator[str | tuple[Write, str]]:
    """Succeeded is recorded only after a sync of ours to the desired revision had succeeded."""
    good: set[tuple[Key, str, str]] = set()
    issued: set[tuple[str, str]] = set()
    for write in history.writes:
        if write.kind == APPLICATION and write.new is not None:
            if (mark := started(history, write)) is not None:
                issued.add((uid(write.new), mark))
            state, shown_mark = state_of(write.new), shown(write.new)
            if state.get("phase") == "Succeeded" and shown_mark and (uid(write.new), shown_mark) in issued:
                good |= {(write.key, shown_mark, revision) for revision in revisions_in(state)}
                good.add((write.key, shown_mark, ""))
        if write.kind == PROMOTION and phase_of(write.new) == "Succeeded" and phase_of(write.old) != "Succeeded":
            assert write.new is not None
            last = {target_of(operation): operation for operation in operations_of(write.new)}
            for target in _wanted(write.new):
                operation = last.get(target)
                if operation is None:
                    yield write, f"{write.key.name} Succeeded, but nothing is on record for {target.name}"
                elif (target, operation["stamp"], desired_by(write.new, target)) not in good:
                    yield write, f"{write.key.name} Succeeded, but no sync of {target.name} by it had"


def _wanted(promotion: JsonObject) -> Iterator[Key]:
    for step in promotion["spec"].get("steps") or ():
        for app in step["config"].get("apps") or ():
            yield Key(app.get("namespace") or "argocd", app["name"])


def no_lost_ending(history: History) -> Iterator[str | tuple[Write, str]]:
    """Every Promotion ends, in time; in the end no Stage is busy, and nothing of ours runs that nobody waits for."""
    for key, promotion in history.final(PROMOTION):
        if phase_of(promotion) not in TERMINAL:
            yield f"{key.name} is {phase_of(promotion)} in the end"
    for key, stage in history.final(STAGE):
        if current := (stage.get("status") or {}).get("currentPromotion"):
            yield f"Stage {key.name} still has the current Promotion {current.get('name')}"
    for key, app in history.final(APPLICATION):
        mark = next((m for m in (requested(app), shown(app) if in_progress(app) else None) if history.is_ours(m)), None)
        if mark is not None and not _detached(history, key, mark, history.writes[-1].number):
            yield f"{mark} is still under way on {key.name}, and nobody waits for it"
    yield from _not_swept(history)
    succeeded = {(mark, write.key): write.time for write, mark, state in ends(history)}
    for write in history.of(PROMOTION):
        if phase_of(write.new) == "Succeeded" and phase_of(write.old) != "Succeeded":
            last = {target_of(o): o["stamp"] for o in operations_of(write.new)}
            at = max((succeeded.get((mark, target), 0.0) for target, mark in last.items()), default=0.0)
            most = BY_EVENT if at > history.quiet + AFTER_ALL_WAS_MISSED else AFTER_ALL_WAS_MISSED
            if write.time - max(at, history.quiet) > most:
                yield write, f"{write.key.name} Succeeded only {write.time - at:.0f} s after its last sync had"


def _not_swept(history: History) -> Iterator[str]:
    """What had not ended a good while after its Promotion was deleted."""
    number = max((write.number for write in history.writes if write.time < history.quiet + SWEPT), default=0)
    deleted = {uid(w.old): w for w in history.of(PROMOTION) if w.new is None and w.old and w.time < history.quiet}
    for key in dict.fromkeys(write.key for write in history.of(APPLICATION)):
        mark = _runs(history, history.at(APPLICATION, key, number), set(deleted))
        stamp = history.stamp(mark)
        if mark is None or stamp is None or history.end <= history.quiet + SWEPT:
            continue
        yield f"{mark} still ran on {key.name} {SWEPT:.0f} s after its Promotion was deleted"


def _detached(history: History, target: Key, mark: str, number: int) -> bool:
    """Whether it is on record as left to itself, or as gone with its Application."""
    stamp = history.stamp(mark)
    promotion = history.at(PROMOTION, Key(stamp.namespace, stamp.name), number) if stamp is not None else None
    return any(
        (target_of(o), o["stamp"]) == (target, mark) and o["state"] in {"Detached", "Lost"}
        for o in operations_of(promotion)
    )


def abort_means_stopped(history: History) -> Iterator[str | tuple[Write, str]]:
    """After Aborted no sync of that Promotion runs or begins, unless it is on record as left to itself."""
    aborted: set[str] = set()
    for write in history.writes:
        if write.kind == PROMOTION and phase_of(write.new) == "Aborted" and phase_of(write.old) != "Aborted":
            assert write.new is not None
            aborted.add(uid(write.new))
            for target in {target_of(operation) for operation in operations_of(write.new)}:
                app = history.at(APPLICATION, target, write.number)
                if (mark := _runs(history, app, aborted)) and not _detached(history, target, mark, write.number):
                    yield write, f"{write.key.name} is Aborted, but {mark} is still under way"
        if write.kind == APPLICATION and (mark := _runs(history, write.new, aborted)):
            known = _runs(history, write.old, aborted)
            if known != mark and not _detached(history, write.key, mark, write.number):
                yield write, f"{mark} runs though its Promotion was Aborted before"


def _runs(history: History, app: JsonObject | None, of: set[str]) -> str | None:
    for mark in (requested(app), shown(app) if in_progress(app) else None):
        stamp = history.stamp(mark)
        if stamp is not None and stamp.uid in of:
            return mark
    return None


def one_at_a_time(history: History) -> Iterator[str | tuple[Write, str]]:
    """Never two Running Promotions of one Stage."""
    running: dict[Key, JsonObject] = {}
    for write in history.of(PROMOTION):
        running.pop(write.key, None)
        if write.new is None or phase_of(write.new) != "Running":
            continue
        stage = write.new["spec"].get("stage")
        others = [key.name for key, other in running.items() if other["spec"].get("stage") == stage]
        running[write.key] = write.new
        if others and phase_of(write.old) != "Running":
            yield write, f"{write.key.name} runs on Stage {stage} beside {', '.join(others)}"


_ENDED = {"Succeeded", "Failed", "Stopped", "WrongRevision"}


def record_is_true(history: History) -> Iterator[str | tuple[Write, str]]:
    """What a Promotion that has ended says of its operations is what happened, and it says it of all."""
    issued: dict[str, set[tuple[Key, str]]] = defaultdict(set)
    fates: dict[tuple[Key, str], set[str]] = defaultdict(set)
    for write in history.writes:
        if write.kind == APPLICATION:
            if (mark := started(history, write)) is not None and (stamp := history.stamp(mark)) is not None:
                issued[stamp.uid].add((write.key, mark))
            _note_fate(history, write, fates)
        if write.kind != PROMOTION or write.new is None:
            continue
        if phase_of(write.new) not in TERMINAL or phase_of(write.old) in TERMINAL:
            continue
        told = {(target_of(o), str(o["stamp"])): o for o in operations_of(write.new)}
        if len(told) < len(operations_of(write.new)):
            yield write, f"{write.key.name} records two attempts under one stamp"
        for target, mark in sorted(issued[uid(write.new)] - told.keys()):
            yield write, f"{write.key.name} has ended, and says nothing of {mark} on {target.name}"
        for place, operation in told.items():
            how = _untrue(operation, fates[place], started=place in issued[uid(write.new)])
            if how is None and operation["state"] not in _ENDED and _was_shown(history, place, write):
                how = "we were shown how it ended"
            if how is not None:
                yield write, f"{operation['stamp']} on {place[0].name} is on record as {operation['state']}, but {how}"
        if phase_of(write.new) != "Succeeded" and not (write.new["status"].get("message") or ""):
            yield write, f"{write.key.name} is {phase_of(write.new)} and does not say why"


def _note_fate(history: History, write: Write, fates: dict[tuple[Key, str], set[str]]) -> None:
    state, mark = state_of(write.new), shown(write.new)
    if mark is None or state.get("phase") not in COMPLETE or not history.is_ours(mark):
        return
    fate = str(state["phase"])
    if fate == "Succeeded" and (stamp := history.stamp(mark)) is not None:
        promotion = history.at(PROMOTION, Key(stamp.namespace, stamp.name), write.number)
        if promotion is not None and not _as_desired(promotion, write.key, state):
            fate = "WrongRevision"
    if fate == "Failed" and str(state.get("message")).startswith("Operation terminated"):
        fate = "Terminated"
    fates[write.key, mark].add(fate)


def _was_shown(history: History, place: tuple[Key, str], record: Write) -> bool:
    """Whether the process that wrote the record had been shown the end of the operation when it decided to."""
    target, mark = place
    ended = {write.number for write, of, _ in ends(history) if of == mark and write.key == target}
    return any(
        seen.number in ended and seen.life == record.life and seen.time < record.decided - TO_TAKE_IN
        for seen in history.seen
    )


def _untrue(operation: JsonObject, fates: set[str], *, started: bool) -> str | None:
    """Why a record is not what happened."""
    match operation["state"]:
        case "Pending" | "Running":
            return "its Promotion has ended"
        case "Succeeded" if "Succeeded" not in fates:
            return "no sync of it had succeeded"
        case "WrongRevision" if "WrongRevision" not in fates:
            return "no sync of it had succeeded with another revision"
        case "Stopped" if "Terminated" not in fates:
            return "it was not seen terminated"
        case "Failed" if not fates & {"Failed", "Error", "Terminated"}:
            return "it was not seen to fail"
        case "NotStarted" | "Refused" if started:
            return "it was started"
        case "Superseded" if fates & {"Succeeded", "WrongRevision"} and not _doubts(operation):
            return "its sync had succeeded"
        case _:
            return None


def _doubts(operation: JsonObject) -> bool:
    """Whether it says itself that how it ended is not known."""
    return any(words in operation.get("message", "") for words in ("was not seen", "cannot be told"))


def never_crashes(history: History) -> Iterator[str | tuple[Write, str]]:
    """Nothing that anybody writes makes our program fall over."""
    yield from history.crashes


def time_is_kept(history: History) -> Iterator[str | tuple[Write, str]]:
    """No step has had its time before that has passed, however our wall clock is set.

    What is known of the time before a restart is what the wall clock says.
    """
    pending: dict[Key, float] = {}
    lives: dict[Key, int] = {}
    for write in history.of(PROMOTION):
        if write.old is None:
            pending[write.key] = write.time
        phase = phase_of(write.new)
        if phase == "Running" and phase_of(write.old) != "Running":
            lives[write.key] = write.life
        if write.new is None or phase not in TERMINAL or phase_of(write.old) in TERMINAL:
            continue
        if (found := _TIMED_OUT.search(write.new["status"].get("message") or "")) is None:
            continue
        lasted, time = write.time - pending[write.key], Duration(found[1]).seconds
        if lives.get(write.key) == write.life and lasted < time:
            yield write, f"{write.key.name} had {time:.0f} s, and timed out after {lasted:.0f} s"


def no_orphan(history: History) -> Iterator[str | tuple[Write, str]]:
    """No write of ours leaves an operation in progress that is not asked for."""
    for write in history.of(APPLICATION):
        if write.ours and _is_orphan(write.new) and not _is_orphan(write.old):
            yield write, "our write left an operation in progress without .operation"


def _is_orphan(app: JsonObject | None) -> bool:
    return app is not None and in_progress(app) and "operation" not in app


def is_taken_back(history: History) -> Iterator[str | tuple[Write, str]]:
    """After an abort with onAbort: revert the Application wants what it wanted before, if nobody else had a say."""
    for write in history.of(PROMOTION):
        if phase_of(write.new) != "Aborted" or phase_of(write.old) == "Aborted":
            continue
        assert write.new is not None
        if not any(step["config"].get("onAbort") == "revert" for step in write.new["spec"]["steps"]):
            continue
        for target in {target_of(operation) for operation in operations_of(write.new)}:
            begun = [w for w, mark in starts(history) if w.key == target and _of(history, mark, write.new)]
            if begun and (how := _kept(history, target, begun[0], write)):
                yield write, how


def _of(history: History, mark: str, promotion: JsonObject) -> bool:
    stamp = history.stamp(mark)
    return stamp is not None and stamp.uid == uid(promotion)


def _kept(history: History, target: Key, first: Write, end: Write) -> str | None:
    between = [w for w in history.timeline(APPLICATION, target) if first.number <= w.number <= end.number]
    if any(_says_otherwise(history, w, end.new) for w in between):
        return None
    if any(o["state"] in {"Detached", "Lost", "Succeeded"} for o in operations_of(end.new) if target_of(o) == target):
        return None
    assert first.old is not None
    now, before = between[-1].new, first.old
    if now is not None and now["spec"] != before["spec"]:
        return f"{end.key.name} is Aborted, but {target.name} wants {now['spec']} and not {before['spec']}"
    return None


def _says_otherwise(history: History, write: Write, promotion: JsonObject | None) -> bool:
    """Whether *write* changes the spec on behalf of somebody else than *promotion*."""
    if promotion is None or (write.old or {}).get("spec") == (write.new or {}).get("spec"):
        return False
    mark = started(history, write)
    return not write.ours or (mark is not None and not _of(history, mark, promotion))


def at_rest(history: History) -> Iterator[str | tuple[Write, str]]:
    """Where nothing happens we do not write the same object again and again."""
    late = [write for write in history.writes if write.ours and write.time > history.end - REST]
    for (kind, key), count in Counter((write.kind, write.key) for write in late).items():
        if count > AT_REST:
            yield f"{kind} {key.name} was written {count} times in the last {REST:.0f} s"


LAWS: Mapping[str, Law] = {
    DOUBLE_START: no_double_start,
    TRESPASS: no_trespass,
    FALSE_SUCCESS: no_false_success,
    LOST_ENDING: no_lost_ending,
    NOT_STOPPED: abort_means_stopped,
    ONE_AT_A_TIME: one_at_a_time,
    FALSE_RECORD: record_is_true,
    CRASHED: never_crashes,
    CLOCKS_COMPARED: time_is_kept,
    ORPHAN: no_orphan,
    NOT_TAKEN_BACK: is_taken_back,
    RESTLESS: at_rest,
}


def judge(history: History) -> list[Violation]:
    """All that breaks a Law."""
    found = []
    for law, broken in LAWS.items():
        for each in broken(history):
            write, how = each if isinstance(each, tuple) else (None, each)
            found.append(Violation(law, how, write.number if write is not None else 0))
    return found
