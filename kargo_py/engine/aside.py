"""Long calculations, made in threads so that the event loop stays free for all else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from kargo_py.steps.work import in_slot

T = TypeVar("T")

_THREADS: Final = 2
"""Only one thread runs Python at a time: more would end no sooner, and each takes its turn before the event loop's."""


class Aside:
    """Makes calculations in threads, few at a time; for one event loop."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_THREADS)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def call(self, namespace: str, function: Callable[[], T]) -> T:
        """Call *function*, pure and for an object in *namespace*, in a thread.

        For each namespace one at a time, so that those of which there are many in one hold up no other for long. When
        this is cancelled the wait ends at once, and the thread is taken until *function* has ended.
        """
        turn = self._turns.get(namespace)
        if turn is None:
            turn = self._turns[namespace] = asyncio.Lock()
        async with turn:
            return await in_slot(self._slots, function)
