"""Fixtures for tests that want an API server: our CRDs on it, a namespace per test.

A test that asks for one of these runs twice: on the embedded API server, and, marked ``envtest``, on a real one. A test
that is marked ``envtest`` itself needs what the real one alone has (etcd, roles, OpenAPI of all its kinds).

Each pytest worker that needs a server starts its own, a real one in about 3 s and 350 MiB. One server for all workers
would save that, but then no test could freeze, kill or compact it, which is what the server is for.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.envtest import binaries, crds as definitions
from tests.envtest.embedded import EmbeddedServer, embedded
from tests.envtest.server import ApiServer, running


@dataclass(frozen=True)
class Wanted:
    """A server that a test wants; ``strict``: with the kinds as Kargo defines them."""

    real: bool = True
    strict: bool = False

    def __str__(self) -> str:
        return ("real" if self.real else "embedded") + ("-strict" if self.strict else "")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what needs a server on both, or on the real one only, and with the kinds as Kargo defines them if marked."""
    if "apiserver_session" not in metafunc.fixturenames:
        return
    real_only = metafunc.definition.get_closest_marker("envtest") is not None
    both_definitions = metafunc.definition.get_closest_marker("both_definitions") is not None
    wanted = [
        Wanted(real=real, strict=strict)
        for real in ([True] if real_only else [False, True])
        for strict in ([False, True] if both_definitions else [False])
    ]
    servers = [pytest.param(each, id=str(each), marks=[pytest.mark.envtest] if each.real else []) for each in wanted]
    metafunc.parametrize("apiserver_session", servers, indirect=True, scope="session")


@contextmanager
def real(directory: Path) -> Iterator[ApiServer]:
    """A real server that runs, with its data in *directory*; the test fails where its programs are not built."""
    try:
        programs = binaries.find()
    except binaries.BinariesMissing as missing:
        pytest.fail(str(missing), pytrace=False)  # never a skip: who runs these tests wants them run
    with running(directory, programs=programs) as server:
        yield server


@pytest.fixture(scope="session")
def apiserver_session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One server for this worker; for fixtures of a wide scope (tests ask for ``apiserver``)."""
    wanted: Wanted = request.param
    if not wanted.real:
        with embedded(tmp_path_factory.mktemp("embedded")) as server:
            server.strict = wanted.strict
            yield server
        return
    with real(tmp_path_factory.mktemp("apiserver")) as server:
        server.strict = wanted.strict
        yield server


@pytest.fixture
def apiserver(apiserver_session: ApiServer) -> Iterator[ApiServer]:
    """Give this worker's server, and make it serve again after a test that froze or killed it."""
    yield apiserver_session
    apiserver_session.restore()


@pytest.fixture(scope="session")
def crds(apiserver_session: ApiServer) -> ApiServer:
    """Give the server with our CRDs or Kargo's, and an Application that has no schema, installed and served."""
    kargos = definitions.strict() if apiserver_session.strict else definitions.read(definitions.OURS)
    definitions.install(apiserver_session, [*kargos, definitions.APPLICATION])
    return apiserver_session


@pytest.fixture
def namespace(apiserver: ApiServer) -> str:
    """Name of a new namespace. It is left behind: nothing on a real server could finalise it."""
    return apiserver.create_namespace()


@pytest.fixture
def kubectl_path(apiserver_session: ApiServer) -> str:
    """Where kubectl is; without it a test on the embedded server is skipped, for that one needs no outside binary."""
    path = shutil.which("kubectl")
    if path is None and isinstance(apiserver_session, EmbeddedServer):
        pytest.skip("this test acts as a user with kubectl, which is not in PATH")
    if path is None:
        pytest.fail("this test acts as a user with kubectl, which is not in PATH", pytrace=False)
    return path
