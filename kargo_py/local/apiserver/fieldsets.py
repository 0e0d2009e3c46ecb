"""Sets of field paths, as ``managedFields`` keep them.

A path is a sequence of elements. An element is the string that FieldsV1 has for it: ``f:name`` for a field,
``k:{"name":"a"}`` for an item of a list by its keys, ``v:"a"`` for an item of a set, ``i:0`` for an index. Elements are
kept in one canonical spelling, so that equal elements are equal strings and set algebra is that of Python's sets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from kargo_py.local.apiserver.gotext import number, quoted

Path: TypeAlias = tuple[str, ...]
SELF: Final = "."
MAX_DEPTH: Final = 200
_CACHED_LENGTH: Final = 256
_ESCAPES: Final = {code: f"\\u{code:04x}" for code in (*range(32), *map(ord, "<>&\u2028\u2029"))} | {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}


class BadFields(ValueError):
    """What should be FieldsV1 is not."""


class FieldSet:
    """A set of paths, as a tree. ``children`` never has an empty set; a set that was handed out does not change."""

    __slots__ = ("children", "members")

    def __init__(self, members: Iterable[str] = (), children: Mapping[str, FieldSet] | None = None) -> None:
        """Take the paths of one element, and what begins with each element."""
        self.members: set[str] = set(members)
        self.children: dict[str, FieldSet] = dict(children or {})

    @classmethod
    def of(cls, *paths: Path) -> FieldSet:
        """Make a set of these paths."""
        made = cls()
        for path in paths:
            made.insert(path)
        return made

    def insert(self, path: Path) -> None:
        """Add *path*, while the set is being built. The empty path is the whole object, which nobody owns."""
        if not path:
            return
        node = self
        for element in path[:-1]:
            below = node.children.get(element)
            if below is None:
                below = node.children[element] = FieldSet()
            node = below
        node.members.add(path[-1])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FieldSet):
            return NotImplemented
        return self.members == other.members and self.children == other.children

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self.members or self.children)

    def __contains__(self, path: Path) -> bool:
        node: FieldSet | None = self
        for element in path[:-1]:
            node = node.children.get(element) if node else None
        return bool(path) and node is not None and path[-1] in node.members

    def __iter__(self) -> Iterator[Path]:
        """Every path; at each level first the members, then what lies below."""
        for element in in_order(self.members):
            yield (element,)
        for element in in_order(self.children):
            for path in self.children[element]:
                yield (element, *path)

    def __repr__(self) -> str:
        return f"FieldSet({', '.join(map(shown, self))})"

    def __or__(self, other: FieldSet) -> FieldSet:
        if not other:
            return self
        if not self:
            return other
        children = dict(self.children)
        for element, below in other.children.items():
            mine = children.get(element)
            children[element] = below if mine is None else mine | below
        return _made(self.members | other.members, children)

    def __and__(self, other: FieldSet) -> FieldSet:
        small, large = self.children, other.children
        if len(small) > len(large):
            small, large = large, small
        children = {
            element: common
            for element, below in small.items()
            if (facing := large.get(element)) and (common := below & facing)
        }
        return _made(self.members & other.members, children)

    def __sub__(self, other: FieldSet) -> FieldSet:
        """Without the paths of *other*; what lies below those stays."""
        if other.members.isdisjoint(self.members) and other.children.keys().isdisjoint(self.children):
            return self
        children = dict(self.children)
        for element, below in other.children.items():
            if mine := children.get(element):
                if left := mine - below:
                    children[element] = left
                else:
                    del children[element]
        return _made(self.members - other.members, children)

    def without_trees(self, other: FieldSet) -> FieldSet:
        """Without the paths of *other* and all that lies below them."""
        if (
            other.members.isdisjoint(self.members)
            and other.members.isdisjoint(self.children)
            and other.children.keys().isdisjoint(self.children)
        ):
            return self
        children = {}
        for element, below in self.children.items():
            if element in other.members:
                continue
            facing = other.children.get(element)
            if left := below.without_trees(facing) if facing else below:
                children[element] = left
        return _made(self.members - other.members, children)

    def to_fields(self) -> dict[str, Any]:
        """FieldsV1, in canonical order."""
        fields: dict[str, Any] = {}
        for element in in_order(self.members | self.children.keys() if self.children else self.members):
            below = self.children.get(element)
            if below is None:
                fields[element] = {}
            elif element in self.members:
                fields[element] = {SELF: {}, **below.to_fields()}
            else:
                fields[element] = below.to_fields()
        return fields

    @classmethod
    def from_fields(cls, fields: object) -> FieldSet:
        """Read FieldsV1.

        Raises:
            BadFields: it is not FieldsV1. Elements of a type that is not known are no reason: they are left out.
        """
        return _read(fields, 0)[0] or cls()


def field(name: str) -> str:
    """Element for a field of an object."""
    return "f:" + name


def key(values: Mapping[str, Any]) -> str:
    """Element for the item of a list that has these values in its key fields."""
    return "k:{" + ",".join(f'"{name.translate(_ESCAPES)}":{_json(values[name])}' for name in sorted(values)) + "}"


def value(item: Any) -> str:
    """Element for an item of a set."""
    return "v:" + _json(item)


def in_order(elements: Iterable[str]) -> list[str]:
    """Sort *elements* as Kubernetes does: fields, keys, values, indices; numbers before strings."""
    listed = sorted(elements)
    # nearly always all are fields, whose order is that of strings
    if listed and not listed[-1].startswith("f:"):
        listed.sort(key=_rank)
    return listed


def shown(path: Path) -> str:
    """A path as messages have it: ``.spec.ports[port=80,protocol="TCP"].name``."""
    return "".join(map(_shown, path))


def _made(members: set[str], children: dict[str, FieldSet]) -> FieldSet:
    made = FieldSet.__new__(FieldSet)
    made.members = members
    made.children = children
    return made


def _read(fields: object, depth: int) -> tuple[FieldSet | None, bool]:
    """What lies below, and whether the node itself is in the set."""
    if fields is None:
        return None, True
    if not isinstance(fields, dict):
        raise BadFields(f"expected an object, got {type(fields).__name__}")
    if depth > MAX_DEPTH:
        raise BadFields("exceeded max depth")
    itself = False
    members: set[str] = set()
    children: dict[str, FieldSet] = {}
    for name, content in fields.items():
        if name == SELF:
            itself = True
            continue
        element = name if name.startswith("f:") else _canonical(name)
        if element is None:
            continue
        if content == {}:
            members.add(element)
            continue
        below, member = _read(content, depth + 1)
        if member:
            members.add(element)
        if below:
            children[element] = below
    if members or children:
        return _made(members, children), itself
    return None, True


def _canonical(name: str) -> str | None:
    return _canonical_cached(name) if len(name) <= _CACHED_LENGTH else _canonical_new(name)


def _canonical_new(name: str) -> str | None:
    """Spell an element as :func:`key` and :func:`value` do; None if its type is not known."""
    if len(name) < 2:
        raise BadFields("key must be 2 characters long:")
    if name[1] != ":":
        raise BadFields(f"missing colon: {name}")
    kind, content = name[0], name[2:]
    if kind == "f":
        return name
    try:
        if kind == "i":
            return f"i:{int(content)}"
        if kind == "v":
            return value(json.loads(content))
        if kind == "k":
            loaded = json.loads(content)
            if not isinstance(loaded, dict):
                raise BadFields(f"expected an object: {content}")
            return key(loaded)
    except (ValueError, RecursionError) as error:
        raise BadFields(str(error)) from error
    return None


_canonical_cached = lru_cache(maxsize=4096)(_canonical_new)


def _json(item: Any) -> str:
    if isinstance(item, str):
        return f'"{item.translate(_ESCAPES)}"'
    if isinstance(item, float) and item.is_integer() and abs(item) < 1e21:
        return str(int(item))
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _rank(element: str) -> tuple[int, Any]:
    kind, content = element[0], element[2:]
    if kind == "f":
        return 0, content
    if kind == "k":
        return 1, [(name, _value_rank(item)) for name, item in json.loads(content).items()]
    if kind == "v":
        return 2, _value_rank(json.loads(content))
    return 3, int(content)


def _value_rank(item: Any) -> tuple[int, Any]:
    if isinstance(item, bool):
        return 2, item
    if isinstance(item, (int, float)):
        return 0, item
    if isinstance(item, str):
        return 1, item
    if isinstance(item, list):
        return 3, [_value_rank(each) for each in item]
    if isinstance(item, dict):
        return 4, sorted((name, _value_rank(each)) for name, each in item.items())
    return 5, 0


def _shown(element: str) -> str:
    kind, content = element[0], element[2:]
    if kind == "f":
        return "." + content
    if kind == "k":
        return "[" + ",".join(f"{name}={_value_shown(item)}" for name, item in json.loads(content).items()) + "]"
    if kind == "v":
        return f"[={_value_shown(json.loads(content))}]"
    return f"[{content}]"


def _value_shown(item: Any) -> str:
    if isinstance(item, str):
        return quoted(item)
    if isinstance(item, (int, float)) and not isinstance(item, bool):
        return number(float(item))
    if isinstance(item, list):
        return "[" + ",".join(map(_value_shown, item)) + "]"
    if isinstance(item, dict):
        return "".join(f"{name}={_value_shown(each)}" for name, each in item.items())
    return _json(item)
