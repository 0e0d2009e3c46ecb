"""The proof on a real API server, with the simulated Argo CD and our program each in a process of its own.

What is judged is not our word but the API server's audit log: who sent what, and what was carried out.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kargo_py.api.abort import ANNOTATION_ABORT
from kargo_py.api.admission import ANNOTATION_CUSTOM_STEPS
from kargo_py.argocd.application import APPLICATIONS, mark_of
from kargo_py.controllers.world import FREIGHTS, PROMOTIONS, STAGES
from kargo_py.kube.cache import Cache
from kargo_py.kube.client import PatchType
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.connection import connect
from kargo_py.kube.errors import Conflict, Invalid, NotFound
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.rest import RestClient
from kargo_py.local.argocd.scripts import SIMULATED_SYNC
from kargo_py.steps.argocd_update import USES
from tests.envtest.processes import ChildProcess
from tests.envtest.server import ApiServer, poll
from tests.protocol.universe import is_ours

pytestmark = [
    pytest.mark.envtest,
    pytest.mark.timeout(400),
    pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop; processes are started"),
]

JsonObject = dict[str, Any]

REPO = "https://git.example.com/shop"
SHA = "3f1a0f6c29b54f0a8c7e0f3a3d9a4b5c6d7e8f90"
CONTROLLER = "system:serviceaccount:impl:controller"
ALICE: JsonObject = {"initiatedBy": {"username": "alice"}, "info": [{"name": "by", "value": "alice"}], "sync": {}}
FINAL = {"Succeeded", "Failed", "Errored", "Aborted"}


@dataclass
class Proof:
    """One Project on the server, with Stages and Applications of the same names."""

    server: ApiServer
    client: RestClient
    project: str
    directory: Path
    promotions: Cache[JsonObject] = field(init=False)
    applications: Cache[JsonObject] = field(init=False)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.promotions = Cache(self.client, PROMOTIONS, codec=JSON, namespace=self.project)
        self.applications = Cache(self.client, APPLICATIONS, codec=JSON, namespace=self.project)
        for cache in (self.promotions, self.applications):
            cache.subscribe(lambda _old, _new: self.news.set())

    async def prepare(self, *names: str) -> None:
        """Stages and Applications of these names, and one Freight."""
        origin = {"kind": "Warehouse", "name": "wh"}
        await self.create(FREIGHTS, "f1", origin=origin, commits=[{"repoURL": REPO, "id": SHA}])
        template = {"spec": {"steps": [{"uses": USES, "config": {"apps": [{"name": "x"}]}}]}}
        requested = [{"origin": origin, "sources": {"direct": True}}]
        for name in names:
            spec = {"requestedFreight": requested, "promotionTemplate": template}
            await self.create(STAGES, name, annotations={ANNOTATION_CUSTOM_STEPS: "allow"}, spec=spec)
            await self.create_application(name)

    async def create_application(self, name: str, stage: str = "", labels: dict[str, str] | None = None) -> None:
        source = {"repoURL": REPO, "path": "app", "targetRevision": "main"}
        spec = {"project": "default", "destination": {"namespace": "shop"}, "source": source}
        annotations = {"kargo.akuity.io/authorized-stage": f"{self.project}:{stage or name}"}
        await self.create(APPLICATIONS, name, annotations=annotations, labels=labels, spec=spec)

    async def create(
        self,
        resource: Resource,
        name: str,
        annotations: JsonObject | None = None,
        labels: dict[str, str] | None = None,
        **parts: Any,
    ) -> None:
        meta = {"name": name, "annotations": annotations or {}, "labels": labels or {}}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **parts}
        await self.client.create(resource, self.project, encode(body), codec=JSON)

    async def promote(self, stage: str, name: str) -> None:
        source = {"repoURL": REPO, "desiredRevision": SHA, "updateTargetRevision": True}
        app = {"name": stage, "namespace": self.project, "sources": [source]}
        step = {"uses": USES, "as": "sync", "config": {"apps": [app]}}
        await self.create(PROMOTIONS, name, spec={"stage": stage, "freight": "f1", "steps": [step]})

    async def abort(self, name: str) -> None:
        body = encode({"metadata": {"annotations": {ANNOTATION_ABORT: "terminate"}}})
        await self.client.patch(PROMOTIONS, Key(self.project, name), body, codec=JSON)

    async def write(self, name: str, body: Any) -> None:
        """Patch an Application as somebody else."""
        type_ = PatchType.JSON if isinstance(body, list) else PatchType.MERGE
        await self.client.patch(APPLICATIONS, Key(self.project, name), encode(body), codec=JSON, patch_type=type_)

    def phase(self, name: str) -> str:
        found = self.promotions.get(Key(self.project, name)) or {}
        return str((found.get("status") or {}).get("phase") or "Pending")

    def app(self, name: str) -> JsonObject:
        return self.applications.get(Key(self.project, name)) or {}

    async def until(self, condition: Callable[[], Any], seconds: float = 60) -> None:
        """Wait until the caches show it."""
        async with asyncio.timeout(seconds):
            while not condition():
                self.news.clear()
                await self.news.wait()

    async def ended(self, *names: str, seconds: float = 60) -> None:
        """Wait for the final phases."""
        await self.until(lambda: all(self.phase(name) in FINAL for name in names), seconds)

    @contextmanager
    def argocd(self, gap: float) -> Iterator[None]:
        """The simulated Argo CD."""
        options: list[str | Path] = [
            "--kubeconfig",
            self.server.kubeconfig("argocd"),
            "--namespace",
            self.project,
            "--gap",
            str(gap),
        ]
        command = [sys.executable, "-m", "kargo_py.local.argocd", *options]
        child = ChildProcess("argocd", command, self.directory / "argocd.log")
        try:
            yield
        finally:
            child.kill()

    def program(self, fatal: int = 0, when: str = "never") -> ChildProcess:
        """Our program."""
        command: list[str | Path] = [sys.executable, "-m", "tests.protocol.dying", self.server.kubeconfig("controller")]
        return ChildProcess("kargo-py", [*command, str(fatal), when], self.directory / "kargo-py.log")

    @contextmanager
    def controllers(self) -> Iterator[None]:
        child = self.program()
        try:
            yield
        finally:
            child.kill()


@asynccontextmanager
async def proving(server: ApiServer, project: str, directory: Path, *names: str) -> AsyncIterator[Proof]:
    """Everything prepared, and seen through caches of the test's own."""
    async with await connect(kubeconfig=str(server.kubeconfig("admin"))) as client:
        proof = Proof(server, client, project, directory)
        await proof.prepare(*names)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(proof.promotions.run()), group.create_task(proof.applications.run())]
            await proof.promotions.wait_synced()
            await proof.applications.wait_synced()
            yield proof
            for task in tasks:
                task.cancel()


# -- the judge -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Act:
    """One write that the API server carried out."""

    user: str
    resource: str
    name: str
    subresource: str
    body: Any


def carried_out(server: ApiServer, project: str) -> list[Act]:
    """All patches of the Project's objects that were answered with success, in the order in which they were received.

    That is the order of cause and effect; the lines of the log are in the order of the answers, which may cross.
    """
    return [
        Act(
            event["user"]["username"],
            event["objectRef"]["resource"],
            event["objectRef"].get("name", ""),
            event["objectRef"].get("subresource", ""),
            event.get("requestObject"),
        )
        for event in sorted(server.audited(), key=lambda event: str(event["requestReceivedTimestamp"]))
        if event["verb"] == "patch"
        and event["objectRef"].get("namespace") == project
        and event["responseStatus"]["code"] < 300
    ]


def state_in(body: Any) -> JsonObject:
    """The operationState that a patch writes whole, {} if it writes none."""
    if isinstance(body, dict):
        return (body.get("status") or {}).get("operationState") or {}
    written = [step["value"] for step in body or () if step.get("path") == "/status/operationState" and "value" in step]
    return written[-1] or {} if written else {}


def start_in(body: Any) -> str | None:
    """The stamp of the start that a patch is, None for any other."""
    if not isinstance(body, dict) or "operation" not in body or "operationState" not in (body.get("status") or {}):
        return None
    return mark_of(body["operation"]) if body["status"]["operationState"] is None else None


def judge(server: ApiServer, project: str) -> Counter[str]:
    """Assert the Laws over the record; returns how many starts and how many ends of ours, by phase, there were."""
    acts = carried_out(server, project)
    ours = [act for act in acts if act.user == CONTROLLER and act.resource == "applications"]
    starts = Counter(mark for act in ours if (mark := start_in(act.body)) is not None)
    assert set(starts.values()) <= {1}, "no double start"
    for act in ours:
        text = json.dumps(act.body)
        assert "alice" not in text, "no trespass"
        assert not (isinstance(act.body, dict) and act.body.get("operation", {}) is None), "never taken back"
        assert '"remove", "path": "/operation"' not in text, "never taken back"
    ended: dict[str, str] = {}
    aborted: set[str] = set()
    for act in acts:
        if act.user == CONTROLLER and (act.resource, act.subresource) == ("promotions", "status"):
            phase = (act.body.get("status") or {}).get("phase")
            mine = {mark for mark in starts if f"/{act.name}/" in mark}
            if phase == "Succeeded":
                assert "Succeeded" in {ended.get(mark) for mark in mine}, "no false success"
            if phase == "Aborted":
                assert all(ended.get(mark) for mark in mine), ("abort means stopped", act.name, mine)
                aborted |= mine
        state = state_in(act.body)
        mark = mark_of(state.get("operation"))
        if mark is not None and act.user != CONTROLLER and mark in starts:
            assert mark not in aborted, ("abort means stopped", mark, state.get("phase"))
            if state.get("phase") in {"Succeeded", "Failed", "Error"}:
                ended[mark] = state["phase"]
    per_promotion = Counter(mark.split("/")[3] for mark, phase in ended.items() if phase == "Succeeded")
    assert set(per_promotion.values()) <= {1}, "no sync succeeded twice"
    return Counter({"starts": len(starts), **Counter(ended.values())})


def at_rest(app: JsonObject) -> bool:
    """Nothing of ours is requested or under way on the Application, and nothing is orphaned."""
    state = (app.get("status") or {}).get("operationState") or {}
    busy = state.get("phase") in {"Running", "Terminating"}
    return not is_ours(mark_of(app.get("operation"))) and not (
        busy and ("operation" not in app or is_ours(mark_of(state["operation"])))
    )


# -- the proof -------------------------------------------------------------------------------------------------------


@pytest.mark.both_definitions
async def test_killed_at_each_write(crds: ApiServer, namespace: str, tmp_path: Path) -> None:
    """SIGKILL before and after each write of a Promotion's life, and started again: one sync, Succeeded.

    The writes: Stage, Promotion, Application, Promotion, Stage. The Freight is verified already after the first round.
    """
    deaths = [(number, when) for number in range(1, 6) for when in ("before", "after")]
    async with proving(crds, namespace, tmp_path, "dev") as proof:
        with proof.argocd(gap=0.02):
            for round_, (number, when) in enumerate(deaths):
                name = f"p{round_}"
                child = proof.program(number, when)
                await proof.promote("dev", name)
                try:
                    await asyncio.to_thread(poll, partial(is_dead, child), "the program lives on")
                finally:
                    child.kill()
                with proof.controllers():
                    await proof.ended(name)
                    assert proof.phase(name) == "Succeeded", (number, when)
        counted = judge(crds, namespace)

    assert counted == Counter(starts=len(deaths), Succeeded=len(deaths))


async def test_killed_in_each_wait(crds: ApiServer, namespace: str, tmp_path: Path) -> None:
    """SIGKILL while the operation is requested, runs, is held by another one, and has ended: one sync, Succeeded."""
    waits: dict[str, Callable[[JsonObject], bool]] = {
        "requested": lambda app: is_ours(mark_of(app.get("operation"))),
        "running": lambda app: is_ours(mark_of(state_of(app).get("operation"))),
        "ended": lambda app: is_ours(mark_of(state_of(app).get("operation"))) and "finishedAt" in state_of(app),
        "held": lambda app: "alice" in json.dumps(app.get("operation") or {}),
    }
    async with proving(crds, namespace, tmp_path, *waits) as proof:
        for name, waits_now in waits.items():
            child = proof.program()
            try:
                if name == "held":
                    await proof.write(name, {"operation": ALICE})
                if name in {"requested", "held"}:
                    await proof.promote(name, f"{name}-p")
                    await proof.until(partial(sees, proof, name, waits_now))
                    child.kill()
                with proof.argocd(gap=0.05):
                    if name not in {"requested", "held"}:
                        await proof.promote(name, f"{name}-p")
                        await proof.until(partial(sees, proof, name, waits_now))
                        child.kill()
                    with proof.controllers():
                        if name == "held":
                            await asyncio.sleep(4)  # Argo CD has started; what was there before waits for an event
                            await proof.write(name, {"metadata": {"annotations": {"look": "here"}}})
                        await proof.ended(f"{name}-p")
                        assert proof.phase(f"{name}-p") == "Succeeded", name
            finally:
                child.kill()
        counted = judge(crds, namespace)

    assert counted == Counter(starts=len(waits), Succeeded=len(waits))


def sees(proof: Proof, name: str, waits_now: Callable[[JsonObject], bool]) -> bool:
    return waits_now(proof.app(name))


def state_of(app: JsonObject) -> JsonObject:
    return (app.get("status") or {}).get("operationState") or {}


def is_dead(child: ChildProcess) -> bool:
    return child.exit_code is not None


async def test_two_hundred_aborts(crds: ApiServer, namespace: str, tmp_path: Path) -> None:
    """0 to 8 ms after the start: each ends Aborted, its operation has ended, and nothing of it runs afterwards."""
    stages = [f"s{number}" for number in range(20)]
    async with proving(crds, namespace, tmp_path, *stages) as proof:
        with proof.argocd(gap=0.004), proof.controllers():
            for round_ in range(10):
                names = {stage: f"{stage}-p{round_}" for stage in stages}
                delay = round_ * 0.0008
                if round_ == 9:
                    # However late the abort comes, this sync has not ended.
                    await proof.write(stages[0], {"metadata": {"annotations": {SIMULATED_SYNC: "hang"}}})
                await asyncio.gather(*(abort_after_start(proof, stage, names[stage], delay) for stage in stages))
                await proof.ended(*names.values(), seconds=120)
                assert {proof.phase(name) for name in names.values()} == {"Aborted"}
            await proof.until(lambda: all(at_rest(proof.app(stage)) for stage in stages))
        counted = judge(crds, namespace)

    assert counted["starts"] == 200
    assert counted["Failed"] + counted["Succeeded"] == 200
    assert counted["Failed"] > 0


async def abort_after_start(proof: Proof, stage: str, name: str, delay: float) -> None:
    """Promote, and abort so many seconds after the start was seen."""
    await proof.promote(stage, name)
    started = asyncio.Event()

    def see(_old: JsonObject | None, new: JsonObject | None) -> None:
        if new is not None and f"/{name}/" in (mark_of(new.get("operation")) or ""):
            started.set()

    proof.applications.subscribe(see)
    async with asyncio.timeout(60):
        await started.wait()
    await asyncio.sleep(delay)
    await proof.abort(name)


async def start(proof: Proof, name: str) -> None:
    """As Argo CD's own API server starts an operation."""
    app = proof.app(name)
    state = (app.get("status") or {}).get("operationState") or {}
    if "operation" not in app and state.get("phase") not in {"Running", "Terminating"}:
        guard = {"resourceVersion": app["metadata"]["resourceVersion"]}
        await proof.write(name, {"metadata": guard, "operation": ALICE, "status": {"operationState": None}})


async def overwrite(proof: Proof, name: str) -> None:
    """As a careless tool does."""
    await proof.write(name, [{"op": "add", "path": "/operation", "value": ALICE}])


async def replace(proof: Proof, name: str) -> None:
    """As RollingSync does."""
    await proof.write(name, {"operation": None, "status": {"operationState": None}})
    await proof.write(name, {"operation": ALICE})


async def remove(proof: Proof, name: str) -> None:
    """As somebody who wants it to stop."""
    await proof.write(name, {"operation": None})


async def terminate(proof: Proof, name: str) -> None:
    """As ``argocd app terminate-op`` does."""
    app = proof.app(name)
    if "operation" in app and ((app.get("status") or {}).get("operationState") or {}).get("phase") == "Running":
        await proof.write(name, {"status": {"operationState": {"phase": "Terminating"}}})


async def recreate(proof: Proof, name: str) -> None:
    """As somebody who begins afresh."""
    await proof.client.delete(APPLICATIONS, Key(proof.project, name))
    await proof.create_application(name)


async def test_others_in_every_phase(crds: ApiServer, namespace: str, tmp_path: Path) -> None:
    """Whatever others do, before the start, before and after it is picked up, and at its end: the Laws hold."""
    acts = {act.__name__: act for act in (start, overwrite, replace, remove, terminate, recreate)}
    moments = (0.0, 0.02, 0.05, 0.1, 0.2)
    places = {f"{name}-{number}": (acts[name], after) for name in acts for number, after in enumerate(moments)}
    async with proving(crds, namespace, tmp_path, *places) as proof:
        with proof.argocd(gap=0.02), proof.controllers():
            await proof.promote("start-0", "warm-up")
            await proof.ended("warm-up")
            for batch in batches(list(places), 6):
                await asyncio.gather(*(disturb(proof, place, *places[place]) for place in batch))
            await proof.ended(*(f"{place}-p" for place in places), seconds=200)
            await proof.until(lambda: all(at_rest(proof.app(place)) for place in places), 60)
        counted = judge(crds, namespace)

    assert counted["starts"] >= len(places) - 6
    assert not {proof.phase(f"{place}-p") for place in places} & {"Aborted", "Running", "Pending"}


async def disturb(proof: Proof, place: str, act: Callable[[Proof, str], Awaitable[None]], after: float) -> None:
    await proof.promote(place, f"{place}-p")
    await asyncio.sleep(after)
    try:
        await act(proof, place)
    except (Conflict, Invalid, NotFound):
        return


def batches(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]
