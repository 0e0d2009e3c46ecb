"""Whether an Application can be promoted to as a step asks, before anything is written to it.

It must be there, be readable, authorise the Stage, have the sources that are asked for, and not belong to an
ApplicationSet that would undo the change. What the cache says is never the reason for a refusal: that is read live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from kargo_py.api.names import AuthorizedStageError, authorized_stages
from kargo_py.argocd.application import APPLICATIONS, Application, ApplicationCodec, JsonObject, describe
from kargo_py.argocd.applicationset import APPLICATION_SETS, undone
from kargo_py.argocd.operation import controllable
from kargo_py.argocd.options import EVERYTHING, OptionsError, SyncOptions
from kargo_py.argocd.sources import SourceEdit, SourceUpdate, SourceUpdateError, edit_sources
from kargo_py.argocd.targets import NAMED_IS_MISSING, Choice, looked_up_by
from kargo_py.kube.cache import Cache
from kargo_py.kube.client import Client
from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import Forbidden, NotFound
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

DOES_NOT_FIT = message(
    "{app} {fault}",
    do="What the step's config asks does not fit the Application's sources: see *has no source with …* and *is asked "
    "for two …*, or the number of `revisions`.",
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
_MOST_QUOTED = 200
_MOST_LISTED = 500

_STILL_TRUE = 5.0
"""Seconds for which an ApplicationSet that was read is not read again."""


class TargetError(ValueError):
    """An Application that cannot be promoted to; the text is what the user reads."""


class LastingError(TargetError):
    """What is asked for cannot be carried out, whatever becomes of the Applications: another try is of no use."""


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """What a step asks of one Application; ``stage`` is "<project>:<stage>".

    ``entries``: the indexes of the entries that chose it, where its name alone does not tell. ``health_check``: whether
    it is judged from then on. ``event``: whether an Event tells the start.
    """

    key: Key
    stage: str
    updates: Sequence[SourceUpdate] = ()
    entries: Sequence[int] = ()
    accept_newer: bool = False
    sync: SyncOptions = EVERYTHING
    health_check: bool = True
    event: bool = False


class Admission:
    """Checks requests against what the cache has, and the server where the cache says no."""

    def __init__(self, client: Client, applications: Cache[Application], namespace: str = "") -> None:
        self._client = client
        self._namespace = namespace
        self._codec = ApplicationCodec()
        self._applications = applications
        self._application_sets: dict[Key, tuple[float, JsonObject | None]] = {}

    async def prepare(self, request: UpdateRequest) -> tuple[Application, SourceEdit]:
        """Check that *request* can be carried out and compute the edit; raises TargetError with the precise reason.

        A refusal ends a Promotion, so it is never pronounced from the cache alone: another resource's watch may be
        ahead of this one's.
        """
        try:
            app, edit = self._prepare(request)
        except TargetError:
            await self.look(Choice(*request.key))
            app, edit = self._prepare(request)
        await self._check_owner(app, edit)
        return app, edit

    def refuses(self, request: UpdateRequest) -> bool:
        """Whether it cannot be carried out by what the cache says."""
        try:
            self._prepare(request)
        except TargetError:
            return True
        return False

    def find(self, choice: Choice) -> Sequence[Application]:
        """The Applications that *choice* is about, from the cache."""
        if choice.selector is None:
            app = self._applications.get(Key(choice.namespace, choice.name))
            return () if app is None else (app,)
        places = looked_up_by(choice)
        return [app for place in places for app in self._applications.indexed("label", place) if choice.fits(app)]

    async def look(self, choice: Choice) -> Sequence[Application]:
        """The Applications that *choice* is about, from the server; of more than 500 those of the cache."""
        found = self.find(choice)
        if self._namespace not in {"", choice.namespace} or len(found) > _MOST_LISTED:
            return found
        if choice.selector is None:
            await self._applications.read_live(Key(choice.namespace, choice.name))
            return self.find(choice)
        page = await self._client.list(
            APPLICATIONS,
            choice.namespace,
            codec=self._codec,
            label_selector=choice.selector.asked_for,
            limit=_MOST_LISTED,
        )
        for app in page.items:
            self._applications.observe(app)
        return self.find(choice) if page.continue_token else [app for app in page.items if choice.fits(app)]

    def _prepare(self, request: UpdateRequest) -> tuple[Application, SourceEdit]:
        app = self._applications.get(request.key)
        if app is None:
            raise TargetError(NAMED_IS_MISSING(app=describe(request.key)))
        if reason := controllable(app):
            raise TargetError(reason)
        if reason := unauthorized(app, request.stage):
            raise TargetError(reason)
        try:
            edit = edit_sources(app.spec, request.updates, request.sync)
        except (SourceUpdateError, OptionsError) as error:
            raise TargetError(DOES_NOT_FIT(app=app, fault=error)) from error
        return app, edit

    async def _check_owner(self, app: Application, edit: SourceEdit) -> None:
        """Raise TargetError if an ApplicationSet would undo *edit*."""
        owner = owner_of(app)
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
        recent = {other: read for other, read in self._application_sets.items() if now < read[0] + _STILL_TRUE}
        self._application_sets = {**recent, key: (now, found)}
        return found


def unauthorized(app: Application, stage: str) -> str | None:
    """Why *app* does not authorise *stage*, "<project>:<stage>"; None if it does."""
    value = app.metadata.annotations.authorized_stage
    if value is None:
        return NOT_AUTHORIZED(app=app, stage=stage)
    try:
        allowed = authorized_stages(value)
    except AuthorizedStageError as error:
        return AUTHORIZATION_MALFORMED(app=app, fault=_cut(str(error)))
    if stage in allowed:
        return None
    return AUTHORIZED_FOR_OTHERS(app=app, allowed=_cut(", ".join(sorted(allowed))), stage=stage)


def _cut(text: str) -> str:
    """*text* as long as a message may quote of what somebody else wrote, which may be 256 KiB."""
    return text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}…"


def owner_of(app: Application) -> str | None:
    """The ApplicationSet that owns *app*; it writes back what it does not know, annotations too."""
    return next((o.name for o in app.metadata.owner_references if o.kind == "ApplicationSet"), None)
