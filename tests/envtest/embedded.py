"""The embedded API server under the same handle as the real one, so that one test can run on both.

It runs on an event loop and in a thread of its own: tests talk to it over sockets, and may block while they do. What
is the real server's alone (etcd, roles) is not played.
"""

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncGenerator, Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from kargo_py.kube.clock import utc_now
from kargo_py.local.apiserver import tls, wire
from kargo_py.local.apiserver.attributes import attributes
from kargo_py.local.apiserver.serve import Address, serving
from kargo_py.local.apiserver.server import ApiServer as Core
from tests.envtest.access import USERS, JsonObject, UserName
from tests.envtest.server import HOST, ApiServer, Ports

T = TypeVar("T")

_KEPT: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_VERBS_OF_STREAMS: Final = frozenset({"watch"})


class RealOnly(Exception):
    """A test asked the embedded server for what only the real one has."""


class EmbeddedServer(ApiServer):
    """An embedded API server; made by :func:`embedded`."""

    def __init__(self, directory: Path) -> None:
        """Make it; :meth:`start` serves it."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.ca_file = directory / "ca.crt"
        self._credentials = tls.issue()
        self.ca_file.write_bytes(self._credentials.authority)
        self._tls = ssl.create_default_context(cafile=str(self.ca_file))
        self._ports = Ports(0, 0, 0)
        self._runner = asyncio.Runner()
        self._thread = threading.Thread(target=self._runner.get_loop().run_forever, daemon=True)
        self._core = Core(now=utc_now)
        self._door = _Door(self._core)
        self._closing: asyncio.Event | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def pids(self) -> dict[str, int]:
        """None: it is this process."""
        return {}

    # Life

    def start(self) -> None:
        self._thread.start()
        self.restart()

    def stop(self) -> None:
        self.kill()
        self._call(self._close())
        self._runner.get_loop().call_soon_threadsafe(self._runner.get_loop().stop)
        self._thread.join()
        self._runner.close()

    def pause(self) -> None:
        self._call(self._door.set_frozen(frozen=True))

    def resume(self) -> None:
        self._call(self._door.set_frozen(frozen=False))

    def kill(self) -> None:
        self._call(self._stop_serving())

    def restart(self) -> None:
        self.kill()
        self._call(self._start_serving())

    def restore(self) -> None:
        self.resume()
        if self._serving is None:
            self.restart()

    def stop_etcd(self) -> NoReturn:
        raise RealOnly("the embedded server has no etcd")

    start_etcd = back_up = roll_back = stop_etcd

    def forget_history(self) -> None:
        """As on a real server: whatever version a client has seen last is forgotten, too."""
        for moment in ("before", "after"):
            change = {"metadata": {"annotations": {"envtest.example.com/history": moment}}}
            self.request("PATCH", "/api/v1/namespaces/default", change, content_type="application/merge-patch+json")
        self._call(self._forget())
        self.restart()

    def audited(self, user: UserName | None = None) -> list[JsonObject]:
        name = USERS[user].name if user else None
        return [event for event in list(self._door.audit) if name in {None, event["user"]["username"]}]

    def await_custom_resources(self) -> None:
        """They are served as soon as they are written."""

    # The thread

    def _call(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self._runner.get_loop()).result(timeout=30)

    async def _start_serving(self) -> None:
        started: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._serving = asyncio.create_task(self._serve(started, self._closing))
        self._serving.add_done_callback(lambda task: None if started.done() else _give_up(started, task))
        address = await started
        self._ports = Ports(address.port, 0, 0)

    async def _serve(self, started: "asyncio.Future[Address]", closing: asyncio.Event) -> None:
        users = {user.token: user.name for user in USERS.values()}
        token = USERS["admin"].token
        async with serving(
            self._door, host=HOST, port=self._ports.apiserver, token=token, users=users, credentials=self._credentials
        ) as address:
            started.set_result(address)
            await closing.wait()

    async def _stop_serving(self) -> None:
        if self._serving is not None and self._closing is not None:
            self._closing.set()
            await self._serving
            self._serving = None

    async def _forget(self) -> None:
        self._core.store.forget()

    async def _close(self) -> None:
        self._core.close()


def _give_up(started: "asyncio.Future[Address]", task: "asyncio.Task[None]") -> None:
    started.set_exception(task.exception() or RuntimeError("the server ended before it served"))


class _Door:
    """Stands before the core: can freeze everything, and keeps an audit log."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._open = asyncio.Event()
        self._open.set()
        self.audit: list[JsonObject] = []

    async def set_frozen(self, *, frozen: bool) -> None:
        """Answer nothing, or go on."""
        if frozen:
            self._open.clear()
        else:
            self._open.set()

    async def handle(self, request: wire.Request) -> wire.Response | wire.Stream:
        """Answer *request* when the door is open."""
        await self._open.wait()
        received = utc_now().isoformat(timespec="microseconds").replace("+00:00", "Z")
        answer = await self._core.handle(request)
        about = attributes(request)
        if about.resource:
            self.audit.append(_audit_event(request, answer.code, received))
        if isinstance(answer, wire.Stream):
            return wire.Stream(answer.code, self._lines(answer), answer.content_type, answer.warnings)
        await self._open.wait()
        return answer

    async def _lines(self, answer: wire.Stream) -> AsyncGenerator[bytes]:
        try:
            async for line in answer.lines:
                await self._open.wait()
                yield line
        finally:
            await answer.lines.aclose()


def _audit_event(request: wire.Request, code: int, received: str) -> JsonObject:
    about = attributes(request)
    reference: dict[str, Any] = {"resource": about.resource, "apiGroup": about.group}
    more = {"namespace": about.namespace, "name": about.name, "subresource": about.subresource}
    reference |= {field: value for field, value in more.items() if value}
    event: JsonObject = {
        "stage": "ResponseStarted" if about.verb in _VERBS_OF_STREAMS else "ResponseComplete",
        "verb": about.verb,
        "requestURI": request.path,
        "user": {"username": request.user},
        "userAgent": request.headers.get("user-agent", ""),
        "objectRef": reference,
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": received,
    }
    if about.verb in _KEPT and request.body:
        event["requestObject"] = _body(request.body)
    return event


def _body(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


@contextmanager
def embedded(directory: Path) -> Iterator[EmbeddedServer]:
    """Run a server that keeps its certificate and kubeconfigs in *directory*."""
    server = EmbeddedServer(directory)
    server.start()
    try:
        yield server
    finally:
        server.stop()
