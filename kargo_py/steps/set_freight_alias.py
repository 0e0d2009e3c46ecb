"""The step set-freight-alias: gives Freight a name for people that means something.

The alias stands in a field and in a label, by which it is found. Both are set by one patch that carries the version of
the Freight.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self
from weakref import WeakValueDictionary

from pydantic import AfterValidator, Field

from kargo_py.api.names import LABEL_ALIAS
from kargo_py.api.promotion import StepStatus
from kargo_py.kube.client import Client, JsonObject
from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import Forbidden
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.base import Erred, Finished, StepContext, StepOutcome
from kargo_py.steps.config import Config, Name
from kargo_py.steps.objects import FREIGHTS, RIGHT_MISSING, Change, ObjectError, change_object, read_object
from kargo_py.steps.step import Effect, Services, Step, StepFailed, Work

NOT_AN_ALIAS = message(
    "{alias} cannot be an alias",
    do="Part of *invalid configuration*: an alias is the value of a label, so it is at most 63 letters, digits, `-`, "
    "`_` and `.`, beginning and ending with a letter or digit.",
    shown=Shown.PROMOTION,
)
ALIAS_TAKEN = message(
    'the alias {alias} is taken by Freight "{other}"',
    do="Nothing was changed. Choose another alias, or give the other Freight another one first.",
    shown=Shown.PROMOTION,
)
ALIAS_SET = message(
    'the alias of Freight "{name}" is {alias}',
    do="The step has ended well. The Freight is found by this alias now.",
    shown=Shown.PROMOTION,
)

USES = "set-freight-alias"

_SHOWN: Final = 80
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def _alias(text: str) -> str:
    if text and not _LABEL_VALUE.fullmatch(text):
        raise ValueError(NOT_AN_ALIAS(alias=repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")))
    return text


class SetFreightAliasConfig(Config):
    """Configuration of set-freight-alias."""

    name: Annotated[Name, Field(min_length=1)]
    """Name of the Freight, not its alias; that of the Promotion is `${{ ctx.targetFreight.name }}`."""
    alias: Annotated[str, AfterValidator(_alias), Field(min_length=1)]
    """The new alias; no other Freight of the Project may have it."""


class SetFreightAlias(Step[SetFreightAliasConfig]):
    """Sets the alias of a piece of Freight, in its field and its label."""

    uses = USES
    config_model = SetFreightAliasConfig
    work = Work.API

    def __init__(self, client: Client) -> None:
        self._client = client
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @classmethod
    def make(cls, services: Services) -> Self:
        """The instance for one controller."""
        return cls(services.client)

    def effect(self, config: SetFreightAliasConfig) -> Effect:
        """To set the same alias again changes nothing."""
        del config
        return Effect.REPEATABLE

    async def perform(self, config: SetFreightAliasConfig, context: StepContext) -> StepOutcome:
        """Set it, unless somebody else has it; of two steps of a Project that want the same, one comes first."""
        key = Key(context.project, config.name)
        lock = self._locks.setdefault(context.project, asyncio.Lock())
        try:
            async with lock:
                change = _change(await read_object(self._client, FREIGHTS, key), config.alias)
                await self._check_free(key, config.alias)
                await change_object(self._client, FREIGHTS, key, change, lambda now: _change(now, config.alias))
        except ObjectError as error:
            return Erred(str(error))
        return Finished(StepStatus.SUCCEEDED, ALIAS_SET(name=config.name, alias=config.alias))

    async def _check_free(self, key: Key, alias: str) -> None:
        selector = f"{LABEL_ALIAS}={alias}"
        try:
            page = await self._client.list(FREIGHTS, key.namespace, codec=JSON, label_selector=selector, limit=2)
        except Forbidden as error:
            raise ObjectError(RIGHT_MISSING(why=error.message, verb="list", resource=FREIGHTS)) from error
        others = (name for each in page.items if (name := JSON.meta(each).key.name) != key.name)
        if (other := next(others, None)) is not None:
            raise StepFailed(ALIAS_TAKEN(alias=alias, other=other))


def _change(freight: JsonObject, alias: str) -> Change | None:
    """The patch that gives *freight* the *alias*, None if it has it."""
    if _has(freight, alias):
        return None
    meta: Mapping[str, Any] = {"resourceVersion": JSON.meta(freight).resource_version, "labels": {LABEL_ALIAS: alias}}
    return Change({"metadata": meta, "alias": alias}, lambda found: _has(found, alias))


def _has(freight: JsonObject, alias: str) -> bool:
    labels = freight["metadata"].get("labels") or {}
    return freight.get("alias") == alias == labels.get(LABEL_ALIAS)
