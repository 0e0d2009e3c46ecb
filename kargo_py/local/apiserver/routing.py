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
    """A path that names no resource, without its outer slashes."""

    parts: tuple[str, ...]


Path: TypeAlias = ResourcePath | OtherPath


def parse(path: str) -> Path:
    """Take *path* apart. Raises BadPath."""
    if _BAD_ESCAPE.search(path):
        raise BadPath
    parts = tuple(unquote(path).strip("/").split("/"))
    if parts[0] == "api" and len(parts) > 2:
        return _resource("", parts[1], parts[2:]) or OtherPath(parts)
    if parts[0] == "apis" and len(parts) > 3:
        return _resource(parts[1], parts[2], parts[3:]) or OtherPath(parts)
    return OtherPath(parts)


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
