"""What an expression reads and calls beside what there is: variables, outputs of steps, functions, their members.

Refused is what cannot have a value. Where it may never be evaluated, because it is behind a condition, it is a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import Any, Final

from kargo_py.api.freight import ArtifactReference, Chart, GitCommit, Image
from kargo_py.api.promotion import StepExecutionMetadata
from kargo_py.engine.problems import shortened
from kargo_py.expressions.analysis import Called, Read, Uses
from kargo_py.expressions.environment import Context
from kargo_py.expressions.errors import Fault
from kargo_py.expressions.functions import (
    SEPARATOR,
    artifact_record,
    chart_record,
    commit_record,
    image_record,
    promotion_functions,
    status_functions,
    step_record,
)
from kargo_py.expressions.lookups import Lookups
from kargo_py.expressions.parser import BUILTINS, PREDICATES
from kargo_py.expressions.tree import Literal
from kargo_py.expressions.values import Function, Record
from kargo_py.messages import Shown, message

_SHOWN = Shown.PROMOTION | Shown.STAGE

NO_SUCH_FUNCTION = message(
    "there is no function {name}{hint}",
    do="Correct the name, upper and lower case too; [Expressions](expressions.md#functions) has all functions.",
    shown=_SHOWN,
)
FUNCTION_NOT_IN_VARIABLES = message(
    "the function {name} is for if and config, not for variables",
    do="A variable is evaluated before anything is known of how steps went. Use the function in `if` or `config`.",
    shown=_SHOWN,
)
WRONG_NUMBER_OF_ARGUMENTS = message(
    "the function {name} cannot be called with {given} arguments; it takes {takes}",
    do="Give the function the arguments that it takes: see [Expressions](expressions.md#functions).",
    shown=_SHOWN,
)
RESPONSE_LATER = message(
    "there is no response before the request is made; the expressions of http about it are written without ${{{{ }}}}",
    do="Write `successExpression: response.status == 200`, say. What is within `${{ }}` is put in before.",
    shown=_SHOWN,
)
NO_SUCH_NAME = message(
    "there is no {name}, so it is nil{hint}",
    do="Correct the name; a text needs quotes. [Expressions](expressions.md#names) has all names.",
    shown=_SHOWN,
)
NOT_IN_VARIABLES = message(
    "variables of a Promotion cannot use {name}, which is nil there",
    do="They are evaluated before the first step. Put the expression into `vars` of the step, or into its config.",
    shown=_SHOWN,
)
TASK_OUTSIDE = message(
    "only steps of a task have task.outputs; here, use outputs",
    do="Write `outputs.ALIAS`, or `outputs['TASK::ALIAS']` for a step of a task.",
    shown=_SHOWN,
)
NO_SUCH_ALIAS = message(
    "no step has the alias {alias!r}{hint}",
    do="Correct the alias, or give the step that is meant this one in `as`. Where the step may be absent on purpose, "
    "write `outputs.ALIAS?.KEY`, with `?? DEFAULT` if need be.",
    shown=_SHOWN,
)
ALIAS_LATER = message(
    "the step {alias!r} has not run by then",
    do="A step can use only what steps before it have put out. Change the order, or write `outputs.ALIAS?.KEY`.",
    shown=_SHOWN,
)
TASK_WITHOUT_OUTPUT = message(
    "the task {alias!r} has put nothing out by then; only some steps, like compose-output, give their task an "
    "output{hint}",
    do="Name the step of the task, as `outputs['TASK::ALIAS']`, or let the task end with `compose-output`.",
    shown=_SHOWN,
)
NO_SUCH_STATUS = message(
    "no step before this one has the alias {alias!r}, so its status is always empty{hint}",
    do="Correct the alias. Within a task only the task's own steps count, by their short aliases.",
    shown=_SHOWN,
)
NO_SUCH_VARIABLE = message(
    "there is no variable {name}, so it is nil{hint}",
    do="Correct the name or set the variable. If it may be absent on purpose, write `vars.NAME ?? DEFAULT`.",
    shown=_SHOWN,
)
VARIABLE_LATER = message(
    "the variable {name} is set only after this one, so it is nil",
    do="Variables are evaluated in their order. Change it.",
    shown=_SHOWN,
)
NO_SUCH_MEMBER = message(
    "{what} has no {name}; it has {known}",
    do="Correct the name; upper and lower case count.",
    shown=_SHOWN,
)
DID_YOU_MEAN = message(
    "; did you mean {what}?",
    do="The end of some of the texts of this table: correct it, if it is so.",
    shown=_SHOWN,
)

_MOST_OF_NAME: Final = 80
_MOST_KNOWN: Final = 20
"""Names that are told, or looked at for a similar one."""
_MOST_COMPARED: Final = 200
_LEAST_EFFORT: Final = 100
_EACH_NAME: Final = 10
_MOST_EFFORT: Final = 2_000_000
"""Comparisons of two characters that the search for similar names takes at most: some tenths of a second."""
_PROMOTION_FUNCTIONS: Final = promotion_functions((), Lookups())
_STATUS_FUNCTIONS: Final = status_functions("", ())
_STEP_FUNCTIONS: Final[Mapping[str, Function]] = {**_PROMOTION_FUNCTIONS, **_STATUS_FUNCTIONS}
_VARIABLE_NAMES: Final = frozenset({"ctx", "vars"})
_STEP_NAMES: Final = _VARIABLE_NAMES | {"outputs", "stepMetas"}
_BUILTINS: Final = tuple(sorted(BUILTINS | PREDICATES.keys()))
_CONTEXT: Final = Context("", "", "").value()
_ABSENT: Final = object()


@cache
def _results() -> Mapping[str, Record]:
    """What functions give, for the names of its members."""
    return {
        "imageFrom": image_record(Image()),
        "commitFrom": commit_record(GitCommit()),
        "chartFrom": chart_record(Chart()),
        "artifactFrom": artifact_record(ArtifactReference()),
        "warehouse": _STEP_FUNCTIONS["warehouse"].call(["x"]),
        "semverParse": _STEP_FUNCTIONS["semverParse"].call(["1.2.3"]),
        "stepMetas": step_record(StepExecutionMetadata()),
    }


@dataclass(slots=True)
class Hints:
    """Finds names that may be meant, as long as that has not taken too much: misspelt names may be many and long."""

    _left: int = _MOST_EFFORT

    @property
    def exhausted(self) -> bool:
        """Whether no more are looked for."""
        return self._left < 0

    def spend(self, names: int) -> None:
        """Take so many names into account that were looked through for what may be meant."""
        self._left -= names * _EACH_NAME

    def of(self, name: str, known: Iterable[str], *certain: str) -> str:
        """Which of *known* may be meant by *name*, or one that is *certain*."""
        if certain:
            return DID_YOU_MEAN(what=shortened(certain[0], _MOST_OF_NAME))
        if len(name) > _MOST_OF_NAME or self.exhausted:
            return ""
        by_lower = {one.lower(): one for one in islice(known, _MOST_COMPARED) if len(one) <= 2 * _MOST_OF_NAME}
        # The worst that difflib takes for two names of that length, and what it takes for any two
        self._left -= len(by_lower) * (len(name) ** 2 + _LEAST_EFFORT)
        alike = 0.75 if len(name) > 3 else 0.8
        close = get_close_matches(name.lower(), by_lower, 1, alike)
        return DID_YOU_MEAN(what=shortened(by_lower[close[0]], _MOST_OF_NAME)) if close else ""


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps as expressions know each other."""

    aliases: Mapping[str, int]
    """Each alias with the index of its step."""
    tasks: Mapping[str, Sequence[tuple[int, bool | None]]]
    """By the alias of a task: its steps, and whether the output of each is the task's, too; None: nobody knows."""
    unknown: frozenset[str] = frozenset()
    """Aliases of tasks whose steps nobody knows."""
    partial: bool = False
    """Whether there are others around these, of which nobody knows."""
    hints: Hints = field(default_factory=Hints)
    """For all that is looked at together."""


@dataclass(slots=True)
class Scene:
    """What expressions have at some place: in a step, or without *index* in the variables of a Promotion."""

    steps: Steps
    variables: Mapping[str, str | None] = field(default_factory=dict)
    """Each with what a guess would spoil of it: ``tag``, say."""
    later: frozenset[str] = frozenset()
    """Variables that are set later."""
    index: int | None = None
    alias: str = ""
    in_variable: bool = False
    may_be_skipped: bool = False
    """Whether what is looked at need never be evaluated."""

    @property
    def task(self) -> str:
        """The alias of the task that the step is of."""
        return self.alias.rpartition(SEPARATOR)[0]


@dataclass(frozen=True, slots=True)
class Remark:
    """Something about a part of an expression, which is at the character *at* of it."""

    at: int
    text: str
    warning: bool


def remarks(found: Uses, scene: Scene) -> list[Remark]:
    """What is wrong with what an expression reads and calls in *scene*, in the order of its text."""
    made = [remark for read in found.reads for remark in _of_read(read, scene)]
    made += [remark for call in found.calls for remark in _of_call(call, scene)]
    return sorted(made, key=lambda remark: remark.at)


# Functions


def _of_call(call: Called, scene: Scene) -> Iterator[Remark]:
    functions = _PROMOTION_FUNCTIONS if scene.in_variable else _STEP_FUNCTIONS
    function = functions.get(call.name)
    unsure = not call.sure or scene.may_be_skipped
    name = shortened(call.name, _MOST_OF_NAME)
    if function is None and call.name in _STATUS_FUNCTIONS:
        yield Remark(call.at, FUNCTION_NOT_IN_VARIABLES(name=name), unsure)
    elif function is None:
        similar = scene.steps.hints.of(call.name, [*functions, *_BUILTINS])
        yield Remark(call.at, NO_SUCH_FUNCTION(name=name, hint=similar), unsure)
    elif not function.least <= len(call.arguments) <= function.most:
        least, most = str(function.least), str(function.most)
        takes = least if least == most else f"{least}-{most}"
        said = WRONG_NUMBER_OF_ARGUMENTS(name=name, takes=takes, given=len(call.arguments))
        yield Remark(call.at, said, unsure)
    elif call.name == "status":
        yield from _of_status(call, scene)
    elif call.members and (result := _results().get(call.name)):
        yield from _of_member(f"{call.name}(…)", result, call.members[0], call.at, unsure or call.optional[0])


def _of_status(call: Called, scene: Scene) -> Iterator[Remark]:
    argument = call.arguments[0]
    if not isinstance(argument, Literal) or not isinstance(argument.value, str) or scene.index is None:
        return
    wanted, task = argument.value, scene.task
    index = scene.steps.aliases.get(f"{task}{SEPARATOR}{wanted}" if task else wanted)
    if task in scene.steps.unknown or (index is not None and index < scene.index):
        return
    yield Remark(
        call.at,
        NO_SUCH_STATUS(alias=shortened(wanted, _MOST_OF_NAME), hint=scene.steps.hints.of(wanted, _siblings(scene))),
        warning=True,
    )


def _of_member(what: str, record: Record, member: str, at: int, warning: bool) -> Iterator[Remark]:
    try:
        record.find(member)
    except Fault:
        known = ", ".join([*record.values, *(f"{name}()" for name in record.methods)][:_MOST_KNOWN])
        yield Remark(at, NO_SUCH_MEMBER(what=what, name=shortened(member, _MOST_OF_NAME), known=known), warning)


# Names


def _of_read(read: Read, scene: Scene) -> Iterator[Remark]:
    match read.path:
        case ("vars", name, *_):
            yield from _of_variable(read, name, scene)
        case ("ctx", *names):
            yield from _of_context(read, names, scene)
        case ("outputs", alias, *_) if scene.index is not None:
            yield from _of_alias(read, 1, alias, alias, scene)
        case ("task", "outputs", alias, *_) if scene.task:
            yield from _of_alias(read, 2, alias, f"{scene.task}{SEPARATOR}{alias}", scene)
        case ("stepMetas", alias, *members) if scene.index is not None:
            yield from _of_step(read, alias, members, scene)
        case ("vars" | "outputs" | "stepMetas",) if scene.index is not None or read.path[0] == "vars":
            pass
        case ("task", *_) if scene.task:
            pass
        case (name, *_):
            yield from _of_name(read, name, scene)


def _fatal(read: Read, index: int, scene: Scene) -> bool:
    """Whether nil at ``path[index]`` is for sure an error."""
    return read.needs(index) and read.sure and not read.excused and not scene.may_be_skipped


def _of_name(read: Read, name: str, scene: Scene) -> Iterator[Remark]:
    if name in _STEP_FUNCTIONS:
        return
    warning = not _fatal(read, 0, scene)
    if name == "task" and scene.index is not None:
        yield Remark(read.at, TASK_OUTSIDE(), warning)
    elif name in _STEP_NAMES or name == "task":
        yield Remark(read.at, NOT_IN_VARIABLES(name=name), warning)
    elif name == "response":
        yield Remark(read.at, RESPONSE_LATER(), warning)
    else:
        certain = [f"vars.{name}"] if name in scene.variables else []
        similar = scene.steps.hints.of(name, sorted(_STEP_NAMES), *certain)
        yield Remark(read.at, NO_SUCH_NAME(name=shortened(name, _MOST_OF_NAME), hint=similar), warning)


def _of_context(read: Read, names: Sequence[str], scene: Scene) -> Iterator[Remark]:
    value: Any = _CONTEXT
    for index, name in enumerate(names, 1):
        if not isinstance(value, dict):
            return
        inner = value.get(name, _ABSENT)
        if inner is _ABSENT:
            what, known = ".".join(("ctx", *names[: index - 1])), ", ".join(value)
            said = NO_SUCH_MEMBER(what=what, name=shortened(name, _MOST_OF_NAME), known=known)
            if not _provided_for(read, index):
                yield Remark(read.at, said, not _fatal(read, index, scene))
            return
        value = inner


def _provided_for(read: Read, index: int) -> bool:
    """Whether the author expects nil at ``path[index]``."""
    if index < len(read.optional):
        return read.optional[index]
    return read.excused


def _of_variable(read: Read, name: str, scene: Scene) -> Iterator[Remark]:
    if name in scene.variables or scene.steps.partial or _provided_for(read, 1):
        return
    named = shortened(name, _MOST_OF_NAME)
    if name in scene.later:
        yield Remark(read.at, VARIABLE_LATER(name=named), warning=True)
    else:
        similar = scene.steps.hints.of(name, scene.variables)
        yield Remark(read.at, NO_SUCH_VARIABLE(name=named, hint=similar), warning=True)


# Steps


def _of_alias(read: Read, index: int, alias: str, full: str, scene: Scene) -> Iterator[Remark]:
    """Of the output of a step: *alias* is what is written, *full* the alias that is meant."""
    said = _no_output(alias, full, scene)
    if said is not None and not _provided_for(read, index):
        yield Remark(read.at, said, not read.sure or read.excused or scene.may_be_skipped)


def _no_output(alias: str, full: str, scene: Scene) -> str | None:
    """Why there is no output of *full* before the step; None if there may be one."""
    steps, here = scene.steps, scene.index or 0
    named = shortened(alias, _MOST_OF_NAME)
    if (index := steps.aliases.get(full)) is not None:
        return ALIAS_LATER(alias=named) if index >= here else None
    task = full.partition(SEPARATOR)[0]
    if task in steps.unknown:
        return None
    if (inner := steps.tasks.get(full)) is not None:
        if any(gives is not False and index < here for index, gives in inner):
            return None
        return TASK_WITHOUT_OUTPUT(alias=named, hint=_hint_of_alias(alias, scene))
    if steps.partial and task not in steps.tasks:
        return None
    return NO_SUCH_ALIAS(alias=named, hint=_hint_of_alias(alias, scene))


def _of_step(read: Read, alias: str, members: Sequence[str], scene: Scene) -> Iterator[Remark]:
    steps = scene.steps
    index = steps.aliases.get(alias)
    unsure = not read.sure or read.excused or scene.may_be_skipped
    if index is None or index > (scene.index or 0):
        unknown = alias.partition(SEPARATOR)[0] in steps.unknown or (steps.partial and index is None)
        if not unknown and not _provided_for(read, 1):
            named = shortened(alias, _MOST_OF_NAME)
            similar = steps.hints.of(alias, steps.aliases)
            said = ALIAS_LATER(alias=named) if index is not None else NO_SUCH_ALIAS(alias=named, hint=similar)
            yield Remark(read.at, said, unsure)
    elif members:
        yield from _of_member(
            f"stepMetas.{alias[:_MOST_OF_NAME]}", _results()["stepMetas"], members[0], read.at, unsure
        )


# Similar names


def _siblings(scene: Scene) -> Iterator[str]:
    """The short aliases of the steps before this one that are of the same task."""
    scene.steps.hints.spend(len(scene.steps.aliases))
    pairs = ((alias.rpartition(SEPARATOR), index) for alias, index in scene.steps.aliases.items())
    return (parts[2] for parts, index in pairs if parts[0] == scene.task and index < (scene.index or 0))


def _hint_of_alias(alias: str, scene: Scene) -> str:
    """What may be meant by the alias of an output."""
    hints = scene.steps.hints
    if hints.exhausted:
        return ""
    hints.spend(len(scene.steps.aliases))
    before = [name for name, index in scene.steps.aliases.items() if index < (scene.index or 0)]
    certain = []
    for name in before:
        task, _, short = name.rpartition(SEPARATOR)
        # outputs.open-pr is a subtraction
        if short == alias or name.startswith(f"{alias}-"):
            certain.append(f"task.outputs['{short}']" if task and task == scene.task else f"outputs['{name}']")
    return hints.of(alias, before, *certain)
