"""Steps checked before they run: all that is wrong at once, each with its place, without running or reading anything.

A problem that is no warning says why it cannot succeed; what Kargo would run is never refused, but for kinds of steps
that are not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kargo_py.api.promotion import ExpressionVariable, Promotion, PromotionStep, PromotionTaskReference
from kargo_py.api.promotion_task import ClusterPromotionTask, PromotionTask
from kargo_py.api.stage import Stage
from kargo_py.engine.checks_config import Uncheckable, config_faults
from kargo_py.engine.checks_expressions import Templates, spoiled_variable
from kargo_py.engine.checks_names import Scene, Steps
from kargo_py.engine.evaluation import places_of
from kargo_py.engine.plain import kibibytes, look_at
from kargo_py.engine.problems import Findings, Path, Place, Problem, shortened
from kargo_py.engine.tasks import (
    MAX_STEPS,
    STEPS_TOO_LARGE,
    TOO_MANY_STEPS,
    Find,
    Origin,
    inflate,
    size_of_variables,
    written_at,
)
from kargo_py.expressions.functions import SEPARATOR
from kargo_py.expressions.templates import templates_in
from kargo_py.messages import Shown, message
from kargo_py.steps.base import ROOM
from kargo_py.steps.registry import Kinds

_SHOWN = Shown.PROMOTION | Shown.STAGE

NO_SUCH_KIND = message(
    "there is no kind of step {uses!r}{hint}",
    do="Correct `uses`, or install the package that has it. `kargo-py steps` lists the kinds there are. A step with "
    "`if` or `continueOnError` is not refused for that: it ends as `Errored` if it comes to it.",
    shown=_SHOWN,
)
NOTHING_TO_RUN = message(
    "a step must have uses",
    do="Say in `uses` what kind of step it is.",
    shown=_SHOWN,
)
STEP_NAMES_TASK = message(
    "a step with a task cannot be run; its steps must be written out",
    do="Tasks are for the templates of Stages, from where they are written out into Promotions.",
    shown=_SHOWN,
)
ALIAS_TWICE = message(
    "has the alias {alias!r} of {other}",
    do="Give each step an alias of its own in `as`: other steps refer to its output by it.",
    shown=_SHOWN,
)
ALIAS_OURS = message(
    "the alias {alias!r} is reserved: kargo-py keeps its records under it",
    do="Give the step another alias in `as`.",
    shown=_SHOWN,
)
NEGATIVE_TIMEOUT = message(
    "a time of less than nothing is no limit",
    do="Give `retry.timeout` a time, or `0s` for no limit.",
    shown=_SHOWN,
)
NAME_NOT_EVALUATED = message(
    "names of fields are never evaluated: the expression stays as it is",
    do="Only values may use expressions, as in Kargo.",
    shown=_SHOWN,
)
NOT_ALL_CHECKED = message(
    "there is more than is checked beforehand",
    do="What is wrong with the rest shows when the step runs. Shorter and fewer expressions and values help.",
    shown=_SHOWN,
)

MOST_VALUES: Final = 10_000
"""Values of all configurations together that are checked."""
_OURS: Final = "kargo-py.io/"


@dataclass(frozen=True, slots=True)
class Draft:
    """The steps that a Promotion is to run, written out, with its variables, and where each is written."""

    steps: tuple[PromotionStep, ...]
    variables: tuple[ExpressionVariable, ...]
    origins: tuple[Origin, ...]
    places: tuple[Place, ...]
    """Where each variable is written."""
    problems: tuple[Problem, ...] = ()
    """What was wrong with the tasks."""
    unknown: frozenset[str] = frozenset()
    """Aliases of tasks whose steps are not known."""
    partial: bool = False
    """Whether there will be other steps and variables around it."""
    root: Path = ("spec", "steps")


def draft_of_promotion(promotion: Promotion) -> Draft:
    """What *promotion* runs; its tasks are written out already."""
    spec = promotion.spec
    steps = tuple(spec.steps or ())
    origins = tuple(written_at(Place(("spec", "steps", index)), step) for index, step in enumerate(steps))
    return Draft(steps, tuple(spec.vars), origins, _places(("spec", "vars"), spec.vars))


def draft_of_stage(stage: Stage, find: Find) -> Draft:
    """What a Promotion to *stage* runs. Nothing if it has no steps."""
    template = stage.spec.promotion_template
    if template is None or not template.spec.steps:
        return Draft((), (), (), ())
    base, root = ("spec", "promotionTemplate", "spec"), ("spec", "promotionTemplate", "spec", "steps")
    variables = (*stage.spec.vars, *template.spec.vars)
    places = (*_places(("spec", "vars"), stage.spec.vars), *_places((*base, "vars"), template.spec.vars))
    namespace = stage.metadata.namespace or ""
    found = inflate(template.spec.steps, variables, find, namespace=namespace, root=root)
    return Draft(found.steps, variables, found.origins, places, found.problems, found.missing, root=root)


def draft_of_task(task: PromotionTask | ClusterPromotionTask) -> Draft:
    """What a step that names *task* stands for; the steps and variables around it are not known."""
    reference = PromotionTaskReference(name=task.name)
    # Whoever names the task sets what has no default
    given = [ExpressionVariable(name=variable.name, value="?") for variable in task.spec.vars if not variable.value]
    found = inflate([PromotionStep(task=reference)], given, lambda _: task.spec)
    own = tuple(Origin(_out_of_task(o.step), tuple(map(_out_of_task, o.variables))) for o in found.origins)
    problems = tuple(Problem(p.path, p.message, p.warning) for p in found.problems)
    return Draft(found.steps, (), own, (), problems, found.missing, partial=True)


def _out_of_task(place: Place) -> Place:
    return Place(place.path)


def _places(root: Path, variables: Sequence[ExpressionVariable]) -> tuple[Place, ...]:
    return tuple(Place((*root, index)) for index in range(len(variables)))


def check(draft: Draft, kinds: Kinds) -> list[Problem]:
    """All that is wrong with *draft* where *kinds* of steps are there, in the order of the steps; bounded."""
    return _Check(draft, kinds).run()


class _Check:
    def __init__(self, draft: Draft, kinds: Kinds) -> None:
        self._draft = draft
        self._kinds = kinds
        self._findings = Findings()
        self._findings.take(draft.problems)
        self._templates = Templates(self._findings)
        self._root = Place(draft.root)
        self._aliases = [step.alias(index) for index, step in enumerate(draft.steps)]
        self._steps = self._known_steps()

    def run(self) -> list[Problem]:
        plain = self._plain()
        if plain is not None:
            variables = self._check_variables()
            for index, step in enumerate(self._draft.steps):
                if self._findings.full:
                    break
                self._check_step(index, step, variables, plain=plain[index])
            if self._templates.exhausted:
                self._findings.add(self._root, NOT_ALL_CHECKED(), warning=True)
        return self._findings.told(self._draft.root)

    def _known_steps(self) -> Steps:
        tasks: dict[str, list[tuple[int, bool | None]]] = {}
        for index, (alias, step) in enumerate(zip(self._aliases, self._draft.steps, strict=True)):
            task = alias.rpartition(SEPARATOR)[0]
            if task:
                kind = self._kinds.get(step.uses or "")
                tasks.setdefault(task, []).append((index, kind.propagates_output if kind else None))
        first = {alias: index for index, alias in reversed([*enumerate(self._aliases)])}
        return Steps(dict(reversed(first.items())), tasks, self._draft.unknown, self._draft.partial)

    def _plain(self) -> list[bool] | None:
        """Of each step, whether its configuration can be looked at, which is told; None if none can."""
        draft, findings = self._draft, self._findings
        if len(draft.steps) > MAX_STEPS:
            findings.add(self._root, TOO_MANY_STEPS(most=MAX_STEPS))
            return None
        size = size_of_variables(draft.variables)
        plain, values = [], 0
        for step, origin in zip(draft.steps, draft.origins, strict=True):
            look = look_at(step.config, ROOM)
            for path, text in look.faults:
                findings.add(origin.step.below("config", *path), text)
            values += look.values
            plain.append(not look.faults and values <= MOST_VALUES)
            if values > MOST_VALUES:
                findings.add(origin.step.below("config"), NOT_ALL_CHECKED(), warning=True)
            size += look.size + size_of_variables(step.vars) + len(step.if_ or "")
            if size > ROOM:
                if not look.faults:
                    findings.add(self._root, STEPS_TOO_LARGE(most=kibibytes(ROOM)))
                return None
        return plain

    # Variables

    def _check_variables(self) -> dict[str, str | None]:
        """Check those of the Promotion; returns their names, each with what a guess would spoil."""
        scene = Scene(self._steps, {}, in_variable=True)
        return self._variables(self._draft.variables, self._draft.places, scene)

    def _variables(
        self, variables: Sequence[ExpressionVariable], places: Sequence[Place], scene: Scene
    ) -> dict[str, str | None]:
        known = dict(scene.variables)
        later = frozenset(variable.name for variable in variables)  # but for those that are known by then
        for variable, place in zip(variables, places, strict=True):
            here = Scene(self._steps, known, later, scene.index, scene.alias, in_variable=scene.in_variable)
            template = self._templates.parse(variable.value, place.below("value"))
            spoiled = None
            if template is not None:
                self._templates.check(template, place.below("value"), here)
                spoiled = spoiled_variable(template, here)
            known[variable.name] = spoiled
        return known

    # Steps

    def _check_step(self, index: int, step: PromotionStep, variables: dict[str, str | None], *, plain: bool) -> None:
        origin, alias = self._draft.origins[index], self._aliases[index]
        place = origin.step
        self._check_alias(index, alias, place)
        runs = self._templates.condition(step.if_)
        self._check_kind(step, place, sure=bool(runs) and not step.continue_on_error)
        if step.retry is not None and step.retry.timeout is not None and step.retry.timeout.nanoseconds < 0:
            self._findings.add(place.below("retry", "timeout"), NEGATIVE_TIMEOUT(), warning=True)
        scene = Scene(self._steps, variables, index=index, alias=alias, in_variable=True)
        known = self._variables(step.vars, origin.variables, scene)
        scene = Scene(self._steps, known, index=index, alias=alias)
        if step.if_:
            self._templates.check_condition(step.if_, place.below("if"), scene)
        if plain:
            # The steps of a task are written for many Stages: what one of them skips may be for another
            scene.may_be_skipped = not runs and bool(scene.task)
            self._check_config(step, place.below("config"), scene)

    def _check_alias(self, index: int, alias: str, place: Place) -> None:
        first = self._steps.aliases[alias]
        shown = shortened(alias, 80)
        if first != index:
            other = self._draft.origins[first].step
            self._findings.add(place, ALIAS_TWICE(alias=shown, other=other))
        if alias.startswith(_OURS):
            self._findings.add(place, ALIAS_OURS(alias=shown))

    def _check_kind(self, step: PromotionStep, place: Place, *, sure: bool) -> None:
        if step.task is not None:
            self._findings.add(place.below("task"), STEP_NAMES_TASK())
        elif step.uses is None:
            self._findings.add(place, NOTHING_TO_RUN())
        elif step.uses not in self._kinds:
            said = NO_SUCH_KIND(
                uses=shortened(step.uses, 80), hint=self._steps.hints.of(step.uses, sorted(self._kinds))
            )
            self._findings.add(place.below("uses"), said, warning=not sure)

    def _check_config(self, step: PromotionStep, place: Place, scene: Scene) -> None:
        for path in _names_with_expressions(step.config):
            self._findings.add(place.below(*path), NAME_NOT_EVALUATED(), warning=True)
        kind = self._kinds.get(step.uses or "")
        found: list[Path] = []
        for path, source in templates_in(step.config):
            found.append(path)
            template = None if self._findings.full else self._templates.parse(source, place.below(*path))
            if template is None:
                continue
            self._templates.check(template, place.below(*path), scene)
            if kind is not None and not places_of(kind)(path):
                self._templates.check_guess(template, place.below(*path), scene)
        if kind is None:
            return
        try:
            for path, text in config_faults(kind.config_model, step.config, found):
                self._findings.add(place.below(*path), text)
        except Uncheckable as error:
            self._findings.add(place, str(error), warning=True)


def _names_with_expressions(config: Any) -> Iterator[Path]:
    """The places in *config* whose names look as if they were to be evaluated."""
    waiting: list[tuple[Path, Any]] = [((), config)]
    while waiting:
        path, one = waiting.pop()
        if isinstance(one, dict):
            below = [((*path, name), value) for name, value in one.items()]
            yield from (where for where, _ in below if "${{" in str(where[-1]) or "${%" in str(where[-1]))
        elif isinstance(one, list):
            below = [((*path, index), value) for index, value in enumerate(one)]
        else:
            continue
        waiting.extend(reversed(below))


def check_promotion(promotion: Promotion, kinds: Kinds) -> list[Problem]:
    """All that is wrong with the steps of *promotion*."""
    return check(draft_of_promotion(promotion), kinds)


def check_stage(stage: Stage, kinds: Kinds, find: Find) -> list[Problem]:
    """All that is wrong with the template of *stage*, with the tasks that it names; they are given by *find*."""
    return check(draft_of_stage(stage, find), kinds)


def check_task(task: PromotionTask | ClusterPromotionTask, kinds: Kinds) -> list[Problem]:
    """All that can be said to be wrong with *task* whichever Stage names it."""
    return check(draft_of_task(task), kinds)
