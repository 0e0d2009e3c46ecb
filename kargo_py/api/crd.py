"""Makes the CustomResourceDefinitions of ``crds/`` from the models: ``python -m kargo_py.api.crd [--check] DIR``.

What the models say in types, constraints and docstrings becomes the structural schema, so that ``kubectl explain``
reads like documentation. What they cannot say (columns, short names, CEL rules) stands in :data:`KINDS`.

This is run when the models change, not at run time.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from kargo_py.api.freight import Freight, FreightReference
from kargo_py.api.meta import GROUP, VERSION, KubeObject
from kargo_py.api.project import Project
from kargo_py.api.promotion import Promotion, PromotionPhase, PromotionSpec, PromotionStatus, PromotionStep
from kargo_py.api.stage import Stage, StageStatus
from kargo_py.api.types import JsonObject
from kargo_py.api.warehouse import Warehouse, WarehouseStatus

HEADER = "# Generated from kargo_py/api by `make crds`. Do not edit.\n"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get``."""

    name: str
    path: str
    type: str = "string"


_AGE = Column("Age", ".metadata.creationTimestamp", "date")
_SHARD = Column("Shard", r".metadata.labels.kargo\.akuity\.io/shard")
_READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status')
_STATUS = Column("Status", '.status.conditions[?(@.type=="Ready")].message')


@dataclass(frozen=True, slots=True)
class Kind:
    """What the model of a kind does not say about its CRD."""

    model: type[KubeObject]
    plural: str
    columns: Sequence[Column]
    short_names: Sequence[str] = ()
    cluster_scoped: bool = False


KINDS = (
    Kind(
        Promotion,
        "promotions",
        (
            _SHARD,
            Column("Stage", ".spec.stage"),
            Column("Freight", ".spec.freight"),
            Column("Phase", ".status.phase"),
            _AGE,
        ),
        ("promo", "promos"),
    ),
    Kind(
        Stage,
        "stages",
        (
            _SHARD,
            Column("Current Freight", ".status.freightSummary"),
            Column("Health", ".status.health.status"),
            _READY,
            _STATUS,
            _AGE,
        ),
    ),
    Kind(
        Freight,
        "freights",
        (
            Column("Alias", r".metadata.labels.kargo\.akuity\.io/alias"),
            Column("Origin (Kind)", ".origin.kind"),
            Column("Origin (Name)", ".origin.name"),
            _AGE,
        ),
    ),
    Kind(Project, "projects", (_READY, _STATUS, _AGE), cluster_scoped=True),
    Kind(Warehouse, "warehouses", (_SHARD, _AGE)),
)

_OPEN = {PromotionStatus, StageStatus, WarehouseStatus, FreightReference}
"""Models whose objects may have fields that are not modelled here and must not be pruned (the commercial Kargo's)."""

_RULES: dict[type[BaseModel], Sequence[tuple[str, str]]] = {
    PromotionSpec: (("has(self.freight) != has(self.origin)", "exactly one of freight and origin must be given"),),
    PromotionStep: (("has(self.uses) != has(self.task)", "exactly one of uses and task must be given"),),
}

_PROMOTION_STEP_RULE = ("has(self.uses) && !has(self.task)", "a Promotion's step must have uses and no task")

_STATUS_DEFAULTS: dict[type[BaseModel], JsonObject] = {PromotionStatus: {"phase": PromotionPhase.PENDING.value}}
"""Defaults in a status: a Promotion just created shows Pending, and that costs no write."""


def crd(kind: Kind) -> JsonObject:
    """The CustomResourceDefinition of *kind*."""
    name = kind.model.kind_name
    names: JsonObject = {"kind": name, "listKind": f"{name}List", "plural": kind.plural, "singular": name.lower()}
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
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
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": c.name, "type": c.type, "jsonPath": c.path} for c in kind.columns
                    ],
                    "schema": {"openAPIV3Schema": _Schema(kind.model).root()},
                }
            ],
        },
    }


class _Schema:
    """Builds the structural schema of one kind out of pydantic's JSON schema, with all references written out."""

    def __init__(self, model: type[KubeObject]) -> None:
        self._model = model
        self._json = model.model_json_schema(by_alias=True)
        self._defs: JsonObject = self._json.get("$defs", {})
        self._models = {m.__name__: m for m in _models(model)}

    def root(self) -> JsonObject:
        properties = {
            name: self._property(self._model, name, schema)
            for name, schema in self._json["properties"].items()
            if name not in {"apiVersion", "kind", "metadata"}
        }
        properties = {
            "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
            "kind": {"type": "string", "description": "Kind of this object."},
            "metadata": {"type": "object"},
            **properties,
        }
        out: JsonObject = {"type": "object", "description": _doc(self._model), "properties": properties}
        if required := [n for n in self._json.get("required", []) if n in properties]:
            out["required"] = required
        return out

    def _property(self, owner: type[BaseModel], name: str, schema: JsonObject) -> JsonObject:
        out = self._convert(schema)
        field = next(f for f in owner.model_fields if _wire(owner, f) == name)
        if text := _field_docs(owner).get(field):
            out = {"description": text, **{k: v for k, v in out.items() if k != "description"}}
        default = owner.model_fields[field].default
        if isinstance(default, str) and default:
            out["default"] = str(default)
        for model, defaults in _STATUS_DEFAULTS.items():
            if owner is model and name in defaults:
                out["default"] = defaults[name]
            if isinstance(default, model):
                out["default"] = {}
        if owner is PromotionSpec and name == "steps":
            out["items"]["x-kubernetes-validations"] = [_rule(*_PROMOTION_STEP_RULE)]
        return out

    def _convert(self, schema: JsonObject) -> JsonObject:
        if "$ref" in schema:
            return self._object(schema["$ref"].rpartition("/")[2])
        if "anyOf" in schema:
            (inner,) = (s for s in schema["anyOf"] if s.get("type") != "null")
            rest = {k: v for k, v in schema.items() if k not in {"anyOf", "default", "title"}}
            return self._convert({**inner, **rest})
        out: JsonObject = {}
        for key in ("type", "format", "pattern", "minLength", "maxLength", "minItems", "minimum", "maximum", "enum"):
            if key in schema:
                out[key] = schema[key]
        if "const" in schema:
            out["enum"] = [schema["const"]]
        if out.get("type") == "integer":
            out["format"] = "int64"
        if out.get("type") == "array":
            out["items"] = self._convert(schema.get("items", {}))
        if out.get("type") == "object":
            values = schema.get("additionalProperties")
            if isinstance(values, dict) and values:
                out["additionalProperties"] = self._convert(values)
            else:
                out["x-kubernetes-preserve-unknown-fields"] = True
        if "type" not in out:
            out["x-kubernetes-preserve-unknown-fields"] = True
        return out

    def _object(self, name: str) -> JsonObject:
        model, schema = self._models[name], self._defs[name]
        out: JsonObject = {"type": "object", "description": _doc(model)}
        out["properties"] = {n: self._property(model, n, s) for n, s in schema.get("properties", {}).items()}
        if schema.get("required"):
            out["required"] = schema["required"]
        if model in _OPEN:
            out["x-kubernetes-preserve-unknown-fields"] = True
        if model in _RULES:
            out["x-kubernetes-validations"] = [_rule(*rule) for rule in _RULES[model]]
        return out


def _rule(rule: str, message: str) -> JsonObject:
    return {"rule": rule, "message": message}


def _wire(model: type[BaseModel], field: str) -> str:
    return model.model_fields[field].alias or field


def _doc(model: type[BaseModel]) -> str:
    return inspect.cleandoc(model.__doc__ or "").replace("``", "")


def _field_docs(model: type[BaseModel]) -> dict[str, str]:
    """The docstrings below the fields of *model* and of the models it derives from."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if not (issubclass(cls, BaseModel) and cls.__module__.startswith("kargo_py.")):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        statements = body.body if isinstance(body, ast.ClassDef) else []
        for before, after in pairwise(statements):
            if (
                isinstance(before, ast.AnnAssign)
                and isinstance(before.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                found[before.target.id] = inspect.cleandoc(after.value.value)
    return found


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
    return found


class _Dumper(yaml.CSafeDumper):
    """Writes every value out: kubectl reads YAML aliases, people do not."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render(kind: Kind) -> str:
    """The CRD as a YAML file."""
    return HEADER + yaml.dump(crd(kind), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def main(arguments: Sequence[str]) -> int:
    """Write or check the files; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kargo_py.api.crd", description="Write the CRDs.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--check", action="store_true", help="only say whether the files are current")
    options = parser.parse_args(arguments)
    wanted = {f"{GROUP}_{kind.plural}.yaml": render(kind) for kind in KINDS}
    if options.check:
        present = {path.name: path.read_text() for path in options.directory.glob("*.yaml")}
        stale = sorted(n for n in {*wanted, *present} if wanted.get(n) != present.get(n))
        if stale:
            sys.stderr.write(f"not current: {', '.join(stale)}; run `make crds` and commit the result\n")
        return 1 if stale else 0
    options.directory.mkdir(parents=True, exist_ok=True)
    for name, text in wanted.items():
        (options.directory / name).write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
