"""The scalar types: they keep their text and mean what Kubernetes means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from kargo_py.api.types import Duration, MicroTime, Model, Time, wire_name


class Sample(Model):
    """One field of each type."""

    span: Duration | None = None
    at: Time | None = None
    exactly: MicroTime | None = None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("5m0s", 300),
        ("1h30m", 5400),
        ("300ms", 0.3),
        ("-1.5h", -5400),
        ("+2s", 2),
        (".5s", 0.5),
        ("1.s", 1),
        ("1us", 1e-6),
        ("1µs", 1e-6),
        ("1μs", 1e-6),
        ("100ns", 1e-7),
        ("1h1m1.5s", 3661.5),
    ],
)
def test_durations_of_go(text: str, seconds: float) -> None:
    """What Go's ParseDuration takes is taken, and keeps its text."""
    sample = Sample.model_validate({"span": text})

    assert {"span": text} == sample.wire()
    assert sample.span is not None
    assert seconds == pytest.approx(sample.span.seconds)


@pytest.mark.parametrize("text", ["", "5", "5 m", "1d", "h", "-", "1h-5m", "five", "1e3s", "٣s"])
def test_what_is_no_duration(text: str) -> None:
    """What Go would refuse is refused, and the text is in the message."""
    with pytest.raises(ValidationError, match="is not a duration like 5m0s"):
        Sample.model_validate({"span": text})


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (1.5, "1.5s"), (300, "5m0s"), (3600, "1h0m0s"), (0.3, "300ms"), (0.0015, "1.5ms"), (-90, "-1m30s"),
     (2e-6, "2µs"), (3e-9, "3ns"), (90061, "25h1m1s")],
)  # fmt: skip
def test_durations_written_as_go_writes_them(seconds: float, text: str) -> None:
    """A duration we make has the text of Go's Duration.String."""
    assert text == Duration.of(seconds)


@given(st.integers(-(10**15), 10**15))
def test_durations_round_trip(nanoseconds: int) -> None:
    """Written and read back, a duration is the same to the nanosecond."""
    assert nanoseconds == Duration.check(Duration.of(nanoseconds / 1e9)).nanoseconds or abs(nanoseconds) > 2**53


@pytest.mark.parametrize(
    "text",
    ["2026-11-30T12:00:00Z", "2026-11-30t12:00:00z", "2026-11-30T12:00:00+01:00", "2026-11-30T12:00:00.123456789Z",
     "2026-12-31T23:59:60Z"],
)  # fmt: skip
def test_times_keep_their_text(text: str) -> None:
    """Any RFC 3339 time is kept as it is, and is an instant."""
    sample = Sample.model_validate({"at": text})

    assert {"at": text} == sample.wire()
    assert sample.at is not None
    assert sample.at.datetime.tzinfo is not None


@pytest.mark.parametrize(
    "text", ["2026-11-30", "2026-02-31T12:00:00Z", "2026-11-30T12:00:00", "2026-11-30T25:00:00Z", "x"]
)
def test_what_is_no_time(text: str) -> None:
    """What is no time is refused."""
    with pytest.raises(ValidationError, match="is not an RFC 3339 time"):
        Sample.model_validate({"at": text})


def test_times_are_written_as_the_server_takes_them() -> None:
    """Seconds for Time; for MicroTime six digits, also when they are zeros: without them the server answers 400."""
    instant = datetime(2026, 11, 30, 13, 0, 5, tzinfo=timezone(timedelta(hours=1)))

    assert Time.of(instant) == "2026-11-30T12:00:05Z"
    assert MicroTime.of(instant) == "2026-11-30T12:00:05.000000Z"
    assert instant == MicroTime.of(instant).datetime


@given(st.datetimes(timezones=st.just(UTC)).filter(lambda instant: instant.year >= 1000))
def test_micro_times_round_trip(instant: datetime) -> None:
    """An instant with microseconds survives."""
    assert instant == MicroTime.of(instant).datetime


@pytest.mark.parametrize(
    ("field", "wire"),
    [("repo_url", "repoURL"), ("finished_at", "finishedAt"), ("id", "id"), ("currently_in", "currentlyIn")],
)
def test_wire_names(field: str, wire: str) -> None:
    """Fields have Kubernetes' spelling on the wire."""
    assert wire == wire_name(field)
