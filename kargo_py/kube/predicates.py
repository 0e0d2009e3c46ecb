"""Which changes of an object matter: pure functions over (old, new), combined with ``|``, ``&`` and ``~``.

``old`` is None for an object that is new to the cache, ``new`` is None for one that is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Predicate(Generic[T]):
    """Says whether a change passes; make one of any function over (old, new)."""

    __slots__ = ("_passes",)

    def __init__(self, passes: Callable[[T | None, T | None], bool]) -> None:
        self._passes = passes

    def __call__(self, old: T | None, new: T | None) -> bool:
        return self._passes(old, new)

    def __or__(self, other: Predicate[T]) -> Predicate[T]:
        return Predicate(lambda old, new: self(old, new) or other(old, new))

    def __and__(self, other: Predicate[T]) -> Predicate[T]:
        return Predicate(lambda old, new: self(old, new) and other(old, new))

    def __invert__(self) -> Predicate[T]:
        return Predicate(lambda old, new: not self(old, new))


def always() -> Predicate[T]:
    """Every change."""
    return Predicate(lambda _old, _new: True)


def created() -> Predicate[T]:
    """The object is new to the cache."""
    return Predicate(lambda old, new: old is None and new is not None)


def deleted() -> Predicate[T]:
    """The object is gone."""
    return Predicate(lambda old, new: old is not None and new is None)


def changed(aspect: Callable[[T], object]) -> Predicate[T]:
    """*aspect* differs between an old and a new version; creation and deletion do not pass."""
    return Predicate(lambda old, new: old is not None and new is not None and aspect(old) != aspect(new))
