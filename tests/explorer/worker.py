"""Argo CD's worker, as spec/argocd.md 1.4 to 1.9 and 7 describe it: one move is one read or one write."""

from __future__ import annotations

from collections.abc import Iterator

from tests.explorer.model import (
    ALICE,
    ARGO,
    ENDED,
    ENDING,
    FAILED,
    NOBODY,
    PICKING_UP,
    RUNNING,
    SUCCEEDED,
    SYNCING,
    TERMINATING,
    App,
    Move,
    Setting,
    State,
    Worker,
    begun,
    is_ours,
    name,
    replaced,
    written,
)


def worker_moves(s: State, setting: Setting) -> Iterator[Move]:
    """What the worker may do next."""
    worker = s.worker
    if worker is not None and s.budget.restarts:
        budget = s.budget._replace(restarts=s.budget.restarts - 1)
        yield Move(ARGO, "is restarted", s._replace(worker=None, budget=budget), fair=False)
    if worker is None:
        yield from _read(s, setting)
    elif worker.stage == PICKING_UP:
        yield from _pick_up(s, worker, setting)
    elif worker.stage == SYNCING:
        yield from _sync(s, worker, setting)
    elif worker.stage == ENDING:
        yield from _end(s, worker, setting)
    else:
        yield Move(ARGO, "is through", s._replace(worker=None))
        yield from _end(s, worker, setting, again=True)


def _read(s: State, setting: Setting) -> Iterator[Move]:
    """GET (1.4): it acts only on versions with ``.operation`` and without skip-reconcile (7.2).

    An operation in progress is gone on with as *stored*, never as it stands in ``.operation``; else a new state is made
    of ``.operation`` (1.4). Terminating is ended as Failed, also if it is a stale one of an earlier operation (1.8).
    """
    app = s.app
    if not app.uid or app.op == NOBODY or app.skip:
        return
    if app.phase == TERMINATING:
        worker = Worker(ENDING, app.uid, app.mark, app.good, FAILED, killed=True, began=app.began)
        yield Move(ARGO, f"reads that {name(app.mark)} is to be terminated", s._replace(worker=worker))
    elif app.phase == RUNNING:
        worker = Worker(SYNCING, app.uid, app.mark, app.good, began=app.began)
        yield Move(ARGO, f"reads and goes on with {name(app.mark)}", s._replace(worker=worker))
    else:
        after, began = begun(s, setting)
        worker = Worker(PICKING_UP, app.uid, app.op, app.target, began=began)
        yield Move(ARGO, f"reads the request for {name(app.op)}", after._replace(worker=worker))


def _patched(s: State, setting: Setting, app: App, then: Worker | None) -> State | None:
    """An unconditional patch (1.8): whatever others wrote meanwhile is overwritten, unless the Application is gone.

    It names the Application only: one that was created again under that name meanwhile is hit all the same.
    """
    if not s.app.uid:
        return s._replace(worker=None)
    s = s._replace(worker=then)
    return s if app == s.app else written(s, app, setting)


def _running(s: State, worker: Worker) -> App:
    return s.app._replace(mark=worker.mark, phase=RUNNING, killed=False, good=worker.good, began=worker.began)


def _pick_up(s: State, worker: Worker, setting: Setting) -> Iterator[Move]:
    """The operation state is replaced by {copy of the operation, Running} (1.4, 7.3); ``.operation`` stays."""
    after = _patched(s, setting, _running(s, worker), worker._replace(stage=SYNCING))
    if after is not None:
        yield Move(ARGO, f"writes Running for {name(worker.mark)}", after)


def _sync(s: State, worker: Worker, setting: Setting) -> Iterator[Move]:
    """A short sync ends inside the worker, whatever becomes of the Application; one with a hook is left for later.

    Success appends to the history before the final patch (1.4, 7.6). Progress is an unconditional write, too.
    """
    mark = worker.mark
    if "ok" in setting.ends:
        fated = s
        if is_ours(mark):
            fate = s.fates[mark - 1]
            good, wrong = min(2, fate.good + worker.good), min(2, fate.wrong + (not worker.good))
            fated = s._replace(fates=replaced(s.fates, mark, good=good, wrong=wrong))
        who = 2 if mark == ALICE else 1
        newest = max((number for number, _ in s.app.history), default=0)
        history = (*s.app.history, (newest + 1, who))[-setting.kept :]
        then = worker._replace(stage=ENDING, phase=SUCCEEDED)
        after = _patched(fated, setting, s.app._replace(history=history), then)
        revision = "the desired" if worker.good else "another"
        if after is not None:
            yield Move(ARGO, f"has synced {name(mark)} to {revision} revision, writes history", after)
    if "fails" in setting.ends:
        yield Move(ARGO, f"fails to sync {name(mark)}", s._replace(worker=worker._replace(stage=ENDING, phase=FAILED)))
    if "hook" in setting.ends:
        after = _patched(s, setting, _running(s, worker), None)
        if after is not None:
            yield Move(ARGO, f"writes that {name(mark)} waits for a hook", after)


def _end(s: State, worker: Worker, setting: Setting, *, again: bool = False) -> Iterator[Move]:
    """One unconditional patch: final phase, and ``.operation`` removed (1.4); it may come twice (7.3)."""
    final = s.app._replace(
        op=NOBODY,
        mark=worker.mark,
        phase=worker.phase,
        killed=worker.killed,
        good=worker.good,
        began=worker.began,
    )
    if s.app.uid and not again and is_ours(worker.mark) and worker.phase == FAILED:
        fate = s.fates[worker.mark - 1]
        if worker.killed:
            s = s._replace(fates=replaced(s.fates, worker.mark, killed=min(2, fate.killed + 1)))
        else:
            s = s._replace(fates=replaced(s.fates, worker.mark, failed=min(2, fate.failed + 1)))
    then = worker._replace(stage=ENDED) if setting.twice and not again else None
    after = _patched(s, setting, final, then)
    if after is not None:
        how = "terminated" if worker.killed else "Succeeded" if worker.phase == SUCCEEDED else "Failed"
        words = f"writes that {name(worker.mark)} is {how}, and removes the operation{', again' if again else ''}"
        yield Move(ARGO, words, after, fair=not again)
