"""A kind that is served: its names, its schema, and the rules that its objects must keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kargo_py.local.apiserver.failures import FieldError
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


class Rules(Protocol):
    """What happens to an object of the kind between the request and the store. Metadata is the server's own business.

    Every method works on the whole object; the first two change it in place.
    """

    def prune(self, obj: JsonObject) -> Sequence[str]:
        """Remove fields that the schema does not know; their paths (``spec.replicaz``), for ``fieldValidation``."""

    def default(self, obj: JsonObject) -> None:
        """Put in the schema's defaults."""

    def prepare(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> None:
        """Change *obj* as the kind's strategy does before validation: what a client may not set, derived fields."""

    def validate(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> Sequence[FieldError]:
        """What is wrong with *obj*; *old* is what it replaces."""


@dataclass(frozen=True, slots=True, eq=False)
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

    @property
    def api_version(self) -> str:
        """``group/version``, or the version alone in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """``plural.group``: how messages name the resource."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def lists_as(self) -> str:
        """The kind of a list of these."""
        return self.list_kind or f"{self.kind}List"
