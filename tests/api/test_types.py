"""The base model and the scalars: texts are kept, values are right, and what is wrong is refused with a reason."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from kargo_py.api.types import Duration, Json, ListOf, MicroTime, Model, PlainDuration, Time, wire_name


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("name", "name"),
        ("id", "id"),
        ("api_version", "apiVersion"),
        ("repo_url", "repoURL"),
        ("repo_urls", "repoURLs"),
        ("last_freight_id", "lastFreightID"),
        ("continue_on_error", "continueOnError"),
    ],
)
def test_wire_name(field: str, name: str) -> None:
    """Fields are in snake case here and in Go's camel case on the wire."""
    assert wire_name(field) == name


class Inner(Model):
    """A model inside another."""

    repo_url: str = ""
    count: int = 0


class Outer(Model):
    """A model with every kind of field."""

    inner: Inner = Inner()
    inners: ListOf[Inner] = ()
    times: ListOf[Time] = ()
    timeout: Duration | None = None
    at: Time | None = None
    config: Json = None


WIRE = {
    "inner": {"repoURL": "https://h/x", "count": 0, "repo_url": "an unknown field", "new": [1, 2.5, None, {"a": True}]},
    "inners": [{}, {"repoURL": ""}],
    "times": ["2026-01-31T12:00:00Z"],
    "timeout": "90m",
    "at": "2026-01-31T12:00:00+02:00",
    "config": {"n": 1.0, "big": 12345678901234567890, "nothing": None},
    "future": {"kept": True},
}


def test_wire_gives_back_what_was_read() -> None:
    """Unknown fields, empty values, numbers and the texts of scalars come back as they were, and nothing is added."""
    assert json.dumps(Outer.model_validate(WIRE).wire(), sort_keys=True) == json.dumps(WIRE, sort_keys=True)


def test_field_names_are_no_wire_names() -> None:
    """An unknown field that is spelled like one of our field names is not taken for it."""
    inner = Inner.model_validate({"repo_url": 5})
    assert inner.repo_url == ""
    assert inner.wire()["repo_url"] == 5


def test_made_by_field_name() -> None:
    """What is made here is made by field name and written by wire name, only the fields that were given."""
    assert Outer(inner=Inner(repo_url="https://h/x")).wire() == {"inner": {"repoURL": "https://h/x"}}


def test_replace() -> None:
    """A copy differs in the fields that were named, keeps unknown ones, and leaves the original alone."""
    outer = Outer.model_validate(WIRE)
    changed = outer.replace(at=None, inners=[Inner(count=2)])
    assert changed.wire() == {**WIRE, "at": None, "inners": [{"count": 2}]}
    assert outer.wire() == WIRE


def test_any_sequence_is_a_list_on_the_wire() -> None:
    """Whether it was given or put in later; what it holds is written as by itself."""
    inners, times = (Inner(), Inner(repo_url="x")), (Time("2026-01-31T12:00:00Z"),)
    wire = {"inners": [{}, {"repoURL": "x"}], "times": ["2026-01-31T12:00:00Z"]}
    for outer in (Outer(inners=inners, times=times), Outer().replace(inners=inners, times=times)):
        assert outer.wire() == wire
        assert [type(time) for time in outer.wire()["times"]] == [str]


def test_replace_refuses_what_is_no_field() -> None:
    """A misspelt field is an error and not a new field of the object."""
    with pytest.raises(TypeError, match="Inner has no field repoURL"):
        Inner().replace(repoURL="x")


def test_models_are_immutable() -> None:
    """A cached object cannot be changed by whoever reads it."""
    with pytest.raises(ValidationError, match="frozen"):
        setattr(Inner(), "count", 1)  # noqa: B010 - mypy sees the plain assignment as the error it is


@pytest.mark.parametrize(
    ("wire", "place"),
    [
        ({"inner": {"count": "5"}}, ("inner", "count")),
        ({"inner": {"count": True}}, ("inner", "count")),
        ({"inner": {"repoURL": 5}}, ("inner", "repoURL")),
        ({"inners": [{}, {"count": 1.5}]}, ("inners", 1, "count")),
        ({"inners": "text"}, ("inners",)),
        ({"inners": {"0": {}}}, ("inners",)),
        ({"timeout": 300}, ("timeout",)),
        ({"timeout": "5 minutes"}, ("timeout",)),
        ({"at": "yesterday"}, ("at",)),
    ],
    ids=[
        "text for number",
        "bool for number",
        "number for text",
        "in a list",
        "text for list",
        "object for list",
        "number",
        "duration",
        "time",
    ],
)
def test_wrong_types_are_refused(wire: dict[str, Any], place: tuple[str | int, ...]) -> None:
    """Nothing is converted quietly; the error names the field as it stands on the wire."""
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(wire)
    assert [error["loc"] for error in caught.value.errors()] == [place]


# Nanoseconds and texts are what Go 1.26's time.ParseDuration and Duration.String say.
DURATIONS = [
    ("0", 0, "0s"),
    ("-0", 0, "0s"),
    ("5m0s", 300_000_000_000, "5m0s"),
    ("1h30m", 5_400_000_000_000, "1h30m0s"),
    ("300ms", 300_000_000, "300ms"),
    ("-1.5h", -5_400_000_000_000, "-1h30m0s"),
    ("+2m", 120_000_000_000, "2m0s"),
    ("1.5us", 1_500, "1.5µs"),
    ("1µs", 1_000, "1µs"),
    ("1μs", 1_000, "1µs"),
    (".5s", 500_000_000, "500ms"),
    ("1.s", 1_000_000_000, "1s"),
    ("1m1m", 120_000_000_000, "2m0s"),
    ("90s", 90_000_000_000, "1m30s"),
    ("0.3333333333333333333h", 1_200_000_000_000, "20m0s"),
    ("0.9999999999ns", 0, "0s"),
    ("2562047h47m16.854775807s", 2**63 - 1, "2562047h47m16.854775807s"),
    ("-9223372036854775808ns", -(2**63), "-2562047h47m16.854775808s"),
]


@pytest.mark.parametrize(("text", "nanoseconds", "canonical"), DURATIONS, ids=[text for text, *_ in DURATIONS])
def test_duration(text: str, nanoseconds: int, canonical: str) -> None:
    """A duration means what Go reads, keeps its text, and one made of a number is written as Go writes it."""
    duration = Duration(text)
    assert duration == text
    assert duration.nanoseconds == nanoseconds
    assert duration.seconds == nanoseconds / 1e9
    assert Duration.of_nanoseconds(nanoseconds) == canonical


@pytest.mark.parametrize(
    "text",
    ["", "1", "s", ".s", "1d", "1H", "1h 2m", "--1s", "1e3s", "\uff13s", "1s\n", "9223372036854775808ns", "2562048h"],
)
def test_no_duration(text: str) -> None:
    """What Go does not read as a duration is refused, with the text in the message."""
    with pytest.raises(ValueError, match="is not a duration like") as caught:
        Duration(text)
    assert repr(text) in str(caught.value)


@given(st.integers(-(2**63), 2**63 - 1))
def test_duration_of_a_number_reads_back(nanoseconds: int) -> None:
    """Every length Go can hold survives being written."""
    assert Duration.of_nanoseconds(nanoseconds).nanoseconds == nanoseconds


def test_duration_of_seconds() -> None:
    """Seconds may have a fraction; it is rounded to nanoseconds."""
    assert [Duration.of(seconds) for seconds in (0, 0.1, 61.5, -3600)] == ["0s", "100ms", "1m1.5s", "-1h0m0s"]


def test_duration_beyond_go() -> None:
    """A length that Go cannot hold is refused instead of being written for others to fail on."""
    with pytest.raises(ValueError, match="longer than 292 years"):
        Duration.of_nanoseconds(2**63)


@pytest.mark.parametrize("text", ["300ms", "-5m", "0", ".5h"])
def test_plain_duration_refuses(text: str) -> None:
    """Where the API server takes only hours, minutes and seconds, so do we."""
    with pytest.raises(ValueError, match="hours, minutes and seconds"):
        PlainDuration(text)


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31t12:00:00z", NOON),
        ("2026-01-31T13:30:00+01:30", NOON),
        ("2026-01-31T12:00:00.25Z", NOON + timedelta(seconds=0.25)),
        ("2026-01-31T12:00:00.123456789Z", NOON + timedelta(microseconds=123456)),
        ("2024-02-29T00:00:00Z", datetime(2024, 2, 29, tzinfo=UTC)),
        ("2016-12-31T23:59:60Z", datetime(2016, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    ],
    ids=["usual", "lower case", "offset", "fraction", "nanoseconds", "leap day", "leap second", "Go's zero"],
)
def test_time(text: str, instant: datetime) -> None:
    """A time keeps its text and tells its instant, with timezone."""
    for kind in (Time, MicroTime):
        assert kind(text) == text
        assert kind(text).datetime == instant


@pytest.mark.parametrize(
    "text",
    [
        *("", "2026-01-31", "2026-01-31T12:00:00", "2026-01-31 12:00:00Z", "2026-13-01T00:00:00Z"),
        *("2026-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-01-31T24:00:00Z", "0000-01-01T00:00:00Z"),
    ],
)
def test_no_time(text: str) -> None:
    """What is no RFC 3339 time, or no day of the calendar, is refused."""
    with pytest.raises(ValueError, match="is not an RFC 3339 time"):
        Time(text)


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30))])))
def test_times_made_of_instants(instant: datetime) -> None:
    """An instant survives as MicroTime exactly and as Time to the second, always in UTC and of one length."""
    try:
        exact = MicroTime.of(instant)
    except OverflowError:  # the year 1 or 9999 at an offset: outside what datetime can hold in UTC
        return
    assert exact.datetime == instant
    assert len(exact) == len("2026-01-31T12:00:00.000000Z")
    second = Time.of(instant)
    assert second.datetime == instant.replace(microsecond=0)
    assert len(second) == len("2026-01-31T12:00:00Z")


@pytest.mark.parametrize("kind", [Time, MicroTime])
def test_times_need_a_timezone(kind: type[Time] | type[MicroTime]) -> None:
    """A naive datetime is refused: it would be taken for local time."""
    with pytest.raises(ValueError, match="has no timezone"):
        kind.of(datetime(2026, 1, 31))  # noqa: DTZ001 - the point
