"""Value validation of custom resources, in the words of the API server.

This follows kube-openapi's validator (``pkg/validation/validate``) with its quirks: an error under ``anyOf`` or
``oneOf`` is told for the alternative in which most checks passed, so every check here counts. Updates are ratcheted:
an error in a value that is as it was before is forgiven, where old and new can be told to be the same thing
(:class:`Twin`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kargo_py.local.apiserver import formats, regex
from kargo_py.local.apiserver.failures import Cause, FieldError
from kargo_py.local.apiserver.gotext import compact, number, quoted
from kargo_py.local.apiserver.nodes import Node
from kargo_py.local.apiserver.wire import ABSENT, JsonObject, identical

_INT64: Final = range(-(1 << 63), 1 << 63)
_MAX_WHOLE: Final = (1 << 53) - 1
_PYTHON_TYPES: Final[dict[str, type]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": float,
}
_ALL_KINDS: Final[frozenset[type]] = frozenset({dict, list, str, bool, int, float})
_KINDS: Final[dict[str, frozenset[type]]] = {
    **{name: frozenset({kind}) for name, kind in _PYTHON_TYPES.items()},
    "number": frozenset({int, float}),
}
_UNKNOWN: Final = object()


class Fault(NamedTuple):
    """What is wrong with one value. ``message`` is what the API server tells faults apart by."""

    cause: Cause
    name: str | None
    value: Any
    detail: str
    message: str

    def at(self, prefix: str) -> FieldError:
        """The error as a client sees it, *prefix* being the path of what was validated ("" for the whole object)."""
        name = (self.name or "").removeprefix(".")
        path = f"{prefix}.{name}" if prefix and name else prefix or name
        return FieldError(self.cause, path or "<nil>", self.value, self.detail)


class Twin:
    """A value beside what it was before, as far as the schema lets one say which is which."""

    __slots__ = ("_by_key", "_same", "new", "node", "old")

    def __init__(self, node: Node, new: Any, old: Any) -> None:
        """*old* and *new* are values that *node* describes."""
        self.node = node
        self.new = new
        self.old = old
        self._same: bool | None = None
        self._by_key: dict[str, Any] | None = None

    def key(self, key: str) -> Twin | None:
        """The field *key* of both; None where it is new."""
        child = self.node.child(key)
        if child is None or type(self.old) is not dict or type(self.new) is not dict:
            return None
        if key not in self.old or key not in self.new:
            return None
        return Twin(child, self.new[key], self.old[key])

    def index(self, at: int) -> Twin | None:
        """The item of a map-list beside the old one with the same keys."""
        items = self.node.items
        if items is None or self.node.list_type != "map" or type(self.old) is not list or type(self.new) is not list:
            return None
        if self._by_key is None:
            self._by_key = by_key(self.node, self.old)
        key = map_key(self.node, self.new[at])
        old = None if key is None else self._by_key.get(key)
        return None if old is None else Twin(items, self.new[at], old)

    def same(self) -> bool:
        """Whether nothing has changed."""
        if self._same is None:
            self._same = self._compare()
        return self._same

    def _compare(self) -> bool:
        new, old = self.new, self.old
        if type(new) is dict and type(old) is dict:
            if len(new) != len(old):
                return False
            twins = map(self.key, new)
            return all(twin is not None and twin.same() for twin in twins)
        if type(new) is list and type(old) is list and self.node.list_type == "map":
            if len(new) != len(old):
                return False
            twins = map(self.index, range(len(new)))
            return all(twin is not None and twin.same() for twin in twins)
        return identical(new, old)


def map_key(node: Node, item: Any) -> str | None:
    """What tells the items of a map-list apart; None for an item that does not have it."""
    if type(item) is not dict or not all(key in item for key in node.map_keys):
        return None
    return repr([item[key] for key in node.map_keys])


def by_key(node: Node, items: Any) -> dict[str, Any]:
    """The items of a map-list by what tells them apart; the first of each."""
    found: dict[str, Any] = {}
    for item in items if type(items) is list and node.list_type == "map" else ():
        if (key := map_key(node, item)) is not None:
            found.setdefault(key, item)
    return found


class Check:
    """The checks of one schema."""

    __slots__ = (
        "_intricate",
        "_kinds",
        "additional",
        "all_of",
        "any_of",
        "enum",
        "forbids_additional",
        "format",
        "format_check",
        "items",
        "max_items",
        "max_length",
        "max_properties",
        "maximum",
        "maximum_exclusive",
        "min_items",
        "min_length",
        "min_properties",
        "minimum",
        "minimum_exclusive",
        "multiple_of",
        "none_of",
        "nullable",
        "one_of",
        "pattern",
        "properties",
        "required",
        "trivial",
        "trivial_count",
        "types",
    )

    def __init__(self, raw: JsonObject) -> None:
        """*raw* is a schema that :mod:`structural` has found nothing wrong with."""
        kind = raw.get("type") or ""
        self.types: tuple[str, ...] = (kind,) if kind else ()
        if raw.get("x-kubernetes-int-or-string"):
            self.types = ("integer", "string")
        self.nullable = bool(raw.get("nullable"))
        self.format: str = raw.get("format") or ""
        self.format_check = formats.check_of(self.format) if self.format else None
        if self.format_check is None:
            self.format = ""
        self.enum: Sequence[Any] = raw.get("enum") or ()
        self.maximum: float | None = raw.get("maximum")
        self.minimum: float | None = raw.get("minimum")
        self.maximum_exclusive = bool(raw.get("exclusiveMaximum"))
        self.minimum_exclusive = bool(raw.get("exclusiveMinimum"))
        self.multiple_of: float | None = raw.get("multipleOf")
        self.max_length: int | None = raw.get("maxLength")
        self.min_length: int | None = raw.get("minLength")
        self.pattern = regex.compiled(raw["pattern"]) if raw.get("pattern") else None
        self.max_items: int | None = raw.get("maxItems")
        self.min_items: int | None = raw.get("minItems")
        self.max_properties: int | None = raw.get("maxProperties")
        self.min_properties: int | None = raw.get("minProperties")
        self.required: Sequence[str] = raw.get("required") or ()
        self.properties = {key: Check(below) for key, below in (raw.get("properties") or {}).items()}
        additional, items = raw.get("additionalProperties"), raw.get("items")
        self.additional = Check(additional) if isinstance(additional, dict) else None
        self.forbids_additional = additional is False
        self.items = Check(items) if isinstance(items, dict) else None
        self.all_of = [Check(below) for below in raw.get("allOf") or ()]
        self.any_of = [Check(below) for below in raw.get("anyOf") or ()]
        self.one_of = [Check(below) for below in raw.get("oneOf") or ()]
        self.none_of = Check(raw["not"]) if isinstance(raw.get("not"), dict) else None
        self.trivial, self.trivial_count = self._triviality()
        self._kinds: frozenset[type] = _KINDS.get(kind, _ALL_KINDS) if len(self.types) < 2 else frozenset({int, str})
        self._intricate = bool(
            self.all_of
            or self.any_of
            or self.one_of
            or self.none_of is not None
            or (self.format and self.types != ("string",))
        )

    def _triviality(self) -> tuple[object, int]:
        """The Python type whose every value passes, and how many checks that counts for."""
        kind = _PYTHON_TYPES.get(self.types[0]) if len(self.types) == 1 else None
        if kind in {None, int, float, list} or self.enum or self.format:
            return _UNKNOWN, 0
        if self.all_of or self.any_of or self.one_of or self.none_of:
            return _UNKNOWN, 0
        if kind is str and (self.max_length is not None or self.min_length is not None or self.pattern):
            return _UNKNOWN, 0
        if kind is dict and (
            self.properties
            or self.required
            or self.additional
            or self.forbids_additional
            or self.min_properties is not None
            or self.max_properties is not None
        ):
            return _UNKNOWN, 0
        return kind, 6 if kind is bool else 7

    def fits(self, value: Any) -> bool:
        """Whether nothing is wrong with *value*: what :meth:`run` finds, without asking where and why."""
        kind = type(value)
        if kind is self.trivial:
            return True
        if value is None:
            return (not self.types or self.nullable) and not self.enum
        if self._intricate or kind not in self._kinds or (self.enum and kind is not str):
            return self._fits_exactly(value)
        if kind is dict:
            return self._object_fits(value)
        if kind is str:
            return self._string_fits(value)
        if kind is list:
            size, items = len(value), self.items
            if (self.min_items is not None and size < self.min_items) or (
                self.max_items is not None and size > self.max_items
            ):
                return False
            return items is None or all(map(items.fits, value))
        if kind is int:
            bounded = self.minimum is not None or self.maximum is not None or self.multiple_of is not None
            return self._fits_exactly(value) if bounded or value not in _INT64 else True
        return kind is bool or self._fits_exactly(value)

    def _fits_exactly(self, value: Any) -> bool:
        found: list[Fault] = []
        self.run(value, "", None, found)
        return not found

    def _object_fits(self, value: JsonObject) -> bool:
        size = len(value)
        if (self.min_properties is not None and size < self.min_properties) or (
            self.max_properties is not None and size > self.max_properties
        ):
            return False
        properties, additional = self.properties, self.additional
        for key, item in value.items():
            check = properties.get(key)
            if check is None:
                if self.forbids_additional:
                    return False
                check = additional
                if check is None:
                    continue
            if type(item) is not check.trivial and not check.fits(item):
                return False
        return all(key in value for key in self.required)

    def _string_fits(self, value: str) -> bool:
        size = len(value)
        return (
            (self.max_length is None or size <= self.max_length)
            and (self.min_length is None or size >= self.min_length)
            and (self.pattern is None or bool(self.pattern.search(value)))
            and (self.format_check is None or self.format_check(value))
            and (not self.enum or value in self.enum)
        )

    def faults(self, value: Any, twin: Twin | None) -> list[Fault]:
        """What is wrong with the root *value*; *twin* is what it replaces."""
        found: list[Fault] = []
        if self.fits(value):
            return found
        self.run(value, "", None, found)
        if not found:
            return found
        if twin is not None:
            found.clear()
            self.run(value, "", twin, found)
            if found and twin.same():
                return []
        return list({fault.message: fault for fault in reversed(found)}.values())[::-1]

    def run(self, value: Any, path: str, twin: Twin | None, found: list[Fault]) -> int:
        """Add what is wrong with *value* to *found*; how many checks passed."""
        if value is None:
            passed = 1
            if self.types and not self.nullable:
                found.append(self._type_fault(path, ",".join(self.types), "null"))
                passed = 0
            if self.enum:
                found.append(self._enum_fault(path, value))
            return passed
        kind = type(value)
        if kind is int and value not in _INT64:
            value, kind = float(value), float  # as it was read by Go
        passed = 5  # the checks that are always made count as passed, whatever they find
        if self.types or self.format:
            passed += 1 + self._check_type(value, kind, path, found)
        if self.any_of or self.one_of or self.all_of or self.none_of is not None:
            passed += self._check_junctors(value, path, found)
        if kind is str:
            if self.format_check is not None:
                passed += 1
            self._check_string(value, path, found)
        elif kind is int or kind is float:
            passed += 1
            self._check_number(value, path, found)
        elif kind is list:
            passed += 1
            if (items := self.items) is not None:
                trivial = items.trivial
                for at, item in enumerate(value):
                    if type(item) is trivial:
                        passed += items.trivial_count
                        continue
                    passed += self._below(items, item, f"{path}[{at}]", twin and twin.index(at), found)
            self._check_size(value, path, found)
        if self.enum and not any(_is_enumerated(value, allowed) for allowed in self.enum):
            found.append(self._enum_fault(path, value))
        if kind is dict:
            passed += self._check_object(value, path, twin, found)
        return passed - (kind is bool)

    @staticmethod
    def _below(check: Check, value: Any, path: str, twin: Twin | None, found: list[Fault]) -> int:
        mark = len(found)
        passed = check.run(value, path, twin, found)
        if twin is not None and len(found) > mark and twin.same():
            del found[mark:]
        return passed

    def _check_type(self, value: Any, kind: type, path: str, found: list[Fault]) -> int:
        name, form = _described(kind)
        types = self.types
        fits = (
            name in types
            or (name == "integer" and "number" in types)
            or (name == "number" and "integer" in types and _is_whole(value))
        )
        if self.format:
            if kind is not str and kind is not list and not fits:
                found.append(self._type_fault(path, self.format, form))
                return 0
            if (kind is str or kind is list) and "number" not in types and "integer" not in types:
                return 1
        if not fits:
            found.append(self._type_fault(path, ",".join(types), name))
            return 0
        return 1

    def _check_string(self, value: str, path: str, found: list[Fault]) -> None:
        size = len(value)
        if self.max_length is not None and size > self.max_length:
            detail = f"may not be more than {self.max_length} {'byte' if self.max_length == 1 else 'bytes'}"
            message = f"{path} in body should be at most {self.max_length} chars long"
            found.append(Fault(Cause.TOO_LONG, path, ABSENT, detail, message))
        elif self.min_length is not None and size < self.min_length:
            found.append(_invalid(path, value, f"should be at least {self.min_length} chars long"))
        elif self.pattern is not None and not self.pattern.search(value):
            found.append(_invalid(path, value, f"should match '{self.pattern.text}'"))
        if self.format_check is not None and not self.format_check(value):
            found.append(self._type_fault(path, self.format, value))

    def _check_number(self, value: float, path: str, found: list[Fault]) -> None:
        # Bounds are compared as integers where the value is one, as the API server does: 1 is not below 1.5.
        whole = type(value) is int
        if (factor := self.multiple_of) is not None:
            factor = int(factor) if whole else float(factor)
            if factor <= 0:
                message = f"factor MultipleOf declared for {path} must be positive: {number(factor)}"
                found.append(Fault(Cause.INVALID, path, factor, message, message))
            elif value % factor if whole else not _is_whole(value / factor if factor >= 1 else 1 / factor * value):
                found.append(_invalid(path, value, f"should be a multiple of {number(factor)}"))
        if (least := self.minimum) is not None:
            least = int(least) if whole else float(least)
            if value < least or (self.minimum_exclusive and value == least):
                word = "greater than" if self.minimum_exclusive else "greater than or equal to"
                found.append(_invalid(path, value, f"should be {word} {number(least)}"))
        if (most := self.maximum) is not None:
            most = int(most) if whole else float(most)
            if value > most or (self.maximum_exclusive and value == most):
                word = "less than" if self.maximum_exclusive else "less than or equal to"
                found.append(_invalid(path, value, f"should be {word} {number(most)}"))

    def _check_size(self, value: list[Any], path: str, found: list[Fault]) -> None:
        size = len(value)
        if self.min_items is not None and size < self.min_items:
            found.append(_invalid(path, size, f"should have at least {self.min_items} items"))
        if self.max_items is not None and size > self.max_items:
            message = f"{path} in body should have at most {self.max_items} items"
            found.append(Fault(Cause.TOO_MANY, path, size, _at_most(self.max_items), message))

    def _check_object(self, value: JsonObject, path: str, twin: Twin | None, found: list[Fault]) -> int:
        passed = 0
        if self.min_properties is not None and len(value) < self.min_properties:
            found.append(_invalid(path, len(value), f"should have at least {self.min_properties} properties"))
        if self.max_properties is not None and len(value) > self.max_properties:
            message = f"{path} in body should have at most {self.max_properties} properties"
            found.append(Fault(Cause.TOO_MANY, path, len(value), _at_most(self.max_properties), message))
        properties, additional = self.properties, self.additional
        for key, item in value.items():
            check = properties.get(key)
            if check is None:
                if self.forbids_additional:
                    message = f"{path}.{key} in body is a forbidden property"
                    found.append(Fault(Cause.INVALID, path, key, message, message))
                if additional is None:
                    continue
                check = additional
            if type(item) is check.trivial:
                passed += check.trivial_count
                continue
            below = f"{path}.{key}" if path or key not in properties else key
            # A change of apiVersion or kind at the root is not seen, as old and new are of the same type by now.
            both = None if twin is None or (not path and key in {"apiVersion", "kind"}) else twin.key(key)
            passed += self._below(check, item, below, both, found)
        for key in self.required:
            if key not in value:
                name = f"{path}.{key}"
                found.append(Fault(Cause.REQUIRED, name, ABSENT, "", f"{name} in body is required"))
        return passed

    def _check_junctors(self, value: Any, path: str, found: list[Fault]) -> int:
        passed = 0
        name = quoted(path)
        if self.any_of:
            passed += self._check_any_of(value, path, found)
        if self.one_of:
            results = [_outcome(check, value, path) for check in self.one_of]
            right = [result for result in results if not result[1]]
            if len(right) == 1:
                passed += right[0][0]
            else:
                what = f"Found {len(right)} valid alternatives" if right else "Found none valid"
                found.append(_composite(f"{name} must validate one and only one schema (oneOf). {what}"))
                if not right:
                    best = max(results, key=lambda result: result[0])
                    passed += best[0]
                    found.extend(best[1])
        if self.all_of:
            results = [_outcome(check, value, path) for check in self.all_of]
            for count, faults in results:
                passed += count
                found.extend(faults)
            wrong = sum(bool(faults) for _, faults in results)
            if wrong:
                tail = ". None validated" if wrong == len(results) else ""
                found.append(_composite(f"{name} must validate all the schemas (allOf){tail}"))
        if self.none_of is not None and not _outcome(self.none_of, value, path)[1]:
            found.append(_composite(f"{name} must not validate the schema (not)"))
        return passed

    def _check_any_of(self, value: Any, path: str, found: list[Fault]) -> int:
        best: tuple[int, list[Fault]] | None = None
        for check in self.any_of:
            result = _outcome(check, value, path)
            if not result[1]:
                return result[0]
            if best is None or result[0] > best[0]:
                best = result
        found.append(_composite(f"{quoted(path)} must validate at least one schema (anyOf)"))
        if best is None:
            return 0
        found.extend(best[1])
        return best[0]

    def _enum_fault(self, path: str, value: Any) -> Fault:
        names = [quoted(allowed if isinstance(allowed, str) else compact(allowed)) for allowed in self.enum]
        detail = f"supported values: {', '.join(names)}"
        return Fault(Cause.UNSUPPORTED, path, value, detail, f"{path} in body should be one of {names}")

    @staticmethod
    def _type_fault(path: str, wanted: str, got: str) -> Fault:
        message = f"{path} in body must be of type {wanted}: {quoted(got)}"
        return Fault(Cause.TYPE, path, got, message, message)


def _outcome(check: Check, value: Any, path: str) -> tuple[int, list[Fault]]:
    # Nothing within a junctor is ratcheted.
    faults: list[Fault] = []
    return check.run(value, path, None, faults), faults


def _described(kind: type) -> tuple[str, str]:
    """The JSON type of values of *kind*, and the format by which the API server calls it."""
    if kind is str:
        return "string", ""
    if kind is dict:
        return "object", ""
    if kind is list:
        return "array", ""
    if kind is bool:
        return "boolean", ""
    if kind is int:
        return "integer", "int64"
    return "number", "float64"


def _is_whole(value: float) -> bool:
    """Whether a float is an integer that JSON can tell from its neighbours."""
    return value.is_integer() and abs(value) <= _MAX_WHOLE


def _is_enumerated(value: Any, allowed: Any) -> bool:
    if isinstance(value, (int, float)) and isinstance(allowed, (int, float)):
        if isinstance(value, bool) or isinstance(allowed, bool):
            return value is allowed
        return (int(value) if isinstance(allowed, int) else value) == allowed
    return identical(value, allowed)


def _invalid(path: str, value: Any, what: str) -> Fault:
    message = f"{path} in body {what}"
    return Fault(Cause.INVALID, path, value, message, message)


def _composite(message: str) -> Fault:
    return Fault(Cause.INVALID, None, "", message, message)


def _at_most(size: int) -> str:
    return f"must have at most {size} {'item' if size == 1 else 'items'}"
