"""The same random sequences on the embedded server and on a real one, some fixed and some fresh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest

from tests.differential.differences import LISTED, Listed, is_listed
from tests.differential.drawing import sequence
from tests.differential.fuzzing import arena, fuzz
from tests.differential.running import Arena, smaller
from tests.differential.steps import Step
from tests.differential.subjects import subjects
from tests.envtest.server import running

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "embedded-apiserver.md"
FIXED = 20_000
SEQUENCES = 40
MOST = SEQUENCES // 8
"""Fresh sequences with a difference: some one in fifty has one that is neither mended nor listed yet."""
SECONDS = 20.0


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """Two fresh servers: what other tests have left on the worker's would be there on one of them only."""
    with running(tmp_path_factory.mktemp("fuzz")) as real, arena(real) as made:
        yield made


@pytest.mark.envtest
def test_both_say_the_same(both: Arena) -> None:
    """No difference but those that are listed, in sequences that once had none."""
    report = fuzz(both, seed=FIXED, sequences=SEQUENCES, seconds=SECONDS, shrink=False)
    found = "\n\n".join(map(str, report.differences.values()))
    assert not report.differences, f"python -m tests.differential --seed {FIXED}: {report}\n{found}"


@pytest.mark.envtest
def test_both_mostly_say_the_same(both: Arena) -> None:
    """Fresh sequences find what nobody has thought of: few, or something is broken."""
    seed = SystemRandom().randrange(10**6)
    report = fuzz(both, seed=seed, sequences=SEQUENCES, seconds=SECONDS, shrink=False)
    found = "\n\n".join(map(str, report.differences.values()))
    assert report.count <= MOST, f"python -m tests.differential --seed {seed}: {report}\n{found}"


@pytest.mark.envtest
@pytest.mark.parametrize("listed", LISTED, ids=lambda listed: listed.row)
def test_a_listed_difference_is_still_one(both: Arena, listed: Listed) -> None:
    """What is mended must be taken off the list."""
    assert both.difference(listed.example) is None, "it is another difference"
    assert both.unmasked(listed.example), "it is no difference any more"


@pytest.mark.parametrize("listed", LISTED, ids=lambda listed: listed.row)
def test_a_masked_difference_is_documented(listed: Listed) -> None:
    """Users can read of it."""
    assert f"| {listed.row}" in PAGE.read_text()


def test_a_seed_is_a_sequence() -> None:
    """It can be played again."""
    assert sequence(Random(7), subjects(), 15) == sequence(Random(7), subjects(), 15)


def test_smaller_sequences_keep_their_end() -> None:
    """Shrinking takes away steps, then parts of bodies."""
    first, last = Step("GET", "/a"), Step("POST", "/b", body={"x": [1, 2]})
    found = list(smaller([first, last]))
    assert [last] in found
    assert [first, last.with_body({"x": [2]})] in found
    assert all(steps[-1].path == "/b" for steps in found)


def test_a_difference_of_code_is_never_listed_by_chance() -> None:
    """A mask knows what it is for."""
    answers: list[Any] = [{"code": code, "warnings": [], "body": {"message": ""}} for code in (200, 500)]
    assert not is_listed(Step("PATCH", "/a", body={}), *answers)
