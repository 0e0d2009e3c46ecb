"""The kinds of patch by their content types, and what is wrong with what they make of an object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kargo_py.local.apiserver.bodies import BadJson, Document, Undecodable, decode_json, decode_yaml
from kargo_py.local.apiserver.catalogue import Catalogue
from kargo_py.local.apiserver.decoding import decode_fields, media_type, unlike, unsupported_media_type, warn_of_owners
from kargo_py.local.apiserver.failures import Failure, FieldError, bad_request, internal
from kargo_py.local.apiserver.gotext import go_shown
from kargo_py.local.apiserver.gotypes import Mistyped, json_type
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.options import WriteOptions
from kargo_py.local.apiserver.patches import json_patch, merge_patch
from kargo_py.local.apiserver.strategic import strategic_merge
from kargo_py.local.apiserver.unstructured import restored
from kargo_py.local.apiserver.wire import JsonObject, Request
from kargo_py.local.apiserver.writing import Target, Writer, Written

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
_CUSTOM: Final = (JSON_PATCH, MERGE_PATCH, APPLY)
_BUILT_IN: Final = (*_CUSTOM, STRATEGIC)
_LATE: Final = " after mutating admission happens"


def check_type(request: Request, kind: Kind) -> str:
    """The content type of a patch. Raises Failure 415."""
    media = media_type(request)
    if media in (_CUSTOM if kind.custom else _BUILT_IN):
        return media
    if kind.custom:
        raise unsupported_media_type(", ".join(_CUSTOM))
    raise Failure(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def patch(
    writer: Writer,
    catalogue: Catalogue,
    target: Target,
    request: Request,
    options: WriteOptions,
    warnings: list[str],
) -> Written:
    """Carry out the patch in *request*. Raises Failure."""
    media = media_type(request)
    reader = _Reader(target.kind, catalogue, options, warnings)
    if media == APPLY:
        reader.applied = _applied(request, options, warnings)
        return writer.apply(target, reader.applied, reader.read_applied, options)
    if writer.existing(target) is None:
        raise target.missing
    if media == STRATEGIC:
        return _strategic(writer, target, request, options, reader)
    body, twice = _patch_body(request)
    if media == MERGE_PATCH:
        reader.complaints = twice
        return writer.patch(target, lambda obj: merge_patch(obj, body), reader.read, options)
    reader.complaints = (*twice, *_unknown_members(body))
    return writer.patch(target, lambda obj: json_patch(obj, body), reader.read, options)


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


def _strategic(writer: Writer, target: Target, request: Request, options: WriteOptions, reader: _Reader) -> Written:
    try:
        found = decode_json(request.body)
    except Undecodable as error:
        raise bad_request(str(error)) from error
    change = {} if found.value is None else found.value
    if not isinstance(change, dict):
        raise bad_request(f"json: cannot unmarshal {json_type(change)} into Go value of type map[string]interface {{}}")
    kind = target.kind

    def make(obj: JsonObject) -> JsonObject:
        made = strategic_merge(obj, change, kind.schema)
        if kind.struct is not None:
            try:
                made = restored(kind.struct, made)
            except Mistyped as error:
                raise _unusable(reader.shown, str(error)) from error
        made["apiVersion"], made["kind"] = kind.api_version, kind.kind
        return made

    reader.complaints = found.twice
    reader.shown = go_shown(change)
    return writer.patch(target, make, reader.read, options)


def _applied(request: Request, options: WriteOptions, warnings: list[str]) -> JsonObject:
    try:
        found = _yaml(request.body)
    except Undecodable as error:
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from error
    if found.value is None:
        return {}
    if not isinstance(found.value, dict):
        raise bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: "
            f"cannot unmarshal {json_type(found.value)} into Go value of type map[string]interface {{}}"
        )
    if found.twice and options.validation == "Strict":
        lines = "".join(f"\n  {line}" for line in found.twice)
        raise bad_request(f"error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:{lines}")
    if options.validation == "Warn":
        warnings += found.twice
    return found.value


def _yaml(body: bytes) -> Document:
    """The body of an apply, which is YAML even if it looks like JSON: that is only read faster."""
    try:
        found = decode_yaml(body)
    except BadJson:
        found = decode_yaml(body, guess=False)
    lines: list[str] = []
    for text in found.twice:
        if text.startswith("yaml:"):
            lines += [line.strip() for line in text.splitlines()[1:]]
        else:  # it was JSON, which is YAML in one line
            key = text.removeprefix('duplicate field "').removesuffix('"').rpartition(".")[2]
            lines.append(f'line 1: key "{key}" already set in map')
    return Document(found.value, tuple(lines))


@dataclass(slots=True)
class _Reader:
    """Reads the object that a patch has made: as a body, but with failures of its own."""

    kind: Kind
    catalogue: Catalogue
    options: WriteOptions
    warnings: list[str]
    complaints: Sequence[str] = ()
    """What is wrong with the patch itself, for strict validation."""
    shown: str = ""
    """What failures show; what the patch has made, if it is empty."""
    applied: JsonObject = field(default_factory=dict)
    """What is applied, if it is an apply."""

    def read_applied(self, made: JsonObject) -> JsonObject:
        """What an apply has made. Raises Failure.

        It leaves null where it has taken all fields, for validation to judge. What its types do not know has been
        refused before; what else is taken out, nobody is told of.
        """
        kind = self.kind
        if kind.struct is not None:
            try:
                made = restored(kind.struct, made)
            except Mistyped as error:
                given = self.applied.get("metadata") or {}
                what = f"({given.get('namespace') or ''}/{given.get('name') or ''}; {_gvk(kind)})"
                why = f"unable to convert unstructured object to {_gvk(kind)}: {error}"
                raise internal(f"failed to convert new object {what} to proper version: {why}") from error
        self._check_identity(made)
        self._decode(made, keep_nulls=True)
        warn_of_owners(made, self.warnings, _LATE)
        return made

    def read(self, made: Any) -> JsonObject:
        """*made* as an object of the kind. Raises Failure."""
        if not isinstance(made, dict):
            raise self._unusable(made, f"json: cannot unmarshal {type(made).__name__} into Go value")
        strict = self.options.validation == "Strict"
        if strict and not self.shown:
            self.shown = _json(made)  # before unknown fields are taken out
        versionless = not self.kind.custom and not made.get("apiVersion")
        self._check_identity(made)
        complaints = [*self.complaints, *self._decode(made)]
        if versionless:  # then it is read as an object of Kubernetes' internal version, in which nothing has a name
            made["metadata"] = {}
            complaints.append('unknown field "metadata"')
        if complaints and strict:
            raise self._unusable(made, f"strict decoding error: {', '.join(complaints)}")
        if self.options.validation == "Warn":
            self.warnings.extend(complaints)
        warn_of_owners(made, self.warnings, _LATE)
        return made

    def _decode(self, made: JsonObject, *, keep_nulls: bool = False) -> Sequence[str]:
        try:
            return decode_fields(made, self.kind, keep_nulls=keep_nulls)
        except Mistyped as error:
            raise self._unusable(made, str(error)) from error

    def _check_identity(self, made: JsonObject) -> None:
        kind, name, api_version = self.kind, made.get("kind"), made.get("apiVersion")
        for place, value in (("kind", name), ("apiVersion", api_version)):
            if not isinstance(value, str | None):
                found = json_type(value)
                raise self._unusable(
                    made, f"json: cannot unmarshal {found} into Go struct field .{place} of type string"
                )
        if not kind.custom:
            if why := unlike(made, api_version or kind.api_version, name or kind.kind, kind, self.catalogue):
                raise self._unusable(made, why)
            made["apiVersion"], made["kind"] = kind.api_version, kind.kind
            return
        if not name:
            raise self._unusable(made, f"Object 'Kind' is missing in '{self.shown or _json(made)}'")
        if not api_version:
            why = "Object 'apiVersion' is missing in 'object has no apiVersion field'"
            raise Failure(500, "InternalError", f"Internal error occurred: {why}", {"causes": [{"message": why}]})

    def _unusable(self, made: Any, why: str) -> Failure:
        return _unusable(self.shown or _json(made), why)


def _unusable(made: str, why: str) -> Failure:
    """422: the patch can be read, and what it makes cannot."""
    error = FieldError.invalid("patch", made, why)
    return Failure(422, "Invalid", f' "" is invalid: {error}', {"causes": [error.as_cause()]})


def _gvk(kind: Kind) -> str:
    return f"{kind.group}/{kind.version}, Kind={kind.kind}"


def _json(made: Any) -> str:
    return msgspec.json.encode(made, order="sorted").decode()
