"""The real API server of the test kit: where it is found, and that it is never left over. Its use is in test_plugin."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kargo_py.testing.real import BinariesMissing, ServerFailed, find, running

REPOSITORY = Path(__file__).resolve().parents[2]


def lay(directory: Path, script: str = "exec sleep 1000") -> Path:
    """Two programs that are none."""
    directory.mkdir(parents=True)
    for name in ("etcd", "kube-apiserver"):
        program = directory / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    return directory


class TestFind:
    """Which programs are run."""

    def test_assets_first(self, tmp_path: Path) -> None:
        """KUBEBUILDER_ASSETS wins over what was built."""
        assets, _ = lay(tmp_path / "assets"), lay(tmp_path / "cache/envtest/v1")

        assert find({"KUBEBUILDER_ASSETS": str(assets), "KARGO_PY_CACHE": str(tmp_path / "cache")}) == assets

    @pytest.mark.parametrize(
        "environment",
        [
            lambda path: {"KARGO_PY_CACHE": f"{path}/kargo-py"},
            lambda path: {"XDG_CACHE_HOME": str(path)},
            lambda path: {"XDG_CACHE_HOME": str(path), "KUBEBUILDER_ASSETS": f"{path}/nowhere"},
        ],
        ids=["own", "xdg", "assets are nowhere"],
    )
    def test_the_newest_build(self, tmp_path: Path, environment: Callable[[Path], dict[str, str]]) -> None:
        """Of several builds the last one, and none that is incomplete."""
        builds = tmp_path / "kargo-py/envtest"
        old, new, broken = lay(builds / "v2"), lay(builds / "v1"), lay(builds / "v3")
        (broken / "etcd").unlink()
        for age, build in enumerate((broken, new, old)):
            os.utime(build, (1_000_000 - age, 1_000_000 - age))

        assert find(environment(tmp_path)) == new

    def test_none(self, tmp_path: Path) -> None:
        """The error names the places and what to do."""
        with pytest.raises(BinariesMissing, match=r"no kube-apiserver and etcd in .*/envtest: set KUBEBUILDER_ASSETS"):
            find({"KARGO_PY_CACHE": str(tmp_path)})


def test_a_server_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is seen at once, and what it said is told."""
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(lay(tmp_path / "assets", "echo no such flag >&2; exit 1")))
    begun = time.monotonic()
    (tmp_path / "files").mkdir()
    with pytest.raises(ServerFailed, match="no such flag"), running(tmp_path / "files"):
        pass

    assert time.monotonic() - begun < 20


def test_nothing_outlives_the_tests(tmp_path: Path) -> None:
    """Also where pytest is killed, both programs end with it."""
    assets = lay(tmp_path / "assets", f"echo $$ >> {tmp_path}/pids; exec sleep 1000")
    (tmp_path / "files").mkdir()
    code = (
        "import sys, pathlib; from kargo_py.testing.real import running; running(pathlib.Path(sys.argv[1])).__enter__()"
    )
    tests = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "files")],
        cwd=REPOSITORY,
        env={**os.environ, "KUBEBUILDER_ASSETS": str(assets)},
    )
    try:
        pids = until(lambda: both(tmp_path / "pids"))
    finally:
        tests.send_signal(signal.SIGKILL)
        tests.wait()

    assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def both(file: Path) -> list[str]:
    """The process ids, once both are there."""
    found = file.read_text().split() if file.exists() else []
    return found if len(found) == 2 else []


def until(probe: Callable[[], Any]) -> Any:
    """Ask until the answer is true."""
    deadline = time.monotonic() + 60
    while not (found := probe()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found
