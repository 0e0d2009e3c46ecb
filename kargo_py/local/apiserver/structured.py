"""Merging and comparing objects by their types: structured merge and diff.

Pure functions of a type, one or two values of it, and sets of fields. No argument is changed; a result shares what it
did not have to change with its arguments. Values are JSON; what is absent is ``ABSENT``, null is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from kargo_py.local.apiserver import fieldsets
from kargo_py.local.apiserver.fieldsets import FieldSet, Path
from kargo_py.local.apiserver.fieldtypes import DEDUCED, UNTYPED, Atom, ListType, MapType, Scalar
from kargo_py.local.apiserver.gotext import go_shown, go_source, quoted
from kargo_py.local.apiserver.wire import ABSENT, encode

_Shape: TypeAlias = Literal["map", "scalar", "list"]


class TypingFailed(Exception):
    """Values that are not of their type, one text for each."""

    def __init__(self, errors: Sequence[str]) -> None:
        """Word all of them as Kubernetes does."""
        super().__init__(errors[0] if len(errors) == 1 else "\n  ".join(("errors:", *errors)))


@dataclass(slots=True)
class Comparison:
    """What is different in the right one of two values. No path is in two of the sets."""

    removed: FieldSet = field(default_factory=FieldSet)
    modified: FieldSet = field(default_factory=FieldSet)
    added: FieldSet = field(default_factory=FieldSet)

    def without_trees(self, ignored: FieldSet) -> Comparison:
        """Leave out some fields and all that is below them."""
        return Comparison(*(each.without_trees(ignored) for each in (self.removed, self.modified, self.added)))


def validate(atom: Atom, value: Any, *, duplicates: bool = False) -> None:
    """Raise TypingFailed unless *value* is of the type; *duplicates*: items of associative lists may repeat."""
    if errors := _errors(atom, value, "", duplicates=duplicates):
        raise TypingFailed(sorted(errors))


def field_set(atom: Atom, value: Any) -> FieldSet:
    """The fields of a value that was applied: its leaves, and the items of its lists and open maps."""
    return _field_set(atom, value)[0]


def everything(atom: Atom, value: Any) -> FieldSet:
    """All fields of a value, leaves or not."""
    if isinstance(value, dict):
        if atom.map is not None and not atom.map.atomic:
            return _all_fields(atom.map, value)
    elif isinstance(value, list) and _shape(atom, value) == "list" and not _list(atom).atomic:
        return _all_items(_list(atom), value)
    return _EMPTY


def _all_fields(map_type: MapType, value: dict[str, Any]) -> FieldSet:
    made = FieldSet()
    members = made.members
    for name, below in value.items():
        element = fieldsets.field(name)
        members.add(element)
        if isinstance(below, (dict, list)) and (inner := everything(_field_type(map_type, name), below)):
            made.children[element] = inner
    return made


def _all_items(list_type: ListType, items: list[Any]) -> FieldSet:
    made = FieldSet()
    for element, same in _by_element(list_type, items).items():
        _put(made, element, everything(list_type.element, same[0]) if len(same) == 1 else _EMPTY)
    return made


def compare(atom: Atom, left: Any, right: Any) -> Comparison:
    """What *right* has that is different from *left*."""
    comparison = Comparison()
    _compare(atom, left, right, (), comparison)
    return comparison


def merge(atom: Atom, left: Any, right: Any) -> Any:
    """*left* with all that *right* has put over it. Nothing is removed; lists take the order of *right*."""
    if right is ABSENT:
        return left
    if left is ABSENT:
        return right
    shape = _shape(atom, right)
    if shape == "map" and not _map(atom).atomic and isinstance(left, dict) and isinstance(right, dict):
        if not right:
            return left or right
        merged = dict(left)
        for name, below in right.items():
            merged[name] = merge(_field_type(_map(atom), name), merged.get(name, ABSENT), below)
        return merged
    if shape == "list" and not _list(atom).atomic:
        left, right_items = left if isinstance(left, list) else [], right if isinstance(right, list) else []
        return _merged_items(_list(atom), left, right_items) if left or right_items else right
    if shape == "map" and not _map(atom).atomic and isinstance(left, dict) and left:
        return left  # null over a map that has fields: there is nothing to put over them
    return right


def without(atom: Atom, value: Any, fields: FieldSet) -> Any:
    """*value* without *fields*; None when nothing is left of it."""
    shape = _shape(atom, value)
    if shape == "map":
        return _map_without(_map(atom), value, fields)
    if shape == "list":
        return _list_without(_list(atom), value, fields)
    return value


def with_named(atom: Atom, fields: FieldSet) -> FieldSet:
    """*fields*, and those fields that the type declares and that only something below is a member of."""
    declared = atom.map.fields if atom.map else {}
    members = set(fields.members)
    children = {}
    for element, below in fields.children.items():
        if element[0] == "f" and element[2:] in declared:
            members.add(element)
        children[element] = with_named(_type_at(atom, element), below)
    return FieldSet(members, children)


def reconciled(atom: Atom, fields: FieldSet) -> FieldSet:
    """*fields* as they are now that the type is *atom*: what lies in something atomic is owned by owning that."""
    changed: FieldSet | None = None
    for element, below in fields.children.items():
        inner = _type_at(atom, element)
        if _deduced(inner):
            continue
        if inner.map.atomic if inner.map else inner.list is not None and inner.list.atomic and not inner.scalar:
            changed = changed or FieldSet(fields.members, fields.children)
            del changed.children[element]
            changed.members.add(element)
        elif (now := reconciled(inner, below)) is not below:
            changed = changed or FieldSet(fields.members, fields.children)
            changed.children[element] = now
    return changed or fields


def equal(left: Any, right: Any) -> bool:
    """Whether two values are the same JSON; 1 is 1.0, but not true."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if left != right:
        return False
    if isinstance(left, dict):
        encoded = _encoded(left)  # the same text proves it, and is had at a fraction of the cost of looking
        return (encoded is not None and encoded == _encoded(right)) or all(
            equal(below, right[name]) for name, below in left.items()
        )
    if isinstance(left, list):
        return all(equal(mine, other) for mine, other in zip(left, right, strict=True))
    return True


def _encoded(value: dict[str, Any]) -> bytes | None:
    try:
        return encode(value)
    except OverflowError:  # an integer that is too large for msgspec
        return None


# Shapes

_NOTHING: Final = Atom()
_EMPTY: Final = FieldSet()


def _shape(atom: Atom, value: Any) -> _Shape:
    """How *value* is to be looked at: by what it is if its type allows that, else by what the type would have."""
    if isinstance(value, dict):
        if atom.map:
            return "map"
    elif isinstance(value, list):
        if atom.list:
            return "list"
    elif value is not None and value is not ABSENT and atom.scalar:
        return "scalar"
    if atom.map:
        return "map"
    return "scalar" if atom.scalar else "list"


def _map(atom: Atom) -> MapType:
    if atom.map is None:
        raise TypingFailed(["schema error: invalid atom: inlined"])
    return atom.map


def _list(atom: Atom) -> ListType:
    if atom.list is None:
        raise TypingFailed(["schema error: invalid atom: inlined"])
    return atom.list


def _field_type(map_type: MapType, name: str) -> Atom:
    return map_type.fields.get(name) or map_type.element or _NOTHING


def _type_at(atom: Atom, element: str) -> Atom:
    if element[0] == "f":
        return _field_type(atom.map, element[2:]) if atom.map else _NOTHING
    return atom.list.element if atom.list else _NOTHING


def _deduced(atom: Atom) -> bool:
    """It is a map of anything: that it became atomic does not change who owns what in it."""
    element = atom.map.element if atom.map and not atom.map.fields else None
    return element is DEDUCED or (element is not None and element is not UNTYPED and element.scalar == "untyped")


# Items of associative lists


def _element(list_type: ListType, item: Any) -> str:
    """The element for *item*; raise TypingFailed if it has none."""
    if list_type.keys:
        if item is None:
            raise TypingFailed(["associative list with keys may not have a null element"])
        if not isinstance(item, dict):
            raise TypingFailed(["associative list with keys may not have non-map elements"])
        defaults = list_type.element.map.defaults if list_type.element.map else {}
        keys = {name: item.get(name, defaults.get(name)) for name in list_type.keys if name in item or name in defaults}
        if not keys:
            names = " ".join(map(quoted, list_type.keys))
            missing = f"associative list with keys has an element that omits all key fields [{names}]"
            raise TypingFailed([f"{missing} (and doesn't have default values for any key fields)"])
        return fieldsets.key(keys)
    if item is None:
        raise TypingFailed(["associative list without keys has an element that's an explicit null"])
    if isinstance(item, dict):
        raise TypingFailed(["associative list without keys has an element that's a map type"])
    if isinstance(item, list):
        raise TypingFailed(["not supported: associative list with lists as elements"])
    return fieldsets.value(item)


def _by_element(list_type: ListType, items: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for index, item in enumerate(items if isinstance(items, list) else ()):
        try:
            found.setdefault(_element(list_type, item), []).append(item)
        except TypingFailed as failure:
            raise TypingFailed([f"element {index}: {failure}"]) from None
    return found


# Validation


def _errors(atom: Atom, value: Any, path: str, *, duplicates: bool) -> list[str]:
    shape = _shape(atom, value)
    if value is None:
        return []
    if shape == "map" and atom.map:
        if not isinstance(value, dict):
            return [_error(path, f"expected map, got {_go_value(value)}")]
        return [
            error for name, below in value.items() for error in _field_errors(atom.map, name, below, path, duplicates)
        ]
    if shape == "list" and atom.list:
        if not isinstance(value, list):
            return [_error(path, f"expected list, got {_go_value(value)}")]
        return _item_errors(atom.list, value, path, duplicates=duplicates)
    return [_error(path, problem)] if atom.scalar and (problem := _scalar_problem(atom.scalar, value)) else []


def _field_errors(map_type: MapType, name: str, value: Any, path: str, duplicates: bool) -> list[str]:
    known = map_type.fields.get(name) or map_type.element
    if known is None:
        return [_error(f"{path}.{name}", "field not declared in schema")]
    return _errors(known, value, f"{path}.{name}", duplicates=duplicates)


def _item_errors(list_type: ListType, items: list[Any], path: str, *, duplicates: bool) -> list[str]:
    errors: list[str] = []
    seen: set[str] = set()
    for index, item in enumerate(items):
        inner = f"[{index}]"
        if not list_type.atomic:
            try:
                element = _element(list_type, item)
            except TypingFailed as failure:
                return [*errors, _error(path, f"element {index}: {failure}")]
            inner = f"[={item}]" if type(item) is int else fieldsets.shown((element,))
            if element in seen and not duplicates:
                errors.append(_error(path, f"duplicate entries for key {inner}"))
            seen.add(element)
        errors += _errors(list_type.element, item, path + inner, duplicates=duplicates)
    return errors


def _scalar_problem(scalar: Scalar, value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if scalar == "numeric":
        return "" if number else f"expected numeric (int or float), got {_go_type(value)}"
    if scalar == "string":
        return "" if isinstance(value, str) else f"expected string, got {_go_syntax(value)}"
    if scalar == "boolean":
        return "" if isinstance(value, bool) else f"expected boolean, got {_go_value(value)}"
    return f"expected any scalar, got {_go_value(value)}" if isinstance(value, (dict, list)) else ""


def _error(path: str, problem: str) -> str:
    return f"{path}: {problem}" if path else problem


def _go_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (int, float)):
        return "int64" if isinstance(value, int) else "float64"
    return "map[string]interface {}" if isinstance(value, dict) else "[]interface {}"


def _go_value(value: Any) -> str:
    return "&{" + go_shown(value) + "}"


def _go_syntax(value: Any) -> str:
    return "&value.valueUnstructured{Value:" + go_source(value) + "}"


# Sets of fields


def _field_set(atom: Atom, value: Any) -> tuple[FieldSet, bool]:
    """What is in the set below the value, and whether the value itself is."""
    shape = _shape(atom, value)
    made = FieldSet()
    if shape == "map":
        map_type = _map(atom)
        if map_type.atomic:
            return made, True
        for name, below in value.items() if isinstance(value, dict) else ():
            inner, itself = _field_set(_field_type(map_type, name), below)
            _put(made, fieldsets.field(name), inner, itself or below in (None, {}) or name not in map_type.fields)
        return made, False
    if shape == "list":
        list_type = _list(atom)
        if list_type.atomic:
            return made, True
        for element, items in _by_element(list_type, value).items():
            _put(made, element, _field_set(list_type.element, items[0])[0] if len(items) == 1 else FieldSet())
        return made, False
    return made, True


def _put(fields: FieldSet, element: str, below: FieldSet, itself: bool = True) -> None:
    if itself:
        fields.members.add(element)
    if below:
        fields.children[element] = below


# Comparison


def _compare(atom: Atom, left: Any, right: Any, path: Path, found: Comparison) -> None:
    if left is right or (left == right and equal(left, right)):
        return
    if left is ABSENT or right is ABSENT:
        value, fields = (right, found.added) if left is ABSENT else (left, found.removed)
        _insert_tree(fields, path, everything(atom, value))
        return
    left_shape, right_shape = _shape(atom, left), _shape(atom, right)
    if left_shape != right_shape:
        _compare_as(left_shape, atom, left, right, path, found)
    _compare_as(right_shape, atom, left, right, path, found)


def _compare_as(shape: _Shape, atom: Atom, left: Any, right: Any, path: Path, found: Comparison) -> None:
    if shape == "map" and not _map(atom).atomic:
        mine, other = left if isinstance(left, dict) else {}, right if isinstance(right, dict) else {}
        if mine or other:
            _compare_fields(_map(atom), mine, other, path, found)
            return
    elif shape == "list" and not _list(atom).atomic:
        items, others = left if isinstance(left, list) else [], right if isinstance(right, list) else []
        if items or others:
            _compare_items(_list(atom), items, others, path, found)
            return
    if not equal(left, right):
        found.modified.insert(path)


def _compare_fields(
    map_type: MapType, left: dict[str, Any], right: dict[str, Any], path: Path, found: Comparison
) -> None:
    for name, mine in left.items():
        other = right.get(name, ABSENT)
        # most fields are the same, and need no path
        if mine is not other and not (mine == other and (type(mine) is str or equal(mine, other))):
            _compare(_field_type(map_type, name), mine, other, (*path, fieldsets.field(name)), found)
    for name, other in right.items():
        if name not in left:
            _compare(_field_type(map_type, name), ABSENT, other, (*path, fieldsets.field(name)), found)


def _compare_items(list_type: ListType, left: list[Any], right: list[Any], path: Path, found: Comparison) -> None:
    mine, other = _by_element(list_type, left), _by_element(list_type, right)
    for element in (*mine, *(element for element in other if element not in mine)):
        before, after = mine.get(element, []), other.get(element, [])
        inner = (*path, element)
        if len(before) <= 1 and len(after) <= 1:
            first, second = (each[0] if each else ABSENT for each in (before, after))
            _compare(list_type.element, first, second, inner, found)
        elif len(before) > 1 and len(after) > 1:
            if not equal(before, after):
                found.modified.insert(inner)
        elif len(before) > 1:
            if after:
                _compare(list_type.element, ABSENT, after[0], inner, found)
            found.removed.insert(inner)
        else:
            if before:
                _compare(list_type.element, before[0], ABSENT, inner, found)
            found.added.insert(inner)


def _insert_tree(fields: FieldSet, path: Path, below: FieldSet) -> None:
    fields.insert(path)
    if not below:
        return
    node = fields
    for element in path:
        node = node.children.setdefault(element, FieldSet())
    merged = node | below
    node.members, node.children = set(merged.members), dict(merged.children)


# Merging


def _merged_items(list_type: ListType, left: list[Any], right: list[Any]) -> list[Any]:
    """The items of both. Those of *right* are in its order; those of *left* alone stay near where they were."""
    mine, other = _by_element(list_type, left), _by_element(list_type, right)
    left_elements = [_element(list_type, item) for item in left]
    right_elements = list(other)
    shared = iter([element for element in right_elements if element in mine])
    next_shared = next(shared, None)
    merged: list[Any] = []
    done: set[str] = set()

    def take(element: str) -> None:
        done.add(element)
        before = mine.get(element, [ABSENT])
        # an item that is there twice is not merged with: it is replaced
        merged.append(merge(list_type.element, before[0] if len(before) == 1 else None, other[element][0]))

    at_left = at_right = 0
    while at_left < len(left) or at_right < len(right_elements):
        if at_left < len(left) and at_right < len(right_elements):
            element = left_elements[at_left]
            if element == right_elements[at_right]:
                take(element)
                at_left += 1
                at_right += 1
                next_shared = next(shared, None)
                continue
            if element in other and next_shared is not None and next_shared != element:
                at_left += 1
                continue
        if at_left < len(left):
            element = left_elements[at_left]
            if element not in other:
                merged.append(left[at_left])
                at_left += 1
                continue
            if element in done:
                at_left += 1
        if at_right < len(right_elements):
            element = right_elements[at_right]
            take(element)
            at_right += 1
            if next_shared == element:
                next_shared = next(shared, None)
    return merged


# Removal


def _map_without(map_type: MapType, value: Any, fields: FieldSet) -> Any:
    if not isinstance(value, dict) or not value or map_type.atomic:
        return None
    left = {}
    for name, below in value.items():
        element = fieldsets.field(name)
        if element in fields.members:
            continue
        inner = fields.children.get(element)
        left[name] = without(_field_type(map_type, name), below, inner) if inner else below
    return left or None


def _list_without(list_type: ListType, value: Any, fields: FieldSet) -> Any:
    if not isinstance(value, list) or not value or list_type.atomic:
        return None
    left = []
    for item in value:
        element = _element(list_type, item)
        if element in fields.members:
            continue
        inner = fields.children.get(element)
        left.append(without(list_type.element, item, inner) if inner else item)
    return left or None
