"""Values that YAML reads as something else than was written, in places where a step takes anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from pydantic.errors import PydanticUserError

from kargo_py.expressions.templates import Path, type_places
from kargo_py.messages import Shown, message
from kargo_py.offline.findings import Finding, Level
from kargo_py.offline.manifests import Manifest, value_at
from kargo_py.steps.config import Config
from kargo_py.steps.registry import Kind, Kinds

READ_AS = message(
    "YAML reads {written} as {value}; put it in quotes if it is a text, such as a version, a tag or a SHA",
    do="YAML 1.1 takes `on`, `no` and their like for booleans, `1e6` and `1.30` for numbers, and `010` for the number "
    "8. In quotes it stays as it is.",
    shown=Shown.LINT,
)

_ROOTS: Final[dict[str, Path]] = {"Stage": ("spec", "promotionTemplate", "spec", "steps")}
_STEPS: Final[Path] = ("spec", "steps")
_LONGEST: Final = 60


def traps(manifest: Manifest, kinds: Kinds) -> Iterator[Finding]:
    """Warnings of what stands in the configurations of steps."""
    root = _ROOTS.get(manifest.kind, _STEPS)
    steps = value_at(manifest.value, root)
    for index, step in enumerate(steps if isinstance(steps, list) else ()):
        uses = value_at(step, ("uses",))
        kind = kinds.get(uses) if isinstance(uses, str) else None
        for within, value in _scalars(value_at(step, ("config",))):
            own = (*root, index, "config", *within)
            written = manifest.written(own)
            if written and _differs(written, value) and (kind is None or _takes_anything(kind, within)):
                text = READ_AS(written=written[:_LONGEST], value=json.dumps(value)[:_LONGEST])
                yield manifest.finding(own, text, Level.WARNING)


def _scalars(value: Any) -> Iterator[tuple[Path, Any]]:
    """The numbers and booleans in *value*, in their order."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, one = waiting.pop()
        if isinstance(one, dict):
            waiting += [((*path, name), inner) for name, inner in reversed(one.items())]
        elif isinstance(one, list):
            waiting += [((*path, index), one[index]) for index in range(len(one) - 1, -1, -1)]
        elif not isinstance(one, str):
            yield path, one


def _differs(written: str, value: Any) -> bool:
    """Whether a text was lost: ``true`` and ``1.5`` say what they are, ``on`` and ``1.50`` do not."""
    if value is None:
        return False
    if isinstance(value, bool):
        return written.lower() not in {"true", "false"}
    return written != str(value)


def _takes_anything(kind: Kind, path: Path) -> bool:
    types = _types(kind.config_model)(path) - {"null"}
    return not types or "any" in types or ("string" in types and len(types) > 1)


@lru_cache(maxsize=256)
def _types(model: type[Config]) -> Callable[[Path], frozenset[str]]:
    try:
        return type_places(model.model_json_schema())
    except PydanticUserError:
        return lambda _: frozenset()
