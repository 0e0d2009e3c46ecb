"""How steps read and change Stages and Freight: from the newest state, guarded, and told in the user's words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tenacity import wait_random_exponential

from kargo_py.api.meta import GROUP, VERSION
from kargo_py.kube.backoff import pause_before
from kargo_py.kube.client import Client, JsonObject, PatchType
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Conflict, Forbidden, NotFound
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.writes import guarded_patch, uninterrupted
from kargo_py.messages import Shown, message

OBJECT_MISSING = message(
    '{kind} "{name}" does not exist in namespace "{namespace}"',
    do="Correct the name in the step's `config`, or create the object, then promote again. With "
    "`retry.errorThreshold` the step looks again.",
    shown=Shown.PROMOTION,
)
RIGHT_MISSING = message(
    "{why}; allow {verb} on {resource}",
    do="Give the controller's service account the right named; `deploy/` has it.",
    shown=Shown.PROMOTION,
)

STAGES = Resource(GROUP, VERSION, "stages", "Stage")
FREIGHTS = Resource(GROUP, VERSION, "freights", "Freight")

_ATTEMPTS: Final = 5
_after_conflict: Final = wait_random_exponential(multiplier=0.05, max=1)


class ObjectError(Exception):
    """An object cannot be read or changed until somebody does something; the text says what."""


@dataclass(frozen=True, slots=True)
class Change:
    """A patch that rests on the version of the object it was decided on.

    ``landed`` tells from a later version whether it was carried out.
    """

    body: Any
    landed: Callable[[JsonObject], bool]
    type: PatchType = PatchType.MERGE
    subresource: str = ""


async def read_object(client: Client, resource: Resource, key: Key) -> JsonObject:
    """The object as it is now. Raises ObjectError, and KubeError for what may pass."""
    try:
        return await client.get(resource, key, codec=JSON)
    except NotFound as error:
        raise _missing(resource, key) from error
    except Forbidden as error:
        raise ObjectError(RIGHT_MISSING(why=error.message, verb="get", resource=resource)) from error


async def change_object(
    client: Client,
    resource: Resource,
    key: Key,
    change: Change | None,
    decide: Callable[[JsonObject], Change | None],
) -> None:
    """Make *change*, None for none; if others were quicker, the one that *decide* then finds necessary.

    Raises ObjectError, what *decide* raises, and KubeError for what may pass.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        if change is None:
            return
        try:
            await _patch(client, resource, key, change)
        except Conflict:
            if attempt == _ATTEMPTS:
                raise
        else:
            return
        await asyncio.sleep(pause_before(attempt, _after_conflict))
        change = decide(await read_object(client, resource, key))


async def _patch(client: Client, resource: Resource, key: Key, change: Change) -> None:
    try:
        await uninterrupted(
            guarded_patch(
                client,
                resource,
                key,
                encode(change.body),
                codec=JSON,
                landed=change.landed,
                patch_type=change.type,
                subresource=change.subresource,
            )
        )
    except NotFound as error:
        raise _missing(resource, key) from error
    except Forbidden as error:
        raise ObjectError(RIGHT_MISSING(why=error.message, verb="patch", resource=_path(resource, change))) from error


def _missing(resource: Resource, key: Key) -> ObjectError:
    return ObjectError(OBJECT_MISSING(kind=resource.kind, name=key.name, namespace=key.namespace))


def _path(resource: Resource, change: Change) -> str:
    """As RBAC writes it."""
    return f"{resource.plural}/{change.subresource}" if change.subresource else resource.plural
