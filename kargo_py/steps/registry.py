"""The kinds of steps there are: the built-in ones, and those that installed packages bring.

A package brings kinds by entry points of the group ``kargo_py.steps``: the name is what ``uses`` says, the value is a
class derived from :class:`~kargo_py.steps.step.Step`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeAlias

from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update import ArgoCDUpdate
from kargo_py.steps.argocd_wait import ArgoCDWait
from kargo_py.steps.compose_output import ComposeOutput
from kargo_py.steps.config import Config
from kargo_py.steps.fail import Fail
from kargo_py.steps.http import Http
from kargo_py.steps.set_freight_alias import SetFreightAlias
from kargo_py.steps.set_metadata import SetMetadata
from kargo_py.steps.step import Services, Step, Work, WorkDirUse

GROUP = "kargo_py.steps"

KIND_UNUSABLE = message(
    "the kind of step {uses} of package {package} cannot be used: {why}",
    do="Update or uninstall the package named, or mend its entry point: a class derived from "
    "`kargo_py.steps.step.Step` whose `uses` is the name of the entry point. `kargo-py steps` shows all kinds.",
    shown=Shown.COMMAND_LINE,
)
KIND_TWICE = message(
    "there is one of that name already, {whose}",
    do="Part of *cannot be used*: kinds of different packages cannot have one name, and built-in ones cannot be "
    "replaced by a package. Uninstall the one that is not meant.",
    shown=Shown.COMMAND_LINE,
)
BUILT_IN_ONE = message(
    "which is built in",
    do="Part of *there is one of that name already*.",
    shown=Shown.COMMAND_LINE,
)
OF_PACKAGE = message(
    "of package {package}",
    do="Part of *there is one of that name already*.",
    shown=Shown.COMMAND_LINE,
)
NO_KIND_CLASS = message(
    "it is no class derived from kargo_py.steps.step.Step",
    do="Part of *cannot be used*: the entry point must name the class itself, not an instance or a function.",
    shown=Shown.COMMAND_LINE,
)
OTHER_NAME = message(
    "its `uses` is {uses}, and must be {name}",
    do="Part of *cannot be used*: give the class and its entry point the same name.",
    shown=Shown.COMMAND_LINE,
)
NAME_OF_KIND_MALFORMED = message(
    "a kind is named by 1 to 63 lowercase letters, digits or '-', beginning and ending with a letter or digit",
    do="Part of *cannot be used*: correct `uses` of the class, and the name of the entry point.",
    shown=Shown.COMMAND_LINE,
)
NO_CONFIG_MODEL = message(
    "its `config_model` is no class derived from kargo_py.steps.config.Config",
    do="Part of *cannot be used*: give the class a model of its configuration, an empty one if it needs nothing.",
    shown=Shown.COMMAND_LINE,
)
NO_ASYNC_METHOD = message(
    "its method `{method}` is not written with async def",
    do="Part of *cannot be used*: the engine awaits it. Blocking work belongs into a thread.",
    shown=Shown.COMMAND_LINE,
)
NO_PERFORM = message(
    "it has no method `perform`",
    do="Part of *cannot be used*: `perform` is what the step does.",
    shown=Shown.COMMAND_LINE,
)
WRONG_CLASS_FIELD = message(
    "its `{field}` must be {form}",
    do="Part of *cannot be used*: correct that attribute of the class.",
    shown=Shown.COMMAND_LINE,
)

Kind: TypeAlias = type[Step[Any]]
Kinds: TypeAlias = Mapping[str, Kind]
"""Kinds of steps by what ``uses`` says."""

_BUILT_IN: tuple[Kind, ...] = (ArgoCDUpdate, ArgoCDWait, ComposeOutput, Fail, Http, SetFreightAlias, SetMetadata)

BUILT_IN: Kinds = {kind.uses: kind for kind in _BUILT_IN}

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_UNKNOWN = "?"


class KindError(Exception):
    """A kind of step that a package brings cannot be used; the text names both."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """A kind of step that a package brings and that cannot be used."""

    uses: str
    package: str
    why: str

    def __str__(self) -> str:
        return KIND_UNUSABLE(uses=self.uses, package=self.package, why=self.why)


@dataclass(frozen=True, slots=True)
class Found:
    """What there is: ``packages`` names the package of each kind, built-in ones have none."""

    kinds: Kinds
    packages: Mapping[str, str] = field(default_factory=dict)
    unusable: tuple[Unusable, ...] = ()


def find_kinds() -> Found:
    """The built-in kinds and those of installed packages; what cannot be used hides no other."""
    kinds: dict[str, Kind] = dict(BUILT_IN)
    packages: dict[str, str] = {}
    unusable: list[Unusable] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda each: (each.name, _package(each))):
        package = _package(entry)
        kind = _load(entry, kinds, packages)
        if isinstance(kind, str):
            unusable.append(Unusable(entry.name, package, kind))
        else:
            kinds[entry.name], packages[entry.name] = kind, package
    return Found(kinds, packages, tuple(unusable))


def installed_kinds() -> Kinds:
    """The built-in kinds and those of installed packages. Raises KindError that names all that cannot be used."""
    found = find_kinds()
    if found.unusable:
        raise KindError("; ".join(map(str, found.unusable)))
    return found.kinds


def made(kinds: Kinds, services: Services) -> dict[str, Step[Any]]:
    """An instance of each of *kinds*, for one controller."""
    return {uses: kind.make(services) for uses, kind in kinds.items()}


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else _UNKNOWN


def _load(entry: EntryPoint, kinds: Kinds, packages: Mapping[str, str]) -> Kind | str:
    """The kind, or why it cannot be used."""
    if entry.name in kinds:
        package = packages.get(entry.name)
        return KIND_TWICE(whose=OF_PACKAGE(package=package) if package is not None else BUILT_IN_ONE())
    try:
        kind = entry.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is told, and is the package's
        return f"{type(error).__name__}: {error}"
    if (why := fault_of(kind, entry.name)) is not None:
        return why
    loaded: Kind = kind
    return loaded


def fault_of(kind: object, name: str) -> str | None:
    """Why *kind* cannot be the kind of step that ``uses: name`` calls; None if it can."""
    if not (isinstance(kind, type) and issubclass(kind, Step)):
        return NO_KIND_CLASS()
    if getattr(kind, "uses", None) != name:
        return OTHER_NAME(uses=getattr(kind, "uses", None), name=name)
    return malformed(name) or faults_of(kind)


def malformed(name: str) -> str | None:
    """Why no kind can have this *name*; None if it can."""
    return None if _NAME.fullmatch(name) else NAME_OF_KIND_MALFORMED()


def faults_of(kind: Kind) -> str | None:
    """What is wrong with the class itself; None if nothing is."""
    return next(_faults(kind), None)


def _faults(kind: Kind) -> Iterator[str]:
    model = getattr(kind, "config_model", None)
    if not (isinstance(model, type) and issubclass(model, Config)):
        yield NO_CONFIG_MODEL()
    if kind.perform is Step.perform and kind.run is Step.run:
        yield NO_PERFORM()
    for method in ("run", "perform", "stop", "time_out"):
        if not inspect.iscoroutinefunction(getattr(kind, method)):
            yield NO_ASYNC_METHOD(method=method)
    limit: object = kind.default_timeout
    threshold: object = kind.default_error_threshold
    if limit is not None and not (isinstance(limit, timedelta) and limit > timedelta()):
        yield WRONG_CLASS_FIELD(field="default_timeout", form="None or a timedelta of more than 0")
    if not isinstance(threshold, int) or isinstance(threshold, bool) or threshold < 1:
        yield WRONG_CLASS_FIELD(field="default_error_threshold", form="a number of at least 1")
    if not isinstance(kind.work, Work):
        yield WRONG_CLASS_FIELD(field="work", form="a kargo_py.steps.step.Work")
    if not isinstance(kind.work_dir_use, WorkDirUse):
        yield WRONG_CLASS_FIELD(field="work_dir_use", form="a kargo_py.steps.step.WorkDirUse")
