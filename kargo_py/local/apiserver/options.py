"""Options in the query (and, for deletions, in the body): parsed and checked as the real server does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kargo_py.local.apiserver import objectmeta, selectors
from kargo_py.local.apiserver.failures import Cause, Failure, FieldError, bad_request, invalid
from kargo_py.local.apiserver.gotypes import json_type
from kargo_py.local.apiserver.wire import ABSENT, JsonObject, Request

_INT64: Final = 1 << 63
SCHEME: Final = "pkg/runtime/scheme.go:110"
TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)
_GROUP: Final = "meta.k8s.io"
_MATCHES: Final = ("Exact", "NotOlderThan", "")
_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")
_POLICIES: Final = ("Foreground", "Background", "Orphan")


@dataclass(frozen=True, slots=True)
class ListOptions:
    """For lists and watches. ``initial_events`` is None when nothing is said of them."""

    label_selector: str
    field_selector: str
    version: str
    match: str
    limit: int
    token: str
    watch: bool
    bookmarks: bool
    initial_events: bool | None
    timeout: int
    include_object: str


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """For all that changes something."""

    dry_run: bool = False
    validation: str = "Warn"
    manager: str = "unknown"
    force: bool = False


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """For deletions."""

    dry_run: bool = False
    policy: str | None = None
    orphan: bool | None = None
    uid: str | None = None
    version: str | None = None


def list_options(request: Request, *, watch_path: bool) -> ListOptions:
    """Options of a list or a watch. Raises Failure."""
    initial = [value for key, value in request.query if key == "sendInitialEvents"]
    options = ListOptions(
        label_selector=request.parameter("labelSelector"),
        field_selector=request.parameter("fieldSelector"),
        version=request.parameter("resourceVersion"),
        match=request.parameter("resourceVersionMatch"),
        limit=max(0, integer(request, "limit")),
        token=request.parameter("continue"),
        watch=watch_path or boolean(request, "watch"),
        bookmarks=boolean(request, "allowWatchBookmarks"),
        initial_events=boolean(request, "sendInitialEvents") if initial else None,
        timeout=max(0, integer(request, "timeoutSeconds")),
        include_object=request.parameter("includeObject"),
    )
    if options.watch and options.initial_events is None and not options.match and options.version in {"", "0"}:
        options = replace(options, initial_events=True, match="NotOlderThan")
    if errors := _match_errors(options):
        selectors.labels(options.label_selector)  # what cannot be read is told before what does not go together
        selectors.field_terms(options.field_selector)
        raise invalid(_GROUP, "ListOptions", "", errors)
    return options


def _match_errors(options: ListOptions) -> list[FieldError]:
    errors: list[FieldError] = []

    def forbidden(field: str, detail: str) -> None:
        errors.append(FieldError(Cause.FORBIDDEN, field, detail=detail))

    field = "resourceVersionMatch"
    if options.watch:
        if options.match and options.initial_events is None:
            forbidden(field, f"{field} is forbidden for watch unless sendInitialEvents is provided")
        if options.initial_events is not None and options.match != "NotOlderThan":
            forbidden(field, f"sendInitialEvents requires setting {field} to NotOlderThan")
        if options.match not in {"", "NotOlderThan"}:
            errors.append(FieldError.unsupported(field, options.match, ("NotOlderThan",)))
        if options.match and options.token:
            forbidden(field, f"{field} is forbidden when continue is provided")
        return errors
    if options.match:
        if not options.version:
            forbidden(field, f"{field} is forbidden unless resourceVersion is provided")
        if options.token:
            forbidden(field, f"{field} is forbidden when continue is provided")
        if options.match not in _MATCHES:
            errors.append(FieldError.unsupported(field, options.match, _MATCHES))
        if options.match == "Exact" and options.version == "0":
            forbidden(field, f'{field} "exact" is forbidden for resourceVersion "0"')
    if options.initial_events is not None:
        forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
    return errors


def write_options(request: Request, kind: str, *, apply: bool = False) -> WriteOptions:
    """Options of a create, an update or a patch; *kind* is ``CreateOptions`` and the like. Raises Failure."""
    errors: list[FieldError] = []
    dry = [value for key, value in request.query if key == "dryRun"]
    manager = request.parameter("fieldManager")
    validation = request.parameter("fieldValidation")
    force = [value for key, value in request.query if key == "force"]
    if kind == "PatchOptions":
        if apply and not manager:
            errors.append(FieldError(Cause.REQUIRED, "fieldManager", detail="is required for apply patch"))
        if not apply and force:
            errors.append(FieldError(Cause.FORBIDDEN, "force", detail="may not be specified for non-apply patch"))
    errors += objectmeta.manager_errors(manager, "fieldManager")
    errors += _dry_run_errors(dry)
    if validation not in _VALIDATIONS:
        errors.append(FieldError.unsupported("fieldValidation", validation, _VALIDATIONS))
    if errors:
        raise invalid(_GROUP, kind, "", errors)
    return WriteOptions(
        dry_run=bool(dry),
        validation=validation or "Warn",
        manager=manager or _manager_of(request.headers.get("user-agent", "")),
        force=bool(force) and boolean(request, "force"),
    )


def _manager_of(user_agent: str) -> str:
    """What a client is called that does not say: its program's name, of 128 bytes at most."""
    return user_agent.partition("/")[0].encode()[:128].decode(errors="ignore") or "unknown"


def delete_options(request: Request, body: Any = ABSENT) -> DeleteOptions:
    """Options of a deletion: of its body, or else of its query. Raises Failure."""
    if body is not ABSENT:
        given = _from_body(body)
    else:
        given = {key: request.parameter(key) for key, _ in request.query if key == "propagationPolicy"}
        given["dryRun"] = [value for key, value in request.query if key == "dryRun"]
        if any(key == "orphanDependents" for key, _ in request.query):
            given["orphanDependents"] = boolean(request, "orphanDependents")
        integer(request, "gracePeriodSeconds")
    policy, orphan = given.get("propagationPolicy"), given.get("orphanDependents")
    errors: list[FieldError] = []
    if policy is not None and orphan is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(FieldError(Cause.INVALID, "propagationPolicy", policy, detail))
    if policy is not None and policy not in _POLICIES:
        errors.append(FieldError.unsupported("propagationPolicy", policy, (*_POLICIES, "nil")))
    errors += _dry_run_errors(given.get("dryRun") or [])
    if errors:
        raise invalid(_GROUP, "DeleteOptions", "", errors)
    preconditions = given.get("preconditions") or {}
    return DeleteOptions(
        dry_run=bool(given.get("dryRun")),
        policy=policy,
        orphan=orphan,
        uid=preconditions.get("uid"),
        version=preconditions.get("resourceVersion"),
    )


def _from_body(body: Any) -> JsonObject:
    if body is None:
        return {}
    if not isinstance(body, dict):
        problem = f"json: cannot unmarshal {json_type(body)} into Go value of type {TYPE_META}"
        raise Failure(500, "", f"couldn't get version/kind; json parse error: {problem}")
    kind = body.get("kind")
    for field in ("apiVersion", "kind"):
        if not isinstance(body.get(field), str | None):
            problem = f"json: cannot unmarshal {json_type(body[field])} into Go struct field .{field} of type string"
            raise Failure(500, "", f"couldn't get version/kind; json parse error: {problem}")
    if kind not in {None, "", "DeleteOptions"}:
        version = body.get("apiVersion", "")
        if (version, kind) == ("v1", "Status"):
            raise Failure(500, "", "converting (v1.Status) to (v1.DeleteOptions): unknown conversion")
        raise Failure(500, "", f'no kind "{kind}" is registered for version "{version}" in scheme "{SCHEME}"')
    for path, kinds, go in _BODY_TYPES:
        value: Any = body
        for step in path.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        if value is not None and not isinstance(value, kinds):
            raise Failure(500, "", f"json: cannot unmarshal {json_type(value)} into Go struct field {go}")
    return body


_BODY_TYPES: Final[Sequence[tuple[str, tuple[type, ...], str]]] = (
    ("preconditions", (dict,), "DeleteOptions.preconditions of type v1.Preconditions"),
    ("preconditions.uid", (str,), "Preconditions.preconditions.uid of type types.UID"),
    ("preconditions.resourceVersion", (str,), "Preconditions.preconditions.resourceVersion of type string"),
    ("propagationPolicy", (str,), "DeleteOptions.propagationPolicy of type v1.DeletionPropagation"),
    ("orphanDependents", (bool,), "DeleteOptions.orphanDependents of type bool"),
    ("gracePeriodSeconds", (int,), "DeleteOptions.gracePeriodSeconds of type int64"),
    ("dryRun", (list,), "DeleteOptions.dryRun of type []string"),
)


def _dry_run_errors(values: Sequence[Any]) -> list[FieldError]:
    if all(value == "All" for value in values):
        return []
    return [FieldError.unsupported("dryRun", list(values), ("All",))]


def boolean(request: Request, name: str) -> bool:
    """A parameter that is true unless it says false; ``?name=`` is true, too."""
    for key, value in request.query:
        if key == name:
            return value != "0" and value.lower() != "false"
    return False


def integer(request: Request, name: str) -> int:
    """A parameter that is a number. Raises Failure."""
    text = request.parameter(name)
    if not text:
        return 0
    digits = text[1:] if text[0] in "+-" else text
    if not (digits.isascii() and digits.isdecimal()):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if len(digits) > 19 or not -_INT64 <= int(text) < _INT64:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)
