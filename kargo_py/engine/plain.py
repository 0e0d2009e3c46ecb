"""Whether a value that somebody wrote is JSON of a size that can be handled; what is not, is found without copying it.

YAML can say what JSON cannot, and aliases make a few lines into millions of values, so a value is walked with a budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kargo_py.engine.problems import Path
from kargo_py.messages import Shown, message

NOT_FINITE = message(
    "{value} is no number of JSON",
    do="YAML takes `.nan` and `.inf` for numbers, and JSON has none like them. Put it in quotes if a text is meant.",
    shown=Shown.PROMOTION | Shown.STAGE,
)
KEY_NOT_A_STRING = message(
    "the name {key} must be a string, in quotes",
    do='YAML takes names like `1` or `true` without quotes for something else. Write `"1"`.',
    shown=Shown.PROMOTION | Shown.STAGE,
)
NOT_JSON = message(
    "a {type} is no value of JSON",
    do="YAML takes `2026-01-31` without quotes for a date. Put it in quotes.",
    shown=Shown.PROMOTION | Shown.STAGE,
)
TOO_DEEP = message(
    "nests more than {most} deep",
    do="Make it flatter, or pass it as a text with JSON in it.",
    shown=Shown.PROMOTION | Shown.STAGE,
)
TOO_MANY_VALUES = message(
    "has more than {most} values, those behind aliases counted each time",
    do="A few YAML aliases within each other can stand for millions of values. Write what is meant, without them.",
    shown=Shown.PROMOTION | Shown.STAGE,
)
TOO_LARGE = message(
    "takes more than the {most} that a Promotion should not exceed",
    do="A Promotion is one object, and must leave room for its status. Keep long texts in files or ConfigMaps, or "
    "spread the steps over several Stages.",
    shown=Shown.PROMOTION | Shown.STAGE,
)

MAX_DEPTH: Final = 100
"""How deep a value may nest; expressions have the same limit."""
MAX_VALUES: Final = 100_000
"""Values in one; expressions have the same limit."""
_MOST_FAULTS: Final = 20


@dataclass(slots=True)
class Look:
    """What was seen of a value."""

    size: int = 0
    """About as many bytes as it takes as JSON; less if the look was broken off."""
    values: int = 0
    """How many values are in it, itself too."""
    faults: list[tuple[Path, str]] = field(default_factory=list)


def look_at(value: Any, most_bytes: int) -> Look:
    """Look at all of *value*, or until it is too much."""
    look = Look()
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting and len(look.faults) < _MOST_FAULTS:
        path, one = waiting.pop()
        look.values += 1
        if len(path) > MAX_DEPTH:
            look.faults.append((path[:-1], TOO_DEEP(most=MAX_DEPTH)))
            return look
        # First what most values are: that they are no Mapping takes longer to find than all the rest
        scalar = one is None or isinstance(one, str | int | float | bytes)
        within = len(one) if not scalar and isinstance(one, Mapping | Sequence) else 0
        if look.values + len(waiting) + within > MAX_VALUES:
            look.faults.append((path[:1], TOO_MANY_VALUES(most=MAX_VALUES)))
            return look
        _see(one, path, look, waiting)
        if look.size > most_bytes:
            # Of one long text its own place is more telling than the whole
            where = path if isinstance(one, str) and len(one) > most_bytes // 2 else path[:1]
            look.faults.append((where, TOO_LARGE(most=kibibytes(most_bytes))))
            return look
    return look


def _see(one: Any, path: Path, look: Look, waiting: list[tuple[Path, Any]]) -> None:
    """Take *one* into account, and put what is in it before the others."""
    look.size += 2
    if isinstance(one, str):
        look.size += len(one)
    elif isinstance(one, int):
        look.size += one.bit_length() // 3
    elif isinstance(one, Mapping):
        for key in one:
            if isinstance(key, str):
                look.size += len(key) + 4
            else:
                look.faults.append((path, KEY_NOT_A_STRING(key=_named(key))))
        waiting.extend(((*path, key), one[key]) for key in reversed(one) if isinstance(key, str))
    elif isinstance(one, Sequence) and not isinstance(one, bytes | bytearray):
        waiting.extend(((*path, index), one[index]) for index in range(len(one) - 1, -1, -1))
    elif isinstance(one, float) and not math.isfinite(one):
        look.faults.append((path, NOT_FINITE(value=one)))
    elif one is not None and not isinstance(one, float):
        look.faults.append((path, NOT_JSON(type=type(one).__name__)))


def _named(key: object) -> str:
    """A key that is none, without writing out what may be long."""
    short = key is None or isinstance(key, bool | float) or (isinstance(key, int) and key.bit_length() <= 64)
    return repr(key) if short else type(key).__name__


def kibibytes(size: int) -> str:
    """*size* in bytes as people read it."""
    return f"{size / (1 << 20):.1f} MiB" if size >= 1 << 20 else f"{size / 1024:.4g} KiB"
