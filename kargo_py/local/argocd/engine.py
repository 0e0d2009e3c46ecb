"""One pass of a sync: which resources are applied, which hooks run, and what is to be waited for.

How far a sync has come is known from the rows of ``syncResult.resources`` and from the hooks that live in the cluster,
nothing else, so it goes on after a restart (spec 1.4, 1.7). What a pass says follows the recordings:

* A single wave that applies is Succeeded at once, and its rows keep hookPhase Running.
* Where one resource is refused and another is not, the first pass still waits; the next one fails.
* A hook that has to go before it is made anew is waited for with nothing applied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from kargo_py.kube.client import JsonObject

PHASES: Final = ("PreSync", "Sync", "PostSync")


class ResourceId(NamedTuple):
    """Names a resource in the destination cluster."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.group}/{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A resource as the target state wants it; ``content`` is compared as a whole."""

    kind: str
    name: str
    group: str = ""
    version: str = "v1"
    namespace: str = ""
    content: str = ""
    hook: str = ""
    """PreSync, Sync or PostSync for a hook."""
    wave: int = 0
    invalid: str = ""
    """Why the API server of the destination refuses it."""

    def __post_init__(self) -> None:
        if self.hook and self.hook not in PHASES:
            raise ValueError(f"{self.kind} {self.name}: hook is one of {', '.join(PHASES)}, not {self.hook!r}")

    @property
    def id(self) -> ResourceId:
        """What names it."""
        return ResourceId(self.group, self.kind, self.namespace, self.name)

    @property
    def order(self) -> tuple[int, int]:
        """What is applied together has the same; lower comes first."""
        return PHASES.index(self.hook or "Sync"), self.wave


@dataclass(frozen=True, slots=True)
class Pass:
    """What a pass came to, and what it did to the cluster."""

    phase: str
    message: str
    rows: Sequence[JsonObject] = ()
    applied: Sequence[Manifest] = ()
    hooks_started: Sequence[ResourceId] = ()
    hooks_deleted: Sequence[ResourceId] = ()
    pruned: Sequence[ResourceId] = ()
    pauses: bool = False
    """A wave was applied and another follows."""


@dataclass(frozen=True, slots=True)
class Live:
    """The cluster as the engine sees it: contents by resource, and how far each hook is."""

    contents: Mapping[ResourceId, str] = field(default_factory=dict)
    hooks: Mapping[ResourceId, str] = field(default_factory=dict)
    owned: frozenset[ResourceId] = frozenset()
    """What belongs to the Application, in its target state or not."""
    deletions_hang: bool = False
    """A deleted hook stays, as one with a finalizer that nobody removes."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a sync is done."""

    dry_run: bool = False
    partial: bool = False
    prune: bool = False


def advance(manifests: Sequence[Manifest], rows: Sequence[JsonObject], live: Live, options: Options) -> Pass:
    """Go one pass further from what *rows* say was done."""
    if options.dry_run:
        done = [_row(manifest, live) for manifest in manifests if not manifest.hook]
        return Pass("Succeeded", "successfully synced (no more tasks)", done)
    leftover = [m.id for m in manifests if m.hook and m.id in live.hooks] if not rows else []
    if leftover and live.deletions_hang:
        return Pass("Running", f"waiting for deletion of hook {leftover[0]}", hooks_deleted=leftover)
    done = [_followed(row, live.hooks) for row in rows]
    running = [row for row in done if row.get("hookType") and row["hookPhase"] == "Running"]
    if running:
        return Pass("Running", f"waiting for completion of hook {_id(running[0])}{_more(len(running) - 1)}", done)
    if failed := [row for row in done if row["hookPhase"] == "Failed"]:
        return Pass("Failed", _failure(failed), done)
    pending = sorted((m for m in manifests if m.id not in {_id(row) for row in done}), key=lambda m: m.order)
    if not pending:
        return Pass("Succeeded", "successfully synced (no more tasks)", done)
    applied = _apply(pending, done, live, leftover)
    return applied if options.partial or applied.phase != "Succeeded" else _prune(applied, manifests, live, options)


def terminate(rows: Sequence[JsonObject], live: Live) -> Pass:
    """Delete the hooks that run; what was applied stays (spec 1.8)."""
    ended = [row | {"hookPhase": "Failed", "message": "Terminated"} if _runs(row, live.hooks) else row for row in rows]
    running = [name for name, phase in live.hooks.items() if phase == "Running"]
    return Pass("Failed", "Operation terminated", ended, hooks_deleted=running)


def _apply(pending: Sequence[Manifest], done: Sequence[JsonObject], live: Live, leftover: Sequence[ResourceId]) -> Pass:
    now = [manifest for manifest in pending if manifest.order == pending[0].order]
    hooks = [manifest.id for manifest in now if manifest.hook]
    applied = [manifest for manifest in now if not manifest.invalid and not manifest.hook]
    rows = [*done, *(_row(manifest, live) for manifest in now)]
    more_waves = len(now) < len(pending)
    if refused := [row for row in rows if row["hookPhase"] == "Failed"]:
        if not applied:
            return Pass("Failed", _failure(refused), rows)
        phase, message = "Running", f"waiting for healthy state of {applied[0].id}"
    elif hooks:
        phase, message = "Running", f"waiting for completion of hook {hooks[0]}{_more(len(now) - 1)}"
    elif more_waves:
        phase, message = "Running", f"waiting for healthy state of {applied[0].id}{_more(len(applied) - 1)}"
    else:
        phase, message = "Succeeded", "successfully synced (all tasks run)"
    return Pass(phase, message, rows, applied, hooks, leftover, pauses=more_waves and not refused)


def _prune(applied: Pass, manifests: Sequence[Manifest], live: Live, options: Options) -> Pass:
    """Delete what is no longer wanted, or say that it stays."""
    superfluous = sorted(live.owned - {manifest.id for manifest in manifests})
    status, message = ("Pruned", "pruned") if options.prune else ("PruneSkipped", "ignored (requires pruning)")
    rows = [
        {
            **name._asdict(),
            "version": "v1",
            "status": status,
            "message": message,
            "hookPhase": "Succeeded",
            "syncPhase": "Sync",
        }
        for name in superfluous
    ]
    return replace(applied, rows=[*applied.rows, *rows], pruned=superfluous if options.prune else ())


def _failure(failed: Sequence[JsonObject]) -> str:
    reasons = [row["message"] for row in failed if not row.get("hookType")]
    return "one or more synchronization tasks completed unsuccessfully" + (
        f", reason: {','.join(reasons)}" if reasons else ""
    )


def _more(count: int) -> str:
    return f" and {count} more resources" if count else ""


def _id(row: JsonObject) -> ResourceId:
    return ResourceId(row["group"], row["kind"], row["namespace"], row["name"])


def _runs(row: JsonObject, hooks: Mapping[ResourceId, str]) -> bool:
    return bool(row.get("hookType")) and row["hookPhase"] == "Running" and hooks.get(_id(row), "Running") == "Running"


def _followed(row: JsonObject, hooks: Mapping[ResourceId, str]) -> JsonObject:
    """The row after another look at the cluster: what was applied is healthy, a hook is as far as it says."""
    if row["hookPhase"] != "Running":
        return row
    if not row.get("hookType"):
        return row | {"hookPhase": "Succeeded"}
    match hooks.get(_id(row)):
        case "Succeeded":
            return row | {"hookPhase": "Succeeded", "message": "Reached expected number of succeeded pods"}
        case "Failed":
            return row | {"hookPhase": "Failed", "message": "Job has reached the specified backoff limit"}
        case _:
            return row


def _row(manifest: Manifest, live: Live) -> JsonObject:
    row: JsonObject = {
        "group": manifest.group,
        "version": manifest.version,
        "kind": manifest.kind,
        "namespace": manifest.namespace,
        "name": manifest.name,
        "status": "Synced",
        "hookPhase": "Running",
        "syncPhase": manifest.hook or "Sync",
    }
    if manifest.invalid:
        return row | {"status": "SyncFailed", "hookPhase": "Failed", "message": manifest.invalid}
    what = f"{manifest.kind.lower()}{'.' if manifest.group else ''}{manifest.group}/{manifest.name}"
    if manifest.hook:
        return row | {"hookType": manifest.hook, "message": f"{what} created"}
    match live.contents.get(manifest.id):
        case None:
            verb = "created"
        case manifest.content:
            verb = "unchanged"
        case _:
            verb = "configured"
    return row | {"message": f"{what} {verb}"}
