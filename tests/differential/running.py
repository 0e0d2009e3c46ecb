"""Sequences on both servers: where they part, and the shortest sequence that still parts so."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from tests.differential.comparing import Difference, Names, alike
from tests.differential.differences import is_listed
from tests.differential.sides import Embedded, Memory, Real
from tests.differential.steps import Answer, JsonObject, Step
from tests.envtest.server import FROM_THE_CACHE

WATCH_SECONDS: Final = 1
PATIENT_SECONDS: Final = 4
_TIME: Final = re.compile(r'"(?:time|creationTimestamp|deletionTimestamp)":"([^"]+Z)"')


@dataclass
class Played:
    """What is left of a sequence that was played: its watches."""

    steps: Sequence[Step]
    difference: Difference | None
    real: Names
    embedded: Names
    watches: Sequence[tuple[Step, Step, Answer, Future[Answer]]] = ()


class Arena:
    """Both servers, with the same objects to begin with."""

    def __init__(self, real: Real, embedded: Embedded) -> None:
        self.real = real
        self.embedded = embedded
        self._threads = ThreadPoolExecutor(8)
        self._played = 0
        self.requests = 0
        self.masked = 0

    def close(self) -> None:
        """Wait for the watches."""
        self._threads.shutdown()

    def both(self, step: Step) -> tuple[Answer, Answer]:
        """Ask both the same, at the same time of day."""
        answers = self._ask(step, step)
        if max(answer.code for answer in answers) >= 300:
            raise RuntimeError(f"{step}: {answers}")
        return answers

    def _ask(self, real: Step, embedded: Step) -> tuple[Answer, Answer]:
        self.requests += 1
        began = datetime.now(UTC)
        answer = self.real.ask(real)
        ended = datetime.now(UTC)
        self.embedded.now = began
        if ended.second != began.second:  # whichever second the real server has seen
            told = max(_TIME.findall(json.dumps(answer.body, separators=(",", ":"))), default="")
            if told >= ended.strftime("%Y-%m-%dT%H:%M:%SZ"):
                self.embedded.now = ended
        return answer, self.embedded.ask(embedded)

    def play(self, steps: Sequence[Step]) -> Played:
        """Send *steps* up to the first difference, and begin the watches if there is none."""
        self._played += 1
        name = f"f{self._played:05d}"
        self.both(Step("POST", "/api/v1/namespaces", body={"metadata": {"name": name}}))
        memories = Memory(name), Memory(name)
        names = Names(name), Names(name)
        for memory, answer in zip(
            memories, self.both(Step("GET", "/api/v1/namespaces", [("limit", "1")])), strict=True
        ):
            memory.note(Step("GET", ""), answer)
            memory.token = ""
        played = Played(steps, None, *names)
        for index, step in enumerate(steps):
            if step.watch:
                continue
            resolved = [memory.resolved(step) for memory in memories]
            answers = self._ask(resolved[0], resolved[1])
            shown = [of.answer(answer) for of, answer in zip(names, answers, strict=True)]
            if not alike(*shown):
                if is_listed(step, *shown):
                    self.masked += 1
                    if (answers[0].code < 300) == (answers[1].code < 300):
                        continue
                    break
                played.difference = Difference([*(s for s in steps[:index] if not s.watch), step], *shown)
                break
            for memory, one, answer in zip(memories, resolved, answers, strict=True):
                memory.note(one, answer)
        else:
            played.watches = [self._begin(step, memories) for step in steps if step.watch]
        return played

    def _begin(self, step: Step, memories: tuple[Memory, Memory]) -> tuple[Step, Step, Answer, Future[Answer]]:
        real, embedded = (_lasting(memory.resolved(step), WATCH_SECONDS) for memory in memories)
        self.requests += 1
        return step, real, self.embedded.ask(embedded), self._threads.submit(self.real.ask, real)

    def finish(self, played: Played) -> Difference | None:
        """Wait for the watches, and compare them, too."""
        if played.difference:
            return played.difference
        for step, sent, embedded, future in played.watches:
            real = future.result()
            shown = [played.real.answer(real), played.embedded.answer(embedded)]
            if not alike(*shown):  # perhaps only because this machine is slow
                shown[0] = played.real.answer(self.real.ask(_lasting(sent, PATIENT_SECONDS)))
            if not alike(*shown) and not is_listed(step, *shown):
                return Difference([*(each for each in played.steps if not each.watch), step], *shown)
        return None

    def difference(self, steps: Sequence[Step]) -> Difference | None:
        """The first difference in *steps*."""
        return self.finish(self.play(steps))

    def unmasked(self, steps: Sequence[Step]) -> bool:
        """Whether *steps* show a difference that is listed."""
        before = self.masked
        self.difference(steps)
        return self.masked > before

    def shrunk(self, found: Difference, seconds: float = 30.0) -> Difference:
        """The same difference in fewer and smaller steps."""
        end = time.monotonic() + seconds
        progress = True
        while progress:
            progress = False
            for steps in smaller(found.steps):
                if time.monotonic() > end:
                    return found
                other = self.difference(steps)
                if other and other.signature == found.signature:
                    found, progress = other, True
                    break
        return found


def _lasting(step: Step, seconds: int) -> Step:
    query = [(key, value) for key, value in step.query if key != "timeoutSeconds"]
    return replace(step, query=[*query, ("timeoutSeconds", str(seconds))])


def smaller(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Smaller sequences that end with the same request, or one like it; the smallest first."""
    *before, last = steps
    size = len(before)
    while size:
        for start in range(0, len(before), size):
            yield [*before[:start], *before[start + size :], last]
        size //= 2
    for index, step in enumerate(steps):
        for less in _smaller_step(step):
            yield [*steps[:index], less, *steps[index + 1 :]]


def _smaller_step(step: Step) -> Iterator[Step]:
    for index in range(len(step.query)):
        if step.query[index][0] != "watch":
            yield replace(step, query=[*step.query[:index], *step.query[index + 1 :]])
    for body in _smaller_json(step.body):
        yield replace(step, body=body)


def _smaller_json(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for name in value:
            yield {key: item for key, item in value.items() if key != name}
        for name, item in value.items():
            for less in _smaller_json(item):
                yield {**value, name: less}
    elif isinstance(value, list):
        for index in range(len(value)):
            yield [*value[:index], *value[index + 1 :]]
        for index, item in enumerate(value):
            for less in _smaller_json(item):
                yield [*value[:index], less, *value[index + 1 :]]


def await_served(ask: Callable[[str], Answer], definition: JsonObject) -> None:
    """Return when objects of *definition* can be written."""
    spec = definition["spec"]
    for version in spec["versions"]:
        path = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}?{FROM_THE_CACHE}"
        while version["served"] and ask(path).code != 200:
            time.sleep(0.05)
