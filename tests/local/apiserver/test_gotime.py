"""Times in Go's formats."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from kargo_py.local.apiserver import gotime


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("2026-11-30T01:02:03Z", "2026-11-30T01:02:03Z"),
        ("2026-11-30T01:02:03.999Z", "2026-11-30T01:02:03Z"),
        ("2026-11-30T01:02:03,5Z", "2026-11-30T01:02:03Z"),
        ("2026-11-30T01:02:03+02:00", "2026-11-29T23:02:03Z"),
        ("2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0044-03-15T00:00:00Z", "0044-03-15T00:00:00Z"),
        ("0001-01-01T00:00:00Z", None),
    ],
)
def test_a_time(text: str, stored: str | None) -> None:
    assert gotime.time(text) == stored


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("2026-11-30T01:02:03.000000Z", "2026-11-30T01:02:03.000000Z"),
        ("2026-11-30T01:02:03.123456-01:30", "2026-11-30T02:32:03.123456Z"),
        ("0001-01-01T00:00:00.000000Z", None),
    ],
)
def test_a_micro_time(text: str, stored: str | None) -> None:
    assert gotime.micro_time(text) == stored


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"'),
        ("20260220", 'cannot parse "0220" as "-"'),
        ("2026-2-20T", 'cannot parse "2-20T" as "01"'),
        ("2026-11-30t00:00:00Z", 'cannot parse "t00:00:00Z" as "T"'),
        ("2026-13-30T00:00:00Z", "month out of range"),
        ("2026-02-30T00:00:00Z", "day out of range"),
        ("2026-02-20T24:00:00Z", "hour out of range"),
        ("2026-02-20T00:00:00", 'cannot parse "" as "Z07:00"'),
        ("2026-02-20T00:00:00+0100", 'cannot parse "+0100" as "Z07:00"'),
        ("2026-02-20T00:00:00+25:00", "time zone offset hour out of range"),
        ("2026-02-20T00:00:00Zx", 'extra text: "x"'),
        ('"\\\n', r'parsing time "\"\\\x0a" as'),
    ],
)
def test_no_time(text: str, words: str) -> None:
    with pytest.raises(gotime.TimeError) as caught:
        gotime.time(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "rest", "layout"),
    [
        ("2026-11-30T00:00:00Z", "Z", ".000000"),
        ("2026-11-30T00:00:00.1Z", ".1Z", ".000000"),
        ("2026-11-30T00:00:00.1234567Z", "7Z", "Z07:00"),
    ],
)
def test_no_micro_time(text: str, rest: str, layout: str) -> None:
    with pytest.raises(gotime.TimeError, match=f'cannot parse "{rest}" as "{layout}"'):
        gotime.micro_time(text)


offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=offsets))  # noqa: DTZ001
def test_every_moment_keeps_its_place(moment: datetime) -> None:
    stored = gotime.micro_time(moment.isoformat(timespec="microseconds"))
    assert stored is not None
    assert gotime.parse(stored, gotime.MICROSECONDS) == moment
    assert gotime.micro_time(stored) == stored
    assert gotime.parse(gotime.time(stored) or "") == moment.astimezone(UTC).replace(microsecond=0)


@given(st.text(alphabet="0123456789-:.TZ+", max_size=30))
def test_any_text_is_a_time_or_an_error(text: str) -> None:
    with suppress(gotime.TimeError):
        stored = gotime.time(text)
        assert stored is None or gotime.time(stored) == stored
