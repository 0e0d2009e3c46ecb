"""How often and how long a step is tried, and what an error means for that. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from tenacity import wait_exponential, wait_random

from kargo_py.api.promotion import PromotionStep, StepStatus
from kargo_py.engine.guarding import described
from kargo_py.kube.backoff import MOST_ASKED, pause_before
from kargo_py.kube.errors import (
    Conflict,
    ConnectionLost,
    KubeError,
    NotFound,
    OutcomeUnknown,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from kargo_py.steps.base import Erred, Finished
from kargo_py.steps.step import Step, StepFailed

TOLERATED: Final = timedelta(minutes=10)
"""For so long errors that are likely to pass do not count, of a step without a time-out."""

_BETWEEN = wait_exponential(multiplier=1, exp_base=2, max=60) + wait_random(0, 1)

_PASSING = (Unreachable, ConnectionLost, ServerError, TooManyRequests, Conflict, OutcomeUnknown)
_PASSING_ELSEWHERE = frozenset({("httpx", "TransportError"), ("aiohttp", "ClientConnectionError")})
"""By name, since whoever does not use these libraries should not have to wait for their import."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for one step.

    ``threshold``: how many errors in a row end it. ``timeout``: how long it may take in all, None without limit.
    ``propagates``: within a task, its output is the task's, too.
    """

    threshold: int = 1
    timeout: timedelta | None = None
    propagates: bool = False


def rules_of(step: PromotionStep, kind: Step[Any]) -> Rules:
    """The rules for *step*, which is of that kind."""
    threshold = asked_threshold(step) or kind.default_error_threshold or 1
    return Rules(threshold, time_limit(step, kind.default_timeout), kind.propagates_output)


def asked_threshold(step: PromotionStep) -> int | None:
    """After how many errors in a row *step* says that it ends, None if it does not say."""
    return (step.retry.error_threshold or None) if step.retry is not None else None


def time_limit(step: PromotionStep, default: timedelta | None) -> timedelta | None:
    """How long *step* may take, None without limit; a time-out of 0 means that, too."""
    asked = step.retry.timeout if step.retry is not None else None
    if asked is None:
        return default
    return max(timedelta(seconds=asked.seconds), timedelta.resolution) if asked.nanoseconds > 0 else None


def pause_after(errors: int, retry_after: float | None) -> float:
    """Seconds until a step that has erred so many times in a row is called again; at least *retry_after*."""
    asked = retry_after if retry_after is not None and 0 < retry_after < math.inf else 0.0
    return max(asked, pause_before(max(errors, 1), _BETWEEN))


def outcome_of(error: BaseException) -> Erred | Finished:
    """What it means that a step raised *error*: that it decided "no", an error that is likely to pass, or another."""
    if isinstance(error, StepFailed):
        return Finished(StepStatus.FAILED, described(error).partition(": ")[2])
    said = str(error) if isinstance(error, KubeError) else described(error)
    return Erred(said, transient=is_passing(error), retry_after=asked_of(error))


def asked_of(error: BaseException) -> float | None:
    """Seconds for which the server asked to be left alone, None if it did not."""
    asked = error.retry_after if isinstance(error, TooManyRequests) else None
    return min(asked, MOST_ASKED) if asked is not None else None


def is_passing(error: BaseException) -> bool:
    """Whether *error* is likely to pass by itself: another call may succeed without anything being changed."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_passing(each) for each in error.exceptions)
    if isinstance(error, NotFound):
        return error.resource_missing
    if isinstance(error, (*_PASSING, TimeoutError, ConnectionError)):
        return True
    return any((t.__module__.partition(".")[0], t.__name__) in _PASSING_ELSEWHERE for t in type(error).__mro__)
