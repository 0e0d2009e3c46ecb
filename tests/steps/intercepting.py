"""A client between a step and the server, where others can be quicker and answers get lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kargo_py.kube.client import Client, Codec, Page
from kargo_py.kube.resources import Key, Resource

T = TypeVar("T")


class Intercepting:
    """Passes on what steps ask for; ``before_patch`` is called with the number of the patch, from 1."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.before_patch: Callable[[int], Awaitable[None]] | None = None
        self.after_patch: Callable[[int], Awaitable[None]] | None = None
        self.patches = 0
        self.reads: list[Key] = []

    async def get(self, resource: Resource, key: Key, *, codec: Codec[T]) -> T:
        self.reads.append(key)
        return await self._client.get(resource, key, codec=codec)

    async def list(self, resource: Resource, namespace: str = "", *, codec: Codec[T], **options: Any) -> Page[T]:
        return await self._client.list(resource, namespace, codec=codec, **options)

    async def patch(self, resource: Resource, key: Key, body: bytes, *, codec: Codec[T], **options: Any) -> T:
        self.patches += 1
        if self.before_patch is not None:
            await self.before_patch(self.patches)
        answer = await self._client.patch(resource, key, body, codec=codec, **options)
        if self.after_patch is not None:
            await self.after_patch(self.patches)
        return answer
