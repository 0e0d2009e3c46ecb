"""Promotions and Stages as rows of a table: what, where, which Freight, how it stands, since when, and why.

Pure, and made for objects in any state: what does not have the form it should is shown as if it were absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kargo_py.api.names import ANNOTATION_ABORT, ANNOTATION_CREATE_ACTOR, LABEL_ALIAS, LABEL_SHARD
from kargo_py.api.promotion import PromotionPhase, StepStatus, phase_of, queue_order
from kargo_py.api.types import JsonObject
from kargo_py.kube.clock import in_short
from kargo_py.messages import Shown, message

WAITS_FOR_STAGE = message(
    "{position} of {count} in the queue",
    do="Only one Promotion runs on a Stage at a time. `kargo-py why promotion NAME` says behind which it waits.",
    shown=Shown.ANSWER,
)
TO_BE_ABORTED = message(
    "to be aborted",
    do="The annotation `kargo.akuity.io/abort` is there; the Promotion becomes `Aborted` by itself.",
    shown=Shown.ANSWER,
)
DELETED = message(
    "it was deleted",
    do="With `--watch`: the object is gone.",
    shown=Shown.ANSWER,
)

_ENDED: Final = frozenset(phase.value for phase in PromotionPhase if phase.terminal)
_SHA = re.compile(r"[0-9a-f]{40}")
_APPLICATION = re.compile(r'Argo CD Application "([^"]*)" in namespace "[^"]*"')
_SHORT = 7
_WIDTH_OF_WHY: Final = 80
_NONE: Final = "-"

Row = tuple[str, ...]
"""The cells, in the order of the columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column; ``wide``: shown with ``-o wide`` only. ``moves``: time alone changes it."""

    title: str
    wide: bool = False
    moves: bool = False


PROMOTION_COLUMNS: Final = (
    Column("NAME"),
    Column("STAGE"),
    Column("FREIGHT"),
    Column("PHASE"),
    Column("SINCE", moves=True),
    Column("STEP", wide=True),
    Column("SHARD", wide=True),
    Column("CREATED-BY", wide=True),
    Column("AGE", wide=True, moves=True),
    Column("WHY"),
)
STAGE_COLUMNS: Final = (
    Column("NAME"),
    Column("FREIGHT"),
    Column("HEALTH"),
    Column("READY"),
    Column("SINCE", moves=True),
    Column("PROMOTION"),
    Column("SHARD", wide=True),
    Column("LAST-PROMOTION", wide=True),
    Column("AGE", wide=True, moves=True),
    Column("WHY"),
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a row needs beside its object: aliases of Freight and places in queues, by namespace and name."""

    aliases: Mapping[tuple[str, str], str]
    places: Mapping[tuple[str, str], tuple[int, int]]


def at(raw: Any, *path: str | int) -> Any:
    """What stands in *raw* at *path*; None if there is no such place."""
    for step in path:
        if isinstance(step, str):
            raw = raw.get(step) if isinstance(raw, dict) else None
        else:
            raw = raw[step] if isinstance(raw, list) and -len(raw) <= step < len(raw) else None
    return raw


def text(raw: Any, *path: str | int) -> str:
    """The text that stands in *raw* at *path* in one line of printable characters, "" if there is none."""
    found = at(raw, *path)
    return plain(found) if isinstance(found, str) else ""


def plain(words: str) -> str:
    """*words* in one line and without what would move a terminal's cursor."""
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())


def identity(raw: JsonObject) -> tuple[str, str]:
    """Namespace and name."""
    return text(raw, "metadata", "namespace"), text(raw, "metadata", "name")


def aliases(freights: Iterable[JsonObject]) -> dict[tuple[str, str], str]:
    """What people call Freight, where they call it anything."""
    named = {identity(f): text(f, "alias") or text(f, "metadata", "labels", LABEL_ALIAS) for f in freights}
    return {key: alias for key, alias in named.items() if alias}


def since(raw: JsonObject) -> str:
    """Since when a Promotion is in its phase."""
    match phase_of(raw):
        case PromotionPhase.PENDING:
            return text(raw, "metadata", "creationTimestamp")
        case PromotionPhase.RUNNING:
            return text(raw, "status", "startedAt")
        case _:
            return text(raw, "status", "finishedAt")


def promotion_row(raw: JsonObject, near: Surroundings, now: datetime) -> Row:
    """The cells of a Promotion."""
    namespace, name = identity(raw)
    number, steps = at(raw, "status", "currentStep"), at(raw, "spec", "steps")
    count = len(steps) if isinstance(steps, list) else 0
    step = (
        f"{number + 1}/{count}"
        if isinstance(number, int) and count and phase_of(raw) == PromotionPhase.RUNNING
        else f"{_NONE}/{count}"
    )
    return (
        name,
        text(raw, "spec", "stage") or _NONE,
        _freight(text(raw, "spec", "freight") or text(raw, "status", "freight", "name"), namespace, near),
        plain(phase_of(raw)),
        age(since(raw), now),
        step,
        text(raw, "metadata", "labels", LABEL_SHARD) or _NONE,
        text(raw, "metadata", "annotations", ANNOTATION_CREATE_ACTOR) or _NONE,
        age(text(raw, "metadata", "creationTimestamp"), now),
        _why_promotion(raw, near),
    )


def _why_promotion(raw: JsonObject, near: Surroundings) -> str:
    place = near.places.get(identity(raw))
    if said := text(raw, "status", "message"):
        return said
    last = ("status", "stepExecutionMetadata", -1)
    runs = phase_of(raw) == PromotionPhase.RUNNING and text(raw, *last, "status") == StepStatus.RUNNING
    said = text(raw, *last, "message") if runs else ""
    if phase_of(raw) not in _ENDED and not said and text(raw, "metadata", "annotations", ANNOTATION_ABORT):
        return TO_BE_ABORTED()
    if place is not None and phase_of(raw) == PromotionPhase.PENDING:
        return WAITS_FOR_STAGE(position=place[0], count=place[1])
    return said


def stage_row(raw: JsonObject, near: Surroundings, now: datetime) -> Row:
    """The cells of a Stage."""
    namespace, name = identity(raw)
    items = at(raw, "status", "freightHistory", 0, "items")
    here = [text(item, "name") for item in items.values()] if isinstance(items, dict) else []
    conditions = at(raw, "status", "conditions")
    ready = next((c for c in conditions if text(c, "type") == "Ready"), None) if isinstance(conditions, list) else None
    is_ready = text(ready, "status")
    return (
        name,
        ",".join(_freight(freight, namespace, near) for freight in here) or _NONE,
        text(raw, "status", "health", "status") or _NONE,
        is_ready or _NONE,
        age(text(ready, "lastTransitionTime"), now),
        text(raw, "status", "currentPromotion", "name") or _NONE,
        text(raw, "metadata", "labels", LABEL_SHARD) or text(raw, "spec", "shard") or _NONE,
        text(raw, "status", "lastPromotion", "name") or _NONE,
        age(text(raw, "metadata", "creationTimestamp"), now),
        "" if is_ready == "True" else text(ready, "message"),
    )


def _freight(name: str, namespace: str, near: Surroundings) -> str:
    if not name:
        return _NONE
    return near.aliases.get((namespace, name)) or (name[:_SHORT] if _SHA.fullmatch(name) else name)


def age(instant: str, now: datetime) -> str:
    """How long ago *instant* was; ``-`` for none, ``?`` for what is no time."""
    if not instant:
        return _NONE
    try:
        then = datetime.fromisoformat(instant)
        return in_short(now - then)
    except (ValueError, TypeError, OverflowError):
        return "?"


def places(promotions: Iterable[JsonObject]) -> dict[tuple[str, str], tuple[int, int]]:
    """The place of each Promotion that waits, and how many wait for its Stage."""
    waiting: dict[tuple[str, str], list[JsonObject]] = {}
    for raw in promotions:
        if phase_of(raw) == PromotionPhase.PENDING and not at(raw, "metadata", "deletionTimestamp"):
            waiting.setdefault((identity(raw)[0], text(raw, "spec", "stage")), []).append(raw)
    return {
        identity(raw): (position, len(queue))
        for queue in waiting.values()
        for position, raw in enumerate(sorted(queue, key=_turn), 1)
    }


def _turn(promotion: JsonObject) -> tuple[str, str, str]:
    return queue_order(identity(promotion)[1], text(promotion, "metadata", "creationTimestamp"))


def shown(columns: Sequence[Column], row: Row, *, wide: bool) -> list[str]:
    """The cells of *row* that are shown; the reason is shortened unless it is asked for at any width."""
    cells = [cell for column, cell in zip(columns, row, strict=True) if wide or not column.wide]
    if not wide:
        why = _APPLICATION.sub(r"\1", cells[-1])
        cells[-1] = why if len(why) <= _WIDTH_OF_WHY else f"{why[: _WIDTH_OF_WHY - 1]}…"
    return cells


def aspect(columns: Sequence[Column], row: Row) -> Row:
    """What of *row* is news when it changes."""
    return tuple(cell for column, cell in zip(columns, row, strict=True) if not column.moves)
