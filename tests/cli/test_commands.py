"""get, abort and why from the command line: options, what is printed where, and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from kargo_py.cli.main import app
from tests.envtest.server import ApiServer

JsonObject = dict[str, Any]
Command = Callable[..., Result]

pytestmark = pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["get", "pods"], "'pods' is no kind that this command knows"),
        (["get", "promotions", "-o", "csv"], "--output 'csv'"),
        (["get", "promotions", "-n", "A_B"], "--namespace 'A_B'"),
        (["get", "promotions", "--phase", "Done"], "--phase 'Done'"),
        (["abort", "promotion"], "which promotion? Give its name, as in: kargo-py abort promotion NAME"),
        (["abort", "stage", "dev"], "give one of promotion"),
        (["abort", "promotion", "x", "--timeout", "soon"], "--timeout 'soon'"),
        (["why", "stage"], "which stage?"),
        (["why", "stage", "dev", "-o", "yaml"], "--output 'yaml': must be text or json"),
    ],
)
def test_usage(arguments: list[str], words: str) -> None:
    """What makes no sense is one line and code 2, before anything is connected."""
    done = invoke(*arguments, "--kubeconfig", "/nowhere")
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [["get"], ["why"], ["abort"], ["get", "promotions", "--nope"]])
def test_usage_of_typer(arguments: list[str]) -> None:
    """Missing arguments and unknown options have the same code."""
    assert invoke(*arguments).exit_code == 2


@pytest.mark.parametrize(
    "arguments", [["get", "promotions"], ["get", "stages", "-w"], ["why", "stage", "dev"], ["abort", "promotion", "x"]]
)
def test_cannot(tmp_path: Path, arguments: list[str]) -> None:
    """A kubeconfig that is not there, a context that it has not, and a server that is not: one line and code 1."""
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    for options, words in (
        (["--kubeconfig", str(tmp_path / "absent")], "no such file"),
        (["--kubeconfig", str(path), "--context", "y"], 'no context "y"; it has x'),
        (["--kubeconfig", str(path)], "cannot reach the API server https://127.0.0.1:1"),
    ):
        done = invoke(*arguments, *options)
        said = [line for line in done.stderr.splitlines() if "kargo-py:" in line]
        assert done.exit_code == 1
        assert words in said[-1]
        assert done.stdout == ""


@pytest.fixture
def project(crds: ApiServer, namespace: str, tmp_path: Path) -> Command:
    """The command in a Project with a Promotion, which its kubeconfig's context names."""
    body = {
        "apiVersion": "kargo.akuity.io/v1alpha1",
        "kind": "Promotion",
        "metadata": {"name": "dev.1"},
        "spec": {"stage": "dev", "freight": "f1", "steps": [{"uses": "argocd-update"}]},
    }
    crds.request("POST", f"/apis/kargo.akuity.io/v1alpha1/namespaces/{namespace}/promotions", body)
    config = yaml.safe_load(crds.kubeconfig("admin").read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return lambda *arguments: invoke(*arguments, "--kubeconfig", str(path))


def test_the_namespace_of_the_context(project: Command, namespace: str) -> None:
    """Without -n the context's namespace counts; with it that one, and with -A all."""
    [head, row] = project("get", "promotions").stdout.splitlines()
    assert head.split()[0] == "NAME"
    assert row.split()[0] == "dev.1"
    other = project("get", "promotions", "-n", "default")
    assert (other.exit_code, other.stdout, other.stderr) == (0, "", 'no promotions found in "default"\n')
    assert f"{namespace}   dev.1" in project("get", "promotions", "-A").stdout
    assert json.loads(project("get", "promotion/dev.1", "-o", "json").stdout)["metadata"]["namespace"] == namespace


def test_why_and_abort(project: Command, namespace: str) -> None:
    """Answers are on standard output; what cannot be answered is on standard error, with code 1."""
    why = project("why", "promotion", "dev.1")
    assert (why.exit_code, why.stderr) == (0, "")
    assert f'Stage "dev" does not exist in namespace "{namespace}"' in why.stdout
    assert json.loads(project("why", "promotion", "dev.1", "-o", "JSON").stdout)["state"] == "Pending"
    absent = project("why", "stage", "dev")
    assert (absent.exit_code, absent.stdout) == (1, "")
    assert f'Stage "dev" does not exist in namespace "{namespace}"' in absent.stderr

    asked = project("abort", "promotion", "dev.1")
    assert (asked.exit_code, asked.stderr) == (0, "")
    assert 'Promotion "dev.1": its abort is asked for, by kube' in asked.stdout
    assert "already" in project("abort", "promotion", "dev.1").stdout
    late = project("abort", "promotion", "dev.1", "--force", "--wait", "--timeout", "10ms")
    assert late.exit_code == 1
    assert "does a controller run?" in late.stderr
