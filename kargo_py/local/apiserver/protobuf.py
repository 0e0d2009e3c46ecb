"""Bodies in Kubernetes' protobuf: what kubectl sends where it has a client made for the kind (``kubectl create ns``).

Only reading, and only the kinds and fields that kubectl creates so; it takes JSON for the answer. The numbers of the
fields are those of the ``generated.proto`` files in k8s.io/api and k8s.io/apimachinery.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from kargo_py.local.apiserver.wire import JsonObject

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAGIC: Final = b"k8s\x00"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}


class Malformed(Exception):
    """The body is no such message; the text says why."""


class MalformedObject(Malformed):
    """The message around the object could be read, the object could not."""


class Unsupported(Exception):
    """A kind that is not read in this form."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field by its name in JSON. ``message`` is what it has inside; ``pointer`` tells empty from absent."""

    name: str
    type: str = "string"
    repeated: bool = False
    pointer: bool = False
    message: Message | None = None


Message: TypeAlias = Mapping[int, Field]


def decode(body: bytes) -> JsonObject:
    """The object in *body*. Raises Malformed, MalformedObject, Unsupported."""
    if not body.startswith(MAGIC):
        prefix = " ".join(map(str, MAGIC))
        raise Malformed(f"provided data does not appear to be a protobuf message, expected prefix [{prefix}]")
    if body == MAGIC:
        raise Malformed("empty body")
    envelope = _object(body[len(MAGIC) :], _ENVELOPE)
    type_meta = envelope.get("typeMeta", {})
    key = type_meta.get("apiVersion", ""), type_meta.get("kind", "")
    if key not in _KINDS:
        raise Unsupported("/".join(key))
    try:
        return {"apiVersion": key[0], "kind": key[1], **_object(envelope.get("raw", b""), _KINDS[key])}
    except Malformed as error:
        raise MalformedObject(str(error)) from error


def _object(data: bytes, message: Message) -> JsonObject:
    made: JsonObject = {}
    for number, wire, raw in _entries(data):
        field = message.get(number)
        if field is None:
            continue
        if (wire == _VARINT) != (field.type in {"bool", "int"}):
            raise Malformed(f"proto: wrong wireType = {wire} for field {field.name}")
        value = _value(field, raw)
        if field.type in {"texts", "blobs"}:
            made.setdefault(field.name, {}).update(value)
        elif field.repeated:
            made.setdefault(field.name, []).append(value)
        elif value not in _EMPTY or field.pointer:
            made[field.name] = value
    return made


_EMPTY: Final[tuple[Any, ...]] = ("", b"", 0, None)
"""Go writes these for what is not there."""


def _value(field: Field, raw: Any) -> Any:
    match field.type:
        case "bool":
            return bool(raw)
        case "int":
            return raw - (1 << 64) if raw >> 63 else raw
        case "string":
            return raw.decode(errors="replace")
        case "texts" | "blobs":
            return _entry(raw, blob=field.type == "blobs")
        case "time":
            return _time(raw)
        case "message":
            return _object(raw, field.message or {})
    return raw


def _entry(raw: bytes, *, blob: bool) -> dict[str, str]:
    key, value = b"", b""
    for number, wire, content in _entries(raw):
        if wire != _BYTES:
            raise Malformed(f"proto: wrong wireType = {wire} in a map")
        key, value = (content, value) if number == 1 else (key, content)
    text = base64.b64encode(value).decode() if blob else value.decode(errors="replace")
    return {key.decode(errors="replace"): text}


def _time(raw: bytes) -> str | None:
    seconds = next((content for number, wire, content in _entries(raw) if (number, wire) == (1, _VARINT)), 0)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}" if seconds else None
    except (OverflowError, ValueError, OSError) as error:
        raise Malformed("proto: a time that is none") from error


def _entries(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and content of each field in *data*."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        content: Any
        if wire == _VARINT:
            content, at = _varint(data, at)
        elif wire == _BYTES:
            size, at = _varint(data, at)
            content, at = data[at : at + size], at + size
        elif wire in _SIZES:
            content, at = data[at : at + _SIZES[wire]], at + _SIZES[wire]
        else:
            raise Malformed(f"proto: illegal wireType {wire}")
        if at > len(data):
            raise Malformed("unexpected EOF")
        yield number, wire, content


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Malformed("unexpected EOF")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
    raise Malformed("proto: integer overflow")


def _texts(**numbers: int) -> Message:
    """A message of which all fields are texts."""
    return {number: Field(name) for name, number in numbers.items()}


_OWNER: Final[Message] = {
    1: Field("kind"),
    3: Field("name"),
    4: Field("uid"),
    5: Field("apiVersion"),
    6: Field("controller", "bool", pointer=True),
    7: Field("blockOwnerDeletion", "bool", pointer=True),
}
_METADATA: Final = Field(
    "metadata",
    "message",
    message={
        **_texts(name=1, generateName=2, namespace=3, uid=5, resourceVersion=6),
        7: Field("generation", "int"),
        8: Field("creationTimestamp", "time"),
        11: Field("labels", "texts"),
        12: Field("annotations", "texts"),
        13: Field("ownerReferences", "message", repeated=True, message=_OWNER),
        14: Field("finalizers", repeated=True),
    },
)
_REFERENCE: Final = _texts(kind=1, namespace=2, name=3, uid=4, apiVersion=5, resourceVersion=6, fieldPath=7)
_RESOURCE: Final = _texts(namespace=1, verb=2, group=3, version=4, resource=5, subresource=6, name=7)
_ACCESS: Final[Message] = {
    1: Field("resourceAttributes", "message", message=_RESOURCE),
    2: Field("nonResourceAttributes", "message", message=_texts(path=1, verb=2)),
}

_ENVELOPE: Final[Message] = {
    1: Field("typeMeta", "message", message=_texts(apiVersion=1, kind=2)),
    2: Field("raw", "bytes"),
}
_KINDS: Final[Mapping[tuple[str, str], Message]] = {
    ("v1", "Namespace"): {
        1: _METADATA,
        2: Field("spec", "message", message={1: Field("finalizers", repeated=True)}),
    },
    ("v1", "ConfigMap"): {
        1: _METADATA,
        2: Field("data", "texts"),
        3: Field("binaryData", "blobs"),
        4: Field("immutable", "bool", pointer=True),
    },
    ("v1", "Secret"): {
        1: _METADATA,
        2: Field("data", "blobs"),
        3: Field("type"),
        4: Field("stringData", "texts"),
        5: Field("immutable", "bool", pointer=True),
    },
    ("v1", "ServiceAccount"): {
        1: _METADATA,
        2: Field("secrets", "message", repeated=True, message=_REFERENCE),
        3: Field("imagePullSecrets", "message", repeated=True, message=_texts(name=1)),
        4: Field("automountServiceAccountToken", "bool", pointer=True),
    },
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): {
        1: _METADATA,
        2: Field("spec", "message", message=_ACCESS),
    },
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"): {
        1: _METADATA,
        2: Field("spec", "message", message=_texts(namespace=1)),
    },
}
