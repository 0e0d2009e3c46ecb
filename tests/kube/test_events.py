"""Writing Kubernetes Events in the background."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kargo_py.kube.client import Codec
from kargo_py.kube.errors import AlreadyExists, Forbidden, KubeError, OutcomeUnknown, Unreachable
from kargo_py.kube.events import FLUSH_TIME, PATIENCE, REMEMBERED, Event, EventRecorder, Regarding, event_name
from kargo_py.kube.resources import Key, Resource
from tests.kube.fakes import THINGS, JsonObject, ScriptedClient

pytestmark = pytest.mark.looptime

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Server(ScriptedClient):
    """Takes Events; answers with an error where one is scripted for the name."""

    def __init__(self, **errors: KubeError) -> None:
        super().__init__()
        self.errors = errors
        self.written: list[tuple[str, JsonObject]] = []
        self.pause: asyncio.Event | None = None

    async def create(self, resource: Resource, namespace: str, body: bytes, *, codec: Codec[Any]) -> Any:
        await asyncio.sleep(0)
        if self.pause is not None:
            await self.pause.wait()
        event = json.loads(body)
        if error := self.errors.get(event["metadata"]["name"]):
            raise error
        self.written.append((namespace, event))
        return event


def event(name: str, message: str = "it happened") -> Event:
    return Event(Regarding(THINGS, Key("ns", "a"), "u"), name, "Happened", message, annotations={"k": "v"})


async def run_to_the_end(recorder: EventRecorder) -> None:
    """Run the recorder until it has nothing more to do, then stop it."""
    task = asyncio.create_task(recorder.run())
    await asyncio.sleep(1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_event() -> None:
    """An Event is a core/v1 object that kubectl shows, in the namespace of what it is about."""
    server = Server()
    recorder = EventRecorder(server, "kargo-py", "me", now=lambda: NOON)
    recorder.record(event("e1"))
    await run_to_the_end(recorder)

    ((namespace, written),) = server.written
    assert namespace == "ns"
    assert written == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e1", "namespace": "ns", "annotations": {"k": "v"}},
        "involvedObject": {
            "apiVersion": "example.com/v1",
            "kind": "Thing",
            "namespace": "ns",
            "name": "a",
            "uid": "u",
        },
        "reason": "Happened",
        "message": "it happened",
        "type": "Normal",
        "source": {"component": "kargo-py"},
        "reportingComponent": "kargo-py",
        "reportingInstance": "me",
        "firstTimestamp": "2026-11-30T12:00:00Z",
        "lastTimestamp": "2026-11-30T12:00:00Z",
        "count": 1,
    }


async def test_what_cannot_be_written(logged: list[Any]) -> None:
    """One told already is fine; one that is refused is logged and counted; both stop no other."""
    server = Server(twice=AlreadyExists(409, "AlreadyExists", "x"), never=Forbidden(403, "Forbidden", "not allowed"))
    recorder = EventRecorder(server, "kargo-py", "me")
    for name in ("twice", "never", "good"):
        recorder.record(event(name))
    await run_to_the_end(recorder)

    assert [written["metadata"]["name"] for _, written in server.written] == ["good"]
    assert (recorder.written, recorder.dropped) == (1, 1)
    assert [entry["event_name"] for entry in logged] == ["never"]


@pytest.mark.parametrize("error", [Unreachable("refused"), OutcomeUnknown("no answer")], ids=repr)
async def test_a_server_that_is_away_for_a_while(error: KubeError, logged: list[Any]) -> None:
    """What could not be written is tried again, and what waits behind it keeps its turn."""
    server = Server(e1=error)
    recorder = EventRecorder(server, "kargo-py", "me", now=lambda: NOON)
    recorder.record(event("e1"))
    recorder.record(event("e2"))
    asyncio.get_running_loop().call_later(30, server.errors.clear)
    task = asyncio.create_task(recorder.run())
    await asyncio.sleep(45)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert [written["metadata"]["name"] for _, written in server.written] == ["e1", "e2"]
    assert {written["firstTimestamp"] for _, written in server.written} == {"2026-11-30T12:00:00Z"}
    assert not logged


async def test_a_server_that_stays_away(logged: list[Any]) -> None:
    """An Event is given up in the end, and stopping waits for none."""
    server = Server(e1=Unreachable("refused"), e3=Unreachable("refused"))
    recorder = EventRecorder(server, "kargo-py", "me")
    recorder.record(event("e1"))
    recorder.record(event("e2"))
    task = asyncio.create_task(recorder.run())
    await asyncio.sleep(PATIENCE + 10)
    assert [entry["event_name"] for entry in logged] == ["e1"]
    assert [written["metadata"]["name"] for _, written in server.written] == ["e2"]
    recorder.record(event("e3"))
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert asyncio.get_running_loop().time() - began < 1
    assert [entry["event_name"] for entry in logged] == ["e1", "e3"]


async def test_the_oldest_are_dropped(logged: list[Any]) -> None:
    """More Events than can wait push the oldest out, which is said."""
    server = Server()
    recorder = EventRecorder(server, "kargo-py", "me", capacity=2)
    for name in ("e1", "e2", "e3"):
        recorder.record(event(name))
    await run_to_the_end(recorder)

    assert [written["metadata"]["name"] for _, written in server.written] == ["e2", "e3"]
    assert [entry["event_name"] for entry in logged] == ["e1"]


async def test_stopping_writes_what_is_queued() -> None:
    """What was recorded before the stop is still written."""
    server = Server()
    recorder = EventRecorder(server, "kargo-py", "me")
    task = asyncio.create_task(recorder.run())
    await asyncio.sleep(1)
    recorder.record(event("late"))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert len(server.written) == 1


async def test_a_write_that_is_cut_short_is_made_again() -> None:
    """An Event that is being written when the stop comes is written after it: its name makes that harmless."""
    server = Server()
    server.pause = asyncio.Event()
    recorder = EventRecorder(server, "kargo-py", "me")
    task = asyncio.create_task(recorder.run())
    recorder.record(event("e1"))
    recorder.record(event("e2"))
    await asyncio.sleep(1)
    task.cancel()
    server.pause = None
    with suppress(asyncio.CancelledError):
        await task

    assert [written["metadata"]["name"] for _, written in server.written] == ["e1", "e2"]


async def test_stopping_does_not_wait_for_ever(logged: list[Any]) -> None:
    """A server that has stopped answering gets some seconds; what is lost then is said."""
    server = Server()
    server.pause = asyncio.Event()
    recorder = EventRecorder(server, "kargo-py", "me")
    for name in ("e1", "e2"):
        recorder.record(event(name))
    start = asyncio.get_running_loop().time()
    await run_to_the_end(recorder)

    assert asyncio.get_running_loop().time() - start == 1 + FLUSH_TIME
    assert [entry["event_name"] for entry in logged] == ["e1", "e2"]


async def test_a_fault_of_ours_is_told(logged: list[Any]) -> None:
    """What must not happen costs one Event and is logged with its traceback; the others are written."""
    server = Server()
    recorder = EventRecorder(server, "kargo-py", "me")
    recorder.record(replace(event("odd"), annotations={"k": object()}))  # type: ignore[dict-item]
    recorder.record(event("good"))
    await run_to_the_end(recorder)

    assert [written["metadata"]["name"] for _, written in server.written] == ["good"]
    assert [(entry["event_name"], entry["log_level"]) for entry in logged] == [("odd", "error")]


async def test_long_messages_are_cut() -> None:
    """The server takes 1,024 bytes, and a character is not cut in half."""
    body = event("e", "é" * 1000).body("c", "i", NOON)

    assert len(body["message"].encode()) == 1024


async def test_event_names() -> None:
    """The same thing has the same name, and a long one fits."""
    assert event_name("a", "R", "x") == event_name("a", "R", "x") != event_name("a", "R", "y")
    assert len(event_name("a" * 300, "R")) <= 253


async def test_told_once() -> None:
    """The same thing is told once in half an hour, and again after that: the server has forgotten it."""
    server = Server()
    recorder = EventRecorder(server, "kargo-py", "me")
    task = asyncio.create_task(recorder.run())
    for pause in (1, REMEMBERED - 2, 2):
        recorder.record(event("e1"))
        await asyncio.sleep(pause)
    assert len(server.written) == 1
    recorder.record(event("e1"))
    assert recorder.knows(event("e1").key)
    await asyncio.sleep(1)
    assert len(server.written) == 2
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_what_was_lost_may_be_told_again() -> None:
    """An Event that could not be written does not count as told."""
    server = Server(e1=Forbidden(403, "Forbidden", "not allowed"))
    recorder = EventRecorder(server, "kargo-py", "me")
    recorder.record(event("e1"))
    await run_to_the_end(recorder)
    assert not recorder.knows(event("e1").key)
    server.errors.clear()
    recorder.record(event("e1"))
    await run_to_the_end(recorder)

    assert len(server.written) == 1


async def test_memory_is_bounded() -> None:
    """The longest ago is forgotten first; told once more, the server knows it."""
    recorder = EventRecorder(Server(), "kargo-py", "me", memory=2)
    for name in ("e1", "e2", "e3"):
        recorder.record(event(name))

    assert [recorder.knows(event(name).key) for name in ("e1", "e2", "e3")] == [False, True, True]
