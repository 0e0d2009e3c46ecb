"""Bodies as objects of a kind: what may be wrong with them before any rule of the kind is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kargo_py.local.apiserver import objectmeta, protobuf
from kargo_py.local.apiserver.bodies import BadJson, BadNumber, Document, Undecodable, decode_json, decode_yaml
from kargo_py.local.apiserver.catalogue import Catalogue
from kargo_py.local.apiserver.failures import Failure, bad_request
from kargo_py.local.apiserver.gotypes import Mistyped, Struct, json_type
from kargo_py.local.apiserver.kinds import DEFINITIONS, Kind
from kargo_py.local.apiserver.metatypes import DELETE_OPTIONS
from kargo_py.local.apiserver.options import SCHEME, TYPE_META
from kargo_py.local.apiserver.wire import JsonObject, Request, copied

_EVERYWHERE: Final = frozenset({"DeleteOptions", "Status", "WatchEvent"})
"""Kinds beside those of objects that the real server knows."""
_SUMMARY: Final = 30


class KindMissing(Undecodable):
    """A custom resource that does not say what it is."""

    def __init__(self, body: bytes, api_version: str) -> None:
        super().__init__(f"Object 'Kind' is missing in '{body.decode(errors='replace')}'")
        self.api_version = api_version


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


def object_of(request: Request, kind: Kind, validation: str, warnings: list[str], catalogue: Catalogue) -> JsonObject:
    """The body as a new object of *kind*. Raises Failure."""
    try:
        found = document(request, kind)
        obj = _typed(found.value, request.body, kind, catalogue)
    except BadNumber as error:
        raise _unhandled(kind, str(error)) from error
    except KindMissing as error:
        if validation == "Ignore":
            api_version = error.api_version or kind.api_version
            raise _unhandled(kind, str(error), {"kind": kind.kind, "apiVersion": api_version}) from error
        raise _unrecognized(kind, error.unrecognized, request.body) from error
    except Undecodable as error:
        raise _unrecognized(kind, error.unrecognized, request.body) from error
    try:
        unknown = decode_fields(obj, kind)
    except Mistyped as error:
        raise _unhandled(kind, str(error), obj) from error
    complaints = [*found.twice, *unknown]
    if kind.custom and complaints and validation == "Strict":
        if not obj["apiVersion"]:
            raise bad_request("Object 'apiVersion' is missing in 'object has no apiVersion field'")
        version = obj["apiVersion"].rpartition("/")[2]
        why = f"strict decoding error: {', '.join(complaints)}"
        raise bad_request(f'{obj["kind"]} in version "{version}" cannot be handled as a {obj["kind"]}: {why}')
    complain(kind, complaints, validation, warnings)
    if kind.custom and obj["apiVersion"] != kind.api_version:
        raise _other_version(obj["apiVersion"], kind)
    warn_of_owners(obj, warnings)
    return obj


def warn_of_owners(obj: JsonObject, warnings: list[str], when: str = "") -> None:
    """Take out of *obj* owners that it names twice."""
    if repeated := objectmeta.repeated_owners(obj["metadata"]):
        warnings.append(
            f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, "
            "and may reject such requests as early as 1.24; please fix your requests; "
            f"duplicate UID(s) observed: {', '.join(repeated)}"
        )


def decode_fields(obj: JsonObject, kind: Kind, *, keep_nulls: bool = False) -> Sequence[str]:
    """Bring *obj* into the kind's form, in place: known fields, right types, defaults; what was not known.

    With *keep_nulls*, those are kept for validation that the schema of a custom kind does not allow.

    Raises:
        Mistyped: a field has the wrong type.
    """
    if not kind.custom:  # a built-in kind reads its metadata itself
        unknown = list(kind.rules.prune(obj))
        kind.rules.default(obj)
    else:
        unknown = list(objectmeta.decode(obj))
        if (obj["apiVersion"], obj["kind"]) == (kind.api_version, kind.kind):  # else the schema is not for it
            unknown += kind.rules.prune(obj)
            kind.rules.default(obj, keep_nulls=keep_nulls)
        unknown.sort()
    return [f'unknown field "{path}"' for path in unknown]


def complain(kind: Kind, complaints: Sequence[str], validation: str, warnings: list[str]) -> None:
    """Do with *complaints* as ``fieldValidation`` asks. Raises Failure if it is strict."""
    if not complaints or validation == "Ignore":
        return
    if validation == "Strict":
        raise _unhandled(kind, f"strict decoding error: {', '.join(complaints)}")
    warnings += complaints


def _typed(value: Any, body: bytes, kind: Kind, catalogue: Catalogue) -> JsonObject:
    if value is not None and not isinstance(value, dict):
        raise BadJson(f"json: cannot unmarshal {json_type(value)} into Go value of type {TYPE_META}")
    given: JsonObject = value or {}
    null_version = given.get("apiVersion", "") is None
    for field in ("apiVersion", "kind"):
        if not isinstance(given.get(field, ""), str):
            if given[field] is not None:
                found = json_type(given[field])
                raise BadJson(f"json: cannot unmarshal {found} into Go struct field .{field} of type string")
            del given[field]
    api_version, name = given.get("apiVersion", ""), given.get("kind", "")
    if kind.custom:
        if not name:
            raise KindMissing(body, api_version)
        if null_version:
            why = ".apiVersion accessor error: <nil> is of the type <nil>, expected string"
            raise bad_request(f'{name} in version "" cannot be handled as a {kind.kind}: {why}')
        if api_version.count("/") > 1:
            raise Undecodable(f"unexpected GroupVersion string: {api_version}")
        given["apiVersion"] = api_version
        return given
    api_version, name = api_version or kind.api_version, name or kind.kind
    if why := unlike(given, api_version, name, kind, catalogue):
        version = api_version.rpartition("/")[2]
        raise bad_request(f'{name} in version "{version}" cannot be handled as a {kind.kind}: {why}')
    if api_version != kind.api_version:
        raise _other_version(api_version, kind)
    given["apiVersion"], given["kind"] = kind.api_version, kind.kind
    return given


def _other_version(api_version: str, kind: Kind) -> Failure:
    return bad_request(
        f"the API version in the data ({api_version}) does not match the expected API version ({kind.api_version})"
    )


def unlike(obj: JsonObject, api_version: str, name: str, kind: Kind, catalogue: Catalogue) -> str:
    """Why *obj*, which says that it is a *name* of *api_version*, cannot become one of a built-in *kind*; "" if it can.

    The real server reads it as what it says first.
    """
    if (api_version, name) == (kind.api_version, kind.kind):
        return ""
    served = [one for one in catalogue.kinds if one.api_version == api_version and not one.custom]
    said = next((one for one in served if one.kind == name), None)
    registered = said is not None or any(name == one.lists_as for one in served) or (served and name in _EVERYWHERE)
    # CustomResourceDefinitions are served by a part of the real server that knows of nothing else.
    if not registered or DEFINITIONS[0] in {served[0].group, kind.group}:
        return f'no kind "{name}" is registered for version "{api_version}" in scheme "{SCHEME}"'
    if said is not None:
        try:
            said.rules.prune(copied(obj))
        except Mistyped as error:
            return str(error)
    if name == kind.kind:
        return ""
    package, version = kind.group.partition(".")[0] or "core", api_version.rpartition("/")[2]
    return f"converting ({version}.{name}) to ({package}.{kind.kind}): unknown conversion"


def _unrecognized(kind: Kind, why: str, body: bytes) -> Failure:
    return bad_request(f"the object provided is unrecognized (must be of type {kind.kind}): {why} ({summary(body)})")


def _unhandled(kind: Kind, why: str, obj: JsonObject | None = None) -> Failure:
    """400; *obj* is what was sent, where it may be of another kind."""
    name, api_version = (kind.kind, kind.version) if obj is None else (obj["kind"], obj["apiVersion"])
    version = api_version.rpartition("/")[2]
    return bad_request(f'{name} in version "{version}" cannot be handled as a {kind.kind}: {why}')


def summary(body: bytes) -> str:
    """The beginning of a body as messages show it: JSON as text, all else in hexadecimal digits."""
    if not body:
        return "<empty>"
    rest = " ..." if len(body) > _SUMMARY else ""
    start = body[:_SUMMARY]
    return (start.decode(errors="replace") if body[:1] == b"{" else start.hex()) + rest
