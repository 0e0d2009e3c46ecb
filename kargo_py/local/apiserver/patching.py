"""The kinds of patch by their content types, and what is wrong with what they make of an object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from kargo_py.local.apiserver.bodies import BadJson, Document, Undecodable, decode_json, decode_yaml
from kargo_py.local.apiserver.decoding import decode_fields, media_type, unsupported_media_type
from kargo_py.local.apiserver.failures import Cause, Failure, FieldError, bad_request
from kargo_py.local.apiserver.gotypes import Undecodable as Mistyped
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.options import SCHEME, WriteOptions
from kargo_py.local.apiserver.patches import json_patch, merge_patch
from kargo_py.local.apiserver.strategic import strategic_merge
from kargo_py.local.apiserver.wire import JsonObject, Request
from kargo_py.local.apiserver.writing import Target, Writer, Written

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
_CUSTOM: Final = (JSON_PATCH, MERGE_PATCH, APPLY)
_BUILT_IN: Final = (*_CUSTOM, STRATEGIC)


def check_type(request: Request, kind: Kind) -> str:
    """The content type of a patch. Raises Failure 415."""
    media = media_type(request)
    if media in (_CUSTOM if kind.custom else _BUILT_IN):
        return media
    if kind.custom:
        raise unsupported_media_type(", ".join(_CUSTOM))
    raise Failure(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def patch(writer: Writer, target: Target, request: Request, options: WriteOptions, warnings: list[str]) -> Written:
    """Carry out the patch in *request*. Raises Failure."""
    media = media_type(request)
    if media == APPLY:
        return writer.apply(
            target,
            _applied(request, options, warnings),
            _decoder(target.kind, options, warnings, applied=True),
            options,
        )
    if media == STRATEGIC:
        return _strategic(writer, target, request, options, warnings)
    body, twice = _patch_body(request)
    if media == MERGE_PATCH:
        decode = _decoder(target.kind, options, warnings, twice)
        return writer.patch(target, lambda obj: merge_patch(obj, body), decode, options)
    decode = _decoder(target.kind, options, warnings, (*twice, *_unknown_members(body)))
    return writer.patch(target, lambda obj: json_patch(obj, body), decode, options)


def _unknown_members(operations: Any) -> Iterator[str]:
    for index, operation in enumerate(operations if isinstance(operations, list) else ()):
        for member in operation if isinstance(operation, dict) else ():
            if member not in {"op", "path", "from", "value"}:
                yield f'json patch unknown field "[{index}].{member}"'


def _patch_body(request: Request) -> tuple[Any, tuple[str, ...]]:
    try:
        found = decode_json(request.body)
    except Undecodable as error:
        raise bad_request(f"error decoding patch: {error}") from error
    return found.value, found.twice


def _strategic(writer: Writer, target: Target, request: Request, options: WriteOptions, warnings: list[str]) -> Written:
    try:
        found = decode_json(request.body)
    except Undecodable as error:
        raise bad_request(str(error)) from error
    change = {} if found.value is None else found.value
    if not isinstance(change, dict):
        name = {bool: "bool", str: "string", list: "array"}.get(type(change), "number")
        raise bad_request(f"json: cannot unmarshal {name} into Go value of type map[string]interface {{}}")
    kind = target.kind

    def make(obj: JsonObject) -> JsonObject:
        made = strategic_merge(obj, change, kind.schema)
        made["apiVersion"], made["kind"] = kind.api_version, kind.kind
        return made

    decode = _decoder(kind, options, warnings, found.twice, shown=lambda _: _go_map(change))
    return writer.patch(target, make, decode, options)


def _applied(request: Request, options: WriteOptions, warnings: list[str]) -> JsonObject:
    try:
        found = _yaml(request.body)
    except Undecodable as error:
        why = f"yaml: {error}" if isinstance(error, BadJson) else str(error)
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: {why}") from error
    if not isinstance(found.value, dict):
        name = {bool: "bool", str: "string", list: "array", type(None): "null"}.get(type(found.value), "number")
        if found.value is None:
            return {}
        raise bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: "
            f"cannot unmarshal {name} into Go value of type map[string]interface {{}}"
        )
    if found.twice and options.validation == "Strict":
        lines = "".join(f"\n  {line}" for line in found.twice)
        raise bad_request(f"error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:{lines}")
    if options.validation == "Warn":
        warnings += found.twice
    return found.value


def _yaml(body: bytes) -> Document:
    found = decode_yaml(body)
    lines: list[str] = []
    for text in found.twice:
        if text.startswith("yaml:"):
            lines += [line.strip() for line in text.splitlines()[1:]]
        else:  # it was JSON, which is YAML in one line
            key = text.removeprefix('duplicate field "').removesuffix('"').rpartition(".")[2]
            lines.append(f'line 1: key "{key}" already set in map')
    return Document(found.value, tuple(lines))


def _decoder(
    kind: Kind,
    options: WriteOptions,
    warnings: list[str],
    twice: tuple[str, ...] = (),
    shown: Callable[[Any], str] | None = None,
    *,
    applied: bool = False,
) -> Callable[[Any], JsonObject]:
    """What reads the object that a patch has made: as a body, but with failures of its own."""
    show = shown or (lambda made: msgspec.json.encode(made, order="sorted").decode())

    def decode(made: Any) -> JsonObject:
        if not isinstance(made, dict):
            raise _unusable(show(made), f"json: cannot unmarshal {type(made).__name__} into Go value")
        text = show(made) if options.validation == "Strict" else ""  # before unknown fields are taken out
        _check_identity(kind, made, show)
        try:
            unknown = decode_fields(made, kind, applied=applied)
        except Mistyped as error:
            raise _unusable(text or show(made), str(error)) from error
        complaints = [*twice, *unknown]
        if complaints and options.validation == "Strict":
            raise _unusable(text or show(made), f"strict decoding error: {', '.join(complaints)}")
        if options.validation == "Warn":
            warnings.extend(complaints)
        return made

    return decode


def _check_identity(kind: Kind, made: JsonObject, show: Callable[[Any], str]) -> None:
    name, api_version = made.get("kind"), made.get("apiVersion")
    for field, value in (("kind", name), ("apiVersion", api_version)):
        if not isinstance(value, str | None):
            kinds = {bool: "bool", list: "array", dict: "object"}
            found = kinds.get(type(value), "number")
            raise _unusable(show(made), f"json: cannot unmarshal {found} into Go struct field .{field} of type string")
    if not kind.custom:
        if name not in {None, "", kind.kind} or api_version not in {None, "", kind.api_version}:
            why = f'no kind "{name}" is registered for version "{api_version}" in scheme "{SCHEME}"'
            raise _unusable(show(made), why)
        made["apiVersion"], made["kind"] = kind.api_version, kind.kind
        return
    if not name:
        text = show(made)
        raise _unusable(text, f"Object 'Kind' is missing in '{text}'")
    if not api_version:
        why = "Object 'apiVersion' is missing in 'object has no apiVersion field'"
        raise Failure(500, "InternalError", f"Internal error occurred: {why}", {"causes": [{"message": why}]})


def _unusable(made: str, why: str) -> Failure:
    """422: the patch can be read, and what it makes cannot."""
    error = FieldError(Cause.INVALID, "patch", made, why)
    return Failure(422, "Invalid", f' "" is invalid: {error}', {"causes": [error.as_cause()]})


def _go_map(value: Any) -> str:
    """A value as Go's ``%v`` prints it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_go_map(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(_go_map(item) for item in value)}]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
