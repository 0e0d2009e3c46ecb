"""Texts that came from Secrets, and texts without them. What it takes grows with the texts, not with their product."""

from __future__ import annotations

import base64
from bisect import bisect, insort
from collections.abc import Callable, Iterable
from enum import IntEnum
from math import isfinite
from string import whitespace
from typing import Any, Final

from kargo_py.expressions.numbers import format_float, format_json_float, parse_float
from kargo_py.expressions.writing import quoted

MASK: Final = "***"
_AROUND: Final = f'"{whitespace}'
_SHORTEST_PART: Final = 4
"""A shorter secret is masked where it is all of a text; within others it would hide too much."""
_CUT: Final = 64
"""Messages quote the first 80 characters of a value, or more: so much of the beginning or end of one is masked."""
LONGEST_UNKNOWN: Final = _CUT - 1
"""Characters of the beginning of a secret, or fewer, that are not known for one: where a text was cut, say."""

_Spans = list[tuple[int, int]]


def bare(text: str) -> str:
    """*text* without what is easily lost at its ends: ``quote(x)`` has quotes that its result has not."""
    return text.strip(_AROUND)


class Secrecy(IntEnum):
    """What the result of an expression has to do with Secrets; false is nothing."""

    NONE = 0
    SHORT = 1
    """One was looked at for it; it is too short to be looked for in other texts, or stands in the open elsewhere."""
    FULL = 2
    """It is a secret itself."""


class _Long:
    """Secrets that begin alike; in order, since of two that others stand between those have less in common."""

    def __init__(self) -> None:
        self._secrets: list[str] = []
        self._longest = 0

    def add(self, text: str) -> None:
        insort(self._secrets, text)
        self._longest = max(self._longest, len(text))

    def alike(self, of_text: Callable[[int], str]) -> int:
        """In how many characters a text begins like one of them; *of_text* gives so many of it."""
        secrets = self._secrets
        if len(secrets) > 1:
            place = bisect(secrets, of_text(self._longest))
            secrets = secrets[max(place - 1, 0) : place + 1]
        return max(_alike(secret, of_text) for secret in secrets)


class Secrets:
    """Texts that came from Secrets; :meth:`mask` before anything is recorded."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._numbers: set[float] = set()
        self._lengths: dict[str, list[int]] = {}
        """By how they begin, the lengths of what is looked for, the longest first: at most :data:`_CUT`."""
        self._heads: dict[str, _Long] = {}
        """Longer ones by their first characters."""
        self._tails: dict[str, _Long] = {}
        """Longer ones by their last characters, written from the end to the beginning."""

    def add(self, text: str) -> None:
        """Keep *text* secret, also as base64 and as JSON has it, and the number for which it is taken."""
        # A trailing newline is easily lost on the way, and templates take quotes away
        for each in dict.fromkeys((text, text.strip(), bare(text))):
            self._add(each)
            self._add(base64.b64encode(each.encode("utf-8", "replace")).decode())
            self._add(quoted(each)[1:-1])
            # Some faults quote as Python does
            self._add(repr(each)[1:-1])
        self._add_number(bare(text))

    def _add(self, text: str) -> None:
        if not text or text in self._texts:
            return
        self._texts.add(text)
        if len(text) > _CUT:
            self._look_for(text[:_CUT])
            self._look_for(text[-_CUT:])
            self._heads.setdefault(text[:_CUT], _Long()).add(text)
            self._tails.setdefault(text[-_CUT:], _Long()).add(text[::-1])
        elif len(text) >= _SHORTEST_PART:
            self._look_for(text)

    def _add_number(self, text: str) -> None:
        """Keep the number secret for which *text* is taken; one of few digits says nothing of the text."""
        number = parse_float(text)
        if number is None or not isfinite(number):
            return
        texts = [format_json_float(number), format_float(number), str(number)]
        if min(map(len, [text, *texts])) >= _SHORTEST_PART:
            self._numbers.add(number)
            for each in texts:
                self._add(each)

    def _look_for(self, part: str) -> None:
        lengths = self._lengths.setdefault(part[:_SHORTEST_PART], [])
        if len(part) not in lengths:
            insort(lengths, len(part), key=lambda length: -length)

    def mask(self, value: Any) -> Any:
        """*value* with secrets replaced in all its texts, names included."""
        return self._masked(value) if self._texts else value

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return MASK if value in self._texts else _without(value, self._spans(value))
        if isinstance(value, dict):
            return {self._masked(name): self._masked(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._masked(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool) and self._is_secret_number(value):
            return MASK
        return value

    def _spans(self, text: str) -> _Spans:
        """Where secrets stand in *text*, in order; those that overlap are one."""
        spans: _Spans = []
        for at in range(len(text) - _SHORTEST_PART + 1):
            for length in self._lengths.get(text[at : at + _SHORTEST_PART], ()):
                part = text[at : at + length]
                if length == _CUT:
                    self._add_long(spans, text, at, part)
                if part in self._texts and len(part) == length:
                    _add_span(spans, at, at + length)
                    break
        return spans

    def _add_long(self, spans: _Spans, text: str, at: int, part: str) -> None:
        """Add to *spans* what *text* has of long secrets of which *part*, at *at*, is the beginning or the end."""
        covered = spans[-1][1] if spans else 0
        if part in self._heads and covered < len(text):
            _add_span(spans, at, at + self._heads[part].alike(lambda length: text[at : at + length]))
        if part in self._tails:
            end = at + _CUT
            _add_span(spans, end - self._tails[part].alike(lambda length: text[max(end - length, 0) : end][::-1]), end)

    def _is_secret_number(self, value: float) -> bool:
        """A password of digits alone may have been taken for a number."""
        written = {str(value), str(int(value))} if value - value == 0 else {str(value)}
        return value in self._numbers or any(len(t) >= _SHORTEST_PART and t in self._texts for t in written)


class AllSecret(Secrets):
    """While it is not known what is secret: every text may be, but those that are *known* not to be."""

    def __init__(self, instead: str, known: Iterable[str] = ()) -> None:
        """*instead* is what stands where others would have been."""
        super().__init__()
        self._instead = instead
        self._known = frozenset(known)

    def mask(self, value: Any) -> Any:
        if isinstance(value, str):
            return value if not value or value in self._known else self._instead
        if isinstance(value, dict):
            return {self.mask(name): self.mask(item) for name, item in value.items()}
        return [self.mask(item) for item in value] if isinstance(value, list) else value


def _add_span(spans: _Spans, begin: int, end: int) -> None:
    """Add a stretch to *spans*; it ends behind the beginning of the last one."""
    while spans and begin < spans[-1][1]:
        before, after = spans.pop()
        begin, end = min(begin, before), max(end, after)
    spans.append((begin, end))


def _without(text: str, spans: _Spans) -> str:
    shown, last = list[str](), 0
    for begin, end in spans:
        shown += [text[last:begin], MASK]
        last = end
    return "".join([*shown, text[last:]]) if shown else text


def _alike(secret: str, of_text: Callable[[int], str]) -> int:
    """In how many characters the two begin alike, which they do in the first :data:`_CUT`."""
    least = length = _CUT
    # Most often a text goes on otherwise soon: it is not taken in the length of the secret each time.
    while length < len(secret) and of_text(length) == secret[:length]:
        least, length = length, length * 2
    most = min(length, len(secret))
    while least < most:
        middle = (least + most + 1) // 2
        if of_text(middle) == secret[:middle]:
            least = middle
        else:
            most = middle - 1
    return least
