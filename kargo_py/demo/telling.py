"""Does what the scenes say, shows it, and stops with a reason as soon as something is not as told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

import yaml

from kargo_py.argocd.application import APPLICATIONS
from kargo_py.controllers.world import FREIGHTS, NAMESPACES, PROMOTIONS, STAGES
from kargo_py.demo.acts import Act, Annotate, Create, Hang, Look, Ref, Scene, Wait, at, typed
from kargo_py.demo.picture import Picture, picture
from kargo_py.demo.pipeline import STAGES as STAGE_NAMES
from kargo_py.kube.cache import Cache
from kargo_py.kube.client import Client, JsonObject
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import KubeError
from kargo_py.kube.resources import Key, Resource
from kargo_py.messages import Shown, message

PROJECTS: Final = Resource(STAGES.group, STAGES.version, "projects", "Project", namespaced=False)
RESOURCES: Final = (APPLICATIONS, FREIGHTS, NAMESPACES, PROJECTS, PROMOTIONS, STAGES)

NOT_AS_TOLD = message(
    "{command}: expected {expected}; seen: {seen}",
    do="A fault of kargo-py, or a machine too busy for the time-out named: run it again, and report it with its output "
    "if it comes again.",
    shown=Shown.COMMAND_LINE,
)
NOT_DONE = message(
    "{command}: {error}",
    do="A fault of kargo-py: the demo's own API server refused what the demo asked of it. Report it with its output.",
    shown=Shown.COMMAND_LINE,
)


class NotAsTold(Exception):
    """Something went otherwise than the story says; the text is one sentence."""


class Screen(Protocol):
    """Where it is shown."""

    def scene(self, number: int, scene: Scene) -> None:
        """A scene begins."""

    def command(self, command: str) -> None:
        """A user types this."""

    def answer(self, text: str) -> None:
        """What the command prints."""

    def aside(self, text: str) -> None:
        """What is done behind the scenes."""

    def show(self, picture: Picture) -> None:
        """What the cluster looks like now."""


class Hands(Protocol):
    """Who types: does what a command says, and returns what it prints. Raises NotAsTold."""

    async def create(self, act: Create) -> str:
        """Create what stands in the file."""

    async def annotate(self, act: Annotate) -> str:
        """Write annotations."""

    async def get(self, ref: Ref) -> JsonObject:
        """Read an object."""


class ClientHands:
    """Sends what kubectl would send."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, act: Create) -> str:
        answers = []
        for manifest in act.manifests:
            resource = _resource(manifest)
            namespace = manifest["metadata"].get("namespace", "")
            await self._client.create(resource, namespace, encode(manifest), codec=JSON)
            answers.append(f"{Ref(resource, Key(namespace, manifest['metadata']['name'])).qualified} created")
        return "\n".join(answers)

    async def annotate(self, act: Annotate) -> str:
        body = encode({"metadata": {"annotations": dict(act.annotations)}})
        await self._client.patch(act.ref.resource, act.ref.key, body, codec=JSON)
        return f"{act.ref.qualified} annotated"

    async def get(self, ref: Ref) -> JsonObject:
        return await self._client.get(ref.resource, ref.key, codec=JSON)


class Sight:
    """The objects of the story, as they are now."""

    def __init__(self, client: Client) -> None:
        self._caches = {
            resource: Cache(client, resource, codec=JSON) for resource in (STAGES, PROMOTIONS, FREIGHTS, APPLICATIONS)
        }
        self._waiting: list[asyncio.Event] = []

    @asynccontextmanager
    async def following(self, tell: Callable[[Picture], None]) -> AsyncIterator[None]:
        """Keep it current, and give *tell* every new picture."""

        def changed(_old: JsonObject | None, _new: JsonObject | None) -> None:
            tell(self.picture())
            for event in self._waiting:
                event.set()

        tasks = [asyncio.create_task(cache.run(), name=f"{cache.resource}") for cache in self._caches.values()]
        try:
            for cache in self._caches.values():
                await cache.wait_synced()
                cache.subscribe(changed)
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def get(self, ref: Ref) -> JsonObject | None:
        """The object; None if there is none."""
        return self._caches[ref.resource].get(ref.key)

    def picture(self) -> Picture:
        """All of them."""
        values = {resource: cache.values() for resource, cache in self._caches.items()}
        return picture(values[STAGES], values[PROMOTIONS], values[FREIGHTS], values[APPLICATIONS], STAGE_NAMES)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until *condition* holds; it is asked after every change."""
        news = asyncio.Event()
        self._waiting.append(news)
        try:
            while not condition():
                news.clear()
                await news.wait()
        finally:
            self._waiting.remove(news)


class Teller:
    """Tells a story."""

    def __init__(
        self, screen: Screen, hands: Hands, sight: Sight, directory: Path, hang: Callable[[str], None]
    ) -> None:
        self._screen = screen
        self._hands = hands
        self._sight = sight
        self._directory = directory
        self._hang = hang

    async def tell(self, scenes: Sequence[Scene]) -> None:
        """All scenes, one after the other. Raises NotAsTold."""
        for number, scene in enumerate(scenes, 1):
            self._screen.scene(number, scene)
            for act in scene.acts:
                await self._perform(act)

    async def _perform(self, act: Act) -> None:
        if isinstance(act, Hang):
            self._hang(act.application)
            self._screen.aside(f"the next sync of Application {act.application} will hang")
            return
        command = typed(act.command)
        if isinstance(act, Create):
            await asyncio.to_thread(_write, self._directory / act.file, act.manifests)
        self._screen.command(command)
        try:
            self._screen.answer(await self._carry_out(act, command))
        except KubeError as error:
            raise NotAsTold(NOT_DONE(command=command, error=error)) from error

    async def _carry_out(self, act: Create | Annotate | Wait | Look, command: str) -> str:
        match act:
            case Create():
                return await self._hands.create(act)
            case Annotate():
                return await self._hands.annotate(act)
            case Wait():
                await self._wait(act, command)
                return f"{act.ref.qualified} condition met"
            case Look():
                obj = await self._hands.get(act.ref)
                seen = str(at(obj, act.path) or "")
                if missing := act.missing(obj):
                    expected = " and ".join(f"“{word}”" for word in missing)
                    raise NotAsTold(NOT_AS_TOLD(command=command, expected=expected, seen=seen or "nothing"))
                return seen

    async def _wait(self, act: Wait, command: str) -> None:
        try:
            async with asyncio.timeout(act.seconds):
                await self._sight.until(lambda: _decided(act, self._sight.get(act.ref)))
        except TimeoutError:
            pass
        obj = self._sight.get(act.ref)
        if not act.is_met(obj):
            expected = f"{act.value or 'something'} within {act.seconds} seconds"
            raise NotAsTold(NOT_AS_TOLD(command=command, expected=expected, seen=_seen(act, obj)))


def _decided(act: Wait, obj: JsonObject | None) -> bool:
    return act.is_met(obj) or act.is_vain(obj)


def _seen(act: Wait, obj: JsonObject | None) -> str:
    if obj is None:
        return f"no {act.ref.slashed}"
    told = [str(at(obj, act.path) or "nothing there"), str(at(obj, ("status", "message")) or "")]
    return ": ".join(part for part in told if part)


def _resource(manifest: JsonObject) -> Resource:
    named = manifest["apiVersion"], manifest["kind"]
    return next(each for each in RESOURCES if (each.api_version, each.kind) == named)


def _write(path: Path, manifests: Sequence[JsonObject]) -> None:
    path.write_text(yaml.safe_dump_all(manifests, sort_keys=False), encoding="utf-8")
