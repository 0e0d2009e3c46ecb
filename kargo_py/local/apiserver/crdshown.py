"""How messages show parts of a CustomResourceDefinition: as the API server's internal types, without names in JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kargo_py.local.apiserver.gotext import Verbatim, compact
from kargo_py.local.apiserver.wire import JsonObject

# As Go's fields of JSONSchemaProps are called and ordered.
GO_FIELDS: Final = (
    ("id", "ID"),
    ("$schema", "Schema"),
    ("$ref", "Ref"),
    ("description", "Description"),
    ("type", "Type"),
    ("nullable", "Nullable"),
    ("format", "Format"),
    ("title", "Title"),
    ("default", "Default"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("enum", "Enum"),
    ("maxProperties", "MaxProperties"),
    ("minProperties", "MinProperties"),
    ("required", "Required"),
    ("items", "Items"),
    ("allOf", "AllOf"),
    ("oneOf", "OneOf"),
    ("anyOf", "AnyOf"),
    ("not", "Not"),
    ("properties", "Properties"),
    ("additionalProperties", "AdditionalProperties"),
    ("patternProperties", "PatternProperties"),
    ("dependencies", "Dependencies"),
    ("additionalItems", "AdditionalItems"),
    ("definitions", "Definitions"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-embedded-resource", "XEmbeddedResource"),
    ("x-kubernetes-int-or-string", "XIntOrString"),
    ("x-kubernetes-list-map-keys", "XListMapKeys"),
    ("x-kubernetes-list-type", "XListType"),
    ("x-kubernetes-map-type", "XMapType"),
    ("x-kubernetes-validations", "XValidations"),
)
_TEXTS: Final = frozenset({"id", "$schema", "description", "type", "format", "title", "pattern"})
_FLAGS: Final = frozenset(
    {
        "nullable",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "uniqueItems",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    }
)


def go_rule(rule: JsonObject) -> Verbatim:
    """A rule of ``x-kubernetes-validations``."""
    return Verbatim(compact(_rule(rule), sort_keys=False))


def _rule(rule: JsonObject) -> JsonObject:
    return {
        "Rule": rule.get("rule") or "",
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


def go_schema(raw: JsonObject) -> Verbatim:
    """A schema."""
    return Verbatim(compact(_schema(raw), sort_keys=False))


def go_versions(versions: Sequence[JsonObject] | None) -> Verbatim:
    """The versions of a definition."""
    shown = versions and [
        {
            "Name": version.get("name") or "",
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
            "Deprecated": bool(version.get("deprecated")),
            "DeprecationWarning": version.get("deprecationWarning"),
            "Schema": _validation(version.get("schema")),
            "Subresources": _subresources(version.get("subresources")),
            "AdditionalPrinterColumns": _each(_column, version.get("additionalPrinterColumns")),
            "SelectableFields": _each(_selectable, version.get("selectableFields")),
        }
        for version in versions
    ]
    return Verbatim(compact(shown, sort_keys=False))


def _each(shown: Callable[[JsonObject], JsonObject], raw: Sequence[JsonObject] | None) -> list[JsonObject] | None:
    return None if raw is None else [shown(one) for one in raw]


def _subresources(raw: JsonObject | None) -> JsonObject | None:
    if raw is None:
        return None
    scale = raw.get("scale")
    paths = scale and {
        "SpecReplicasPath": scale.get("specReplicasPath") or "",
        "StatusReplicasPath": scale.get("statusReplicasPath") or "",
        "LabelSelectorPath": scale.get("labelSelectorPath"),
    }
    return {"Status": raw.get("status"), "Scale": paths}


def _column(raw: JsonObject) -> JsonObject:
    return {
        "Name": raw.get("name") or "",
        "Type": raw.get("type") or "",
        "Format": raw.get("format") or "",
        "Description": raw.get("description") or "",
        "Priority": raw.get("priority") or 0,
        "JSONPath": raw.get("jsonPath") or "",
    }


def _selectable(raw: JsonObject) -> JsonObject:
    return {"JSONPath": raw.get("jsonPath") or ""}


def _validation(schema: JsonObject | None) -> JsonObject | None:
    if schema is None:
        return None
    raw = schema.get("openAPIV3Schema")
    return {"OpenAPIV3Schema": None if raw is None else _schema(raw)}


def _schema(raw: JsonObject) -> JsonObject:
    return {go: _value(name, raw.get(name)) for name, go in GO_FIELDS}


def _value(name: str, value: Any) -> Any:
    if name in _TEXTS:
        return value or ""
    if name in _FLAGS:
        return bool(value)
    if value is None:
        return None
    if name in {"allOf", "oneOf", "anyOf"}:
        return [_schema(below) for below in value] or None
    if name == "not":
        return _schema(value)
    if name in {"properties", "patternProperties", "definitions"}:
        return {key: _schema(below) for key, below in sorted(value.items())} or None
    if name == "items":
        many = isinstance(value, list)
        return {
            "Schema": None if many else _schema(value),
            "JSONSchemas": [_schema(below) for below in value] if many else None,
        }
    if name in {"additionalProperties", "additionalItems"}:
        return {"Allows": bool(value), "Schema": _schema(value) if isinstance(value, dict) else None}
    if name == "x-kubernetes-validations":
        return [_rule(rule) for rule in value] or None
    return _sorted(value) if value != [] else None


def _sorted(value: Any) -> Any:
    """*value*, which is any JSON: where all else is a struct, the keys of such a map are sorted."""
    if isinstance(value, dict):
        return {key: _sorted(below) for key, below in sorted(value.items())}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
