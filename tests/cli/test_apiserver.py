"""`kargo-py apiserver`: what a user sees of it; as a process, and where it does not begin in this one."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kargo_py.cli.main import app

CRDS = Path(__file__).parents[2] / "crds"
COMMAND = [sys.executable, "-c", "from kargo_py.cli.main import main; main()", "apiserver"]
READY = re.compile(r"Kubernetes API ready at (https://127\.0\.0\.1:\d+); for kubectl: export KUBECONFIG=(.+)\n")


@dataclass
class Running:
    """The command, ready."""

    process: subprocess.Popen[str]
    url: str
    kubeconfig: Path

    def config(self) -> Any:
        return yaml.safe_load(self.kubeconfig.read_text())

    def open(self, path: str, body: object = None) -> HTTPResponse:
        """Ask with what the kubeconfig says; post *body* if there is one."""
        config = self.config()
        authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
        context = ssl.create_default_context(cadata=authority.decode())
        token = config["users"][0]["user"]["token"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, headers)
        answer = urllib.request.urlopen(request, timeout=30, context=context)
        assert isinstance(answer, HTTPResponse)
        return answer

    def get(self, path: str) -> Any:
        with self.open(path) as answer:
            return json.load(answer)

    def post(self, path: str, body: object) -> Any:
        with self.open(path, body) as answer:
            return json.load(answer)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """The exit code, and what it said on standard error."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=30)
        return self.process.returncode, said


@contextmanager
def running(*arguments: str) -> Iterator[Running]:
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = READY.fullmatch(line)
        assert found, (line, process.stderr and process.stderr.read())
        yield Running(process, found[1], Path(found[2]))
    finally:
        process.kill()
        process.communicate()


def failing(*arguments: str) -> tuple[int, str]:
    """Run the command to its end, in this process; the exit code, and the one line that it says."""
    done = CliRunner().invoke(app, ["apiserver", *arguments], catch_exceptions=False)
    return done.exit_code, only_line(done.stdout, done.stderr)


def only_line(stdout: str, stderr: str) -> str:
    """What it says, without its name."""
    assert stdout == ""
    said = stderr.splitlines()
    assert len(said) == 1, stderr
    assert said[0].startswith("kargo-py: ")
    return said[0].removeprefix("kargo-py: ")


def test_ready_and_end() -> None:
    """One line when it can be used; a signal ends it at once though a watch is open, and takes its files away."""
    for number in (signal.SIGTERM, signal.SIGINT):
        with running() as server:
            assert server.kubeconfig.stat().st_mode & 0o777 == 0o600
            names = [item["metadata"]["name"] for item in server.get("/api/v1/namespaces")["items"]]
            assert "default" in names
            with server.open("/api/v1/configmaps?watch=1") as watch:
                assert server.end(number) == (0, "")
                assert watch.read() == b""
            assert not server.kubeconfig.parent.exists()


def test_write_kubeconfig(tmp_path: Path) -> None:
    """The file is where it was asked for, stays, and the next start writes it again."""
    path = tmp_path / "new folder" / "config"
    tokens = set()
    for _ in range(2):
        with running("--write-kubeconfig", str(path)) as server:
            assert server.kubeconfig == Path(f"'{path}'")  # quoted for the shell
            tokens.add(yaml.safe_load(path.read_text())["users"][0]["user"]["token"])
            assert server.end() == (0, "")
    assert len(tokens) == 2


def test_crds(tmp_path: Path) -> None:
    """What is in files and folders is there when it is ready."""
    project = tmp_path / "project.yaml"
    project.write_text("apiVersion: kargo.akuity.io/v1alpha1\nkind: Project\nmetadata: {name: shop}\n")
    with running("--crds", str(project), "--crds", str(CRDS)) as server:
        assert server.get("/apis/kargo.akuity.io/v1alpha1/projects/shop")["metadata"]["generation"] == 1


def test_kubectl(tmp_path: Path) -> None:
    """The file that the line names is what kubectl needs."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    with running() as server:
        environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "HOME": str(tmp_path)}

        def run(*arguments: str) -> str:
            done = subprocess.run(
                [kubectl, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
            )
            assert (done.returncode, done.stderr) == (0, "")
            return done.stdout

        manifest = tmp_path / "a.yaml"
        manifest.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1'}\n")
        assert run("apply", "-f", str(manifest)) == "configmap/a created\n"
        assert run("get", "configmap", "a", "-o", "jsonpath={.data.x}") == "1"


def test_port_in_use() -> None:
    """The port that is taken is named."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert failing("--port", f"{port}") == (1, f"cannot listen on 127.0.0.1 port {port}: Address already in use")


def test_kubeconfig_of_somebody_else(tmp_path: Path) -> None:
    """It is left alone, and nothing was started."""
    path = tmp_path / "config"
    path.write_text("apiVersion: v1\n")
    code, said = failing("--write-kubeconfig", str(path))
    assert (code, path.read_text()) == (1, "apiVersion: v1\n")
    assert said.startswith(f"{path} is not a kubeconfig that kargo-py wrote")


def test_unwritable_kubeconfig(tmp_path: Path) -> None:
    """A path where no file can be."""
    (tmp_path / "file").write_text("")
    code, said = failing("--write-kubeconfig", str(tmp_path / "file" / "config"))
    assert code == 1
    assert said.startswith(f"cannot write the kubeconfig {tmp_path / 'file' / 'config'}: ")


def test_bad_manifest(tmp_path: Path) -> None:
    """A manifest that cannot be loaded is named."""
    path = tmp_path / "a.yaml"
    path.write_text("apiVersion: example.com/v1\nkind: Shop\nmetadata: {name: a}\n")
    assert failing("--crds", str(path)) == (1, f"{path}: the API server does not serve Shop (example.com/v1)")
    assert failing("--crds", str(tmp_path / "b"))[0] == 1


@pytest.mark.parametrize("package", ["uvicorn", "httptools", "cryptography", "cel"])
def test_missing_package(package: str) -> None:
    """Without the extra it says what to install."""
    code = f"import sys; sys.modules[{package!r}] = None\nfrom kargo_py.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "apiserver"], capture_output=True, text=True, timeout=60, check=False
    )
    said = only_line(done.stdout, done.stderr)
    assert done.returncode == 1
    assert f"needs the package {package}" in said
    assert "pip install 'kargo-py[local]'" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0 can be reached from other machines"),
        (["--host", "example.com"], "'example.com' is no IP address"),
        (["--log-level", "loud"], "--log-level 'loud'"),
    ],
)
def test_wrong_options(arguments: list[str], words: str) -> None:
    """An option that makes no sense is a usage error."""
    code, said = failing(*arguments)
    assert code == 2
    assert words in said


def test_wrong_port() -> None:
    """Typer's own check has the same exit code."""
    assert subprocess.run([*COMMAND, "--port", "65536"], capture_output=True, timeout=60, check=False).returncode == 2


def test_argocd() -> None:
    """With --argocd Applications are served, and acted upon."""
    path = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications"
    spec = {
        "project": "default",
        "source": {"repoURL": "https://git.example.com/shop", "path": ".", "targetRevision": "main"},
        "destination": {"server": "https://kubernetes.default.svc", "namespace": "shop"},
    }
    application = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "shop", "namespace": "argocd"},
        "spec": spec,
    }
    with running("--argocd") as server:
        server.post(path, application)
        with server.open(f"{path}?watch=true&resourceVersion=0&timeoutSeconds=30") as events:
            seen = (json.loads(line)["object"].get("status", {}).get("sync", {}).get("status") for line in events)
            assert next(filter(None, seen)) == "OutOfSync"
        assert server.end() == (0, "")


def test_what_it_takes_to_start() -> None:
    """Nothing slow is imported before it is needed: it starts in about half a second."""
    slow = ("aiohttp", "kubernetes_asyncio", "pydantic", "structlog", "yaml")
    code = f"import sys, kargo_py.cli.apiserver; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
