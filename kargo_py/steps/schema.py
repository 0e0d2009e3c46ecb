"""The form of a step's configuration as JSON schema, made of the model that checks it, and its types in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import core_schema

from kargo_py.api.crd import field_docs
from kargo_py.api.types import KUBERNETES_NAME_PATTERN, Duration, PlainDuration

JsonObject = Mapping[str, Any]

EMPTY = '""'


class _Documented(GenerateJsonSchema):
    """With the docstrings below fields as their descriptions."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        properties = made.get("properties", {})
        for name, text in field_docs(model).items():
            field = model.model_fields.get(name)
            shown = properties.get((field.alias or name) if field is not None else name)
            if shown is not None:
                shown.setdefault("description", text)
        return made

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Nobody who reads it could do anything about what is left out."""

    def handle_invalid_for_json_schema(self, schema: core_schema.CoreSchema, error_info: str) -> JsonSchemaValue:
        # What can only be told by trying may be anything.
        del schema, error_info
        return {}


def documented(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of *model* with all references written out; where a model has itself within it ends."""
    written = model.model_json_schema(by_alias=True, schema_generator=_Documented)
    definitions = written.get("$defs", {})

    def inline(part: Any, within: frozenset[str]) -> Any:
        if isinstance(part, list):
            return [inline(each, within) for each in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            rest = {key: value for key, value in part.items() if key != "$ref"}
            if name in within:
                return {"type": "object", **inline(rest, within)}
            meant = {key: value for key, value in definitions[name].items() if key != "title"}
            return {**inline(meant, within | {name}), **inline(rest, within)}
        if "anyOf" in part:
            inner = [each for each in part["anyOf"] if each.get("type") != "null"]
            rest = {key: value for key, value in part.items() if key not in {"anyOf", "title"}}
            if len(inner) == 1:
                return {**inline(inner[0], within), **inline(rest, within)}
            return {"anyOf": inline(inner, within), **inline(rest, within)}
        return {key: inline(value, within) for key, value in part.items()}

    made: dict[str, Any] = inline({key: value for key, value in written.items() if key != "$defs"}, frozenset())
    return made


def innermost(schema: JsonObject) -> JsonObject:
    """What the items or values of *schema* are, and theirs, down to what is neither list nor map."""
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            return innermost(inner)
    return schema


_INT32 = 2**31 - 1
_FORMS: Mapping[str, str] = {
    KUBERNETES_NAME_PATTERN: "name",
    Duration.json_schema["pattern"]: "duration",
    PlainDuration.json_schema["pattern"]: "duration of hours, minutes and seconds",
}
"""Patterns that have a word of their own, which says what length is right, too."""


def in_words(schema: JsonObject, quote: Callable[[str], str] = str) -> str:
    """The type in words, with what limits the value; *quote* sets what is to be taken to the letter apart."""
    if (form := _FORMS.get(schema.get("pattern", ""))) is not None:
        return form
    words = [schema["const"]] if "const" in schema else schema.get("enum", ())
    limits = [
        *([f"one of {', '.join(quote(str(word) or EMPTY) for word in words)}"] if words else []),
        *([f"matches {quote(schema['pattern'])}"] if "pattern" in schema else []),
        *([f"at least {schema['minimum']}"] if "minimum" in schema else []),
        *([f"at most {schema['maximum']}"] if schema.get("maximum", _INT32) != _INT32 else []),
        *_bounds(schema, "minLength", "maxLength", "characters"),
        *_bounds(schema, "minItems", "maxItems", "items"),
        *_bounds(schema, "minProperties", "maxProperties", "entries"),
    ]
    return ", ".join([_base(schema, quote), *limits])


def _bounds(schema: JsonObject, least: str, most: str, of: str) -> list[str]:
    low, high = schema.get(least), schema.get(most)
    if low and low == high:
        return [f"{low} {of}"]
    return [
        *(["not empty" if low == 1 else f"at least {low} {of}"] if low else []),
        *([f"at most {high} {of}"] if high is not None else []),
    ]


def _base(schema: JsonObject, quote: Callable[[str], str]) -> str:
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " or ".join(dict.fromkeys(in_words(each, quote) for each in schema[choice]))
    if kind == "array":
        items = schema.get("items")
        return f"list of {_plural(in_words(items, quote))}" if isinstance(items, dict) else "list"
    if kind == "object" and isinstance(values := schema.get("additionalProperties"), dict):
        return f"map of {_plural(in_words(values, quote))}" if values else "map of any JSON"
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
