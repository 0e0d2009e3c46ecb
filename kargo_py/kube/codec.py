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
from kargo_py.messages import Shown, message

_SOMETHING_ELSE_ANSWERED = (
    "Something else than a Kubernetes API server answered, a proxy perhaps: correct `server` in the kubeconfig. Once "
    "running it is asked again by itself."
)
NO_JSON = message(
    "the answer is no JSON: {why}: {data!r}",
    do=_SOMETHING_ELSE_ANSWERED,
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_JSON_OBJECT = message(
    "the answer is no JSON object: {data!r}",
    do=_SOMETHING_ELSE_ANSWERED,
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_METADATA = message(
    "the answer is nested too deeply and has no metadata: {data!r}",
    do=_SOMETHING_ELSE_ANSWERED,
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
OTHER_JSON = message(
    "the answer is a JSON {type}, not an object",
    do=_SOMETHING_ELSE_ANSWERED,
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
OTHER_JSON_IN = message(
    "{field} is a JSON {type}, not an object",
    do=_SOMETHING_ELSE_ANSWERED,
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_ITEMS = message(
    "items is a JSON {type}, not a list",
    do=_SOMETHING_ELSE_ANSWERED,
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
UNKNOWN_WATCH_EVENT = message(
    "watch event of unknown type {type!r}",
    do="The watch is given up and all objects of the resource are listed again, by itself. Look at what stands "
    "between kargo-py and the API server if it comes again.",
    shown=Shown.LOG,
)
NO_NAME = message(
    "an object of kind {kind!r} has no metadata.name",
    do="The object is left out; the others are not affected. No API server gives such objects: look at what stands "
    "between.",
    shown=Shown.LOG,
)

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
        raise DecodeError(NO_JSON(why=error, data=data[:200])) from error


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
        raise DecodeError(NO_JSON_OBJECT(data=data[:200]))
    members = _members(data)
    return {str(_decoder.decode(key)): value for key, value in zip(members[::2], members[1::2], strict=False)}


def _decode_object(data: bytes) -> JsonObject:
    """One object; of one that is nested too deeply to be parsed only what names it, so that no model can read it.

    Anybody may create such an object; it must not keep the others from being seen.
    """
    try:
        return _object(_decoder.decode(data))
    except msgspec.DecodeError as error:
        raise DecodeError(NO_JSON(why=error, data=data[:200])) from error
    except RecursionError:
        fields = _fields(data)
        if "metadata" not in fields:
            raise DecodeError(NO_METADATA(data=data[:200])) from None
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
        raise DecodeError(NO_JSON(why=error, data=data[:200])) from error
    except RecursionError:
        body, items = split_list(data)
        return {**body, "items": [_decode_object(item) for item in items]}


def _decode_event(line: bytes) -> JsonObject:
    """A watch line; an object that is nested too deeply is reduced as above."""
    try:
        return _object(_decoder.decode(line))
    except msgspec.DecodeError as error:
        raise DecodeError(NO_JSON(why=error, data=line[:200])) from error
    except RecursionError:
        type_, obj = split_event(line)
        return {"type": type_, "object": _decode_object(obj)}


_NAMES = ("namespace", "name", "uid", "resourceVersion")


def _object(value: Any) -> JsonObject:
    if not isinstance(value, dict):
        raise DecodeError(OTHER_JSON(type=type(value).__name__))
    return value


def _mapping(body: JsonObject, name: str) -> JsonObject:
    value = body.get(name) or {}
    if not isinstance(value, dict):
        raise DecodeError(OTHER_JSON_IN(field=name, type=type(value).__name__))
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
            raise DecodeError(NO_ITEMS(type=type(items).__name__))
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
            raise DecodeError(UNKNOWN_WATCH_EVENT(type=body.get("type"))) from error
        version = str(_mapping(obj, "metadata").get("resourceVersion") or "")
        return WatchEvent(type_, version, None if type_ is EventType.BOOKMARK else obj)

    def meta(self, obj: JsonObject) -> Meta:
        """Name, uid and version; raises DecodeError for an object without a name."""
        meta = _mapping(obj, "metadata")
        name = str(meta.get("name") or "")
        if not name:
            raise DecodeError(NO_NAME(kind=obj.get("kind")))
        key = Key(str(meta.get("namespace") or ""), name)
        return Meta(key, str(meta.get("uid") or ""), str(meta.get("resourceVersion") or ""))


JSON = JsonCodec()
