"""Templates as people write them for Kargo: nothing is refused but the kinds of steps that are not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kargo_py.api.promotion_task import PromotionTask
from kargo_py.api.stage import Stage
from kargo_py.engine.checks import check_stage, check_task
from kargo_py.engine.problems import Problem, TaskName
from kargo_py.engine.tasks import found_in
from tests.engine.drafts import KINDS

FILES = sorted((Path(__file__).parent / "corpus").glob("*.yaml"))
REPOSITORY = Path(__file__).resolve().parents[2]


def problems_of(documents: list[dict[str, Any]]) -> list[Problem]:
    """What is wrong with the Stages and tasks among *documents*, but for kinds that are not there."""
    tasks = [PromotionTask.model_validate(one) for one in documents if one["kind"] == "PromotionTask"]
    stages = [Stage.model_validate(one) for one in documents if one["kind"] == "Stage"]
    known = {TaskName("PromotionTask", task.name): task.spec for task in tasks}
    found = [problem for task in tasks for problem in check_task(task, KINDS)]
    found += [problem for stage in stages for problem in check_stage(stage, KINDS, found_in(known))]
    return [problem for problem in found if problem.path[-1] != "uses"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_corpus(file: Path) -> None:
    """Not even a warning."""
    problems = problems_of(list(yaml.safe_load_all(file.read_text())))
    assert [str(problem) for problem in problems] == []


EXAMPLES = [file for file in sorted(REPOSITORY.glob("examples/**/*.yaml")) if file.parent.name != "mistakes"]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.parent.name)
def test_examples(file: Path) -> None:
    """As above, for the examples that users begin with."""
    problems = problems_of([one for one in yaml.safe_load_all(file.read_text()) if one and "kind" in one])
    assert [str(problem) for problem in problems] == []
