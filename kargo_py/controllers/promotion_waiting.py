"""What of a wait is written into the Promotion, and how soon: little, and bad news first. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kargo_py.api.promotion import Promotion, PromotionStatus
from kargo_py.deployers.base import Record, TargetState
from kargo_py.engine.machine import with_message, with_refresh
from kargo_py.engine.records import with_records
from kargo_py.steps.base import Waiting

COALESCE = 1.0
"""Seconds for which endings of some targets, or the reason of a wait, are gathered before they are written.

Of many targets it is up to :data:`_COALESCE_MANY` times that long: each write has the records of all of them.
"""

MANY = 20
"""Targets from which on a Promotion is looked at, and written, less often."""

_COALESCE_MANY = 5


def status_of_wait(
    promotion: Promotion, alias: str, known: Sequence[Record], outcome: Waiting
) -> PromotionStatus | None:
    """The status that says what *outcome* tells of the wait of step *alias*; None if it says so already.

    *known*: the step's records in *promotion*.
    """
    status = with_records(promotion.status, alias, outcome.records) if _tells(known, outcome) else None
    message = outcome.message if outcome.notable else ""
    shown = promotion.status.step_execution_metadata[-1].message
    if message != shown and (message or shown):
        status = with_message(status or promotion.status, message)
    if with_refresh(promotion) is not promotion:
        status = status or promotion.status
    return status


def gather_time(targets: int) -> float:
    """Seconds for which news of a wait for so many targets are gathered."""
    return COALESCE * min(max(targets / MANY, 1), _COALESCE_MANY)


def is_urgent(known: Sequence[Record], outcome: Waiting) -> bool:
    """True for the first bad end, and when work was asked to end: what follows must not be taken for its own doing."""
    spoilt = any(_is_bad_end(old) for old in known)
    return any(
        (_is_bad_end(new) and not old.state.final and not spoilt) or new.stopping_since != old.stopping_since
        for old, new in zip(known, outcome.records, strict=True)
    )


def _tells(known: Sequence[Record], outcome: Waiting) -> bool:
    """True if the records say something worth a write: an end, or since when something counts."""
    return any(
        (new.state.final and not old.state.final)
        or (new.free_since, new.stopping_since) != (old.free_since, old.stopping_since)
        or (new.looked, new.seen_health) != (old.looked, old.seen_health)
        for old, new in zip(known, outcome.records, strict=True)
    )


def _is_bad_end(record: Record) -> bool:
    return record.state.final and record.state is not TargetState.SUCCEEDED
