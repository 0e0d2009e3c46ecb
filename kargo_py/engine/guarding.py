"""What a call of a step may answer, checked: a kind of step is somebody else's code. Pure.

What does not fit ends the step as Errored, with a text for the author of the kind; nothing of it is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias, cast

from kargo_py.api.promotion import HealthCheckStep, StepStatus
from kargo_py.deployers.base import Awaited, Record, WaitCause
from kargo_py.kube.errors import KubeError
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message
from kargo_py.steps.base import Erred, Finished, Intend, StepContext, StepOutcome, Waiting

NONSENSE = message(
    "the kind of step answered what it may not: {fault}; report this to its author",
    do="A fault of the kind of step, which an installed package or an embedding program brings. Update it, then "
    "promote again; what the step did before it answered is not known.",
    shown=Shown.PROMOTION,
)

_LONGEST_NAME = 200
_SHOWN = 3
_LONGEST_TEXT = 1024 * 1024
"""More than is looked through for secrets: of a text that was cut before, the beginning of one might be shown."""

Test: TypeAlias = Callable[[Any], bool]


def checked(outcome: object, context: StepContext, *, stopping: bool = False) -> StepOutcome:
    """*outcome* if a step called with *context* may answer it, else an end that explains why not.

    *stopping*: the step was told to stop, so it ends as Aborted, and does not err.
    """
    fault = _fault(outcome, context, stopping=stopping)
    if fault is None:
        return cast("StepOutcome", outcome)
    return nonsense(fault, stopping=stopping)


def nonsense(fault: str, *, stopping: bool = False) -> Finished:
    """The end of a step that has answered what it may not, with what is wrong with it."""
    return Finished(StepStatus.ABORTED if stopping else StepStatus.ERRORED, NONSENSE(fault=fault))


def described(error: BaseException) -> str:
    """The type of *error* and its text; of a group, those of the first few in it. Whatever its text does."""
    if isinstance(error, BaseExceptionGroup):
        said = "; ".join(islice((described(each) for each in leaves(error)), _SHOWN))
        return f"{_name(type(error))}: {said}"
    try:
        text = str(error)[:_LONGEST_TEXT].strip()
    except Exception as failure:  # noqa: BLE001 - it is somebody else's __str__
        return f"{_name(type(error))}, whose text cannot be shown: that raises {_name(type(failure))}"
    return f"{_name(type(error))}: {text}" if text else _name(type(error))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """*error*, or those in it that are no groups themselves."""
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if isinstance(each, BaseExceptionGroup):
            waiting += reversed(each.exceptions)
        else:
            yield each


def _name(type_: type) -> str:
    return type_.__name__[:_LONGEST_NAME]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_output(value: object) -> bool:
    return value is None or isinstance(value, Mapping)


def _is_time(value: object) -> bool:
    if value is None:
        return True
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return not math.isnan(value)
    except OverflowError:
        # An integer that is too large for the clock to reckon with.
        return False


def _is_truth(value: object) -> bool:
    return isinstance(value, bool)


def _are(type_: type) -> Test:
    def are(value: object) -> bool:
        is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return is_sequence and all(isinstance(each, type_) for each in cast("Sequence[object]", value))

    return are


def _are_or_none(type_: type) -> Test:
    return lambda value: value is None or _are(type_)(value)


def _is_or_none(type_: type) -> Test:
    return lambda value: value is None or isinstance(value, type_)


def _are_causes(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(key, Key) and isinstance(cause, WaitCause) for key, cause in value.items()
    )


_FIELDS: Mapping[type, Mapping[str, tuple[str, Test]]] = {
    Intend: {
        "records": ("a sequence of Record", _are(Record)),
        "awaited": ("a sequence of Awaited", _are(Awaited)),
        "output": ("a mapping or None", _is_output),
        "warning": ("a string", _is_text),
    },
    Waiting: {
        "message": ("a string", _is_text),
        "records": ("a sequence of Record", _are(Record)),
        "notable": ("True or False", _is_truth),
        "look_after": ("a number of seconds or None", _is_time),
        "error": ("a KubeError or None", _is_or_none(KubeError)),
        "causes": ("a mapping of Key to WaitCause", _are_causes),
        "up_in": ("a number of seconds or None", _is_time),
        "polls": ("True or False", _is_truth),
    },
    Finished: {
        "status": ("a StepStatus", lambda value: isinstance(value, StepStatus)),
        "message": ("a string", _is_text),
        "output": ("a mapping or None", _is_output),
        "health_check": ("a HealthCheckStep or None", _is_or_none(HealthCheckStep)),
        "records": ("a sequence of Record", _are(Record)),
    },
    Erred: {
        "message": ("a string", _is_text),
        "failed": ("True or False", _is_truth),
        "transient": ("True or False", _is_truth),
        "retry_after": ("a number of seconds or None", _is_time),
        "output": ("a mapping or None", _is_output),
        "records": ("a sequence of Record or None", _are_or_none(Record)),
    },
}
_ENDS = (StepStatus.SUCCEEDED, StepStatus.SKIPPED, StepStatus.FAILED, StepStatus.ERRORED)


def _fault(outcome: object, context: StepContext, *, stopping: bool) -> str | None:
    """What is wrong with *outcome*."""
    allowed = [Intend, Waiting, Finished] if stopping else [Intend, Waiting, Finished, Erred]
    kind = next((each for each in allowed if isinstance(outcome, each)), None)
    if kind is None:
        names = ", ".join(each.__name__ for each in allowed)
        return f"{_a(outcome)}, which is none of {names}"
    for name, (wanted, test) in _FIELDS[kind].items():
        value = getattr(outcome, name)
        if not test(value):
            return f"{kind.__name__}.{name} is {_a(value)}, not {wanted}"
    if isinstance(outcome, Finished):
        ends = (StepStatus.ABORTED,) if stopping else _ENDS
        if outcome.status not in ends:
            return f"Finished.status is {outcome.status.value}, not {' or '.join(end.value for end in ends)}"
    return _wrong_records(kind, cast("StepOutcome", outcome), context)


def _wrong_records(kind: type, outcome: StepOutcome, context: StepContext) -> str | None:
    """What is wrong with the records: what is under way must not get lost, and each belongs to one step."""
    records = outcome.records
    foreign = next((each.step for each in records or () if each.step != context.alias), None)
    if foreign is not None:
        return f"a record of the step {foreign[:_LONGEST_NAME]!r}, not of its own, {context.alias!r}"
    before = [each.key for each in context.records]
    if isinstance(outcome, Waiting):
        if [each.key for each in outcome.records] == before:
            return None
        return f"{kind.__name__} with {_count(outcome.records)}, not with those {len(before)} on record"
    if records or isinstance(outcome, Intend):
        after = {each.key for each in records or ()}
        lost = next((key for key in before if key not in after), None)
        return f"{kind.__name__} without the record of {lost}" if lost is not None else None
    return None


def _count(records: Sequence[object]) -> str:
    return f"{len(records)} record" if len(records) == 1 else f"{len(records)} records"


def _a(value: object) -> str:
    """*value* in words that never call its own code."""
    return "None" if value is None else f"an object of type {_name(type(value))}"
