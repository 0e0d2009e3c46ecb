"""What the steps of a Promotion have on record of work elsewhere: for each target the attempts, and their ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kargo_py.api.promotion import Promotion
from kargo_py.api.types import JsonObject
from kargo_py.argocd.application import describe
from kargo_py.controllers.why import ARGOCD_CLOCK, Answer, model_of
from kargo_py.deployers.argocd_records import KIND as ARGOCD
from kargo_py.deployers.base import Record, RecordError, TargetState
from kargo_py.engine.records import records_of
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_wait import USES as ARGOCD_WAIT

ATTEMPT = message(
    "{app}: this is attempt {number}",
    do="Earlier attempts were undone by others; three are made at most. See who else syncs the Application.",
    shown=Shown.ANSWER,
)
EARLIER_ATTEMPT = message(
    "{app}: attempt {number} ended as {state}: {message}",
    do="What became of an earlier attempt; look its message up under [In a Promotion](#in-a-promotion).",
    shown=Shown.ANSWER,
)
TARGET_ENDED = message(
    "{app}: {state}: {message}",
    do="How the sync of this Application ended; look the message up under [In a Promotion](#in-a-promotion).",
    shown=Shown.ANSWER,
)
TARGET_IS = message(
    "{app}: {state}",
    do="What is on record of the sync of this Application, for which there is no message.",
    shown=Shown.ANSWER,
)
TARGET_APPLIED = message(
    "{app}: {state} at {revision}",
    do="How the sync of this Application ended, and the revision that Argo CD applied.",
    shown=Shown.ANSWER,
)
OF_ANOTHER_KIND = message(
    '{kind} "{name}" in namespace "{namespace}"',
    do="What a step of another kind than kargo-py's own has on record; that step's author knows what it is.",
    shown=Shown.ANSWER,
)

MOST_TARGETS: Final = 20
"""How many are told of."""


def targets(promotion: JsonObject) -> Sequence[Key]:
    """The Applications that *promotion* has on record, the first few of them."""
    model = model_of(Promotion, promotion)
    try:
        records = records_of(model.status) if isinstance(model, Promotion) else ()
    except RecordError:
        return []
    return list(dict.fromkeys(record.key for record in records if record.kind == ARGOCD))[:MOST_TARGETS]


def by_target(records: Sequence[Record]) -> list[list[Record]]:
    """The attempts of each step on each target, oldest first."""
    grouped: dict[tuple[str, str, Key], list[Record]] = {}
    for record in records:
        grouped.setdefault((record.step, record.kind, record.key), []).append(record)
    return [sorted(attempts, key=lambda record: record.attempt) for attempts in grouped.values()]


def tell_attempts(answer: Answer, attempts: Sequence[Record]) -> None:
    """Tell how the attempts on one target ended; of the last one that runs, only which one it is."""
    *earlier, last = attempts
    app = target_name(last)
    if last.state.final:
        _tell_end(answer, last)
    elif earlier:
        answer.say(ATTEMPT(app=app, number=last.attempt))
    for record in earlier:
        said = EARLIER_ATTEMPT(app=app, number=record.attempt, state=record.state.value, message=record.message)
        answer.tell(said, record.finished_at, _clock(record))


def _tell_end(answer: Answer, record: Record) -> None:
    app, state = target_name(record), record.state.value
    said = record.message.removeprefix(f"{app}: ")
    if record.state is TargetState.SUCCEEDED and record.revisions:
        text = TARGET_APPLIED(app=app, state=state, revision=", ".join(record.revisions))
    else:
        text = TARGET_ENDED(app=app, state=state, message=said) if said else TARGET_IS(app=app, state=state)
    answer.tell(text, record.finished_at, _clock(record))


def target_name(record: Record) -> str:
    """What the record is about, in words."""
    if record.kind in {ARGOCD, ARGOCD_WAIT}:
        return describe(record.key)
    return OF_ANOTHER_KIND(kind=record.kind, name=record.name, namespace=record.namespace)


def _clock(record: Record) -> str:
    return ARGOCD_CLOCK if record.kind == ARGOCD else ""
