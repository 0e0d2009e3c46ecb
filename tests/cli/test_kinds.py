"""steps and explain: what is shown of kinds as people write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
import yaml
from pydantic import Field, PlainValidator
from typer.testing import CliRunner, Result

from kargo_py.cli.kinds import LIST_FORMS, explanation, listing
from kargo_py.cli.main import app
from kargo_py.steps.config import Config
from kargo_py.steps.registry import BUILT_IN, Found, Unusable
from kargo_py.steps.step import Step


class Tree(Config):
    """Has itself within it."""

    name: str
    """Its name."""
    children: list[Tree] = []
    """What is below it."""


class Apple(Config):
    color: Literal["red", "green"] = "red"
    """Its color."""


class Pear(Config):
    weight: Annotated[int, Field(ge=1, le=500)]
    """In grams."""


class Odd(Config):
    """All that a model can have."""

    tree: Tree
    """A tree."""
    fruit: Apple | Pear | None = None
    """One or the other."""
    by_name: dict[str, Apple] = {}
    """Some, by name."""
    anything: Any = None
    free: Annotated[object, PlainValidator(str)] = ""
    made: Callable[[], int] = int

    class Inner(Config):
        deep: int = 3
        """Deep down."""

    inner: Inner = Inner()
    """Of a class within the class."""


class Strange(Step[Odd]):
    """Does ``this`` and :class:`that`.

    And more.
    """

    uses = "strange"
    config_model = Odd


FOUND = Found({**BUILT_IN, "strange": Strange}, {"strange": "pack"}, (Unusable("bad", "pack", "ImportError: x"),))


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_strange_models() -> None:
    """Whatever a model has in it, there is an end, and each docstring is in its place."""
    text = explanation("strange", FOUND, "text", recursive=True)
    fields = [line.split()[0] for line in text.partition("FIELDS:\n")[2].splitlines()]

    assert "Does `this` and `that`." in text
    assert fields[:3] == ["tree", "name", "children"]
    assert {"fruit", "color", "weight", "byName", "anything", "free", "inner", "deep"} <= set(fields)
    assert "Deep down." in explanation("strange.inner", FOUND, "text")
    assert "In grams." in explanation("strange.fruit", FOUND, "text")
    assert "one of red, green" in explanation("strange.byName.color", FOUND, "text")
    assert "Its name." in explanation("strange.tree", FOUND, "text")


@pytest.mark.parametrize("form", LIST_FORMS)
def test_forms(form: str) -> None:
    """Each form has all kinds; those for programs say what cannot be used, too."""
    shown = listing(FOUND, form)
    if form in {"json", "yaml"}:
        read = yaml.safe_load(shown)
        assert [each["name"] for each in read["steps"]] == sorted(FOUND.kinds)
        assert read["unusable"] == [{"name": "bad", "package": "pack", "why": "ImportError: x"}]
    else:
        assert {line.split()[0] for line in shown.splitlines()} - {"NAME"} == FOUND.kinds.keys()


def test_schema() -> None:
    """As JSON it is a schema with the descriptions in it, and nothing is left to look up."""
    read = json.loads(explanation("argocd-update.apps", FOUND, "json"))

    assert (read["name"], read["field"], read["required"]) == ("argocd-update", "apps", True)
    assert "$ref" not in json.dumps(read)
    assert read["schema"]["items"]["properties"]["name"]["description"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["steps", "-o", "csv"], 2, "--output 'csv': must be one of table, wide, json, yaml, name"),
        (["explain", "argocd-wait", "-o", "wide"], 2, "must be one of text, json, yaml"),
        (["explain", "argo-update"], 2, "there is no kind of step 'argo-update' (did you mean argocd-update"),
        (["explain", ""], 2, "there is no kind of step ''; kargo-py steps shows"),
        (["explain", "x" * 100_000], 2, "…'; kargo-py steps shows"),
        (["explain", "argocd-wait.apps.waitfor"], 2, "argocd-wait.apps has no field 'waitfor' (did you mean waitFor"),
        (["explain", "argocd-wait.apps.name.x"], 2, "argocd-wait.apps.name has no fields, it is: string"),
        (["explain", "argocd-wait.zzz"], 2, "argocd-wait has no field 'zzz'; it has: apps"),
    ],
)
def test_usage(arguments: list[str], code: int, words: str) -> None:
    """What is not there is told in one line, with what may be meant."""
    done = invoke(*arguments)

    assert (done.exit_code, done.stdout) == (code, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert len(done.stderr) < 500


@pytest.mark.parametrize("path", ["apps.waitFor", "apps[0].waitFor", "config.apps[].waitFor", "apps.waitFor[0]"])
def test_paths(path: str) -> None:
    """As in the documentation, and as messages write them."""
    done = invoke("explain", f"argocd-wait.{path}")

    assert done.exit_code == 0
    assert "FIELD:     apps.waitFor <list of strings" in done.stdout
