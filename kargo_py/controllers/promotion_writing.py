"""Writes the status of Promotions, and counts and tells what that means."""

from __future__ import annotations

import structlog

from kargo_py.api.promotion import Promotion, PromotionPhase
from kargo_py.api.types import JsonObject
from kargo_py.controllers.promotion_runs import Turn
from kargo_py.controllers.telling import Teller
from kargo_py.controllers.world import World
from kargo_py.engine.machine import fail, with_refresh
from kargo_py.kube.errors import ApiError, Invalid, KubeError, OutcomeUnknown
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

STATUS_REFUSED = message(
    "the API server refuses the status of the Promotion: {why}",
    do="The Promotion is `Errored`; its status is as it was before. What the server says names the field, or that the "
    "object is too large: apply kargo-py's own CRDs, or put out less. What runs by then is left running: look at the "
    "Applications.",
    shown=Shown.PROMOTION,
)

_TOO_LARGE = 413
_TOO_LARGE_FOR_ETCD = "request is too large"
"""What etcd says; the API server hands it on with the code 500."""

_log = structlog.get_logger(__name__)


class DeletedError(Exception):
    """The Promotion was deleted while it was being worked on."""


class Writer:
    """Writes Promotions."""

    def __init__(self, world: World, teller: Teller) -> None:
        self._world = world
        self._teller = teller

    async def write(self, raw: JsonObject, promotion: Promotion) -> tuple[JsonObject, Promotion]:
        """Write the status; returns the object as it stands then. Raises DeletedError and KubeError."""
        world = self._world
        await self._put(raw, promotion)
        written = world.promotions.get(Key(promotion.namespace, promotion.name))
        model = world.promotion_models.read(written)
        if written is None or model is None:
            raise DeletedError
        return written, model

    async def record(self, turn: Turn) -> None:
        """Write the status as it is by now; raises as :meth:`write`."""
        turn.raw, turn.recorded = await self.write(turn.raw, turn.promotion)
        turn.promotion, turn.run.owed = turn.recorded, None

    async def write_if_news(self, raw: JsonObject, before: Promotion, promotion: Promotion) -> None:
        """Write the status if it is another, or if a refresh is to be acknowledged."""
        if with_refresh(promotion) is not before:
            await self._put(raw, promotion)

    async def end(self, raw: JsonObject, promotion: Promotion) -> None:
        """Write the final status and tell it."""
        promotion = await self._put(raw, promotion)
        _log.info(
            "promotion ended",
            promotion=f"{promotion.namespace}/{promotion.name}",
            phase=str(promotion.status.phase),
            # Not "message": where structlog hands its fields to logging, that is a field of every record already.
            **({"why": promotion.status.message} if promotion.status.message else {}),
        )
        self._teller.ended(promotion)

    async def _put(self, raw: JsonObject, promotion: Promotion) -> Promotion:
        """Write the status, and count and tell what that means; returns what was written."""
        world = self._world
        before = world.promotion_models.read(raw) or promotion
        queued_since = world.stats.queued_since(Key(promotion.namespace, promotion.name))
        promotion = with_refresh(promotion)
        try:
            await world.write_status(world.promotions, raw, promotion.status.wire())
        except KubeError as error:
            if not _is_refusal(error):
                if isinstance(error, OutcomeUnknown):
                    self._teller.may_have_ended(promotion)
                raise
            # It would be refused again and again.
            promotion = fail(before, PromotionPhase.ERRORED, STATUS_REFUSED(why=error.message), world.now())
            await world.write_status(world.promotions, raw, promotion.status.wire())
        world.stats.wrote(before, promotion, queued_since)
        self._teller.wrote(before, promotion)
        return promotion


def _is_refusal(error: KubeError) -> bool:
    """Whether the status is what the API server does not take, however often it gets it."""
    if isinstance(error, OutcomeUnknown):
        return _TOO_LARGE_FOR_ETCD in error.message
    return isinstance(error, Invalid) or (isinstance(error, ApiError) and error.code == _TOO_LARGE)
