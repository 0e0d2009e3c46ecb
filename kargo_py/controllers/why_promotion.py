"""What a Promotion waits for, and how one that has ended did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kargo_py.api.abort import ANNOTATION_ABORT, Abort, AbortError, latched_abort, read_abort
from kargo_py.api.promotion import Promotion, PromotionPhase, phase_of
from kargo_py.api.stage import Stage
from kargo_py.api.types import JsonObject
from kargo_py.argocd.application import Application
from kargo_py.controllers.events import STAGE_NOT_FOUND
from kargo_py.controllers.promotion import UNKNOWN_PHASE
from kargo_py.controllers.why import IS_BEING_DELETED, Answer, Explanation, Hidden, Seen, Statement, model_of, text_at
from kargo_py.controllers.why_promotion_ended import explain_end
from kargo_py.controllers.why_promotion_pending import Pending
from kargo_py.controllers.why_promotion_running import Running
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

ABORT_NOT_SEEN = message(
    "it is to be aborted, as {actor} asked; a controller that runs sees that at once",
    do="The Promotion becomes `Aborted` by itself. If it does not, no controller runs that acts on its Stage.",
    shown=Shown.ANSWER,
)
ABORT_UNDER_WAY = message(
    "it is being aborted, as {actor} asked; what runs is ended and waited for, as long as --abort-timeout of the "
    "controller says",
    do="The Promotion becomes `Aborted` by itself. `kargo-py abort promotion NAME --force` does not wait.",
    shown=Shown.ANSWER,
)
ABORT_FORCED = message(
    "it is being aborted by force, as {actor} asked; what runs is asked to end, and not waited for",
    do="The Promotion becomes `Aborted` at the next look of a controller, and says what was left to run.",
    shown=Shown.ANSWER,
)
STAGE_GOES = message(
    'Stage "{stage}" is being deleted, so nothing begins there any more',
    do="The Promotion waits for good. Delete it, or create the Stage again once it is gone.",
    shown=Shown.ANSWER,
)
STAGE_WITHOUT_STEPS = message(
    'Stage "{stage}" has no steps: it only passes Freight on, and no Promotion begins there',
    do="Delete the Promotion, or give the Stage `spec.promotionTemplate` with steps.",
    shown=Shown.ANSWER,
)
NOT_NAMED = message(
    'Stage "{stage}" does not name it as the Promotion that runs; it goes on when it does',
    do="The Stage's status was lost or edited. A controller that runs names it again at once.",
    shown=Shown.ANSWER,
)
ANOTHER_NAMED = message(
    'Stage "{stage}" names Promotion "{other}" as the one that runs; this one goes on when that has ended',
    do="The status of the Stage or of a Promotion was edited. Wait, or abort one of the two.",
    shown=Shown.ANSWER,
)


@dataclass(frozen=True, slots=True)
class PromotionFacts:
    """What was read.

    ``promotions``: those of the namespace; ``applications``: at least the targets that are on record.
    """

    promotion: JsonObject
    stage: Seen[JsonObject]
    freight: Seen[JsonObject]
    promotions: Sequence[JsonObject] | Hidden
    applications: Mapping[Key, Seen[Application]]
    now: datetime


def explain_promotion(facts: PromotionFacts) -> Explanation:
    """The answer."""
    raw = facts.promotion
    namespace, name = text_at(raw, "metadata", "namespace"), text_at(raw, "metadata", "name")
    promotion = model_of(Promotion, raw)
    if isinstance(promotion, str):
        return Explanation("Promotion", namespace, name, phase_of(raw), reasons=[Statement(promotion)])
    finding = _Finding(facts, promotion)
    finding.give()
    return Explanation(
        "Promotion",
        namespace,
        name,
        str(promotion.phase),
        finding.since,
        finding.answer.reasons,
        finding.answer.unseen,
    )


@dataclass(slots=True)
class _Finding:
    """An answer in the making."""

    facts: PromotionFacts
    promotion: Promotion
    answer: Answer = field(default_factory=Answer)

    @property
    def since(self) -> str:
        """Since when the Promotion is in its phase."""
        status, created = self.promotion.status, self.promotion.metadata.creation_timestamp
        if self.promotion.finished:
            return status.finished_at or ""
        return (status.started_at if self.promotion.running else created) or ""

    def give(self) -> None:
        """Find out everything."""
        facts, promotion = self.facts, self.promotion
        if promotion.finished:
            explain_end(self.answer, promotion)
            return
        if promotion.metadata.deletion_timestamp:
            self.answer.say(IS_BEING_DELETED(), promotion.metadata.deletion_timestamp)
        aborting = self._abort_asked()
        if promotion.phase not in {PromotionPhase.PENDING, PromotionPhase.RUNNING}:
            self.answer.say(UNKNOWN_PHASE(phase=promotion.phase))
            return
        stage = self._stage()
        if promotion.running:
            Running(self.answer, promotion, facts.applications, facts.now).explain()
            self._whose_turn(stage)
        elif stage is not None and not aborting:
            Pending(self.answer, promotion, stage, facts.freight, facts.promotions, facts.now).explain()

    def _abort_asked(self) -> bool:
        """Whether an abort was asked for, kept by the controller or not seen yet."""
        kept = latched_abort(self.promotion.status.state)
        try:
            new = read_abort(self.promotion.metadata.annotations.get(ANNOTATION_ABORT))
        except AbortError as error:
            self.answer.say(str(error))
            new = None
        if kept is not None:
            forced = kept.force or (new is not None and new.force)
            self.answer.say(_under_way(kept, forced=forced), kept.since)
        elif new is not None:
            self.answer.say(ABORT_NOT_SEEN(actor=new.by))
        return kept is not None or new is not None

    def _stage(self) -> Stage | None:
        """The Stage if it could be seen and lets Promotions begin."""
        name, namespace = self.promotion.spec.stage, self.promotion.namespace
        seen = self.facts.stage
        if isinstance(seen, Hidden):
            self.answer.hidden(f'Stage "{name}"', seen)
            return None
        if seen is None:
            self.answer.say(STAGE_NOT_FOUND(stage=name, namespace=namespace))
            return None
        stage = model_of(Stage, seen)
        if isinstance(stage, str):
            self.answer.say(stage)
            return None
        if stage.metadata.deletion_timestamp:
            self.answer.say(STAGE_GOES(stage=name), stage.metadata.deletion_timestamp)
        elif stage.is_control_flow:
            self.answer.say(STAGE_WITHOUT_STEPS(stage=name))
        else:
            return stage
        return None

    def _whose_turn(self, stage: Stage | None) -> None:
        """A Promotion that runs goes on only as long as its Stage names it."""
        if stage is None:
            return
        current = stage.status.current_promotion
        if current is None:
            self.answer.say(NOT_NAMED(stage=stage.name))
        elif current.name != self.promotion.name:
            self.answer.say(ANOTHER_NAMED(stage=stage.name, other=current.name))


def _under_way(kept: Abort, *, forced: bool) -> str:
    return ABORT_FORCED(actor=kept.by) if forced else ABORT_UNDER_WAY(actor=kept.by)
