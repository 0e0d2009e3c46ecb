"""Who lists and then follows a watch, as every cache does, has what a list has: through cuts and forgetting, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

import looptime
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kargo_py.local.apiserver.wire import JsonObject
from tests.local.apiserver.driving import FOOS, Driver, driver, foo

T = TypeVar("T")
NAMES = st.sampled_from(["a", "b", "c"])
LABELS = st.fixed_dictionaries({}, optional={"p": st.sampled_from(["1", "2"])})
INITIAL = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&"


class Follower:
    """A cache of what a selector selects."""

    def __init__(self, selector: str, *, initial: bool) -> None:
        self.selector = selector
        self.initial = initial
        self.objects: dict[str, JsonObject] = {}
        self.version = ""
        self.events: AsyncGenerator[JsonObject] | None = None

    async def start(self, api: Driver) -> None:
        """Begin anew: with a list, or with a watch that tells what there is."""
        await self.stop()
        self.objects, self.version = {}, ""
        query = INITIAL if self.initial else ""
        if not self.initial:
            listed = await api.get(f"{FOOS}?labelSelector={self.selector}")
            self.version = listed.version
            for item in listed.obj["items"]:
                self.objects[item["metadata"]["name"]] = {"apiVersion": "ex.io/v1", "kind": "Foo", **item}
            query = f"resourceVersion={self.version}&"
        await self._watch(api, query)

    async def resume(self, api: Driver) -> None:
        """Go on from the last version that was seen."""
        await self.stop()
        await self._watch(api, f"resourceVersion={self.version}&")

    async def _watch(self, api: Driver, query: str) -> None:
        self.events = await api.watch(
            f"{FOOS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=100&{query}labelSelector={self.selector}"
        )

    async def stop(self) -> None:
        """Cut the watch."""
        if self.events is not None:
            await self.events.aclose()

    async def level(self, api: Driver) -> None:
        """Read until a bookmark says that all until now was told."""
        for _ in range(2):
            assert self.events is not None
            async for event in self.events:
                if event["type"] == "ERROR":
                    assert event["object"]["code"] == 410
                    break
                self._take(event)
                if event["type"] == "BOOKMARK" and self.version == str(api.server.store.version):
                    return
            # Too old, or ended: begin anew, and then it must come to an end.
            await self.start(api)
        raise AssertionError("a watch never came to the present")

    def _take(self, event: JsonObject) -> None:
        metadata = event["object"]["metadata"]
        assert not self.version or int(metadata["resourceVersion"]) >= int(self.version) or self.initial
        self.version = metadata["resourceVersion"]
        name = metadata.get("name")
        match event["type"]:
            case "ADDED":
                assert name not in self.objects, "an object was added twice"
                self.objects[name] = event["object"]
            case "MODIFIED":
                assert name in self.objects, "an object was changed that had not been added"
                self.objects[name] = event["object"]
            case "DELETED":
                del self.objects[name]
            case other:
                assert other == "BOOKMARK"


class Following(RuleBasedStateMachine):
    """Writes, cuts and forgetting in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = looptime.new_event_loop()
        self.api: Driver
        self.followers: list[Follower] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do *work* in simulated time."""
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        """Serve, and let four follow."""
        self.api = self.run(driver())
        for selector in ("", "p=1", "!p"):
            for initial in (False, True):
                self.followers.append(Follower(selector, initial=initial))
        for follower in self.followers:
            self.run(follower.start(self.api))

    @rule(name=NAMES, labels=LABELS, held=st.booleans())
    def create(self, name: str, labels: dict[str, str], held: bool) -> None:
        """Or find it there."""
        finalizers = {"finalizers": ["ex.io/held"]} if held else {}
        answer = self.run(self.api.post(FOOS, foo(name, labels=labels, **finalizers)))
        assert answer.code in {201, 409}

    @rule(name=NAMES, label=st.sampled_from(["1", "2", None]), number=st.integers(0, 3))
    def change(self, name: str, label: str | None, number: int) -> None:
        """Labels and spec; sometimes nothing."""
        patch = {"metadata": {"labels": {"p": label}}, "spec": {"a": number}}
        assert self.run(self.api.merge(f"{FOOS}/{name}", patch)).code in {200, 404}

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        """At once, or when it is released."""
        assert self.run(self.api.delete(f"{FOOS}/{name}")).code in {200, 404}

    @rule(name=NAMES)
    def release(self, name: str) -> None:
        """Take the finalizer off."""
        assert self.run(self.api.merge(f"{FOOS}/{name}", {"metadata": {"finalizers": None}})).code in {200, 404}

    @rule(which=st.integers(0, 5), anew=st.booleans())
    def cut(self, which: int, anew: bool) -> None:
        """And go on from the last version, or begin anew."""
        follower = self.followers[which]
        self.run(follower.start(self.api) if anew or not follower.version else follower.resume(self.api))

    @rule()
    def forget(self) -> None:
        """What was before is known no longer."""
        self.api.server.store.forget()

    @rule()
    def let_time_pass(self) -> None:
        """Bookmarks come, and watches end."""
        self.run(asyncio.sleep(70))

    @rule()
    def catch_up(self) -> None:
        """Read all there is: every follower has what its list has."""
        for follower in self.followers:
            self.run(follower.level(self.api))
            listed = self.run(self.api.get(f"{FOOS}?labelSelector={follower.selector}"))
            expected = {item["metadata"]["name"]: item for item in listed.obj["items"]}
            assert follower.objects == expected

    @precondition(lambda self: hasattr(self, "api"))
    @invariant()
    def nothing_sleeps_that_nobody_reads(self) -> None:
        """Between reads no watch waits in the store."""
        assert self.api.server.store.collection("ex.io", "foos").waiting == 0

    def teardown(self) -> None:
        """Catch up once more, and end."""
        if self.followers:
            self.catch_up()
        for follower in self.followers:
            self.run(follower.stop())
        self.run(self.loop.shutdown_asyncgens())
        self.loop.close()


TestFollowing = Following.TestCase
TestFollowing.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
