"""Reads how many steps may run at once; beside the other options, since it imports the kinds of work."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kargo_py.engine.execution import LIMITS
from kargo_py.messages import Shown, message
from kargo_py.steps.step import Work

STEP_LIMIT_MALFORMED = message(
    "--step-limit {text!r}: must be {kinds}, then = and a number from 1 to 10000, for example network=20",
    do="Correct `--step-limit` or `KARGO_PY_STEP_LIMITS`. `kargo-py explain` says of which kind the work of a step is.",
    shown=Shown.COMMAND_LINE,
)

_LIMIT = re.compile(r"(?P<kind>[a-z]+)=(?P<count>[0-9]{1,5})")
_MOST_AT_ONCE = 10000


def step_limits(texts: Iterable[str]) -> dict[Work, int]:
    """How many calls of steps run at once, for each kind of work that is named. Raises ValueError."""
    limits = {}
    for text in texts:
        found = _LIMIT.fullmatch(text)
        kinds = {work.value: work for work in LIMITS}
        if found is None or found["kind"] not in kinds or not 1 <= int(found["count"]) <= _MOST_AT_ONCE:
            raise ValueError(STEP_LIMIT_MALFORMED(text=text, kinds=" or ".join(kinds)))
        limits[kinds[found["kind"]]] = int(found["count"])
    return limits
