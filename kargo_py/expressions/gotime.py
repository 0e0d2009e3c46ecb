"""Times and durations as Go has them: nanoseconds, layouts by example, and their words."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from kargo_py.expressions.errors import Fault

SECOND: Final = 1_000_000_000
_UNITS: Final = {
    "ns": 1,
    **dict.fromkeys(("us", "\u00b5s", "\u03bcs"), 1_000),
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]+)")
_DURATION: Final = re.compile(r"[+-]?(?:0|(?:[0-9]*\.?[0-9]*[^0-9.+-]+)+)")

MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NAMED_LAYOUTS: Final = (
    "2006-01-02",
    "15:04:05",
    "2006-01-02 15:04:05",
    "2006-01-02T15:04:05Z07:00",
    "02 Jan 06 15:04 MST",
    "Monday, 02-Jan-06 15:04:05 MST",
    "Mon, 02 Jan 2006 15:04:05 MST",
)
"""What ``date`` tries when it is given no layout."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST: Final = 1000
_ZERO_YEAR: Final = -62_167_219_200
"""The first second of year 0, which Go uses where a layout has no year; Python's calendar begins a year later."""
_YEAR_4: Final = 126_230_400
"""Seconds from the beginning of year 0 to that of year 4, which has the same days."""


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A time span in nanoseconds."""

    nanoseconds: int

    def __str__(self) -> str:
        value = abs(self.nanoseconds)
        sign = "-" if self.nanoseconds < 0 else ""
        if value == 0:
            return "0s"
        if value < SECOND:
            size, unit = (1, "ns") if value < 1_000 else (1_000, "\u00b5s") if value < 1_000_000 else (1_000_000, "ms")
            return f"{sign}{_decimal(value, size)}{unit}"
        minutes, rest = divmod(value, 60 * SECOND)
        hours, minutes = divmod(minutes, 60)
        text = f"{_decimal(rest, SECOND)}s"
        if hours or minutes:
            text = f"{minutes}m{text}"
        return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


def _decimal(value: int, size: int) -> str:
    whole, rest = divmod(value, size)
    digits = str(rest).rjust(len(str(size)) - 1, "0").rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


def parse_duration(text: str) -> Duration:
    """A duration like ``1h30m``. Raises Fault."""
    if len(text) > 200 or not _DURATION.fullmatch(text):
        raise Fault("time: invalid duration {!r}", text[:200])
    sign = -1 if text.startswith("-") else 1
    rest = text.lstrip("+-")
    if rest == "0":
        return Duration(0)
    total = 0
    for whole, fraction, unit in _PART.findall(rest):
        if not whole and not fraction:
            raise Fault("time: invalid duration {!r}", text)
        if unit not in _UNITS:
            raise Fault("time: unknown unit {!r} in duration {!r}", unit, text)
        size = _UNITS[unit]
        total += int(whole or "0") * size
        if fraction:
            total += int(fraction) * size // 10 ** len(fraction)
    if total > (1 << 63) - (sign > 0):
        raise Fault("time: invalid duration {!r}", text)
    return Duration(sign * total)


@dataclass(frozen=True, slots=True)
class Named:
    """A month or a day of the week: a number with a name."""

    kind: str
    value: int
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Zone:
    """A place whose clocks are known, or a fixed offset from UTC in seconds with an abbreviation."""

    name: str
    offset: int | None = None

    def at(self, seconds: int) -> tuple[int, str]:
        """The offset and the abbreviation there, at *seconds* since 1970."""
        if self.offset is not None:
            return self.offset, self.name
        try:
            local = (_EPOCH + timedelta(seconds=seconds)).astimezone(zoneinfo.ZoneInfo(self.name))
        except OverflowError:
            return 0, "UTC"
        shift = local.utcoffset()
        return int(shift.total_seconds()) if shift else 0, local.tzname() or ""

    def __str__(self) -> str:
        return self.name


UTC_ZONE: Final = Zone("UTC", 0)


def load_zone(name: str) -> Zone:
    """The zone of that IANA name. Raises Fault."""
    if name in {"", "UTC"}:
        return UTC_ZONE
    if not re.fullmatch(r"[A-Za-z0-9_+\-]+(?:/[A-Za-z0-9_+\-]+)*", name) or name == "Local":
        raise Fault("unknown time zone {}", name[:100])
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError) as error:
        raise Fault("unknown time zone {}", name[:100]) from error
    return Zone(name)


@dataclass(frozen=True, slots=True)
class Civil:
    """A time as a clock and a calendar show it."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    nanosecond: int
    weekday: int
    """0 is Monday."""
    year_day: int
    offset: int
    zone: str


@dataclass(frozen=True, slots=True)
class Time:
    """An instant, seen from a zone."""

    nanoseconds: int
    """Since 1970."""
    zone: Zone = UTC_ZONE

    @classmethod
    def of(cls, moment: datetime) -> Time:
        """The time *moment* is, in UTC."""
        since = moment - _EPOCH
        return cls((since.days * 86_400 + since.seconds) * SECOND + since.microseconds * 1_000)

    def civil(self) -> Civil:
        """What clocks show. Raises Fault outside of the years 0 to 9999."""
        seconds, nanosecond = divmod(self.nanoseconds, SECOND)
        offset, name = self.zone.at(seconds)
        local = seconds + offset
        year_0 = _ZERO_YEAR <= local < _ZERO_YEAR + 366 * 86_400
        try:
            shown = _EPOCH + timedelta(seconds=local + (_YEAR_4 if year_0 else 0))
        except OverflowError as error:
            raise Fault("the time is outside of the years 0 to 9999") from error
        return Civil(
            year=0 if year_0 else shown.year,
            month=shown.month,
            day=shown.day,
            hour=shown.hour,
            minute=shown.minute,
            second=shown.second,
            nanosecond=nanosecond,
            # 400 years are a whole number of weeks
            weekday=date(400, shown.month, shown.day).weekday() if year_0 else shown.weekday(),
            year_day=shown.timetuple().tm_yday,
            offset=offset,
            zone=name,
        )

    def __str__(self) -> str:
        return format_time(self, "2006-01-02 15:04:05.999999999 -0700 MST")


def instant(year: int, month: int, day: int, hour: int, minute: int, second: int, nanosecond: int, zone: Zone) -> Time:
    """The instant at which the clocks of *zone* show this; parts may be out of their ranges. Raises Fault."""
    year += (month - 1) // 12
    month = (month - 1) % 12 + 1
    if not 0 <= year <= 9999 or abs(day) > 4_000_000:
        raise Fault("the time is outside of the years 0 to 9999")
    days = date(year or 4, month, 1).toordinal() - date(1970, 1, 1).toordinal() + day - 1
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second - (0 if year else _YEAR_4)
    offset = zone.at(seconds)[0]
    if offset:
        offset = zone.at(seconds - offset)[0]
    return Time((seconds - offset) * SECOND + nanosecond, zone)


_LAYOUT: Final = re.compile(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|2006|_2006|__2|_2|002|0[1-6]|15|-07:00:00|-070000|-07:00|-0700|-07"
    r"|Z07:00:00|Z070000|Z07:00|Z0700|Z07|PM|pm|[.,]0+(?![0-9])|[.,]9+(?![0-9])|[1-5]"
)


def _layout(layout: str) -> list[tuple[bool, str]]:
    """The pieces of a layout: whether each is an element, and its text."""
    pieces: list[tuple[bool, str]] = []
    end = 0
    for found in _LAYOUT.finditer(layout):
        if found.start() > end:
            pieces.append((False, layout[end : found.start()]))
        text = found[0]
        if text == "_2006":
            pieces.append((False, "_"))
            text = "2006"
        pieces.append((True, text))
        end = found.end()
    if end < len(layout):
        pieces.append((False, layout[end:]))
    return pieces


def format_time(moment: Time, layout: str) -> str:
    """*moment* in the form of *layout*, Go's example time. Raises Fault."""
    if len(layout) > _LONGEST:
        raise Fault(f"the layout has {{}} characters, at most {_LONGEST}", len(layout))
    civil = moment.civil()
    return "".join(_element(civil, text) if is_element else text for is_element, text in _layout(layout))


def _element(c: Civil, element: str) -> str:
    if element[0] in ".,":
        digits = f"{c.nanosecond:09d}"[: len(element) - 1]
        digits = digits.ljust(len(element) - 1, "0")
        if element[1] == "9":
            digits = digits.rstrip("0")
        return element[0] + digits if digits else ""
    if element[0] in "Z-" and "07" in element:
        return _offset_text(c.offset, element)
    twelve = c.hour % 12 or 12
    plain: Mapping[str, str] = {
        "January": MONTHS[c.month - 1],
        "Jan": MONTHS[c.month - 1][:3],
        "Monday": WEEKDAYS[c.weekday],
        "Mon": WEEKDAYS[c.weekday][:3],
        "MST": c.zone or _offset_text(c.offset, "-0700"),
        "2006": f"{c.year:04d}",
        "01": f"{c.month:02d}",
        "02": f"{c.day:02d}",
        "03": f"{twelve:02d}",
        "04": f"{c.minute:02d}",
        "05": f"{c.second:02d}",
        "06": f"{c.year % 100:02d}",
        "15": f"{c.hour:02d}",
        "1": str(c.month),
        "2": str(c.day),
        "3": str(twelve),
        "4": str(c.minute),
        "5": str(c.second),
        "_2": f"{c.day:2d}",
        "002": f"{c.year_day:03d}",
        "__2": f"{c.year_day:3d}",
        "PM": "AM" if c.hour < 12 else "PM",
        "pm": "am" if c.hour < 12 else "pm",
    }
    return plain[element]


def _offset_text(offset: int, element: str) -> str:
    if element[0] == "Z" and offset == 0:
        return "Z"
    sign = "-" if offset < 0 else "+"
    hours, rest = divmod(abs(offset), 3600)
    minutes, seconds = divmod(rest, 60)
    colon = ":" if ":" in element else ""
    digits = element.count("0") + element.count("7")
    text = f"{sign}{hours:02d}"
    if digits >= 4:
        text += f"{colon}{minutes:02d}"
    return f"{text}{colon}{seconds:02d}" if digits >= 6 else text


_NUMBERS: Final = {
    "2006": ("year", r"\d{4}"),
    "06": ("short_year", r"\d{2}"),
    "01": ("month", r"\d{2}"),
    "1": ("month", r"\d{1,2}"),
    "02": ("day", r" ?\d{1,2}"),
    "_2": ("day", r" ?\d{1,2}"),
    "2": ("day", r"\d{1,2}"),
    "002": ("year_day", r"\d{3}"),
    "__2": ("year_day", r" {0,2}\d{1,3}"),
    "15": ("hour", r"\d{1,2}"),
    "03": ("hour12", r"\d{1,2}"),
    "3": ("hour12", r"\d{1,2}"),
    "04": ("minute", r"\d{2}"),
    "4": ("minute", r"\d{1,2}"),
    "05": ("second", r"\d{2}"),
    "5": ("second", r"\d{1,2}"),
}
_RANGES: Final = {
    "month": (1, 12),
    "day": (1, 31),
    "year_day": (1, 366),
    "hour": (0, 23),
    "hour12": (0, 12),
    "minute": (0, 59),
    "second": (0, 59),
}


def parse_time(layout: str, text: str, zone: Zone | None = None) -> Time:
    """The time that *text* says in the form of *layout*; in *zone* where it has none itself. Raises Fault."""
    if len(text) > _LONGEST or len(layout) > _LONGEST:
        raise Fault(f"the time or its layout has more than {_LONGEST} characters")
    fields: dict[str, int] = {}
    shift: int | None = None
    abbreviation: str | None = None
    at = 0
    pieces = _layout(layout)
    for index, (is_element, piece) in enumerate(pieces):
        if not is_element:
            # Go lets blanks in a layout stand for any number of blanks
            pattern = "".join(r"\s*" if char == " " else re.escape(char) for char in piece)
            at = _match(pattern, text, at, layout).end()
        elif piece in _NUMBERS:
            name, pattern = _NUMBERS[piece]
            found = _match(pattern, text, at, layout)
            fields[name] = int(found[0])
            low, high = _RANGES.get(name, (0, 9999))
            if not low <= fields[name] <= high:
                raise Fault(f"parsing time {{!r}}: {name.replace('_', ' ')} out of range", text)
            at = found.end()
            # A fraction is taken after seconds even where the layout has none
            following = pieces[index + 1] if index + 1 < len(pieces) else (False, "")
            if name == "second" and not (following[0] and following[1][0] in ".,"):
                fraction = re.compile(r"[.,](\d+)", re.ASCII).match(text, at)
                if fraction:
                    fields["nanosecond"] = int(fraction[1][:9].ljust(9, "0"))
                    at = fraction.end()
        elif piece[0] in ".,":
            digits = len(piece) - 1
            if piece[1] == "0":
                found = _match(rf"[.,](\d{{{digits}}})", text, at, layout)
            else:
                found = _match(r"(?:[.,](\d+))?", text, at, layout)
            fields["nanosecond"] = int((found[1] or "0")[:9].ljust(9, "0"))
            at = found.end()
        elif piece in {"January", "Jan", "Monday", "Mon"}:
            names = MONTHS if piece[0] == "J" else WEEKDAYS
            words = names if len(piece) > 3 else [name[:3] for name in names]
            found = _match("(?i:" + "|".join(words) + ")", text, at, layout)
            if piece[0] == "J":
                fields["month"] = [word.lower() for word in words].index(found[0].lower()) + 1
            at = found.end()
        elif piece in {"PM", "pm"}:
            found = _match("AM|PM" if piece == "PM" else "am|pm", text, at, layout)
            fields["pm"] = int(found[0].lower() == "pm")
            at = found.end()
        elif piece == "MST":
            found = _match(r"UTC|GMT[+-]\d{1,2}|[A-Z]{3,4}T?|[+-]\d{2}", text, at, layout)
            abbreviation = found[0]
            at = found.end()
        else:
            shift, at = _parse_offset(piece, text, at, layout)
    if at < len(text):
        raise Fault("parsing time {!r}: extra text: {!r}", text, text[at:])
    return _assemble(fields, shift, abbreviation, zone, text)


def _match(pattern: str, text: str, at: int, layout: str) -> re.Match[str]:
    found = re.compile(pattern, re.ASCII).match(text, at)
    if not found:
        raise Fault("parsing time {!r} as {!r}: cannot parse {!r}", text, layout, text[at:])
    return found


def _parse_offset(piece: str, text: str, at: int, layout: str) -> tuple[int, int]:
    if piece[0] == "Z" and text[at : at + 1] == "Z":
        return 0, at + 1
    colon = ":" if ":" in piece else ""
    digits = piece.count("0") + piece.count("7")
    pattern = r"([+-])(\d{2})" + rf"{colon}(\d{{2}})" * (digits // 2 - 1)
    found = _match(pattern, text, at, layout)
    hours, minutes, seconds = (*map(int, found.groups()[1:]), 0, 0)[:3]
    if hours > 24 or minutes > 60 or seconds > 60:
        raise Fault("parsing time {!r}: time zone offset out of range", text)
    return (hours * 3600 + minutes * 60 + seconds) * (-1 if found[1] == "-" else 1), found.end()


def _assemble(
    fields: dict[str, int], shift: int | None, abbreviation: str | None, zone: Zone | None, text: str
) -> Time:
    year = fields.get("year", 0)
    if "short_year" in fields:
        year = fields["short_year"] + (1900 if fields["short_year"] >= 69 else 2000)
    month, day = fields.get("month", 1), fields.get("day", 1)
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    if "year_day" in fields:
        if fields["year_day"] > 365 + leap:
            raise Fault("parsing time {!r}: day-of-year out of range", text)
        month, day = 1, fields["year_day"]
    elif day > (29 if month == 2 and leap else (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]):
        raise Fault("parsing time {!r}: day out of range", text)
    hour = fields.get("hour", fields.get("hour12", 0))
    if fields.get("pm") == 1 and hour < 12:
        hour += 12
    elif fields.get("pm") == 0 and hour == 12:
        hour = 0
    rest = month, day, hour, fields.get("minute", 0), fields.get("second", 0), fields.get("nanosecond", 0)
    if shift is not None:
        where = UTC_ZONE if shift == 0 else Zone("", shift)
        moment = instant(year, *rest, where)
        if zone is not None and zone.at(moment.nanoseconds // SECOND)[0] == shift:
            return Time(moment.nanoseconds, zone)
        return moment
    if abbreviation is not None:
        home = zone or UTC_ZONE
        here = instant(year, *rest, home)
        if abbreviation == "UTC":
            return instant(year, *rest, UTC_ZONE)
        if home.at(here.nanoseconds // SECOND)[1] == abbreviation:
            return here
        # Go makes up a zone of that name without an offset, but for GMT+3
        hours = int(abbreviation[3:]) if len(abbreviation) > 4 and abbreviation.startswith("GMT") else 0
        return instant(year, *rest, Zone(abbreviation, hours * 3600))
    return instant(year, *rest, zone or UTC_ZONE)
