"""Which Freight a Promotion with ``spec.origin`` means: the newest its Stage may take, or what is upstream. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from kargo_py.api.freight import Freight, FreightOrigin
from kargo_py.api.stage import FreightRequest, Stage
from kargo_py.controllers.availability import unavailable
from kargo_py.messages import Shown, message
from kargo_py.steps.base import first_few

NO_CANDIDATE = message(
    'no Freight from {origin} may be promoted to Stage "{stage}" now: {why}',
    do="What follows says of each piece of Freight why not, the newest first. Create a new Promotion once one may.",
    shown=Shown.PROMOTION,
)
THERE_IS_NONE = message(
    "there is none",
    do="Nothing has come from that origin yet. Create a new Promotion once there is Freight.",
    shown=Shown.PROMOTION,
)
ORIGIN_NOT_REQUESTED = message(
    'Stage "{stage}" does not request Freight from {origin} (it requests {requested})',
    do="Correct `spec.origin` in a new Promotion, or add the origin to `spec.requestedFreight` of the Stage.",
    shown=Shown.PROMOTION,
)
UPSTREAM_HAS_NONE = message(
    'Stage "{upstream}" has no Freight from {origin}, and Stage "{stage}" takes what is there',
    do="The Stage has the selection policy `MatchUpstream`. Promote to the upstream Stage first, or name the Freight "
    "in `spec.freight` of a new Promotion.",
    shown=Shown.PROMOTION,
)
UPSTREAM_GONE = message(
    'Freight "{freight}", which is in Stage "{upstream}", does not exist any more',
    do="The Stage has the selection policy `MatchUpstream`, and the Freight upstream was deleted. Name other Freight "
    "in `spec.freight` of a new Promotion.",
    shown=Shown.PROMOTION,
)
NOT_ONE_UPSTREAM = message(
    'Stage "{stage}" has the selection policy MatchUpstream for {origin}, for which there must be exactly one upstream '
    "Stage and no direct source",
    do="Correct `sources` of that origin in `spec.requestedFreight` of the Stage, then create a new Promotion.",
    shown=Shown.PROMOTION,
)

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


def upstream_of(stage: Stage, origin: FreightOrigin) -> str | None:
    """The name of the Stage whose Freight is to be taken, None where the newest is."""
    request = stage.origins.get(str(origin))
    return request.sources.stages[0] if request is not None and _follows(request) and _has_one(request) else None


def freight_in(upstream: Stage | None, origin: FreightOrigin) -> str | None:
    """The name of the Freight of *origin* that *upstream* has now; None if it has none."""
    collection = upstream.current_freight if upstream is not None else None
    there = collection.items.get(str(origin)) if collection is not None else None
    return there.name if there is not None else None


def candidate(
    stage: Stage, origin: FreightOrigin, freights: Iterable[Freight], upstream: Stage | None, now: datetime
) -> Freight | str:
    """The Freight that a Promotion of *origin* to *stage* is of, or why there is none.

    *upstream* is the Stage of :func:`upstream_of`, where it exists.
    """
    request = stage.origins.get(str(origin))
    if request is None:
        requested = ", ".join(stage.origins) or "nothing"
        return ORIGIN_NOT_REQUESTED(stage=stage.name, origin=origin, requested=requested)
    if not _follows(request):
        return _newest(stage, origin, freights, now)
    if not _has_one(request):
        return NOT_ONE_UPSTREAM(stage=stage.name, origin=origin)
    return _matching(stage, origin, freights, request.sources.stages[0], upstream, now)


def _newest(stage: Stage, origin: FreightOrigin, freights: Iterable[Freight], now: datetime) -> Freight | str:
    reasons: list[str] = []
    for freight in sorted((f for f in freights if str(f.origin) == str(origin)), key=discovery, reverse=True):
        why = unavailable(stage, freight, now)
        if why is None:
            return freight
        reasons.append(why)
    return NO_CANDIDATE(origin=origin, stage=stage.name, why=first_few(reasons) if reasons else THERE_IS_NONE())


def _matching(
    stage: Stage, origin: FreightOrigin, freights: Iterable[Freight], name: str, upstream: Stage | None, now: datetime
) -> Freight | str:
    """What the Stage upstream has, if it may be taken."""
    there = freight_in(upstream, origin)
    if there is None:
        return UPSTREAM_HAS_NONE(upstream=name, origin=origin, stage=stage.name)
    freight = next((each for each in freights if each.name == there), None)
    if freight is None:
        return UPSTREAM_GONE(freight=there, upstream=name)
    why = unavailable(stage, freight, now)
    return freight if why is None else NO_CANDIDATE(origin=origin, stage=stage.name, why=why)


def discovery(freight: Freight) -> tuple[datetime, str]:
    """When *freight* was discovered, or else created; its name decides between two of the same time, as in Kargo."""
    at = freight.discovered_at or freight.metadata.creation_timestamp
    return (at.datetime if at is not None else _LONG_AGO, freight.name)


def _follows(request: FreightRequest) -> bool:
    options = request.sources.auto_promotion_options
    return options is not None and options.selection_policy == "MatchUpstream"


def _has_one(request: FreightRequest) -> bool:
    return len(request.sources.stages) == 1 and not request.sources.direct
