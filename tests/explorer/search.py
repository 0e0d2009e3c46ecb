"""Breadth-first search through all histories, shortest first."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tests.explorer.laws import LOST_ENDING, broken, can_run, has_ended
from tests.explorer.model import (
    ATTEMPTS,
    Move,
    Setting,
    State,
    crash_moves,
    describe,
    is_watched,
    time_moves,
    watch_moves,
)
from tests.explorer.others import foreign_moves, owner_moves, user_moves
from tests.explorer.protocol import Protocol, late_moves, our_moves
from tests.explorer.worker import worker_moves


@dataclass(frozen=True, slots=True)
class CounterExample:
    """The law that falls, why, the shortest history to there, one line per act, and the Application then."""

    law: str
    why: str
    history: Sequence[str]
    then: str

    def __str__(self) -> str:
        lines = [f"{number:>3}. {line}" for number, line in enumerate(self.history, 1)]
        return "\n".join([f"law {self.law}: {self.why}", *lines, f"     then: {self.then}"])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search has found: how Promotions ended, with which records, and nothing wrong or a counter-example."""

    states: int
    ends: frozenset[tuple[int, tuple[int, ...]]]
    found: CounterExample | None = None


def moves(s: State, setting: Setting, protocol: Protocol) -> Iterator[Move]:
    """Everything that may happen next; nothing worth looking at once all is over and nothing of ours can come."""
    if not is_watched(s) and not s.requests and not any(can_run(s, mark) for mark in ATTEMPTS):
        return iter(())
    return chain(
        our_moves(s, setting, protocol),
        late_moves(s, setting),
        worker_moves(s, setting),
        watch_moves(s),
        time_moves(s, setting),
        foreign_moves(s, setting),
        owner_moves(s, setting),
        user_moves(s),
        crash_moves(s),
    )


class _Graph:
    """The states found so far, each with the act that led to it first, and the fair acts between them."""

    def __init__(self, first: State) -> None:
        self.numbers = {first: 0}
        self.parents = array("l", [-1])
        self.lines = [""]
        self.fair_from = array("l")
        self.fair_to = array("l")

    def add(self, before: int, move: Move) -> bool:
        """Note *move*; True if it leads to a new state."""
        number = self.numbers.setdefault(move.state, len(self.parents))
        if move.fair:
            self.fair_from.append(before)
            self.fair_to.append(number)
        if number < len(self.parents):
            return False
        self.parents.append(before)
        self.lines.append(f"{move.actor}: {move.words}")
        return True

    def history(self, number: int) -> list[str]:
        """The acts that lead to a state."""
        lines = []
        while number > 0:
            lines.append(self.lines[number])
            number = self.parents[number]
        return lines[::-1]

    def outcome(self, found: CounterExample | None = None) -> Outcome:
        """What the search has found."""
        promotions = {state.promo for state in self.numbers if state.promo.phase}
        ends = frozenset((promo.phase, tuple(record.state for record in promo.records)) for promo in promotions)
        return Outcome(len(self.parents), ends, found)

    def hopeless(self) -> int | None:
        """The first state from which no fair history leads to an end."""
        back: list[list[int]] = [[] for _ in self.parents]
        for before, after in zip(self.fair_from, self.fair_to, strict=True):
            back[after].append(before)
        waiting = [number for state, number in self.numbers.items() if has_ended(state)]
        reached = bytearray(len(self.parents))
        for number in waiting:
            reached[number] = 1
        while waiting:
            for before in back[waiting.pop()]:
                if not reached[before]:
                    reached[before] = 1
                    waiting.append(before)
        missing = reached.find(0)
        return None if missing < 0 else missing


def explore(setting: Setting, protocol: Protocol) -> Outcome:
    """Search all that *setting* allows; stops at the first act that breaks a law."""
    first = setting.initial()
    graph = _Graph(first)
    waiting = deque([first])
    number = 0
    while waiting:
        before = waiting.popleft()
        for move in moves(before, setting, protocol):
            if graph.add(number, move):
                waiting.append(move.state)
                if fault := broken(before, move, setting):
                    law, why = fault
                    history = graph.history(graph.numbers[move.state])
                    return graph.outcome(CounterExample(law, why, history, describe(move.state.app)))
        number += 1
    stuck = graph.hopeless()
    if stuck is None:
        return graph.outcome()
    state = next(state for state, number in graph.numbers.items() if number == stuck)
    why = "no end is reached from here"
    return graph.outcome(CounterExample(LOST_ENDING, why, graph.history(stuck), describe(state.app)))
