"""What is wrong with steps before they run, each with the place where its author wrote it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kargo_py.messages import Shown, message

MORE_PROBLEMS = message(
    "there is more that is wrong than is told here",
    do="Correct what is told, and look again.",
    shown=Shown.PROMOTION | Shown.STAGE,
)

MOST_PROBLEMS: Final = 100
"""Problems of one Promotion or template that are told."""
_MOST_SAID: Final = 1000
"""Characters of one problem's text."""
_MOST_WRITTEN: Final = 300
"""Characters of a path as people read it."""
_MOST_OF_NAME: Final = 80
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

Path: TypeAlias = tuple[str | int, ...]
"""Where in an object: names and indices from the top."""


@dataclass(frozen=True, slots=True)
class TaskName:
    """Which task; its namespace is that of whatever names it."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f'{self.kind} "{self.name}"'


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is written: in a task, or in the object at hand if that is None."""

    path: Path
    task: TaskName | None = None

    def below(self, *parts: str | int) -> Place:
        """A place within this one."""
        return Place((*self.path, *parts), self.task)

    def __str__(self) -> str:
        path = written(self.path)
        return f"{self.task}: {path}" if self.task else path


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong: a *warning*, or a reason why it cannot succeed. *path* leads through the task, if there is one.

    A text may have several lines, with an expression and a caret below it.
    """

    path: Path
    message: str
    warning: bool = False
    task: TaskName | None = None

    @property
    def place(self) -> Place:
        """Where it is."""
        return Place(self.path, self.task)

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


def written(path: Path) -> str:
    """*path* as people write it: ``spec.steps[2].config.apps[0].name``."""
    text = "".join(map(_part, path[:_MOST_WRITTEN])).removeprefix(".")
    return text if len(text) <= _MOST_WRITTEN else f"{text[: _MOST_WRITTEN - 1]}…"


def _part(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    if len(part) > _MOST_OF_NAME:
        return f"[{json.dumps(part[:_MOST_OF_NAME])[:-1]}…]"
    return f".{part}" if _PLAIN_NAME.fullmatch(part) else f"[{json.dumps(part)}]"


def shortened(text: str, most: int = _MOST_SAID) -> str:
    """*text*, cut to *most* characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass(slots=True)
class Findings:
    """Problems as they are found, each once: at most :data:`MOST_PROBLEMS`, warnings apart."""

    _found: dict[Problem, None] = field(default_factory=dict)
    _kept: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    _more: bool = False

    @property
    def full(self) -> bool:
        """Whether no reason to refuse can be added, so that looking for more is of no use."""
        return self._kept[False] >= MOST_PROBLEMS

    def add(self, place: Place, text: str, *, warning: bool = False) -> None:
        """Something is wrong at *place*."""
        self.take([Problem(place.path, shortened(text), warning, place.task)])

    def take(self, problems: Iterable[Problem]) -> None:
        """What somebody else found."""
        for problem in problems:
            if problem in self._found:
                continue
            if self._kept[problem.warning] >= MOST_PROBLEMS:
                self._more = True
                continue
            self._kept[problem.warning] += 1
            self._found[problem] = None

    def told(self, root: Path) -> list[Problem]:
        """What is to be told, in the order of the steps; where that is too much, warnings are left out first.

        That there is more is said last, at *root*, which is where the steps are.
        """
        warnings = [problem for problem in self._found if problem.warning]
        room = MOST_PROBLEMS - self._kept[False]
        left_out = frozenset(warnings[room:])
        told = _in_order([problem for problem in self._found if problem not in left_out], root)
        if left_out or self._more or self.full:
            told.append(Problem(root, MORE_PROBLEMS(), warning=not self.full))
        return told


def _in_order(problems: Sequence[Problem], root: Path) -> list[Problem]:
    """*problems* step by step, those of variables first; what is wrong in a task stays behind what was found before."""
    places, place = [], -1
    for problem in problems:
        if problem.task is None:
            under = problem.path[len(root) :] if problem.path[: len(root)] == root else ()
            place = under[0] if under and isinstance(under[0], int) else -1
        places.append(place)
    order = sorted(range(len(problems)), key=places.__getitem__)
    return [problems[index] for index in order]


def refused(problems: Sequence[Problem]) -> list[Problem]:
    """Those of *problems* that are no mere warnings."""
    return [problem for problem in problems if not problem.warning]
