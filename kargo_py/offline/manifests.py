"""The objects in files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kargo_py.api.kinds import KINDS
from kargo_py.api.meta import GROUP
from kargo_py.api.types import JsonObject
from kargo_py.engine.problems import written
from kargo_py.expressions.templates import Path
from kargo_py.offline.documents import Document
from kargo_py.offline.files import File
from kargo_py.offline.findings import Finding, Level, Place

_OURS = frozenset(kind.model.kind_name for kind in KINDS)


@dataclass(frozen=True, slots=True)
class Manifest:
    """An object and where it stands: ``within`` is its path in the document, for what is an item of a List."""

    file: str
    document: Document
    within: Path
    value: JsonObject

    @property
    def kind(self) -> str:
        """What stands in ``kind``, as all of these "" if it is no text."""
        return _text(self.value, "kind")

    @property
    def api_version(self) -> str:
        """What stands in ``apiVersion``."""
        return _text(self.value, "apiVersion")

    @property
    def name(self) -> str:
        """What stands in ``metadata.name``."""
        return _text(self.value, "metadata", "name")

    @property
    def namespace(self) -> str:
        """What stands in ``metadata.namespace``; "" may be any: -n and Kustomize fill it in."""
        return _text(self.value, "metadata", "namespace")

    @property
    def is_kargos(self) -> bool:
        """Whether it is of Kargo's group, or would be but for its apiVersion."""
        return self.api_version.partition("/")[0] == GROUP or (not self.api_version and self.kind in _OURS)

    @property
    def title(self) -> str:
        """How people call it."""
        begin = _text(self.value, "metadata", "generateName")
        name = self.name or (f"{begin}…" if begin else "")
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{name}" if name else self.kind

    def place(self, path: Path, *, key: bool = False) -> Place:
        """Where the value at *path* stands, or its *key*, or what is nearest above it."""
        spot = self.document.spot((*self.within, *path))
        line, column = spot.key if key and spot.key else spot.shown
        return Place(self.file, line, column)

    def written(self, path: Path) -> str | None:
        """The text of what YAML read as a number, a boolean or null."""
        return self.document.written.get((*self.within, *path))

    def finding(self, path: Path, text: str, level: Level = Level.ERROR, *, key: bool = False) -> Finding:
        """Something about the value at *path*, or about its *key*."""
        return Finding(self.place(path, key=key), level, written(path), text, self.title)


def value_at(value: Any, path: Path) -> Any:
    """What stands at *path* in *value*, None if nothing."""
    for part in path:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def manifests(files: Iterable[File]) -> Iterator[Manifest]:
    """The objects in *files*, those in Lists one by one."""
    for file in files:
        for document in file.documents:
            for within, value in _objects(document.value):
                yield Manifest(file.name, document, within, value)


def _objects(value: Any) -> Iterator[tuple[Path, JsonObject]]:
    if not isinstance(value, dict):
        return
    items = value.get("items")
    if _text(value, "kind").endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            if isinstance(item, dict):
                yield ("items", index), item
        return
    yield (), value


def _text(value: Any, *names: str) -> str:
    found = value_at(value, names)
    return found if isinstance(found, str) else ""
