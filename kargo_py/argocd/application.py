"""The fields of an Argo CD Application that this program reads, and the codec that parses only those.

Decoding is the projection: a 38 KB Application event becomes a few small structs, everything else is never built.
The field meanings are written down in Argo CD's ``pkg/apis/application/v1alpha1/types.go``; times have a resolution of
one second, and ``status`` is no subresource.

An Application that does not fit these types (possible where the CRD has no schema) is not lost and stops nothing: it is
kept with :attr:`Application.unreadable` saying what is wrong, and whoever needs it refuses it with that text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from kargo_py.api.names import ANNOTATION_AUTHORIZED_STAGE, INFO_PROMOTION
from kargo_py.api.stamp import STAMP_KEY
from kargo_py.kube.client import EventType, Meta, Page, WatchEvent
from kargo_py.kube.codec import JSON, split_event, split_list
from kargo_py.kube.errors import DecodeError, error_from_status
from kargo_py.kube.resources import Key, Resource
from kargo_py.messages import Shown, message

NOT_AN_APPLICATION = message(
    "not an Application: {why}",
    do="The API server, or a proxy in front of it, answered something else. It is asked again by itself; if it stays "
    "so, look at what stands between kargo-py and the API server.",
    shown=Shown.LOG,
)
NOT_A_LIST_OF_APPLICATIONS = message(
    "not a list of Applications: {why}",
    do="As for a single Application: it is asked again by itself, and Argo CD's Applications are not followed "
    "meanwhile.",
    shown=Shown.LOG,
)
NOT_AN_EVENT_OF_AN_APPLICATION = message(
    "not a watch event of an Application: {why}",
    do="The watch is given up and all Applications are listed again, by itself. If it comes again and again, look at "
    "what stands between kargo-py and the API server.",
    shown=Shown.LOG,
)

APPLICATIONS = Resource("argoproj.io", "v1alpha1", "applications", "Application")

REFRESH = "argocd.argoproj.io/refresh"
SKIP_RECONCILE = "argocd.argoproj.io/skip-reconcile"

JsonObject: TypeAlias = dict[str, Any]

KARGO_MARK = "kargo:"
"""Before the name of a Promotion: the mark of an operation that a real Kargo started."""

_MAX_KEPT_RESOURCES = 10
_MAX_KEPT_HISTORY = 6


class Annotations(msgspec.Struct, frozen=True, gc=False):
    """The annotations read; all others (``last-applied-configuration`` can be 30 KB) are dropped."""

    authorized_stage: str | None = msgspec.field(name=ANNOTATION_AUTHORIZED_STAGE, default=None)
    stamp: str | None = msgspec.field(name=STAMP_KEY, default=None)
    refresh: str | None = msgspec.field(name=REFRESH, default=None)
    skip_reconcile: str | None = msgspec.field(name=SKIP_RECONCILE, default=None)


class OwnerReference(msgspec.Struct, frozen=True, gc=False):
    """Who owns the Application; an ApplicationSet undoes edits of the spec."""

    kind: str = ""
    name: str = ""


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The part of ``metadata`` read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: Annotations = Annotations()
    owner_references: tuple[OwnerReference, ...] = ()


class SyncPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """What a hand-written operation must copy: Argo CD does not add these by itself; and whether it syncs by itself."""

    sync_options: list[str] | None = None
    retry: JsonObject | None = None
    automated: JsonObject | None = None


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """The part of ``spec`` read; sources are kept whole, since a list can only be replaced whole."""

    source: JsonObject | None = None
    sources: list[JsonObject] | None = None
    source_hydrator: JsonObject | None = None
    destination: JsonObject | None = None
    sync_policy: SyncPolicy | None = None
    revision_history_limit: int | None = None

    @property
    def has_multiple_sources(self) -> bool:
        """As Argo CD's HasMultipleSources: a hydrator or an empty list means a single source."""
        return self.source_hydrator is None and bool(self.sources)

    @property
    def effective_sources(self) -> list[JsonObject]:
        """The sources an edit or a comparison is about; empty when the Application has none."""
        if self.has_multiple_sources:
            return list(self.sources or ())
        return [self.source] if self.source else []


class ResourceResult(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One row of ``syncResult.resources``; only rows that failed are kept."""

    kind: str = ""
    name: str = ""
    namespace: str = ""
    group: str = ""
    status: str = ""
    hook_phase: str = ""
    message: str = ""

    @property
    def failed(self) -> bool:
        """True for a resource that could not be applied and for a hook that failed."""
        return self.status == "SyncFailed" or self.hook_phase in {"Failed", "Error"}


class SyncResult(msgspec.Struct, frozen=True, rename="camel"):
    """What was applied: ``revision(s)`` are resolved commit ids, the proof of what was deployed."""

    revision: str = ""
    revisions: tuple[str, ...] | None = None
    source: JsonObject | None = None
    sources: list[JsonObject] | None = None
    resources: tuple[ResourceResult, ...] = ()

    @property
    def applied(self) -> tuple[str, ...]:
        """One revision per source."""
        return self.revisions or ((self.revision,) if self.revision else ())


class OperationState(msgspec.Struct, frozen=True, rename="camel"):
    """``status.operationState``: the operation Argo CD last took up; ``operation`` is its copy made at the start."""

    operation: JsonObject = {}
    phase: str = ""
    message: str = ""
    started_at: str = ""
    finished_at: str | None = None
    retry_count: int = 0
    sync_result: SyncResult | None = None

    @property
    def completed(self) -> bool:
        """True in a final phase; between two retries ``finishedAt`` is set though the phase is Running."""
        return self.phase in {"Succeeded", "Failed", "Error"}

    @property
    def in_progress(self) -> bool:
        """True in any other phase, one that we do not know included; a state without a phase is none."""
        return bool(self.phase) and not self.completed

    @property
    def dry_run(self) -> bool:
        """True for an operation that only tried: it says nothing about what is deployed, and no refresh follows it."""
        sync = self.operation.get("sync")
        return isinstance(sync, dict) and sync.get("dryRun") is True

    @property
    def mark(self) -> str | None:
        """What names the attempt this operation is; see :func:`mark_of`."""
        return mark_of(self.operation)


class InitiatedBy(msgspec.Struct, frozen=True, gc=False):
    """Who started an operation."""

    username: str = ""
    automated: bool = False


class SourceName(msgspec.Struct, frozen=True, gc=False):
    """What tells one source from another."""

    repo_url: str = msgspec.field(name="repoURL", default="")
    chart: str = ""
    path: str = ""


class HistoryEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One full, successful sync; ids grow by one. Only the newest few are kept."""

    id: int = 0
    revision: str = ""
    revisions: tuple[str, ...] | None = None
    initiated_by: InitiatedBy = InitiatedBy()
    source: SourceName | None = None
    sources: tuple[SourceName, ...] = ()

    @property
    def applied(self) -> tuple[str, ...]:
        """One revision per source."""
        return self.revisions or ((self.revision,) if self.revision else ())

    @property
    def initiator(self) -> str:
        """The user who started it, "" if none is named."""
        return self.initiated_by.username

    @property
    def origins(self) -> tuple[SourceName, ...]:
        """The sources it was made of."""
        return self.sources or ((self.source,) if self.source is not None else ())


class Sync(msgspec.Struct, frozen=True, rename="camel"):
    """``status.sync``: the comparison of the live state with ``revision(s)`` of the spec it was made for."""

    status: str = ""
    revision: str = ""
    revisions: tuple[str, ...] | None = None
    compared_to: JsonObject | None = None

    @property
    def compared(self) -> tuple[str, ...]:
        """One revision per source."""
        return self.revisions or ((self.revision,) if self.revision else ())


class Health(msgspec.Struct, frozen=True, gc=False):
    """``status.health``."""

    status: str = ""
    message: str = ""


class Condition(msgspec.Struct, frozen=True, gc=False):
    """One of ``status.conditions``."""

    type: str = ""
    message: str = ""


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The part of ``status`` read."""

    operation_state: OperationState | None = None
    history: tuple[HistoryEntry, ...] = ()
    sync: Sync = Sync()
    health: Health = Health()
    conditions: tuple[Condition, ...] = ()
    reconciled_at: str | None = None


class Application(msgspec.Struct, frozen=True):
    """An Application as seen; ``unreadable`` is "" or says why only its metadata could be read."""

    metadata: Metadata
    spec: Spec = Spec()
    operation: JsonObject | None = None
    status: Status = Status()
    unreadable: str = ""

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def history_id(self) -> int | None:
        """The id of the last full sync, None before the first."""
        return max((entry.id for entry in self.status.history), default=None)

    def __str__(self) -> str:
        return describe(self.key)


def describe(key: Key) -> str:
    """How messages name an Application."""
    return f'Argo CD Application "{key.name}" in namespace "{key.namespace}"'


def info_value(operation: Mapping[str, Any] | None, name: str) -> str | None:
    """The value that stands under *name* in an operation's ``info``; malformed entries count as absent."""
    info = (operation or {}).get("info")
    for entry in info if isinstance(info, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get("value"), str):
            return str(entry["value"])
    return None


def stamp_of(operation: Mapping[str, Any] | None) -> str | None:
    """The stamp an operation was started with, None for everybody else's operations."""
    return info_value(operation, STAMP_KEY)


def mark_of(operation: Mapping[str, Any] | None) -> str | None:
    """What names the attempt that an operation is; None for everybody else's operations.

    It is the stamp; of an operation that a real Kargo started ``kargo:`` and the name of the Promotion.
    """
    if (stamp := stamp_of(operation)) is not None:
        return stamp
    promotion = info_value(operation, INFO_PROMOTION)
    return f"{KARGO_MARK}{promotion}" if promotion else None


def initiator(operation: Mapping[str, Any] | None) -> str:
    """Who started an operation, as a message names it."""
    by = (operation or {}).get("initiatedBy")
    username = by.get("username") if isinstance(by, dict) else None
    if isinstance(username, str) and username:
        return username
    return "Argo CD's auto-sync" if isinstance(by, dict) and by.get("automated") else "somebody unnamed"


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[Application]


class _LooseMetadata(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _LooseHead(msgspec.Struct):
    metadata: _LooseMetadata = _LooseMetadata()


_application = msgspec.json.Decoder(Application)
_event = msgspec.json.Decoder(_Event)
_list = msgspec.json.Decoder(_List)
_loose = msgspec.json.Decoder(_LooseHead)
_any = msgspec.json.Decoder()


def _trim(app: Application) -> Application:
    """Drop what no decision reads: rows of resources that did not fail, and old history.

    The structs are frozen for everybody else; here, before anybody has seen them, two fields are set in place.
    """
    if len(app.status.history) > _MAX_KEPT_HISTORY:
        newest = tuple(sorted(app.status.history, key=lambda entry: entry.id)[-_MAX_KEPT_HISTORY:])
        msgspec.structs.force_setattr(app.status, "history", newest)
    state = app.status.operation_state
    if state is not None and state.sync_result is not None and state.sync_result.resources:
        failed = tuple(row for row in state.sync_result.resources if row.failed)[:_MAX_KEPT_RESOURCES]
        msgspec.structs.force_setattr(state.sync_result, "resources", failed)
    return app


def _decode(data: bytes) -> Application:
    try:
        return _trim(_application.decode(data))
    except (msgspec.ValidationError, RecursionError) as error:
        return Application(_loose_metadata(JSON.object(data)), unreadable=str(error))


def _loose_metadata(raw: JsonObject) -> Metadata:
    """What tells whose an Application is: it may be chosen by its labels, and is refused then rather than missed."""
    meta, given = JSON.meta(raw), raw.get("metadata") or {}
    labels, annotations = given.get("labels"), given.get("annotations")
    stage = annotations.get(ANNOTATION_AUTHORIZED_STAGE) if isinstance(annotations, dict) else None
    return Metadata(
        meta.key.name,
        meta.key.namespace,
        meta.uid,
        meta.resource_version,
        labels={k: v for k, v in labels.items() if isinstance(v, str)} if isinstance(labels, dict) else None,
        annotations=Annotations(authorized_stage=stage if isinstance(stage, str) else None),
    )


class ApplicationCodec:
    """Parses Applications out of API answers; raises DecodeError only for what is no JSON of that shape at all."""

    def object(self, data: bytes) -> Application:
        """Parse one Application."""
        try:
            return _decode(data)
        except msgspec.DecodeError as error:
            raise DecodeError(NOT_AN_APPLICATION(why=error)) from error

    def page(self, data: bytes) -> Page[Application]:
        """Parse a list; one Application that does not fit the types costs the others nothing."""
        try:
            listed = _list.decode(data)
            items = [_trim(app) for app in listed.items]
            return Page(items, listed.metadata.resource_version, listed.metadata.continue_token)
        except (msgspec.ValidationError, RecursionError):
            return self._page_of_raw(data)
        except msgspec.DecodeError as error:
            raise DecodeError(NOT_A_LIST_OF_APPLICATIONS(why=error)) from error

    def _page_of_raw(self, data: bytes) -> Page[Application]:
        body, items = split_list(data)
        meta = body.get("metadata") or {}
        apps = [_decode(item) for item in items]
        return Page(apps, str(meta.get("resourceVersion") or ""), str(meta.get("continue") or ""))

    def event(self, line: bytes) -> WatchEvent[Application]:
        """Parse one watch line; an ERROR line is raised."""
        try:
            try:
                event = _event.decode(line)
            except RecursionError:
                type_, obj = split_event(line)
                event = _Event(str(type_), msgspec.Raw(obj))
            if event.type == "ERROR":
                raise error_from_status(_any.decode(event.object), request=f"watch {APPLICATIONS}")
            if event.type == "BOOKMARK":
                return WatchEvent(EventType.BOOKMARK, _loose.decode(event.object).metadata.resource_version, None)
            app = _decode(bytes(event.object))
            return WatchEvent(EventType(event.type), app.metadata.resource_version, app)
        except (msgspec.DecodeError, ValueError) as error:
            raise DecodeError(NOT_AN_EVENT_OF_AN_APPLICATION(why=error)) from error

    def meta(self, obj: Application) -> Meta:
        """Name, uid and version."""
        return Meta(obj.key, obj.metadata.uid, obj.metadata.resource_version)
