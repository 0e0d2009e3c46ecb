"""A clock that nobody sets, and how people are told how long something has lasted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from kargo_py.kube.clock import Steady, in_short


@pytest.mark.parametrize(
    ("lasted", "shown"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=900), "0s"),
        (timedelta(seconds=-5), "0s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(minutes=2), "2m"),
        (timedelta(minutes=3, seconds=20), "3m20s"),
        (timedelta(minutes=45, seconds=59), "45m"),
        (timedelta(hours=3, minutes=5), "3h5m"),
        (timedelta(hours=8, minutes=5), "8h"),
        (timedelta(days=2, hours=4), "2d4h"),
        (timedelta(days=400), "400d"),
        (timedelta.max, "999999999d"),
    ],
)
def test_in_short(lasted: timedelta, shown: str) -> None:
    """One unit where that is exact enough, two where it would say too little."""
    assert in_short(lasted) == shown


@given(st.timedeltas())
def test_any(lasted: timedelta) -> None:
    """It is always short, and has no spaces: it stands in a column."""
    assert 2 <= len(in_short(lasted)) <= 10
    assert " " not in in_short(lasted)


NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


class TestSteady:
    def test_what_a_process_before_has_used(self) -> None:
        """That is what the wall clock says; from then on it is not asked."""
        clock = Steady.since(NOON, NOON + timedelta(minutes=2), time=1000.0)

        assert clock.passed(1000.0) == timedelta(minutes=2)
        assert clock.now(1060.0) == NOON + timedelta(minutes=3)

    def test_what_is_recorded_for_later(self) -> None:
        """The clock was set back, or somebody has edited it: it began now, and nothing was used."""
        clock = Steady.since(datetime.max.replace(tzinfo=UTC), NOON, time=1000.0)

        assert (clock.began, clock.passed(1000.0)) == (NOON, timedelta(0))
        assert clock.now(1060.0) == NOON + timedelta(minutes=1)
