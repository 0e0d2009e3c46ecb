"""Whether the schema in a CustomResourceDefinition is one that the API server takes, and what it says if not.

A schema must be structural (every field of a value validation is also declared outside of one), use only what
Kubernetes supports of OpenAPI, and have defaults and rules that work. Source: apiextensions-apiserver
``pkg/apiserver/schema`` and ``pkg/apis/apiextensions/validation``. What the API server estimates of the cost of rules
is not done here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from kargo_py.local.apiserver import cel, regex
from kargo_py.local.apiserver.crdshown import GO_FIELDS, go_rule, go_schema
from kargo_py.local.apiserver.crdtypes import RULE_REASONS
from kargo_py.local.apiserver.failures import Cause, FieldError
from kargo_py.local.apiserver.nodes import META, Node, SchemaTooLarge, digest, node_of
from kargo_py.local.apiserver.schema import value_errors
from kargo_py.local.apiserver.schemapath import follow
from kargo_py.local.apiserver.wire import JsonObject, copied, identical

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_JUNCTORS: Final = ("allOf", "oneOf", "anyOf")
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_AT_ROOT: Final = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example "
    "XPreserveUnknownFields XValidations"
)

_forbidden = FieldError.forbidden
_invalid = FieldError.invalid
_required = FieldError.required
_unsupported = FieldError.unsupported


def errors_of(raw: JsonObject, path: str, *, status: bool) -> list[FieldError]:
    """What is wrong with the schema *raw*; *status* tells whether the kind has a status subresource."""
    mark = digest(raw), status
    if mark in _sound:
        return []
    errors = _errors_of(raw, path, status=status)
    if not errors and mark[0] is not None:
        if len(_sound) >= _MOST_SOUND:
            _sound.clear()
        _sound.add(mark)
    return errors


_MOST_SOUND: Final = 1024
_sound: Final[set[tuple[bytes | None, bool]]] = set()
"""Schemas in which nothing was wrong. A definition is looked at in each update, and by each server of a process."""


def _errors_of(raw: JsonObject, path: str, *, status: bool) -> list[FieldError]:
    if (depth := _depth(raw)) > _MAX_NESTING:
        return [_invalid(path, "", f"nests {depth} deep, and this server takes {_MAX_NESTING}")]
    try:
        node_of(raw)
    except SchemaTooLarge as error:
        return [_invalid(path, "", f"{error}, in this server")]
    errors = _root_errors(raw, path) if status else []
    if raw.get("nullable"):
        errors.append(FieldError(Cause.FORBIDDEN, f"{path}.nullable", detail="nullable cannot be true at the root"))
    unreadable = _unreadable(raw, nested=False)
    sound = False
    if unreadable is None:
        structural = sorted([*_invariants(raw, "root", path), *_completeness(raw, raw, path, path)], key=str)
        structural = structural or _default_errors(raw, path, root=True)
        errors += structural
        sound = not structural
    schema_errors, rule_errors = _openapi_errors(raw, path, _Place(root=True), with_rules=sound)
    errors += schema_errors + rule_errors
    if not errors and unreadable is not None:
        errors.append(FieldError(Cause.INVALID, path, "", unreadable))
    return errors


_MAX_NESTING: Final = 128


def _depth(value: Any) -> int:
    """How deep *value* nests; without recursion, as it is not known to be shallow."""
    depth, level = 0, [value]
    while level and depth <= _MAX_NESTING * 4:
        level = [
            item
            for outer in level
            if isinstance(outer, (dict, list))
            for item in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(item, (dict, list))
        ]
        depth += 1
    return depth // 2


def _root_errors(raw: JsonObject, path: str) -> list[FieldError]:
    allowed = _AT_ROOT.split()
    for name, go in GO_FIELDS:
        if not raw.get(name) and not (name == "default" and raw.get(name) is not None):
            continue
        if go == "Type":
            if raw["type"] != "object":
                what = 'only "object" is allowed as the type at the root of the schema'
                return [_invalid(f"{path}.type", raw["type"], f"{what} if the status subresource is enabled")]
        elif go not in allowed:
            what = f"only [{_AT_ROOT}] fields are allowed at the root of the schema"
            return [_invalid(path, go_schema(raw), f"{what} if the status subresource is enabled")]
    return []


def _unreadable(raw: JsonObject, *, nested: bool) -> str | None:
    """Why *raw* cannot be taken for a structural schema at all."""
    for name in ("id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"):
        if raw.get(name) or (
            name in {"additionalItems", "$ref"} and name in raw and raw[name] is not None and raw[name] != ""
        ):
            return f"OpenAPIV3Schema '{name.removeprefix('$') if name == '$schema' else name}' is not supported"
    for junctor in _JUNCTORS:
        for below in raw.get(junctor) or ():
            if why := _unreadable(below, nested=True):
                return why
    if isinstance(raw.get("not"), dict) and (why := _unreadable(raw["not"], nested=True)):
        return why
    if raw.get("x-kubernetes-preserve-unknown-fields") is False:
        return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    if isinstance(raw.get("items"), list):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    for _, below in _below(raw):
        if why := _unreadable(below, nested=nested):
            return why
    return None


def _below(raw: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """The schemas one level down, and how the path goes on to them."""
    if isinstance(raw.get("items"), dict):
        yield ".items", raw["items"]
    for key, below in (raw.get("properties") or {}).items():
        yield f".properties[{key}]", below
    if isinstance(raw.get("additionalProperties"), dict):
        yield ".additionalProperties", raw["additionalProperties"]


# Structure


def _invariants(raw: JsonObject, level: str, path: str) -> Iterator[FieldError]:
    kind = raw.get("type") or ""
    properties = raw.get("properties") or {}
    additional = raw.get("additionalProperties")
    preserve = bool(raw.get("x-kubernetes-preserve-unknown-fields"))
    embedded = bool(raw.get("x-kubernetes-embedded-resource"))
    either = bool(raw.get("x-kubernetes-int-or-string"))
    if kind == "array" and raw.get("items") is None:
        yield _required(f"{path}.items", "must be specified")
    if level == "root" and additional is not None:
        yield _forbidden(f"{path}.additionalProperties", "must not be used at the root")
    for step, below in _below(raw):
        yield from _invariants(below, "item" if step == ".items" else "field", path + step)
    if either and preserve:
        yield _invalid(
            f"{path}.x-kubernetes-preserve-unknown-fields", True, "must be false if x-kubernetes-int-or-string is true"
        )
    if either and embedded:
        yield _invalid(
            f"{path}.x-kubernetes-embedded-resource", True, "must be false if x-kubernetes-int-or-string is true"
        )
    all_of = raw.get("allOf") or [{}]
    yield from _value_validation(
        raw,
        path,
        skip_any_of=raw.get("anyOf") == _INT_OR_STRING,
        skip_first=all_of[0].get("anyOf") == _INT_OR_STRING,
    )
    yield from _type_errors(raw, level, path)
    if embedded and additional is not None:
        yield _forbidden(f"{path}.additionalProperties", "must not be used if x-kubernetes-embedded-resource is set")
    if level == "root" and kind not in {"", "object"}:
        yield _invalid(f"{path}.type", kind, "must be object at the root")
    checks_meta = level == "root" or embedded
    for name in ("kind", "apiVersion"):
        if checks_meta and name in properties and (properties[name].get("type") or "") != "string":
            yield _invalid(f"{path}.properties[{name}].type", properties[name].get("type") or "", "must be string")
    if "metadata" in properties and checks_meta:
        yield from _metadata_errors(properties["metadata"], level, f"{path}.properties[metadata]")
    if embedded and not preserve and not properties:
        what = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        yield _required(f"{path}.properties", what)


def _type_errors(raw: JsonObject, level: str, path: str) -> Iterator[FieldError]:
    kind = raw.get("type") or ""
    if raw.get("x-kubernetes-embedded-resource") and kind != "object":
        what = "must be object if x-kubernetes-embedded-resource is true"
        yield _invalid(f"{path}.type", kind, what) if kind else _required(f"{path}.type", what)
    elif not kind and not raw.get("x-kubernetes-int-or-string") and not raw.get("x-kubernetes-preserve-unknown-fields"):
        where = {"root": "at the root", "item": "for specified array items", "field": "for specified object fields"}
        yield _required(f"{path}.type", f"must not be empty {where[level]}")


def _metadata_errors(raw: JsonObject, level: str, path: str) -> Iterator[FieldError]:
    kind = raw.get("type") or ""
    if kind != "object":
        yield _invalid(f"{path}.type", kind, "must be object")
    if level != "root":
        return
    rest = {
        key: value for key, value in raw.items() if key not in {"type", "default"} and value not in (None, False, "")
    }
    if set(rest.get("properties") or ()) <= {"name", "generateName"}:
        rest.pop("properties", None)
    if any(rest.values()):
        what = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield _forbidden(path, what)


def _value_validation(
    raw: JsonObject, path: str, *, skip_any_of: bool = False, skip_first: bool = False
) -> Iterator[FieldError]:
    if not skip_any_of:
        for at, below in enumerate(raw.get("anyOf") or ()):
            yield from _nested(below, f"{path}.anyOf[{at}]")
    for at, below in enumerate(raw.get("allOf") or ()):
        yield from _nested(below, f"{path}.allOf[{at}]", skip_any_of=skip_first and at == 0)
    for at, below in enumerate(raw.get("oneOf") or ()):
        yield from _nested(below, f"{path}.oneOf[{at}]")
    if isinstance(raw.get("not"), dict):
        yield from _nested(raw["not"], f"{path}.not")
    if raw.get("pattern"):
        try:
            regex.compiled(raw["pattern"])
        except regex.PatternError as error:
            what = f"must be a valid regular expression, but isn't: {error}"
            yield _invalid(f"{path}.pattern", raw["pattern"], what)


_UNDEFINED: Final = ("default", "additionalProperties", "x-kubernetes-list-type", "x-kubernetes-map-type")
_EMPTY: Final = ("type", "title", "description", "x-kubernetes-list-map-keys", "x-kubernetes-validations")
_FALSE: Final = (
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
)


def _nested(raw: JsonObject, path: str, *, skip_any_of: bool = False) -> Iterator[FieldError]:
    yield from _value_validation(raw, path, skip_any_of=skip_any_of)
    for step, below in _below(raw):
        if step != ".additionalProperties":
            yield from _nested(below, path + step)
    for name in _EMPTY:
        if raw.get(name):
            yield _forbidden(f"{path}.{name}", "must be empty to be structural")
    for name in _FALSE:
        if raw.get(name):
            yield _forbidden(f"{path}.{name}", "must be false to be structural")
    for name in _UNDEFINED:
        if raw.get(name) is not None and not (name == "additionalProperties" and raw[name] is False):
            yield _forbidden(f"{path}.{name}", "must be undefined to be structural")
    if "metadata" in (raw.get("properties") or {}):
        yield _forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _completeness(checks: JsonObject, spine: JsonObject | None, at: str, why: str) -> Iterator[FieldError]:
    """Fields that value validations are about and the schema proper does not have."""
    if spine is None:
        yield _required(at, f"because it is defined in {why}")
        return
    nested = [
        (f"{why}.{junctor}[{n}]", below) for junctor in _JUNCTORS for n, below in enumerate(checks.get(junctor) or ())
    ]
    if isinstance(checks.get("not"), dict):
        nested.append((f"{why}.not", checks["not"]))
    for path, below in nested:
        yield from _nested_completeness(below, spine, at, path)


def _nested_completeness(checks: JsonObject, spine: JsonObject | None, at: str, why: str) -> Iterator[FieldError]:
    yield from _completeness(checks, spine, at, why)
    if spine is None:
        return
    if isinstance(checks.get("items"), dict):
        items = spine.get("items")
        below = items if isinstance(items, dict) else None
        yield from _nested_completeness(checks["items"], below, f"{at}.items", f"{why}.items")
    for key, field in (checks.get("properties") or {}).items():
        step = f".properties[{key}]"
        yield from _nested_completeness(field, (spine.get("properties") or {}).get(key), at + step, why + step)


# Defaults


def _default_errors(raw: JsonObject, path: str, *, root: bool = False, in_meta: bool = False) -> list[FieldError]:
    errors: list[FieldError] = []
    embedded = root or bool(raw.get("x-kubernetes-embedded-resource"))
    default = raw.get("default")
    if default is not None and not in_meta:
        where = f"{path}.default"
        pruned = copied(default)
        node = node_of(raw)
        node.embedded = embedded
        if node.prune(pruned) and not identical(pruned, default):
            errors.append(_invalid(where, default, "must not have unknown fields"))
        errors += value_errors(raw, copied(default), where)
    if isinstance(raw.get("items"), dict):
        errors += _default_errors(raw["items"], f"{path}.items", in_meta=in_meta)
    for key, below in (raw.get("properties") or {}).items():
        errors += _default_errors(below, f"{path}.properties[{key}]", in_meta=in_meta or (embedded and key in META))
    return errors


# What of OpenAPI is supported


@dataclass(frozen=True, slots=True)
class _Place:
    """What matters of where a schema stands."""

    root: bool = False
    in_meta: bool = False
    no_defaults: str | None = None
    """Why there may be no defaults."""
    uncorrelated: str = ""
    """The first schema above whose items or fields cannot be told to be the same in another version of the object."""


def _openapi_errors(
    raw: JsonObject, path: str, place: _Place, *, with_rules: bool
) -> tuple[list[FieldError], list[FieldError]]:
    errors = list(_supported(raw, path, place))
    rule_errors: list[FieldError] = []

    def descend(below: JsonObject, step: str, where: _Place, *, rules: bool) -> None:
        found = _openapi_errors(below, path + step, where, with_rules=rules)
        errors.extend(found[0])
        rule_errors.extend(found[1])

    inner = replace(place, root=False)
    if isinstance(raw.get("additionalProperties"), dict):
        reason = "inside additionalProperties applying to object metadata"
        where = replace(inner, no_defaults=reason) if place.in_meta else inner
        descend(raw["additionalProperties"], ".additionalProperties", where, rules=with_rules)
    for key, below in (raw.get("properties") or {}).items():
        where = inner
        if (place.root or raw.get("x-kubernetes-embedded-resource")) and key in META:
            where = replace(where, in_meta=True)
            if place.root:
                where = replace(where, no_defaults=f"in top-level {key}")
        descend(below, f".properties[{key}]", where, rules=with_rules)
    if isinstance(raw.get("not"), dict):
        descend(raw["not"], ".not", inner, rules=False)
    for junctor in _JUNCTORS:
        for at, below in enumerate(raw.get(junctor) or ()):
            descend(below, f".{junctor}[{at}]", inner, rules=False)
    for key, below in (raw.get("definitions") or {}).items():
        descend(below, f".definitions[{key}]", inner, rules=False)
    items = raw.get("items")
    if items is not None:
        where = inner
        if raw.get("x-kubernetes-list-type") != "map" and not inner.uncorrelated:
            where = replace(inner, uncorrelated=path)
        if isinstance(items, dict):
            descend(items, ".items", where, rules=with_rules)
        else:
            for at, below in enumerate(items):
                descend(below, f".items[{at}]", where, rules=False)
    errors += _list_errors(raw, path)
    rules = raw.get("x-kubernetes-validations") or []
    for at, rule in enumerate(rules):
        errors += _rule_errors(rule, raw, f"{path}.x-kubernetes-validations[{at}]")
    if rules and not errors and with_rules:
        node = node_of(raw)
        for at, rule in enumerate(rules):
            rule_errors += _compile_errors(rule, node, f"{path}.x-kubernetes-validations[{at}]", place)
    return errors, rule_errors


def _supported(raw: JsonObject, path: str, place: _Place) -> Iterator[FieldError]:
    kind = raw.get("type") or ""
    if kind and kind not in _TYPES:
        yield _unsupported(f"{path}.type", kind, _TYPES)
    if raw.get("default") is not None and place.no_defaults is not None:
        yield _forbidden(f"{path}.default", f"must not be set {place.no_defaults}")
    for name in ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"):
        given = raw.get(name)
        if given or (name in {"additionalItems", "$ref", "dependencies"} and given is not None):
            yield _forbidden(f"{path}.{name}", f"{name} is not supported")
    if kind == "null":
        yield _forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(raw.get("items"), list) and raw["items"]:
        yield _forbidden(f"{path}.items", "items must be a schema object and not an array")
    if place.in_meta and raw.get("x-kubernetes-embedded-resource"):
        yield _forbidden(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta")
    if raw.get("uniqueItems"):
        what = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield _forbidden(f"{path}.uniqueItems", what)
    additional = raw.get("additionalProperties")
    if raw.get("properties") and additional is not None and additional is not True:
        yield _forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if raw.get("x-kubernetes-preserve-unknown-fields") is False:
        yield _invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")


def _list_errors(raw: JsonObject, path: str) -> Iterator[FieldError]:
    kind = raw.get("type") or ""
    map_type, list_type = raw.get("x-kubernetes-map-type"), raw.get("x-kubernetes-list-type")
    keys = raw.get("x-kubernetes-list-map-keys") or []
    items = raw.get("items")
    item: JsonObject | None = items if isinstance(items, dict) else None
    if map_type is not None and kind != "object":
        what = "must be object if x-kubernetes-map-type is specified"
        yield _invalid(f"{path}.type", kind, what) if kind else _required(f"{path}.type", what)
    if map_type not in {None, "atomic", "granular"}:
        yield _unsupported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))
    if list_type is not None and kind != "array":
        what = "must be array if x-kubernetes-list-type is specified"
        yield _invalid(f"{path}.type", kind, what) if kind else _required(f"{path}.type", what)
    elif list_type == "set" and item is not None:
        what = "must be atomic as item of a list with x-kubernetes-list-type=set"
        inner = item.get("x-kubernetes-list-type")
        if item.get("type") == "array" and inner not in {None, "atomic"}:
            yield _invalid(f"{path}.items.x-kubernetes-list-type", inner, what)
        elif item.get("type") == "object" and item.get("x-kubernetes-map-type") != "atomic":
            yield _invalid(f"{path}.items.x-kubernetes-map-type", inner, what)
    if list_type not in {None, "atomic", "set", "map"}:
        yield _unsupported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    if keys and list_type != "map":
        what = "must be map if x-kubernetes-list-map-keys is non-empty"
        where = f"{path}.x-kubernetes-list-type"
        yield _required(where, what) if list_type is None else _invalid(where, list_type, what)
    if list_type == "map":
        yield from _map_errors(keys, items, path)
    if list_type in {"set", "map"} and item is not None and item.get("nullable"):
        yield _forbidden(f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}")
    if list_type == "map" and item is not None:
        yield from _key_errors(keys, item, path)


def _map_errors(keys: Sequence[str], items: Any, path: str) -> Iterator[FieldError]:
    if not keys:
        yield _required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
    if items is None:
        yield _required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        return
    if not isinstance(items, dict):
        yield _invalid(f"{path}.items", items, "must only have a single schema if x-kubernetes-list-type is map")
        return
    if items.get("type") != "object":
        what = "must be object if parent array's x-kubernetes-list-type is map"
        yield _invalid(f"{path}.items.type", items.get("type") or "", what)
        return
    properties = items.get("properties") or {}
    for at, key in enumerate(keys):
        if key not in properties:
            what = "entries must all be names of item properties"
            yield _invalid(f"{path}.x-kubernetes-list-map-keys", keys, what)
        elif properties[key].get("type") in {"array", "object"}:
            what = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield _invalid(f"{path}.items.properties[{key}].type", items["type"], what)
        if key in keys[:at]:
            yield _invalid(f"{path}.x-kubernetes-list-map-keys", keys, "must not contain duplicate entries")


def _key_errors(keys: Sequence[str], item: JsonObject, path: str) -> Iterator[FieldError]:
    properties = item.get("properties") or {}
    for key in keys:
        if key not in properties:
            continue
        where = f"{path}.items.properties[{key}]"
        if key not in (item.get("required") or ()) and properties[key].get("default") is None:
            what = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield _required(f"{where}.default", what)
        if properties[key].get("nullable"):
            what = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            yield _forbidden(f"{where}.nullable", what)


# Rules


def _rule_errors(rule: JsonObject, raw: JsonObject, path: str) -> Iterator[FieldError]:
    text, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
    if not text:
        yield _required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield _invalid(f"{path}.message", message, "must be non-empty if specified")
    elif _has_lines(message.strip()):
        yield _invalid(f"{path}.message", message, "must not contain line breaks")
    elif _has_lines(text) and not message.strip():
        yield _required(f"{path}.message", "message must be specified if rule contains line breaks")
    expression = rule.get("messageExpression") or ""
    if expression and not expression.strip():
        yield _required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    if rule.get("reason") is not None and rule["reason"] not in RULE_REASONS:
        yield _unsupported(f"{path}.reason", rule["reason"], RULE_REASONS)
    field_path = rule.get("fieldPath") or ""
    if field_path and not field_path.strip():
        yield _invalid(f"{path}.fieldPath", field_path, "must be non-empty if specified")
    if _has_lines(field_path):
        yield _invalid(f"{path}.fieldPath", field_path, "must not contain line breaks")
    if field_path and isinstance(follow(field_path, raw), str):
        yield _invalid(f"{path}.fieldPath", field_path, "must be a valid path")


def _has_lines(text: str) -> bool:
    return "\n" in text or "\r" in text


def _compile_errors(rule: JsonObject, node: Node, path: str, place: _Place) -> Iterator[FieldError]:
    shown = go_rule(rule)
    optional = bool(rule.get("optionalOldSelf"))
    try:
        expression = cel.compiled(rule["rule"], optional_old=optional)
    except cel.ExpressionError as error:
        yield _invalid(f"{path}.rule", shown, f"compilation failed: {error}")
        return
    resource = place.root or node.embedded
    check = partial(cel.complaints, node=node, resource=resource, optional_old=optional)
    if complaint := check(rule["rule"], result="bool"):
        told = complaint if complaint.startswith("compilation") else f"cel expression {complaint}"
        yield _invalid(f"{path}.rule", shown, told)
        return
    if rule.get("messageExpression"):
        try:
            cel.compiled(rule["messageExpression"], optional_old=optional)
        except cel.ExpressionError as error:
            what = f"messageExpression compilation failed: {error}"
            yield _invalid(f"{path}.messageExpression", shown, what)
        else:
            if complaint := check(rule["messageExpression"], result="string"):
                yield _invalid(f"{path}.messageExpression", shown, f"messageExpression {complaint}")
    if "oldSelf" in expression.variables:
        if place.uncorrelated:
            what = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.uncorrelated}"
            yield _invalid(f"{path}.rule", rule["rule"], what)
    elif rule.get("optionalOldSelf") is not None:
        what = "may not be set if oldSelf is not used in rule"
        yield _invalid(f"{path}.optionalOldSelf", rule["optionalOldSelf"], what)
