"""What the configurations of all steps share: strictness, the words for faults, and the choice of Applications."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import ErrorDetails

from kargo_py.api.types import KUBERNETES_NAME_PATTERN, PlainDuration, wire_name
from kargo_py.argocd.selectors import Operator, Selector, read_selector
from kargo_py.argocd.targets import Choice
from kargo_py.messages import Shown, message

INVALID_CONFIGURATION = message(
    "invalid configuration: {faults}",
    do="Nothing was started, unless the steps were edited while they ran: then the message goes on with what was left "
    "to run. Correct the fields named in the step's `config`, in the Stage's template too, then create a new "
    "Promotion.",
    shown=Shown.PROMOTION,
)
NOT_A_STRING = message(
    "must be a string; put it in quotes",
    do="Part of *invalid configuration*: YAML takes `123456`, `1e6` or `true` without quotes for something else. "
    'Write `"123456"`.',
    shown=Shown.PROMOTION,
)
MUST_BE = message(
    "must be {wanted}",
    do="Part of *invalid configuration*: the step's reference, or `kargo-py explain STEP`, says what the field takes.",
    shown=Shown.PROMOTION,
)
IS_NULL = message(
    "must be a string, and is null",
    do="Part of *invalid configuration*: most often an expression reads a variable, an output or a field that is not "
    "there. Correct its name, or give another value with `??`.",
    shown=Shown.PROMOTION,
)
IS_REQUIRED = message(
    "must be given",
    do="Part of *invalid configuration*: the step's reference says what this field is for.",
    shown=Shown.PROMOTION,
)
NOT_AN_OBJECT = message(
    "must be an object, with fields",
    do="Part of *invalid configuration*: this part of the step's config consists of `field: value` lines.",
    shown=Shown.PROMOTION,
)
NOT_A_LIST = message(
    "must be a list",
    do="Part of *invalid configuration*: write each entry of this field in a line that begins with `- `.",
    shown=Shown.PROMOTION,
)
NOT_A_BOOLEAN = message(
    "must be true or false, without quotes",
    do="Part of *invalid configuration*: write `true` or `false`; a text, like `yes` or one in quotes, is not taken "
    "for the one or the other.",
    shown=Shown.PROMOTION,
)
NOT_A_NAME = message(
    "{name} cannot be the name of an object of Kubernetes",
    do="Part of *invalid configuration*: a name is at most 253 lower case letters, digits, `-` and `.`, beginning and "
    "ending with a letter or digit, and a namespace has no `.`.",
    shown=Shown.PROMOTION,
)
EMPTY = message(
    "must not be empty",
    do="Part of *invalid configuration*: give the field a value or the list an entry, or take the field away if the "
    "step's reference does not require it.",
    shown=Shown.PROMOTION,
)
NO_SUCH_FIELD = message(
    "there is no such field",
    do="Part of *invalid configuration*: correct the name, upper and lower case too, or its place; the step's "
    "reference has all fields. `config.app` where `config.apps` was meant is an example.",
    shown=Shown.PROMOTION,
)
ONE_OF_NAME_AND_SELECTOR = message(
    "exactly one of name and selector must be given",
    do="Part of *invalid configuration*: an entry names one Application by its `name`, or chooses some by their labels "
    "with `selector`.",
    shown=Shown.PROMOTION,
)


class Config(BaseModel):
    """Configuration is checked strictly: a field that nothing reads is a mistake somebody should hear of."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=wire_name)


NonEmpty = Annotated[str, Field(min_length=1)]
Flag = Annotated[bool, Field(strict=True)]
"""A boolean; ``"no"`` is none, and what it might turn on or off is not to be guessed."""

_LONGEST_NAME = 253
_SHOWN = 80


def _name(text: str) -> str:
    # What is none would get into URLs.
    if text and not (len(text) <= _LONGEST_NAME and re.fullmatch(KUBERNETES_NAME_PATTERN.strip("^$"), text)):
        raise ValueError(NOT_A_NAME(name=repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")))
    return text


Name = Annotated[str, AfterValidator(_name)]
"""The name of an object, or ``""``."""


class LabelExpression(Config):
    """One requirement of a selector."""

    key: NonEmpty
    """Key of a label."""
    operator: Operator
    """`In` and `NotIn` need values, `Exists` and `DoesNotExist` take none."""
    values: Sequence[str] = ()
    """Values of that label."""


class LabelSelector(Config):
    """The form of a selector, for the reference; :func:`~kargo_py.argocd.selectors.read_selector` checks it."""

    match_labels: Mapping[str, str] | None = None
    """Labels with their values; at least one of these two fields must say something."""
    match_expressions: Sequence[LabelExpression] = ()
    """Requirements about labels."""


def _selector(value: Any) -> Selector | None:
    return None if value is None else read_selector(value)


class AppChoice(Config):
    """Which Applications an entry is about: one by name, or all with certain labels."""

    name: Name = ""
    """The Application, by name; exactly one of `name` and `selector`."""
    selector: Annotated[Selector | None, PlainValidator(_selector, json_schema_input_type=LabelSelector)] = None
    """The Applications, by label: all requirements must hold."""
    namespace: Name = ""
    """Namespace of the Applications; that of `--argocd-namespace` if not given."""
    wait_for_creation: PlainDuration | None = None
    """How long to wait until there is such an Application, like `5m`. An addition of kargo-py."""

    @model_validator(mode="after")
    def _one_choice(self) -> Self:
        if bool(self.name) == bool(self.selector):
            raise ValueError(ONE_OF_NAME_AND_SELECTOR())
        return self

    @property
    def patience(self) -> timedelta:
        """How long to wait until there is such an Application; 0: not at all."""
        waits = self.wait_for_creation
        return timedelta(seconds=waits.seconds) if waits is not None else timedelta()

    def choice(self, default_namespace: str) -> Choice:
        """Which Applications these are."""
        return Choice(self.namespace or default_namespace, self.name, self.selector)


C = TypeVar("C", bound=Config)

_MOST_FAULTS = 3
_SHOULD = "Input should be "
"""How pydantic begins what it says of most values."""


EVALUATED: Final = {"evaluated": True}
"""The context in which a configuration is checked that its expressions have made: there may be secrets in it."""


def quotes_nothing(info: ValidationInfo) -> bool:
    """Whether what is wrong with a text is to be told without parts of it, which no mask would find."""
    return bool(info.context)


def read_as(model: type[C], config: object) -> C:
    """Check *config*, as it was evaluated; raises ValueError that names each wrong field, or the first few."""
    try:
        return model.model_validate(config, context=EVALUATED)
    except ValidationError as error:
        faults = [f"{_where(fault['loc'])}: {what_is_wrong(fault)}" for fault in error.errors()[:_MOST_FAULTS]]
        raise ValueError("; ".join(faults)) from error


def _where(location: Sequence[int | str]) -> str:
    return "config" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


def what_is_wrong(fault: ErrorDetails) -> str:
    """What *fault* says, for users; in pydantic's words only where those are not Python's."""
    match fault["type"]:
        case "string_type" if isinstance(fault["input"], int | float):  # in YAML without quotes; bool is int
            return NOT_A_STRING()
        case "string_type" if fault["input"] is None:
            return IS_NULL()
        case "missing":
            return IS_REQUIRED()
        case "extra_forbidden":
            return NO_SUCH_FIELD()
        case "model_type" | "dict_type" | "mapping_type":
            return NOT_AN_OBJECT()
        case "is_instance_of" | "sequence_str":
            return NOT_A_LIST()
        case "too_short" | "string_too_short":
            return EMPTY()
        case "bool_type":
            return NOT_A_BOOLEAN()
        case _:
            said = fault["msg"].removeprefix("Value error, ")
            return MUST_BE(wanted=said.removeprefix(_SHOULD)) if said.startswith(_SHOULD) else said
