"""What becomes of Promotions, told in Events: when, and how often. What an Event says is :mod:`.events`' business.

Nothing here holds up a reconcile: Events are queued. One that a crash kept from being written is told by the next
process, which looks, once, at what has ended shortly before it began. One of which this process cannot know whether it
was recorded is told once it is seen.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from pydantic import ValidationError

from kargo_py.api.freight import Freight
from kargo_py.api.promotion import Promotion, PromotionPhase, phase_of
from kargo_py.api.stage import Stage
from kargo_py.api.types import JsonObject, Time
from kargo_py.controllers.events import (
    created_event,
    ended_event,
    ended_event_name,
    ends_of_operations,
    operation_news,
)
from kargo_py.controllers.world import PROMOTIONS, World
from kargo_py.deployers.base import Record, WaitCause
from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import NotFound
from kargo_py.kube.events import Event
from kargo_py.kube.resources import Key

RECENT = timedelta(minutes=10)
"""An end that is longer ago is not told by another process any more; an Event is news."""

MOST_MISSED = 200
"""How many ends, the latest first, are looked at when a process begins."""

BURST, RATE = 100, 10.0
"""Events about operations: so many at once, and so many a second from then on. What is more is not told."""


class Teller:
    """Tells what becomes of Promotions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._missed: set[Key] = set()
        self._looked_back = False
        self._left, self._at = float(BURST), 0.0

    # -- the Promotion --------------------------------------------------------------------------------------------

    def created(self, promotion: Promotion) -> None:
        """A Promotion that has not begun was seen; told where that is asked for, and if it is news."""
        world = self._world
        if world.created_events and self._is_recent(promotion.metadata.creation_timestamp):
            default = world.argocd.default_namespace
            world.recorder.record(created_event(promotion, self._freight(promotion), default))

    def ended(self, promotion: Promotion) -> None:
        """The final status was written."""
        world = self._world
        default = world.argocd.default_namespace
        world.recorder.record(ended_event(promotion, self._freight(promotion), self._stage(promotion), default))

    def may_have_ended(self, promotion: Promotion) -> None:
        """The status was sent, and nobody can say whether it arrived; if it did, its end is told by :meth:`missed`."""
        if promotion.finished:
            self._missed.add(Key(promotion.namespace, promotion.name))

    async def missed(self, promotion: Promotion) -> None:
        """At the first look at *promotion*: tell its end if it is recent and this process has not. Raises KubeError.

        Whether the process before has cannot be told: the name makes the server refuse the second.
        """
        world = self._world
        key = Key(promotion.namespace, promotion.name)
        if not self._looked_back:
            self._looked_back = True
            self._missed.update(recent_ends(world.promotions.values(), world.now()))
        if key not in self._missed:
            return
        if not world.recorder.knows(Key(promotion.namespace, ended_event_name(promotion))):
            self.ended(await self._whole(key) or promotion)
        self._missed.discard(key)

    async def _whole(self, key: Key) -> Promotion | None:
        """The Promotion with what the cache does not keep of one that has ended; None if that is not to be had."""
        try:
            return Promotion.model_validate(await self._world.client.get(PROMOTIONS, key, codec=JSON))
        except (NotFound, ValidationError):
            return None

    def _is_recent(self, at: Time | None) -> bool:
        return at is not None and self._world.now() - at.datetime < RECENT

    def _freight(self, promotion: Promotion) -> Freight | None:
        key = Key(promotion.namespace, promotion.spec.freight or "")
        return self._world.freight_models.read(self._world.freights.get(key))

    def _stage(self, promotion: Promotion) -> Stage | None:
        return self._world.stage_models.read(self._world.stages.get(Key(promotion.namespace, promotion.spec.stage)))

    # -- its operations -------------------------------------------------------------------------------------------

    def waiting(
        self, promotion: Promotion, records: Sequence[Record], causes: Mapping[Key, WaitCause], said: str
    ) -> None:
        """A step waits for *records*, each because of its cause."""
        if self._world.operation_events:
            self._tell(operation_news(promotion, records, causes, said))

    def wrote(self, before: Promotion, after: Promotion) -> None:
        """The status of *after* was written in the place of that of *before*."""
        if self._world.operation_events:
            self._tell(ends_of_operations(before, after))

    def _tell(self, events: Iterable[Event]) -> None:
        recorder = self._world.recorder
        for event in events:
            if recorder.knows(event.key):
                continue
            if self._may():
                recorder.record(event)
            else:
                self._world.events_not_told += 1

    def _may(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._left, self._at = min(BURST, self._left + (now - self._at) * RATE), now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def recent_ends(promotions: Iterable[JsonObject], now: datetime) -> list[Key]:
    """The Promotions that ended shortly before *now*, the latest first, and not too many."""
    ends = ((end, JSON.meta(p).key) for p in promotions if (end := _end(p)) is not None and now - end < RECENT)
    return [key for _, key in heapq.nlargest(MOST_MISSED, ends, key=lambda found: found[0])]


def _end(promotion: JsonObject) -> datetime | None:
    """When *promotion* has ended; None if it has not, or does not say so."""
    if phase_of(promotion) not in _TERMINAL:
        return None
    try:
        return Time(promotion["status"]["finishedAt"]).datetime
    except (KeyError, TypeError, ValueError):
        return None


_TERMINAL = frozenset(phase.value for phase in PromotionPhase if phase.terminal)
