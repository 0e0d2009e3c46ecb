"""The Freight of a Promotion: the one it names, or the one that its origin stands for; and why it may not be promoted.

That it may not is never said from the caches alone, nor is the newest chosen from them: Freight that was created a
moment before its Promotion may not be there yet.
"""

from __future__ import annotations

from kargo_py.api.freight import Freight, FreightOrigin
from kargo_py.api.promotion import Promotion
from kargo_py.api.stage import Stage
from kargo_py.api.types import JsonObject
from kargo_py.controllers.availability import unavailable
from kargo_py.controllers.candidates import candidate, upstream_of
from kargo_py.controllers.world import FREIGHTS, World
from kargo_py.kube.cache import PAGE_SIZE
from kargo_py.kube.codec import JSON
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

FREIGHT_NOT_FOUND = message(
    'Freight "{freight}" does not exist in namespace "{namespace}"; spec.freight takes a name, not an alias',
    do="Create the Freight, or name another one in a new Promotion. `kubectl get freight` shows names and aliases; "
    "`kargo-py get` shows the alias where there is one.",
    shown=Shown.PROMOTION,
)
FREIGHT_UNREADABLE = message(
    'Freight "{freight}" cannot be read; an Event on it says which field is wrong',
    do="`kubectl describe freight` shows the Event. Correct the field, then create a new Promotion.",
    shown=Shown.PROMOTION,
)
NO_FREIGHT_NAMED = message(
    "neither spec.freight nor spec.origin is set",
    do="Create a new Promotion with one of the two.",
    shown=Shown.PROMOTION,
)


async def freight_of(world: World, promotion: Promotion, stage: Stage) -> Freight | str:
    """The Freight of *promotion*, or why *stage* may not take it. Raises KubeError."""
    if promotion.spec.freight:
        return await _named(world, Key(promotion.namespace, promotion.spec.freight), stage)
    if promotion.spec.origin is not None:
        return await _of_origin(world, promotion.spec.origin, stage)
    return NO_FREIGHT_NAMED()


async def _named(world: World, key: Key, stage: Stage) -> Freight | str:
    freight = world.freight_models.read(await world.freights.read(key))
    if freight is not None and unavailable(stage, freight, world.now()) is None:
        return freight
    raw = await world.freights.read_live(key)
    if raw is None:
        return FREIGHT_NOT_FOUND(freight=key.name, namespace=key.namespace)
    freight = world.freight_models.read(raw)
    if freight is None:
        return FREIGHT_UNREADABLE(freight=key.name)
    return unavailable(stage, freight, world.now()) or freight


async def _of_origin(world: World, origin: FreightOrigin, stage: Stage) -> Freight | str:
    """The candidate, by what the API server has now; Freight that cannot be read is none."""
    freights = []
    for raw in await _listed(world, stage.namespace):
        world.freights.observe(raw)
        freight = world.freight_models.read(world.freights.get(JSON.meta(raw).key))
        if freight is not None and freight.metadata.deletion_timestamp is None:
            freights.append(freight)
    upstream = None
    if (name := upstream_of(stage, origin)) is not None:
        upstream = world.stage_models.read(await world.stages.read_live(Key(stage.namespace, name)))
    return candidate(stage, origin, freights, upstream, world.now())


async def _listed(world: World, namespace: str) -> list[JsonObject]:
    found: list[JsonObject] = []
    token = ""
    while True:
        page = await world.client.list(FREIGHTS, namespace, codec=JSON, limit=PAGE_SIZE, continue_token=token)
        found += page.items
        token = page.continue_token
        if not token:
            return found
