"""Editing the sources of an Application as an ``argocd-update`` step asks.

The edit is computed on values: the Application's sources and the step's updates go in, the new sources, the revision
wanted for each, and the fields that changed come out. Where Kargo compares URLs literally for one purpose and
normalised for another, one rule holds here: Git URLs are compared normalised, chart repositories and charts literally.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kargo_py.api.names import normalize_git
from kargo_py.argocd.application import JsonObject, Spec
from kargo_py.argocd.options import EVERYTHING, SyncOptions, fitted
from kargo_py.messages import Shown, message

NO_SUCH_SOURCE = message(
    "has no source with {source}",
    do="Follows the name of the Application. Correct `repoURL` or `chart` in the step's config: they must be those "
    "of a source of the Application.",
    shown=Shown.PROMOTION,
)
TWO_REVISIONS = message(
    "is asked for two revisions of the source with {source}: {one} and {other}",
    do="Follows the name of the Application. Two entries of the step's config contradict each other: give both the "
    "same `desiredRevision`.",
    shown=Shown.PROMOTION,
)


TWO_IMAGES = message(
    "is asked for two versions of the image {image} in the source with {source}: {one} and {other}",
    do="Follows the name of the Application. The step's config has this image twice under `kustomize.images` of one "
    "source: leave one of them.",
    shown=Shown.PROMOTION,
)
TWO_VALUES = message(
    "is asked for two values of the Helm parameter {parameter} in the source with {source}: {one} and {other}",
    do="Follows the name of the Application. The step's config has this `key` twice under `helm.images` of one "
    "source: leave one of them.",
    shown=Shown.PROMOTION,
)


NOT_OF_ITS_FORM = message(
    "cannot be changed: {field} of its source with {source} must be {type}",
    do="Follows the name of the Application. Somebody wrote something into that field of the Application which Argo CD "
    "does not define; correct it, then promote again.",
    shown=Shown.PROMOTION,
)


class SourceUpdateError(ValueError):
    """An update that fits no source of the Application, or that contradicts another one."""


@dataclass(frozen=True, slots=True)
class KustomizeImage:
    """One entry for ``kustomize.images``: ``repo[=newName]`` with a tag or a digest."""

    repo_url: str
    tag: str = ""
    digest: str = ""
    new_name: str = ""

    def __str__(self) -> str:
        name = f"{self.repo_url}={self.new_name}" if self.new_name else self.repo_url
        return f"{name}@{self.digest}" if self.digest else f"{name}:{self.tag}"


@dataclass(frozen=True, slots=True)
class HelmParameter:
    """One entry for ``helm.parameters``."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class SourceUpdate:
    """What a step wants of one source."""

    repo_url: str
    chart: str = ""
    desired_revision: str = ""
    update_target_revision: bool = False
    kustomize_images: Sequence[KustomizeImage] = ()
    helm_parameters: Sequence[HelmParameter] = ()

    def fits(self, source: JsonObject) -> bool:
        """True if this update is about *source*."""
        theirs, chart = str(source.get("repoURL") or ""), str(source.get("chart") or "")
        if self.chart or chart:
            return self.repo_url == theirs and self.chart == chart
        return normalize_git(self.repo_url) == normalize_git(theirs)

    def __str__(self) -> str:
        return f"repoURL {self.repo_url}" + (f" and chart {self.chart}" if self.chart else "")


@dataclass(frozen=True, slots=True)
class SourceEdit:
    """The outcome of applying updates, and how to sync then.

    ``desired`` has one entry per source, "" where there is no opinion. ``spec_patch`` is a merge patch for ``spec``, {}
    when nothing changes. ``before`` maps the JSON pointer of each field that changes to its value now (None: absent).
    """

    desired: tuple[str, ...]
    spec_patch: JsonObject = field(default_factory=dict)
    before: JsonObject = field(default_factory=dict)
    sync: SyncOptions = EVERYTHING


def edit_sources(spec: Spec, updates: Sequence[SourceUpdate], options: SyncOptions = EVERYTHING) -> SourceEdit:
    """Compute the edit of *spec*; each update goes to the first source it fits.

    Raises SourceUpdateError, or OptionsError where *options* do not fit.
    """
    sync = fitted(options, spec)
    old = spec.effective_sources
    new = copy.deepcopy(old)
    desired = [""] * len(old)
    for index, update in _by_source(spec, updates).items():
        desired[index] = update.desired_revision
        _apply(update, new[index])
    multiple = spec.has_multiple_sources
    before: JsonObject = {}
    for index, (was, now) in enumerate(zip(old, new, strict=True)):
        before |= _changes(f"/spec/sources/{index}" if multiple else "/spec/source", was, now)
    if not before:
        return SourceEdit(tuple(desired), sync=sync)
    patch: JsonObject = {"sources": new} if multiple else {"source": _merge_patch(old[0], new[0])}
    return SourceEdit(tuple(desired), patch, before, sync)


def _by_source(spec: Spec, updates: Sequence[SourceUpdate]) -> dict[int, SourceUpdate]:
    """One update for each source, by its index, that asks for all that is asked of it."""
    found: dict[int, SourceUpdate] = {}
    for update in updates:
        index = _first_fit(spec, update)
        if index is None:
            raise SourceUpdateError(NO_SUCH_SOURCE(source=update))
        found[index] = _both(found.get(index, SourceUpdate(update.repo_url, update.chart)), update)
    return found


def _both(one: SourceUpdate, other: SourceUpdate) -> SourceUpdate:
    """What *one* and *other* ask of the same source; raises SourceUpdateError where they contradict each other."""
    if one.desired_revision and other.desired_revision not in {"", one.desired_revision}:
        raise SourceUpdateError(TWO_REVISIONS(source=other, one=one.desired_revision, other=other.desired_revision))
    images = {image.repo_url: image for image in one.kustomize_images}
    for image in other.kustomize_images:
        if (known := images.setdefault(image.repo_url, image)) != image:
            raise SourceUpdateError(TWO_IMAGES(image=image.repo_url, source=other, one=known, other=image))
    values = {parameter.key: parameter for parameter in one.helm_parameters}
    for parameter in other.helm_parameters:
        if (known_value := values.setdefault(parameter.key, parameter).value) != parameter.value:
            said = TWO_VALUES(parameter=parameter.key, source=other, one=known_value, other=parameter.value)
            raise SourceUpdateError(said)
    return SourceUpdate(
        one.repo_url,
        one.chart,
        one.desired_revision or other.desired_revision,
        one.update_target_revision or other.update_target_revision,
        tuple(images.values()),
        tuple(values.values()),
    )


@dataclass(frozen=True, slots=True)
class Reversal:
    """Which changed fields (JSON pointers) can be put back.

    ``fields`` have to be written, each with its former value (None: absent); ``done`` have it already; ``theirs`` were
    changed by others since, or are not those of that source any more.
    """

    fields: Sequence[tuple[str, Any]]
    done: Sequence[str]
    theirs: Sequence[str]


def reverse_edit(spec: Spec, updates: Sequence[SourceUpdate], before: JsonObject) -> Reversal:
    """What of the edit that *updates* once made in *spec* still stands as it was made; *before* has former values."""
    fields: list[tuple[str, Any]] = []
    done: list[str] = []
    theirs: list[str] = []
    for pointer, former in before.items():
        found = _place(spec, pointer)
        ours = [update for update in updates if found is not None and _first_fit(spec, update) == found[0]]
        if found is None or not ours:
            theirs.append(pointer)
            continue
        index, path = found
        source = spec.effective_sources[index]
        if _at(source, path) == former:
            done.append(pointer)
        elif _at(source, path) == _once_made(source, path, former, ours):
            fields.append((pointer, former))
        else:
            theirs.append(pointer)
    return Reversal(fields, done, theirs)


def _place(spec: Spec, pointer: str) -> tuple[int, Sequence[str]] | None:
    """The index of the source, and the field in it, that *pointer* names in *spec* as it is now; None if nothing."""
    match pointer.split("/")[1:]:
        case ["spec", "source", *path] if not spec.has_multiple_sources and spec.source:
            return 0, path
        case ["spec", "sources", number, *path] if spec.has_multiple_sources and number.isdecimal():
            return (int(number), path) if int(number) < len(spec.effective_sources) else None
    return None


def _first_fit(spec: Spec, update: SourceUpdate) -> int | None:
    return next((index for index, source in enumerate(spec.effective_sources) if update.fits(source)), None)


def _once_made(source: JsonObject, path: Sequence[str], former: Any, updates: Sequence[SourceUpdate]) -> Any:
    """What the updates make of the field at *path* where it has its *former* value; they agree, or none was made."""
    copied = copy.deepcopy(source)
    node = copied
    for key in path[:-1]:
        inner = node.get(key)
        node[key] = inner if isinstance(inner, dict) else {}
        node = node[key]
    node.pop(path[-1], None)
    if former is not None:
        node[path[-1]] = copy.deepcopy(former)
    try:
        _apply(functools.reduce(_both, updates, SourceUpdate(updates[0].repo_url)), copied)
    except SourceUpdateError:
        return None
    return _at(copied, path)


def _check_form(update: SourceUpdate, source: JsonObject) -> None:
    """Raise SourceUpdateError if *source*, of an Application whose CRD has no schema, cannot be edited as asked."""

    def check(holds: bool, field: str, type_: str) -> None:
        if not holds:
            raise SourceUpdateError(NOT_OF_ITS_FORM(field=field, source=update, type=type_))

    kustomize, helm = source.get("kustomize") or {}, source.get("helm") or {}
    check(not update.kustomize_images or isinstance(kustomize, dict), "kustomize", "an object")
    if update.helm_parameters:
        check(isinstance(helm, dict), "helm", "an object")
        parameters = helm.get("parameters") or []
        check(isinstance(parameters, list), "helm.parameters", "a list")
        check(all(isinstance(each, dict) for each in parameters), "helm.parameters[]", "an object")


def _apply(update: SourceUpdate, source: JsonObject) -> None:
    _check_form(update, source)
    if update.update_target_revision and update.desired_revision:
        source["targetRevision"] = update.desired_revision
    if update.kustomize_images:
        source["kustomize"] = {**(source.get("kustomize") or {}), "images": [str(i) for i in update.kustomize_images]}
    if update.helm_parameters:
        helm = source.get("helm") or {}
        source["helm"] = {**helm, "parameters": _upsert(helm.get("parameters") or [], update.helm_parameters)}


def _upsert(parameters: Sequence[JsonObject], wanted: Sequence[HelmParameter]) -> list[JsonObject]:
    """Set values by name, in place where the name exists, at the end in the step's order where it does not."""
    values = {parameter.key: parameter.value for parameter in wanted}
    # All of a name: to Helm the last one counts.
    out = [{**p, "value": values[p["name"]]} if p.get("name") in values else dict(p) for p in parameters]
    there = {p.get("name") for p in parameters}
    return [*out, *({"name": name, "value": value} for name, value in values.items() if name not in there)]


_EDITED = (("targetRevision",), ("kustomize", "images"), ("helm", "parameters"))


def _at(source: JsonObject, path: Sequence[str]) -> Any:
    node: Any = source
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node


def _changes(pointer: str, was: JsonObject, now: JsonObject) -> JsonObject:
    """The fields this module edits that differ, by JSON pointer, with the value they had."""
    return {"/".join((pointer, *path)): _at(was, path) for path in _EDITED if _at(was, path) != _at(now, path)}


def _merge_patch(was: JsonObject, now: JsonObject) -> JsonObject:
    patch: JsonObject = {}
    for path in _EDITED:
        if _at(was, path) != _at(now, path):
            node = patch
            for key in path[:-1]:
                node = node.setdefault(key, {})
            node[path[-1]] = _at(now, path)
    return patch
