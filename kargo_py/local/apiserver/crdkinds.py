"""The kinds that a CustomResourceDefinition brings, and what happens to their objects on the way into the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kargo_py.local.apiserver.failures import FieldError
from kargo_py.local.apiserver.kinds import Column, Kind
from kargo_py.local.apiserver.objectmeta import FOREGROUND, ORPHAN
from kargo_py.local.apiserver.schema import Schema, compiled
from kargo_py.local.apiserver.wire import JsonObject

_INT32: Final = (1 << 31) - 1


class CustomRules:
    """What happens to a custom resource on its way into the store."""

    def __init__(self, schema: Schema, scale: JsonObject | None = None) -> None:
        """*scale* is the subresource of that name."""
        self.schema = schema
        self._scale = scale

    def prune(self, obj: JsonObject) -> Sequence[str]:
        """Remove what the schema does not know."""
        return self.schema.prune(obj)

    def default(self, obj: JsonObject, *, keep_nulls: bool = False) -> None:
        """Put in the schema's defaults."""
        self.schema.default(obj, keep_nulls=keep_nulls)

    def prepare(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> None:
        """Nothing: status and generation are the same for all kinds."""

    def validate(
        self, obj: JsonObject, old: JsonObject | None, subresource: str, found: Sequence[FieldError] = ()
    ) -> Sequence[FieldError]:
        """What is wrong with *obj*."""
        if any(error.path in {"kind", "apiVersion"} for error in found):
            return self.schema.validate_mistaken(obj, old, found)
        if subresource == "status" and old is not None:
            errors = self.schema.validate_status(obj, old, found)
        else:
            errors = self.schema.validate(obj, old, found)
        if self._scale is not None:
            errors += _replicas_errors(obj, self._scale, subresource)
        return errors

    def warnings(self, obj: JsonObject, old: JsonObject | None) -> Sequence[str]:
        """New finalizers that others might choose, too."""
        before = old["metadata"].get("finalizers", ()) if old is not None else ()
        advice = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
        return [
            f'metadata.finalizers: "{name}": {advice}'
            for name in obj["metadata"].get("finalizers", ())
            if "/" not in name and name not in {ORPHAN, FOREGROUND, *before}
        ]


def _replicas_errors(obj: JsonObject, scale: JsonObject, subresource: str) -> Iterator[FieldError]:
    paths = ["statusReplicasPath"] if subresource == "status" else ["specReplicasPath", "statusReplicasPath"]
    for name in paths:
        path = scale.get(name) or ""
        value: Any = obj
        for step in path.removeprefix(".").split("."):
            value = value.get(step) if isinstance(value, dict) else None
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        if value < 0:
            yield FieldError.invalid(path, value, "should be a non-negative integer")
        elif value > _INT32:
            yield FieldError.invalid(path, value, f"should be less than or equal to {_INT32}")


def kinds_of(crd: JsonObject) -> list[Kind]:
    """One kind for each version that is served, under the names that were accepted."""
    spec = crd["spec"]
    taken = (crd.get("status") or {}).get("acceptedNames") or {}
    served_as = {**spec["names"], **{name: value for name, value in taken.items() if value}}
    return [_kind(spec, version, served_as) for version in spec["versions"] if version.get("served")]


def _kind(spec: JsonObject, version: JsonObject, served_as: JsonObject) -> Kind:
    raw: JsonObject = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"}
    subresources = version.get("subresources") or {}
    return Kind(
        group=spec["group"],
        version=version["name"],
        plural=served_as["plural"],
        singular=served_as.get("singular") or served_as["kind"].lower(),
        kind=served_as["kind"],
        list_kind=served_as.get("listKind") or "",
        rules=CustomRules(compiled(raw), subresources.get("scale")),
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(served_as.get("shortNames") or ()),
        categories=tuple(served_as.get("categories") or ()),
        has_status=subresources.get("status") is not None,
        schema=raw,
        columns=tuple(map(_column, version.get("additionalPrinterColumns") or ())),
        field_selectors=tuple(field["jsonPath"].removeprefix(".") for field in version.get("selectableFields") or ()),
        custom=True,
        counts_generations=True,
        deprecation=_deprecation(spec["group"], version, served_as["kind"]),
    )


def _deprecation(group: str, version: JsonObject, kind: str) -> str:
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{group}/{version['name']} {kind} is deprecated"


def _column(column: JsonObject) -> Column:
    return Column(
        column["name"],
        column["type"],
        column["jsonPath"],
        format=column.get("format") or "",
        description=column.get("description") or "",
        priority=column.get("priority") or 0,
    )
