"""`python -m tests.envtest.serve`: an API server for people, as a process."""

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml

from tests.envtest import server as envtest_server
from tests.envtest.access import JsonObject
from tests.envtest.serve import main

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "tests.envtest.serve"]
READY = re.compile(r"kubeconfig (\S+); in every other terminal: export KUBECONFIG=(\S+)\n")


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Start it; give the process and the kubeconfig that it told."""
    with subprocess.Popen(
        [*COMMAND, *arguments], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            line = process.stdout.readline()
            found = READY.fullmatch(line)
            assert found, line or process.communicate()[1]
            assert found[1] == found[2]
            yield process, Path(found[1])
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.envtest
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serves_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    """At the port asked for: our kinds, Argo CD's, the namespace argocd. A signal ends all of it, without a word."""
    port = envtest_server._free_ports().apiserver
    with serving("--port", str(port), "--directory", str(tmp_path / "made")) as (process, kubeconfig):
        assert kubeconfig.parent == tmp_path / "made"
        assert yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"].endswith(f":{port}")
        children = psutil.Process(process.pid).children()
        assert {child.name() for child in children} == {"etcd", "kube-apiserver"}
        assert get(kubeconfig, "/api/v1/namespaces/argocd")["metadata"]["name"] == "argocd"
        for kind in ("kargo.akuity.io/v1alpha1/promotions", "argoproj.io/v1alpha1/applications"):
            assert get(kubeconfig, f"/apis/{kind}")["items"] == []

        process.send_signal(number)

        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 0
        assert not any(child.is_running() for child in children)


@pytest.mark.envtest
def test_temporary_directory() -> None:
    """Without a directory it makes one, and removes it at the end."""
    with serving() as (process, kubeconfig):
        assert kubeconfig.exists()
        process.terminate()
        process.wait(timeout=30)
    assert not kubeconfig.parent.exists()


@pytest.mark.envtest
def test_part_that_ends(tmp_path: Path) -> None:
    """When a part of the server ends by itself, it says so and ends with 1; two cannot share a directory."""
    with serving("--directory", str(tmp_path)) as (process, _):
        second = subprocess.run(
            [*COMMAND, "--directory", str(tmp_path)], cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        assert (second.returncode, second.stdout) == (2, "")
        assert f"another server keeps its files in {tmp_path}" in second.stderr

        next(child for child in psutil.Process(process.pid).children() if child.name() == "kube-apiserver").kill()

        said = process.communicate(timeout=30)[1]
        assert process.returncode == 1
        assert said == f"serve: apiserver ended by itself; its log is in {tmp_path}\n"


@pytest.mark.envtest
def test_taken_port() -> None:
    """A port that somebody else has is named."""
    port = envtest_server._free_ports().apiserver
    with envtest_server._socket_on(port):
        done = subprocess.run(
            [*COMMAND, "--port", str(port)], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"serve: port {port} of 127.0.0.1: ")


def test_missing_binaries(tmp_path: Path) -> None:
    """Without kube-apiserver and etcd it says how to get them."""
    environment = {k: v for k, v in os.environ.items() if k != "KUBEBUILDER_ASSETS"} | {"KARGO_PY_CACHE": str(tmp_path)}
    done = subprocess.run(
        COMMAND, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "run `make envtest` to build them" in done.stderr


@pytest.mark.parametrize("port", ["x", "-1", "65536"])
def test_wrong_port(capsys: pytest.CaptureFixture[str], port: str) -> None:
    """What is no port is a usage error."""
    with pytest.raises(SystemExit) as ended:
        main([f"--port={port}"])
    assert ended.value.code == 2
    assert "is no port" in capsys.readouterr().err


def get(kubeconfig: Path, path: str) -> JsonObject:
    """What the server answers to the user of *kubeconfig*."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, token = config["clusters"][0]["cluster"], config["users"][0]["user"]["token"]
    request = urllib.request.Request(f"{cluster['server']}{path}", headers={"Authorization": f"Bearer {token}"})
    trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
    with urllib.request.urlopen(request, context=trust, timeout=30) as answer:
        found: JsonObject = json.load(answer)
    return found
