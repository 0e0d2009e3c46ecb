"""How a Promotion that has ended did, and what of it is left in the specs of Applications."""

from __future__ import annotations

from collections.abc import Sequence

from kargo_py.api.abort import latched_abort
from kargo_py.api.promotion import Promotion, PromotionPhase
from kargo_py.controllers.why import Answer
from kargo_py.controllers.why_promotion_targets import MOST_TARGETS, by_target, target_name, tell_attempts
from kargo_py.deployers.base import Record, RecordError, TargetState
from kargo_py.engine.records import records_of
from kargo_py.kube.codec import encode
from kargo_py.messages import Shown, message

WAS_ABORTED = message(
    "{actor} asked for the abort",
    do="The time is when a controller first saw the request. Create a new Promotion to promote again.",
    shown=Shown.ANSWER,
)
CHANGED = message(
    "{app}: the start changed {pointer}, which was {value}",
    do="The spec stays so unless the message says that it was put back. Promote other Freight, or change it by hand.",
    shown=Shown.ANSWER,
)
ADDED = message(
    "{app}: the start added {pointer}",
    do="The spec stays so unless the message says that it was taken back. Promote other Freight, or remove it by hand.",
    shown=Shown.ANSWER,
)
STEP_ENDED = message(
    'step {number} of {count}, "{alias}", is {status}',
    do="How the step ended; the first step that failed decides how the Promotion did.",
    shown=Shown.ANSWER,
)
SAYING = message(
    "{text}: {message}",
    do="As above, with the message of the step; look that up under [In a Promotion](#in-a-promotion).",
    shown=Shown.ANSWER,
)
ASK_THE_STAGE = message(
    "whether what it brought is healthy and verified: kargo-py why stage {stage}",
    do="A Promotion ends with its syncs. Health and verification are the Stage's.",
    shown=Shown.ANSWER,
)

_LONGEST_VALUE = 120
_REACHED_NOTHING = frozenset({TargetState.NOT_STARTED, TargetState.REFUSED})


def explain_end(answer: Answer, promotion: Promotion) -> None:
    """What the record says of the end."""
    if promotion.status.message:
        answer.tell(promotion.status.message, promotion.status.finished_at)
    kept = latched_abort(promotion.status.state)
    if kept is not None and promotion.phase == PromotionPhase.ABORTED:
        answer.tell(WAS_ABORTED(actor=kept.by), kept.since)
    _tell_steps(answer, promotion)
    try:
        grouped = by_target(records_of(promotion.status))
    except RecordError as error:
        answer.say(str(error))
        grouped = []
    for attempts in grouped[:MOST_TARGETS]:
        tell_attempts(answer, attempts)
        if promotion.phase != PromotionPhase.SUCCEEDED:
            _tell_changes(answer, attempts)
    if promotion.phase == PromotionPhase.SUCCEEDED:
        answer.say(ASK_THE_STAGE(stage=promotion.spec.stage))


def _tell_steps(answer: Answer, promotion: Promotion) -> None:
    steps = promotion.status.step_execution_metadata
    count = max(len(promotion.spec.steps or ()), len(steps))
    for number, step in enumerate(steps, 1):
        text = STEP_ENDED(number=number, count=count, alias=step.alias, status=step.status or "not begun")
        if step.message and step.message not in promotion.status.message:
            text = SAYING(text=text, message=step.message)
        answer.tell(text, step.finished_at)


def _tell_changes(answer: Answer, attempts: Sequence[Record]) -> None:
    """What the starts have changed in the spec; of several attempts the last one's former value counts."""
    begun = [record for record in attempts if record.state not in _REACHED_NOTHING]
    told = {change.pointer: change for record in begun for change in record.before}
    app = target_name(attempts[-1])
    for pointer, change in told.items():
        if change.value is None:
            answer.say(ADDED(app=app, pointer=pointer))
        else:
            answer.say(CHANGED(app=app, pointer=pointer, value=_shown(change.value)))


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else encode(value).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
