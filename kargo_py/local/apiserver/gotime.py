"""Times as Go reads and writes them in JSON: RFC 3339 in seconds (``Time``) or microseconds (``MicroTime``).

A time is text in objects; these functions bring it into the form in which Kubernetes stores it, or say what is wrong
in the words of Go's ``time.Parse``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

SECONDS: Final = "2006-01-02T15:04:05Z07:00"
MICROSECONDS: Final = "2006-01-02T15:04:05.000000Z07:00"

# All days but that of leap years.
DAY: Final = (
    r"[1-9]\d{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
)
_canonical = re.compile(rf"{DAY}T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{{6}})?Z", re.ASCII).fullmatch
_digits = re.compile(r"\d+", re.ASCII)
_offset = re.compile(r"[+-]\d\d:\d\d", re.ASCII)
_ZERO: Final = datetime(1, 1, 1, tzinfo=UTC)
_FIELDS: Final = (
    ("2006", 4, "year", 0, 9999),
    ("-", 0, "", 0, 0),
    ("01", 2, "month", 1, 12),
    ("-", 0, "", 0, 0),
    ("02", 2, "day", 1, 31),
    ("T", 0, "", 0, 0),
    ("15", 2, "hour", 0, 23),
    (":", 0, "", 0, 0),
    ("04", 2, "minute", 0, 59),
    (":", 0, "", 0, 0),
    ("05", 2, "second", 0, 59),
)


class TimeError(ValueError):
    """The text is no such time; the message is Go's."""


def time(text: str) -> str | None:
    """A ``Time`` as it is stored, None for the zero time. Raises TimeError."""
    match = _canonical(text)
    if match and match[1] is None:
        return text
    moment = parse(text, SECONDS)
    return None if moment == _ZERO else moment.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def micro_time(text: str) -> str | None:
    """A ``MicroTime`` as it is stored, None for the zero time. Raises TimeError."""
    match = _canonical(text)
    if match and match[1]:
        return text
    moment = parse(text, MICROSECONDS)
    return None if moment == _ZERO else moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def parse(text: str, layout: str = SECONDS) -> datetime:
    """The moment in UTC that *text* is. Raises TimeError."""
    match = _canonical(text)
    if match and (match[1] is not None) is (layout == MICROSECONDS):
        return datetime.fromisoformat(text)
    try:
        return _moment(text, layout)
    except _Mismatch as wrong:
        head = f"parsing time {_quoted(text)}"
        if wrong.layout is None:
            raise TimeError(f"{head}: {wrong.rest}") from None
        raise TimeError(
            f"{head} as {_quoted(layout)}: cannot parse {_quoted(wrong.rest)} as {_quoted(wrong.layout)}"
        ) from None


class _Mismatch(Exception):
    def __init__(self, rest: str, layout: str | None = None) -> None:
        super().__init__(rest)
        self.rest = rest
        self.layout = layout


def _moment(text: str, layout: str) -> datetime:
    values: list[int] = []
    rest = text
    for chunk, width, name, low, high in _FIELDS:
        rest, value = _read(rest, chunk, width)
        if not width:
            continue
        if not low <= value <= high:
            raise _Mismatch(f"{name} out of range")
        values.append(value)
    rest, microseconds = _fraction(rest, exact=layout == MICROSECONDS)
    offset = _zone(rest)
    year, month, day, hour, minute, second = values
    try:
        local = datetime(year or 1, month, day, hour, minute, second, microseconds, tzinfo=UTC)
    except ValueError:
        raise _Mismatch("day out of range") from None
    try:
        return local - offset
    except OverflowError:
        return _ZERO


def _read(rest: str, chunk: str, width: int) -> tuple[str, int]:
    if not width:
        if not rest.startswith(chunk):
            raise _Mismatch(rest, chunk)
        return rest[1:], 0
    digits = _digits.match(rest[:width])
    if not digits or len(digits[0]) < width:
        raise _Mismatch(rest, chunk)
    return rest[width:], int(digits[0])


def _fraction(rest: str, *, exact: bool) -> tuple[str, int]:
    digits = _digits.match(rest, 1) if rest[:1] in {".", ","} else None
    if exact:
        if not digits or len(digits[0]) < 6:
            raise _Mismatch(rest, ".000000")
        return rest[7:], int(digits[0][:6])
    if not digits:
        return rest, 0
    return rest[digits.end() :], int(digits[0][:6].ljust(6, "0"))


def _zone(rest: str) -> timedelta:
    if rest[:1] == "Z":
        end, offset = 1, timedelta()
    else:
        match = _offset.match(rest)
        if not match:
            raise _Mismatch(rest, "Z07:00")
        hours, minutes = int(rest[1:3]), int(rest[4:6])
        if hours > 24:
            raise _Mismatch("time zone offset hour out of range")
        if minutes > 60:
            raise _Mismatch("time zone offset minute out of range")
        end, offset = 6, timedelta(hours=hours, minutes=minutes) * (-1 if rest[0] == "-" else 1)
    if rest[end:]:
        raise _Mismatch(f"extra text: {_quoted(rest[end:])}")
    return offset


def _quoted(text: str) -> str:
    return f'"{"".join(_escaped(text))}"'


def _escaped(text: str) -> Iterator[str]:
    for character in text:
        if character in '"\\':
            yield f"\\{character}"
        elif character < " " or character >= "\x7f":
            yield "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogatepass"))
        else:
            yield character
