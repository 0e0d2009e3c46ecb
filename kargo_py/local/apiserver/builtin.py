"""The kinds that are served before any CustomResourceDefinition is: their rules, columns and selectors.

The ``prune`` of a built-in kind reads the whole object, metadata included, into the kind's Go type: unknown fields go,
and a value of the wrong type raises :class:`~kargo_py.local.apiserver.gotypes.Undecodable`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from kargo_py.local.apiserver import coretypes, gojson, names
from kargo_py.local.apiserver.crdtypes import CUSTOM_RESOURCE_DEFINITION
from kargo_py.local.apiserver.failures import Cause, FieldError, bad_request, invalid
from kargo_py.local.apiserver.gotext import Verbatim
from kargo_py.local.apiserver.gotypes import Struct, inline
from kargo_py.local.apiserver.kinds import VERBS, Column, Kind, Rules, View
from kargo_py.local.apiserver.metatypes import OBJECT_META
from kargo_py.local.apiserver.objectmeta import (
    IMMUTABLE,
    KUBERNETES_FINALIZER,
    finalizer_errors,
    too_long,
    unqualified_finalizer_errors,
)
from kargo_py.local.apiserver.table import age
from kargo_py.local.apiserver.wire import JsonObject, encode

DATA_LIMIT: Final = 1024 * 1024
NAME_LABEL: Final = "kubernetes.io/metadata.name"
_JSON_DEPTH: Final = 10_000


def _invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(Cause.INVALID, path, value, detail)


def _required(path: str) -> FieldError:
    return FieldError(Cause.REQUIRED, path)


class TypedRules:
    """Rules of a kind that has a Go type and nothing else to keep."""

    def __init__(self, struct: Struct) -> None:
        """*struct* is the type of whole objects."""
        self.struct = struct

    def prune(self, obj: JsonObject) -> Sequence[str]:
        """Read *obj* into the type. Raises Undecodable."""
        unknown: list[str] = []
        decoded = self.struct.decode(obj, unknown)
        obj.clear()
        obj.update(decoded)
        return unknown

    def default(self, obj: JsonObject) -> None:
        """Nothing by default."""

    def default_applied(self, obj: JsonObject) -> None:
        """The same however it is written."""
        self.default(obj)

    def prepare(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> None:
        """Nothing that a client may not set."""

    def validate(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> Sequence[FieldError]:
        """Nothing beyond the types."""
        return ()


class NamespaceRules(TypedRules):
    """Namespaces: finalizers in ``spec``, the phase, and a label with the name."""

    def default(self, obj: JsonObject) -> None:
        """Label it with its name, once it has one."""
        name = obj["metadata"].get("name")
        if name:
            obj["metadata"].setdefault("labels", {})[NAME_LABEL] = name

    def prepare(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> None:
        """What is held, and the phase, come from the server."""
        self.default(obj)
        if old is None:
            held = obj["spec"].get("finalizers", [])
            if KUBERNETES_FINALIZER not in held:
                obj["spec"]["finalizers"] = [*held, KUBERNETES_FINALIZER]
            obj["status"] = {"phase": "Active"}
            return
        if subresource != "finalize":
            obj["spec"] = old["spec"]
        if subresource != "status":
            obj["status"] = old["status"]

    def validate(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> Sequence[FieldError]:
        """Finalizers have names; the phase fits the deletion."""
        if subresource == "status":
            return list(self._phase_errors(obj))
        indexed = subresource == "finalize"
        return [
            error
            for index, finalizer in enumerate(obj["spec"].get("finalizers", ()))
            for error in _kubernetes_finalizer(finalizer, f"spec.finalizers{f'[{index}]' if indexed else ''}")
        ]

    def _phase_errors(self, obj: JsonObject) -> Iterator[FieldError]:
        deleted = obj["metadata"].get("deletionTimestamp") is not None
        phase, wanted = obj["status"].get("phase", ""), "Terminating" if deleted else "Active"
        if phase != wanted:
            negation = "not " if deleted else ""
            yield _invalid("status.Phase", phase, f"may only be '{wanted}' if `deletionTimestamp` is {negation}empty")


def _kubernetes_finalizer(finalizer: str, path: str) -> Iterator[FieldError]:
    yield from finalizer_errors([finalizer], path)
    yield from unqualified_finalizer_errors(finalizer, path)


def _key_errors(field: str, values: JsonObject) -> Iterator[FieldError]:
    for key in values:
        for complaint in names.data_key(key):
            yield _invalid(f"{field}[{key}]", key, complaint)


def _immutable_errors(obj: JsonObject, old: JsonObject | None, fields: Sequence[str]) -> Iterator[FieldError]:
    if not old or not old.get("immutable"):
        return
    detail = "field is immutable when `immutable` is set"
    if not obj.get("immutable"):
        yield FieldError(Cause.FORBIDDEN, "immutable", detail=detail)
    for field in fields:
        if (obj.get(field) or {}) != (old.get(field) or {}):
            yield FieldError(Cause.FORBIDDEN, field, detail=detail)


def _decoded_size(values: JsonObject) -> int:
    return sum(len(value) // 4 * 3 - value.endswith("=") - value.endswith("==") for value in values.values())


class SecretRules(TypedRules):
    """Secrets: text becomes data, and the type says which keys there must be."""

    def prune(self, obj: JsonObject) -> Sequence[str]:
        """Put ``stringData`` into ``data``, too. Raises Undecodable."""
        unknown = super().prune(obj)
        text = obj.pop("stringData", None)
        if text:
            data = obj.setdefault("data", {})
            for key, value in text.items():
                data[key] = base64.b64encode(value.encode(errors="surrogatepass")).decode()
        return unknown

    def default(self, obj: JsonObject) -> None:
        """The type is Opaque."""
        obj.setdefault("type", "Opaque")

    def validate(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> Sequence[FieldError]:
        """Keys, size, and what the type asks for."""
        data: JsonObject = obj.get("data") or {}
        errors: list[FieldError] = []
        if old is not None and obj.get("type") != old.get("type"):
            errors.append(_invalid("type", obj.get("type", ""), IMMUTABLE))
        errors += _immutable_errors(obj, old, ("data",))
        errors += _key_errors("data", data)
        if _decoded_size(data) > DATA_LIMIT:
            errors.append(too_long("data", DATA_LIMIT))
        errors += self._type_errors(obj, data)
        return errors

    def _type_errors(self, obj: JsonObject, data: JsonObject) -> Iterator[FieldError]:
        kind = obj.get("type", "")
        if kind == "kubernetes.io/service-account-token":
            name = "kubernetes.io/service-account.name"
            if not (obj["metadata"].get("annotations") or {}).get(name):
                yield _required(f"metadata.annotations[{name}]")
        elif kind in _DOCKER:
            yield from self._docker_errors(_DOCKER[kind], data)
        elif kind == "kubernetes.io/basic-auth":
            if "username" not in data and "password" not in data:
                yield _required("data[username]")
                yield _required("data[password]")
        elif kind == "kubernetes.io/ssh-auth":
            if not data.get("ssh-privatekey"):
                yield _required("data[ssh-privatekey]")
        elif kind == "kubernetes.io/tls":
            for key in ("tls.crt", "tls.key"):
                if key not in data:
                    yield _required(f"data[{key}]")

    def _docker_errors(self, key: str, data: JsonObject) -> Iterator[FieldError]:
        if key not in data:
            yield _required(f"data[{key}]")
            return
        wrong = _no_object(base64.b64decode(data[key]))
        if wrong:
            yield _invalid(f"data[{key}]", "<secret contents redacted>", wrong)


_DOCKER: Final = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}


def _no_object(text: bytes) -> str | None:
    wrong = gojson.why_not(text, max_depth=_JSON_DEPTH)
    if wrong is not None:
        return wrong
    start = text.lstrip(b" \t\r\n")[:1]
    if start in {b"{", b"n"}:
        return None
    found = {b"[": "array", b'"': "string", b"t": "bool", b"f": "bool"}.get(start, "number")
    return f"json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"


class ConfigMapRules(TypedRules):
    """ConfigMaps: text and bytes under keys."""

    def validate(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> Sequence[FieldError]:
        """Keys, and the size of all."""
        data: JsonObject = obj.get("data") or {}
        binary: JsonObject = obj.get("binaryData") or {}
        errors = [*_immutable_errors(obj, old, ("data", "binaryData"))]
        for key in data:
            errors += _key_errors("data", {key: None})
            if key in binary:
                errors.append(_invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        errors += _key_errors("binaryData", binary)
        if sum(names.size(value) for value in data.values()) + _decoded_size(binary) > DATA_LIMIT:
            errors.append(too_long("[]", DATA_LIMIT))
        return errors


class ServiceAccountRules(TypedRules):
    """ServiceAccounts: of a Secret only the name is kept."""

    def prepare(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> None:
        """Keep the names of Secrets."""
        if "secrets" in obj:
            obj["secrets"] = [{"name": each["name"]} if "name" in each else {} for each in obj["secrets"]]


class LeaseRules(TypedRules):
    """Leases: numbers that make sense. Coordinated election is off, as by default."""

    def prepare(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> None:
        """Drop what belongs to coordinated election."""
        for field in ("strategy", "preferredHolder"):
            if old is None or field not in old["spec"]:
                obj["spec"].pop(field, None)

    def validate(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> Sequence[FieldError]:
        """Durations are positive."""
        errors: list[FieldError] = []
        duration, transitions = obj["spec"].get("leaseDurationSeconds"), obj["spec"].get("leaseTransitions")
        if duration is not None and duration <= 0:
            errors.append(_invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            errors.append(_invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
        return errors


# Events


class EventRules(TypedRules):
    """Core Events: lenient, unless they have an ``eventTime``."""

    def validate(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> Sequence[FieldError]:
        """What holds for Events of every version."""
        return list(_event_errors(obj, "reportingComponent"))


class NewEventRules(TypedRules):
    """Events of events.k8s.io: the same, and strict."""

    def validate(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> Sequence[FieldError]:
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
    mismatch = _invalid("involvedObject.namespace", involved, "does not match event.namespace")
    if event.get("eventTime") is None:
        if (involved or namespace not in {"", "default"}) and involved != namespace:
            yield mismatch
    else:
        if not involved and namespace not in {"default", "kube-system"}:
            yield mismatch
        yield from _reporter_errors(event, controller_field)
    for complaint in names.subdomain(namespace):
        yield _invalid("namespace", namespace, complaint)


def _reporter_errors(event: JsonObject, controller_field: str) -> Iterator[FieldError]:
    controller = event.get("reportingComponent", "")
    if not controller:
        yield _required(controller_field)
    for complaint in names.qualified(controller):
        yield _invalid(controller_field, controller, complaint)
    for field, limit in (("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)):
        value = event.get(field, "")
        if not value and field != "message":
            yield _required(field)
        if names.size(value) > limit:
            yield _invalid(field, "", f"can have at most {limit} characters")


def _series_errors(event: JsonObject) -> Iterator[FieldError]:
    series = event.get("series")
    if series is None:
        return
    if series.get("count", 0) < 2:
        yield _invalid("series.count", "", "should be at least 2")
    if series.get("lastObservedTime") is None:
        yield _required("series.lastObservedTime")


def _new_event_errors(event: JsonObject) -> Iterator[FieldError]:
    if event.get("eventTime") is None:
        yield _required("eventTime")
    kind = event.get("type", "")
    if kind not in {"Normal", "Warning"}:
        yield _invalid("type", "", f"has invalid value: {kind}")
    for field in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if event.get(field):
            yield _invalid(field, "", "needs to be unset")


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
            yield _invalid(shown, _internal(value, names_of) if names_of and value is not None else value, IMMUTABLE)


_REFERENCE: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_INTERNAL_FIELDS: Final = {
    "involvedObject": _REFERENCE,
    "related": _REFERENCE,
    "source": ("component", "host"),
}


def _internal(value: JsonObject, fields: Sequence[str]) -> Verbatim:
    """A struct of the real server's own, which has no JSON names: Go writes the names of its fields."""
    named = {_GO_NAMES.get(field, field[0].upper() + field[1:]): value.get(field, "") for field in fields}
    return Verbatim(encode(named).decode())


_GO_NAMES: Final = {"uid": "UID", "apiVersion": "APIVersion"}

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


# Questions about access


class AccessReviewRules(TypedRules):
    """SelfSubjectAccessReviews: exactly one question."""

    def validate(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> Sequence[FieldError]:
        """One question, no metadata."""
        spec = obj["spec"]
        resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        errors: list[FieldError] = []
        if resource is not None and other is not None:
            shown = _internal(other, ("path", "verb"))
            detail = "cannot be specified in combination with resourceAttributes"
            errors.append(_invalid("spec.nonResourceAttributes", shown, detail))
        if resource is None and other is None:
            detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            errors.append(_invalid("spec.resourceAttributes", None, detail))
        if any(key != "managedFields" for key in obj["metadata"]):
            errors.append(_invalid("metadata", obj["metadata"], "must be empty"))
        return errors


def allowed(review: JsonObject) -> JsonObject:
    """The answer to a SelfSubjectAccessReview: yes. Raises Failure."""
    errors = _ACCESS_REVIEWS.validate(review, None, "")
    if errors:
        raise invalid("authorization.k8s.io", "", "", errors)
    return {**review, "status": {"allowed": True}}


def everything_allowed(review: JsonObject) -> JsonObject:
    """The answer to a SelfSubjectRulesReview: all. Raises Failure."""
    if not review["spec"].get("namespace"):
        raise bad_request("no namespace on request")
    return {
        "kind": review["kind"],
        "apiVersion": review["apiVersion"],
        "metadata": {},
        "spec": {},
        "status": {
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        },
    }


_ACCESS_REVIEWS: Final = AccessReviewRules(coretypes.SELF_SUBJECT_ACCESS_REVIEW)


# Columns


def _column(name: str, description: str, cell: Callable[[JsonObject, datetime], Any], **more: Any) -> Column:
    return Column(name, "string", "", description=description, cell=cell, **more)


def _described(struct: Struct, field: str) -> str:
    return struct.fields[field].description


_NAME: Final = _column(
    "Name", _described(OBJECT_META, "name"), lambda obj, _: obj["metadata"].get("name", ""), format="name"
)
_AGE: Final = _column(
    "Age",
    _described(OBJECT_META, "creationTimestamp"),
    lambda obj, now: age(obj["metadata"].get("creationTimestamp"), now),
)


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

    def column(name: str, field: str, cell: Callable[[JsonObject, datetime], Any], **more: Any) -> Column:
        return _column(name, _described(coretypes.EVENT, field), lambda obj, now: cell(of(obj), now), **more)

    return [
        column("Last Seen", "lastTimestamp", _last_seen),
        column("Type", "type", lambda event, _: event.get("type", "")),
        column("Reason", "reason", lambda event, _: event.get("reason", "")),
        column("Object", "involvedObject", _event_object),
        column(
            "Subobject", "involvedObject", lambda event, _: event["involvedObject"].get("fieldPath", ""), priority=1
        ),
        column("Source", "source", _event_source, priority=1),
        column("Message", "message", lambda event, _: event.get("message", "").strip()),
        column("First Seen", "firstTimestamp", _first_seen, priority=1),
        column("Count", "count", _event_count, priority=1),
        column("Name", "metadata", lambda event, _: event["metadata"].get("name", ""), priority=1, format="name"),
    ]


def _count_of(*fields: str) -> Callable[[JsonObject, datetime], Any]:
    return lambda obj, _: sum(len(obj.get(field) or ()) for field in fields)


# Kinds


def kinds(definition_rules: Rules) -> Sequence[Kind]:
    """All built-in kinds; *definition_rules* are those of CustomResourceDefinitions."""
    return (*_core(), *_events(), *_others(), _definitions(definition_rules))


def _core() -> Iterator[Kind]:
    yield Kind(
        "", "v1", "configmaps", "configmap", "ConfigMap", ConfigMapRules(coretypes.CONFIG_MAP),
        short_names=("cm",),
        schema=inline(coretypes.CONFIG_MAP),
        struct=coretypes.CONFIG_MAP,
        columns=[
            _NAME,
            _column("Data", _described(coretypes.CONFIG_MAP, "data"), _count_of("data", "binaryData")),
            _AGE,
        ],
        updates_unconditionally=True,
        revalidates_metadata=True,
        qualifies_finalizers=True,
    )  # fmt: skip
    yield Kind(
        "", "v1", "namespaces", "namespace", "Namespace", NamespaceRules(coretypes.NAMESPACE),
        namespaced=False,
        short_names=("ns",),
        has_status=True,
        schema=inline(coretypes.NAMESPACE),
        struct=coretypes.NAMESPACE,
        columns=[
            _NAME,
            _column("Status", "The status of the namespace", lambda obj, _: obj["status"].get("phase", "")),
            _AGE,
        ],
        field_selectors=("status.phase",),
        name_rule=names.dns_label,
        verbs=[verb for verb in VERBS if verb != "deletecollection"],
        subresources=("finalize",),
        updates_unconditionally=True,
        revalidates_metadata=True,
        qualifies_finalizers=True,
    )  # fmt: skip
    yield Kind(
        "", "v1", "secrets", "secret", "Secret", SecretRules(coretypes.SECRET),
        schema=inline(coretypes.SECRET),
        struct=coretypes.SECRET,
        columns=[
            _NAME,
            _column("Type", _described(coretypes.SECRET, "type"), lambda obj, _: obj.get("type", "")),
            _column("Data", _described(coretypes.SECRET, "data"), _count_of("data")),
            _AGE,
        ],
        field_selectors=("type",),
        updates_unconditionally=True,
        revalidates_metadata=True,
        qualifies_finalizers=True,
    )  # fmt: skip
    yield Kind(
        "", "v1", "serviceaccounts", "serviceaccount", "ServiceAccount",
        ServiceAccountRules(coretypes.SERVICE_ACCOUNT),
        short_names=("sa",),
        schema=inline(coretypes.SERVICE_ACCOUNT),
        struct=coretypes.SERVICE_ACCOUNT,
        columns=[
            _NAME,
            _column("Secrets", _described(coretypes.SERVICE_ACCOUNT, "secrets"), _count_of("secrets")),
            _AGE,
        ],
        updates_unconditionally=True,
        revalidates_metadata=True,
        qualifies_finalizers=True,
    )  # fmt: skip


def _events() -> Iterator[Kind]:
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


def _others() -> Iterator[Kind]:
    yield Kind(
        "coordination.k8s.io", "v1", "leases", "lease", "Lease", LeaseRules(coretypes.LEASE),
        schema=inline(coretypes.LEASE),
        struct=coretypes.LEASE,
        columns=[
            _NAME,
            _column("Holder", "Who holds it.", lambda obj, _: obj["spec"].get("holderIdentity", "")),
            _AGE,
        ],
        creates_on_update=True,
    )  # fmt: skip
    yield Kind(
        "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "selfsubjectaccessreview",
        "SelfSubjectAccessReview", _ACCESS_REVIEWS,
        namespaced=False,
        schema=inline(coretypes.SELF_SUBJECT_ACCESS_REVIEW),
        struct=coretypes.SELF_SUBJECT_ACCESS_REVIEW,
        verbs=("create",),
        answer=allowed,
    )  # fmt: skip
    yield Kind(
        "authorization.k8s.io", "v1", "selfsubjectrulesreviews", "selfsubjectrulesreview",
        "SelfSubjectRulesReview", TypedRules(coretypes.SELF_SUBJECT_RULES_REVIEW),
        namespaced=False,
        schema=inline(coretypes.SELF_SUBJECT_RULES_REVIEW),
        struct=coretypes.SELF_SUBJECT_RULES_REVIEW,
        verbs=("create",),
        answer=everything_allowed,
    )  # fmt: skip


def _definitions(rules: Rules) -> Kind:
    return Kind(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", "customresourcedefinition",
        "CustomResourceDefinition", rules,
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        has_status=True,
        schema=inline(CUSTOM_RESOURCE_DEFINITION),
        struct=CUSTOM_RESOURCE_DEFINITION,
        columns=[
            _NAME,
            Column(
                "Created At", "date", "",
                description=_described(OBJECT_META, "creationTimestamp"),
                cell=lambda obj, _: obj["metadata"].get("creationTimestamp"),
            ),
        ],
        counts_generations=True,
    )  # fmt: skip
