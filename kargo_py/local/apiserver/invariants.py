"""What holds in an object beside the checks of its values: sets and map-lists are unique, embedded resources whole."""

from __future__ import annotations

import json
from typing import Any, Final

from kargo_py.local.apiserver import names
from kargo_py.local.apiserver.failures import Cause, FieldError
from kargo_py.local.apiserver.gotext import quoted
from kargo_py.local.apiserver.nodes import Node
from kargo_py.local.apiserver.wire import ABSENT, JsonObject

_META_TYPES: Final[dict[str, type]] = {
    **dict.fromkeys(("name", "generateName", "namespace", "uid", "resourceVersion", "selfLink"), str),
    **dict.fromkeys(("labels", "annotations"), dict),
    **dict.fromkeys(("finalizers", "ownerReferences", "managedFields"), list),
}
_GO_TYPES: Final[dict[type, str]] = {str: "string", dict: "map[string]string", list: "[]string"}


class Invariants:
    """The invariants of one schema.

    ``relevant`` tells whether there are any, here or below; ``has_resources`` whether there are embedded resources.
    """

    __slots__ = ("additional", "has_resources", "items", "node", "properties", "relevant")

    def __init__(self, node: Node) -> None:
        """Look for what is to be checked."""
        self.node = node
        self.relevant: bool
        children = {key: Invariants(child) for key, child in node.properties.items()}
        self.properties = {key: below for key, below in children.items() if below.relevant}
        self.additional = Invariants(node.additional) if node.additional else None
        self.items = Invariants(node.items) if node.items else None
        self.has_resources: bool = (
            node.embedded
            or any(child.has_resources for child in children.values())
            or (self.additional is not None and self.additional.has_resources)
            or (self.items is not None and self.items.has_resources)
        )
        self.relevant = bool(
            node.embedded
            or node.list_type in {"set", "map"}
            or self.properties
            or (self.additional and self.additional.relevant)
            or (self.items and self.items.relevant)
        )

    def duplicates(self, value: Any, path: str = "") -> list[FieldError]:
        """Items of sets and map-lists that are there twice."""
        errors: list[FieldError] = []
        if isinstance(value, list) and self.node.list_type in {"set", "map"}:
            errors += _duplicate_items(value, self.node, path)
        for check, item, below in self._children(value, path):
            errors += check.duplicates(item, below)
        return errors

    def resources(self, value: Any, path: str = "") -> list[FieldError]:
        """What is wrong with embedded resources."""
        errors: list[FieldError] = []
        if not self.has_resources:
            return errors
        if self.node.embedded and path and isinstance(value, dict):
            errors += _resource_errors(value, path)
        for check, item, below in self._children(value, path):
            errors += check.resources(item, below)
        return errors

    def _children(self, value: Any, path: str) -> list[tuple[Invariants, Any, str]]:
        if isinstance(value, dict):
            found = []
            for key, item in value.items():
                if (check := self.properties.get(key)) is not None:
                    found.append((check, item, f"{path}.{key}" if path else key))
                elif self.additional is not None and self.additional.relevant and key not in self.node.properties:
                    found.append((self.additional, item, f"{path}[{key}]"))
            return found
        if isinstance(value, list) and self.items is not None and self.items.relevant:
            return [(self.items, item, f"{path}[{at}]") for at, item in enumerate(value)]
        return []


def _duplicate_items(items: list[Any], node: Node, path: str) -> list[FieldError]:
    if node.list_type == "set":
        return [FieldError(Cause.DUPLICATE, f"{path}[{at}]", items[at]) for at in _repeated(items)]
    for at, item in enumerate(items):
        if item is not None and not isinstance(item, dict):
            what = "must be an object for an array of list-type map"
            return [FieldError(Cause.INVALID, f"{path}[{at}]", item, what)]
    keys = [{key: item[key] for key in node.map_keys if key in item} if item else {} for item in items]
    return [FieldError(Cause.DUPLICATE, f"{path}[{at}]", keys[at]) for at in _repeated(keys)]


def _repeated(items: list[Any]) -> list[int]:
    """Where an item stands for the second time."""
    if len(items) < 2:
        return []
    seen: dict[str, int] = {}
    found = []
    for at, item in enumerate(items):
        text = json.dumps(item, sort_keys=True)
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 2:
            found.append(at)
    return found


def _resource_errors(value: JsonObject, path: str) -> list[FieldError]:
    errors = [
        FieldError(Cause.REQUIRED, f"{path}.{key}")
        for key in ("apiVersion", "kind")
        if value.get(key, ABSENT) is ABSENT
    ]
    for key in ("apiVersion", "kind"):
        if key not in value:
            continue
        text, where = value[key], f"{path}.{key}"
        if not isinstance(text, str):
            errors.append(FieldError(Cause.INVALID, where, text, "must be a string"))
        elif not text:
            errors.append(FieldError(Cause.INVALID, where, text, "must not be empty"))
        elif key == "apiVersion" and text.count("/") > 1:
            errors.append(FieldError(Cause.INVALID, where, text, f"unexpected GroupVersion string: {text}"))
        elif key == "kind" and (complaints := names.dns1035_label(text.lower())):
            detail = f"may have mixed case, but should otherwise match: {','.join(complaints)}"
            errors.append(FieldError(Cause.INVALID, where, text, detail))
    if "metadata" in value:
        errors += _metadata_errors(value["metadata"], f"{path}.metadata")
    return errors


def _metadata_errors(metadata: Any, path: str) -> list[FieldError]:
    if not isinstance(metadata, dict):
        return [FieldError(Cause.INVALID, path, metadata, "must be an object")]
    for key, kind in _META_TYPES.items():
        if key in metadata and metadata[key] is not None and not isinstance(metadata[key], kind):
            return [FieldError(Cause.INVALID, path, metadata, f"field {quoted(key)} must be of type {_GO_TYPES[kind]}")]
    name = metadata.get("name") or ""
    return [FieldError(Cause.INVALID, f"{path}.name", name, why) for why in names.path_segment(name, False) if name]
