"""What a Promotion in a file would run: its steps or those of its Stage, with tasks written out, and its Freight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from kargo_py.api.freight import Freight, FreightOrigin
from kargo_py.api.meta import KubeObject
from kargo_py.api.promotion import FreightCollection, Promotion, PromotionStep, PromotionTaskReference
from kargo_py.api.promotion_task import ClusterPromotionTask, PromotionTask, PromotionTaskSpec
from kargo_py.api.stage import Stage
from kargo_py.controllers.world import FREIGHTS, STAGES
from kargo_py.engine.checks import Program, program_of_promotion, program_of_stage
from kargo_py.engine.problems import Path, Place as Written, Problem, TaskName, written
from kargo_py.engine.tasks import found_in
from kargo_py.kube.codec import JSON
from kargo_py.kube.errors import NotFound
from kargo_py.kube.resources import Key, Resource
from kargo_py.messages import Shown, message
from kargo_py.offline.findings import Finding, Level, Place
from kargo_py.offline.manifests import Manifest
from kargo_py.offline.shelf import CLUSTER_TASKS, TASKS, NotKnown, Shelf

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
    "the steps are those of the Promotion; a controller may replace them by those of its Stage",
    do="Leave `spec.steps` out to have the steps of the Stage's template, which is what runs unless the Stage allows "
    "others.",
    shown=Shown.LINT,
)
VARIABLES_OF_STAGE = message(
    "the variables of the Promotion are replaced by those of its Stage",
    do="Leave `spec.vars` out, or set them in the Stage or its template.",
    shown=Shown.LINT,
)
NEWEST_OF_FILES = message(
    "the Freight is the newest one of {origin} in the files; a controller takes the newest available then",
    do="Name it in `spec.freight` to be sure.",
    shown=Shown.LINT,
)

_READS: Final[dict[str, tuple[Resource, type[PromotionTask | ClusterPromotionTask]]]] = {
    "PromotionTask": (TASKS, PromotionTask),
    "ClusterPromotionTask": (CLUSTER_TASKS, ClusterPromotionTask),
}

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
    program: Program
    freight: Freight | None
    collection: FreightCollection
    requested: Sequence[str]
    notes: Sequence[str]
    places: Places


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


async def assemble(manifest: Manifest, namespace: str, shelf: Shelf) -> Assembled:
    """All that belongs to the Promotion of *manifest*. Raises CannotAssemble, and KubeError of a cluster."""
    promotion = _model(Promotion, manifest)
    metadata = promotion.metadata.replace(namespace=promotion.namespace or namespace)
    promotion = promotion.replace(metadata=metadata)
    notes: list[str] = []
    stage = await _read(Stage, STAGES, promotion.spec.stage, promotion, manifest, shelf, notes)
    own = bool(promotion.spec.steps)
    source = manifest if own else shelf.manifest("Stage", promotion.spec.stage, promotion.namespace)
    places = Places(manifest, source, shelf)
    if own:
        program = program_of_promotion(promotion)
        notes.append(STEPS_OF_PROMOTION())
    else:
        template = stage.spec.promotion_template if stage is not None else None
        if stage is None or template is None or not template.spec.steps:
            raise CannotAssemble([manifest.finding(("spec",), NO_STEPS())])
        tasks = await _tasks(template.spec.steps, promotion, manifest, shelf)
        program = program_of_stage(stage, found_in(tasks))
        if promotion.spec.vars:
            notes.append(VARIABLES_OF_STAGE())
    if any(not problem.warning for problem in program.problems):
        raise CannotAssemble([places.problem(problem) for problem in program.problems])
    spec = promotion.spec.replace(steps=program.steps, vars=program.variables)
    freight = await _freight(promotion, manifest, shelf, notes)
    history = stage.status.freight_history if stage is not None else ()
    collection = history[0] if history else FreightCollection()
    if freight is not None:
        collection = collection.with_freight(freight.reference())
    requested = list(stage.origins) if stage is not None else []
    return Assembled(promotion.replace(spec=spec), program, freight, collection, requested, notes, places)


async def _freight(promotion: Promotion, manifest: Manifest, shelf: Shelf, notes: list[str]) -> Freight | None:
    name = promotion.spec.freight
    if name:
        return await _read(Freight, FREIGHTS, name, promotion, manifest, shelf, notes)
    origin = promotion.spec.origin
    if origin is None:
        return None
    found = [_model(Freight, one) for one in _of_origin(origin, promotion.namespace, shelf)]
    newest = max(found, key=lambda one: (one.metadata.creation_timestamp or "", one.name), default=None)
    if newest is not None:
        notes.append(NEWEST_OF_FILES(origin=origin))
    return newest


def _of_origin(origin: FreightOrigin, namespace: str, shelf: Shelf) -> Iterator[Manifest]:
    for one in shelf.all("Freight", namespace):
        given = one.value.get("origin")
        if isinstance(given, dict) and (given.get("kind"), given.get("name")) == (origin.kind, origin.name):
            yield one


async def _tasks(
    steps: Sequence[PromotionStep], promotion: Promotion, manifest: Manifest, shelf: Shelf
) -> dict[TaskName, PromotionTaskSpec]:
    """The tasks that *steps* name, as far as they are there."""
    found: dict[TaskName, PromotionTaskSpec] = {}
    for reference in {(s.task.kind, s.task.name): s.task for s in steps if s.task is not None}.values():
        if (spec := await _task(reference, promotion, manifest, shelf)) is not None:
            found[TaskName(reference.kind, reference.name)] = spec
    return found


async def _task(
    reference: PromotionTaskReference, promotion: Promotion, manifest: Manifest, shelf: Shelf
) -> PromotionTaskSpec | None:
    resource, model = _READS[reference.kind]
    # That it is missing is told with the step that names it
    task = await _read(model, resource, reference.name, promotion, manifest, shelf, [])
    return task.spec if task is not None else None


async def _read(
    model: type[K],
    resource: Resource,
    name: str,
    promotion: Promotion,
    manifest: Manifest,
    shelf: Shelf,
    notes: list[str],
) -> K | None:
    """One object; a note if it is not known here, None too if a cluster does not have it."""
    namespace = promotion.namespace if resource.namespaced else ""
    try:
        raw = await shelf.get(resource, Key(namespace, name), codec=JSON)
    except NotKnown as error:
        notes.append(str(error))
        return None
    except NotFound as error:
        if error.resource_missing:
            raise
        notes.append(NO_SUCH(kind=resource.kind, name=name))
        return None
    return _model(model, shelf.manifest(resource.kind, name, namespace) or manifest, raw)


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
