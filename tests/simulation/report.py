"""A history that broke a Law, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import (
    History,
    JsonObject,
    Write,
    operations_of,
    phase_of,
    requested,
    shown,
    state_of,
)
from tests.simulation.simulation import Told

_BEFORE = 12
_AFTER = 3


def tell(told: Told) -> str:
    """The plan, what happened to requests, the Laws that broke, and the writes around the first that broke one."""
    return "\n".join(_lines(told))


def _lines(told: Told) -> Iterator[str]:
    yield str(told.plan)
    if told.mishaps:
        yield "  played:"
        yield from (f"    {mishap}" for mishap in told.mishaps)
    for violation in told.violations:
        yield f"  {violation}"
    numbers = [violation.number for violation in told.violations if violation.number]
    yield from _around(told.history, numbers[0] if numbers else 0)
    yield f"  {len(told.history.writes)} writes, digest {told.history.digest}; again: {command(told)}"


def command(told: Told) -> str:
    """What plays it again."""
    plan = told.plan
    only = ",".join(map(str, plan.indices)) or "none"
    return f"python -m tests.simulation --seed {plan.seed} --only {only}"


def _around(history: History, number: int) -> Iterator[str]:
    writes = [write for write in history.writes if write.kind != "Event"]
    at = next((i for i, write in enumerate(writes) if write.number >= number), 0) if number else len(writes) - 1
    culprit = writes[at] if writes else None
    yield f"  the last writes{f' up to #{number}' if number else ''}:"
    related = [w for w in writes[: at + 1] if culprit is None or not number or _related(history, w, culprit)]
    for write in [*related[-_BEFORE:], *(writes[at + 1 : at + 1 + _AFTER] if number else [])]:
        yield f"    {write}{_now(write)}"


def _related(history: History, write: Write, culprit: Write) -> bool:
    """Whether it is about the same object, or one that the other one's records name."""
    if write.key == culprit.key:
        return True
    names = {operation["name"] for operation in operations_of(culprit.new)}
    stamps = (history.stamp(mark) for mark in (requested(culprit.new), shown(culprit.new)))
    return write.key.name in names | {stamp.name for stamp in stamps if stamp is not None}


def _now(write: Write) -> str:
    new = write.new
    if new is None:
        return " is deleted"
    if write.old is None:
        return " is created"
    match write.kind:
        case "Application":
            return f": {_operation(new)}"
        case "Promotion":
            states = ", ".join(f"{o['name']}/{o['attempt']} {o['state']}" for o in operations_of(new))
            return f": {phase_of(new)}{f' ({states})' if states else ''}"
        case "Stage":
            current = ((new.get("status") or {}).get("currentPromotion") or {}).get("name")
            return f": current {current}"
        case _:
            return ""


def _operation(app: JsonObject) -> str:
    asked = f"operation {requested(app) or 'of somebody'}" if "operation" in app else "no operation"
    state = state_of(app)
    return f"{asked}, {state['phase']} ({shown(app) or 'of somebody'})" if state else f"{asked}, no state"
