"""The proof for what labels choose: killed at each write, on a real API server and with processes of their own."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kargo_py.api.stamp import AWAITED_KEY
from kargo_py.controllers.world import PROMOTIONS
from kargo_py.kube.codec import JSON
from kargo_py.kube.resources import Key
from kargo_py.steps.argocd_update import USES
from tests.envtest.processes import ChildProcess
from tests.envtest.server import ApiServer, poll
from tests.protocol.test_proof import CONTROLLER, REPO, SHA, Proof, carried_out, is_dead, proving, start_in, state_in

pytestmark = [
    pytest.mark.envtest,
    pytest.mark.timeout(400),
    pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop; processes are started"),
]


async def promote(proof: Proof, name: str, **more: Any) -> None:
    """Promote to all of the tier."""
    source = {"repoURL": REPO, "desiredRevision": SHA, "updateTargetRevision": True}
    entry = {"selector": {"matchLabels": {"tier": "web"}}, "namespace": proof.project, "sources": [source], **more}
    step = {"uses": USES, "as": "sync", "config": {"apps": [entry]}}
    await proof.create(PROMOTIONS, name, spec={"stage": "dev", "freight": "f1", "steps": [step]})


async def create_web(proof: Proof, name: str) -> None:
    """An Application of the tier, which authorises the Stage."""
    await proof.create_application(name, stage="dev", labels={"tier": "web"})


def starts(server: ApiServer, project: str) -> Counter[tuple[str, str]]:
    """How often each attempt on each Application was started."""
    acts = [act for act in carried_out(server, project) if (act.user, act.resource) == (CONTROLLER, "applications")]
    return Counter((act.name, mark) for act in acts if (mark := start_in(act.body)) is not None)


async def test_killed_at_each_write(crds: ApiServer, namespace: str, tmp_path: Path) -> None:
    """Three Applications, and a fourth whose labels match only after the death: the three are synced, each once.

    The writes: Stage, intents, three starts, the end of the Promotion. Before the intents the set is not fixed.
    """
    deaths = [(number, when) for number in range(1, 7) for when in ("before", "after")]
    fixed = 0
    async with proving(crds, namespace, tmp_path, "dev") as proof:
        for name in "abc":
            await create_web(proof, name)
        with proof.argocd(gap=0.02):
            for round_, (number, when) in enumerate(deaths):
                name = f"p{round_}"
                child = proof.program(number, when)
                await promote(proof, name)
                try:
                    await asyncio.to_thread(poll, partial(is_dead, child), f"the program lives on: {number} {when}")
                finally:
                    child.kill()
                if await is_fixed(proof, name):
                    fixed += 1
                    await proof.write("dev", {"metadata": {"labels": {"tier": "web"}}})
                with proof.controllers():
                    await proof.ended(name)
                assert proof.phase(name) == "Succeeded", (number, when)
                await proof.write("dev", {"metadata": {"labels": {"tier": None}}})
        counted = starts(crds, namespace)

    assert fixed >= len(deaths) // 2
    assert set(counted.values()) == {1}
    assert Counter(name for name, _ in counted) == Counter(dict.fromkeys("abc", len(deaths)))


async def is_fixed(proof: Proof, name: str) -> bool:
    """Whether it is on record what is going to be synced."""
    promotion = await proof.client.get(PROMOTIONS, Key(proof.project, name), codec=JSON)
    return bool(promotion["status"].get("operations"))


async def test_killed_while_waiting_for_creation(crds: ApiServer, namespace: str, tmp_path: Path) -> None:
    """Whatever write it died at, and though the Application was made while nobody was there: one sync, Succeeded.

    The writes: Stage, what is awaited, what is told of it; then the intent, the start, the end.
    """
    deaths = [(number, when) for number in range(2, 7) for when in ("before", "after")]
    async with proving(crds, namespace, tmp_path, "dev") as proof:
        with proof.argocd(gap=0.02):
            for round_, (number, when) in enumerate(deaths):
                name = f"p{round_}"
                child = proof.program(number, when)
                await promote(proof, name, waitForCreation="5m")
                try:
                    await asyncio.to_thread(poll, partial(is_dead_or_told, child, proof, name), "it tells nothing")
                    await create_web(proof, name)
                    await asyncio.to_thread(poll, partial(is_dead, child), f"the program lives on: {number} {when}")
                finally:
                    child.kill()
                with proof.controllers():
                    await proof.ended(name)
                assert proof.phase(name) == "Succeeded", (number, when)
                await proof.write(name, {"metadata": {"labels": {"tier": None}}})
        counted = starts(crds, namespace)
        acts = carried_out(crds, namespace)

    assert Counter(name for name, _ in counted) == Counter({f"p{round_}": 1 for round_ in range(len(deaths))})
    ended = {act.name for act in acts if act.user != CONTROLLER and state_in(act.body).get("phase") == "Succeeded"}
    assert ended == {name for name, _ in counted}


def is_dead_or_told(child: ChildProcess, proof: Proof, name: str) -> bool:
    return is_dead(child) or is_told(proof, name)


def is_told(proof: Proof, name: str) -> bool:
    status = (proof.promotions.get(Key(proof.project, name)) or {}).get("status") or {}
    waits = AWAITED_KEY in (status.get("state") or {})
    return waits and bool(status["stepExecutionMetadata"][0].get("message"))
