"""The races of spec 1.8 and 1.9, with a gap wide enough to act in.

An operation is read 5 ms after it was written; the worker's first write follows half a second later, and so does every
other write of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kargo_py.local.argocd.simulator import ArgoCD
from kargo_py.local.argocd.timing import Timing, Version
from tests.local.conftest import REPO, Bench, ended, operation, owner, phase, state

pytestmark = pytest.mark.looptime

JsonObject = dict[str, Any]

WIDE = Timing(gap=0.5, jitter=0, start=0)
TERMINATING = {"status": {"operationState": {"phase": "Terminating"}}}


@pytest.fixture(params=Version, ids=lambda version: version.value)
async def argo(request: pytest.FixtureRequest, bench: Bench) -> AsyncIterator[ArgoCD]:
    """Argo CD with a wide gap; it is started by the test, for fixtures run in real time."""
    argo = bench.argo(request.param, timing=WIDE)
    yield argo
    await argo.stop()


async def synced(bench: Bench, argo: ArgoCD) -> None:
    """Start Argo CD; an Application was synced once, by the operation "first", and there is a new commit."""
    argo.repository(REPO).commit("aaaaaaa")
    await bench.create()
    await argo.start()
    await asyncio.sleep(2)
    await bench.patch({"operation": operation("first")})
    await bench.until(ended)
    await asyncio.sleep(2)
    argo.repository(REPO).commit("bbbbbbb")


async def hanging(bench: Bench, argo: ArgoCD, name: str = "mine") -> JsonObject:
    """Start an operation whose hook runs until it is told to end."""
    argo.application("shop-dev").next_sync(hang=True)
    await bench.patch({"operation": operation(name)})
    app = await bench.until(lambda app: state(app).get("message", "").startswith("waiting for completion"))
    await asyncio.sleep(5)
    return app


async def test_an_operation_taken_back_in_the_gap_runs_to_its_end(bench: Bench, argo: ArgoCD) -> None:
    """The worker has read it already: the removal is answered, and the sync succeeds."""
    await synced(bench, argo)
    await bench.patch({"operation": operation()})
    await asyncio.sleep(0.2)
    await bench.patch({"operation": None})
    app = await bench.until(lambda app: phase(app) == "Succeeded" and owner(app) == "mine")

    assert "operation" not in app
    assert state(app)["syncResult"]["revision"][0] == "b"


async def test_an_operation_with_a_hook_taken_back_in_the_gap_is_an_orphan(bench: Bench, argo: ArgoCD) -> None:
    """It stays Running without ``.operation`` for ever, though its hook ends."""
    await synced(bench, argo)
    argo.application("shop-dev").next_sync(hang=True)
    await bench.patch({"operation": operation()})
    await asyncio.sleep(0.2)
    await bench.patch({"operation": None})
    await asyncio.sleep(10)
    argo.application("shop-dev").finish_hook()
    await asyncio.sleep(600)
    app = await bench.app()

    assert (phase(app), owner(app), "operation" in app) == ("Running", "mine", False)


async def test_an_operation_taken_back_in_time_never_runs(bench: Bench, argo: ArgoCD) -> None:
    """Before the worker has read it, a removal is clean."""
    await synced(bench, argo)
    await bench.patch({"operation": operation()})
    await bench.patch({"operation": None})
    await asyncio.sleep(10)

    assert owner(await bench.app()) == "first"


async def test_a_clean_take_back_lets_auto_sync_deploy_the_changed_target(bench: Bench, argo: ArgoCD) -> None:
    """The spec stays changed, and nobody's operation is there any more."""
    await synced(bench, argo)
    await bench.patch(
        {"spec": {"syncPolicy": {"automated": {}}, "source": {"targetRevision": "b" * 7}}, "operation": operation()}
    )
    await bench.patch({"operation": None})
    app = await bench.until(lambda app: phase(app) == "Succeeded" and "info" not in state(app)["operation"])

    assert state(app)["operation"]["initiatedBy"] == {"automated": True}
    assert state(app)["syncResult"]["revision"][:7] == "bbbbbbb"


async def test_a_whole_terminating_state_before_pick_up_ends_it_unrun(bench: Bench, argo: ArgoCD) -> None:
    """It is Failed under its own id, nothing is applied, and auto-sync holds off."""
    await synced(bench, argo)
    await bench.patch({"spec": {"syncPolicy": {"automated": {}}}})
    await asyncio.sleep(5)
    argo.repository(REPO).commit("ccccccc")
    await bench.patch({"operation": operation(), "status": {"operationState": None}})
    mine = {"operation": operation(), "phase": "Terminating", "startedAt": "2026-11-30T12:00:00Z"}
    before = (await bench.app())["metadata"]["resourceVersion"]
    await bench.patch({"metadata": {"resourceVersion": before}, "status": {"operationState": mine}})
    app = await bench.until(ended)
    await asyncio.sleep(60)
    later = await bench.app()

    assert (phase(app), state(app)["message"], owner(app)) == ("Failed", "Operation terminated", "mine")
    assert later["status"]["operationState"] == app["status"]["operationState"]
    assert (later["status"]["sync"]["status"], later["status"]["conditions"][0]["type"]) == ("OutOfSync", "SyncError")


async def test_a_bare_terminating_before_pick_up_drops_the_operation(bench: Bench, argo: ArgoCD) -> None:
    """The worker goes on with the stored state, which is that of the operation before."""
    await synced(bench, argo)
    await bench.patch({"operation": operation()})
    await bench.patch(TERMINATING)
    app = await bench.until(ended)

    assert (phase(app), state(app)["message"], owner(app)) == ("Failed", "Operation terminated", "first")


async def test_a_terminating_in_the_gap_is_overwritten(bench: Bench, argo: ArgoCD) -> None:
    """The answer 200 proves nothing: the worker's own Running follows it, and the sync succeeds."""
    await synced(bench, argo)
    await bench.patch({"operation": operation()})
    await asyncio.sleep(0.2)
    accepted = await bench.patch(TERMINATING)
    app = await bench.until(lambda app: ended(app) and owner(app) == "mine")

    assert (phase(accepted), phase(app)) == ("Terminating", "Succeeded")


async def test_a_terminating_during_the_last_gap_is_overwritten(bench: Bench, argo: ArgoCD) -> None:
    """What comes between the worker's last look and its last write is lost."""
    await synced(bench, argo)
    await bench.patch({"operation": operation()})
    await bench.until(lambda app: phase(app) == "Running" and len(app["status"]["history"]) == 2)
    await asyncio.sleep(0.2)
    await bench.patch(TERMINATING)
    app = await bench.until(ended)

    assert (phase(app), owner(app)) == ("Succeeded", "mine")


async def test_a_terminating_while_running_is_noticed_before_running_is_written(bench: Bench, argo: ArgoCD) -> None:
    """After a pass that goes on, the worker looks whether it shall."""
    await synced(bench, argo)
    argo.application("shop-dev").next_sync(hang=True)
    await bench.patch({"operation": operation()})
    await bench.until(lambda app: phase(app) == "Running")
    await bench.patch(TERMINATING)
    app = await bench.until(ended)

    assert (phase(app), state(app)["message"], owner(app)) == ("Failed", "Operation terminated", "mine")
    assert "operation is terminating" in {state(version).get("message") for version in bench.versions}


async def test_a_stale_terminating_kills_the_next_operation(bench: Bench, argo: ArgoCD) -> None:
    """Without ``.operation`` it stays as it is; the next operation is not run, and its result is about the old one."""
    await synced(bench, argo)
    await bench.patch(TERMINATING)
    await asyncio.sleep(300)
    stale = await bench.app()
    await bench.patch({"operation": operation()})
    app = await bench.until(ended)

    assert (phase(stale), owner(stale)) == ("Terminating", "first")
    assert (phase(app), state(app)["message"], owner(app)) == ("Failed", "Operation terminated", "first")


async def test_termination_ends_a_hook_and_is_not_tried_again(bench: Bench, argo: ArgoCD) -> None:
    """The hook is marked Terminated; a retry is not due, whatever the limit."""
    await synced(bench, argo)
    argo.application("shop-dev").next_sync(hang=True)
    await bench.patch({"operation": {**operation(), "retry": {"limit": 5}}})
    await bench.until(lambda app: state(app).get("message", "").startswith("waiting for completion"))
    await asyncio.sleep(5)
    await bench.patch(TERMINATING)
    app = await bench.until(ended)
    hook = state(app)["syncResult"]["resources"][-1]

    assert (phase(app), state(app)["message"]) == ("Failed", "Operation terminated")
    assert (hook["kind"], hook["hookPhase"], hook["message"]) == ("Job", "Failed", "Terminated")


async def test_a_guarded_json_patch_terminates(bench: Bench, argo: ArgoCD) -> None:
    """Tests on the operation and its state hold whatever version the object has."""
    await synced(bench, argo)
    app = await hanging(bench, argo)
    await bench.patch(
        [
            {"op": "test", "path": "/operation", "value": app["operation"]},
            {"op": "test", "path": "/status/operationState/phase", "value": "Running"},
            {"op": "replace", "path": "/status/operationState/phase", "value": "Terminating"},
        ]
    )
    app = await bench.until(ended)

    assert (phase(app), owner(app)) == ("Failed", "mine")


async def test_a_window_holds_up_termination(bench: Bench, argo: ArgoCD) -> None:
    """A blocked operation that is terminated stays Terminating until the window is gone."""
    await synced(bench, argo)
    argo.project("default").deny()
    await bench.patch({"operation": operation()})
    await bench.until(lambda app: state(app).get("message") == "Sync operation blocked by sync window")
    await asyncio.sleep(5)
    await bench.patch(TERMINATING)
    await asyncio.sleep(300)
    waiting = await bench.app()
    argo.project("default").allow()
    app = await bench.until(ended)

    assert phase(waiting) == "Terminating"
    assert (phase(app), state(app)["message"], owner(app)) == ("Failed", "Operation terminated", "mine")


async def test_an_operation_overwritten_while_running_is_lost(bench: Bench, argo: ArgoCD) -> None:
    """The first one runs to its end, and clears the second one unrun."""
    await synced(bench, argo)
    await hanging(bench, argo)
    await bench.patch({"operation": operation("second")})
    await asyncio.sleep(5)
    argo.application("shop-dev").finish_hook()
    app = await bench.until(ended)
    await asyncio.sleep(60)

    assert (phase(app), owner(app)) == ("Succeeded", "mine")
    assert app["status"]["history"] == (await bench.app())["status"]["history"]


async def test_an_operation_written_in_the_last_gap_is_cleared(bench: Bench, argo: ArgoCD) -> None:
    """The worker's last write has no precondition."""
    await synced(bench, argo)
    await bench.patch({"operation": operation()})
    await bench.until(lambda app: phase(app) == "Running" and len(app["status"]["history"]) == 2)
    await asyncio.sleep(0.2)
    await bench.patch({"operation": operation("second")})
    await asyncio.sleep(60)
    app = await bench.app()

    assert (owner(app), len(app["status"]["history"]), "operation" in app) == ("mine", 2, False)


async def test_a_last_write_that_comes_twice_clears_the_next_operation(bench: Bench, argo: ArgoCD) -> None:
    """The second operation is written right after the end of the first, and is gone a moment later."""
    await synced(bench, argo)
    argo.application("shop-dev").next_sync(ends_twice=True)
    await bench.patch({"operation": operation()})
    await bench.until(lambda app: ended(app) and owner(app) == "mine")
    await bench.patch({"operation": operation("second")})
    await bench.until(lambda app: "operation" not in app)
    await asyncio.sleep(60)

    assert owner(await bench.app()) == "mine"


async def test_an_operation_on_an_orphan_resumes_the_old_one(bench: Bench, argo: ArgoCD) -> None:
    """The new one is cleared unrun, and the result is that of the old one."""
    await synced(bench, argo)
    await hanging(bench, argo, "orphan")
    await bench.patch({"operation": None})
    await asyncio.sleep(60)
    argo.application("shop-dev").finish_hook()
    await asyncio.sleep(60)
    await bench.patch({"operation": operation("new")})
    app = await bench.until(ended)

    assert (phase(app), owner(app)) == ("Succeeded", "orphan")


async def test_an_orphan_is_ended_by_giving_it_back_terminating(bench: Bench, argo: ArgoCD) -> None:
    """Its stored operation and phase Terminating in one patch: Failed under its own id."""
    await synced(bench, argo)
    await hanging(bench, argo)
    orphan = await bench.patch({"operation": None})
    await asyncio.sleep(40)
    given_back = {"operation": state(orphan)["operation"], **TERMINATING}
    await bench.patch(
        {"metadata": {"resourceVersion": (await bench.app())["metadata"]["resourceVersion"]}, **given_back}
    )
    app = await bench.until(ended)

    assert (phase(app), state(app)["message"], owner(app)) == ("Failed", "Operation terminated", "mine")


async def test_a_removed_state_starts_the_operation_over(bench: Bench, argo: ArgoCD) -> None:
    """It is taken for a new operation: the hook is made anew, and plays the same part."""
    await synced(bench, argo)
    first = await hanging(bench, argo)
    await bench.patch({"status": {"operationState": None}})
    app = await bench.until(lambda app: state(app).get("message", "").startswith("waiting for completion"))
    argo.application("shop-dev").finish_hook()
    done = await bench.until(ended)

    assert state(app)["startedAt"] > state(first)["startedAt"]
    assert (phase(done), owner(done)) == ("Succeeded", "mine")


async def test_resetting_the_state_with_the_operation_shows_no_old_one(bench: Bench, argo: ArgoCD) -> None:
    """From the write on, what is seen is about the new operation, in both versions."""
    await synced(bench, argo)
    bench.versions.clear()
    await bench.patch({"operation": operation(), "status": {"operationState": None}})
    await bench.until(ended)

    assert {"mine"} == {owner(version) for version in bench.versions if state(version)}


async def test_skip_reconcile_keeps_an_operation_waiting(bench: Bench, argo: ArgoCD) -> None:
    """Nothing happens until the annotation goes; the old phase stands beside the new operation."""
    await synced(bench, argo)
    skip = "argocd.argoproj.io/skip-reconcile"
    await bench.patch({"metadata": {"annotations": {skip: "true"}}, "operation": operation()})
    await asyncio.sleep(600)
    waiting = await bench.app()
    await bench.patch({"metadata": {"annotations": {skip: None}}})
    app = await bench.until(ended)

    assert (owner(waiting), owner(app)) == ("first", "mine")
