"""Starts that nobody answers, and that land, or would, when the step has long ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from kargo_py.api.names import Actor
from kargo_py.api.stamp import STATE_KEY
from kargo_py.argocd.application import APPLICATIONS
from kargo_py.deployers.base import read_records
from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import Conflict, Forbidden, OutcomeUnknown
from kargo_py.kube.resources import Key, Resource
from kargo_py.steps.argocd_update import USES
from kargo_py.steps.base import Finished, StepContext
from tests.protocol.universe import APP, PROJECT, Line, Universe, universe

pytestmark = pytest.mark.looptime

FORCED = '{"action": "terminate", "force": true}'


class Wire:
    """The way of patches of Applications from a process of ours to the server: starts are kept on it.

    They hang, or with *breaks* the connection is lost. ``answer`` makes that to a start, once it is set; ``cut``: to
    all other patches of Applications, too. ``overtaken``: is done before the next of those.
    """

    def __init__(self, line: Line, *, breaks: bool = False) -> None:
        self.kept: list[tuple[Key, bytes]] = []
        self.answer: Callable[[], Exception] | None = None
        self.overtaken: Callable[[], Awaitable[bool]] | None = None
        self.cut = False
        self.sent = asyncio.Event()
        self._breaks = breaks
        self._asked = line.patch
        line.patch = self.patch  # type: ignore[method-assign]

    async def patch(self, resource: Resource, key: Key, body: bytes, **options: Any) -> Any:
        is_start = resource == APPLICATIONS and "operation" in json.loads(body)
        if self.answer is not None and (is_start or (self.cut and resource == APPLICATIONS)):
            raise self.answer()
        if not is_start and resource == APPLICATIONS and self.overtaken is not None:
            assert await self.overtaken()
            self.overtaken = None
        if not is_start:
            return await self._asked(resource, key, body, **options)
        self.kept.append((key, body))
        self.sent.set()
        if self._breaks:
            raise OutcomeUnknown("connection reset")
        await asyncio.sleep(10_000)
        return None

    async def lands(self, world: Universe) -> bool:
        """What is on the way arrives at last; whether any of it is carried out."""
        landed = False
        for key, body in self.kept:
            try:
                await world.user.patch(APPLICATIONS, key, body, codec=JSON)
            except Conflict:
                continue
            landed = True
        return landed


async def at_rest(world: Universe) -> None:
    """Argo CD has looked at the Application, and writes nothing more: a start that is kept would land as it is."""
    await world.until(lambda: world.app().get("status", {}).get("reconciledAt"))
    await asyncio.sleep(5)


def state(world: Universe) -> str:
    return str(world.operations()[0]["state"])


async def test_after_the_time_is_up() -> None:
    """What is on record as not started cannot land any more, though the step is detached from what it has started."""
    async with universe() as (world, _), world.process() as ours:
        wire = Wire(ours.line)
        await at_rest(world)
        await world.promote(retry={"timeout": "1m"})
        assert await world.ended() == "Failed"

        assert state(world) == "NotStarted"
        assert wire.kept
        assert not await wire.lands(world)
    assert "operation" not in world.app()


async def test_just_before_it_is_looked_at_for_the_last_time() -> None:
    """It has landed by then: that is seen, and on record."""
    async with universe() as (world, argo), world.process() as ours:
        argo.application(APP.name).next_sync(hang=True)
        wire = Wire(ours.line)
        await at_rest(world)
        await world.promote(retry={"timeout": "1m"})
        await asyncio.sleep(59)
        assert world.phase() == "Running"
        assert await wire.lands(world)
        assert await world.ended() == "Failed"

    assert state(world) == "Detached"
    assert "the sync was left to run" in world.message()


async def test_no_write_is_answered() -> None:
    """It is seen that nothing has landed, and not that nothing will: the step ends in its time, and says so."""
    async with universe() as (world, _), world.process() as ours:
        wire = Wire(ours.line)
        await at_rest(world)
        await world.promote(retry={"timeout": "1m"})
        await wire.sent.wait()
        wire.answer, wire.cut = lambda: OutcomeUnknown("connection reset"), True
        assert await world.ended(seconds=75) == "Failed"

        assert state(world) == "Detached"
        assert "may have been started, or may be yet" in world.message()
        assert await wire.lands(world)


async def test_what_a_process_before_this_one_has_sent() -> None:
    """The new one does not know whether a start was sent, so it makes sure."""
    async with universe() as (world, _):
        async with world.process() as first:
            wire = Wire(first.line)
            await at_rest(world)
            await world.promote(retry={"timeout": "1m"})
            await wire.sent.wait()
            await first.kill()
        async with world.process() as second:
            again = Wire(second.line)
            assert await world.ended() == "Failed"
            assert state(world) == "NotStarted"
            assert not await wire.lands(world)
            assert not await again.lands(world)


async def test_after_an_abort() -> None:
    async with universe() as (world, _), world.process() as ours:
        wire = Wire(ours.line, breaks=True)
        await at_rest(world)
        await world.promote(retry={"timeout": "1h"})
        await wire.sent.wait()
        await world.abort()
        assert await world.ended() == "Aborted"

        assert state(world) == "NotStarted"
        assert not await wire.lands(world)


async def test_after_a_forced_abort() -> None:
    """No request is answered, so it cannot be made sure of: the record does not say that it was not started."""
    async with universe() as (world, _), world.process() as ours:
        wire = Wire(ours.line, breaks=True)
        await at_rest(world)
        await world.promote(retry={"timeout": "1h"})
        await wire.sent.wait()
        wire.answer, wire.cut = lambda: OutcomeUnknown("connection reset"), True
        await world.abort(value=FORCED)
        assert await world.ended() == "Aborted"

        assert state(world) == "Detached"
        assert "may have been started, or may be yet" in world.message()
        assert "keeps the change" not in world.message()
        assert await wire.lands(world)


@pytest.mark.parametrize("cut", [False, True])
async def test_after_it_was_refused(cut: bool) -> None:
    """The next one is refused, by admission say: the first one cannot land any more, or the record says that it may."""
    async with universe() as (world, _), world.process() as ours:
        wire = Wire(ours.line, breaks=True)
        await at_rest(world)
        await world.promote(retry={"timeout": "1h"})
        await wire.sent.wait()
        wire.answer, wire.cut = lambda: Forbidden(403, "Forbidden", "no more of that"), cut
        assert await world.ended() == "Failed"

        assert "no more of that" in world.message()
        assert state(world) == ("Detached" if cut else "Refused")
        assert await wire.lands(world) == cut


async def test_before_it_was_refused() -> None:
    """The first one has landed: it is waited for, whatever is said to the next one."""
    async with universe() as (world, argo), world.process() as ours:
        argo.application(APP.name).next_sync(duration=30)
        wire = Wire(ours.line, breaks=True)
        await at_rest(world)
        await world.promote(retry={"timeout": "1h"})
        await wire.sent.wait()
        wire.answer = lambda: Forbidden(403, "Forbidden", "no more of that")
        wire.overtaken = partial(wire.lands, world)
        assert await world.ended() == "Succeeded"

    assert state(world) == "Succeeded"


@pytest.mark.parametrize("cut", [False, True])
async def test_after_the_configuration_cannot_be_read(cut: bool) -> None:
    """Expressions say something else after a restart, which is no configuration: so it is with what was sent before."""
    async with universe() as (world, _), world.process() as ours:
        wire = Wire(ours.line, breaks=True)
        await at_rest(world)
        await world.promote(retry={"timeout": "1h"})
        await wire.sent.wait()
        wire.answer, wire.cut = lambda: OutcomeUnknown("connection reset"), cut
        now = world.now()
        context = StepContext(
            instance="me",
            project=PROJECT,
            stage="dev",
            promotion="p1",
            promotion_uid=world.promotion()["metadata"]["uid"],
            actor=Actor.of(None),
            alias="sync",
            config={"apps": "none"},
            now=now,
            started_at=now,
            records=read_records(world.promotion()["status"]["state"][STATE_KEY]),
        )
        outcome = await ours.world.steps[USES].run(context)

        assert isinstance(outcome, Finished)
        assert [record.state.value for record in outcome.records] == ["Detached" if cut else "NotStarted"]
        assert await wire.lands(world) == cut
