"""The codec for plain JSON objects, and writing JSON.

Objects are parsed by msgspec into dicts and nothing is validated: an object that a model cannot read fails where it is
used, not in the stream, so it costs no other object anything.
"""

from __future__ import annotations

import re
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


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]')


def _members(data: bytes) -> list[bytes]:
    """The members of a JSON array, or the keys and values of an object in turn, as they stand; no recursion."""
    found = []
    depth = 0
    start = 0
    for token in _TOKEN.finditer(data):
        match token.group():
            case b"{" | b"[":
                depth += 1
                if depth == 1:
                    start = token.end()
            case b"}" | b"]":
                depth -= 1
                if depth == 0 and data[start : token.start()].strip():
                    found.append(data[start : token.start()].strip())
            case b"," | b":" if depth == 1:
                found.append(data[start : token.start()].strip())
                start = token.end()
            case _:
                pass
    return found


def _fields(data: bytes) -> dict[str, bytes]:
    """The values of a JSON object by key, as they stand."""
    if data.lstrip()[:1] != b"{":
        raise DecodeError(f"the answer is no JSON object: {data[:200]!r}")
    members = _members(data)
    return {str(_decoder.decode(key)): value for key, value in zip(members[::2], members[1::2], strict=False)}


def _decode_object(data: bytes) -> JsonObject:
    """One object; of one that is nested too deeply to be parsed only what names it, so that no model can read it.

    Anybody may create such an object; it must not keep the others from being seen.
    """
    try:
        return _object(_decoder.decode(data))
    except msgspec.DecodeError as error:
        raise DecodeError(f"the answer is no JSON: {error}: {data[:200]!r}") from error
    except RecursionError:
        fields = _fields(data)
        if "metadata" not in fields:
            raise DecodeError(f"the answer is nested too deeply and has no metadata: {data[:200]!r}") from None
        named = _fields(fields["metadata"])
        metadata = {name: _decoder.decode(named[name]) for name in _NAMES if name in named}
        head: JsonObject = {n: _decoder.decode(fields[n]) for n in ("apiVersion", "kind") if n in fields}
        return {**head, "metadata": metadata}


def split_list(data: bytes) -> tuple[JsonObject, list[bytes]]:
    """A list without its items, and the items as they stand, however deeply they are nested; raises DecodeError."""
    fields = _fields(data)
    items = _members(fields.pop("items", b"[]"))
    return {name: decode(value) for name, value in fields.items()}, items


def split_event(line: bytes) -> tuple[Any, bytes]:
    """The type and the object of a watch line, the latter as it stands; raises DecodeError."""
    fields = _fields(line)
    return decode(fields.get("type", b"null")), fields.get("object", b"null")


def _decode_list(data: bytes) -> JsonObject:
    """A list; items that are nested too deeply are reduced as above."""
    try:
        return _object(_decoder.decode(data))
    except msgspec.DecodeError as error:
        raise DecodeError(f"the answer is no JSON: {error}: {data[:200]!r}") from error
    except RecursionError:
        body, items = split_list(data)
        return {**body, "items": [_decode_object(item) for item in items]}


def _decode_event(line: bytes) -> JsonObject:
    """A watch line; an object that is nested too deeply is reduced as above."""
    try:
        return _object(_decoder.decode(line))
    except msgspec.DecodeError as error:
        raise DecodeError(f"the answer is no JSON: {error}: {line[:200]!r}") from error
    except RecursionError:
        type_, obj = split_event(line)
        return {"type": type_, "object": _decode_object(obj)}


_NAMES = ("namespace", "name", "uid", "resourceVersion")


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
        return _decode_object(data)

    def page(self, data: bytes) -> Page[JsonObject]:
        """Parse a list."""
        body = _decode_list(data)
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
        body = _decode_event(line)
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
