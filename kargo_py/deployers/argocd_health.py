"""The health checks that ``argocd-update`` leaves behind: their form, and how they are judged."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kargo_py.api.stage import HealthState, worst
from kargo_py.argocd.application import Application
from kargo_py.argocd.health import Verdict, assess_application, fingerprint
from kargo_py.argocd.revisions import resolved
from kargo_py.deployers.base import HealthVerdict, Record
from kargo_py.kube.cache import Cache
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

CHECK_UNREADABLE = message(
    "a health check of kind argocd-update cannot be read: {why}",
    do="Somebody else wrote `status.health.config` of the Stage, or `status.healthChecks` of its Promotion. Promote "
    "again: a Promotion that succeeds leaves new checks.",
    shown=Shown.STAGE,
)
CHECK_WITHOUT_APPS = message(
    "config.apps is not a list of Applications",
    do="Part of *a health check … cannot be read*. Promote again.",
    shown=Shown.STAGE,
)
CHECK_WITHOUT_NAME = message(
    "config.apps[{index}] has no name",
    do="Part of *a health check … cannot be read*. Promote again.",
    shown=Shown.STAGE,
)
CHECK_WITHOUT_REVISIONS = message(
    "config.apps[{index}].desiredRevisions is not a list",
    do="Part of *a health check … cannot be read*. Promote again.",
    shown=Shown.STAGE,
)


class Checks:
    """Judges health checks from the cache; keeps since when, by our own clock, a verdict has stood unchanged."""

    def __init__(self, applications: Cache[Application], default_namespace: str) -> None:
        self._applications = applications
        self._default_namespace = default_namespace
        self._unchanged_since: dict[Key, float] = {}
        applications.subscribe(self._note)

    def _note(self, old: Application | None, new: Application | None) -> None:
        """Remember since when a verdict has stood."""
        if new is None:
            if old is not None:
                self._unchanged_since.pop(old.key, None)
        elif old is None or fingerprint(old) != fingerprint(new):
            self._unchanged_since[new.key] = asyncio.get_running_loop().time()

    def checked(self, config: Mapping[str, Any]) -> Sequence[Key]:
        """The Applications that a health check is about; none if it cannot be read."""
        try:
            return [key for key, _ in check_targets(config, self._default_namespace)]
        except ValueError:
            return ()

    def assess(self, config: Mapping[str, Any]) -> HealthVerdict:
        """Judge a check ``{apps: [{name, namespace, desiredRevisions}]}``; one that cannot be read is Unknown."""
        try:
            checks = check_targets(config, self._default_namespace)
        except ValueError as error:
            return HealthVerdict(HealthState.UNKNOWN, (CHECK_UNREADABLE(why=error),))
        verdicts = [self._assess(key, desired) for key, desired in checks]
        rechecks = [v.recheck_after for v in verdicts if v.recheck_after is not None]
        return HealthVerdict(
            worst(v.state for v in verdicts),
            tuple(issue for v in verdicts for issue in v.issues),
            trusted=all(v.trusted for v in verdicts),
            recheck_after=min(rechecks, default=None),
        )

    def _assess(self, key: Key, desired: Sequence[str]) -> Verdict:
        now = asyncio.get_running_loop().time()
        return assess_application(self._applications.get(key), key, desired, now - self._unchanged_since.get(key, now))


def check_config(records: Sequence[Record]) -> dict[str, Any]:
    """The health check that a successful step leaves, in Kargo's form; its own Stage controller can evaluate it."""
    apps = [
        {
            "name": record.name,
            "namespace": record.namespace,
            "desiredRevisions": list(resolved(record.desired, record.revisions)),
        }
        for record in records
    ]
    return {"apps": apps}


def check_targets(config: Mapping[str, Any], default_namespace: str) -> list[tuple[Key, list[str]]]:
    """The Applications of a health check with the revisions wanted; raises ValueError if it says anything else."""
    apps = config.get("apps")
    if not isinstance(apps, list) or not apps:
        raise ValueError(CHECK_WITHOUT_APPS())
    found = []
    for index, app in enumerate(apps):
        if not isinstance(app, dict) or not isinstance(app.get("name"), str):
            raise ValueError(CHECK_WITHOUT_NAME(index=index))  # noqa: TRY004 - one kind of error
        revisions = app.get("desiredRevisions") or []
        if not isinstance(revisions, list):
            raise ValueError(CHECK_WITHOUT_REVISIONS(index=index))  # noqa: TRY004 - as above
        found.append(
            (Key(str(app.get("namespace") or default_namespace), app["name"]), [str(r or "") for r in revisions])
        )
    return found
