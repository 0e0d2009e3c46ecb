"""A kind that is served: its names, its schema, and the rules that its objects must keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from kargo_py.local.apiserver import names
from kargo_py.local.apiserver.failures import FieldError
from kargo_py.local.apiserver.gotypes import Struct
from kargo_py.local.apiserver.wire import JsonObject


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the Table output, as ``additionalPrinterColumns`` have it."""

    name: str
    type: str
    json_path: str
    format: str = ""
    description: str = ""
    priority: int = 0

    cell: Callable[[JsonObject, Any], Any] | None = None
    """Gives the cell for an object and the moment that it is now, where ``json_path`` would not do."""


VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Rules(Protocol):
    """What happens to an object of the kind between the request and the store. Metadata is the server's own business.

    Every method works on the whole object; the first two change it in place.
    """

    def prune(self, obj: JsonObject) -> Sequence[str]:
        """Remove fields that the schema does not know; their paths (``spec.replicaz``), for ``fieldValidation``."""

    def default(self, obj: JsonObject) -> None:
        """Put in the schema's defaults."""

    def default_applied(self, obj: JsonObject) -> None:
        """Put in the schema's defaults after a server-side apply."""

    def prepare(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> None:
        """Change *obj* as the kind's strategy does before validation: what a client may not set, derived fields."""

    def validate(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> Sequence[FieldError]:
        """What is wrong with *obj*; *old* is what it replaces."""


@dataclass(frozen=True, slots=True)
class View:
    """How the objects of one kind are shown as another: events.k8s.io Events are core Events."""

    group: str
    version: str
    plural: str
    shown: Callable[[JsonObject], JsonObject]
    """The stored object in this kind's words: a new object, which shares parts with it."""
    stored: Callable[[JsonObject], JsonObject]
    """The other way."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Kind:
    """One kind in one version."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    rules: Rules
    list_kind: str = ""
    namespaced: bool = True
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    has_status: bool = False
    """``status`` is a subresource: written through ``/status`` only."""
    schema: JsonObject = field(default_factory=dict)
    """OpenAPI v3 with Kubernetes' extensions (``x-kubernetes-list-type``, ``-list-map-keys``, ``-map-type``; and for
    kinds that take a strategic merge patch ``-patch-strategy`` and ``-patch-merge-key``)."""
    columns: Sequence[Column] = ()
    field_selectors: Sequence[str] = ()
    """Fields that may be selected by, beside ``metadata.name`` and ``metadata.namespace``."""
    custom: bool = False
    """It comes from a CustomResourceDefinition."""
    deprecation: str = ""
    """What every client of this version is warned of."""
    name_rule: names.NameRule = names.dns_subdomain
    verbs: Sequence[str] = VERBS
    subresources: Sequence[str] = ()
    """Subresources beside ``status``."""
    field_readers: Mapping[str, Callable[[JsonObject], str]] = field(default_factory=dict)
    """How to read those of ``field_selectors`` that are no paths into the object."""
    counts_generations: bool = False
    """``metadata.generation`` counts changes of what is asked for."""
    creates_on_update: bool = False
    """An update of what is not there creates it."""
    revalidates_metadata: bool = False
    """An update is checked by all the rules for metadata that a create is."""
    qualifies_finalizers: bool = False
    """Finalizers that Kubernetes does not know must have a DNS prefix."""
    struct: Struct | None = None
    """The Go type of a built-in kind, which OpenAPI is made from."""
    updates_unconditionally: bool = False
    """An update without a ``resourceVersion`` replaces whatever is there."""
    view_of: View | None = None
    """Objects are those of another kind, in other words."""
    answer: Callable[[JsonObject], JsonObject] | None = None
    """Nothing is stored: a create is answered with this of what was sent."""

    @property
    def api_version(self) -> str:
        """``group/version``, or the version alone in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """``plural.group``: how messages name the resource."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def error_group(self) -> str:
        """The group that errors about an object name: that of the kind it is kept as."""
        return self.view_of.group if self.view_of else self.group

    @property
    def lists_as(self) -> str:
        """The kind of a list of these."""
        return self.list_kind or f"{self.kind}List"
