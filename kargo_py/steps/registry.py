"""The kinds of steps there are: the built-in ones, and those that installed packages bring.

A package brings kinds by entry points of the group ``kargo_py.steps``: the name is what ``uses`` says, the value is a
class derived from :class:`~kargo_py.steps.step.Step`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, TypeAlias

from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update import ArgoCDUpdate
from kargo_py.steps.argocd_wait import ArgoCDWait
from kargo_py.steps.compose_output import ComposeOutput
from kargo_py.steps.fail import Fail
from kargo_py.steps.set_freight_alias import SetFreightAlias
from kargo_py.steps.set_metadata import SetMetadata
from kargo_py.steps.step import Services, Step

GROUP = "kargo_py.steps"

KIND_UNUSABLE = message(
    "the kind of step {uses} of package {package} cannot be used: {why}",
    do="Update or uninstall the package named, or mend its entry point: a class derived from "
    "`kargo_py.steps.step.Step` whose `uses` is the name of the entry point.",
    shown=Shown.COMMAND_LINE,
)

Kind: TypeAlias = type[Step[Any]]
Kinds: TypeAlias = Mapping[str, Kind]
"""Kinds of steps by what ``uses`` says."""

_BUILT_IN: tuple[Kind, ...] = (ArgoCDUpdate, ArgoCDWait, ComposeOutput, Fail, SetFreightAlias, SetMetadata)

BUILT_IN: Kinds = {kind.uses: kind for kind in _BUILT_IN}


class KindError(Exception):
    """A kind of step that a package brings cannot be used; the text names both."""


def installed_kinds() -> Kinds:
    """The built-in kinds and those of installed packages. Raises KindError."""
    found: dict[str, Kind] = dict(BUILT_IN)
    for entry in entry_points(group=GROUP):
        package = entry.dist.name if entry.dist is not None else "?"
        if entry.name in found:
            raise KindError(KIND_UNUSABLE(uses=entry.name, package=package, why="there is one of that name already"))
        try:
            kind = entry.load()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise KindError(KIND_UNUSABLE(uses=entry.name, package=package, why=why)) from error
        if not (isinstance(kind, type) and issubclass(kind, Step) and getattr(kind, "uses", None) == entry.name):
            why = "it is no class derived from Step with that name in `uses`"
            raise KindError(KIND_UNUSABLE(uses=entry.name, package=package, why=why))
        found[entry.name] = kind
    return found


def made(kinds: Kinds, services: Services) -> dict[str, Step[Any]]:
    """An instance of each of *kinds*, for one controller."""
    return {uses: kind.make(services) for uses, kind in kinds.items()}
