"""`kargo-py run`: what a user sees of it; as a process, and where only its checks matter in this one."""

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
from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from kargo_py.cli.main import app
from kargo_py.controllers.running import Options
from kargo_py.engine.execution import Patience
from kargo_py.steps.step import Work
from tests.envtest import crds as definitions
from tests.envtest.server import ApiServer, running as fresh_server

SERVER = "https://127.0.0.1:1"
CRDS = Path(__file__).parents[2] / "crds"
VARIABLES = {
    "API_SERVER_BASE_URL",
    "ARGOCD_KUBECONFIG",
    "ARGOCD_NAMESPACE",
    "ARGOCD_WATCH_ARGOCD_NAMESPACE_ONLY",
    "HEALTH_BIND_ADDRESS",
    "IS_DEFAULT_CONTROLLER",
    "KARGO_PY_ABORT_TIMEOUT",
    "KARGO_PY_CREATED_EVENTS",
    "KARGO_PY_HTTP_DENY",
    "KARGO_PY_INSTANCE_ID",
    "KARGO_PY_LONGEST_CALL",
    "KARGO_PY_OPERATION_EVENTS",
    "KARGO_PY_STEP_LIMITS",
    "KARGO_PY_WORK_DIR",
    "KUBECONFIG",
    "LOG_FORMAT",
    "LOG_LEVEL",
    "METRICS_BIND_ADDRESS",
    "SHARD_NAME",
    "SHARED_RESOURCES_NAMESPACE",
}
COMMAND = [sys.executable, "-c", "from kargo_py.cli.main import main; main()"]


NONBLOCKING = pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop")


def in_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """As :func:`kargo_py`, without a process: its start takes a second."""
    variables: dict[str, str | None] = dict.fromkeys(VARIABLES)
    done = CliRunner().invoke(app, arguments, catch_exceptions=False, env={**variables, **environment})
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def kargo_py(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, as a process; of the variables it reads, it gets those given here only."""
    env = {name: value for name, value in os.environ.items() if name not in VARIABLES}
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


def assert_one_line(done: subprocess.CompletedProcess[str], *words: str, code: int = 1) -> None:
    """The exit code, one line that says why, no traceback."""
    said = [line for line in done.stderr.splitlines() if line.startswith("kargo-py: ")]
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert len(said) == 1, done.stderr
    for word in words:
        assert word in said[0]


@NONBLOCKING
def test_broken_kubeconfig(tmp_path: Path) -> None:
    """A kubeconfig that is not there, or is none, is named."""
    (tmp_path / "empty").write_text("")
    assert_one_line(kargo_py("run", "--kubeconfig", str(tmp_path / "absent")), str(tmp_path / "absent"), "no such file")
    assert_one_line(in_process("run", "--kubeconfig", str(tmp_path / "empty")), "is empty")
    assert_one_line(in_process("run", KUBECONFIG=str(tmp_path / "absent")), str(tmp_path / "absent"))


@pytest.mark.parametrize("options", [[], ["--instance-id", "me"]], ids=["at the first read", "at the first list"])
def test_unreachable_server(tmp_path: Path, options: list[str]) -> None:
    """A server that refuses the connection is named, whether or not the instance id has to be asked for."""
    path = kubeconfig(tmp_path / "config")
    assert_one_line(kargo_py("run", "--kubeconfig", path, *options), SERVER, "is it running")


@NONBLOCKING
def test_absent_argocd_kubeconfig(tmp_path: Path) -> None:
    """The file for Argo CD's cluster that is not there: what is told is its own option and variable."""
    good, absent = kubeconfig(tmp_path / "config"), str(tmp_path / "absent")
    for done in (
        in_process("run", "--kubeconfig", good, "--argocd-kubeconfig", absent),
        in_process("run", "--kubeconfig", good, ARGOCD_KUBECONFIG=absent),
    ):
        assert_one_line(done, absent, "no such file", "--argocd-kubeconfig or $ARGOCD_KUBECONFIG")
        assert " --kubeconfig" not in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--log-level", "LOUD"], "--log-level 'LOUD': must be one of debug, info, warning, error"),
        (["--log-format", "xml"], "--log-format 'xml': must be json, console or auto"),
        (["--instance-id", "a/b"], "instance id 'a/b'"),
        (["--metrics-bind-address", "9090"], "--metrics-bind-address '9090': must be HOST:PORT or :PORT"),
        (["--metrics-bind-address", ":65536"], "--metrics-bind-address ':65536'"),
        (["--metrics-bind-address", ""], "--metrics-bind-address ''"),
        (["--health-bind-address", "all"], "--health-bind-address 'all': must be HOST:PORT or :PORT"),
        (["--abort-timeout", "soon"], "--abort-timeout 'soon': must be a duration like 10m"),
        (["--abort-timeout", "-1s"], "--abort-timeout '-1s'"),
        (["--http-deny", "10.0.0.1/8"], "--http-deny '10.0.0.1/8': must be addresses or networks"),
        (["--http-deny", "localhost"], "--http-deny 'localhost': must be addresses or networks"),
        (["--argocd-namespace", "Bad_NS!"], "--argocd-namespace 'Bad_NS!': must be 1 to 63 lowercase letters"),
        (["--argocd-namespace", ""], "--argocd-namespace ''"),
        (["--argocd-namespace", "a" * 64], "--argocd-namespace"),
        (["--shard", "x y"], "--shard 'x y': must be 1 to 63 letters"),
        (["--shard", "x" * 64], "--shard"),
        (["--no-default-controller"], "--no-default-controller without --shard would act on no Stage"),
    ],
)
def test_wrong_options(tmp_path: Path, options: list[str], words: str) -> None:
    """An option that makes no sense is a usage error, before anything is connected."""
    done = in_process("run", "--kubeconfig", kubeconfig(tmp_path / "config"), *options)
    assert_one_line(done, words, code=2)
    assert len(done.stderr.splitlines()) == 1


def test_steps_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What blocks the event loop is interrupted in this program, and what is asked for is what it runs with."""
    given: list[Options] = []
    monkeypatch.setattr("kargo_py.cli.serve.serve", given.append)
    options = ["--longest-call", "2h", "--step-limit", "network=3", "--http-deny", "10.0.0.0/8"]
    options += ["--shared-resources-namespace", "shared", "--ui-base-url", "https://kargo.example.com"]
    done = in_process("run", *options)

    assert done.returncode == 0
    (asked,) = given
    assert asked.interrupts
    assert asked.patience == Patience(longest=7200, blocked=30)
    assert dict(asked.step_limits) == {Work.NETWORK: 3}
    assert list(asked.http_denied) == [ip_network("10.0.0.0/8")]
    assert asked.shared_resources_namespace == "shared"
    assert asked.ui_base_url == "https://kargo.example.com"


def test_wrong_variable(tmp_path: Path) -> None:
    """A variable is checked as its option is."""
    done = in_process("run", "--kubeconfig", kubeconfig(tmp_path / "config"), IS_DEFAULT_CONTROLLER="false")
    assert_one_line(done, "give --shard", code=2)


@NONBLOCKING
@pytest.mark.parametrize(
    "options",
    [
        ["--log-level", "WARNING", "--log-format", "Console"],
        ["--instance-id", "me-1", "--metrics-bind-address", "127.0.0.1:0", "--health-bind-address", ":0"],
        ["--created-events", "--operation-events"],
        ["--shared-resources-namespace", "shared", "--ui-base-url", "https://kargo.example.com"],
        ["--http-deny", "127.0.0.0/8, ::1,fd00::/8"],
        ["--shard", "Eu_1.a", "--no-default-controller", "--argocd-namespace", "argo-cd"],
    ],
)
def test_good_options(tmp_path: Path, options: list[str]) -> None:
    """What is right gets as far as the API server."""
    assert_one_line(in_process("run", "--kubeconfig", kubeconfig(tmp_path / "config"), *options), SERVER)


def test_unknown_option() -> None:
    """An option that does not exist has the same exit code as one with a wrong value."""
    assert kargo_py("run", "--nope").returncode == 2


def test_help_names_variables() -> None:
    """The help of run names the variable of each option, and what to put in its place."""
    shown = in_process("run", "--help").stdout
    assert set(re.findall(r"env\s+var:\s+([A-Z_]+)", shown)) == VARIABLES
    assert not re.search(r"<\w+>|TEXT", shown)


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
