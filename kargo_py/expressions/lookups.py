"""What expressions read while they are evaluated, and what of it must stay secret.

Evaluation itself reads nothing. A function that needs an object asks :class:`Lookups`; if the object is not there yet,
:class:`Missing` ends the evaluation, the caller reads the object and evaluates again. Each is read once for one step.
"""

from __future__ import annotations

import base64
import re
from bisect import insort
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from kargo_py.expressions.values import QUICK_STEPS, Allowance
from kargo_py.expressions.writing import quoted

MASK: Final = "***"
_SHORTEST_PART: Final = 4
"""A shorter secret is masked where it is all of a text; within others it would hide too much."""
_CUT: Final = 64
"""Messages quote the first 80 characters of a value, or more: so much of the beginning or end of one is masked."""
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


class Missing(Exception):
    """An object has to be read before the expression can have a value."""

    def __init__(self, lookup: Lookup) -> None:
        """*lookup* says which."""
        self.lookup = lookup
        super().__init__(f"{lookup.source}({lookup.name!r}) has not been read yet")


class TooManyLookups(Exception):
    """The expressions of one step read more objects than they may."""


class Secrets:
    """Texts that came from Secrets; :meth:`mask` before anything is recorded."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._lengths: dict[str, list[int]] = {}
        """By how texts begin, how long those are, the longest first: there may be thousands, and as many to look in."""
        self._long: list[str] = []

    def add(self, text: str) -> None:
        """Keep *text* secret, also as base64 and as JSON has it."""
        if text:
            self._add(text)
            self._add(base64.b64encode(text.encode("utf-8", "replace")).decode())
            self._add(quoted(text)[1:-1])
            # A trailing newline is easily lost on the way, and some faults quote as Python does
            self._add(text.strip() or text)
            self._add(repr(text)[1:-1])

    def _add(self, text: str) -> None:
        if text in self._texts:
            return
        self._texts.add(text)
        if len(text) > _CUT:
            self._long.append(text)
        if len(text) >= _SHORTEST_PART:
            lengths = self._lengths.setdefault(text[:_SHORTEST_PART], [])
            if len(text) not in lengths:
                insort(lengths, len(text), key=lambda length: -length)

    def mask(self, value: Any) -> Any:
        """*value* with secrets replaced in all its texts, names included."""
        if not self._texts:
            return value
        # There may be many secrets, and many texts: most often of none of the ones a part is in any of the others
        everything = value if isinstance(value, str) else "\n".join(_texts(value)) if self._long else ""
        cut = [secret for secret in self._long if secret[:_CUT] in everything or secret[-_CUT:] in everything]
        return self._replaced(value, cut)

    def _replaced(self, value: Any, cut: Sequence[str]) -> Any:
        if isinstance(value, str):
            return self._masked(value, cut)
        if isinstance(value, dict):
            return {self._replaced(name, cut): self._replaced(item, cut) for name, item in value.items()}
        if isinstance(value, list):
            return [self._replaced(item, cut) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool) and self._is_secret_number(value):
            return MASK
        return value

    def _masked(self, text: str, cut: Sequence[str]) -> str:
        if text in self._texts:
            return MASK
        shown, end = list[str](), 0
        for at in range(len(text) - _SHORTEST_PART + 1):
            lengths = self._lengths.get(text[at : at + _SHORTEST_PART])
            length = self._longest(text, at, end, lengths) if lengths is not None else 0
            if length and at < end:
                # It overlaps the one before, and goes beyond it.
                end = at + length
            elif length:
                shown += [text[end:at], MASK]
                end = at + length
        if shown:
            text = "".join([*shown, text[end:]])
        for secret in cut:
            text = _without_part(text, secret)
        return text

    def _longest(self, text: str, at: int, end: int, lengths: Sequence[int]) -> int:
        """How long the longest secret is that stands in *text* at *at* and goes beyond *end*; 0 if none does."""
        for length in lengths:
            if at + length <= end:
                return 0
            if at + length <= len(text) and text[at : at + length] in self._texts:
                return length
        return 0

    def _is_secret_number(self, value: float) -> bool:
        """A password of digits alone may have been taken for a number."""
        written = {str(value), str(int(value))} if value - value == 0 else {str(value)}
        return any(len(text) >= _SHORTEST_PART and text in self._texts for text in written)


def _without_part(text: str, secret: str) -> str:
    """*text* without the beginning or the end of a long *secret*, of which it quotes so much."""
    while (at := text.find(secret[:_CUT])) >= 0:
        length = _shared(text[at:], secret)
        text = text[:at] + MASK + text[at + length :]
    while (at := text.find(secret[-_CUT:])) >= 0:
        end = at + _CUT
        length = _shared(text[:end][::-1], secret[::-1])
        text = text[: end - length] + MASK + text[end:]
    return text


def _shared(one: str, other: str) -> int:
    """In how many characters the two begin alike."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _texts(value: Any) -> Iterator[str]:
    """All texts in *value*, names included."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one


class Lookups:
    """What has been read for one step."""

    def __init__(self, secrets: Secrets | None = None) -> None:
        self.secrets = secrets or Secrets()
        self._known: dict[Lookup, Mapping[str, Any] | None] = {}
        self._text = 0
        self.allowance = Allowance()
        self._touched = False
        self._tainted: set[str] = set()

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

    def seen(self, text: str, source: str = "") -> bool:
        """A result of *source*; kept secret if a Secret was looked at for it. To be ``Scope.seen``."""
        secret = (self._touched or self._reads_secret(source)) and len(text) >= _SHORTEST_DERIVED
        if secret:
            self.secrets.add(text)
        self._touched = False
        return secret

    def taint(self, name: str) -> None:
        """The variable *name* was made with a Secret. To be ``Scope.taint``."""
        self._tainted.add(name)

    def _reads_secret(self, source: str) -> bool:
        """Whether an expression names such a variable."""
        return "vars" in source and any(re.search(rf"(?<!\w){re.escape(n)}(?!\w)", source) for n in self._tainted)


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
