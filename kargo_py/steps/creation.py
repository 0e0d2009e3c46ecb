"""Waiting until somebody makes what an entry of a step is about: the ``waitForCreation`` of the steps for Argo CD."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from kargo_py.api.types import Duration, Time
from kargo_py.argocd.application import Application, describe
from kargo_py.argocd.targets import Choice
from kargo_py.deployers.argocd_admission import LastingError
from kargo_py.deployers.base import Awaited
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.base import Intend, StepContext, Waiting, first_few

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


def time_left(patience: timedelta, context: StepContext) -> float:
    """Seconds for which an entry of that *patience* may still wait, counted from the start of the step."""
    return (patience - (context.now - context.started_at)).total_seconds() if patience else 0.0


def staying(apps: Sequence[Application], seconds_left: float) -> Sequence[Application]:
    """Those of *apps* that count: not one that is being deleted, as long as another can be waited for."""
    return [app for app in apps if app.metadata.deletion_timestamp is None] if seconds_left > 0 else apps


def not_there(choice: Choice, patience: timedelta) -> str:
    """What is said of an entry once nothing is there and nothing is waited for."""
    if not patience:
        return choice.missing
    return NOT_CREATED(missing=choice.missing, time=Duration.of(patience.total_seconds()))


def until_created(missing: Sequence[tuple[Choice, timedelta]], context: StepContext) -> Intend | Waiting:
    """Wait for what these entries are about, each with its patience; durably first, so that the creation wakes us.

    Raises LastingError if that takes more room than there is: selectors can be as long as the spec.
    """
    awaited = [_awaited(context.alias, choice) for choice, _ in missing]
    if not all(each in context.awaited for each in awaited):
        if (needed := len(msgspec.json.encode(awaited))) > context.room:
            raise LastingError(TOO_LONG_TO_WAIT_FOR(needed=needed, room=max(context.room, 0)))
        return Intend((), awaited=awaited)
    said = [
        WAITS_FOR_CREATION(what=_described(choice), time=Time.of(context.started_at + patience))
        for choice, patience in missing
    ]
    left = min(time_left(patience, context) for _, patience in missing)
    return Waiting(first_few(said), (), notable=True, look_after=left)


def _awaited(alias: str, choice: Choice) -> Awaited:
    selector = choice.selector.wire() if choice.selector is not None else None
    return Awaited(alias, choice.namespace, choice.name, selector)


def _described(choice: Choice) -> str:
    """What *choice* is about, as a thing that is not there yet."""
    if choice.selector is None:
        return describe(Key(choice.namespace, choice.name))
    return SUCH_AN_APPLICATION(selector=choice.selector.shown, namespace=choice.namespace)
