"""Jobs beside the body of an ``async with``: who ends whom, and with which error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import pytest

from kargo_py.kube.background import Job, background


class Trouble(Exception):
    """What a job or a body fails with here."""


async def forever() -> None:
    await asyncio.Event().wait()


async def fails() -> NoReturn:
    await asyncio.sleep(0)
    raise Trouble("of the job")


async def returns() -> None:
    await asyncio.sleep(0)


class Tidy:
    """A job that takes a second to end, and tells when it has."""

    ended = False

    async def __call__(self) -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(1)
            self.ended = True


@pytest.mark.looptime
async def test_the_end_of_the_body_ends_the_jobs() -> None:
    """They are cancelled, and awaited until they have ended."""
    job = Tidy()
    async with background([("tidy", job)]) as (task,):
        await asyncio.sleep(1)
        assert not task.done()

    assert job.ended
    assert task.cancelled()


async def beside(jobs: Sequence[tuple[str, Job]], body: Job) -> None:
    async with background(jobs):
        await body()


@pytest.mark.looptime
async def test_an_error_of_the_body_comes_out_as_it_is() -> None:
    """Not in a group, and after the jobs have ended."""
    job = Tidy()
    error = Trouble("of the body")

    async def body() -> None:
        await asyncio.sleep(1)
        raise error

    with pytest.raises(Trouble) as caught:
        await beside([("tidy", job)], body)

    assert caught.value is error
    assert job.ended


@pytest.mark.looptime
async def test_a_job_that_fails_ends_the_body() -> None:
    """The body is cancelled where it waits, the others end, and the error comes out as it is."""
    other, body = Tidy(), Tidy()
    with pytest.raises(Trouble, match="of the job"):
        await beside([("fails", fails), ("tidy", other)], body)

    assert other.ended
    assert body.ended
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_job_that_ends_by_itself_is_a_failure() -> None:
    """Its name is told."""
    with pytest.raises(RuntimeError, match=r"^the watcher has ended"):
        await beside([("the watcher", returns)], forever)


async def test_a_failure_counts_though_the_body_hides_its_cancellation() -> None:
    """A body that takes the cancellation for an end of its own does not hide why there was one."""

    async def body() -> None:
        with suppress(asyncio.CancelledError):
            await forever()

    with pytest.raises(Trouble, match="of the job"):
        await beside([("fails", fails)], body)


async def test_two_errors() -> None:
    """None of them is lost."""

    async def body() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            raise Trouble("of the body") from None

    with pytest.raises(ExceptionGroup) as caught:
        await beside([("fails", fails)], body)

    assert [str(error) for error in caught.value.exceptions] == ["of the body", "of the job"]


@pytest.mark.looptime
async def test_cancelled_from_outside() -> None:
    """A time-out around it all is still a time-out."""
    job = Tidy()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await beside([("tidy", job)], forever)

    assert job.ended


async def test_an_error_keeps_its_cause() -> None:
    """What it came from is told, and nothing of the group it was in."""
    cause = ValueError("the cause")

    async def caused() -> None:
        raise Trouble from cause

    with pytest.raises(Trouble) as caught:
        await beside([("caused", caused)], forever)

    assert caught.value.__cause__ is cause
