"""Outputs of steps: checked, bounded, and kept in ``status.state`` as Kargo keeps them, by alias. Pure.

The text that a value was guessed from stands beside under a key of ours, so that later steps have it after a restart,
too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kargo_py.api.promotion import PromotionStatus
from kargo_py.api.stamp import OUR_PREFIX, TEXTS_KEY
from kargo_py.expressions.functions import SEPARATOR
from kargo_py.expressions.values import Guess, Value
from kargo_py.kube.codec import encode
from kargo_py.messages import Shown, message

OUTPUT_TOO_LARGE = message(
    "output of step {alias} is {size}, at most {most}",
    do="A Promotion keeps the outputs of its steps in its status, and an object can have 1.5 MiB. Put out less: a name "
    "or a digest instead of a file, say.",
    shown=Shown.PROMOTION,
)
OUTPUTS_TOO_LARGE = message(
    "output of step {alias} is {size}, and with it the Promotion would be {whole}, at most {most}",
    do="What the steps before put out takes the room, and the Promotion's own steps and variables do. Put out less.",
    shown=Shown.PROMOTION,
)
OUTPUT_NOT_JSON = message(
    "{path} of step {alias} is {what}, which is no JSON",
    do="A fault of the kind of step, which puts out what cannot be recorded. Tell its author.",
    shown=Shown.PROMOTION,
)

HEALTH_CHECK_TOO_LARGE = message(
    "the health check of step {alias} is {size}, at most {most}",
    do="A fault of the kind of step: what it leaves for the Stage to check is kept in the Promotion's status, and in "
    "the Stage's. Tell its author.",
    shown=Shown.PROMOTION,
)
UNREADABLE = message(
    "an object that raises {error} when it is read",
    do="Part of *is no JSON*: a fault of the kind of step. Tell its author.",
    shown=Shown.PROMOTION,
)

MOST_OUTPUT: Final = 512 * 1024
"""Bytes that the output of one step may take in the Promotion."""

MOST_PROMOTION: Final = 1024 * 1024
"""Bytes that a Promotion may have with an output that is added; records, messages and metadata need some more."""

_MOST_VALUES = 100_000
_DEEPEST = 64
_LEAST_INTEGER, _GREATEST_INTEGER = -(2**63), 2**63 - 1
_EXACT = 2**53
_PER_NAME = 8
"""Bytes that the API server's record of who wrote what has for each name of a field, besides the name itself."""


class OutputError(ValueError):
    """An output that cannot be recorded."""


class Output(dict[str, Any]):
    """An output as it is recorded: plain JSON, and by JSON pointer the texts of values that were guessed."""

    def __init__(self, values: Mapping[str, Any], texts: Mapping[str, str]) -> None:
        super().__init__(values)
        self.texts = dict(texts)


def checked_output(alias: str, output: Mapping[str, Any]) -> Output:
    """*output* of the step *alias* as it is recorded; raises OutputError.

    A name with null is left out, as an API server would when it is written.
    """
    walk = _Walk(alias)
    try:
        values = walk.mapping(output, "output", "", 0)
    except OutputError:
        raise
    except Exception as error:
        # A mapping of the step's own may do anything when it is read.
        what = UNREADABLE(error=type(error).__name__)
        raise OutputError(OUTPUT_NOT_JSON(alias=alias, path="output", what=what)) from error
    made = Output(values, walk.texts)
    size = len(encode(values)) + (len(encode(walk.texts)) if walk.texts else 0)
    if size > MOST_OUTPUT:
        raise OutputError(OUTPUT_TOO_LARGE(alias=alias, size=in_bytes(size), most=in_bytes(MOST_OUTPUT)))
    return made


def checked_health_check(alias: str, config: Any) -> Any:
    """The *config* of a health check that the step *alias* leaves, as plain JSON; raises OutputError."""
    try:
        made = _Walk(alias, keeps_null=True).plain(config, "healthCheck.config", "", 0)
    except OutputError:
        raise
    except Exception as error:
        what = UNREADABLE(error=type(error).__name__)
        raise OutputError(OUTPUT_NOT_JSON(alias=alias, path="healthCheck.config", what=what)) from error
    if (size := len(encode(made))) > MOST_OUTPUT:
        raise OutputError(HEALTH_CHECK_TOO_LARGE(alias=alias, size=in_bytes(size), most=in_bytes(MOST_OUTPUT)))
    return made


def check_room(alias: str, output: Output, promotion: Mapping[str, Any]) -> None:
    """Raise OutputError if *promotion*, JSON that has *output* in it already, is too large with it."""
    state = (promotion.get("status") or {}).get("state") or {}
    whole = len(encode(promotion)) + sum(len(name) + _PER_NAME for name in _names(state))
    if whole > MOST_PROMOTION:
        size, most = in_bytes(len(encode(dict(output)))), in_bytes(MOST_PROMOTION)
        raise OutputError(OUTPUTS_TOO_LARGE(alias=alias, size=size, whole=in_bytes(whole), most=most))


def in_bytes(size: int) -> str:
    """*size* for people, rounded up: ``2.3 MiB``."""
    if size < 1024:
        return f"{size} bytes"
    return f"{_short(size / 1024)} KiB" if size < 1024 * 1024 else f"{_short(size / 1024 / 1024)} MiB"


def _short(number: float) -> str:
    return f"{math.ceil(number * 10) / 10:.1f}".removesuffix(".0")


class _Walk:
    """Makes plain JSON of an output; bounded, since what a step puts out may refer to itself."""

    def __init__(self, alias: str, *, keeps_null: bool = False) -> None:
        self.texts: dict[str, str] = {}
        self._alias = alias
        self._keeps_null = keeps_null
        self._values = 0
        self._characters = 0

    def mapping(self, value: Mapping[Any, Any], path: str, pointer: str, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, item in value.items():
            if not isinstance(name, str):
                raise self._fault(path, f"an object with the name {name!r:.80}")
            if item is not None or self._keeps_null:
                text = self._text(name, path)
                made[text] = self.plain(item, f"{path}.{text[:80]}", f"{pointer}/{_escaped(text)}", depth + 1)
        return made

    def plain(self, value: Any, path: str, pointer: str, depth: int) -> Any:
        self._values += 1
        if depth > _DEEPEST or self._values > _MOST_VALUES:
            raise self._fault("output", f"nested more than {_DEEPEST} deep, or more than {_MOST_VALUES} values")
        if isinstance(value, Guess):
            self.texts[pointer] = self._text(value.text, path)
            return self.plain(value.value, path, pointer, depth + 1)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, int | float):
            return self._number(value, path)
        if isinstance(value, Mapping):
            return self.mapping(value, path, pointer, depth)
        if isinstance(value, list | tuple):
            return [self.plain(v, f"{path}[{i}]", f"{pointer}/{i}", depth + 1) for i, v in enumerate(value)]
        raise self._fault(path, f"of type {type(value).__name__:.80}")

    def _number(self, value: float, path: str) -> float:
        if isinstance(value, int):
            if not _LEAST_INTEGER <= value <= _GREATEST_INTEGER:
                raise self._fault(path, "an integer of more than 64 bits")
            return int(value)
        if value - value != 0:
            raise self._fault(path, f"the number {value}")
        # JSON does not tell 42.0 from 42: what is read back after a restart would be another value.
        return int(value) if value.is_integer() and abs(value) < _EXACT else float(value)

    def _text(self, value: str, path: str) -> str:
        self._characters += len(value)
        if self._characters > 64 * MOST_OUTPUT:
            size = f"more than {in_bytes(64 * MOST_OUTPUT)}"
            raise OutputError(OUTPUT_TOO_LARGE(alias=self._alias, size=size, most=in_bytes(MOST_OUTPUT)))
        text = str.__str__(value)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise self._fault(path, "a text with half a character") from error
        return text

    def _fault(self, path: str, what: str) -> OutputError:
        return OutputError(OUTPUT_NOT_JSON(alias=self._alias, path=path[:500], what=what))


def _names(value: Any) -> Iterator[str]:
    """The names in *value* that an API server keeps account of one by one; lists count as a whole."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield from one
            waiting += one.values()


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _unescaped(name: str) -> str:
    return name.replace("~1", "/").replace("~0", "~")


def _state(status: PromotionStatus) -> dict[str, Any]:
    return dict(status.state) if isinstance(status.state, dict) else {}


def output_of(status: PromotionStatus, alias: str) -> Any:
    """What the step *alias* has put out so far, None if nothing."""
    return _state(status).get(alias)


def with_output(
    status: PromotionStatus, alias: str, output: Mapping[str, Any], *, propagates: bool = False
) -> PromotionStatus:
    """*status* with *output* as that of the step *alias*; with *propagates* also within that of its task."""
    state = _state(status)
    known = state.get(TEXTS_KEY)
    texts: dict[str, Any] = dict(known) if isinstance(known, dict) else {}
    own = dict(output.texts) if isinstance(output, Output) else {}
    state[alias], texts[alias] = dict(output), own
    task = alias.rpartition(SEPARATOR)[0]
    if propagates and task:
        before = state.get(task)
        state[task] = {**(before if isinstance(before, dict) else {}), **output}
        kept = texts.get(task)
        left = kept if isinstance(kept, dict) else {}
        # Those of names that are put out anew are not their texts any more.
        texts[task] = {**{p: t for p, t in left.items() if not output.keys() & _path(p)[:1]}, **own}
    texts = {name: its for name, its in texts.items() if its}
    state.pop(TEXTS_KEY, None)
    return status.replace(state={**state, TEXTS_KEY: texts} if texts else state)


def outputs_of(status: PromotionStatus) -> dict[str, Value]:
    """All outputs by alias, as expressions have them: guesses with their texts."""
    state = _state(status)
    texts = state.get(TEXTS_KEY)
    outputs: dict[str, Value] = {name: value for name, value in state.items() if not name.startswith(OUR_PREFIX)}
    for alias, own in texts.items() if isinstance(texts, dict) else ():
        if alias in outputs and isinstance(own, dict):
            outputs[alias] = _with_texts(outputs[alias], {_path(pointer): text for pointer, text in own.items()})
    return outputs


def _path(pointer: str) -> tuple[str, ...]:
    return tuple(_unescaped(part) for part in pointer.split("/")[1:])


def _with_texts(value: Any, texts: Mapping[tuple[str, ...], Any]) -> Value:
    """*value* with the texts of its guesses; what was edited by somebody since stays as it is."""
    if () in texts:
        text = texts[()]
        return Guess(value, text) if isinstance(text, str) and not isinstance(value, str | None) else value
    below: dict[str, dict[tuple[str, ...], Any]] = {}
    for path, text in texts.items():
        below.setdefault(path[0], {})[path[1:]] = text
    if isinstance(value, dict):
        return {name: _with_texts(item, below[name]) if name in below else item for name, item in value.items()}
    if isinstance(value, list):
        indexed = enumerate(value)
        return [_with_texts(item, below[str(index)]) if str(index) in below else item for index, item in indexed]
    return value
