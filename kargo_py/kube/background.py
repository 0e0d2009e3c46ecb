"""Tasks that run for as long as the body of an ``async with`` does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

Job: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def background(jobs: Iterable[tuple[str, Job]]) -> AsyncIterator[Sequence[asyncio.Task[None]]]:
    """Run *jobs*, each with a name, beside the body; gives their tasks.

    When the body ends they are cancelled and awaited. When one of them fails, or ends by itself, the body is cancelled,
    and the context ends with that error. Errors come out as they are, the body's too, which a TaskGroup would wrap; in
    a group only where there are several.
    """
    raised: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_lasting(name, job), name=name) for name, job in jobs]
            try:
                yield tasks
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - raised below, once the jobs have ended
                raised = error
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as failed:
        errors = [*([raised] if raised is not None else []), *_leaves(failed)]
        if len(errors) == 1:
            raise errors[0] from errors[0].__cause__
        raise BaseExceptionGroup(failed.message, errors) from None
    if raised is not None:
        raise raised


async def _lasting(name: str, job: Job) -> None:
    await job()
    raise RuntimeError(f"{name} has ended, though it should run until it is cancelled")


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
