"""What expressions read while they are evaluated, and what of it must stay secret.

Evaluation itself reads nothing. A function that needs an object asks :class:`Lookups`; if the object is not there yet,
:class:`Missing` ends the evaluation, the caller reads the object and evaluates again. Each is read once for one step.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

from kargo_py.expressions.analysis import uses
from kargo_py.expressions.evaluator import Expression
from kargo_py.expressions.hiding import MASK, Secrecy, Secrets, bare
from kargo_py.expressions.secret_parts import (
    SHORTEST_DERIVED,
    inner,
    list_or_map,
    names_in,
    open_in,
    open_in_text,
    written,
)
from kargo_py.expressions.values import QUICK_STEPS, Allowance, Value

_MOST: Final = 100
"""Objects that the expressions of one step may read."""
_MOST_TEXT: Final = 4 * 1024 * 1024
"""Characters in them; a ConfigMap or a Secret may have a million each."""

Result = TypeVar("Result")


class Source(StrEnum):
    """The kinds of objects that functions read."""

    CONFIG_MAP = "configMap"
    SECRET = "secret"  # noqa: S105 - the name of a function
    SHARED_CONFIG_MAP = "sharedConfigMap"
    SHARED_SECRET = "sharedSecret"  # noqa: S105 - as above
    FREIGHT_METADATA = "freightMetadata"
    FREIGHT_STATUS = "freightStatus"
    STAGE_METADATA = "stageMetadata"


_SECRET_SOURCES: Final = frozenset({Source.SECRET, Source.SHARED_SECRET})


@dataclass(frozen=True, slots=True)
class Lookup:
    """One object to read; it is in the Project's namespace, shared ones in that of the shared resources."""

    source: Source
    name: str
    untold: bool = field(default=False, compare=False)
    """Whether the name may have been made of a secret."""

    @property
    def shown(self) -> str:
        """The name, for people."""
        return "…" if self.untold else self.name


class Missing(Exception):
    """An object has to be read before the expression can have a value."""

    def __init__(self, lookup: Lookup) -> None:
        """*lookup* says which."""
        self.lookup = lookup
        super().__init__(f"{lookup.source}({lookup.shown!r}) has not been read yet")


class TooManyLookups(Exception):
    """The expressions of one step read more objects than they may."""


class Lookups:
    """What has been read for one step."""

    def __init__(self, secrets: Secrets | None = None) -> None:
        self.secrets = secrets or Secrets()
        self._known: dict[Lookup, Mapping[str, Any] | None] = {}
        self._text = 0
        self.allowance = Allowance()
        self._here = threading.local()
        self._tainted: dict[str, Secrecy] = {}
        self._names: set[str] | None = None

    def put(self, lookup: Lookup, found: Mapping[str, Any] | None) -> None:
        """Remember what was read; None if there is no such object."""
        if len(self._known) >= _MOST:
            raise TooManyLookups(f"the expressions of one step read more than {_MOST} objects")
        self._text += _characters(found)
        if self._text > _MOST_TEXT:
            raise TooManyLookups(f"the expressions of one step read objects of more than {_MOST_TEXT} characters")
        self._known[lookup] = found
        if lookup.source in _SECRET_SOURCES:
            for value in (found or {}).values():
                self.secrets.add(str(value))
            self._names = None

    def get(self, lookup: Lookup) -> Mapping[str, Any] | None:
        """What was read; raises Missing if nothing was yet."""
        if lookup not in self._known:
            raise Missing(lookup)
        if lookup.source in _SECRET_SOURCES:
            self._touched = True
        return self._known[lookup]

    @property
    def has_secrets(self) -> bool:
        """Whether a Secret has been read."""
        return any(lookup.source in _SECRET_SOURCES for lookup in self._known)

    @property
    def _touched(self) -> bool:
        """Whether the expression that is evaluated in this thread has read a Secret.

        In another one an evaluation may go on that nobody waits for any more, since the time of its step was up.
        """
        return getattr(self._here, "touched", False)

    @_touched.setter
    def _touched(self, touched: bool) -> None:
        self._here.touched = touched

    def seen(self, text: str | None, expression: Expression, names: Mapping[str, Value]) -> Secrecy:
        """The result of *expression* over *names*; kept secret if it was made of one."""
        secrecy = Secrecy.FULL if self._touched else self._of_variables(expression)
        self._touched = False
        if text is None or not secrecy:
            return secrecy
        said = bare(text)
        if len(said) < SHORTEST_DERIVED:
            return Secrecy.SHORT
        if secrecy is Secrecy.FULL:
            in_the_open = open_in(expression, names, self._tainted)
            if text in in_the_open:
                # A secret has only chosen it
                return Secrecy.SHORT
            self.secrets.add(text)
            within = list(inner(list_or_map(said)))
            if within:
                in_the_open |= self._in_secrets()
            for part in (each if isinstance(each, str) else written(each) for each in within):
                if part not in in_the_open:
                    self.secrets.add(part)
        return secrecy

    def joined(self, value: Value, text: str, pieces: Sequence[str | None]) -> None:
        """*value* was guessed from *text*, put together of *pieces*: None is secret."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            if len(bare(text)) >= SHORTEST_DERIVED:
                self.secrets.add(text)
            return
        in_the_open = self._in_secrets() | open_in_text(pieces)
        for part in inner(value):
            if not isinstance(part, str):
                if written(part) not in in_the_open:
                    self.secrets.add(written(part))
            elif any(
                len(left) >= SHORTEST_DERIVED and left not in in_the_open
                for left in self.secrets.mask(part).split(MASK)
            ):
                self.secrets.add(part)

    def _in_secrets(self) -> set[str]:
        """The names that Secrets give to their values, and JSON in these; they are no secrets themselves."""
        if self._names is None:
            objects = [self._known[each] or {} for each in self._known if each.source in _SECRET_SOURCES]
            texts = [str(value) for found in objects for value in found.values()]
            inside = (name for text in texts for name in names_in(list_or_map(bare(text))))
            self._names = {*inside, *(name for found in objects for name in found)}
        return self._names

    def taint(self, name: str, secrecy: Secrecy) -> None:
        """The variable *name* was made with a Secret."""
        self._tainted[name] = max(secrecy, self._tainted.get(name, Secrecy.NONE))

    def _of_variables(self, expression: Expression) -> Secrecy:
        """How secret the variables are that *expression* reads, or may read."""
        source = expression.source
        if not self._tainted or ("vars" not in source and "$env" not in source):
            return Secrecy.NONE
        found = uses(expression.tree)
        paths = [read.path for read in found.reads]
        if found.everything or ("vars",) in paths:
            return max(self._tainted.values())
        names = [path[1] for path in paths if path[0] == "vars"]
        return max((self._tainted[name] for name in names if name in self._tainted), default=Secrecy.NONE)


def _characters(found: Any) -> int:
    """Characters of all texts in *found*."""
    count, waiting = 0, [found]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            count += len(one)
        elif isinstance(one, Mapping):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one
    return count


async def resolved(
    evaluate: Callable[[], Result],
    lookups: Lookups,
    read: Callable[[Lookup], Awaitable[Mapping[str, Any] | None]],
    *,
    aside: Callable[[Callable[[], Result]], Awaitable[Result]] | None = None,
    long: bool = False,
) -> Result:
    """The value of *evaluate*, with all that it misses read into *lookups*, each once.

    What takes long is evaluated by *aside*, in a thread, so that others have their turn: what is *long*, and what turns
    out to be; without it all is evaluated here.
    """
    long = long or aside is None
    lookups.allowance = Allowance() if long else Allowance(QUICK_STEPS)
    while True:
        try:
            result = await aside(evaluate) if long and aside is not None else evaluate()
        except Missing as missing:
            lookups.put(missing.lookup, await read(missing.lookup))
        except Exception:
            if long or not lookups.allowance.is_used_up:
                raise
        else:
            if long or not lookups.allowance.is_used_up:
                return result
        if not long and lookups.allowance.is_used_up:
            long, lookups.allowance = True, Allowance()
