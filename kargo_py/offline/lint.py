"""The checks that an API server and the controllers make, of objects in files, all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from kargo_py.api.meta import GROUP
from kargo_py.api.promotion import ExpressionVariable, Promotion, PromotionTaskReference
from kargo_py.api.promotion_task import ClusterPromotionTask, PromotionTask, PromotionTaskSpec
from kargo_py.api.rules import ONE_OF_USES_AND_TASK, STEP_ALIAS_TWICE, STEP_OF_A_TASK
from kargo_py.api.stage import Stage
from kargo_py.api.types import JsonObject
from kargo_py.controllers.admission import overridden
from kargo_py.controllers.template import Rulebook, template_variables
from kargo_py.engine.checks import ALIAS_TWICE, check_stage, check_task
from kargo_py.engine.problems import Problem, TaskName, written
from kargo_py.engine.tasks import BOTH_USES_AND_TASK, TASK_WITH_FIELD, task_name
from kargo_py.expressions.templates import Path
from kargo_py.messages import Shown, message
from kargo_py.offline.crossing import Objects, objects, references, twice
from kargo_py.offline.documents import Document
from kargo_py.offline.files import File
from kargo_py.offline.findings import Finding, Level, Place, ordered
from kargo_py.offline.manifests import Manifest, manifests, value_at
from kargo_py.offline.schemas import judge, with_written
from kargo_py.offline.traps import traps
from kargo_py.steps.config import NO_SUCH_FIELD
from kargo_py.steps.registry import Kinds

STEPS_NOT_CHECKED = message(
    "the steps are not checked until the other errors are corrected",
    do="Correct the errors of this object, and look again.",
    shown=Shown.LINT,
)
TASK_IN_NO_FILE = message(
    "{task} is in none of the files, so its steps are not checked",
    do="Give the file of the task, too; or nothing to do, where the cluster has it. With `--strict` it is an error.",
    shown=Shown.LINT,
)

_OF_STEPS: Final = ("vars", "steps", "promotionTemplate")
_ANY_NAME: Final = "x"
_REQUESTS: Final[JsonObject] = {
    "requestedFreight": [{"origin": {"kind": "Warehouse", "name": _ANY_NAME}, "sources": {"direct": True}}]
}
_BETTER: Final = (
    (STEP_ALIAS_TWICE(), ALIAS_TWICE(alias="", other="").partition("'")[0]),
    (STEP_OF_A_TASK(), STEP_OF_A_TASK()),
    (ONE_OF_USES_AND_TASK(), BOTH_USES_AND_TASK()),
    ("(not)", TASK_WITH_FIELD(field="config")),
)
"""How the schema ends what it says of steps, and how the checks begin where they say better which and where."""
_MOST: Final = 1000
"""Findings of one object."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """All findings in order, and how many things were looked at."""

    findings: Sequence[Finding]
    files: int
    objects: int
    skipped: int
    """Objects of other kinds."""
    unreadable: int
    """Files in folders that cannot be read and have no word of Kargo in them."""


def lint(files: Sequence[File], kinds: Kinds, *, strict: bool = False) -> Verdict:
    """Judge all objects in *files* where *kinds* of steps are there; *strict*: missing tasks are errors."""
    everything = list(manifests(files))
    ours = [manifest for manifest in everything if manifest.is_kargos]
    found: list[Finding] = [finding for file in files for finding in file.findings]
    for file in files:
        for document in file.documents:
            found += _of_document(file.name, document)
    known = objects(ours)
    found += twice(ours)
    judged = [_of_object(manifest, known, kinds, strict=strict) for manifest in ours]
    told = {(one.place, one.path) for each in judged for one in each.as_such if one.level is Level.ERROR}
    for each in judged:
        # The schema says some of it, too, in its own words: of the object itself, or of a task that it names
        of_steps = [one for one in each.of_steps if (one.place, one.path) not in told]
        found += [*each.as_such, *of_steps, *each.traps][:_MOST]
    foreign = sum(file.foreign for file in files)
    return Verdict(ordered(found), len(files), len(ours), len(everything) - len(ours), foreign)


def _of_document(name: str, document: Document) -> Iterator[Finding]:
    """What is wrong with the text; of documents that have nothing to do with Kargo only that they cannot be read."""
    if not document.broken and GROUP not in document.source:
        return
    for fault in document.faults:
        yield Finding(Place(name, fault.line, fault.column), fault.level, written(fault.path), fault.text)


@dataclass(frozen=True, slots=True)
class _Judged:
    """What is wrong with an object: by its schema and with what it names, with its steps, and in what YAML made."""

    as_such: Sequence[Finding]
    of_steps: Sequence[Finding] = ()
    traps: Sequence[Finding] = ()


def _of_object(manifest: Manifest, known: Objects, kinds: Kinds, *, strict: bool) -> _Judged:
    found = [*judge(manifest), *references(manifest, known)]
    absent: set[TaskName] = set()
    try:
        problems = _problems(manifest, known, kinds, absent)
    except ValidationError:
        # What is wrong has been told, by the schema or the model.
        return _Judged([*found, manifest.finding((), STEPS_NOT_CHECKED(), Level.INFO)])
    of_steps = [_told(problem, manifest, known, absent, strict=strict) for problem in problems]
    for words, better in _BETTER:
        if any(one.text.startswith(better) for one in of_steps):
            found = [one for one in found if not one.text.endswith(words)]
    return _Judged(found, of_steps, [*traps(manifest, kinds)])


def _problems(manifest: Manifest, known: Objects, kinds: Kinds, absent: set[TaskName]) -> Sequence[Problem]:
    """What is wrong with the steps, whatever else is; *absent* gets the tasks that are not there or cannot be read.

    Raises ValidationError.
    """

    def find(reference: PromotionTaskReference) -> PromotionTaskSpec | None:
        name = task_name(reference)
        task = _task(name, manifest.namespace, known)
        if task is not None:
            with suppress(ValidationError):
                return _TASKS[reference.kind].model_validate(_named(task)).spec
        absent.add(name)
        return None

    spec = value_at(manifest.value, ("spec",))
    kept = {name: spec[name] for name in _OF_STEPS if name in spec} if isinstance(spec, dict) else {}
    match manifest.kind:
        case "Stage":
            return check_stage(Stage.model_validate({**_named(manifest), "spec": {**_REQUESTS, **kept}}), kinds, find)
        case "Promotion":
            whole = {**_named(manifest), "spec": {"stage": _ANY_NAME, **kept}}
            promotion = Promotion.model_validate(whole)
            variables = overridden(_of_stage(manifest, known), promotion.spec.vars)
            return Rulebook(kinds, find).own(promotion, variables).problems
        case "PromotionTask" | "ClusterPromotionTask" as kind:
            return check_task(_TASKS[kind].model_validate(_named(manifest)), kinds)
    return []


def _of_stage(manifest: Manifest, known: Objects) -> Sequence[ExpressionVariable]:
    """The variables that the Promotion of *manifest* gets from its Stage, if that is among the files."""
    name = value_at(manifest.value, ("spec", "stage"))
    stage = known.find("Stage", name, manifest.namespace) if isinstance(name, str) else None
    if stage is not None:
        with suppress(ValidationError):
            return template_variables(Stage.model_validate(_named(stage)))
    return ()


def _named(manifest: Manifest) -> JsonObject:
    """The object with no metadata but its names."""
    metadata = {"name": manifest.name or _ANY_NAME, "namespace": manifest.namespace}
    return {**manifest.value, "metadata": metadata, "status": {}}


_TASKS: Final[dict[str, type[PromotionTask | ClusterPromotionTask]]] = {
    "PromotionTask": PromotionTask,
    "ClusterPromotionTask": ClusterPromotionTask,
}


def _task(name: TaskName, namespace: str, known: Objects) -> Manifest | None:
    return known.find(name.kind, name.name, "" if name.kind == ClusterPromotionTask.kind_name else namespace)


def _told(problem: Problem, manifest: Manifest, known: Objects, absent: set[TaskName], *, strict: bool) -> Finding:
    level = Level.WARNING if problem.warning else Level.ERROR
    at_key = problem.message == NO_SUCH_FIELD()
    if problem.task is not None:
        task = _task(problem.task, manifest.namespace, known)
        if task is not None:
            text = with_written(problem.message, task, problem.path)
            return task.finding(problem.path, text, level, key=at_key)
        return manifest.finding((), str(problem), level)
    missing = _reference(manifest, problem.path)
    if missing not in absent:
        text = with_written(problem.message, manifest, problem.path)
        return manifest.finding(problem.path, text, level, key=at_key)
    if _task(missing, manifest.namespace, known):
        # It cannot be read, and why is told of the task itself
        return manifest.finding(problem.path, STEPS_NOT_CHECKED(), Level.INFO)
    text = TASK_IN_NO_FILE(task=missing)
    return manifest.finding(problem.path, text, Level.ERROR if strict else Level.WARNING)


def _reference(manifest: Manifest, path: Path) -> TaskName:
    """The task named at *path*."""
    value = value_at(manifest.value, path) if path[-1:] == ("task",) else None
    value = value if isinstance(value, dict) else {}
    return TaskName(str(value.get("kind", PromotionTask.kind_name)), str(value.get("name")))
