"""The wall clock, which everything that reads it takes as an argument."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The time as this machine has it."""
    return datetime.now(UTC)
