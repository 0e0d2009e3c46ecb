"""Values and what operators do with them, as Go does: 64-bit integers, floats, and no quiet conversion.

A value is nil (None), a bool, an int, a float, a text, bytes, a list, a dict with texts as keys, or one of the types
below. Nothing else enters, and no attribute of any Python object can be named by an expression.
"""

from __future__ import annotations

import math
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


def article(value: Value) -> str:
    """The type of *value* as an error says it."""
    return "nil" if value is None else f"a value of type {type_name(value)}"


def _mismatch(operator: str, left: Value, right: Value) -> Fault:
    return Fault(f"invalid operation: {operator} (mismatched types {type_name(left)} and {type_name(right)})")


def reconciled(left: Value, right: Value) -> tuple[Value, Value]:
    """Both sides of an operator: a guess beside a string is its text, else what was guessed."""
    if type(left) is not Guess and type(right) is not Guess:
        return left, right
    if type(left) is str or type(right) is str:
        return as_text(left), as_text(right)
    return guessed(left), guessed(right)


def add(left: Value, right: Value, budget: Budget) -> Value:
    """``left + right``."""
    if type(left) is int and type(right) is int:
        return wrap(left + right)
    if is_number(left) and is_number(right):
        return float(left) + float(right)
    if type(left) is str and type(right) is str:
        budget.write(len(left) + len(right))
        return left + right
    match left, right:
        case Time(), Duration():
            return Time(left.nanoseconds + right.nanoseconds, left.zone)
        case Duration(), Time():
            return Time(left.nanoseconds + right.nanoseconds, right.zone)
        case Duration(), Duration():
            return Duration(wrap(left.nanoseconds + right.nanoseconds))
    raise _mismatch("+", left, right)


def subtract(left: Value, right: Value, _budget: Budget) -> Value:
    """``left - right``."""
    if type(left) is int and type(right) is int:
        return wrap(left - right)
    if is_number(left) and is_number(right):
        return float(left) - float(right)
    match left, right:
        case Time(), Time():
            between = left.nanoseconds - right.nanoseconds
            return Duration(max(-_SIGN, min(between, _SIGN - 1)))
        case Time(), Duration():
            return Time(left.nanoseconds - right.nanoseconds, left.zone)
        case Duration(), Duration():
            return Duration(wrap(left.nanoseconds - right.nanoseconds))
    raise _mismatch("-", left, right)


def multiply(left: Value, right: Value, _budget: Budget) -> Value:
    """``left * right``."""
    if type(left) is int and type(right) is int:
        return wrap(left * right)
    if is_number(left) and is_number(right):
        return _float(lambda: float(left) * float(right))
    numbers = [v.nanoseconds if type(v) is Duration else v for v in (left, right)]
    if (type(left) is Duration or type(right) is Duration) and all(map(is_number, numbers)):
        if float in map(type, numbers):
            return Duration(truncate(float(numbers[0]) * float(numbers[1])))
        return Duration(wrap(numbers[0] * numbers[1]))
    raise _mismatch("*", left, right)


def divide(left: Value, right: Value, _budget: Budget) -> Value:
    """``left / right``, always a float."""
    if not (is_number(left) and is_number(right)):
        raise _mismatch("/", left, right)
    over, under = float(left), float(right)
    if under == 0:
        if over == 0 or math.isnan(over):
            return math.nan
        return math.copysign(math.inf, over) * math.copysign(1, under)
    return over / under


def modulo(left: Value, right: Value, _budget: Budget) -> Value:
    """``left % right`` with the sign of *left*."""
    if type(left) is not int or type(right) is not int:
        raise _mismatch("%", left, right)
    if right == 0:
        raise Fault("integer divide by zero")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def power(left: Value, right: Value, _budget: Budget) -> Value:
    """``left ** right``, always a float."""
    if not (is_number(left) and is_number(right)):
        raise _mismatch("**", left, right)
    base, exponent = float(left), float(right)
    try:
        return math.pow(base, exponent)
    except OverflowError:
        odd = exponent.is_integer() and exponent % 2 == 1
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        if base == 0:  # to a negative power
            odd = exponent.is_integer() and exponent % 2 == 1
            return math.copysign(math.inf, base) if odd else math.inf
        return math.nan


def _float(compute: Callable[[], float]) -> float:
    try:
        return compute()
    except OverflowError:
        return math.inf


def compare(operator: str, left: Value, right: Value) -> bool:
    """``left < right`` and its kin, of two numbers, texts, times or durations."""
    if is_number(left) and is_number(right):
        # Go compares an int with a float as floats
        one, other = (left, right) if type(left) is type(right) else (float(left), float(right))
    elif type(left) is type(right) and type(left) in {str, Time, Duration}:
        one, other = (left, right) if type(left) is str else (left.nanoseconds, right.nanoseconds)
    else:
        raise _mismatch(operator, left, right)
    match operator:
        case "<":
            return bool(one < other)
        case ">":
            return bool(one > other)
        case "<=":
            return bool(one <= other)
    return bool(one >= other)


def equal(left: Value, right: Value, budget: Budget) -> bool:
    """``left == right``; lists are compared by items, and maps where even 1 and 1.0 differ."""
    budget.spend(1)
    left, right = reconciled(left, right)
    kinds = type(left), type(right)
    if kinds[0] is not kinds[1]:
        if is_number(left) and is_number(right):
            return float(left) == float(right)
        if set(kinds) == {dict, AnyMap}:
            one, other = (left, right) if kinds[0] is dict else (right, left)
            named = other.named()
            return named is not None and equal(one, named, budget)
        return False
    if kinds[0] is list:
        budget.measure(left)
        budget.measure(right)
        return len(left) == len(right) and all(equal(a, b, budget) for a, b in zip(left, right, strict=True))
    if kinds[0] in {dict, AnyMap, Record}:
        budget.measure(left)
        budget.measure(right)
        return identical(left, right)
    if kinds[0] is Time:
        return bool(left.nanoseconds == right.nanoseconds)
    if kinds[0] is Function:
        return False
    return bool(left == right)


def identical(left: Value, right: Value) -> bool:
    """Whether values are the same in type and in all parts. Both must have been measured."""
    left, right = reconciled(left, right)
    if type(left) is not type(right):
        return False
    match left:
        case list():
            return len(left) == len(right) and all(map(identical, left, right))
        case dict():
            return left.keys() == right.keys() and all(identical(left[key], right[key]) for key in left)
        case AnyMap():
            same = left.entries.keys() == right.entries.keys()
            return same and all(identical(left.entries[key], right.entries[key]) for key in left.entries)
        case tuple():
            return len(left) == len(right) and all(map(identical, left, right))
        case Record():
            return (left.type_name, left.text) == (right.type_name, right.text) and identical(
                dict(left.values), dict(right.values)
            )
        case Function():
            return False
    return bool(left == right)


def contains(needle: Value, hay: Value, budget: Budget) -> bool:
    """``needle in hay``."""
    hay = guessed(hay)
    match hay:
        case None:
            return False
        case list():
            return any(equal(item, needle, budget) for item in hay)
        case bytes():
            return type(needle) is int and needle in range(256) and needle in hay
        case dict():
            needle = as_text(needle)
            if needle is not None and type(needle) is not str:
                raise Fault(f"cannot use {type_name(needle)} as the key of a map whose keys are strings")
            return (needle or "") in hay
        case AnyMap():
            return hay.get(guessed(needle)) is not None
        case Record():
            needle = as_text(needle)
            if type(needle) is not str:
                raise Fault(f"cannot use {type_name(needle)} as field name of {hay.type_name}")
            return needle in hay.values or needle in hay.wire
    raise Fault(f'operator "in" not defined on {type_name(hay)}')


def index_of(value: Sequence[Value], key: Value) -> int:
    """The place in *value* that *key* names, from the end where it is negative. Raises Fault."""
    key = guessed(key)
    index = to_int(key)
    if index < 0:
        index += len(value)
    if not 0 <= index < len(value):
        raise Fault("index out of range: {} (array length is {})", index, len(value))
    return index


def cut(value: Value, start: Value, end: Value, budget: Budget) -> Value:
    """``value[start:end]``; bounds out of range are moved in, None means all there is."""
    if type(value) is Guess:
        value = value.value if type(value.value) is list else value.text
    if type(value) not in {list, str, bytes}:
        raise Fault(f"cannot slice {type_name(value)}")
    length = len(value)
    low = 0 if start is None else to_int(start)
    high = length if end is None else to_int(end)
    low = max(0, low + length if low < 0 else low)
    high = min(length, max(0, high + length if high < 0 else high))
    low = min(low, high)
    if type(value) is list:
        budget.spend(high - low)
        budget.grow(high - low)
    else:
        budget.write(high - low)
    return value[low:high]


def items(value: Value) -> list[Value]:
    """What a predicate is asked for each of. Raises Fault for what has no items."""
    value = guessed(value)
    if type(value) is list:
        return value
    if type(value) is bytes:
        return list(value)
    if type(value) is str:
        return [ord(char) for char in value]
    raise Fault(f"an array is needed here, not {article(value)}")
