"""What a Promotion's status holds of its steps' work: recorded intents, what is awaited, outputs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kargo_py.api.promotion import OperationRecord, Promotion, PromotionStatus
from kargo_py.api.stamp import AWAITED_KEY, STATE_KEY
from kargo_py.deployers.argocd_records import KIND as OPERATION
from kargo_py.deployers.base import Awaited, Record, RecordError, read_awaited, read_records


def records_of(status: PromotionStatus, alias: str | None = None) -> tuple[Record, ...]:
    """The recorded intents, of one step or of all; raises RecordError."""
    state = status.state if isinstance(status.state, dict) else {}
    records = read_records(state.get(STATE_KEY))
    return tuple(r for r in records if alias is None or r.step == alias)


def readable_records(promotion: Promotion) -> tuple[Record, ...]:
    """All recorded intents; none where they cannot be read. For telling, not for deciding."""
    try:
        return records_of(promotion.status)
    except RecordError:
        return ()


def operations_of(promotion: Promotion) -> list[Record]:
    """Those recorded intents that are of operations: not of what a step only waits for. For telling, as above."""
    return [record for record in readable_records(promotion) if record.kind == OPERATION]


def newly_ended(before: Promotion, after: Promotion) -> list[Record]:
    """The operations of which *after* says how they ended and *before* does not."""
    known = {(record.key, record.stamp) for record in operations_of(before) if record.state.final}
    return [r for r in operations_of(after) if r.state.final and (r.key, r.stamp) not in known]


def with_records(status: PromotionStatus, alias: str, records: Sequence[Record]) -> PromotionStatus:
    """*status* with *records* as those of the step *alias*."""
    others = [r for r in records_of(status) if r.step != alias]
    every = [*others, *records]
    if not every:
        return status
    state = dict(status.state) if isinstance(status.state, dict) else {}
    return status.replace(
        state={**state, STATE_KEY: [r.wire() for r in every]},
        operations=[OperationRecord.model_validate(r.mirror()) for r in every],
    )


def awaited_of(status: PromotionStatus, alias: str) -> tuple[Awaited, ...]:
    """What the step *alias* is recorded to wait for until it is made."""
    state = status.state if isinstance(status.state, dict) else {}
    return tuple(a for a in read_awaited(state.get(AWAITED_KEY)) if a.step == alias)


def with_awaited(status: PromotionStatus, awaited: Sequence[Awaited]) -> PromotionStatus:
    """*status* with what the running step waits for; that of other steps, which have ended, is of no interest."""
    state = dict(status.state) if isinstance(status.state, dict) else {}
    if not awaited and AWAITED_KEY not in state:
        return status
    state.pop(AWAITED_KEY, None)
    if awaited:
        state[AWAITED_KEY] = [a.wire() for a in awaited]
    return status.replace(state=state)
