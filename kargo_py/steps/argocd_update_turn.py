"""One call of the step ``argocd-update``: what it is asked for, how much time is left, and how a target stands."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Self

from kargo_py.deployers.argocd import ArgoCD, Origin
from kargo_py.deployers.base import Observation, Record, TargetState
from kargo_py.kube.errors import KubeError
from kargo_py.messages import Shown, message
from kargo_py.steps.argocd_update_config import ArgoCDUpdateConfig, Wishes, read_config
from kargo_py.steps.argocd_update_records import extent
from kargo_py.steps.base import StepContext
from kargo_py.steps.passes import Pass

TIMED_OUT_AFTER = message(
    "timed out after {time}; {message}",
    do="Raise `retry.timeout` of the step (`0s`: no limit), or mend what kept it. With `onTimeout: detach` the sync "
    "goes on alone, with `onTimeout: terminate` it is ended first.",
    shown=Shown.PROMOTION,
)
TIMED_OUT = message(
    "timed out; {message}",
    do="As above; the step has no time-out any more, it was changed while the sync was being ended.",
    shown=Shown.PROMOTION,
)

LEAST_ROOM = 64 * 1024
"""Bytes that the records of a step may have in any case."""

PROMPT = timedelta(seconds=10)
"""What begins within that time has begun at once: its time counts from the start of the step."""


@dataclass(frozen=True)
class Turn:
    """One call of the step: what it is asked for, and what is known."""

    context: StepContext
    config: ArgoCDUpdateConfig
    wishes: Wishes

    @classmethod
    def of(cls, context: StepContext, default_namespace: str) -> Self:
        """The call that *context* is for; raises ValueError if its configuration is wrong."""
        config = read_config(context.config)
        return cls(context, config, Wishes(config, context.stage_key, default_namespace))

    @property
    def origin(self) -> Origin:
        """On whose behalf starts are made."""
        return Origin(self.context.promotion, self.context.actor)

    def with_records(self, records: Sequence[Record]) -> Turn:
        """The same with *records* in the place of those that are written."""
        return dataclasses.replace(self, context=dataclasses.replace(self.context, records=records))

    @property
    def time_to_begin(self) -> float | None:
        """Seconds in which it has to be known which Applications it is about; None without limit."""
        context = self.context
        if context.timeout is None:
            return None
        patience = max(self.wishes.patience(index) for index in range(len(self.config.apps)))
        return (context.timeout + patience - (context.now - context.started_at)).total_seconds()

    @cached_property
    def full(self) -> bool:
        """Whether there is no room for the record of one more attempt."""
        return extent(self.context.records) > max(2 * self.context.room, LEAST_ROOM)


@dataclass(frozen=True, slots=True)
class Look:
    """How one target stands: all attempts on it, the last one being the one that counts.

    ``intends``: the last one is new and must be written before anything else is done. ``wait``: it has not ended, and
    ``error`` says what kept us from bringing it further. ``refusal``: why no new attempt follows the last one.
    """

    attempts: Sequence[Record]
    intends: bool = False
    wait: Observation | None = None
    error: KubeError | None = None
    refusal: str = ""

    @property
    def under_way(self) -> bool:
        """The last attempt has not ended, as far as is known."""
        return self.wait is not None and not self.wait.record.state.final

    @property
    def failed(self) -> bool:
        """It has ended for good, and not well."""
        return self.wait is None and not self.intends and self.attempts[-1].state is not TargetState.SUCCEEDED


class TargetPass(Pass):
    """A pass that also knows whose requests failed in the one before."""

    def __init__(self, argocd: ArgoCD, left: float | None = None) -> None:
        super().__init__(left)
        self._argocd = argocd

    def failed_at(self, record: Record) -> float:
        """When a request about the target last failed; those are the last to have their turn."""
        return 0.0 if record.state.final else self._argocd.attempt(record.key, record.stamp).failed_at

    def note_of(self, record: Record | None, error: KubeError | None) -> None:
        """A request about the target of *record*, None if that has ended, failed with *error*, or none did."""
        self.note(error)
        if record is not None and not record.state.final:
            failed_at = asyncio.get_running_loop().time() if error is not None else 0.0
            self._argocd.attempt(record.key, record.stamp).failed_at = failed_at


def is_over(context: StepContext, attempts: Sequence[Record], elapsed: float = 0.0) -> bool:
    """Whether a target with these *attempts* has had its time."""
    left = context.time_left(attempts)
    return left is not None and left <= elapsed


def timed_out(context: StepContext, said: str) -> str:
    """What is said of a step that has had its time."""
    if context.timeout is None:
        return TIMED_OUT(message=said)
    return TIMED_OUT_AFTER(time=context.time, message=said)
