"""The pytest plugin: fixtures for a Kubernetes API, a simulated Argo CD and the controllers.

    async def test_dev(kube_api, argocd, controller):
        await kube_api.apply(Path("pipeline.yaml"))
        promotion = await kube_api.promote("dev", "shop-1.1")
        assert await promotion.ended() == "Succeeded"

Everything else of kargo_py is imported when the first fixture is asked for. The fixtures are those of pytest-asyncio,
in its mode ``auto`` as in ``strict``, and live on the event loop of the test function.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

try:
    import pytest_asyncio
except ModuleNotFoundError:
    _HAS_ASYNCIO = False
else:
    _HAS_ASYNCIO = True

if TYPE_CHECKING:
    from kargo_py.controllers.running import Options
    from kargo_py.local.argocd.simulator import ArgoCD
    from kargo_py.testing.clock import Clock
    from kargo_py.testing.controller import Controller
    from kargo_py.testing.kube_api import KubeApi
    from kargo_py.testing.real import RealServer

SIMULATED_TIME = "simulated_time"


def _async_fixture(function: Callable[..., Any]) -> Any:
    """A fixture of pytest-asyncio; without that, one that says so."""
    if _HAS_ASYNCIO:
        return pytest_asyncio.fixture(function, loop_scope="function")

    @pytest.fixture(name=function.__name__)
    def missing() -> None:
        pytest.fail("the fixtures of kargo_py.testing need pytest-asyncio: pip install pytest-asyncio", pytrace=False)

    return missing


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--kube-api``."""
    group = parser.getgroup("kargo-py")
    group.addoption(
        "--kube-api",
        choices=("embedded", "real"),
        default="embedded",
        help="what kube_api is: an API server in this process, or a real kube-apiserver with etcd, from "
        "$KUBEBUILDER_ASSETS or built by kargo-py's `make envtest` [embedded]",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Add the mark."""
    config.addinivalue_line(
        "markers", f"{SIMULATED_TIME}: let time pass only while there is nothing else to do (with kube_api embedded)"
    )


@pytest.fixture
def controller_options() -> Options:
    """How the controllers are run; override it in a module or a conftest.py."""
    from kargo_py.controllers.running import Options  # noqa: PLC0415 - heavy

    return Options()


@_async_fixture
async def clock(request: pytest.FixtureRequest) -> AsyncIterator[Clock]:
    """Time: the machine's, or the simulated one in a test that is marked so."""
    import asyncio  # noqa: PLC0415 - heavy

    from kargo_py.testing.clock import Clock, simulated_time  # noqa: PLC0415 - heavy

    if request.node.get_closest_marker(SIMULATED_TIME) is None:
        yield Clock()
        return
    if request.config.getoption("--kube-api") == "real":
        pytest.skip("a real kube-apiserver does not live in simulated time")
    with simulated_time(asyncio.get_running_loop()) as simulated:
        yield simulated


@pytest.fixture(scope="session")
def real_kube_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A kube-apiserver with etcd, for all tests of this process."""
    from kargo_py.testing.real import BinariesMissing, ServerFailed, running  # noqa: PLC0415 - heavy

    try:
        with running(tmp_path_factory.mktemp("kube-api")) as server:
            yield server
    except (BinariesMissing, ServerFailed) as error:
        pytest.fail(str(error), pytrace=False)


@_async_fixture
async def kube_api(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[KubeApi]:
    """A Kubernetes API with Kargo's and Argo CD's kinds, and nothing else in it than the namespace argocd."""
    if request.config.getoption("--kube-api") == "real":
        from kargo_py.testing.real import kube_api as opened  # noqa: PLC0415 - heavy

        async with opened(request.getfixturevalue("real_kube_api"), clock) as api:
            yield api
        return
    try:
        from kargo_py.testing.embedded import kube_api as embedded  # noqa: PLC0415 - heavy
    except ModuleNotFoundError as error:
        pytest.fail(f"kube_api needs {error.name}: pip install 'kargo-py[local]'", pytrace=False)

    async with embedded(clock) as api:
        yield api


@_async_fixture
async def argocd(kube_api: KubeApi) -> AsyncIterator[ArgoCD]:
    """A simulated Argo CD at work in the namespace argocd; a test scripts its syncs, and fails if one never comes."""
    from kargo_py.local.argocd.simulator import ArgoCD  # noqa: PLC0415 - heavy
    from kargo_py.local.argocd.timing import Timing  # noqa: PLC0415 - heavy

    timing = Timing() if kube_api.clock.simulated else Timing.fast()
    async with ArgoCD(kube_api.client_for("argocd"), timing=timing, now=kube_api.clock.now) as argo:
        yield argo
    if unplayed := argo.unplayed():
        does = "correct the name or namespace, wait for the sync, or say nothing about it"
        pytest.fail("\n".join([*unplayed, does]), pytrace=False)


@_async_fixture
async def controller(kube_api: KubeApi, controller_options: Options) -> AsyncIterator[Controller]:
    """Our controllers, running."""
    from kargo_py.testing.controller import Controller  # noqa: PLC0415 - heavy

    running = Controller(kube_api, controller_options)
    await running.start()
    yield running
    if running.is_running:
        await running.stop()
