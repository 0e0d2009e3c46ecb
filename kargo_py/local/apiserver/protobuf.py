"""Protobuf bodies, as ``kubectl create`` sends them for built-in kinds, read into JSON values.

Only requests: whoever asks for protobuf takes JSON, too. Field numbers are those of the ``generated.proto`` files in
k8s.io/api and k8s.io/apimachinery.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from kargo_py.local.apiserver import coretypes, metatypes
from kargo_py.local.apiserver.gotypes import Bool, Bytes, Field, GoType, Int, List, Map, Struct
from kargo_py.local.apiserver.wire import JsonObject

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"
_CUT: Final = "unexpected EOF"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VARINT_BYTES: Final = 10


class MalformedEnvelope(ValueError):
    """The body is no protobuf of Kubernetes."""


class MalformedMessage(ValueError):
    """The object within the body cannot be read."""


def supports(struct: Struct | None) -> bool:
    """Whether the type's field numbers are known."""
    return struct is not None and struct.definition in _NUMBERED


def decode(body: bytes, struct: Struct, *, api_version: str, kind: str) -> JsonObject:
    """The object in *body*; if it is of another kind than this, its ``apiVersion`` and ``kind`` alone.

    Raises:
        MalformedEnvelope: *body* is not as it begins.
        MalformedMessage: the object is cut, or no message.
    """
    if not body:
        raise MalformedEnvelope("empty data")
    if not body.startswith(MAGIC):
        raise MalformedEnvelope(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    if len(body) == len(MAGIC):
        raise MalformedEnvelope("empty body")
    try:
        envelope = dict(_fields(body[len(MAGIC) :]))
        typed = {number: _text(value) for number, value in _fields(_bytes(envelope.get(1, b"")))}
    except MalformedMessage as wrong:
        raise MalformedEnvelope(str(wrong)) from None
    found: JsonObject = {"apiVersion": typed.get(1) or api_version, "kind": typed.get(2) or kind}
    if (found["apiVersion"], found["kind"]) == (api_version, kind):
        found |= _message(_bytes(envelope.get(2, b"")), struct)
    return found


# The wire


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_VARINT_BYTES):
        if at + index >= len(data):
            raise MalformedMessage(_CUT)
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + index + 1
    raise MalformedMessage("proto: integer overflow")


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise MalformedMessage(f"proto: illegal tag {number} (wire type {wire})")
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in {1, 5}:
            size = 8 if wire == 1 else 4
        else:
            raise MalformedMessage(f"proto: illegal wireType {wire}")
        if at + size > len(data):
            raise MalformedMessage(_CUT)
        yield number, data[at : at + size]
        at += size


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise MalformedMessage("proto: wrong wireType = 0")
    return value


def _text(value: int | bytes) -> str:
    return _bytes(value).decode(errors="replace")


def _signed(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise MalformedMessage("proto: wrong wireType = 2")
    return value - (1 << 64) if value >= 1 << 63 else value


# Types


def _message(data: bytes, struct: Struct) -> JsonObject:
    numbered = _NUMBERED.get(struct.definition, {})
    found: JsonObject = {}
    for number, value in _fields(data):
        field = numbered.get(number)
        if field is not None:
            _put(found, field, value)
    return found


def _put(found: JsonObject, field: Field, value: int | bytes) -> None:
    type_ = field.type
    if isinstance(type_, List):
        found.setdefault(field.name, []).append(_value(type_.item, value))
    elif isinstance(type_, Map):
        entry = dict(_fields(_bytes(value)))
        key = _text(entry.get(1, b""))
        found.setdefault(field.name, {})[key] = _value(type_.item, entry.get(2, b""))
    else:
        found[field.name] = _value(type_, value)


def _value(type_: GoType, value: int | bytes) -> Any:
    if type_ in {metatypes.TIME, metatypes.MICRO_TIME}:
        return _moment(_bytes(value), micro=type_ is metatypes.MICRO_TIME)
    if type_ is metatypes.FIELDS_V1:
        return _json(_bytes(value))
    if isinstance(type_, Struct):
        return _message(_bytes(value), type_)
    if isinstance(type_, Bool):
        return _signed(value) != 0
    if isinstance(type_, Int):
        return _signed(value)
    if isinstance(type_, Bytes):
        return base64.b64encode(_bytes(value)).decode()
    return _text(value)


def _moment(data: bytes, *, micro: bool) -> str | None:
    parts = {number: _signed(value) for number, value in _fields(data)}
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not seconds and not nanos:
        return None
    try:
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        raise MalformedMessage("time is out of range") from None
    text = moment.isoformat(timespec="microseconds" if micro else "seconds")
    return text.replace("+00:00", "Z")


def _json(data: bytes) -> Any:
    raw = dict(_fields(data)).get(1, b"")
    try:
        return msgspec.json.decode(_bytes(raw) or b"{}")
    except msgspec.DecodeError as wrong:
        raise MalformedMessage(str(wrong)) from None


# Field numbers: the fields of each type in order from 1, "-" for a number that is not in use.

_ORDER: Final = {
    metatypes.OBJECT_META: "name generateName namespace selfLink uid resourceVersion generation creationTimestamp "
    "deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences finalizers - - managedFields",
    metatypes.OWNER_REFERENCE: "kind - name uid apiVersion controller blockOwnerDeletion",
    metatypes.MANAGED_FIELDS_ENTRY: "manager operation apiVersion time - fieldsType fieldsV1 subresource",
    metatypes.DELETE_OPTIONS: "gracePeriodSeconds preconditions orphanDependents propagationPolicy dryRun "
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    metatypes.PRECONDITIONS: "uid resourceVersion",
    coretypes.NAMESPACE: "metadata spec status",
    coretypes.NAMESPACE_CONDITION: "type status - lastTransitionTime reason message",
    coretypes.SECRET: "metadata data type stringData immutable",
    coretypes.CONFIG_MAP: "metadata data binaryData immutable",
    coretypes.EVENT: "metadata involvedObject reason message source firstTimestamp lastTimestamp count type eventTime "
    "series action related reportingComponent reportingInstance",
    coretypes.OBJECT_REFERENCE: "kind namespace name uid apiVersion resourceVersion fieldPath",
    coretypes.EVENT_SOURCE: "component host",
    coretypes.NEW_EVENT: "metadata eventTime series reportingController reportingInstance action reason regarding "
    "related note type deprecatedSource deprecatedFirstTimestamp deprecatedLastTimestamp deprecatedCount",
    coretypes.SERVICE_ACCOUNT: "metadata secrets imagePullSecrets automountServiceAccountToken",
    coretypes.LEASE: "metadata spec",
    coretypes.SELF_SUBJECT_ACCESS_REVIEW: "metadata spec status",
    coretypes.SELF_SUBJECT_RULES_REVIEW: "metadata spec status",
}
_NESTED: Final = {
    "NamespaceSpec": "finalizers",
    "NamespaceStatus": "phase conditions",
    "EventSeries": "count lastObservedTime",
    "LocalObjectReference": "name",
    "LeaseSpec": "holderIdentity leaseDurationSeconds acquireTime renewTime leaseTransitions strategy preferredHolder",
    "SelfSubjectAccessReviewSpec": "resourceAttributes nonResourceAttributes",
    "ResourceAttributes": "namespace verb group version resource subresource name fieldSelector labelSelector",
    "NonResourceAttributes": "path verb",
    "FieldSelectorAttributes": "rawSelector requirements",
    "LabelSelectorAttributes": "rawSelector requirements",
    "FieldSelectorRequirement": "key operator values",
    "LabelSelectorRequirement": "key operator values",
    "SelfSubjectRulesReviewSpec": "namespace",
}


def _numbered() -> dict[str, dict[int, Field]]:
    found: dict[str, dict[int, Field]] = {}

    def number(struct: Struct, order: str) -> None:
        if struct.definition in found:
            return
        listed = enumerate(order.split(), start=1)
        found[struct.definition] = {at: struct.fields[name] for at, name in listed if name != "-"}
        for field in struct.fields.values():
            inner = field.type.item if isinstance(field.type, (List, Map)) else field.type
            if isinstance(inner, Struct) and inner.name in _NESTED:
                number(inner, _NESTED[inner.name])

    for struct, order in _ORDER.items():
        number(struct, order)
    return found


_NUMBERED: Final = _numbered()
