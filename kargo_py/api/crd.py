"""Makes the CustomResourceDefinitions of ``crds/`` from the models: ``python -m kargo_py.api.crd [--check] DIR``.

What the models say in types, constraints and docstrings becomes the structural schema, so that ``kubectl explain``
reads like documentation. What they cannot say (columns, short names, rules, the default of ``status``) stands in
:mod:`kargo_py.api.kinds`.

A *strict* definition has only what Kargo's own has: it prunes what Kargo's prunes, and demands what Kargo's demands of
what controllers write.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from kargo_py.api.freight import (
    ApprovedStage,
    ArtifactReference,
    Chart,
    CurrentStage,
    FreightReference,
    FreightStatus,
    GitCommit,
    Image,
    VerifiedStage,
)
from kargo_py.api.kinds import KINDS, Kind
from kargo_py.api.meta import GROUP, VERSION, Condition
from kargo_py.api.project import ProjectStatus
from kargo_py.api.promotion import (
    FreightCollection,
    HealthCheckStep,
    OperationRecord,
    PromotionStatus,
    StepExecutionMetadata,
)
from kargo_py.api.receivers import ConfigStatus
from kargo_py.api.stage import (
    AnalysisRunReference,
    AutoPromotionHold,
    Health,
    PromotionReference,
    StageStatus,
    VerificationInfo,
)
from kargo_py.api.types import JsonObject
from kargo_py.api.warehouse import (
    ChartDiscoveryResult,
    ChartSubscription,
    DiscoveredArtifacts,
    DiscoveredCommit,
    DiscoveredImageReference,
    GitDiscoveryResult,
    GitSubscription,
    ImageDiscoveryResult,
    ImageSubscription,
    RepoSubscription,
    WarehouseStatus,
)

__all__ = ["KINDS", "crd", "document", "main"]

HEADER = "# Generated from kargo_py/api by `make crds`. Do not edit.\n"

_FREE = frozenset({RepoSubscription, GitSubscription, ImageSubscription, ChartSubscription})
"""Models whose objects keep fields that are not modelled here, with Kargo too: subscriptions have other types."""

_OPEN = frozenset(
    {
        *(GitCommit, Image, Chart, ArtifactReference, FreightReference, FreightCollection),
        *(FreightStatus, CurrentStage, VerifiedStage, ApprovedStage),
        *(PromotionStatus, StepExecutionMetadata, HealthCheckStep, OperationRecord),
        *(StageStatus, Health, PromotionReference, VerificationInfo, AutoPromotionHold),
        *(WarehouseStatus, DiscoveredArtifacts, GitDiscoveryResult, ImageDiscoveryResult, ChartDiscoveryResult),
        *(DiscoveredCommit, DiscoveredImageReference),
        *(ProjectStatus, ConfigStatus),
    }
)
"""Models whose objects keep fields that are not modelled here, in ours: all that programs write.

Another version of Kargo, or the commercial one, may have written them. What people write (``spec``) is closed, so that
kubectl warns of a misspelt field.
"""

_OURS: Mapping[type[BaseModel], frozenset[str]] = {
    PromotionStatus: frozenset({"admittedAt", "conditions", "operations"})
}
"""Fields that Kargo does not have."""

_DEMANDED: Mapping[type[BaseModel], Mapping[str, JsonObject]] = {
    Condition: {
        "type": {"maxLength": 316},
        "status": {"enum": ["True", "False", "Unknown"]},
        "reason": {"minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
        "message": {"maxLength": 32768},
        "lastTransitionTime": {},
    },
    ArtifactReference: {"subscriptionName": {"minLength": 1}, "version": {"minLength": 1}},
    AnalysisRunReference: {"namespace": {}, "name": {}, "phase": {}},
}
"""Fields that Kargo's definitions demand of what controllers write, with more keywords for them."""

_READ_LATE: Mapping[tuple[type[BaseModel], str], type[BaseModel]] = {
    (FreightCollection, "verificationHistory"): VerificationInfo
}
"""The form of the items of lists that are kept as JSON until somebody reads one."""


def crd(kind: Kind, *, strict: bool = False) -> JsonObject:
    """The CustomResourceDefinition of *kind*; *strict* without what Kargo's does not have."""
    name = kind.model.kind_name
    names: JsonObject = {"kind": name, "listKind": f"{name}List", "plural": kind.plural, "singular": name.lower()}
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    columns = [
        {"name": c.name, "type": c.type, "jsonPath": c.path, **({"priority": 1} if c.wide else {})}
        for c in kind.columns
        if not (strict and c.ours)
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": "Cluster" if kind.cluster_scoped else "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    **({"subresources": {"status": {}}} if kind.status else {}),
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": _Schema(kind, strict=strict).root()},
                }
            ],
        },
    }


class _Schema:
    """Builds the structural schema of one kind out of pydantic's JSON schema, with all references written out."""

    def __init__(self, kind: Kind, *, strict: bool) -> None:
        self._kind = kind
        self._strict = strict
        self._models = {model.__name__: model for model in _models(kind.model)}
        self._schemas: JsonObject = {name: _json_schema(model) for name, model in self._models.items()}

    def root(self) -> JsonObject:
        """The schema of the kind."""
        out = self._object(self._kind.model)
        out["properties"] = {
            "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
            "kind": {"type": "string", "description": "Kind of this object."},
            "metadata": {"type": "object"},
            **{n: s for n, s in out["properties"].items() if n not in {"apiVersion", "kind", "metadata"}},
        }
        for additions in (self._kind.additions, {} if self._strict else self._kind.ours):
            for path, keywords in additions.items():
                _at(out, path).update(keywords)
        for rule in self._kind.rules:
            if rule.kargos if self._strict else rule.ours:
                rules = _at(out, rule.where).setdefault("x-kubernetes-validations", [])
                at = {"fieldPath": f".{rule.field}"} if rule.field and not self._strict else {}
                rules.append({"rule": rule.expression, "message": rule.says, **at})
        return out

    def _object(self, model: type[BaseModel]) -> JsonObject:
        schema = self._schemas[model.__name__]
        ours = _OURS.get(model, frozenset()) if self._strict else frozenset()
        properties = {n: self._property(model, n, s) for n, s in schema.get("properties", {}).items() if n not in ours}
        out: JsonObject = {"type": "object", "description": _doc(model), "properties": properties}
        demanded = _DEMANDED.get(model, {}) if self._strict else {}
        for name, keywords in demanded.items():
            properties[name].update(keywords)
        if required := list(demanded) or schema.get("required"):
            out["required"] = required
        if model in _FREE or (model in _OPEN and not self._strict):
            out["x-kubernetes-preserve-unknown-fields"] = True
        return out

    def _property(self, owner: type[BaseModel], name: str, schema: JsonObject) -> JsonObject:
        out = self._convert(schema)
        if model := _READ_LATE.get((owner, name)):
            out["items"] = self._object(model)
        known = next(field for field in owner.model_fields if _wire(owner, field) == name)
        if text := field_docs(owner).get(known):
            out = {"description": text, **{k: v for k, v in out.items() if k != "description"}}
        default = owner.model_fields[known].default
        if isinstance(default, str) and default:
            out["default"] = str(default)
        return out

    def _convert(self, schema: JsonObject) -> JsonObject:
        if "$ref" in schema:
            return self._object(self._models[schema["$ref"].rpartition("/")[2]])
        if "anyOf" in schema:
            (inner,) = (s for s in schema["anyOf"] if s.get("type") != "null")
            return self._convert({**inner, **{k: v for k, v in schema.items() if k != "anyOf"}})
        out: JsonObject = {key: schema[key] for key in _KEYWORDS if key in schema}
        if "const" in schema:
            out["enum"] = [schema["const"]]
        match schema.get("type"):
            case "integer":
                out["format"] = "int32" if schema.get("maximum", _INT32 + 1) <= _INT32 else "int64"
            case "array":
                out["items"] = self._convert(schema["items"])
            case "object" if isinstance(values := schema.get("additionalProperties"), dict):
                out["additionalProperties"] = self._convert(values)
            case "object" | None:
                out["x-kubernetes-preserve-unknown-fields"] = True
        return out


_KEYWORDS = ("type", "format", "pattern", "minLength", "maxLength", "minItems", "minimum", "maximum", "enum")
_INT32 = 2**31 - 1


def _at(schema: JsonObject, path: str) -> JsonObject:
    """The schema of the field at *path*, e.g. ``spec.steps[]``, or "" for all; raises KeyError if there is none."""
    for part in path.split(".") if path else ():
        name = part.removesuffix("[]")
        schema = schema["properties"][name]
        if name != part:
            schema = schema["items"]
    return schema


@cache
def _json_schema(model: type[BaseModel]) -> JsonObject:
    return model.model_json_schema(by_alias=True)


def _wire(model: type[BaseModel], field: str) -> str:
    return model.model_fields[field].alias or field


def _doc(model: type[BaseModel]) -> str:
    """The docstring of *model*, from its source: an optimised Python has no others."""
    return (ast.get_docstring(_classes(model.__module__)[model.__qualname__]) or "").replace("``", "")


@cache
def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """The docstrings below the fields of *model* and of the models it derives from."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if not issubclass(cls, BaseModel) or cls.__module__.startswith("pydantic."):
            continue
        try:
            written = _classes(cls.__module__).get(cls.__qualname__)
        except (OSError, TypeError, KeyError, SyntaxError):
            # A model of somebody else may have been made without a source; our own have one, or nothing is to be made.
            if cls.__module__.startswith("kargo_py."):
                raise
            continue
        for before, after in pairwise(written.body if written is not None else ()):
            if (
                isinstance(before, ast.AnnAssign)
                and isinstance(before.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                found[before.target.id] = inspect.cleandoc(after.value.value)
    return found


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module as they are written, by their qualified names."""
    return dict(_within("", ast.parse(inspect.getsource(sys.modules[module])).body))


def _within(path: str, body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.ClassDef]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            name = f"{path}{statement.name}"
            yield name, statement
            yield from _within(f"{name}.", statement.body)
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _within(f"{path}{statement.name}.<locals>.", statement.body)


def _models(root: type[BaseModel]) -> list[type[BaseModel]]:
    """*root* and every model that its fields mention."""
    found: list[type[BaseModel]] = []

    def visit(annotation: Any) -> None:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            if annotation not in found:
                found.append(annotation)
                for field in annotation.model_fields.values():
                    visit(field.annotation)
            return
        for argument in getattr(annotation, "__args__", ()):
            visit(argument)

    visit(root)
    for (owner, _), items in _READ_LATE.items():
        if owner in found:
            visit(items)
    return found


class _Dumper(yaml.CSafeDumper):
    """Writes every value out: kubectl reads YAML aliases, people do not."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def document(kind: Kind, *, strict: bool = False) -> str:
    """The CRD as YAML. Raises OSError where the sources of the models are not there."""
    made = crd(kind, strict=strict)
    return yaml.dump(made, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def main(arguments: Sequence[str]) -> int:
    """Write or check the files; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kargo_py.api.crd", description="Write the CRDs.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--check", action="store_true", help="only say whether the files are current")
    options = parser.parse_args(arguments)
    wanted = {f"{GROUP}_{kind.plural}.yaml": HEADER + document(kind) for kind in KINDS}
    present = {path.name: path.read_text() for path in options.directory.glob(f"{GROUP}_*.yaml")}
    if options.check:
        stale = sorted(n for n in {*wanted, *present} if wanted.get(n) != present.get(n))
        if stale:
            sys.stderr.write(f"not current: {', '.join(stale)}; run `make crds` and commit the result\n")
        return 1 if stale else 0
    options.directory.mkdir(parents=True, exist_ok=True)
    for name, text in wanted.items():
        (options.directory / name).write_text(text)
    for name in present.keys() - wanted.keys():
        (options.directory / name).unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
