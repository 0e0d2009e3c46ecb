"""The health checks that ``argocd-update`` leaves behind: their form, and how they are judged."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class _Check:
    """What is asked of one Application; see :func:`~kargo_py.argocd.health.assess_application`."""

    desired: Sequence[str]
    promoted: Sequence[str]


class Checks:
    """Judges health checks from the cache; keeps since when, by our own clock, a verdict has stood unchanged."""

    def __init__(self, applications: Cache[Application], default_namespace: str) -> None:
        self._applications = applications
        self._default_namespace = default_namespace
        self._unchanged_since: dict[Key, float] = {}
        self._asked: dict[Key, float | None] = {}
        applications.subscribe(self._note)

    def _note(self, old: Application | None, new: Application | None) -> None:
        """Remember since when a verdict has stood."""
        if new is None:
            if old is not None:
                self._unchanged_since.pop(old.key, None)
                self._asked.pop(old.key, None)
        elif old is None or fingerprint(old) != fingerprint(new):
            self._unchanged_since[new.key] = asyncio.get_running_loop().time()

    def checked(self, config: Mapping[str, Any]) -> Sequence[Key]:
        """The Applications that a health check is about; none if it cannot be read."""
        try:
            return [key for key, _ in check_targets(config, self._default_namespace)]
        except ValueError:
            return ()

    def assess(self, configs: Sequence[Mapping[str, Any]]) -> HealthVerdict:
        """Judge checks ``{apps: [{name, namespace, desiredRevisions}]}``; one that cannot be read is Unknown."""
        checks, faults = self._latest(configs)
        verdicts = [self._assess(key, check) for key, check in checks.items()]
        verdicts += [Verdict(HealthState.UNKNOWN, (fault,)) for fault in faults]
        return HealthVerdict(
            worst(v.state for v in verdicts),
            tuple(issue for v in verdicts for issue in v.issues),
            trusted=all(v.trusted for v in verdicts),
            recheck_after=min((v.recheck_after for v in verdicts if v.recheck_after is not None), default=None),
            refresh=any(v.refresh for v in verdicts),
        )

    def stale(self, configs: Sequence[Mapping[str, Any]]) -> Sequence[Application]:
        """The Applications that Argo CD should be asked to look at; each once for as long as nothing changes."""
        found = []
        for key, check in self._latest(configs)[0].items():
            app = self._applications.get(key)
            wanted = self._assess(key, check).refresh and self._asked.get(key) != self._unchanged_since.get(key)
            if app is not None and wanted:
                found.append(app)
        return found

    def asked(self, key: Key) -> None:
        """It was asked, for as long as nothing changes."""
        self._asked[key] = self._unchanged_since.get(key)

    def _latest(self, configs: Sequence[Mapping[str, Any]]) -> tuple[dict[Key, _Check], list[str]]:
        """The check that counts for each Application, which is the last one; and what cannot be read."""
        found: dict[Key, _Check] = {}
        faults = []
        for config in configs:
            try:
                found.update(check_targets(config, self._default_namespace))
            except ValueError as error:
                faults.append(CHECK_UNREADABLE(why=error))
        return found, faults

    def _assess(self, key: Key, check: _Check) -> Verdict:
        app, unchanged = self._applications.get(key), self.unchanged_for(key)
        return assess_application(app, key, check.desired, unchanged, check.promoted)

    def unchanged_for(self, key: Key) -> float:
        """Seconds for which what a verdict on the Application rests on has stood."""
        now = asyncio.get_running_loop().time()
        return now - self._unchanged_since.get(key, now)


def check_config(records: Sequence[Record]) -> dict[str, Any]:
    """The health check that a successful step leaves, in Kargo's form; its own Stage controller can evaluate it.

    An addition: ``promotedRevisions``, for sources of which no revision was desired.
    """
    return {"apps": [_check_of(record) for record in records]}


def _check_of(record: Record) -> dict[str, Any]:
    desired = resolved(record.desired, record.revisions)
    check = {"name": record.name, "namespace": record.namespace, "desiredRevisions": list(desired)}
    if record.revisions and not (desired and all(desired)):
        check["promotedRevisions"] = list(record.revisions)
    return check


def check_targets(config: Mapping[str, Any], default_namespace: str) -> list[tuple[Key, _Check]]:
    """The Applications of a health check with the revisions wanted; raises ValueError if it says anything else."""
    apps = config.get("apps")
    if not isinstance(apps, list) or not apps:
        raise ValueError(CHECK_WITHOUT_APPS())
    found = []
    for index, app in enumerate(apps):
        if not isinstance(app, dict) or not isinstance(app.get("name"), str):
            raise ValueError(CHECK_WITHOUT_NAME(index=index))  # noqa: TRY004 - one kind of error
        desired, promoted = app.get("desiredRevisions") or [], app.get("promotedRevisions")
        if not isinstance(desired, list):
            raise ValueError(CHECK_WITHOUT_REVISIONS(index=index))  # noqa: TRY004 - as above
        check = _Check(_texts(desired), _texts(promoted) if isinstance(promoted, list) else [])
        found.append((Key(str(app.get("namespace") or default_namespace), app["name"]), check))
    return found


def _texts(revisions: Sequence[Any]) -> list[str]:
    return [str(revision or "") for revision in revisions]
