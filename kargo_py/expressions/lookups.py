"""What expressions read while they are evaluated, and what of it must stay secret.

Evaluation itself reads nothing. A function that needs an object asks :class:`Lookups`; if the object is not there yet,
:class:`Missing` ends the evaluation, the caller reads the object and evaluates again. Each is read once for one step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

from kargo_py.expressions.analysis import uses
from kargo_py.expressions.errors import Fault
from kargo_py.expressions.evaluator import Expression
from kargo_py.expressions.hiding import Secrecy, Secrets
from kargo_py.expressions.values import QUICK_STEPS, Allowance, Budget
from kargo_py.expressions.writing import from_json

_SHORTEST_DERIVED: Final = 8
"""A result that is shorter, as yes or prod, says nothing of the secret it was made of."""
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
        self._touched = False
        self._tainted: dict[str, Secrecy] = {}

    def put(self, lookup: Lookup, found: Mapping[str, Any] | None) -> None:
        """Remember what was read; None if there is no such object."""
        if len(self._known) >= _MOST:
            raise TooManyLookups(f"the expressions of one step read more than {_MOST} objects")
        self._text += _characters(found)
        if self._text > _MOST_TEXT:
            raise TooManyLookups(f"the expressions of one step read objects of more than {_MOST_TEXT} characters")
        self._known[lookup] = found
        if lookup.source in {Source.SECRET, Source.SHARED_SECRET}:
            for value in (found or {}).values():
                self.secrets.add(str(value))

    def get(self, lookup: Lookup) -> Mapping[str, Any] | None:
        """What was read; raises Missing if nothing was yet."""
        if lookup not in self._known:
            raise Missing(lookup)
        if lookup.source in {Source.SECRET, Source.SHARED_SECRET}:
            self._touched = True
        return self._known[lookup]

    @property
    def has_secrets(self) -> bool:
        """Whether a Secret has been read."""
        return any(lookup.source in {Source.SECRET, Source.SHARED_SECRET} for lookup in self._known)

    def seen(self, text: str | None, expression: Expression) -> Secrecy:
        """The result of *expression*; kept secret if it was made of one. To be ``Scope.seen``."""
        secrecy = Secrecy.FULL if self._touched else self._of_variables(expression)
        self._touched = False
        if text is None:
            return secrecy
        if secrecy and len(text) < _SHORTEST_DERIVED:
            return Secrecy.SHORT
        if secrecy is Secrecy.FULL:
            self.secrets.add(text)
            for part in _parts(text):
                self.secrets.add(part)
        return secrecy

    def taint(self, name: str, secrecy: Secrecy) -> None:
        """The variable *name* was made with a Secret. To be ``Scope.taint``."""
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


def _parts(text: str) -> Iterator[str]:
    """The texts in a list or an object that *text* is: a step may tell one of them alone."""
    if text[:1] not in {"[", "{"}:
        return
    try:
        waiting: list[Any] = [from_json(text, Budget())]
    except Fault:
        return
    while waiting:
        one = waiting.pop()
        if isinstance(one, str) and len(one) >= _SHORTEST_DERIVED:
            yield one
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


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
