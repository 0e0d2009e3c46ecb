"""What is in a value: members, slices, and the items that a predicate is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from kargo_py.expressions.errors import Fault
from kargo_py.expressions.methods import METHODS
from kargo_py.expressions.values import (
    AnyMap,
    Budget,
    Guess,
    Record,
    Value,
    article,
    guessed,
    is_number,
    text_key,
    to_int,
    type_name,
)


def fetch(value: Value, key: Value, *, stated: bool) -> Value:
    """The member *key* of *value*; *stated*: the key stands in the expression itself. Raises Fault."""
    value, key = _read(value, key)
    match value:
        case dict():
            return value.get(text_key(key))
        case list() | bytes():
            return value[index_of(value, key)]
        case str():
            return ord(value[index_of(value, key)])
        case Record() if type(key) is str:
            return value.find(key)
        case AnyMap():
            found = value.get(key)
            return found[1] if found else None
    named = key[:100] if type(key) is str else article(key)
    methods = METHODS.get(type(value))
    if methods and type(key) is str and key in methods:
        return methods[key].bound(value)
    kind = "<nil>" if value is None else type_name(value)
    raise Fault(f"cannot fetch {named} from {kind}") if stated else Fault(f"cannot fetch {{}} from {kind}", named)


def get(value: Value, key: Value) -> Value:
    """What ``get()`` finds: the member *key* of *value*, nil where there is none. Raises Fault."""
    value, key = _read(value, key)
    match value:
        case None:
            return None
        case list() | bytes() | str():
            try:
                index = index_of(value, key)
            except Fault:
                if not is_number(key):
                    raise
                return None
            return ord(value[index]) if type(value) is str else value[index]
        case dict():
            return value.get(text_key(key))
        case AnyMap():
            found = value.get(key)
            return found[1] if found else None
        case Record() if type(key) is str:
            try:
                return value.find(key)
            except Fault:
                return None
    return None


def _read(value: Value, key: Value) -> tuple[Value, Value]:
    """A guess as what it is taken for, but as its text where it is the name of a member."""
    value = guessed(value)
    if type(key) is Guess:
        key = key.text if type(value) in {dict, Record} else key.value
    return value, key


def index_of(value: Sequence[Value], key: Value) -> int:
    """The place in *value* that *key* names, from the end where it is negative. Raises Fault."""
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
