"""The wall clock, which everything that reads it takes as an argument; and how people are told what it measured."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_SHOWN = ((120, "s"), (600, "ms"), (3 * 3600, "m"), (8 * 3600, "hm"), (48 * 3600, "h"), (8 * 86400, "dh"))


def utc_now() -> datetime:
    """The time as this machine has it."""
    return datetime.now(UTC)


def in_short(lasted: timedelta) -> str:
    """*lasted* as kubectl shows ages: ``45s``, ``3m20s``, ``45m``, ``4h``, ``9d``; a negative one is ``0s``.

    Negative it is where the clock of another machine is ahead.
    """
    left = max(lasted // timedelta(seconds=1), 0)
    units = next((units for below, units in _SHOWN if left < below), "d")
    parts: list[str] = []
    for unit in units:
        number, left = divmod(left, _UNITS[unit])
        if number or not parts:
            parts.append(f"{number}{unit}")
    return "".join(parts)
