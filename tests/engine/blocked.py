"""Steps that keep the event loop to themselves, in a program of their own: ``python -m tests.engine.blocked``.

Prints, as JSON, what the calls of each case were answered with and what was logged. What has to be interrupted would
take an hour.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import structlog

from kargo_py.api.promotion import StepStatus
from kargo_py.controllers.running import Options, Parts, assemble, run_assembly
from kargo_py.engine.execution import Executor, Patience
from kargo_py.engine.guarding import described
from kargo_py.local.apiserver.client import client_of
from kargo_py.steps.base import Finished, StepContext
from kargo_py.steps.step import Work
from tests.engine.calling import Told, context_of, executor
from tests.protocol.universe import Universe

DONE = Finished(StepStatus.SUCCEEDED, "done")
LIMIT = 0.3
LONG = 3600.0
ERRED = 'error running step "step-1": '


async def sleeps(_: StepContext) -> Finished:
    time.sleep(LONG)  # noqa: ASYNC251 - what this is about
    return DONE


async def computes(_: StepContext) -> Finished:
    while True:
        pass


async def catches_all_exceptions(_: StepContext) -> Finished:
    while True:
        with suppress(Exception):
            time.sleep(LONG)  # noqa: ASYNC251 - what this is about


async def computes_in_a_task(context: StepContext) -> Finished:
    async with asyncio.TaskGroup() as group:
        group.create_task(computes(context))
        await asyncio.sleep(LONG)
    return DONE


async def gathers(context: StepContext) -> Finished:
    await asyncio.gather(sleeps(context), asyncio.sleep(LONG))
    return DONE


async def is_quick(_: StepContext) -> Finished:
    return DONE


async def blocks_a_little(_: StepContext) -> Finished:
    time.sleep(LIMIT * 5)  # noqa: ASYNC251 - what this is about
    return DONE


async def computes_a_little(_: StepContext) -> Finished:
    until = time.monotonic() + LIMIT * 5
    while time.monotonic() < until:
        pass
    return DONE


Act = Callable[[StepContext], Awaitable[Any]]


async def answers(made: Executor, *acts: Act, work: Work = Work.NETWORK) -> list[str]:
    """Call steps that do so, all at once."""

    async def answer(index: int, act: Act) -> str:
        woken = asyncio.Event()
        while True:
            given = await made.call(index, Told(act, work), context_of(), time_left=None, done=woken.set)
            if isinstance(given, Finished):
                return f"{given.status.value}: {given.message}"
            if given is not None:
                return described(getattr(given, "error", None) or TypeError(type(given).__name__))
            await woken.wait()

    try:
        return await asyncio.gather(*(answer(index, act) for index, act in enumerate(acts)))
    finally:
        await made.aclose()


def watching(*, interrupts: bool = True) -> Executor:
    return executor(patience=Patience(blocked=LIMIT), interrupts=interrupts)


def in_a_thread(*acts: Act) -> list[str]:
    """The event loop runs in another thread than the main one."""
    found: list[list[str]] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(answers(watching(), *acts))))
    thread.start()
    thread.join()
    return found[0]


def with_the_signal_taken() -> list[str]:
    """Somebody else handles it, and goes on doing so."""
    signal.signal(signal.SIGURG, lambda *_: None)
    handler = signal.getsignal(signal.SIGURG)
    found = asyncio.run(answers(watching(), blocks_a_little))
    left = signal.signal(signal.SIGURG, signal.SIG_DFL) is handler
    return [*found, str(left)]


def twice() -> list[str]:
    """The signal is given back, and taken again."""
    found = [asyncio.run(answers(watching(), sleeps))[0] for _ in range(2)]
    return [*found, str(signal.getsignal(signal.SIGURG) is signal.SIG_DFL)]


def in_a_program() -> list[str]:
    """As the controllers put the parts together: what becomes of that Promotion, and of one after it."""

    async def promotions() -> list[str]:
        world = Universe()
        options = Options(instance="me", patience=Patience(blocked=LIMIT), interrupts=True, work_dir="/proc/none")
        told = Parts({"sleeps": Told(sleeps), "quick": Told(is_quick)})
        async with world.core, asyncio.timeout(60):
            await world.prepare()
            client = client_of(world.core)
            ours = asyncio.create_task(run_assembly(assemble(client, client, "me", options, parts=told), options))
            await world.run({"uses": "sleeps"})
            ends = [f"{await world.ended()}: {world.message().removeprefix(ERRED)}"]
            await world.run({"uses": "quick"}, name="p2")
            phase, (step,) = await world.ended("p2"), world.promotion("p2")["status"]["stepExecutionMetadata"]
            ends.append(f"{phase}: {step['message']}")
            ours.cancel()
            await asyncio.wait([ours])
        return ends

    return asyncio.run(promotions())


CASES: dict[str, Callable[[], list[str]]] = {
    "sleeps": lambda: asyncio.run(answers(watching(), sleeps, is_quick)),
    "asks API servers": lambda: asyncio.run(answers(watching(), sleeps, is_quick, work=Work.API)),
    "computes": lambda: asyncio.run(answers(watching(), computes, is_quick)),
    "catches all exceptions": lambda: asyncio.run(answers(watching(), catches_all_exceptions, is_quick)),
    "computes in a task": lambda: asyncio.run(answers(watching(), computes_in_a_task, is_quick)),
    "gathers": lambda: asyncio.run(answers(watching(), gathers, is_quick)),
    "several": lambda: asyncio.run(answers(watching(), sleeps, computes, is_quick)),
    "only logged": lambda: asyncio.run(answers(watching(interrupts=False), blocks_a_little, is_quick)),
    "in a thread": lambda: in_a_thread(computes, is_quick),
    "sleeps in a thread": lambda: in_a_thread(blocks_a_little, is_quick),
    "the signal is taken": with_the_signal_taken,
    "twice": twice,
    "in a program": in_a_program,
}


def main() -> None:
    """Print what comes of the cases."""
    outcomes = {}
    for case, run in CASES.items():
        with structlog.testing.capture_logs() as logged:
            outcomes[case] = {"answers": run(), "logged": [event["event"] for event in logged]}
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
