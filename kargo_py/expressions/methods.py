"""The methods that times and durations have, as Go's do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from kargo_py.expressions import gotime
from kargo_py.expressions.errors import Fault
from kargo_py.expressions.values import Function, Value, article, saturated, to_int, wrap

_Method: TypeAlias = Callable[..., Value]

_YEAR_1: Final = -62_135_596_800 * gotime.SECOND
_HOUR: Final = 3600 * gotime.SECOND


def _spoken(value: Value) -> str:
    return str(value)


def _whole(value: Value, unit: int) -> int:
    return int(math.copysign(abs(value.nanoseconds) // unit, value.nanoseconds)) if value.nanoseconds else 0


def _other(value: Value, wanted: type) -> Value:
    if type(value) is not wanted:
        raise Fault(f"cannot use {article(value)} here: a {wanted.__name__.lower()} is needed")
    return value


def _format(moment: gotime.Time, layout: Value) -> str:
    if type(layout) is not str:
        raise Fault(f"invalid argument for Format ({article(layout)})")
    return gotime.format_time(moment, layout)


def _add_date(moment: gotime.Time, years: Value, months: Value, days: Value) -> gotime.Time:
    c = moment.civil()
    year, month, day = c.year + to_int(years), c.month + to_int(months), c.day + to_int(days)
    return gotime.instant(year, month, day, c.hour, c.minute, c.second, c.nanosecond, moment.zone)


def _floor_to(moment: gotime.Time, unit: int, *, half: bool) -> gotime.Time:
    """Go counts from the year 1."""
    if unit <= 0:
        return moment
    rest = (moment.nanoseconds - _YEAR_1) % unit
    up = half and rest + rest >= unit
    return gotime.Time(moment.nanoseconds - rest + (unit if up else 0), moment.zone)


_TIME: Final[Mapping[str, _Method]] = {
    "Year": lambda t: t.civil().year,
    "Month": lambda t: gotime.Named("Month", t.civil().month, gotime.MONTHS[t.civil().month - 1]),
    "Day": lambda t: t.civil().day,
    "Hour": lambda t: t.civil().hour,
    "Minute": lambda t: t.civil().minute,
    "Second": lambda t: t.civil().second,
    "Nanosecond": lambda t: t.civil().nanosecond,
    "Weekday": lambda t: gotime.Named("Weekday", (t.civil().weekday + 1) % 7, gotime.WEEKDAYS[t.civil().weekday]),
    "YearDay": lambda t: t.civil().year_day,
    "Unix": lambda t: t.nanoseconds // gotime.SECOND,
    "UnixMilli": lambda t: t.nanoseconds // 1_000_000,
    "UnixMicro": lambda t: t.nanoseconds // 1_000,
    "UnixNano": lambda t: wrap(t.nanoseconds),
    "String": _spoken,
    "Format": _format,
    "Add": lambda t, d: gotime.Time(t.nanoseconds + _other(d, gotime.Duration).nanoseconds, t.zone),
    "Sub": lambda t, u: gotime.Duration(saturated(t.nanoseconds - _other(u, gotime.Time).nanoseconds)),
    "AddDate": _add_date,
    "After": lambda t, u: t.nanoseconds > _other(u, gotime.Time).nanoseconds,
    "Before": lambda t, u: t.nanoseconds < _other(u, gotime.Time).nanoseconds,
    "Equal": lambda t, u: t.nanoseconds == _other(u, gotime.Time).nanoseconds,
    "Compare": lambda t, u: (t.nanoseconds > _other(u, gotime.Time).nanoseconds) - (t.nanoseconds < u.nanoseconds),
    "IsZero": lambda t: t.nanoseconds == _YEAR_1,
    "UTC": lambda t: gotime.Time(t.nanoseconds),
    "In": lambda t, zone: gotime.Time(t.nanoseconds, _other(zone, gotime.Zone)),
    "Location": lambda t: t.zone,
    "Truncate": lambda t, d: _floor_to(t, _other(d, gotime.Duration).nanoseconds, half=False),
    "Round": lambda t, d: _floor_to(t, _other(d, gotime.Duration).nanoseconds, half=True),
}
_DURATION: Final[Mapping[str, _Method]] = {
    "Hours": lambda d: d.nanoseconds / _HOUR,
    "Minutes": lambda d: d.nanoseconds / (60 * gotime.SECOND),
    "Seconds": lambda d: d.nanoseconds / gotime.SECOND,
    "Milliseconds": lambda d: _whole(d, 1_000_000),
    "Microseconds": lambda d: _whole(d, 1_000),
    "Nanoseconds": lambda d: d.nanoseconds,
    "Abs": lambda d: gotime.Duration(saturated(abs(d.nanoseconds))),
    "String": _spoken,
}
METHODS: Final[Mapping[type, Mapping[str, Function]]] = {
    kind: {name: Function.of(name, run) for name, run in methods.items()}
    for kind, methods in (
        (gotime.Time, _TIME),
        (gotime.Duration, _DURATION),
        (gotime.Named, {"String": _spoken}),
        (gotime.Zone, {"String": _spoken}),
    )
}
"""What may be called on values that are no maps; nothing else of them can be reached."""
