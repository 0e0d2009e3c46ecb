"""Steps that take long to check hold up nothing else."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kargo_py.api.admission import ANNOTATION_CUSTOM_STEPS, CUSTOM_STEPS_ALLOWED
from kargo_py.api.stage import Stage
from kargo_py.controllers.world import PROMOTIONS, STAGES, TASKS
from kargo_py.engine.checks import Draft, check
from kargo_py.engine.problems import Problem
from kargo_py.kube.errors import Unreachable
from kargo_py.kube.resources import Key
from kargo_py.steps.registry import Kinds
from tests.protocol.test_admission import create, prepared, reasons, template
from tests.protocol.universe import PROJECT, Universe

pytestmark = pytest.mark.looptime

JsonObject = dict[str, Any]

COMPOSE: JsonObject = {"uses": "compose-output", "config": {"a": "b"}}
HOSTILE: list[JsonObject] = [
    {"uses": "compose-output", "config": {"a": f"${{{{ {'1 + ' * 2000}1 }}}}"}},
    {"uses": "compose-output", "config": {"b": "${{ 1 + }}"}},
]
REFUSED = "steps[1].config.b: not an expression"


class Watched:
    """Lets checks of :data:`HOSTILE` begin, and end when the event loop says so, on which they must not run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = asyncio.get_running_loop()
        self._check = check
        self._may_end = threading.Event()
        self._on_loop = threading.get_ident()
        self.begun = asyncio.Event()
        self.counts = {"loop": 0, "thread": 0}
        monkeypatch.setattr("kargo_py.controllers.template.check", self)

    def __call__(self, draft: Draft, kinds: Kinds) -> list[Problem]:
        here = threading.get_ident() == self._on_loop
        self.counts["loop" if here else "thread"] += 1
        if any(step.config == HOSTILE[1]["config"] for step in draft.steps):
            assert not here, "the event loop waits"
            self._loop.call_soon_threadsafe(self.begun.set)
            assert self._may_end.wait(60), "the event loop does nothing else"
        return self._check(draft, kinds)

    async def until_begun(self) -> None:
        async with asyncio.timeout(600):
            await self.begun.wait()

    def may_end(self) -> None:
        self._may_end.set()


async def create_stage(world: Universe, *steps: JsonObject) -> None:
    """A Stage that allows other steps than its own."""
    meta = {"annotations": {ANNOTATION_CUSTOM_STEPS: CUSTOM_STEPS_ALLOWED}}
    await world.create(STAGES, "other", {"metadata": meta, "spec": template(*steps)})


@pytest.mark.parametrize("place", ["the Stage", "the Promotion", "a task"])
async def test_others_run(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """While the steps of one Promotion are checked, another is created, admitted, and runs to its end."""
    async with prepared(COMPOSE) as (world, _), world.process():
        watched = Watched(monkeypatch)
        written = HOSTILE
        if place == "a task":
            await world.create(TASKS, "much", {"spec": {"steps": HOSTILE}})
            written = [{"as": "t", "task": {"name": "much"}}]
        await create_stage(world, *(written if place != "the Promotion" else [COMPOSE]))
        own = {"steps": HOSTILE} if place == "the Promotion" else {}
        await world.create(PROMOTIONS, "much", {"spec": {"stage": "other", "freight": "f1", **own}})
        await watched.until_begun()

        await create(world, "quick")
        assert await world.ended("quick") == "Succeeded"
        assert world.phase("much") == "Pending"
        watched.may_end()

        assert await world.ended("much") == "Errored"
        assert REFUSED in world.message("much")
        assert watched.counts["loop"] > 0, "what is short needs no thread"


async def test_the_stage_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Stage that was changed while its template was checked is looked at once more, as it is then."""
    async with prepared(COMPOSE) as (world, _), world.process() as process:
        watched = Watched(monkeypatch)
        await create_stage(world, *HOSTILE)
        await watched.until_begun()
        await world.user.delete(STAGES, Key(PROJECT, "other"))
        await create_stage(world, COMPOSE)
        watched.may_end()

        def valid() -> list[str]:
            status = world._object(STAGES, Key(PROJECT, "other")).get("status") or {}
            return [c["status"] for c in status.get("conditions", ()) if c["type"] == "PromotionTemplateValid"]

        await world.until(valid)
        assert valid() == ["True"]
        written = [body for _, key, body in process.line.writes if key.name == "other"]
        assert "InvalidPromotionTemplate" not in str(written), "what is outdated is not even sent"


async def test_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Stage and many Promotions that wait for the same template have it checked once, not once each."""
    async with prepared(COMPOSE) as (world, _), world.process():
        watched = Watched(monkeypatch)
        await create_stage(world, *HOSTILE)
        for number in range(10):
            await world.create(PROMOTIONS, f"much-{number}", {"spec": {"stage": "other", "freight": "f1"}})
        await watched.until_begun()
        watched.may_end()
        for number in range(10):
            assert await world.ended(f"much-{number}") == "Errored"

        assert watched.counts["thread"] == 1, "the Stage's condition and its Promotions have it of one"


async def test_tasks_about_which_no_answer_comes() -> None:
    """Who waits for the same template waits for one answer, not for that to each of the others first."""
    async with prepared(COMPOSE) as (world, _), world.process() as process:
        get = process.line.get

        async def silent(resource: Any, key: Key, **options: Any) -> Any:
            if resource == TASKS:
                await asyncio.sleep(30)
                raise Unreachable("no answer")
            return await get(resource, key, **options)

        process.line.get = silent  # type: ignore[method-assign]
        spec = template({"as": "t", "task": {"name": "absent"}})
        stage = Stage.model_validate({"metadata": {"name": "other", "namespace": PROJECT}, "spec": spec})
        templates, began = process.world.templates, asyncio.get_running_loop().time()
        found = await asyncio.gather(*(templates.of(stage) for _ in range(5)), return_exceptions=True)

        assert [type(one) for one in found] == [Unreachable] * 5
        assert asyncio.get_running_loop().time() - began < 31


async def test_a_short_text_that_takes_long() -> None:
    """A short expression may take long: it is evaluated in a thread, and the Promotion is what the template says."""
    long = {"uses": "compose-output", "as": "c", "config": {"a": "${{ count(1..20000, # > 0) }}"}}
    given = {"uses": "compose-output", "as": "c", "config": {"a": 20000}}
    async with prepared(long) as (world, _), world.process() as process:
        calls: list[str] = []
        call = process.world.aside.call

        async def counted(namespace: str, function: Any) -> Any:
            calls.append(namespace)
            return await call(namespace, function)

        process.world.aside.call = counted  # type: ignore[method-assign]
        await world.create(PROMOTIONS, "p1", {"spec": {"stage": "dev", "freight": "f1", "steps": [given]}})
        assert await world.ended("p1") == "Succeeded"

    assert calls
    assert set(calls) == {PROJECT}
    assert world.promotion()["spec"]["steps"] == [given]
    assert "StepsReplaced" not in reasons(world)


async def test_many_short_texts() -> None:
    """More than are evaluated while all else waits, and as many as a Stage may well have: none is taken for another."""
    config = {f"k{number}": f"${{{{ ctx.stage + '{number}' }}}}" for number in range(8)}
    evaluated = {name: f"dev{name[1:]}" for name in config}
    steps = [{"uses": "compose-output", "as": f"s{number}", "config": config} for number in range(60)]
    given = [{**one, "config": evaluated} for one in steps]
    async with prepared(*steps) as (world, _), world.process():
        await world.create(PROMOTIONS, "p1", {"spec": {"stage": "dev", "freight": "f1", "steps": given}})
        assert await world.ended("p1") == "Succeeded"

    assert world.promotion()["spec"]["steps"] == given
    assert "StepsReplaced" not in reasons(world)
