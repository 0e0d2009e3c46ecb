"""The Argo CD deployer: what it starts, when it does not, and what it remembers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from kargo_py.api.names import Actor
from kargo_py.api.stamp import STAMP_KEY, parse_stamp
from kargo_py.argocd.application import Application, ApplicationCodec
from kargo_py.argocd.sources import HelmParameter, SourceUpdate
from kargo_py.deployers.argocd import ArgoCD, Origin
from kargo_py.deployers.argocd_admission import TargetError, UpdateRequest
from kargo_py.deployers.argocd_health import check_config
from kargo_py.deployers.base import Before, Record, TargetState
from kargo_py.kube.client import Codec, Page, PatchType
from kargo_py.kube.errors import Conflict, Forbidden, Invalid, KubeError, OutcomeUnknown
from kargo_py.kube.resources import Key, Resource
from tests.kube.fakes import ScriptedClient

pytestmark = pytest.mark.looptime

JsonObject = dict[str, Any]
KEY = Key("argocd", "shop-dev")
STAMP = "v1/i/shop/dev.01k/uid/update/1"
THEIRS = {"initiatedBy": {"username": "alice"}, "sync": {}}
OURS = {"info": [{"name": STAMP_KEY, "value": STAMP}], "sync": {}}
ORIGIN = Origin("dev.01k", Actor(None))
REQUEST = UpdateRequest(KEY, "shop:dev")


def application(version: int = 5, **parts: Any) -> Application:
    """The Application at a version."""
    annotations = {"kargo.akuity.io/authorized-stage": "shop:dev", **parts.pop("annotations", {})}
    meta = {"name": KEY.name, "namespace": KEY.namespace, "uid": "u", "resourceVersion": str(version)}
    obj = {
        "metadata": {**meta, "annotations": annotations, **parts.pop("metadata", {})},
        "spec": {"source": {"repoURL": "r"}, "destination": {}},
        **parts,
    }
    return ApplicationCodec().object(msgspec.json.encode(obj))


def state(operation: JsonObject, phase: str, **more: Any) -> JsonObject:
    return {"operationState": {"operation": operation, "phase": phase, "startedAt": "t", **more}}


def record(**more: Any) -> Record:
    base: dict[str, Any] = {
        "kind": "argocd", "namespace": "argocd", "name": "shop-dev", "uid": "u", "step": "update", "attempt": 1,
        "stamp": STAMP, "resource_version": "5",
    }  # fmt: skip
    return Record(**{**base, **more})


class Server(ScriptedClient):
    """Lists one Application; answers patches from a script."""

    def __init__(self, listed: Application, *answers: Application | KubeError, live: Application | None = None) -> None:
        super().__init__()
        self.lists = [Page([listed], "5")]  # type: ignore[list-item]
        self.answers = list(answers)
        self.patches: list[Any] = []
        if live is not None:
            self.objects[KEY] = live  # type: ignore[assignment]

    async def patch(
        self,
        resource: Resource,
        key: Key,
        body: bytes,
        *,
        codec: Codec[Any],
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
    ) -> Any:
        self.patches.append(json.loads(body))
        answer = self.answers.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        return answer


@asynccontextmanager
async def running(server: Server) -> AsyncIterator[ArgoCD]:
    """A deployer whose cache is filled."""
    argocd = ArgoCD(server)
    task = asyncio.create_task(argocd.applications.run())
    await argocd.applications.wait_synced()
    try:
        yield argocd
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


STARTED = application(6, annotations={STAMP_KEY: STAMP}, operation=OURS)


async def test_start() -> None:
    """A start is one write, guarded by the version it was decided on, and is seen at once."""
    server = Server(application(), STARTED)
    async with running(server) as argocd:
        observation = await argocd.pursue(record(), REQUEST, ORIGIN)

    (patch,) = server.patches
    assert patch["metadata"]["resourceVersion"] == "5"
    assert patch["operation"]["initiatedBy"] == {"username": "kargo-controller", "automated": True}
    assert (observation.start, observation.record.state) == (False, TargetState.PENDING)


async def test_conflict_is_decided_again() -> None:
    """After a conflict the live Application decides: a status write in between costs another try, no more."""
    started = application(8, annotations={STAMP_KEY: STAMP}, operation=OURS)
    server = Server(application(), Conflict(409, "Conflict", "x"), started, live=application(7))
    async with running(server) as argocd:
        await argocd.pursue(record(), REQUEST, ORIGIN)

    assert [p["metadata"]["resourceVersion"] for p in server.patches] == ["5", "7"]


async def test_conflict_with_somebody_who_was_faster() -> None:
    """If the conflict was somebody else's operation, it is waited for, not overwritten."""
    server = Server(application(), Conflict(409, "Conflict", "x"), live=application(7, operation=THEIRS))
    async with running(server) as argocd:
        observation = await argocd.pursue(record(), REQUEST, ORIGIN)

    assert len(server.patches) == 1
    assert (observation.start, observation.notable) == (False, True)
    assert "alice" in observation.message


async def test_what_is_on_record_must_be_true_of_the_start() -> None:
    """If the Application changed since the intent was recorded, nothing is started before that is recorded anew."""
    update = SourceUpdate("r", desired_revision="2", update_target_revision=True)
    request = UpdateRequest(KEY, "shop:dev", [update])
    server = Server(application())
    async with running(server) as argocd:
        known = await argocd.intend(request, parse_stamp(STAMP), ORIGIN)
        assert await argocd.outdated(known, request) is None
        changed = application(8, spec={"source": {"repoURL": "r", "targetRevision": "1"}, "destination": {}})
        argocd.applications.observe(changed)
        fresh = await argocd.outdated(known, request)
        observation = await argocd.pursue(known, request, ORIGIN)

    assert [Before("/spec/source/targetRevision")] == list(known.before)
    assert fresh is not None
    assert [Before("/spec/source/targetRevision", "1")] == list(fresh.before)
    assert (observation.start, server.patches) == (True, [])


async def test_another_promotion_in_between() -> None:
    """Another stamp since is no obstacle for what this process never sent; after a restart it is the end."""
    other = application(8, annotations={STAMP_KEY: "v1/i/shop/qa.01k/uid-2/update/1"})
    async with running(Server(application())) as argocd:
        known = await argocd.intend(REQUEST, parse_stamp(STAMP), ORIGIN)
        argocd.applications.observe(other)
        fresh = await argocd.outdated(known, REQUEST)
        assert argocd.observe(known).start
    async with running(Server(other, live=other)) as restarted:
        early = await restarted.pursue(known, REQUEST, ORIGIN)
        assert early.look_after is not None
        await asyncio.sleep(early.look_after)
        seen = await restarted.pursue(known, REQUEST, ORIGIN)

    assert not early.record.state.final
    assert fresh is not None
    assert fresh.seen_stamp == "v1/i/shop/qa.01k/uid-2/update/1"
    assert TargetState.SUPERSEDED is seen.record.state
    assert "cannot be told any more" in seen.record.message


async def test_conflict_with_ourselves() -> None:
    """If another process of ours was faster with the same attempt, it is recognised by the stamp."""
    server = Server(application(), Conflict(409, "Conflict", "x"), live=STARTED)
    async with running(server) as argocd:
        observation = await argocd.pursue(record(), REQUEST, ORIGIN)

    assert (len(server.patches), observation.start) == (1, False)


async def test_unknown_outcome() -> None:
    """A start whose answer was lost is sent again byte for byte, and recognised by its stamp if it had landed."""
    server = Server(application(), OutcomeUnknown("reset"), Conflict(409, "Conflict", "x"), live=STARTED)
    async with running(server) as argocd:
        observation = await argocd.pursue(record(), REQUEST, ORIGIN)

    assert server.patches[0] == server.patches[1]
    assert (len(server.patches), observation.start) == (2, False)


async def test_conflict_after_an_unknown_outcome() -> None:
    """A start that may have landed was issued, though no trace is left: what others did since does not make it new."""
    other = application(
        9, annotations={STAMP_KEY: "v1/i/shop/qa.01k/uid-2/update/1"}, status=state(THEIRS, "Succeeded")
    )
    server = Server(application(), OutcomeUnknown("reset"), Conflict(409, "Conflict", "x"), live=other)
    async with running(server) as argocd:
        known = await argocd.intend(REQUEST, parse_stamp(STAMP), ORIGIN)
        seen = await argocd.pursue(known, REQUEST, ORIGIN)
        fresh = await argocd.outdated(known, REQUEST)

    assert fresh is None
    assert len(server.patches) == 2
    assert seen.record.state is TargetState.SUPERSEDED


async def test_refusal_after_an_unknown_outcome() -> None:
    """A start that may have landed is not called "never begun" because what was sent after it was refused."""
    other = application(9, annotations={STAMP_KEY: "v1/i/shop/qa.01k/uid-2/update/1"}, status=state(THEIRS, "Failed"))
    server = Server(application(), OutcomeUnknown("reset"), Invalid(422, "Invalid", "webhook"), live=other)
    async with running(server) as argocd:
        known = await argocd.intend(REQUEST, parse_stamp(STAMP), ORIGIN)
        with pytest.raises(TargetError, match="webhook"):
            await argocd.pursue(known, REQUEST, ORIGIN)
        argocd.applications.observe(other)

        assert argocd.observe(known).present


async def test_superseded_is_not_concluded_from_the_cache() -> None:
    """A watch may be frozen for longer than the worker may take: before the end is recorded, the server is asked."""
    gone = application(7, annotations={STAMP_KEY: STAMP})
    running_still = application(8, annotations={STAMP_KEY: STAMP}, status=state(OURS, "Running"), operation=OURS)
    server = Server(gone, live=running_still)
    async with running(server) as argocd:
        early = await argocd.pursue(record(), REQUEST, ORIGIN)
        assert early.look_after is not None
        await asyncio.sleep(early.look_after)
        late = await argocd.pursue(record(), REQUEST, ORIGIN)

    assert late.record.state is TargetState.RUNNING


async def test_adopted_for_the_abort_only() -> None:
    """What a real Kargo started is found also in order to stop it, but not what a Promotion elsewhere may have."""
    kargos = {"info": [{"name": "kargo.akuity.io/promotion", "value": "dev.01k"}], "initiatedBy": {"username": "kc"}}
    app = application(operation=kargos, status=state(kargos, "Running"))
    async with running(Server(app)) as argocd:
        found = await argocd.adopt(REQUEST, "update", "dev.01k")
        elsewhere = await argocd.adopt(UpdateRequest(KEY, "other:dev"), "update", "dev.01k")
        nothing = await argocd.adopt(REQUEST, "update", "dev.02k")

    assert found is not None
    assert (found.attempt, found.before) == (0, ())
    assert (elsewhere, nothing) == (None, None)


async def test_outcome_that_stays_unknown() -> None:
    """If it cannot be found out, the next look is a live one."""
    server = Server(application(), *[OutcomeUnknown("reset")] * 5, live=application(5))
    async with running(server) as argocd:
        with pytest.raises(OutcomeUnknown):
            await argocd.pursue(record(), REQUEST, ORIGIN)
        looks = len(server.reads)
        await argocd.applications.read(KEY)

    assert len(server.reads) == looks + 1


async def test_an_ending_is_latched() -> None:
    """Our ending counts though the next version shows another operation already; once recorded it is forgotten."""
    server = Server(STARTED)
    ended = application(8, annotations={STAMP_KEY: STAMP}, status=state(OURS, "Succeeded", finishedAt="t2"))
    replaced = application(9, annotations={STAMP_KEY: STAMP}, operation=THEIRS, status=state(THEIRS, "Running"))
    async with running(server) as argocd:
        argocd.attempt(KEY, STAMP)
        argocd.applications.observe(ended)
        argocd.applications.observe(replaced)
        seen = argocd.observe(record()).record
        argocd.forget(KEY, STAMP)
        later = argocd.observe(record()).record

    assert (seen.state, seen.finished_at) == (TargetState.SUCCEEDED, "t2")
    assert TargetState.SUPERSEDED is later.state


async def test_an_ending_that_comes_after_newer_news() -> None:
    """An ending in the stream counts, though a live read has shown what came after it already."""
    ended = application(8, annotations={STAMP_KEY: STAMP}, status=state(OURS, "Succeeded", finishedAt="t2"))
    replaced = application(9, annotations={STAMP_KEY: STAMP}, operation=THEIRS, status=state(THEIRS, "Running"))
    server = Server(STARTED)
    argocd = ArgoCD(server)
    argocd.attempt(KEY, STAMP)
    seen, go = asyncio.Event(), asyncio.Event()
    server.watches = [[go, ("MODIFIED", ended), seen]]
    task = asyncio.create_task(argocd.applications.run())
    await argocd.applications.wait_synced()
    argocd.applications.observe(replaced)
    go.set()
    await asyncio.sleep(1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert argocd.applications.get(KEY) is replaced
    assert argocd.observe(record()).record.state is TargetState.SUCCEEDED


@pytest.mark.parametrize(
    ("app", "request_", "words"),
    [
        (
            application(annotations={"kargo.akuity.io/authorized-stage": "shop:qa"}),
            REQUEST,
            "names shop:qa, not shop:dev",
        ),
        (application(), UpdateRequest(Key("argocd", "other"), "shop:dev"), 'Application "other" in namespace "argocd"'),
        (application(), UpdateRequest(KEY, "shop:dev", [SourceUpdate("x")]), "has no source with repoURL x"),
    ],
    ids=["unauthorised", "absent", "no such source"],
)
async def test_refused(app: Application, request_: UpdateRequest, words: str) -> None:
    """What cannot be promoted to is refused before anything is written."""
    async with running(Server(app, live=app)) as argocd:
        with pytest.raises(TargetError) as caught:
            await argocd.admission.prepare(request_)

    assert words in str(caught.value)


SET_KEY = Key("argocd", "set")
OWNER = {"ownerReferences": [{"kind": "ApplicationSet", "name": "set"}]}
OWNED = application(metadata=OWNER)
EDIT = UpdateRequest(KEY, "shop:dev", [SourceUpdate("r", desired_revision="1", update_target_revision=True)])


async def test_owner_that_would_undo_the_edit() -> None:
    """An edit that the ApplicationSet would write back is refused; one that it leaves alone is not, nor is none."""
    server = Server(OWNED, live=OWNED)
    async with running(server) as argocd:
        server.objects[SET_KEY] = {"spec": {}}
        await argocd.admission.prepare(REQUEST)
        with pytest.raises(TargetError, match="which would undo the change of /spec/source/targetRevision; name that"):
            await argocd.admission.prepare(EDIT)
        await asyncio.sleep(10)
        server.objects[SET_KEY] = {
            "spec": {"ignoreApplicationDifferences": [{"jsonPointers": ["/spec/source/targetRevision"]}]}
        }
        await argocd.admission.prepare(EDIT)


async def test_a_change_while_the_owner_is_read() -> None:
    """What is started is what is on record, also where that takes a moment to be checked."""
    server = Server(OWNED, live=OWNED)
    server.objects[SET_KEY] = {
        "spec": {"ignoreApplicationDifferences": [{"jsonPointers": ["/spec/source/targetRevision"]}]}
    }
    changed = application(
        8, metadata=OWNER, spec={"source": {"repoURL": "r", "targetRevision": "theirs"}, "destination": {}}
    )
    async with running(server) as argocd:
        known = await argocd.intend(EDIT, parse_stamp(STAMP), ORIGIN)
        await asyncio.sleep(10)
        server.gates[SET_KEY] = asyncio.Event()
        pursuing = asyncio.create_task(argocd.pursue(known, EDIT, ORIGIN))
        await asyncio.sleep(1)
        argocd.applications.observe(changed)
        server.gates[SET_KEY].set()
        seen = await pursuing

    assert server.patches == []
    assert seen.fresh is not None
    assert [Before("/spec/source/targetRevision", "theirs")] == list(seen.fresh.before)


async def test_owners_are_not_kept() -> None:
    """Each may have a MiB, and there may be thousands: one that would be read again is let go."""
    async with running(Server(OWNED)) as argocd:
        for number in range(3):
            owner = {"ownerReferences": [{"kind": "ApplicationSet", "name": f"set-{number}"}]}
            argocd.applications.observe(application(8 + number, metadata=owner))
            await argocd.admission.prepare(EDIT)
            await asyncio.sleep(10)

        assert list(argocd.admission._application_sets) == [Key("argocd", "set-2")]


async def test_owner_that_cannot_be_read() -> None:
    """Where the ApplicationSet may not be read the user is told which right is missing; one that is gone is no bar."""
    server = Server(OWNED, live=OWNED)
    async with running(server) as argocd:
        await argocd.admission.prepare(EDIT)
        await asyncio.sleep(10)
        server.objects[SET_KEY] = Forbidden(403, "Forbidden", "no")
        with pytest.raises(TargetError, match="allow get on applicationsets"):
            await argocd.admission.prepare(EDIT)


# -- stopping and waking ---------------------------------------------------------------------------------------------

RUNNING = application(7, annotations={STAMP_KEY: STAMP}, operation=OURS, status=state(OURS, "Running"))
TERMINATING = application(8, annotations={STAMP_KEY: STAMP}, operation=OURS, status=state(OURS, "Terminating"))
TERMINATED = application(
    9, annotations={STAMP_KEY: STAMP}, status=state(OURS, "Failed", message="Operation terminated", finishedAt="t")
)


async def test_stop_a_running_sync() -> None:
    """It is asked to terminate, not more than once a second, until it has ended, and that is what is recorded."""
    server = Server(RUNNING, TERMINATING, TERMINATING)
    async with running(server) as argocd:
        argocd.attempt(KEY, STAMP)
        first = await argocd.stop(record())
        overwritten = application(10, annotations={STAMP_KEY: STAMP}, operation=OURS, status=state(OURS, "Running"))
        argocd.applications.observe(overwritten)
        at_once = await argocd.stop(record())
        await asyncio.sleep(1)
        server.answers = [application(11, operation=OURS, status=state(OURS, "Terminating"))]
        again = await argocd.stop(record())
        argocd.applications.observe(
            application(12, status=state(OURS, "Failed", message="Operation terminated", finishedAt="t"))
        )
        last = await argocd.stop(record())

    assert [type(patch) for patch in server.patches] == [list, list]
    assert not any(seen.record.state.final for seen in (first, at_once, again))
    assert at_once.look_after == pytest.approx(1, abs=0.1)
    assert (last.record.state, "Operation terminated" in last.message) == (TargetState.STOPPED, True)


async def test_stop_after_a_failed_test() -> None:
    """A test in the patch that does not hold means that the Application has changed: it is read, and decided again."""
    refused = Invalid(422, "Invalid", "the server rejected our request due to an error in our request")
    server = Server(RUNNING, refused, live=TERMINATED)
    async with running(server) as argocd:
        seen = await argocd.stop(record())

    assert (len(server.patches), seen.record.state) == (1, TargetState.STOPPED)


async def test_stop_what_was_never_sent() -> None:
    """What this process has recorded only is called off without a write."""
    server = Server(application())
    async with running(server) as argocd:
        known = await argocd.intend(REQUEST, parse_stamp(STAMP), ORIGIN)
        seen = await argocd.stop(known)

    assert (server.patches, seen.record.state) == ([], TargetState.NOT_STARTED)


async def test_stop_what_another_process_may_have_sent() -> None:
    """A start may still be on its way: the version it was guarded by is made to pass before it is called off."""
    server = Server(application(), application(6, annotations={"argocd.argoproj.io/refresh": "normal"}))
    async with running(server) as argocd:
        seen = await argocd.stop(record())

    assert server.patches == [{"metadata": {"annotations": {"argocd.argoproj.io/refresh": "normal"}}}]
    assert seen.record.state is TargetState.NOT_STARTED


async def test_stop_what_landed_just_then() -> None:
    """If the start had landed before, the answer shows it, and it is terminated."""
    ending = application(7, annotations={STAMP_KEY: STAMP}, operation=OURS, status=state(OURS, "Terminating"))
    server = Server(application(), STARTED, ending)
    async with running(server) as argocd:
        seen = await argocd.stop(record())

    assert len(server.patches) == 2
    assert not seen.record.state.final


async def test_a_sync_that_is_not_picked_up() -> None:
    """After ten seconds Argo CD is nudged once, and again every thirty; then the user is told."""
    nudged = [
        application(7 + n, annotations={STAMP_KEY: STAMP, "argocd.argoproj.io/refresh": kind}, operation=OURS)
        for n, kind in enumerate(["normal", "hard", "normal"])
    ]
    server = Server(STARTED, *nudged)
    waits = []
    async with running(server) as argocd:
        argocd.attempt(KEY, STAMP)
        for _ in range(4):
            seen = await argocd.pursue(record(), REQUEST, ORIGIN)
            assert seen.look_after is not None
            waits.append((round(seen.look_after), len(server.patches)))
            await asyncio.sleep(seen.look_after)

    assert waits == [(10, 0), (30, 1), (30, 2), (30, 3)]
    assert "is its application controller running?" in seen.message


async def test_a_sync_that_somebody_orphaned() -> None:
    """It is ended once the worker cannot be inside it any more, and recorded as what it is."""
    orphan = application(7, annotations={STAMP_KEY: STAMP}, status=state(OURS, "Running"))
    server = Server(orphan, TERMINATED)
    async with running(server) as argocd:
        argocd.attempt(KEY, STAMP)
        early = await argocd.pursue(record(), REQUEST, ORIGIN)
        assert early.look_after is not None
        await asyncio.sleep(early.look_after)
        late = await argocd.pursue(record(), REQUEST, ORIGIN)

    assert [patch["operation"] for patch in server.patches] == [OURS]
    assert late.record.state is TargetState.FAILED
    assert "somebody had removed the operation" in late.message


async def test_adoption() -> None:
    """The operation that a real Kargo started for the Promotion becomes attempt 0; that of another does not."""
    kargos = {"info": [{"name": "kargo.akuity.io/promotion", "value": "dev.01k"}], "initiatedBy": {"username": "kc"}}
    app = application(operation=kargos, status=state(kargos, "Running"))
    async with running(Server(app)) as argocd:
        adopted = await argocd.intend(REQUEST, parse_stamp(STAMP), ORIGIN, taken_over=True)
        seen = await argocd.pursue(adopted, REQUEST, ORIGIN)
        other = await argocd.intend(REQUEST, parse_stamp(STAMP), Origin("dev.02k", Actor(None)), taken_over=True)
        fresh = await argocd.intend(REQUEST, parse_stamp(STAMP), ORIGIN)

    assert (adopted.attempt, adopted.stamp, adopted.initiator) == (0, "kargo:dev.01k", "kc")
    assert seen.record.state is TargetState.RUNNING
    assert (other.attempt, other.stamp) == (fresh.attempt, fresh.stamp) == (1, STAMP)


CHANGED = (Before("/spec/source/targetRevision", "0"), Before("/spec/source/helm/parameters"))


@pytest.mark.parametrize(
    ("source", "changes", "said"),
    [
        (
            {"targetRevision": "1", "helm": {"parameters": [{"name": "k", "value": "v"}]}},
            [
                {"op": "add", "path": "/spec/source/targetRevision", "value": "0"},
                {"op": "remove", "path": "/spec/source/helm/parameters"},
            ],
            "put back: /spec/source/targetRevision, /spec/source/helm/parameters",
        ),
        (
            {"targetRevision": "2", "helm": {"parameters": [{"name": "k", "value": "v"}]}},
            [{"op": "remove", "path": "/spec/source/helm/parameters"}],
            "put back: /spec/source/helm/parameters; left as somebody else changed them: /spec/source/targetRevision",
        ),
        (
            {"targetRevision": "2", "helm": {"parameters": [{"name": "k", "value": "x"}]}},
            None,
            "left as somebody else changed them: /spec/source/targetRevision, /spec/source/helm/parameters",
        ),
    ],
    ids=["all ours", "one changed since", "both changed since"],
)
async def test_revert(source: JsonObject, changes: list[JsonObject] | None, said: str) -> None:
    """Fields that are as the start left them get their former values; what others changed since is theirs."""
    update = SourceUpdate(
        "r", desired_revision="1", update_target_revision=True, helm_parameters=[HelmParameter("k", "v")]
    )
    seen = application(spec={"source": {"repoURL": "r", **source}, "destination": {}})
    server = Server(seen, application(6))
    async with running(server) as argocd:
        done = await argocd.revert(record(before=CHANGED), UpdateRequest(KEY, "shop:dev", [update]))

    assert done == said
    assert [patch[1:] for patch in server.patches] == ([changes] if changes else [])


async def test_health_settles_by_our_own_clock() -> None:
    """A verdict in the second of the sync's end is trusted once it has stood for 1.2 seconds."""
    status = {
        **state({}, "Succeeded", finishedAt="2026-11-30T12:00:00Z"),
        "reconciledAt": "2026-11-30T12:00:00Z",
        "health": {"status": "Healthy"},
        "sync": {"status": "Synced", "revision": "1", "comparedTo": {"source": {"repoURL": "r"}, "destination": {}}},
    }
    config = {"apps": [{"name": "shop-dev", "desiredRevisions": ["1"]}]}
    async with running(Server(application(status=status))) as argocd:
        early = argocd.assess([config])
        assert early.recheck_after is not None
        await asyncio.sleep(early.recheck_after)
        late = argocd.assess([config])

    assert (early.trusted, late.trusted, late.state) == (False, True, "Healthy")
    assert pytest.approx(early.recheck_after, abs=0.05) == 1.2


@pytest.mark.parametrize(
    "config", [{}, {"apps": None}, {"apps": []}, {"apps": [7]}, {"apps": [{"name": "a", "desiredRevisions": "x"}]}]
)
async def test_damaged_health_checks(config: JsonObject) -> None:
    """A check that cannot be read is no reason to call a Stage healthy."""
    async with running(Server(application())) as argocd:
        assert list(argocd.checked(config)) == []
        verdict = argocd.assess([config])

    assert verdict.state == "Unknown"
    assert "cannot be read: config.apps" in verdict.issues[0]


def test_health_check_of_a_branch() -> None:
    """A desired branch becomes the commit it resolved to; without an opinion there is none."""
    records = [record(desired=("main", ""), revisions=("abc", "def")), record(revisions=("abc",))]

    assert [app["desiredRevisions"] for app in check_config(records)["apps"]] == [["abc", ""], []]


def test_health_check_without_an_opinion() -> None:
    """Where no revision was desired, what was promoted is kept beside; Kargo does not know that field."""
    (free,) = check_config([record(revisions=("abc",))])["apps"]
    (half,) = check_config([record(desired=("main", ""), revisions=("abc", "def"))])["apps"]
    (held,) = check_config([record(desired=("main",), revisions=("abc",))])["apps"]

    assert (free["promotedRevisions"], half["promotedRevisions"]) == (["abc"], ["abc", "def"])
    assert "promotedRevisions" not in held


SETTLED = {
    **state({}, "Succeeded", finishedAt="2026-11-30T12:00:00Z"),
    "reconciledAt": "2026-11-30T12:00:05Z",
    "health": {"status": "Healthy"},
    "sync": {"status": "Synced", "revision": "2", "comparedTo": {"source": {"repoURL": "r"}, "destination": {}}},
}


@pytest.mark.parametrize(
    ("revisions", "verdict"), [(["1", "2"], "Healthy"), (["2", "1"], "Unhealthy")], ids=["mended later", "undone later"]
)
async def test_the_later_check_of_an_application_counts(revisions: list[str], verdict: str) -> None:
    """Two steps on one Application: what the later one left is what the Stage is held to."""
    configs = [{"apps": [{"name": "shop-dev", "desiredRevisions": [revision]}]} for revision in revisions]
    both = {"apps": [{"name": "shop-dev", "namespace": "argocd", "desiredRevisions": [r]} for r in revisions]}
    async with running(Server(application(status=SETTLED))) as argocd:
        assert argocd.assess(configs).state == verdict
        assert argocd.assess([both]).state == verdict


async def test_one_refresh_is_asked_for() -> None:
    """After ten seconds of doubt, once, guarded by the version; not again while nothing changes."""
    stale = {**SETTLED, "reconciledAt": "2026-11-30T11:00:00Z"}
    config = {"apps": [{"name": "shop-dev"}, {"name": "absent"}]}
    server = Server(application(status=stale), application(6, status=stale))
    async with running(server) as argocd:
        early = argocd.assess([config])
        await argocd.refresh([config])
        assert server.patches == []
        assert early.recheck_after is not None
        await asyncio.sleep(early.recheck_after)
        assert argocd.assess([config]).refresh
        for _ in range(3):
            await argocd.refresh([config])

    annotations = {"argocd.argoproj.io/refresh": "normal"}
    assert server.patches == [{"metadata": {"resourceVersion": "5", "annotations": annotations}}]
