"""The types of the built-in kinds: field by field as in k8s.io/api, with descriptions of our own."""

from __future__ import annotations

from typing import Final

from kargo_py.local.apiserver.gotypes import Bytes, Field, List, Map, Struct, Text
from kargo_py.local.apiserver.metatypes import (
    API_VERSION,
    ATOMIC,
    BOOL,
    INT32,
    KIND,
    MICRO_TIME,
    OBJECT_META,
    PACKAGE,
    STRING,
    STRINGS,
    TIME,
)

CORE: Final = "io.k8s.api.core.v1"
EVENTS: Final = "io.k8s.api.events.v1"
COORDINATION: Final = "io.k8s.api.coordination.v1"
AUTHORIZATION: Final = "io.k8s.api.authorization.v1"

METADATA: Final = Field("metadata", OBJECT_META, "Metadata of the object.")
_BYTES: Final = Bytes()


def merged(key: str) -> dict[str, object]:
    """A list that is a map by one of its items' fields, to apply and to strategic merge."""
    return {
        "x-kubernetes-list-map-keys": [key],
        "x-kubernetes-list-type": "map",
        "x-kubernetes-patch-merge-key": key,
        "x-kubernetes-patch-strategy": "merge",
    }


# Namespaces

NAMESPACE_CONDITION: Final = Struct(
    "NamespaceCondition",
    f"{CORE}.NamespaceCondition",
    "One observation about a namespace.",
    [
        Field("lastTransitionTime", TIME, "When the status changed last."),
        Field("message", STRING, "Why it changed, for people."),
        Field("reason", STRING, "Why it changed, in one word."),
        Field("status", Text("v1.ConditionStatus"), "True, False or Unknown.", always=True, required=True),
        Field("type", Text("v1.NamespaceConditionType"), "What is observed.", always=True, required=True),
    ],
)
NAMESPACE: Final = Struct(
    "Namespace",
    f"{CORE}.Namespace",
    "A scope for names.",
    [
        API_VERSION,
        KIND,
        METADATA,
        Field(
            "spec",
            Struct(
                "NamespaceSpec",
                f"{CORE}.NamespaceSpec",
                "What holds a namespace.",
                [
                    Field(
                        "finalizers",
                        List(Text("v1.FinalizerName")),
                        "The namespace stays until this is empty.",
                        extensions=ATOMIC,
                    )
                ],
            ),
            "What holds the namespace.",
        ),
        Field(
            "status",
            Struct(
                "NamespaceStatus",
                f"{CORE}.NamespaceStatus",
                "The state of a namespace.",
                [
                    Field("conditions", List(NAMESPACE_CONDITION), "Observations about it.", extensions=merged("type")),
                    Field(
                        "phase",
                        Text("v1.NamespacePhase", enum=("Active", "Terminating")),
                        "Active, or Terminating while it is being deleted.",
                    ),
                ],
            ),
            "The state of the namespace.",
        ),
    ],
)

# Configuration

SECRET: Final = Struct(
    "Secret",
    f"{CORE}.Secret",
    "Values that are kept from view.",
    [
        API_VERSION,
        Field("data", Map(_BYTES), "The values, in base64. Keys have letters, digits, '-', '_' and '.'."),
        Field("immutable", BOOL, "The values can no longer be changed.", pointer=True),
        KIND,
        METADATA,
        Field("stringData", Map(STRING), "Values as plain text, put into data when they are written; never shown."),
        Field("type", Text("v1.SecretType"), "What the values are for; it decides which keys there must be."),
    ],
)
CONFIG_MAP: Final = Struct(
    "ConfigMap",
    f"{CORE}.ConfigMap",
    "Values of configuration.",
    [
        API_VERSION,
        Field("binaryData", Map(_BYTES), "Values that are no text, in base64."),
        Field("data", Map(STRING), "Values that are text. Keys have letters, digits, '-', '_' and '.'."),
        Field("immutable", BOOL, "The values can no longer be changed.", pointer=True),
        KIND,
        METADATA,
    ],
)

# Events

OBJECT_REFERENCE: Final = Struct(
    "ObjectReference",
    f"{CORE}.ObjectReference",
    "Another object.",
    [
        Field("apiVersion", STRING, "Its group and version."),
        Field("fieldPath", STRING, "A part of it: spec.containers{name}."),
        Field("kind", STRING, "Its kind."),
        Field("name", STRING, "Its name."),
        Field("namespace", STRING, "Its namespace."),
        Field("resourceVersion", STRING, "The version that is meant."),
        Field("uid", Text("types.UID"), "Its UID."),
    ],
    map_type="atomic",
)
EVENT_SOURCE: Final = Struct(
    "EventSource",
    f"{CORE}.EventSource",
    "Who reported an event.",
    [
        Field("component", STRING, "The component."),
        Field("host", STRING, "The node on which it runs."),
    ],
)
EVENT: Final = Struct(
    "Event",
    f"{CORE}.Event",
    "A report of something that happened.",
    [
        Field("action", STRING, "What was done about the object."),
        API_VERSION,
        Field("count", INT32, "How often it happened."),
        Field("eventTime", MICRO_TIME, "When it was first seen."),
        Field("firstTimestamp", TIME, "When it was first recorded."),
        Field("involvedObject", OBJECT_REFERENCE, "The object that it is about.", required=True),
        KIND,
        Field("lastTimestamp", TIME, "When it was last recorded."),
        Field("message", STRING, "What happened, for people."),
        Field("metadata", OBJECT_META, "Metadata of the object.", required=True),
        Field("reason", STRING, "Why it happened, in one word."),
        Field("related", OBJECT_REFERENCE, "A second object that has to do with it.", pointer=True),
        Field("reportingComponent", STRING, "The controller that reported it.", always=True),
        Field("reportingInstance", STRING, "The instance of the controller.", always=True),
        Field(
            "series",
            Struct(
                "EventSeries",
                f"{CORE}.EventSeries",
                "A series of the same event.",
                [
                    Field("count", INT32, "How often it happened up to the last report."),
                    Field("lastObservedTime", MICRO_TIME, "When it was last seen."),
                ],
            ),
            "The series that it stands for; none for a single event.",
            pointer=True,
        ),
        Field("source", EVENT_SOURCE, "Who reported it."),
        Field("type", STRING, "Normal or Warning."),
    ],
)
NEW_EVENT: Final = Struct(
    "Event",
    f"{EVENTS}.Event",
    "A report of something that happened.",
    [
        Field("action", STRING, "What was done about the object."),
        API_VERSION,
        Field("deprecatedCount", INT32, "count of a core Event."),
        Field("deprecatedFirstTimestamp", TIME, "firstTimestamp of a core Event."),
        Field("deprecatedLastTimestamp", TIME, "lastTimestamp of a core Event."),
        Field("deprecatedSource", EVENT_SOURCE, "source of a core Event."),
        Field("eventTime", MICRO_TIME, "When it was first seen.", always=True, required=True),
        KIND,
        METADATA,
        Field("note", STRING, "What happened, for people."),
        Field("reason", STRING, "Why it happened, in one word."),
        Field("regarding", OBJECT_REFERENCE, "The object that it is about."),
        Field("related", OBJECT_REFERENCE, "A second object that has to do with it.", pointer=True),
        Field("reportingController", STRING, "The controller that reported it."),
        Field("reportingInstance", STRING, "The instance of the controller."),
        Field(
            "series",
            Struct(
                "EventSeries",
                f"{EVENTS}.EventSeries",
                "A series of the same event.",
                [
                    Field("count", INT32, "How often it happened up to the last report.", always=True, required=True),
                    Field("lastObservedTime", MICRO_TIME, "When it was last seen.", always=True, required=True),
                ],
            ),
            "The series that it stands for; none for a single event.",
            pointer=True,
        ),
        Field("type", STRING, "Normal or Warning."),
    ],
)

# Accounts and leases

SERVICE_ACCOUNT: Final = Struct(
    "ServiceAccount",
    f"{CORE}.ServiceAccount",
    "An identity for programs.",
    [
        API_VERSION,
        Field("automountServiceAccountToken", BOOL, "Whether pods get a token of the account.", pointer=True),
        Field(
            "imagePullSecrets",
            List(
                Struct(
                    "LocalObjectReference",
                    f"{CORE}.LocalObjectReference",
                    "Another object in the same namespace.",
                    [Field("name", STRING, "Its name.")],
                    map_type="atomic",
                )
            ),
            "Secrets to pull images with.",
            extensions=ATOMIC,
        ),
        KIND,
        METADATA,
        Field(
            "secrets", List(OBJECT_REFERENCE), "Secrets that pods of the account may use.", extensions=merged("name")
        ),
    ],
)
LEASE: Final = Struct(
    "Lease",
    f"{COORDINATION}.Lease",
    "Who holds what, and until when.",
    [
        API_VERSION,
        KIND,
        METADATA,
        Field(
            "spec",
            Struct(
                "LeaseSpec",
                f"{COORDINATION}.LeaseSpec",
                "A holder and its times.",
                [
                    Field("acquireTime", MICRO_TIME, "When the holder got it.", pointer=True),
                    Field("holderIdentity", STRING, "Who holds it.", pointer=True),
                    Field("leaseDurationSeconds", INT32, "How long after renewTime it is held.", pointer=True),
                    Field("leaseTransitions", INT32, "How often the holder changed.", pointer=True),
                    Field("preferredHolder", STRING, "Who should hold it.", pointer=True),
                    Field("renewTime", MICRO_TIME, "When the holder said last that it holds it.", pointer=True),
                    Field(
                        "strategy",
                        Text("v1.CoordinatedLeaseStrategy"),
                        "How the holder is chosen, where the server chooses.",
                        pointer=True,
                    ),
                ],
            ),
            "The holder and its times.",
        ),
    ],
)

# Questions about access


def _selector(kind: str) -> Struct:
    name = f"{kind}SelectorAttributes"
    requirement = Struct(
        f"{kind}SelectorRequirement",
        f"{PACKAGE}.{kind}SelectorRequirement",
        "One condition of a selector.",
        [
            Field("key", STRING, "What is compared.", always=True, required=True),
            Field("operator", STRING, "How it is compared.", always=True, required=True),
            Field("values", STRINGS, "What it is compared with.", extensions=ATOMIC),
        ],
    )
    return Struct(
        name,
        f"{AUTHORIZATION}.{name}",
        "A selector within a request.",
        [
            Field("rawSelector", STRING, "The selector as text."),
            Field("requirements", List(requirement), "The selector, taken apart.", extensions=ATOMIC),
        ],
    )


SELF_SUBJECT_ACCESS_REVIEW: Final = Struct(
    "SelfSubjectAccessReview",
    f"{AUTHORIZATION}.SelfSubjectAccessReview",
    "Asks whether the caller may do something.",
    [
        API_VERSION,
        KIND,
        METADATA,
        Field(
            "spec",
            Struct(
                "SelfSubjectAccessReviewSpec",
                f"{AUTHORIZATION}.SelfSubjectAccessReviewSpec",
                "What is to be done.",
                [
                    Field(
                        "nonResourceAttributes",
                        Struct(
                            "NonResourceAttributes",
                            f"{AUTHORIZATION}.NonResourceAttributes",
                            "A request that is for no resource.",
                            [Field("path", STRING, "Path in the URL."), Field("verb", STRING, "HTTP method.")],
                        ),
                        "The request, if it is for no resource.",
                        pointer=True,
                    ),
                    Field(
                        "resourceAttributes",
                        Struct(
                            "ResourceAttributes",
                            f"{AUTHORIZATION}.ResourceAttributes",
                            "A request that is for a resource.",
                            [
                                Field("fieldSelector", _selector("Field"), "By field.", pointer=True),
                                Field("group", STRING, "Group of the resource; * is all."),
                                Field("labelSelector", _selector("Label"), "By label.", pointer=True),
                                Field("name", STRING, "Name of the object; none is all."),
                                Field("namespace", STRING, "Namespace of the object."),
                                Field("resource", STRING, "The resource; * is all."),
                                Field("subresource", STRING, "The subresource."),
                                Field("verb", STRING, "get, list, watch, create, update, patch, delete; * is all."),
                                Field("version", STRING, "Version of the resource; * is all."),
                            ],
                        ),
                        "The request, if it is for a resource.",
                        pointer=True,
                    ),
                ],
            ),
            "What is to be done.",
            required=True,
        ),
        Field(
            "status",
            Struct(
                "SubjectAccessReviewStatus",
                f"{AUTHORIZATION}.SubjectAccessReviewStatus",
                "Whether it may be done.",
                [
                    Field("allowed", BOOL, "It may be done.", always=True, required=True),
                    Field("denied", BOOL, "It may not be done, whoever else would allow it."),
                    Field("evaluationError", STRING, "What went wrong while this was found out."),
                    Field("reason", STRING, "Why."),
                ],
            ),
            "Whether it may be done.",
        ),
    ],
)
SELF_SUBJECT_RULES_REVIEW: Final = Struct(
    "SelfSubjectRulesReview",
    f"{AUTHORIZATION}.SelfSubjectRulesReview",
    "Asks what the caller may do in a namespace.",
    [
        API_VERSION,
        KIND,
        METADATA,
        Field(
            "spec",
            Struct(
                "SelfSubjectRulesReviewSpec",
                f"{AUTHORIZATION}.SelfSubjectRulesReviewSpec",
                "Where.",
                [Field("namespace", STRING, "The namespace.")],
            ),
            "Where.",
            required=True,
        ),
        Field(
            "status",
            Struct(
                "SubjectRulesReviewStatus",
                f"{AUTHORIZATION}.SubjectRulesReviewStatus",
                "What the caller may do.",
                [
                    Field("evaluationError", STRING, "What went wrong while this was found out."),
                    Field("incomplete", BOOL, "There may be more.", always=True, required=True),
                    Field(
                        "nonResourceRules",
                        List(
                            Struct(
                                "NonResourceRule",
                                f"{AUTHORIZATION}.NonResourceRule",
                                "Requests for no resource.",
                                [
                                    Field("nonResourceURLs", STRINGS, "Paths.", extensions=ATOMIC),
                                    Field("verbs", STRINGS, "Methods.", always=True, required=True, extensions=ATOMIC),
                                ],
                            )
                        ),
                        "Requests for no resource.",
                        always=True,
                        required=True,
                        extensions=ATOMIC,
                    ),
                    Field(
                        "resourceRules",
                        List(
                            Struct(
                                "ResourceRule",
                                f"{AUTHORIZATION}.ResourceRule",
                                "Requests for resources.",
                                [
                                    Field("apiGroups", STRINGS, "Groups.", extensions=ATOMIC),
                                    Field("resourceNames", STRINGS, "Names.", extensions=ATOMIC),
                                    Field("resources", STRINGS, "Resources.", extensions=ATOMIC),
                                    Field("verbs", STRINGS, "Verbs.", always=True, required=True, extensions=ATOMIC),
                                ],
                            )
                        ),
                        "Requests for resources.",
                        always=True,
                        required=True,
                        extensions=ATOMIC,
                    ),
                ],
            ),
            "What the caller may do.",
        ),
    ],
)
