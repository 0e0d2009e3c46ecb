"""The verdict on one Application: is it healthy, and is it synced to the revision a Stage holds it to?

A verdict is *trusted* only when it is about the state after the last operation and about the current spec. Argo CD's
times have a resolution of one second, and its first refresh after an operation often still shows the old verdict
for 50-100 ms (measured): so ``reconciledAt`` must lie in a later second than ``finishedAt``, or the verdict must have
stood unchanged for :data:`SETTLE` by our own clock. Argo CD looks by itself as a rule; where it has not for
:data:`PATIENCE`, a refresh is worth asking for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kargo_py.api.stage import HealthState
from kargo_py.argocd.application import Application, describe
from kargo_py.argocd.revisions import matches
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

DOES_NOT_EXIST = message(
    "{app} does not exist",
    do="The Stage's health is `Unknown` until the Application is there again. Create it, or run a Promotion whose "
    "steps do not name it.",
    shown=Shown.STAGE,
)
CANNOT_BE_READ = message(
    "{app} cannot be read: {why}",
    do="A field of the Application has a type that Argo CD does not define. Correct that field; the Stage is judged "
    "again at once.",
    shown=Shown.STAGE,
)
CANNOT_BE_COMPARED = message(
    "{app}: {condition}: {message}",
    do="A condition of the Application, `ComparisonError` or `InvalidSpecError`, with Argo CD's own text: it cannot "
    "compare or use the spec. Correct the source, the access to its repository or the project that the text names.",
    shown=Shown.STAGE,
)
BEING_SYNCED = message(
    "{app} is being synced",
    do="No verdict can be trusted before the sync has ended; the Stage is judged then by itself. If it does not end, "
    "look at the operation in Argo CD.",
    shown=Shown.STAGE,
)
NOT_COMPARED = message(
    "{app} has not been compared with its current spec yet",
    do="Argo CD compares it at its next look, as a rule within seconds. If it does not, look at Argo CD's "
    "application controller, and whether the Application has the annotation `argocd.argoproj.io/skip-reconcile`.",
    shown=Shown.STAGE,
)
NOT_REFRESHED = message(
    "{app} has not been refreshed since its last sync",
    do="Argo CD refreshes it after each sync by itself. If it does not, look at Argo CD's application controller.",
    shown=Shown.STAGE,
)
JUST_SYNCED = message(
    "{app} was synced a moment ago",
    do="Argo CD's first verdict after a sync may be the old one. The Stage is judged about a second later by itself.",
    shown=Shown.STAGE,
)
OTHER_SOURCES = message(
    "{app} has {found} sources, while {promoted} were promoted",
    do="Somebody added or removed sources since the promotion. Put them back, or promote again.",
    shown=Shown.STAGE,
)
OTHER_REVISION = message(
    "{app} is at revision {found}, not at {promoted}",
    do="Its `targetRevision` was changed since the promotion, or follows a branch that moved on. Promote again; with "
    "`updateTargetRevision: true` the step pins what it promotes.",
    shown=Shown.STAGE,
)
TARGET_MOVED = message(
    "{app} has revision {promoted} deployed, as promoted, but its target is at {found} by now",
    do="No fault: the Stage is judged by what is deployed. The next sync by anybody deploys the other revision; with "
    "`updateTargetRevision: true` the step pins what it promotes.",
    shown=Shown.STAGE,
)
MOVED_ON = message(
    "{app} is at revision {found} by now, while {promoted} was promoted",
    do="No fault: the step gave no `desiredRevision`, so any revision will do. Give one to hold the Application to it.",
    shown=Shown.STAGE,
)
LAST_SYNC_FAILED = message(
    "{app}: the last sync failed: {why}",
    do="A failed sync counts until the Application is `Synced` at the promoted revision. Mend what Argo CD says, "
    "then sync it in Argo CD or promote again.",
    shown=Shown.STAGE,
)
NOT_JUDGED_BY_ARGOCD = message(
    "{app} is not judged by Argo CD yet",
    do="Argo CD has not written `status.health` yet; it does at its next look. If it does not, look at Argo CD's "
    "application controller.",
    shown=Shown.STAGE,
)
HEALTH_IS = message(
    "{app} is {health}",
    do="Argo CD's word on the Application's resources: look at them there. `Progressing` and `Suspended` make the "
    "Stage `Progressing`, `Degraded`, `Missing` and `Unknown` make it `Unhealthy`; a change is taken in at once.",
    shown=Shown.STAGE,
)

SETTLE = 1.2
"""Seconds a verdict of the same second as the operation's end must stand before it is trusted."""

PATIENCE = 10.0
"""Seconds for which what Argo CD shows must stand untrusted before a refresh is asked for.

And before an error condition counts of which it is not known whether it is older than the last operation.
"""

ERRORS = frozenset({"ComparisonError", "InvalidSpecError"})
"""The types of conditions with which Argo CD says that it cannot compare or use the spec."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an Application is, and why.

    ``recheck_after``: seconds after which looking again may give another one without any event; None if only an event
    can. ``refresh``: Argo CD should be asked to look at the Application.
    """

    state: HealthState
    issues: tuple[str, ...] = ()
    trusted: bool = True
    recheck_after: float | None = None
    refresh: bool = False


def assess_application(
    app: Application | None,
    key: Key,
    desired: Sequence[str],
    unchanged_for: float,
    promoted: Sequence[str] = (),
) -> Verdict:
    """Judge *app*.

    *desired* has one revision per source ("" = any), *unchanged_for* is in seconds by our clock, and *promoted* has
    what was applied where no revision was desired.
    """
    if app is None:
        return Verdict(HealthState.UNKNOWN, (DOES_NOT_EXIST(app=describe(key)),))
    if app.unreadable:
        return Verdict(HealthState.UNKNOWN, (CANNOT_BE_READ(app=app, why=app.unreadable),))
    doubt = _doubt(app, unchanged_for)
    broken = [c for c in app.status.conditions if c.type in ERRORS]
    if broken and (doubt is None or (not _being_synced(app) and unchanged_for >= PATIENCE)):
        # An invalid spec is not compared, so it would be in doubt for ever.
        issues = (CANNOT_BE_COMPARED(app=app, condition=c.type, message=c.message) for c in broken)
        return Verdict(HealthState.UNHEALTHY, tuple(issues), refresh=doubt is not None and doubt.refresh)
    if doubt is not None:
        return doubt
    elsewhere = _not_at(app, desired)
    if elsewhere and not _deployed(app, desired):
        return Verdict(HealthState.UNHEALTHY, elsewhere)
    if issue := _failed_sync(app, desired):
        return Verdict(HealthState.UNHEALTHY, (issue,))
    return _health(app, _drift(app, desired, promoted))


def _being_synced(app: Application) -> bool:
    state = app.status.operation_state
    return app.operation is not None or (state is not None and state.in_progress)


def _doubt(app: Application, unchanged_for: float) -> Verdict | None:
    """An untrusted verdict while what Argo CD shows may be older than the operation or the spec."""
    state = app.status.operation_state
    if _being_synced(app):
        return Verdict(HealthState.UNKNOWN, (BEING_SYNCED(app=app),), trusted=False)
    if _compared_to_other_spec(app):
        return _stale(app, NOT_COMPARED(app=app), unchanged_for)
    if state is None or not state.finished_at:
        return None
    reconciled = app.status.reconciled_at
    if not reconciled or reconciled < state.finished_at:
        return _stale(app, NOT_REFRESHED(app=app), unchanged_for)
    if reconciled == state.finished_at and unchanged_for < SETTLE:
        left = SETTLE - unchanged_for
        return Verdict(HealthState.UNKNOWN, (JUST_SYNCED(app=app),), trusted=False, recheck_after=left)
    return None


def _stale(app: Application, issue: str, unchanged_for: float) -> Verdict:
    """Argo CD has yet to look: by itself for a while, then because it is asked, once."""
    left = PATIENCE - unchanged_for
    if left > 0:
        return Verdict(HealthState.UNKNOWN, (issue,), trusted=False, recheck_after=left)
    asked = app.metadata.annotations.refresh is not None
    return Verdict(HealthState.UNKNOWN, (issue,), trusted=False, refresh=not asked)


def _compared_to_other_spec(app: Application) -> bool:
    compared = app.status.sync.compared_to
    if compared is None:
        return app.status.reconciled_at is None
    spec = app.spec
    if spec.source_hydrator is not None:
        return False
    if spec.has_multiple_sources:
        same = _say_the_same(compared.get("sources"), spec.sources)
    else:
        same = _say_the_same(compared.get("source"), spec.source)
    return not (same and _say_the_same(compared.get("destination"), spec.destination))


def _say_the_same(one: Any, other: Any) -> bool:
    return bool(one == other) or bool(_bare(one) == _bare(other))


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
        return (OTHER_SOURCES(app=app, found=len(compared), promoted=len(desired)),)
    return tuple(
        OTHER_REVISION(app=app, found=got, promoted=want)
        for want, got in zip(desired, compared, strict=True)
        if want and not matches(want, got)
    )


def _deployed(app: Application, desired: Sequence[str]) -> bool:
    """True if *desired* is what runs, though Argo CD compares it with another revision and may not deploy that itself.

    Auto-sync would: then what runs is about to be replaced.
    """
    applied = _applied_last(app)
    if _syncs_by_itself(app) or not len(applied) == len(desired) == len(app.status.sync.compared):
        return False
    return all(not want or matches(want, got) for want, got in zip(desired, applied, strict=True))


def _syncs_by_itself(app: Application) -> bool:
    policy = app.spec.sync_policy
    return policy is not None and policy.automated is not None and policy.automated.get("enabled") is not False


def _applied_last(app: Application) -> tuple[str, ...]:
    """The revisions of the last full sync that succeeded; () if there is none."""
    newest = max(app.status.history, key=lambda entry: entry.id, default=None)
    return newest.applied if newest is not None else ()


def _drift(app: Application, desired: Sequence[str], promoted: Sequence[str]) -> tuple[str, ...]:
    """What is worth telling though it is no fault: the target or, where any revision will do, the revision moved on."""
    compared = app.status.sync.compared
    if len(compared) != max(len(desired), len(promoted)):
        return ()
    wanted = list(desired) or [""] * len(compared)
    applied = list(promoted) if len(promoted) == len(compared) else [""] * len(compared)
    issues = []
    for want, was, found in zip(wanted, applied, compared, strict=True):
        if want and not matches(want, found):
            issues.append(TARGET_MOVED(app=app, promoted=want, found=found))
        elif not want and was and not matches(was, found):
            issues.append(MOVED_ON(app=app, promoted=was, found=found))
    return tuple(issues)


def _failed_sync(app: Application, desired: Sequence[str]) -> str | None:
    """A failed last sync counts, whatever health says (kargo#1451, #5166), unless the state was mended since.

    Not a dry run: it was to change nothing.
    """
    state = app.status.operation_state
    if state is None or state.phase not in {"Failed", "Error"} or state.dry_run:
        return None
    if app.status.sync.status == "Synced" and not _not_at(app, desired):
        return None
    return LAST_SYNC_FAILED(app=app, why=state.message or state.phase)


def _health(app: Application, drift: tuple[str, ...]) -> Verdict:
    status = app.status.health.status
    why = f": {app.status.health.message}" if app.status.health.message else ""
    if status == "Healthy":
        return Verdict(HealthState.HEALTHY, drift)
    if not status:
        return Verdict(HealthState.PROGRESSING, (NOT_JUDGED_BY_ARGOCD(app=app) + why, *drift))
    state = HealthState.PROGRESSING if status in {"Progressing", "Suspended"} else HealthState.UNHEALTHY
    return Verdict(state, (HEALTH_IS(app=app, health=status) + why, *drift))


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
        _applied_last(app),
        _syncs_by_itself(app),
        status.health,
        tuple(condition for condition in status.conditions if condition.type in ERRORS),
    )


def until_settled(app: Application, unchanged_for: float) -> float | None:
    """Seconds that what *app* shows has yet to stand to be about its spec, and the time after its last operation.

    0: it is. None: Argo CD has to look first; it does so by itself but after a dry run, which changes nothing.
    """
    if _compared_to_other_spec(app):
        return None
    state = app.status.operation_state
    if state is None or not state.completed or not state.finished_at or state.dry_run:
        return 0.0
    reconciled = app.status.reconciled_at
    if not reconciled or reconciled < state.finished_at:
        return None
    return max(SETTLE - unchanged_for, 0.0) if reconciled == state.finished_at else 0.0
