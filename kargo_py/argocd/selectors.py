"""Choosing Applications by their labels, with the form and the meaning of a Kubernetes ``LabelSelector``.

``{matchLabels: {…}, matchExpressions: [{key, operator, values}]}``: all requirements must hold. One that has none is
refused, as Kargo refuses it: to Kubernetes it selects everything, which nobody means who leaves a selector empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kargo_py.messages import Shown, message

NOTHING_REQUIRED = message(
    "needs at least one of matchLabels and matchExpressions",
    do="Part of *invalid configuration*: an empty `selector` would select every Application. Say which labels the "
    "Applications have.",
    shown=Shown.PROMOTION,
)
NOT_A_SELECTOR_FIELD = message(
    "{field}: a selector has no such field",
    do="Part of *invalid configuration*: a `selector` has `matchLabels` and `matchExpressions`, and each of these a "
    "`key`, an `operator` and `values`.",
    shown=Shown.PROMOTION,
)
SELECTOR_NOT_OF_ITS_TYPE = message(
    "{field}: must be {type}, not {value}",
    do="Part of *invalid configuration*: correct this field of the `selector`. YAML takes `123` or `true` without "
    "quotes for something else than a string.",
    shown=Shown.PROMOTION,
)
NO_SUCH_OPERATOR = message(
    "{field}: must be In, NotIn, Exists or DoesNotExist, not {value}",
    do="Part of *invalid configuration*: correct the `operator` of this expression of the `selector`.",
    shown=Shown.PROMOTION,
)
VALUES_NEEDED = message(
    "{field}: {operator} needs at least one value",
    do="Part of *invalid configuration*: give this expression of the `selector` its `values`.",
    shown=Shown.PROMOTION,
)
VALUES_FORBIDDEN = message(
    "{field}: {operator} takes no values",
    do="Part of *invalid configuration*: take the `values` of this expression of the `selector` away, or use `In` or "
    "`NotIn`.",
    shown=Shown.PROMOTION,
)
NOT_A_LABEL_KEY = message(
    "{field}: {value} cannot be the key of a label",
    do="Part of *invalid configuration*: a key is at most 63 letters, digits, `-`, `_` and `.`, beginning and ending "
    "with a letter or digit; before it there may be a DNS name and `/`.",
    shown=Shown.PROMOTION,
)
NOT_A_LABEL_VALUE = message(
    "{field}: {value} cannot be the value of a label",
    do="Part of *invalid configuration*: a value is at most 63 letters, digits, `-`, `_` and `.`, beginning and "
    "ending with a letter or digit, or empty.",
    shown=Shown.PROMOTION,
)

_MOST_SHOWN = 80
_MOST_OF_SELECTOR = 500
_LONGEST_ASKED_FOR = 2000

_NAME = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)")
_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_PREFIX = re.compile(rf"(?=.{{1,253}}\Z){_DNS_LABEL}(?:\.{_DNS_LABEL})*")


class Operator(StrEnum):
    """How a requirement relates a label to its values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"

    @property
    def takes_values(self) -> bool:
        """Whether there must be values; there may be none otherwise."""
        return self in {Operator.IN, Operator.NOT_IN}


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one label must be like."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether *labels* are so. ``NotIn`` holds where the label is absent."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value is not None and value in self.values
            case Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None

    def __str__(self) -> str:
        values = ",".join(sorted(self.values))
        match self.operator:
            case Operator.IN if len(self.values) == 1:
                return f"{self.key}={values}"
            case Operator.IN:
                return f"{self.key} in ({values})"
            case Operator.NOT_IN:
                return f"{self.key} notin ({values})"
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"


@dataclass(frozen=True, slots=True)
class Selector:
    """A choice of objects by their labels; its text is what ``kubectl get -l`` takes."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with *labels* is chosen."""
        return all(requirement.holds(labels) for requirement in self.requirements)

    @property
    def shown(self) -> str:
        """Its text for a message, which must not grow with what somebody wrote."""
        text = str(self)
        return text if len(text) <= _MOST_OF_SELECTOR else f"{text[:_MOST_OF_SELECTOR]}…"

    @property
    def asked_for(self) -> str:
        """What of it the server is asked for, in a URL, which proxies limit to some KiB: as much as has room."""
        asked: list[str] = []
        for text in map(str, self.requirements):
            if sum(map(len, asked)) + len(text) <= _LONGEST_ASKED_FOR:
                asked.append(text)
        return ",".join(asked)

    def wire(self) -> dict[str, Any]:
        """As :func:`read_selector` reads it again."""
        expressions = [
            {"key": r.key, "operator": str(r.operator), "values": sorted(r.values)} for r in self.requirements
        ]
        return {"matchExpressions": expressions}

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def read_selector(value: Any) -> Selector:
    """The selector that *value*, JSON as in a step's configuration, describes.

    Raises ValueError that names the field. Two texts of one meaning give equal selectors.
    """
    _only(value, "", {"matchLabels", "matchExpressions"})
    found = {*_labels(value.get("matchLabels")), *_expressions(value.get("matchExpressions"))}
    if not found:
        raise ValueError(NOTHING_REQUIRED())
    return Selector(tuple(sorted(found, key=str)))


def _labels(value: Any) -> Iterator[Requirement]:
    if value is None:
        return
    _check(isinstance(value, dict), "matchLabels", "an object", value)
    for key, wanted in value.items():
        yield Requirement(
            _key(key, "matchLabels"), Operator.IN, frozenset({_value(wanted, f"matchLabels[{_shown(key)}]")})
        )


def _expressions(value: Any) -> Iterator[Requirement]:
    if value is None:
        return
    _check(isinstance(value, list), "matchExpressions", "a list", value)
    for index, expression in enumerate(value):
        yield _expression(expression, f"matchExpressions[{index}]")


def _expression(expression: Any, field: str) -> Requirement:
    _only(expression, field, {"key", "operator", "values"})
    key = _key(expression.get("key"), f"{field}.key")
    wanted = expression.get("operator")
    if wanted not in list(Operator):
        raise ValueError(NO_SUCH_OPERATOR(field=f"{field}.operator", value=_shown(wanted)))
    operator = Operator(wanted)
    given = expression.get("values")
    values = [] if given is None else given
    _check(isinstance(values, list), f"{field}.values", "a list", values)
    if operator.takes_values and not values:
        raise ValueError(VALUES_NEEDED(field=f"{field}.values", operator=operator))
    if values and not operator.takes_values:
        raise ValueError(VALUES_FORBIDDEN(field=f"{field}.values", operator=operator))
    return Requirement(key, operator, frozenset(_value(v, f"{field}.values[{i}]") for i, v in enumerate(values)))


def _key(key: Any, field: str) -> str:
    _check(isinstance(key, str), field, "a string", key)
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
        raise ValueError(NOT_A_LABEL_KEY(field=field, value=_shown(key)))
    return str(key)


def _value(value: Any, field: str) -> str:
    _check(isinstance(value, str), field, "a string", value)
    if value and not _NAME.fullmatch(value):
        raise ValueError(NOT_A_LABEL_VALUE(field=field, value=_shown(value)))
    return str(value)


def _only(value: Any, field: str, known: set[str]) -> None:
    """Refuse what is no object with *known* fields alone."""
    _check(isinstance(value, dict), field or "selector", "an object", value)
    if unknown := next((name for name in value if name not in known), None):
        raise ValueError(NOT_A_SELECTOR_FIELD(field=f"{field}.{unknown}".lstrip(".")[:_MOST_SHOWN]))


def _check(holds: bool, field: str, type_: str, value: Any) -> None:
    if not holds:
        raise ValueError(SELECTOR_NOT_OF_ITS_TYPE(field=field, type=type_, value=_shown(value)))


def _shown(value: Any) -> str:
    """*value* for a message, which must not grow with what somebody wrote."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
