"""The wall clock, which everything that reads it takes as an argument; and how people are told what it measured.

It may be set while something is waited for, by hours where a virtual machine was suspended. So a wait reads it once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_SHOWN = ((120, "s"), (600, "ms"), (3 * 3600, "m"), (8 * 3600, "hm"), (48 * 3600, "h"), (8 * 86400, "dh"))


def utc_now() -> datetime:
    """The time as this machine has it."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Steady:
    """A clock that nobody sets, for something that began at a time which is on record.

    ``began`` is that time by the wall clock, ``at`` the same moment by the event loop's clock.
    """

    began: datetime
    at: float

    @classmethod
    def since(cls, recorded: datetime, now: datetime, time: float) -> Self:
        """That of something that began at *recorded*; it is *now*, and *time* by the loop's clock.

        A process before this one may have used some of the time. How much is only what the wall clock says; less than
        nothing it was not, so what is recorded for later began now.
        """
        began = min(recorded, now)
        return cls(began, time - (now - began).total_seconds())

    def passed(self, time: float) -> timedelta:
        """How long ago it began, when it is *time* by the loop's clock."""
        return timedelta(seconds=time - self.at)

    def now(self, time: float) -> datetime:
        """What the wall clock would say if it had not been set since."""
        return self.began + self.passed(time)


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
