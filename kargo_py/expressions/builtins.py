"""The functions of the language that take plain arguments; those that ask a predicate are in predicates."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Final

from kargo_py.expressions import gotime
from kargo_py.expressions.errors import Fault
from kargo_py.expressions.lexer import SPACES
from kargo_py.expressions.members import get
from kargo_py.expressions.numbers import parse_float, parse_int
from kargo_py.expressions.operators import compare, equal, reconciled
from kargo_py.expressions.values import (
    AnyMap,
    Budget,
    Guess,
    Value,
    article,
    as_text,
    guessed,
    is_number,
    to_int,
    type_name,
    wrap,
)
from kargo_py.expressions.writing import from_json, to_json, to_text


@dataclass(frozen=True, slots=True)
class Call:
    """What a builtin may use besides its arguments."""

    budget: Budget
    now: gotime.Time


@dataclass(frozen=True, slots=True)
class Rule:
    """A builtin: the numbers of arguments it takes, and what it does with them."""

    least: int
    most: int
    run: Callable[..., Value]


BUILTINS: Final[dict[str, Rule]] = {}


def _builtin(name: str, least: int, most: int | None = None) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    def declare(run: Callable[..., Value]) -> Callable[..., Value]:
        BUILTINS[name] = Rule(least, least if most is None else most, run)
        return run

    return declare


def call_builtin(name: str, arguments: list[Value], call: Call) -> Value:
    """The value of ``name(*arguments)``. Raises Fault."""
    rule = BUILTINS[name]
    if name not in _OF_EITHER and any(type(argument) is Guess for argument in arguments):
        arguments = [(as_text if name in _OF_TEXTS else guessed)(argument) for argument in arguments]
    if not rule.least <= len(arguments) <= rule.most:
        takes = str(rule.least) if rule.least == rule.most else f"{rule.least} to {rule.most}"
        raise Fault(f"invalid number of arguments for {name} (expected {takes}, got {len(arguments)})")
    for argument in arguments:
        if type(argument) in {str, list, dict, bytes}:
            call.budget.spend(len(argument) // (64 if type(argument) is str else 1))
    return rule.run(call, *arguments)


_OF_TEXTS: Final = frozenset(
    {
        *("string", "trim", "trimPrefix", "trimSuffix", "upper", "lower", "split", "splitAfter", "replace", "repeat"),
        *("indexOf", "lastIndexOf", "hasPrefix", "hasSuffix", "fromJSON", "toBase64", "fromBase64", "duration", "date"),
        "timezone",
    }
)
"""Of a guess, these take the text; of the count that some of them take, the text is read as a number."""

_OF_EITHER: Final = frozenset({"get"})
"""These decide by their other arguments: a guess is the name of a member as its text, a place in a list otherwise."""


def _wrong(name: str, value: Value) -> Fault:
    return Fault(f"invalid argument for {name} ({article(value)})")


def _text(name: str, value: Value) -> str:
    if type(value) is not str:
        raise _wrong(name, value)
    return value


def _count(value: Value) -> int:
    number = parse_float(value) if type(value) is str else None
    return to_int(value if number is None else number)


def _list(name: str, value: Value) -> list[Value]:
    if type(value) is bytes:
        return list(value)
    if type(value) is not list:
        raise _wrong(name, value)
    return value


def _made(call: Call, made: list[Value]) -> list[Value]:
    call.budget.grow(len(made))
    return made


def _written(call: Call, text: str) -> str:
    call.budget.write(len(text))
    return text


# What values are


@_builtin("len", 1)
def _len(_: Call, value: Value) -> Value:
    if type(value) is AnyMap:
        return len(value.entries)
    if type(value) not in {str, list, dict, bytes}:
        raise _wrong("len", value)
    return len(value)


@_builtin("type", 1)
def _type(_: Call, value: Value) -> Value:
    return type_name(value)


@_builtin("int", 1)
def _int(_: Call, value: Value) -> Value:
    if type(value) is str:
        number = parse_int(value)
        if number is None:
            raise Fault("invalid operation: int({})", value[:100])
        return number
    if type(value) is gotime.Duration:
        return value.nanoseconds
    return to_int(value)


@_builtin("float", 1)
def _to_float(_: Call, value: Value) -> Value:
    if type(value) is str:
        number = parse_float(value)
        if number is None:
            raise Fault("invalid operation: float({})", value[:100])
        return number
    if not is_number(value):
        raise Fault(f"invalid operation: float({type_name(value)})")
    return float(value)


@_builtin("string", 1)
def _string(call: Call, value: Value) -> Value:
    call.budget.measure(value)
    return _written(call, to_text(value))


# Numbers


@_builtin("abs", 1)
def _abs(_: Call, value: Value) -> Value:
    if not is_number(value):
        raise _wrong("abs", value)
    return wrap(abs(value)) if type(value) is int else abs(value)


def _rounding(name: str, apply: Callable[[float], float]) -> None:
    def run(_: Call, value: Value) -> Value:
        if not is_number(value):
            raise _wrong(name, value)
        number = float(value)
        return number if not math.isfinite(number) else math.copysign(apply(number), number)

    _builtin(name, 1)(run)


def _half_away(number: float) -> float:
    whole = math.floor(abs(number))
    return math.copysign(whole + (abs(number) - whole >= 0.5), number)


_rounding("ceil", lambda number: float(math.ceil(number)))
_rounding("floor", lambda number: float(math.floor(number)))
_rounding("round", _half_away)


def _numbers(name: str, values: tuple[Value, ...], call: Call) -> Iterator[Value]:
    """All numbers in *values*, those of lists within lists too."""
    for value in map(guessed, values):
        call.budget.measure(value)
        if is_number(value):
            yield value
        elif type(value) in {list, bytes}:
            yield from _numbers(name, tuple(value), call)
        else:
            raise _wrong(name, value)


def _extreme(name: str, operator: str) -> None:
    def run(call: Call, *values: Value) -> Value:
        if len(values) == 1 and not is_number(values[0]) and type(values[0]) not in {list, bytes}:
            raise _wrong(name, values[0])
        best = None
        for number in _numbers(name, values, call):
            if best is None or compare(operator, number, best):
                best = number
        return best

    _builtin(name, 1, 1000)(run)


_extreme("max", ">")
_extreme("min", "<")


@_builtin("mean", 1, 1000)
def _mean(call: Call, *values: Value) -> Value:
    numbers = [float(number) for number in _numbers("mean", values, call)]
    total = 0.0
    for number in numbers:
        total += number
    return total / len(numbers) if numbers else 0.0


@_builtin("median", 1, 1000)
def _median(call: Call, *values: Value) -> Value:
    numbers = sorted(float(number) for number in _numbers("median", values, call))
    if not numbers:
        return 0.0
    middle = len(numbers) // 2
    return numbers[middle] if len(numbers) % 2 else (numbers[middle - 1] + numbers[middle]) / 2


# Texts

_SPACE: Final = "".join(sorted(SPACES))


@_builtin("trim", 1, 2)
def _trim(call: Call, text: Value, characters: Value = _SPACE) -> Value:
    stripped = _text("trim", characters)
    whole = _text("trim", text)
    return _written(call, whole.strip(stripped) if stripped else whole)


@_builtin("trimPrefix", 1, 2)
def _trim_prefix(call: Call, text: Value, prefix: Value = " ") -> Value:
    return _written(call, _text("trimPrefix", text).removeprefix(_text("trimPrefix", prefix)))


@_builtin("trimSuffix", 1, 2)
def _trim_suffix(call: Call, text: Value, suffix: Value = " ") -> Value:
    return _written(call, _text("trimSuffix", text).removesuffix(_text("trimSuffix", suffix)))


def _cased(text: str, change: Callable[[str], str]) -> str:
    """Go changes each character alone, so that none becomes two."""
    if text.isascii():
        return change(text)
    changed = (change(char) for char in text)
    return "".join(new if len(new) == 1 else old for old, new in zip(text, changed, strict=True))


@_builtin("upper", 1)
def _upper(call: Call, text: Value) -> Value:
    return _written(call, _cased(_text("upper", text), str.upper))


@_builtin("lower", 1)
def _lower(call: Call, text: Value) -> Value:
    return _written(call, _cased(_text("lower", text), str.lower))


def _pieces(name: str, text: Value, separator: Value, most: Value) -> list[str]:
    whole, separator, count = _text(name, text), _text(name, separator), _count(most)
    if count == 0:
        return []
    if separator:
        return whole.split(separator, count - 1 if count > 0 else -1)
    if count < 0 or count >= len(whole):
        return list(whole)
    return [*whole[: count - 1], whole[count - 1 :]]


@_builtin("split", 2, 3)
def _split(call: Call, text: Value, separator: Value, most: Value = -1) -> Value:
    pieces = _pieces("split", text, separator, most)
    call.budget.write(len(text))
    return _made(call, pieces)


@_builtin("splitAfter", 2, 3)
def _split_after(call: Call, text: Value, separator: Value, most: Value = -1) -> Value:
    pieces = _pieces("splitAfter", text, separator, most)
    call.budget.write(len(text))
    return _made(call, [piece + separator for piece in pieces[:-1]] + pieces[-1:])


@_builtin("replace", 3, 4)
def _replace(call: Call, text: Value, old: Value, new: Value, most: Value = -1) -> Value:
    text, old, new, count = _text("replace", text), _text("replace", old), _text("replace", new), _count(most)
    found = text.count(old) if old else len(text) + 1
    times = found if count < 0 else min(found, count)
    call.budget.write(len(text) + times * (len(new) - len(old)))
    return text.replace(old, new, count)


@_builtin("repeat", 2)
def _repeat(call: Call, text: Value, count: Value) -> Value:
    text, times = _text("repeat", text), _count(count)
    if times < 0:
        raise Fault("invalid argument for repeat (expected positive integer, got {})", times)
    call.budget.write(len(text) * times)
    call.budget.grow(min(len(text) * times, 1 << 62))
    return text * min(times, 1 << 32) if text else ""


@_builtin("join", 1, 2)
def _join(call: Call, parts: Value, glue: Value = "") -> Value:
    glue = _text("join", glue)
    texts = [_text("join", as_text(part)) for part in _list("join", parts)]
    call.budget.write(sum(map(len, texts)) + len(glue) * max(len(texts) - 1, 0))
    return glue.join(texts)


def _search(name: str, find: Callable[[str, str], Value]) -> None:
    _builtin(name, 2)(lambda _, text, part: find(_text(name, text), _text(name, part)))


_search("indexOf", str.find)
_search("lastIndexOf", str.rfind)
_search("hasPrefix", lambda text, part: text.startswith(part))
_search("hasSuffix", lambda text, part: text.endswith(part))


# Conversions


@_builtin("toJSON", 1)
def _to_json(call: Call, value: Value) -> Value:
    call.budget.measure(value)
    return _written(call, to_json(value, "  "))


@_builtin("fromJSON", 1)
def _from_json(call: Call, text: Value) -> Value:
    return from_json(_text("fromJSON", text), call.budget)


@_builtin("toBase64", 1)
def _to_base64(call: Call, text: Value) -> Value:
    return _written(call, base64.b64encode(_text("toBase64", text).encode("utf-8", "replace")).decode())


@_builtin("fromBase64", 1)
def _from_base64(call: Call, text: Value) -> Value:
    try:
        decoded = base64.b64decode(_text("fromBase64", text).replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Fault("illegal base64 data") from error
    return _written(call, decoded.decode("utf-8", "replace"))


# Times


@_builtin("now", 0, 1)
def _now(call: Call, zone: Value = gotime.UTC_ZONE) -> Value:
    if type(zone) is not gotime.Zone:
        raise _wrong("now", zone)
    return gotime.Time(call.now.nanoseconds, zone)


@_builtin("duration", 1)
def _duration(_: Call, text: Value) -> Value:
    return gotime.parse_duration(_text("duration", text))


@_builtin("timezone", 1)
def _timezone(_: Call, name: Value) -> Value:
    return gotime.load_zone(_text("timezone", name))


@_builtin("date", 1, 4)
def _date(_: Call, *arguments: Value) -> Value:
    zone = arguments[0] if type(arguments[0]) is gotime.Zone else None
    rest = [_text("date", argument) for argument in (arguments if zone is None else arguments[1:])]
    if not 1 <= len(rest) <= 3:
        raise Fault(f"invalid number of arguments for date (got {len(arguments)})")
    if len(rest) == 3:
        zone = gotime.load_zone(rest[2])
    if len(rest) > 1:
        return gotime.parse_time(rest[1], rest[0], zone)
    for layout in gotime.NAMED_LAYOUTS:
        try:
            return gotime.parse_time(layout, rest[0], zone)
        except Fault:
            continue
    raise Fault("invalid date {}", rest[0][:100])


# Lists and maps


def _end(name: str, index: int) -> None:
    def run(_: Call, value: Value) -> Value:
        return get(value, index) if type(value) in {list, str, bytes} else None

    _builtin(name, 1)(run)


_end("first", 0)
_end("last", -1)


@_builtin("get", 2)
def _get(_: Call, value: Value, key: Value) -> Value:
    return get(value, key)


@_builtin("take", 2)
def _take(call: Call, value: Value, count: Value) -> Value:
    if type(count) is not int:
        raise _wrong("take", count)
    if count < 0:
        raise Fault("cannot take {} elements", count)
    return _made(call, _list("take", value)[:count])


def _pairs(name: str, value: Value) -> list[tuple[Value, Value]]:
    """Keys and values in the order of the keys, where Go has none."""
    if type(value) is dict:
        return sorted(value.items())
    if type(value) is AnyMap:
        return sorted(value.entries.values(), key=lambda pair: (type_name(pair[0]), to_text(pair[0])))
    raise _wrong(name, value)


@_builtin("keys", 1)
def _keys(call: Call, value: Value) -> Value:
    return _made(call, [key for key, _ in _pairs("keys", value)])


@_builtin("values", 1)
def _values(call: Call, value: Value) -> Value:
    return _made(call, [item for _, item in _pairs("values", value)])


@_builtin("toPairs", 1)
def _to_pairs(call: Call, value: Value) -> Value:
    return _made(call, [_made(call, [key, item]) for key, item in _pairs("toPairs", value)])


@_builtin("fromPairs", 1)
def _from_pairs(call: Call, value: Value) -> Value:
    made = AnyMap()
    for pair in _list("fromPairs", value):
        if type(pair) is not list or len(pair) != 2:
            raise Fault(f"invalid pair: a list of a key and a value is needed, not {article(pair)}")
        made.put(pair[0], pair[1])
    call.budget.grow(len(made.entries))
    return made


@_builtin("reverse", 1)
def _reverse(call: Call, value: Value) -> Value:
    return _made(call, _list("reverse", value)[::-1])


@_builtin("uniq", 1)
def _uniq(call: Call, value: Value) -> Value:
    made: list[Value] = []
    for item in _list("uniq", value):
        if not any(equal(item, other, call.budget) for other in made):
            made.append(item)
    return _made(call, made)


@_builtin("concat", 1, 1000)
def _concat(call: Call, *values: Value) -> Value:
    call.budget.grow(sum(len(_list("concat", value)) for value in values))
    return [item for value in values for item in value]


@_builtin("flatten", 1)
def _flatten(call: Call, value: Value) -> Value:
    call.budget.measure(_list("flatten", value))
    return _made(call, list(_flat(value)))


def _flat(value: Value) -> Iterator[Value]:
    for item in value:
        if type(item) in {list, bytes}:
            yield from _flat(item)
        else:
            yield item


@_builtin("sort", 1, 2)
def _sort(call: Call, value: Value, order: Value = "asc") -> Value:
    found = [] if value is None else _list("sort", value)
    return _made(call, sort_by(found, found, order, call.budget))


def sort_by(found: list[Value], keys: list[Value], order: Value, budget: Budget) -> list[Value]:
    """*found* in the order of *keys*; what is equal stays in its order. Raises Fault."""
    if order not in ("asc", "desc") or type(order) is not str:
        raise Fault(
            "invalid order {}, expected asc or desc",
            to_text(order)[:100] if type(order) is str else article(order),
        )

    def compared(left: Value, right: Value) -> int:
        budget.spend(1)
        left, right = reconciled(left, right)
        return -1 if compare("<", left, right) else int(compare(">", left, right))

    def by_key(one: int, other: int) -> int:
        return compared(keys[one], keys[other])

    places = sorted(range(len(keys)), key=cmp_to_key(by_key), reverse=order == "desc")
    return [found[place] for place in places]


# Bits


def _bits(name: str, apply: Callable[[int, int], int]) -> None:
    def run(_: Call, left: Value, right: Value) -> Value:
        for value in (left, right):
            if type(value) is not int:
                raise _wrong(name, value)
        if name in {"bitshl", "bitshr", "bitushr"} and right < 0:
            raise Fault("invalid operation: negative shift count {} (type int)", right)
        return wrap(apply(left, right))

    _builtin(name, 2)(run)


_bits("bitand", lambda x, y: x & y)
_bits("bitor", lambda x, y: x | y)
_bits("bitxor", lambda x, y: x ^ y)
_bits("bitnand", lambda x, y: x & ~y)
_bits("bitshl", lambda x, y: x << y if y < 64 else 0)
_bits("bitshr", lambda x, y: x >> min(y, 63))
_bits("bitushr", lambda x, y: (x & ((1 << 64) - 1)) >> y if y < 64 else 0)


@_builtin("bitnot", 1)
def _bitnot(_: Call, value: Value) -> Value:
    if type(value) is not int:
        raise _wrong("bitnot", value)
    return ~value
