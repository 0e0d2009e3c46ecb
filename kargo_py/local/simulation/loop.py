"""An asyncio event loop without sockets, threads and a clock of its own: time passes when there is nothing else to do.

asyncio promises that callbacks run in the order in which they were scheduled, and code may rest on that, so the order
is kept. What asyncio leaves open is *when* something comes: each callback takes a while here (mostly tens of
microseconds, now and then a stall), the seed says how long, and timers that have become due meanwhile come in between,
as they do on a busy machine. So a run meets only what a real loop could meet. Without a seed callbacks take no time.

Several programs can share a loop, each as a :class:`Process`. A process can be paused (as by SIGSTOP, a busy machine or
a long collection of garbage) and killed: then nothing of it runs any more, no ``except`` and no ``finally`` either.

Nothing here depends on a wall clock, on addresses or on hash values: the same seed makes the same run everywhere,
as long as the program walks through no ``set`` of strings where the order matters.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import heapq
import itertools
import random
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LIVELOCK = 1_000_000
"""So many callbacks without ever having to wait are taken for going round in circles."""

_STALL_SHARE = 0.001
_STALL = 0.05
_CALLBACK = 0.00015

_ROUNDS_TO_END = 10_000

_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class DeadlockError(RuntimeError):
    """Everything waits for something that can never come; the text says where each task waits."""


class LivelockError(RuntimeError):
    """Callbacks go on for ever without anybody waiting for a time."""


class UnawaitedError(RuntimeError):
    """A callback failed, or a task whose error nobody asked for."""


class State(Enum):
    """Whether a process gets to run."""

    RUNNING = "running"
    PAUSED = "paused"
    KILLED = "killed"


class Process:
    """A program of its own on a shared loop; made by :meth:`SimulatedLoop.process`."""

    def __init__(self, loop: SimulatedLoop, name: str) -> None:
        self._loop = loop
        self._held: list[_Handle] = []
        self.name = name
        self.state = State.RUNNING

    def __repr__(self) -> str:
        return f"<Process {self.name} {self.state.value}>"

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start a task of this process; whatever that schedules belongs to it, too."""
        context = contextvars.copy_context()
        context.run(_process.set, self)
        return self._loop.create_task(coroutine, name=name or self.name, context=context)

    def pause(self) -> None:
        """Let nothing of it run until :meth:`resume`."""
        if self.state is State.RUNNING:
            self.state = State.PAUSED

    def resume(self) -> None:
        """Let it go on; what has become due meanwhile comes at once, in its order."""
        if self.state is State.PAUSED:
            self.release()

    def kill(self) -> None:
        """Let nothing of it run any more, as after SIGKILL. Its tasks stay as they are, and never end."""
        self.state = State.KILLED

    def hold(self, handle: _Handle) -> None:
        """Keep what has become due while it does not run."""
        self._held.append(handle)

    def release(self) -> None:
        """Let it go on, whatever kept it from running; that serves to clear up."""
        self.state = State.RUNNING
        held, self._held = self._held, []
        self._loop.go_on_with(held)


class _Handle(asyncio.TimerHandle):
    """A callback, and of which process it is; ``when`` is the time it was scheduled for."""

    __slots__ = ("process",)

    def __init__(
        self, when: float, callback: Callable[..., object], args: Sequence[Any], loop: SimulatedLoop, context: Any
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.process: Process | None = _process.get() if context is None else context.get(_process, None)


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    number = 0

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop; most of the time :func:`simulate` is all that is needed of this module."""

    def __init__(self, seed: int | str | None = None, *, livelock: int = LIVELOCK) -> None:
        super().__init__()
        self._chance = random.Random(f"pace of {seed}") if seed is not None else None  # noqa: S311 - no secret
        self._now = 0.0
        self._due: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._order = itertools.count()
        self._tasks: weakref.WeakValueDictionary[int, _Task] = weakref.WeakValueDictionary()
        self._processes: list[Process] = []
        self._livelock = livelock
        self._busy = 0
        self._unawaited: UnawaitedError | None = None
        self.callbacks = 0
        """How many have run."""
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """The simulated time in seconds, 0 at the beginning."""
        return self._now

    def process(self, name: str) -> Process:
        """Make a process, of which nothing runs yet."""
        made = Process(self, name)
        self._processes.append(made)
        return made

    # -- scheduling ---------------------------------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run *callback* after all that is ready now."""
        handle = _Handle(self._now, callback, args, self, context)
        self._due.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As :meth:`call_soon`: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run *callback* in *delay* seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run *callback* at the time *when*."""
        handle = _Handle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def go_on_with(self, handles: Sequence[_Handle]) -> None:
        """Make ready what a process was kept from."""
        self._due.extend(handles)

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Let *func* run in one go, when its turn comes, and its caller hear of it later, as of a thread.

        *func* belongs to the process that asks for it. It must not wait for what happens on the loop, since there is
        only one thread; and a run can be replayed only if what *func* finds, on disk say, is the same each time.
        """
        future: asyncio.Future[T] = self.create_future()
        self.call_soon(self._run_aside, future, func, args)
        return future

    def _run_aside(self, future: asyncio.Future[T], func: Callable[..., T], args: Sequence[Any]) -> None:
        if future.cancelled():
            return
        asyncio._set_running_loop(None)  # noqa: SLF001 - for makers of loops; to *func* it is a thread like any
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is for the caller
            self.call_soon(_settle, future, error, None)
        else:
            self.call_soon(_settle, future, None, result)
        finally:
            asyncio._set_running_loop(self)  # noqa: SLF001 - as above

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Let the run end with it: an error that nobody awaits is a fault of the program."""
        self._unawaited = UnawaitedError(str(context.get("message")))
        self._unawaited.__cause__ = context.get("exception")

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> _Task:
        task = _Task(coroutine, loop=loop, **options)
        task.number = next(self._order)
        self._tasks[task.number] = task
        return task

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Part of what asyncio's handles ask of their loop; here cancelled timers are passed over when they are due."""

    # -- running ------------------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """One turn, as BaseEventLoop.run_forever asks for it until the loop is stopped."""
        due = self._due
        if not due:
            self._busy = 0
            self._wait()
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            handle = heapq.heappop(timers)[2]
            if not handle.cancelled():
                due.append(handle)
        for _ in range(len(due)):
            self._run(due.popleft())
        if self._unawaited is not None:
            error, self._unawaited = self._unawaited, None
            raise error
        if self._busy > self._livelock:
            busy, self._busy = self._busy, 0
            raise LivelockError(f"{busy} callbacks without a pause at {self._now:.3f} s; {self._who_waits()}")

    def _run(self, handle: _Handle) -> None:
        if handle.cancelled():
            return
        process = handle.process
        if process is not None and process.state is not State.RUNNING:
            process.hold(handle)
            return
        handle._run()  # noqa: SLF001 - a loop's business
        self.callbacks += 1
        self._busy += 1
        if (chance := self._chance) is not None:
            share = chance.random()
            self._now += _CALLBACK * share * share if share > _STALL_SHARE else _STALL * chance.random()

    def _wait(self) -> None:
        """Let the time pass until something is due."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise DeadlockError(f"nothing can happen any more at {self._now:.3f} s; {self._who_waits()}")
        self._now = max(self._now, timers[0][0])

    def _who_waits(self) -> str:
        tasks = [f"{task.get_name()} waits {_place(task)}" for task in self.pending()]
        asleep = [f"{p.name} is {p.state.value}" for p in self._processes if p.state is not State.RUNNING]
        return "; ".join([*tasks, *asleep]) or "there is no task"

    # -- ending -------------------------------------------------------------------------------------------------------

    def pending(self) -> Sequence[asyncio.Task[Any]]:
        """The tasks that have not ended, the oldest first."""
        return [task for _, task in sorted(self._tasks.items()) if not task.done()]

    def end(self) -> Sequence[str]:
        """Cancel what is left, those of killed processes included, and let it end; the names of what was left."""
        for process in self._processes:
            process.release()
        names: list[str] = []
        for round_ in range(_ROUNDS_TO_END):
            if not (left := self.pending()):
                break
            if not round_:
                names = [task.get_name() for task in left]
            for task in left:
                task.cancel()
            self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        else:
            raise LivelockError(f"there are always new tasks; {self._who_waits()}")
        self.run_until_complete(self.shutdown_asyncgens())
        return names


def _settle(future: asyncio.Future[T], error: Exception | None, result: Any) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _place(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    if not frames:
        return "for its first step"
    code = frames[-1].f_code
    return f"in {code.co_qualname} ({code.co_filename}:{frames[-1].f_lineno})"


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What a simulation came to: ``left`` are the tasks that had not ended by themselves."""

    value: T
    seconds: float
    callbacks: int
    left: Sequence[str]


def simulate(main: Callable[[], Coroutine[Any, Any, T]], *, seed: int | str | None = None) -> Outcome[T]:
    """Run *main* to its end in simulated time, then cancel what it has left.

    The functions of the :mod:`random` module draw from a generator of its own, which is seeded. The collector of cyclic
    garbage rests, since when it comes depends on what ran before.
    """
    loop = SimulatedLoop(seed)
    with _repeatable(seed):
        try:
            value = loop.run_until_complete(main())
            seconds = loop.time()
            return Outcome(value, seconds, loop.callbacks, loop.end())
        finally:
            _abandon(loop)


def _abandon(loop: SimulatedLoop) -> None:
    """Close the loop; after an error what is left is ended first, as far as it lets itself be."""
    try:
        if loop.pending():
            loop.end()
    finally:
        loop.close()


@contextmanager
def _repeatable(seed: int | str | None) -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        with _own_random(random.Random(f"random of {seed}")):  # noqa: S311 - to be repeatable is the point
            yield
    finally:
        if collects:
            gc.enable()


_generators: dict[int, random.Random] = {}
"""From what the functions of :mod:`random` draw on the threads that simulate."""

_generators_lock = threading.Lock()
_functions: Mapping[str, Callable[..., Any]] = {
    name: function
    for name, function in vars(random).items()
    if isinstance(getattr(function, "__self__", None), random.Random)
}


@contextmanager
def _own_random(generator: random.Random) -> Iterator[None]:
    """Have the functions of :mod:`random` draw from *generator* on this thread.

    To seed the generator of the module would not do: other threads draw from it, too.
    """
    thread = threading.get_ident()
    with _generators_lock:
        before = _generators.get(thread)
        _generators[thread] = generator
        for name, function in _functions.items():
            setattr(random, name, _by_thread(name, function))
    try:
        yield
    finally:
        with _generators_lock:
            if before is not None:
                _generators[thread] = before
            else:
                del _generators[thread]
            if not _generators:
                for name, function in _functions.items():
                    setattr(random, name, function)


def _by_thread(name: str, shared: Callable[..., Any]) -> Callable[..., Any]:
    def drawn(*args: Any, **kwargs: Any) -> Any:
        own = _generators.get(threading.get_ident())
        return (shared if own is None else getattr(own, name))(*args, **kwargs)

    return functools.wraps(shared)(drawn)


def current_process() -> Process | None:
    """The process that the running code belongs to, None outside of all."""
    return _process.get()


def running_loop() -> SimulatedLoop:
    """The simulated loop that runs; raises TypeError on any other."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, SimulatedLoop):
        raise TypeError(f"{loop!r} is no simulated loop")
    return loop
