"""The records of an ``argocd-update`` step: put together by target, ended, and kept within bounds. Plain functions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kargo_py.argocd.application import describe
from kargo_py.argocd.operation import NOT_STARTED
from kargo_py.deployers.base import Record, TargetState, footprint
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

LEFT_TO_RUN = message(
    "{app}: the sync was left to run",
    do="Argo CD goes on with it, and nobody waits for its end. Look at the Application, or set `onTimeout: "
    "terminate` to have it ended.",
    shown=Shown.PROMOTION,
)
LEFT_AS_IT_WAS = message(
    "{message}; it was left as it is",
    do="The end of the sync was not waited for any longer, since the abort was forced or took too long. Look at the "
    "Application.",
    shown=Shown.PROMOTION,
)
MAY_BE_STARTED = message(
    "{app}: the sync may have been started, or may be yet, which could not be found out: {why}",
    do="A start was sent and not answered, and Argo CD's API server could not be asked again before the step had to "
    "end. Look at the operation of the Application, and terminate what should not run.",
    shown=Shown.PROMOTION,
)
_NOTHING = {TargetState.FAILED, TargetState.LOST, TargetState.REFUSED, TargetState.WRONG_REVISION}
_ALL_MESSAGES = 16 * 1024
_LEAST_MESSAGE = 200
_LATER = 600
"""Bytes by which a record grows until its end at most, mirror, output and health check included, its message not."""


def by_target(records: Sequence[Record]) -> list[list[Record]]:
    """The attempts on each target, oldest first, in the order in which the targets were first named."""
    grouped: dict[Key, list[Record]] = {}
    for record in records:
        grouped.setdefault(record.key, []).append(record)
    return [sorted(attempts, key=lambda record: record.attempt) for attempts in grouped.values()]


def latest(records: Sequence[Record]) -> list[Record]:
    """The last attempt on each target."""
    return [attempts[-1] for attempts in by_target(records)]


def to_be_ended(records: Sequence[Record], errors: int) -> list[Record]:
    """Those that were asked to end; not those of which that has been counted among the *errors* of the step."""
    asked = [record for record in records if record.stopping_since]
    return [record for record in asked if not record.state.final or record.after_errors >= errors]


def came_to_nothing(record: Record) -> bool:
    """Whether the attempt has ended badly, and certainly: nothing of it runs, and nothing was deployed in full."""
    if record.state in {TargetState.STOPPED, TargetState.NOT_STARTED}:
        # Another target had failed; an abort ends the step itself.
        return record.stopping_since is not None
    return record.state in _NOTHING


def changes(records: Sequence[Record]) -> list[Record]:
    """The latest attempt on each target, with all that the attempts have changed; the latest former value counts."""
    merged = []
    for attempts in by_target(records):
        begun = [record for record in attempts if record.state not in {TargetState.NOT_STARTED, TargetState.REFUSED}]
        before = {field.pointer: field for record in begun for field in record.before}
        merged.append(msgspec.structs.replace(attempts[-1], before=tuple(before.values())))
    return merged


def refused(record: Record, error: Exception) -> Record:
    """*record* as the end of what could not be started any more."""
    return record.ended(TargetState.REFUSED, str(error))


def left(record: Record, present: bool, message: str = "") -> Record:
    """*record* as it is when nobody waits for it any longer."""
    if record.state.final:
        return record
    if not present:
        return record.ended(TargetState.NOT_STARTED, NOT_STARTED(app=describe(record.key)))
    said = LEFT_AS_IT_WAS(message=message) if message else LEFT_TO_RUN(app=describe(record.key))
    return record.ended(TargetState.DETACHED, said)


def in_doubt(record: Record, why: object) -> Record:
    """*record* as it is when it ends before it is known whether a start that was sent lands."""
    return record.ended(TargetState.DETACHED, MAY_BE_STARTED(app=describe(record.key), why=why))


def pointers(record: Record) -> str:
    """The fields that the start changes."""
    return ", ".join(field.pointer for field in record.before)


def bounded(record: Record, among: int) -> Record:
    """*record* with its share of the room that the messages of one step may take: an object has 1.5 MiB in all."""
    room = max(_LEAST_MESSAGE, _ALL_MESSAGES // among)
    if len(record.message.encode()) <= room:
        return record
    return record.ended(record.state, record.message.encode()[: room - 3].decode(errors="ignore") + "…")


def extent(records: Sequence[Record]) -> int:
    """Bytes that *records* will have taken in the Promotion once all have ended."""
    messages = max(_ALL_MESSAGES, _LEAST_MESSAGE * len(records))
    # Each stands in the record and in its mirror.
    return footprint(records) + 2 * messages + _LATER * len(records)


LEAST_EXTENT = 1300
"""Less than what any record comes to: a first estimate, where there may be thousands."""
