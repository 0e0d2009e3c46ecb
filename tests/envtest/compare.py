"""What the embedded API server costs beside a real one (`make compare`).

Both run side by side, are asked in turns by the same clients, and are measured by the CPU time of their own processes
(the real one's are kube-apiserver and etcd), so that what else the machine does counts little: compare the figures
with each other, and those of one run only.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import http.client
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import psutil
import yaml

from kargo_py.cli.logs import parse_logs
from kargo_py.kube.cache import Cache
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.connection import connect
from kargo_py.kube.resources import Key, Resource
from kargo_py.local.apiserver.server import ApiServer as Core
from kargo_py.local.apiserver.wire import Request, Response
from tests.envtest import crds
from tests.envtest.access import JsonObject
from tests.envtest.binaries import BinariesMissing, find
from tests.envtest.processes import ChildProcess
from tests.envtest.server import DEFINITIONS, Options, ServerFailed, poll, running

PROGRAM: Final = Path(sys.executable).with_name("kargo-py")
STAGES: Final = Resource("kargo.akuity.io", "v1alpha1", "stages", "Stage")
NAMESPACE: Final = "default"
MERGE: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
_AS_MANAGER: Final = "fieldManager=compare&force=true"
WATCHERS: Final = 20
ROUNDS: Final = 3
"""Turns that each server has in each measurement; the cheapest counts."""
_LISTS: Final = 50
_SECONDS: Final = 60.0
_MIB: Final = 1 << 20


def stage(name: str) -> JsonObject:
    """A Stage with two steps."""
    steps = [
        {"uses": "git-clone", "config": {"repoURL": "https://git.example/a.git", "checkout": [{"path": "./src"}]}},
        {"uses": "argocd-update", "config": {"apps": [{"name": name}]}},
    ]
    origin = {"kind": "Warehouse", "name": "main"}
    return {
        "apiVersion": STAGES.api_version,
        "kind": STAGES.kind,
        "metadata": {"name": name, "labels": {"app": "shop"}},
        "spec": {
            "requestedFreight": [{"origin": origin, "sources": {"direct": True}}],
            "promotionTemplate": {"spec": {"steps": steps}},
        },
    }


Asked = tuple[str, str, JsonObject | None, str]
"""Method, path, body, content type."""


def creates(namespace: str, names: Sequence[str]) -> list[Asked]:
    """Create these Stages."""
    return [("POST", STAGES.path(namespace), stage(name), "application/json") for name in names]


def gets(namespace: str, names: Sequence[str]) -> list[Asked]:
    """Read each."""
    return [("GET", STAGES.path(namespace, name), None, "") for name in names]


def applies(namespace: str, names: Sequence[str]) -> list[Asked]:
    """Apply each."""
    return [("PATCH", f"{STAGES.path(namespace, name)}?{_AS_MANAGER}", stage(name), APPLY) for name in names]


def statuses(namespace: str, names: Sequence[str]) -> list[Asked]:
    """Patch the status of each."""
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"conditions": [{**ready, "message": ""}], "observedGeneration": 1}
    return [("PATCH", STAGES.path(namespace, name, "status"), {"status": status}, MERGE) for name in names]


def lists(namespace: str) -> list[Asked]:
    """List all, and again."""
    return [("GET", STAGES.path(namespace), None, "")] * _LISTS


@dataclass
class Server:
    """One of the two, or our core in this process."""

    name: str
    url: str
    token: str
    authority: str
    processes: Sequence[psutil.Process]
    kubeconfig: Path
    ready_wall: float
    ready_cpu: float
    figures: dict[str, float] = field(default_factory=dict)
    """Milliseconds of CPU for each request, by what was asked."""

    def cpu(self) -> float:
        """Seconds that its processes have used so far."""
        return _cpu(self.processes)

    def memory(self) -> float:
        """Resident MiB."""
        return sum(process.memory_info().rss for process in self.processes) / _MIB

    @contextmanager
    def connection(self) -> Iterator[http.client.HTTPSConnection]:
        """A connection that stays open."""
        where = urlsplit(self.url)
        context = ssl.create_default_context(cadata=self.authority)
        with closing(http.client.HTTPSConnection(where.hostname or "", where.port, context=context)) as connection:
            yield connection

    def ask(self, requests: Sequence[Asked]) -> float:
        """Milliseconds of CPU for each of *requests*, which are sent one after the other."""
        with self.connection() as connection:
            self._send(connection, ("GET", "/version", None, ""))
            before = self.cpu()
            for asked in requests:
                self._send(connection, asked)
            return (self.cpu() - before) / len(requests) * 1000

    def _send(self, connection: http.client.HTTPSConnection, asked: Asked) -> bytes:
        method, path, body, media = asked
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": media}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{self.name}: {method} {path}: {answer.status} {content[:500].decode()}")
        return content


def _cpu(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


@contextmanager
def real(directory: Path) -> Iterator[Server]:
    """kube-apiserver and etcd."""
    options = Options(audit="off", authorization="AlwaysAllow")
    programs = find()  # not to be counted: it makes a hash of its sources
    began = time.perf_counter()
    with running(directory, programs=programs, options=options) as server:
        wall = time.perf_counter() - began
        processes = [psutil.Process(pid) for pid in server.pids.values()]
        cpu = _cpu(processes)
        crds.install(server, crds.read(crds.OURS))
        path, authority = server.kubeconfig("admin"), server.ca_file.read_text()
        yield Server("real", server.url, server.token("admin"), authority, processes, path, wall, cpu)


@contextmanager
def embedded(directory: Path) -> Iterator[Server]:
    """``kargo-py apiserver``; its second start counts, when Python has compiled what it runs."""
    directory.mkdir(parents=True)
    path = directory / "kubeconfig"
    first, _, _ = _started(directory, path)
    first.kill()
    child, wall, cpu = _started(directory, path)
    try:
        config = yaml.safe_load(path.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        processes = [psutil.Process(child.pid)]
        server = Server("embedded", cluster["server"], user["token"], authority, processes, path, wall, cpu)
        server.ask([("POST", DEFINITIONS, definition, "application/json") for definition in crds.read(crds.OURS)])
        yield server
    finally:
        child.kill()


def _started(directory: Path, kubeconfig: Path) -> tuple[ChildProcess, float, float]:
    """The process, and seconds of time and of CPU until it was ready."""
    began = time.perf_counter()
    command: list[str | Path] = [PROGRAM, "apiserver", "--write-kubeconfig", kubeconfig]
    child = ChildProcess("apiserver", command, directory / "apiserver.log")
    poll(lambda: "ready at" in child.output(), f"{PROGRAM} apiserver is not ready")
    return child, time.perf_counter() - began, _cpu([psutil.Process(child.pid)])


# Requests


def measure(servers: Sequence[Server], count: int) -> None:
    """Fill in the figures, by turns, so that both have the same of the machine's good and bad moments."""
    for turn in range(ROUNDS):
        namespace = f"turn-{turn}"
        made = names(turn, count)
        for server in servers:
            server.ask([("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}, "application/json")])
            for what, requests in turns(namespace, made):
                cost = server.ask(requests)
                server.figures[what] = min(cost, server.figures.get(what, cost))


def names(turn: int, count: int) -> list[str]:
    """Of the Stages of one turn."""
    return [f"stage-{turn}-{number:05}" for number in range(count)]


def turns(namespace: str, made: Sequence[str]) -> Iterator[tuple[str, list[Asked]]]:
    """What is asked in one turn, in order."""
    yield "create", creates(namespace, made)
    yield "get", gets(namespace, made)
    yield "patch of the status", statuses(namespace, made)
    yield "apply", applies(namespace, made)
    yield f"list of {len(made):,}", lists(namespace)


async def in_process(count: int) -> dict[str, float]:
    """The same asked of a core in this process, without a socket: what a test pays."""
    core = Core(now=utc_now, random=Random(0))
    figures: dict[str, float] = {}
    began = time.process_time()
    for definition in crds.read(crds.OURS):
        await _told(core, ("POST", DEFINITIONS, definition, "application/json"))
    figures["our CRDs"] = (time.process_time() - began) * 1000
    for turn in range(ROUNDS):
        namespace = f"turn-{turn}"
        await _told(core, ("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}, "application/json"))
        for what, requests in turns(namespace, names(turn, count)):
            ready = [_request(asked) for asked in requests]
            began = time.process_time()
            for request in ready:
                await core.handle(request)
            cost = (time.process_time() - began) / len(ready) * 1000
            figures[what] = min(cost, figures.get(what, cost))
    return figures


def _request(asked: Asked) -> Request:
    method, url, body, media = asked
    path, _, query = url.partition("?")
    return Request(
        method, path, parse_qsl(query), {"content-type": media}, b"" if body is None else json.dumps(body).encode()
    )


async def _told(core: Core, asked: Asked) -> None:
    answer = await core.handle(_request(asked))
    if not isinstance(answer, Response) or answer.code >= 400:
        raise RuntimeError(f"in this process: {asked[1]}: {answer}")


# Watches


async def latencies(server: Server, writes: int) -> list[float]:
    """Milliseconds from before each write until the handler of each of the watchers' caches has been told of it."""
    name = "watched"
    await asyncio.to_thread(server.ask, creates(NAMESPACE, [name]))
    taken: list[float] = []
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await connect(kubeconfig=str(server.kubeconfig)))
        began, told, everyone = 0.0, 0, asyncio.Event()

        def handle(_: JsonObject | None, new: JsonObject | None) -> None:
            nonlocal told
            if new is not None and new["metadata"].get("annotations", {}).get("write") == str(write):
                taken.append((time.perf_counter() - began) * 1000)
                told += 1
                if told == WATCHERS:
                    everyone.set()

        write = -1
        group = await stack.enter_async_context(asyncio.TaskGroup())
        caches = [Cache(client, STAGES, codec=JSON, namespace=NAMESPACE) for _ in range(WATCHERS)]
        running_caches = [group.create_task(cache.run()) for cache in caches]
        for cache in caches:
            await cache.wait_synced()
            cache.subscribe(handle)
        for write in range(writes):
            told = 0
            everyone.clear()
            body = encode({"metadata": {"annotations": {"write": str(write)}}})
            began = time.perf_counter()
            await client.patch(STAGES, Key(NAMESPACE, name), body, codec=JSON)
            async with asyncio.timeout(_SECONDS):
                await everyone.wait()
        for task in running_caches:
            task.cancel()
    return taken


# The table


def report(rows: Sequence[tuple[str, float, float, float | None]]) -> str:
    """A table with how many times as much the real server needs."""
    lines = [f"{'':<34} {'real':>9} {'embedded':>9} {'ratio':>7} {'in process':>11}"]
    for what, theirs, ours, inside in rows:
        shown = "" if inside is None else f"{inside:11.2f}"
        lines.append(f"{what:<34} {theirs:9.2f} {ours:9.2f} {theirs / ours:6.1f}x {shown}".rstrip())
    return "\n".join(lines) + "\n"


def compare(directory: Path, count: int, writes: int) -> str:
    """Measure, and give the table."""
    with real(directory / "real") as theirs, embedded(directory / "embedded") as ours:
        begun = theirs.memory(), ours.memory()
        measure([theirs, ours], count)
        grown = theirs.memory(), ours.memory()
        inside = asyncio.run(in_process(count))
        waits = [sorted(asyncio.run(latencies(server, writes))) for server in (theirs, ours)]
        rows: list[tuple[str, float, float, float | None]] = [
            ("start, seconds", theirs.ready_wall, ours.ready_wall, None),
            ("start, CPU seconds", theirs.ready_cpu, ours.ready_cpu, None),
        ]
        for what, cost in theirs.figures.items():
            rows.append((f"{what}, CPU ms", cost, ours.figures[what], inside[what]))
        for part in (50, 99):
            first, second = (wait[min(len(wait) * part // 100, len(wait) - 1)] for wait in waits)
            rows.append((f"watch, {WATCHERS} watchers, p{part} ms", first, second, None))
        rows.append(("memory at the start, MiB", *begun, None))
        rows.append((f"memory with {count * ROUNDS:,} Stages, MiB", *grown, None))
        rates = [
            f"{what}: {1000 / theirs.figures[what]:,.0f} and {1000 / ours.figures[what]:,.0f}" for what in ours.figures
        ]
    return f"{report(rows)}per CPU second, real and embedded: {'; '.join(rates)}\n"


def main(arguments: Sequence[str]) -> int:
    """Print the table; 2 when there is no real server to compare with."""
    parser = argparse.ArgumentParser(prog="python -m tests.envtest.compare", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--objects", type=int, default=1000, help="Stages in each turn [1000]")
    parser.add_argument("--writes", type=int, default=200, help="writes that the watchers wait for [200]")
    options = parser.parse_args(arguments)
    parse_logs("auto", "warning").configure()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is compiled
    try:
        with tempfile.TemporaryDirectory(prefix="kargo-py-compare-") as directory:
            sys.stdout.write(compare(Path(directory), options.objects, options.writes))
    except (BinariesMissing, ServerFailed) as failure:
        sys.stderr.write(f"compare: {failure}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
