"""Which Argo CD is played, and how long it takes for what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Version(Enum):
    """The two that were recorded; what differs is in spec 1.12."""

    V3_5 = "3.5"
    V3_6 = "3.6"

    @property
    def replaces_state(self) -> bool:
        """Whether operationState is replaced; 3.5 merges, so what the new state lacks stays from the last operation."""
        return self is Version.V3_6

    @property
    def refresh_wakes_operation(self) -> bool:
        """Whether every refresh leads to a look at the operation: 3.5 sees a finished hook, and a restart, at once."""
        return self is Version.V3_5


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds; the defaults were measured on the real programs (spec 1.4, 1.10 - 1.12)."""

    notice: float = 0.005
    """From an event to the worker's read: so long the previous state stays visible beside a new operation."""
    gap: float = 0.008
    """From a read to the write that is decided on it; what others write in between is overwritten."""
    compare: float = 0.03
    """Loading the target state, before anything is applied."""
    apply: float = 0.1
    wave: float = 2.0
    """After each sync wave but the last."""
    live_cache: float = 0.09
    """Until a refresh can see what was applied."""
    batching: float = 5.0
    """From a change of a managed object to the next look at the operation, in 3.6."""
    poll: float = 30.0
    """Between looks at an operation about which there is no news."""
    refresh: float = 0.03
    hard_refresh: float = 0.13
    auto_sync: float = 0.008
    """From the operation that auto-sync writes to the verdict it was written for."""
    application_set: float = 0.015
    """From an event to the write of the ApplicationSet controller."""
    start: float = 1.2
    """From the start of the controller to its first list."""
    resync: float = 125.0
    """Between update events that the controller gives itself for every Application."""
    reconciliation: float = 120.0
    """Age at which a verdict is made anew …"""
    reconciliation_jitter: float = 60.0
    """… plus up to so much."""
    self_heal: float = 2.0
    """Delay of the first self-heal after an operation; each further one three times as long …"""
    self_heal_most: float = 300.0
    """… up to this."""
    sync_timeout: float = 0.0
    """The controller's --sync-timeout; 0: none."""
    after_failure: float = 1.0
    """Pause when the API server refuses or cannot be reached."""
    jitter: float = 0.1
    """Every delay of a worker varies by this share of it."""

    @classmethod
    def fast(cls) -> Timing:
        """For tests against a real clock: the gap as measured, the long waits short."""
        return cls(
            compare=0.01,
            apply=0.01,
            wave=0.05,
            live_cache=0.03,
            batching=0.1,
            poll=1.0,
            refresh=0.01,
            hard_refresh=0.02,
            start=0.02,
            resync=5.0,
            self_heal=0.2,
            self_heal_most=2.0,
            after_failure=0.1,
        )
