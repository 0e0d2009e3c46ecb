"""The conditions of a Promotion, for ``kubectl wait``; they say what the phase says, and no decision rests on them.

``Finished`` is True from the end on, ``Succeeded`` is Unknown until then. The reason is the phase, or why a Promotion
that has not begun cannot.
"""

from __future__ import annotations

from datetime import datetime

from kargo_py.api.meta import Condition, set_condition
from kargo_py.api.promotion import PromotionPhase, PromotionStatus

FINISHED = "Finished"
SUCCEEDED = "Succeeded"

_MAX_MESSAGE = 1024
"""Bytes of the message that are repeated; ``status.message`` has all of it."""


def with_conditions(
    status: PromotionStatus, now: datetime, generation: int, *, reason: str | None = None
) -> PromotionStatus:
    """*status* with the conditions that fit its phase; *reason* stands for that of a Promotion that waits."""
    ended = status.phase in _TERMINAL
    succeeded = str(status.phase == PromotionPhase.SUCCEEDED) if ended else "Unknown"
    conditions = status.conditions
    for kind, value in ((FINISHED, str(ended)), (SUCCEEDED, succeeded)):
        new = Condition(
            type=kind,
            status=value,
            reason=reason or status.phase or PromotionPhase.PENDING.value,
            message=status.message.encode()[:_MAX_MESSAGE].decode(errors="ignore"),
            observed_generation=generation,
        )
        conditions = set_condition(conditions, new, now)
    return status.replace(conditions=conditions)


_TERMINAL = frozenset(phase.value for phase in PromotionPhase if phase.terminal)
