"""The network of a simulated history: what arrives, when, in which order, and what does not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from kargo_py.local.apiserver.wire import Dropped, Request, Response, Stream
from kargo_py.local.simulation.loop import simulate
from tests.simulation.network import Asking, Latency, Network, asking

GET = Request("GET", "/apis/argoproj.io/v1alpha1/applications")
PATCH = Request("PATCH", "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/a", body=b"{}")


@dataclass
class Core:
    """A server that notes when it was asked, and shows numbers to who watches."""

    asked: list[tuple[float, Asking]] = field(default_factory=list)
    closed: list[float] = field(default_factory=list)

    async def handle(self, request: Request) -> Response | Stream:
        self.asked.append((asyncio.get_running_loop().time(), asking.get()))
        return Stream(200, self._lines()) if request is GET else Response(200, b"done")

    async def _lines(self) -> AsyncGenerator[bytes]:
        try:
            for number in range(100):
                yield b"%d\n" % number
                await asyncio.sleep(0.001)
            await asyncio.sleep(1000)
        finally:
            self.closed.append(asyncio.get_running_loop().time())


def played(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    assert simulate(main).left == []


def test_both_ways_take_their_time() -> None:
    """The server is asked after one latency, the answer is there after two; who asks is known to it."""

    async def main() -> None:
        core = Core()
        network = Network(core, "me", lambda: 2.0, life=3)
        assert await network.handle(PATCH) == Response(200, b"done")
        assert asyncio.get_running_loop().time() == 4.0
        assert core.asked == [(2.0, Asking("me", 3, 0.0))]
        await network.handle(PATCH)
        assert core.asked[1] == (6.0, Asking("me", 3, 0.0))  # the same bytes were decided on at 0

    played(main)


def test_a_request_arrives_though_its_sender_gave_it_up() -> None:
    """Nobody can call it back."""

    async def main() -> None:
        core = Core()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await Network(core, "me", lambda: 2.0).handle(PATCH)
        await asyncio.sleep(5)
        assert len(core.asked) == 1

    played(main)


def test_nothing_gets_through_while_it_is_cut() -> None:
    """On the way there it is not carried out, on the way back it was; a watch is silent."""

    async def main() -> None:
        core = Core()
        network = Network(core, "me", lambda: 2.0)
        network.cut = True
        with pytest.raises(Dropped) as lost:
            await network.handle(PATCH)
        assert not lost.value.carried_out
        network.cut = False
        asyncio.get_running_loop().call_later(3, setattr, network, "cut", True)
        with pytest.raises(Dropped) as lost:
            await network.handle(PATCH)
        assert lost.value.carried_out
        assert len(core.asked) == 1
        network.cut = False
        watch = await network.handle(GET)
        assert isinstance(watch, Stream)
        assert await anext(watch.lines) == b"0\n"
        network.cut = True
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(500):
                await anext(watch.lines)
        await asyncio.sleep(1)
        assert core.closed

    played(main)


def test_events_keep_their_order() -> None:
    """However long each is under way; the server sees the end when the receiver is through."""

    async def main() -> None:
        core = Core()
        network = Network(core, "me", Latency(random.Random(1), 0.05))
        watch = await network.handle(GET)
        assert isinstance(watch, Stream)
        assert [await anext(watch.lines) for _ in range(100)] == [b"%d\n" % number for number in range(100)]
        assert len(network.shown) == 100
        await watch.lines.aclose()
        await asyncio.sleep(1)
        assert len(core.closed) == 1

    played(main)


def test_the_server_notices_who_is_dead() -> None:
    """Whether the answer had arrived or not."""

    async def main() -> None:
        core = Core()
        network = Network(core, "me", lambda: 1.0)
        watch = await network.handle(GET)
        network.hang_up()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await network.handle(GET)
        await asyncio.sleep(5)
        assert len(core.closed) == 2
        assert isinstance(watch, Stream)

    played(main)


def test_latency_has_a_long_tail() -> None:
    """Most are about as usual, some far from it."""
    latency = Latency(random.Random(1), 0.01)
    drawn = sorted(latency() for _ in range(5000))
    assert 0.003 < drawn[2500] < 0.013
    assert 0.2 < drawn[-1] < 1
