"""What a Promotion in a file would run: its steps or those of its Stage, with tasks written out, and its Freight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from kargo_py.api.freight import Freight
from kargo_py.api.meta import KubeObject
from kargo_py.api.promotion import ExpressionVariable, FreightCollection, Promotion, PromotionStep
from kargo_py.api.promotion_task import ClusterPromotionTask, PromotionTask, PromotionTaskSpec
from kargo_py.api.stage import Stage
from kargo_py.controllers.admission import collection_with, plan, program_before
from kargo_py.controllers.candidates import candidate, upstream_of
from kargo_py.controllers.step_differences import Evaluator
from kargo_py.controllers.template import Rulebook, draft_of_own
from kargo_py.controllers.templates import task_references
from kargo_py.controllers.world import CLUSTER_TASKS, FREIGHTS, STAGES, TASKS
from kargo_py.engine.checks import Draft, draft_of_promotion, draft_of_stage
from kargo_py.engine.problems import Path, Place as Written, Problem, TaskName, refused, written
from kargo_py.engine.tasks import Find, found_in, task_name
from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import NotFound
from kargo_py.kube.resources import Key, Resource
from kargo_py.messages import Shown, message
from kargo_py.offline.findings import Finding, Level, Place
from kargo_py.offline.manifests import Manifest
from kargo_py.offline.shelf import NotKnown, Shelf
from kargo_py.steps.registry import Kinds

NO_STEPS = message(
    "there are no steps: the Promotion has none, and its Stage is not known here or has none",
    do="Give the file of the Stage, too, or read it from the cluster with `--live`. A Stage without steps takes no "
    "Promotions.",
    shown=Shown.LINT,
)
NO_SUCH = message(
    '{kind} "{name}" does not exist',
    do="Correct the name, or create the object.",
    shown=Shown.LINT,
)
MALFORMED = message(
    "{kind} is not as it should be: {path}: {why}",
    do="Correct the field; `kargo-py lint` tells all that is wrong with the file.",
    shown=Shown.LINT,
)
STEPS_OF_PROMOTION = message(
    "the Stage is not known here, so the steps and variables are taken to be those of the Promotion",
    do="Give the file of the Stage, too: its steps are what runs, unless it allows others.",
    shown=Shown.LINT,
)
NEWEST_OF_FILES = message(
    "the Freight is the newest one of {origin} in the files; a controller takes the newest available then",
    do="Name it in `spec.freight` to be sure.",
    shown=Shown.LINT,
)

K = TypeVar("K", bound=KubeObject)


class CannotAssemble(Exception):
    """It cannot be rendered; all the reasons."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        """*findings* is not empty."""
        self.findings = findings
        super().__init__("; ".join(finding.text for finding in findings))


@dataclass(frozen=True, slots=True)
class Assembled:
    """A Promotion with its steps, and what belongs to it."""

    promotion: Promotion
    draft: Draft
    freight: Freight | None
    collection: FreightCollection
    requested: Sequence[str]
    notes: Sequence[str]
    places: Places
    variables: Sequence[tuple[Manifest | None, Path]]
    """Where each variable of the draft is written."""


@dataclass(frozen=True, slots=True)
class Places:
    """Finds where something is written; what a cluster gave stands at the Promotion."""

    promotion: Manifest
    source: Manifest | None
    """Which has the steps; None if it is of the cluster."""
    shelf: Shelf

    def finding(self, place: Written, text: str, level: Level = Level.ERROR) -> Finding:
        """Something about *place*."""
        manifest: Manifest | None = self.source
        if place.task is not None:
            manifest = self.shelf.manifest(place.task.kind, place.task.name, self.promotion.namespace)
        if manifest is not None:
            return manifest.finding(place.path, text, level)
        here: Place = self.promotion.place(())
        title = f"{place.task}: " if place.task is not None else ""
        return Finding(here, level, f"{title}{written(place.path)}", text, self.promotion.title)

    def problem(self, problem: Problem) -> Finding:
        """*problem* where it is written."""
        level = Level.WARNING if problem.warning else Level.ERROR
        return self.finding(Written(problem.path, problem.task), problem.message, level)


async def assemble(manifest: Manifest, namespace: str, shelf: Shelf, kinds: Kinds, now: datetime) -> Assembled:
    """All that belongs to the Promotion of *manifest*. Raises CannotAssemble, and KubeError of a cluster."""
    promotion = _model(Promotion, manifest)
    metadata = promotion.metadata.replace(namespace=promotion.namespace or namespace)
    promotion = promotion.replace(metadata=metadata)
    reading = _Reading(promotion, manifest, shelf)
    stage = await reading.read(Stage, STAGES, promotion.spec.stage)
    freight = await reading.freight(stage, now)
    if stage is None:
        draft = await _of_promotion(reading)
    else:
        draft = await _planned(reading, stage, freight, kinds, now)
    own = draft.root == ("spec", "steps")
    of_stage = shelf.manifest("Stage", promotion.spec.stage, promotion.namespace)
    places = Places(manifest, manifest if own else of_stage, shelf)
    if refusals := refused(draft.problems):
        raise CannotAssemble([places.problem(problem) for problem in refusals])
    if not draft.steps:
        raise CannotAssemble([manifest.finding(("spec",), NO_STEPS())])
    spec = promotion.spec.replace(steps=draft.steps, vars=draft.variables)
    written_at = [_of_variable(variable, promotion, stage, manifest, of_stage) for variable in draft.variables]
    collection = FreightCollection()
    if stage is not None and freight is not None:
        collection = collection_with(stage, freight)
    elif freight is not None:
        collection = collection.with_freight(freight.reference())
    requested = list(stage.origins) if stage is not None else []
    whole = promotion.replace(spec=spec)
    return Assembled(whole, draft, freight, collection, requested, reading.notes, places, written_at)


async def _of_promotion(reading: _Reading) -> Draft:
    """The steps of a Promotion whose Stage is not known."""
    promotion = reading.promotion
    if not promotion.spec.steps:
        return draft_of_promotion(promotion)
    reading.notes.append(STEPS_OF_PROMOTION())
    return draft_of_own(promotion, promotion.spec.vars, await reading.tasks(promotion.spec.steps))


async def _planned(reading: _Reading, stage: Stage, freight: Freight | None, kinds: Kinds, now: datetime) -> Draft:
    """The steps with which a controller would run the Promotion."""
    promotion, given = reading.promotion, reading.promotion.spec.steps or ()
    template = stage.spec.promotion_template
    find = await reading.tasks([*(template.spec.steps if template is not None else ()), *given])
    rulebook = Rulebook(kinds, find)
    before = program_before(promotion, stage, freight) if freight is not None else None
    planned = plan(promotion, stage, rulebook.template(stage), rulebook, Evaluator(before, now))
    if planned.replaced:
        reading.notes.append(planned.replaced)
    if planned.of_template and planned.steps is not given:
        draft = draft_of_stage(stage, find)
    else:
        draft = draft_of_own(promotion, planned.variables, find)
    return replace(draft, steps=tuple(planned.steps), variables=tuple(planned.variables))


def _of_variable(
    variable: ExpressionVariable,
    promotion: Promotion,
    stage: Stage | None,
    manifest: Manifest,
    of_stage: Manifest | None,
) -> tuple[Manifest | None, Path]:
    """Where a variable is written: in the Promotion, the Stage or its template; the file is None if it has none."""
    for index, one in enumerate(promotion.spec.vars):
        if one is variable:
            return manifest, ("spec", "vars", index, "value")
    for index, one in enumerate(stage.spec.vars if stage is not None else ()):
        if one is variable:
            return of_stage, ("spec", "vars", index, "value")
    template = stage.spec.promotion_template if stage is not None else None
    for index, one in enumerate(template.spec.vars if template is not None else ()):
        if one is variable:
            return of_stage, ("spec", "promotionTemplate", "spec", "vars", index, "value")
    return None, ("spec", "vars")


class _Reading:
    """Reads what belongs to a Promotion, and notes what is not known."""

    def __init__(self, promotion: Promotion, manifest: Manifest, shelf: Shelf) -> None:
        self.promotion = promotion
        self.notes: list[str] = []
        self._manifest = manifest
        self._shelf = shelf

    async def read(self, model: type[K], resource: Resource, name: str, *, note: bool = True) -> K | None:
        """One object; a note if it is not known here, or if the cluster does not have it."""
        namespace = self.promotion.namespace if resource.namespaced else ""
        try:
            raw = await self._shelf.get(resource, Key(namespace, name), codec=JSON)
        except NotKnown as error:
            why = str(error)
        except NotFound as error:
            if error.resource_missing:
                raise
            why = NO_SUCH(kind=resource.kind, name=name)
        else:
            return _model(model, self._shelf.manifest(resource.kind, name, namespace) or self._manifest, raw)
        if note:
            self.notes.append(why)
        return None

    async def tasks(self, steps: Sequence[PromotionStep]) -> Find:
        """The tasks that *steps* name, as far as they are there; what is missing is told with the step."""
        found: dict[TaskName, PromotionTaskSpec] = {}
        for reference in task_references(steps):
            task: PromotionTask | ClusterPromotionTask | None
            if reference.kind == PromotionTask.kind_name:
                task = await self.read(PromotionTask, TASKS, reference.name, note=False)
            else:
                task = await self.read(ClusterPromotionTask, CLUSTER_TASKS, reference.name, note=False)
            if task is not None:
                found[task_name(reference)] = task.spec
        return found_in(found)

    async def freight(self, stage: Stage | None, now: datetime) -> Freight | None:
        """What is promoted, None if that is not known here."""
        spec, namespace = self.promotion.spec, self.promotion.namespace
        if spec.freight:
            return await self.read(Freight, FREIGHTS, spec.freight)
        if spec.origin is None:
            return None
        listed = [_model(Freight, self._manifest, raw) for raw in await self._shelf.list(FREIGHTS, namespace)]
        found = [one for one in listed if one.origin == spec.origin]
        if self._shelf.live and stage is not None:
            upstream = upstream_of(stage, spec.origin)
            above = await self.read(Stage, STAGES, upstream) if upstream is not None else None
            chosen = candidate(stage, spec.origin, found, above, now)
            if isinstance(chosen, Freight):
                return chosen
            self.notes.append(chosen)
            return None
        newest = max(found, key=lambda one: (one.metadata.creation_timestamp or "", one.name), default=None)
        if newest is not None:
            self.notes.append(NEWEST_OF_FILES(origin=spec.origin))
        return newest


def _model(model: type[K], manifest: Manifest, raw: Any = None) -> K:
    try:
        return model.model_validate(manifest.value if raw is None else raw)
    except ValidationError as error:
        findings = []
        for fault in error.errors(include_url=False, include_context=False, include_input=False)[:_MOST]:
            path: Path = tuple(fault["loc"])
            text = MALFORMED(kind=model.kind_name, path=written(path), why=fault["msg"].removeprefix(_PYDANTIC))
            findings.append(manifest.finding(path, text))
        raise CannotAssemble(findings) from error


_MOST: Final = 50
_PYDANTIC: Final = "Value error, "
