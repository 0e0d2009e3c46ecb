"""A configuration beside the form that its kind of step gives it, where expressions stand for whatever would fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from kargo_py.engine.problems import Path
from kargo_py.messages import Shown, message
from kargo_py.steps.config import EVALUATED, Config, what_is_wrong

NOT_CHECKED = message(
    "cannot be checked before it runs: {error}",
    do="The kind of step fails when it looks at its configuration. Look whether that is right; if it is, tell the "
    "authors of the kind.",
    shown=Shown.PROMOTION | Shown.STAGE,
)

_ABSENT = "missing"


class Uncheckable(Exception):
    """The model raised something else than what is wrong with the configuration."""


def config_faults(
    model: type[Config], config: Any, templates: Iterable[Path], *, evaluated: bool = False
) -> list[tuple[Path, str]]:
    """What is wrong with *config*, whatever the expressions at *templates* become. Raises Uncheckable.

    *evaluated*: its expressions have been, and it may have secrets in it.
    """
    held: set[Path] = set()
    for path in templates:
        held.update(path[:length] for length in range(len(path) + 1))
    if () in held and not isinstance(config, Mapping | list):
        return []
    # Models of others may know no context
    options: dict[str, Any] = {"context": EVALUATED} if evaluated else {}
    try:
        model.model_validate({} if config is None else config, **options)
    except ValidationError as error:
        found = []
        for fault in error.errors(include_url=False):
            path, choice = _resolved(config, fault["loc"], absent=fault["type"] == _ABSENT)
            # A field that is absent or that nothing reads is so whatever the expressions beside it become
            if choice in held or (path in held and fault["type"] not in {_ABSENT, "extra_forbidden"}):
                continue
            found.append((path, what_is_wrong(fault)))
        return found
    except Exception as error:
        # The models of others' kinds may raise anything, and must not take the controller along
        raise Uncheckable(NOT_CHECKED(error=f"{type(error).__name__}: {error}")) from error
    return []


def _resolved(config: Any, location: Sequence[int | str], *, absent: bool) -> tuple[Path, Path | None]:
    """Where in *config* a fault is, and the place of the last choice between models on the way, if there is one.

    Pydantic puts the names of such models between those of the fields.
    """
    value, path, choice = config, list[str | int](), None
    for number, part in enumerate(location):
        if _has(value, part):
            value = value[part]
        elif absent and number == len(location) - 1:
            path.append(part)
            break
        else:
            choice = tuple(path)
            continue
        path.append(part)
    return tuple(path), choice


def _has(value: Any, part: int | str) -> bool:
    if isinstance(value, list):
        return isinstance(part, int) and part < len(value)
    return isinstance(value, Mapping) and part in value
