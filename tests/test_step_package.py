"""The example of a package that brings a kind of step, installed as pip would: by a folder with its entry points."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kargo_py.cli.main import app

EXAMPLE = Path(__file__).resolve().parents[1] / "examples/step-package"
SOURCE = EXAMPLE / "src/kargo_py_announce/__init__.py"
GUIDE = (EXAMPLE.parents[1] / "docs/how-to/write-a-step.md").read_text()


def install(folder: Path, name: str, points: dict[str, str]) -> None:
    """Make the entry points of a package visible that is on the path anyway."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{each} = {value}" for each, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[kargo_py.steps]", *lines, ""]))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for packages, with the example in it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(tmp_path, project["name"], project["entry-points"]["kargo_py.steps"])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("kargo_py_announce", None)


@pytest.mark.usefixtures("site")
class TestCommands:
    def test_steps(self) -> None:
        """It is among the kinds, with the name of its package."""
        done = CliRunner().invoke(app, ["steps"], catch_exceptions=False)
        line = next(line for line in done.stdout.splitlines() if line.startswith("announce "))

        assert done.exit_code == 0
        assert line.split()[:4] == ["announce", "kargo-py-announce", "1h0m0s", "3"]
        assert "Puts a release on a list of releases" in line

    def test_explain(self) -> None:
        """Its documentation is what its author wrote."""
        done = CliRunner().invoke(app, ["explain", "announce"], catch_exceptions=False)

        assert done.exit_code == 0
        assert "A release that is refused there makes the step fail." in done.stdout
        assert "  version <string, not empty> -required-\n    What is released.\n" in done.stdout


def test_a_broken_one_hides_no_other(site: Path) -> None:
    """It is told on standard error, and the code says so, for the controller would not begin."""
    install(site, "broken", {"broken": "no_such_module:Step", "announce": "kargo_py_announce:Announce"})
    done = CliRunner().invoke(app, ["steps"], catch_exceptions=False)

    assert done.exit_code == 1
    assert {line.split()[0] for line in done.stdout.splitlines()} >= {"announce", "argocd-update"}
    assert "the kind of step broken of package broken cannot be used: ModuleNotFoundError" in done.stderr
    assert CliRunner().invoke(app, ["explain", "argocd-wait"]).exit_code == 0
    asked = CliRunner().invoke(app, ["explain", "broken"])
    assert (asked.exit_code, asked.stdout) == (1, "")
    assert "cannot be used: ModuleNotFoundError" in asked.stderr


def test_its_own_tests(site: Path) -> None:
    """As its author runs them."""
    path = os.pathsep.join(map(str, [EXAMPLE.parents[1], EXAMPLE / "src", site]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=EXAMPLE,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_the_guide_shows_it() -> None:
    """Word for word."""
    for file in (SOURCE, EXAMPLE / "pyproject.toml", EXAMPLE / "tests/test_announce.py"):
        assert file.read_text() in GUIDE
