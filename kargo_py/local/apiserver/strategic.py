"""The strategic merge patch of built-in kinds: lists are merged as the kind's schema says.

``x-kubernetes-patch-strategy: merge`` merges a list by ``x-kubernetes-patch-merge-key``, or as a set; without it the
patch's list replaces the old one. Directives in the patch (``$patch``, ``$deleteFromPrimitiveList/…``,
``$setElementOrder/…``, ``$retainKeys``) say what to delete, to replace, and in which order to leave it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kargo_py.local.apiserver.failures import bad_request, internal
from kargo_py.local.apiserver.gotext import go_shown
from kargo_py.local.apiserver.metatypes import OBJECT_META_SCHEMA
from kargo_py.local.apiserver.patches import does_not_apply, without_nulls
from kargo_py.local.apiserver.structured import equal
from kargo_py.local.apiserver.wire import JsonObject, copied

_DIRECTIVE: Final = "$patch"
_RETAIN_KEYS: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList"
_SET_ORDER: Final = "$setElementOrder"
_BAD_PRIMITIVE_LIST: Final = "invalid patch format of primitive list"
_BAD_RETAIN_KEYS: Final = "invalid patch format of retainKeys"
_BAD_ORDER: Final = "invalid patch format of setElementOrder list"


class _Field(NamedTuple):
    """What the schema says of a field: its own schema or that of its items, how to merge it and by which key."""

    schema: JsonObject
    strategy: str
    merge_key: str


def strategic_merge(doc: JsonObject, patch: JsonObject, schema: JsonObject) -> JsonObject:
    """Apply a strategic merge patch to an object of a built-in kind.

    Raises:
        Failure: the patch is not well formed, or does not fit the object.
    """
    whole = {**schema, "properties": {**schema.get("properties", {}), "metadata": OBJECT_META_SCHEMA}}
    return _merged(copied(doc), copied(patch), whole)


def _field(schema: JsonObject, name: str) -> _Field:
    found = (schema.get("properties") or {}).get(name) or {}
    strategies = [each for each in found.get("x-kubernetes-patch-strategy", "").split(",") if each != "retainKeys"]
    below = found.get("items", found)
    return _Field(below, strategies[0] if strategies else "", found.get("x-kubernetes-patch-merge-key", ""))


def _merged(original: JsonObject, patch: JsonObject, schema: JsonObject) -> JsonObject:
    """Merge *patch* into *original*; both are ours to change."""
    if _DIRECTIVE in patch:
        return _replaced(patch)
    _retain_keys(original, patch)
    _order_lists(original, patch, schema)
    for name, value in patch.items():
        deletes = name.startswith(_DELETE_FROM)
        key = _directed_key(name, _DELETE_FROM, _BAD_PRIMITIVE_LIST) if deletes else name
        before = original.get(key)
        if value is None:
            original.pop(key, None)
        elif isinstance(before, dict) and isinstance(value, dict):
            below = _field(schema, key)
            original[key] = value if below.strategy == "replace" else _merged(before, value, below.schema)
        elif isinstance(before, list) and isinstance(value, list):
            below = _field(schema, key)
            merges = below.strategy == "merge" or deletes
            original[key] = _merged_list(before, value, below, deletes=deletes) if merges else value
        elif not deletes:
            _put(original, key, value)
    return original


def _replaced(patch: JsonObject) -> JsonObject:
    directive = patch[_DIRECTIVE]
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != _DIRECTIVE}
    if directive == "delete":
        return {}
    raise internal(f"unknown patch type: {go_shown(directive)} in map: {go_shown(patch)}")


def _put(original: JsonObject, name: str, value: Any) -> None:
    """Set what was not there before, or was something else."""
    kept = _without_directives([without_nulls(value)])
    if kept:
        original[name] = kept[0]
    else:
        original.pop(name, None)


def _without_directives(items: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        if isinstance(item, dict):
            if _DIRECTIVE not in item:
                below = {name: _without_directives([value]) for name, value in item.items()}
                kept.append({name: value[0] for name, value in below.items() if value})
        elif isinstance(item, list):
            kept.append(_without_directives(item))
        else:
            kept.append(item)
    return kept


def _directed_key(name: str, prefix: str, problem: str) -> str:
    found, separator, key = name.partition("/")
    if found != prefix or not separator:
        raise bad_request(problem)
    return key


def _retain_keys(original: JsonObject, patch: JsonObject) -> None:
    """``$retainKeys``: drop all other fields of the original."""
    if _RETAIN_KEYS not in patch:
        return
    retained = patch.pop(_RETAIN_KEYS)
    if not isinstance(retained, list):
        raise bad_request(_BAD_RETAIN_KEYS)
    for name, value in patch.items():
        if value is not None and not name.startswith((_DELETE_FROM, _SET_ORDER)) and name not in retained:
            raise bad_request(_BAD_RETAIN_KEYS)
    for name in [name for name in original if name not in retained]:
        del original[name]


# Order


def _order_lists(original: JsonObject, patch: JsonObject, schema: JsonObject) -> None:
    """``$setElementOrder/…``: merge these lists at once, and order them."""
    for name in [name for name in patch if name.startswith(_SET_ORDER)]:
        order = _list(patch.pop(name))
        key = _directed_key(name, _SET_ORDER, _BAD_ORDER)
        below = _field(schema, key)
        before = _list(original[key]) if key in original else None
        given = _list(patch[key]) if key in patch else None
        _check_order(given or [], order, below.merge_key)
        if before is None and given is None:
            continue
        if given is None:
            merged = before or []
        elif before is None:
            merged = _without_directives(given)
        else:
            merged = _merged_list(before, given, below, deletes=False) if below.strategy == "merge" else given
        _check_elements(before or [], given or [])
        original[key] = _ordered(merged, order, before or [], below.merge_key)
        patch.pop(key, None)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise internal(f"expected a []interface {{}}, but received a {_go_type(value)}")
    return value


def _check_order(given: Sequence[Any], order: Sequence[Any], merge_key: str) -> None:
    """The patch's items must come in the order that it asks for."""
    if not given or not order:
        return
    listed = [item for item in given if not (isinstance(item, dict) and merge_key and item.get(_DIRECTIVE) == "delete")]
    place = 0
    for wanted in order:
        while place < len(listed) and isinstance(listed[place], dict) and _DIRECTIVE in listed[place]:
            place += 1
        if place < len(listed) and equal(_key_of(listed[place], merge_key), _key_of(wanted, merge_key)):
            place += 1
    if place < len(listed):
        raise internal(
            f"The order in patch list:\n{go_shown(list(given))}\n doesn't match {_SET_ORDER} list:\n"
            f"{go_shown(list(order))}\n"
        )


def _ordered(merged: list[Any], order: Sequence[Any], server_order: Sequence[Any], merge_key: str) -> list[Any]:
    """First what *order* says, then what the server had; items of the server alone go where they were, about."""
    patched = [item for item in merged if _index(order, item, merge_key) >= 0]
    server_only = [item for item in merged if _index(order, item, merge_key) < 0]
    patched.sort(key=lambda item: _index(order, item, merge_key))
    server_only = _sorted_by(server_only, server_order, merge_key)
    result: list[Any] = []
    for item in patched:
        place = _index(server_order, item, merge_key)
        while server_only and 0 <= _index(server_order, server_only[0], merge_key) < place:
            result.append(server_only.pop(0))
        result.append(item)
    return result + server_only


def _sorted_by(items: Sequence[Any], order: Sequence[Any], merge_key: str) -> list[Any]:
    """Sort by *order* as Go's insertion does; items that are not in it come out before those they came after."""
    result: list[Any] = []
    for item in items:
        mine, place = _index(order, item, merge_key), len(result)
        while place and not 0 <= _index(order, result[place - 1], merge_key) <= mine:
            place -= 1
        result.insert(place, item)
    return result


def _index(items: Sequence[Any], item: Any, merge_key: str) -> int:
    mine = _key_of(item, merge_key)
    return next((index for index, other in enumerate(items) if equal(mine, _key_of(other, merge_key))), -1)


def _key_of(item: Any, merge_key: str) -> Any:
    if not merge_key:
        return item
    if not isinstance(item, dict):
        raise internal(f"expected a map[string]interface {{}}, but received a {_go_type(item)}")
    if merge_key not in item:
        raise internal(f"map: {go_shown(item)} does not contain declared merge key: {merge_key}")
    return item[merge_key]


# Lists


def _merged_list(before: list[Any], given: list[Any], below: _Field, *, deletes: bool) -> list[Any]:
    if not before and not given:
        return before
    kind = _check_elements(before, given)
    if kind is not dict:
        if deletes:
            return [item for item in before if _index(given, item, "") < 0]
        merged: list[Any] = []
        for item in (*before, *given):
            if _index(merged, item, "") < 0:
                merged.append(item)
        return _ordered(merged, given, before, "")
    if not below.merge_key:
        raise internal("cannot merge lists without merge key for struct")
    kept, given = _special_items(before, given, below.merge_key)
    merged = list(kept)
    for item in given:
        place = _index_of_key(merged, below.merge_key, _key_of(item, below.merge_key))
        if place < 0:
            merged.append(item)
        else:
            merged[place] = _merged(merged[place], item, below.schema)
    return _ordered(merged, given, kept, below.merge_key)


def _special_items(before: list[Any], given: list[Any], merge_key: str) -> tuple[list[Any], list[Any]]:
    """What is left of the old items and of the patch when items that are directives have been followed."""
    plain: list[Any] = []
    replace = False
    for item in given:
        directive = item.get(_DIRECTIVE)
        if _DIRECTIVE not in item:
            plain.append(item)
        elif directive == "delete":
            mine = _key_of(item, merge_key)
            before = [other for other in before if not equal(other.get(merge_key), mine)]
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise internal("merging lists cannot yet be specified in the patch")
        else:
            raise internal(f"unknown patch type: {go_shown(directive)} in map: {go_shown(item)}")
    return (plain, []) if replace else (before, plain)


def _index_of_key(items: Sequence[Any], merge_key: str, value: Any) -> int:
    return next((index for index, item in enumerate(items) if equal(item.get(merge_key), value)), -1)


def _check_elements(*lists: list[Any]) -> type:
    """The type that all elements have."""
    kinds = {type(item) for items in lists for item in items}
    if list in kinds:
        raise does_not_apply()
    if not kinds:
        raise internal("no elements in any of the given slices")
    if len(kinds) > 1:
        raise internal(f"list element types are not identical: {go_shown([list(items) for items in lists])}")
    return kinds.pop()


def _go_type(value: Any) -> str:
    if value is None:
        return "%!s(<nil>)"
    names = {dict: "map[string]interface {}", list: "[]interface {}", str: "string", bool: "bool", int: "int64"}
    return names.get(type(value), "float64")
