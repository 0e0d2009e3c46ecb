"""Where a path of fields leads in the schema of a CustomResourceDefinition."""

from __future__ import annotations

import re
from typing import Final

from kargo_py.local.apiserver.wire import JsonObject

_STEP: Final = re.compile(r"\.([.\[\]]|[^.\[\]]+)|\['((?:[^'\\]|\\.)*)'\]")


def follow(path: str, raw: JsonObject, *, arrays: bool = True) -> JsonObject | str:
    """The schema that *path* (``.spec.a``, ``['b']``) leads to from *raw*, or why it leads nowhere."""
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if path[at] == "[" and not arrays:
            return "array notation is not allowed"
        if not found:
            token = re.split(r"[.\[\]]", path[at:])[0] or path[at]
            return "unexpected end of JSON path" if path[at] in ".[" else f"expected [ or . but got: {token}"
        key = found[1] if found[1] is not None else re.sub(r"\\(.)", r"\1", found[2])
        at = found.end()
        if raw.get("properties"):
            if key not in raw["properties"]:
                return "does not refer to a valid field"
            raw = raw["properties"][key]
        elif isinstance(raw.get("additionalProperties"), dict):
            raw = raw["additionalProperties"]
        else:
            return "does not refer to a valid field"
    return raw
