"""The codec for plain JSON objects, and writing JSON.

Objects are parsed by msgspec into dicts and nothing is validated: an object that a model cannot read fails where it is
used, not in the stream, so it costs no other object anything.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kargo_py.kube.client import EventType, JsonObject, Meta, Page, WatchEvent
from kargo_py.kube.errors import DecodeError, error_from_status
from kargo_py.kube.resources import Key

_decoder = msgspec.json.Decoder()


def _plain(value: Any) -> str:
    """What the encoder does not know: subclasses of str (times and durations that keep their text)."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def encode(value: Any) -> bytes:
    """*value* as compact JSON."""
    return _encoder.encode(value)


def decode(data: bytes) -> Any:
    """Parse JSON; raises DecodeError."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DecodeError(f"the answer is no JSON: {error}: {data[:200]!r}") from error


def _object(value: Any) -> JsonObject:
    if not isinstance(value, dict):
        raise DecodeError(f"the answer is a JSON {type(value).__name__}, not an object")
    return value


def _mapping(body: JsonObject, name: str) -> JsonObject:
    value = body.get(name) or {}
    if not isinstance(value, dict):
        raise DecodeError(f"{name} is a JSON {type(value).__name__}, not an object")
    return value


class JsonCodec:
    """Parses objects into dicts as they come.

    The items of a list get ``apiVersion`` and ``kind`` (a server leaves them out there), so that an object looks the
    same whichever way it was read.
    """

    def object(self, data: bytes) -> JsonObject:
        """Parse one object."""
        return _object(decode(data))

    def page(self, data: bytes) -> Page[JsonObject]:
        """Parse a list."""
        body = _object(decode(data))
        meta = _mapping(body, "metadata")
        items = body.get("items") or []
        if not isinstance(items, list):
            raise DecodeError(f"items is a JSON {type(items).__name__}, not a list")
        kind = str(body.get("kind") or "").removesuffix("List")
        head = {"apiVersion": body["apiVersion"], "kind": kind} if kind and body.get("apiVersion") else {}
        return Page(
            [{**head, **_object(item)} for item in items],
            str(meta.get("resourceVersion") or ""),
            str(meta.get("continue") or ""),
        )

    def event(self, line: bytes) -> WatchEvent[JsonObject]:
        """Parse one watch line; an ERROR line is raised as the error it carries."""
        body = _object(decode(line))
        obj = _object(body.get("object"))
        if body.get("type") == "ERROR":
            raise error_from_status(obj, request="watch")
        try:
            type_ = EventType(body.get("type"))
        except ValueError as error:
            raise DecodeError(f"watch event of unknown type {body.get('type')!r}") from error
        version = str(_mapping(obj, "metadata").get("resourceVersion") or "")
        return WatchEvent(type_, version, None if type_ is EventType.BOOKMARK else obj)

    def meta(self, obj: JsonObject) -> Meta:
        """Name, uid and version; raises DecodeError for an object without a name."""
        meta = _mapping(obj, "metadata")
        namespace, name, uid, version = (
            str(meta.get(field) or "") for field in ("namespace", "name", "uid", "resourceVersion")
        )
        if not name:
            raise DecodeError(f"an object of kind {obj.get('kind')!r} has no metadata.name")
        return Meta(Key(namespace, name), uid, version)


JSON = JsonCodec()
