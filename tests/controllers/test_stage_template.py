"""What a Stage says of its template."""

from __future__ import annotations

import pytest

from kargo_py.controllers.stage_template import MOST_TOLD, template_condition
from kargo_py.controllers.template import Template
from kargo_py.engine.problems import Problem

BAD = Problem(("spec", "steps", 0), "it is bad")
ODD = Problem(("spec", "steps", 1), "it is odd", warning=True)


@pytest.mark.parametrize(
    ("problems", "status", "reason", "said"),
    [
        ([], "True", "Valid", "The promotion template can be run"),
        ([ODD], "True", "ValidWithWarnings",
         "Something in the promotion template may not be what was meant: spec.steps[1]: it is odd"),
        ([BAD], "False", "InvalidPromotionTemplate", "The promotion template cannot be run: spec.steps[0]: it is bad"),
        ([ODD, BAD], "False", "InvalidPromotionTemplate",
         ("The promotion template cannot be run: spec.steps[0]: it is bad\n"
         "besides, something may not be what was meant: spec.steps[1]: it is odd")),
    ],
    ids=["well", "warning", "error", "both"],
)  # fmt: skip
def test_condition(problems: list[Problem], status: str, reason: str, said: str) -> None:
    """A warning is never told as a reason why the template cannot be run."""
    made = template_condition(Template((), (), problems))
    assert (made.status, made.reason, made.message) == (status, reason, said)


@pytest.mark.parametrize("length", [100, MOST_TOLD - 200, MOST_TOLD, 10 * MOST_TOLD])
def test_room(length: int) -> None:
    """Together they take little more than one list may; the reasons go first."""
    long = [Problem(("a", index), "x" * length, warning=bool(index % 2)) for index in range(200)]
    made = template_condition(Template((), (), long))
    assert "a[0]: xx" in made.message
    assert len(made.message.encode()) < MOST_TOLD + 500
