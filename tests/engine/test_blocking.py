"""A step that keeps the event loop to itself is interrupted, and nothing else is."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

Outcomes = dict[str, dict[str, list[str]]]


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    """What came of the cases, in a program whose main thread runs the event loop."""
    command = [sys.executable, "-W", "error", "-m", "tests.engine.blocked"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found: Outcomes = json.loads(done.stdout)
    return found


def is_interrupted(answer: Any) -> bool:
    return (
        answer.startswith("Errored: the step kept the event loop to itself for 300ms")
        and "tests/engine/blocked.py:" in answer
        and "in_thread" in answer
    )


@pytest.mark.parametrize(
    "case",
    [
        *("sleeps", "asks API servers", "computes", "catches all exceptions", "computes in a task", "gathers"),
        *("several", "in a thread", "sleeps in a thread"),
    ],
)
def test_what_is_interrupted(case: str, outcomes: Outcomes) -> None:
    """It is told where it was and what its author has to do; the quick one beside it succeeds."""
    *blocking, quick = outcomes[case]["answers"]
    assert all(is_interrupted(answer) for answer in blocking), blocking
    assert quick == "Succeeded: done"
    assert set(outcomes[case]["logged"]) == {"event loop blocked"}


def test_only_logged(outcomes: Outcomes) -> None:
    """A program that has not asked for it is not interrupted."""
    assert outcomes["only logged"]["answers"] == ["Succeeded: done"] * 2
    assert set(outcomes["only logged"]["logged"]) == {"event loop blocked"}


def test_the_signal_of_somebody_else(outcomes: Outcomes) -> None:
    """It stays his; then blocking is only logged."""
    assert outcomes["the signal is taken"]["answers"] == ["Succeeded: done", "True"]
    assert set(outcomes["the signal is taken"]["logged"]) == {"event loop blocked"}


def test_in_a_program(outcomes: Outcomes) -> None:
    """The Promotion is Errored and says why; the next one is promoted."""
    interrupted, quick = outcomes["in a program"]["answers"]
    assert is_interrupted(interrupted), interrupted
    assert quick == "Succeeded: done"
    assert "event loop blocked" in outcomes["in a program"]["logged"]


def test_one_after_the_other(outcomes: Outcomes) -> None:
    """The signal is given back at the end."""
    *answers, given_back = outcomes["twice"]["answers"]
    assert all(is_interrupted(answer) for answer in answers), answers
    assert given_back == "True"
