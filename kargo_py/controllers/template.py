"""The steps of a Stage's template, with tasks written out, and what is wrong with them. Pure.

What is wrong is told at the place where somebody wrote it: in the Stage, in a Promotion, or in a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from kargo_py.api.promotion import ExpressionVariable, Promotion, PromotionStep
from kargo_py.api.stage import Stage
from kargo_py.engine.checks import Draft, check, draft_of_promotion, draft_of_stage
from kargo_py.engine.effort import is_much
from kargo_py.engine.problems import Problem
from kargo_py.engine.tasks import Find, inflate
from kargo_py.messages import Shown, message
from kargo_py.steps.registry import Kinds

IN_THE_STAGE = message(
    'Stage "{stage}": {problem}',
    do="Part of *the Promotion cannot run*: what is wrong stands in the template of the Stage, not in the Promotion. "
    "Correct it there, then create a new Promotion.",
    shown=Shown.PROMOTION | Shown.EVENT,
)


@dataclass(frozen=True, slots=True)
class Template:
    """Steps as they would run: without tasks, each with its alias; and what is wrong with them."""

    steps: Sequence[PromotionStep]
    variables: Sequence[ExpressionVariable]
    problems: Sequence[Problem]


@dataclass(frozen=True, slots=True)
class Rulebook:
    """What steps are judged by: the kinds there are, and the tasks."""

    kinds: Kinds
    find: Find

    def is_much(self, steps: Sequence[PromotionStep], variables: Iterable[ExpressionVariable]) -> bool:
        """Whether it takes long to judge *steps* and *variables*, with the tasks that the steps name."""
        tasks = [task for step in steps if step.task is not None and (task := self.find(step.task)) is not None]
        inner = chain.from_iterable(task.steps for task in tasks)
        return is_much(chain(steps, inner), chain(variables, *(task.vars for task in tasks)))

    def template(self, stage: Stage, variables: Sequence[ExpressionVariable] | None = None) -> Template:
        """The template of *stage*, with *variables* in the place of its own if they are given."""
        written = stage.spec.promotion_template
        if variables is not None and written is not None:
            bare = written.replace(spec=written.spec.replace(vars=()))
            stage = stage.replace(spec=stage.spec.replace(vars=variables, promotion_template=bare))
        return self._judged(draft_of_stage(stage, self.find))

    def own(self, promotion: Promotion, variables: Sequence[ExpressionVariable]) -> Template:
        """The steps that the author of *promotion* wrote, with *variables*."""
        return self._judged(draft_of_own(promotion, variables, self.find))

    def _judged(self, draft: Draft) -> Template:
        return Template(draft.steps, draft.variables, check(draft, self.kinds))


def draft_of_own(promotion: Promotion, variables: Sequence[ExpressionVariable], find: Find) -> Draft:
    """The steps that the author of *promotion* wrote, with *variables*; tasks among them written out."""
    draft = draft_of_promotion(promotion.replace(spec=promotion.spec.replace(vars=variables)))
    if all(step.task is None for step in draft.steps):
        return draft
    found = inflate(draft.steps, variables, find, namespace=promotion.namespace, root=draft.root)
    return replace(draft, steps=found.steps, origins=found.origins, problems=found.problems, unknown=found.missing)


def template_variables(stage: Stage) -> Sequence[ExpressionVariable]:
    """The variables of all Promotions to *stage*: its own, then those of its template."""
    template = stage.spec.promotion_template
    return [*stage.spec.vars, *(template.spec.vars if template is not None else ())]


def told(problem: Problem, stage: Stage | None) -> str:
    """*problem* with its place; *stage* is given where that is in a Stage and not in the object itself."""
    if stage is None or problem.task is not None:
        return str(problem)
    return IN_THE_STAGE(stage=stage.name, problem=problem)
