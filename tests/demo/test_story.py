"""The whole demo: told on the embedded server, with kubectl on a real one, and as a user starts and ends it."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kargo_py.controllers.running import Options
from kargo_py.demo.acts import Annotate, Create, Look, Ref
from kargo_py.demo.picture import Picture
from kargo_py.demo.program import LOOK_AROUND
from kargo_py.demo.running import cast, told
from kargo_py.demo.telling import ClientHands, Hands, NotAsTold
from kargo_py.kube.client import Client, JsonObject
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON
from kargo_py.local.apiserver import kubeconfig
from kargo_py.local.apiserver.serve import serving
from kargo_py.local.apiserver.server import ApiServer
from kargo_py.local.apiserver.store import Event
from kargo_py.local.argocd.timing import Timing
from kargo_py.testing import definitions
from tests.envtest.server import running

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "kargo_py", "demo"]
AS_TOLD = r"^All went as told, in \d+\.\d s\.$"


class Quiet:
    """A screen that keeps the last picture."""

    def __init__(self) -> None:
        self.picture = Picture()
        self.commands: list[str] = []

    def scene(self, number: int, scene: Any) -> None:
        pass

    def command(self, command: str) -> None:
        self.commands.append(command)

    def answer(self, text: str) -> None:
        pass

    aside = answer

    def show(self, picture: Picture) -> None:
        self.picture = picture


class KubectlHands:
    """Runs the very commands that are shown."""

    def __init__(self, path: str, directory: Path) -> None:
        self._path = path
        self._directory = directory

    async def create(self, act: Create) -> str:
        return await self._run(act.command)

    async def annotate(self, act: Annotate) -> str:
        return await self._run(act.command)

    async def get(self, ref: Ref) -> JsonObject:
        words = Look(ref, (), []).command[:-2]
        return JSON.object((await self._run([*words, "-o", "json"])).encode())

    async def _run(self, command: list[str]) -> str:
        done = await asyncio.to_thread(
            subprocess.run,
            [self._path, *command[1:]],
            cwd=self._directory,
            env={**os.environ, "KUBECONFIG": str(self._directory / "kubeconfig")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise NotAsTold(f"{command}: {done.stderr}")
        return done.stdout


FAST = Timing.fast()
NONBLOCKING = pytest.mark.nonblocking_exempt(reason="reads kubeconfigs and CRDs' sources; starts servers and kubectl")


def as_told(picture: Picture) -> None:
    """How it all ends."""
    assert [(row.name, row.freight, row.health, row.verified) for row in picture.stages] == [
        ("dev", "shop-1.1", "Healthy", "verified shop-1.1"),
        ("staging", "shop-1.1", "Healthy", "verified shop-1.1"),
        ("prod", "shop-1.1", "Healthy", "verified shop-1.1"),
    ]
    assert [(row.name, row.phase) for row in picture.promotions] == [
        ("dev.1", "Failed"),
        ("dev.2", "Succeeded"),
        ("staging.1", "Succeeded"),
        ("prod.1", "Aborted"),
        ("prod.2", "Succeeded"),
    ]


@NONBLOCKING
async def test_the_story_on_the_embedded_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All goes as told, through HTTP and TLS.

    Also with the kinds as Kargo defines them and with kubectl typing what is shown, and that creates the same.
    """
    ours = await created(tmp_path, ClientHands)
    monkeypatch.setattr(definitions, "definitions", partial(definitions.definitions, strict=True))
    kubectl = shutil.which("kubectl")
    theirs = await created(tmp_path, lambda user: KubectlHands(kubectl, tmp_path) if kubectl else ClientHands(user))

    assert len(ours) == 15
    assert ours == theirs


@NONBLOCKING
async def test_what_fails_at_the_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Controllers that fall over while they are stopped fall over in public."""

    async def run(_options: Options, *, ready: asyncio.Event) -> None:
        ready.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("fell over")

    monkeypatch.setattr("kargo_py.demo.running.run_controllers", run)
    async with ApiServer(now=utc_now) as core, serving(core) as address:
        kubeconfig.write(tmp_path / "kubeconfig", address.kubeconfig())
        with pytest.raises(RuntimeError, match="fell over"):
            async with cast(tmp_path / "kubeconfig", FAST):
                pass


async def created(directory: Path, hands: Callable[[Client], Hands]) -> dict[str, JsonObject]:
    """What the user of the story creates, as it was at first, without what differs each time."""
    found: dict[str, JsonObject] = {}
    kinds = ("projects ", "namespaces shop", "freights ", "applications ", "stages ", "promotions ")

    def observe(event: Event) -> None:
        name = f"{event.collection.plural} {event.stored.key}"
        if name.startswith(kinds) and name not in found:
            found[name] = essence(event.stored.obj)

    screen = Quiet()
    async with ApiServer(now=utc_now) as core, serving(core) as address:
        kubeconfig.write(directory / "kubeconfig", address.kubeconfig())
        core.store.observers.append(observe)
        async with cast(directory / "kubeconfig", FAST) as company, told(company, directory, screen, hands):
            as_told(screen.picture)
    return found


def essence(obj: JsonObject) -> JsonObject:
    """What a user has given of an object."""
    changing = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
    given = {name: value for name, value in obj.items() if name != "status"}
    return {**given, "metadata": {name: value for name, value in obj["metadata"].items() if name not in changing}}


@NONBLOCKING
@pytest.mark.envtest
async def test_the_story_on_a_real_server(tmp_path: Path) -> None:
    """With kubectl on kube-apiserver it is the same story."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.fail("this test acts as a user with kubectl, which is not in PATH", pytrace=False)
    screen = Quiet()
    with running(tmp_path / "server") as server:
        shutil.copy(server.kubeconfig("admin"), tmp_path / "kubeconfig")
        hands = KubectlHands(kubectl, tmp_path)
        async with cast(tmp_path / "kubeconfig", FAST) as company, told(company, tmp_path, screen, lambda _: hands):
            as_told(screen.picture)


# -- as a program ------------------------------------------------------------------------------------------------------


@contextmanager
def started(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """The demo, as a process."""
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(options.pop("tmp"))}
    variables |= options.pop("env", {})
    process = subprocess.Popen(
        [*COMMAND, *arguments], env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lines_until(process: subprocess.Popen[str], words: str) -> list[str]:
    """Read on until a line with these words, which is the last of those returned."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if words in line:
            return seen
    pytest.fail(f"no {words!r} in:\n{''.join(seen)}")


@pytest.mark.parametrize(
    ("number", "words", "code"),
    [
        (signal.SIGINT, "A Kubernetes API server at", 130),
        (signal.SIGTERM, "application shop-dev: OutOfSync, Missing, Running", 143),
    ],
    ids=["early", "during a sync"],
)
def test_interrupted(tmp_path: Path, number: signal.Signals, words: str, code: int) -> None:
    """Ctrl-C ends it at once and in order, with the shell's code and without a traceback."""
    with started(tmp=tmp_path) as process:
        lines_until(process, words)
        process.send_signal(number)
        begun = time.monotonic()
        _, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (code, "")
    assert time.monotonic() - begun < 15
    assert list(tmp_path.iterdir()) == []


def test_the_program(tmp_path: Path) -> None:
    """It tells the story in plain text, also in ASCII, and leaves nothing behind.

    With --keep everything goes on running: kubectl can look around, the controllers act; Ctrl-C is a good end.
    """
    kubectl = shutil.which("kubectl")
    with started("--keep", tmp=tmp_path, env={"PYTHONIOENCODING": "ascii"}) as process:
        story = lines_until(process, "goes on running until Ctrl-C")
        [export] = [line for line in story if line.startswith("$ export KUBECONFIG=")]
        variables = {**os.environ, "KUBECONFIG": shlex.split(export)[-1].partition("=")[2]}
        shown = {
            command: subprocess.run(
                [kubectl, *command[1:]], env=variables, capture_output=True, text=True, timeout=60, check=True
            ).stdout
            for command in LOOK_AROUND
            if kubectl
        }
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (0, "")
    out = "".join([*story, rest])
    assert out.isascii()
    assert "\x1b" not in out
    assert "$ kubectl annotate promotion/prod.1 -n shop kargo.akuity.io/abort=terminate\n" in out
    assert re.search(r'^step "sync": .*Deployment.apps "shop" is invalid: .*2Gi', out, re.MULTILINE)
    assert re.search(AS_TOLD, out, re.MULTILINE)
    if kubectl:
        every = "\n".join(shown.values())
        for words in ("prod.1", "Aborted", "Healthy", "Synced", "PromotionFailed", "Freight has been verified"):
            assert words in every
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """It cannot begin, and says why."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with started("--port", str(port), tmp=tmp_path) as process:
            _, err = process.communicate(timeout=60)

    assert process.returncode == 1
    assert err.startswith(f"kargo-py: cannot listen on 127.0.0.1 port {port}: Address already in use")
    assert len(err.splitlines()) == 1


def short_story(tmp_path: Path, expected: str) -> subprocess.CompletedProcess[str]:
    """The demo, as a process, with one look at a Namespace for a story."""
    code = f"""
from kargo_py.cli.main import app
from kargo_py.controllers.world import NAMESPACES
from kargo_py.demo import running
from kargo_py.demo.acts import Look, Ref, Scene
from kargo_py.kube.resources import Key

look = Look(Ref(NAMESPACES, Key("", "argocd")), ("status", "phase"), [{expected!r}])
running.scenes = lambda: [Scene("T", "t", [look])]
app(["demo"])
"""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_end(tmp_path: Path) -> None:
    """Without --keep the program ends with the story, with code 0, and leaves nothing behind."""
    done = short_story(tmp_path, "Active")

    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(AS_TOLD, done.stdout, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_not_as_told(tmp_path: Path) -> None:
    """It ends with code 1; the last line says what was expected and what was seen, after the end of the log."""
    done = short_story(tmp_path, "Gone")
    *log, why = done.stderr.splitlines()

    assert done.returncode == 1
    assert why == (
        "kargo-py: kubectl get namespace/argocd -o jsonpath='{.status.phase}': expected “Gone”; seen: Active"
    )
    assert any("controllers running" in line for line in log)
    assert all(line.startswith("{") for line in log)
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra() -> None:
    """Where kargo-py was installed without [local], that is said in one line."""
    code = "import sys; sys.modules['rich'] = None; from kargo_py.cli.main import app; app(['demo'])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("kargo-py: this command needs the package rich")


def test_on_a_terminal(tmp_path: Path) -> None:
    """On a terminal the tables are drawn, in colours, below the commands; Ctrl-C gives the terminal back whole."""
    ours, theirs = pty.openpty()
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path), "TERM": "xterm-256color"}
    process = subprocess.Popen(COMMAND, env=variables, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True)
    os.close(theirs)
    seen = b""
    try:
        while b"PROMOTION" not in seen or b"dev.1" not in seen.rpartition(b"PROMOTION")[2]:
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        while chunk := read_or_end(ours):
            seen += chunk
        code = process.wait(timeout=60)
    finally:
        process.kill()
        os.close(ours)

    assert code == 130
    assert b"Traceback" not in seen
    assert seen.count(b"\x1b[?25l") == seen.count(b"\x1b[?25h") == 1


def read_or_end(descriptor: int) -> bytes:
    """What a terminal shows; nothing once the other side is closed, which Linux tells as an error."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""
