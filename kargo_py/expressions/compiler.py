"""A tree compiled: for each of its parts a function, made once and called in each evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kargo_py.expressions.analysis import parts
from kargo_py.expressions.builtins import call_builtin
from kargo_py.expressions.compiled import Code, Nil, Positioned, Run, guarded
from kargo_py.expressions.errors import Fault
from kargo_py.expressions.members import cut, fetch
from kargo_py.expressions.operators import OPERATIONS, compare, negative, positive, reconciled, reconciling
from kargo_py.expressions.parser import PREDICATES
from kargo_py.expressions.predicates import Loop, predicate_builtin
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
from kargo_py.expressions.values import Function, Guess, Value, article, as_text, guessed, to_bool, to_int


def compile_tree(node: Node) -> Code:
    """What *node* and all below it come to, in a Run."""
    return _COMPILERS[type(node)](node)


# Operands


def _literal(node: Literal) -> Code:
    value = node.value
    return lambda _: value


def _name(node: Name) -> Code:
    name = node.name
    if name == "$env":
        return lambda r: dict(r.environment)

    def run(r: Run) -> Value:
        if name in r.variables:
            return r.variables[name]
        if name in r.functions:
            return r.functions[name]
        return r.environment.get(name)

    return run


def _pointer(node: Pointer) -> Code:
    if node.name == "index":
        return lambda r: r.index
    if node.name == "acc":
        return lambda r: r.total
    return lambda r: r.item


def _array(node: Array) -> Code:
    codes = [compile_tree(item) for item in node.items]

    def run(r: Run) -> Value:
        r.budget.grow(len(codes))
        return [code(r) for code in codes]

    return guarded(node.at, run)


def _map(node: Map) -> Code:
    codes = [(compile_tree(key), compile_tree(value)) for key, value in node.pairs]

    def run(r: Run) -> Value:
        r.budget.grow(len(codes))
        made: dict[str, Value] = {}
        for key_code, value_code in codes:
            key = as_text(key_code(r))
            if type(key) is not str:
                raise Fault(f"the key of a map must be a string, not {article(key)}")
            made.setdefault(key, value_code(r))  # of a key given twice, the first holds
        return made

    return guarded(node.at, run)


# Operators


def _unary(node: Unary) -> Code:
    code = compile_tree(node.operand)
    match node.operator:
        case "not":
            return guarded(node.at, lambda r: not to_bool(code(r)))
        case "-":
            return guarded(node.at, lambda r: negative(guessed(code(r))))
    return guarded(node.at, lambda r: positive(guessed(code(r))))


def _binary(node: Binary) -> Code:
    """The whole chain of operators to the left, so that a long sum is no deep one."""
    links: list[Binary] = []
    first: Node = node
    while isinstance(first, Binary):
        links.append(first)
        first = first.left
    begin = compile_tree(first)
    steps = [_link(link) for link in reversed(links)]
    if len(steps) == 1:
        only = steps[0]
        return lambda r: only(r, begin(r))

    def run(r: Run) -> Value:
        value = begin(r)
        for step in steps:
            value = step(r, value)
        return value

    return run


def _link(node: Binary) -> Callable[[Run, Value], Value]:
    right, at = compile_tree(node.right), node.at
    match node.operator:
        case "and" | "or" as operator:
            return _logical(operator == "or", right, at)
        case "??":
            return lambda r, left: right(r) if left is None else left
    apply, reconcile = OPERATIONS[node.operator], reconciling(node.operator)

    def run(r: Run, left: Value) -> Value:
        other = right(r)
        if reconcile is not None and (type(left) is Guess or type(other) is Guess):
            left, other = reconcile(left, other)
        try:
            return apply(left, other, r.budget)
        except Fault as fault:
            raise Positioned(fault, at) from None

    return run


def _logical(decided: bool, right: Code, at: int) -> Callable[[Run, Value], Value]:
    def run(r: Run, left: Value) -> Value:
        left = guessed(left)
        if type(left) is not bool:
            raise Positioned(Fault(f"a bool is needed here, not {article(left)}"), at)
        return left if left is decided else right(r)

    return run


def _comparison(node: Comparison) -> Code:
    first = compile_tree(node.first)
    rest = [(operator, compile_tree(operand), at) for operator, operand, at in node.rest]

    def run(r: Run) -> Value:
        left = first(r)
        for operator, code, at in rest:
            right = code(r)
            try:
                if not compare(operator, *reconciled(left, right)):
                    return False
            except Fault as fault:
                raise Positioned(fault, at) from None
            left = right
        return True

    return run


def _conditional(node: Conditional) -> Code:
    condition, no = compile_tree(node.condition), compile_tree(node.no)
    yes = None if node.yes is None else compile_tree(node.yes)

    def run(r: Run) -> Value:
        if not to_bool(condition(r)):
            return no(r)
        return True if yes is None else yes(r)

    return guarded(node.at, run)


# Members


def _member(node: Member) -> Code:
    """The whole chain of members to the left, as for operators."""
    links: list[Member] = []
    first: Node = node
    while isinstance(first, Member):
        links.append(first)
        first = first.object
    begin = compile_tree(first)
    steps = [
        (compile_tree(link.key), link.optional, isinstance(link.key, Literal), link.at) for link in reversed(links)
    ]

    def run(r: Run) -> Value:
        value = begin(r)
        for code, optional, stated, at in steps:
            if optional and value is None:
                raise Nil
            key = code(r)
            try:
                value = fetch(value, key, stated=stated)
            except Fault as fault:
                raise Positioned(fault, at) from None
        return value

    return run


def _chain(node: Chain) -> Code:
    code = compile_tree(node.node)

    def run(r: Run) -> Value:
        try:
            return code(r)
        except Nil:
            return None

    return run


def _slice(node: Slice) -> Code:
    code = compile_tree(node.object)
    bounds = [None if bound is None else compile_tree(bound) for bound in (node.start, node.end)]

    def run(r: Run) -> Value:
        value = code(r)
        start, end = (None if bound is None else to_int(guessed(bound(r))) for bound in bounds)
        return cut(value, start, end, r.budget)

    return guarded(node.at, run)


def _call(node: Call) -> Code:
    callee = compile_tree(node.callee)
    arguments = [compile_tree(argument) for argument in node.arguments]
    name = node.callee.name if isinstance(node.callee, Name) else ""

    def run(r: Run) -> Value:
        function = callee(r)
        given = [argument(r) for argument in arguments]
        if type(function) is not Function:
            if name and function is None:
                raise Fault(f"there is no function {name[:100]}")
            raise Fault(f"invalid operation: cannot call {article(function)}")
        r.budget.spend(10)
        return function.call(given)

    return guarded(node.at, run)


# Statements


def _let(node: Let) -> Code:
    name, value, body = node.name, compile_tree(node.value), compile_tree(node.body)

    def run(r: Run) -> Value:
        r.variables[name] = value(r)
        try:
            return body(r)
        finally:
            del r.variables[name]

    return run


def _sequence(node: Sequence) -> Code:
    codes = [compile_tree(one) for one in node.nodes]

    def run(r: Run) -> Value:
        value = None
        for code in codes:
            value = code(r)
        return value

    return run


# Builtins


def _builtin(node: Builtin) -> Code:
    if node.name in PREDICATES:
        return _predicate_builtin(node)
    name, arguments = node.name, [compile_tree(argument) for argument in node.arguments]
    return guarded(node.at, lambda r: call_builtin(name, [argument(r) for argument in arguments], r.call))


def _predicate_builtin(node: Builtin) -> Code:
    source, *others = node.arguments
    predicate = others[0] if others else Pointer("", node.at)
    body = predicate.body if isinstance(predicate, Predicate) else predicate
    loop = Loop(compile_tree(body), _weight(body) + 2)
    more = compile_tree(others[1]) if len(others) > 1 else None
    return guarded(node.at, predicate_builtin(node.name, compile_tree(source), loop, more))


def _weight(node: Node) -> int:
    """How many parts a predicate has; not those of predicates in it, which count each time they are asked."""
    return sum(1 for _ in parts(node, but=Predicate))


_COMPILERS: Final[Mapping[type, Callable[..., Code]]] = {
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
