"""What people and accidents do in a simulated history, by the name that a plan gives it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from kargo_py.api.abort import ANNOTATION_ABORT
from kargo_py.argocd.application import APPLICATIONS, REFRESH, SKIP_RECONCILE
from kargo_py.controllers.world import PROMOTIONS, STAGES
from kargo_py.kube.errors import KubeError
from kargo_py.kube.resources import Key
from kargo_py.steps.argocd_update import USES
from tests.protocol import others
from tests.simulation.plan import REVISIONS, Act

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

JsonObject = dict[str, Any]
Doing: TypeAlias = "Callable[[Simulation, Act], Awaitable[None]]"

PROJECT = "shop"
REPO = "https://git.example.com/shop"
AUTHORIZED = "kargo.akuity.io/authorized-stage"


async def script(sim: Simulation, act: Act) -> None:
    sim.argocd.application(act.on).next_sync(**act.how)


async def promote(sim: Simulation, act: Act) -> None:
    how = act.how
    source: JsonObject = {"repoURL": REPO, "desiredRevision": REVISIONS[how["freight"]]}
    if how["update"]:
        source["updateTargetRevision"] = True
    config: JsonObject = {"apps": [{"name": name, "sources": [source]} for name in how["apps"]]}
    config |= {name: how[name] for name in ("onAbort", "onTimeout") if name in how}
    step: JsonObject = {"uses": USES, "as": "sync", "config": config}
    if "timeout" in how:
        step["retry"] = {"timeout": how["timeout"]}
    await _create_promotion(sim, act.on, how["stage"], how["freight"], step)


async def promote_badly(sim: Simulation, act: Act) -> None:
    await _create_promotion(sim, f"bad-{act.at:.0f}", "dev", "f1", {"uses": USES, "config": act.how["config"]})


async def _create_promotion(sim: Simulation, name: str, stage: str, freight: str, step: JsonObject) -> None:
    await sim.create(PROMOTIONS, PROJECT, name, spec={"stage": stage, "freight": freight, "steps": [step]})


async def abort(sim: Simulation, act: Act) -> None:
    value = '{"action": "terminate", "force": true}' if act.how.get("force") else "terminate"
    await _annotate(sim, act.on, value)


async def annotate_badly(sim: Simulation, act: Act) -> None:
    await _annotate(sim, act.on, '{"action": ["terminate"')


async def _annotate(sim: Simulation, name: str, value: str) -> None:
    await sim.patch(PROMOTIONS, Key(PROJECT, name), {"metadata": {"annotations": {ANNOTATION_ABORT: value}}})


async def delete_promotion(sim: Simulation, act: Act) -> None:
    await sim.user.delete(PROMOTIONS, Key(PROJECT, act.on))


async def relabel_stage(sim: Simulation, act: Act) -> None:
    await sim.patch(STAGES, Key(PROJECT, act.on), {"metadata": {"labels": {"looked-at": f"{act.at:.0f}"}}})


# -- Applications ----------------------------------------------------------------------------------------------------


def _app(act: Act) -> Key:
    return Key("argocd", act.on)


async def _meddle(make: Callable[[JsonObject], others.Body | None], sim: Simulation, act: Act) -> None:
    body = make(await sim.read(APPLICATIONS, _app(act)))
    if body is not None:
        await sim.patch(APPLICATIONS, _app(act), body)


async def recreate(sim: Simulation, act: Act) -> None:
    await sim.user.delete(APPLICATIONS, _app(act))
    await sim.create_application(act.on)


async def edit_spec(sim: Simulation, act: Act) -> None:
    if (await sim.read(APPLICATIONS, _app(act)))["spec"].get("source"):  # else the real CRD would refuse it
        await sim.patch(APPLICATIONS, _app(act), {"spec": {"source": {"targetRevision": "release"}}})


async def refresh(sim: Simulation, act: Act) -> None:
    await sim.patch(APPLICATIONS, _app(act), {"metadata": {"annotations": {REFRESH: "normal"}}})


async def _for_a_while(change: JsonObject, back: JsonObject, sim: Simulation, act: Act) -> None:
    await sim.patch(APPLICATIONS, _app(act), change)
    await asyncio.sleep(act.how["for"])
    await sim.patch(APPLICATIONS, _app(act), back)


async def unauthorize(sim: Simulation, act: Act) -> None:
    before = (await sim.read(APPLICATIONS, _app(act)))["metadata"]["annotations"].get(AUTHORIZED)
    change = {"metadata": {"annotations": {AUTHORIZED: "elsewhere:x"}}}
    await _for_a_while(change, {"metadata": {"annotations": {AUTHORIZED: before}}}, sim, act)


async def skip_reconcile(sim: Simulation, act: Act) -> None:
    change = {"metadata": {"annotations": {SKIP_RECONCILE: "true"}}}
    await _for_a_while(change, {"metadata": {"annotations": {SKIP_RECONCILE: None}}}, sim, act)


async def break_application(sim: Simulation, act: Act) -> None:
    before = (await sim.read(APPLICATIONS, _app(act)))["spec"].get("source")
    await _for_a_while({"spec": {"source": None}}, {"spec": {"source": before}}, sim, act)


async def degrade(sim: Simulation, act: Act) -> None:
    sim.argocd.application(act.on).health("Degraded")
    await asyncio.sleep(act.how["for"])
    sim.argocd.application(act.on).health()


async def drift(sim: Simulation, act: Act) -> None:
    with suppress(LookupError):
        sim.argocd.application(act.on).drift()


async def finish_hooks(sim: Simulation, act: Act) -> None:
    with suppress(LookupError):
        sim.argocd.application(act.on).finish_hook(ok=act.how["ok"])


# -- programs --------------------------------------------------------------------------------------------------------


async def kill(sim: Simulation, act: Act) -> None:
    if sim.kill():
        await asyncio.sleep(act.how["back after"])
        sim.start()


async def stop(sim: Simulation, act: Act) -> None:
    if await sim.stop():
        await asyncio.sleep(act.how["back after"])
        sim.start()


async def pause(sim: Simulation, act: Act) -> None:
    if (program := sim.program) is not None:
        program.process.pause()
        await asyncio.sleep(act.how["for"])
        program.process.resume()


async def cut_off(sim: Simulation, act: Act) -> None:
    if (program := sim.program) is not None:
        program.network.cut = True
        await asyncio.sleep(act.how["for"])
        program.network.cut = False


async def stop_argocd(sim: Simulation, act: Act) -> None:
    if sim.argocd_runs:
        sim.argocd_runs = False
        await sim.argocd.stop()
        await asyncio.sleep(act.how["back after"])
        await sim.start_argocd()


async def set_clock(sim: Simulation, act: Act) -> None:
    sim.ahead += act.how["by"]


async def compact(sim: Simulation, _act: Act) -> None:
    sim.compact()


ACTS: Mapping[str, Doing] = {
    "script": script,
    "promote": promote,
    "promote badly": promote_badly,
    "abort": abort,
    "annotate badly": annotate_badly,
    "delete promotion": delete_promotion,
    "relabel stage": relabel_stage,
    **{name: partial(_meddle, make) for name, make in others.ACTS.items()},
    "recreate": recreate,
    "edit spec": edit_spec,
    "refresh": refresh,
    "skip reconcile": skip_reconcile,
    "unauthorize": unauthorize,
    "break application": break_application,
    "degrade": degrade,
    "drift": drift,
    "finish hooks": finish_hooks,
    "kill": kill,
    "stop": stop,
    "pause": pause,
    "cut off": cut_off,
    "stop Argo CD": stop_argocd,
    "compact": compact,
    "set clock": set_clock,
}


async def carry_out(sim: Simulation, act: Act) -> None:
    """Do it; what the server refuses is the user's business."""
    with suppress(KubeError):
        await ACTS[act.what](sim, act)
