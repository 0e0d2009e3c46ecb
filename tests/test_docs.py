"""What the documentation says in tables and samples, compared with the code."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pkgutil
import re
from inspect import signature
from pathlib import Path

import pytest

import kargo_py
from kargo_py.controllers.embedding import Shared
from kargo_py.controllers.world import Responsibility
from kargo_py.local.argocd.repositories import ScriptedRepository
from kargo_py.local.argocd.simulator import ArgoCD as SimulatedArgoCD, ScriptedApplication, ScriptedProject
from kargo_py.testing.kube_api import KubeApi, Promotion

DOCS = Path(__file__).resolve().parents[1] / "docs"
EMBED = (DOCS / "how-to/embed.md").read_text()
KIT = (DOCS / "how-to/test-your-pipeline.md").read_text()
APISERVER = (DOCS / "reference/embedded-apiserver.md").read_text()
SAMPLES = re.findall(r"^```python\n(.*?)^```", EMBED + APISERVER, re.MULTILINE | re.DOTALL)


def table_after(text: str, words: str) -> list[list[str]]:
    """The cells of the first table after *words*, without its head."""
    lines = text[text.index(words) :].split("\n\n")[1].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_fields() -> None:
    """Each field of a Responsibility stands in its table, with its default."""
    made = Responsibility()
    told = {name: default.replace('"', "'") for name, default, _ in table_after(EMBED, "Fields of `Responsibility`:")}

    assert told == {f"`{field.name}`": f"`{getattr(made, field.name)!r}`" for field in dataclasses.fields(made)}


def test_arguments() -> None:
    """Each argument of Shared stands in the table, with its default."""
    told = {name: default for name, default, _ in table_after(EMBED, "Of `Shared`, `Controllers`")}

    def shown(value: object) -> str:
        if dataclasses.is_dataclass(value):
            return f"{type(value).__name__}()"
        return getattr(value, "__name__", repr(value))

    _, *arguments = signature(Shared).parameters.values()
    assert told == {f"`{each.name}`": f"`{shown(each.default)}`" for each in arguments}


@pytest.mark.parametrize(
    ("words", "owner", "unlisted"),
    [
        ("### kube_api", KubeApi, {"resource", "resources", "named", "promotion"}),
        ("### What promote gives", Promotion, {"name"}),
    ],
)
def test_names_of_the_test_kit(words: str, owner: type, unlisted: set[str]) -> None:
    """What is meant for tests stands in the guide, but for what explains itself."""
    told = set(re.findall(r"[`.](\w+)", " ".join(row[0] for row in table_after(KIT, words))))
    assert {name for name in vars(owner) if not name.startswith("_")} - told == unlisted


def test_words_to_the_simulated_argocd() -> None:
    """What the guide lets a test say to it, it understands."""
    told = set(re.findall(r"\.(\w+)\(", " ".join(row[0] for row in table_after(KIT, "Without a word every sync"))))
    understood = {*dir(SimulatedArgoCD), *dir(ScriptedApplication), *dir(ScriptedProject), *dir(ScriptedRepository)}

    assert len(told) > 5
    assert told - understood == set()


@pytest.mark.parametrize("code", SAMPLES)
def test_imports(code: str) -> None:
    """What the samples import from us, or take from the package, is there."""
    nodes = list(ast.walk(ast.parse(code)))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    ours = [(node.module, name.name) for node in imports for name in node.names if f"{node.module}".startswith("kargo")]
    ours += [
        (node.value.id, node.attr)
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "kargo_py"
    ]

    assert ours
    for module, name in ours:
        assert hasattr(importlib.import_module(f"{module}"), name)


def test_names_to_import() -> None:
    """What is meant to be imported is there, and it is all that the package offers."""
    told = [row[0] for row in table_after(EMBED, "Meant to be imported:")]
    names = re.findall(r"`([\w.]+)", " ".join(told))

    for name in names:
        pkgutil.resolve_name(name if "." in name else f"kargo_py.{name}")
    offered = {name for name in kargo_py.__all__ if not name.startswith("_")}
    assert offered <= {name.removeprefix("kargo_py.") for name in names}


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_quoted_revisions(page: Path) -> None:
    """Whoever puts a revision of digits into one of our samples must not have to think of quotes."""
    revisions = re.findall(r"^[ -]*desiredRevision: (.*)$", page.read_text(), re.MULTILINE)
    assert [revision for revision in revisions if not revision.startswith('"')] == []
