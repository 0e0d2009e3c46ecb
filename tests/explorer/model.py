"""The world that the explorer searches: an Application, those who act on it, and what really happened.

Everything is a tuple of small integers, so that a state can be kept in a set. Times are classes: "just now", "10 s ago"
and "35 s ago". What is in a state beside the two API objects and the memory of processes is the ground truth, which
nobody in the model can see and only the laws look at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

# -- who an operation is of ------------------------------------------------------------------------------------------

NOBODY: Final = 0
ATTEMPTS: Final = (1, 2, 3)
"""Our own attempts; the mark of an operation is the number of its attempt."""
AT_MOST: Final = 2
"""How many attempts are made for one reason; 3 in the code, which is the same with one attempt more."""
ALICE: Final = 8
"""Somebody whose operations carry no stamp."""
OTHER: Final = 9
"""Another kargo-py control plane: by our rules, with our user name, and with stamps of its own (and all above)."""

# -- phases of an operation (spec 1.3) -------------------------------------------------------------------------------

NONE: Final = 0
RUNNING: Final = 1
TERMINATING: Final = 2
SUCCEEDED: Final = 3
FAILED: Final = 4

# -- ends of a Promotion, and of one attempt -------------------------------------------------------------------------

P_SUCCEEDED: Final = 1
P_FAILED: Final = 2
P_ABORTED: Final = 3
P_DELETED: Final = 4

OPEN: Final = 0
R_SUCCEEDED: Final = 1
R_FAILED: Final = 2
R_STOPPED: Final = 3
R_NOT_STARTED: Final = 4
R_SUPERSEDED: Final = 5
"""Superseded before it could succeed."""
R_DOUBTFUL: Final = 6
"""Superseded, and whether it succeeded before that cannot be told."""
R_WRONG_REVISION: Final = 7
R_LOST: Final = 8
R_REFUSED: Final = 9
R_DETACHED: Final = 10

WORDS: Final = {
    OPEN: "nothing",
    R_SUCCEEDED: "Succeeded",
    R_FAILED: "Failed",
    R_STOPPED: "Stopped",
    R_NOT_STARTED: "NotStarted",
    R_SUPERSEDED: "Superseded before it could succeed",
    R_DOUBTFUL: "Superseded, how it ended is unknown",
    R_WRONG_REVISION: "WrongRevision",
    R_LOST: "Lost",
    R_REFUSED: "Refused",
    R_DETACHED: "Detached",
}


class App(NamedTuple):
    """An Application; ``uid`` 0: it does not exist.

    ``op`` is the mark of ``.operation``; ``mark``, ``phase``, ``killed`` ("Operation terminated") and ``good`` (the
    desired revision) are ``status.operationState``. ``stamp`` is the annotation, ``history`` has (id, who).
    ``target``: the spec says the desired revision. ``began`` tells the operation state from others by its start time;
    it counts only where an ApplicationSet owns the Application.
    """

    uid: int = 1
    op: int = NOBODY
    mark: int = NOBODY
    phase: int = NONE
    killed: bool = False
    good: bool = False
    stamp: int = NOBODY
    history: tuple[tuple[int, int], ...] = ()
    target: bool = False
    skip: bool = False
    began: int = 0

    @property
    def in_progress(self) -> bool:
        """Whether an operation state is there and not complete."""
        return self.phase in {RUNNING, TERMINATING}


class Ending(NamedTuple):
    """A completed operation state."""

    mark: int
    phase: int
    killed: bool
    good: bool


class Worker(NamedTuple):
    """What Argo CD's worker is in the middle of (spec 1.8: it GETs, works, then patches unconditionally)."""

    stage: int
    uid: int
    mark: int
    good: bool
    phase: int = RUNNING
    killed: bool = False
    began: int = 0


PICKING_UP: Final = 0
SYNCING: Final = 1
ENDING: Final = 2
ENDED: Final = 3


class Request(NamedTuple):
    """A write of ours whose outcome is unknown, and which may still land if its guard holds.

    All are guarded by the resourceVersion, except the termination of what runs: by the contents given here.
    """

    kind: int
    mark: int
    uid: int = 0
    op: int = NOBODY
    phase: int = NONE


START: Final = 0
END_REQUESTED: Final = 1
END_ORPHAN: Final = 2
END_RUNNING: Final = 3


class Rec(NamedTuple):
    """The record of an attempt: intent and, once it has ended, how; ``adopted``: a real Kargo started it.

    ``seen`` is the stamp annotation of that moment; ``seen_state`` is what ``operation.state_identity`` said then,
    where an ApplicationSet owns the Application. ``before``: the start changes the revision in the spec.
    ``after_errors``: how many errors of the step had been counted when it was made.
    """

    mark: int
    uid: int
    seen: int
    history: int
    state: int = OPEN
    adopted: bool = False
    seen_state: str | None = None
    before: bool = False
    after_errors: int = 0


class Promo(NamedTuple):
    """A Promotion: how it ended, whether it is to be stopped, and its records.

    ``abort``: 0 no, 1 asked for, 2 kept in the status; 3: the step has had its time, and is to terminate what runs; 4:
    that is on record (``stoppingSince``). ``saved``: the records are on the server, too. ``errors``: how many errors of
    the step were counted.
    """

    phase: int = 0
    abort: int = 0
    records: tuple[Rec, ...] = ()
    saved: bool = True
    errors: int = 0


class Memory(NamedTuple):
    """What our process knows and loses in a crash.

    ``never``: attempts it never sent. ``clock``: how long the cached operation has been as it is, in classes.
    ``sending``: the attempt whose start it is sending again and again, and whether it was its first. ``late``: it has
    begun to end what has had its time. ``certain``: it is certain that the Promotion was deleted.
    """

    never: frozenset[int] = frozenset()
    latched: tuple[Ending, ...] = ()
    dirty: bool = False
    clock: int = 0
    nudges: int = 0
    fenced: bool = False
    sending: tuple[int, bool] | None = None
    late: bool = False
    certain: bool = False


class Fate(NamedTuple):
    """What really became of one attempt: how often its start landed, and how often its sync ended in which way.

    ``asked``: we asked for its end, and that was accepted. ``told``: our process, in this life, was shown its end.
    """

    landed: int = 0
    good: int = 0
    wrong: int = 0
    failed: int = 0
    killed: int = 0
    asked: bool = False
    told: bool = False


class Budget(NamedTuple):
    """How often what is no part of an undisturbed run may still happen.

    ``patience``: that an abort has been waited for long enough (or is forced). ``restarts``: of Argo CD's controller.
    ``refusals``: of a start, for a reason that is not in the Application.
    """

    acts: int = 0
    crashes: int = 0
    unknowns: int = 0
    aborts: int = 0
    deletions: int = 0
    timeouts: int = 0
    patience: int = 0
    restarts: int = 0
    refusals: int = 0


class State(NamedTuple):
    """Everything.

    ``feed`` are the versions that the watch has not delivered yet; the first ``ahead`` of them are not newer than what
    is in the cache already. ``starts`` counts the operation states that were begun.
    """

    app: App
    cache: App
    promo: Promo
    memory: Memory
    budget: Budget
    fates: tuple[Fate, ...] = (Fate(),) * len(ATTEMPTS)
    worker: Worker | None = None
    requests: tuple[Request, ...] = ()
    feed: tuple[App, ...] = ()
    ahead: int = 0
    starts: int = 0


class Move(NamedTuple):
    """One act: who, what in words, and what the world is then; ``fair``: it happens sooner or later, if it can."""

    actor: str
    words: str
    state: State
    fair: bool = True


WE: Final = "kargo-py"
LATE: Final = "a late request"
ARGO: Final = "Argo CD"
SOMEBODY: Final = "somebody"
OWNER: Final = "the ApplicationSet"
USER: Final = "the user"
WATCH: Final = "the watch"
TIME: Final = "time"
FAILURE: Final = "failure"


@dataclass(frozen=True, slots=True)
class Setting:
    """What may happen in one search.

    ``acts`` are names out of :data:`tests.explorer.others.ACTS`. ``lag``: how many versions the cache may be behind.
    ``ends``: how a sync may go: "ok", "fails", "hook" (it waits, and goes on when the worker looks again).
    ``frozen_watch``: 35 s may pass without an event being delivered. ``twice``: the final patch may come again.
    ``kept``: how many entries the history has. ``terminates``: the step has onTimeout: terminate, not detach.
    ``reverts``: the step has onAbort: revert, not keep.
    ``adopts``: a real Kargo had the Promotion before us, and what would be our attempt 1 is what it has started.
    ``owned``: by an ApplicationSet, which removes the stamp annotation at some time or other (spec 4: 20 ms after each
    write). ``threshold``: how many errors end the step (``retry.errorThreshold``).
    """

    name: str
    acts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ("ok",)
    budget: Budget = field(default_factory=Budget)
    lag: int = 0
    frozen_watch: bool = False
    twice: bool = False
    kept: int = 4
    terminates: bool = False
    reverts: bool = False
    adopts: bool = False
    owned: bool = False
    threshold: int = 1
    first: App = field(default_factory=App)

    def initial(self) -> State:
        """How it begins."""
        state = State(self.first, self.first, Promo(), Memory(), self.budget)
        return state._replace(fates=replaced(state.fates, 1, landed=1)) if self.adopts else state


# -- the API server and the watch ------------------------------------------------------------------------------------


def is_ours(mark: int) -> bool:
    """Whether *mark* is of our Promotion."""
    return NOBODY < mark < ALICE


@cache
def aspect(app: App) -> object:
    """As :func:`kargo_py.argocd.operation.operation_aspect`."""
    return app._replace(history=(), target=False, good=False, began=0)


def replaced(fates: tuple[Fate, ...], mark: int, **changes: Any) -> tuple[Fate, ...]:
    """*fates* with what is known of *mark* changed."""
    return (*fates[: mark - 1], fates[mark - 1]._replace(**changes), *fates[mark:])


def witnessed(s: State, app: App) -> State:
    """Our process is shown *app*: an ending of ours that it waits for is latched, the first one of each attempt."""
    if app.phase not in {SUCCEEDED, FAILED} or not is_ours(app.mark) or not is_watched(s):
        return s
    if all(r.mark != app.mark for r in s.promo.records):
        return s
    s = s._replace(fates=replaced(s.fates, app.mark, told=True))
    if any(e.mark == app.mark for e in s.memory.latched):
        return s
    ending = Ending(app.mark, app.phase, app.killed, app.good)
    return s._replace(memory=s.memory._replace(latched=(*s.memory.latched, ending)))


def into_cache(s: State, app: App) -> State:
    """*app* is what is in the cache now; another aspect starts the clock again."""
    memory = s.memory
    if aspect(app) != aspect(s.cache):
        memory = memory._replace(clock=0, nudges=0)
    return s._replace(cache=app, memory=memory)


def answered(s: State) -> State:
    """An answer to our process shows the Application as it is: it is witnessed, and is in the cache at once."""
    s = into_cache(witnessed(s, s.app), s.app)
    return _without_old_news(s._replace(ahead=len(s.feed)))


def written(s: State, app: App, setting: Setting, *, answer: bool = False) -> State | None:
    """Somebody's write makes *app* of the Application; None if the watch would be too far behind then.

    Every write gives a new resourceVersion, also one that changes nothing the model shows: no request guarded by the
    former one can land any more.
    """
    requests = s.requests
    if requests:
        requests = tuple(request for request in requests if request.kind == END_RUNNING)
    if not is_watched(s):
        return s._replace(app=app, requests=requests, cache=app)
    if not setting.lag:
        s = witnessed(s, app)
        memory = s.memory if aspect(app) == aspect(s.cache) else s.memory._replace(clock=0, nudges=0)
        return s._replace(app=app, requests=requests, cache=app, memory=memory)
    s = s._replace(app=app, requests=requests, feed=(*s.feed, app))
    if answer:
        s = answered(s)
    return s if len(s.feed) <= setting.lag else None


def delivered(s: State) -> State:
    """The watch delivers the next version; one that is no news is witnessed only."""
    app, *rest = s.feed
    s = witnessed(s._replace(feed=tuple(rest)), app)
    if s.ahead:
        return s._replace(ahead=s.ahead - 1)
    return into_cache(s, app)


def relisted(s: State) -> State:
    """The watch was lost and a list shows the Application as it is; versions in between are never seen."""
    return answered(s._replace(feed=(), ahead=0))


def _without_old_news(s: State) -> State:
    """Forget undelivered versions that would change nothing."""
    dropped = 0
    while dropped < s.ahead and not (s.feed[dropped].phase >= SUCCEEDED and is_ours(s.feed[dropped].mark)):
        dropped += 1
    return s._replace(feed=s.feed[dropped:], ahead=s.ahead - dropped) if dropped else s


def begun(s: State, setting: Setting) -> tuple[State, int]:
    """The start time of an operation state that is made now; 0 where nobody looks at it."""
    return (s._replace(starts=s.starts + 1), s.starts + 1) if setting.owned else (s, 0)


def is_watched(s: State) -> bool:
    """Whether our process still has to do with it."""
    return s.promo.phase in {0, P_DELETED}


def is_current(s: State) -> bool:
    """Whether the cache holds the newest version, so that a write guarded by it lands."""
    return s.ahead == len(s.feed)


def watch_moves(s: State) -> Iterator[Move]:
    """What may arrive in our process."""
    if s.feed and is_watched(s):
        yield Move(WATCH, f"delivers a version: {describe(s.feed[0])}", delivered(s))
        yield Move(WATCH, "breaks, and a list shows the newest version only", relisted(s), fair=False)


def time_moves(s: State, setting: Setting) -> Iterator[Move]:
    """10 s pass, then 35 s, in which nothing is written.

    They do not while the worker is in the middle of something (it looks at each operation every 30 s at the latest, and
    between its read and its write lie milliseconds), nor, unless the setting says so, while the watch is behind.
    """
    memory = s.memory
    if not is_watched(s) or s.worker is not None or memory.sending is not None:
        return
    if not is_current(s) and not setting.frozen_watch:
        return
    if memory.clock < 2:
        passed = memory._replace(clock=memory.clock + 1, certain=s.promo.phase == P_DELETED and memory.clock == 1)
        yield Move(TIME, f"{_TIMES[memory.clock]} s pass in which nothing changes", s._replace(memory=passed))
    elif s.promo.phase == P_DELETED and not memory.certain:
        yield Move(TIME, "30 s pass", s._replace(memory=memory._replace(certain=True)))


_TIMES = (10, 35)


def crash_moves(s: State) -> Iterator[Move]:
    """Our process dies and another one begins: it knows what lists show; what it had sent may land yet."""
    if s.budget.crashes and is_watched(s):
        promo = s.promo if s.promo.saved else s.promo._replace(records=(), saved=True)
        yield Move(
            FAILURE,
            "our process dies; a new one begins with an empty memory",
            s._replace(
                cache=s.app,
                memory=Memory(),
                promo=promo,
                feed=(),
                ahead=0,
                fates=tuple(fate._replace(told=False) for fate in s.fates),
                budget=s.budget._replace(crashes=s.budget.crashes - 1),
            ),
            fair=False,
        )


# -- in words --------------------------------------------------------------------------------------------------------

_PHASES = {RUNNING: "Running", TERMINATING: "Terminating", SUCCEEDED: "Succeeded", FAILED: "Failed"}


def name(mark: int) -> str:
    """How a history names an operation."""
    if mark >= OTHER:
        return f"the other control plane's ({mark - OTHER})"
    return {NOBODY: "none", ALICE: "Alice's"}.get(mark, f"our attempt {mark}")


@cache
def describe(app: App) -> str:
    """An Application in a line."""
    if not app.uid:
        return "no Application"
    state = f"{_PHASES[app.phase]} ({name(app.mark)})" if app.phase else "none"
    return f"operation {name(app.op)}, state {state}, stamp {name(app.stamp)}"
