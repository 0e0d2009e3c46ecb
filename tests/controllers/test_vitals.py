"""What the probes answer, and that it is true."""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from kargo_py.controllers.endpoints import HEALTHZ, METRICS, READYZ, check_handler, metrics_handler, serving_all
from kargo_py.controllers.metrics import registry
from kargo_py.controllers.running import Assembly, Options, run_assembly
from kargo_py.controllers.vitals import HANGING, STALLED, Part, Tasks, report
from kargo_py.kube.controller import Controller
from kargo_py.kube.errors import Unreachable
from tests.controllers.test_metrics import assembly


def faults(answer: tuple[bool, str]) -> list[str]:
    """The lines of what is wrong."""
    well, text = answer
    lines = [line for line in text.splitlines() if line.startswith("[-]")]
    assert well is not bool(lines)
    return lines


def test_report() -> None:
    """What is wrong comes first, and the last line says the verdict."""
    parts = [Part("a"), Part("b", "it is gone"), Part("c")]

    assert report("readyz", parts) == (False, "[-]b: it is gone\n[+]a ok\n[+]c ok\nreadyz check failed\n")
    assert report("healthz", parts[:1]) == (True, "[+]a ok\nhealthz check passed\n")


async def _crash() -> None:
    raise RuntimeError("out of luck")


async def _return() -> None:
    """End too early."""


@pytest.mark.parametrize(
    ("ending", "why"), [(_crash, "RuntimeError: out of luck"), (_return, "without an error")], ids=["crash", "return"]
)
async def test_a_task_that_died(ending: Callable[[], Any], why: str) -> None:
    """It is named with why it ended, also once the rest is being stopped."""
    parts = assembly()
    dead = asyncio.create_task(ending(), name="task/controller/stage")
    healthy = asyncio.create_task(asyncio.sleep(3600), name="task/events")
    for task in (dead, healthy):
        parts.tasks.add(task)
    await asyncio.wait([dead])

    said = [f"[-]task/controller/stage: it has ended, though it should run as long as the program does: {why}"]
    assert faults(parts.alive()) == said
    parts.tasks.stop()
    healthy.cancel()
    await asyncio.wait([healthy])
    assert faults(parts.alive()) == said


async def test_a_task_that_may_end() -> None:
    """What ends because it was asked to is no fault, but what stops is not ready."""
    tasks = Tasks()
    task = asyncio.create_task(asyncio.sleep(3600))
    tasks.add(task)
    tasks.stop()
    task.cancel()
    await asyncio.wait([task])

    assert list(tasks.parts()) == []
    parts = assembly()
    parts.tasks.stop()
    assert "[-]instance: it is being stopped" in faults(parts.ready())


async def test_caches() -> None:
    """Ready means: filled, and followed; otherwise it says why not. Alive has nothing to do with it."""
    parts = assembly()
    stages, applications = parts.caches
    applications._synced.set()
    stages._health.failed(Unreachable("connection refused"), "list")
    applications._health.failed(Unreachable("no route"), "watch")

    assert faults(parts.ready()) == [
        "[-]cache/stages.kargo.akuity.io: the first list is not in yet: connection refused",
        "[-]cache/applications.argoproj.io: it is not being kept current: no route",
        "[-]controller/stage: it does not reconcile yet",
    ]
    assert faults(parts.alive()) == []


def _with(controller: Controller[str]) -> Assembly:
    parts = assembly()
    return Assembly(parts.world, [], [controller], parts.recorders, parts.servers)


@pytest.mark.looptime
async def test_a_reconcile_that_hangs() -> None:
    """It is named, once it takes longer than anything can that makes progress; until then all is well."""
    never = asyncio.Event()

    async def hang(_key: str) -> None:
        await never.wait()

    controller = Controller("stage", hang, concurrency=2, grace=0)
    parts = _with(controller)
    task = asyncio.create_task(controller.run())
    controller.enqueue("shop/dev")
    await asyncio.sleep(HANGING - 1)
    assert faults(parts.alive()) == []
    assert faults(parts.ready()) == []
    await asyncio.sleep(2)
    assert faults(parts.alive()) == [f"[-]queue/stage: shop/dev has been worked on for {HANGING + 1:.0f} s"]
    never.set()
    await asyncio.sleep(0.1)
    assert faults(parts.alive()) == []
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.looptime
async def test_a_queue_that_is_stuck() -> None:
    """Keys that are ready and never begun show; a queue that moves on is well however long it is."""
    turns: asyncio.Queue[None] = asyncio.Queue()

    async def slow(_key: str) -> None:
        await turns.get()

    controller = Controller("stage", slow, concurrency=1, grace=0)
    parts = _with(controller)
    task = asyncio.create_task(controller.run())
    for number in range(20):
        controller.enqueue(f"stage-{number}")
    for _ in range(10):
        await asyncio.sleep(STALLED / 2)
        assert faults(parts.alive()) == []
        turns.put_nowait(None)
    await asyncio.sleep(STALLED + 1)
    assert faults(parts.alive()) == [
        f"[-]queue/stage: keys have been ready for {STALLED + 1:.0f} s, and none was begun"
    ]
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.looptime
async def test_keys_that_wait_for_the_caches() -> None:
    """Before the caches are filled nothing is begun, and that is no reason for a restart."""
    parts = assembly()
    controller = parts.controllers[0]
    controller.enqueue("shop/dev")
    await asyncio.sleep(10 * STALLED)

    assert faults(parts.alive()) == []


async def test_over_http() -> None:
    """One port serves all where the addresses are one; a fault is 503 with the text."""
    parts = assembly()
    address = "127.0.0.1:0"
    wanted = {
        METRICS: (address, metrics_handler(registry(parts))),
        HEALTHZ: (address, check_handler(parts.alive)),
        READYZ: (address, check_handler(parts.ready)),
    }
    async with serving_all(wanted) as used, aiohttp.ClientSession() as session:
        answers = {}
        for path, where in used.items():
            async with session.get(f"http://{where}{path}") as answer:
                answers[path] = (answer.status, (await answer.text()).splitlines()[-1])
                assert answer.content_type == "text/plain"
    assert len(set(used.values())) == 1
    assert answers[HEALTHZ] == (200, "healthz check passed")
    assert answers[READYZ] == (503, "readyz check failed")
    assert answers[METRICS][0] == 200


async def test_ports_of_their_own() -> None:
    """Each address has what was asked for there and nothing else; "" is nowhere."""
    check = check_handler(assembly().alive)
    wanted = {METRICS: ("127.0.0.1:0", check), HEALTHZ: ("localhost:0", check), READYZ: ("", check)}
    async with serving_all(wanted) as used, aiohttp.ClientSession() as session:
        assert set(used) == {METRICS, HEALTHZ}
        async with session.get(f"http://{used[METRICS]}{HEALTHZ}") as answer:
            assert answer.status == 404


@pytest.mark.nonblocking_exempt(reason="that a loop which hangs answers no probe is what is tested")
async def test_a_loop_that_hangs() -> None:
    """It answers no probe: that is what tells."""
    parts = assembly()
    found: list[str] = []

    def probe(url: str) -> None:
        try:
            with urllib.request.urlopen(url, timeout=0.3) as answer:
                found.append(str(answer.status))
        except OSError:
            found.append("no answer")

    async with serving_all({HEALTHZ: ("127.0.0.1:0", check_handler(parts.alive))}) as used:
        url = f"http://{used[HEALTHZ]}{HEALTHZ}"
        await asyncio.to_thread(probe, url)
        thread = threading.Thread(target=probe, args=(url,))
        thread.start()
        thread.join()
    assert found == ["200", "no answer"]


async def test_a_controller_that_crashes_takes_all_down() -> None:
    """Until the others have ended the probe says which; then the program ends with the error."""
    parts = assembly()

    async def crash() -> None:
        raise RuntimeError("out of luck")

    for cache in parts.caches:
        cache._synced.set()
    parts.controllers[0].run = crash  # type: ignore[method-assign]

    with pytest.raises(RuntimeError, match="out of luck"):
        await run_assembly(parts, Options())

    assert "task/controller/stage" in "".join(faults(parts.alive()))
