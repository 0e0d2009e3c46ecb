"""How long things take, counted in buckets: what Prometheus calls a histogram, without anything of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Bounds in seconds for what takes milliseconds: requests, reconciles."""

LONG = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0)
"""Bounds in seconds for what takes minutes: Promotions."""


class Histogram:
    """Counts seconds by upper bounds; ``total`` is their sum."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Sequence[float] = QUICK) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Something took *seconds*; a clock that was set back makes that 0."""
        seconds = max(seconds, 0.0)
        self._counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    @property
    def count(self) -> int:
        """How often something was counted."""
        return sum(self._counts)

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Each upper bound, the last one infinite, with how many did not exceed it."""
        return zip((*self.bounds, float("inf")), accumulate(self._counts), strict=True)
