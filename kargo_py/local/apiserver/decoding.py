"""Bodies as objects of a kind: what may be wrong with them before any rule of the kind is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kargo_py.local.apiserver import objectmeta, protobuf
from kargo_py.local.apiserver.bodies import BadJson, BadNumber, Document, Undecodable, decode_json, decode_yaml
from kargo_py.local.apiserver.failures import Failure, bad_request
from kargo_py.local.apiserver.gotypes import Struct, Undecodable as Mistyped
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.metatypes import DELETE_OPTIONS
from kargo_py.local.apiserver.options import SCHEME, TYPE_META
from kargo_py.local.apiserver.wire import JsonObject, Request

_SUMMARY: int = 30


def media_type(request: Request) -> str:
    """The content type without parameters; JSON if there is none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def document(request: Request, kind: Kind | None = None) -> Document:
    """The body of a create or an update of *kind*, or of a deletion. Raises Failure, Undecodable."""
    media = media_type(request)
    if media in {"", "application/json"}:
        return decode_json(request.body)
    if media == "application/yaml":
        return decode_yaml(request.body)
    struct = DELETE_OPTIONS if kind is None else kind.struct
    if media == protobuf.MEDIA_TYPE and struct is not None and protobuf.supports(struct):
        return Document(_protobuf(request.body, struct, kind))
    accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    raise unsupported_media_type(accepted)


def _protobuf(body: bytes, struct: Struct, kind: Kind | None) -> JsonObject:
    if kind is None:
        try:
            return protobuf.decode(body, struct, api_version="v1", kind=struct.name)
        except ValueError as error:
            raise Undecodable(str(error)) from error
    try:
        return protobuf.decode(body, struct, api_version=kind.api_version, kind=kind.kind)
    except protobuf.MalformedEnvelope as error:
        why = f"the object provided is unrecognized (must be of type {kind.kind}): {error} ({summary(body)})"
        raise bad_request(why) from error
    except protobuf.MalformedMessage as error:
        raise _unhandled(kind, str(error)) from error


def unsupported_media_type(accepted: str) -> Failure:
    """415."""
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return Failure(415, "UnsupportedMediaType", message)


def object_of(request: Request, kind: Kind, validation: str, warnings: list[str]) -> JsonObject:
    """The body as a new object of *kind*. Raises Failure."""
    try:
        found = document(request, kind)
        obj = _typed(found.value, request.body, kind)
    except BadNumber as error:
        raise _unhandled(kind, str(error)) from error
    except Undecodable as error:
        raise _unrecognized(kind, error.unrecognized, request.body) from error
    try:
        unknown = decode_fields(obj, kind)
    except Mistyped as error:
        raise _unhandled(kind, str(error)) from error
    complain(kind, [*found.twice, *unknown], validation, warnings)
    return obj


def decode_fields(obj: JsonObject, kind: Kind, *, applied: bool = False) -> Sequence[str]:
    """Bring *obj* into the kind's form, in place: known fields, right types, defaults; what was not known.

    *applied*: it comes from a server-side apply.

    Raises:
        Undecodable of :mod:`~kargo_py.local.apiserver.gotypes`: a field has the wrong type.
    """
    unknown = list(objectmeta.decode(obj)) if kind.custom else []  # a built-in kind reads its metadata itself
    unknown += kind.rules.prune(obj)
    if applied:
        kind.rules.default_applied(obj)
    else:
        kind.rules.default(obj)
    if kind.custom:
        unknown.sort()
    return [f'unknown field "{path}"' for path in unknown]


def complain(kind: Kind, complaints: Sequence[str], validation: str, warnings: list[str]) -> None:
    """Do with *complaints* as ``fieldValidation`` asks. Raises Failure if it is strict."""
    if not complaints or validation == "Ignore":
        return
    if validation == "Strict":
        raise _unhandled(kind, f"strict decoding error: {', '.join(complaints)}")
    warnings += complaints


def _typed(value: Any, body: bytes, kind: Kind) -> JsonObject:
    if value is None and not kind.custom:
        value = {}
    if value is not None and not isinstance(value, dict):
        name = {bool: "bool", str: "string", list: "array"}.get(type(value), "number")
        raise BadJson(f"json: cannot unmarshal {name} into Go value of type {TYPE_META}")
    given = value or {}
    for field in ("apiVersion", "kind"):
        if not isinstance(given.get(field, ""), str):
            name = {bool: "bool", list: "array", dict: "object", type(None): "null"}.get(type(given[field]), "number")
            if given[field] is not None:
                raise BadJson(f"json: cannot unmarshal {name} into Go struct field .{field} of type string")
            del given[field]
    api_version, name = given.get("apiVersion", ""), given.get("kind", "")
    if kind.custom:
        if not name:
            raise Undecodable(f"Object 'Kind' is missing in '{body.decode(errors='replace')}'")
        if api_version != kind.api_version:
            raise bad_request(
                f"the API version in the data ({api_version}) does not match "
                f"the expected API version ({kind.api_version})"
            )
        return given
    _check_type(api_version or kind.api_version, name or kind.kind, kind)
    given["apiVersion"], given["kind"] = kind.api_version, kind.kind
    return given


def _check_type(api_version: str, name: str, kind: Kind) -> None:
    if (api_version, name) == (kind.api_version, kind.kind):
        return
    version = api_version.rpartition("/")[2]
    what = f'{name} in version "{version}" cannot be handled as a {kind.kind}: '
    if api_version == kind.api_version:
        package = kind.group.partition(".")[0] or "core"
        raise bad_request(f"{what}converting ({version}.{name}) to ({package}.{kind.kind}): unknown conversion")
    raise bad_request(f'{what}no kind "{name}" is registered for version "{api_version}" in scheme "{SCHEME}"')


def _unrecognized(kind: Kind, why: str, body: bytes) -> Failure:
    return bad_request(f"the object provided is unrecognized (must be of type {kind.kind}): {why} ({summary(body)})")


def _unhandled(kind: Kind, why: str) -> Failure:
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}')


def summary(body: bytes) -> str:
    """The beginning of a body as messages show it: JSON as text, all else in hexadecimal digits."""
    if not body:
        return "<empty>"
    rest = " ..." if len(body) > _SUMMARY else ""
    start = body[:_SUMMARY]
    return (start.decode(errors="replace") if body[:1] == b"{" else start.hex()) + rest
