"""From a history that breaks a Law to a short one that breaks the same: leave out what is not needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulation.plan import Plan
from tests.simulation.simulation import Told, run


def shrink(plan: Plan, law: str, *, play: Callable[[Plan], Told] = run) -> Plan:
    """The plan with as few happenings as still break *law*: none of those left can be left out alone."""

    def breaks(indices: Sequence[int]) -> bool:
        return any(violation.law == law for violation in play(plan.only(indices)).violations)

    return plan.only(minimal(list(plan.indices), breaks))


def minimal(items: list[int], breaks: Callable[[Sequence[int]], bool]) -> list[int]:
    """Delta debugging: take out ever smaller parts, as long as what is left still breaks."""
    size = max(len(items) // 2, 1)
    while items:
        for first in range(0, len(items), size):
            rest = items[:first] + items[first + size :]
            if breaks(rest):
                items = rest
                size = min(size, max(len(items) // 2, 1))
                break
        else:
            if size == 1:
                break
            size //= 2
    return items
