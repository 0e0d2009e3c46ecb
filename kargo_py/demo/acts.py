"""What is done in the story, as values: each is a command that a user could type, and each can be checked."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kargo_py.kube.client import JsonObject
from kargo_py.kube.resources import Key, Resource


@dataclass(frozen=True, slots=True)
class Ref:
    """Names an object, as kubectl does."""

    resource: Resource
    key: Key

    @property
    def slashed(self) -> str:
        """``promotion/dev.1``."""
        return f"{self.resource.kind.lower()}/{self.key.name}"

    @property
    def qualified(self) -> str:
        """``promotion.kargo.akuity.io/dev.1``, as kubectl's answers have it."""
        group = f".{self.resource.group}" if self.resource.group else ""
        return f"{self.resource.kind.lower()}{group}/{self.key.name}"

    @property
    def scope(self) -> list[str]:
        """``-n shop``; nothing for a cluster-scoped kind."""
        return ["-n", self.key.namespace] if self.key.namespace else []


Path: TypeAlias = tuple[str | int, ...]


def at(obj: JsonObject | None, path: Path) -> Any:
    """What stands at *path*; None where nothing does."""
    found: Any = obj
    for part in path:
        match found, part:
            case dict(), str():
                found = found.get(part)
            case list(), int() if part < len(found):
                found = found[part]
            case _:
                return None
    return found


@dataclass(frozen=True, slots=True)
class Create:
    """Create what stands in a file."""

    file: str
    manifests: Sequence[JsonObject]

    @property
    def command(self) -> list[str]:
        """How a user types it."""
        return ["kubectl", "create", "-f", self.file]


@dataclass(frozen=True, slots=True)
class Annotate:
    """Put annotations on an object that has none of these."""

    ref: Ref
    annotations: Mapping[str, str]

    @property
    def command(self) -> list[str]:
        """How a user types it."""
        pairs = [f"{name}={value}" for name, value in self.annotations.items()]
        return ["kubectl", "annotate", self.ref.slashed, *self.ref.scope, *pairs]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until *value* stands at *path*, or, without one, until anything does."""

    ref: Ref
    path: Path
    value: str = ""
    never: Sequence[str] = ()
    """Values after which waiting is in vain."""
    seconds: int = 20

    @property
    def command(self) -> list[str]:
        """How a user types it."""
        what = f"--for=jsonpath={_jsonpath(self.path)}" + (f"={self.value}" if self.value else "")
        return ["kubectl", "wait", self.ref.slashed, *self.ref.scope, what, f"--timeout={self.seconds}s"]

    def is_met(self, obj: JsonObject | None) -> bool:
        """Whether it stands there."""
        found = at(obj, self.path)
        return str(found) == self.value if self.value else found is not None

    def is_vain(self, obj: JsonObject | None) -> bool:
        """Whether it will not come any more."""
        return at(obj, self.path) in self.never


@dataclass(frozen=True, slots=True)
class Look:
    """Read a text and find these words in it."""

    ref: Ref
    path: Path
    words: Sequence[str]

    @property
    def command(self) -> list[str]:
        """How a user types it."""
        return ["kubectl", "get", self.ref.slashed, *self.ref.scope, "-o", f"jsonpath={_jsonpath(self.path)}"]

    def missing(self, obj: JsonObject | None) -> list[str]:
        """The words that are not in the text."""
        text = str(at(obj, self.path) or "")
        return [word for word in self.words if word not in text]


@dataclass(frozen=True, slots=True)
class Hang:
    """Let a hook of the next sync of an Application run for ever: a word to the simulated Argo CD, not to the API."""

    application: str


Act: TypeAlias = Create | Annotate | Wait | Look | Hang


@dataclass(frozen=True, slots=True)
class Scene:
    """A part of the story; ``told`` is for the reader."""

    title: str
    told: str
    acts: Sequence[Act] = field(default=())


def typed(command: Sequence[str]) -> str:
    """A command as it stands in a shell."""
    return " ".join(_quoted(part) for part in command)


def _quoted(word: str) -> str:
    """With quotes only around the JSON path and what is compared with it, as kubectl's manual writes it."""
    found = re.fullmatch(r"((?:--for=)?jsonpath=)(\{.*?\})(?:(=)(.*))?", word)
    if found is None:
        return shlex.quote(word)
    option, path, sign, value = found.groups(default="")
    return f"{option}{shlex.quote(path)}{sign}{shlex.quote(value) if value else ''}"


def _jsonpath(path: Path) -> str:
    return "{" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path) + "}"
