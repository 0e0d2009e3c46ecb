"""Which requests wait after a 429, and for how long."""

import asyncio
from dataclasses import replace

import pytest

from kargo_py.kube.errors import TooManyRequests
from kargo_py.kube.throttling import Gates
from tests.kube.fakes import THINGS

pytestmark = pytest.mark.looptime

OTHERS = replace(THINGS, plural="others", kind="Other")
BUSY = TooManyRequests(429, "TooManyRequests", "slow down")
FILLING = TooManyRequests(429, "TooManyRequests", "storage is (re)initializing: etcd is down")


async def waited(gates: Gates, verb: str, plural: str) -> float:
    now = asyncio.get_running_loop().time
    began = now()
    await gates.passed(verb, OTHERS if plural == "others" else THINGS, "the request")
    return now() - began


@pytest.mark.parametrize("verb", ["get", "list", "watch", "create", "replace", "patch", "delete"])
@pytest.mark.parametrize("plural", ["things", "others"])
@pytest.mark.parametrize("error", [BUSY, FILLING], ids=["busy", "filling"])
async def test_who_waits(verb: str, plural: str, error: TooManyRequests) -> None:
    """All when the server is busy; lists and watches of one kind while its cache is filled."""
    gates = Gates(60)
    gates.close(10, THINGS, error)

    concerned = error is BUSY or (plural == "things" and verb in {"list", "watch"})

    assert (await waited(gates, verb, plural) >= 10) is concerned


@pytest.mark.parametrize("first", [BUSY, FILLING], ids=["busy first", "filling first"])
async def test_both_gates(first: TooManyRequests) -> None:
    """A list waits for the later of the two, also if that was shut in the meantime."""
    gates = Gates(60)
    gates.close(10, THINGS, first)
    listing = asyncio.create_task(waited(gates, "list", "things"))
    await asyncio.sleep(5)
    gates.close(20, THINGS, FILLING if first is BUSY else BUSY)

    assert await listing >= 25


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BUSY, "the server asked not to be sent anything for another 7 s"),
        (
            FILLING,
            "the server is still filling its cache of things.example.com, and asked not to be asked for another 7 s",
        ),
    ],
    ids=["busy", "filling"],
)
async def test_for_longer_than_a_request_may_wait(error: TooManyRequests, text: str) -> None:
    """Then it is not sent, and the error says for what the server asked."""
    gates = Gates(5)
    gates.close(7, THINGS, error)
    gates.close(1, THINGS, error)  # a shorter one opens no gate

    with pytest.raises(TooManyRequests) as caught:
        await gates.passed("list", THINGS, "list things")

    assert (str(caught.value), caught.value.retry_after) == (f"list things: {text}", 7)
