"""The Argo CD deployer: the cache of Applications, the start, the watching and the health of them.

The shell around :mod:`kargo_py.argocd`. What it keeps in memory may all be lost: what the cache alone cannot tell of an
attempt that is waited for (:class:`Attempt`: its ending may be visible for 40 ms only, then another operation's state
replaces it), since when, by our own clock, an Application's verdict has stood unchanged, and for some seconds the
ApplicationSets that were asked.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from tenacity import wait_random_exponential

from kargo_py.api.names import Actor, AuthorizedStageError, authorized_stages
from kargo_py.api.stage import HealthState, worst
from kargo_py.api.stamp import Stamp
from kargo_py.argocd.application import (
    APPLICATIONS,
    KARGO_MARK,
    Application,
    ApplicationCodec,
    JsonObject,
    OperationState,
    describe,
    initiator,
    mark_of,
)
from kargo_py.argocd.applicationset import APPLICATION_SETS, undone
from kargo_py.argocd.health import Verdict, assess_application, fingerprint
from kargo_py.argocd.operation import (
    Decision,
    Intent,
    Knowledge,
    Verb,
    Waiting,
    controllable,
    decide_operation,
    may_have_moved,
    operation_aspect,
    state_identity,
)
from kargo_py.argocd.revisions import resolved
from kargo_py.argocd.sources import SourceEdit, SourceUpdate, SourceUpdateError, edit_sources, reverse_edit
from kargo_py.argocd.start import Initiator, revert_patch, start_patch
from kargo_py.argocd.stop import Patch, nudge_patch, terminate_patch
from kargo_py.deployers.base import Before, HealthVerdict, Observation, Record, TargetState
from kargo_py.kube.backoff import pause_before
from kargo_py.kube.cache import Cache
from kargo_py.kube.client import Client, PatchType
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, OutcomeUnknown
from kargo_py.kube.resources import Key
from kargo_py.kube.writes import guarded_patch, uninterrupted
from kargo_py.messages import Shown, message

NOT_FOUND = message(
    "{app} does not exist, or this controller does not watch that namespace",
    do="Correct `name` or `namespace` in the step's config. With `--watch-argocd-namespace-only` only "
    "`--argocd-namespace` is watched.",
    shown=Shown.PROMOTION,
)
DOES_NOT_FIT = message(
    "{app} {fault}",
    do="What the step's config asks does not fit the Application's sources: see *has no source with …* and *is asked "
    "for two revisions …*.",
    shown=Shown.PROMOTION,
)
OWNER_UNSEEN = message(
    '{app} belongs to ApplicationSet "{owner}", and whether that would undo a change of its spec cannot be seen: '
    "{why}; allow get on applicationsets",
    do="Allow `get` on `applicationsets.argoproj.io` in that namespace, then promote again. A step that only syncs "
    "does not need it.",
    shown=Shown.PROMOTION,
)
OWNER_WOULD_UNDO = message(
    '{app} belongs to ApplicationSet "{owner}", which would undo the change of {pointers}; name that in its '
    "spec.ignoreApplicationDifferences, or change what it generates from instead",
    do="Add these JSON pointers to `spec.ignoreApplicationDifferences[].jsonPointers` of the ApplicationSet (for a "
    "field of `spec.sources` only the whole list counts), or let the step sync without `updateTargetRevision`, "
    "`helm` and `kustomize`.",
    shown=Shown.PROMOTION,
)
APPLICATION_IS_GONE = message(
    "the Application is gone",
    do="After an abort with `onAbort: revert`: there is nothing to put back.",
    shown=Shown.PROMOTION,
)
LEFT_AS_CHANGED = message(
    "left as somebody else changed them: {pointers}",
    do="After an abort with `onAbort: revert`: these fields were changed since the start, so they were not touched. "
    "Correct them by hand if needed.",
    shown=Shown.PROMOTION,
)
PUT_BACK = message(
    "put back: {pointers}",
    do="After an abort with `onAbort: revert`: these fields of the Application have their former values again. "
    "Nothing to do.",
    shown=Shown.PROMOTION,
)
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
NOT_AUTHORIZED = message(
    "{app} is not authorized: it has no annotation kargo.akuity.io/authorized-stage; set it to {stage}",
    do="Set that annotation of the Application to the `<project>:<stage>` named here, then promote again.",
    shown=Shown.PROMOTION,
)
AUTHORIZATION_MALFORMED = message(
    "{app} is not authorized: its annotation kargo.akuity.io/authorized-stage: {fault}",
    do="Correct the annotation: `<project>:<stage>`, several separated by commas. One wrong entry makes the whole "
    "annotation count for nothing.",
    shown=Shown.PROMOTION,
)
AUTHORIZED_FOR_OTHERS = message(
    "{app} is not authorized: its annotation kargo.akuity.io/authorized-stage names {allowed}, not {stage}",
    do="Add the last named `<project>:<stage>` to the annotation, separated by a comma, then promote again.",
    shown=Shown.PROMOTION,
)
CHANGES_TOO_FAST = message(
    "{app} changes faster than it can be decided about; it is looked at again",
    do="Each of several writes met a newer version. It is tried again by itself; if it comes again and again, see "
    "who writes to the Application all the time.",
    shown=Shown.LOG,
)

KIND = "argocd"
_AT_ONCE = 5
_STILL_TRUE = 5.0
_AFTER_CONFLICT = wait_random_exponential(multiplier=0.02, max=0.5)

TERMINATE_AGAIN = 1.0
"""Seconds between two requests to terminate the same operation."""

_STATES = {
    Verb.SUCCEEDED: TargetState.SUCCEEDED,
    Verb.FAILED: TargetState.FAILED,
    Verb.STOPPED: TargetState.STOPPED,
    Verb.MISMATCHED: TargetState.WRONG_REVISION,
    Verb.SUPERSEDED: TargetState.SUPERSEDED,
    Verb.LOST: TargetState.LOST,
    Verb.REFUSED: TargetState.REFUSED,
    Verb.NOT_STARTED: TargetState.NOT_STARTED,
}


@dataclass(slots=True)
class Attempt:
    """What this process keeps about one attempt; all of it may be lost, times are of the loop's clock.

    ``latched``: its ending, kept before a queue or a newer state can hide it. ``never_issued``: no start was ever sent.
    ``since``: since when the Application's operation has been as it is (``aspect``), and ``nudges`` how many were sent
    since. ``terminated_at``: when it was last asked to end. The step's own: ``held``, somebody else's operation had the
    Application when we last looked; ``free_since``, the time it became free, until that is written; ``repeat_at``, when
    the next attempt may follow; ``give_up_at``, until when its end is waited for.
    """

    latched: OperationState | None = None
    never_issued: bool = False
    aspect: object = None
    since: float | None = None
    nudges: int = 0
    terminated_at: float | None = None
    held: bool = False
    free_since: str | None = None
    repeat_at: float | None = None
    give_up_at: float | None = None

    def unchanged(self, aspect: object, now: float) -> float:
        """Seconds for which the Application's operation has been like *aspect*, as it is now."""
        if self.since is None or self.aspect != aspect:
            self.aspect, self.since, self.nudges = aspect, now, 0
        return now - self.since


class TargetError(ValueError):
    """An Application that cannot be promoted to; the text is what the user reads."""


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """What a step asks of one Application; ``stage`` is "<project>:<stage>"."""

    key: Key
    stage: str
    updates: Sequence[SourceUpdate] = ()
    accept_newer: bool = False


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

    def __init__(
        self,
        client: Client,
        *,
        namespace: str = "",
        default_namespace: str = "argocd",
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client = client
        self._now = now
        self.default_namespace = default_namespace
        self._codec = ApplicationCodec()
        self.applications: Cache[Application] = Cache(client, APPLICATIONS, codec=self._codec, namespace=namespace)
        self._attempts: dict[tuple[Key, str], Attempt] = {}
        self._unchanged_since: dict[Key, float] = {}
        self._application_sets: dict[Key, tuple[float, JsonObject | None]] = {}
        self.applications.witness(self._latch)
        self.applications.subscribe(self._note)

    # -- what an event leaves behind ------------------------------------------------------------------------------

    def _latch(self, app: Application) -> None:
        """Keep an ending that is waited for, before a queue or a newer state can hide it."""
        state = app.status.operation_state
        attempt = self._attempts.get((app.key, state.mark or "")) if state is not None and state.completed else None
        if attempt is not None and attempt.latched is None:
            attempt.latched = state

    def _note(self, old: Application | None, new: Application | None) -> None:
        """Remember since when a verdict has stood."""
        if new is None:
            if old is not None:
                self._unchanged_since.pop(old.key, None)
        elif old is None or fingerprint(old) != fingerprint(new):
            self._unchanged_since[new.key] = asyncio.get_running_loop().time()

    def attempt(self, target: Key, stamp: str) -> Attempt:
        """What this process keeps of an attempt on one target, its ending included, until :meth:`forget`.

        All targets of a step are started under one stamp.
        """
        return self._attempts.setdefault((target, stamp), Attempt())

    def forget(self, target: Key, stamp: str) -> None:
        """The ending of *stamp* on *target* has been recorded, or it was never begun."""
        self._attempts.pop((target, stamp), None)

    # -- before the start -----------------------------------------------------------------------------------------

    async def prepare(self, request: UpdateRequest) -> tuple[Application, SourceEdit]:
        """Check that *request* can be carried out and compute the edit; raises TargetError with the precise reason.

        A refusal ends a Promotion, so it is never pronounced from the cache alone: another resource's watch may be
        ahead of this one's.
        """
        try:
            app, edit = self._prepare(request)
        except TargetError:
            await self.applications.read_live(request.key)
            app, edit = self._prepare(request)
        await self._check_owner(app, edit)
        return app, edit

    def _prepare(self, request: UpdateRequest) -> tuple[Application, SourceEdit]:
        app = self.applications.get(request.key)
        if app is None:
            raise TargetError(NOT_FOUND(app=describe(request.key)))
        if reason := controllable(app):
            raise TargetError(reason)
        _authorize(app, request.stage)
        try:
            edit = edit_sources(app.spec, request.updates)
        except SourceUpdateError as error:
            raise TargetError(DOES_NOT_FIT(app=app, fault=error)) from error
        return app, edit

    async def _check_owner(self, app: Application, edit: SourceEdit) -> None:
        """Raise TargetError if an ApplicationSet would undo *edit*."""
        owner = _owner(app)
        if owner is None or not edit.spec_patch:
            return
        key = Key(app.metadata.namespace, owner)
        try:
            found = await self._application_set(key)
        except Forbidden as error:
            raise TargetError(OWNER_UNSEEN(app=app, owner=owner, why=error.message)) from error
        if found is not None and (lost := undone(found, app.metadata.name, sorted(edit.before))):
            raise TargetError(OWNER_WOULD_UNDO(app=app, owner=owner, pointers=", ".join(lost)))

    async def _application_set(self, key: Key) -> JsonObject | None:
        """The ApplicationSet, None if there is none; one that was read a moment ago is not read again."""
        now = asyncio.get_running_loop().time()
        known = self._application_sets.get(key)
        if known is not None and now < known[0] + _STILL_TRUE:
            return known[1]
        try:
            found: JsonObject | None = await self._client.get(APPLICATION_SETS, key, codec=JSON)
        except NotFound:
            found = None
        self._application_sets[key] = (now, found)
        return found

    async def intend(self, request: UpdateRequest, stamp: Stamp, origin: Origin, *, taken_over: bool = False) -> Record:
        """The intent to record before the attempt *stamp* is started; raises TargetError.

        Where the Promotion is *taken_over* the attempt may turn out to be under way: a real Kargo has started it. Then
        that one is recorded as attempt 0, and no other is started.
        """
        app, edit = await self.prepare(request)
        mark = f"{KARGO_MARK}{origin.promotion}"
        if taken_over and _operation_of(app, mark) is not None:
            return self._adopted(app, edit, stamp.step, mark)
        self.attempt(app.key, str(stamp)).never_issued = True
        return _record(app, edit, stamp.step, stamp.attempt, str(stamp), origin.initiator.username)

    async def adopt(self, request: UpdateRequest, step: str, promotion: str) -> Record | None:
        """The record of what a real Kargo has started for *promotion*; None if there is nothing of that kind."""
        app = await self.applications.read(request.key)
        mark = f"{KARGO_MARK}{promotion}"
        if app is None or _operation_of(app, mark) is None:
            return None
        try:
            _authorize(app, request.stage)
        except TargetError:
            # A Promotion of that name in another Project may have started it.
            return None
        return self._adopted(app, SourceEdit(()), step, mark)

    def _adopted(self, app: Application, edit: SourceEdit, step: str, mark: str) -> Record:
        state = app.status.operation_state
        if state is not None and state.completed and state.mark == mark:
            self.attempt(app.key, mark).latched = state
        return _record(app, edit, step, 0, mark, initiator(_operation_of(app, mark)))

    async def outdated(self, record: Record, request: UpdateRequest) -> Record | None:
        """The intent as it would be recorded now, if what is on record is not true of the start any more.

        Only of an attempt that was certainly not carried out: one that this process recorded and has not sent, or one
        whose Application still carries the stamp it carried then. Raises TargetError.
        """
        app = await self.applications.read(record.key)
        if app is None:
            return None
        moved = (app.metadata.annotations.stamp or "") != record.seen_stamp
        if not (
            self._decide(record, request).verb is Verb.START
            or (moved and self.attempt(record.key, record.stamp).never_issued)
        ):
            return None
        app, edit = await self.prepare(request)
        now = _record(app, edit, record.step, record.attempt, record.stamp, record.initiator)
        return now if _rests_on(now) != _rests_on(record) else None

    # -- the start, and what else it takes to get to an end ---------------------------------------------------------

    async def pursue(self, record: Record, request: UpdateRequest, origin: Origin) -> Observation:
        """Do what brings the attempt that *record* names nearer to its end: start it, or wake or mend Argo CD.

        A start is made only if the attempt has left no trace and nothing holds the Application, and is guarded by the
        version decided on: after a conflict the Application is read live and all is decided again. If the record is not
        true of what would be started, nothing is, and the answer has it as it would be (``fresh``). Returns how the
        attempt stands. Raises TargetError, or KubeError (the record stands; the caller comes back).
        """
        refused: KubeError | None = None
        issued = live = False
        for attempt in range(_AT_ONCE):
            await self._spread(attempt if refused is not None else 0)
            app = await self.applications.read(record.key)
            if (fresh := await self.outdated(record, request)) is not None:
                return dataclasses.replace(self.observe(record, request), fresh=fresh)
            decision = self._decide(record, request)
            try:
                match decision.verb:
                    case Verb.SUPERSEDED | Verb.LOST if not live:
                        await self.applications.read_live(record.key)
                        live = True
                    case Verb.START:
                        app, edit = await self.prepare(request)
                        await self._start(app, record, request.stage, origin, edit)
                        issued = True
                    case Verb.NUDGE if app is not None:
                        await self._nudge(app, record.stamp)
                    case Verb.TERMINATE if app is not None:
                        await self._terminate(app, record.stamp)
                    case _:
                        return self._observation(record, decision, issued=issued)
            except (Conflict, NotFound) as error:
                refused = self._held_back(record.key, error)
        raise refused or _undecided(record)

    async def stop(self, record: Record) -> Observation:
        """Do what ends the attempt that *record* names, without ever starting it; called again until it has ended.

        Returns how it stands: final once it has ended, or can never begin. Raises KubeError (the caller comes back).
        """
        fenced = live = False
        refused: KubeError | None = None
        for attempt in range(_AT_ONCE):
            await self._spread(attempt if refused is not None else 0)
            app = await self.applications.read(record.key)
            decision = self._decide(record, stopping=True, fenced=fenced)
            try:
                match decision.verb:
                    case Verb.SUPERSEDED | Verb.LOST if not live:
                        await self.applications.read_live(record.key)
                        live = True
                    case Verb.TERMINATE if app is not None:
                        if (pause := self._too_soon(record)) > 0:
                            return self._observation(record, decision, look_after=pause)
                        await self._terminate(app, record.stamp)
                    case Verb.NUDGE if app is not None:
                        await self._nudge(app, record.stamp)
                    case Verb.FENCE if app is not None:
                        await self._patch(app.key, nudge_patch(app))
                        fenced = True
                    case _:
                        return self._observation(record, decision)
            except (Conflict, NotFound) as error:
                refused = self._held_back(record.key, error)
        raise refused or _undecided(record)

    async def revert(self, record: Record, request: UpdateRequest) -> str:
        """Put back the fields that the start of *record* changed, where they are still as it left them.

        Returns what was done, for the record. Raises KubeError.
        """
        refused: KubeError | None = None
        for attempt in range(_AT_ONCE):
            await self._spread(attempt)
            app = await self.applications.read(record.key)
            if app is None or app.metadata.uid != record.uid:
                return APPLICATION_IS_GONE()
            before = {field.pointer: field.value for field in record.before}
            reversal = reverse_edit(app.spec, request.updates, before)
            if reversal.fields:
                try:
                    await self._patch(app.key, revert_patch(app, reversal.fields))
                except (Conflict, NotFound) as error:
                    refused = self._held_back(record.key, error)
                    continue
            back = [*(pointer for pointer, _ in reversal.fields), *reversal.done]
            said = [PUT_BACK(pointers=", ".join(back))] if back else []
            said += [LEFT_AS_CHANGED(pointers=", ".join(reversal.theirs))] if reversal.theirs else []
            return "; ".join(said)
        raise refused or _undecided(record)

    async def _start(self, app: Application, record: Record, stage: str, origin: Origin, edit: SourceEdit) -> None:
        patch = start_patch(
            app,
            stamp=record.stamp,
            promotion=origin.promotion,
            stage=stage,
            initiator=origin.initiator,
            edit=edit,
        )
        attempt = self.attempt(record.key, record.stamp)
        first = attempt.never_issued
        attempt.never_issued = False
        try:
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
        except OutcomeUnknown:
            self.applications.mark_dirty(record.key)
            raise
        except KubeError as error:
            # Not carried out, unless no answer came to one before it: that may have landed, and its trace be gone.
            attempt.never_issued = first and not isinstance(error.__cause__, OutcomeUnknown)
            if isinstance(error, (Forbidden, Invalid)):
                raise TargetError(str(error)) from error
            raise
        self.applications.observe(answer)

    async def _terminate(self, app: Application, mark: str) -> None:
        """Ask for the end once; that it was accepted proves nothing, so an unknown outcome does not matter either."""
        # A required field of Argo CD's; nothing of ours reads it back.
        patch = terminate_patch(app, mark, self._now().strftime("%Y-%m-%dT%H:%M:%SZ"))
        self.attempt(app.key, mark).terminated_at = asyncio.get_running_loop().time()
        await self._patch(app.key, patch)

    async def _nudge(self, app: Application, mark: str) -> None:
        await self._patch(app.key, nudge_patch(app))
        self.attempt(app.key, mark).nudges += 1

    async def _patch(self, key: Key, patch: Patch) -> None:
        try:
            answer = await uninterrupted(
                self._client.patch(APPLICATIONS, key, encode(patch.body), codec=self._codec, patch_type=patch.type)
            )
        except OutcomeUnknown:
            self.applications.mark_dirty(key)
            raise
        except Invalid as error:
            if patch.type is not PatchType.JSON:
                raise
            # So the server says that a test in the patch did not hold.
            raise Conflict(error.code, error.reason, error.message) from error
        self.applications.observe(answer)

    def _too_soon(self, record: Record) -> float:
        """Seconds until the operation may be asked to terminate again."""
        last = self.attempt(record.key, record.stamp).terminated_at
        return 0.0 if last is None else last + TERMINATE_AGAIN - asyncio.get_running_loop().time()

    def _held_back(self, key: Key, error: KubeError) -> KubeError:
        self.applications.mark_dirty(key)
        return error

    @staticmethod
    async def _spread(attempt: int) -> None:
        """Let others go first, the more often we were held back."""
        if attempt:
            await asyncio.sleep(pause_before(attempt, _AFTER_CONFLICT))

    # -- how it stands --------------------------------------------------------------------------------------------

    def observe(self, record: Record, request: UpdateRequest | None = None) -> Observation:
        """How the attempt stands, from the cache."""
        return self._observation(record, self._decide(record, request))

    def _decide(
        self, record: Record, request: UpdateRequest | None = None, *, stopping: bool = False, fenced: bool = False
    ) -> Decision:
        app = self.applications.get(record.key)
        attempt = self.attempt(record.key, record.stamp)
        aspect = operation_aspect(app) if app is not None else None
        unchanged = attempt.unchanged(aspect, asyncio.get_running_loop().time())
        intent = Intent(
            record.key,
            record.uid,
            record.stamp,
            record.desired,
            record.seen_stamp,
            record.history_id,
            record.initiator,
            record.seen_state,
            adopted=record.attempt == 0,
            accept_newer=request is not None and request.accept_newer,
        )
        known = Knowledge(
            attempt.latched,
            never_issued=attempt.never_issued,
            fenced=fenced,
            stopping=stopping,
            unchanged=unchanged,
            nudges=attempt.nudges,
        )
        return decide_operation(app, intent, known)

    def _observation(
        self, record: Record, decision: Decision, *, look_after: float | None = None, issued: bool = False
    ) -> Observation:
        """*record* with what *decision* found out."""
        return Observation(
            _updated(record, decision),
            decision.message,
            start=decision.verb is Verb.START,
            notable=decision.waiting not in {None, Waiting.RUNNING, Waiting.PICK_UP},
            held=decision.waiting is Waiting.FOREIGN,
            look_after=look_after if look_after is not None else decision.look_after,
            repeatable=decision.repeatable,
            present=_may_have_begun(self.applications.get(record.key), record, self.attempt(record.key, record.stamp)),
            issued=issued,
        )

    # -- health ---------------------------------------------------------------------------------------------------

    def checked(self, config: Mapping[str, Any]) -> Sequence[Key]:
        """The Applications that a health check is about; none if it cannot be read."""
        try:
            return [key for key, _ in check_targets(config, self.default_namespace)]
        except ValueError:
            return ()

    def assess(self, config: Mapping[str, Any]) -> HealthVerdict:
        """Judge a check ``{apps: [{name, namespace, desiredRevisions}]}``; one that cannot be read is Unknown."""
        try:
            checks = check_targets(config, self.default_namespace)
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
        return assess_application(self.applications.get(key), key, desired, now - self._unchanged_since.get(key, now))


def _record(app: Application, edit: SourceEdit, step: str, attempt: int, mark: str, initiator_name: str) -> Record:
    return Record(
        kind=KIND,
        namespace=app.metadata.namespace,
        name=app.metadata.name,
        uid=app.metadata.uid,
        step=step,
        attempt=attempt,
        stamp=mark,
        resource_version=app.metadata.resource_version,
        history_id=app.history_id,
        desired=edit.desired if any(edit.desired) else (),
        before=tuple(Before(pointer, value) for pointer, value in sorted(edit.before.items())) if attempt else (),
        seen_stamp=app.metadata.annotations.stamp or "",
        seen_state=state_identity(app) if _owner(app) is not None else None,
        initiator=initiator_name,
    )


def orphan_record(app: Application, stamp: Stamp) -> Record:
    """A record of the attempt *stamp*, which *app* has under way and whose own record is gone."""
    return _record(app, SourceEdit(()), stamp.step, stamp.attempt, str(stamp), "")


def _rests_on(record: Record) -> object:
    """What must be as recorded when the start is made."""
    return (record.uid, record.desired, record.before, record.seen_stamp, record.seen_state, record.history_id)


def _owner(app: Application) -> str | None:
    """The ApplicationSet that owns *app*; it writes back what it does not know, annotations too."""
    return next((o.name for o in app.metadata.owner_references if o.kind == "ApplicationSet"), None)


def _may_have_begun(app: Application | None, record: Record, attempt: Attempt) -> bool:
    """False if *app* shows that the attempt was certainly not started."""
    if app is None or record.attempt == 0:
        return True
    if attempt.never_issued:
        return False
    moved = (app.metadata.annotations.stamp or "") != record.seen_stamp or may_have_moved(app, record.seen_state)
    return moved or _operation_of(app, record.stamp) is not None


def _operation_of(app: Application, mark: str) -> JsonObject | None:
    """The operation *mark* if *app* has it, requested, under way or complete."""
    state = app.status.operation_state
    found = (app.operation, state.operation if state is not None else None)
    return next((operation for operation in found if mark_of(operation) == mark), None)


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


def _authorize(app: Application, stage: str) -> None:
    value = app.metadata.annotations.authorized_stage
    if value is None:
        raise TargetError(NOT_AUTHORIZED(app=app, stage=stage))
    try:
        allowed = authorized_stages(value)
    except AuthorizedStageError as error:
        raise TargetError(AUTHORIZATION_MALFORMED(app=app, fault=error)) from error
    if stage not in allowed:
        raise TargetError(AUTHORIZED_FOR_OTHERS(app=app, allowed=", ".join(sorted(allowed)), stage=stage))


def _updated(record: Record, decision: Decision) -> Record:
    state = _STATES.get(decision.verb)
    if state is None:
        running = decision.waiting in {Waiting.RUNNING, Waiting.HELD_UP, Waiting.STOPPING}
        return msgspec.structs.replace(record, state=TargetState.RUNNING if running else TargetState.PENDING)
    return msgspec.structs.replace(
        record,
        state=state,
        message=decision.message,
        revisions=decision.revisions,
        started_at=decision.started_at,
        finished_at=decision.finished_at,
    )


def _undecided(record: Record) -> KubeError:
    return KubeError(CHANGES_TOO_FAST(app=describe(record.key)))
