"""The first thing an ``argocd-update`` does: find out which Applications it is about, once and for all.

What an entry names or selects may have to be waited for. When all is there the set is fixed: it goes into the records,
and labels that change later change nothing. Applications that a selector matches and that do not authorise the Stage
are left out, and told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from kargo_py.api.types import Duration, JsonObject, Time
from kargo_py.argocd.application import Application, describe
from kargo_py.argocd.targets import Choice, LeftOut, resolve
from kargo_py.deployers.argocd_admission import Admission, TargetError, UpdateRequest, unauthorized
from kargo_py.deployers.base import Awaited
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update_config import Wishes
from kargo_py.steps.base import StepContext, first_few

NONE_AUTHORIZED = message(
    'found {count} Application(s) matching selector "{selector}" in namespace "{namespace}", but none are authorized '
    "for Stage {stage}: {why}",
    do="Set the annotation `kargo.akuity.io/authorized-stage` of the Applications that are meant to the "
    "`<project>:<stage>` named here, or correct `selector` in the step's config; then promote again.",
    shown=Shown.PROMOTION,
)
NOT_CREATED = message(
    "{missing}; it was waited for {time}",
    do="Nobody made such an Application in that time. See what the ApplicationSet that should have says, raise "
    "`waitForCreation`, or correct the entry; then promote again.",
    shown=Shown.PROMOTION,
)
WAITS_FOR_CREATION = message(
    "waits for {what} to be created, until {time}",
    do="The step begins by itself when the Application is made, and fails at that time if it is not. See what the "
    "ApplicationSet that should make it says.",
    shown=Shown.PROMOTION,
)
LEFT_OUT = message(
    "left out, though a selector matches: {apps}",
    do="The Promotion goes on without these Applications. Correct their annotation "
    "`kargo.akuity.io/authorized-stage` if they are meant, or the `selector` if they are not.",
    shown=Shown.PROMOTION | Shown.EVENT,
)
AND_OTHERS = message(
    "{apps}; and {count} more: {names}",
    do="Of *left out*: the names of further Applications, as far as there is room for them.",
    shown=Shown.PROMOTION | Shown.EVENT,
)
TOO_LONG_TO_WAIT_FOR = message(
    "the selectors of entries with waitForCreation need {needed} bytes of the {room} there are",
    do="What is waited for is kept in the Promotion, which has to stay far below the 1.5 MiB that an object can have. "
    "Shorten the lists of `values` in `selector`, or give the Applications one label that tells them.",
    shown=Shown.PROMOTION,
)
SUCH_AN_APPLICATION = message(
    'an Argo CD Application matching selector "{selector}" in namespace "{namespace}"',
    do="Part of *waits for … to be created*.",
    shown=Shown.PROMOTION,
)

_REASONS = 3
_NAMES = 20
_OUTPUT = "leftOut"


@dataclass(frozen=True, slots=True)
class Chosen:
    """All that the entries are about is there."""

    requests: Sequence[UpdateRequest]
    left_out: Sequence[LeftOut]


@dataclass(frozen=True, slots=True)
class Incomplete:
    """Something has yet to be made; ``look_after`` seconds the waiting for the first of it is over."""

    awaited: Sequence[Awaited]
    message: str
    look_after: float


async def choose(admission: Admission, wishes: Wishes, context: StepContext) -> Chosen | Incomplete:
    """Find what the entries are about; raises TargetError if there is no such thing and none can come.

    Neither is that said nor is a selector's choice made from the cache alone: another resource's watch may be ahead of
    this one's, and who labels an Application and promotes then means that one, too.
    """
    choices = wishes.choices
    selecting = [index for index, choice in enumerate(choices) if choice.selector is not None]
    found = [admission.find(choice) for choice in choices]
    looked: set[int] = set()
    while True:
        # Matching may be much work, and others have theirs.
        await asyncio.sleep(0)
        there = [staying(apps, _time_left(wishes, index, context)) for index, apps in enumerate(found)]
        resolution = resolve(choices, there, partial(unauthorized, stage=context.stage_key))
        over = [index for index in resolution.missing if _time_left(wishes, index, context) <= 0]
        refused = sorted([*over, *resolution.barred])
        if refused and looked.issuperset(refused[:_REASONS]):
            said = [_refusal(wishes, index, found[index], context) for index in refused[:_REASONS]]
            raise TargetError(first_few(said, len(refused)))
        if resolution.missing and not refused:
            return _incomplete(wishes, resolution.missing, context)
        doubtful = next((index for index in [*refused, *selecting] if index not in looked), None)
        if doubtful is None:
            requests = [target_request(wishes, target) for target in resolution.targets.items()]
            return Chosen(requests, resolution.left_out)
        found[doubtful] = await admission.look(choices[doubtful])
        looked.add(doubtful)


def staying(apps: Sequence[Application], time_left: float) -> Sequence[Application]:
    """Those of *apps* that count: not one that is being deleted, as long as another can be waited for."""
    return [app for app in apps if app.metadata.deletion_timestamp is None] if time_left > 0 else apps


def target_request(wishes: Wishes, target: tuple[Key, Sequence[int]]) -> UpdateRequest:
    """What is asked of a target, given with the entries that concern it."""
    key, entries = target
    selected = any(wishes.choices[index].selector is not None for index in entries)
    return wishes.request(key, entries if selected else ())


def _time_left(wishes: Wishes, index: int, context: StepContext) -> float:
    """Seconds for which the entry may still wait for what it is about, counted from the start of the step."""
    waits = wishes.patience(index)
    return (waits - (context.now - context.started_at)).total_seconds() if waits else 0.0


def _refusal(wishes: Wishes, index: int, apps: Sequence[Application], context: StepContext) -> str:
    """Why nothing can be done about the entry: nothing is there, or none of *apps*, which are there, may be touched."""
    choice = wishes.choices[index]
    if not apps:
        waits = wishes.patience(index)
        return NOT_CREATED(missing=choice.missing, time=Duration.of(waits.total_seconds())) if waits else choice.missing
    return NONE_AUTHORIZED(
        count=len(apps),
        selector=choice.selector.shown if choice.selector is not None else "",
        namespace=choice.namespace,
        stage=context.stage_key,
        why=unauthorized(min(apps, key=lambda app: app.key), context.stage_key),
    )


def _incomplete(wishes: Wishes, missing: Sequence[int], context: StepContext) -> Incomplete:
    awaited, said = [], []
    for index in missing:
        choice, until = wishes.choices[index], Time.of(context.started_at + wishes.patience(index))
        selector = choice.selector.wire() if choice.selector is not None else None
        awaited.append(Awaited(context.alias, choice.namespace, choice.name, selector))
        said.append(WAITS_FOR_CREATION(what=described(choice), time=until))
    left = min(_time_left(wishes, index, context) for index in missing)
    return Incomplete(awaited, first_few(said), left)


def check_awaited(awaited: Sequence[Awaited], room: int) -> None:
    """Raise TargetError if what is waited for takes more than *room* bytes: selectors can be as long as the spec."""
    needed = len(msgspec.json.encode(awaited))
    if needed > room:
        raise TargetError(TOO_LONG_TO_WAIT_FOR(needed=needed, room=max(room, 0)))


def described(choice: Choice) -> str:
    """What *choice* is about, as a thing that is not there yet."""
    if choice.selector is None:
        return describe(Key(choice.namespace, choice.name))
    return SUCH_AN_APPLICATION(selector=choice.selector.shown, namespace=choice.namespace)


# --- what was left out ------------------------------------------------------------------------------------------------


def left_out_output(left_out: Sequence[LeftOut]) -> JsonObject:
    """What the step puts out about Applications that were left out; {} if there are none."""
    if not left_out:
        return {}
    shown = [{"namespace": out.key.namespace, "name": out.key.name, "why": out.why} for out in left_out[:_REASONS]]
    shown += [{"namespace": out.key.namespace, "name": out.key.name} for out in left_out[_REASONS:_NAMES]]
    return {_OUTPUT: {"count": len(left_out), "apps": shown}}


def left_out_of(output: Any) -> JsonObject:
    """That part of an *output* that was written; somebody may have edited it."""
    match output:
        case {"leftOut": {"count": int(), "apps": [*apps]} as told} if all(isinstance(app, dict) for app in apps):
            return {_OUTPUT: told}
    return {}


def left_out_message(output: Mapping[str, Any]) -> str:
    """That part of an output in words; "" if nothing was left out."""
    told = left_out_of(output).get(_OUTPUT)
    if told is None:
        return ""
    reasons = [str(app["why"]) for app in told["apps"] if "why" in app]
    names = [str(app.get("name")) for app in told["apps"] if "why" not in app]
    said = "; ".join(reasons)
    if names:
        more = told["count"] - len(reasons)
        said = AND_OTHERS(apps=said, count=more, names=", ".join(names) + (", …" if more > len(names) else ""))
    return LEFT_OUT(apps=said)
