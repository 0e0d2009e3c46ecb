"""What a call of a step has made of a status, put onto one that somebody else has written meanwhile. Plain functions.

The call has been made, and what came of it is known: it is not made again because its end could not be written.
"""

from __future__ import annotations

from typing import Any, Final

from kargo_py.api.promotion import Promotion, PromotionStatus
from kargo_py.engine.machine import CurrentStep, current_step

_ABSENT: Final = object()


def rebased(before: PromotionStatus, after: PromotionStatus, found: Promotion) -> PromotionStatus | None:
    """The status of *found* with what has made *after* of *before*; None if *found* is not at that step any more.

    What both have changed is as in *after*.
    """
    if before.wire() == found.status.wire():
        return after
    mine = _running(found.replace(status=before))
    theirs = _running(found)
    if not found.running or mine is None or theirs is None or mine.index != theirs.index:
        return None
    return PromotionStatus.model_validate(_merged(before.wire(), after.wire(), found.status.wire()))


def _running(promotion: Promotion) -> CurrentStep | None:
    current = current_step(promotion)
    return current if current is not None and current.started else None


def _merged(before: Any, after: Any, found: Any) -> Any:
    """Three-way merge of JSON: members of objects and items of lists each for themselves."""
    if after == before:
        return found
    if isinstance(after, dict) and isinstance(found, dict):
        known = before if isinstance(before, dict) else {}
        members = {
            name: _merged(known.get(name, _ABSENT), after.get(name, _ABSENT), found.get(name, _ABSENT))
            for name in [*found, *(name for name in after if name not in found)]
        }
        return {name: value for name, value in members.items() if value is not _ABSENT}
    if isinstance(after, list) and isinstance(found, list):
        base = before if isinstance(before, list) else []
        items = [
            _merged(_item(base, index), _item(after, index), _item(found, index))
            for index in range(max(len(after), len(found)))
        ]
        return [item for item in items if item is not _ABSENT]
    return after


def _item(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else _ABSENT
