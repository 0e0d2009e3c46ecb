"""The steps of a Stage's template, with tasks written out, and what is wrong with them. Pure.

What is wrong is told at the place where somebody wrote it: in the Stage, in a Promotion, or in a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kargo_py.api.promotion import ExpressionVariable, PromotionStep
from kargo_py.api.stage import Stage
from kargo_py.engine.checks import check
from kargo_py.engine.problems import Path, Problem
from kargo_py.engine.tasks import Find, inflate
from kargo_py.messages import Shown, message
from kargo_py.steps.registry import Kinds

IN_THE_STAGE = message(
    'Stage "{stage}": {problem}',
    do="Part of *the Promotion cannot run*: what is wrong stands in the template of the Stage, not in the Promotion. "
    "Correct it there, then create a new Promotion.",
    shown=Shown.PROMOTION | Shown.EVENT,
)

_STEPS: Path = ("spec", "steps")
_TEMPLATE_STEPS: Path = ("spec", "promotionTemplate", "spec", "steps")


@dataclass(frozen=True, slots=True)
class Template:
    """Steps as they would run: without tasks, each with its alias."""

    steps: Sequence[PromotionStep]
    variables: Sequence[ExpressionVariable]
    problems: Sequence[Problem]

    @property
    def refused(self) -> bool:
        """Whether they cannot succeed."""
        return any(not problem.warning for problem in self.problems)


@dataclass(frozen=True, slots=True)
class Rulebook:
    """What steps are judged by: the kinds there are, and the tasks."""

    kinds: Kinds
    find: Find

    def read(
        self,
        steps: Sequence[PromotionStep],
        variables: Sequence[ExpressionVariable],
        *,
        namespace: str = "",
        root: Path = _STEPS,
    ) -> Template:
        """*steps* with their tasks written out, and what is wrong with them; *root* is where they are written."""
        inflated = inflate(steps, variables, self.find, namespace=namespace, root=root)
        found = check(inflated.steps, variables, self.kinds, inflated=inflated, root=root)
        return Template(inflated.steps, variables, found)


def template_variables(stage: Stage) -> Sequence[ExpressionVariable]:
    """The variables of all Promotions to *stage*: its own, then those of its template."""
    template = stage.spec.promotion_template
    return [*stage.spec.vars, *(template.spec.vars if template is not None else ())]


def read_template(
    stage: Stage, rulebook: Rulebook, variables: Sequence[ExpressionVariable] | None = None
) -> Template:
    """The template of *stage*, with *variables* in the place of its own if they are given."""
    template = stage.spec.promotion_template
    return rulebook.read(
        template.spec.steps if template is not None else (),
        template_variables(stage) if variables is None else variables,
        namespace=stage.namespace,
        root=_TEMPLATE_STEPS,
    )


def told(problem: Problem, stage: Stage | None) -> str:
    """*problem* with its place; *stage* is given where that is in a Stage and not in the object itself."""
    if stage is None or problem.task is not None:
        return str(problem)
    return IN_THE_STAGE(stage=stage.name, problem=problem)
