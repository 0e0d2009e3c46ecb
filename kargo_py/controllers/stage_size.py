"""How large a Stage's status may get: what is cut, and in which order, so that it can always be written.

Pure. A Stage embeds copies of Freight, which may be large, up to a dozen times, and what Argo CD and steps say.
"""

from __future__ import annotations

from collections.abc import Callable

from kargo_py.api.freight import FreightReference
from kargo_py.api.promotion import FreightCollection
from kargo_py.api.stage import PromotionReference, StageStatus
from kargo_py.kube.codec import encode

LIMIT = 512 * 1024
"""Bytes of JSON. An API server takes about 1.5 MiB for the whole object, and people add to it, too."""

SHORT = 1024
"""Bytes that are left of a text where room is needed."""


def cut(text: str, size: int) -> str:
    """*text*, at most *size* bytes of it."""
    data = text.encode()
    return text if len(data) <= size else data[: size - 3].decode(errors="ignore") + "…"


def bounded(status: StageStatus) -> StageStatus:
    """*status*, with as much left out as is needed to stay below LIMIT, the least useful first.

    What is left out can be read elsewhere: in the Freight and in the Promotion. What other programs wrote is not
    touched.
    """
    for shorten in _CUTS:
        if len(encode(status.wire())) <= LIMIT:
            break
        status = shorten(status)
    return status


def _older_freight(status: StageStatus) -> StageStatus:
    """Of what was here before, names and origins are enough."""
    first, *older = status.freight_history
    return status.replace(freight_history=[first, *(slim(collection) for collection in older)])


def _last_promotion(status: StageStatus) -> StageStatus:
    """Of the last Promotion, how it ended."""
    last = status.last_promotion
    if last is None or last.status is None:
        return status
    names = ("phase", "message", "finishedAt", "startedAt")
    wire = {name: value for name, value in last.status.wire().items() if name in names}
    if wire.get("message"):
        wire["message"] = cut(wire["message"], SHORT)
    short = type(last.status).model_validate(wire)
    return status.replace(last_promotion=_slim_reference(last).replace(status=short))


def _texts(status: StageStatus) -> StageStatus:
    conditions = [c.replace(message=cut(c.message, SHORT)) if c.message else c for c in status.conditions]
    status = status.replace(conditions=conditions)
    if status.health is not None and status.health.issues:
        issues = [cut(issue, SHORT // 4) for issue in status.health.issues]
        status = status.replace(health=status.health.replace(issues=issues))
    return status


def _freight(status: StageStatus) -> StageStatus:
    """Names and origins of what is here."""
    if status.current_promotion is not None:
        status = status.replace(current_promotion=_slim_reference(status.current_promotion))
    return status.replace(freight_history=[slim(collection) for collection in status.freight_history])


def _history(status: StageStatus) -> StageStatus:
    return status.replace(freight_history=status.freight_history[:1])


_CUTS: tuple[Callable[[StageStatus], StageStatus], ...] = (
    lambda status: _older_freight(status) if status.freight_history else status,
    _last_promotion,
    _texts,
    _freight,
    _history,
)


def slim(collection: FreightCollection) -> FreightCollection:
    """*collection* with names and origins only, and its last verification."""
    items = {origin: slim_freight(reference) for origin, reference in collection.items.items()}
    return collection.replace(items=items, verification_history=collection.verification_history[:1])


def slim_freight(reference: FreightReference) -> FreightReference:
    """*reference* with name and origin only."""
    if reference.origin is None:
        return FreightReference(name=reference.name)
    return FreightReference(name=reference.name, origin=reference.origin)


def _slim_reference(promotion: PromotionReference) -> PromotionReference:
    return promotion.replace(freight=slim_freight(promotion.freight)) if promotion.freight is not None else promotion
