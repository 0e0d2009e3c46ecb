"""Why a Promotion has not begun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kargo_py.api.promotion import Promotion
from kargo_py.api.stage import HealthState, Stage
from kargo_py.api.types import JsonObject
from kargo_py.controllers.availability import unavailable
from kargo_py.controllers.freight_choice import FREIGHT_NOT_FOUND, FREIGHT_UNREADABLE, NO_FREIGHT_NAMED
from kargo_py.controllers.promotion import cannot_run
from kargo_py.controllers.promotion_stepping import NO_USES
from kargo_py.controllers.stage_queue import judging_left, since_last
from kargo_py.controllers.why import (
    NOTHING_HAPPENS,
    STILL_NAMED,
    Answer,
    Hidden,
    Seen,
    freight_model,
    of_shard,
    queued,
    quiet_for,
    text_at,
)
from kargo_py.kube.clock import in_short
from kargo_py.messages import Shown, message
from kargo_py.steps.registry import BUILT_IN

BEHIND = message(
    'Promotion "{other}" runs on Stage "{stage}", and only one does at a time; kargo-py why promotion {other} says '
    "what it waits for",
    do="The Promotions of a Stage run one after another. Wait, or abort the one that runs.",
    shown=Shown.ANSWER,
)
IN_THE_QUEUE = message(
    'it is number {position} of {count} that wait for Stage "{stage}"',
    do="They run in the order in which they were created. An abort takes one out of the queue at once.",
    shown=Shown.ANSWER,
)
ANOTHER_FIRST = message(
    'Promotion "{other}" comes first on Stage "{stage}", and has not begun',
    do="The Promotions of a Stage run in the order in which they were created. Look at the one that is named.",
    shown=Shown.ANSWER,
)
STAGE_JUDGES = message(
    'Stage "{stage}" is {health}, and waits for a verdict on its last Promotion before the next one begins: {left} '
    "at most",
    do="Nothing to do. So Freight is not replaced before it was ever judged.",
    shown=Shown.ANSWER,
)
ITS_TURN = message(
    'it is its turn on Stage "{stage}"; a controller that runs begins it at once',
    do="Nothing to do. If it does not begin, see that a controller runs that acts on this Stage.",
    shown=Shown.ANSWER,
)
WILL_NOT_RUN = message(
    "as things are now it ends as Errored: {why}",
    do="Correct what is named before its turn comes, or abort it and create a new Promotion.",
    shown=Shown.ANSWER,
)
KIND_NOT_OURS = message(
    'the kind of step "{uses}" is none of those that kargo-py has by itself ({known}): unless the controller was given '
    "it, the Promotion ends as Errored there",
    do="Correct `uses` of the step, in the Stage's template too, and create a new Promotion; or see that the "
    "controller has this kind of step.",
    shown=Shown.ANSWER,
)


@dataclass(frozen=True, slots=True)
class Pending:
    """A Promotion that has not begun, and what that depends on; ``promotions``: those of the namespace."""

    answer: Answer
    promotion: Promotion
    stage: Stage
    freight: Seen[JsonObject]
    promotions: Sequence[JsonObject] | Hidden
    now: datetime

    def explain(self) -> None:
        """Say why it has not begun."""
        stage = self.stage
        current = stage.status.current_promotion
        turn = self._turn()
        if (why := self._fault()) is not None:
            self.answer.say(WILL_NOT_RUN(why=why))
        for uses in dict.fromkeys(step.uses for step in self.promotion.spec.steps or () if step.uses):
            if uses not in BUILT_IN:
                self.answer.say(KIND_NOT_OURS(uses=uses, known=", ".join(sorted(BUILT_IN))))
        if not turn:
            return
        promoting = next((c.last_transition_time for c in stage.status.conditions if c.type == "Promoting"), None)
        mine = current is not None and current.name == self.promotion.name
        since = (promoting if mine else None) or self.promotion.metadata.creation_timestamp
        if (quiet := quiet_for(since, self.now)) is not None:
            self.answer.say(NOTHING_HAPPENS(time=quiet, whose=of_shard(stage)), since)

    def _turn(self) -> bool:
        """Whether nothing but a controller keeps it from beginning; says what else does."""
        stage, name = self.stage, self.promotion.name
        current = stage.status.current_promotion
        hidden = isinstance(self.promotions, Hidden)
        waiting = [] if isinstance(self.promotions, Hidden) else queued(self.promotions, stage.name)
        if isinstance(self.promotions, Hidden):
            self.answer.hidden("the queue", self.promotions)
        names = [text_at(p, "metadata", "name") for p in waiting]
        if current is not None and current.name == name:
            self.answer.say(ITS_TURN(stage=stage.name))
            return True
        behind = [other for other in names if current is None or other != current.name]
        position = behind.index(name) + 1 if name in behind else 1
        if current is not None and not hidden and current.name not in names:
            self.answer.say(STILL_NAMED(stage=stage.name, other=current.name))
        elif current is not None:
            since = next((text_at(p, "status", "startedAt") for p in waiting if _is(p, current.name)), "")
            self.answer.say(BEHIND(other=current.name, stage=stage.name), since)
        elif position > 1:
            self.answer.say(ANOTHER_FIRST(other=behind[0], stage=stage.name))
        if current is not None or position > 1:
            if not hidden:
                self.answer.say(IN_THE_QUEUE(position=position, count=max(len(behind), 1), stage=stage.name))
            return False
        if (left := judging_left(stage.status, since_last(stage.status, self.now))) is not None:
            health = stage.status.health.status if stage.status.health is not None else HealthState.UNKNOWN
            self.answer.say(STAGE_JUDGES(stage=stage.name, health=health, left=in_short(timedelta(seconds=left))))
            return False
        self.answer.say(ITS_TURN(stage=stage.name))
        return True

    def _fault(self) -> str | None:
        """Why it will not run as it is, as far as that can be told now; a controller fills in what is not there."""
        if self.promotion.spec.steps and (why := cannot_run(self.promotion, self.stage)) is not None:
            return why
        for step in self.promotion.spec.steps or ():
            if step.uses is None and step.task is None and not step.continue_on_error and not step.if_:
                return NO_USES()
        return self._freight_fault()

    def _freight_fault(self) -> str | None:
        name, seen = self.promotion.spec.freight, self.freight
        if not name:
            return NO_FREIGHT_NAMED() if self.promotion.spec.origin is None else None
        if isinstance(seen, Hidden):
            self.answer.hidden(f'Freight "{name}"', seen)
            return None
        if seen is None:
            return FREIGHT_NOT_FOUND(freight=name, namespace=self.promotion.namespace)
        freight = freight_model(seen)
        if freight is None:
            return FREIGHT_UNREADABLE(freight=name)
        return unavailable(self.stage, freight, self.now)


def _is(promotion: JsonObject, name: str) -> bool:
    return text_at(promotion, "metadata", "name") == name
