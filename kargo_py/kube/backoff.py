"""How long to wait before the next try: a tenacity wait object, asked without tenacity's loop around it."""

from __future__ import annotations

from tenacity import RetryCallState
from tenacity.wait import wait_base

from kargo_py.kube.errors import TooManyRequests

MOST_ASKED = 120.0
"""Seconds; a server that asks to be left alone for longer is asked again then all the same."""


def pause_before(attempt: int, policy: wait_base, error: BaseException | None = None) -> float:
    """Seconds to wait before try number *attempt* + 1; at least what the server asked for in *error*."""
    asked = error.retry_after or 0.0 if isinstance(error, TooManyRequests) else 0.0
    return max(min(asked, MOST_ASKED), float(policy(_Attempt(attempt))))


class _Attempt(RetryCallState):
    """The one thing about a retried call that a wait object looks at; there is no call here."""

    def __init__(self, number: int) -> None:
        self.attempt_number = number
