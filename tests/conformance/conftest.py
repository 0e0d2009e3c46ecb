"""The two servers as one fixture, and how a known difference is marked.

A test runs twice: on the embedded server, and on the real one where it has the mark ``envtest``. What the embedded
server does otherwise is marked ``differs("…")`` with the words of a row in docs/reference/embedded-apiserver.md: it
must then fail there, and it must pass on the real one.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.definitions import GADGET, WIDGET
from tests.conformance.servers import Server, Which
from tests.envtest.embedded import embedded
from tests.envtest.fixtures import real
from tests.envtest.server import ApiServer

DEFINITIONS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITIONS = (WIDGET, GADGET)


@pytest.fixture(
    scope="session", params=["embedded", pytest.param("real", marks=pytest.mark.envtest)], ids=["embedded", "real"]
)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One of the servers, with the kinds of the suite installed; one for each worker.

    Not the one that other tests share: pytest ends that for one with other parameters, and does not tell who has got it
    by its name.
    """
    which: Which = request.param
    directory = tmp_path_factory.mktemp(f"conformance-{which}")
    with contextlib.ExitStack() as stack:
        made = seen(stack.enter_context(real(directory) if which == "real" else embedded(directory)), which, directory)
        stack.callback(made.close)
        for definition in DEFINITIONS:
            if made.get(f"{DEFINITIONS_PATH}/{definition['metadata']['name']}").code == 404:
                made.install(definition)
        yield made


def seen(server: ApiServer, which: Which, home: Path) -> Server:
    """As the suite sees a server."""
    admin = server.kubeconfig("admin")
    return Server(which, server.url, server.token("admin"), server.ca_file, admin, server.forget_history, home)


@pytest.fixture
def namespace(server: Server) -> str:
    """Name of a new namespace."""
    return server.namespace()


@pytest.fixture
def kubectl() -> None:
    """Skip where kubectl is not installed."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of a known difference must fail on the embedded server."""
    for item in items:
        difference = item.get_closest_marker("differs")
        if difference and isinstance(item, pytest.Function) and item.callspec.params.get("server") == "embedded":
            item.add_marker(pytest.mark.xfail(strict=True, raises=AssertionError, reason=difference.args[0]))
