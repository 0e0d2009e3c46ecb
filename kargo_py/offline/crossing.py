"""What objects say of each other: names that lead nowhere, and names that are given twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kargo_py.api.names import LABEL_ALIAS
from kargo_py.expressions.templates import Path
from kargo_py.messages import Shown, message
from kargo_py.offline.findings import Finding, Level
from kargo_py.offline.manifests import Manifest, value_at

TWICE = message(
    "{object} is in {place}, too",
    do="Remove one of the two, or give only one of the files: the one that is applied last wins.",
    shown=Shown.LINT,
)
NOT_AMONG_FILES = message(
    '{kind} "{name}" is in none of the files, and others of its namespace are',
    do="Correct the name; or nothing to do, where the cluster has it.",
    shown=Shown.LINT,
)
ALIAS_OF = message(
    'Freight "{name}" is in none of the files; it is the alias of Freight "{freight}", and spec.freight takes a name',
    do="Write the name of the Freight.",
    shown=Shown.LINT,
)
UPSTREAM_LACKS_ORIGIN = message(
    'the upstream Stage "{stage}" does not request Freight of {origin}, so none comes from it',
    do="Request the origin in the upstream Stage, or remove the Stage from `sources.stages`.",
    shown=Shown.LINT,
)
UPSTREAM_OF_ITSELF = message(
    "Freight of {origin} can never get here: of the Stages on its way ({stages}) none takes it directly",
    do="Let one of them take it directly from the Warehouse (`direct: true`) or from another Stage.",
    shown=Shown.LINT,
)
NOT_ITS_NAMESPACE = message(
    'a ProjectConfig has the name of its namespace, which is "{namespace}"',
    do="Kargo refuses it, and no controller reads it. Correct `metadata.name` or `metadata.namespace`.",
    shown=Shown.LINT,
)

_PATTERN = ":"


@dataclass(frozen=True, slots=True)
class Objects:
    """Manifests by kind and name."""

    by_name: Mapping[tuple[str, str], Sequence[Manifest]]
    by_kind: Mapping[str, Sequence[Manifest]]
    supplied: set[tuple[str, str, str]] = field(default_factory=set)
    """Namespace, name and origin of Stages that are known to have a way to get Freight of it."""

    def find(self, kind: str, name: str, namespace: str) -> Manifest | None:
        """The object of that name; "" as a namespace may be any, on both sides."""
        return next((one for one in self.by_name.get((kind, name), ()) if _meet(one.namespace, namespace)), None)

    def others(self, kind: str, namespace: str) -> bool:
        """Whether there is any of *kind* in that namespace."""
        return any(_meet(one.namespace, namespace) for one in self.by_kind.get(kind, ()))


def _meet(one: str, other: str) -> bool:
    return one == other or not one or not other


def objects(manifests: Iterable[Manifest]) -> Objects:
    """*manifests*, found by name."""
    by_name: dict[tuple[str, str], list[Manifest]] = defaultdict(list)
    by_kind: dict[str, list[Manifest]] = defaultdict(list)
    for manifest in manifests:
        by_kind[manifest.kind].append(manifest)
        if manifest.name:
            by_name[manifest.kind, manifest.name].append(manifest)
    return Objects(by_name, by_kind)


def twice(manifests: Iterable[Manifest]) -> Iterator[Finding]:
    """Objects that are given more than once."""
    seen: dict[tuple[str, str, str, str], Manifest] = {}
    for manifest in manifests:
        if not manifest.name:
            continue
        key = (manifest.api_version, manifest.kind, manifest.namespace, manifest.name)
        first = seen.setdefault(key, manifest)
        if first is not manifest:
            text = TWICE(object=manifest.title, place=first.place(()))
            # In several files there may be a base and what changes it
            level = Level.ERROR if first.file == manifest.file else Level.WARNING
            yield manifest.finding(("metadata", "name"), text, level)


def references(manifest: Manifest, known: Objects) -> Iterator[Finding]:
    """What *manifest* says of other objects that is not so."""
    match manifest.kind:
        case "Stage":
            yield from _requests(manifest, known)
        case "Promotion":
            yield from _named(manifest, known, "Stage", ("spec", "stage"))
            yield from _freight(manifest, known)
        case "Freight":
            yield from _named(manifest, known, "Warehouse", ("origin", "name"))
        case "ProjectConfig":
            if manifest.namespace and manifest.name and manifest.namespace != manifest.name:
                yield manifest.finding(("metadata", "name"), NOT_ITS_NAMESPACE(namespace=manifest.namespace))
            for index, policy in enumerate(_list(manifest.value, "spec", "promotionPolicies")):
                at: Path = ("spec", "promotionPolicies", index)
                yield from _named(manifest, known, "Stage", (*at, "stage"))
                if _PATTERN not in _text(policy, "stageSelector", "name"):
                    yield from _named(manifest, known, "Stage", (*at, "stageSelector", "name"))


def _requests(manifest: Manifest, known: Objects) -> Iterator[Finding]:
    for index, request in enumerate(_list(manifest.value, "spec", "requestedFreight")):
        at: Path = ("spec", "requestedFreight", index)
        yield from _named(manifest, known, "Warehouse", (*at, "origin", "name"))
        origin = _origin(request)
        for number, upstream in enumerate(_list(request, "sources", "stages")):
            where: Path = (*at, "sources", "stages", number)
            yield from _named(manifest, known, "Stage", where)
            stage = known.find("Stage", upstream, manifest.namespace) if isinstance(upstream, str) else None
            if stage is not None and origin not in _origins(stage):
                text = UPSTREAM_LACKS_ORIGIN(stage=upstream, origin=origin)
                yield manifest.finding(where, text, Level.WARNING)
        circle = _circle(manifest, origin, known)
        if circle:
            text = UPSTREAM_OF_ITSELF(origin=origin, stages=", ".join(circle))
            yield manifest.finding((*at, "sources"), text, Level.WARNING)


def _named(manifest: Manifest, known: Objects, kind: str, path: Path) -> Iterator[Finding]:
    """Tell if the object named at *path* is not there though others of its kind are."""
    value = value_at(manifest.value, path)
    if not isinstance(value, str) or not value or known.find(kind, value, manifest.namespace):
        return
    if known.others(kind, manifest.namespace):
        yield manifest.finding(path, NOT_AMONG_FILES(kind=kind, name=value), Level.INFO)


def _freight(manifest: Manifest, known: Objects) -> Iterator[Finding]:
    """Tell if the Freight of a Promotion is not there, or is given by its alias."""
    path = ("spec", "freight")
    for finding in _named(manifest, known, "Freight", path):
        name = _text(manifest.value, *path)
        for one in known.by_kind.get("Freight", ()):
            aliases = {_text(one.value, "alias"), _text(one.value, "metadata", "labels", LABEL_ALIAS)}
            if name in aliases and _meet(one.namespace, manifest.namespace):
                yield manifest.finding(path, ALIAS_OF(name=name, freight=one.name), Level.WARNING)
                return
        yield finding


def _circle(manifest: Manifest, origin: str, known: Objects) -> list[str]:
    """The Stages from which alone Freight of *origin* could come here, if none of them has any way to get it."""
    found: dict[str, str] = {}
    waiting = [(manifest, "")]
    while waiting:
        stage, before = waiting.pop()
        if stage.name in found:
            continue
        found[stage.name] = before
        request = next((one for one in _list(stage.value, "spec", "requestedFreight") if _origin(one) == origin), None)
        names = _list(request, "sources", "stages")
        upstream = [known.find("Stage", name, manifest.namespace) if isinstance(name, str) else None for name in names]
        if (
            (manifest.namespace, stage.name, origin) in known.supplied
            or request is None
            or value_at(request, ("sources", "direct")) is True
            or None in upstream
        ):
            # So have all on the way that led here; without that long chains would be gone through again and again
            way = stage.name
            while way:
                known.supplied.add((manifest.namespace, way, origin))
                way = found[way]
            return []
        waiting += [(one, stage.name) for one in upstream if one is not None]
    return sorted(found) if len(found) > 1 or _is_its_own(manifest, origin) else []


def _is_its_own(manifest: Manifest, origin: str) -> bool:
    requests = _list(manifest.value, "spec", "requestedFreight")
    return any(_origin(one) == origin and manifest.name in _list(one, "sources", "stages") for one in requests)


def _origins(stage: Manifest) -> set[str]:
    return {_origin(request) for request in _list(stage.value, "spec", "requestedFreight")}


def _origin(request: Any) -> str:
    return f"{_text(request, 'origin', 'kind')}/{_text(request, 'origin', 'name')}"


def _text(value: Any, *names: str) -> str:
    found = value_at(value, names)
    return found if isinstance(found, str) else ""


def _list(value: Any, *names: str) -> list[Any]:
    found = value_at(value, names)
    return found if isinstance(found, list) else []
