"""Importing kubernetes-asyncio in part: what it spares, and that nobody else notices."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(code: str) -> str:
    """Run *code* in a fresh interpreter; what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


LOAD = "import sys; from kargo_py.kube._kubernetes_asyncio import load; parts = load()\n"
MODELS = "[name for name in sys.modules if name.startswith('kubernetes_asyncio.client.models')]"


def test_no_models() -> None:
    """None of the thousand generated classes is imported for what we use."""
    assert run(LOAD + f"print({MODELS})") == "[]"


def test_spared_memory() -> None:
    """The part costs less than half of the memory of the whole, aiohttp included (measured: 21 of 55 MiB)."""
    anonymous = "int(re.search(r'Anonymous: *([0-9]+)', pathlib.Path('/proc/self/smaps_rollup').read_text())[1])"
    part, whole = (
        int(run(f"import pathlib, re\nbefore = {anonymous}\n{code}\nprint({anonymous} - before)"))
        for code in (LOAD, "import kubernetes_asyncio")
    )

    assert part < whole / 2


@pytest.mark.parametrize(
    "use",
    [
        "import kubernetes_asyncio as k; assert k.client.CoreV1Api and k.watch.Watch and k.stream.WsApiClient",
        "import kubernetes_asyncio; assert kubernetes_asyncio.__version__ and kubernetes_asyncio.dynamic.DynamicClient",
        "from kubernetes_asyncio import client; assert client.V1Pod().kind is None",
        "from kubernetes_asyncio.client import ApiClient, V1Pod, CustomObjectsApi",
        "from kubernetes_asyncio.client import *; assert V1Pod",
        "from kubernetes_asyncio.client.models import V1Pod",
        "from kubernetes_asyncio import *; assert client.V1Pod and watch.Watch",
        "import kubernetes_asyncio.client.api.core_v1_api as api; assert api.CoreV1Api",
        "from kubernetes_asyncio import client; assert 'V1Pod' in dir(client)",
        "import kubernetes_asyncio.client.rest as r; import kubernetes_asyncio as k; assert k.client.rest is r",
    ],
)
def test_used_whole_afterwards(use: str) -> None:
    """A program that embeds us can import everything, in every manner, and gets the same classes as we have."""
    same = """
from kubernetes_asyncio import client
from kubernetes_asyncio.config import kube_config
assert client.Configuration is parts.Configuration is kube_config.Configuration
assert client.ApiException is sys.modules["kubernetes_asyncio.client.rest"].ApiException
assert kube_config.ApiClient is client.ApiClient
assert type(client) is type(sys)
"""
    assert run(f"{LOAD}{use}{same}print('ok')") == "ok"


def test_a_client_made_by_the_part() -> None:
    """The one function of the part that makes an ApiClient makes a true one."""
    code = """
import asyncio
from kubernetes_asyncio.config import kube_config
assert "kubernetes_asyncio.client.api_client" not in sys.modules
config = {"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
          "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]}
async def make():
    async with await kube_config.new_client_from_config_dict(config) as client:
        return client
client = asyncio.run(make())
from kubernetes_asyncio.client import ApiClient
assert type(client) is ApiClient
print("ok")
"""
    assert run(LOAD + code) == "ok"


@pytest.mark.parametrize("before", ["import kubernetes_asyncio", "from kubernetes_asyncio import config"])
def test_used_whole_before(before: str) -> None:
    """If the program has the package already, its classes are the ones used."""
    same = "from kubernetes_asyncio import client\nassert client.Configuration is parts.Configuration\nprint('ok')"

    assert run(f"{before}\n{LOAD}{same}") == "ok"


@pytest.mark.parametrize("_", range(4))
def test_threads(_: int) -> None:
    """Loaded from many threads, some of which import the package as a whole, there is one set of classes.

    Threads take turns as often as they can: one in five such runs used to end in a deadlock of import locks.
    """
    code = """
import sys, threading
sys.setswitchinterval(1e-6)
from kargo_py.kube._kubernetes_asyncio import load
start = threading.Barrier(8)
found = []
def part():
    start.wait()
    found.append(load().Configuration)
def whole():
    start.wait()
    from kubernetes_asyncio import client
    assert client.V1Pod
    found.append(client.Configuration)
threads = [threading.Thread(target=target) for target in [part, whole] * 4]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(found), len(set(found)))
"""
    assert run(code) == "8 1"


def test_the_package_itself_imports_nothing() -> None:
    """Its names are there for the asking; until then nothing is imported, not even typing."""
    code = "import sys; before = set(sys.modules); import kargo_py; print(sorted(set(sys.modules) - before))"

    assert run(code) == "['kargo_py']"


@pytest.mark.parametrize("module", ["kargo_py", "kargo_py.messages", "kargo_py.kube.client", "kargo_py.cli.main"])
def test_nothing_heavy_until_needed(module: str) -> None:
    """Importing the package, its protocols or its command line pulls in no HTTP client and no models."""
    heavy = ("aiohttp", "kubernetes_asyncio", "pydantic", "msgspec", "yaml")

    assert run(f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])") == "[]"


def test_nothing_of_a_step_that_does_not_run() -> None:
    """The HTTP client of the step http is imported when such a step runs, not with the controllers."""
    code = "import sys, kargo_py.controllers.running, kargo_py.steps.http\n"

    assert run(code + "print([m for m in ('httpx', 'httpcore', 'anyio') if m in sys.modules])") == "[]"
