"""What an expression will read and call, found without evaluating it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

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
    Predicate,
    Sequence,
    Slice,
    Unary,
)

_WHOLE: Final = "$env"
_COSTLY: Final = frozenset({"repeat", "now"})
"""Builtins that are slow, or that give another value each time."""


@dataclass(frozen=True, slots=True)
class Read:
    """A part of the environment that is read: ``outputs.update.commit`` has the path (outputs, update, commit).

    The path ends where a key is not constant. ``optional`` says of each member, those beyond the path too, whether it
    is reached by ``?.``. ``sure``: evaluating the expression always comes here. ``excused``: nil in its place is
    provided for, by ``??`` or a comparison with nil.
    """

    path: tuple[str, ...]
    optional: tuple[bool, ...]
    at: int
    sure: bool
    excused: bool

    @property
    def fetches(self) -> int:
        """How many members are fetched."""
        return len(self.optional)

    def needs(self, index: int) -> bool:
        """Whether nil at ``path[index]`` is an error, because a member of it is fetched without ``?.``."""
        return index < len(self.optional) and not self.optional[index]


@dataclass(frozen=True, slots=True)
class Called:
    """A function of the environment that is called, and the members of its result that are read."""

    name: str
    arguments: tuple[Node, ...]
    members: tuple[str, ...]
    optional: tuple[bool, ...]
    at: int
    sure: bool


@dataclass(frozen=True, slots=True)
class Uses:
    """All that an expression reads and calls, in the order of its text."""

    reads: tuple[Read, ...]
    calls: tuple[Called, ...]
    everything: bool = False
    """Whether it reads the environment as a whole besides."""


@dataclass(frozen=True, slots=True)
class _Here:
    """A part of the tree, and what is known of it from what is around it."""

    node: Node
    sure: bool = True
    excused: bool = False
    bound: frozenset[str] = frozenset()

    def inner(self, *nodes: Node | None, sure: bool = True, excused: bool = False) -> list[_Here]:
        """*nodes* within this part."""
        return [_Here(node, self.sure and sure, excused, self.bound) for node in nodes if node is not None]


@dataclass(slots=True)
class _Search:
    reads: list[Read] = field(default_factory=list)
    calls: list[Called] = field(default_factory=list)
    waiting: list[_Here] = field(default_factory=list)
    everything: bool = False

    def run(self, tree: Node) -> Uses:
        self.waiting.append(_Here(tree))
        while self.waiting:
            self._visit(self.waiting.pop())
        return Uses(
            tuple(sorted(self.reads, key=lambda read: read.at)),
            tuple(sorted(self.calls, key=lambda call: call.at)),
            self.everything,
        )

    def _visit(self, here: _Here) -> None:
        match here.node:
            case Name() | Member() | Call() | Chain():
                self.chain(here)
            case Binary(operator=("and" | "or"), left=left, right=right):
                self.waiting += [*here.inner(left), *here.inner(right, sure=False)]
            case Binary(operator="??", left=left, right=right):
                self.waiting += here.inner(left, excused=True)
                self.waiting += here.inner(right, sure=False, excused=here.excused)
            case Binary(operator=("==" | "!="), left=left, right=right):
                nil = [isinstance(side, Literal) and side.value is None for side in (left, right)]
                self.waiting += [*here.inner(left, excused=nil[1]), *here.inner(right, excused=nil[0])]
            case Binary(left=left, right=right):
                self.waiting += here.inner(left, right)
            case Comparison(first=first, rest=rest):
                self.waiting += here.inner(first, rest[0][1])
                self.waiting += here.inner(*(operand for _, operand, _ in rest[1:]), sure=False)
            case Conditional(condition=condition, yes=yes, no=no):
                self.waiting += [*here.inner(condition), *here.inner(yes, no, sure=False, excused=here.excused)]
            case Predicate(body=body):
                self.waiting += here.inner(body, sure=False)
            case Let(name=name, value=value, body=body):
                self.waiting += here.inner(value)
                self.waiting.append(_Here(body, here.sure, here.excused, here.bound | {name}))
            case Map(pairs=pairs):
                self.waiting += here.inner(*(part for pair in pairs for part in pair))
            case Unary(operand=operand):
                self.waiting += here.inner(operand)
            case Slice(object=one, start=start, end=end):
                self.waiting += here.inner(one, start, end)
            case Builtin(arguments=nodes) | Array(items=nodes) | Sequence(nodes=nodes):
                self.waiting += here.inner(*nodes)
            case _:
                pass

    def chain(self, here: _Here) -> None:
        """A name or a call with the members that follow it."""
        base, links = _unchained(here.node)
        keys = [link.key for link in links]
        constant = tuple(_constant_keys(keys))
        optional = tuple(link.optional for link in links)
        self.waiting += here.inner(*keys[len(constant) :])
        match base:
            case Name(name=name, at=at) if name not in here.bound:
                if name == _WHOLE and constant:
                    self.reads.append(Read(constant, optional[1:], at, here.sure, here.excused))
                elif name == _WHOLE:
                    self.everything = True
                else:
                    self.reads.append(Read((name, *constant), optional, at, here.sure, here.excused))
            case Name():
                pass
            case Call(callee=Name(name=name, at=at), arguments=arguments):
                self.waiting += here.inner(*arguments)
                if name not in here.bound:
                    self.calls.append(Called(name, arguments, constant, optional, at, here.sure))
            case Call(callee=callee, arguments=arguments):
                self.waiting += here.inner(callee, *arguments)
            case _:
                self.waiting += here.inner(base)


def _unchained(node: Node) -> tuple[Node, list[Member]]:
    """What a chain of members begins with, and the members in their order."""
    links: list[Member] = []
    while isinstance(node, Member | Chain):
        if isinstance(node, Member):
            links.append(node)
            node = node.object
        else:
            node = node.node
    links.reverse()
    return node, links


def _constant_keys(keys: list[Node]) -> Iterator[str]:
    for key in keys:
        if not (isinstance(key, Literal) and isinstance(key.value, str)):
            return
        yield key.value


def uses(tree: Node) -> Uses:
    """What *tree* reads and calls."""
    return _Search().run(tree)


def parts(tree: Node, *, but: type[Node] | None = None) -> Iterator[Any]:
    """All parts of *tree*, itself too, in no order; those of the type *but* are left out with all that is in them."""
    waiting: list[Any] = [tree]
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            waiting.extend(one)
        elif hasattr(one, "at") and type(one) is not but:
            yield one
            waiting.extend(getattr(one, name) for name in type(one).__slots__)


def is_constant(tree: Node, found: Uses, functions: frozenset[str] = frozenset()) -> bool:
    """Whether *tree* has but one value, which is quickly found: of what it uses, only *functions* are allowed."""
    if found.reads or any(call.name not in functions for call in found.calls):
        return False
    return not any(_is_costly(part) for part in parts(tree))


def _is_costly(part: object) -> bool:
    match part:
        case Builtin(name=name):
            return name in _COSTLY
        case Binary(operator=operator):
            return operator in {"..", "**"}
        case Name(name=name):
            return name == _WHOLE
    return isinstance(part, Predicate)


def outcomes(tree: Node) -> Iterator[Node]:
    """The parts of which one is the value of *tree*."""
    waiting = [tree]
    while waiting:
        match waiting.pop():
            case Binary(operator="??", left=left, right=right):
                waiting += [right, left]
            case Conditional(yes=yes, no=no):
                waiting += [no] if yes is None else [no, yes]
            case Let(body=body):
                waiting.append(body)
            case node:
                yield node


def chain(node: Node) -> Read | Called | None:
    """*node*, if it is a name or a call with members and nothing else."""
    if not isinstance(node, Name | Member | Call | Chain):
        return None
    search = _Search()
    search.chain(_Here(node))
    found: list[Read | Called] = [*search.reads, *search.calls]
    return found[0] if found else None
