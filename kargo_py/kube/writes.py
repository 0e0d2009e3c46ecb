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

from kargo_py.kube.backoff import pause_before
from kargo_py.kube.client import Client, Codec, JsonObject, PatchType
from kargo_py.kube.errors import AlreadyExists, ApiError, Conflict, Invalid, KubeError, NotFound, OutcomeUnknown
from kargo_py.kube.resources import Key, Resource

T = TypeVar("T")

ATTEMPTS = 5
"""How often, at most, the identical bytes are sent while the outcome stays unknown."""

_wait = wait_random_exponential(multiplier=0.2, max=5)


async def uninterrupted(write: Awaitable[T], *, patience: float | None = None) -> T:
    """Finish *write* even if the caller is cancelled meanwhile; the cancellation is raised after it.

    A write abandoned half-way is an unknown outcome made by ourselves: with *patience* it is, that many seconds after
    the cancellation. If it fails after the caller was cancelled, its error is the cause of the CancelledError.
    """
    task = asyncio.ensure_future(write)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            _, unfinished = await asyncio.wait([task], timeout=patience if cancelled is not None else None)
        except asyncio.CancelledError as error:
            cancelled = error
        else:
            if unfinished:
                task.cancel()
    if cancelled is not None:
        raise cancelled from None if task.cancelled() else task.exception()
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
    attempts: int = ATTEMPTS,
) -> T:
    """Send a patch that carries a guard, until its outcome is known.

    *body* must name ``metadata.resourceVersion`` (or, as a JSON patch, test what it rests on); *landed* tells from a
    live object whether this very patch was carried out. Raises OutcomeUnknown if that could not be found out; any other
    KubeError means that it was not carried out: Conflict and Invalid that its guard held it back, NotFound that the
    object is gone.
    """

    async def send() -> T:
        return await client.patch(resource, key, body, codec=codec, patch_type=patch_type, subresource=subresource)

    async def look() -> T:
        return await client.get(resource, key, codec=codec)

    return await _settle(send, look, landed, refusals=(Conflict, Invalid), final=(NotFound,), attempts=attempts)


async def guarded_create(
    client: Client,
    resource: Resource,
    key: Key,
    body: bytes,
    *,
    codec: Codec[T],
    landed: Callable[[T], bool],
    attempts: int = ATTEMPTS,
) -> T:
    """Create the object *key*, until the outcome is known; its name is the guard.

    Raises AlreadyExists if somebody else's object has that name, else as guarded_patch.
    """

    async def send() -> T:
        return await client.create(resource, key.namespace, body, codec=codec)

    async def look() -> T:
        try:
            return await client.get(resource, key, codec=codec)
        except NotFound as error:
            # Ours may have been deleted already, or be still on its way.
            raise OutcomeUnknown(error.message, request=error.request) from error

    return await _settle(send, look, landed, refusals=(AlreadyExists,), attempts=attempts)


async def _settle(
    send: Callable[[], Awaitable[T]],
    look: Callable[[], Awaitable[T]],
    landed: Callable[[T], bool],
    *,
    refusals: tuple[type[ApiError], ...],
    final: tuple[type[ApiError], ...] = (),
    attempts: int,
) -> T:
    """Send until the outcome is known.

    *refusals* are the answers that our own write, having landed, would cause; *final* are those after which it does not
    matter any more.
    """
    try:
        return await send()
    except OutcomeUnknown as error:
        unknown = error
    # From here on no failure to send says anything about what was sent before.
    for attempt in range(1, attempts):
        await asyncio.sleep(pause_before(attempt, _wait, unknown))
        try:
            return await send()
        except final as gone:
            raise gone from unknown
        except refusals as refusal:
            return await _look(look, landed, otherwise=refusal, unknown=unknown)
        except OutcomeUnknown as error:
            unknown = error
        except KubeError:
            continue
    return await _look(look, landed, otherwise=unknown, unknown=unknown)


async def _look(
    look: Callable[[], Awaitable[T]], landed: Callable[[T], bool], *, otherwise: KubeError, unknown: OutcomeUnknown
) -> T:
    """The live object if our write shows in it; raises *otherwise* if it does not, *unknown* if nothing can be seen."""
    try:
        found = await look()
    except NotFound as gone:
        raise gone from unknown
    except KubeError as error:
        raise unknown from error
    if landed(found):
        return found
    if otherwise is unknown:
        raise unknown
    raise otherwise from unknown


def contains(obj: Any, patch: Any) -> bool:
    """True if *obj* is as the merge patch *patch* would leave it (``metadata.resourceVersion`` apart).

    This is the trace by which a patch of a status is recognised.
    """
    if not isinstance(patch, dict):
        return _same(obj, patch)
    return isinstance(obj, dict) and all(_holds(obj, name, value) for name, value in patch.items())


def _holds(obj: JsonObject, name: str, value: Any) -> bool:
    if name == "metadata" and isinstance(value, dict):
        value = {k: v for k, v in value.items() if k != "resourceVersion"}
    return name not in obj if value is None else contains(obj.get(name), value)


def _same(one: Any, other: Any) -> bool:
    """Whether the two are the same JSON; for Python 1 and true are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        return len(one) == len(other) and all(name in other and _same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def merge_diff(old: JsonObject, new: JsonObject) -> JsonObject:
    """The JSON merge patch (RFC 7386) that makes *new* of *old*; {} if they are equal.

    A null inside *new* cannot be said in a merge patch; it is treated as an absent member.
    """
    patch: JsonObject = {name: None for name in old if new.get(name) is None}
    for name, value in new.items():
        if value is None or (name in old and _same(old[name], value)):
            continue
        before = old.get(name)
        patch[name] = merge_diff(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return patch
