"""What holds for every test: no blocked event loop, no network but this machine, no log on the terminal.

Each guard records what it forbids and fails the test at its end, so that code which catches everything (a reconcile
loop, say) cannot hide it. tests/test_guards.py proves them.
"""

import asyncio
import gc
import ipaddress
import os
import socket
import sys
import sysconfig
import traceback
from collections.abc import Generator, Iterator, MutableMapping
from typing import Any

import blockbuster
import hypothesis
import pytest
import structlog
from looptime._internal import plugin as looptime_plugin
from structlog.typing import EventDict

pytest_plugins = ["pytester", "kargo_py.testing.plugin", "tests.envtest.fixtures"]

# CI judges a change by the same examples every time; a developer's runs go on looking for new ones.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
hypothesis.settings.register_profile("developer", deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "developer")

# Ten thousand tests are a million objects that stay; to scan them over and over was a third of the time of collecting.
gc.set_threshold(20_000, 10, 10)


def pytest_collection_finish() -> None:
    """Look at what was collected no more."""
    gc.collect()
    gc.freeze()


_may_make_loops = looptime_plugin._should_patch
_makes_loops: dict[tuple[str, str], bool] = {}


def _should_patch(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> bool:
    """Ask looptime once for each fixture: it looks through all of pytest-asyncio, ten times a test."""
    key = (fixturedef.func.__module__, fixturedef.argname)
    if key not in _makes_loops:
        _makes_loops[key] = _may_make_loops(fixturedef, request)
    return _makes_loops[key]


looptime_plugin._should_patch = _should_patch


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let simulated time go on as soon as nothing is ready.

    looptime turns the loop 42 times more before that. Nothing in the loop can come of it, and for the threads of
    executors it waits anyway; it was a quarter of the time of these tests.
    """
    if item.get_closest_marker("looptime"):
        item.add_marker(pytest.mark.looptime(noop_cycles=0))


def pytest_sessionstart() -> None:
    """Say that no event loop is set: before Python 3.14 looptime's look at it in the first test makes one, unclosed."""
    asyncio.set_event_loop(None)


# The event loop

_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_MAY_BLOCK = blockbuster.BlockBuster()


class BlockedLoop(blockbuster.BlockingError):
    """A call that blocks, made while an event loop runs in this thread."""

    found: list[str] = []  # blockbuster makes the instances: there is no other way to hand it over

    def __init__(self, function: str) -> None:
        """Note the blocking *function* and who called it."""
        super().__init__(function)
        callers = traceback.extract_stack()[:-2]
        ours = [frame for frame in callers if not frame.filename.startswith((_STANDARD_LIBRARY, "<frozen"))]
        caller = [*callers[:1], *ours][-1]
        self.found.append(f"{function} called by {caller.name} ({caller.filename}:{caller.lineno})")


@pytest.fixture(autouse=True)
def no_blocked_event_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that blocks the event loop, unless marked ``nonblocking_exempt(reason=…)``."""
    if exempt := request.node.get_closest_marker("nonblocking_exempt"):
        if not exempt.kwargs.get("reason"):
            pytest.fail("nonblocking_exempt needs a reason: @pytest.mark.nonblocking_exempt(reason=…)", pytrace=False)
        yield
        return
    monkeypatch.setattr(blockbuster.blockbuster, "BlockingError", BlockedLoop)
    BlockedLoop.found.clear()
    _MAY_BLOCK.activate()
    try:
        yield
    finally:
        _MAY_BLOCK.deactivate()
    if BlockedLoop.found:
        pytest.fail("\n".join(["the event loop was blocked:", *BlockedLoop.found]), pytrace=False)


# The network

_left_the_machine: list[str] = []


class NetworkForbidden(Exception):
    """A test wanted to talk to another machine, or to ask for its address."""


def _forbid_network(event: str, arguments: tuple[Any, ...]) -> None:
    match event, arguments:
        case ("socket.connect" | "socket.sendto" | "socket.sendmsg", (socket.socket() as own, (host, *_))):
            allowed = own.family not in {socket.AF_INET, socket.AF_INET6} or _is_here(host)
        case ("socket.getaddrinfo" | "socket.gethostbyname" | "socket.gethostbyaddr", (host, *_)):
            allowed = host is None or _is_here(host) or _is_address(host)
        case _:
            return
    if not allowed:
        _left_the_machine.append(f"{event} {host}")
        raise NetworkForbidden(f"{event} {host}: tests may use only 127.0.0.1 and unix sockets")


def _is_here(host: str | bytes) -> bool:
    name = os.fsdecode(host)
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)


def _is_address(host: str | bytes) -> bool:
    try:
        ipaddress.ip_address(os.fsdecode(host))
    except ValueError:
        return False
    return True


# Not a patched socket class: a hook also sees what C code and copies of the class do. It cannot be taken away again.
sys.addaudithook(_forbid_network)


@pytest.fixture(autouse=True)
def no_network() -> Iterator[None]:
    """Fail a test that leaves this machine."""
    _left_the_machine.clear()
    yield
    if _left_the_machine:
        pytest.fail("\n".join(["the test left this machine:", *_left_the_machine]), pytrace=False)


# The log

_LOG = pytest.StashKey[list[EventDict]]()


_configure = structlog.configure


def _configure_for_one_test(**settings: Any) -> None:
    """Do as the program does when it configures logging, but let no logger keep it for later tests."""
    _configure(**{**settings, "cache_logger_on_first_use": False})


@pytest.fixture(autouse=True)
def logged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[MutableMapping[str, Any]]]:
    """Everything logged by structlog in this test, one dict an event; shown when the test fails, else nowhere."""
    structlog.reset_defaults()
    monkeypatch.setattr(structlog, "configure", _configure_for_one_test)
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as events:
        request.node.stash[_LOG] = events
        yield events
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Put the log into the report, which pytest shows for failed tests."""
    try:
        yield
    finally:
        lines = [" ".join(f"{key}={value}" for key, value in event.items()) for event in item.stash.get(_LOG, [])]
        if lines:
            item.add_report_section("call", "structlog", "\n".join(lines))
