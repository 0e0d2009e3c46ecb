"""Values of JSON to be handed to code of others, which may change them: what is kept, and the caches, stay as they are.

What is nested deep, or large, needs no more than its own room.
"""

from __future__ import annotations

from typing import Any

from kargo_py.expressions.values import Guess


def copied(value: Any) -> Any:
    """*value* with all lists and maps in it anew."""
    made = [value]
    waiting: list[tuple[Any, Any]] = [(made, 0)]
    while waiting:
        home, at = waiting.pop()
        one = home[at]
        if isinstance(one, dict):
            new: Any = dict(one)
            waiting += [(new, name) for name in new]
        elif isinstance(one, list):
            new = list(one)
            waiting += [(new, index) for index in range(len(new))]
        elif isinstance(one, Guess):
            # What was guessed has no guesses in it
            new = Guess(copied(one.value), one.text)
        else:
            continue
        home[at] = new
    return made[0]
