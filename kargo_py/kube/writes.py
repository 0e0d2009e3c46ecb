"""Writes that may be answered by silence.

Only 429 and a refused connection mean "not done". After a 5xx, a reset or a time-out a write may have been carried out
or not, or may still be on its way. A *guarded* write (it names the resourceVersion it was decided on) can simply be
sent again, byte for byte: at most one of them can land, since the first one to land changes the version. What comes
back then as a conflict is no conflict until a live read shows no trace of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tenacity import wait_random_exponential
from tenacity.asyncio import AsyncRetrying
from tenacity.retry import retry_if_exception_type
from tenacity.stop import stop_after_attempt

from kargo_py.kube.client import Client, Codec, JsonObject, PatchType
from kargo_py.kube.errors import AlreadyExists, ApiError, Conflict, Invalid, OutcomeUnknown
from kargo_py.kube.resources import Key, Resource

T = TypeVar("T")

ATTEMPTS = 5
"""How often the identical bytes are sent while the outcome stays unknown."""


async def uninterrupted(write: Awaitable[T]) -> T:
    """Finish *write* even if the caller is cancelled meanwhile; the cancellation is raised after it.

    A write abandoned half-way would be an unknown outcome made by ourselves.
    """
    task = asyncio.ensure_future(write)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except Exception:  # noqa: BLE001, S110 - task.result() below raises it
            pass
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # seen; the cancellation is what the caller asked for
        raise cancelled
    return task.result()


async def guarded_patch(
    client: Client,
    resource: Resource,
    key: Key,
    body: bytes,
    *,
    codec: Codec[T],
    landed: Callable[[T], bool],
    patch_type: PatchType = PatchType.MERGE,
    subresource: str = "",
) -> T:
    """Send a patch that carries a guard, until its outcome is known.

    *body* must name ``metadata.resourceVersion`` (or, as a JSON patch, test what it rests on); *landed* tells from a
    live object whether this very patch was carried out. Raises Conflict if it certainly was not, OutcomeUnknown if even
    looking did not help, and any other KubeError.
    """

    async def send() -> T:
        return await client.patch(resource, key, body, codec=codec, patch_type=patch_type, subresource=subresource)

    async def look() -> T:
        return await client.get(resource, key, codec=codec)

    return await _settle(send, look, landed, refusals=(Conflict, Invalid))


async def guarded_create(
    client: Client,
    resource: Resource,
    key: Key,
    body: bytes,
    *,
    codec: Codec[T],
    landed: Callable[[T], bool],
) -> T:
    """Create the object *key*, until the outcome is known; its name is the guard. Raises as guarded_patch."""

    async def send() -> T:
        return await client.create(resource, key.namespace, body, codec=codec)

    async def look() -> T:
        return await client.get(resource, key, codec=codec)

    return await _settle(send, look, landed, refusals=(AlreadyExists,))


async def _settle(
    send: Callable[[], Awaitable[T]],
    look: Callable[[], Awaitable[T]],
    landed: Callable[[T], bool],
    *,
    refusals: tuple[type[ApiError], ...],
) -> T:
    unknown = False

    async def attempt() -> T:
        nonlocal unknown
        try:
            return await send()
        except OutcomeUnknown:
            unknown = True
            raise
        except refusals:
            if not unknown:
                raise
            found = await look()
            if landed(found):
                return found
            raise

    retrying = AsyncRetrying(
        retry=retry_if_exception_type(OutcomeUnknown),
        wait=wait_random_exponential(multiplier=0.2, max=5),
        stop=stop_after_attempt(ATTEMPTS),
        reraise=True,
    )
    return await retrying(attempt)


def contains(obj: Any, patch: Any) -> bool:
    """True if *obj* is as the merge patch *patch* would leave it (``metadata.resourceVersion`` apart).

    This is the trace by which a patch of a status is recognised.
    """
    if not isinstance(patch, dict):
        return bool(obj == patch)
    return isinstance(obj, dict) and all(_holds(obj, name, value) for name, value in patch.items())


def _holds(obj: JsonObject, name: str, value: Any) -> bool:
    if name == "metadata" and isinstance(value, dict):
        value = {k: v for k, v in value.items() if k != "resourceVersion"}
    return name not in obj if value is None else contains(obj.get(name), value)


def merge_diff(old: JsonObject, new: JsonObject) -> JsonObject:
    """The JSON merge patch (RFC 7386) that makes *new* of *old*; {} if they are equal.

    A null inside *new* cannot be said in a merge patch; it is treated as an absent member.
    """
    patch: JsonObject = {name: None for name in old if new.get(name) is None}
    for name, value in new.items():
        if value is None or (name in old and old[name] == value):
            continue
        before = old.get(name)
        patch[name] = merge_diff(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return patch
