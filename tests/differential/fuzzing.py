"""Sequence after sequence: each has its own seed, so any can be played again alone."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final
from urllib.parse import parse_qsl

from tests.differential.comparing import Difference
from tests.differential.drawing import sequence
from tests.differential.running import Arena, Played, await_served
from tests.differential.sides import Embedded, Real
from tests.differential.steps import Answer, Step
from tests.differential.subjects import GAUGE, LOOSE, Subject, ours, subjects
from tests.envtest.server import DEFINITIONS, ApiServer

AT_ONCE: Final = 8


@dataclass
class Report:
    """What came of it."""

    sequences: int = 0
    requests: int = 0
    seconds: float = 0.0
    differences: dict[tuple[str, ...], Difference] = field(default_factory=dict)
    count: int = 0

    def __str__(self) -> str:
        rate = self.sequences / self.seconds * 60 if self.seconds else 0
        return (
            f"{self.sequences} sequences, {self.requests} requests, {self.count} sequences with a difference, "
            f"{len(self.differences)} kinds of difference, {self.seconds:.0f} s ({rate:.0f} sequences a minute)"
        )


@contextlib.contextmanager
def arena(server: ApiServer) -> Iterator[Arena]:
    """Both servers, with all definitions installed."""
    real, embedded = Real(server), Embedded()
    with contextlib.closing(real), contextlib.closing(embedded):
        both = Arena(real, embedded)
        for definition in [GAUGE, LOOSE, *ours()]:
            both.both(Step("POST", DEFINITIONS, body=definition))
        for definition in [GAUGE, LOOSE, *ours()]:
            for side in (real, embedded):

                def ask(path: str, side: Real | Embedded = side) -> Answer:
                    path, _, query = path.partition("?")
                    return side.ask(Step("GET", path, parse_qsl(query)))

                await_served(ask, definition)
        with contextlib.closing(both):
            yield both


def fuzz(
    both: Arena,
    *,
    seed: int,
    sequences: int,
    length: int = 15,
    seconds: float = float("inf"),
    kind: str = "",
    shrink: bool = True,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Play *sequences* with seeds from *seed* on, or as many as there is time for."""
    report = Report()
    chosen = [subject for subject in subjects() if kind in f"{subject.kind}.{subject.api_version}"]
    playing: deque[tuple[int, Played]] = deque()
    began, requests = time.monotonic(), both.requests

    def finish() -> None:
        number, played = playing.popleft()
        difference = both.finish(played)
        if difference is None:
            return
        report.count += 1
        if difference.signature in report.differences:
            return
        report.differences[difference.signature] = difference
        if shrink:
            paused = time.monotonic()
            difference = both.shrunk(difference)
            nonlocal began
            began += time.monotonic() - paused
        tell(f"\n== seed {number}: {' | '.join(difference.signature)}\n{difference}")
        report.differences[difference.signature] = difference

    for number in range(seed, seed + sequences):
        if time.monotonic() - began > seconds:
            break
        playing.append((number, both.play(drawn(number, chosen, length))))
        report.sequences += 1
        if len(playing) > AT_ONCE:
            finish()
    while playing:
        finish()
    report.seconds = time.monotonic() - began
    report.requests = both.requests - requests
    return report


def drawn(seed: int, chosen: list[Subject], length: int) -> list[Step]:
    """The sequence of a seed."""
    return sequence(Random(seed), chosen, length)
