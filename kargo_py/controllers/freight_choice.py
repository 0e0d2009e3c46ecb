"""The Freight of a Promotion: the one it names, or the one that its origin stands for; and why it may not be promoted.

That it may not is never said from the caches alone, nor is the newest chosen from them: Freight that was created a
moment before its Promotion may not be there yet.
"""

from __future__ import annotations

from collections.abc import Iterable

from kargo_py.api.freight import Freight, FreightOrigin
from kargo_py.api.promotion import Promotion
from kargo_py.api.stage import Stage
from kargo_py.api.types import JsonObject
from kargo_py.controllers.availability import unavailable
from kargo_py.controllers.candidates import candidate, freight_in, upstream_of
from kargo_py.controllers.world import FREIGHTS, World
from kargo_py.kube.cache import PAGE_SIZE
from kargo_py.kube.codec import JSON
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.base import first_few

FREIGHT_NOT_FOUND = message(
    'Freight "{freight}" does not exist in namespace "{namespace}"; spec.freight takes a name, not an alias',
    do="Create the Freight, or name another one in a new Promotion. `kubectl get freight` shows names and aliases; "
    "`kargo-py get` shows the alias where there is one.",
    shown=Shown.PROMOTION,
)
FREIGHT_BY_ALIAS = message(
    'Freight "{alias}" does not exist in namespace "{namespace}"; spec.freight takes a name, and that is the alias of '
    "Freight {freight}",
    do="Create a new Promotion with the name.",
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


async def freight_of(world: World, promotion: Promotion, stage: Stage, *, sure: bool = True) -> Freight | str:
    """The Freight of *promotion*, or why *stage* may not take it; by the caches alone if it need not be *sure*.

    Raises KubeError.
    """
    if promotion.spec.freight:
        return await _named(world, Key(promotion.namespace, promotion.spec.freight), stage, sure=sure)
    if promotion.spec.origin is not None:
        choose = _of_origin if sure else _cached_of_origin
        return await choose(world, promotion.spec.origin, stage)
    return NO_FREIGHT_NAMED()


async def _named(world: World, key: Key, stage: Stage, *, sure: bool) -> Freight | str:
    freight = world.freight_models.read(await world.freights.read(key))
    if freight is not None and unavailable(stage, freight, world.now()) is None:
        return freight
    raw = await world.freights.read_live(key) if sure else world.freights.get(key)
    if raw is None:
        return _not_found(world, key)
    freight = world.freight_models.read(raw)
    if freight is None:
        return FREIGHT_UNREADABLE(freight=key.name)
    return unavailable(stage, freight, world.now()) or freight


def _not_found(world: World, key: Key) -> str:
    """There is no Freight of that name; the caches are good enough to say whose alias it is."""
    named = sorted(f'"{JSON.meta(raw).key.name}"' for raw in world.freights.indexed("alias", key))
    if named:
        return FREIGHT_BY_ALIAS(alias=key.name, namespace=key.namespace, freight=first_few(named))
    return FREIGHT_NOT_FOUND(freight=key.name, namespace=key.namespace)


async def _cached_of_origin(world: World, origin: FreightOrigin, stage: Stage) -> Freight | str:
    """The candidate, by the caches."""
    name = upstream_of(stage, origin)
    upstream = world.stage_models.read(world.stages.get(Key(stage.namespace, name))) if name is not None else None
    raws = world.freights.indexed("origin", (stage.namespace, str(origin)))
    return candidate(stage, origin, _present(world, raws), upstream, world.now())


async def _of_origin(world: World, origin: FreightOrigin, stage: Stage) -> Freight | str:
    """The candidate, by what the API server has now; Freight that cannot be read is none."""
    upstream = None
    if (name := upstream_of(stage, origin)) is not None:
        upstream = world.stage_models.read(await world.stages.read_live(Key(stage.namespace, name)))
        there = freight_in(upstream, origin)
        found = await world.freights.read_live(Key(stage.namespace, there)) if there is not None else None
        raws = [found] if found is not None else []
    else:
        there_are = await _listed(world, stage.namespace)
        cached = world.freights.indexed("origin", (stage.namespace, str(origin)))
        raws = [raw for raw in cached if JSON.meta(raw).key in there_are]
    return candidate(stage, origin, _present(world, raws), upstream, world.now())


def _present(world: World, raws: Iterable[JsonObject]) -> list[Freight]:
    """What can be read of *raws*, and is not being deleted."""
    freights = [world.freight_models.read(raw) for raw in raws]
    return [one for one in freights if one is not None and one.metadata.deletion_timestamp is None]


async def _listed(world: World, namespace: str) -> set[Key]:
    """All the Freight that the API server has now; what the cache has of it is as new."""
    found: set[Key] = set()
    token = ""
    while True:
        page = await world.client.list(FREIGHTS, namespace, codec=JSON, limit=PAGE_SIZE, continue_token=token)
        for raw in page.items:
            world.freights.observe(raw)
            found.add(JSON.meta(raw).key)
        token = page.continue_token
        if not token:
            return found
