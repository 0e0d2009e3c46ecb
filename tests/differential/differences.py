"""Differences that the documentation lists, so that the fuzzer does not report them again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.differential.steps import Step


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of docs/reference/embedded-apiserver.md."""

    row: str
    """How the row begins."""
    matches: Callable[[Step, Any, Any], bool]
    """Whether a difference is this one: the request, the real server's answer, the embedded one's."""
    example: Sequence[Step]
    """Steps that show it: as long as they do, it may be listed."""


LISTED: Final[Sequence[Listed]] = ()


def is_listed(step: Step, real: Any, embedded: Any) -> bool:
    """Whether two answers differ in a way that is listed."""
    return any(listed.matches(step, real, embedded) for listed in LISTED)
