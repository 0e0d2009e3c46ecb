"""Fixtures for tests marked ``envtest``: a real API server, our CRDs on it, a namespace per test.

Each pytest worker that needs a server starts its own, about 3 s and 350 MiB. One server for all workers would save
that, but then no test could freeze, kill or compact it, which is what the server is for.
"""

from collections.abc import Iterator

import pytest

from tests.envtest import binaries, crds as definitions
from tests.envtest.server import ApiServer, running


@pytest.fixture(scope="session")
def apiserver_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One server for this worker; for fixtures of a wide scope (tests ask for ``apiserver``)."""
    try:
        programs = binaries.find()
    except binaries.BinariesMissing as missing:
        pytest.fail(str(missing), pytrace=False)  # never a skip: who runs these tests wants them run
    with running(tmp_path_factory.mktemp("apiserver"), programs=programs) as server:
        yield server


@pytest.fixture
def apiserver(apiserver_session: ApiServer) -> Iterator[ApiServer]:
    """Give this worker's server, and make it serve again after a test that froze or killed it."""
    yield apiserver_session
    apiserver_session.restore()


@pytest.fixture(scope="session")
def crds(apiserver_session: ApiServer) -> ApiServer:
    """Give the server with our CRDs, and an Application that has no schema, installed and served."""
    definitions.install(apiserver_session, [*definitions.read(definitions.OURS), definitions.APPLICATION])
    return apiserver_session


@pytest.fixture
def namespace(apiserver: ApiServer) -> str:
    """Name of a new namespace. It is left behind: nothing here could finalise it."""
    return apiserver.create_namespace()
