"""What Freight has to say about a Stage: that it is there, that it was verified there, how long it stayed.

Pure. Repair goes one way: Freight from Stage. Whatever the Freight objects say about a Stage is made to agree with the
Stage's own status, so a crash between the two writes mends itself at the next look.
"""

from __future__ import annotations

from kargo_py.api.freight import Freight, soak
from kargo_py.api.stage import Stage
from kargo_py.api.types import Duration, JsonObject, Time
from kargo_py.controllers.stage_verification import verified_at


def freight_patch(stage: Stage, freight: Freight, now: Time) -> JsonObject:
    """The merge patch for the status of *freight* that makes it agree with *stage*; {} if it does.

    It touches the keys of this Stage only, so that Stages which share Freight never overwrite each other.
    """
    current = stage.current_freight
    here = current is not None and freight.name in current.names
    return _arrived(stage, freight, now) if here else _left(stage, freight, now)


def _arrived(stage: Stage, freight: Freight, now: Time) -> JsonObject:
    patch: JsonObject = {}
    if stage.name not in freight.status.currently_in:
        last = stage.status.last_promotion
        since = last.finished_at if last is not None and last.finished_at is not None else now
        patch["currentlyIn"] = {stage.name: {"since": since}}
    at = verified_at(stage.status)
    if at is not None and stage.name not in freight.status.verified_in:
        patch["verifiedIn"] = {stage.name: {"verifiedAt": at}}
    return patch


def _left(stage: Stage, freight: Freight, now: Time) -> JsonObject:
    if stage.name not in freight.status.currently_in:
        return {}
    patch: JsonObject = {"currentlyIn": {stage.name: None}}
    if stage.name in freight.status.verified_in:
        longest = soak(freight.status, stage.name, now).total_seconds()
        patch["verifiedIn"] = {stage.name: {"longestSoak": Duration.of(int(longest))}}
    return patch


def forgotten(stage: str, freight: Freight) -> JsonObject:
    """The merge patch for the status of *freight* that takes out whatever it says about *stage*; {} if that is nothing.

    For a Stage that is deleted: another one of its name must not be taken for it.
    """
    said = freight.status
    places = {"currentlyIn": said.currently_in, "verifiedIn": said.verified_in, "approvedFor": said.approved_for}
    return {name: {stage: None} for name, stages in places.items() if stage in stages}
