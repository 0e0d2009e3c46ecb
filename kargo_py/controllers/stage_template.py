"""What a Stage says of its own template: whether a Promotion can run it, and what is wrong with it if not. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kargo_py.api.meta import Condition
from kargo_py.controllers.stage_size import cut
from kargo_py.controllers.template import Template
from kargo_py.engine.problems import MORE_PROBLEMS, Problem, refused
from kargo_py.messages import Shown, message

ALL_WELL = message(
    "The promotion template can be run",
    do="Nothing is wrong with the template, as far as that can be told before it runs.",
    shown=Shown.STAGE,
)
CANNOT_BE_RUN = message(
    "The promotion template cannot be run: {problems}",
    do="Every Promotion to the Stage is refused until what follows is corrected: in the Stage, or in the task that is "
    "named.",
    shown=Shown.STAGE,
)
MAY_NOT_BE_MEANT = message(
    "Something in the promotion template may not be what was meant: {problems}",
    do="Promotions run. Look at what follows; what is meant so can stay.",
    shown=Shown.STAGE,
)
BESIDES = message(
    "besides, something may not be what was meant: {problems}",
    do="After the reasons why the template cannot be run: these alone would let Promotions run.",
    shown=Shown.STAGE,
)
REASON_VALID = message(
    "Valid",
    do="Of `PromotionTemplateValid`: nothing is wrong with the template.",
    shown=Shown.STAGE,
)
REASON_WARNINGS = message(
    "ValidWithWarnings",
    do="Of `PromotionTemplateValid`: Promotions run, and the message says what may not be meant.",
    shown=Shown.STAGE,
)
REASON_INVALID = message(
    "InvalidPromotionTemplate",
    do="Of `PromotionTemplateValid` and `Ready`: every Promotion to the Stage is refused. The message says why.",
    shown=Shown.STAGE,
)

TEMPLATE_VALID = "PromotionTemplateValid"

MOST_TOLD = 8 * 1024
"""Bytes of the problems that a Stage tells; a Promotion that is refused has more of them."""

_LEAST_ROOM = 200
"""Bytes below which nothing more is begun."""


def template_condition(template: Template) -> Condition:
    """The condition that says what is wrong with *template*."""
    found = refused(template.problems)
    if found:
        text = CANNOT_BE_RUN(problems=_listed(found))
        rest = [problem for problem in template.problems if problem.warning]
        room = MOST_TOLD - len(text.encode())
        if rest and room > _LEAST_ROOM:
            text = f"{text}\n{BESIDES(problems=_listed(rest, room))}"
        return Condition(type=TEMPLATE_VALID, status="False", reason=REASON_INVALID(), message=text)
    if template.problems:
        text = MAY_NOT_BE_MEANT(problems=_listed(template.problems))
        return Condition(type=TEMPLATE_VALID, status="True", reason=REASON_WARNINGS(), message=text)
    return Condition(type=TEMPLATE_VALID, status="True", reason=REASON_VALID(), message=ALL_WELL())


def _listed(problems: Sequence[Problem], room: int = MOST_TOLD) -> str:
    """*problems*, each on a line of its own: as many as there is *room* for in bytes, one at least."""
    lines: list[str] = []
    size = 0
    for problem in problems:
        line = str(problem)
        size += len(line.encode()) + 1
        if size > room and lines:
            lines.append(MORE_PROBLEMS())
            break
        lines.append(cut(line, room))
    return "\n".join(lines)
