"""The generated CRDs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kargo_py.api.crd import KINDS, Kind, crd, main, render

CRDS = Path(__file__).resolve().parents[2] / "crds"
JsonObject = dict[str, Any]
IDS = [kind.plural for kind in KINDS]


def schemas(node: JsonObject) -> list[JsonObject]:
    """*node* and every schema inside it."""
    found = [node]
    for child in node.get("properties", {}).values():
        found += schemas(child)
    for name in ("items", "additionalProperties"):
        if isinstance(node.get(name), dict):
            found += schemas(node[name])
    return found


def schema(kind: Kind) -> JsonObject:
    (version,) = crd(kind)["spec"]["versions"]
    root: JsonObject = version["schema"]["openAPIV3Schema"]
    return root


def test_checked_in() -> None:
    """What is checked in is what the models say."""
    assert {f"kargo.akuity.io_{kind.plural}.yaml": render(kind) for kind in KINDS} == {
        path.name: path.read_text() for path in CRDS.iterdir()
    }


def test_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The check names every file that is missing, changed or no longer made."""
    assert main([str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0
    (tmp_path / "kargo.akuity.io_stages.yaml").write_text("changed")
    (tmp_path / "kargo.akuity.io_projects.yaml").unlink()
    (tmp_path / "kargo.akuity.io_olds.yaml").write_text("old")
    assert main(["--check", str(tmp_path)]) == 1
    assert (
        "kargo.akuity.io_olds.yaml, kargo.akuity.io_projects.yaml, kargo.akuity.io_stages.yaml"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_everything_is_explained(kind: Kind) -> None:
    """Every field has a description, so that `kubectl explain` reads like documentation."""
    root = schema(kind)
    undescribed = [
        name
        for node in schemas(root)
        for name, child in node.get("properties", {}).items()
        if "description" not in child and name != "metadata"
    ]
    bare = {"type", "status", "reason", "message"}
    assert not set(undescribed) - bare


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_structural(kind: Kind) -> None:
    """Each schema has one type, or leaves everything in; no references, no alternatives."""
    for node in schemas(schema(kind)):
        assert not {"$ref", "anyOf", "title", "const"} & node.keys()
        assert isinstance(node.get("type"), str) or node.get("x-kubernetes-preserve-unknown-fields")
        if node.get("type") == "array":
            assert "items" in node


def test_pending_without_a_write() -> None:
    """A Promotion's phase defaults to Pending, and its status to an object in which that default can stand."""
    status = schema(KINDS[0])["properties"]["status"]
    assert (status["default"], status["properties"]["phase"]["default"]) == ({}, "Pending")


def test_no_other_defaults_are_made_up() -> None:
    """Only the defaults Kargo's own CRDs have: anything else would change users' objects."""
    defaults = {
        (kind.plural, name, str(child["default"]))
        for kind in KINDS
        for node in schemas(schema(kind))
        for name, child in node.get("properties", {}).items()
        if "default" in child
    }
    assert {
        ("promotions", "status", "{}"),
        ("promotions", "phase", "Pending"),
        ("promotions", "kind", "PromotionTask"),
        ("stages", "kind", "PromotionTask"),
        ("stages", "kind", "AnalysisTemplate"),
        ("stages", "phase", "Pending"),
        ("stages", "selectionPolicy", "NewestFreight"),
        ("warehouses", "interval", "5m0s"),
        ("warehouses", "freightCreationPolicy", "Automatic"),
    } >= defaults
