"""What becomes of a Promotion before it may begin: what is filled in, what is replaced, and why it is refused. Pure.

The controller does here what Kargo's webhook does. The steps are the Stage's, whatever the author wrote, unless the
Stage allows others; so who may create Promotions decides what is promoted, and not how.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kargo_py.api.admission import ADMITTED_KEY, ANNOTATION_CUSTOM_STEPS, CUSTOM_STEPS_ALLOWED, admission_mark
from kargo_py.api.freight import Freight
from kargo_py.api.meta import API_VERSION, OwnerReference
from kargo_py.api.names import (
    ANNOTATION_STAGE,
    LABEL_SHARD,
    LABEL_STAGE,
    shorten_label,
)
from kargo_py.api.promotion import ExpressionVariable, FreightCollection, Promotion, PromotionStatus, PromotionStep
from kargo_py.api.stage import Stage
from kargo_py.api.types import JsonObject, Time
from kargo_py.controllers.step_differences import Evaluator, steps_differ, variables_differ
from kargo_py.controllers.template import Rulebook, Template, template_variables
from kargo_py.engine.evaluation import Program, program_of
from kargo_py.engine.problems import Problem
from kargo_py.messages import Shown, message

VARIABLES_REPLACED = message(
    "the variables were replaced by those of the Stage: {difference}",
    do="Part of the Event `StepsReplaced`. Set variables in the Stage or its template; or allow others with the "
    "annotation `kargo-py.io/custom-steps: allow` on the Stage.",
    shown=Shown.EVENT,
)
STEPS_REPLACED = message(
    "the steps were replaced by those of the Stage: {difference}",
    do="Part of the Event `StepsReplaced`. Leave `spec.steps` out; or allow other steps than the template's with the "
    "annotation `kargo-py.io/custom-steps: allow` on the Stage.",
    shown=Shown.EVENT,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps and variables with which a Promotion runs.

    ``problems``: what is wrong with them, ``of_template``: in the Stage's template, not in the Promotion. ``replaced``:
    how what its author wrote differed, "" if it was not replaced.
    """

    steps: Sequence[PromotionStep]
    variables: Sequence[ExpressionVariable]
    problems: Sequence[Problem]
    of_template: bool = True
    replaced: str = ""


def allows_custom_steps(stage: Stage) -> bool:
    """Whether the steps and variables that authors of Promotions write are kept."""
    return stage.metadata.annotations.get(ANNOTATION_CUSTOM_STEPS, "").strip().lower() == CUSTOM_STEPS_ALLOWED


def plan(promotion: Promotion, stage: Stage, template: Template, rulebook: Rulebook, evaluator: Evaluator) -> Plan:
    """With which steps and variables *promotion* is to run on *stage*, whose template is *template*."""
    given = promotion.spec.steps or ()
    variables, told = _variables(promotion, stage)
    if variables_differ(variables, template.variables) is not None:
        template = rulebook.template(stage, variables)
    difference = _difference(given, stage, template, evaluator) if given else None
    if given and difference is None:
        steps = template.steps if _has_task(given) else given
        return Plan(steps, variables, template.problems, replaced=told)
    if difference is not None and allows_custom_steps(stage):
        own = rulebook.own(promotion, variables)
        steps = own.steps if _has_task(given) else given
        return Plan(steps, variables, own.problems, of_template=False)
    if difference is not None:
        told = "; ".join(filter(None, (STEPS_REPLACED(difference=difference), told)))
    return Plan(template.steps, variables, template.problems, replaced=told)


def _difference(given: Sequence[PromotionStep], stage: Stage, template: Template, evaluator: Evaluator) -> str | None:
    """How *given* differs from the template: with its tasks written out, or as it stands in the Stage."""
    difference = steps_differ(given, template.steps, evaluator.of)
    if difference is None or not _has_task(given):
        return difference
    written = stage.spec.promotion_template.spec.steps if stage.spec.promotion_template is not None else ()
    return difference if steps_differ(given, written, evaluator.of) is not None else None


def _has_task(steps: Sequence[PromotionStep]) -> bool:
    return any(step.task is not None for step in steps)


def _variables(promotion: Promotion, stage: Stage) -> tuple[Sequence[ExpressionVariable], str]:
    """The variables of *promotion*, and how those that its author wrote differ from them, "" if nothing is lost."""
    given, wanted = promotion.spec.vars, template_variables(stage)
    if allows_custom_steps(stage):
        return overridden(wanted, given), ""
    difference = variables_differ(given, wanted) if given else None
    return wanted, VARIABLES_REPLACED(difference=difference) if difference is not None else ""


def overridden(
    variables: Sequence[ExpressionVariable], given: Sequence[ExpressionVariable]
) -> Sequence[ExpressionVariable]:
    """*variables*, with those of *given* in their places; what else is in *given* stands before what follows it there.

    A later variable may use those before it, so both orders are kept.
    """
    given_last = {variable.name: index for index, variable in enumerate(given)}
    known_last = {variable.name: index for index, variable in enumerate(variables)}
    made: list[ExpressionVariable] = []
    taken = 0

    def take_others(until: int) -> None:
        nonlocal taken
        made.extend(v for v in given[taken:until] if v.name not in known_last)
        taken = max(taken, until)

    for index, variable in enumerate(variables):
        place = given_last.get(variable.name)
        if place is None or known_last[variable.name] != index:
            made.append(variable)
        else:
            take_others(place)
            made.append(given[place])
    take_others(len(given))
    return made


def collection_with(stage: Stage, freight: Freight) -> FreightCollection:
    """What the Stage has once this Freight is in: it, and what is there of other origins that are still requested."""
    current = stage.current_freight or FreightCollection()
    kept = {origin: reference for origin, reference in current.items.items() if origin in stage.origins}
    return FreightCollection(items=kept).with_freight(freight.reference())


def program_before(promotion: Promotion, stage: Stage, freight: Freight, *, ui_base_url: str = "") -> Program:
    """What the expressions of *promotion* will know when it begins, as far as that is certain now.

    Freight of other origins is not: others may have come to the Stage by then.
    """
    own = FreightCollection().with_freight(freight.reference())
    status = promotion.status.replace(freight=freight.reference(), freight_collection=own)
    spec = promotion.spec.replace(vars=_variables(promotion, stage)[0])
    return program_of(promotion.replace(spec=spec, status=status), freight=freight, ui_base_url=ui_base_url)


def with_admission(promotion: Promotion, stage: Stage, now: datetime) -> PromotionStatus:
    """The status of *promotion*, which waits for its turn, with the mark that *stage* has admitted it as it stands."""
    status, at = promotion.status, Time.of(now)
    state = dict(status.state) if isinstance(status.state, dict) else {}
    mark = admission_mark(promotion.metadata.generation, stage.metadata.uid, at)
    return status.replace(admitted_at=at, state={**state, ADMITTED_KEY: mark})


# --- what is written --------------------------------------------------------------------------------------------------


def completion(promotion: Promotion, stage: Stage, freight: str, planned: Plan) -> JsonObject:
    """The merge patch that makes *promotion* complete; {} if nothing is missing. *freight* is the one it is of."""
    spec: JsonObject = {}
    if promotion.spec.origin is not None:
        spec |= {"origin": None, "freight": freight}
    if planned.steps is not promotion.spec.steps:
        spec["steps"] = [step.wire() for step in planned.steps]
    if variables_differ(promotion.spec.vars, planned.variables) is not None:
        spec["vars"] = [variable.wire() for variable in planned.variables] or None
    meta = metadata_patch(promotion, stage)
    return {**({"metadata": meta} if meta else {}), **({"spec": spec} if spec else {})}


def metadata_patch(promotion: Promotion, stage: Stage) -> JsonObject:
    """The merge patch for the metadata: whose Promotion it is. {} if all of it is there."""
    meta = promotion.metadata
    shard = stage.metadata.labels.get(LABEL_SHARD) or stage.spec.shard or None
    labels: JsonObject = {LABEL_STAGE: shorten_label(stage.name), LABEL_SHARD: shard}
    labels = {name: value for name, value in labels.items() if meta.labels.get(name) != value}
    patch: JsonObject = {"labels": labels} if labels else {}
    if meta.annotations.get(ANNOTATION_STAGE) != stage.name:
        patch["annotations"] = {ANNOTATION_STAGE: stage.name}
    if (owners := _owners(meta.owner_references, stage)) is not None:
        patch["ownerReferences"] = [owner.wire() for owner in owners]
    return patch


def _owners(owners: Sequence[OwnerReference], stage: Stage) -> Sequence[OwnerReference] | None:
    """*owners* with the Stage, so that its Promotions are deleted with it; None if it is there.

    It is the controlling one, unless something else is. One of its name that was deleted gives way to it.
    """
    if any(owner.uid == stage.metadata.uid for owner in owners):
        return None
    kept = [owner for owner in owners if not _is_former(owner, stage)]
    controlled = any(owner.controller for owner in kept)
    own = OwnerReference(api_version=API_VERSION, kind=Stage.kind_name, name=stage.name, uid=stage.metadata.uid)
    return [*kept, own if controlled else own.replace(controller=True)]


def _is_former(owner: OwnerReference, stage: Stage) -> bool:
    return (owner.api_version, owner.kind, owner.name) == (API_VERSION, Stage.kind_name, stage.name)
