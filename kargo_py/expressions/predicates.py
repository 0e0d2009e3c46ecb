"""The functions of the language that ask a predicate of each item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kargo_py.expressions.builtins import sort_by
from kargo_py.expressions.compiled import Code, Run
from kargo_py.expressions.errors import Fault
from kargo_py.expressions.members import items
from kargo_py.expressions.operators import add
from kargo_py.expressions.values import AnyMap, Value, guessed, to_bool


class Loop:
    """Asks a predicate of each item."""

    __slots__ = ("body", "weight")

    def __init__(self, body: Code, weight: int) -> None:
        """*weight*: how many steps it takes to ask once."""
        self.body = body
        self.weight = weight

    def __call__(self, r: Run, found: Value, *, backward: bool = False) -> Iterator[tuple[int, Value, Value]]:
        """Index, item and what the predicate says of it."""
        listed = items(found)
        before = r.item, r.index
        for index in range(len(listed) - 1, -1, -1) if backward else range(len(listed)):
            r.budget.spend(self.weight)
            r.item, r.index = listed[index], index
            try:
                said = self.body(r)
            finally:
                r.item, r.index = before
            yield index, listed[index], said


def predicate_builtin(name: str, source: Code, loop: Loop, more: Code | None) -> Code:
    """The function *name* of the items of *source*; *more* is its third argument."""
    if name == "reduce":
        return _reduce(source, loop, more)
    if name == "sortBy":
        return _sort_by(source, loop, more)
    apply = _APPLY[name]
    return lambda r: apply(r, loop, source(r))


def _truths(r: Run, loop: Loop, found: Value, *, backward: bool = False) -> Iterator[tuple[int, Value, bool]]:
    for index, item, said in loop(r, found, backward=backward):
        yield index, item, to_bool(said)


def _find(r: Run, loop: Loop, found: Value, *, backward: bool) -> tuple[int | None, Value]:
    for index, item, truth in _truths(r, loop, found, backward=backward):
        if truth:
            return index, item
    return None, None


def _made(r: Run, made: list[Value]) -> list[Value]:
    r.budget.grow(len(made))
    return made


def _one(r: Run, loop: Loop, found: Value) -> bool:
    return sum(truth for _, _, truth in _truths(r, loop, found)) == 1


def _sum(r: Run, loop: Loop, found: Value) -> Value:
    total: Value = 0
    for _, _, said in loop(r, found):
        total = add(total, guessed(said), r.budget)
    return total


def _group(r: Run, loop: Loop, found: Value) -> Value:
    groups = AnyMap()
    for _, item, said in loop(r, found):
        key = guessed(said)
        r.budget.spend(5)
        known = groups.get(key)
        if known is None:
            groups.put(key, [item])
        else:
            known[1].append(item)
    return groups


_APPLY: Final[Mapping[str, Callable[[Run, Loop, Value], Value]]] = {
    "all": lambda r, loop, found: all(truth for _, _, truth in _truths(r, loop, found)),
    "none": lambda r, loop, found: not any(truth for _, _, truth in _truths(r, loop, found)),
    "any": lambda r, loop, found: any(truth for _, _, truth in _truths(r, loop, found)),
    "one": _one,
    "filter": lambda r, loop, found: _made(r, [item for _, item, truth in _truths(r, loop, found) if truth]),
    "map": lambda r, loop, found: _made(r, [said for _, _, said in loop(r, found)]),
    "count": lambda r, loop, found: sum(truth for _, _, truth in _truths(r, loop, found)),
    "sum": _sum,
    "find": lambda r, loop, found: _find(r, loop, found, backward=False)[1],
    "findIndex": lambda r, loop, found: _find(r, loop, found, backward=False)[0],
    "findLast": lambda r, loop, found: _find(r, loop, found, backward=True)[1],
    "findLastIndex": lambda r, loop, found: _find(r, loop, found, backward=True)[0],
    "groupBy": _group,
}


def _sort_by(source: Code, loop: Loop, more: Code | None) -> Code:
    order: Code = more or (lambda _: "asc")

    def run(r: Run) -> Value:
        found = source(r)
        keys = [guessed(said) for _, _, said in loop(r, found)]
        return _made(r, sort_by(items(found), keys, order(r), r.budget))

    return run


def _reduce(source: Code, loop: Loop, initial: Code | None) -> Code:
    def run(r: Run) -> Value:
        found = source(r)
        listed = items(found)
        before = r.item, r.index, r.total
        if initial is not None:
            total, start = initial(r), 0
        elif listed:
            total, start = listed[0], 1
        else:
            raise Fault("reduce of empty array with no initial value")
        try:
            for index in range(start, len(listed)):
                r.budget.spend(loop.weight)
                r.item, r.index, r.total = listed[index], index, total
                total = loop.body(r)
        finally:
            r.item, r.index, r.total = before
        return total

    return run
