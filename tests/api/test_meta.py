"""Conditions by Kubernetes' rules."""

from datetime import UTC, datetime, timedelta

import pytest

from kargo_py.api.meta import MAX_CONDITION_MESSAGE, Condition, drop_condition, set_condition
from kargo_py.api.types import Time

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
EARLIER = Time.of(NOON - timedelta(hours=1))

READY = Condition(type="Ready", status="True", reason="Verified", last_transition_time=EARLIER)
HEALTHY = Condition(type="Healthy", status="True", reason="Healthy", last_transition_time=EARLIER)


@pytest.mark.parametrize(
    ("new", "moved"),
    [
        (Condition(type="Ready", status="False", reason="ActivePromotion"), True),
        (Condition(type="Ready", status="True", reason="Other", message="other words"), False),
    ],
    ids=["status changed", "only the reason changed"],
)
def test_transition_time_moves_with_the_status(new: Condition, moved: bool) -> None:
    """The time of transition is that of the last change of status; everything else is taken from the new condition."""
    first, second = set_condition([READY, HEALTHY], new, NOON)
    assert first == new.replace(last_transition_time=Time.of(NOON) if moved else EARLIER, message=new.message)
    assert second == HEALTHY


def test_new_condition_comes_last() -> None:
    """A condition of a type that was not there is added at the end, now."""
    added = set_condition([READY], Condition(type="Promoting", status="True"), NOON)
    assert [condition.type for condition in added] == ["Ready", "Promoting"]
    assert added[1].last_transition_time == Time.of(NOON)


def test_a_type_stands_once() -> None:
    """Two conditions of one type, as another program may have left them, become one: the server refuses two."""
    kept = set_condition([READY, HEALTHY, READY], Condition(type="Ready", status="False"), NOON)
    assert [condition.type for condition in kept] == ["Ready", "Healthy"]


def test_unknown_fields_of_others_stay() -> None:
    """A condition that is not touched keeps what we do not know."""
    wire = {"type": "Healthy", "status": "True", "severity": "high"}
    kept = set_condition([Condition.model_validate(wire)], Condition(type="Ready", status="True"), NOON)
    assert kept[0].wire() == wire


def test_long_messages_are_cut() -> None:
    """A message is cut to what the API server takes, and never within a character."""
    (condition,) = set_condition([], Condition(type="Ready", status="False", message="x" + "ü" * 20000), NOON)
    assert condition.message == "x" + "ü" * ((MAX_CONDITION_MESSAGE - 1) // 2)


def test_drop_condition() -> None:
    """All conditions of the type go, the others stay."""
    assert drop_condition([READY, HEALTHY, READY], "Ready") == (HEALTHY,)
