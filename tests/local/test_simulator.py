"""What a test can make the simulated Argo CD do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kargo_py.kube.errors import NotFound
from kargo_py.local.apiserver.faults import Drop, Match, Refuse, Rule
from kargo_py.local.argocd.documents import APPLICATIONS, REFRESH, REFRESH_TIMESTAMP
from kargo_py.local.argocd.engine import Manifest
from kargo_py.local.argocd.scripts import SIMULATED_SYNC
from kargo_py.local.argocd.simulator import ArgoCD
from kargo_py.local.argocd.timing import Timing, Version
from tests.local.conftest import KEY, REPO, Bench, ended, operation, owner, phase, state

pytestmark = pytest.mark.looptime

JsonObject = dict[str, Any]


async def synced(bench: Bench, argo: ArgoCD, **spec: Any) -> None:
    """An Application that was synced, and for which all is quiet."""
    argo.repository(REPO).commit("aaaaaaa")
    await bench.create(spec=spec)
    await argo.start()
    await asyncio.sleep(1)
    await bench.patch({"operation": operation("first")})
    await bench.until(ended)
    await asyncio.sleep(2)


async def run(bench: Bench, **operation_: Any) -> JsonObject:
    """Run an operation to its end."""
    await bench.patch({"operation": {**operation(), **operation_}, "status": {"operationState": None}})
    return await bench.until(ended)


async def test_the_first_verdict_after_an_operation_is_stale(bench: Bench) -> None:
    """Its reconciledAt is new, its verdict the old one; the new one follows (spec 1.10)."""
    async with bench.argo() as argo:
        await run_first(bench, argo)
        await asyncio.sleep(5)
    after = [version for version in bench.versions if ended(version)]
    verdicts = [(v["status"]["reconciledAt"] >= state(v)["finishedAt"], v["status"]["sync"]["status"]) for v in after]

    assert verdicts[0] == (False, "OutOfSync")
    assert list(dict.fromkeys(verdicts[1:])) == [(True, "OutOfSync"), (True, "Synced")]


async def run_first(bench: Bench, argo: ArgoCD) -> None:
    """A new Application, and its first operation."""
    argo.repository(REPO).commit("aaaaaaa")
    await bench.create()
    await asyncio.sleep(2)
    await bench.patch({"operation": operation()})
    await bench.until(ended)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ({}, ("Succeeded", "successfully synced (all tasks run)", None)),
        ({"error": "ComparisonError: no"}, ("Error", "ComparisonError: no", None)),
        ({"fail": "no"}, ("Failed", "one or more synchronization tasks completed unsuccessfully, reason: no", None)),
        ({"fail": "no", "times": 2}, ("Succeeded", "successfully synced (all tasks run)", 2)),
        ({"duration": 20.0}, ("Succeeded", "successfully synced (all tasks run)", None)),
        ({"resources": [{"kind": "X"}]}, ("Succeeded", "successfully synced (all tasks run)", None)),
    ],
    ids=["nothing said", "error", "fail", "fail twice", "duration", "resources"],
)
async def test_scripted_sync(bench: Bench, script: JsonObject, expected: tuple[str, str, int | None]) -> None:
    """An operation goes as was said, the one after it as usual."""
    argo = bench.argo(timing=Timing(jitter=0))
    await synced(bench, argo)
    argo.application("shop-dev").next_sync(**script)
    retry = {"retry": {"limit": 3, "backoff": {"duration": "1s"}}} if "times" in script else {}
    begun = bench.now()
    app = await run(bench, **retry)
    took = (bench.now() - begun).total_seconds()
    next_ = await run(bench)
    await argo.stop()

    assert (phase(app), state(app)["message"], state(app).get("retryCount")) == expected
    assert took > script.get("duration", 0)
    assert "resources" not in script or state(app)["syncResult"]["resources"] == script["resources"]
    assert phase(next_) == "Succeeded"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fail no such replica", ("Failed", "synchronization tasks completed unsuccessfully, reason: no such replica")),
        ("fail", ("Error", "is 'fail': write hang, or fail and why")),
        ("hang on", ("Error", "is 'hang on': write hang, or fail and why")),
        ("", ("Succeeded", "successfully synced (all tasks run)")),
    ],
)
async def test_sync_that_an_annotation_describes(bench: Bench, text: str, expected: tuple[str, str]) -> None:
    """It holds for every operation while it is there; a word that is not understood is told, not passed over."""
    argo = bench.argo()
    await synced(bench, argo)
    await bench.patch({"metadata": {"annotations": {SIMULATED_SYNC: text}}})
    for app in [await run(bench), await run(bench)]:
        assert phase(app) == expected[0]
        assert state(app)["message"].endswith(expected[1])
    await bench.patch({"metadata": {"annotations": {SIMULATED_SYNC: None}}})
    app = await run(bench)
    await argo.stop()

    assert phase(app) == "Succeeded"


async def test_hanging_sync_that_an_annotation_describes(bench: Bench) -> None:
    """It runs a hook that does not end; what a program says comes first."""
    argo = bench.argo()
    await synced(bench, argo)
    await bench.patch({"metadata": {"annotations": {SIMULATED_SYNC: "hang"}}})
    argo.application("shop-dev").next_sync()
    first = await run(bench)
    await bench.patch({"operation": operation(), "status": {"operationState": None}})
    await asyncio.sleep(3600)
    app = await bench.app()
    await argo.stop()

    assert phase(first) == "Succeeded"
    assert state(app)["message"] == "waiting for completion of hook batch/Job/shop-dev-hook"


@pytest.mark.parametrize("ok", [True, False], ids=["succeeds", "fails"])
@pytest.mark.parametrize(("version", "seconds"), [(Version.V3_6, 5.0), (Version.V3_5, 0.05)], ids=["3.6", "3.5"])
async def test_a_finished_hook_is_noticed(bench: Bench, version: Version, seconds: float, ok: bool) -> None:
    """After 5 s in 3.6, at once in 3.5 (spec 1.12)."""
    argo = bench.argo(version, timing=Timing(jitter=0))
    await synced(bench, argo)
    argo.application("shop-dev").next_sync(hang=True)
    await bench.patch({"operation": operation()})
    await asyncio.sleep(60)
    argo.application("shop-dev").finish_hook(ok=ok)
    begun = bench.now()
    app = await bench.until(ended)
    took = (bench.now() - begun).total_seconds()
    await argo.stop()

    assert phase(app) == ("Succeeded" if ok else "Failed")
    assert seconds <= took < seconds + 0.2


@pytest.mark.parametrize(("version", "idles"), [(Version.V3_6, True), (Version.V3_5, False)], ids=["3.6", "3.5"])
async def test_an_operation_written_while_the_controller_is_down(bench: Bench, version: Version, idles: bool) -> None:
    """3.6 does not see it before the next update event, 3.5 at its start (spec 1.12)."""
    argo = bench.argo(version)
    await synced(bench, argo)
    await argo.stop()
    await bench.patch({"operation": operation()})
    await argo.start()
    begun = bench.now()
    await bench.until(lambda app: phase(app) == "Succeeded" and owner(app) == "mine")
    took = (bench.now() - begun).total_seconds()
    await argo.stop()

    assert took > 100 if idles else took < 3


async def test_leaked_retries_use_up_the_budget_in_3_5(bench: Bench) -> None:
    """The retryCount of the last operation counts in the next one, unless its state is reset (spec 1.12)."""
    argo = bench.argo(Version.V3_5)
    await synced(bench, argo)
    argo.repository(REPO).commit("bbbbbbb", paths={"app": [Manifest("ConfigMap", name) for name in "ab"]})
    retry = {"retry": {"limit": 2, "backoff": {"duration": "1s"}}}
    for _ in range(2):
        argo.application("shop-dev").next_sync(fail="no")
    first = await run(bench, **retry)
    await bench.patch({"operation": {**operation("second"), **retry}})
    second = await bench.until(lambda app: ended(app) and owner(app) == "second")
    third = await run(bench, **retry)
    await argo.stop()

    assert [state(app).get("retryCount") for app in (first, second, third)] == [2, 2, None]
    assert state(second)["finishedAt"] == state(second)["startedAt"]


async def test_history_has_a_limit(bench: Bench) -> None:
    """The limit keeps the newest; their ids go on."""
    argo = bench.argo()
    await synced(bench, argo, revisionHistoryLimit=2)
    for _ in range(3):
        app = await run(bench)
    await argo.stop()

    assert [entry["id"] for entry in app["status"]["history"]] == [2, 3]


async def test_health_as_was_said(bench: Bench) -> None:
    """The resources' health shows, and does not go with a sync."""
    argo = bench.argo()
    await synced(bench, argo)
    argo.application("shop-dev").health("Degraded")
    await bench.until(lambda app: app["status"]["health"]["status"] == "Degraded")
    argo.application("shop-dev").health()
    await bench.until(lambda app: app["status"]["health"]["status"] == "Healthy")
    await argo.stop()


async def test_pruning(bench: Bench) -> None:
    """What is no longer wanted makes it OutOfSync until an operation prunes."""
    argo = bench.argo()
    await synced(bench, argo)
    argo.application("shop-dev").next_sync()
    argo.repository(REPO).commit("bbbbbbb", paths={"other": []})
    await bench.patch({"spec": {"source": {"path": "empty"}}})
    kept = await run(bench)
    await asyncio.sleep(2)
    still = await bench.app()
    await run(bench, sync={"prune": True})
    await asyncio.sleep(2)
    app = await bench.app()
    await argo.stop()

    assert {"PruneSkipped", "Synced"} == {row["status"] for row in state(kept)["syncResult"]["resources"]}
    assert (still["status"]["sync"]["status"], app["status"]["sync"]["status"]) == ("OutOfSync", "Synced")


class TestRefresh:
    """The refresh annotations (spec 1.11)."""

    async def test_a_request_that_follows_another_is_not_lost(self, bench: Bench) -> None:
        """3.6 drops the pair only while its timestamp stands; the second request is served, too."""
        argo = bench.argo(timing=Timing(refresh=1, jitter=0))
        await synced(bench, argo)
        for stamp in ("1", "2"):
            await bench.patch({"metadata": {"annotations": {REFRESH: "normal", REFRESH_TIMESTAMP: stamp}}})
            await asyncio.sleep(0.5)
        await asyncio.sleep(0.8)
        pending = await bench.app()
        await asyncio.sleep(5)
        app = await bench.app()
        await argo.stop()

        assert pending["metadata"]["annotations"][REFRESH_TIMESTAMP] == "2"
        assert (app["metadata"].get("annotations") or {}) == {}

    async def test_3_5_knows_no_timestamp(self, bench: Bench) -> None:
        """It drops the request and lets the timestamp lie."""
        argo = bench.argo(Version.V3_5)
        await synced(bench, argo)
        await bench.patch({"metadata": {"annotations": {REFRESH: "hard", REFRESH_TIMESTAMP: "1"}}})
        await asyncio.sleep(5)
        app = await bench.app()
        await argo.stop()

        assert app["metadata"]["annotations"] == {REFRESH_TIMESTAMP: "1"}

    async def test_git_is_looked_at_from_time_to_time(self, bench: Bench) -> None:
        """A new commit shows within three minutes without anybody asking."""
        argo = bench.argo()
        await synced(bench, argo)
        argo.repository(REPO).commit("bbbbbbb")
        await asyncio.sleep(60)
        early = await bench.app()
        await asyncio.sleep(300)
        app = await bench.app()
        await argo.stop()

        assert (early["status"]["sync"]["status"], app["status"]["sync"]["status"]) == ("Synced", "OutOfSync")


class TestAutoSync:
    """Auto-sync and self-heal (spec 1.11)."""

    async def test_a_revision_that_failed_is_not_tried_again(self, bench: Bench) -> None:
        """It is a SyncError until there is another one."""
        argo = bench.argo()
        await synced(bench, argo)
        argo.application("shop-dev").next_sync(fail="no")
        retry = {"limit": 0}
        argo.repository(REPO).commit("bbbbbbb")
        await bench.patch(
            {"spec": {"syncPolicy": {"automated": {}, "retry": retry}}, "metadata": {"annotations": {REFRESH: "x"}}}
        )
        await asyncio.sleep(600)
        app = await bench.app()
        argo.repository(REPO).commit("ccccccc")
        await asyncio.sleep(600)
        later = await bench.app()
        await argo.stop()

        assert (phase(app), app["status"]["conditions"][0]["type"]) == ("Failed", "SyncError")
        assert (phase(later), later["status"]["sync"]["status"]) == ("Succeeded", "Synced")

    async def test_self_heal_waits_longer_each_time(self, bench: Bench) -> None:
        """Drift is undone, after 2 s, 6 s, 18 s."""
        argo = bench.argo(timing=Timing(jitter=0))
        await synced(bench, argo, syncPolicy={"automated": {"selfHeal": True}})
        waited = []
        for _ in range(3):
            since = bench.now()
            argo.application("shop-dev").drift()
            await bench.until(lambda app: app["status"]["sync"]["status"] == "OutOfSync")
            app = await bench.until(lambda app: app["status"]["sync"]["status"] == "Synced")
            waited.append((bench.now() - since).total_seconds())
        await argo.stop()

        assert [low < took < low + 3 for low, took in zip((0, 4, 16), waited, strict=True)] == [True, True, True]
        assert state(app)["operation"]["sync"]["autoHealAttemptsCount"] == 3

    async def test_a_window_keeps_auto_sync_off(self, bench: Bench) -> None:
        """Even one that lets manual syncs pass."""
        argo = bench.argo()
        argo.project("default").deny(manual_sync=True)
        await synced(bench, argo, syncPolicy={"automated": {}})
        argo.repository(REPO).commit("bbbbbbb")
        await asyncio.sleep(600)
        app = await bench.app()
        argo.project("default").allow()
        await bench.until(lambda app: app["status"]["sync"]["status"] == "Synced")
        await argo.stop()

        assert (app["status"]["sync"]["status"], owner(app)) == ("OutOfSync", "first")

    async def test_first_operation_shows_blocked_for_a_moment(self, bench: Bench) -> None:
        """What is manual is not seen on an Application without a state (spec 1.11)."""
        argo = bench.argo()
        argo.project("default").deny(manual_sync=True)
        await synced(bench, argo)
        await argo.stop()

        assert "Sync operation blocked by sync window" in {state(version).get("message") for version in bench.versions}
        assert phase(await bench.app()) == "Succeeded"


class TestApplicationSet:
    """An ApplicationSet that owns the Application (spec 4)."""

    async def test_it_reverts_all_but_the_operation(self, bench: Bench) -> None:
        """An operation written in the same patch runs."""
        argo = bench.argo()
        await synced(bench, argo)
        spec = (await bench.app())["spec"]
        argo.application_set().owns("shop-dev", spec=spec, labels={}, annotations={})
        edit = {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b", REFRESH: "normal"}}}
        await bench.patch(
            {**edit, "spec": {"source": {"targetRevision": "other"}}, "operation": operation(revision="aaaaaaa")}
        )
        await asyncio.sleep(0.03)
        reverted = await bench.app()
        app = await bench.until(lambda app: ended(app) and owner(app) == "mine")
        await argo.stop()

        assert reverted["spec"] == spec
        assert (
            reverted["metadata"].get("labels") or {},
            reverted["metadata"]["annotations"],
        ) == ({}, {REFRESH: "normal"})
        assert phase(app) == "Succeeded"

    async def test_an_ignored_field_stays(self, bench: Bench) -> None:
        """As far as nothing else differs."""
        argo = bench.argo()
        await synced(bench, argo)
        spec = (await bench.app())["spec"]
        argo.application_set().owns("shop-dev", spec=spec, ignore=["/spec/source/targetRevision"])
        await bench.patch({"spec": {"source": {"targetRevision": "aaaaaaa"}, "project": "other"}})
        await asyncio.sleep(2)
        app = await bench.app()
        await argo.stop()

        assert app["spec"] == {**spec, "source": {**spec["source"], "targetRevision": "aaaaaaa"}}

    async def test_rolling_sync_overwrites_an_operation(self, bench: Bench) -> None:
        """It does not look whether one is there."""
        argo = bench.argo()
        await synced(bench, argo)
        argo.application("shop-dev").next_sync(hang=True)
        argo.application_set().rolling_sync(["shop-dev"])
        await bench.patch({"operation": operation()})
        await asyncio.sleep(60)
        argo.repository(REPO).commit("bbbbbbb")
        await bench.patch({"metadata": {"annotations": {REFRESH: "normal"}}})
        await asyncio.sleep(5)
        app = await bench.app()
        await argo.stop()

        assert app["operation"]["initiatedBy"]["username"] == "applicationset-controller"
        assert owner(app) == "mine"


async def history(seed: int) -> list[JsonObject]:
    """All versions of one Application under the same acts."""
    bench = await Bench.make()
    argo = bench.argo(seed=seed)
    await synced(bench, argo)
    argo.application("shop-dev").next_sync(fail="no", times=2)
    await run(bench, retry={"limit": 4, "backoff": {"duration": "1s"}})
    await asyncio.sleep(2000)
    await argo.stop()
    return bench.versions


async def test_the_same_seed_gives_the_same_history() -> None:
    """And another one another."""
    first, again, other = await history(1), await history(1), await history(2)

    assert first == again
    assert first != other


async def test_it_goes_on_after_failures_of_the_server(bench: Bench) -> None:
    """A read that fails is made again a little later."""
    argo = bench.argo()
    await synced(bench, argo)
    bench.faults.add(Rule(Refuse(500), Match(verb="get"), times=3))
    await bench.patch({"operation": operation()})
    await asyncio.sleep(10)
    app = await bench.app()
    await argo.stop()

    assert (phase(app), owner(app)) == ("Succeeded", "mine")


async def test_a_write_whose_answer_is_lost_is_repeated(bench: Bench) -> None:
    """The last write has landed, is sent again, and clears what was requested in between."""
    argo = bench.argo()
    await synced(bench, argo)
    bench.faults.add(Rule(Drop(after=True), Match(verb="patch"), first=3, times=1))
    await bench.patch({"operation": operation()})
    await bench.until(lambda app: ended(app) and owner(app) == "mine")
    await bench.patch({"operation": operation("second")})
    await asyncio.sleep(0.005)
    assert "operation" in await bench.app()
    await asyncio.sleep(10)
    await argo.stop()

    app = await bench.app()
    assert (owner(app), len(app["status"]["history"]), "operation" in app) == ("mine", 2, False)


async def test_a_deleted_application_is_forgotten(bench: Bench) -> None:
    """In the middle of its operation; one of the same name starts without a state."""
    argo = bench.argo()
    await synced(bench, argo)
    argo.application("shop-dev").next_sync(duration=5)
    await bench.patch({"operation": operation()})
    await bench.until(lambda app: phase(app) == "Running")
    await bench.client.delete(APPLICATIONS, KEY)
    await asyncio.sleep(30)
    with pytest.raises(NotFound):
        await bench.app()
    await bench.create()
    await asyncio.sleep(5)
    app = await bench.app()
    await argo.stop()

    assert (app["status"]["sync"]["status"], phase(app)) == ("Synced", "")


class TestBadUse:
    """Errors name what is wrong and what to do."""

    @pytest.mark.parametrize(
        ("script", "told"),
        [
            ({"fail": "a", "error": "b"}, "give fail or error, not both"),
            ({"times": 2}, "give fail or error with it"),
            ({"fail": "a", "times": 0}, "at least 1, not 0"),
            ({"duration": -1}, "from 0 on, not -1"),
        ],
    )
    async def test_scripts_that_make_no_sense(self, bench: Bench, script: JsonObject, told: str) -> None:
        """They are refused when they are said."""
        with pytest.raises(ValueError, match=told):
            bench.argo().application("shop-dev").next_sync(**script)

    async def test_no_hook_runs(self, bench: Bench) -> None:
        """The text says what to wait for."""
        with pytest.raises(LookupError, match=r"Application argocd/shop-dev runs no hook: .*next_sync\(hang=True\)"):
            bench.argo().application("shop-dev").finish_hook()

    async def test_nothing_lives(self, bench: Bench) -> None:
        """Drift needs something that drifts."""
        with pytest.raises(LookupError, match="Application argocd/shop-dev has nothing that lives"):
            bench.argo().application("shop-dev").drift()

    async def test_unknown_health(self, bench: Bench) -> None:
        """The known ones are listed."""
        with pytest.raises(ValueError, match=r"health is one of Healthy, .*, not 'Fine'"):
            bench.argo().application("shop-dev").health("Fine")

    async def test_started_or_stopped_twice(self, bench: Bench) -> None:
        """Stop before start, start before stop."""
        argo = bench.argo()
        with pytest.raises(RuntimeError, match=r"start\(\) it first"):
            await argo.stop()
        async with argo:
            with pytest.raises(RuntimeError, match=r"stop\(\) it first"):
                await argo.start()

    async def test_no_namespace(self, bench: Bench) -> None:
        """Where all are served, an Application needs one."""
        with pytest.raises(ValueError, match="Application shop-dev: give its namespace"):
            ArgoCD(bench.client, namespace="").application("shop-dev")

    async def test_application_sets(self, bench: Bench) -> None:
        """Nothing to keep, nothing to roll out."""
        with pytest.raises(ValueError, match="spec, labels or annotations"):
            bench.argo().application_set().owns("shop-dev")
        with pytest.raises(ValueError, match="of each step"):
            bench.argo().application_set().rolling_sync()

    async def test_an_application_without_a_source(self, bench: Bench) -> None:
        """It is an InvalidSpecError, and an operation ends in Error."""
        await bench.create(spec={"source": None})
        async with bench.argo():
            await bench.patch({"operation": operation()})
            app = await bench.until(lambda app: ended(app) and app["status"].get("conditions"))

        assert (phase(app), state(app)["message"]) == ("Error", "spec.source or spec.sources is required")
        assert app["status"]["conditions"][0]["type"] == "InvalidSpecError"
