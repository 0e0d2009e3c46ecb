"""For authors of steps: work that takes long, without holding up anything else.

    text = await in_thread(path.read_text)
    done = await run_command(["git", "fetch", "origin"], cwd=path)
    done.check()

Both end when the step is cancelled, because its time is up or its Promotion is aborted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from kargo_py.messages import Shown, message
from kargo_py.steps.step import Work

CANNOT_BEGIN = message(
    "{program} cannot be run: {why}",
    do="Install the program where kargo-py runs: in the image, say. A kind of step needs it.",
    shown=Shown.PROMOTION,
)
COMMAND_FAILED = message(
    "{program} {how}: {said}",
    do="The program says itself what is wrong, at the end of what it wrote.",
    shown=Shown.PROMOTION,
)

P = ParamSpec("P")
T = TypeVar("T")

THREADS: Final = 64
"""How many threads work at once, for each kind of work."""

TERMINATION: Final = 5.0
"""Seconds that a program gets to end after SIGTERM, before all of its process group is killed."""

_LINGERING = 1.0
"""Seconds for which output is read after a program has ended: what it has left behind may hold the pipe for ever."""

_MEBIBYTE = 1024 * 1024
_SAID = 2000

_PASSED_ON = (
    *("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)
"""What programs get of our environment; the rest of it is not theirs to know."""


class CommandError(Exception):
    """A program could not be run, or has failed; the text names it, but none of its arguments."""


# -- threads ----------------------------------------------------------------------------------------------------------


class _Threads(Executor):
    """A thread for each piece of work. They are daemons: one that hangs does not keep the process from ending."""

    def submit(self, function: Callable[..., T], /, *arguments: Any, **keywords: Any) -> Future[T]:
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        work = partial(function, *arguments, **keywords)
        threading.Thread(target=_work, args=(future, work), name="kargo-py step", daemon=True).start()
        return future


def _work(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        result = work()
    except StopIteration as error:
        # No future can have it; who awaits that would wait for ever.
        future.set_exception(RuntimeError(f"StopIteration raised in a thread: {error}"))
    except BaseException as error:  # noqa: BLE001 - it is raised where the thread is awaited
        future.set_exception(error)
    else:
        future.set_result(result)


_threads = _Threads()
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Work, asyncio.Semaphore]] = WeakKeyDictionary()


async def in_thread(function: Callable[P, T], /, *arguments: P.args, **keywords: P.kwargs) -> T:
    """Call *function* in a thread, and wait for it; as much as reads or writes files, or computes.

    When that is cancelled the wait ends at once. A thread cannot be ended from outside: *function* goes on, and one
    thread less is there for others until it has ended.
    """
    return await in_thread_for(Work.FILES, function, *arguments, **keywords)


async def in_thread_for(work: Work, function: Callable[P, T], /, *arguments: P.args, **keywords: P.kwargs) -> T:
    """As :func:`in_thread`, with *work* of another kind: a library that talks over the network without asyncio, say."""
    loop = asyncio.get_running_loop()
    slots = _slots.setdefault(loop, {}).setdefault(work, asyncio.Semaphore(THREADS))
    return await in_slot(slots, partial(function, *arguments, **keywords))


async def in_slot(slots: asyncio.Semaphore, function: Callable[[], T]) -> T:
    """Call *function* in a thread, which has one of *slots* until it ends; when the wait is cancelled, too."""
    loop = asyncio.get_running_loop()
    await slots.acquire()
    context = copy_context()

    def run() -> T:
        try:
            return context.run(function)
        finally:
            with suppress(RuntimeError):  # the loop is closed: nobody waits for a thread any more
                loop.call_soon_threadsafe(slots.release)

    try:
        future = loop.run_in_executor(_threads, run)
    except RuntimeError:  # the machine has no thread to give
        slots.release()
        raise
    return await future


# -- programs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Completed:
    """How a program has ended. Of each output the last part is kept; ``dropped`` tells how many bytes are missing.

    ``code`` is negative if a signal ended it.
    """

    program: str
    code: int
    stdout: bytes
    stderr: bytes
    dropped: tuple[int, int] = (0, 0)

    def check(self) -> None:
        """Raise CommandError, with the end of what it said, unless it has succeeded."""
        if self.code == 0:
            return
        how = f"ended with code {self.code}" if self.code > 0 else f"was ended by {_signal_name(-self.code)}"
        said = (self.stderr.strip() or self.stdout.strip())[-_SAID:].decode(errors="replace")
        raise CommandError(COMMAND_FAILED(program=self.program, how=how, said=said or "it said nothing"))


async def run_command(
    command: Sequence[str],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    input: bytes = b"",  # noqa: A002 - as subprocess calls it
    max_output: int = _MEBIBYTE,
) -> Completed:
    """Run a program to its end. Raises CommandError if it cannot be run.

    It gets few of our environment variables, PATH and proxies for example, and those of *env*. Of each of its outputs
    the last *max_output* bytes are kept. It is the first of a process group of its own, which does not outlive it: when
    this is cancelled the group gets SIGTERM, and is killed if that does not end it.
    """
    program = Path(command[0]).name
    variables = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    beginning = asyncio.ensure_future(_begin(command, cwd, {**variables, **(env or {})}, input, max_output))
    try:
        transport, running = await asyncio.shield(beginning)
    except (OSError, ValueError) as error:
        raise CommandError(CANNOT_BEGIN(program=program, why=_why(error))) from error
    except asyncio.CancelledError:
        await _never_mind(beginning)
        raise
    cancelled = True
    try:
        await asyncio.wait({running.exited})
        await asyncio.wait({running.silent}, timeout=_LINGERING)
        cancelled = False
    finally:
        await _end(transport, running, gently=cancelled)
    code = transport.get_returncode()
    assert code is not None  # noqa: S101 - it has ended
    out, err = running.outputs[1], running.outputs[2]
    return Completed(program, code, bytes(out), bytes(err), (out.dropped, err.dropped))


async def _begin(
    command: Sequence[str], cwd: Path | str | None, env: Mapping[str, str], given: bytes, max_output: int
) -> tuple[asyncio.SubprocessTransport, _Running]:
    loop = asyncio.get_running_loop()
    transport, running = await loop.subprocess_exec(
        lambda: _Running(loop, max_output),
        *command,
        stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    if given and (stdin := transport.get_pipe_transport(0)) is not None:
        stdin.write(given)  # type: ignore[attr-defined] # it is one that writes
        stdin.close()
    return transport, running


async def _never_mind(beginning: asyncio.Future[tuple[asyncio.SubprocessTransport, _Running]]) -> None:
    """End what is beginning. asyncio, cancelled at that point, would wait for what the program has begun itself."""
    while not beginning.done():
        # It takes milliseconds, so a second cancellation waits for it, too.
        with suppress(asyncio.CancelledError):
            await asyncio.wait({beginning})
    if beginning.exception() is None:
        await _end(*beginning.result(), gently=True)


async def _end(transport: asyncio.SubprocessTransport, running: _Running, *, gently: bool) -> None:
    """End all that is left of the program, and wait until nothing is."""
    try:
        if gently:
            _signal_group(transport.get_pid(), signal.SIGTERM)
            await asyncio.wait({running.exited}, timeout=TERMINATION)
    finally:
        # All of the group, also where its first process has ended: it may have left others behind.
        _signal_group(transport.get_pid(), signal.SIGKILL)
        transport.close()
        await asyncio.wait({running.gone})


class _Tail(bytearray):
    """The last bytes of an output."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self.dropped = 0

    def add(self, data: bytes) -> None:
        self += data
        if (excess := len(self) - self._limit) > 0:
            del self[:excess]
            self.dropped += excess


class _Running(asyncio.SubprocessProtocol):
    """Follows a program; ``silent`` when nobody holds its outputs any more, ``gone`` when nothing is left of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_output: int) -> None:
        self.outputs = {1: _Tail(max_output), 2: _Tail(max_output)}
        self.exited = loop.create_future()
        self.silent = loop.create_future()
        self.gone = loop.create_future()
        self._open = set(self.outputs)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.outputs[fd].add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open and not self.silent.done():
            self.silent.set_result(None)

    def process_exited(self) -> None:
        self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set_result(None)


def _signal_group(pid: int, number: signal.Signals) -> None:
    """Signal what is left of the process group, if anything is."""
    with suppress(ProcessLookupError, PermissionError):  # macOS answers so for a group of zombies
        os.killpg(pid, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _why(error: OSError | ValueError) -> str:
    """Without the arguments: they may be secret."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error)
