"""The request to abort a Promotion: the annotation ``kargo.akuity.io/abort``, and the latch that outlives it.

The annotation is the word ``terminate``, or JSON: ``{"action": "terminate", "actor": "email:a@b", "controlPlane":
false}`` as Kargo's API server writes it, with ``"force": true`` as an addition of ours. Once seen it is kept in the
Promotion's status, so that taking the annotation away again does not bring a Promotion back to life.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kargo_py.api.types import Time
from kargo_py.messages import Shown, message

ABORT_NOT_UNDERSTOOD = message(
    'the annotation kargo.akuity.io/abort is {value!r}; set it to terminate or {{"action": "terminate"}}',
    do="The Promotion goes on as if the annotation were not there. Correct it: a new value is read at once.",
    shown=Shown.EVENT,
)

ANNOTATION_ABORT = "kargo.akuity.io/abort"

ABORT_KEY = "kargo-py.io/abort"
"""Under this key of a Promotion's ``status.state`` stands the latched request; no step alias can be this."""

_TERMINATE = "terminate"
_MAX_ACTOR = 256


class AbortError(ValueError):
    """An annotation that asks for nothing we know."""


@dataclass(frozen=True, slots=True)
class Abort:
    """A request to abort; ``actor`` is "" if nobody is named.

    ``force``: do not wait for what is being stopped. ``since``: when we first saw the request, None before it is kept.
    """

    actor: str = ""
    force: bool = False
    since: Time | None = None

    @property
    def by(self) -> str:
        """Who asked, as Kargo names them."""
        return self.actor or "controller:kargo-py"

    def wire(self) -> dict[str, Any]:
        """As it stands in ``status.state``."""
        kept: dict[str, Any] = {"actor": self.actor, "since": str(self.since) if self.since is not None else None}
        return {**kept, "force": True} if self.force else kept


def read_abort(annotation: str | None) -> Abort | None:
    """What the annotation asks for; None if there is none. Raises AbortError."""
    if not annotation or not annotation.strip():
        return None
    text = annotation.strip()
    if text == _TERMINATE:
        return Abort()
    try:
        asked = json.loads(text)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict) or asked.get("action") != _TERMINATE:
        shown = text if len(text) <= 80 else text[:79] + "…"
        raise AbortError(ABORT_NOT_UNDERSTOOD(value=shown))
    actor = asked.get("actor")
    return Abort(str(actor)[:_MAX_ACTOR] if isinstance(actor, str) else "", force=asked.get("force") is True)


def latched_abort(state: Any) -> Abort | None:
    """The request that is kept in ``status.state``; None if there is none. What cannot be read is one all the same."""
    if not isinstance(state, Mapping) or ABORT_KEY not in state:
        return None
    kept = state[ABORT_KEY]
    if not isinstance(kept, Mapping):
        return Abort()
    actor, since = kept.get("actor"), kept.get("since")
    try:
        seen = Time(since) if isinstance(since, str) else None
    except ValueError:
        seen = None
    return Abort(actor if isinstance(actor, str) else "", kept.get("force") is True, seen)
