"""Expressions evaluated: a tree becomes functions once, and is then run against environments.

Bounded in steps, in the number of items and characters made, and in depth. An expression reaches its environment, the
functions it is given and the time it is told, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TypeAlias

from kargo_py.expressions import gotime, values
from kargo_py.expressions.builtins import METHODS, Call as BuiltinCall, call_builtin, sort_by
from kargo_py.expressions.errors import ExpressionError, Fault, Kind
from kargo_py.expressions.parser import PREDICATES, parse
from kargo_py.expressions.patterns import compiled
from kargo_py.expressions.tree import (
    Array,
    Binary,
    Builtin,
    Call,
    Chain,
    Comparison,
    Conditional,
    Let,
    Literal,
    Map,
    Member,
    Name,
    Node,
    Pointer,
    Predicate,
    Sequence,
    Slice,
    Unary,
)
from kargo_py.expressions.values import (
    Allowance,
    AnyMap,
    Budget,
    Function,
    Guess,
    Record,
    Value,
    article,
    as_text,
    guessed,
    reconciled,
    type_name,
)

Functions: TypeAlias = Mapping[str, Function]
"""What an expression may call, by name; a function raises Fault for arguments it does not take."""


@dataclass(slots=True)
class _Run:
    """One evaluation under way."""

    environment: Mapping[str, Value]
    functions: Functions
    call: BuiltinCall
    budget: Budget
    variables: dict[str, Value] = field(default_factory=dict)
    item: Value = None
    index: int = 0
    total: Value = None


_Code: TypeAlias = Callable[[_Run], Value]


class _Nil(Exception):
    """The value before a ``?.`` is nil: the chain ends."""


@dataclass(frozen=True, slots=True)
class _Positioned(Exception):
    """A fault with the place where it happened; the source is known outside."""

    fault: Fault
    at: int


@dataclass(frozen=True)
class Expression:
    """An expression ready to be evaluated any number of times."""

    source: str
    tree: Node
    _code: _Code

    def evaluate(
        self,
        environment: Mapping[str, Value],
        functions: Functions | None = None,
        *,
        now: datetime | None = None,
        allowance: Allowance | None = None,
    ) -> Value:
        """The value in *environment*; without *now*, ``now()`` is 1970. Raises ExpressionError.

        What it takes is taken from *allowance*, if it is one of several expressions.
        """
        budget = Budget(allowance)
        moment = gotime.Time.of(now or datetime.fromtimestamp(0, UTC))
        run = _Run(environment, functions or {}, BuiltinCall(budget, moment), budget)
        try:
            if allowance is not None:
                allowance.check()
            value = self._code(run)
            budget.measure(value)
        except _Positioned as error:
            raise _placed(error.fault, self.source, error.at) from None
        except Fault as fault:
            raise _placed(fault, self.source, self.tree.at) from None
        except RecursionError:
            raise _too_deep(self.source) from None
        finally:
            if allowance is not None:
                allowance.steps -= budget.spent
        return value


def _placed(fault: Fault, source: str, at: int) -> ExpressionError:
    return ExpressionError(str(fault), source, at, fault.kind, untold=fault.untold)


def _too_deep(source: str) -> ExpressionError:
    """The parser's own limit comes first, unless the caller has left little of the stack."""
    return ExpressionError("the expression nests too deeply", source, 0, Kind.LIMIT)


REMEMBERED_LENGTH: Final = 500
"""Longer sources are prepared anew each time, so that what is remembered takes some 60 MB at worst."""


@lru_cache(maxsize=256)
def _prepared(source: str) -> Expression:
    try:
        tree = parse(source)
        return Expression(source, tree, _compile(tree))
    except RecursionError:
        raise _too_deep(source) from None


def prepare(source: str) -> Expression:
    """The expression that *source* is. Raises ExpressionError where it is none."""
    if len(source) > REMEMBERED_LENGTH:
        return _prepared.__wrapped__(source)
    return _prepared(source)


def evaluate(
    source: str,
    environment: Mapping[str, Value],
    functions: Functions | None = None,
    *,
    now: datetime | None = None,
) -> Value:
    """The value of *source*; as :meth:`Expression.evaluate`."""
    return prepare(source).evaluate(environment, functions, now=now)


def _compile(node: Node) -> _Code:
    return _COMPILERS[type(node)](node)


def _guarded(at: int, code: _Code) -> _Code:
    """*code*, whose faults happen at *at*."""

    def run(r: _Run) -> Value:
        try:
            return code(r)
        except Fault as fault:
            raise _Positioned(fault, at) from None

    return run


# Operands


def _literal(node: Literal) -> _Code:
    value = node.value
    return lambda _: value


def _name(node: Name) -> _Code:
    name = node.name
    if name == "$env":
        return lambda r: dict(r.environment)

    def run(r: _Run) -> Value:
        if name in r.variables:
            return r.variables[name]
        if name in r.functions:
            return r.functions[name]
        return r.environment.get(name)

    return run


def _pointer(node: Pointer) -> _Code:
    if node.name == "index":
        return lambda r: r.index
    if node.name == "acc":
        return lambda r: r.total
    return lambda r: r.item


def _array(node: Array) -> _Code:
    codes = [_compile(item) for item in node.items]

    def run(r: _Run) -> Value:
        r.budget.grow(len(codes))
        return [code(r) for code in codes]

    return _guarded(node.at, run)


def _map(node: Map) -> _Code:
    codes = [(_compile(key), _compile(value)) for key, value in node.pairs]

    def run(r: _Run) -> Value:
        r.budget.grow(len(codes))
        made: dict[str, Value] = {}
        for key_code, value_code in codes:
            key = as_text(key_code(r))
            if type(key) is not str:
                raise Fault(f"the key of a map must be a string, not {article(key)}")
            made.setdefault(key, value_code(r))  # of a key given twice, the first holds
        return made

    return _guarded(node.at, run)


# Operators


def _unary(node: Unary) -> _Code:
    code = _compile(node.operand)
    match node.operator:
        case "not":
            return _guarded(node.at, lambda r: not values.to_bool(code(r)))
        case "-":
            return _guarded(node.at, lambda r: _negative(guessed(code(r))))
    return _guarded(node.at, lambda r: _positive(guessed(code(r))))


def _negative(value: Value) -> Value:
    if type(value) is int:
        return values.wrap(-value)
    if type(value) is float:
        return -value
    raise Fault(f"invalid operation: - {type_name(value)}")


def _positive(value: Value) -> Value:
    if values.is_number(value):
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
    low, high = values.to_int(left), values.to_int(right)
    budget.grow(max(high - low + 1, 0))
    return list(range(low, high + 1))


_OPERATIONS: Final[Mapping[str, Callable[[Value, Value, Budget], Value]]] = {
    "+": values.add,
    "-": values.subtract,
    "*": values.multiply,
    "/": values.divide,
    "%": values.modulo,
    "**": values.power,
    "==": values.equal,
    "!=": lambda left, right, budget: not values.equal(left, right, budget),
    "in": values.contains,
    "contains": _texts("contains", lambda left, right: right in left),
    "startsWith": _texts("startsWith", str.startswith),
    "endsWith": _texts("endsWith", str.endswith),
    "matches": _matches,
    "..": _range,
}


_OF_TEXTS: Final = frozenset({"contains", "startsWith", "endsWith", "matches"})


def _both_texts(left: Value, right: Value) -> tuple[Value, Value]:
    return as_text(left), as_text(right)


def _binary(node: Binary) -> _Code:
    """The whole chain of operators to the left, so that a long sum is no deep one."""
    links: list[Binary] = []
    first: Node = node
    while isinstance(first, Binary):
        links.append(first)
        first = first.left
    begin = _compile(first)
    steps = [_link(link) for link in reversed(links)]
    if len(steps) == 1:
        only = steps[0]
        return lambda r: only(r, begin(r))

    def run(r: _Run) -> Value:
        value = begin(r)
        for step in steps:
            value = step(r, value)
        return value

    return run


def _link(node: Binary) -> Callable[[_Run, Value], Value]:
    right, at = _compile(node.right), node.at
    match node.operator:
        case "and" | "or" as operator:
            return _logical(operator == "or", right, at)
        case "??":
            return lambda r, left: right(r) if left is None else left
    apply = _OPERATIONS[node.operator]
    reconcile = _both_texts if node.operator in _OF_TEXTS else reconciled
    # Membership looks at a guess itself: beside a list it is no string
    apart = node.operator not in {"in", "==", "!="}

    def run(r: _Run, left: Value) -> Value:
        other = right(r)
        if apart and (type(left) is Guess or type(other) is Guess):
            left, other = reconcile(left, other)
        try:
            return apply(left, other, r.budget)
        except Fault as fault:
            raise _Positioned(fault, at) from None

    return run


def _logical(decided: bool, right: _Code, at: int) -> Callable[[_Run, Value], Value]:
    def run(r: _Run, left: Value) -> Value:
        left = guessed(left)
        if type(left) is not bool:
            raise _Positioned(Fault(f"a bool is needed here, not {article(left)}"), at)
        return left if left is decided else right(r)

    return run


def _comparison(node: Comparison) -> _Code:
    first = _compile(node.first)
    rest = [(operator, _compile(operand), at) for operator, operand, at in node.rest]

    def run(r: _Run) -> Value:
        left = first(r)
        for operator, code, at in rest:
            right = code(r)
            try:
                if not values.compare(operator, *reconciled(left, right)):
                    return False
            except Fault as fault:
                raise _Positioned(fault, at) from None
            left = right
        return True

    return run


def _conditional(node: Conditional) -> _Code:
    condition, no = _compile(node.condition), _compile(node.no)
    yes = None if node.yes is None else _compile(node.yes)

    def run(r: _Run) -> Value:
        if not values.to_bool(condition(r)):
            return no(r)
        return True if yes is None else yes(r)

    return _guarded(node.at, run)


# Members


def _fetch(value: Value, key: Value, *, stated: bool) -> Value:
    """The member *key* of *value*; *stated*: the key stands in the expression itself."""
    value = guessed(value)
    if type(key) is Guess:
        key = key.text if type(value) in {dict, Record} else key.value
    match value:
        case dict():
            if key is not None and type(key) is not str:
                raise Fault(f"cannot use {type_name(key)} as the key of a map whose keys are strings")
            return value.get(key or "")
        case list() | bytes():
            return value[values.index_of(value, key)]
        case str():
            return ord(value[values.index_of(value, key)])
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


def _member(node: Member) -> _Code:
    """The whole chain of members to the left, as for operators."""
    links: list[Member] = []
    first: Node = node
    while isinstance(first, Member):
        links.append(first)
        first = first.object
    begin = _compile(first)
    steps = [(_compile(link.key), link.optional, isinstance(link.key, Literal), link.at) for link in reversed(links)]

    def run(r: _Run) -> Value:
        value = begin(r)
        for code, optional, stated, at in steps:
            if optional and value is None:
                raise _Nil
            key = code(r)
            try:
                value = _fetch(value, key, stated=stated)
            except Fault as fault:
                raise _Positioned(fault, at) from None
        return value

    return run


def _chain(node: Chain) -> _Code:
    code = _compile(node.node)

    def run(r: _Run) -> Value:
        try:
            return code(r)
        except _Nil:
            return None

    return run


def _slice(node: Slice) -> _Code:
    code = _compile(node.object)
    bounds = [None if bound is None else _compile(bound) for bound in (node.start, node.end)]

    def run(r: _Run) -> Value:
        value = code(r)
        start, end = (None if bound is None else values.to_int(guessed(bound(r))) for bound in bounds)
        return values.cut(value, start, end, r.budget)

    return _guarded(node.at, run)


def _call(node: Call) -> _Code:
    callee = _compile(node.callee)
    arguments = [_compile(argument) for argument in node.arguments]
    name = node.callee.name if isinstance(node.callee, Name) else ""

    def run(r: _Run) -> Value:
        function = callee(r)
        given = [argument(r) for argument in arguments]
        if type(function) is not Function:
            if name and function is None:
                raise Fault(f"there is no function {name[:100]}")
            raise Fault(f"invalid operation: cannot call {article(function)}")
        r.budget.spend(10)
        return function.call(given)

    return _guarded(node.at, run)


# Statements


def _let(node: Let) -> _Code:
    name, value, body = node.name, _compile(node.value), _compile(node.body)

    def run(r: _Run) -> Value:
        r.variables[name] = value(r)
        try:
            return body(r)
        finally:
            del r.variables[name]

    return run


def _sequence(node: Sequence) -> _Code:
    codes = [_compile(one) for one in node.nodes]

    def run(r: _Run) -> Value:
        value = None
        for code in codes:
            value = code(r)
        return value

    return run


# Builtins


def _builtin(node: Builtin) -> _Code:
    if node.name in PREDICATES:
        return _predicate_builtin(node)
    name = node.name
    arguments = [_compile(argument) for argument in node.arguments]
    return _guarded(node.at, lambda r: call_builtin(name, [argument(r) for argument in arguments], r.call))


def _weight(node: Node) -> int:
    """How many parts a predicate has."""
    waiting: list[object] = [node]
    weight = 0
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            waiting.extend(one)
        elif type(one) in _COMPILERS:
            weight += 1
            waiting.extend(getattr(one, name) for name in type(one).__slots__)  # type: ignore[attr-defined]
    return weight


class _Loop:
    """Asks a predicate of each item."""

    __slots__ = ("body", "weight")

    def __init__(self, predicate: Node) -> None:
        body = predicate.body if isinstance(predicate, Predicate) else predicate
        self.body = _compile(body)
        self.weight = _weight(body) + 2

    def __call__(self, r: _Run, found: Value, *, backward: bool = False) -> Iterator[tuple[int, Value, Value]]:
        """Index, item and what the predicate says of it."""
        listed = list(values.items(found))
        before = r.item, r.index
        try:
            for index in range(len(listed) - 1, -1, -1) if backward else range(len(listed)):
                r.budget.spend(self.weight)
                r.item, r.index = listed[index], index
                yield index, listed[index], self.body(r)
                r.item, r.index = before
        finally:
            r.item, r.index = before


def _predicate_builtin(node: Builtin) -> _Code:
    source = _compile(node.arguments[0])
    loop = _Loop(node.arguments[1]) if len(node.arguments) > 1 else _Loop(Pointer("", node.at))
    if node.name == "reduce":
        return _guarded(node.at, _reduce(source, loop, node))
    if node.name == "sortBy":
        return _guarded(node.at, _sort_by(source, loop, node))
    apply = _APPLY[node.name]
    return _guarded(node.at, lambda r: apply(r, loop, source(r)))


def _truths(r: _Run, loop: _Loop, found: Value, *, backward: bool = False) -> Iterator[tuple[int, Value, bool]]:
    for index, item, said in loop(r, found, backward=backward):
        yield index, item, values.to_bool(said)


def _find(r: _Run, loop: _Loop, found: Value, *, backward: bool) -> tuple[int | None, Value]:
    for index, item, truth in _truths(r, loop, found, backward=backward):
        if truth:
            return index, item
    return None, None


def _made(r: _Run, made: list[Value]) -> list[Value]:
    r.budget.grow(len(made))
    return made


def _one(r: _Run, loop: _Loop, found: Value) -> bool:
    return sum(truth for _, _, truth in _truths(r, loop, found)) == 1


def _sum(r: _Run, loop: _Loop, found: Value) -> Value:
    total: Value = 0
    for _, _, said in loop(r, found):
        total = values.add(total, guessed(said), r.budget)
    return total


def _group(r: _Run, loop: _Loop, found: Value) -> Value:
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


_APPLY: Final[Mapping[str, Callable[[_Run, _Loop, Value], Value]]] = {
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


def _sort_by(source: _Code, loop: _Loop, node: Builtin) -> _Code:
    order = _compile(node.arguments[2]) if len(node.arguments) > 2 else lambda _: "asc"

    def run(r: _Run) -> Value:
        found = source(r)
        keys = [guessed(said) for _, _, said in loop(r, found)]
        return _made(r, sort_by(list(values.items(found)), keys, order(r), r.budget))

    return run


def _reduce(source: _Code, loop: _Loop, node: Builtin) -> _Code:
    initial = _compile(node.arguments[2]) if len(node.arguments) > 2 else None

    def run(r: _Run) -> Value:
        found = source(r)
        listed = list(values.items(found))
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


_COMPILERS: Final[Mapping[type, Callable[..., _Code]]] = {
    Literal: _literal,
    Name: _name,
    Unary: _unary,
    Binary: _binary,
    Comparison: _comparison,
    Conditional: _conditional,
    Member: _member,
    Chain: _chain,
    Slice: _slice,
    Call: _call,
    Builtin: _builtin,
    Pointer: _pointer,
    Let: _let,
    Sequence: _sequence,
    Array: _array,
    Map: _map,
}
