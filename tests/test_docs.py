"""What the documentation says in tables and samples, compared with the code."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pkgutil
import re
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml

import kargo_py
from kargo_py.controllers.embedding import Shared
from kargo_py.controllers.world import Responsibility
from kargo_py.local.argocd.repositories import ScriptedRepository
from kargo_py.local.argocd.simulator import ArgoCD as SimulatedArgoCD, ScriptedApplication, ScriptedProject
from kargo_py.testing.kube_api import KubeApi, Promotion
from tests.explorer import laws as explorer_laws
from tests.simulation import laws as simulation_laws

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


MISTAKES = {"checks": {"123456"}, "check-in-ci": {"1e6", "3f1a0f6c29b54f0a8c7e0f3a3d9a4b5c6d7e8f90"}}
"""Of the pages on what is found in samples; and what render prints."""


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_quoted_revisions(page: Path) -> None:
    """Whoever puts a revision of digits into one of our samples must not have to think of quotes."""
    revisions = re.findall(r"^[ -]*desiredRevision: (.*)$", page.read_text(), re.MULTILINE)
    unquoted = {revision for revision in revisions if not revision.startswith(('"', "${{"))}
    assert unquoted == MISTAKES.get(page.stem, set())


NAV = yaml.load((DOCS.parent / "mkdocs.yml").read_text(), yaml.BaseLoader)["nav"]
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
TESTS = DOCS.parent / "tests"


def in_nav(entry: Any) -> Iterator[str]:
    """The pages of a part of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from in_nav(inner)


def test_navigation() -> None:
    """Every page can be found, once, and every entry is a page."""
    assert sorted(in_nav(NAV)) == PAGES


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_links_of_pages_outside(page: str) -> None:
    """What they link to in the repository is there; the links of the others are seen to when the site is built."""
    links = re.findall(r"\]\(([^):#]+)[^):]*\)", (DOCS.parent / page).read_text())
    assert links
    assert [link for link in links if not (DOCS.parent / link).exists()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("reference/")])
def test_reference_is_kept_true(page: str) -> None:
    """A page of the reference is generated, has generated parts, or is read by a test."""
    text = (DOCS / page).read_text()
    read = any(page in path.read_text() for path in TESTS.rglob("test_*.py"))
    assert "<!-- Generated " in text or "<!-- generated: " in text or read


LAWS = (DOCS / "explanation/laws.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", LAWS)))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_tests_of_the_laws(path: str, name: str) -> None:
    """A test that the page names is there."""
    tree = ast.parse((DOCS.parent / path).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def test_laws() -> None:
    """Each Law has a section with tests, and is judged where the page says so."""
    rows = table_after(LAWS, "Which of them judges which Law:")
    explorer = {law for law, by, _ in rows if not by.startswith("no")}
    simulation = {law for law, _, by in rows if by == "yes"}
    assert explorer == {law for law in (*explorer_laws.LAWS, explorer_laws.LOST_ENDING) if law[0].isdigit()}
    assert simulation == {law for law in simulation_laws.LAWS if law[0].isdigit()}

    sections = re.findall(r"^## (\d+)\. (.*?)$(.*?)(?=^## |\Z)", LAWS, re.MULTILINE | re.DOTALL)
    assert [law.split()[0] for law, *_ in rows] == [number for number, *_ in sections]
    assert [title for _, title, text in sections if "*What would break it:*" not in text or "::test_" not in text] == []
