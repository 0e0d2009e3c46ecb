"""What a test can say about the syncs to come, about projects and about destinations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from kargo_py.kube.client import JsonObject
from kargo_py.local.argocd.engine import Manifest


@dataclass(frozen=True, slots=True)
class SyncScript:
    """How one operation goes; without a word it succeeds."""

    hang: bool = False
    """A Sync hook Job is part of it, and runs until it is told how it ends."""
    fail: str = ""
    """The API server of the destination refuses a resource with these words: the operation fails."""
    error: str = ""
    """The message with which the operation ends in Error, before anything is applied."""
    times: int | None = None
    """Only so many attempts fail or end in Error; None: all."""
    duration: float | None = None
    """Seconds that applying takes, inside the worker."""
    ends_twice: bool = False
    """The final patch is sent again a moment later (spec 7)."""
    resources: Sequence[JsonObject] | None = None
    """The rows of syncResult.resources at the end, as they shall stand there."""

    def __post_init__(self) -> None:
        if self.fail and self.error:
            raise ValueError("next_sync: give fail or error, not both: an operation ends in one phase")
        if self.times is not None and not (self.fail or self.error):
            raise ValueError("next_sync: times counts attempts that go wrong: give fail or error with it")
        if self.times is not None and self.times < 1:
            raise ValueError(f"next_sync: times is at least 1, not {self.times}")
        if self.duration is not None and self.duration < 0:
            raise ValueError(f"next_sync: duration is in seconds from 0 on, not {self.duration}")

    def __str__(self) -> str:
        """The call that says it."""
        said = (
            (each.name, getattr(self, each.name)) for each in fields(self) if each.default != getattr(self, each.name)
        )
        return f"next_sync({', '.join(f'{name}={value!r}' for name, value in said)})"

    def goes_wrong(self, attempt: int) -> bool:
        """Whether this attempt, the first is 0, is one of those that do."""
        return self.times is None or attempt < self.times

    def play(self, manifests: Sequence[Manifest], attempt: int, application: str) -> list[Manifest]:
        """The target state with what the script adds to it."""
        played = list(manifests)
        if self.fail and self.goes_wrong(attempt):
            victim = played.pop() if played else Manifest("ConfigMap", application)
            played.append(replace(victim, invalid=self.fail))
        if self.hang:
            namespace = played[0].namespace if played else ""
            played.append(Manifest("Job", f"{application}-hook", "batch", namespace=namespace, hook="Sync"))
        return played


SIMULATED_SYNC = "kargo-py.io/simulated-sync"
"""Annotation of an Application that says how its syncs go, for those who have no program to say it with."""


def script_in(app: JsonObject) -> SyncScript:
    """What the annotation says: ``hang``, or ``fail`` with the words of the API server behind it."""
    text = (app["metadata"].get("annotations") or {}).get(SIMULATED_SYNC, "")
    word, _, why = map(str.strip, text.partition(" "))
    match word:
        case "":
            return SyncScript()
        case "hang" if not why:
            return SyncScript(hang=True)
        case "fail" if why:
            return SyncScript(fail=why)
    return SyncScript(error=f"the annotation {SIMULATED_SYNC} is {text!r}: write hang, or fail and why")


@dataclass(slots=True)
class Project:
    """An AppProject as far as it holds syncs up."""

    name: str
    is_missing: bool = False
    denies: bool = False
    lets_manual_pass: bool = False

    def blocks(self, app: JsonObject) -> bool:
        """Whether a window blocks a sync.

        What is manual is seen on the state that was read, so on the very first operation it is not (spec 1.11).
        """
        state = (app.get("status") or {}).get("operationState")
        initiator = ((state or {}).get("operation") or {}).get("initiatedBy") or {}
        manual = state is not None and not initiator.get("automated")
        return self.denies and not (manual and self.lets_manual_pass)


@dataclass(frozen=True, slots=True)
class Obstacles:
    """What stands in the way of every sync of an Application; empty where nothing does."""

    project: str = ""
    """There is no such project."""
    spec: str = ""
    """The spec names no source, or a destination that is not known."""
    blocked: bool = False
    """A window blocks the operation …"""
    holds_automation: bool = False
    """… or at least auto-sync."""
