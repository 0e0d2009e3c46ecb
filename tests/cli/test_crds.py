"""``kargo-py crds``: what it prints, and that it needs nothing but the package."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import kargo_py
from kargo_py.api import crd
from kargo_py.api.kinds import KINDS
from kargo_py.cli.main import app
from tests.envtest.crds import OURS, read
from tests.envtest.server import ApiServer

NAMES = [f"{kind.plural}.kargo.akuity.io" for kind in KINDS]


def printed(*options: str) -> str:
    result = CliRunner().invoke(app, ["crds", *options])
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_they_are_those_of_the_repository() -> None:
    """Without options it prints what stands in crds/."""
    found = sorted(yaml.safe_load_all(printed()), key=lambda definition: str(definition["metadata"]["name"]))
    assert found == read(OURS)


def fields(definition: dict[str, Any]) -> dict[str, Any]:
    (version,) = definition["spec"]["versions"]
    properties: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]
    return properties


def test_strict() -> None:
    """With --strict nothing of ours is in them."""
    text = printed("--strict")
    found = {definition["metadata"]["name"]: definition for definition in yaml.safe_load_all(text)}
    assert [*found] == NAMES
    status = fields(found["promotions.kargo.akuity.io"])["status"]
    assert "state" in status["properties"]
    assert not {"admittedAt", "conditions", "operations"} & status["properties"].keys()
    assert "addition of kargo-py" not in text
    assert "oldSelf" not in text


def test_it_needs_the_package_alone(tmp_path: Path) -> None:
    """The files of the wheel are enough: no checkout, no crds/, no docstrings at run time."""
    package = Path(kargo_py.__file__).parent
    shutil.copytree(package, tmp_path / "kargo_py", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-OO", "-m", "kargo_py", "crds"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == printed()


def test_without_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the sources were left out it says so in a line, and prints nothing."""

    def no_source(_: object) -> str:
        raise OSError("could not get source code")

    crd._classes.cache_clear()  # it remembers what it has read
    crd.field_docs.cache_clear()
    monkeypatch.setattr(inspect, "getsource", no_source)
    result = CliRunner().invoke(app, ["crds"])
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("kargo-py: the CRDs cannot be made")


@pytest.mark.parametrize("options", [[], ["--strict"]], ids=["ours", "strict"])
def test_kubectl_applies_them(apiserver_session: ApiServer, kubectl_path: str, options: list[str]) -> None:
    """``kargo-py crds | kubectl apply -f -``, as it is written in the documentation; the server warns of nothing."""
    done = subprocess.run(
        [kubectl_path, "--kubeconfig", str(apiserver_session.kubeconfig("admin")), "apply", "--dry-run=server", "-f-"],
        input=printed(*options),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in NAMES)
