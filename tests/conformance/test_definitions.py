"""CustomResourceDefinitions: broken ones, and the life of good ones."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.asking import Asked, bad, case, invalid, outcome, post, refused
from tests.conformance.definitions import definition
from tests.conformance.servers import JsonObject, Server, eventually

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ANY: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
ANY_SHOWN = (
    '{"ID":"","Schema":"","Ref":null,"Description":"","Type":"object","Nullable":false,"Format":"","Title":"","Default":'
    'null,"Maximum":null,"ExclusiveMaximum":false,"Minimum":null,"ExclusiveMinimum":false,"MaxLength":null,"MinLength":'
    'null,"Pattern":"","MaxItems":null,"MinItems":null,"UniqueItems":false,"MultipleOf":null,"Enum":null,"MaxProperties"'
    ':null,"MinProperties":null,"Required":null,"Items":null,"AllOf":null,"OneOf":null,"AnyOf":null,"Not":null,'
    '"Properties":null,"AdditionalProperties":null,"PatternProperties":null,"Dependencies":null,"AdditionalItems":null,'
    '"Definitions":null,"ExternalDocs":null,"Example":null,"XPreserveUnknownFields":true,"XEmbeddedResource":false,'
    '"XIntOrString":false,"XListMapKeys":null,"XListType":null,"XMapType":null,"XValidations":null}'
)
"""ANY as messages show it."""
BROKEN_GROUP = "broken.example.com"


def broken(schema: JsonObject | None = None, **spec: Any) -> Asked:
    """Ask for a definition with these properties in its schema, or these fields in its spec."""
    made = definition("Thing", {"type": "object", "properties": schema or {}}, group=BROKEN_GROUP)
    made["spec"] |= spec
    return post(CRDS, made)


def version(name: str = "v1", **fields: Any) -> JsonObject:
    """Make an entry of ``versions``."""
    return {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": ANY}, **fields}


def root(schema: JsonObject) -> Asked:
    """Ask for a definition with this schema."""
    return broken(versions=[version(schema={"openAPIV3Schema": schema})])


def ruled(rule: str, schema: JsonObject | None = None, **fields: Any) -> Asked:
    """Ask for a definition with a rule on a field."""
    return broken({"a": {**(schema or {"type": "integer"}), "x-kubernetes-validations": [{"rule": rule, **fields}]}})


def named(**names: str) -> Asked:
    """Ask for a definition with these names."""
    return broken(names={"kind": "Thing", "plural": "things", **names})


BROKEN = [
    case(
        "another name",
        post(CRDS, {**definition("Thing", ANY, group=BROKEN_GROUP), "metadata": {"name": "x.y"}}),
        invalid(
            "CustomResourceDefinition",
            "x.y",
            ("metadata.name", "Invalid", 'Invalid value: "x.y": must be spec.names.plural+"."+spec.group'),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "no spec",
        post(
            CRDS,
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": "things.broken.example.com"},
            },
        ),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "metadata.name",
                "Invalid",
                'Invalid value: "things.broken.example.com": must be spec.names.plural+"."+spec.group',
            ),
            ("spec.group", "Required", "Required value"),
            ("spec.scope", "Required", "Required value"),
            (
                "spec.versions",
                "Invalid",
                "Invalid value: null: must have exactly one version marked as storage version",
            ),
            ("spec.names.plural", "Required", "Required value"),
            ("spec.names.singular", "Required", "Required value"),
            ("spec.names.kind", "Required", "Required value"),
            ("spec.names.listKind", "Required", "Required value"),
            ("status.storedVersions", "Invalid", "Invalid value: null: must have at least one stored version"),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "no names",
        broken(names={}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "metadata.name",
                "Invalid",
                'Invalid value: "things.broken.example.com": must be spec.names.plural+"."+spec.group',
            ),
            ("spec.names.plural", "Required", "Required value"),
            ("spec.names.singular", "Required", "Required value"),
            ("spec.names.kind", "Required", "Required value"),
            ("spec.names.listKind", "Required", "Required value"),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a capital in the plural",
        named(plural="Things"),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "metadata.name",
                "Invalid",
                'Invalid value: "things.broken.example.com": must be spec.names.plural+"."+spec.group',
            ),
            (
                "spec.names.plural",
                "Invalid",
                (
                    'Invalid value: "Things": a DNS-1035 label must consist of lower case alphanumeric '
                    "characters or '-', start with an alphabetic character, and end with an alphanumeric "
                    "character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
                    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a kind that is no name",
        named(kind="a b"),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.names.singular",
                "Invalid",
                (
                    'Invalid value: "a b": a DNS-1035 label must consist of lower case alphanumeric '
                    "characters or '-', start with an alphabetic character, and end with an alphanumeric "
                    "character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
                    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
                ),
            ),
            (
                "spec.names.kind",
                "Invalid",
                (
                    'Invalid value: "a b": may have mixed case, but should otherwise match: a DNS-1035 '
                    "label must consist of lower case alphanumeric characters or '-', start with an "
                    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or "
                    "'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                ),
            ),
            (
                "spec.names.listKind",
                "Invalid",
                (
                    'Invalid value: "a bList": may have mixed case, but should otherwise match: a '
                    "DNS-1035 label must consist of lower case alphanumeric characters or '-', start with "
                    "an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or "
                    "'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a group without a dot",
        post(CRDS, definition("Thing", ANY, group="broken")),
        invalid(
            "CustomResourceDefinition",
            "things.broken",
            ("spec.group", "Invalid", 'Invalid value: "broken": should be a domain with at least one dot'),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "an unknown scope",
        broken(scope="Galaxy"),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            ("spec.scope", "NotSupported", 'Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced"'),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "no scope",
        broken(scope=""),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            ("spec.scope", "Required", "Required value"),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "no versions",
        broken(versions=[]),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            ("spec.versions", "Invalid", "Invalid value: []: must have exactly one version marked as storage version"),
            ("status.storedVersions", "Invalid", "Invalid value: null: must have at least one stored version"),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "no storage version",
        broken(versions=[version(storage=False)]),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.versions",
                "Invalid",
                (
                    'Invalid value: [{"Name":"v1","Served":true,"Storage":false,"Deprecated":false,"Deprec'
                    'ationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,'
                    '"SelectableFields":null}]: must have exactly one version marked as storage version'
                ),
            ),
            ("status.storedVersions", "Invalid", "Invalid value: null: must have at least one stored version"),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "two storage versions",
        broken(versions=[version("v1"), version("v2")]),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.versions",
                "Invalid",
                (
                    'Invalid value: [{"Name":"v1","Served":true,"Storage":true,"Deprecated":false,"Depreca'
                    'tionWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"'
                    'SelectableFields":null},{"Name":"v2","Served":true,"Storage":true,"Deprecated":false,'
                    '"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns'
                    '":null,"SelectableFields":null}]: must have exactly one version marked as storage '
                    "version"
                ),
            ),
            ("status.storedVersions", "Invalid", 'Invalid value: ["v1"]: must have the storage version v2'),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "two storage versions that differ in all they have",
        broken(
            versions=[
                version("v1", deprecated=True, deprecationWarning="a < b & c > d"),
                version(
                    "v2",
                    schema={"openAPIV3Schema": {**ANY, "example": {"b": "\u2028", "a": 2}}},
                    subresources={"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
                    additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": ".spec.a"}],
                    selectableFields=[],
                ),
            ]
        ),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.versions",
                "Invalid",
                (
                    'Invalid value: [{"Name":"v1","Served":true,"Storage":true,"Deprecated":true,"DeprecationWarning":"'
                    r'a \u003c b \u0026 c \u003e d","Schema":{"OpenAPIV3Schema":'
                    + ANY_SHOWN
                    + '},"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null},{"Name":"v2",'
                    '"Served":true,"Storage":true,"Deprecated":false,"DeprecationWarning":null,"Schema":{"OpenAPIV3Schema":'
                    + ANY_SHOWN.replace('"Example":null', r'"Example":{"a":2,"b":"\u2028"}')
                    + '},"Subresources":{"Status":null,"Scale":{"SpecReplicasPath":".spec.n","StatusReplicasPath":'
                    '".status.n","LabelSelectorPath":null}},"AdditionalPrinterColumns":[{"Name":"A","Type":"string","For'
                    'mat":"","Description":"","Priority":0,"JSONPath":".spec.a"}],"SelectableFields":null}]: must have '
                    "exactly one version marked as storage version"
                ),
            ),
            ("status.storedVersions", "Invalid", 'Invalid value: ["v1"]: must have the storage version v2'),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a version twice",
        broken(versions=[version("v1"), version("v1", storage=False)]),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.versions",
                "Invalid",
                (
                    'Invalid value: [{"Name":"v1","Served":true,"Storage":true,"Deprecated":false,"Depreca'
                    'tionWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"'
                    'SelectableFields":null},{"Name":"v1","Served":true,"Storage":false,"Deprecated":false'
                    ',"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumn'
                    's":null,"SelectableFields":null}]: must contain unique version names'
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a bad version",
        broken(versions=[version("V 1")]),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.versions[0].name",
                "Invalid",
                (
                    'Invalid value: "V 1": a DNS-1035 label must consist of lower case alphanumeric '
                    "characters or '-', start with an alphabetic character, and end with an alphanumeric "
                    "character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
                    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
                ),
            ),
            (
                "spec.version",
                "Invalid",
                (
                    'Invalid value: "V 1": a DNS-1035 label must consist of lower case alphanumeric '
                    "characters or '-', start with an alphabetic character, and end with an alphanumeric "
                    "character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
                    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "no schema",
        broken(versions=[version(schema=None)]),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            ("spec.versions[0].schema.openAPIV3Schema", "Required", "Required value"),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "preserveUnknownFields",
        broken(preserveUnknownFields=True),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.preserveUnknownFields",
                "Invalid",
                (
                    "Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to "
                    "true in spec.versions[*].schema instead"
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "an unknown conversion",
        broken(conversion={"strategy": "Magic"}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.conversion.strategy",
                "NotSupported",
                'Unsupported value: "Magic": supported values: "None", "Webhook"',
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a schema that is no object",
        root({"type": "string"}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            ("spec.validation.openAPIV3Schema.type", "Invalid", 'Invalid value: "string": must be object at the root'),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a schema without type",
        root({"properties": {"a": {}}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].type",
                "Required",
                "Required value: must not be empty for specified object fields",
            ),
            ("spec.validation.openAPIV3Schema.type", "Required", "Required value: must not be empty at the root"),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a field without type",
        broken({"a": {}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].type",
                "Required",
                "Required value: must not be empty for specified object fields",
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "an unknown type",
        broken({"a": {"type": "text"}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].type",
                "NotSupported",
                (
                    'Unsupported value: "text": supported values: "array", "boolean", "integer", '
                    '"number", "object", "string"'
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a list without items",
        broken({"a": {"type": "array"}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            ("spec.validation.openAPIV3Schema.properties[a].items", "Required", "Required value: must be specified"),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a bad pattern",
        broken({"a": {"type": "string", "pattern": "("}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].pattern",
                "Invalid",
                (
                    'Invalid value: "(": must be a valid regular expression, but isn\'t: error parsing '
                    "regexp: missing closing ): `(`"
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a pattern that RE2 does not know",
        broken({"a": {"type": "string", "pattern": "(?=x)"}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].pattern",
                "Invalid",
                (
                    'Invalid value: "(?=x)": must be a valid regular expression, but isn\'t: error parsing '
                    "regexp: invalid or unsupported Perl syntax: `(?=`"
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a default of another type",
        broken({"a": {"type": "integer", "default": "x"}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].default",
                "TypeInvalid",
                'Invalid value: "string":  in body must be of type integer: "string"',
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a default beyond the limit",
        broken({"a": {"type": "integer", "maximum": 3, "default": 4}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].default",
                "Invalid",
                "Invalid value: 4:  in body should be less than or equal to 3",
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a default with unknown fields",
        broken({"a": {"type": "object", "default": {"x": 1}}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].default",
                "Invalid",
                'Invalid value: {"x":1}: must not have unknown fields',
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "properties beside additionalProperties",
        broken(
            {
                "a": {
                    "type": "object",
                    "properties": {"b": {"type": "string"}},
                    "additionalProperties": {"type": "string"},
                }
            }
        ),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].additionalProperties",
                "Forbidden",
                "Forbidden: additionalProperties and properties are mutual exclusive",
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "unique items",
        broken({"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].uniqueItems",
                "Forbidden",
                ("Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a list type that is not known",
        broken({"a": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-list-type",
                "NotSupported",
                'Unsupported value: "bag": supported values: "atomic", "set", "map"',
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a list type of no list",
        broken({"a": {"type": "string", "x-kubernetes-list-type": "set"}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].type",
                "Invalid",
                'Invalid value: "string": must be array if x-kubernetes-list-type is specified',
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a map list without keys",
        broken({"a": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-list-map-keys",
                "Required",
                "Required value: must not be empty if x-kubernetes-list-type is map",
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a map list with a key that is not there",
        broken(
            {
                "a": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["c"],
                }
            }
        ),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-list-map-keys",
                "Invalid",
                'Invalid value: ["c"]: entries must all be names of item properties',
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a map list with an optional key",
        broken(
            {
                "a": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"b": {"type": "string"}}},
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["b"],
                }
            }
        ),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].items.properties[b].default",
                "Required",
                (
                    "Required value: this property is in x-kubernetes-list-map-keys, so it must have a "
                    "default or be a required property"
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a reference",
        broken({"a": {"$ref": "#/x"}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            ("spec.validation.openAPIV3Schema.properties[a].$ref", "Forbidden", "Forbidden: $ref is not supported"),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a type under anyOf",
        broken({"a": {"type": "string", "anyOf": [{"type": "string"}]}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].anyOf[0].type",
                "Forbidden",
                "Forbidden: must be empty to be structural",
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "metadata with more than it may",
        root(
            {
                "type": "object",
                "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}},
            }
        ),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[metadata]",
                "Forbidden",
                (
                    "Forbidden: must not specify anything other than name and generateName, but metadata "
                    "is implicitly specified"
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "both of preserve and false",
        broken({"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": False}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-preserve-unknown-fields",
                "Invalid",
                "Invalid value: false: must be true or undefined",
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a rule that does not parse",
        ruled("self >"),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].rule",
                "Invalid",
                (
                    'Invalid value: {"Rule":"self \\u003e","Message":"","MessageExpression":"","Reason":nul'
                    'l,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:7: '
                    "Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', "
                    "'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | "
                    "self >\n | ......^"
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a rule that is no truth",
        ruled("self + 1"),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].rule",
                "Invalid",
                (
                    'Invalid value: {"Rule":"self + 1","Message":"","MessageExpression":"","Reason":null,"'
                    'FieldPath":"","OptionalOldSelf":null}: cel expression must evaluate to a bool'
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a rule about what is not there",
        ruled("self.nope == 1", {"type": "object", "properties": {"b": {"type": "string"}}}),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].rule",
                "Invalid",
                (
                    'Invalid value: {"Rule":"self.nope == 1","Message":"","MessageExpression":"","Reason":'
                    'null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:5: '
                    "undefined field 'nope'\n | self.nope == 1\n | ....^"
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a rule with an unknown function",
        ruled("nope(self)"),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].rule",
                "Invalid",
                (
                    'Invalid value: {"Rule":"nope(self)","Message":"","MessageExpression":"","Reason":null'
                    ',"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:5: '
                    "undeclared reference to 'nope' (in container '')\n | nope(self)\n | ....^"
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "an empty rule",
        ruled(""),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].rule",
                "Required",
                "Required value: rule is not specified",
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a rule of two types",
        ruled("self == 'x'"),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].rule",
                "Invalid",
                (
                    'Invalid value: {"Rule":"self == \'x\'","Message":"","MessageExpression":"","Reason":nul'
                    'l,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:6: '
                    "found no matching overload for '_==_' applied to '(int, string)'\n | self == 'x'\n | "
                    ".....^"
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a message of two lines",
        ruled("self > 0", message="a\nb"),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].message",
                "Invalid",
                'Invalid value: "a\\nb": must not contain line breaks',
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a message expression that is no text",
        ruled("self > 0", messageExpression="1"),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                ("spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].messageExpression"),
                "Invalid",
                (
                    'Invalid value: {"Rule":"self \\u003e 0","Message":"","MessageExpression":"1","Reason":'
                    'null,"FieldPath":"","OptionalOldSelf":null}: messageExpression must evaluate to a '
                    "string"
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a message expression that does not parse",
        ruled("self > 0", messageExpression="'a"),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                ("spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].messageExpression"),
                "Invalid",
                (
                    'Invalid value: {"Rule":"self \\u003e 0","Message":"","MessageExpression":"\'a","Reason"'
                    ':null,"FieldPath":"","OptionalOldSelf":null}: messageExpression compilation failed: '
                    "ERROR: <input>:1:1: Syntax error: token recognition error at: ''a'\n | 'a\n | ^\nERROR: "
                    "<input>:1:3: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', "
                    "'-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, "
                    "IDENTIFIER}\n | 'a\n | ..^"
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a reason that is not known",
        ruled("self > 0", reason="Because"),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].reason",
                "NotSupported",
                (
                    'Unsupported value: "Because": supported values: "FieldValueDuplicate", '
                    '"FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"'
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a path that is not there",
        ruled("self.b != ''", {"type": "object", "properties": {"b": {"type": "string"}}}, fieldPath=".c"),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].fieldPath",
                "Invalid",
                'Invalid value: ".c": must be a valid path',
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a column without a path",
        broken(versions=[version(additionalPrinterColumns=[{"name": "A", "type": "string"}])]),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            ("spec.additionalPrinterColumns[0].JSONPath", "Required", "Required value"),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a column with a bad path",
        broken(versions=[version(additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": "a["}])]),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.additionalPrinterColumns[0].JSONPath",
                "Invalid",
                'Invalid value: "a[": must be a simple json path starting with .',
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a column of an unknown type",
        broken(versions=[version(additionalPrinterColumns=[{"name": "A", "type": "x", "jsonPath": ".a"}])]),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.additionalPrinterColumns[0].type",
                "Invalid",
                'Invalid value: "x": must be one of boolean,date,integer,number,string',
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a selectable field that is not there",
        broken(versions=[version(selectableFields=[{"jsonPath": ".spec.a"}])]),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.selectableFields[0].jsonPath",
                "Invalid",
                'Invalid value: ".spec.a": is an invalid path: does not refer to a valid field',
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a selectable field of metadata",
        broken(versions=[version(selectableFields=[{"jsonPath": ".metadata.name"}])]),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.selectableFields[0].jsonPath",
                "Invalid",
                'Invalid value: ".metadata.name": is an invalid path: does not refer to a valid field',
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a scale without paths",
        broken(versions=[version(subresources={"scale": {}})]),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            ("spec.subresources.scale.specReplicasPath", "Required", "Required value"),
            ("spec.subresources.scale.statusReplicasPath", "Required", "Required value"),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a status beside a bad one",
        broken(
            versions=[
                version(
                    subresources={"status": {}, "scale": {"specReplicasPath": ".x", "statusReplicasPath": ".status.y"}}
                )
            ]
        ),
        invalid(
            "CustomResourceDefinition",
            "things.broken.example.com",
            (
                "spec.subresources.scale.specReplicasPath",
                "Invalid",
                'Invalid value: ".x": should be a json path under .spec',
            ),
            group="apiextensions.k8s.io",
        ),
    ),
    case(
        "a field of another type",
        broken(versions="x"),
        bad(
            'CustomResourceDefinition in version "v1" cannot be handled as a '
            "CustomResourceDefinition: json: cannot unmarshal string into Go struct field "
            "CustomResourceDefinitionSpec.spec.versions of type "
            "[]v1.CustomResourceDefinitionVersion"
        ),
    ),
    case(
        "a field that is not known",
        post(CRDS + "?fieldValidation=Strict", {**definition("Thing", ANY, group=BROKEN_GROUP), "more": 1}),
        bad(
            'CustomResourceDefinition in version "v1" cannot be handled as a '
            'CustomResourceDefinition: strict decoding error: unknown field "more"'
        ),
    ),
    case(
        "a protected group",
        post(CRDS, definition("Thing", ANY, group="things.k8s.io")),
        invalid(
            "CustomResourceDefinition",
            "things.things.k8s.io",
            (
                "metadata.annotations[api-approved.kubernetes.io]",
                "Required",
                (
                    "Required value: protected groups must have approval annotation "
                    '"api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/111'
                    "1"
                ),
            ),
            group="apiextensions.k8s.io",
        ),
    ),
]


@pytest.mark.parametrize(("asked", "expected"), BROKEN)
def test_broken(server: Server, asked: Asked, expected: object) -> None:
    """What no kind can be made of is refused, and the field is named."""
    assert outcome(asked.of(server, "unused")) == expected


class Made:
    """Definitions of one test, each in a group of its own."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.group = f"g{uuid.uuid4().hex[:8]}.example.com"
        self._names: list[str] = []

    def definition(self, kind: str = "Thing", schema: JsonObject | None = None, **fields: Any) -> JsonObject:
        """Make a definition in this test's group."""
        return definition(kind, schema or ANY, group=self.group, **fields)

    def install(self, made: JsonObject) -> JsonObject:
        """Install it, and wait until it is served."""
        self._names.append(made["metadata"]["name"])
        return self.server.install(made)

    def create(self, made: JsonObject) -> JsonObject:
        """Create it, and do not wait."""
        self._names.append(made["metadata"]["name"])
        return self.server.create(CRDS, made)

    def path(self, plural: str = "things", version: str = "v1", namespace: str = "default") -> str:
        """Path of the objects."""
        return f"/apis/{self.group}/{version}/namespaces/{namespace}/{plural}"

    def thing(self, name: str = "t", version: str = "v1", **parts: Any) -> JsonObject:
        """Make an object."""
        return {"apiVersion": f"{self.group}/{version}", "kind": "Thing", "metadata": {"name": name}, **parts}

    def remove(self) -> None:
        """Delete them all."""
        for name in self._names:
            self.server.send("DELETE", f"{CRDS}/{name}")


@pytest.fixture
def made(server: Server) -> Iterator[Made]:
    """Definitions that are deleted after the test."""
    definitions = Made(server)
    yield definitions
    definitions.remove()


def conditions(live: JsonObject) -> dict[str, tuple[str, str, str]]:
    """Return the conditions in short."""
    return {
        each["type"]: (each["status"], each["reason"], each["message"]) for each in live["status"]["conditions"] or ()
    }


def test_defaults_of_a_definition(made: Made) -> None:
    """What is left out is filled in: names, conversion, the plain answers of the status."""
    created = made.create(made.definition(schema={"type": "object"}))

    assert created["spec"]["names"] == {
        "plural": "things",
        "singular": "thing",
        "kind": "Thing",
        "listKind": "ThingList",
    }
    assert created["spec"]["conversion"] == {"strategy": "None"}
    assert created["metadata"]["generation"] == 1
    assert created["status"]["storedVersions"] == ["v1"]


def test_established(made: Made) -> None:
    """Soon the names are accepted and the kind is served."""
    live = made.install(made.definition())

    assert conditions(live) == {
        "NamesAccepted": ("True", "NoConflicts", "no conflicts found"),
        "Established": ("True", "InitialNamesAccepted", "the initial names have been accepted"),
    }
    assert live["status"]["acceptedNames"] == live["spec"]["names"]
    assert live["status"]["storedVersions"] == ["v1"]


def test_not_structural(made: Made) -> None:
    """A schema that keeps all is structural: no condition says otherwise."""
    assert "NonStructuralSchema" not in conditions(made.install(made.definition()))


def test_names_of_another(made: Made) -> None:
    """A kind that another definition of the group has is not accepted, and not served."""
    made.install(made.definition())
    second = made.definition()
    second["spec"]["names"]["plural"] = "others"
    second["metadata"]["name"] = f"others.{made.group}"
    made.create(second)

    def judged() -> dict[str, tuple[str, str, str]] | None:
        return conditions(made.server.get(f"{CRDS}/others.{made.group}").ok()) or None

    assert eventually(judged) == {
        "NamesAccepted": ("False", "ListKindConflict", '"ThingList" is already in use'),
        "Established": ("False", "NotAccepted", "not all names are accepted"),
    }
    assert made.server.get(made.path("others")).code == 404


def test_endpoints_come_and_go(made: Made, namespace: str) -> None:
    """Objects can be stored once it is served; with the definition they go, and the path is unknown."""
    server = made.server
    made.install(made.definition())
    server.create(made.path(namespace=namespace), made.thing(spec={"a": 1}))

    deleted = server.send("DELETE", f"{CRDS}/things.{made.group}").ok()

    assert deleted["kind"] in {"Status", "CustomResourceDefinition"}
    eventually(lambda: server.get(f"{CRDS}/things.{made.group}").code == 404 or None)
    gone = eventually(lambda: answer if (answer := server.get(made.path())).code == 404 else None)
    assert gone.body == b"404 page not found\n"

    made.install(made.definition())
    assert (
        eventually(lambda: answer if (answer := server.get(made.path(namespace=namespace))).code == 200 else None).json[
            "items"
        ]
        == []
    )


def test_a_finalizer_outlives_the_definition(made: Made, namespace: str) -> None:
    """An object that may not go yet keeps the definition, which no new objects can be made of."""
    server = made.server
    made.install(made.definition())
    path = made.path(namespace=namespace)
    held = made.thing()
    held["metadata"]["finalizers"] = ["example.com/held"]
    server.create(path, held)

    server.send("DELETE", f"{CRDS}/things.{made.group}")

    dying = eventually(
        lambda: got if "deletionTimestamp" in (got := server.get(f"{path}/t").ok())["metadata"] else None
    )
    assert dying["metadata"]["finalizers"] == ["example.com/held"]
    live = server.get(f"{CRDS}/things.{made.group}").ok()
    assert live["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert conditions(live)["Terminating"][0] == "True"
    assert server.send("POST", path, made.thing("u")).refusal == refused(
        403,
        "Forbidden",
        f'things.{made.group} "u" is forbidden: create not allowed while custom resource definition is terminating',
        name="u",
        group=made.group,
        kind="things",
    )
    server.patch(f"{path}/t", {"metadata": {"finalizers": None}}).ok()
    eventually(lambda: server.get(f"{CRDS}/things.{made.group}").code == 404 or None)


def test_a_default_that_comes_later(made: Made, namespace: str) -> None:
    """Objects that were stored before get it when they are read."""
    server = made.server
    old: JsonObject = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    }
    made.install(made.definition(schema=old))
    path = made.path(namespace=namespace)
    server.create(path, made.thing(spec={}))

    new = copy.deepcopy(old)
    new["properties"]["spec"]["properties"]["a"]["default"] = 7
    change = {"spec": {"versions": made.definition(schema=new)["spec"]["versions"]}}
    changed = server.patch(f"{CRDS}/things.{made.group}", change).ok()

    assert changed["metadata"]["generation"] == 2
    eventually(lambda: server.get(f"{path}/t").ok()["spec"] == {"a": 7} or None)
    assert server.get(path).ok()["items"][0]["spec"] == {"a": 7}


def test_a_schema_that_becomes_stricter(made: Made, namespace: str) -> None:
    """What was stored before may stay as it is: only a field that changes is judged."""
    server = made.server
    old: JsonObject = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
        },
    }
    made.install(made.definition(schema=old))
    path = made.path(namespace=namespace)
    server.create(path, made.thing(spec={"a": "long", "b": "x"}))
    new = copy.deepcopy(old)
    new["properties"]["spec"]["properties"]["a"]["maxLength"] = 2
    server.patch(
        f"{CRDS}/things.{made.group}", {"spec": {"versions": made.definition(schema=new)["spec"]["versions"]}}
    ).ok()
    eventually(
        lambda: server.send("POST", f"{path}?dryRun=All", made.thing("u", spec={"a": "long"})).code == 422 or None
    )

    assert server.patch(f"{path}/t", {"spec": {"b": "y"}}).ok()["spec"] == {"a": "long", "b": "y"}
    refusal = server.patch(f"{path}/t", {"spec": {"a": "longer"}}).refusal
    assert refusal["details"]["causes"] == [
        {"reason": "FieldValueTooLong", "message": "Too long: may not be more than 2 bytes", "field": "spec.a"}
    ]


def test_two_versions(made: Made, namespace: str) -> None:
    """One object, read and written in each version that is served, under the name of that version."""
    server = made.server
    first = made.definition()
    first["spec"]["versions"].append({**first["spec"]["versions"][0], "name": "v2", "storage": False})
    first["spec"]["versions"].append({**first["spec"]["versions"][0], "name": "v0", "storage": False, "served": False})
    made.install(first)

    created = server.create(made.path(version="v2", namespace=namespace), made.thing(version="v2", spec={"a": 1}))
    read = eventually(
        lambda: got.json if (got := server.get(made.path(namespace=namespace) + "/t")).code == 200 else None
    )

    assert created["apiVersion"] == f"{made.group}/v2"
    assert read["apiVersion"] == f"{made.group}/v1"
    assert (read["spec"], read["metadata"]["uid"]) == (created["spec"], created["metadata"]["uid"])
    assert server.get(made.path(version="v0", namespace=namespace)).code == 404
    listed = server.get(made.path(version="v2", namespace=namespace)).ok()
    assert (listed["apiVersion"], listed["kind"]) == (f"{made.group}/v2", "ThingList")
    assert listed["items"][0]["apiVersion"] == f"{made.group}/v2"
    group = eventually(
        lambda: got.json if len((got := server.get(f"/apis/{made.group}")).json["versions"]) == 2 else None
    )
    assert [version["version"] for version in group["versions"]] == ["v2", "v1"]
    assert group["preferredVersion"] == {"groupVersion": f"{made.group}/v2", "version": "v2"}


def test_deprecated(made: Made, namespace: str) -> None:
    """Each answer warns of a version that is deprecated."""
    server = made.server
    made.install(made.definition(deprecated=True))
    made.install(made.definition("Other", deprecated=True, deprecationWarning="use something else"))

    assert server.get(made.path(namespace=namespace)).warnings == [f'299 - "{made.group}/v1 Thing is deprecated"']
    assert server.get(made.path("others", namespace=namespace)).warnings == ['299 - "use something else"']


def test_scope_may_not_change(made: Made) -> None:
    """What cannot change is refused, and named."""
    made.install(made.definition())

    refusal = made.server.patch(f"{CRDS}/things.{made.group}", {"spec": {"scope": "Cluster"}}).refusal

    assert refusal["details"]["causes"] == [
        {
            "reason": "FieldValueInvalid",
            "message": 'Invalid value: "Cluster": field is immutable',
            "field": "spec.scope",
        }
    ]


def test_no_status_subresource(made: Made, namespace: str) -> None:
    """Without it, status is a field as others are, and /status is nowhere."""
    made.install(made.definition(status=False))
    path = made.path(namespace=namespace)

    created = made.server.create(path, made.thing(status={"phase": "x"}))

    assert created["status"] == {"phase": "x"}
    assert made.server.get(f"{path}/t/status").refusal["code"] == 404
    assert made.server.patch(f"{path}/t", {"status": {"phase": "y"}}).ok()["metadata"]["generation"] == 2


def test_status_of_a_definition(made: Made) -> None:
    """It is the server's: a client's is not taken at creation."""
    given = made.definition()
    given["status"] = {"conditions": [], "storedVersions": ["v7"], "acceptedNames": {"plural": "x", "kind": "X"}}

    created = made.create(given)

    assert created["status"]["storedVersions"] == ["v1"]
