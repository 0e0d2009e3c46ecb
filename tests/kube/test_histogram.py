"""Counting how long things take."""

from __future__ import annotations

from hypothesis import given, strategies as st

from kargo_py.kube.histogram import Histogram

SECONDS = st.floats(0, 1000, allow_nan=False)


@given(st.lists(SECONDS, max_size=50), st.lists(SECONDS, min_size=1, max_size=8, unique=True).map(sorted))
def test_buckets(times: list[float], bounds: list[float]) -> None:
    """Each bucket has what does not exceed its bound, and the last has all."""
    histogram = Histogram(bounds)
    for seconds in times:
        histogram.add(seconds)

    assert [count for _, count in histogram.buckets()] == [sum(t <= b for t in times) for b in (*bounds, float("inf"))]
    assert histogram.count == len(times)
    assert abs(histogram.total - sum(times)) < 1e-6


def test_a_clock_that_was_set_back() -> None:
    """Nothing takes less than no time, so that the sum only grows."""
    histogram = Histogram()
    histogram.add(-5)

    assert (histogram.count, histogram.total) == (1, 0.0)
