"""A row of a table for each field of a JSON schema."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kargo_py.steps.schema import JsonObject, in_words
from tools.reference.markdown import code, prose

HEAD = ("Field", "Type", "Default", "Meaning")
EACH = "[]"
VALUES = ".{}"

_NOT_SHOWN = frozenset({"apiVersion", "kind", "metadata"})
"""Every object has these."""
_WORTH_A_REFERENCE = 4
"""Objects with fewer fields are shown again where they occur again."""


def fields(schema: JsonObject) -> list[list[str]]:
    """A row for each field within *schema*, parents before children; what occurs again is shown once."""
    return list(_fields("", schema, {}))


def _fields(path: str, schema: JsonObject, shown: dict[str, str]) -> Iterator[list[str]]:
    required = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        if not path and name in _NOT_SHOWN:
            continue
        here = f"{path}.{name}" if path else name
        below, items = _innermost(here, inner)
        same = shown.setdefault(_content(items), here) if len(items.get("properties", ())) >= _WORTH_A_REFERENCE else ""
        meaning = prose(inner.get("description", ""))
        again = same not in {"", here}
        yield [
            code(here),
            in_words(inner, code),
            "**required**" if name in required else _default(inner),
            f"{meaning} Fields as in {code(same)}.".strip() if again else meaning,
        ]
        if not again:
            yield from _fields(below, items, shown)


def _innermost(path: str, schema: JsonObject) -> tuple[str, JsonObject]:
    """What the items or values of *schema* are, and its path."""
    if isinstance(items := schema.get("items"), dict):
        return _innermost(f"{path}{EACH}", items)
    if isinstance(values := schema.get("additionalProperties"), dict):
        return _innermost(f"{path}{VALUES}", values)
    return path, schema


def _content(schema: JsonObject) -> str:
    return json.dumps({name: schema[name] for name in ("properties", "required") if name in schema}, sort_keys=True)


def _default(schema: JsonObject) -> str:
    # An empty object is there only to let the defaults within it apply.
    if (default := schema.get("default")) in (None, {}, [], ""):
        return ""
    return code(str(default).lower() if isinstance(default, bool) else str(default))
