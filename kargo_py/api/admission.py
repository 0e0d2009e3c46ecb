"""What says that a Promotion was admitted, and that its Stage lets authors write steps of their own.

Who may create Promotions may write any label and annotation on them, but not their status. So the mark stands in
``status.state``, which Kargo's own definition keeps, too; ``status.admittedAt`` beside it is for people and the rule of
our definition. It names the generation of the spec: one that was edited since is admitted anew.
"""

from __future__ import annotations

from typing import Any

from kargo_py.api.types import JsonObject, Time

ANNOTATION_CUSTOM_STEPS = "kargo-py.io/custom-steps"
"""On Stages: ``allow`` if the steps that the author of a Promotion wrote are kept."""

CUSTOM_STEPS_ALLOWED = "allow"

ADMITTED_KEY = "kargo-py.io/admitted"
"""Under this key of a Promotion's ``status.state`` stands the mark; no step alias can be this."""


def admission_mark(generation: int, since: Time) -> JsonObject:
    """The mark that the spec of this generation was admitted."""
    return {"generation": generation, "since": since}


def is_admitted(state: Any, generation: int) -> bool:
    """Whether *state* has the mark for this generation of the spec."""
    mark = state.get(ADMITTED_KEY) if isinstance(state, dict) else None
    return isinstance(mark, dict) and mark.get("generation") == generation and generation > 0
