"""Tasks written out: a step that names a task becomes the steps of that task, as Kargo's webhook does it.

What is wrong is told where its author wrote it, which for a step of a task is in the task.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kargo_py.api.promotion import ExpressionVariable, PromotionStep, PromotionTaskReference
from kargo_py.api.promotion_task import PromotionTaskSpec
from kargo_py.engine.plain import kibibytes, look_at
from kargo_py.engine.problems import Findings, Path, Place, Problem, TaskName
from kargo_py.expressions.functions import SEPARATOR
from kargo_py.messages import Shown, message
from kargo_py.steps.base import ROOM

_SHOWN = Shown.PROMOTION | Shown.STAGE

TASK_MISSING = message(
    'there is no {task} in namespace "{namespace}"',
    do="Create it, or correct `task.name` and `task.kind`: a PromotionTask is one of the Stage's namespace, a "
    "ClusterPromotionTask serves all.",
    shown=_SHOWN,
)
CLUSTER_TASK_MISSING = message(
    "there is no {task}",
    do="Create it, or correct `task.name` and `task.kind`.",
    shown=_SHOWN,
)
TASK_IN_TASK = message(
    "a task's step must have uses and no task; write the steps of {inner} out",
    do="A task cannot hold another.",
    shown=_SHOWN,
)
TASK_WITH_FIELD = message(
    "a step with a task cannot set {field}: it would have no effect",
    do="Remove it from this step, and set it at the steps of the task.",
    shown=_SHOWN,
)
BOTH_USES_AND_TASK = message(
    "a step cannot have both uses and task",
    do="Take one of them away.",
    shown=_SHOWN,
)
VARIABLE_MISSING = message(
    "{task} needs a value for its variable {name!r}",
    do="Give it in `vars` of the step that names the task, or in those of the Stage or its template; or give the task "
    "a default.",
    shown=_SHOWN,
)
ALIAS_RESERVED = message(
    "the alias {alias!r} is reserved for steps that have none",
    do="Give the step another alias in `as`, or none: then it gets one by its place.",
    shown=_SHOWN,
)
TOO_MANY_STEPS = message(
    "with the steps of its tasks there are more than {most} steps",
    do="Spread them over several Stages.",
    shown=_SHOWN,
)
STEPS_TOO_LARGE = message(
    "with those of its tasks the steps take more than {most}",
    do="A Promotion is one object, and must leave room for its status. Keep long texts in files or ConfigMaps, or "
    "spread the steps over several Stages.",
    shown=_SHOWN,
)

MAX_STEPS: Final = 1000
"""Steps of a Promotion."""
_RESERVED: Final = re.compile(r"(?:step|task)-[0-9]+")

Find = Callable[[PromotionTaskReference], PromotionTaskSpec | None]
"""Gives the task that a reference names, None if there is none."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the author wrote a step."""

    step: Place
    variables: tuple[Place, ...]
    """Where each of the step's variables is written."""


def written_at(place: Place, step: PromotionStep) -> Origin:
    """The origin of *step*, all of which stands at *place*."""
    return Origin(place, tuple(place.below("vars", index) for index in range(len(step.vars))))


@dataclass(frozen=True, slots=True)
class Inflated:
    """Steps without tasks, all with their aliases written out, and where each came from."""

    steps: tuple[PromotionStep, ...]
    origins: tuple[Origin, ...]
    problems: tuple[Problem, ...]
    missing: frozenset[str] = frozenset()
    """Aliases of tasks that could not be written out, so that nobody knows their steps."""


def task_name(reference: PromotionTaskReference) -> TaskName:
    """The task that *reference* names."""
    return TaskName(reference.kind, reference.name)


def default_alias(step: PromotionStep, index: int) -> str:
    """The alias of the step at *index* as written by its author, without blanks around it, or the default one."""
    return (step.as_ or "").strip() or f"{'task' if step.task is not None else 'step'}-{index + 1}"


def inflate(
    steps: Sequence[PromotionStep],
    variables: Sequence[ExpressionVariable],
    find: Find,
    *,
    namespace: str = "",
    root: Path = ("spec", "steps"),
) -> Inflated:
    """Write out the tasks that *steps* name; *variables* are those of the Stage and its template.

    *root* is where the steps are written, *namespace* only for telling. What is wrong is left out or as it is.
    """
    return _Inflation(variables, find, namespace, root).of(steps)


class _Inflation:
    def __init__(self, variables: Sequence[ExpressionVariable], find: Find, namespace: str, root: Path) -> None:
        self._given = {variable.name for variable in variables if variable.value}
        self._find = find
        self._namespace = namespace
        self._root = root
        self._findings = Findings()
        self._steps: list[PromotionStep] = []
        self._origins: list[Origin] = []
        self._missing: set[str] = set()
        self._size = 0
        self._sizes: dict[int, int] = {}

    def of(self, steps: Sequence[PromotionStep]) -> Inflated:
        for index, step in enumerate(steps):
            alias = default_alias(step, index)
            self._check_alias(step, Place((*self._root, index)))
            if step.task is not None:
                self._put_task(step, step.task, alias, index)
            else:
                self._put(step.replace(as_=alias), written_at(Place((*self._root, index)), step), step)
            if not self._fits():
                break
        return Inflated(
            tuple(self._steps),
            tuple(self._origins),
            tuple(self._findings.told(self._root)),
            frozenset(self._missing),
        )

    def _put_task(self, step: PromotionStep, reference: PromotionTaskReference, alias: str, index: int) -> None:
        place = Place((*self._root, index))
        self._check_reference(step, place)
        found = self._find(reference)
        if found is None:
            named = task_name(reference)
            said = (
                TASK_MISSING(task=named, namespace=self._namespace)
                if reference.kind == "PromotionTask" and self._namespace
                else CLUSTER_TASK_MISSING(task=named)
            )
            self._findings.add(place.below("task"), said)
            self._missing.add(alias)
            return
        name = task_name(reference)
        common, places = self._variables(step, found, name, index)
        for number, inner in enumerate(found.steps):
            written = Place(("spec", "steps", number), name)
            self._check_alias(inner, written)
            if inner.task is not None:
                self._findings.add(written.below("task"), TASK_IN_TASK(inner=task_name(inner.task)))
                self._missing.add(alias)
                continue
            # A new list for each: Kargo's steps share one, and overwrite each other's variables in it
            changes = {"as_": f"{alias}{SEPARATOR}{default_alias(inner, number)}"}
            made = inner.replace(**changes, vars=[*common, *inner.vars]) if common else inner.replace(**changes)
            self._put(made, Origin(written, (*places, *written_at(written, inner).variables)), inner)
            if not self._fits(tell=False):
                return

    def _variables(
        self, step: PromotionStep, task: PromotionTaskSpec, name: TaskName, index: int
    ) -> tuple[list[ExpressionVariable], tuple[Place, ...]]:
        """What all steps of a task get, and where each is written; later ones go before earlier ones."""
        set_there = {variable.name for variable in step.vars if variable.value}
        made: list[ExpressionVariable] = []
        places: list[Place] = []
        for number, variable in enumerate(task.vars):
            if variable.name in self._given:
                continue
            if not variable.value and variable.name not in set_there:
                place = Place((*self._root, index, "task"))
                self._findings.add(place, VARIABLE_MISSING(task=name, name=variable.name))
            elif not variable.value:
                continue
            made.append(variable)
            places.append(Place(("spec", "vars", number), name))
        made += step.vars
        places += written_at(Place((*self._root, index)), step).variables
        return made, tuple(places)

    def _check_alias(self, step: PromotionStep, place: Place) -> None:
        if _RESERVED.fullmatch((step.as_ or "").strip()):
            self._findings.add(place.below("as"), ALIAS_RESERVED(alias=(step.as_ or "").strip()))

    def _check_reference(self, step: PromotionStep, place: Place) -> None:
        if step.uses is not None:
            self._findings.add(place.below("uses"), BOTH_USES_AND_TASK())
        idle = {
            "if": bool(step.if_),
            "continueOnError": step.continue_on_error,
            "retry": step.retry is not None,
            "config": step.config is not None,
        }
        for name in (name for name, given in idle.items() if given):
            self._findings.add(place.below(name), TASK_WITH_FIELD(field=name))

    def _put(self, step: PromotionStep, origin: Origin, source: PromotionStep) -> None:
        self._steps.append(step)
        self._origins.append(origin)
        key = id(source)
        if key not in self._sizes:
            self._sizes[key] = size_of(source)
        self._size += self._sizes[key] + size_of_variables(step.vars)

    def _fits(self, *, tell: bool = True) -> bool:
        many, large = len(self._steps) > MAX_STEPS, self._size > ROOM
        if tell and many:
            self._findings.add(Place(self._root), TOO_MANY_STEPS(most=MAX_STEPS))
        elif tell and large:
            self._findings.add(Place(self._root), STEPS_TOO_LARGE(most=kibibytes(ROOM)))
        return not (many or large)


def size_of(step: PromotionStep) -> int:
    """About as many bytes as *step* takes as JSON without its variables; more than :data:`ROOM` is not looked at."""
    texts = (step.uses, step.as_, step.if_)
    return 50 + sum(len(text) for text in texts if text) + look_at(step.config, ROOM).size


def size_of_variables(variables: Sequence[ExpressionVariable]) -> int:
    """About as many bytes as *variables* take as JSON."""
    return sum(len(variable.name) + len(variable.value) + 25 for variable in variables)


def found_in(tasks: Mapping[TaskName, PromotionTaskSpec]) -> Find:
    """A :data:`Find` that looks into *tasks*."""
    return lambda reference: tasks.get(task_name(reference))
