"""The Argo CD deployer: the cache of Applications, the start, the watching and the end of syncs of them.

The shell around :mod:`kargo_py.argocd`. What it keeps in memory may all be lost: what the cache alone cannot tell of an
attempt that is waited for (its ending may be visible for 40 ms only, then another operation's state replaces it), since
when, by our own clock, an Application's verdict has stood unchanged, and for some seconds the ApplicationSets that were
asked.
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

from kargo_py.api.names import Actor
from kargo_py.api.stamp import Stamp
from kargo_py.argocd.application import (
    APPLICATIONS,
    KARGO_MARK,
    Application,
    ApplicationCodec,
    describe,
    initiator,
    mark_of,
)
from kargo_py.argocd.operation import (
    Decision,
    Knowledge,
    Verb,
    Waiting,
    decide_operation,
    operation_aspect,
)
from kargo_py.argocd.sources import SourceEdit, reverse_edit
from kargo_py.argocd.start import Initiator, revert_patch, start_patch
from kargo_py.argocd.stop import Patch, nudge_patch, refresh_patch, terminate_patch
from kargo_py.argocd.targets import labels_of
from kargo_py.deployers.argocd_admission import Admission, TargetError, UpdateRequest, unauthorized
from kargo_py.deployers.argocd_events import started_event
from kargo_py.deployers.argocd_health import Checks
from kargo_py.deployers.argocd_records import (
    UNDER_WAY,
    Attempt,
    intent_of,
    may_have_begun,
    new_record,
    operation_of,
    promotions_under_way,
    renewed,
    unfinished,
    updated,
    wait_cause,
)
from kargo_py.deployers.base import HealthVerdict, Observation, OperationStats, Record
from kargo_py.kube.backoff import pause_before
from kargo_py.kube.cache import Cache
from kargo_py.kube.client import Client, PatchType
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import encode
from kargo_py.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, OutcomeUnknown
from kargo_py.kube.events import EventRecorder
from kargo_py.kube.resources import Key
from kargo_py.kube.writes import guarded_patch, uninterrupted
from kargo_py.messages import Shown, message

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
CHANGES_TOO_FAST = message(
    "{app} changes faster than it can be decided about; it is looked at again",
    do="Each of several writes met a newer version. It is tried again by itself; if it comes again and again, see "
    "who writes to the Application all the time.",
    shown=Shown.LOG,
)

_AT_ONCE = 5
_AFTER_CONFLICT = wait_random_exponential(multiplier=0.02, max=0.5)

TERMINATE_AGAIN = 1.0
"""Seconds between two requests to terminate the same operation."""

WRITE_PATIENCE = 5.0
"""Seconds for which a write is waited for when its caller is cancelled: the time of a step is up, say."""


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
        recorder: EventRecorder | None = None,
    ) -> None:
        self._client = client
        self._now = now
        self.recorder = recorder
        self.default_namespace = default_namespace
        self._codec = ApplicationCodec()
        self.applications: Cache[Application] = Cache(
            client,
            APPLICATIONS,
            codec=self._codec,
            namespace=namespace,
            indexes={"label": labels_of, UNDER_WAY: promotions_under_way},
        )
        self.stats = OperationStats()
        self._attempts: dict[tuple[Key, str], Attempt] = {}
        self.admission = Admission(client, self.applications, namespace)
        self._checks = Checks(self.applications, default_namespace)
        self.applications.witness(self._latch)

    @property
    def client(self) -> Client:
        """The client of Argo CD's API server."""
        return self._client

    # -- what an event leaves behind ------------------------------------------------------------------------------

    def _latch(self, app: Application) -> None:
        """Keep an ending that is waited for, before a queue or a newer state can hide it."""
        state = app.status.operation_state
        attempt = self._attempts.get((app.key, state.mark or "")) if state is not None and state.completed else None
        if attempt is not None and attempt.latched is None:
            attempt.latched = state

    def attempt(self, target: Key, stamp: str) -> Attempt:
        """What this process keeps of an attempt on one target, its ending included, until :meth:`forget`.

        All targets of a step are started under one stamp.
        """
        return self._attempts.setdefault((target, stamp), Attempt())

    def forget(self, target: Key, stamp: str) -> None:
        """The ending of *stamp* on *target* has been recorded, or it was never begun."""
        self._attempts.pop((target, stamp), None)

    # -- before the start -----------------------------------------------------------------------------------------

    async def intend(self, request: UpdateRequest, stamp: Stamp, origin: Origin, *, taken_over: bool = False) -> Record:
        """The intent to record before the attempt *stamp* is started; raises TargetError.

        Where the Promotion is *taken_over* the attempt may turn out to be under way: a real Kargo has started it. Then
        that one is recorded as attempt 0, and no other is started. A sync that is complete, while the spec is not as
        the step asks, was of an earlier step: Kargo writes both at once, and names the Promotion only.
        """
        app, edit = await self.admission.prepare(request)
        mark = f"{KARGO_MARK}{origin.promotion}"
        if taken_over and (mark_of(unfinished(app)) == mark or (operation_of(app, mark) and not edit.before)):
            return msgspec.structs.replace(self._adopted(app, edit, stamp.step, mark), entries=tuple(request.entries))
        self.attempt(app.key, str(stamp)).never_issued = True
        record = new_record(app, edit, stamp.step, stamp.attempt, str(stamp), origin.initiator.username)
        return msgspec.structs.replace(record, entries=tuple(request.entries))

    async def adopt(self, request: UpdateRequest, step: str, promotion: str) -> Record | None:
        """The record of what a real Kargo has started for *promotion*; None if there is nothing of that kind."""
        app = await self.applications.read(request.key)
        mark = f"{KARGO_MARK}{promotion}"
        if app is None or operation_of(app, mark) is None:
            return None
        if unauthorized(app, request.stage):
            # A Promotion of that name in another Project may have started it.
            return None
        record = self._adopted(app, SourceEdit(()), step, mark)
        return msgspec.structs.replace(record, entries=tuple(request.entries))

    def _adopted(self, app: Application, edit: SourceEdit, step: str, mark: str) -> Record:
        state = app.status.operation_state
        if state is not None and state.completed and state.mark == mark:
            self.attempt(app.key, mark).latched = state
        return new_record(app, edit, step, 0, mark, initiator(operation_of(app, mark)))

    async def outdated(self, record: Record, request: UpdateRequest) -> Record | None:
        """The intent as it would be recorded now, if what is on record is not true of the start any more.

        Only of an attempt that was certainly not carried out: one that this process recorded and has not sent, or one
        whose Application still carries the stamp it carried then. Raises TargetError.
        """
        app = await self.applications.read(record.key)
        if app is None:
            return None
        moved = (app.metadata.annotations.stamp or "", app.metadata.uid) != (record.seen_stamp, record.uid)
        if not (
            self._decide(record, request).verb is Verb.START
            or (moved and self.attempt(record.key, record.stamp).never_issued)
        ):
            return None
        return renewed(record, *await self.admission.prepare(request))

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
                        app, edit = await self.admission.prepare(request)
                        if renewed(record, app, edit) is not None:
                            # It has changed while the ApplicationSet was read: decide again.
                            continue
                        await self._start(app, record, request.stage, origin, edit)
                        issued = True
                    case Verb.NUDGE if app is not None:
                        await self._nudge(app, record.stamp)
                    case Verb.TERMINATE if app is not None:
                        await self._terminate(app, record.stamp)
                    case _:
                        self._tell(record, request)
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

    def may_land(self, record: Record) -> bool:
        """Whether a start of the attempt may have been sent, by a process before this one even; see :meth:`settle`."""
        return not self.attempt(record.key, record.stamp).never_issued

    async def settle(self, record: Record) -> None:
        """Where no start of the attempt is there, have none that was sent land any more.

        A start that nobody answered may still be on its way: the version that guards it is made to pass, and if it has
        landed by then the answer shows it. Raises KubeError: then it is not known.
        """
        app, attempt = self.applications.get(record.key), self.attempt(record.key, record.stamp)
        if app is None or app.metadata.uid != record.uid or attempt.latched is not None or not self.may_land(record):
            return
        if may_have_begun(app, record, attempt):
            return
        try:
            # Abandoned half-way it does no harm, and the time of the step is up.
            await self._patch(app.key, nudge_patch(app), patience=0.0)
        except NotFound:
            await self.applications.read_live(record.key)

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
        self.stats.starts += 1
        try:
            answer = await uninterrupted(
                guarded_patch(
                    self._client,
                    APPLICATIONS,
                    app.key,
                    encode(patch),
                    codec=self._codec,
                    landed=lambda found: found.metadata.annotations.stamp == record.stamp,
                ),
                patience=WRITE_PATIENCE,
            )
        except (OutcomeUnknown, asyncio.CancelledError):
            self.stats.unknown += 1
            self.applications.mark_dirty(record.key)
            raise
        except KubeError as error:
            # Not carried out, unless no answer came to one before it: that may have landed, and its trace be gone.
            attempt.never_issued = first and not isinstance(error.__cause__, OutcomeUnknown)
            if isinstance(error, (Forbidden, Invalid)):
                raise TargetError(str(error)) from error
            raise
        self.applications.observe(answer)

    def _tell(self, record: Record, request: UpdateRequest) -> None:
        """Once it can be seen, put the Event of the start on the Application if that is asked for."""
        attempt = self.attempt(record.key, record.stamp)
        app = self.applications.get(record.key)
        if self.recorder is None or not request.event or attempt.told or app is None:
            return
        if record.attempt and (attempt.latched is not None or operation_of(app, record.stamp) is not None):
            attempt.told = True
            self.recorder.record(started_event(app, record))

    async def _terminate(self, app: Application, mark: str) -> None:
        """Ask for the end once; that it was accepted proves nothing, so an unknown outcome does not matter either."""
        # A required field of Argo CD's; nothing of ours reads it back.
        patch = terminate_patch(app, mark, self._now().strftime("%Y-%m-%dT%H:%M:%SZ"))
        attempt = self.attempt(app.key, mark)
        self.stats.terminates += 1
        self.stats.terminates_again += attempt.terminated_at is not None
        attempt.terminated_at = asyncio.get_running_loop().time()
        await self._patch(app.key, patch)

    async def _nudge(self, app: Application, mark: str) -> None:
        await self._patch(app.key, nudge_patch(app))
        self.attempt(app.key, mark).nudges += 1

    async def _patch(self, key: Key, patch: Patch, *, patience: float = WRITE_PATIENCE) -> None:
        try:
            answer = await uninterrupted(
                self._client.patch(APPLICATIONS, key, encode(patch.body), codec=self._codec, patch_type=patch.type),
                patience=patience,
            )
        except (OutcomeUnknown, asyncio.CancelledError):
            self.stats.unknown += 1
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
        self.stats.conflicts += isinstance(error, Conflict)
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
        intent = intent_of(record, accept_newer=request is not None and request.accept_newer)
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
        present = may_have_begun(self.applications.get(record.key), record, self.attempt(record.key, record.stamp))
        return Observation(
            updated(record, decision),
            decision.message,
            start=decision.verb is Verb.START,
            notable=decision.waiting not in {None, Waiting.RUNNING, Waiting.PICK_UP},
            held=decision.waiting is Waiting.FOREIGN,
            look_after=look_after if look_after is not None else decision.look_after,
            repeatable=decision.repeatable,
            present=present,
            issued=issued,
            cause=wait_cause(decision, present=present),
        )

    # -- only looking -------------------------------------------------------------------------------------------------

    async def ask_to_look(self, app: Application) -> None:
        """Have Argo CD look at *app*, if that is still as it was seen here. Raises KubeError."""
        await self._patch(app.key, refresh_patch(app, hard=True))

    def unchanged_for(self, key: Key) -> float:
        """Seconds, by our own clock, for which what Argo CD shows of an Application has stood."""
        return self._checks.unchanged_for(key)

    # -- health ---------------------------------------------------------------------------------------------------

    def checked(self, config: Mapping[str, Any]) -> Sequence[Key]:
        """The Applications that a health check is about; none if it cannot be read."""
        return self._checks.checked(config)

    def assess(self, configs: Sequence[Mapping[str, Any]]) -> HealthVerdict:
        """Judge health checks from the cache."""
        return self._checks.assess(configs)

    async def refresh(self, configs: Sequence[Mapping[str, Any]]) -> None:
        """Ask for a refresh of what has been in doubt for too long; Conflict says that there is news meanwhile."""
        for app in self._checks.stale(configs):
            await self._patch(app.key, refresh_patch(app))
            self._checks.asked(app.key)


def _undecided(record: Record) -> KubeError:
    return KubeError(CHANGES_TOO_FAST(app=describe(record.key)))
