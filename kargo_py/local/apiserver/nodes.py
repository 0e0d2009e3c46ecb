"""A structural schema as a tree that prunes and defaults.

Value validation (:mod:`checks`), CEL rules (:mod:`cel`) and the invariants (:mod:`invariants`) work on the same tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kargo_py.local.apiserver.failures import ABSENT
from kargo_py.local.apiserver.wire import JsonObject

META: Final = frozenset({"apiVersion", "kind", "metadata"})
MAX_DEPTH: Final = 64
"""How deep a schema may nest; Kubernetes has no such limit but its decoder's (10,000), Python's stack does."""
MAX_NODES: Final = 50_000

OBJECT_META: Final = frozenset(
    {
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    }
)


class SchemaTooLarge(ValueError):
    """A schema past what this server takes."""


class Node:
    """One level of a structural schema."""

    __slots__ = (
        "additional",
        "additional_allowed",
        "default",
        "defaults",
        "embedded",
        "items",
        "list_type",
        "map_keys",
        "map_type",
        "nullable",
        "preserve",
        "properties",
        "raw",
        "type",
    )

    def __init__(self, raw: JsonObject) -> None:
        """Use :func:`node_of`."""
        self.raw = raw
        self.type: str = raw.get("type") or ""
        self.nullable = bool(raw.get("nullable"))
        self.preserve = bool(raw.get("x-kubernetes-preserve-unknown-fields"))
        self.embedded = bool(raw.get("x-kubernetes-embedded-resource"))
        self.list_type: str = raw.get("x-kubernetes-list-type") or ""
        self.map_keys: Sequence[str] = raw.get("x-kubernetes-list-map-keys") or ()
        self.map_type: str = raw.get("x-kubernetes-map-type") or ""
        self.default: Any = ABSENT if raw.get("default") is None else raw["default"]
        self.properties: dict[str, Node] = {}
        self.additional: Node | None = None
        self.additional_allowed = False
        """``additionalProperties`` is there in any form, ``false`` included."""
        self.items: Node | None = None
        self.defaults: list[tuple[str, Node]] = []

    def child(self, key: str) -> Node | None:
        """The schema of a field."""
        return self.properties.get(key) or self.additional

    def prune(self, value: Any) -> list[str]:
        """Remove what is not known from a dict or list; how the paths of what was removed end (``.a[0].b``)."""
        kind = type(value)
        gone: list[str] = []
        if kind is dict:
            properties, additional, embedded, preserve = self.properties, self.additional, self.embedded, self.preserve
            unknown: list[str] = []
            for key, item in value.items():
                if embedded and key in META:
                    if key == "metadata" and type(item) is dict:
                        gone.extend(_prune_metadata(item))
                    continue
                child = properties.get(key)
                if child is None:
                    if not self.additional_allowed:
                        if not preserve:
                            unknown.append(key)
                        continue
                    child = additional or NOTHING
                kind = type(item)
                if (kind is dict or kind is list) and (below := child.prune(item)):
                    gone.extend([f".{key}{path}" for path in below])
            for key in unknown:
                del value[key]
                gone.append(f".{key}")
        elif kind is list:
            items = self.items
            if items is None:
                if self.preserve:
                    return gone
                items = NOTHING
            for at, item in enumerate(value):
                kind = type(item)
                if (kind is dict or kind is list) and (below := self._prune_item(items, item)):
                    gone.extend([f"[{at}]{path}" for path in below])
        return gone

    def _prune_item(self, items: Node, item: Any) -> list[str]:
        if not self.preserve or items.preserve:
            return items.prune(item)
        # Items of a list that preserves unknown fields keep theirs.
        lenient = Node({"x-kubernetes-preserve-unknown-fields": True})
        lenient.properties, lenient.additional, lenient.items = items.properties, items.additional, items.items
        lenient.additional_allowed, lenient.embedded = items.additional_allowed, items.embedded
        return lenient.prune(item)

    def default_in(self, value: Any, *, keep_nulls: bool = False) -> None:
        """Put defaults into a dict or list, and drop nulls that the schema does not allow, unless they are kept."""
        kind = type(value)
        if kind is dict:
            for key, child in self.defaults:
                if key not in value or (value[key] is None and not child.nullable):
                    value[key] = copied(child.default)
            properties, additional = self.properties, self.additional
            dropped: list[str] = []
            for key, item in value.items():
                child_or_none = properties.get(key) or additional
                if child_or_none is None:
                    continue
                if item is None:
                    if not keep_nulls and not child_or_none.nullable and child_or_none.default is ABSENT:
                        dropped.append(key)
                    continue
                kind = type(item)
                if kind is dict or kind is list:
                    child_or_none.default_in(item, keep_nulls=keep_nulls)
            for key in dropped:
                del value[key]
        elif kind is list and (items := self.items) is not None:
            for at, item in enumerate(value):
                if item is None and not items.nullable and items.default is not ABSENT:
                    value[at] = copied(items.default)
                kind = type(value[at])
                if kind is dict or kind is list:
                    items.default_in(value[at], keep_nulls=keep_nulls)


NOTHING: Final = Node({})
"""The schema of a value that nothing is known about: it has no fields."""
NOTHING.items = NOTHING


def node_of(raw: JsonObject) -> Node:
    """The tree of a structural schema; SchemaTooLarge past MAX_DEPTH and MAX_NODES."""
    return _node(raw, 0, [0])


def _node(raw: JsonObject, depth: int, count: list[int]) -> Node:
    count[0] += 1
    if depth > MAX_DEPTH or count[0] > MAX_NODES:
        raise SchemaTooLarge(f"a schema may have {MAX_NODES} nodes, {MAX_DEPTH} deep")
    node = Node(raw)
    for key, below in (raw.get("properties") or {}).items():
        node.properties[key] = _node(below, depth + 1, count)
    additional = raw.get("additionalProperties")
    if isinstance(additional, dict):
        node.additional = _node(additional, depth + 1, count)
    node.additional_allowed = additional is not None
    items = raw.get("items")
    if isinstance(items, dict):
        node.items = _node(items, depth + 1, count)
    node.defaults = [(key, child) for key, child in node.properties.items() if child.default is not ABSENT]
    return node


def copied(value: Any) -> Any:
    """A deep copy of JSON."""
    kind = type(value)
    if kind is dict:
        return {key: copied(item) for key, item in value.items()}
    if kind is list:
        return [copied(item) for item in value]
    return value


def equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same, 1 and 1.0 and true being different."""
    if type(left) is not type(right):
        return False
    if type(left) is dict:
        return len(left) == len(right) and all(key in right and equal(item, right[key]) for key, item in left.items())
    if type(left) is list:
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


def _prune_metadata(metadata: JsonObject) -> list[str]:
    unknown = [key for key in metadata if key not in OBJECT_META]
    for key in unknown:
        del metadata[key]
    if metadata.get("creationTimestamp", ABSENT) is None:
        del metadata["creationTimestamp"]
    return [f".metadata.{key}" for key in unknown]
