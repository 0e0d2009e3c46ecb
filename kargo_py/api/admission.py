"""What says that a Promotion was admitted, and that its Stage lets authors write steps of their own.

Who may create Promotions may write any label and annotation on them, but not their status. So the mark stands in
``status.state``, which Kargo's own definition keeps, too; ``status.admittedAt`` beside it is for people and the rule of
our definition. It names the generation of the spec: one that was edited since is admitted anew. And it names the Stage
by its uid: another one that takes the name may allow less.
"""

from __future__ import annotations

from typing import Any

from kargo_py.api.types import JsonObject, Time

ANNOTATION_CUSTOM_STEPS = "kargo-py.io/custom-steps"
"""On Stages: ``allow`` if the steps that the author of a Promotion wrote are kept."""

CUSTOM_STEPS_ALLOWED = "allow"

ADMITTED_KEY = "kargo-py.io/admitted"
"""Under this key of a Promotion's ``status.state`` stands the mark; no step alias can be this."""


def admission_mark(generation: int, stage_uid: str, since: Time) -> JsonObject:
    """The mark that the spec of this generation was admitted to that Stage."""
    return {"generation": generation, "since": since, "stage": stage_uid}


def is_admitted(state: Any, generation: int, stage_uid: str) -> bool:
    """Whether *state* has the mark for this generation of the spec and that Stage."""
    mark = state.get(ADMITTED_KEY) if isinstance(state, dict) else None
    if not isinstance(mark, dict) or generation <= 0:
        return False
    return mark.get("generation") == generation and mark.get("stage") == stage_uid
