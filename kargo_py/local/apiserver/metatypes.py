"""The types of meta/v1 that every kind shares: metadata of objects and lists, Status, options, watch events."""

from __future__ import annotations

from typing import Any, Final

from kargo_py.local.apiserver.gotypes import Anything, Bool, Field, GoType, Int, List, Map, Struct, Text, Time, inline

PACKAGE: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"

STRING: Final = Text()
BOOL: Final = Bool()
INT32: Final = Int(32)
INT64: Final = Int(64)
STRINGS: Final = List(STRING)
ATOMIC: Final = {"x-kubernetes-list-type": "atomic"}
_UID: Final = Text("types.UID")


def scalar_struct(name: str, description: str, type_: GoType, **schema: Any) -> Struct:
    """A definition that is no object to JSON: Time, FieldsV1."""
    return _Named(name, f"{PACKAGE}.{name}", description, type_, schema)


class _Named(Struct):
    def __init__(self, go: str, definition: str, description: str, type_: GoType, schema: dict[str, Any]) -> None:
        super().__init__(go, definition, description)
        self.go = type_.go
        self._type = type_
        self._schema = schema
        self.keeps_empty = type_.keeps_empty

    def decode(self, value: Any, unknown: list[str]) -> Any:
        return self._type.decode(value, unknown)

    def zero(self) -> Any:
        return self._type.zero()

    def default(self) -> Any:
        return None

    def own_schema(self, reference: Any) -> dict[str, Any]:
        return {"description": self.description, **self._schema}


_DATE_TIME: Final = {"type": "string", "format": "date-time"}
TIME: Final = scalar_struct("Time", "A moment, in whole seconds.", Time(), **_DATE_TIME)
MICRO_TIME: Final = scalar_struct("MicroTime", "A moment, in microseconds.", Time(micro=True), **_DATE_TIME)
FIELDS_V1: Final = scalar_struct(
    "FieldsV1",
    "A set of fields as a tree. Keys are f:<field>, k:<keys of a list item as JSON>, "
    "v:<value of a set's item as JSON>, i:<index>, and '.' for the node itself.",
    Anything({}),
    type="object",
)
PATCH: Final = scalar_struct("Patch", "The body of a patch request.", Anything({}), type="object")

OWNER_REFERENCE: Final = Struct(
    "OwnerReference",
    f"{PACKAGE}.OwnerReference",
    "The object that this one belongs to, and with which it is deleted. It is in the same namespace or in none.",
    [
        Field("apiVersion", STRING, "API version of the owner.", always=True, required=True),
        Field("kind", STRING, "Kind of the owner.", always=True, required=True),
        Field("name", STRING, "Name of the owner.", always=True, required=True),
        Field("uid", _UID, "UID of the owner.", always=True, required=True),
        Field("controller", BOOL, "The owner is the controller that manages this object.", pointer=True),
        Field("blockOwnerDeletion", BOOL, "With foreground deletion the owner waits until this is gone.", pointer=True),
    ],
    map_type="atomic",
)

MANAGED_FIELDS_ENTRY: Final = Struct(
    "ManagedFieldsEntry",
    f"{PACKAGE}.ManagedFieldsEntry",
    "The fields that one manager has set in one way.",
    [
        Field("apiVersion", STRING, "The version that the set of fields is about."),
        Field("fieldsType", STRING, "Format of the set: FieldsV1."),
        Field("fieldsV1", FIELDS_V1, "The set of fields.", pointer=True),
        Field("manager", STRING, "Who manages them."),
        Field("operation", Text("v1.ManagedFieldsOperationType"), "Apply or Update."),
        Field("subresource", STRING, "The subresource through which they were set; none for the object itself."),
        Field("time", TIME, "When the set or a value in it changed last.", pointer=True),
    ],
)

OBJECT_META: Final = Struct(
    "ObjectMeta",
    f"{PACKAGE}.ObjectMeta",
    "What every stored object has beside its own content.",
    [
        Field("annotations", Map(STRING), "Values for tools and people; nothing selects by them."),
        Field("creationTimestamp", TIME, "When the server created the object.", omit_zero=True),
        Field(
            "deletionGracePeriodSeconds",
            INT64,
            "Seconds in which the object may end, once it is being deleted.",
            pointer=True,
        ),
        Field("deletionTimestamp", TIME, "When the object will be, or was to be, deleted.", pointer=True),
        Field(
            "finalizers",
            STRINGS,
            "The object stays until this is empty. Each entry is removed by who is responsible for it.",
            extensions={"x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge"},
        ),
        Field("generateName", STRING, "The server makes a name with this prefix if there is no name."),
        Field("generation", INT64, "Counts the states that were asked for."),
        Field("labels", Map(STRING), "Values to select objects by."),
        Field(
            "managedFields",
            List(MANAGED_FIELDS_ENTRY),
            "Which manager has set which fields. Kept by the server.",
            extensions=ATOMIC,
        ),
        Field("name", STRING, "Unique among objects of the kind in the namespace. Cannot be changed."),
        Field("namespace", STRING, "The space in which the name is unique. Cannot be changed."),
        Field(
            "ownerReferences",
            List(OWNER_REFERENCE),
            "Objects that this one belongs to. When all are gone it is deleted, too.",
            extensions={
                "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-list-type": "map",
                "x-kubernetes-patch-merge-key": "uid",
                "x-kubernetes-patch-strategy": "merge",
            },
        ),
        Field("resourceVersion", STRING, "Version of the object within the server; only to be compared for equality."),
        Field("selfLink", STRING, "No longer used."),
        Field("uid", _UID, "Unique in time and space. Set by the server."),
    ],
)

OBJECT_META_SCHEMA: Final = inline(OBJECT_META)

LIST_META: Final = Struct(
    "ListMeta",
    f"{PACKAGE}.ListMeta",
    "What every list has beside its items.",
    [
        Field("continue", STRING, "Token to get the next part of the list with."),
        Field("remainingItemCount", INT64, "How many items come after this part, if that is known.", pointer=True),
        Field("resourceVersion", STRING, "Version of the list; a watch can start from it."),
        Field("selfLink", STRING, "No longer used."),
    ],
)

API_VERSION: Final = Field("apiVersion", STRING, "Group and version of the kind.")
KIND: Final = Field("kind", STRING, "Name of the kind.")

STATUS_CAUSE: Final = Struct(
    "StatusCause",
    f"{PACKAGE}.StatusCause",
    "One thing that is wrong.",
    [
        Field("field", STRING, "The field that is wrong: spec.items[0].name."),
        Field("message", STRING, "What is wrong, for people."),
        Field("reason", STRING, "What is wrong, for programs."),
    ],
)
STATUS_DETAILS: Final = Struct(
    "StatusDetails",
    f"{PACKAGE}.StatusDetails",
    "What a Status is about.",
    [
        Field("causes", List(STATUS_CAUSE), "All that is wrong.", extensions=ATOMIC),
        Field("group", STRING, "Group of the resource."),
        Field("kind", STRING, "Kind or resource."),
        Field("name", STRING, "Name of the object."),
        Field("retryAfterSeconds", INT32, "When to try again."),
        Field("uid", STRING, "UID of the object."),
    ],
)
STATUS: Final = Struct(
    "Status",
    f"{PACKAGE}.Status",
    "The answer to a request that has no object as its answer.",
    [
        API_VERSION,
        Field("code", INT32, "The HTTP status code."),
        Field("details", STATUS_DETAILS, "What it is about.", pointer=True, extensions=ATOMIC),
        KIND,
        Field("message", STRING, "What happened, for people."),
        Field("metadata", LIST_META, "Metadata of the list."),
        Field("reason", STRING, "What happened, for programs."),
        Field("status", STRING, "Success or Failure."),
    ],
)
PRECONDITIONS: Final = Struct(
    "Preconditions",
    f"{PACKAGE}.Preconditions",
    "What must hold for an object to be deleted.",
    [
        Field("resourceVersion", STRING, "The version that the object must have.", pointer=True),
        Field("uid", STRING, "The UID that the object must have.", pointer=True),
    ],
)
DELETE_OPTIONS: Final = Struct(
    "DeleteOptions",
    f"{PACKAGE}.DeleteOptions",
    "How to delete.",
    [
        API_VERSION,
        Field("dryRun", STRINGS, "All: do everything but the write.", extensions=ATOMIC),
        Field("gracePeriodSeconds", INT64, "Seconds in which the object may end.", pointer=True),
        Field(
            "ignoreStoreReadErrorWithClusterBreakingPotential",
            BOOL,
            "Delete an object that cannot be read.",
            pointer=True,
        ),
        KIND,
        Field("orphanDependents", BOOL, "Deprecated: use propagationPolicy.", pointer=True),
        Field("preconditions", PRECONDITIONS, "What must hold before.", pointer=True),
        Field(
            "propagationPolicy",
            STRING,
            "What becomes of dependents: Orphan, Background or Foreground.",
            pointer=True,
        ),
    ],
)
RAW_EXTENSION: Final = scalar_struct("RawExtension", "An object of any kind.", Anything({}), type="object")
RAW_EXTENSION.definition = "io.k8s.apimachinery.pkg.runtime.RawExtension"
WATCH_EVENT: Final = Struct(
    "WatchEvent",
    f"{PACKAGE}.WatchEvent",
    "One change in a watch.",
    [
        Field(
            "object", RAW_EXTENSION, "The object as it is after the change, or was before its deletion.", required=True
        ),
        Field("type", STRING, "ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.", required=True),
    ],
)
