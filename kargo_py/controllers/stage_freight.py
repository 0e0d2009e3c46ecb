"""What a Stage makes Freight say about it: that it is there, was verified there, was passed on. And the Events on that.

One piece of Freight that cannot be written does not keep the others from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta

from kargo_py.api.freight import Freight
from kargo_py.api.stage import Stage
from kargo_py.api.types import JsonObject, Time
from kargo_py.controllers.availability import available_in
from kargo_py.controllers.control_flow import passed_on
from kargo_py.controllers.events import verified_event
from kargo_py.controllers.freight_status import forgotten, freight_patch
from kargo_py.controllers.stage_verification import Verified
from kargo_py.controllers.world import World
from kargo_py.kube.errors import KubeError, NotFound
from kargo_py.kube.resources import Key

LOOK_AGAIN = timedelta(hours=1)
"""A soak time that ends later than this is looked at again before, since clocks may be set."""


async def agree(world: World, stage: Stage) -> None:
    """Make what Freight says about *stage* agree with the Stage."""
    current = stage.current_freight
    names = list(current.names) if current is not None else []
    key = Key(stage.namespace, stage.name)
    names += [f["metadata"]["name"] for f in world.freights.indexed("stage", key)]
    now = Time.of(world.now())

    async def one(freight: Freight) -> None:
        if patch := freight_patch(stage, freight, now):
            await _write(world, freight, patch)

    await _each(world, stage.namespace, names, one)


async def forget(world: World, stage: Key) -> None:
    """Have no Freight say anything about *stage* any more."""

    async def one(freight: Freight) -> None:
        if patch := forgotten(stage.name, freight):
            await _write(world, freight, patch)

    names = [f["metadata"]["name"] for f in world.freights.indexed("mentions", stage)]
    await _each(world, stage.namespace, names, one)


async def pass_on(world: World, stage: Stage, tell_since: datetime | None) -> float | None:
    """Mark all Freight that *stage* may take, a Stage without steps, as verified there.

    Returns after how many seconds there may be more without any event. *tell_since*: Events on what was passed on since
    then are told, too, if they were not.
    """
    now = world.now()
    at = Time.of(now)
    waits: list[timedelta] = []

    async def one(freight: Freight) -> None:
        verified = freight.status.verified_in.get(stage.name)
        if verified is not None:
            if tell_since and verified.verified_at is not None and verified.verified_at.datetime >= tell_since:
                _tell(world, stage, freight.name, stage.metadata.uid, at=verified.verified_at)
            return
        wait = available_in(stage, freight, now)
        if wait is None:
            return
        if wait > timedelta():
            waits.append(wait)
            return
        if await _write(world, freight, passed_on(stage, at)):
            _tell(world, stage, freight.name, stage.metadata.uid, at=at)

    raws = [raw for origin in stage.origins for raw in world.freights.indexed("origin", (stage.namespace, origin))]
    await _each(world, stage.namespace, [raw["metadata"]["name"] for raw in raws], one)
    return min(*waits, LOOK_AGAIN).total_seconds() if waits else None


async def _each(world: World, namespace: str, names: Iterable[str], act: Callable[[Freight], Awaitable[None]]) -> None:
    """Act on each piece of Freight that is there and can be read; raises what went wrong at the end."""
    errors: list[KubeError] = []
    for name in dict.fromkeys(names):
        try:
            freight = world.freight_models.read(await world.freights.read(Key(namespace, name)))
            if freight is not None:
                await act(freight)
        except KubeError as error:
            errors.append(error)
    if errors:
        raise ExceptionGroup("freights", errors)


async def _write(world: World, freight: Freight, patch: JsonObject) -> bool:
    """Returns False if the Freight is gone."""
    key = Key(freight.namespace, freight.name)
    try:
        await world.merge_status(world.freights, key, patch)
    except NotFound:
        await world.freights.read_live(key)
        return False
    return True


def tell_verified(world: World, stage: Stage, verified: Verified) -> None:
    """Tell, on each piece of Freight, that the collection was verified."""
    info = verified.info
    for reference in verified.collection.items.values():
        _tell(
            world,
            stage,
            reference.name,
            info.id,
            at=info.finish_time,
            started=info.start_time,
            promotion=verified.promotion,
        )


def _tell(
    world: World,
    stage: Stage,
    freight: str,
    identity: str,
    *,
    at: Time | None,
    started: Time | None = None,
    promotion: str = "",
) -> None:
    model = world.freight_models.read(world.freights.get(Key(stage.namespace, freight)))
    if model is not None:
        world.recorder.record(verified_event(model, stage, identity, at=at, started=started, promotion=promotion))
