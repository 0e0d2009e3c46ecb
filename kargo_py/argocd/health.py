"""The verdict on one Application: is it healthy, and is it synced to the revision a Stage holds it to?

A verdict is *trusted* only when it is about the state after the last operation and about the current spec. Argo CD's
times have a resolution of one second, and its first refresh after an operation often still shows the old verdict
for 50-100 ms (measured): so ``reconciledAt`` must lie in a later second than ``finishedAt``, or the verdict must have
stood unchanged for :data:`SETTLE` by our own clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kargo_py.api.stage import HealthState
from kargo_py.argocd.application import Application, describe
from kargo_py.argocd.revisions import matches
from kargo_py.kube.resources import Key

SETTLE = 1.2
"""Seconds a verdict of the same second as the operation's end must stand before it is trusted."""

_ERRORS = frozenset({"ComparisonError", "InvalidSpecError"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an Application is, and why.

    ``recheck_after``: seconds after which looking again may give a trusted verdict without any event; None if only an
    event can.
    """

    state: HealthState
    issues: tuple[str, ...] = ()
    trusted: bool = True
    recheck_after: float | None = None


def assess_application(app: Application | None, key: Key, desired: Sequence[str], unchanged_for: float) -> Verdict:
    """Judge *app*; *desired* has one revision per source ("" = any), *unchanged_for* is in seconds by our clock."""
    if app is None:
        return Verdict(HealthState.UNKNOWN, (f"{describe(key)} does not exist",))
    if app.unreadable:
        return Verdict(HealthState.UNKNOWN, (f"{app} cannot be read: {app.unreadable}",))
    if errors := [f"{app}: {c.type}: {c.message}" for c in app.status.conditions if c.type in _ERRORS]:
        return Verdict(HealthState.UNHEALTHY, tuple(errors))
    if doubt := _doubt(app, unchanged_for):
        return doubt
    if issues := _not_at(app, desired):
        return Verdict(HealthState.UNHEALTHY, issues)
    if issue := _failed_sync(app, desired):
        return Verdict(HealthState.UNHEALTHY, (issue,))
    return _health(app)


def _doubt(app: Application, unchanged_for: float) -> Verdict | None:
    """An untrusted verdict while what Argo CD shows may be older than the operation or the spec."""
    state = app.status.operation_state
    if app.operation is not None or (state is not None and state.phase and not state.completed):
        return _untrusted(f"{app} is being synced")
    if _compared_to_other_spec(app):
        return _untrusted(f"{app} has not been compared with its current spec yet")
    if state is None or not state.finished_at:
        return None
    reconciled = app.status.reconciled_at
    if not reconciled or reconciled < state.finished_at:
        return _untrusted(f"{app} has not been refreshed since its last sync")
    if reconciled == state.finished_at and unchanged_for < SETTLE:
        return _untrusted(f"{app} was synced a moment ago", SETTLE - unchanged_for)
    return None


def _compared_to_other_spec(app: Application) -> bool:
    compared = app.status.sync.compared_to
    if compared is None:
        return app.status.reconciled_at is None
    spec = app.spec
    if spec.source_hydrator is not None:
        return False
    if spec.has_multiple_sources:
        same = _bare(compared.get("sources")) == _bare(spec.sources)
    else:
        same = _bare(compared.get("source")) == _bare(spec.source)
    return not same or _bare(compared.get("destination")) != _bare(spec.destination)


def _bare(value: Any) -> Any:
    """*value* without empty members: Argo CD writes comparedTo from Go types that leave them out (``omitempty``)."""
    if isinstance(value, dict):
        return {name: bare for name, inner in value.items() if (bare := _bare(inner)) is not None} or None
    if isinstance(value, list):
        return [_bare(inner) for inner in value] or None
    return value or None


def _not_at(app: Application, desired: Sequence[str]) -> tuple[str, ...]:
    """What of *desired* the Application is not compared with, as issues."""
    if not any(desired):
        return ()
    compared = app.status.sync.compared
    if len(compared) != len(desired):
        return (f"{app} has {len(compared)} sources, while {len(desired)} were promoted",)
    return tuple(
        f"{app} is at revision {got}, not at {want}"
        for want, got in zip(desired, compared, strict=True)
        if want and not matches(want, got)
    )


def _failed_sync(app: Application, desired: Sequence[str]) -> str | None:
    """A failed last sync counts, whatever health says (kargo#1451, #5166), unless the state was mended since."""
    state = app.status.operation_state
    if state is None or state.phase not in {"Failed", "Error"}:
        return None
    if app.status.sync.status == "Synced" and not _not_at(app, desired):
        return None
    return f"{app}: the last sync failed: {state.message or state.phase}"


def _health(app: Application) -> Verdict:
    status = app.status.health.status
    why = f": {app.status.health.message}" if app.status.health.message else ""
    if status == "Healthy":
        return Verdict(HealthState.HEALTHY)
    if status in {"", "Progressing", "Suspended"}:
        return Verdict(HealthState.PROGRESSING, (f"{app} is {status or 'not judged by Argo CD yet'}{why}",))
    return Verdict(HealthState.UNHEALTHY, (f"{app} is {status}{why}",))


def _untrusted(issue: str, recheck_after: float | None = None) -> Verdict:
    return Verdict(HealthState.UNKNOWN, (issue,), trusted=False, recheck_after=recheck_after)


def fingerprint(app: Application) -> tuple[object, ...]:
    """All that :func:`assess_application` looks at; while it stays equal, so does the verdict."""
    status = app.status
    state = status.operation_state
    return (
        app.unreadable,
        app.operation is None,
        state and (state.phase, state.finished_at, state.message),
        status.reconciled_at,
        _compared_to_other_spec(app),
        status.sync.status,
        status.sync.compared,
        status.health,
        tuple(condition for condition in status.conditions if condition.type in _ERRORS),
    )
