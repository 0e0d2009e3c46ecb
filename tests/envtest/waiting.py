"""``kubectl wait --for=jsonpath``, without a process: a watch, until the object is as wanted."""

import re
import time
from collections.abc import Iterator
from typing import Any, Final

from tests.envtest.access import JsonObject
from tests.envtest.server import ApiServer

SECONDS: Final = 40

_STEP: Final = re.compile(
    r"""\.(?P<field>(?:\\.|[^.\[\\])+)|\[(?P<index>\d+)\]|\[\?\(@\.(?P<key>\w+)=='(?P<value>[^']*)'\)\]"""
)


class NotAsWanted(Exception):
    """The object never was; the text has how it was at last."""


def wait_until(server: ApiServer, collection: str, name: str, path: str, value: str = "") -> None:
    """Return when *value*, or anything if that is empty, stands at *path* of an object that is there already.

    Raises:
        NotAsWanted: it was not there, was deleted, or was otherwise for 40 seconds.
    """
    deadline = time.monotonic() + SECONDS
    one = f"{collection}?fieldSelector=metadata.name%3D{name}"
    listed = server.request("GET", one)
    found: JsonObject | None = next(iter(listed["items"]), None)
    version = listed["metadata"]["resourceVersion"]
    while (left := deadline - time.monotonic()) > 0 and found is not None:
        if holds(found, path, value):
            return
        for event in server.watch(f"{one}&watch=1&resourceVersion={version}", seconds=left):
            found = None if event["type"] == "DELETED" else event["object"]
            if found is None or event["type"] == "ERROR":
                break
            if holds(found, path, value):
                return
            version = found["metadata"]["resourceVersion"]
        else:
            continue
        break
    wanted = f"{value!r} at {path}" if value else f"anything at {path}"
    raise NotAsWanted(f"{collection}/{name}: {wanted} was waited for; it is {found}")


def holds(obj: JsonObject, path: str, value: str = "") -> bool:
    """Whether *value* as text, or anything if that is empty, stands at *path*."""
    found = [obj]
    for step in steps(path):
        found = [inner for outer in found for inner in _step_into(outer, step)]
    return bool(found) if not value else any(str(each) == value for each in found)


def steps(path: str) -> Iterator[re.Match[str]]:
    """The parts of a JSONPath; raises ValueError where it has what is not known here."""
    position = 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            raise ValueError(f"JSONPath {path}: nothing is known of {path[position:]}")
        yield step
        position = step.end()


def _step_into(outer: Any, step: re.Match[str]) -> list[Any]:
    match step.groupdict(), outer:
        case {"field": str(field)}, dict():
            field = re.sub(r"\\(.)", r"\1", field)
            return [outer[field]] if field in outer else []
        case {"index": str(index)}, list():
            return outer[int(index) : int(index) + 1]
        case {"key": str(key), "value": str(value)}, list():
            return [each for each in outer if each.get(key) == value]
        case _:
            return []
