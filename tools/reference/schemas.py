"""A row of a table for each field of a JSON schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kargo_py.api.types import KUBERNETES_NAME_PATTERN, Duration, PlainDuration
from tools.reference.markdown import code, prose

JsonObject = Mapping[str, Any]

HEAD = ("Field", "Type", "Default", "Meaning")
EACH = "[]"
VALUES = ".{}"
EMPTY = '""'

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
            kind_of(inner),
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


_INT32 = 2**31 - 1
_FORMS: Mapping[str, str] = {
    KUBERNETES_NAME_PATTERN: "name",
    Duration.json_schema["pattern"]: "duration",
    PlainDuration.json_schema["pattern"]: "duration of hours, minutes and seconds",
}
"""Patterns that have a word of their own, which says what length is right, too."""


def kind_of(schema: JsonObject) -> str:
    """The type in words, with what limits the value."""
    if (form := _FORMS.get(schema.get("pattern", ""))) is not None:
        return form
    limits = [
        *([f"one of {', '.join(code(str(word) or EMPTY) for word in schema['enum'])}"] if "enum" in schema else []),
        *([f"matches {code(schema['pattern'])}"] if "pattern" in schema else []),
        *([f"at least {schema['minimum']}"] if "minimum" in schema else []),
        *([f"at most {schema['maximum']}"] if schema.get("maximum", _INT32) != _INT32 else []),
        *_bounds(schema, "minLength", "maxLength", "characters"),
        *_bounds(schema, "minItems", "maxItems", "items"),
        *_bounds(schema, "minProperties", "maxProperties", "entries"),
    ]
    return ", ".join([_base(schema), *limits])


def _bounds(schema: JsonObject, least: str, most: str, of: str) -> list[str]:
    low, high = schema.get(least), schema.get(most)
    if low and low == high:
        return [f"{low} {of}"]
    return [
        *(["not empty" if low == 1 else f"at least {low} {of}"] if low else []),
        *([f"at most {high} {of}"] if high is not None else []),
    ]


def _base(schema: JsonObject) -> str:
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "anyOf" in schema:
        return " or ".join(map(kind_of, schema["anyOf"]))
    if kind == "array":
        return f"list of {_plural(kind_of(schema['items']))}"
    if kind == "object" and isinstance(values := schema.get("additionalProperties"), dict):
        return f"map of {_plural(kind_of(values))}"
    if schema.get("x-kubernetes-preserve-unknown-fields") and not schema.get("properties"):
        return "any object" if kind == "object" else "any JSON"
    if kind == "object":
        return "object, and other fields" if schema.get("x-kubernetes-preserve-unknown-fields") else "object"
    if kind == "string" and schema.get("format") == "date-time":
        return "time"
    return str(kind or "any JSON")


def _plural(words: str) -> str:
    """Of the type of items: ``string, not empty`` becomes ``strings, each not empty``."""
    noun, comma, rest = words.partition(", ")
    many = {"any JSON": "any JSON", "integer or string": "integers or strings"}.get(
        noun, noun if " of " in noun else f"{noun}s"
    )
    return f"{many}, {rest}" if rest.startswith("and other") else f"{many}, each {rest}" if comma else many
