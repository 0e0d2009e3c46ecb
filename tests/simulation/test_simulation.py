"""Some histories are played, the same seed plays the same one, and faults that are planted are found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.simulation.__main__ import main
from tests.simulation.acts import ACTS
from tests.simulation.history import History, phase_of
from tests.simulation.laws import Violation
from tests.simulation.plan import Act, Mishap, Plan, plan
from tests.simulation.planted import PLANTED, Planted
from tests.simulation.report import tell
from tests.simulation.shrink import minimal, shrink
from tests.simulation.simulation import Told, run

SEEDS = range(4)

PACES = 5
"""How often a race is tried that depends on microseconds, which any change of the code moves."""


@pytest.mark.parametrize("seed", SEEDS)
def test_seeds(seed: int) -> None:
    """No Law is broken; `make simulate` plays many more."""
    told = run(plan(seed))
    assert not told.violations, tell(told)
    assert {phase_of(promotion) for _, promotion in told.history.final("Promotion")}


def test_the_same_seed_plays_the_same_history() -> None:
    """To the last byte and microsecond: after other seeds, in another process, and with other hash values."""
    here = [run(plan(seed)).history.digest for seed in (3, 5)]
    assert here[0] == run(plan(3)).history.digest
    command = [sys.executable, "-m", "tests.simulation", "--seed", "5"]
    told = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert f"digest {here[1]}" in told.stdout, told.stdout + told.stderr
    assert here[0] != here[1]


@pytest.mark.parametrize("planted", [pytest.param(planted, id=planted.name) for planted in PLANTED])
def test_planted_faults_are_found(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each breaks its Law where that was found, at one pace or another, and without it none is broken there."""
    sound = run(planted.history)
    assert not sound.violations, tell(sound)
    planted.plant(monkeypatch)
    for pace in range(PACES):
        told = run(replace(planted.history, seed=planted.history.seed + pace * 10**6))
        if planted.law in {violation.law for violation in told.violations}:
            return
    pytest.fail(f"law {planted.law} is not broken: python -m tests.simulation.planted finds where it is")


def test_histories_reach_all_that_can_happen() -> None:
    """What is drawn is not always the same few things."""
    plans = [plan(seed) for seed in range(300)]
    acts = {act.what for each in plans for act in each.acts}
    assert acts == ACTS.keys()
    faults = {type(mishap.fault).__name__ for each in plans for mishap in each.mishaps}
    assert faults == {"Delay", "Drop", "EndWatch", "Forget", "FreezeWatch", "Refuse"}
    assert len({each.argocd for each in plans}) == 2


def test_a_part_of_a_plan() -> None:
    """What is left stays what it was."""
    whole = plan(3)
    part = whole.only([1, 4])
    assert list(part.happenings) == [whole.happenings[1], whole.happenings[4]]
    assert part.only([4]).happenings == [whole.happenings[4]]
    assert str(whole.happenings[4]) in str(part)


@pytest.mark.parametrize("needed", [{0}, {7}, {2, 3}, {0, 9}, {1, 4, 8}, set()])
def test_shrinking(needed: set[int]) -> None:
    """Exactly what is needed is left."""
    assert set(minimal(list(range(10)), lambda items: needed <= set(items))) == needed


def test_shrinking_keeps_to_the_law() -> None:
    """A history that breaks another Law is not taken for a shorter one of the same."""

    def play(played: Plan) -> Told:
        found = ["a"] if {1, 2} <= set(played.indices) else ["b"]
        return Told(played, History([], 0, 0), [Violation(law, "so") for law in found], [], [], 0)

    assert list(shrink(plan(3), "a", play=play).indices) == [1, 2]


def run_main(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(arguments)
    return code, capsys.readouterr().out


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """It says how many seeds were played, and how fast."""
    code, out = run_main(capsys, "--seeds", "1", "--processes", "1")
    assert code == 0
    assert re.search(r"1 seeds in \d+ s \(.* a second\): 0 broke a Law", out)


def test_the_command_draws_fresh_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """And prints which, so that they can be played again."""
    code, out = run_main(capsys, "--fresh", "1", "--processes", "1")
    assert (code, out.splitlines()[0].startswith("fresh seeds: ")) == (0, True), out


def test_the_command_tells_a_short_story(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken Law is told with what was needed for it, the writes that led to it, and how to see it again."""
    planted = next(planted for planted in PLANTED if planted.name == "removes the operation to end it")
    planted.plant(monkeypatch)
    seed, only = planted.history.seed, ",".join(map(str, planted.history.indices))
    code, out = run_main(capsys, "--seed", str(seed), "--only", f"{only},0", "--shrink")
    assert code == 1
    assert f"law {planted.law}: our write left an operation in progress without .operation" in out
    assert f"again: python -m tests.simulation --seed {seed} --only {only}" in out


def test_a_failure_of_the_simulation_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts with its seed, and the seeds after it are played all the same."""

    def play(played: Plan) -> Told:
        if played.seed == 0:
            raise RuntimeError("no loop")
        return Told(played, History([], 0, 0), [], [], [], 0)

    monkeypatch.setattr("tests.simulation.__main__.run", play)
    code, out = run_main(capsys, "--seeds", "2", "--processes", "1", "--shrink")

    assert code == 1
    assert out.splitlines()[:2] == ["seed 0: RuntimeError: no loop", "seed 0: not made shorter: RuntimeError: no loop"]
    assert "2 seeds in" in out
    assert out.endswith("1 broke a Law: 0\n")


def test_a_part_that_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused: left out silently, another history would be played."""
    with pytest.raises(SystemExit):
        main(["--seed", "1", "--only", "1;2"])
    assert "argument --only: invalid numbers value: '1;2'" in capsys.readouterr().err


@pytest.mark.parametrize("happening", [Act(1.5, "promote", "p1", {"stage": "dev"}), plan(0).happenings[0]])
def test_happenings_are_told(happening: Act | Mishap) -> None:
    """In one line."""
    assert "\n" not in str(happening)
