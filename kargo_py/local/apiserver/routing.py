"""What a path names: a resource, its subresource, or something else that is served."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import unquote

_BAD_ESCAPE: Final = re.compile("%(?![0-9a-fA-F]{2})")


class BadPath(Exception):
    """The path is no path."""


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """A path below a group's version."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    """It has the old ``/watch/`` prefix."""


@dataclass(frozen=True, slots=True)
class OtherPath:
    """A path that names no resource, without the slash before it and those after it."""

    parts: tuple[str, ...]
    ends_in_slash: bool = False


Path: TypeAlias = ResourcePath | OtherPath


def parse(path: str) -> Path:
    """Take *path* apart. Raises BadPath."""
    if _BAD_ESCAPE.search(path):
        raise BadPath
    text = unquote(path)
    parts = tuple(text.removeprefix("/").rstrip("/").split("/"))
    found = None
    if parts[0] == "api" and len(parts) > 2:
        found = _resource("", parts[1], parts[2:])
    elif parts[0] == "apis" and len(parts) > 3:
        found = _resource(parts[1], parts[2], parts[3:])
    return found or OtherPath(parts, ends_in_slash=text.endswith("/") and text != "/")


def _resource(group: str, version: str, parts: tuple[str, ...]) -> ResourcePath | None:
    watch = parts[0] == "watch" and len(parts) > 1
    if watch:
        parts = parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in {"status", "finalize"}:
        namespace, parts = parts[1], parts[2:]
    if not all(parts):
        return None
    name = parts[1] if len(parts) > 1 else ""
    return ResourcePath(group, version, parts[0], namespace, name, "/".join(parts[2:]), watch)
