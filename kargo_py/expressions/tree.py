"""The parts of an expression. ``at`` is the index of the character that errors point at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Node: TypeAlias = (
    "Literal | Name | Unary | Binary | Comparison | Conditional | Member | Chain | Slice | Call | Builtin | Predicate "
    "| Pointer | Let | Sequence | Array | Map"
)


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, text, bool, nil or bytes."""

    value: bool | int | float | str | bytes | None
    at: int


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, a function or a part of the environment."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Unary:
    """``not x``, ``-x``, ``+x``."""

    operator: str
    operand: Node
    at: int


@dataclass(frozen=True, slots=True)
class Binary:
    """``left operator right``."""

    operator: str
    left: Node
    right: Node
    at: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """``first < second <= third``: true if each neighbouring pair is in order; each is evaluated at most once."""

    first: Node
    rest: tuple[tuple[str, Node, int], ...]
    at: int


@dataclass(frozen=True, slots=True)
class Conditional:
    """``condition ? yes : no``; without *yes*, the condition is the value: ``condition ?: no``."""

    condition: Node
    yes: Node | None
    no: Node
    at: int


@dataclass(frozen=True, slots=True)
class Member:
    """``object.key`` and ``object[key]``; *optional* ends the chain at nil."""

    object: Node
    key: Node
    optional: bool
    at: int


@dataclass(frozen=True, slots=True)
class Chain:
    """As far as a ``?.`` within may jump."""

    node: Node
    at: int


@dataclass(frozen=True, slots=True)
class Slice:
    """``object[start:end]``."""

    object: Node
    start: Node | None
    end: Node | None
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the environment, or a method of a value."""

    callee: Node
    arguments: tuple[Node, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Builtin:
    """A function of the language."""

    name: str
    arguments: tuple[Node, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Predicate:
    """What a builtin evaluates for each item."""

    body: Node
    at: int


@dataclass(frozen=True, slots=True)
class Pointer:
    """``#``, ``#index`` and ``#acc``; ``.field`` within a predicate is a member of ``#``."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Let:
    """``let name = value; body``."""

    name: str
    value: Node
    body: Node
    at: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """``a; b``: the value is that of the last."""

    nodes: tuple[Node, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Array:
    """``[a, b]``."""

    items: tuple[Node, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Map:
    """``{key: value}``."""

    pairs: tuple[tuple[Node, Node], ...]
    at: int
