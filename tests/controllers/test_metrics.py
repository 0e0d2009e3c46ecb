"""What Prometheus is given."""

from __future__ import annotations

import asyncio
import re
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from kargo_py.argocd.application import Application, Metadata
from kargo_py.controllers.endpoints import METRICS, BindError, _split, metrics_handler, serving as serving_paths
from kargo_py.controllers.metrics import ControllerMetrics, registry
from kargo_py.controllers.running import Assembly, Options, StartError, _endpoints, assemble
from kargo_py.controllers.world import World
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.kube.controller import Controller
from kargo_py.kube.errors import Unreachable
from kargo_py.kube.events import EventRecorder
from kargo_py.kube.resources import Key
from kargo_py.kube.rest import Stats
from tests.engine.calling import executor
from tests.kube.fakes import ScriptedClient

DOCUMENTED = Path(__file__).parents[2] / "docs/reference/metrics.md"


def assembly() -> Assembly:
    client = ScriptedClient()
    recorder = EventRecorder(client, "kargo-py", "me")
    argocd = ArgoCD(client)
    world = World(
        instance="me", client=client, argocd=argocd, recorder=recorder, steps={}, checkers={}, executor=executor()
    )

    async def nothing(_key: str) -> None:
        """Reconcile nothing."""

    return Assembly(
        world,
        [world.stages, argocd.applications],
        [Controller("stage", nothing)],
        [recorder],
        {"kargo": Stats()},
    )


def serving(address: str, metrics: CollectorRegistry) -> AbstractAsyncContextManager[str]:
    return serving_paths(address, {METRICS: metrics_handler(metrics)})


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
    assert changed.pop(("kargo_queue_oldest_seconds", "stage")) > 0
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
        with pytest.raises(BindError, match=rf"cannot serve /metrics at '{taken}': .*choose another address"):
            async with serving(taken, registry(assembly())):
                pytest.fail("served")


@pytest.mark.parametrize("address", ["a..b:9090", "x" * 64 + ":9090", "\0:9090"])
async def test_hosts_that_are_none(address: str) -> None:
    """What no socket or resolver can make anything of is said like any other address that cannot be used."""
    with pytest.raises(BindError, match=r"cannot serve /metrics at .*choose another address"):
        async with serving(address, registry(assembly())):
            pytest.fail("served")


def test_an_ipv6_address() -> None:
    """Its brackets are not part of the host."""
    assert _split("[::1]:9090", "it") == ("::1", 9090)


async def test_a_cache_that_is_not_current() -> None:
    """A cache that was filled and cannot be followed is not current."""
    parts = assembly()
    stages = parts.world.stages
    stages._synced.set()
    async with serving("127.0.0.1:0", registry(parts)) as address:
        well = await scrape(address)
        stages._health.failed(Unreachable("refused"), "watch")
        ill = await scrape(address)

    name = ("kargo_cache_current", "stages.kargo.akuity.io")
    assert (well[name], ill[name]) == (1, 0)


@pytest.mark.parametrize(
    "accept",
    ["application/openmetrics-text; version=abc", "application/openmetrics-text;version=1..0", "text/plain; version=x"],
)
async def test_accept_that_nobody_understands(accept: str) -> None:
    """Whatever a client asks for, it gets plain text rather than an error."""
    async with (
        serving("127.0.0.1:0", registry(assembly())) as address,
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}/metrics", headers={"Accept": accept}) as answer,
    ):
        assert (answer.status, answer.content_type) == (200, "text/plain")
        assert "kargo_cache_objects" in await answer.text()


async def test_some_metrics_only() -> None:
    """A scraper may name those that it wants."""
    async with serving("127.0.0.1:0", registry(assembly())) as address, aiohttp.ClientSession() as session:
        url = f"http://{address}/metrics?name[]=kargo_reconciles_total&name[]=kargo_queue_ready&name[]=nothing"
        async with session.get(url) as answer:
            names = {family.name for family in text_string_to_metric_families(await answer.text())}

    assert names == {"kargo_reconciles", "kargo_queue_ready"}


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 1000,
    ],
    ids=["never sent", "never read"],
)
async def test_stopping_waits_for_no_client(request_: bytes) -> None:
    """A client that neither sends nor reads on does not hold up the end of the program."""
    loop = asyncio.get_running_loop()
    async with serving("127.0.0.1:0", registry(assembly())) as address:
        host, port = address.split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(request_)
        await asyncio.sleep(0.5)
        began = loop.time()
    took = loop.time() - began
    writer.transport.abort()

    assert took < 2


async def test_address_that_cannot_be_used_ends_the_start() -> None:
    """It is told like everything else that keeps the controllers from running."""
    with pytest.raises(StartError, match="write HOST:PORT"):
        async with _endpoints(assembly(), Options(metrics_address="nine")):
            pytest.fail("started")


async def test_two_servers() -> None:
    """Where Argo CD lives elsewhere its server is counted apart, and Events on Applications are written there."""
    here: Any = ScriptedClient()
    there: Any = ScriptedClient()
    here.stats, there.stats = Stats(), Stats()

    one, two = assemble(here, here, "me", Options()), assemble(here, there, "me", Options())

    assert (one.servers, len(one.recorders)) == ({"kargo": here.stats}, 1)
    assert two.servers == {"kargo": here.stats, "argocd": there.stats}
    assert two.world.argocd_recorder is two.recorders[1] is not two.world.recorder
    two.world.argocd.applications.observe(Application(Metadata("a", "argocd", "u", "1"), unreadable="no spec"))
    assert [len(recorder._queue) for recorder in two.recorders] == [0, 1]


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


async def test_a_thousand_promotions() -> None:
    """A scrape takes no longer than it may, and names no more queues than it should."""
    parts = assembly()
    for number in range(1200):
        spec = {"stage": f"stage-{number % 700}"}
        meta = {"name": f"p{number}", "namespace": "shop", "uid": f"u{number}", "resourceVersion": str(number + 1)}
        parts.world.promotions.observe({"metadata": meta, "spec": spec})
    clock = asyncio.get_running_loop().time
    began = clock()
    metrics = {metric.name: metric for metric in ControllerMetrics(parts).collect()}
    took = clock() - began

    queues = [(sample.labels["stage"], sample.value) for sample in metrics["kargo_promotions_queued"].samples]
    assert len(queues) == 501
    assert queues[0][1] == 2
    assert queues[-1] == ("", 200)
    assert sum(length for _, length in queues) == 1200
    assert took < 0.5


async def test_queues_follow_what_happens() -> None:
    """What begins, ends, is deleted, moves to another Stage or cannot be read is counted rightly."""
    parts = assembly()
    stats, promotions = parts.world.stats, parts.world.promotions

    def put(name: str, version: int, stage: Any, phase: str = "") -> None:
        meta = {"name": name, "namespace": "shop", "uid": name, "resourceVersion": str(version)}
        promotions.observe({"metadata": meta, "spec": {"stage": stage}, "status": {"phase": phase}})

    def queues() -> dict[str, int]:
        return {stage.name: length for stage, length in stats.queues(lambda stage: stage.name != "theirs")}

    for number, (name, stage) in enumerate([("a", "dev"), ("b", "dev"), ("c", "prod"), ("d", "theirs"), ("e", 7)], 1):
        put(name, number, stage)
    assert queues() == {"dev": 2, "prod": 1}
    put("a", 10, "dev", "Running")
    put("b", 11, "prod")
    assert queues() == {"prod": 2}
    put("c", 12, "prod", "Errored")
    promotions.observe_gone(Key("shop", "b"), "b")
    assert queues() == {}
    assert stats.oldest(lambda _: True).keys() == {"queue"}
