"""That no child outlives the tests. No API server is needed: any program will do."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.envtest.processes import ChildProcess

SLEEP = shutil.which("sleep") or "/bin/sleep"
REPOSITORY = Path(__file__).resolve().parents[2]

# A test run in small: it starts a child, tells its pid, and waits to be killed.
PARENT = f"""
import sys
from pathlib import Path
from tests.envtest.processes import ChildProcess
child = ChildProcess("sleep", [{SLEEP!r}, "600"], Path(sys.argv[1]))
if sys.argv[2] == "paused":
    child.pause()
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[ChildProcess]:
    """Run something that would run for ten minutes."""
    process = ChildProcess("sleep", [SLEEP, "600"], tmp_path / "log")
    yield process
    process.kill()


def start_parent(log: Path, state: str) -> tuple[subprocess.Popen[str], psutil.Process]:
    """Start PARENT; return it and its child."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, log, state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert parent.stdout
    return parent, psutil.Process(int(parent.stdout.readline()))


def ends(process: psutil.Process) -> bool:
    """Wait until *process* has ended, whether or not its new parent has taken notice; tell whether it has."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
@pytest.mark.parametrize("state", ["running", "paused"])
def test_parent_killed(tmp_path: Path, state: str) -> None:
    """A child ends when its parent is killed with SIGKILL, even if it is stopped itself."""
    parent, orphan = start_parent(tmp_path / "log", state)

    with parent:
        parent.kill()

    assert ends(orphan)


def test_parent_ends(tmp_path: Path) -> None:
    """A child ends when its parent ends without having ended it."""
    parent, orphan = start_parent(tmp_path / "log", "running")

    parent.communicate(timeout=10)

    assert parent.returncode == 0
    assert ends(orphan)


def test_started_by_a_thread(tmp_path: Path) -> None:
    """A child started from a worker thread of asyncio outlives that thread: the parent is the process."""

    async def start() -> ChildProcess:
        return await asyncio.to_thread(ChildProcess, "sleep", [SLEEP, "600"], tmp_path / "log")

    child = asyncio.run(start())  # ends its worker threads

    with pytest.raises(psutil.TimeoutExpired):
        psutil.Process(child.pid).wait(timeout=0.2)
    child.kill()


def test_pause_and_resume(child: ChildProcess) -> None:
    """A paused child is stopped, not ended, and goes on."""
    child.pause()
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    assert psutil.Process(child.pid).status() == psutil.STATUS_STOPPED

    child.resume()

    assert psutil.Process(child.pid).status() in {psutil.STATUS_SLEEPING, psutil.STATUS_RUNNING}
    assert child.exit_code is None


def test_kill(child: ChildProcess) -> None:
    """Killing waits until the child is gone, and a second time does nothing."""
    child.kill()
    child.kill()

    assert child.exit_code == -signal.SIGKILL
    assert not psutil.pid_exists(child.pid)


def test_output_of_this_run(tmp_path: Path) -> None:
    """The output is that of this run, though the log file has that of earlier ones too."""
    log = tmp_path / "log"
    for word in ("one", "two"):
        process = ChildProcess("echo", [shutil.which("echo") or "/bin/echo", word], log)
        psutil.Process(process.pid).wait(timeout=10)

    assert process.output() == "two\n"
    assert process.tail() == f"--- echo, end of {log}:\ntwo"
    assert log.read_text() == "one\ntwo\n"
