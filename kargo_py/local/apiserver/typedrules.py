"""Rules of kinds that have a Go type, and what their tables and failures show: parts for the built-in kinds.

The ``prune`` of such a kind reads the whole object, metadata included, into the type: unknown fields go, and a value of
the wrong type raises :class:`~kargo_py.local.apiserver.gotypes.Mistyped`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from kargo_py.local.apiserver.failures import FieldError
from kargo_py.local.apiserver.gotext import Verbatim
from kargo_py.local.apiserver.gotypes import Struct
from kargo_py.local.apiserver.kinds import Column
from kargo_py.local.apiserver.wire import JsonObject, encode


class TypedRules:
    """Rules of a kind that has a Go type and nothing else to keep."""

    def __init__(self, struct: Struct) -> None:
        """*struct* is the type of whole objects."""
        self.struct = struct

    def prune(self, obj: JsonObject) -> Sequence[str]:
        """Read *obj* into the type. Raises Mistyped."""
        unknown: list[str] = []
        decoded = self.struct.decode(obj, unknown)
        obj.clear()
        obj.update(decoded)
        return unknown

    def default(self, obj: JsonObject, *, keep_nulls: bool = False) -> None:
        """Nothing by default."""

    def prepare(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> None:
        """Nothing that a client may not set."""

    def validate(
        self, obj: JsonObject, old: JsonObject | None, subresource: str, found: Sequence[FieldError] = ()
    ) -> Sequence[FieldError]:
        """Nothing beyond the types."""
        return ()

    def warnings(self, obj: JsonObject, old: JsonObject | None) -> Sequence[str]:
        """Nothing by default."""
        return ()


def column(name: str, description: str, cell: Callable[[JsonObject, datetime], Any], **more: Any) -> Column:
    """A column of texts; *cell* gives them for an object and the moment that it is now."""
    return Column(name, "string", "", description=description, cell=cell, **more)


def described(struct: Struct, field: str) -> str:
    """What OpenAPI says of a field."""
    return struct.fields[field].description


def internal(value: JsonObject, fields: Sequence[str]) -> Verbatim:
    """A struct of the real server's own, which has no JSON names: Go writes the names of its fields."""
    named = {_GO_NAMES.get(field, field[0].upper() + field[1:]): value.get(field, "") for field in fields}
    return Verbatim(encode(named).decode())


_GO_NAMES: Final = {"uid": "UID", "apiVersion": "APIVersion"}
