"""Writes whose outcome is not known at first."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.kube.client import Codec, PatchType
from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import (
    AlreadyExists,
    Conflict,
    ConnectionLost,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    OutcomeUnknown,
    TooManyRequests,
    Unreachable,
)
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.writes import ATTEMPTS, contains, guarded_create, guarded_patch, merge_diff, uninterrupted
from tests.kube.fakes import THINGS, JsonObject, ScriptedClient, thing

pytestmark = pytest.mark.looptime

KEY = Key("ns", "a")
UNKNOWN = OutcomeUnknown("reset")
CONFLICT = Conflict(409, "Conflict", "changed")
EXISTS = AlreadyExists(409, "AlreadyExists", "exists")
UNREACHABLE = Unreachable("refused")
THROTTLED = TooManyRequests(429, "TooManyRequests", "slow down")
FORBIDDEN = Forbidden(403, "Forbidden", "no")
LOST = ConnectionLost("reset")
INVALID = Invalid(422, "Invalid", "test failed")
OURS, THEIRS, NEW = thing("a", 8, mine=True), thing("a", 9), thing("a", 8, mine=True)


class Server(ScriptedClient):
    """Answers writes from a script."""

    def __init__(self, *answers: JsonObject | KubeError, live: JsonObject | KubeError | None = None) -> None:
        super().__init__()
        self.answers = list(answers)
        self.sent: list[bytes] = []
        if live is not None:
            self.objects[KEY] = live

    def _answer(self, body: bytes) -> Any:
        self.sent.append(body)
        answer = self.answers.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        return answer

    async def create(self, resource: Resource, namespace: str, body: bytes, *, codec: Codec[Any]) -> Any:
        return self._answer(body)

    async def patch(
        self,
        resource: Resource,
        key: Key,
        body: bytes,
        *,
        codec: Codec[Any],
        patch_type: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
    ) -> Any:
        return self._answer(body)


async def patch(server: Server) -> JsonObject:
    return await guarded_patch(server, THINGS, KEY, b"body", codec=JSON, landed=lambda o: bool(o.get("mine")))


async def create(server: Server) -> JsonObject:
    return await guarded_create(server, THINGS, KEY, b"body", codec=JSON, landed=lambda o: bool(o.get("mine")))


@pytest.mark.parametrize(
    ("server", "sent", "reads", "outcome"),
    [
        (Server(NEW), 1, 0, NEW),
        (Server(UNKNOWN, NEW), 2, 0, NEW),
        (Server(UNKNOWN, CONFLICT, live=OURS), 2, 1, OURS),
        (Server(UNKNOWN, INVALID, live=OURS), 2, 1, OURS),
        (Server(UNKNOWN, CONFLICT, live=THEIRS), 2, 1, Conflict),
        (Server(CONFLICT, live=OURS), 1, 0, Conflict),
        (Server(UNKNOWN, NotFound(404, "NotFound", "gone")), 2, 0, NotFound),
        (Server(UNKNOWN, CONFLICT), 2, 1, NotFound),
        (Server(*[UNKNOWN] * ATTEMPTS, live=THEIRS), ATTEMPTS, 1, OutcomeUnknown),
        (Server(*[UNKNOWN] * ATTEMPTS, live=OURS), ATTEMPTS, 1, OURS),
        (Server(UNKNOWN, CONFLICT, live=LOST), 2, 1, OutcomeUnknown),
        (Server(UNREACHABLE, live=OURS), 1, 0, Unreachable),
        (Server(UNKNOWN, UNREACHABLE, THROTTLED, NEW), 4, 0, NEW),
        (Server(UNKNOWN, *[UNREACHABLE] * (ATTEMPTS - 1), live=LOST), ATTEMPTS, 1, OutcomeUnknown),
        (Server(UNKNOWN, *[FORBIDDEN] * (ATTEMPTS - 1), live=THEIRS), ATTEMPTS, 1, OutcomeUnknown),
    ],
    ids=["at once", "sent again", "had landed", "had landed (json patch)", "had not landed", "a plain conflict",
         "deleted", "deleted, seen by the look", "never known", "never told, but seen", "the look fails",
         "not sent", "then refused for a while", "then the server is gone", "then no right to write"],
)  # fmt: skip
async def test_patch(server: Server, sent: int, reads: int, outcome: object) -> None:
    """Identical bytes are sent until the outcome is known; what comes after an unknown one proves nothing of it."""
    if isinstance(outcome, type):
        with pytest.raises(outcome):
            await patch(server)
    else:
        assert outcome == await patch(server)

    assert ([b"body"] * sent, reads) == (server.sent, len(server.reads))


async def test_create() -> None:
    """The name guards a create: AlreadyExists after an unknown outcome may be our own doing."""
    assert await create(Server(UNKNOWN, EXISTS, live=OURS)) == OURS
    with pytest.raises(AlreadyExists):
        await create(Server(UNKNOWN, EXISTS, live=THEIRS))
    with pytest.raises(AlreadyExists):
        await create(Server(EXISTS, live=OURS))
    with pytest.raises(OutcomeUnknown):
        await create(Server(UNKNOWN, EXISTS))
    with pytest.raises(OutcomeUnknown):
        await create(Server(UNKNOWN, *[NotFound(404, "NotFound", "no such namespace")] * (ATTEMPTS - 1)))


async def test_uninterrupted() -> None:
    """A write that has begun ends even if its caller is cancelled, and the cancellation goes on after it."""
    written: list[str] = []

    async def slow_write() -> str:
        await asyncio.sleep(5)
        written.append("done")
        return "answer"

    assert await uninterrupted(slow_write()) == "answer"
    task = asyncio.create_task(uninterrupted(slow_write()))
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert written == ["done", "done"]


async def test_uninterrupted_failure() -> None:
    """A failure reaches the caller; one that comes after a cancellation does not hide it."""

    async def fails() -> None:
        await asyncio.sleep(5)
        raise UNKNOWN

    with pytest.raises(OutcomeUnknown):
        await uninterrupted(fails())
    task = asyncio.create_task(uninterrupted(fails()))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert caught.value.__cause__ is UNKNOWN


JSON_VALUES = st.recursive(
    st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("xyz"), JSON_VALUES, max_size=3)


def apply(target: object, patch_: object) -> object:
    """RFC 7386, as the standard writes it."""
    if not isinstance(patch_, dict):
        return patch_
    out = dict(target) if isinstance(target, dict) else {}
    for name, value in patch_.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = apply(out.get(name), value)
    return out


def written(obj: object) -> str:
    """As JSON: for Python 1 and true are equal."""
    return json.dumps(obj, sort_keys=True)


@given(OBJECTS, OBJECTS)
def test_merge_diff(old: JsonObject, new: JsonObject) -> None:
    """The difference makes new of old, is empty exactly when they are equal, and is recognised once it has landed."""
    difference = merge_diff(old, new)

    assert written(new) == written(apply(old, difference))
    assert (difference == {}) == (written(old) == written(new))
    assert contains(new, difference)
    if difference:
        assert not contains(old, difference)


@pytest.mark.parametrize(("one", "other"), [(1, True), ([0], [False]), ({"a": [True]}, {"a": [1]})])
def test_a_truth_is_no_number(one: Any, other: Any) -> None:
    """For Python true is 1; in an object it is another value, which has to be written."""
    assert merge_diff({"a": one}, {"a": other}) == {"a": other}
    assert not contains({"a": one}, {"a": other})
    assert merge_diff({"a": one}, {"a": one}) == {}


def test_contains_ignores_the_guard() -> None:
    """The resourceVersion a patch was guarded by is no trace of it."""
    patch_ = {"metadata": {"resourceVersion": "7"}, "status": {"phase": "Running", "message": None}}

    assert contains(thing("a", 8, status={"phase": "Running"}), patch_)
    assert not contains(thing("a", 8, status={"phase": "Pending"}), patch_)
    assert not contains(thing("a", 8, status={"phase": "Running", "message": "x"}), patch_)
