"""The Argo CD deployer: the cache of Applications, the start, the watching and the health of them.

The shell around :mod:`kargo_py.argocd`. What it keeps in memory is two small things that the cache alone cannot tell:
the first completed state seen for each stamp that is waited for (our ending may be visible for 40 ms only, then another
operation's state replaces it), and since when, by our own clock, an Application's verdict has stood unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kargo_py.api.names import Actor, AuthorizedStageError, authorized_stages
from kargo_py.api.stage import worst
from kargo_py.argocd.application import APPLICATIONS, Application, ApplicationCodec, OperationState, describe
from kargo_py.argocd.health import Verdict, assess_application, fingerprint
from kargo_py.argocd.operation import Decision, Intent, Verb, Waiting, controllable, decide_operation
from kargo_py.argocd.revisions import resolved
from kargo_py.argocd.sources import SourceEdit, SourceUpdate, SourceUpdateError, edit_sources
from kargo_py.argocd.start import Initiator, start_patch
from kargo_py.deployers.base import HealthVerdict, Observation, Record, TargetState
from kargo_py.kube.cache import Cache
from kargo_py.kube.client import Client
from kargo_py.kube.codec import encode
from kargo_py.kube.errors import Conflict, NotFound, OutcomeUnknown
from kargo_py.kube.resources import Key
from kargo_py.kube.writes import guarded_patch, uninterrupted

KIND = "argocd"
_STARTS_AT_ONCE = 5

_STATES = {
    Verb.SUCCEEDED: TargetState.SUCCEEDED,
    Verb.FAILED: TargetState.FAILED,
    Verb.SUPERSEDED: TargetState.SUPERSEDED,
    Verb.LOST: TargetState.LOST,
    Verb.REFUSED: TargetState.REFUSED,
}


class TargetError(ValueError):
    """An Application that cannot be promoted to; the text is what the user reads."""


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """What a step asks of one Application; ``stage`` is "<project>:<stage>"."""

    key: Key
    stage: str
    updates: Sequence[SourceUpdate] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """On whose behalf a start is made."""

    promotion: str
    actor: Actor

    @property
    def initiator(self) -> Initiator:
        """Who appears in the operation as the one who started it."""
        return Initiator(self.actor.username, automated=self.actor.user is None)


class ArgoCD:
    """Starts and watches syncs of Applications through one API server's Argo CD."""

    def __init__(self, client: Client, *, namespace: str = "", default_namespace: str = "argocd") -> None:
        self._client = client
        self.default_namespace = default_namespace
        self._codec = ApplicationCodec()
        self.applications: Cache[Application] = Cache(client, APPLICATIONS, codec=self._codec, namespace=namespace)
        self._latched: dict[str, OperationState] = {}
        self._waited_for: set[str] = set()
        self._unchanged_since: dict[Key, float] = {}
        self.applications.subscribe(self._note)

    # -- what an event leaves behind ------------------------------------------------------------------------------

    def _note(self, old: Application | None, new: Application | None) -> None:
        """Latch an ending that is waited for, before any queue can merge it with what comes after."""
        if new is None:
            if old is not None:
                self._unchanged_since.pop(old.key, None)
            return
        state = new.status.operation_state
        if state is not None and state.completed and (stamp := state.stamp) in self._waited_for and stamp is not None:
            self._latched.setdefault(stamp, state)
        if old is None or fingerprint(old) != fingerprint(new):
            self._unchanged_since[new.key] = asyncio.get_running_loop().time()

    def wait_for(self, stamp: str) -> None:
        """From now on the ending of *stamp* is kept until :meth:`forget`."""
        self._waited_for.add(stamp)

    def forget(self, stamp: str) -> None:
        """The ending of *stamp* has been recorded."""
        self._waited_for.discard(stamp)
        self._latched.pop(stamp, None)

    # -- before the start -----------------------------------------------------------------------------------------

    def prepare(self, request: UpdateRequest) -> tuple[Application, SourceEdit]:
        """Check that *request* can be carried out and compute the edit; raises TargetError with the precise reason."""
        app = self.applications.get(request.key)
        if app is None:
            raise TargetError(
                f"{describe(request.key)} does not exist, or this controller does not watch that namespace"
            )
        if reason := controllable(app):
            raise TargetError(reason)
        _authorize(app, request.stage)
        try:
            edit = edit_sources(app.spec, request.updates)
        except SourceUpdateError as error:
            raise TargetError(f"{app} {error}") from error
        _check_owner(app, edit)
        return app, edit

    # -- the start ------------------------------------------------------------------------------------------------

    async def start(self, record: Record, request: UpdateRequest, origin: Origin) -> Observation:
        """Start the attempt that *record* names, if it has left no trace and nothing holds the Application.

        Guarded by the version decided on: after a conflict the Application is read live and all is decided again.
        Returns how the attempt stands then. Raises KubeError (the record stands; the caller comes back).
        """
        self.wait_for(record.stamp)
        for _ in range(_STARTS_AT_ONCE):
            observation = self.observe(record)
            if not observation.start:
                return observation
            app, edit = self.prepare(request)
            try:
                await self._write_start(app, record, origin, edit)
            except (Conflict, OutcomeUnknown) as error:
                self.applications.mark_dirty(record.key)
                await self.applications.read_live(record.key)
                if isinstance(error, OutcomeUnknown):
                    raise
            except NotFound:
                self.applications.mark_dirty(record.key)
                await self.applications.read_live(record.key)
        return self.observe(record)

    async def _write_start(self, app: Application, record: Record, origin: Origin, edit: SourceEdit) -> None:
        patch = start_patch(app, stamp=record.stamp, promotion=origin.promotion, initiator=origin.initiator, edit=edit)
        answer = await uninterrupted(
            guarded_patch(
                self._client,
                APPLICATIONS,
                app.key,
                encode(patch),
                codec=self._codec,
                landed=lambda found: found.metadata.annotations.stamp == record.stamp,
            )
        )
        self.applications.observe(answer)

    # -- after the start ------------------------------------------------------------------------------------------

    def observe(self, record: Record) -> Observation:
        """How the attempt stands, from the cache."""
        intent = Intent(record.key, record.uid, record.stamp, record.desired)
        decision = decide_operation(self.applications.get(record.key), intent, self._latched.get(record.stamp))
        return Observation(
            _updated(record, decision),
            decision.message,
            start=decision.verb is Verb.START,
            notable=decision.waiting not in {None, Waiting.RUNNING, Waiting.PICK_UP},
        )

    # -- health ---------------------------------------------------------------------------------------------------

    def checked(self, config: Mapping[str, Any]) -> Sequence[Key]:
        """The Applications that a health check is about; malformed entries are left out."""
        return [key for key, _ in _checks(config, self.default_namespace)]

    def assess(self, config: Mapping[str, Any]) -> HealthVerdict:
        """Judge a health check ``{apps: [{name, namespace, desiredRevisions}]}``."""
        verdicts = [self._assess(key, desired) for key, desired in _checks(config, self.default_namespace)]
        rechecks = [v.recheck_after for v in verdicts if v.recheck_after is not None]
        return HealthVerdict(
            worst(v.state for v in verdicts),
            tuple(issue for v in verdicts for issue in v.issues),
            trusted=all(v.trusted for v in verdicts),
            recheck_after=min(rechecks, default=None),
        )

    def _assess(self, key: Key, desired: Sequence[str]) -> Verdict:
        now = asyncio.get_running_loop().time()
        return assess_application(self.applications.get(key), key, desired, now - self._unchanged_since.get(key, now))


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


def _checks(config: Mapping[str, Any], default_namespace: str) -> list[tuple[Key, list[str]]]:
    apps = config.get("apps")
    found = []
    for app in apps if isinstance(apps, list) else ():
        if isinstance(app, dict) and isinstance(app.get("name"), str):
            key = Key(str(app.get("namespace") or default_namespace), app["name"])
            revisions = app.get("desiredRevisions")
            found.append((key, [str(r or "") for r in revisions] if isinstance(revisions, list) else []))
    return found


def _authorize(app: Application, stage: str) -> None:
    value = app.metadata.annotations.authorized_stage
    if value is None:
        raise TargetError(
            f"{app} is not authorized: it has no annotation kargo.akuity.io/authorized-stage; set it to {stage}"
        )
    try:
        allowed = authorized_stages(value)
    except AuthorizedStageError as error:
        raise TargetError(
            f"{app} is not authorized: its annotation kargo.akuity.io/authorized-stage: {error}"
        ) from error
    if stage not in allowed:
        raise TargetError(
            f"{app} is not authorized: its annotation kargo.akuity.io/authorized-stage names "
            f"{', '.join(sorted(allowed))}, not {stage}"
        )


def _check_owner(app: Application, edit: SourceEdit) -> None:
    owner = next((o for o in app.metadata.owner_references if o.kind == "ApplicationSet"), None)
    if owner is not None and edit.spec_patch:
        raise TargetError(
            f'{app} belongs to ApplicationSet "{owner.name}", which would undo the change of '
            f"{', '.join(sorted(edit.before))}; change what the ApplicationSet generates from instead"
        )


def _updated(record: Record, decision: Decision) -> Record:
    """*record* with what *decision* found out; unchanged while the attempt waits."""
    state = _STATES.get(decision.verb)
    if state is None:
        running = decision.waiting in {Waiting.RUNNING, Waiting.HELD_UP}
        return msgspec.structs.replace(record, state=TargetState.RUNNING if running else TargetState.PENDING)
    return msgspec.structs.replace(
        record,
        state=state,
        message=decision.message,
        revisions=decision.revisions,
        started_at=decision.started_at,
        finished_at=decision.finished_at,
    )
