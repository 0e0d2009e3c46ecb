"""`kargo-py` as a process: what a user sees of it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from tests.envtest import crds as definitions
from tests.envtest.server import ApiServer, running as fresh_server

SERVER = "https://127.0.0.1:1"
CRDS = Path(__file__).parents[2] / "crds"
COMMAND = [sys.executable, "-c", "from kargo_py.cli.main import main; main()"]


def kargo_py(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    env = {k: v for k, v in os.environ.items() if k not in {"KUBECONFIG", "LOG_LEVEL", "LOG_FORMAT"}}
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False, env={**env, **environment}
    )


def kubeconfig(path: Path, server: str = SERVER) -> str:
    """A kubeconfig with a token."""
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


def assert_one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 1, one line that says why, no traceback."""
    said = [line for line in done.stderr.splitlines() if line.startswith("kargo-py: ")]
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert len(said) == 1, done.stderr
    for word in words:
        assert word in said[0]


def test_broken_kubeconfig(tmp_path: Path) -> None:
    """A kubeconfig that is not there, or is none, is named."""
    (tmp_path / "empty").write_text("")
    assert_one_line(kargo_py("run", "--kubeconfig", str(tmp_path / "absent")), str(tmp_path / "absent"), "no such file")
    assert_one_line(kargo_py("run", "--kubeconfig", str(tmp_path / "empty")), "is empty")
    assert_one_line(kargo_py("run", KUBECONFIG=str(tmp_path / "absent")), str(tmp_path / "absent"))


@pytest.mark.parametrize("options", [[], ["--instance-id", "me"]], ids=["at the first read", "at the first list"])
def test_unreachable_server(tmp_path: Path, options: list[str]) -> None:
    """A server that refuses the connection is named, whether or not the instance id has to be asked for."""
    path = kubeconfig(tmp_path / "config")
    assert_one_line(kargo_py("run", "--kubeconfig", path, *options), SERVER, "is it running")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--log-level", "loud"], "--log-level 'loud': must be one of debug, info, warning, error"),
        (["--log-format", "xml"], "--log-format 'xml': must be json, console or auto"),
        (["--instance-id", "a/b"], "instance id 'a/b'"),
    ],
)
def test_wrong_options(tmp_path: Path, options: list[str], words: str) -> None:
    """An option that makes no sense is refused before anything is started."""
    assert_one_line(kargo_py("run", "--kubeconfig", kubeconfig(tmp_path / "config"), *options), words)


def test_help_and_version() -> None:
    """The help names the subcommands, the version is one line."""
    assert "run" in kargo_py("--help").stdout
    assert re.fullmatch(r"kargo-py \d+\.\d+\.\d+\n", kargo_py("--version").stdout)


@asynccontextmanager
async def running(apiserver: ApiServer) -> AsyncIterator[asyncio.subprocess.Process]:
    """The controllers as a process that has said that they run."""
    kubeconfig_ = str(apiserver.kubeconfig("controller"))
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "run", "--kubeconfig", kubeconfig_, "--log-format=json", stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(30):
            async for line in process.stderr:
                if json.loads(line)["event"] == "controllers running":
                    break
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.envtest
@pytest.mark.nonblocking_exempt(reason="the harness writes kubeconfigs, and starting a process reads files")
@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_clean_stop(apiserver: ApiServer, number: signal.Signals) -> None:
    """A signal ends the program in order: exit code 0, no traceback, and a last line that says so."""
    async with running(apiserver) as process:
        process.send_signal(number)
        assert process.stderr is not None
        rest = await process.stderr.read()
        assert await process.wait() == 0

    events = [json.loads(line)["event"] for line in rest.splitlines()]
    assert [event for event in events if event.startswith("stop")] == ["stopping", "stopped"]


@pytest.mark.envtest
@pytest.mark.usefixtures("crds")
def test_forbidden(apiserver: ApiServer, tmp_path: Path) -> None:
    """A user who may not, a token that is not valid: the verb and the resource, or what is refused, are named."""
    nobody = apiserver.kubeconfig("nobody")
    assert_one_line(kargo_py("run", "--kubeconfig", str(nobody)), "namespaces", "nobody", "--instance-id")
    assert_one_line(kargo_py("run", "--kubeconfig", str(nobody), "--instance-id=x"), "allow get, list, watch")
    stale = tmp_path / "stale"
    stale.write_text(nobody.read_text().replace(apiserver.token("nobody"), "expired"))
    assert_one_line(kargo_py("run", "--kubeconfig", str(stale)), "does not accept", "log in again", str(stale))


@pytest.mark.envtest
def test_missing_crds(tmp_path: Path) -> None:
    """A kind that the server does not serve is named, with what to install."""
    with fresh_server(tmp_path / "server") as server:
        kubeconfig_ = str(server.kubeconfig("controller"))
        without_any = kargo_py("run", "--kubeconfig", kubeconfig_)
        definitions.install(server, definitions.read(CRDS))
        without_argocd = kargo_py("run", "--kubeconfig", kubeconfig_)

    assert_one_line(without_any, "does not serve", "stages.kargo.akuity.io", "kubectl apply -f crds/")
    assert_one_line(without_argocd, "does not serve", "applications.argoproj.io", "install Argo CD")
