"""Which Freight a Promotion with an origin is of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kargo_py.api.freight import Freight, FreightOrigin
from kargo_py.api.stage import Stage
from kargo_py.controllers.candidates import candidate, upstream_of

JsonObject = dict[str, Any]

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
WH = FreightOrigin(kind="Warehouse", name="wh")
FOLLOW: JsonObject = {"autoPromotionOptions": {"selectionPolicy": "MatchUpstream"}}


def stage(name: str = "prod", **sources: Any) -> Stage:
    request = {"origin": WH.wire(), "sources": sources or {"direct": True}}
    return Stage.model_validate(
        {"metadata": {"name": name, "namespace": "shop"}, "spec": {"requestedFreight": [request]}}
    )


def holding(freight: str) -> Stage:
    """The Stage upstream, with *freight* in it."""
    collection = {"items": {"Warehouse/wh": {"name": freight, "origin": WH.wire()}}}
    history = {"freightHistory": [collection]} if freight else {}
    return Stage.model_validate({**stage("test").wire(), "status": history})


def freight(
    name: str, *, created: int = 0, discovered: int | None = None, origin: str = "wh", **status: JsonObject
) -> Freight:
    """Freight of so many minutes before noon."""
    wire: JsonObject = {
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": at(created)},
        "origin": {"kind": "Warehouse", "name": origin},
        "status": status,
    }
    if discovered is not None:
        wire["discoveredAt"] = at(discovered)
    return Freight.model_validate(wire)


def at(minutes: int) -> str:
    return (NOON - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


VERIFIED = {"test": {"verifiedAt": at(100)}}


@pytest.mark.parametrize(
    ("freights", "expected"),
    [
        pytest.param([freight("a", created=9), freight("b", created=5), freight("c", created=7)], "b", id="the newest"),
        pytest.param([freight("a", created=1, discovered=9), freight("b", created=5)], "b", id="by discovery"),
        pytest.param([freight("a", created=9, discovered=1), freight("b", created=5)], "a", id="not by creation"),
        pytest.param([freight("a"), freight("c"), freight("b")], "c", id="of the same time, by name"),
        pytest.param([freight("a", created=1, origin="else"), freight("b", created=5)], "b", id="of that origin"),
    ],
)
def test_the_newest(freights: list[Freight], expected: str) -> None:
    """The greatest time of discovery, or else of creation; then the greatest name."""
    for order in (freights, freights[::-1]):
        found = candidate(stage(), WH, order, None, NOON)
        assert isinstance(found, Freight)
        assert found.name == expected


@pytest.mark.parametrize(
    ("sources", "freights", "expected"),
    [
        pytest.param(
            {"stages": ["test"]}, [freight("a", created=9, verifiedIn=VERIFIED), freight("b")], "a", id="verified"
        ),
        pytest.param(
            {"stages": ["test"]},
            [freight("a", created=9, verifiedIn=VERIFIED), freight("b", approvedFor={"prod": {}})],
            "b",
            id="or approved",
        ),
        pytest.param(
            {"stages": ["test", "qa"], "availabilityStrategy": "All"},
            [freight("a", created=9, verifiedIn={**VERIFIED, "qa": {}}), freight("b", verifiedIn=VERIFIED)],
            "a",
            id="in all",
        ),
        pytest.param(
            {"stages": ["test"], "requiredSoakTime": "1h"},
            [
                freight("a", created=9, verifiedIn=VERIFIED, currentlyIn={"test": {"since": at(61)}}),
                freight(
                    "b", verifiedIn={**VERIFIED, "else": {"longestSoak": "9h"}}, currentlyIn={"test": {"since": at(59)}}
                ),
            ],
            "a",
            id="soaked, and in a Stage upstream",
        ),
    ],
)
def test_only_what_may_be_taken(sources: JsonObject, freights: list[Freight], expected: str) -> None:
    """The newest that is available to the Stage, by the same rules as for Freight that is named."""
    found = candidate(stage(**sources), WH, freights, None, NOON)

    assert isinstance(found, Freight)
    assert found.name == expected


@pytest.mark.parametrize(
    ("upstream", "freights", "expected"),
    [
        pytest.param(
            holding("a"),
            [freight("a", created=9, verifiedIn=VERIFIED), freight("b", verifiedIn=VERIFIED)],
            "a",
            id="there",
        ),
        pytest.param(
            holding("a"), [freight("a"), freight("b", verifiedIn=VERIFIED)], "!has not been verified", id="not verified"
        ),
        pytest.param(
            holding("a"),
            [freight("b", verifiedIn=VERIFIED)],
            '!Freight "a", which is in Stage "test", does not',
            id="gone",
        ),
        pytest.param(
            holding(""), [freight("a", verifiedIn=VERIFIED)], '!Stage "test" has no Freight', id="nothing there"
        ),
        pytest.param(None, [freight("a", verifiedIn=VERIFIED)], '!Stage "test" has no Freight', id="no such Stage"),
    ],
)
def test_what_is_upstream(upstream: Stage | None, freights: list[Freight], expected: str) -> None:
    """With MatchUpstream it is what the one Stage upstream has, and no newer one."""
    to = stage(stages=["test"], **FOLLOW)
    found = candidate(to, WH, freights, upstream, NOON)

    assert upstream_of(to, WH) == "test"
    assert (found.name == expected) if isinstance(found, Freight) else expected.removeprefix("!") in found


@pytest.mark.parametrize("sources", [{"stages": ["a", "b"]}, {"direct": True, "stages": ["a"]}, {"stages": []}])
def test_more_than_one_upstream(sources: JsonObject) -> None:
    """Then nobody can say what is upstream; Kargo's own definition takes such a Stage."""
    to = stage(**sources, **FOLLOW)

    assert upstream_of(to, WH) is None
    assert "exactly one upstream" in str(candidate(to, WH, [freight("a")], None, NOON))


def test_why_there_is_none() -> None:
    """Of the newest few it is told why, however many there are."""
    many = [freight(f"f{index:03}", created=index) for index in range(200)]
    said = candidate(stage(stages=["test"]), WH, many, None, NOON)

    assert isinstance(said, str)
    assert said.startswith('no Freight from Warehouse/wh may be promoted to Stage "prod" now: Freight "f000" has not')
    assert said.endswith("; and 197 more")
    assert "there is none" in str(candidate(stage(), WH, [freight("a", origin="else")], None, NOON))
    other = FreightOrigin(kind="Warehouse", name="else")
    assert "does not request Freight from Warehouse/else" in str(candidate(stage(), other, [], None, NOON))
