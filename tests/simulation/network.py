"""The network between a process and the API server: how long everything takes, and who is cut off.

It stands before the server's core, under the real client. What a request costs is drawn from the seed, with a long
tail; a request that is on its way arrives even if its sender has died meanwhile, or has given it up. Events of one
watch keep their order, requests overtake each other.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from contextvars import Context
from dataclasses import dataclass, field

from kargo_py.local.apiserver.wire import Dropped, Handler, Request, Response, Stream


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks for something, and when that was decided: when these very bytes were sent for the first time."""

    agent: str
    life: int = 0
    decided: float = 0.0


SERVER = Asking("server")

asking: contextvars.ContextVar[Asking] = contextvars.ContextVar("asking", default=SERVER)
"""Who asked for what the server is writing just now."""


@dataclass(slots=True)
class Latency:
    """How long a message takes one way: mostly about *usual* seconds, sometimes ten or a hundred times that."""

    chance: random.Random
    usual: float

    def __call__(self) -> float:
        factor = self.chance.random()
        if factor < 0.002:
            return self.usual * 100 * self.chance.random()
        if factor < 0.03:
            return self.usual * 10 * self.chance.random()
        return self.usual * (0.3 + self.chance.random())


@dataclass(eq=False)
class Network:
    """What one program has between itself and the server; *agent* is who the server takes it for."""

    core: Handler
    agent: str
    latency: Callable[[], float]
    life: int = 0
    """How many processes of this program there were before."""
    cut: bool = False
    """Nothing gets through in either direction."""
    requests: int = 0
    shown: list[tuple[float, bytes]] = field(default_factory=list)
    """The events of Applications that have arrived, and when."""
    _decided: dict[tuple[str, bytes], float] = field(default_factory=dict)
    _watches: dict[_Watch, None] = field(default_factory=dict)
    _carriers: set[asyncio.Task[None]] = field(default_factory=set)

    async def handle(self, request: Request) -> Response | Stream:
        """Carry *request* to the server, and its answer back."""
        self.requests += 1
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response | Stream] = loop.create_future()
        decided = self._decided.setdefault((request.path, request.body), loop.time())
        carrier = loop.create_task(
            self._carry(request, decided, self.latency(), self.latency(), answer),
            name=f"{self.agent} asks",
            context=Context(),
        )
        self._carriers.add(carrier)
        carrier.add_done_callback(self._carriers.discard)
        return await answer

    def hang_up(self) -> None:
        """The program is dead: the server notices, and sends it nothing any more."""
        for watch in list(self._watches):
            watch.stop()

    async def _carry(
        self, request: Request, decided: float, there: float, back: float, answer: asyncio.Future[Response | Stream]
    ) -> None:
        """The way of one request; it goes on whatever becomes of the sender."""
        try:
            await asyncio.sleep(there)
            self._pass(carried_out=False)
            asking.set(Asking(self.agent, self.life, decided))
            given = await self.core.handle(request)
            watch = _Watch(self, given, request.path) if isinstance(given, Stream) else None
            await asyncio.sleep(back)
            if watch is not None and (self.cut or answer.done()):
                watch.stop()
            self._pass(carried_out=True)
        except Dropped as error:
            if not answer.done():
                answer.set_exception(error)
            return
        if not answer.done():
            answer.set_result(watch.stream() if watch is not None else given)

    def _pass(self, *, carried_out: bool) -> None:
        if self.cut:
            raise Dropped(carried_out=carried_out)

    def began(self, watch: _Watch) -> None:
        """It is open now."""
        self._watches[watch] = None

    def forget(self, watch: _Watch) -> None:
        """It has ended."""
        self._watches.pop(watch, None)


class _Watch:
    """The lines of one watch on their way: in their order, each as late as it happens to be."""

    def __init__(self, network: Network, stream: Stream, path: str) -> None:
        self._network = network
        self._stream = stream
        self._way: asyncio.Queue[tuple[float, bytes | Dropped | None]] = asyncio.Queue()
        self._last = 0.0
        self._kept = path.endswith("/applications")
        loop = asyncio.get_running_loop()
        self._pump = loop.create_task(self._send(), name=f"{network.agent} watches", context=Context())
        network.began(self)

    def stop(self) -> None:
        """The sender's end is closed."""
        self._pump.cancel()
        self._network.forget(self)

    async def _send(self) -> None:
        try:
            async with aclosing(self._stream.lines):
                async for line in self._stream.lines:
                    self._put(line)
            self._put(None)
        except Dropped as error:
            self._put(error)

    def _put(self, what: bytes | Dropped | None) -> None:
        self._last = max(self._last, asyncio.get_running_loop().time() + self._network.latency())
        self._way.put_nowait((self._last, what))

    def stream(self) -> Stream:
        """What the receiver gets."""
        return Stream(self._stream.code, self._lines(), self._stream.content_type, self._stream.warnings)

    async def _lines(self) -> AsyncGenerator[bytes]:
        """What arrives; nothing while the network is cut, until the receiver gives up."""
        try:
            while True:
                at, what = await self._way.get()
                await asyncio.sleep(max(at - asyncio.get_running_loop().time(), 0))
                if self._network.cut:
                    await asyncio.Event().wait()
                if what is None:
                    return
                if isinstance(what, Dropped):
                    raise what
                if self._kept and what.endswith(b"\n"):
                    self._network.shown.append((asyncio.get_running_loop().time(), what))
                yield what
        finally:
            self.stop()
