"""Finding and building the binaries, with a `go` that only writes files."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.envtest import binaries
from tests.envtest.binaries import BinariesMissing, BuildFailed

REPOSITORY = Path(__file__).resolve().parents[2]

# Writes what was asked for, and a line for each time it was called.
GO = """#!/bin/sh
echo "$@" >>"$GO_CALLS"
test -z "$GO_SLOW" || sleep 0.3
while [ "$1" != -o ]; do shift; done
for name in etcd kube-apiserver; do echo built >"$2/$name"; chmod +x "$2/$name"; done
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Give an environment with a `go` of ours and an empty cache."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(GO)
    go.chmod(0o755)
    calls, cache = tmp_path / "calls", tmp_path / "cache"
    return {"PATH": f"{go.parent}:{os.environ['PATH']}", "GO_CALLS": str(calls), "KARGO_PY_CACHE": str(cache)}


@pytest.fixture
def calls(environment: dict[str, str]) -> Callable[[], int]:
    """Tell how often `go` was called."""
    return lambda: len(Path(environment["GO_CALLS"]).read_text().splitlines())


def put_binaries(directory: Path) -> Path:
    """Put something executable in *directory*."""
    directory.mkdir(parents=True)
    for name in binaries.NAMES:
        (directory / name).write_text("")
        (directory / name).chmod(0o755)
    return directory


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({"KARGO_PY_CACHE": "/k", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/k", id="own variable"),
        pytest.param({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/kargo-py", id="XDG"),
        pytest.param({"HOME": "/h"}, "/h/.cache/kargo-py", id="home"),
        pytest.param({}, f"{Path('~').expanduser()}/.cache/kargo-py", id="no home: the user database's"),
    ],
)
def test_cache_directory(environment: dict[str, str], expected: str) -> None:
    """The cache is where the environment says, also when it says nothing."""
    assert Path(expected) == binaries.cache_directory(environment)


def test_build_once(environment: dict[str, str], calls: Callable[[], int]) -> None:
    """What is built is found, and not built again."""
    directory = binaries.build(environment)

    assert directory == binaries.build(environment)
    assert directory / "etcd" == binaries.find(environment).etcd
    assert calls() == 1


def test_directory_names_the_versions(environment: dict[str, str]) -> None:
    """The directory is named by what is in it."""
    versions = binaries.module_versions()

    name = binaries.built_directory(environment).name

    assert name.startswith(f"{versions['k8s.io/kubernetes']}-etcd-{versions['go.etcd.io/etcd/server/v3']}-")


def test_incomplete_build_is_repaired(environment: dict[str, str], calls: Callable[[], int]) -> None:
    """A directory that lacks a binary is built anew, and what a killed build left is removed."""
    directory = binaries.build(environment)
    (directory / "etcd").unlink()
    left = directory.with_name(f".{directory.name}.building-left")
    left.mkdir()

    binaries.build(environment)

    assert binaries.find(environment).etcd.exists()
    assert not left.exists()
    assert calls() == 2


def test_two_builds_at_once(environment: dict[str, str], calls: Callable[[], int]) -> None:
    """The second of two builds waits for the first, and takes what that made."""
    command = [sys.executable, "-m", "tests.envtest.binaries"]
    both = [
        subprocess.Popen(
            command, cwd=REPOSITORY, env={**environment, "GO_SLOW": "1"}, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]

    answers = {process.communicate(timeout=60)[0].strip() for process in both}

    assert answers == {str(binaries.built_directory(environment))}
    assert calls() == 1


def test_failed_build(environment: dict[str, str]) -> None:
    """A failed build says so and leaves nothing that would be taken for a build."""
    Path(environment["PATH"].partition(":")[0], "go").write_text("#!/bin/sh\nexit 3\n")

    with pytest.raises(BuildFailed, match="ended with 3"):
        binaries.build(environment)

    with pytest.raises(BinariesMissing):
        binaries.find(environment)


def test_assets_come_first(environment: dict[str, str], tmp_path: Path) -> None:
    """KUBEBUILDER_ASSETS is preferred to what was built."""
    binaries.build(environment)
    assets = put_binaries(tmp_path / "assets")

    found = binaries.find({**environment, "KUBEBUILDER_ASSETS": str(assets)})

    assert found == binaries.Binaries(assets / "kube-apiserver", assets / "etcd")


def test_incomplete_assets(environment: dict[str, str], tmp_path: Path) -> None:
    """Without both binaries anywhere, the error names where they were looked for and what to do."""
    assets = put_binaries(tmp_path / "assets")
    (assets / "etcd").unlink()

    with pytest.raises(BinariesMissing, match="run `make envtest`") as raised:
        binaries.find({**environment, "KUBEBUILDER_ASSETS": str(assets)})

    assert str(assets) in str(raised.value)
    assert str(binaries.built_directory(environment)) in str(raised.value)


def test_missing_binaries_fail_the_tests(tmp_path: Path) -> None:
    """A run of tests that need the binaries fails without them, and says what to do; it never skips."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "envtest", "-k", "test_version", "tests/envtest/test_harness.py"],
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"], "KARGO_PY_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == pytest.ExitCode.TESTS_FAILED
    assert "run `make envtest`" in ended.stdout
    assert "1 error" in ended.stdout.splitlines()[-1]
