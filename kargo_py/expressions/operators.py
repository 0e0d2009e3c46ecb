"""What operators do with values, as Go does: 64-bit integers, floats, and no quiet conversion."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from kargo_py.expressions.errors import Fault
from kargo_py.expressions.gotime import Duration, Time
from kargo_py.expressions.patterns import compiled
from kargo_py.expressions.values import (
    AnyMap,
    Budget,
    Function,
    Guess,
    Record,
    Value,
    article,
    as_text,
    guessed,
    is_number,
    saturated,
    text_key,
    to_int,
    truncate,
    type_name,
    wrap,
)


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
            return Duration(saturated(left.nanoseconds - right.nanoseconds))
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
            return text_key(as_text(needle)) in hay
        case AnyMap():
            return hay.get(guessed(needle)) is not None
        case Record():
            needle = as_text(needle)
            if type(needle) is not str:
                raise Fault(f"cannot use {type_name(needle)} as field name of {hay.type_name}")
            return needle in hay.values or needle in hay.wire
    raise Fault(f'operator "in" not defined on {type_name(hay)}')


def negative(value: Value) -> Value:
    """``-value``."""
    if type(value) is int:
        return wrap(-value)
    if type(value) is float:
        return -value
    raise Fault(f"invalid operation: - {type_name(value)}")


def positive(value: Value) -> Value:
    """``+value``."""
    if is_number(value):
        return value
    raise Fault(f"invalid operation: + {type_name(value)}")


def _texts(operator: str, compare: Callable[[str, str], bool]) -> Callable[[Value, Value, Budget], Value]:
    def apply(left: Value, right: Value, budget: Budget) -> bool:
        if left is None or right is None:
            return False
        if type(left) is not str or type(right) is not str:
            raise Fault(f"invalid operation: {operator} (of {article(left)} and {article(right)})")
        budget.spend(len(left) // 64)
        return compare(left, right)

    return apply


def _matches(left: Value, right: Value, budget: Budget) -> bool:
    if left is None or right is None:
        return False
    if type(left) is bytes:
        left = left.decode("utf-8", "replace")
    if type(left) is not str or type(right) is not str:
        raise Fault(f"invalid operation: matches (of {article(left)} and {article(right)})")
    return compiled(right).search(left, budget.spend)


def _range(left: Value, right: Value, budget: Budget) -> list[int]:
    low, high = to_int(left), to_int(right)
    budget.grow(max(high - low + 1, 0))
    return list(range(low, high + 1))


OPERATIONS: Final[Mapping[str, Callable[[Value, Value, Budget], Value]]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": modulo,
    "**": power,
    "==": equal,
    "!=": lambda left, right, budget: not equal(left, right, budget),
    "in": contains,
    "contains": _texts("contains", lambda left, right: right in left),
    "startsWith": _texts("startsWith", str.startswith),
    "endsWith": _texts("endsWith", str.endswith),
    "matches": _matches,
    "..": _range,
}
"""What each operator makes of its sides, where it always looks at both."""
_OF_TEXTS: Final = frozenset({"contains", "startsWith", "endsWith", "matches"})


def _both_texts(left: Value, right: Value) -> tuple[Value, Value]:
    return as_text(left), as_text(right)


def reconciling(operator: str) -> Callable[[Value, Value], tuple[Value, Value]] | None:
    """What makes both sides of *operator* plain where one is a guess; None: the operator takes guesses as they are."""
    if operator in {"in", "==", "!="}:
        return None
    return _both_texts if operator in _OF_TEXTS else reconciled
