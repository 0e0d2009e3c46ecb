"""What is found in files: where, how bad, and in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How bad a finding is, worst first."""

    ERROR = 0
    """Kubernetes or a controller refuses it."""
    WARNING = 1
    """It is taken, and is likely to do something else than its author meant."""
    INFO = 2
    """What could not be judged from the files alone."""

    @property
    def word(self) -> str:
        """As it is written in the output."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A character in a file, counted from 1; line 0 is the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Something that is wrong, or may be; ``path`` is that of the field, "" where there is none."""

    place: Place
    level: Level
    path: str
    text: str
    object: str = ""
    """Kind and name of the object it is in."""


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Each once, by file and line."""
    return sorted(set(findings))
