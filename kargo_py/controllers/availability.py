"""Whether a Stage may take a piece of Freight."""

from __future__ import annotations

from datetime import datetime

from kargo_py.api.freight import Freight, soak
from kargo_py.api.stage import FreightSources, Stage
from kargo_py.api.types import Time


def unavailable(stage: Stage, freight: Freight, now: datetime) -> str | None:
    """Why *stage* may not take *freight* now; None if it may.

    As Kargo's ``Stage.IsFreightAvailable``: the origin must be requested, and the Freight approved for the Stage, or
    taken straight from the Warehouse, or verified (and soaked) in all or in one of the upstream Stages.
    """
    request = stage.origins.get(str(freight.origin))
    what = f'Freight "{freight.name}"'
    if request is None:
        requested = ", ".join(stage.origins) or "nothing"
        return (
            f'{what} comes from {freight.origin}, which Stage "{stage.name}" does not request (it requests {requested})'
        )
    sources = request.sources
    if stage.name in freight.status.approved_for or sources.direct:
        return None
    ready = [upstream for upstream in sources.stages if _passed(freight, upstream, sources, now)]
    enough = len(ready) == len(sources.stages) if sources.availability_strategy == "All" else bool(ready)
    if enough and sources.stages:
        return None
    missing = [upstream for upstream in sources.stages if upstream not in ready]
    if not missing:
        return (
            f'{what} may reach Stage "{stage.name}" neither directly nor from another Stage; approve it for the Stage'
        )
    soaked = f" and soaked for {sources.required_soak_time}" if sources.required_soak_time else ""
    joint = " and " if sources.availability_strategy == "All" else " or "
    return f'{what} has not been verified{soaked} in {joint.join(missing)}, as Stage "{stage.name}" requires'


def _passed(freight: Freight, upstream: str, sources: FreightSources, now: datetime) -> bool:
    if upstream not in freight.status.verified_in:
        return False
    if sources.required_soak_time is None:
        return True
    return soak(freight.status, upstream, Time.of(now)).total_seconds() >= sources.required_soak_time.seconds
