"""The step ``argocd-wait``: waits until Argo CD Applications are healthy, synced and at rest.

It changes nothing: it asks Argo CD once to look at each Application, and judges only what Argo CD shows after that.
What that means stands in :mod:`kargo_py.argocd.waiting`; this module has the configuration, and keeps on record what
must survive a restart: what each Application was like when the step began, and whether Argo CD has looked since.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Self

import msgspec
from pydantic import AfterValidator, Field

from kargo_py.api.promotion import StepStatus
from kargo_py.api.stamp import StampError
from kargo_py.api.types import JsonObject, Time
from kargo_py.argocd.application import Application, describe
from kargo_py.argocd.operation import IS_GONE
from kargo_py.argocd.targets import Choice, resolve
from kargo_py.argocd.waiting import (
    Asked,
    Asking,
    Judgement,
    Look,
    Standing,
    Start,
    WaitFor,
    completed_operation,
    decide_look,
    health_to_keep,
    judge,
)
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.deployers.argocd_admission import LastingError
from kargo_py.deployers.argocd_records import Watched
from kargo_py.deployers.base import Record, TargetState, footprint
from kargo_py.kube.backoff import pause_before
from kargo_py.kube.errors import Conflict, KubeError, NotFound
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.base import Erred, Finished, Intend, StepContext, StepOutcome, StopOutcome, Waiting, first_few
from kargo_py.steps.config import INVALID_CONFIGURATION, AppChoice, Config, read_as
from kargo_py.steps.creation import not_there, staying, time_left, until_created
from kargo_py.steps.passes import BETWEEN_ATTEMPTS, LATE_PASS, Pass, look_last
from kargo_py.steps.step import Services, Step, Work

NAMED_TWICE = message(
    "names {what} twice",
    do="Part of *invalid configuration*: leave it in `waitFor` once.",
    shown=Shown.PROMOTION,
)
TOO_MANY_TO_WAIT_FOR = message(
    "{count} Applications are too many for one argocd-wait: their records need {needed} bytes of the {room} there are",
    do="A Promotion has to stay far below the 1.5 MiB that an object can have. Narrow the `selector`, or spread the "
    "Applications over several Stages.",
    shown=Shown.PROMOTION,
)
NOT_THERE_IN_TIME = message(
    "not so after {time}: {message}",
    do="Raise `retry.timeout` of the step (`0s`: no limit), or mend what is named. Nothing was changed, and Argo CD "
    "goes on with what it does.",
    shown=Shown.PROMOTION,
)
UNSEEN_IN_TIME = message(
    "the time of {time} is up, and whether it came true cannot be seen: {why}",
    do="Argo CD's API server does not answer. The step stays Running until it does. To end it before that, abort the "
    "Promotion.",
    shown=Shown.PROMOTION,
)
NOT_FOUND_IN_TIME = message(
    "the time of {time} is up: {why}",
    do="What the step waits for could not be found in that time. Mend what is named, or raise `retry.timeout` of the "
    "step; then promote again.",
    shown=Shown.PROMOTION,
)
SERVER_IS_SILENT = message(
    "Argo CD's API server did not answer what Applications there are",
    do="Of *the time is up*: see that Argo CD's API server answers, then promote again.",
    shown=Shown.PROMOTION,
)
IS_SKIPPED = message(
    "{app} has the annotation argocd.argoproj.io/skip-reconcile, so Argo CD would never look at it; remove it and "
    "promote again",
    do="Remove the annotation from the Application, then create a new Promotion.",
    shown=Shown.PROMOTION,
)
NOT_WAITED_FOR = message(
    "{app} is not waited for any longer",
    do="The step has ended. Nothing was changed by it; Argo CD goes on with what it does.",
    shown=Shown.PROMOTION,
)
NOT_CHOSEN_ANY_MORE = message(
    "{app} is not among the apps of the step any more; its config was changed",
    do="Somebody edited the steps of a running Promotion. Create a new Promotion with the steps as they should be.",
    shown=Shown.PROMOTION,
)

USES = "argocd-wait"

_DEFAULT = (WaitFor.HEALTH, WaitFor.SYNC, WaitFor.OPERATION)
_PROMPT = timedelta(seconds=10)
_AGAIN = 0.5
_LATER = 1024
_ENOUGH = 64 * 1024
_MESSAGE = 500
_ENDS = {
    Standing.READY: TargetState.SUCCEEDED,
    Standing.FAILED: TargetState.FAILED,
    Standing.BROKEN: TargetState.FAILED,
}


def _each_once(kinds: Sequence[WaitFor]) -> Sequence[WaitFor]:
    if twice := next((kind for kind in kinds if kinds.count(kind) > 1), None):
        raise ValueError(NAMED_TWICE(what=twice))
    return kinds


class AppConfig(AppChoice):
    """One Application, or all that a selector matches, and what to wait for."""

    wait_for: Annotated[Sequence[WaitFor], Field(min_length=1), AfterValidator(_each_once)] = _DEFAULT
    """What to wait for. Of `health`, `suspended` and `degraded` one is enough; all else that is named must be so."""


class ArgoCDWaitConfig(Config):
    """The configuration of the step."""

    apps: Annotated[Sequence[AppConfig], Field(min_length=1)]
    """The Applications, and what to wait for."""


def read_config(config: object) -> ArgoCDWaitConfig:
    """Check *config*; raises ValueError that names each wrong field."""
    return read_as(ArgoCDWaitConfig, config)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One target: its record as it is now, how it stands, and what kept us from asking Argo CD to look at it."""

    record: Record
    app: Application | None
    judgement: Judgement
    error: KubeError | None = None


@dataclass(slots=True)
class _Looks:
    """All targets."""

    seen: list[_Seen] = field(default_factory=list)

    def of(self, *standings: Standing) -> list[_Seen]:
        """Those that stand so."""
        return [each for each in self.seen if each.judgement.standing in standings]

    @property
    def waits(self) -> list[_Seen]:
        """Those that are not yet as they are waited to be."""
        return self.of(Standing.NOT_YET)

    @property
    def undecided(self) -> bool:
        """Whether there is still something to wait for."""
        return bool(self.waits) and not self.of(Standing.FAILED, Standing.BROKEN)

    @property
    def said(self) -> str:
        """What is still waited for."""
        return first_few([each.judgement.message for each in self.waits])

    @property
    def records(self) -> list[Record]:
        """As they are now."""
        return [each.record for each in self.seen]

    @property
    def output(self) -> JsonObject:
        """What the step puts out: the Applications, and their health."""
        keys = [each.record.key for each in self.seen]
        health = [each.app.status.health.status if each.app is not None else "" for each in self.seen]
        return {
            "apps": [{"name": key.name, "namespace": key.namespace} for key in keys],
            "healthStatus": dict(zip(map(str, keys), health, strict=True)),
        }


class ArgoCDWait(Step[ArgoCDWaitConfig]):
    """Waits until Argo CD Applications are in the wanted state; starts nothing."""

    uses = USES
    config_model = ArgoCDWaitConfig
    default_timeout = timedelta(minutes=5)
    keeps_time = True
    work = Work.API

    @classmethod
    def make(cls, services: Services) -> Self:
        """With the deployer of Argo CD."""
        return cls(services.argocd)

    def __init__(self, argocd: ArgoCD) -> None:
        self._argocd = argocd

    async def run(self, context: StepContext) -> StepOutcome:
        """Record what the Applications are like, have Argo CD look at them, and judge what it shows."""
        try:
            config = read_config(context.config)
        except ValueError as error:
            return Finished(StepStatus.FAILED, INVALID_CONFIGURATION(faults=error), records=_dropped(context.records))
        left = context.time_left(context.records)
        if not context.records:
            return await self._begin_in_time(context, config)
        if not all(record.state.final and record.after_errors < context.errors for record in context.records):
            return await self._go_on(context, config, left)
        # It came out badly, and that has been counted.
        if left is not None and left <= 0:
            said = NOT_THERE_IN_TIME(time=context.time, message=first_few([r.message for r in context.records]))
            return Finished(StepStatus.FAILED, said)
        return await self._begin_in_time(context, config)

    async def stop(self, context: StepContext, *, give_up: bool) -> StopOutcome:
        """Nothing was started, so there is nothing to end."""
        records = _dropped(context.records)
        return Finished(StepStatus.ABORTED, first_few([record.message for record in records]), records=records)

    # -- which Applications -----------------------------------------------------------------------------------------

    async def _begin_in_time(self, context: StepContext, config: ArgoCDWaitConfig) -> StepOutcome:
        """Begin, or end if the time is up before that."""
        left = _time_to_begin(context, config)
        pass_ = Pass(max(left, LATE_PASS) if left is not None else None)
        try:
            async with pass_.limit():
                outcome = await (self._begin_anew(context) if context.records else self._begin(context, config))
        except TimeoutError:
            return Finished(StepStatus.ERRORED, NOT_FOUND_IN_TIME(time=context.time, why=SERVER_IS_SILENT()))
        except KubeError as error:
            if left is None:
                raise
            if left > pass_.elapsed:
                return Waiting(str(error), error=error, up_in=left - pass_.elapsed)
            return Finished(StepStatus.ERRORED, NOT_FOUND_IN_TIME(time=context.time, why=error))
        if isinstance(outcome, Erred) and context.errors and left is not None and left <= pass_.elapsed:
            return Finished(StepStatus.ERRORED, NOT_FOUND_IN_TIME(time=context.time, why=outcome.message))
        return outcome

    async def _begin(self, context: StepContext, config: ArgoCDWaitConfig) -> StepOutcome:
        """Find the Applications, and say what they are like before Argo CD is asked to look at them."""
        choices = [app.choice(self._argocd.default_namespace) for app in config.apps]
        found = await self._find(context, config, choices)
        resolution = resolve(choices, found, _anybody)
        missing = [(choices[index], config.apps[index].patience) for index in resolution.missing]
        if over := [each for each in missing if time_left(each[1], context) <= 0]:
            return Erred(first_few([not_there(*each) for each in over]))
        try:
            if missing:
                return until_created(missing, context)
            stamp = str(context.stamp(1))
        except (StampError, LastingError) as error:
            return Finished(StepStatus.ERRORED, str(error))
        apps = {app.key: app for each in found for app in each}
        if skipped := [app for app in apps.values() if app.metadata.annotations.skip_reconcile == "true"]:
            return Erred(first_few([IS_SKIPPED(app=app) for app in skipped]))
        # Its time begins when all are there.
        since = str(Time.of(context.now)) if context.now - context.started_at > _PROMPT else None
        records = [_record(apps[key], context, stamp, entries, since) for key, entries in resolution.targets.items()]
        needed, room = footprint(records) + _LATER * len(records), max(context.room, _ENOUGH)
        if needed > room:
            return Finished(StepStatus.ERRORED, TOO_MANY_TO_WAIT_FOR(count=len(records), needed=needed, room=room))
        return Intend(records)

    async def _begin_anew(self, context: StepContext) -> StepOutcome:
        """Wait once more for the same Applications, from how they are now."""
        apps = {old.key: await self._argocd.applications.read_live(old.key) for old in context.records}
        if gone := [key for key, app in apps.items() if app is None]:
            return Erred(first_few([IS_GONE(app=describe(key)) for key in gone]))
        attempt = 1 + max(record.attempt for record in context.records)
        try:
            stamp = str(context.stamp(attempt))
        except StampError as error:
            return Finished(StepStatus.ERRORED, str(error))
        records = [
            msgspec.structs.replace(_record(app, context, stamp, old.entries, old.free_since), attempt=attempt)
            for old in context.records
            if (app := apps[old.key]) is not None
        ]
        for old in context.records:
            # It started nothing, so nothing of it has to stay on record.
            self._argocd.forget(old.key, old.stamp)
        return Intend(records)

    async def _find(
        self, context: StepContext, config: ArgoCDWaitConfig, choices: Sequence[Choice]
    ) -> Sequence[Sequence[Application]]:
        """The Applications that each entry is about.

        Neither that there is nothing nor a selector's choice is taken from the cache alone: another resource's watch
        may be ahead of this one's.
        """
        admission = self._argocd.admission
        left = [time_left(app.patience, context) for app in config.apps]
        found: list[Sequence[Application]] = []
        for index, choice in enumerate(choices):
            # Matching may be much work, and others have theirs.
            await asyncio.sleep(0)
            found.append(staying(admission.find(choice), left[index]))
        absent = [index for index, apps in enumerate(found) if not apps]
        if absent and all(left[index] > 0 for index in absent):
            return found
        for index, choice in enumerate(choices):
            if choice.selector is not None or index in absent:
                await asyncio.sleep(0)
                found[index] = staying(await admission.look(choice), left[index])
        return found

    # -- how they stand ---------------------------------------------------------------------------------------------

    async def _go_on(self, context: StepContext, config: ArgoCDWaitConfig, left: float | None) -> StepOutcome:
        """Judge all, and end if that decides it, or if the time is up."""
        pass_ = Pass(left)
        looks = await self._looks(context, config, pass_)
        left = left - pass_.elapsed if left is not None else None
        if looks.undecided and left is not None and left <= 0:
            # That it did not come true is never said from the cache alone: Argo CD's API server may be away.
            if (unseen := await look_last(self._argocd, looks.records)) is not None:
                said = UNSEEN_IN_TIME(time=context.time, why=unseen)
                return Waiting(said, looks.records, notable=True, error=unseen)
            looks = _Looks([self._glance(config, record) for record in looks.records])
            if looks.undecided:
                said = NOT_THERE_IN_TIME(time=context.time, message=looks.said)
                return _finished(looks, StepStatus.FAILED, said)
        if not looks.undecided:
            return _decided(looks, context.errors)
        again = [left, *(each.judgement.look_after for each in looks.waits)]
        return Waiting(
            looks.said,
            looks.records,
            notable=not all(each.judgement.passing for each in looks.waits),
            look_after=min((seconds for seconds in again if seconds is not None), default=None),
            error=next((each.error for each in looks.waits if each.error is not None), None),
            up_in=left,
        )

    async def _looks(self, context: StepContext, config: ArgoCDWaitConfig, pass_: Pass) -> _Looks:
        """Each target; where a request failed, and that took long, nothing is asked about those that are left."""
        seen = dict[Key, _Seen]()
        for record in sorted(context.records, key=self._was_refused):
            if pass_.is_over or context.called_off():
                seen[record.key] = self._glance(config, record)
                continue
            try:
                async with pass_.limit():
                    look = await self._look(config, record)
            except TimeoutError:
                look = self._glance(config, record)
            pass_.note(look.error)
            seen[record.key] = look
        return _Looks([seen[record.key] for record in context.records])

    def _was_refused(self, record: Record) -> bool:
        watched = self._argocd.attempt(record.key, record.stamp).watched
        return watched is not None and watched.refused != ""

    def _glance(self, config: ArgoCDWaitConfig, record: Record) -> _Seen:
        """How one target stands, as far as is known."""
        app = self._argocd.applications.get(record.key)
        wanted = wanted_of(config, record, self._argocd.default_namespace)
        if wanted is None:
            return _Seen(record, app, Judgement(Standing.FAILED, NOT_CHOSEN_ANY_MORE(app=describe(record.key))))
        asking = Asking(Look.DONE if record.looked else Look.WAIT)
        return self._seen(app, record, self._judge(app, record, wanted, asking), asking)

    async def _look(self, config: ArgoCDWaitConfig, record: Record) -> _Seen:
        """How one target stands; Argo CD is asked to look at it where it has to be."""
        wanted = wanted_of(config, record, self._argocd.default_namespace)
        if wanted is None:
            return self._glance(config, record)
        app = await self._argocd.applications.read(record.key)
        error = None
        asking = Asking(Look.DONE if record.looked else Look.WAIT)
        if app is not None and app.metadata.uid == record.uid and not record.looked:
            asking, app, error = await self._have_looked_at(app, record)
        judgement = self._judge(app, record, wanted, asking)
        if judgement.refresh and app is not None:
            # It has looked once, and does not by itself where it should.
            again, app, error = await self._ask_again(app, record)
            judgement = dataclasses.replace(judgement, look_after=again.look_after)
        return self._seen(app, record, judgement, asking, error)

    def _seen(
        self,
        app: Application | None,
        record: Record,
        judgement: Judgement,
        asking: Asking,
        error: KubeError | None = None,
    ) -> _Seen:
        looked = record.looked or asking.look is Look.DONE
        to_be_asked = judgement.standing is Standing.NOT_YET and (judgement.refresh or not looked)
        if to_be_asked and app is not None and (why := self._watched(app, record).refused):
            judgement = Judgement(Standing.NOT_YET, why, judgement.look_after)
        kept = health_to_keep(record.seen_health, app) if app is not None else record.seen_health
        state = TargetState.RUNNING if looked else TargetState.PENDING
        now = msgspec.structs.replace(record, looked=looked, seen_health=kept, state=state)
        return _Seen(now, app, judgement, error)

    def _judge(
        self, app: Application | None, record: Record, wanted: Sequence[frozenset[WaitFor]], asking: Asking
    ) -> Judgement:
        """The worst judgement: each entry that chose the Application waits for something of its own."""
        start = Start(record.uid, record.seen_state or "", record.seen_health)
        unchanged = self._argocd.unchanged_for(record.key)
        judged = [judge(app, record.key, kinds, start, asking, unchanged) for kinds in wanted]
        return max(judged, key=lambda judgement: _SEVERITY.index(judgement.standing))

    # -- having Argo CD look ----------------------------------------------------------------------------------------

    async def _have_looked_at(
        self, app: Application, record: Record
    ) -> tuple[Asking, Application | None, KubeError | None]:
        """Whether Argo CD has looked at *app* since it was asked to; it is asked now if it is time."""
        now, kept = asyncio.get_running_loop().time(), self._watched(app, record)
        decided = decide_look(app, kept.asked, kept.standing, kept.since, now)
        if decided.look is not Look.ASK:
            return decided, app, None
        return await self._ask(app, record)

    async def _ask(self, app: Application, record: Record) -> tuple[Asking, Application | None, KubeError | None]:
        """Ask Argo CD to look at *app* as it is; what has become of it meanwhile is looked at first."""
        kept = self._watched(app, record)
        try:
            await self._argocd.ask_to_look(app)
        except (Conflict, NotFound):
            self._argocd.applications.mark_dirty(app.key)
            return Asking(Look.WAIT, _AGAIN), app, None
        except KubeError as error:
            kept.refused = str(error)
            return Asking(Look.WAIT), app, error
        kept.refused = ""
        kept.asked = Asked(asyncio.get_running_loop().time(), app.status.reconciled_at)
        return Asking(Look.WAIT), self._argocd.applications.get(app.key), None

    async def _ask_again(self, app: Application, record: Record) -> tuple[Asking, Application | None, KubeError | None]:
        """Ask Argo CD to look once more, unless it was asked a moment ago."""
        now, kept = asyncio.get_running_loop().time(), self._watched(app, record)
        decided = decide_look(app, kept.asked, kept.standing, kept.since, now)
        return (decided, app, None) if decided.look is Look.WAIT else await self._ask(app, record)

    def _watched(self, app: Application, record: Record) -> Watched:
        """What this process has seen of *app*, which it remembers as long as the step waits for it."""
        now, attempt = asyncio.get_running_loop().time(), self._argocd.attempt(record.key, record.stamp)
        if attempt.watched is None:
            attempt.watched = Watched(now, now, app.status.reconciled_at)
        elif attempt.watched.reconciled_at != app.status.reconciled_at:
            attempt.watched.reconciled_at, attempt.watched.standing = app.status.reconciled_at, now
        return attempt.watched


_SEVERITY = (Standing.READY, Standing.NOT_YET, Standing.BROKEN, Standing.FAILED)


def _anybody(_app: Application) -> None:
    """No Application is barred: it is only looked at."""


def _time_to_begin(context: StepContext, config: ArgoCDWaitConfig) -> float | None:
    """Seconds in which it has to be known which Applications it is about; None without limit."""
    if context.timeout is None:
        return None
    patience = max(app.patience for app in config.apps)
    return (context.timeout + patience - (context.now - context.started_at)).total_seconds()


def _record(app: Application, context: StepContext, stamp: str, entries: Sequence[int], since: str | None) -> Record:
    return Record(
        kind=USES,
        namespace=app.metadata.namespace,
        name=app.metadata.name,
        uid=app.metadata.uid,
        step=context.alias,
        attempt=1,
        stamp=stamp,
        resource_version=app.metadata.resource_version,
        seen_state=completed_operation(app),
        seen_health=app.status.health.status,
        entries=tuple(entries),
        free_since=since,
        after_errors=context.errors,
    )


def wanted_of(config: ArgoCDWaitConfig, record: Record, default_namespace: str) -> list[frozenset[WaitFor]] | None:
    """What is waited for, by each entry that chose the target; None if the entries are others by now."""
    if not record.entries or not all(0 <= index < len(config.apps) for index in record.entries):
        return None
    apps = [config.apps[index] for index in record.entries]
    for app in apps:
        choice = app.choice(default_namespace)
        if choice.namespace != record.namespace or (choice.selector is None and choice.name != record.name):
            return None
    return [frozenset(app.wait_for) for app in apps]


def _decided(looks: _Looks, errors: int) -> Finished | Erred:
    """The end of a step that has nothing to wait for any more; where it came out badly another try may help."""
    bad = looks.of(Standing.FAILED, Standing.BROKEN)
    if not bad:
        return _finished(looks, StepStatus.SUCCEEDED, "")
    failed = bool(looks.of(Standing.FAILED))
    status = StepStatus.FAILED if failed else StepStatus.ERRORED
    ended = _finished(looks, status, first_few([each.judgement.message for each in bad]))
    pause = pause_before(errors + 1, BETWEEN_ATTEMPTS)
    return Erred(ended.message, failed=failed, retry_after=pause, output=ended.output, records=ended.records)


def _finished(looks: _Looks, status: StepStatus, said: str) -> Finished:
    """The end of the step; what has not come true is not waited for any longer."""
    records = []
    for each in looks.seen:
        state = _ENDS.get(each.judgement.standing)
        if state is None:
            late = not looks.of(Standing.FAILED, Standing.BROKEN)
            state = TargetState.FAILED if late else TargetState.STOPPED
        records.append(each.record.ended(state, _cut(each.judgement.message)))
    return Finished(status, said, looks.output, records=records)


def _dropped(records: Sequence[Record]) -> list[Record]:
    """*records* of what is not waited for any longer."""
    return [r if r.state.final else r.ended(TargetState.STOPPED, NOT_WAITED_FOR(app=describe(r.key))) for r in records]


def _cut(text: str) -> str:
    return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}…"
