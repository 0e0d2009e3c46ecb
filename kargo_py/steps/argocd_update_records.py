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
_ALL_MESSAGES = 64 * 1024
_LEAST_MESSAGE = 200
_LATER = 2 * _LEAST_MESSAGE + 600
"""Bytes by which a record grows until its end at most, mirror, output and health check included; longer messages have
room of their own."""


def by_target(records: Sequence[Record]) -> list[list[Record]]:
    """The attempts on each target, oldest first, in the order in which the targets were first named."""
    grouped: dict[Key, list[Record]] = {}
    for record in records:
        grouped.setdefault(record.key, []).append(record)
    return [sorted(attempts, key=lambda record: record.attempt) for attempts in grouped.values()]


def latest(records: Sequence[Record]) -> list[Record]:
    """The last attempt on each target."""
    return [attempts[-1] for attempts in by_target(records)]


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
    return footprint(records) + _LATER * len(records)


LEAST_EXTENT = 1536
"""What the record of the plainest target comes to, about; for a first estimate."""
