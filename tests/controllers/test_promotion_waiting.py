"""What of a wait is written, and how soon."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from kargo_py.controllers.promotion_waiting import gather_time, is_urgent
from kargo_py.deployers.base import Record, TargetState
from kargo_py.steps.base import Waiting

RECORD = Record("Application", "argocd", "a", "u", "sync", 1, "me/ns/p/u/sync/1", "7")
SUCCEEDED, FAILED, STOPPED = (
    msgspec.structs.replace(RECORD, state=state)
    for state in (TargetState.SUCCEEDED, TargetState.FAILED, TargetState.STOPPED)
)
ASKED_TO_END = msgspec.structs.replace(RECORD, stopping_since="2026-11-30T12:00:00Z")


@pytest.mark.parametrize(
    ("known", "now", "urgent"),
    [
        ([RECORD, RECORD], [RECORD, RECORD], False),
        ([RECORD, RECORD], [RECORD, SUCCEEDED], False),
        ([RECORD, RECORD], [RECORD, FAILED], True),
        ([RECORD, RECORD], [STOPPED, RECORD], True),
        ([FAILED, RECORD], [FAILED, FAILED], False),
        ([FAILED, RECORD], [FAILED, RECORD], False),
        ([RECORD, RECORD], [RECORD, ASKED_TO_END], True),
        ([RECORD, ASKED_TO_END], [RECORD, ASKED_TO_END], False),
    ],
    ids=["nothing", "success", "failure", "stopped", "a second failure", "no news", "asked to end", "asked before"],
)
def test_bad_news_come_first(known: Sequence[Record], now: Sequence[Record], urgent: bool) -> None:
    assert is_urgent(known, Waiting("waits", now)) is urgent


@pytest.mark.parametrize(("targets", "seconds"), [(0, 1.0), (1, 1.0), (20, 1.0), (50, 2.5), (100, 5.0), (1000, 5.0)])
def test_many_targets_are_written_less_often(targets: int, seconds: float) -> None:
    assert gather_time(targets) == seconds
