"""Go's types, as far as the built-in kinds use them: what a JSON value becomes in them, and what OpenAPI says of them.

The real server reads a built-in object into a struct and writes it out again. So unknown fields vanish, ``null`` is the
same as nothing, empty fields are left out where their tag says so, times and bytes get one form, and a value of the
wrong type is an error in the words of ``encoding/json``. :class:`Struct` does the same with dictionaries.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from kargo_py.local.apiserver import gotime
from kargo_py.local.apiserver.wire import JsonObject

REFERENCE: Final = "#/components/schemas/"


class Mistyped(Exception):
    """The value does not fit into the type. ``str()`` is what Go says.

    Go keeps the first such error and reads on, unless it is ``final``: a time reads itself, and its error ends all.
    """

    final = False


class Mismatch(Mistyped):
    """A JSON value of another type than the field's."""

    def __init__(self, found: str, go: str) -> None:
        super().__init__(found, go)
        self.found = found
        self.go = go
        self.struct = ""
        self.path = ""

    def within(self, struct: str, name: str) -> None:
        """Note, from the inside out, in which field it was."""
        self.struct = self.struct or struct
        self.path = f"{name}.{self.path}" if self.path else name

    def __str__(self) -> str:
        place = f"struct field {self.struct}.{self.path}" if self.struct else "value"
        return f"json: cannot unmarshal {self.found} into Go {place} of type {self.go}"


def json_type(value: Any) -> str:
    """How ``encoding/json`` names the type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


class GoType:
    """A type: how Go names it, how a value is read into it, what OpenAPI says."""

    go: str
    keeps_empty = False
    """``omitempty`` does not leave it out: a struct, or a time, which is a struct to Go."""

    def decode(self, value: Any, unknown: list[str]) -> Any:
        """*value*, which is not null, in this type; paths of fields that it does not have are added to *unknown*."""
        raise NotImplementedError

    def zero(self) -> Any:
        """What a field has that nothing was read into, as JSON."""
        raise NotImplementedError

    def schema(self, reference: Reference) -> JsonObject:
        """OpenAPI of the type; nested structs as *reference* says."""
        raise NotImplementedError

    def default(self) -> Any:
        """What OpenAPI gives as the default of a field that is always there; None: nothing."""
        return None


Reference = Callable[["Struct"], JsonObject]


class Text(GoType):
    """A string, perhaps of a named type."""

    def __init__(self, go: str = "string", *, enum: Sequence[str] = ()) -> None:
        self.go = go
        self.enum = enum

    def decode(self, value: Any, unknown: list[str]) -> Any:
        if type(value) is str:
            return value
        raise Mismatch(json_type(value), self.go)

    def zero(self) -> Any:
        return ""

    def schema(self, reference: Reference) -> JsonObject:
        return {"type": "string", "enum": list(self.enum)} if self.enum else {"type": "string"}

    def default(self) -> Any:
        return ""


class Bool(GoType):
    """A boolean."""

    go = "bool"

    def decode(self, value: Any, unknown: list[str]) -> Any:
        if type(value) is bool:
            return value
        raise Mismatch(json_type(value), self.go)

    def zero(self) -> Any:
        return False

    def schema(self, reference: Reference) -> JsonObject:
        return {"type": "boolean"}

    def default(self) -> Any:
        return False


class Int(GoType):
    """A whole number of 32 or 64 bits."""

    def __init__(self, bits: int) -> None:
        self.go = f"int{bits}"
        self._high = 1 << (bits - 1)
        self._low = -self._high

    def decode(self, value: Any, unknown: list[str]) -> Any:
        if type(value) is int and self._low <= value < self._high:
            return value
        found = json_type(value)
        raise Mismatch(f"number {value}" if found == "number" else found, self.go)

    def zero(self) -> Any:
        return 0

    def schema(self, reference: Reference) -> JsonObject:
        return {"type": "integer", "format": self.go}

    def default(self) -> Any:
        return 0


class _Byte(Int):
    def __init__(self) -> None:
        super().__init__(8)
        self.go = "uint8"
        self._low, self._high = 0, 256


_UINT8: Final = _Byte()


class Float(GoType):
    """A number."""

    go = "float64"

    def decode(self, value: Any, unknown: list[str]) -> Any:
        if type(value) in {int, float}:
            return value
        raise Mismatch(json_type(value), self.go)

    def zero(self) -> Any:
        return 0

    def schema(self, reference: Reference) -> JsonObject:
        return {"type": "number", "format": "double"}


class Bytes(GoType):
    """Bytes, base64 in JSON."""

    go = "[]uint8"

    def decode(self, value: Any, unknown: list[str]) -> Any:
        if type(value) is list:
            return base64.b64encode(bytes(_UINT8.decode(byte or 0, unknown) for byte in value)).decode()
        if type(value) is not str:
            raise Mismatch(json_type(value), self.go)
        if len(value) % 4:
            return _lenient_base64(value)
        try:
            return base64.b64encode(binascii.a2b_base64(value, strict_mode=True)).decode()
        except ValueError:
            return _lenient_base64(value)

    def zero(self) -> Any:
        return ""

    def schema(self, reference: Reference) -> JsonObject:
        return {"type": "string", "format": "byte"}


_ALPHABET: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def _lenient_base64(text: str) -> str:
    """Go skips line ends within base64, and tells the byte at which it gave up."""
    raw = text.encode(errors="surrogatepass")
    visible = [(place, byte) for place, byte in enumerate(raw) if byte not in b"\r\n"]
    for number, (place, byte) in enumerate(visible):
        if byte in _ALPHABET:
            continue
        position = number % 4
        if byte != ord("=") or position < 2:
            raise _corrupt(place)
        rest = visible[number + 1 :]
        if position == 2:
            if not rest:
                raise _corrupt(len(raw))
            if rest[0][1] != ord("="):
                raise _corrupt(rest[0][0] - 1)
            rest = rest[1:]
        if rest:
            raise _corrupt(rest[0][0])
        break
    else:
        if len(visible) % 4:
            raise _corrupt(len(raw) - len(visible) % 4)
    return base64.b64encode(base64.b64decode(bytes(byte for _, byte in visible))).decode()


def _corrupt(place: int) -> Mistyped:
    return Mistyped(f"illegal base64 data at input byte {place}")


@contextmanager
def _final() -> Iterator[None]:
    try:
        yield
    except Mistyped as wrong:
        wrong.final = True
        raise


def _read_on(wrong: Mistyped, rest: Iterable[Callable[[], Any]]) -> None:
    """Do as Go does after its first error: read the rest, which may have one that is final. Raises Mistyped."""
    if wrong.final:
        return
    for read in rest:
        try:
            read()
        except Mistyped as other:
            if other.final:
                raise other from None


class Time(GoType):
    """A moment."""

    keeps_empty = True

    def __init__(self, *, micro: bool = False) -> None:
        self.go = "string"  # so Go's error says: the time unmarshals itself from a string
        self._read = gotime.micro_time if micro else gotime.time

    def decode(self, value: Any, unknown: list[str]) -> Any:
        with _final():
            if type(value) is not str:
                raise Mismatch(json_type(value), self.go)
            try:
                return self._read(value)
            except gotime.TimeError as wrong:
                raise Mistyped(str(wrong)) from None

    def zero(self) -> Any:
        return None

    def schema(self, reference: Reference) -> JsonObject:
        return {"type": "string", "format": "date-time"}


class Anything(GoType):
    """Any JSON: a default, an enumerated value, a set of managed fields."""

    go = "any"
    keeps_empty = True

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema

    def decode(self, value: Any, unknown: list[str]) -> Any:
        return value

    def zero(self) -> Any:
        return None

    def schema(self, reference: Reference) -> JsonObject:
        return self._schema


class List(GoType):
    """A slice."""

    def __init__(self, item: GoType) -> None:
        self.item = item
        self.go = f"[]{item.go}"

    def decode(self, value: Any, unknown: list[str]) -> Any:
        if type(value) is not list:
            raise Mismatch(json_type(value), self.go)
        item = self.item
        if not isinstance(item, Struct):
            return [item.zero() if element is None else item.decode(element, unknown) for element in value]
        decoded = []
        for index, element in enumerate(value):
            mark = len(unknown)
            try:
                decoded.append(item.decode({} if element is None else element, unknown))
            except Mistyped as wrong:
                _read_on(wrong, (partial(item.decode, other or {}, []) for other in value[index + 1 :]))
                raise
            if len(unknown) > mark:
                unknown[mark:] = [_joined(f"[{index}]", path) for path in unknown[mark:]]
        return decoded

    def zero(self) -> Any:
        return None

    def schema(self, reference: Reference) -> JsonObject:
        return {"type": "array", "items": _described(self.item, reference, always=True)}


class Map(GoType):
    """A map with string keys."""

    def __init__(self, item: GoType) -> None:
        self.item = item
        self.go = f"map[string]{item.go}"

    def decode(self, value: Any, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise Mismatch(json_type(value), self.go)
        item = self.item
        decoded = {}
        for key, element in value.items():
            mark = len(unknown)
            decoded[key] = item.zero() if element is None else item.decode(element, unknown)
            if len(unknown) > mark:
                unknown[mark:] = [_joined(key, path) for path in unknown[mark:]]
        return decoded

    def zero(self) -> Any:
        return None

    def schema(self, reference: Reference) -> JsonObject:
        return {"type": "object", "additionalProperties": _described(self.item, reference, always=True)}


class Either(GoType):
    """One of two types, by the JSON: ``additionalProperties`` is a schema or a boolean."""

    keeps_empty = True

    def __init__(self, *choices: tuple[type, GoType]) -> None:
        self.choices = choices
        self.go = choices[0][1].go

    def decode(self, value: Any, unknown: list[str]) -> Any:
        for python, choice in self.choices:
            if type(value) is python:
                return choice.decode(value, unknown)
        raise Mismatch(json_type(value), self.go)

    def zero(self) -> Any:
        return None

    def schema(self, reference: Reference) -> JsonObject:
        return {}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct.

    ``pointer``: present as soon as it was given, whatever its value. ``always``: written even when it is empty.
    ``required``: OpenAPI says so. ``extensions``: list types and merge keys.
    """

    name: str
    type: GoType
    description: str = ""
    pointer: bool = False
    always: bool = False
    omit_zero: bool = False
    required: bool = False
    extensions: JsonObject = field(default_factory=dict)

    @property
    def has_default(self) -> bool:
        """OpenAPI tells what it is when it was not given."""
        return not self.pointer and (self.required or self.always or isinstance(self.type, Struct))


class Struct(GoType):
    """A struct. ``definition`` is its name in OpenAPI; without one it is written out where it is used."""

    keeps_empty = True

    def __init__(
        self, go: str, definition: str, description: str, fields: Iterable[Field] = (), **extensions: Any
    ) -> None:
        self.name = go
        self.go = f"v1.{go}"
        self.definition = definition
        self.description = description
        self.extensions = {f"x-kubernetes-{name.replace('_', '-')}": value for name, value in extensions.items()}
        self.fields: dict[str, Field] = {}
        self._readers: dict[str, tuple[Callable[[Any, list[str]], Any], bool, bool]] = {}
        self._always: list[tuple[str, Callable[[], Any]]] = []
        self.add(fields)

    def add(self, fields: Iterable[Field]) -> None:
        """Give it more fields: those of a struct that contains itself come after it is made."""
        for each in fields:
            self.fields[each.name] = each
            keeps = each.pointer or each.always or (each.type.keeps_empty and not each.omit_zero)
            self._readers[each.name] = each.type.decode, keeps, each.omit_zero
            if each.always or (each.type.keeps_empty and not each.pointer and not each.omit_zero):
                self._always.append((each.name, each.type.zero))

    def decode(self, value: Any, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise Mismatch(json_type(value), self.go)
        readers = self._readers
        decoded: JsonObject = {}
        for name, item in value.items():
            reader = readers.get(name)
            if reader is None:
                unknown.append(name)
                continue
            if item is None:
                continue
            read, keeps, drops_null = reader
            mark = len(unknown)
            try:
                result = read(item, unknown)
            except Mistyped as wrong:
                if isinstance(wrong, Mismatch):
                    wrong.within(self.name, name)
                rest = list(value.items())[list(value).index(name) + 1 :]
                _read_on(wrong, (partial(self._read_field, other) for other in rest))
                raise
            if len(unknown) > mark:
                unknown[mark:] = [_joined(name, path) for path in unknown[mark:]]
            if result or (keeps and not (drops_null and result is None)):
                decoded[name] = result
        for name, zero in self._always:
            if name not in decoded:
                decoded[name] = zero()
        return decoded

    def _read_field(self, field: tuple[str, Any]) -> None:
        name, item = field
        if name in self._readers and item is not None:
            try:
                self._readers[name][0](item, [])
            except Mismatch as wrong:
                wrong.within(self.name, name)
                raise

    def zero(self) -> Any:
        return self.decode({}, [])

    def schema(self, reference: Reference) -> JsonObject:
        return reference(self)

    def default(self) -> Any:
        return {}

    def own_schema(self, reference: Reference) -> JsonObject:
        """OpenAPI of the struct itself."""
        schema: JsonObject = {"description": self.description, "type": "object"}
        required = [each.name for each in self.fields.values() if each.required]
        if required:
            schema["required"] = required
        if self.fields:
            schema["properties"] = {
                each.name: _described(each.type, reference, each.description, always=each.has_default) | each.extensions
                for each in self.fields.values()
            }
        return schema | self.extensions


def inline(struct: Struct) -> JsonObject:
    """OpenAPI of *struct* without references; a struct within itself is an object of any content."""
    return _inline(struct, frozenset())


def _inline(struct: Struct, outer: frozenset[str]) -> JsonObject:
    if struct.definition in outer:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    inner = outer | {struct.definition}
    return struct.own_schema(lambda nested: _inline(nested, inner))


def referring(struct: Struct) -> JsonObject:
    """A reference to the definition of *struct*."""
    return {"$ref": REFERENCE + struct.definition}


def definitions(roots: Iterable[Struct]) -> dict[str, JsonObject]:
    """Definitions, by name, of *roots* and of all that they refer to."""
    found: dict[str, JsonObject] = {}

    def refer(struct: Struct) -> JsonObject:
        if struct.definition not in found:
            found[struct.definition] = {}
            found[struct.definition] = struct.own_schema(refer)
        return referring(struct)

    for root in roots:
        refer(root)
    return found


def _described(type_: GoType, reference: Reference, description: str = "", *, always: bool) -> JsonObject:
    schema = type_.schema(reference)
    told: JsonObject = {"description": description} if description else {}
    default = type_.default() if always else None
    if default is not None and ("$ref" in schema or not isinstance(type_, Struct)):
        told["default"] = default
    if "$ref" in schema and told:
        schema = {"allOf": [schema]}
    return {**schema, **told}


def _joined(head: str, path: str) -> str:
    return f"{head}{path}" if path.startswith("[") else f"{head}.{path}"
