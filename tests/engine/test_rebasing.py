"""What a call has made of a status is put onto what somebody else has made of it meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from kargo_py.api.promotion import Promotion, PromotionStatus
from kargo_py.engine.rebasing import rebased

JsonObject = dict[str, Any]

FREIGHT = {"name": "f1", "origin": {"kind": "Warehouse", "name": "wh"}}
STARTED: JsonObject = {"alias": "two", "status": "Running", "startedAt": "2026-11-30T12:00:00Z"}
FIRST: JsonObject = {"alias": "one", "status": "Succeeded"}
ENDED: JsonObject = {**STARTED, "status": "Succeeded", "finishedAt": "2026-11-30T12:01:00Z"}
BEFORE: JsonObject = {
    "phase": "Running",
    "freight": FREIGHT,
    "currentStep": 1,
    "stepExecutionMetadata": [FIRST, STARTED],
    "state": {"one": {"n": 1}},
}
AFTER: JsonObject = {
    **BEFORE,
    "currentStep": 2,
    "stepExecutionMetadata": [FIRST, ENDED],
    "state": {"one": {"n": 1}, "two": {"n": 2}},
}
PAUSED: JsonObject = {**BEFORE, "stepExecutionMetadata": [FIRST, {**STARTED, "errorCount": 1}]}


def promotion(status: JsonObject) -> Promotion:
    steps = [{"as": alias, "uses": "toy"} for alias in ("one", "two", "three")]
    return Promotion.model_validate(
        {
            "metadata": {"name": "p1", "namespace": "shop"},
            "spec": {"stage": "dev", "freight": "f1", "steps": steps},
            "status": status,
        }
    )


def read(status: JsonObject) -> PromotionStatus:
    return PromotionStatus.model_validate(status)


CASES: list[tuple[str, JsonObject, JsonObject, JsonObject | None]] = [
    ("as it was", AFTER, BEFORE, AFTER),
    ("another member", AFTER, {**BEFORE, "message": "theirs"}, {**AFTER, "message": "theirs"}),
    (
        "another step's output",
        AFTER,
        {**BEFORE, "state": {"one": {"n": 7}, "new": 1}},
        {**AFTER, "state": {"one": {"n": 7}, "new": 1, "two": {"n": 2}}},
    ),
    ("a member they took away", AFTER, {**BEFORE, "state": None}, AFTER | {"state": AFTER["state"]}),
    (
        "an earlier step",
        AFTER,
        {**BEFORE, "stepExecutionMetadata": [{**FIRST, "message": "theirs"}, STARTED]},
        {**AFTER, "stepExecutionMetadata": [{**FIRST, "message": "theirs"}, ENDED]},
    ),
    (
        "the step itself, otherwise",
        AFTER,
        {**BEFORE, "stepExecutionMetadata": [FIRST, {**STARTED, "message": "theirs"}]},
        {**AFTER, "stepExecutionMetadata": [FIRST, {**ENDED, "message": "theirs"}]},
    ),
    (
        "the step itself, the same field",
        PAUSED,
        {**BEFORE, "stepExecutionMetadata": [FIRST, {**STARTED, "errorCount": 5}]},
        PAUSED,
    ),
    ("it is there already, and a pause", PAUSED, PAUSED, PAUSED),
    ("it is there already, and the next step", AFTER, AFTER, None),
    ("the step was ended", AFTER, {**BEFORE, "stepExecutionMetadata": [FIRST, ENDED], "currentStep": 2}, None),
    ("it was put back to the first step", AFTER, {**BEFORE, "currentStep": 0, "stepExecutionMetadata": []}, None),
    ("the Promotion was ended", AFTER, {**BEFORE, "phase": "Failed"}, None),
    ("the status was removed", AFTER, {}, None),
]


@pytest.mark.parametrize(("after", "found", "expected"), [pytest.param(*case, id=name) for name, *case in CASES])
def test_rebased(after: JsonObject, found: JsonObject, expected: JsonObject | None) -> None:
    """Both changes are there then; where they are about one field it is that of the call."""
    made = rebased(read(BEFORE), read(after), promotion(found))
    assert (made.wire() if made is not None else None) == (read(expected).wire() if expected is not None else None)


def test_nothing_of_it_is_changed() -> None:
    """It is a new value: what was given stays as it was."""
    before, after, found = read(BEFORE), read(AFTER), promotion({**BEFORE, "state": {"one": {"n": 7}}})
    copies = [before.wire(), after.wire(), found.status.wire()]
    rebased(before, after, found)
    assert copies == [before.wire(), after.wire(), found.status.wire()]
