"""What the expressions of a Promotion's steps become: ``if``, variables and configurations. Pure.

What has to be read for them comes in through :class:`~kargo_py.expressions.lookups.Lookups`: where something is
missing, :class:`~kargo_py.expressions.lookups.Missing` is raised, and the caller reads it and evaluates again
(:func:`~kargo_py.expressions.lookups.resolved`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from pydantic.errors import PydanticUserError

from kargo_py.api.freight import Freight, FreightReference
from kargo_py.api.names import ANNOTATION_CREATE_ACTOR, ANNOTATION_ROLLBACK, LABEL_ALIAS
from kargo_py.api.promotion import ExpressionVariable, Promotion, PromotionStep, StepExecutionMetadata
from kargo_py.engine.effort import exceeds
from kargo_py.engine.outputs import outputs_of
from kargo_py.expressions.environment import (
    Context,
    Later,
    VariableError,
    environment,
    evaluate_variables,
    with_variables,
)
from kargo_py.expressions.errors import ExpressionError
from kargo_py.expressions.functions import promotion_functions, status_functions
from kargo_py.expressions.hiding import MASK
from kargo_py.expressions.lookups import Lookups, Source, TooManyLookups
from kargo_py.expressions.templates import (
    ConfigurationError,
    Places,
    Scope,
    any_place,
    render,
    render_all,
    string_places,
)
from kargo_py.expressions.values import Value
from kargo_py.messages import Shown, message
from kargo_py.steps.config import Config
from kargo_py.steps.step import Step

IF_FAULT = message(
    "if: {why}",
    do="The `if` of the step has no value, so the step is `Errored`. Correct the expression in the Stage's template, "
    "then create a new Promotion.",
    shown=Shown.PROMOTION,
)
IF_NOT_TRUTH = message(
    "if: the result must be true or false, and it is {result}; write a comparison, or a function such as success()",
    do="An `if` has to stand in `${{ }}`, and be a comparison or a function such as `always()`.",
    shown=Shown.PROMOTION,
)
CONFIG_FAULT = message(
    "config: {why}",
    do="An expression in the configuration of the step, or in a variable that it uses, has no value. Correct it in the "
    "Stage's template, then create a new Promotion.",
    shown=Shown.PROMOTION,
)

_SHOWN = 80
_LONG = 10_000
"""Characters of expressions, with so many for each besides, that are evaluated while all else waits."""
_EACH = 50


class EvaluationError(Exception):
    """An expression has no value, or not one that is of use there; the text says which, and why."""


@dataclass(frozen=True, slots=True)
class Program:
    """What the expressions of all steps of a Promotion know: what stays the same as long as it runs."""

    context: Context
    freight: Sequence[FreightReference] = ()
    variables: Sequence[ExpressionVariable] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """A step of a Program, and what the steps before it have left."""

    alias: str
    step: PromotionStep
    outputs: Mapping[str, Value] = field(default_factory=dict)
    before: Sequence[StepExecutionMetadata] = ()


def program_of(promotion: Promotion, *, freight: Freight | None = None, ui_base_url: str = "") -> Program:
    """The Program of a *promotion* that has begun; *freight* is what it promotes, for its alias."""
    status, annotations = promotion.status, promotion.metadata.annotations
    alias = (freight.alias or freight.metadata.labels.get(LABEL_ALIAS) or "") if freight is not None else ""
    collection = status.freight_collection
    references = list(collection.items.values()) if collection is not None else []
    if not references and status.freight is not None:
        references = [status.freight]
    context = Context(
        project=promotion.namespace,
        promotion=promotion.name,
        stage=promotion.spec.stage,
        ui_base_url=ui_base_url,
        freight=status.freight,
        freight_alias=alias,
        actor=annotations.get(ANNOTATION_CREATE_ACTOR, ""),
        rollback=annotations.get(ANNOTATION_ROLLBACK) == "true",
    )
    return Program(context, references, promotion.spec.vars)


def position_of(promotion: Promotion, index: int) -> Position:
    """The step at *index* of a Promotion that has come so far."""
    step = (promotion.spec.steps or ())[index]
    before = promotion.status.step_execution_metadata[:index]
    return Position(step.alias(index), step, Later(lambda: outputs_of(promotion.status)), before)


def has_expressions(value: Any) -> bool:
    """Whether anything in *value* is to be evaluated; asked before each call of a step, so that it must be quick."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            if "${{" in one or "${%" in one:
                return True
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return False


def is_long(program: Program, position: Position) -> bool:
    """Whether there is much to evaluate for a step, judged by its text alone; asked each time, so it must be quick."""
    step = position.step
    texts = [step.if_, step.config, *(variable.value for variable in (*program.variables, *step.vars))]
    return exceeds(_LONG, texts, lambda source: len(source) + _EACH)


def may_use_secrets(step: PromotionStep, variables: Sequence[ExpressionVariable]) -> bool:
    """Whether the configuration of *step*, or a variable that it may use, looks up a Secret."""
    return any("secret" in source.casefold() for source in _sources(step, variables))


def may_look_up(step: PromotionStep, variables: Sequence[ExpressionVariable]) -> bool:
    """Whether something may have to be read before *step* can be entered, or called."""
    return any(looked_up in source for source in [step.if_ or "", *_sources(step, variables)] for looked_up in Source)


def _sources(step: PromotionStep, variables: Sequence[ExpressionVariable]) -> Iterator[str]:
    """All templates of *step* and those of the variables that it may use, but for its ``if``."""
    waiting: list[Any] = [step.config, *(variable.value for variable in (*variables, *step.vars))]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            if has_expressions(one):
                yield one
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def condition(program: Program, position: Position, lookups: Lookups, now: datetime) -> bool:
    """Whether the step is to run. Raises EvaluationError and Missing."""
    source = position.step.if_
    if not source:
        functions = status_functions(position.alias, position.before)
        return bool(functions["success"].run())
    try:
        rendered = render(source, _scope(program, position, lookups, now))
    except (ExpressionError, VariableError, TooManyLookups) as error:
        raise EvaluationError(IF_FAULT(why=error)) from error
    result = rendered.value
    if not isinstance(result, bool):
        # Of a secret that is cut nobody could tell any more that it is one.
        shown = _shown(MASK if rendered.secrecy else lookups.secrets.mask(result))
        raise EvaluationError(IF_NOT_TRUTH(result=shown))
    return result


def configuration(
    program: Program,
    position: Position,
    lookups: Lookups,
    now: datetime,
    places: Places = any_place,
    *,
    keep_texts: bool = False,
) -> Any:
    """What the step is called with. Raises EvaluationError and Missing."""
    config = position.step.config
    if not has_expressions(config):
        return config
    try:
        return render_all(config, _scope(program, position, lookups, now), places, keep_text=keep_texts)
    except (ConfigurationError, VariableError, TooManyLookups) as error:
        raise EvaluationError(CONFIG_FAULT(why=error)) from error


def configuration_for(
    kind: type[Step[Any]], program: Program, position: Position, lookups: Lookups, now: datetime
) -> Any:
    """What a step of *kind* is called with. Raises EvaluationError and Missing."""
    places = places_of(kind)
    return configuration(program, position, lookups, now, places, keep_texts=kind.keeps_texts)


def places_of(kind: type[Step[Any]]) -> Places:
    """The places in the configuration of *kind* that take strings alone."""
    return _places_of(kind.config_model)


@lru_cache(maxsize=256)
def _places_of(model: type[Config]) -> Places:
    try:
        return string_places(model.model_json_schema())
    except PydanticUserError:
        # A model of somebody else may have no schema; then nothing is known of its places.
        return any_place


def _scope(program: Program, position: Position, lookups: Lookups, now: datetime) -> Scope:
    """All that the step's expressions are evaluated with; raises VariableError and Missing."""
    functions = promotion_functions(program.freight, lookups)
    before = environment(program.context, alias=position.alias)
    scope = Scope(before, functions, now, lookups, lookups.allowance)
    variables = evaluate_variables(program.variables, scope)
    here = environment(
        program.context,
        alias=position.alias,
        variables=variables,
        outputs=position.outputs,
        steps=position.before,
    )
    own = dataclasses.replace(scope, environment=here)
    variables = evaluate_variables(position.step.vars, own, variables)
    everything = {**functions, **status_functions(position.alias, position.before)}
    return dataclasses.replace(own, environment=with_variables(here, variables), functions=everything)


def _shown(value: Value) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")
    return "null" if value is None else f"{value!r:.{_SHOWN}}" if isinstance(value, int | float) else "a list or object"
