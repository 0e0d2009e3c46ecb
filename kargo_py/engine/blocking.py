"""Sees to it that no step keeps the event loop to itself: with ``time.sleep``, say, or in a loop without an await.

A thread asks the event loop for a sign of life. Where it gives none for too long, and the same step is at work all the
time, that step is interrupted: an exception is raised in the middle of what it does.
"""

from __future__ import annotations

import asyncio
import ctypes
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any
from weakref import WeakSet

import structlog

from kargo_py.messages import Shown, message

LOOP_BLOCKED = message(
    "event loop blocked",
    do="For `seconds` nothing else was done, since what `where` names, of step `step` where that is known, does not "
    "give way. In `kargo-py run` a step is interrupted, its Promotion says so, and all else goes on. Anywhere else it "
    "has to be mended by its author: such work belongs into a thread.",
    shown=Shown.LOG,
)

_SIGNAL = signal.SIGURG
"""Ignored where nobody handles it, so one that comes too late does no harm."""

_LOOKS = 20
"""How often the loop is looked at before it counts as blocked: a machine that was asleep must not look like a step."""

_step: ContextVar[str] = ContextVar("kargo_py_step", default="")

_log = structlog.get_logger(__name__)


class Blocking(BaseException):
    """Raised within a step that keeps the event loop to itself; no Exception, which it might take for one of its own.

    It did so for ``seconds``; ``where`` is the line at which it was.
    """

    seconds: float = 0.0
    where: str = ""


def _blocking(seconds: float, where: str) -> type[Blocking]:
    """A class: what is raised in another thread cannot be an instance."""
    return type("Blocking", (Blocking,), {"seconds": seconds, "where": where})


@contextmanager
def running_step(name: str) -> Iterator[None]:
    """What is begun in the body is part of the step *name*, and so is all that this begins."""
    token = _step.set(name)
    try:
        yield
    finally:
        _step.reset(token)


class Watchdog:
    """Watches the event loop on which it is started, from a thread of its own.

    Args:
        limit: seconds for which one step may keep the loop.
        interrupts: interrupt it then; else only log it. In the main thread that takes the signal SIGURG, if nobody else
            has it.
    """

    def __init__(self, limit: float, *, interrupts: bool) -> None:
        self._limit = limit
        self._interrupts = interrupts
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._loop_thread = 0
        self._signals = False
        self._answered = True
        self._suspect: asyncio.Task[Any] | None = None
        self._steps: WeakSet[asyncio.Task[Any]] = WeakSet()

    def watch(self, task: asyncio.Task[Any]) -> None:
        """Watch the running loop; *task* is a step on it."""
        self._steps.add(task)
        if self._thread is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        if self._interrupts and threading.current_thread() is threading.main_thread():
            self._signals = signal.getsignal(_SIGNAL) in {signal.SIG_DFL, signal.SIG_IGN}
            if self._signals:
                signal.signal(_SIGNAL, self._interrupted)
        self._thread = threading.Thread(target=self._watch, name="kargo-py watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._stopped.set()
        if self._signals:
            signal.signal(_SIGNAL, signal.SIG_DFL)
            self._signals = False

    def _watch(self) -> None:
        suspect: asyncio.Task[Any] | None = None
        looks = 0
        while not self._stopped.wait(self._limit / _LOOKS):
            if self._answered:
                self._ask()
                looks = 0
                continue
            task = asyncio.current_task(self._loop)
            # A loop that is only busy has another task at work whenever it is looked at.
            looks = looks + 1 if task is suspect else 1
            suspect = task
            if looks >= _LOOKS:
                self._blocked(suspect)
                looks = 0

    def _ask(self) -> None:
        self._answered = False
        try:
            self._loop.call_soon_threadsafe(self._answer)
        except RuntimeError:
            # The loop is closed.
            self._stopped.set()

    def _answer(self) -> None:
        self._answered = True

    def _blocked(self, task: asyncio.Task[Any] | None) -> None:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the way to see another thread
        name = task.get_name() if task is not None else None
        _log.error(LOOP_BLOCKED(), seconds=self._limit, task=name, where=_place(frame))
        if not self._interrupts or task is None:
            return
        self._suspect = task
        if self._signals:
            signal.pthread_kill(self._loop_thread, _SIGNAL)
        elif self._loop_thread != threading.main_thread().ident and task in self._steps:
            error = ctypes.py_object(_blocking(self._limit, _place(frame)))
            # No other thread runs between this look and what follows it: both hold the interpreter's lock.
            if asyncio.current_task(self._loop) is task:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._loop_thread), error)

    def _interrupted(self, _number: int, frame: FrameType | None) -> None:
        """Runs in the main thread, within whatever that does: nothing but the step may be interrupted."""
        if _step.get() and asyncio.current_task(self._loop) is self._suspect:
            raise _blocking(self._limit, _place(frame))


def _place(frame: FrameType | None) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"
