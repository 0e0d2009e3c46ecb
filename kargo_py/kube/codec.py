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
    except msgspec.DecodeError as error:
        raise DecodeError(f"the answer is no JSON: {error}: {data[:200]!r}") from error


def _object(value: Any) -> JsonObject:
    if not isinstance(value, dict):
        raise DecodeError(f"the answer is a JSON {type(value).__name__}, not an object")
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
        meta = body.get("metadata") or {}
        items = body.get("items") or []
        kind = str(body.get("kind") or "").removesuffix("List")
        head = {"apiVersion": body["apiVersion"], "kind": kind} if kind and body.get("apiVersion") else {}
        return Page(
            [item if item.get("kind") else {**head, **item} for item in items],
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
        version = str((obj.get("metadata") or {}).get("resourceVersion") or "")
        return WatchEvent(type_, version, None if type_ is EventType.BOOKMARK else obj)

    def meta(self, obj: JsonObject) -> Meta:
        """Name, uid and version."""
        meta = obj["metadata"]
        return Meta(Key(meta.get("namespace", ""), meta["name"]), meta.get("uid", ""), meta.get("resourceVersion", ""))


JSON = JsonCodec()
