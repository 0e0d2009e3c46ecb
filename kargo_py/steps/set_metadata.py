"""The step set-metadata: keeps values of one's own in the status of Stages and Freight.

Other writers own the rest of a status, and other keys of the metadata. So the patch names the keys that are set, and
carries the version it was decided on: whoever was quicker is not overwritten, and a patch that arrives late does
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field

from kargo_py.api.promotion import StepStatus
from kargo_py.kube.client import Client, JsonObject, PatchType
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.resources import Key, Resource
from kargo_py.messages import Shown, message
from kargo_py.steps.base import Erred, Finished, StepContext, StepOutcome, Waiting
from kargo_py.steps.config import Config, Name
from kargo_py.steps.objects import FREIGHTS, STAGES, Change, ObjectError, change_object, read_object
from kargo_py.steps.step import Effect, Services, Step, StepFailed, Work

METADATA_TOO_LARGE = message(
    'the metadata of {kind} "{name}" would be {size} KiB, at most {limit} KiB',
    do="Nothing of the step was set. Set less, or keep the values elsewhere and their address here; keys that nobody "
    "needs any more can be taken away with `kubectl patch --subresource=status`.",
    shown=Shown.PROMOTION,
)
CALLED_OFF = message(
    "the Promotion is to be aborted; objects left as they were: {left}",
    do="The abort goes on by itself. What was set before stays.",
    shown=Shown.PROMOTION,
)

USES = "set-metadata"

MOST: Final = 256 * 1024
"""Bytes of JSON: half of what a Stage's status may take in all (``controllers.stage_size``), the rest is others'."""

_RESOURCES: Final[Mapping[str, Resource]] = {resource.kind: resource for resource in (STAGES, FREIGHTS)}


class MetadataUpdate(Config):
    """What is set on one object."""

    kind: Literal["Stage", "Freight"]
    """Kind of the object."""
    name: Annotated[Name, Field(min_length=1)]
    """Name of the object, in the Project of the Promotion: `${{ ctx.stage }}`, `${{ ctx.targetFreight.name }}`."""
    values: Annotated[Mapping[str, Any], Field(min_length=1)]
    """Keys with values of any type. A key that is there already gets the new value as a whole; others stay."""


class SetMetadataConfig(Config):
    """Configuration of set-metadata."""

    updates: Annotated[Sequence[MetadataUpdate], Field(min_length=1)]
    """What to set where."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """All that is to be set on one object."""

    resource: Resource
    key: Key
    values: Mapping[str, Any]

    def change(self, obj: JsonObject) -> Change | None:
        """The patch that sets it on *obj*, None if it is so already. Raises StepFailed if it gets too large."""
        status = obj.get("status") or {}
        metadata = status.get("metadata") or {}
        news = {name: value for name, value in self.values.items() if not _holds(metadata, name, value)}
        if not news:
            return None
        self._check_size(metadata, {**metadata, **news})
        version = JSON.meta(obj).resource_version
        guard = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
        return Change([guard, *_operations(status, news)], self.landed, PatchType.JSON, "status")

    def landed(self, obj: JsonObject) -> bool:
        """Whether all of it is set on *obj*."""
        metadata = (obj.get("status") or {}).get("metadata") or {}
        return all(_holds(metadata, name, value) for name, value in self.values.items())

    def _check_size(self, old: JsonObject, new: JsonObject) -> None:
        size = len(encode(new))
        # What somebody else made too large may still be made smaller.
        if size > MOST and size >= len(encode(old)):
            kib = -(-size // 1024)
            said = METADATA_TOO_LARGE(kind=self.resource.kind, name=self.key.name, size=kib, limit=MOST // 1024)
            raise StepFailed(said)


class SetMetadata(Step[SetMetadataConfig]):
    """Sets values in `status.metadata` of Stages and Freight, where expressions find them."""

    uses = USES
    config_model = SetMetadataConfig
    work = Work.API

    def __init__(self, client: Client) -> None:
        self._client = client

    @classmethod
    def make(cls, services: Services) -> Self:
        """The instance for one controller."""
        return cls(services.client)

    def effect(self, config: SetMetadataConfig) -> Effect:
        """Values, not changes of values: to set them again changes nothing."""
        del config
        return Effect.REPEATABLE

    async def perform(self, config: SetMetadataConfig, context: StepContext) -> StepOutcome:
        """Set all that is not set yet, once it is known that all of it can be set."""
        try:
            wanted = wishes(config, context.project, context.mask)
            changes = [wish.change(await read_object(self._client, wish.resource, wish.key)) for wish in wanted]
            for done, (wish, change) in enumerate(zip(wanted, changes, strict=True)):
                if context.called_off():
                    return Waiting(CALLED_OFF(left=len(wanted) - done))
                await change_object(self._client, wish.resource, wish.key, change, wish.change)
        except ObjectError as error:
            return Erred(str(error))
        return Finished(StepStatus.SUCCEEDED)


def wishes(config: SetMetadataConfig, project: str, mask: Callable[[Any], Any]) -> list[_Wish]:
    """What is to be set, by object, secrets masked; of two updates of one key the later one counts."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for update in config.updates:
        found.setdefault((update.kind, update.name), {}).update(mask(dict(update.values)))
    return [_Wish(_RESOURCES[kind], Key(project, name), values) for (kind, name), values in found.items()]


def _operations(status: JsonObject, news: JsonObject) -> list[JsonObject]:
    """JSON patch operations that put *news* into the metadata of *status*; a merge patch could not set a null."""
    if not status:
        return [{"op": "add", "path": "/status", "value": {"metadata": news}}]
    if not status.get("metadata"):
        return [{"op": "add", "path": "/status/metadata", "value": news}]
    return [{"op": "add", "path": f"/status/metadata/{_escaped(name)}", "value": value} for name, value in news.items()]


def _escaped(name: str) -> str:
    """*name* as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _holds(metadata: JsonObject, name: str, value: Any) -> bool:
    return name in metadata and _same(metadata[name], value)


def _same(left: Any, right: Any) -> bool:
    """Whether they are the same as JSON: for Python, 1 is True."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[name]) for name, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
