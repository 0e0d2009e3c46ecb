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
from kargo_py.api.stage import HealthState, worst
from kargo_py.api.stamp import Stamp
from kargo_py.argocd.application import APPLICATIONS, Application, ApplicationCodec, OperationState, describe
from kargo_py.argocd.health import Verdict, assess_application, fingerprint
from kargo_py.argocd.operation import Decision, Intent, Verb, Waiting, controllable, decide_operation
from kargo_py.argocd.revisions import resolved
from kargo_py.argocd.sources import SourceEdit, SourceUpdate, SourceUpdateError, edit_sources
from kargo_py.argocd.start import Initiator, start_patch
from kargo_py.deployers.base import Before, HealthVerdict, Observation, Record, TargetState
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
        self._never_issued: set[str] = set()
        self._unchanged_since: dict[Key, float] = {}
        self.applications.witness(self._latch)
        self.applications.subscribe(self._note)

    # -- what an event leaves behind ------------------------------------------------------------------------------

    def _latch(self, app: Application) -> None:
        """Keep an ending that is waited for, before a queue or a newer state can hide it."""
        state = app.status.operation_state
        if state is not None and state.completed and (stamp := state.stamp) is not None and stamp in self._waited_for:
            self._latched.setdefault(stamp, state)

    def _note(self, old: Application | None, new: Application | None) -> None:
        """Remember since when a verdict has stood."""
        if new is None:
            if old is not None:
                self._unchanged_since.pop(old.key, None)
        elif old is None or fingerprint(old) != fingerprint(new):
            self._unchanged_since[new.key] = asyncio.get_running_loop().time()

    def wait_for(self, stamp: str) -> None:
        """From now on the ending of *stamp* is kept until :meth:`forget`."""
        self._waited_for.add(stamp)

    def forget(self, stamp: str) -> None:
        """The ending of *stamp* has been recorded."""
        self._waited_for.discard(stamp)
        self._never_issued.discard(stamp)
        self._latched.pop(stamp, None)

    # -- before the start -----------------------------------------------------------------------------------------

    async def prepare(self, request: UpdateRequest) -> tuple[Application, SourceEdit]:
        """Check that *request* can be carried out and compute the edit; raises TargetError with the precise reason.

        A refusal ends a Promotion, so it is never pronounced from the cache alone: another resource's watch may be
        ahead of this one's.
        """
        try:
            return self._prepare(request)
        except TargetError:
            await self.applications.read_live(request.key)
            return self._prepare(request)

    def _prepare(self, request: UpdateRequest) -> tuple[Application, SourceEdit]:
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

    async def intend(self, request: UpdateRequest, step: str, stamp: Stamp) -> Record:
        """The intent to record before the attempt *stamp* is started; raises TargetError."""
        app, edit = await self.prepare(request)
        self._never_issued.add(str(stamp))
        return _intent(app, edit, step, stamp.attempt, str(stamp))

    async def outdated(self, record: Record, request: UpdateRequest) -> Record | None:
        """The intent as it would be recorded now, if what is on record is not true of the start any more.

        Only of an attempt that was certainly not carried out: one that this process recorded and has not sent, or one
        whose Application still carries the stamp it carried then. Raises TargetError.
        """
        app = await self.applications.read(record.key)
        if app is None:
            return None
        moved = (app.metadata.annotations.stamp or "") != record.seen_stamp
        if not (self.observe(record).start or (moved and record.stamp in self._never_issued)):
            return None
        app, edit = await self.prepare(request)
        now = _intent(app, edit, record.step, record.attempt, record.stamp)
        known = (record.uid, record.desired, record.before, record.seen_stamp)
        return now if (now.uid, now.desired, now.before, now.seen_stamp) != known else None

    # -- the start ------------------------------------------------------------------------------------------------

    async def start(self, record: Record, request: UpdateRequest, origin: Origin) -> Observation:
        """Start the attempt that *record* names, if it has left no trace and nothing holds the Application.

        Guarded by the version decided on: after a conflict the Application is read live and all is decided again; if
        the record is not true of what would be started then, nothing is, and the answer still says ``start``. Returns
        how the attempt stands. Raises TargetError, or KubeError (the record stands; the caller comes back).
        """
        refused: Conflict | NotFound | None = None
        for _ in range(_STARTS_AT_ONCE):
            await self.applications.read(record.key)
            observation = self.observe(record)
            if not observation.start or await self.outdated(record, request) is not None:
                return observation
            app, edit = await self.prepare(request)
            self._never_issued.discard(record.stamp)
            try:
                await self._write_start(app, record, origin, edit)
            except (Conflict, NotFound) as error:
                # Certainly not carried out, so this process knows again that the attempt never was.
                self._never_issued.add(record.stamp)
                self.applications.mark_dirty(record.key)
                refused = error
            except OutcomeUnknown:
                self.applications.mark_dirty(record.key)
                raise
            else:
                return self.observe(record)
        assert refused is not None  # noqa: S101 - the loop runs at least once
        raise refused

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
        intent = Intent(record.key, record.uid, record.stamp, record.desired, record.seen_stamp)
        decision = decide_operation(
            self.applications.get(record.key),
            intent,
            self._latched.get(record.stamp),
            never_issued=record.stamp in self._never_issued,
        )
        return Observation(
            _updated(record, decision),
            decision.message,
            start=decision.verb is Verb.START,
            notable=decision.waiting not in {None, Waiting.RUNNING, Waiting.PICK_UP},
        )

    # -- health ---------------------------------------------------------------------------------------------------

    def checked(self, config: Mapping[str, Any]) -> Sequence[Key]:
        """The Applications that a health check is about; none if it cannot be read."""
        try:
            return [key for key, _ in _checks(config, self.default_namespace)]
        except ValueError:
            return ()

    def assess(self, config: Mapping[str, Any]) -> HealthVerdict:
        """Judge a check ``{apps: [{name, namespace, desiredRevisions}]}``; one that cannot be read is Unknown."""
        try:
            checks = _checks(config, self.default_namespace)
        except ValueError as error:
            return HealthVerdict(
                HealthState.UNKNOWN, (f"a health check of kind argocd-update cannot be read: {error}",)
            )
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
        return assess_application(self.applications.get(key), key, desired, now - self._unchanged_since.get(key, now))


def _intent(app: Application, edit: SourceEdit, step: str, attempt: int, stamp: str) -> Record:
    return Record(
        kind=KIND,
        namespace=app.metadata.namespace,
        name=app.metadata.name,
        uid=app.metadata.uid,
        step=step,
        attempt=attempt,
        stamp=stamp,
        resource_version=app.metadata.resource_version,
        history_id=app.history_id,
        desired=edit.desired if any(edit.desired) else (),
        before=tuple(Before(pointer, value) for pointer, value in sorted(edit.before.items())),
        seen_stamp=app.metadata.annotations.stamp or "",
    )


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
    """The Applications of a health check with the revisions wanted; raises ValueError if it says anything else."""
    apps = config.get("apps")
    if not isinstance(apps, list) or not apps:
        raise ValueError("config.apps is not a list of Applications")
    found = []
    for index, app in enumerate(apps):
        if not isinstance(app, dict) or not isinstance(app.get("name"), str):
            raise ValueError(f"config.apps[{index}] has no name")  # noqa: TRY004 - one kind of error
        revisions = app.get("desiredRevisions") or []
        if not isinstance(revisions, list):
            raise ValueError(f"config.apps[{index}].desiredRevisions is not a list")  # noqa: TRY004 - as above
        found.append(
            (Key(str(app.get("namespace") or default_namespace), app["name"]), [str(r or "") for r in revisions])
        )
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
