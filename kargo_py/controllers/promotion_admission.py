"""Admits Promotions: what :mod:`.admission` decides is carried out here, on what is known and then on what is live.

A Promotion that is complete, and equal to its Stage's template, costs nothing. What changes it or refuses it is decided
on what the API server has at that moment: Stage, tasks and Freight that were applied together with it may not be in the
caches yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kargo_py.api.admission import is_admitted
from kargo_py.api.freight import Freight
from kargo_py.api.promotion import Promotion
from kargo_py.api.stage import Stage
from kargo_py.api.types import JsonObject
from kargo_py.controllers.admission import Plan, completion, plan, program_before
from kargo_py.controllers.control_flow import refusal
from kargo_py.controllers.events import admission_warning_event, steps_replaced_event
from kargo_py.controllers.freight_choice import freight_of
from kargo_py.controllers.step_differences import Evaluator
from kargo_py.controllers.template import Rulebook, Template, told
from kargo_py.controllers.templates import references_of, task_references
from kargo_py.controllers.world import World
from kargo_py.engine.effort import are_many
from kargo_py.engine.problems import refused
from kargo_py.kube.errors import Forbidden, Invalid
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

NOT_ALLOWED_TO = message(
    "the controller is not allowed to admit the Promotion: {why}",
    do="Give the controller the rights of `deploy/base/rbac.yaml`. The Promotion is admitted by itself then.",
    shown=Shown.PROMOTION,
)
NOT_TAKEN = message(
    "the API server does not take what the Stage's template makes of it: {why}",
    do="Correct what is named, mostly in the Stage, then create a new Promotion.",
    shown=Shown.PROMOTION,
)

RECORD_AFTER = 2.0
"""Seconds of waiting after which it is put on record that a Promotion was admitted; most begin before, and save it."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The Promotion may begin when it is its turn; this is how it stands now."""

    raw: JsonObject
    promotion: Promotion


@dataclass(frozen=True, slots=True)
class Refused:
    """It can never begin."""

    reason: str


@dataclass(frozen=True, slots=True)
class Held:
    """It cannot be admitted now, because of *error*."""

    reason: str
    error: Forbidden


@dataclass(frozen=True, slots=True)
class _Known:
    uid: str
    generation: int
    stage: str
    since: float

    def is_of(self, promotion: Promotion, stage: Stage) -> bool:
        """Whether it was this one, as it stands, and to that Stage."""
        meta = promotion.metadata
        return (self.uid, self.generation, self.stage) == (meta.uid, meta.generation, stage.metadata.uid)


@dataclass(frozen=True, slots=True)
class _Decision:
    """What is to become of a Promotion: refused if there are any *refusals*, else *patch* makes it complete."""

    refusals: Sequence[str] = ()
    warnings: Sequence[str] = ()
    patch: JsonObject = field(default_factory=dict)
    replaced: str = ""

    @property
    def rests_on_little(self) -> bool:
        """Whether it is to be decided on live objects: it refuses or changes something."""
        return bool(self.refusals or self.patch)


class Admission:
    """Admits Promotions, and remembers those it has admitted until they begin."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[Key, _Known] = {}

    def forget(self, key: Key) -> None:
        """The Promotion has ended, or is gone."""
        self._known.pop(key, None)

    def unrecorded(self, promotion: Promotion, stage: Stage) -> float | None:
        """Seconds until it is to be put on record that *stage* has admitted *promotion*; None if it is, or has not."""
        known = self._known.get(Key(promotion.namespace, promotion.name))
        if known is None or not known.is_of(promotion, stage) or _is_on_record(promotion, stage):
            return None
        return known.since + RECORD_AFTER - asyncio.get_running_loop().time()

    async def admit(self, raw: JsonObject, promotion: Promotion, stage: Stage) -> Admitted | Refused | Held | None:
        """Admit *promotion*, which waits to begin; None: not yet, and an event brings the next look. Raises KubeError.

        What was admitted stays so, whatever becomes of the Stage; but not if its spec was edited since, nor if there is
        another Stage of that name.
        """
        key = Key(promotion.namespace, promotion.name)
        known = self._known.get(key)
        remembered = known is not None and known.is_of(promotion, stage)
        if not stage.is_control_flow and (remembered or _is_on_record(promotion, stage)):
            return Admitted(raw, promotion)
        try:
            return await self._admit(key, raw, promotion, stage)
        except Forbidden as error:
            return Held(NOT_ALLOWED_TO(why=error), error)

    async def _admit(self, key: Key, raw: JsonObject, promotion: Promotion, stage: Stage) -> Admitted | Refused | None:
        world = self._world
        decision = await self._decided(promotion, stage, await world.templates.of(stage), sure=False)
        if decision.rests_on_little:
            live = world.stage_models.read(await world.stages.read_live(Key(stage.namespace, stage.name)))
            if live is None or live.metadata.deletion_timestamp is not None:
                # Nothing begins there any more. To belong to it would be to go with it; another may come in its place.
                return None
            await world.templates.look_at(promotion.namespace, task_references(promotion.spec.steps or ()))
            stage = live
            decision = await self._decided(promotion, stage, await world.templates.of_now(stage), sure=True)
        if decision.refusals:
            return Refused("\n".join(decision.refusals))
        if decision.patch:
            try:
                await world.write_object(world.promotions, raw, decision.patch)
            except Invalid as error:
                return Refused(NOT_TAKEN(why=error.message))
            written = world.promotions.get(key)
            changed = world.promotion_models.read(written)
            if written is None or changed is None:
                return None
            raw, promotion = written, changed
        if decision.replaced:
            world.recorder.record(steps_replaced_event(promotion, decision.replaced))
        if decision.warnings:
            world.recorder.record(admission_warning_event(promotion, "\n".join(decision.warnings)))
        now = asyncio.get_running_loop().time()
        meta = promotion.metadata
        self._known[key] = _Known(meta.uid, meta.generation, stage.metadata.uid, now)
        return Admitted(raw, promotion)

    async def _decided(self, promotion: Promotion, stage: Stage, template: Template, *, sure: bool) -> _Decision:
        if (why := refusal(stage, promotion)) is not None:
            return _Decision([why])
        world = self._world
        freight = await freight_of(world, promotion, stage, sure=sure)
        rulebook = world.templates.rulebook(stage.namespace, references_of(promotion, stage))
        case = _Case(promotion, stage, template, rulebook, freight, world.now(), world.ui_base_url)
        decision = None if case.is_much() else case.quick_decision()
        if decision is None:
            decision = await world.aside.call(stage.namespace, case.decision)
        return decision


@dataclass(frozen=True, slots=True)
class _Case:
    """All that is to be decided on; pure, so that it can be decided in a thread."""

    promotion: Promotion
    stage: Stage
    template: Template
    rulebook: Rulebook
    freight: Freight | str
    now: datetime
    ui_base_url: str

    def is_much(self) -> bool:
        """Whether the decision takes long, by what the spec of the Promotion says beside the template."""
        spec, template = self.promotion.spec, self.template
        if not spec.steps and not spec.vars:
            return are_many(template.steps, template.variables)
        variables = [*spec.vars, *template.variables]
        return any(self.rulebook.is_much(steps, variables) for steps in (spec.steps or (), template.steps))

    def quick_decision(self) -> _Decision | None:
        """What is to become of the Promotion; None if it takes long to find that out."""
        evaluator = self._evaluator(quick=True)
        decision = self._by(evaluator)
        return None if evaluator.is_used_up else decision

    def decision(self) -> _Decision:
        """What is to become of the Promotion, however long that takes."""
        return self._by(self._evaluator(quick=False))

    def _evaluator(self, *, quick: bool) -> Evaluator:
        found = self.freight if isinstance(self.freight, Freight) else None
        url = self.ui_base_url
        program = program_before(self.promotion, self.stage, found, ui_base_url=url) if found is not None else None
        return Evaluator(program, self.now, quick)

    def _by(self, evaluator: Evaluator) -> _Decision:
        promotion, stage, freight = self.promotion, self.stage, self.freight
        found = freight if isinstance(freight, Freight) else None
        planned = plan(promotion, stage, self.template, self.rulebook, evaluator)
        refusals = [*([freight] if isinstance(freight, str) else []), *_told(planned, stage, warnings=False)]
        if refusals or found is None:
            return _Decision(refusals)
        patch = completion(promotion, stage, found.name, planned)
        return _Decision((), _told(planned, stage, warnings=True), patch, planned.replaced)


def _is_on_record(promotion: Promotion, stage: Stage) -> bool:
    """Whether the status of *promotion* says that *stage* has admitted it as it stands."""
    return is_admitted(promotion.status.state, promotion.metadata.generation, stage.metadata.uid)


def _told(planned: Plan, stage: Stage, *, warnings: bool) -> list[str]:
    """What is wrong with the steps, each with its place."""
    problems = planned.problems
    found = [p for p in problems if p.warning] if warnings else refused(problems)
    return [told(problem, stage if planned.of_template else None) for problem in found]
