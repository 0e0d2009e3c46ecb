"""The values of the language, and what may be used up in making them.

A value is nil (None), a bool, an int, a float, a text, bytes, a list, a dict with texts as keys, or one of the types
below. Nothing else enters, and no attribute of any Python object can be named by an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Final, TypeAlias

from kargo_py.expressions.errors import Fault, LimitFault
from kargo_py.expressions.gotime import Duration, Named, Time, Zone

Value: TypeAlias = Any
"""One of the types that the module names."""

MAX_STEPS: Final = 300_000
"""Parts evaluated, counting each again for each item that a predicate looks at; some tenths of a second."""
MAX_ALL_STEPS: Final = 1_000_000
"""The same for all expressions of one step of a Promotion together: some seconds."""
QUICK_STEPS: Final = 5_000
"""The same for those that are evaluated while all else waits: some hundredths of a second."""
MAX_MEMORY: Final = 1_000_000
"""Items of lists and maps made; the limit is that of the Go library."""
MAX_TEXT: Final = 1_048_576
"""Characters of a text made; about what one Kubernetes object can hold."""
MAX_TEXTS: Final = 8 * MAX_TEXT
"""Characters of all texts made by one expression."""
MAX_NESTING: Final = 100
"""How deep a value may nest."""
_WORD: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63


_ALL_TOGETHER: Final = f"the expressions of the step take more than {MAX_ALL_STEPS} steps together"


class Allowance:
    """How many steps all expressions that belong together may still take; one of them takes MAX_STEPS at most."""

    __slots__ = ("steps",)

    def __init__(self, steps: int = MAX_ALL_STEPS) -> None:
        self.steps = steps

    @property
    def is_used_up(self) -> bool:
        """Whether more was asked for than there is."""
        return self.steps < 0

    def check(self) -> None:
        """Raise LimitFault when all is used up."""
        if self.is_used_up:
            raise LimitFault(_ALL_TOGETHER)


class Budget:
    """What one evaluation may still use; of the steps not more than there are in *allowance*."""

    __slots__ = ("_limit", "memory", "steps", "text")

    def __init__(self, allowance: Allowance | None = None) -> None:
        self.steps = MAX_STEPS if allowance is None else min(MAX_STEPS, max(allowance.steps, 0))
        self._limit = self.steps
        self.memory = MAX_MEMORY
        self.text = MAX_TEXTS

    def spend(self, steps: int) -> None:
        """Raise LimitFault when all is used up."""
        self.steps -= steps
        if self.steps < 0:
            alone = self._limit == MAX_STEPS
            raise LimitFault(f"the expression takes more than {MAX_STEPS} steps" if alone else _ALL_TOGETHER)

    @property
    def spent(self) -> int:
        """How many steps were taken."""
        return self._limit - self.steps

    def grow(self, items: int) -> None:
        """As :meth:`spend`, for items of lists and maps."""
        self.memory -= items
        if self.memory <= 0:
            raise LimitFault(f"memory budget exceeded: the expression makes more than {MAX_MEMORY} items")

    def write(self, characters: int) -> None:
        """As :meth:`spend`, for a text of that many characters."""
        self.text -= characters
        if characters > MAX_TEXT or self.text < 0:
            raise LimitFault(f"the expression makes a text of more than {MAX_TEXT} characters, or too many of them")

    def measure(self, value: Value) -> None:
        """Refuse what nests too deeply or would take too many steps to look at in full."""
        waiting: list[tuple[Value, int]] = [(value, 0)]
        while waiting:
            one, depth = waiting.pop()
            if depth > MAX_NESTING:
                raise LimitFault(f"the value nests more than {MAX_NESTING} deep")
            parts = _parts(one)
            if parts is not None:
                self.spend(len(parts) + 1)
                waiting.extend((part, depth + 1) for part in parts)


def _parts(value: Value) -> Sequence[Value] | None:
    if type(value) is list:
        return value
    if type(value) is dict:
        return list(value.values())
    if type(value) is AnyMap:
        return [part for pair in value.entries.values() for part in pair]
    if type(value) is Record:
        return list(value.values.values())
    if type(value) is Guess:
        return (value.value,)
    return None


@dataclass(frozen=True, slots=True)
class Record:
    """An object of Go's: its fields have names in Go and names in JSON, and either reads them."""

    type_name: str
    """As ``type()`` tells, e.g. ``github.com/akuity/kargo/api/v1alpha1.Image``."""
    values: Mapping[str, Value]
    """By their names in Go."""
    wire: Mapping[str, str]
    """For each name in JSON, that in Go; the JSON has these fields in this order."""
    keep_empty: frozenset[str] = frozenset()
    """Names in JSON of fields that are written when they are empty."""
    methods: Mapping[str, Function] = field(default_factory=dict)
    text: str | None = None
    """What ``string()`` gives and JSON has, where the object is a text in JSON."""

    def find(self, name: str) -> Value:
        """The field or method *name*. Raises Fault."""
        if name in self.values:
            return self.values[name]
        if name in self.wire:
            return self.values[self.wire[name]]
        go_name = name[:1].upper() + name[1:]
        if go_name in self.values:
            return self.values[go_name]
        if name in self.methods:
            return self.methods[name].bound(self)
        raise Fault(f"type {self.type_name} has no field {{}}; it has {', '.join(self.values) or 'none'}", name[:100])

    def written(self) -> dict[str, Value]:
        """The fields as JSON has them."""
        found = {name: self.values[go] for name, go in self.wire.items()}
        return {n: v for n, v in found.items() if n in self.keep_empty or v not in (None, "", [], {}, 0, False)}


@dataclass(frozen=True, slots=True)
class Guess:
    """A variable or an output whose text was taken for a number, a bool or JSON; the text is kept beside the guess.

    Operators and functions that need a string use the text, all others the guess.
    """

    value: Value
    """Never nil and never a string."""
    text: str


def guessed(value: Value) -> Value:
    """*value*, and of a guess what was guessed."""
    return value.value if type(value) is Guess else value


def as_text(value: Value) -> Value:
    """*value*, and of a guess the text."""
    return value.text if type(value) is Guess else value


@dataclass(frozen=True, slots=True)
class Function:
    """A function or a method; calling it is all that can be done with it."""

    name: str
    run: Callable[..., Value]
    least: int = 0
    most: int = 1_000
    of_texts: bool = True
    """Whether it needs strings, so that it gets the text of a guess."""

    @classmethod
    def of(cls, name: str, run: Callable[..., Value], *, of_texts: bool = True) -> Function:
        """A function that takes as many arguments as *run* does."""
        kinds = signature(run).parameters.values()
        positional = [p for p in kinds if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
        least = sum(p.default is p.empty for p in positional)
        any_number = any(p.kind is p.VAR_POSITIONAL for p in kinds)
        return cls(name, run, least, 1_000 if any_number else len(positional), of_texts)

    def bound(self, value: Value) -> Function:
        """The method of *value*."""
        run = self.run
        return Function(self.name, lambda *arguments: run(value, *arguments), max(self.least - 1, 0), self.most - 1)

    def call(self, arguments: Sequence[Value]) -> Value:
        """The value for *arguments*. Raises Fault."""
        if not self.least <= len(arguments) <= self.most:
            takes = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
            raise Fault(f"invalid number of arguments for {self.name} (expected {takes}, got {len(arguments)})")
        return self.run(*map(as_text if self.of_texts else guessed, arguments))


class AnyMap:
    """A map whose keys are of any type that can be one; 1 and 1.0 and true are three keys."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[tuple[type, Value], tuple[Value, Value]] = {}

    def get(self, key: Value) -> tuple[Value, Value] | None:
        """The key and the value at *key*. Raises Fault for what cannot be a key."""
        return self.entries.get(self._hash(key))

    def put(self, key: Value, value: Value) -> None:
        """Set *key*. Raises Fault for what cannot be one."""
        self.entries[self._hash(key)] = key, value

    @staticmethod
    def _hash(key: Value) -> tuple[type, Value]:
        if key is not None and type(key) not in {bool, int, float, str, Time, Duration, Zone}:
            raise Fault(f"a {type_name(key)} cannot be the key of a map")
        return type(key), key

    def named(self) -> dict[str, Value] | None:
        """As a map with texts as keys, if all are."""
        if all(type(key) is str for key, _ in self.entries.values()):
            return dict(self.entries.values())
        return None


_NAMES: Final = {
    type(None): "nil",
    bool: "bool",
    int: "int",
    float: "float",
    str: "string",
    bytes: "array",
    list: "array",
    dict: "map",
    AnyMap: "map",
    Function: "func",
    Time: "time.Time",
    Duration: "time.Duration",
    Zone: "time.Location",
}


def type_name(value: Value) -> str:
    """What ``type()`` gives."""
    if type(value) is Record:
        return value.type_name
    if type(value) is Guess:
        return type_name(value.value)
    if type(value) is Named:
        return f"time.{value.kind}"
    return _NAMES.get(type(value), "unknown")


def wrap(number: int) -> int:
    """*number* as 64 bits hold it."""
    return ((number + _SIGN) & _WORD) - _SIGN


def is_number(value: Value) -> bool:
    """Whether *value* is an int or a float."""
    return type(value) is int or type(value) is float


def to_int(value: Value) -> int:
    """*value* as an index or a count. Raises Fault."""
    if type(value) is int:
        return value
    if type(value) is float:
        return truncate(value)
    if type(value) is Named:
        return value.value
    raise Fault(f"invalid operation: int({type_name(value)})")


def saturated(number: int) -> int:
    """*number*, or the nearest to it that 64 bits hold."""
    return max(-_SIGN, min(number, _SIGN - 1))


def truncate(value: float) -> int:
    """The whole part; what is out of range becomes the least integer, as with Go on amd64."""
    if not -9.3e18 < value < 9.3e18:
        return -_SIGN
    whole = int(value)
    return whole if -_SIGN <= whole < _SIGN else -_SIGN


def to_bool(value: Value) -> bool:
    """*value*, which must be a bool. Raises Fault."""
    value = guessed(value)
    if type(value) is bool:
        return value
    raise Fault(f"a bool is needed here, not {article(value)}")


def text_key(key: Value) -> str:
    """*key* of a map whose keys are strings; nil is "" there. Raises Fault."""
    if key is not None and type(key) is not str:
        raise Fault(f"cannot use {type_name(key)} as the key of a map whose keys are strings")
    return key or ""


def article(value: Value) -> str:
    """The type of *value* as an error says it."""
    return "nil" if value is None else f"a value of type {type_name(value)}"
