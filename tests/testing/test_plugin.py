"""The pytest plugin as a user has it: in a project of theirs, with nothing of our tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples/test-your-pipeline"
GUIDE = REPOSITORY / "docs/how-to/test-your-pipeline.md"

PLUGINS = ("pytest_asyncio.plugin", "kargo_py.testing.plugin")

PROMOTES = """
async def test_promotes(kube_api, argocd, controller):
    await kube_api.apply(Path(__file__).with_name("pipeline.yaml"))
    promotion = await kube_api.promote("prod", "shop-1.1")
    assert await promotion.ended() == "Succeeded"
"""

OTHER_KINDS = """
import pytest
from kargo_py.kube.resources import Resource

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
NAMES = {"kind": "Gate", "plural": "gates", "singular": "gate", "listKind": "GateList"}
SCHEMA = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
GATES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gates.example.com"},
    "spec": {
        "group": "example.com",
        "names": NAMES,
        "scope": "Cluster",
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": SCHEMA}],
    },
}

@pytest.mark.parametrize("deletes", [False, True])
async def test_makes(kube_api, deletes):
    with pytest.raises(LookupError, match="'Gate' is not known"):
        await kube_api.get("Gate", "g")
    await kube_api.apply(GATES, {"apiVersion": "example.com/v1", "kind": "Gate", "metadata": {"name": "g"}, "open": 1})
    await kube_api.until("Gate", "g", lambda gate: gate["open"])
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}}
    await kube_api.apply(settings)
    lease = b'{"metadata": {"name": "l"}}'
    from kargo_py.kube.codec import JSON
    await kube_api.client.create(LEASES, "default", lease, codec=JSON)
    await kube_api.until(LEASES, "l", lambda lease: lease["metadata"], namespace="default", within=5)
    await kube_api.patch(LEASES, "l", {"spec": {"holderIdentity": "me"}}, namespace="default")
    if deletes:
        await kube_api.delete("CustomResourceDefinition", "gates.example.com")

async def test_is_gone(kube_api):
    names = [each["metadata"]["name"] for each in await kube_api.list("CustomResourceDefinition")]
    assert "gates.example.com" not in names
    assert "c" not in [each["metadata"]["name"] for each in await kube_api.list("ConfigMap", namespace="default")]
    assert not await kube_api.list(LEASES, namespace="default")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's folder, with the pipeline of the example."""
    shutil.copy(EXAMPLE / "pipeline.yaml", tmp_path)
    return tmp_path


def run(
    directory: Path,
    *arguments: str,
    program: tuple[str, ...] = ("-m", "pytest"),
    plugins: Sequence[str] = PLUGINS,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run pytest in *directory* as a user would, with the plugins that a user of ours has."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    named = [word for plugin in plugins for word in ("-p", plugin)]
    return subprocess.run(
        [sys.executable, *program, *named, "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        env={**variables, "PYTHONPATH": str(REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def outcome(done: subprocess.CompletedProcess[str]) -> str:
    """The last line, without its time."""
    return done.stdout.strip().splitlines()[-1].rpartition(" in ")[0].strip("= ") if done.stdout else done.stderr


def test_the_example() -> None:
    """The example passes as it is."""
    done = run(EXAMPLE, "-q")

    assert (done.returncode, outcome(done)) == (0, "3 passed"), done.stdout


def test_the_guide_shows_the_example() -> None:
    """What the guide shows is the file that is tested."""
    assert f"```python\n{(EXAMPLE / 'test_pipeline.py').read_text()}```" in GUIDE.read_text()


@pytest.mark.envtest
def test_the_example_on_a_real_server() -> None:
    """It passes there, too, without the test that moves time."""
    done = run(EXAMPLE, "-q", "--kube-api=real")

    assert (done.returncode, outcome(done)) == (0, "2 passed, 1 skipped"), done.stdout


@pytest.mark.parametrize("server", ["embedded", pytest.param("real", marks=pytest.mark.envtest)])
def test_other_kinds(project: Path, server: str) -> None:
    """Those that a test defines, or names by their resource, are seen as well, and are gone in the next test."""
    (project / "test_it.py").write_text(OTHER_KINDS)
    settings = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")
    done = run(project, "-q", *settings, f"--kube-api={server}")

    assert (done.returncode, outcome(done)) == (0, "3 passed"), done.stdout


@pytest.mark.parametrize(
    ("mode", "mark", "scope"),
    [("auto", "", "function"), ("strict", "@pytest.mark.asyncio", "session")],
    ids=["auto", "strict, fixtures of other scopes"],
)
def test_modes_of_pytest_asyncio(project: Path, mode: str, mark: str, scope: str) -> None:
    """The fixtures work in both, whatever the project does with fixtures of its own."""
    (project / "test_it.py").write_text(f"import pytest\nfrom pathlib import Path\n\n{mark}{PROMOTES}")
    done = run(project, "-q", "-o", f"asyncio_mode={mode}", "-o", f"asyncio_default_fixture_loop_scope={scope}")

    assert (done.returncode, outcome(done)) == (0, "1 passed"), done.stdout


def test_what_is_waited_for_in_vain(project: Path) -> None:
    """The failure says what there was instead, and shows no code of ours."""
    (project / "test_it.py").write_text(
        "from pathlib import Path\n\n"
        "async def test_it(kube_api):\n"
        '    await kube_api.apply(Path("pipeline.yaml"))\n'
        '    await kube_api.until("Stage", "prod", lambda stage: stage["status"]["health"], within=0.01)\n'
    )
    done = run(project, "-q", "-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")

    assert outcome(done) == "1 failed"
    told = "NotReached: Stage shop/prod: not reached within 0.01 s; as it is now:"
    assert f"kargo_py.testing.kube_api.{told}\nE       status: null" in done.stdout, done.stdout
    assert "history.until" not in done.stdout


def test_what_was_said_of_a_sync_that_never_came(project: Path) -> None:
    """A misspelt Application would let a test pass that tests nothing. A sync that hangs has come."""
    (project / "test_it.py").write_text(
        f"from pathlib import Path\n{PROMOTES}\n"
        "async def test_misspelt(kube_api, argocd, controller):\n"
        '    argocd.application("shop-prd").next_sync(fail="no", times=2)\n'
        "    await test_promotes(kube_api, argocd, controller)\n\n"
        "async def test_used(kube_api, argocd, controller):\n"
        '    await kube_api.apply(Path(__file__).with_name("pipeline.yaml"))\n'
        '    argocd.application("shop-prod").next_sync(hang=True)\n'
        '    promotion = await kube_api.promote("prod", "shop-1.1")\n'
        '    await promotion.until(lambda it: "waiting for completion of hook" in it.message)\n'
    )
    done = run(project, "-q", "-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")

    assert outcome(done) == "3 passed, 1 error", done.stdout
    told = "Application argocd/shop-prd: no operation came for next_sync(fail='no', times=2)\ncorrect the name"
    assert told in done.stdout, done.stdout
    assert "ERROR test_it.py::test_misspelt" in done.stdout


def test_without_pytest_asyncio(project: Path) -> None:
    """A test that uses a fixture says what to install; others do not notice."""
    (project / "test_it.py").write_text("def test_a():\n    pass\n\ndef test_b(kube_api):\n    pass\n")
    code = "import sys; sys.modules['pytest_asyncio'] = None\nimport pytest; sys.exit(pytest.main(sys.argv[1:]))"
    done = run(project, "-q", program=("-c", code), plugins=PLUGINS[1:])

    assert outcome(done) == "1 passed, 1 error"
    assert "pip install pytest-asyncio" in done.stdout


def test_without_the_extra(project: Path) -> None:
    """Where kargo-py was installed without [local], that is said."""
    (project / "test_it.py").write_text("async def test_a(kube_api):\n    pass\n")
    code = "import sys; sys.modules['cel'] = None\nimport pytest; sys.exit(pytest.main(sys.argv[1:]))"
    done = run(project, "-q", "-o", "asyncio_mode=auto", program=("-c", code))

    assert "kube_api needs cel: pip install 'kargo-py[local]'" in done.stdout


def test_without_binaries(project: Path) -> None:
    """A real API server that is not there is no reason to skip: it was asked for. The failure says how to get it."""
    (project / "test_it.py").write_text("async def test_a(kube_api):\n    pass\n")
    nowhere = str(project / "nowhere")
    done = run(
        project, "-q", "-o", "asyncio_mode=auto", "--kube-api=real", KUBEBUILDER_ASSETS=nowhere, KARGO_PY_CACHE=nowhere
    )

    assert outcome(done) == "1 error"
    assert f"no kube-apiserver and etcd in {nowhere}: set KUBEBUILDER_ASSETS" in done.stdout


def test_a_real_server_that_does_not_start(project: Path) -> None:
    """What it said is told, and no code of ours is shown."""
    (project / "test_it.py").write_text("async def test_a(kube_api):\n    pass\n")
    for name in ("etcd", "kube-apiserver"):
        (project / name).write_text("#!/bin/sh\necho no such flag >&2\nexit 1\n")
        (project / name).chmod(0o755)
    done = run(project, "-q", "-o", "asyncio_mode=auto", "--kube-api=real", KUBEBUILDER_ASSETS=str(project))

    assert outcome(done) == "1 error"
    assert "the real API server is not ready:\nno such flag" in done.stdout
    assert "def running" not in done.stdout


def test_help(project: Path) -> None:
    """The help of pytest tells about the option, the mark and the fixtures."""
    shown = "".join(run(project, option).stdout for option in ("--help", "--markers", "--fixtures"))

    assert "--kube-api={embedded,real}" in shown
    assert "@pytest.mark.simulated_time: let time pass only while" in shown
    for words in ("A Kubernetes API with Kargo's", "A simulated Argo CD at work", "Our controllers, running."):
        assert words in shown


def test_importing_costs_nothing() -> None:
    """Who does not use the fixtures has one small module more; measured: below a millisecond."""
    code = (
        "import sys, pytest, pytest_asyncio; before = set(sys.modules); import kargo_py.testing.plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.split() == ["kargo_py", "kargo_py.testing", "kargo_py.testing.plugin"]


def test_it_is_an_entry_point() -> None:
    """It is found where kargo-py is installed, under the name that -p takes, so that it is one plugin."""
    project = (REPOSITORY / "pyproject.toml").read_text()

    assert '[project.entry-points.pytest11]\n"kargo_py.testing.plugin" = "kargo_py.testing.plugin"\n' in project
