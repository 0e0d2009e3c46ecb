"""What was done in each recording of the real Argo CD, and in which state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kargo_py.local.argocd.documents import REFRESH, SKIP_RECONCILE
from kargo_py.local.argocd.engine import Manifest
from kargo_py.local.argocd.simulator import ArgoCD
from kargo_py.local.argocd.timing import Timing, Version
from tests.local.conftest import REPO, Bench, state

JsonObject = dict[str, Any]
Act = Callable[[Bench, ArgoCD], Awaitable[Any]]
Paths = Mapping[str, Sequence[Manifest]]

TIMING = Timing(jitter=0, start=0, reconciliation_jitter=0)
FULL = "0123456789012345678901234567890123456789"


# -- what is in the repository ----------------------------------------------------------------------------------------


def maps(*names: str, content: str = "", namespace: str = "default") -> list[Manifest]:
    """ConfigMaps."""
    return [Manifest("ConfigMap", name, namespace=namespace, content=content) for name in names]


HOOK = [*maps("ha"), Manifest("Job", "slow", "batch", namespace="default", hook="Sync")]
WHY = (
    'Service "bad" is invalid: [spec.ports[0].port: Invalid value: 99999999: must be between 1 and 65535, inclusive, '
    "spec.ports[0].targetPort: Invalid value: 99999999: must be between 1 and 65535, inclusive]"
)
BAD = [*maps("ba"), Manifest("Service", "bad", namespace="default", invalid=WHY)]
WAVES = [Manifest("ConfigMap", f"w-{name}", namespace="default", wave=wave) for wave, name in enumerate("abc")]


# -- acts -------------------------------------------------------------------------------------------------------------


def patch(**body: Any) -> Act:
    """Merge this into the Application."""
    return lambda bench, _: bench.patch(body, "app")


def request(_extra: JsonObject | None = None, **sync: Any) -> Act:
    """Write an operation."""
    info = [{"name": "Reason", "value": "promotion step"}]
    return patch(operation={"info": info, "initiatedBy": {"username": "promoter"}, "sync": sync, **(_extra or {})})


def annotate(**annotations: str | None) -> Act:
    """Set or remove annotations; the first part of their names goes without saying."""
    return patch(
        metadata={"annotations": {f"argocd.argoproj.io/{k.replace('_', '-')}": v for k, v in annotations.items()}}
    )


def scripted(act: Callable[[ArgoCD], Any]) -> Act:
    """Do something to Argo CD or to what it deploys to."""

    async def acted(_: Bench, argo: ArgoCD) -> None:
        act(argo)

    return acted


def push(commit: str, paths: Paths | None = None) -> Act:
    """Add a commit to the main branch."""
    return scripted(lambda argo: argo.repository(REPO).commit(commit, paths=paths))


def both(*acts: Act) -> Act:
    """One after the other."""

    async def acted(bench: Bench, argo: ArgoCD) -> None:
        for act in acts:
            await act(bench, argo)

    return acted


def finish(*, ok: bool) -> Act:
    """Let the hook end."""
    return scripted(lambda argo: argo.application("app").finish_hook(ok=ok))


async def stop(_: Bench, argo: ArgoCD) -> None:
    """Argo CD goes down."""
    await argo.stop()


async def start(_: Bench, argo: ArgoCD) -> None:
    """Argo CD comes back."""
    await argo.start()


TERMINATE = patch(status={"operationState": {"phase": "Terminating"}})


def retried(limit: int, duration: str) -> JsonObject:
    """The retry of an operation."""
    return {"retry": {"limit": limit, "backoff": {"duration": duration, "factor": 2, "maxDuration": "1m"}}}


# -- cases ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One recording: what there was, and what was done when (seconds after the first act)."""

    file: str
    acts: Sequence[tuple[float, Act]]
    commits: Sequence[tuple[str, Paths]] = ()
    deployed: Sequence[Manifest] = ()
    spec: JsonObject = field(default_factory=dict)
    given: Callable[[ArgoCD], Any] | None = None
    """Said before Argo CD starts."""
    before: Act | None = None
    """Done before the recording begins."""
    created: JsonObject | None = None
    """The Application is created by the first act, with these parts."""
    parts: JsonObject = field(default_factory=dict)
    """What else the Application has before the act."""
    timing: Timing = TIMING
    """Where two workers were in a race, the delays with which it ends as it did in the recording."""
    clock: float = 2.0
    """Seconds from the reconciledAt in the first row to the first act."""
    cut: bool = False
    """The recording stops before everything has settled."""
    lasts: float = 20.0
    """Seconds after the last act."""

    @property
    def version(self) -> Version:
        return Version.V3_5 if self.file.startswith("v3.5.1/") else Version.V3_6


def source(path: str, revision: str = "main") -> JsonObject:
    return {"repoURL": REPO, "path": path, "targetRevision": revision}


def at_once(*acts: Act) -> Sequence[tuple[float, Act]]:
    return [(0.0, both(*acts))]


def cfg(older: str, newer: str) -> list[tuple[str, Paths]]:
    """The repository of the first application: one ConfigMap differs between two commits."""
    return [
        (older, {"cfg": [*maps("a", content=older), *maps("b")]}),
        (newer, {"cfg": [*maps("a", content=newer), *maps("b")]}),
    ]


def cfg_at(commits: Sequence[tuple[str, Paths]], index: int) -> Sequence[Manifest]:
    return commits[index][1]["cfg"]


OLD, NEW = "407d6d4", "f7076ec"
CFG = cfg(OLD, NEW)
OLD_35, NEW_35 = "99485d8", "8c6d982"
CFG_35 = cfg(OLD_35, NEW_35)
IN_CFG = {"source": source("cfg")}


def on_cfg(name: str, act: Act, act_35: Act | None = None, *, live: int | None, **more: Any) -> list[Case]:
    """The same act on both versions, at an application of two ConfigMaps."""
    return [
        Case(
            file,
            at_once(chosen),
            commits,
            deployed=() if live is None else cfg_at(commits, live),
            spec=IN_CFG,
            **more,
        )
        for file, chosen, commits in ((name, act, CFG), (f"v3.5.1/{name}", act_35 or act, CFG_35))
    ]


HEAD, HEAD_35 = "d1800e7", "b6bbb69"
IN_HOOK = {"source": source("hook")}


def on_hook(
    name: str, acts: Sequence[tuple[float, Act]], head: str, head_35: str = "", *, live: bool = True, **more: Any
) -> list[Case]:
    """The same acts on both versions, at an application with a hook."""
    return [
        Case(file, acts, [(commit, {"hook": HOOK})], deployed=maps("ha") if live else (), spec=IN_HOOK, **more)
        for file, commit in ((name, head), (f"v3.5.1/{name}", head_35))
        if commit
    ]


def on_bad(name: str, acts: Sequence[tuple[float, Act]], *, live: bool, **more: Any) -> list[Case]:
    """The same acts on both versions, at an application with a manifest that is refused."""
    return [
        Case(
            file,
            acts,
            [(commit, {"bad": BAD})],
            deployed=maps("ba") if live else (),
            spec={"source": source("bad")},
            timing=timing,
            **more,
        )
        for file, commit, timing in (
            (name, "a44ff9b", TIMING),
            (f"v3.5.1/{name}", "7897cd8", replace(TIMING, live_cache=0.005)),
        )
    ]


async def hanging(bench: Bench, argo: ArgoCD) -> None:
    """An operation runs, and waits for its hook only."""
    await request()(bench, argo)
    await bench.until(lambda app: state(app).get("message") == "waiting for completion of hook batch/Job/slow", "app")


CONFIGS = [
    *on_cfg("a-create.trace.txt", patch(), live=None, created={}),
    *on_cfg(
        "b-op-to-head-sha.trace.txt",
        request(revision=NEW.ljust(40, "0")),
        request(revision=NEW_35.ljust(40, "0")),
        live=None,
    ),
    *on_cfg("b3-op-without-revision.trace.txt", request(), live=0),
    *on_cfg("b4-same-op-again-nothing-to-do.trace.txt", request(), live=1),
    *on_cfg("b5-operation-without-sync.trace.txt", patch(operation={"initiatedBy": {"username": "promoter"}}), live=1),
    *on_cfg(
        "b2-op-to-older-revision-while-target-is-main.trace.txt",
        request(revision=OLD.ljust(40, "0")),
        request(revision=OLD_35.ljust(40, "0")),
        live=1,
    ),
    *on_cfg(
        "b6-dry-run.trace.txt",
        request(revision=OLD.ljust(40, "0"), dryRun=True),
        request(revision=OLD_35.ljust(40, "0"), dryRun=True),
        live=1,
    ),
    *on_cfg(
        "b7-partial.trace.txt",
        request(revision=OLD.ljust(40, "0"), resources=[{"kind": "ConfigMap", "name": "a"}]),
        request(revision=OLD_35.ljust(40, "0"), resources=[{"kind": "ConfigMap", "name": "a"}]),
        live=1,
    ),
    *on_cfg("b8-unknown-revision.trace.txt", request(revision=FULL), live=0),
    *on_cfg("b9-unknown-branch.trace.txt", request(revision="no-such-branch"), live=0),
]

HOOKS = [
    *on_hook(
        "c-waiting-for-hook-40s.trace.txt",
        at_once(request()),
        HEAD,
        live=False,
        timing=replace(TIMING, live_cache=0.001, refresh=0.02),
    ),
    *on_hook("c-waiting-for-hook-40s.trace.txt", at_once(request()), "", HEAD_35, live=False),
    *on_hook("d-terminate-by-status-patch.trace.txt", at_once(TERMINATE), HEAD, HEAD_35, before=hanging, live=False),
    *on_hook("e-hook-job-succeeds.trace.txt", [(0, request()), (3.4, finish(ok=True))], HEAD, HEAD_35),
    *on_hook("f-hook-job-fails.trace.txt", [(0, request()), (2.3, finish(ok=False))], HEAD, HEAD_35),
    *on_hook(
        "i-op-overwritten-while-running.trace.txt",
        [(0, request()), (5, request(revision="f" * 40)), (8.5, finish(ok=True))],
        "a44ff9b",
    ),
    Case(
        "v3.5.1/i-op-overwritten-while-running.trace.txt",
        [(0, request()), (5, request(revision="f" * 40)), (8.5, finish(ok=True))],
        [("b6bbb69", {"hook": HOOK}), ("7897cd8", {})],
        deployed=maps("ha"),
        spec=IN_HOOK,
    ),
    *on_hook(
        "j-operation-removed-while-running.trace.txt",
        [(0, request()), (1.3, patch(operation=None))],
        "a44ff9b",
        "7897cd8",
    ),
    *on_hook(
        "k-operationstate-removed-while-running.trace.txt",
        [
            (0, request()),
            (1.2, scripted(lambda argo: argo.application("app").hold_deleted_hooks())),
            (1.3, patch(status={"operationState": None})),
        ],
        "a44ff9b",
        "7897cd8",
    ),
    *on_hook("m-terminating-with-no-operation.trace.txt", at_once(TERMINATE), "a44ff9b", "7897cd8"),
    *on_hook(
        "w-api-sync-and-api-terminate.trace.txt",
        [
            (0, patch(operation={"sync": {"revision": "826c881".ljust(40, "0")}}, status={"operationState": None})),
            (1.27, TERMINATE),
        ],
        "826c881",
    ),
    *on_hook(
        "x-controller-down-while-the-hook-finishes.trace.txt",
        [(0, request()), (2, stop), (3, finish(ok=True)), (4, start)],
        "826c881",
        "7897cd8",
        lasts=140,
    ),
    *on_hook(
        "y-controller-sync-timeout-6s.trace.txt", at_once(request()), "826c881", timing=replace(TIMING, sync_timeout=6)
    ),
]

FAILURES = [
    *on_bad("g-invalid-manifest.trace.txt", at_once(request()), live=False),
    *on_bad("h-retry-limit-2-backoff-2s.trace.txt", at_once(request(retried(2, "2s"))), live=True),
    *on_bad(
        "h2-terminate-while-waiting-to-retry.trace.txt", [(0, request(retried(5, "10s"))), (2.3, TERMINATE)], live=True
    ),
    Case(
        "be-unknown-project.trace.txt",
        at_once(
            scripted(lambda argo: argo.project("nope").missing()),
            patch(operation={"sync": {"revision": "main"}}, spec={"project": "nope"}),
        ),
        [("3f80b14", {"cfg": maps("a")})],
        spec=IN_CFG,
    ),
    Case(
        "bf-unknown-destination-cluster.trace.txt",
        at_once(request(revision="main")),
        [("3f80b14", {"cfg": maps("a")})],
        spec=IN_CFG,
        given=lambda argo: argo.destination("https://127.0.0.1:1").missing(),
        before=patch(spec={"destination": {"server": "https://127.0.0.1:1"}}),
    ),
]

A44 = cfg("0000001", "a44ff9b")
C826 = cfg("22b26ab", "826c881")

AROUND = [
    Case(
        "ba-three-sync-waves.trace.txt",
        at_once(request()),
        [("3f80b14", {"waves": WAVES})],
        spec={"source": source("waves")},
    ),
    Case(
        "bb-op-and-operationstate-null-in-one-patch.trace.txt",
        at_once(patch(operation={"sync": {"revision": "main"}}, status={"operationState": None})),
        [("3f80b14", {"cfg": maps("a")})],
        deployed=maps("a"),
        spec=IN_CFG,
    ),
    Case(
        "bd-op-on-an-app-without-status.trace.txt",
        at_once(patch(operation={"sync": {}}, metadata={"annotations": {SKIP_RECONCILE: None}})),
        [("3f80b14", {"cfg": maps("a")})],
        spec=IN_CFG,
        parts={"annotations": {SKIP_RECONCILE: "true"}},
        given=lambda argo: argo.application("demo").deployed(*maps("a")),
    ),
    Case(
        "n-created-with-an-operation.trace.txt",
        at_once(patch()),
        A44,
        spec=IN_CFG,
        created={"operation": {"sync": {}}},
        given=lambda argo: argo.application("demo").deployed(*cfg_at(A44, 1)),
    ),
    Case(
        "o-deny-window-then-terminate-then-window-removed.trace.txt",
        [
            (0, request(revision="main")),
            (35, TERMINATE),
            (80.5, scripted(lambda argo: argo.project("default").allow())),
        ],
        A44,
        deployed=cfg_at(A44, 0),
        spec=IN_CFG,
        given=lambda argo: argo.project("default").deny(),
    ),
    Case(
        "o2-deny-window-with-manualsync.trace.txt",
        at_once(request(revision="main")),
        A44,
        deployed=cfg_at(A44, 0),
        spec=IN_CFG,
        given=lambda argo: argo.project("default").deny(manual_sync=True),
    ),
    Case(
        "p-skip-reconcile-with-an-op.trace.txt",
        at_once(request()),
        A44,
        deployed=cfg_at(A44, 1),
        spec=IN_CFG,
        parts={"annotations": {SKIP_RECONCILE: "true"}},
    ),
    Case(
        "p2-skip-reconcile-lifted.trace.txt",
        at_once(annotate(skip_reconcile=None)),
        A44,
        deployed=cfg_at(A44, 1),
        spec=IN_CFG,
        parts={"annotations": {SKIP_RECONCILE: "true"}, "operation": {"sync": {}}},
    ),
    *(
        Case(f"q-refresh-{kind}.trace.txt", at_once(annotate(refresh=kind)), A44, deployed=cfg_at(A44, 1), spec=IN_CFG)
        for kind in ("normal", "hard")
    ),
    Case(
        "q2-refresh-after-a-new-commit.trace.txt",
        at_once(push("22b26ab", {"cfg": maps("a", content="22b26ab")}), annotate(refresh="normal")),
        A44,
        deployed=cfg_at(A44, 1),
        spec=IN_CFG,
    ),
    Case(
        "x2-op-written-while-the-controller-is-down.trace.txt",
        [(0, stop), (1, request()), (2, start)],
        C826,
        deployed=cfg_at(C826, 1),
        spec=IN_CFG,
        lasts=140,
        cut=True,
    ),
    Case(
        "v3.5.1/x2-op-written-while-the-controller-is-down.trace.txt",
        [(0, both(stop, annotate(note="recorded"))), (1, request()), (4, start)],
        cfg("0000001", "7897cd8"),
        deployed=cfg_at(cfg("0000001", "7897cd8"), 0),
        spec=IN_CFG,
        timing=replace(TIMING, start=1.2),
        cut=True,
    ),
    Case(
        "x3-pending-op-nudged-by-any-metadata-write-after-a-restart.trace.txt",
        [(0, stop), (1, request()), (2, start), (12.7, annotate(note="a nudge"))],
        C826,
        deployed=cfg_at(C826, 1),
        spec=IN_CFG,
        cut=True,
    ),
]

AUTO = {"source": source("auto"), "syncPolicy": {"automated": {}}}


def auto(*commits: str) -> list[tuple[str, Paths]]:
    """A repository whose one ConfigMap differs in every commit."""
    return [(name, {"auto": maps("auto-a", content=name), "cfg": maps("a", "b")}) for name in commits]


AUTOMATED = [
    Case(
        "r-autosync-on-create.trace.txt",
        at_once(patch()),
        auto("35d7bac"),
        spec=AUTO,
        created={},
        timing=replace(TIMING, auto_sync=0.03),
    ),
    Case(
        "r2-autosync-app-op-to-an-older-revision.trace.txt",
        at_once(request(revision="40ec10c".ljust(40, "0"))),
        auto("40ec10c", "35d7bac"),
        deployed=maps("auto-a", content="35d7bac"),
        spec=AUTO,
    ),
    Case(
        "r3-autosync-after-push-and-refresh-annotation.trace.txt",
        at_once(push("96d7f16", {"auto": maps("auto-a", content="96d7f16")}), annotate(refresh="normal")),
        auto("40ec10c", "35d7bac"),
        deployed=maps("auto-a", content="40ec10c"),
        spec=AUTO,
    ),
    Case(
        "s-refresh-annotation-and-op-in-one-patch-autosync-on.trace.txt",
        at_once(
            push("826c881", {"auto": maps("auto-a", content="826c881")}),
            patch(operation={"sync": {"revision": "main"}}, metadata={"annotations": {REFRESH: "normal"}}),
        ),
        auto("96d7f16"),
        deployed=maps("auto-a", content="96d7f16"),
        spec=AUTO,
    ),
]

TWO = {"source": None, "sources": [source("cfg"), source("auto")]}
BOTH = auto("40ec10c", "826c881")
LIVE = [*maps("a", "b"), *maps("auto-a", content="826c881")]

SOURCES = [
    Case(
        "t-targetrevision-and-op-in-one-patch.trace.txt",
        at_once(
            patch(
                operation={"sync": {"revision": "826c881".ljust(40, "0")}},
                spec={"source": {"targetRevision": "826c881".ljust(40, "0")}},
            )
        ),
        auto("40ec10c", "826c881"),
        spec={"source": source("auto", "40ec10c".ljust(40, "0"))},
    ),
    Case(
        "v-source-override.trace.txt",
        at_once(request(source=source("cfg", "40ec10c".ljust(40, "0")))),
        auto("40ec10c", "826c881"),
        deployed=maps("auto-a", content="826c881"),
        spec={"source": source("auto", "826c881".ljust(40, "0"))},
        timing=replace(TIMING, live_cache=0.001, refresh=0.002, gap=0.02),
    ),
    Case(
        "u-multi-source-op-with-revisions-only.trace.txt",
        at_once(request(revisions=["826c881".ljust(40, "0"), "40ec10c".ljust(40, "0")])),
        BOTH,
        spec=TWO,
    ),
    Case(
        "u2-multi-source-op-with-revision-singular-.trace.txt",
        at_once(request(revision="40ec10c".ljust(40, "0"))),
        BOTH,
        deployed=[*maps("a", "b"), *maps("auto-a", content="40ec10c")],
        spec=TWO,
    ),
    Case(
        "u4-multi-source-op-with-sources-and-an-empty-revision.trace.txt",
        at_once(
            request(
                sources=[source("cfg"), source("auto", "40ec10c".ljust(40, "0"))],
                revisions=["826c881".ljust(40, "0"), ""],
            )
        ),
        BOTH,
        deployed=LIVE,
        spec=TWO,
    ),
]

HYDRATED = {
    "source": None,
    "sourceHydrator": {
        "drySource": source("dry"),
        "syncSource": {"targetBranch": "env/test", "path": "out"},
        "hydrateTo": {"targetBranch": "env/test-next"},
    },
}
DRY_AND_HYDRATED: Sequence[tuple[str, Paths]] = [("2276aac", {"out": ()}), ("9b43f19", {"out": maps("h")})]


def move(branch: str, commit: str) -> Act:
    return scripted(lambda argo: argo.repository(REPO).branch(branch, commit))


HYDRATOR = [
    Case(
        "aa-hydrated-app-promoted-by-moving-the-branch.trace.txt",
        [(0, both(move("env/test", "9b43f19"), annotate(refresh="normal"))), (1.08, request())],
        DRY_AND_HYDRATED,
        spec=HYDRATED,
        clock=8,
    ),
    Case(
        "ab-op-with-the-dry-sha-as-revision.trace.txt",
        at_once(request(revision="2276aac".ljust(40, "0"))),
        DRY_AND_HYDRATED,
        deployed=maps("h"),
        spec=HYDRATED,
        given=lambda argo: argo.repository(REPO).branch("env/test", "9b43f19"),
    ),
]

CASES = [*CONFIGS, *HOOKS, *FAILURES, *AROUND, *AUTOMATED, *SOURCES, *HYDRATOR]
