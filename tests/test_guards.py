"""The guards of conftest.py, proven by a test run in a process of its own: what must fail does, and only that."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

SUSPECTS = """
import asyncio
import socket
import sys
import time
from pathlib import Path

import hypothesis
import pytest
import structlog


async def test_sleeps():
    time.sleep(0.001)


async def test_sleeps_and_hides_it():
    try:
        time.sleep(0.001)
    except Exception:
        pass


async def test_reads_a_file():
    Path(__file__).read_text()


async def test_reads_a_file_in_a_thread():
    assert await asyncio.to_thread(Path(__file__).read_text)


def test_sleeps_without_a_loop():
    time.sleep(0.001)


@pytest.mark.nonblocking_exempt(reason="to see that it passes")
async def test_exempt():
    time.sleep(0.001)


@pytest.mark.nonblocking_exempt
async def test_exempt_without_reason():
    pass


async def test_connects_elsewhere():
    await asyncio.open_connection("192.0.2.1", 80)


def test_connects_elsewhere_and_hides_it():
    try:
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    except Exception:
        pass


def test_asks_for_a_name():
    socket.getaddrinfo("example.com", 443)


def test_sends_a_datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.sendto(b"hello", ("192.0.2.1", 53))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_connects_here(host):
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1") as server:
        reader, writer = await asyncio.open_connection(host, server.sockets[0].getsockname()[1])
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


def test_unix_socket(tmp_path):
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "s"))
        server.listen()
        client.connect(str(tmp_path / "s"))


def test_log_is_captured(logged, capfd):
    structlog.get_logger().info("operation started", attempt=1)
    assert logged == [{"event": "operation started", "attempt": 1, "log_level": "info"}]
    assert capfd.readouterr() == ("", "")


def test_log_of_a_failure():
    structlog.get_logger().warning("it went wrong", attempt=2)
    assert False


def test_log_after_somebody_configured_it(logged):
    structlog.get_logger().info("one")
    structlog.configure(processors=[structlog.processors.JSONRenderer()])
    assert len(logged) == 1


@pytest.mark.looptime
async def test_simulated_time():
    before = time.monotonic()
    await asyncio.sleep(3600)
    assert time.monotonic() - before < 60


async def test_true_time():
    before = time.monotonic()
    await asyncio.sleep(0.05)
    assert time.monotonic() - before > 0.04


def test_runs_a_loop_of_its_own():
    asyncio.run(asyncio.sleep(0))


def test_profile():
    assert hypothesis.settings().deadline is None
    assert hypothesis.settings().derandomize
"""

# What the report of each must say; what is not here must pass.
CONVICTED = {
    "test_sleeps": "the event loop was blocked:\ntime.sleep called by test_sleeps (",
    "test_sleeps_and_hides_it": "time.sleep called by test_sleeps_and_hides_it (",
    "test_reads_a_file": "io.TextIOWrapper.read called by test_reads_a_file (",
    "test_exempt_without_reason": "nonblocking_exempt needs a reason",
    "test_connects_elsewhere": "tests may use only 127.0.0.1 and unix sockets",
    "test_connects_elsewhere_and_hides_it": "the test left this machine:\nsocket.connect 192.0.2.1",
    "test_asks_for_a_name": "the test left this machine:\nsocket.getaddrinfo example.com",
    "test_sends_a_datagram": "the test left this machine:\nsocket.sendto 192.0.2.1",
    "test_log_of_a_failure": "event=it went wrong",
}

ALL = [line.split("(")[0].split()[-1] for line in SUSPECTS.splitlines() if line.startswith(("def test", "async def"))]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run the suspects; give what the report says of each, empty if it passed."""
    folder = tmp_path_factory.mktemp("suspects")
    (folder / "test_suspects.py").write_text(SUSPECTS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", str(REPOSITORY / "pyproject.toml")]
    command += ["--rootdir", str(folder), "--junit-xml", str(folder / "report.xml")]
    ended = subprocess.run(
        [*command, str(folder)],
        cwd=REPOSITORY,
        env={**os.environ, "CI": "true", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout + ended.stderr
    names = [case.attrib["name"].partition("[")[0] for case in ET.parse(folder / "report.xml").iter("testcase")]
    found = dict.fromkeys(names, "")
    _, *sections = re.split(r"^_+ (?:ERROR at \w+ of )?(\w+)\S* _+$", ended.stdout, flags=re.MULTILINE)
    for name, text in zip(sections[::2], sections[1::2], strict=True):
        found[name] += text
    return found


@pytest.mark.parametrize("name", ALL)
def test_guards(reports: dict[str, str], name: str) -> None:
    """What blocks the loop or leaves the machine is convicted, also if it hides the error; nothing else is."""
    if name in CONVICTED:
        assert CONVICTED[name] in reports[name]
    else:
        assert reports[name] == ""
