"""How large a Stage's status may get."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kargo_py.api.stage import StageStatus
from kargo_py.controllers.stage_size import LIMIT, bounded, cut
from kargo_py.kube.codec import encode

JsonObject = dict[str, Any]
BIG = "x" * 60_000


def size(status: StageStatus) -> int:
    return len(encode(status.wire()))


def freight(name: str, text: str) -> JsonObject:
    origin = {"kind": "Warehouse", "name": "w"}
    return {"name": name, "origin": origin, "commits": [{"repoURL": "r", "id": "1", "message": text}]}


def collection(name: str, text: str) -> JsonObject:
    return {"id": name, "items": {"Warehouse/w": freight(name, text)}, "verificationHistory": [{"phase": "Successful"}]}


def status(text: str = BIG, collections: int = 10, **more: Any) -> StageStatus:
    """A status that has everything in it."""
    last = {
        "phase": "Failed",
        "message": text,
        "freightCollection": collection("f0", text),
        "freight": freight("f", text),
    }
    return StageStatus.model_validate(
        {
            "freightHistory": [collection(f"f{number}", text) for number in range(collections)],
            "lastPromotion": {"name": "p", "freight": freight("f0", text), "status": last},
            "conditions": [{"type": "Ready", "status": "False", "message": text[:30_000]}],
            "health": {"status": "Unhealthy", "issues": [text], "config": {"checks": []}},
            **more,
        }
    )


def test_small_ones_are_left_alone() -> None:
    """Below the limit nothing is cut."""
    small = status("small")

    assert bounded(small) is small


def test_the_least_useful_goes_first() -> None:
    """Details of what was here before; what is here, and what is wrong, are told as long as there is room."""
    subject = bounded(status())

    assert size(subject) <= LIMIT
    assert [c.names for c in subject.freight_history] == [[f"f{number}"] for number in range(10)]
    assert len(subject.freight_history[0].items["Warehouse/w"].commits) == 1
    assert [len(c.items["Warehouse/w"].commits) for c in subject.freight_history[1:]] == [0] * 9
    assert subject.health is not None
    assert subject.health.issues == [BIG]


def test_whatever_it_takes() -> None:
    """Names, origins, phases and verifications are what is left in the end."""
    subject = bounded(status("x" * 600_000, currentPromotion={"name": "c", "freight": freight("f", BIG * 20)}))

    assert size(subject) <= LIMIT
    assert subject.freight_history[0].names == ["f0"]
    assert subject.freight_history[0].verification_history
    assert subject.last_promotion is not None
    assert subject.last_promotion.status is not None
    assert subject.last_promotion.status.phase == "Failed"


def test_what_others_wrote_is_not_touched() -> None:
    """Metadata of steps cannot be cut; everything else makes room for it."""
    mine = {"data": "y" * 600_000}
    subject = bounded(status(metadata=mine))

    assert subject.metadata == mine
    assert len(subject.freight_history) == 1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 12), st.sampled_from([0, 1, 5_000, 70_000]))
def test_once_is_enough(collections: int, length: int) -> None:
    """What was cut is not cut again, and none is made larger."""
    before = status("z" * length, collections)
    once = bounded(before)

    assert bounded(once).wire() == once.wire()
    assert size(once) <= max(size(before), LIMIT)


@pytest.mark.parametrize(("text", "left"), [("abc", "abc"), ("a" * 20, "a" * 7 + "…"), ("ä" * 20, "äää…"), ("", "")])
def test_cut(text: str, left: str) -> None:
    """At most so many bytes, and no half characters."""
    assert cut(text, 10) == left
