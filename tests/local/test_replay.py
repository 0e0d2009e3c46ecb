"""Every recording of the real Argo CD, acted again: the same acts lead to the same versions in the same order.

Each case starts from the state that the first row of its recording shows, without what the act itself wrote.
``rest-api.txt`` is not replayed: there is no REST API here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kargo_py.local.argocd.documents import REFRESH
from kargo_py.local.argocd.engine import Manifest
from kargo_py.local.argocd.simulator import ArgoCD
from kargo_py.local.argocd.verdict import compared_to
from tests.local.cases import CASES, TIMING, Act, Case, source
from tests.local.conftest import REPO, Bench
from tests.local.recorded import TRACES, Row, Trace, merged, read, row

pytestmark = pytest.mark.looptime

JsonObject = dict[str, Any]

# -- replaying --------------------------------------------------------------------------------------------------------


def recorded_status(app: JsonObject, first: Row, reconciled: str) -> JsonObject | None:
    """The status that a row shows."""
    if first.sync == "None":
        return None
    ids = (
        {"revisions": ["826c881".ljust(40, "0"), "0"]}
        if "sources" in app["spec"]
        else {"revision": _full(first.compared)}
    )
    since = f"2026-11-30T{reconciled}Z"
    status: JsonObject = {
        "sync": {"status": first.sync, "comparedTo": compared_to(app), **ids},
        "health": {"status": first.health},
        "reconciledAt": since,
    }
    if count := first.history:
        deployed = {"revision": _full(first.synced), "source": app["spec"].get("source")}
        status["history"] = [{"id": number, **deployed} for number in range(count)]
    if first.phase != "None":
        status["operationState"] = _recorded_state(app, first, since)
    return status


def _recorded_state(app: JsonObject, first: Row, since: str) -> JsonObject:
    found: JsonObject = {
        "operation": {"sync": {}, "initiatedBy": {"username": "promoter"}},
        "phase": "Failed" if first.phase == "Terminating" else first.phase,
        "startedAt": since,
        "message": first.message,
    }
    if first.fin:
        found["finishedAt"] = since
    if first.retries != "None":
        found["retryCount"] = int(first.retries)
    if first.synced != "None":
        found["syncResult"] = {"revision": _full(first.synced), "source": app["spec"].get("source")}
    return found


def _full(revision: str) -> str:
    """A revision of which seven characters were recorded."""
    if re.fullmatch("[0-9a-f]{7}", revision):
        return revision.ljust(40, "0")
    return {"env/tes": "env/test"}.get(revision, revision)


async def play(bench: Bench, argo: ArgoCD, acts: Sequence[tuple[float, Act]]) -> None:
    """Do everything at its time."""
    passed = 0.0
    for at, act in acts:
        await asyncio.sleep(at - passed)
        await act(bench, argo)
        passed = at


async def replayed(bench: Bench, case: Case, trace: Trace) -> list[Row]:
    """Act a case; returns what was stored meanwhile."""
    start_at = f"2026-11-30T{trace.reconciled or '12:00:00'}+00:00"
    bench.base = datetime.fromisoformat(start_at).astimezone(UTC) + timedelta(seconds=case.clock)
    argo = bench.argo(case.version, timing=case.timing)
    for commit, paths in case.commits:
        argo.repository(REPO).commit(commit, paths=paths)
    spec = {"destination": {"server": "https://kubernetes.default.svc", "namespace": "default"}, **case.spec}
    if case.deployed:
        argo.application("app").deployed(*case.deployed)
    if case.given:
        case.given(argo)
    if case.created is None:
        seen = {"spec": {name: value for name, value in {"project": "default", **spec}.items() if value is not None}}
        status = recorded_status(seen, trace.rows[0], trace.reconciled)
        await bench.create("app", spec=spec, **case.parts, **({"status": status} if status else {}))
    await argo.start()
    if case.before:
        await case.before(bench, argo)
    await asyncio.sleep(0.5)
    bench.versions.clear()
    if case.created is not None:
        await bench.create("app", spec=spec, **case.created)
    await play(bench, argo, case.acts)
    await asyncio.sleep(case.lasts)
    await argo.stop()
    return [row(version) for version in bench.versions if version["metadata"]["name"] == "app"]


RECORDED = {case.file: read(case.file) for case in CASES}  # not in the tests: reading blocks the loop


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file.removesuffix(".trace.txt"))
async def test_replay(bench: Bench, case: Case) -> None:
    """The acts of a recording lead to the versions that were recorded."""
    trace = RECORDED[case.file]
    found = merged(await replayed(bench, case, trace))
    expected = merged(trace.rows)
    if case.cut:
        found = found[: len(expected)]
    assert found == expected


# -- RollingSync ------------------------------------------------------------------------------------------------------

# How often RollingSync repeats an operation depends on where in a second it began: the clock is set accordingly.
ROLLING = {
    "rollingsync-roll-dev.trace.txt": ("roll-dev", "02:58:27.55"),
    "rollingsync-roll-prod.trace.txt": ("roll-prod", "02:58:27.55"),
    "rollingsync-prod-after-tool-op-and-push.trace.txt": ("roll-prod", "02:58:42.30"),
}
ROLLED = {file: read(file) for file in ROLLING}
BOTH_ROLLED = ("roll-dev", "roll-prod")


async def rolled_out(bench: Bench, argo: ArgoCD, *, created: bool) -> None:
    """Two Applications of an ApplicationSet with two steps; *created* by it just now, or both Synced."""
    argo.repository(REPO).commit("32a8f22")
    argo.application_set().rolling_sync(["roll-dev"], ["roll-prod"])
    if created:
        await argo.start()
        bench.versions.clear()
    for name in BOTH_ROLLED:
        spec = {"project": "default", "destination": {"namespace": name}, "source": source("auto")}
        first = ROLLED["rollingsync-prod-after-tool-op-and-push.trace.txt"].rows[0]
        synced = recorded_status({"spec": spec}, first, "02:58:29")
        await bench.create(name, spec=spec, status={"sync": {"status": ""}, "health": {}} if created else synced)
        live = Manifest("ConfigMap", "auto", namespace=name, content=_full("32a8f22"))
        if not created:
            argo.application(name).deployed(live)
    if not created:
        await argo.start()
        bench.versions.clear()


@pytest.mark.parametrize("file", ROLLING)
async def test_rolling_sync(bench: Bench, file: str) -> None:
    """RollingSync takes one step after the other, and repeats itself as it was recorded."""
    name, clock = ROLLING[file]
    bench.base = datetime.fromisoformat(f"2026-11-30T{clock}+00:00")
    argo = bench.argo(timing=replace(TIMING, apply=0.2))
    pushed = "after" in file
    await rolled_out(bench, argo, created=not pushed)
    if pushed:
        await bench.patch({"operation": {"sync": {}}}, name)
        await asyncio.sleep(5.1)
        argo.repository(REPO).commit("7109517")
        for one in BOTH_ROLLED:
            await bench.patch({"metadata": {"annotations": {REFRESH: "normal"}}}, one)
    await asyncio.sleep(20)
    await argo.stop()

    found = [row(version) for version in bench.versions if version["metadata"]["name"] == name]
    assert merged(found) == merged(ROLLED[file].rows)


def test_every_recording_is_replayed() -> None:
    """No recording is left out."""
    there = {str(path.relative_to(TRACES)) for path in TRACES.rglob("*.trace.txt")}
    assert there == {*ROLLING, *(case.file for case in CASES)}
