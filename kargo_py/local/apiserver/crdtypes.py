"""The types of CustomResourceDefinitions, as in k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1."""

from __future__ import annotations

from typing import Final

from kargo_py.local.apiserver.coretypes import METADATA
from kargo_py.local.apiserver.gotypes import Anything, Bytes, Either, Field, Float, GoType, List, Map, Struct, Text
from kargo_py.local.apiserver.metatypes import (
    API_VERSION,
    ATOMIC,
    BOOL,
    INT32,
    INT64,
    KIND,
    STRING,
    STRINGS,
    TIME,
    scalar_struct,
)

PACKAGE: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"


def _struct(name: str, description: str, *fields: Field) -> Struct:
    return Struct(name, f"{PACKAGE}.{name}", description, fields)


_FLOAT: Final = Float()


def _scalar(name: str, description: str, type_: GoType) -> Struct:
    struct = scalar_struct(name, description, type_)
    struct.definition = f"{PACKAGE}.{name}"
    return struct


_ANY: Final = _scalar("JSON", "Any JSON value.", Anything({}))

JSON_SCHEMA: Final = _struct("JSONSchemaProps", "An OpenAPI v3 schema.")
_SCHEMAS: Final = List(JSON_SCHEMA)
_SCHEMA_MAP: Final = Map(JSON_SCHEMA)
_SCHEMA_OR_BOOL: Final = _scalar(
    "JSONSchemaPropsOrBool", "A schema or a boolean.", Either((dict, JSON_SCHEMA), (bool, BOOL))
)
_SCHEMA_OR_ARRAY: Final = _scalar(
    "JSONSchemaPropsOrArray", "A schema or a list of them.", Either((dict, JSON_SCHEMA), (list, _SCHEMAS))
)
_SCHEMA_OR_STRINGS: Final = _scalar(
    "JSONSchemaPropsOrStringArray", "A schema or a list of names.", Either((dict, JSON_SCHEMA), (list, STRINGS))
)
RULE_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_RULE: Final = _struct(
    "ValidationRule",
    "A rule in CEL that values must satisfy.",
    Field("fieldPath", STRING, "The field that a failure is about."),
    Field("message", STRING, "What a failure says."),
    Field("messageExpression", STRING, "CEL that gives what a failure says."),
    Field("optionalOldSelf", BOOL, "The rule applies to new values, too; oldSelf is optional.", pointer=True),
    Field(
        "reason",
        Text("v1.FieldValueErrorReason", enum=RULE_REASONS),
        "The failure's reason, for programs.",
        pointer=True,
    ),
    Field("rule", STRING, "The expression.", always=True, required=True),
)
JSON_SCHEMA.add(
    [
        Field("$ref", STRING, pointer=True),
        Field("$schema", Text("v1.JSONSchemaURL")),
        Field("additionalItems", _SCHEMA_OR_BOOL, pointer=True),
        Field("additionalProperties", _SCHEMA_OR_BOOL, pointer=True),
        Field("allOf", _SCHEMAS, extensions=ATOMIC),
        Field("anyOf", _SCHEMAS, extensions=ATOMIC),
        Field("default", _ANY, "Value of a field that is not given.", pointer=True),
        Field("definitions", _SCHEMA_MAP),
        Field("dependencies", Map(_SCHEMA_OR_STRINGS)),
        Field("description", STRING),
        Field("enum", List(_ANY), extensions=ATOMIC),
        Field("example", _ANY, pointer=True),
        Field("exclusiveMaximum", BOOL),
        Field("exclusiveMinimum", BOOL),
        Field(
            "externalDocs",
            _struct("ExternalDocumentation", "Where to read more.", Field("description", STRING), Field("url", STRING)),
            pointer=True,
        ),
        Field("format", STRING, "What a string or a number means."),
        Field("id", STRING),
        Field("items", _SCHEMA_OR_ARRAY, pointer=True),
        Field("maxItems", INT64, pointer=True),
        Field("maxLength", INT64, pointer=True),
        Field("maxProperties", INT64, pointer=True),
        Field("maximum", _FLOAT, pointer=True),
        Field("minItems", INT64, pointer=True),
        Field("minLength", INT64, pointer=True),
        Field("minProperties", INT64, pointer=True),
        Field("minimum", _FLOAT, pointer=True),
        Field("multipleOf", _FLOAT, pointer=True),
        Field("not", JSON_SCHEMA, pointer=True),
        Field("nullable", BOOL),
        Field("oneOf", _SCHEMAS, extensions=ATOMIC),
        Field("pattern", STRING),
        Field("patternProperties", _SCHEMA_MAP),
        Field("properties", _SCHEMA_MAP),
        Field("required", STRINGS, extensions=ATOMIC),
        Field("title", STRING),
        Field("type", STRING),
        Field("uniqueItems", BOOL),
        Field("x-kubernetes-embedded-resource", BOOL, "The value is a whole object with its own metadata."),
        Field("x-kubernetes-int-or-string", BOOL, "The value is a whole number or a string."),
        Field("x-kubernetes-list-map-keys", STRINGS, "Fields by which the items are told apart.", extensions=ATOMIC),
        Field("x-kubernetes-list-type", STRING, "atomic, set or map.", pointer=True),
        Field("x-kubernetes-map-type", STRING, "granular or atomic.", pointer=True),
        Field("x-kubernetes-preserve-unknown-fields", BOOL, "Fields that are not specified are kept.", pointer=True),
        Field(
            "x-kubernetes-validations",
            List(_RULE),
            "Rules in CEL.",
            extensions={
                "x-kubernetes-list-map-keys": ["rule"],
                "x-kubernetes-list-type": "map",
                "x-kubernetes-patch-merge-key": "rule",
                "x-kubernetes-patch-strategy": "merge",
            },
        ),
    ]
)

_NAMES: Final = _struct(
    "CustomResourceDefinitionNames",
    "The names of a resource.",
    Field("categories", STRINGS, "Groups of resources that it belongs to: kubectl get all.", extensions=ATOMIC),
    Field("kind", STRING, "Kind of the objects.", always=True, required=True),
    Field("listKind", STRING, "Kind of a list of them."),
    Field("plural", STRING, "The resource's name in URLs.", always=True, required=True),
    Field("shortNames", STRINGS, "Short names for people.", extensions=ATOMIC),
    Field("singular", STRING, "Name of one, for people."),
)
_VERSION: Final = _struct(
    "CustomResourceDefinitionVersion",
    "One version of a resource.",
    Field(
        "additionalPrinterColumns",
        List(
            _struct(
                "CustomResourceColumnDefinition",
                "A column in a Table.",
                Field("description", STRING, "What it shows."),
                Field("format", STRING, "How it is shown."),
                Field("jsonPath", STRING, "Where the value is in an object.", always=True, required=True),
                Field("name", STRING, "The heading.", always=True, required=True),
                Field("priority", INT32, "0: always shown; above: shown where there is room."),
                Field("type", STRING, "Type of the value.", always=True, required=True),
            )
        ),
        "Columns of a Table beside the name.",
        extensions=ATOMIC,
    ),
    Field("deprecated", BOOL, "Requests are answered with a warning."),
    Field("deprecationWarning", STRING, "The warning.", pointer=True),
    Field("name", STRING, "Name of the version: v1.", always=True, required=True),
    Field(
        "schema",
        _struct(
            "CustomResourceValidation",
            "What objects must look like.",
            Field("openAPIV3Schema", JSON_SCHEMA, "The schema.", pointer=True),
        ),
        "What objects must look like.",
        pointer=True,
    ),
    Field(
        "selectableFields",
        List(
            _struct(
                "SelectableField",
                "A field that objects may be selected by.",
                Field("jsonPath", STRING, "Where the field is.", always=True, required=True),
            )
        ),
        "Fields that objects may be selected by.",
        extensions=ATOMIC,
    ),
    Field("served", BOOL, "It can be read and written.", always=True, required=True),
    Field("storage", BOOL, "Objects are stored in it; true of one version.", always=True, required=True),
    Field(
        "subresources",
        _struct(
            "CustomResourceSubresources",
            "Subresources of objects.",
            Field(
                "scale",
                _struct(
                    "CustomResourceSubresourceScale",
                    "Where the scale is in an object.",
                    Field("labelSelectorPath", STRING, "The selector.", pointer=True),
                    Field("specReplicasPath", STRING, "The number that is asked for.", always=True, required=True),
                    Field("statusReplicasPath", STRING, "The number that there is.", always=True, required=True),
                ),
                "The objects have a scale.",
                pointer=True,
            ),
            Field(
                "status",
                _struct("CustomResourceSubresourceStatus", "The status is a subresource."),
                "The status is a subresource.",
                pointer=True,
            ),
        ),
        "Subresources of objects.",
        pointer=True,
    ),
)
_CONVERSION: Final = _struct(
    "CustomResourceConversion",
    "How objects get from one version to another.",
    Field("strategy", Text("v1.ConversionStrategyType"), "None or Webhook.", always=True, required=True),
    Field(
        "webhook",
        _struct(
            "WebhookConversion",
            "Who converts.",
            Field(
                "clientConfig",
                _struct(
                    "WebhookClientConfig",
                    "How to call it.",
                    Field("caBundle", Bytes(), "Certificates to check it with."),
                    Field(
                        "service",
                        _struct(
                            "ServiceReference",
                            "A service.",
                            Field("name", STRING, "Its name.", always=True, required=True),
                            Field("namespace", STRING, "Its namespace.", always=True, required=True),
                            Field("path", STRING, "Path in the URL.", pointer=True),
                            Field("port", INT32, "Its port.", pointer=True),
                        ),
                        "The service to call.",
                        pointer=True,
                    ),
                    Field("url", STRING, "The URL to call.", pointer=True),
                ),
                "How to call it.",
                pointer=True,
            ),
            Field(
                "conversionReviewVersions",
                STRINGS,
                "Versions of the request that it understands.",
                always=True,
                required=True,
                extensions=ATOMIC,
            ),
        ),
        "Who converts, for Webhook.",
        pointer=True,
    ),
)
CUSTOM_RESOURCE_DEFINITION: Final = _struct(
    "CustomResourceDefinition",
    "A kind that is added to the API.",
    API_VERSION,
    KIND,
    METADATA,
    Field(
        "spec",
        _struct(
            "CustomResourceDefinitionSpec",
            "The kind.",
            Field("conversion", _CONVERSION, "How objects get from one version to another.", pointer=True),
            Field("group", STRING, "Group of the resource.", always=True, required=True),
            Field("names", _NAMES, "Names of the resource.", required=True),
            Field("preserveUnknownFields", BOOL, "No longer allowed."),
            Field("scope", Text("v1.ResourceScope"), "Namespaced or Cluster.", always=True, required=True),
            Field("versions", List(_VERSION), "Its versions.", always=True, required=True, extensions=ATOMIC),
        ),
        "The kind.",
        required=True,
    ),
    Field(
        "status",
        _struct(
            "CustomResourceDefinitionStatus",
            "Whether it is served.",
            Field("acceptedNames", _NAMES, "The names under which it is served."),
            Field(
                "conditions",
                List(
                    _struct(
                        "CustomResourceDefinitionCondition",
                        "One observation about it.",
                        Field("lastTransitionTime", TIME, "When the status changed last."),
                        Field("message", STRING, "Why it changed, for people."),
                        Field("reason", STRING, "Why it changed, in one word."),
                        Field("status", Text("v1.ConditionStatus"), "True or False.", always=True, required=True),
                        Field(
                            "type",
                            Text("v1.CustomResourceDefinitionConditionType"),
                            "Established, NamesAccepted, Terminating.",
                            always=True,
                            required=True,
                        ),
                    )
                ),
                "Observations about it.",
                always=True,
                extensions={"x-kubernetes-list-map-keys": ["type"], "x-kubernetes-list-type": "map"},
            ),
            Field("storedVersions", STRINGS, "Versions that objects were stored in.", always=True, extensions=ATOMIC),
        ),
        "Whether it is served.",
    ),
)
