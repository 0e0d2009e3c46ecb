"""A process of ours that dies at its Nth await, as SIGKILL would end it: nothing of it goes on, nothing is tidied.

Every task that is begun in the body of :meth:`Life.lived`, and every task that these begin, is driven by hand. Each
time one of them waits counts; at the fatal one all of them are left standing where they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from types import TracebackType
from typing import Any

_life: ContextVar[Life | None] = ContextVar("life", default=None)


class Life:
    """One process's; *fatal* is the number of the await that is its last, 0 for none."""

    def __init__(self, fatal: int = 0) -> None:
        self.fatal = fatal
        self.awaits = 0
        self.died = asyncio.Event()
        self._buried = False
        self._coroutines: list[Driven] = []

    @contextmanager
    def lived(self) -> Iterator[None]:
        """What the body begins lives this life."""
        token = _life.set(self)
        try:
            yield
        finally:
            _life.reset(token)

    def add(self, coroutine: Driven) -> None:
        self._coroutines.append(coroutine)

    @property
    def is_over(self) -> bool:
        return self.died.is_set()

    @property
    def is_buried(self) -> bool:
        return self._buried

    def waited(self) -> None:
        """One of its tasks waits."""
        self.awaits += 1
        if self.awaits == self.fatal:
            self.died.set()

    def bury(self) -> None:
        """Nothing can be asked of it any more: let its tasks be cancelled, and forget what they were at."""
        self._buried = True
        for coroutine in self._coroutines:
            coroutine.bury()
        self._coroutines.clear()


class Driven(Coroutine[Any, Any, Any]):
    """A coroutine of a task, as long as its life lasts."""

    def __init__(self, inner: Coroutine[Any, Any, Any], life: Life) -> None:
        self._inner = inner
        self._life = life
        life.add(self)

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError("only a task drives it")

    def send(self, value: Any) -> Any:
        return self._go_on(lambda: self._inner.send(value))

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        error: BaseException | object = None,
        trace: TracebackType | None = None,
    ) -> Any:
        raised = kind if isinstance(kind, BaseException) else kind()
        return self._go_on(lambda: self._inner.throw(raised))

    def _go_on(self, go_on: Callable[[], Any]) -> Any:
        if self._life.is_buried:
            raise asyncio.CancelledError
        if self._life.is_over:
            return _for_ever()
        waits_for = go_on()
        self._life.waited()
        return waits_for

    def close(self) -> None:
        self._inner.close()

    def bury(self) -> None:
        """End the inner coroutine, however much it still wants to wait for."""
        for _ in range(100):
            with suppress(BaseException):
                self._inner.close()
                return


def _for_ever() -> Any:
    future: Any = asyncio.get_running_loop().create_future()
    # As a coroutine that awaits it would tell its task.
    future._asyncio_future_blocking = True
    return future


@contextmanager
def mortal_tasks(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """In the body, tasks live the lives in which they are begun."""

    def factory(
        loop: asyncio.AbstractEventLoop, coroutine: Any, *, context: Context | None = None
    ) -> asyncio.Future[Any]:
        life = _life.get() if context is None else context.get(_life)
        driven = Driven(coroutine, life) if life is not None else coroutine
        return asyncio.Task(driven, loop=loop, context=context)

    loop.set_task_factory(factory)
    try:
        yield
    finally:
        loop.set_task_factory(None)
