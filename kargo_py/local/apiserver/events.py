"""Events: one kind of object in two groups, lenient as core Events and strict as those of events.k8s.io."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from kargo_py.local.apiserver import coretypes, names
from kargo_py.local.apiserver.failures import FieldError
from kargo_py.local.apiserver.gotypes import inline
from kargo_py.local.apiserver.kinds import Column, Kind, View
from kargo_py.local.apiserver.objectmeta import IMMUTABLE
from kargo_py.local.apiserver.table import age
from kargo_py.local.apiserver.typedrules import TypedRules, column, described, internal
from kargo_py.local.apiserver.wire import JsonObject


class EventRules(TypedRules):
    """Core Events: lenient, unless they have an ``eventTime``."""

    def validate(
        self, obj: JsonObject, old: JsonObject | None, subresource: str, found: Sequence[FieldError] = ()
    ) -> Sequence[FieldError]:
        """What holds for Events of every version."""
        return list(_event_errors(obj, "reportingComponent"))


class NewEventRules(TypedRules):
    """Events of events.k8s.io: the same, and strict."""

    def validate(
        self, obj: JsonObject, old: JsonObject | None, subresource: str, found: Sequence[FieldError] = ()
    ) -> Sequence[FieldError]:
        """What holds for every Event, and what holds for new ones. Fields have the names of core Events."""
        event = as_core_event(obj)
        errors = list(_event_errors(event, "reportingController"))
        if old is None:
            errors += _series_errors(event)
            errors += _new_event_errors(event)
            return errors
        before = as_core_event(old)
        if event.get("series") != before.get("series"):
            errors += _series_errors(event)
        return [*errors, *_changed_event_errors(event, before)]


def _event_errors(event: JsonObject, controller_field: str) -> Iterator[FieldError]:
    namespace = event["metadata"].get("namespace", "")
    involved = event["involvedObject"].get("namespace", "")
    mismatch = FieldError.invalid("involvedObject.namespace", involved, "does not match event.namespace")
    if event.get("eventTime") is None:
        if (involved or namespace not in {"", "default"}) and involved != namespace:
            yield mismatch
    else:
        if not involved and namespace not in {"default", "kube-system"}:
            yield mismatch
        yield from _reporter_errors(event, controller_field)
    for complaint in names.subdomain(namespace):
        yield FieldError.invalid("namespace", namespace, complaint)


def _reporter_errors(event: JsonObject, controller_field: str) -> Iterator[FieldError]:
    controller = event.get("reportingComponent", "")
    if not controller:
        yield FieldError.required(controller_field)
    for complaint in names.qualified(controller):
        yield FieldError.invalid(controller_field, controller, complaint)
    for field, limit in (("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)):
        value = event.get(field, "")
        if not value and field != "message":
            yield FieldError.required(field)
        if names.size(value) > limit:
            yield FieldError.invalid(field, "", f"can have at most {limit} characters")


def _series_errors(event: JsonObject) -> Iterator[FieldError]:
    series = event.get("series")
    if series is None:
        return
    if series.get("count", 0) < 2:
        yield FieldError.invalid("series.count", "", "should be at least 2")
    if series.get("lastObservedTime") is None:
        yield FieldError.required("series.lastObservedTime")


def _new_event_errors(event: JsonObject) -> Iterator[FieldError]:
    if event.get("eventTime") is None:
        yield FieldError.required("eventTime")
    kind = event.get("type", "")
    if kind not in {"Normal", "Warning"}:
        yield FieldError.invalid("type", "", f"has invalid value: {kind}")
    for field in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if event.get(field):
            yield FieldError.invalid(field, "", "needs to be unset")


_FIXED_IN_EVENTS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("involvedObject", "involvedObject", {}),
    ("reason", "reason", ""),
    ("message", "message", ""),
    ("source", "source", {}),
    ("firstTimestamp", "firstTimestamp", None),
    ("lastTimestamp", "lastTimestamp", None),
    ("count", "count", 0),
    ("reason", "reason", ""),
    ("type", "type", ""),
    ("eventTime", "eventTime", None),
    ("action", "action", ""),
    ("related", "related", None),
    ("reportingComponent", "reportingController", ""),
    ("reportingInstance", "reportingInstance", ""),
)


def _changed_event_errors(event: JsonObject, before: JsonObject) -> Iterator[FieldError]:
    for field, shown, absent in _FIXED_IN_EVENTS:
        value = event.get(field, absent)
        if value != before.get(field, absent):
            names_of = _INTERNAL_FIELDS.get(field)
            yield FieldError.invalid(
                shown, internal(value, names_of) if names_of and value is not None else value, IMMUTABLE
            )


_REFERENCE: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_INTERNAL_FIELDS: Final = {
    "involvedObject": _REFERENCE,
    "related": _REFERENCE,
    "source": ("component", "host"),
}


_EVENT_FIELDS: Final = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_CORE_FIELDS: Final = {core: new for new, core in _EVENT_FIELDS.items()}


def as_core_event(event: JsonObject) -> JsonObject:
    """An Event of events.k8s.io as a core Event."""
    renamed = {_EVENT_FIELDS.get(field, field): value for field, value in event.items()}
    core: JsonObject = coretypes.EVENT.decode({**renamed, "apiVersion": "v1"}, [])
    return core


def as_new_event(event: JsonObject) -> JsonObject:
    """A core Event as one of events.k8s.io."""
    renamed = {_CORE_FIELDS.get(field, field): value for field, value in event.items()}
    new: JsonObject = coretypes.NEW_EVENT.decode({**renamed, "apiVersion": "events.k8s.io/v1"}, [])
    return new


# Columns


def _last_seen(event: JsonObject, now: datetime) -> str:
    if event.get("series"):
        return age(event["series"].get("lastObservedTime"), now)
    return age(event.get("lastTimestamp"), now) if event.get("lastTimestamp") else _first_seen(event, now)


def _first_seen(event: JsonObject, now: datetime) -> str:
    return age(event.get("firstTimestamp") or event.get("eventTime"), now)


def _event_object(event: JsonObject, _: datetime) -> str:
    involved = event["involvedObject"]
    kind = involved.get("kind", "").lower()
    return f"{kind}/{involved['name']}" if involved.get("name") else kind


def _event_source(event: JsonObject, _: datetime) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent", "")
    instance = source.get("host") or event.get("reportingInstance", "")
    return f"{component}, {instance}" if instance else component


def _event_count(event: JsonObject, _: datetime) -> int:
    count: int = event["series"].get("count", 0) if event.get("series") else event.get("count") or 1
    return count


def _event_columns(of: Callable[[JsonObject], JsonObject]) -> list[Column]:
    """The columns of Events; *of* gives the core Event that an object is."""

    def of_core(name: str, field: str, cell: Callable[[JsonObject, datetime], Any], **more: Any) -> Column:
        return column(name, described(coretypes.EVENT, field), lambda obj, now: cell(of(obj), now), **more)

    return [
        of_core("Last Seen", "lastTimestamp", _last_seen),
        of_core("Type", "type", lambda event, _: event.get("type", "")),
        of_core("Reason", "reason", lambda event, _: event.get("reason", "")),
        of_core("Object", "involvedObject", _event_object),
        of_core(
            "Subobject", "involvedObject", lambda event, _: event["involvedObject"].get("fieldPath", ""), priority=1
        ),
        of_core("Source", "source", _event_source, priority=1),
        of_core("Message", "message", lambda event, _: event.get("message", "").strip()),
        of_core("First Seen", "firstTimestamp", _first_seen, priority=1),
        of_core("Count", "count", _event_count, priority=1),
        of_core("Name", "metadata", lambda event, _: event["metadata"].get("name", ""), priority=1, format="name"),
    ]


# Kinds


def kinds() -> Iterator[Kind]:
    """Both."""
    yield Kind(
        "", "v1", "events", "event", "Event", EventRules(coretypes.EVENT),
        short_names=("ev",),
        schema=inline(coretypes.EVENT),
        struct=coretypes.EVENT,
        columns=_event_columns(lambda event: event),
        field_selectors=(
            *(f"involvedObject.{field}" for field in _REFERENCE), "reason", "reportingComponent", "source", "type",
        ),
        field_readers={
            "source": lambda event: (
                (event.get("source") or {}).get("component") or event.get("reportingComponent", "")
            )
        },
        name_rule=names.path_segment,
        creates_on_update=True,
        updates_unconditionally=True,
    )  # fmt: skip
    yield Kind(
        "events.k8s.io", "v1", "events", "event", "Event", NewEventRules(coretypes.NEW_EVENT),
        short_names=("ev",),
        schema=inline(coretypes.NEW_EVENT),
        struct=coretypes.NEW_EVENT,
        columns=_event_columns(as_core_event),
        field_selectors=(*(f"regarding.{field}" for field in _REFERENCE), "reason", "reportingController", "type"),
        qualifies_finalizers=True,
        creates_on_update=True,
        updates_unconditionally=True,
        view_of=View("", "v1", "events", as_new_event, as_core_event),
    )  # fmt: skip
