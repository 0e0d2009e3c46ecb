"""What Prometheus is given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kargo_py.argocd.application import Application, Metadata
from kargo_py.controllers.metrics import BindError, ControllerMetrics, registry, serving
from kargo_py.controllers.running import Assembly
from kargo_py.controllers.world import World
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.kube.controller import Controller
from kargo_py.kube.events import EventRecorder
from kargo_py.kube.rest import Stats
from tests.kube.fakes import ScriptedClient

DOCUMENTED = Path(__file__).parents[2] / "docs/reference/metrics.md"


def assembly() -> Assembly:
    client = ScriptedClient()
    recorder = EventRecorder(client, "kargo-py", "me")
    argocd = ArgoCD(client)
    world = World(instance="me", client=client, argocd=argocd, recorder=recorder, steps={}, checkers={})

    async def nothing(_key: str) -> None:
        """Reconcile nothing."""

    return Assembly(
        world,
        [world.stages, argocd.applications],
        [Controller("stage", nothing)],
        [recorder],
        {"kargo": Stats()},
    )


async def scrape(address: str) -> dict[tuple[str, ...], float]:
    """All samples by name and the values of the labels, in the order of their names."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as answer:
        text = await answer.text()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_what_was_counted_is_served() -> None:
    """A scrape shows the counts as they are then: of objects, caches, queues, controllers and requests."""
    parts = assembly()
    async with serving("127.0.0.1:0", registry(parts)) as address:
        before = await scrape(address)
        parts.world.argocd.applications.observe(Application(Metadata("a", "argocd", "u", "1"), unreadable="no spec"))
        parts.controllers[0].enqueue("x")
        parts.servers["kargo"].requests["patch stages"] += 3
        after = await scrape(address)

    changed = {name: value for name, value in after.items() if before.get(name) != value}
    assert changed == {
        ("kargo_unreadable_objects_total", "Application"): 1,
        ("kargo_cache_objects", "applications.argoproj.io"): 1,
        ("kargo_queue_ready", "stage"): 1,
        ("kargo_queue_adds_total", "stage"): 1,
        ("kargo_api_requests_total", "stages", "kargo", "patch"): 3,
    }
    assert after["kargo_cache_current", "stages.kargo.akuity.io"] == 0


def test_documented() -> None:
    """The reference lists exactly the metrics that exist."""
    parts = assembly()
    exist = {
        metric.name + ("_total" if metric.type == "counter" else "") for metric in ControllerMetrics(parts).collect()
    }

    assert exist == set(re.findall(r"`(kargo_\w+)`", DOCUMENTED.read_text()))


@pytest.mark.parametrize("address", ["nine", "127.0.0.1", ":", ":http", ":99999", "²:²"])
async def test_addresses_that_are_none(address: str) -> None:
    """The error says how an address is written."""
    with pytest.raises(BindError, match="write HOST:PORT or :PORT"):
        async with serving(address, registry(assembly())):
            pytest.fail("served")


async def test_address_in_use() -> None:
    """The error names the address and why it cannot be had."""
    async with serving("127.0.0.1:0", registry(assembly())) as taken:
        with pytest.raises(BindError, match=rf"cannot serve metrics at {taken}: .*choose another address"):
            async with serving(taken, registry(assembly())):
                pytest.fail("served")


async def test_unreadable_application(logged: list[Any]) -> None:
    """It is told once for each fault, not at each of its versions."""
    world = assembly().world
    for version, fault in enumerate(["no spec", "no spec", "", "no spec", "no source"]):
        metadata = Metadata("a", "argocd", "u", str(version + 1))
        world.argocd.applications.observe(Application(metadata, unreadable=fault))

    assert world.unreadable["Application"] == 3
    told = [event["why"] for event in logged]
    assert [why.rsplit(": ", 1)[1] for why in told] == ["no spec; correct that field"] * 2 + [
        "no source; correct that field"
    ]
