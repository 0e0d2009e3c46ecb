"""What Freight says about Stages, and whether a Stage may take it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kargo_py.api.freight import Freight
from kargo_py.api.stage import Stage
from kargo_py.api.types import Time
from kargo_py.controllers.availability import unavailable
from kargo_py.controllers.freight_status import forgotten, freight_patch

NOON = Time("2026-11-30T12:00:00Z")
JsonObject = dict[str, Any]


def freight(**status: Any) -> Freight:
    """Freight f1 of Warehouse w."""
    return Freight.model_validate(
        {"metadata": {"name": "f1"}, "origin": {"kind": "Warehouse", "name": "w"}, "status": status}
    )


def stage(*, here: str = "", verified: str = "", sources: JsonObject | None = None, origin: str = "w") -> Stage:
    """Stage dev, with Freight *here*, verified at a time or not."""
    request = {"origin": {"kind": "Warehouse", "name": origin}, "sources": sources or {"direct": True}}
    verification = [{"phase": "Successful", "finishTime": verified}] if verified else []
    history = [{"items": {"Warehouse/w": {"name": here}}, "verificationHistory": verification}] if here else []
    return Stage.model_validate(
        {
            "metadata": {"name": "dev"},
            "spec": {"requestedFreight": [request]},
            "status": {"freightHistory": history, "lastPromotion": {"finishedAt": "2026-11-30T11:00:00Z"}},
        }
    )


SINCE = {"dev": {"since": "2026-11-30T11:00:00Z"}}
AT = {"dev": {"verifiedAt": "2026-11-30T11:00:02Z"}}


@pytest.mark.parametrize(
    ("subject", "cargo", "patch"),
    [
        (stage(here="f1"), freight(), {"currentlyIn": SINCE}),
        (stage(here="f1", verified="2026-11-30T11:00:02Z"), freight(), {"currentlyIn": SINCE, "verifiedIn": AT}),
        (stage(here="f1", verified="2026-11-30T11:00:02Z"), freight(currentlyIn=SINCE), {"verifiedIn": AT}),
        (stage(here="f1", verified="2026-11-30T11:00:02Z"), freight(currentlyIn=SINCE, verifiedIn=AT), {}),
        (stage(here="f2"), freight(), {}),
        (stage(here="f2"), freight(currentlyIn=SINCE), {"currentlyIn": {"dev": None}}),
        (stage(here="f2"), freight(currentlyIn=SINCE, verifiedIn=AT),
         {"currentlyIn": {"dev": None}, "verifiedIn": {"dev": {"longestSoak": "1h0m0s"}}}),
        (stage(here="f2"), freight(currentlyIn=SINCE, verifiedIn={"dev": {"longestSoak": "5h0m0s"}}),
         {"currentlyIn": {"dev": None}, "verifiedIn": {"dev": {"longestSoak": "5h0m0s"}}}),
        (stage(), freight(currentlyIn={"qa": {}}), {}),
    ],
    ids=["arrived", "arrived and verified", "verified later", "all said", "elsewhere", "left unverified",
         "left verified", "a longer stay before", "another stage's business"],
)  # fmt: skip
def test_agree(subject: Stage, cargo: Freight, patch: JsonObject) -> None:
    """Freight is made to agree with the Stage, in the Stage's own keys only."""
    assert patch == freight_patch(subject, cargo, NOON)


UP = {"stages": ["qa", "uat"]}
SOAKED = {"verifiedIn": {"qa": {"longestSoak": "2h"}}}


@pytest.mark.parametrize(
    ("sources", "status", "words"),
    [
        ({"direct": True}, {}, None),
        ({}, {}, "neither directly nor from another Stage"),
        ({}, {"approvedFor": {"dev": {}}}, None),
        ({}, {"approvedFor": {"qa": {}}}, "neither directly nor from another Stage"),
        (UP, {}, "has not been verified in qa or uat"),
        (UP, {"verifiedIn": {"qa": {}}}, None),
        ({**UP, "availabilityStrategy": "All"}, {"verifiedIn": {"qa": {}}}, "has not been verified in uat"),
        ({**UP, "availabilityStrategy": "All"}, {"verifiedIn": {"qa": {}, "uat": {}}}, None),
        ({**UP, "requiredSoakTime": "1h"}, SOAKED, None),
        ({**UP, "requiredSoakTime": "3h"}, SOAKED, "verified and soaked for 3h in qa or uat"),
        ({**UP, "requiredSoakTime": "3h"}, {**SOAKED, "currentlyIn": {"qa": {"since": "2026-11-30T08:00:00Z"}}}, None),
        ({**UP, "requiredSoakTime": "1h"}, {"verifiedIn": {"prod": {"longestSoak": "9h"}}}, "has not been verified"),
    ],
)
def test_available(sources: JsonObject, status: JsonObject, words: str | None) -> None:
    """Directly, by approval, or by verification and soaking upstream; otherwise what is missing is said."""
    why = unavailable(stage(sources=sources or {"direct": False}), freight(**status), NOON.datetime)

    assert (words is None) == (why is None)
    assert words is None or words in (why or "")


def test_origin_that_is_not_requested() -> None:
    """Freight of another Warehouse is not for this Stage."""
    why = unavailable(stage(origin="other"), freight(), NOON.datetime)

    assert why == (
        'Freight "f1" comes from Warehouse/w, which Stage "dev" does not request (it requests Warehouse/other)'
    )


@pytest.mark.parametrize(
    ("said", "patch"),
    [
        ({}, {}),
        ({"verifiedIn": {"qa": {}}}, {}),
        ({"verifiedIn": {"dev": {}, "qa": {}}}, {"verifiedIn": {"dev": None}}),
        (
            {name: {"dev": {}} for name in ("currentlyIn", "verifiedIn", "approvedFor")},
            {name: {"dev": None} for name in ("currentlyIn", "verifiedIn", "approvedFor")},
        ),
    ],
)
def test_forgotten(said: JsonObject, patch: JsonObject) -> None:
    """Of a Stage that is deleted nothing is said any more; of the others everything."""
    assert forgotten("dev", freight(**said)) == patch


def test_very_many_upstream_stages() -> None:
    """So many as one object can name are looked at in a moment, whichever of them are missing."""
    stages = ["a"] * 100_000 + ["b"] * 100_000
    subject, cargo = stage(sources={"stages": stages, "availabilityStrategy": "All"}), freight(verifiedIn={"a": {}})

    begun = time.process_time()
    why = unavailable(subject, cargo, NOON.datetime)

    assert time.process_time() - begun < 5
    assert why is not None
    assert why.count("b and b") > 40_000
