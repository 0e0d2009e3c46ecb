"""OpenAPI v3 documents, one for each group and version, for kubectl (create, apply, explain) and for fuzzers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kargo_py.local.apiserver import metatypes
from kargo_py.local.apiserver.discovery import VERSION, subresources
from kargo_py.local.apiserver.gotypes import REFERENCE, Struct, definitions
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.wire import JSON, JsonObject, encode

YAML: Final = "application/yaml"
STREAM: Final = "application/json;stream=watch"
_INTERNAL: Final = ("x-kubernetes-group-version-kind", "x-kubernetes-action")
_PATCHES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)


def _query(name: str, description: str, kind: str = "string", **schema: Any) -> JsonObject:
    return {
        "name": name,
        "in": "query",
        "description": description,
        "schema": {"type": kind, "uniqueItems": True, **schema},
    }


_DRY_RUN: Final = _query("dryRun", "All: do everything but the write.")
_MANAGER: Final = _query("fieldManager", "Who makes the change.")
_VALIDATION: Final = _query(
    "fieldValidation", "What to do about unknown and repeated fields: Ignore, Warn (the default) or Strict."
)
_FORCE: Final = _query("force", "Take fields from other managers; for apply only.", "boolean")
_PRETTY: Final = _query("pretty", "Indent the answer.")
_WRITES: Final = (_DRY_RUN, _MANAGER, _VALIDATION)
_LISTS: Final = (
    _query("allowWatchBookmarks", "A watch may have BOOKMARK events.", "boolean"),
    _query("continue", "Where an earlier part of the list ended."),
    _query("fieldSelector", "Restrict the list by fields."),
    _query("labelSelector", "Restrict the list by labels."),
    _query("limit", "How many objects to list at most.", "integer"),
    _query("resourceVersion", "From which version to list, or to watch."),
    _query("resourceVersionMatch", "How to take resourceVersion: Exact or NotOlderThan."),
    _query("sendInitialEvents", "Begin a watch with the objects that there are, and a bookmark.", "boolean"),
    _query("timeoutSeconds", "When to end.", "integer"),
    _query("watch", "Watch, in place of listing.", "boolean"),
)
_DELETES: Final = (
    _DRY_RUN,
    _query("gracePeriodSeconds", "Seconds in which the object may end.", "integer"),
    _query("ignoreStoreReadErrorWithClusterBreakingPotential", "Delete an object that cannot be read.", "boolean"),
    _query("orphanDependents", "Deprecated: use propagationPolicy.", "boolean"),
    _query("propagationPolicy", "What becomes of dependents: Orphan, Background or Foreground."),
)


class Documents:
    """The documents of the kinds that are served now; each is made once."""

    def __init__(self) -> None:
        """Make none yet."""
        self._made: dict[str, tuple[Sequence[Kind], bytes, str]] = {}

    def index(self, kinds: Iterable[Kind]) -> JsonObject:
        """The answer to ``/openapi/v3``."""
        by_path = _by_path(kinds)
        self._made = {path: made for path, made in self._made.items() if path in by_path}
        return {
            "paths": {
                path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={self._document(path, of)[1]}"}
                for path, of in sorted(by_path.items())
            }
        }

    def document(self, kinds: Iterable[Kind], path: str) -> bytes | None:
        """The answer to ``/openapi/v3/<path>``, with *path* as in the index; None if there is no such document."""
        of = _by_path(kinds).get(path)
        return None if of is None else self._document(path, of)[0]

    def _document(self, path: str, kinds: Sequence[Kind]) -> tuple[bytes, str]:
        made = self._made.get(path)
        # Kinds are compared by identity: a definition that changed has new ones.
        if made is None or made[0] != kinds:
            body = encode(document(kinds))
            made = self._made[path] = kinds, body, hashlib.sha512(body).hexdigest().upper()
        return made[1], made[2]


def _by_path(kinds: Iterable[Kind]) -> dict[str, list[Kind]]:
    found: dict[str, list[Kind]] = {}
    for kind in kinds:
        found.setdefault(_base(kind)[1:], []).append(kind)
    return found


def document(kinds: Sequence[Kind]) -> JsonObject:
    """The document for *kinds*, which are of one group and version."""
    paths: JsonObject = {}
    schemas: dict[str, JsonObject] = definitions(_SHARED)
    own = [("", "v1")]
    every = dict.fromkeys([*own, *((kind.group, kind.version) for kind in kinds)])
    for shared, groups in ((metatypes.STATUS, own), (metatypes.DELETE_OPTIONS, every), (metatypes.WATCH_EVENT, every)):
        schemas[shared.definition]["x-kubernetes-group-version-kind"] = [
            {"group": group, "kind": shared.name, "version": version} for group, version in groups
        ]
    for kind in sorted(kinds, key=lambda kind: kind.plural):
        paths.update(_paths(kind))
        schemas.update(_schemas(kind))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": f"{VERSION['major']}.{VERSION['minor']}"},
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


# Schemas

_SHARED: Final[Sequence[Struct]] = (
    metatypes.OBJECT_META,
    metatypes.LIST_META,
    metatypes.STATUS,
    metatypes.DELETE_OPTIONS,
    metatypes.PATCH,
    metatypes.WATCH_EVENT,
)


def definition_name(kind: Kind) -> str:
    """Name of the kind's definition: ``io.akuity.kargo.v1alpha1.Stage``."""
    if kind.struct is not None:
        return kind.struct.definition
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _gvk(kind: Kind, name: str = "") -> JsonObject:
    return {"group": kind.group, "kind": name or kind.kind, "version": kind.version}


def _reference(name: str) -> JsonObject:
    return {"$ref": REFERENCE + name}


def _schemas(kind: Kind) -> Iterator[tuple[str, JsonObject]]:
    if kind.struct is None:
        schema = _custom_schema(kind)
    else:
        found = definitions([kind.struct])
        schema = found.pop(kind.struct.definition)
        yield from found.items()
    extra: JsonObject = {"x-kubernetes-group-version-kind": [_gvk(kind)]}
    if kind.custom and kind.field_selectors:
        extra["x-kubernetes-selectable-fields"] = [{"fieldPath": path} for path in kind.field_selectors]
    yield definition_name(kind), {**schema, **extra}
    if "list" in kind.verbs:
        extra["x-kubernetes-group-version-kind"] = [_gvk(kind, kind.lists_as)]
        yield _list_name(kind), {**_list_schema(kind), **extra}


def _list_name(kind: Kind) -> str:
    return f"{definition_name(kind).rpartition('.')[0]}.{kind.lists_as}"


def _custom_schema(kind: Kind) -> JsonObject:
    schema = dict(kind.schema) or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    if "properties" in schema:
        schema["properties"] = {
            **schema["properties"],
            "apiVersion": {"description": metatypes.API_VERSION.description, "type": "string"},
            "kind": {"description": metatypes.KIND.description, "type": "string"},
            "metadata": {
                "description": "Metadata of the object.",
                "allOf": [_reference(metatypes.OBJECT_META.definition)],
            },
        }
    return schema


def _list_schema(kind: Kind) -> JsonObject:
    item = _reference(definition_name(kind))
    default: JsonObject = {} if kind.custom else {"default": {}}
    items = item if kind.custom else {"allOf": [item], **default}
    return {
        "description": f"{kind.lists_as} is a list of {kind.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"description": metatypes.API_VERSION.description, "type": "string"},
            "items": {"description": f"List of {kind.plural}.", "type": "array", "items": items},
            "kind": {"description": metatypes.KIND.description, "type": "string"},
            "metadata": {
                "description": "Metadata of the list.",
                "allOf": [_reference(metatypes.LIST_META.definition)],
                **default,
            },
        },
    }


# Paths

_NAME: Final = "{name}"


def _base(kind: Kind) -> str:
    return f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"


def _paths(kind: Kind) -> Iterator[tuple[str, JsonObject]]:
    base = _base(kind)
    collection = f"{base}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"
    verbs = set(kind.verbs)
    yield collection, _item(kind, dict(_collection_operations(kind, verbs)))
    if verbs == {"create"}:
        return
    yield f"{collection}/{_NAME}", _item(kind, dict(_object_operations(kind, verbs)), named=True)
    for name in subresources(kind):
        allowed = {"update"} if name == "finalize" else {"get", "update", "patch"}
        operations = dict(_object_operations(kind, allowed, name))
        yield f"{collection}/{_NAME}/{name}", _item(kind, operations, named=True)
    if kind.namespaced:
        operation = _operation(kind, "list", "list", everywhere=True)
        parameters = _by_name([_PRETTY, *operation.pop("parameters")])
        yield f"{base}/{kind.plural}", {"get": operation, "parameters": parameters}


def _item(kind: Kind, operations: JsonObject, *, named: bool = False) -> JsonObject:
    parameters = [_PRETTY]
    if kind.namespaced:
        parameters.append(_path_parameter("namespace", "namespace of the object"))
    if named:
        parameters.append(_path_parameter("name", f"name of the {kind.kind}"))
    if len(operations) == 1:  # what holds for all operations stands beside them
        (operation,) = operations.values()
        parameters += operation.pop("parameters", [])
    return {**operations, "parameters": _by_name(parameters)}


def _by_name(parameters: Iterable[JsonObject]) -> list[JsonObject]:
    return sorted(parameters, key=lambda parameter: str(parameter["name"]))


def _path_parameter(name: str, description: str) -> JsonObject:
    schema = {"type": "string", "uniqueItems": True}
    return {"name": name, "in": "path", "description": description, "required": True, "schema": schema}


def _collection_operations(kind: Kind, verbs: set[str]) -> Iterator[tuple[str, JsonObject]]:
    if "list" in verbs:
        yield "get", _operation(kind, "list", "list")
    if "create" in verbs:
        yield "post", _operation(kind, "create", "post")
    if "deletecollection" in verbs:
        yield "delete", _operation(kind, "delete", "deletecollection")


def _object_operations(kind: Kind, verbs: set[str], subresource: str = "") -> Iterator[tuple[str, JsonObject]]:
    if "get" in verbs:
        yield "get", _operation(kind, "read", "get", subresource)
    if "update" in verbs:
        yield "put", _operation(kind, "replace", "put", subresource)
    if "delete" in verbs:
        yield "delete", _operation(kind, "delete", "delete", subresource)
    if "patch" in verbs:
        yield "patch", _operation(kind, "patch", "patch", subresource)


def _operation(kind: Kind, verb: str, action: str, subresource: str = "", *, everywhere: bool = False) -> JsonObject:
    own = _reference(definition_name(kind))
    status = _reference(metatypes.STATUS.definition)
    operation: JsonObject = {
        "tags": [_tag(kind)],
        "description": f"{verb} {subresource or 'objects'} of kind {kind.kind}",
        "operationId": _operation_id(kind, verb, action, subresource, everywhere=everywhere),
    }
    bare = kind.custom and action == "deletecollection"  # told of custom resources as if it were a list
    parameters = _LISTS if bare else _PARAMETERS.get(action, ())
    if kind.custom and action == "get":
        parameters = [each for each in _LISTS if each["name"] == "resourceVersion"]
    if parameters:
        operation["parameters"] = _by_name(parameters)
    body = None if bare else _body(kind, action, own)
    if body:
        operation["requestBody"] = body
    operation["responses"] = {
        **dict(_answers(kind, action, own, status)),
        "401": {"description": "Unauthorized"},
        "default": {"description": "Refused", "content": {JSON: {"schema": status}}},
    }
    for name, value in zip(_INTERNAL, (_gvk(kind), action), strict=True):
        operation[name] = value
    return operation


_PARAMETERS: Final[dict[str, Sequence[JsonObject]]] = {
    "list": _LISTS,
    "post": _WRITES,
    "put": _WRITES,
    "patch": (*_WRITES, _FORCE),
    "delete": _DELETES,
    "deletecollection": (
        *(each for each in _LISTS if each["name"] not in {"watch", "allowWatchBookmarks"}),
        *_DELETES,
    ),
}


def _body(kind: Kind, action: str, own: JsonObject) -> JsonObject | None:
    if action in {"post", "put"}:
        media: Sequence[str] = (JSON, YAML) if kind.custom else ("*/*",)
        return {"content": {each: {"schema": own} for each in media}, "required": True}
    if action == "patch":
        patch = {"schema": _reference(metatypes.PATCH.definition)}
        media = [each for each in _PATCHES if not kind.custom or "strategic" not in each]
        return {"content": dict.fromkeys(media, patch), "required": True}
    if action in {"delete", "deletecollection"}:
        options = {"schema": _reference(metatypes.DELETE_OPTIONS.definition)}
        return {"content": dict.fromkeys((JSON, YAML) if kind.custom else ("*/*",), options)}
    return None


def _answers(kind: Kind, action: str, own: JsonObject, status: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    if action == "list":
        listed = {"schema": _reference(_list_name(kind))}
        content = {JSON: listed, YAML: listed, STREAM: listed}
        yield "200", {"description": "OK", "content": content}
        return
    # A deletion answers with the object, where it stays for its finalizers, else with a Status.
    schema = {"oneOf": [status, own]} if action == "delete" else status if action == "deletecollection" else own
    content = {each: {"schema": schema} for each in (JSON, YAML)}
    yield "200", {"description": "OK", "content": content}
    if action in {"post", "put", "patch"}:
        yield "201", {"description": "Created", "content": content}
    if action in {"post", "delete"}:
        yield "202", {"description": "Accepted", "content": content}


def _words(kind: Kind) -> str:
    parts = (kind.group.removesuffix(".k8s.io") or "core").replace("-", ".").split(".")
    return "".join(part[:1].upper() + part[1:] for part in parts)


def _tag(kind: Kind) -> str:
    words = _words(kind)
    return f"{words[:1].lower()}{words[1:]}_{kind.version}"


def _operation_id(kind: Kind, verb: str, action: str, subresource: str, *, everywhere: bool) -> str:
    version = kind.version[:1].upper() + kind.version[1:]
    scope = "Namespaced" if kind.namespaced and not everywhere else ""
    suffix = subresource[:1].upper() + subresource[1:] + ("ForAllNamespaces" if everywhere else "")
    collection = "Collection" if action == "deletecollection" else ""
    return f"{verb}{_words(kind)}{version}{collection}{scope}{kind.kind}{suffix}"
