"""Whether a Stage may take a piece of Freight."""

from __future__ import annotations

from datetime import datetime, timedelta

from kargo_py.api.freight import Freight, soak
from kargo_py.api.stage import FreightSources, Stage
from kargo_py.api.types import Time
from kargo_py.messages import Shown, message

NOT_REQUESTED = message(
    'Freight "{freight}" comes from {origin}, which Stage "{stage}" does not request (it requests {requested})',
    do="Promote other Freight, or add the origin to `spec.requestedFreight` of the Stage.",
    shown=Shown.PROMOTION,
)
NO_WAY_THERE = message(
    'Freight "{freight}" may reach Stage "{stage}" neither directly nor from another Stage; approve it for the Stage',
    do="The `sources` of this origin in `spec.requestedFreight` of the Stage are empty. Set `direct: true` or name "
    "`stages`, or [approve](#approve-freight-by-hand) the Freight.",
    shown=Shown.PROMOTION,
)
NOT_VERIFIED = message(
    'Freight "{freight}" has not been verified in {stages}, as Stage "{stage}" requires',
    do="Promote it to the Stages named first, wait until they are healthy, then create a new Promotion; or "
    "[approve](#approve-freight-by-hand) it for the Stage.",
    shown=Shown.PROMOTION,
)
NOT_SOAKED = message(
    'Freight "{freight}" has not been verified and soaked for {time} in {stages}, as Stage "{stage}" requires',
    do="Leave it in the Stages named first as long as `requiredSoakTime` says, then create a new Promotion; or "
    "[approve](#approve-freight-by-hand) it for the Stage.",
    shown=Shown.PROMOTION,
)


def unavailable(stage: Stage, freight: Freight, now: datetime) -> str | None:
    """Why *stage* may not take *freight* now; None if it may.

    As Kargo's ``Stage.IsFreightAvailable``: the origin must be requested, and the Freight approved for the Stage, or
    taken straight from the Warehouse, or verified (and soaked) in all or in one of the upstream Stages.
    """
    request = stage.origins.get(str(freight.origin))
    if request is None:
        requested = ", ".join(stage.origins) or "nothing"
        return NOT_REQUESTED(freight=freight.name, origin=freight.origin, stage=stage.name, requested=requested)
    sources = request.sources
    if stage.name in freight.status.approved_for or sources.direct:
        return None
    missing = [upstream for upstream in sources.stages if not _passed(freight, upstream, sources, now)]
    enough = not missing if sources.availability_strategy == "All" else len(missing) < len(sources.stages)
    if enough and sources.stages:
        return None
    if not missing:
        return NO_WAY_THERE(freight=freight.name, stage=stage.name)
    upstream_stages = (" and " if sources.availability_strategy == "All" else " or ").join(missing)
    if not sources.required_soak_time:
        return NOT_VERIFIED(freight=freight.name, stages=upstream_stages, stage=stage.name)
    time = sources.required_soak_time
    return NOT_SOAKED(freight=freight.name, time=time, stages=upstream_stages, stage=stage.name)


def _passed(freight: Freight, upstream: str, sources: FreightSources, now: datetime) -> bool:
    if upstream not in freight.status.verified_in:
        return False
    if sources.required_soak_time is None:
        return True
    return soak(freight.status, upstream, Time.of(now)).total_seconds() >= sources.required_soak_time.seconds


def available_in(stage: Stage, freight: Freight, now: datetime) -> timedelta | None:
    """After which time *stage* may take *freight* if nothing happens; None if something has to."""
    if unavailable(stage, freight, now) is None:
        return timedelta()
    request = stage.origins.get(str(freight.origin))
    if request is None or request.sources.required_soak_time is None or not request.sources.stages:
        return None
    waits = [_soaked_in(freight, upstream, request.sources, now) for upstream in request.sources.stages]
    known = [wait for wait in waits if wait is not None]
    if request.sources.availability_strategy == "All":
        return max(known) if len(known) == len(waits) else None
    return min(known, default=None)


def _soaked_in(freight: Freight, upstream: str, sources: FreightSources, now: datetime) -> timedelta | None:
    if _passed(freight, upstream, sources, now):
        return timedelta()
    current = freight.status.currently_in.get(upstream)
    if upstream not in freight.status.verified_in or current is None or current.since is None:
        return None
    required = sources.required_soak_time.seconds if sources.required_soak_time is not None else 0.0
    return max(timedelta(seconds=required) - (now - current.since.datetime), timedelta.resolution)
