"""Everybody else who writes: a foreign writer with a small budget of acts, good and careless, and the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.explorer.model import (
    ALICE,
    NOBODY,
    NONE,
    OTHER,
    OWNER,
    P_DELETED,
    SOMEBODY,
    TERMINATING,
    USER,
    App,
    Memory,
    Move,
    Setting,
    State,
    is_watched,
    written,
)

_NO_STATE: Mapping[str, Any] = {"mark": NOBODY, "phase": NONE, "killed": False, "good": False, "began": 0}


def _start(app: App) -> App | None:
    """As Argo CD's own API does: only if nothing is requested or in progress."""
    return None if app.op or app.in_progress else app._replace(op=ALICE, **_NO_STATE)


def _start_stamped(app: App) -> App | None:
    """Another kargo-py, by the rules."""
    return None if app.op or app.in_progress else app._replace(op=OTHER, stamp=OTHER, **_NO_STATE)


def _overwrite(app: App) -> App | None:
    """Spec 1.9: writes ``.operation`` without looking."""
    return None if app.op == ALICE else app._replace(op=ALICE)


def _overwrite_all(app: App) -> App | None:
    """Spec 1.9: as above, and resets the operation state."""
    return None if app.op == ALICE and not app.phase else app._replace(op=ALICE, **_NO_STATE)


def _take_back(app: App) -> App | None:
    """Spec 1.8: removes ``.operation``."""
    return app._replace(op=NOBODY) if app.op else None


def _terminate(app: App) -> App | None:
    """As Argo CD's own API does: only if something is in progress."""
    return app._replace(phase=TERMINATING) if app.op and app.in_progress and app.phase != TERMINATING else None


def _forget_state(app: App) -> App | None:
    """Spec 1.9: removes ``operationState``."""
    return app._replace(**_NO_STATE) if app.phase else None


def _delete(app: App) -> App | None:
    return App(uid=0, target=app.target)


def _retarget(app: App) -> App | None:
    """Changes the revision in the spec."""
    return app._replace(target=False) if app.target else None


def _skip(app: App) -> App | None:
    """Spec 1.11: sets skip-reconcile."""
    return None if app.skip else app._replace(skip=True)


def _unstamp(app: App) -> App | None:
    """Removes our annotation."""
    return app._replace(stamp=NOBODY) if app.stamp else None


ACTS: Mapping[str, tuple[str, Callable[[App], App | None]]] = {
    "start": ("starts a sync, properly", _start),
    "start stamped": ("(another kargo-py) starts a sync, properly", _start_stamped),
    "overwrite": ("overwrites the operation", _overwrite),
    "overwrite all": ("overwrites the operation and resets its state", _overwrite_all),
    "take back": ("removes the operation", _take_back),
    "terminate": ("terminates the sync", _terminate),
    "forget state": ("removes the operation's state", _forget_state),
    "delete": ("deletes the Application", _delete),
    "retarget": ("changes the revision in the spec", _retarget),
    "skip": ("sets skip-reconcile", _skip),
    "unstamp": ("removes the stamp annotation", _unstamp),
}


def foreign_moves(s: State, setting: Setting) -> Iterator[Move]:
    """One act of a foreign writer, as long as there is budget; what was deleted may be created again for nothing."""
    if not is_watched(s) or (setting.adopts and not s.promo.records):
        # What happens to an operation of Kargo's before we adopt it leaves no trace that we could go by.
        return
    if not s.app.uid:
        after = written(s, App(uid=2, target=s.app.target), setting)
        if after is not None:
            yield Move(SOMEBODY, "creates the Application again", after, fair=False)
        return
    if not s.budget.acts:
        return
    spent = s._replace(budget=s.budget._replace(acts=s.budget.acts - 1))
    for act in setting.acts:
        words, change = ACTS[act]
        changed = change(s.app)
        if changed is not None and act == "start stamped":
            # It never uses a stamp twice.
            changed = changed._replace(op=OTHER + s.budget.acts, stamp=OTHER + s.budget.acts)
        if changed is None or (act == "delete" and s.app.uid == 2):
            continue
        after = written(spent, changed, setting)
        if after is not None:
            yield Move(SOMEBODY, words, after, fair=False)


def owner_moves(s: State, setting: Setting) -> Iterator[Move]:
    """Spec 4: an ApplicationSet takes away annotations that it does not know, and touches no operation."""
    if setting.owned and s.app.stamp and is_watched(s):
        after = written(s, s.app._replace(stamp=NOBODY), setting)
        if after is not None:
            yield Move(OWNER, "removes the stamp annotation", after, fair=False)


def user_moves(s: State) -> Iterator[Move]:
    """The user aborts or deletes the Promotion."""
    if s.promo.phase:
        return
    if s.budget.aborts and not s.promo.abort:
        promo, budget = s.promo._replace(abort=1), s.budget._replace(aborts=s.budget.aborts - 1)
        yield Move(USER, "asks to abort the Promotion", s._replace(promo=promo, budget=budget), fair=False)
    if s.budget.aborts and s.promo.abort >= 3:
        # What is on record of the time-out stays; the abort goes before it.
        promo, budget = s.promo._replace(abort=2), s.budget._replace(aborts=s.budget.aborts - 1)
        after = s._replace(promo=promo, budget=budget, memory=s.memory._replace(late=False))
        yield Move(USER, "asks to abort the Promotion, which is kept in the status", after, fair=False)
    if s.budget.deletions and s.promo.records:
        promo, budget = s.promo._replace(phase=P_DELETED), s.budget._replace(deletions=0)
        memory = Memory(sending=s.memory.sending, dirty=s.memory.dirty)
        after = s._replace(promo=promo, budget=budget, memory=memory)
        yield Move(USER, "deletes the Promotion", after, fair=False)
