"""One look of the operation worker at the sync itself: what stands in its way, then a pass of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kargo_py.kube.client import JsonObject
from kargo_py.local.argocd.engine import Live, Manifest, Options, Pass, advance, terminate
from kargo_py.local.argocd.operation import BLOCKED, Turn
from kargo_py.local.argocd.scripts import Obstacles, SyncScript
from kargo_py.local.argocd.sources import Target, Wanted, has_multiple_sources, sources_of, sync_result, wanted_by


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state after the look, not yet concluded, and what is to be done to the cluster."""

    state: JsonObject
    done: Pass | None = None


def wanted_in(state: JsonObject, app: JsonObject) -> list[Wanted]:
    """What a state deploys; once resolved, a revision stays, wherever its branch goes."""
    wanted = wanted_by(state["operation"], app)
    result = state.get("syncResult") or {}
    known = result.get("revisions") or ([result["revision"]] if result.get("revision") else [])
    if len(known) != len(wanted):
        return wanted
    return [Wanted(one.source, revision) for one, revision in zip(wanted, known, strict=True)]


def stopped(turn: Turn, app: JsonObject, obstacles: Obstacles) -> Outcome | None:
    """The outcome where it does not come to a comparison.

    A window stops a termination, too (spec 1.8): it is looked at before the phase.
    """
    state = turn.state
    if obstacles.project:
        return _error(state, f"Failed to load application project: {obstacles.project}")
    if state["operation"].get("sync") is None:
        return _error(state, "Invalid operation request: no operation specified")
    if not sources_of(app):
        return _error(state, obstacles.spec)
    wanted = wanted_in(state, app)
    asked = sync_result(wanted, [one.revision for one in wanted], multiple=has_multiple_sources(app))
    if obstacles.blocked:
        if state["phase"] != "Running":
            return Outcome(state)
        return Outcome(state | {"message": BLOCKED, "syncResult": state.get("syncResult") or asked})
    if obstacles.spec:
        return _error(state | {"syncResult": asked}, obstacles.spec)
    return None


def perform(turn: Turn, app: JsonObject, target: Target, live: Live, script: SyncScript, attempt: int) -> Outcome:
    """One pass towards *target*, or the end of what runs when the state is Terminating."""
    state = turn.state
    wanted = wanted_in(state, app)
    result = (state.get("syncResult") or {}) | sync_result(wanted, target.revisions, multiple=has_multiple_sources(app))
    error = target.error or (script.error if script.goes_wrong(attempt) and state["phase"] == "Running" else "")
    if error:
        return _error(state | {"syncResult": result}, error)
    rows = result.get("resources") or ()
    if state["phase"] == "Terminating":
        done = terminate(rows, live)
    else:
        sync = state["operation"]["sync"]
        chosen = _chosen(target.manifests, sync.get("resources"))
        played = script.play(chosen, attempt, app["metadata"]["name"])
        options = Options(bool(sync.get("dryRun")), bool(sync.get("resources")), bool(sync.get("prune")))
        done = advance(played, rows, live, options)
    if script.resources is not None and done.phase == "Succeeded":
        done = replace(done, rows=script.resources)
    if done.rows:
        result["resources"] = list(done.rows)
    return Outcome(state | {"phase": done.phase, "message": done.message, "syncResult": result}, done)


def _error(state: JsonObject, message: str) -> Outcome:
    return Outcome(state | {"phase": "Error", "message": message})


def _chosen(manifests: Sequence[Manifest], partial: Sequence[JsonObject] | None) -> Sequence[Manifest]:
    """The resources of a partial sync; hooks do not run in one."""
    if not partial:
        return manifests
    return [m for m in manifests if not m.hook and any(_matches(m, asked) for asked in partial)]


def _matches(manifest: Manifest, asked: JsonObject) -> bool:
    return (
        (manifest.group, manifest.kind, manifest.name) == (asked.get("group") or "", asked["kind"], asked["name"])
    ) and asked.get("namespace") in {None, "", manifest.namespace}
