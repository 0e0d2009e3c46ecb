"""What of a result that was made with Secrets is secret besides its whole text: what stands in it, and what it becomes.

Steps get the parts of a list or a map one by one, and tell one of them. What stands in the open, in the template or in
what else an expression reads, is none of them: an output, or a message, would miss it. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

from kargo_py.expressions.analysis import parts, uses
from kargo_py.expressions.errors import Fault
from kargo_py.expressions.evaluator import Expression
from kargo_py.expressions.numbers import format_json_float, parse_float
from kargo_py.expressions.tree import Literal
from kargo_py.expressions.values import Budget, Value, as_text
from kargo_py.expressions.writing import from_json

SHORTEST_DERIVED: Final = 8
"""What is shorter, as yes or prod, says nothing of the secret it was made of."""
_MOST_OPEN: Final = 5000
"""Values looked at in what an expression reads; what is beyond is taken for secret where it stands beside one."""
_NUMBER: Final = re.compile(r"[-+.0-9eE]+")
_BETWEEN_QUOTES: Final = re.compile(r'(?:[^"\\]+|\\.)+', re.DOTALL)


def list_or_map(text: str) -> Any:
    """What *text* says in JSON, None if that is neither."""
    if text[:1] not in {"[", "{"}:
        return None
    try:
        return from_json(text, Budget())
    except Fault:
        return None


def written(number: float) -> str:
    """*number* as it is looked for."""
    return format_json_float(number) if math.isfinite(number) else ""


def inner(value: Any, most: int | None = None) -> Iterator[str | float]:
    """Texts, names and numbers in *value* that are long enough to say something; of the first *most* values in it."""
    for one in islice(_all_in(value), most):
        if isinstance(one, str):
            if len(one) >= SHORTEST_DERIVED:
                yield one
        elif isinstance(one, int | float) and not isinstance(one, bool) and len(written(one)) >= SHORTEST_DERIVED:
            yield one


def _all_in(value: Any) -> Iterator[Any]:
    """*value* and all that is in it, names, too."""
    waiting = [value]
    while waiting:
        one = as_text(waiting.pop())
        yield one
        if isinstance(one, Mapping):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one


def names_in(value: Any) -> Iterator[str]:
    """The names of all maps in *value*."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield from one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def open_in_text(pieces: Iterable[str | None]) -> set[str]:
    """What stands in the open in a text in JSON, given in *pieces*: None is one that does not."""
    text = "".join('"' if piece is None else piece for piece in pieces)
    numbers = (parse_float(found) for found in _NUMBER.findall(text) if len(found) >= SHORTEST_DERIVED)
    texts = map(_unescaped, _BETWEEN_QUOTES.findall(text))
    return {*texts, *(written(number) for number in numbers if number is not None)}


def _unescaped(text: str) -> str:
    """What *text* says between quotes in JSON; *text* if that is nothing."""
    if "\\" not in text:
        return text
    try:
        return str(from_json(f'"{text}"', Budget()))
    except Fault:
        return text


def open_in(expression: Expression, names: Mapping[str, Value], hidden: Container[str]) -> set[str]:
    """What stands in the open in *expression*, or in what of *names* it reads, *hidden* variables left out."""
    literals = [part.value for part in parts(expression.tree) if isinstance(part, Literal)]
    read = (inner(_at(names, each.path, hidden), _MOST_OPEN) for each in uses(expression.tree).reads)
    found = chain(inner(literals), *read)
    return {each if isinstance(each, str) else written(each) for each in found}


def _at(names: Mapping[str, Value], path: tuple[str, ...], hidden: Container[str]) -> Any:
    """What stands at *path*, or as far as there are maps."""
    value: Any = names
    for index, name in enumerate(path):
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
        if path[0] == "vars" and index == 0:
            value = {name: each for name, each in value.items() if name not in hidden}
    return value
