"""Whether an instance is alive and ready, part by part: what ``/healthz`` and ``/readyz`` answer.

*Alive* asks whether a restart would help: all tasks run, and reconciles get their turn. An event loop that hangs needs
no test: it does not answer. *Ready* asks whether decisions rest on the present: all caches are filled and followed.
Nothing is gathered between two questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kargo_py.kube.cache import Cache
from kargo_py.kube.controller import Controller
from kargo_py.messages import Shown, message

TASK_ENDED = message(
    "it has ended, though it should run as long as the program does: {why}",
    do="A fault of kargo-py: please report it with the log. A liveness probe restarts it, and it goes on from what is "
    "on record.",
    shown=Shown.PROBE,
)
QUEUE_STALLED = message(
    "keys have been ready for {seconds:.0f} s, and none was begun",
    do="All workers hang. A liveness probe restarts the program; report it with the log.",
    shown=Shown.PROBE,
)
RECONCILE_HANGS = message(
    "{key} has been worked on for {seconds:.0f} s",
    do="Every request has a time-out, so a step hangs in something else. A liveness probe restarts the program, and it "
    "goes on from what is on record.",
    shown=Shown.PROBE,
)
NOT_SYNCED = message(
    "the first list is not in yet{why}",
    do="Wait, or look at what follows: it says why the API server does not answer.",
    shown=Shown.PROBE,
)
NOT_CURRENT = message(
    "it is not being kept current: {why}",
    do="The API server cannot be reached or refuses. It is tried again by itself; what it says is what to correct.",
    shown=Shown.PROBE,
)
NOT_BEGUN = message(
    "it does not reconcile yet",
    do="Wait: it begins once the caches are filled.",
    shown=Shown.PROBE,
)
STOPPING = message(
    "it is being stopped",
    do="Nothing: the program ends as soon as what is in progress has.",
    shown=Shown.PROBE,
)

STALLED = 300.0
"""Seconds without a turn after which a queue is stuck: longer than any one request takes with all its repetitions."""

HANGING = 900.0
"""Seconds after which a reconcile hangs. It does what can be done now, so it takes seconds even on a bad day."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part, and what is wrong with it ("" if nothing is)."""

    name: str
    fault: str = ""

    def __str__(self) -> str:
        return f"[-]{self.name}: {self.fault}" if self.fault else f"[+]{self.name} ok"


def report(question: str, parts: Sequence[Part]) -> tuple[bool, str]:
    """Whether all is well, and the text that says so part by part, what is wrong first."""
    faulty = [part for part in parts if part.fault]
    lines = [str(part) for part in (*faulty, *(part for part in parts if not part.fault))]
    verdict = f"{question} check {'failed' if faulty else 'passed'}"
    return not faulty, "\n".join([*lines, verdict, ""])


class Tasks:
    """The tasks that must run as long as the instance does; ``stopping`` once it ends."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []
        self.stopping = False

    def add(self, task: asyncio.Task[Any]) -> None:
        """Count on *task* from now on."""
        self._tasks.append(task)

    @contextmanager
    def counting_on(self, tasks: Sequence[asyncio.Task[Any]]) -> Iterator[None]:
        """In the body *tasks* must run; one that has ended by its end remains a fault."""
        for task in tasks:
            self.add(task)
        try:
            yield
        finally:
            self._let_end(tasks)

    def stop(self) -> None:
        """What still runs may end now; what has ended before remains a fault."""
        self.stopping = True
        self._let_end(self._tasks)

    def _let_end(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        free = {task for task in tasks if not task.done()}
        self._tasks = [task for task in self._tasks if task not in free]

    def parts(self) -> Iterable[Part]:
        """The tasks, each with why it has ended if it has."""
        for task in self._tasks:
            yield Part(task.get_name(), TASK_ENDED(why=_end(task)) if task.done() else "")


def _end(task: asyncio.Task[Any]) -> str:
    if task.cancelled():
        return "cancelled"
    error = task.exception()
    return f"{type(error).__name__}: {error}" if error is not None else "without an error"


def alive(tasks: Tasks, controllers: Iterable[Controller[Any]]) -> list[Part]:
    """The parts that a restart may mend."""
    return [*tasks.parts(), *(Part(f"queue/{each.name}", _stuck(each)) for each in controllers)]


def ready(tasks: Tasks, caches: Iterable[Cache[Any]], controllers: Iterable[Controller[Any]]) -> list[Part]:
    """The parts without which decisions would rest on the past, or are not made."""
    stopping = [Part("instance", STOPPING())] if tasks.stopping else []
    begun = [Part(f"controller/{each.name}", "" if each.is_open else NOT_BEGUN()) for each in controllers]
    return [*stopping, *(Part(f"cache/{cache.resource}", _outdated(cache)) for cache in caches), *begun]


def _stuck(controller: Controller[Any]) -> str:
    if (seconds := controller.stalled) > STALLED:
        return QUEUE_STALLED(seconds=seconds)
    longest = controller.longest
    if longest is not None and longest[1] > HANGING:
        return RECONCILE_HANGS(key=longest[0], seconds=longest[1])
    return ""


def _outdated(cache: Cache[Any]) -> str:
    why = cache.health
    if not cache.synced:
        return NOT_SYNCED(why=f": {why}" if why is not None else "")
    return NOT_CURRENT(why=why) if why is not None else ""
