"""What a schema says about the ownership and merging of fields: the types of server-side apply.

An :class:`Atom` is a type that a field may have: a scalar, a list, a map, or (where the schema says little) any of
them. Lists and maps are atomic, that is owned and replaced as a whole, or owned by item.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from kargo_py.local.apiserver.metatypes import OBJECT_META_SCHEMA
from kargo_py.local.apiserver.wire import JsonObject

Scalar: TypeAlias = Literal["numeric", "string", "boolean", "untyped"]
_STRING: Final[JsonObject] = {"type": "string"}
_MERGE: Final = frozenset({"merge", "merge,retainKeys"})


@dataclass(slots=True, eq=False)
class ListType:
    """Items are owned one by one if the list is associative: by *keys*, or by their value if there are none."""

    element: Atom
    atomic: bool = True
    keys: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class MapType:
    """Declared *fields*, and the type of all others; None if there may be no others."""

    fields: dict[str, Atom] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    element: Atom | None = None
    atomic: bool = False


@dataclass(slots=True, eq=False)
class Atom:
    """A type; at least one of the three is set."""

    scalar: Scalar | None = None
    list: ListType | None = None
    map: MapType | None = None


# Of what no schema describes, maps are owned by field and lists as a whole ...
_list_of_anything = ListType(Atom())
DEDUCED: Final = Atom("untyped", _list_of_anything, MapType())
# ... but within lists all is one.
UNTYPED: Final = Atom("untyped", _list_of_anything, MapType(atomic=True))
_list_of_anything.element = UNTYPED
DEDUCED.map = MapType(element=DEDUCED)
UNTYPED.map = MapType(element=UNTYPED, atomic=True)


@dataclass(slots=True, eq=False)
class Types:
    """The types of one kind, compiled from its schema: make it once and keep it."""

    root: Atom

    @classmethod
    def of(cls, schema: JsonObject) -> Types:
        """Compile an OpenAPI v3 schema without references.

        Whatever the schema says of them, ``apiVersion``, ``kind`` and ``metadata`` are what they always are.
        """
        return cls(_Compiler().embedded(schema, preserve=False))


class _Compiler:
    def __init__(self) -> None:
        self._object_meta: Atom | None = None

    def atom(self, schema: JsonObject, *, preserve: bool) -> Atom:
        """Compile *schema*; *preserve*: unknown fields are allowed here and below."""
        preserve = preserve or schema.get("x-kubernetes-preserve-unknown-fields") is True
        if schema.get("x-kubernetes-embedded-resource"):
            return self.embedded(schema, preserve=preserve)
        return self._inline(schema, preserve=preserve)

    def embedded(self, schema: JsonObject, *, preserve: bool) -> Atom:
        """Compile the schema of a whole object."""
        preserve = preserve or schema.get("x-kubernetes-preserve-unknown-fields") is True
        own = {"apiVersion": _STRING, "kind": _STRING, "metadata": {}}
        made = self._inline({**schema, "properties": {**schema.get("properties", {}), **own}}, preserve=preserve)
        if made.map:
            if self._object_meta is None:
                self._object_meta = self._inline(OBJECT_META_SCHEMA, preserve=False)
            made.map.fields["metadata"] = self._object_meta
        return made

    def _inline(self, schema: JsonObject, *, preserve: bool) -> Atom:
        match schema.get("type", ""):
            case "":
                return Atom("untyped", self._list(schema, preserve=preserve), self._map(schema, preserve=preserve))
            case "object":
                return Atom(map=self._map(schema, preserve=preserve))
            case "array":
                return Atom(list=self._list(schema, preserve=preserve))
            case "integer" | "number":
                return Atom("numeric")
            case "boolean":
                return Atom("boolean")
            case "string" if schema.get("format", "") in {"", "byte"}:
                return Atom("string")
            case _:
                return Atom("untyped")

    def _map(self, schema: JsonObject, *, preserve: bool) -> MapType:
        properties = schema.get("properties") or {}
        made = MapType(atomic=schema.get("x-kubernetes-map-type") == "atomic")
        for name, below in properties.items():
            made.fields[name] = self.atom(below, preserve=preserve)
            if (default := below.get("default")) is not None:
                made.defaults[name] = default
        additional = schema.get("additionalProperties")
        if isinstance(additional, dict):
            made.element = self.atom(additional, preserve=preserve)
        elif additional is True or (additional is None and (preserve or not properties)):
            made.element = DEDUCED
        return made

    def _list(self, schema: JsonObject, *, preserve: bool) -> ListType:
        items = schema.get("items")
        made = ListType(self.atom(items, preserve=preserve) if isinstance(items, dict) else UNTYPED)
        list_type = schema.get("x-kubernetes-list-type")
        if list_type in {"set", "map"}:
            made.atomic = False
            if list_type == "map":
                made.keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        elif list_type is None and schema.get("x-kubernetes-patch-strategy") in _MERGE:
            made.atomic = False
            if merge_key := schema.get("x-kubernetes-patch-merge-key"):
                made.keys = (merge_key,)
        return made
