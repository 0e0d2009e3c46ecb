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

from kargo_py.api.types import JsonObject
from kargo_py.argocd.application import Application
from kargo_py.argocd.targets import LeftOut, resolve
from kargo_py.deployers.argocd_admission import Admission, TargetError, UpdateRequest, unauthorized
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update_config import Wishes
from kargo_py.steps.base import Intend, StepContext, Waiting, first_few
from kargo_py.steps.creation import not_there, staying, time_left, until_created

NONE_AUTHORIZED = message(
    'found {count} Application(s) matching selector "{selector}" in namespace "{namespace}", but none are authorized '
    "for Stage {stage}: {why}",
    do="Set the annotation `kargo.akuity.io/authorized-stage` of the Applications that are meant to the "
    "`<project>:<stage>` named here, or correct `selector` in the step's config; then promote again.",
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
_REASONS = 3
_NAMES = 20
_OUTPUT = "leftOut"


@dataclass(frozen=True, slots=True)
class Chosen:
    """All that the entries are about is there."""

    requests: Sequence[UpdateRequest]
    left_out: Sequence[LeftOut]


async def choose(admission: Admission, wishes: Wishes, context: StepContext) -> Chosen | Intend | Waiting:
    """Find what the entries are about, or wait for it; raises TargetError if it is not there and none can come.

    Neither is that said nor is a selector's choice made from the cache alone: another resource's watch may be ahead of
    this one's, and who labels an Application and promotes then means that one, too.
    """
    choices = wishes.choices
    selecting = [index for index, choice in enumerate(choices) if choice.selector is not None]
    found: list[Sequence[Application]] = []
    for choice in choices:
        # Matching may be much work, and others have theirs.
        await asyncio.sleep(0)
        found.append(admission.find(choice))
    looked: set[int] = set()
    while True:
        await asyncio.sleep(0)
        there = [staying(apps, time_left(wishes.patience(index), context)) for index, apps in enumerate(found)]
        resolution = resolve(choices, there, partial(unauthorized, stage=context.stage_key))
        over = [index for index in resolution.missing if time_left(wishes.patience(index), context) <= 0]
        refused = sorted([*over, *resolution.barred])
        if refused and looked.issuperset(refused[:_REASONS]):
            said = [_refusal(wishes, index, found[index], context) for index in refused[:_REASONS]]
            raise TargetError(first_few(said, len(refused)))
        if resolution.missing and not refused:
            return until_created([(choices[index], wishes.patience(index)) for index in resolution.missing], context)
        doubtful = [index for index in refused[:_REASONS] or selecting if index not in looked]
        if not doubtful:
            requests = [target_request(wishes, target) for target in resolution.targets.items()]
            return Chosen(requests, resolution.left_out)
        for index in doubtful:
            await asyncio.sleep(0)
            found[index] = await admission.look(choices[index])
        looked.update(doubtful)


def target_request(wishes: Wishes, target: tuple[Key, Sequence[int]]) -> UpdateRequest:
    """What is asked of a target, given with the entries that concern it."""
    key, entries = target
    selected = any(wishes.choices[index].selector is not None for index in entries)
    return wishes.request(key, entries if selected else ())


def _refusal(wishes: Wishes, index: int, apps: Sequence[Application], context: StepContext) -> str:
    """Why nothing can be done about the entry: nothing is there, or none of *apps*, which are there, may be touched."""
    choice = wishes.choices[index]
    if not apps:
        return not_there(choice, wishes.patience(index))
    return NONE_AUTHORIZED(
        count=len(apps),
        selector=choice.selector.shown if choice.selector is not None else "",
        namespace=choice.namespace,
        stage=context.stage_key,
        why=unauthorized(min(apps, key=lambda app: app.key), context.stage_key),
    )


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
