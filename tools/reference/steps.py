"""The tables of the steps' configurations, made of the models that check them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import getdoc
from typing import Any

from pydantic import BaseModel

from kargo_py.api.crd import field_docs
from kargo_py.steps.registry import BUILT_IN
from tools.reference.markdown import table
from tools.reference.schemas import HEAD, fields

CONFIGURATIONS: Mapping[str, type[BaseModel]] = {uses: kind.config_model for uses, kind in BUILT_IN.items()}
"""The model of each kind of step."""


def configuration(uses: str) -> str:
    """The table of the fields that ``config`` of such a step may have; in words where their names are free."""
    model = CONFIGURATIONS[uses]
    rows = fields(schema(model))
    return table(HEAD, rows) if rows else f"{getdoc(model)}\n"


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of *model* with all references written out, and the docstrings below fields as descriptions."""
    models = {each.__name__: each for each in _models(model, set())}
    written = model.model_json_schema(by_alias=True)
    definitions = written.get("$defs", {})

    def inline(part: Any) -> Any:
        if isinstance(part, list):
            return [inline(each) for each in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            owner, found = models.get(name), inline(definitions[name]) if name not in models else definitions[name]
            meant = described(owner, found) if owner is not None else {k: found[k] for k in found if k != "title"}
            return {**meant, **inline({k: part[k] for k in part if k != "$ref"})}
        if "anyOf" in part:
            inner = [each for each in part["anyOf"] if each.get("type") != "null"]
            rest = {name: value for name, value in part.items() if name not in {"anyOf", "title"}}
            return {**inline(inner[0]), **inline(rest)} if len(inner) == 1 else {"anyOf": inline(inner), **inline(rest)}
        return {name: inline(value) for name, value in part.items()}

    def described(owner: type[BaseModel], part: dict[str, Any]) -> dict[str, Any]:
        docs = {owner.model_fields[name].alias or name: text for name, text in field_docs(owner).items()}
        properties = {
            name: {**inline(each), "description": docs.get(name, "")} for name, each in part["properties"].items()
        }
        return {**part, "properties": properties}

    return described(model, written)


def _models(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    """*model* and every model that its fields mention."""
    if model in seen:
        return
    seen.add(model)
    yield model
    waiting: list[Any] = [field.annotation for field in model.model_fields.values()]
    waiting += [
        getattr(hint, "json_schema_input_type", None)
        for field in model.model_fields.values()
        for hint in field.metadata
    ]
    while waiting:
        annotation = waiting.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _models(annotation, seen)
        waiting += getattr(annotation, "__args__", ())
