"""A real kube-apiserver with etcd behind ``kube_api``: the same tests, on the program they will meet.

The binaries are those in ``$KUBEBUILDER_ASSETS``, or the newest that kargo-py's ``make envtest`` has built into the
user's cache. One server serves all tests of a process; what a test has left in it is deleted before the next one. No
other part of Kubernetes runs: nothing collects garbage, and a deleted namespace stays.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kargo_py.controllers.world import NAMESPACES
from kargo_py.kube.client import EventType, JsonObject
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.connection import connect
from kargo_py.kube.errors import KubeError, NotFound
from kargo_py.kube.resources import Resource
from kargo_py.kube.rest import RestClient
from kargo_py.local.apiserver import kubeconfig, tls
from kargo_py.testing.clock import Clock
from kargo_py.testing.definitions import DEFINITIONS, definitions, install
from kargo_py.testing.history import History, Write
from kargo_py.testing.kube_api import KubeApi

_HOST: Final = "127.0.0.1"
_START_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05
_WATCH_SECONDS: Final = 300
_TOKEN: Final = "testing"  # noqa: S105 - of a server on this machine only, which ends with the tests
_AGENTS: Final = ("argocd", "kargo-py", "kargo-py-testing")
_PORTS: Final = 3

# Ends the program when our end of the pipe is closed, which the kernel does even for a process that was killed.
_UNTIL_WE_END: Final = 'exec 3<&0; "$@" </dev/null & child=$!; (read -r _ <&3; kill -9 $child) & wait $child'


class BinariesMissing(Exception):
    """There is no kube-apiserver with an etcd; the text says what to do."""


class ServerFailed(Exception):
    """It did not start; the text has the end of its log."""


@dataclass(frozen=True, slots=True)
class RealServer:
    """A server that runs."""

    kubeconfig: Path


def find(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder with both programs. Raises BinariesMissing."""
    own = environment.get("KARGO_PY_CACHE")
    cache = Path(own) if own else Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache", "kargo-py")
    built = sorted((cache / "envtest").glob("v*"), key=lambda path: path.stat().st_mtime, reverse=True)
    assets = environment.get("KUBEBUILDER_ASSETS")
    places = [*([Path(assets)] if assets else []), *built]
    for place in places:
        if all(os.access(place / name, os.X_OK) for name in ("kube-apiserver", "etcd")):
            return place
    looked = ", ".join(map(str, places)) or f"{cache / 'envtest'}"
    raise BinariesMissing(
        f"--kube-api=real: no kube-apiserver and etcd in {looked}: set KUBEBUILDER_ASSETS to a folder that has both "
        "(setup-envtest downloads one), or run `make envtest` in a checkout of kargo-py"
    )


@contextmanager
def running(directory: Path) -> Iterator[RealServer]:
    """A server that keeps its files in *directory*. Raises BinariesMissing, ServerFailed."""
    programs = find()
    ports = _free_ports()
    credentials = tls.issue()
    for name, content in {
        "server.crt": credentials.certificate,
        "server.key": credentials.key,
        "ca.crt": credentials.authority,
        "accounts.key": _key_of_service_accounts(),
        "tokens.csv": f'{_TOKEN},testing,testing,"system:masters"\n'.encode(),
    }.items():
        (directory / name).write_bytes(content)
    config = directory / "kubeconfig"
    kubeconfig.write(
        config, kubeconfig.render(f"https://{_HOST}:{ports[0]}", token=_TOKEN, authority=credentials.authority)
    )
    commands = {"etcd": _etcd(directory, ports), "kube-apiserver": _kube_apiserver(directory, ports)}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, arguments in commands.items():
            with (directory / f"{name}.log").open("wb") as log:
                command = ["/bin/sh", "-c", _UNTIL_WE_END, "sh", str(programs / name), *arguments]
                process = subprocess.Popen(  # noqa: S603 - the programs that were asked for
                    command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
                )
                started.append(process)
        _await_ready(directory, ports[0], started)
        yield RealServer(config)
    finally:
        for process in reversed(started):
            process.communicate()


@asynccontextmanager
async def kube_api(server: RealServer, clock: Clock) -> AsyncIterator[KubeApi]:
    """The API, with the kinds that are needed and without objects of another test."""
    async with AsyncExitStack() as stack:
        clients: list[RestClient] = []

        async def opened() -> RestClient:
            client = await stack.enter_async_context(await connect(kubeconfig=str(server.kubeconfig)))
            clients.append(client)
            return client

        await install(await opened())
        spare = {agent: await opened() for agent in _AGENTS}
        history = _WatchedHistory(clients[0])
        api = KubeApi(
            lambda agent: spare.get(agent) or clients[0], history, clock, lambda: nullcontext(server.kubeconfig)
        )
        stack.push_async_callback(_clear, clients[0], history)
        stack.push_async_callback(history.close)
        for resource in api.resources:
            await history.follow(resource)
        yield api


class _WatchedHistory(History):
    """What watches show: every write to the resources that are followed, since then."""

    def __init__(self, client: RestClient) -> None:
        super().__init__()
        self._client = client
        self._following: dict[Resource, asyncio.Task[None]] = {}
        self._beginning = asyncio.Lock()

    @property
    def followed(self) -> Sequence[Resource]:
        """What is watched, in the order in which that began."""
        return list(self._following)

    async def follow(self, resource: Resource) -> None:
        """Watch a resource from now on, if it is not watched yet."""
        async with self._beginning:
            if resource in self._following:
                return
            page = await self._client.list(resource, codec=JSON)
            for obj in page.items:
                self._append(EventType.ADDED, resource, obj)
            watch = self._watch(resource, page.resource_version)
            self._following[resource] = asyncio.create_task(watch, name=f"watch {resource}")

    async def close(self) -> None:
        """End all watches."""
        for task in self._following.values():
            task.cancel()
        await asyncio.gather(*self._following.values(), return_exceptions=True)

    async def _watch(self, resource: Resource, version: str) -> None:
        while True:
            stream = self._client.watch(resource, codec=JSON, resource_version=version, timeout_seconds=_WATCH_SECONDS)
            try:
                async for event in stream:
                    version = event.resource_version
                    if event.object is not None:
                        self._append(event.type, resource, event.object)
            except KubeError:  # of a definition that the test has deleted, for one: every time
                await asyncio.sleep(_LOOK_SECONDS)

    def _append(self, change: EventType, resource: Resource, obj: JsonObject) -> None:
        self.append(Write(change, resource, JSON.meta(obj).key, obj))


async def _clear(client: RestClient, history: _WatchedHistory) -> None:
    """Delete what a test has made, objects before definitions, but for namespaces, which nothing here could end."""
    own = {definition["metadata"]["name"] for definition in definitions()}
    for resource in reversed(history.followed):
        if resource == NAMESPACES:
            continue
        for obj in await _left(client, resource):
            key = JSON.meta(obj).key
            if (resource == DEFINITIONS and key.name in own) or key.namespace.startswith("kube-"):
                continue
            with suppress(NotFound):
                if obj["metadata"].get("finalizers"):
                    await client.patch(resource, key, encode({"metadata": {"finalizers": None}}), codec=JSON)
                await client.delete(resource, key)


async def _left(client: RestClient, resource: Resource) -> Sequence[JsonObject]:
    """All objects; none where the test has deleted the definition."""
    try:
        return (await client.list(resource, codec=JSON)).items
    except NotFound:
        return ()


def _free_ports() -> Sequence[int]:
    sockets = [socket.create_server((_HOST, 0)) for _ in range(_PORTS)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _etcd(directory: Path, ports: Sequence[int]) -> Sequence[str]:
    clients, peers = f"http://{_HOST}:{ports[1]}", f"http://{_HOST}:{ports[2]}"
    return [
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--log-level=warn",
        "--unsafe-no-fsync",
    ]


def _kube_apiserver(directory: Path, ports: Sequence[int]) -> Sequence[str]:
    return [
        f"--etcd-servers=http://{_HOST}:{ports[1]}",
        f"--bind-address={_HOST}",
        f"--advertise-address={_HOST}",
        f"--secure-port={ports[0]}",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={directory / 'server.crt'}",
        f"--tls-private-key-file={directory / 'server.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={directory / 'accounts.key'}",
        f"--service-account-key-file={directory / 'accounts.key'}",
        "--service-cluster-ip-range=10.96.0.0/24",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
    ]


def _key_of_service_accounts() -> bytes:
    """In the only form of an elliptic curve's key that kube-apiserver reads for this."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())


def _await_ready(directory: Path, port: int, started: Sequence[subprocess.Popen[bytes]]) -> None:
    context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    deadline = time.monotonic() + _START_SECONDS
    while not _is_ready(port, context):
        if time.monotonic() > deadline or any(process.poll() is not None for process in started):
            ends = [log.read_text(errors="replace").splitlines()[-10:] for log in sorted(directory.glob("*.log"))]
            raise ServerFailed("\n".join(["the real API server is not ready:", *ends[0], *ends[-1]]))
        time.sleep(_LOOK_SECONDS)


def _is_ready(port: int, context: ssl.SSLContext) -> bool:
    connection = http.client.HTTPSConnection(_HOST, port, context=context, timeout=5)
    try:
        connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {_TOKEN}"})
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()
