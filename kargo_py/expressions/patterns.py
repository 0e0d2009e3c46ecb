"""Regular expressions of RE2's syntax, matched in time linear in the text.

Python's engine can be made to backtrack for ever, and a pattern may come from anybody. So a pattern becomes an
automaton whose states are followed all at once. The sets of states met are remembered, and what they cost is bounded.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from kargo_py.expressions.errors import Fault, LimitFault

_MAX_REPEAT: Final = 1000
_MAX_DEPTH: Final = 100
_MAX_LENGTH: Final = 4096
_MAX_STATES: Final = 3_000
_MAX_REMEMBERED: Final = 20_000
"""Sizes of all sets of states that one pattern remembers; some 2 MB."""
_TOP: Final = 0x10FFFF

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Characters by code, sorted and apart from each other."""

_PERL: Final[dict[str, Ranges]] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 10), (12, 13), (32, 32)),
}
_POSIX: Final[dict[str, Ranges]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": ((48, 57),),
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_ESCAPES: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_CATEGORIES: Final = frozenset(
    {
        *("C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl"),
        *("No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs"),
    }
)


@dataclass(slots=True)
class _State:
    """A place in the automaton: what it takes, and where it goes. Neither *ranges* nor *assertion*: goes freely."""

    ranges: Ranges | None = None
    assertion: str = ""
    out: list[int] = field(default_factory=list)


_Piece: TypeAlias = tuple[int, int]
"""A part of the automaton: its first and its last state; nothing leaves the last yet."""


def _merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    made: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if made and low <= made[-1][1] + 1:
            made[-1] = made[-1][0], max(high, made[-1][1])
        else:
            made.append((low, high))
    return tuple(made)


def _negated(ranges: Ranges) -> Ranges:
    made, begin = [], 0
    for low, high in ranges:
        if low > begin:
            made.append((begin, low - 1))
        begin = high + 1
    if begin <= _TOP:
        made.append((begin, _TOP))
    return tuple(made)


_ASSIGNED: Final = ((0, 0x33480), (0xE0000, 0xE0200))
"""All characters but those for private use, which are the last two planes and some that are within."""


@lru_cache(maxsize=1)
def _categories() -> Mapping[str, Ranges]:
    made: dict[str, list[tuple[int, int]]] = {"Co": [(0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)]}
    for begin, end in _ASSIGNED:
        for code in range(begin, end):
            ranges = made.setdefault(unicodedata.category(chr(code)), [])
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1] = ranges[-1][0], code
            else:
                ranges.append((code, code))
    return {name: _merged(ranges) for name, ranges in made.items() if name != "Cn"}


def _category(name: str) -> Ranges:
    return _merged(pair for known, ranges in _categories().items() if known.startswith(name) for pair in ranges)


def _folded(ranges: Ranges) -> Ranges:
    """With the other case of each character."""
    made = list(ranges)
    for low, high in ranges:
        for code in range(low, min(high, low + 0x3000) + 1):
            char = chr(code)
            made += [(ord(other), ord(other)) for other in {char.lower(), char.upper()} if len(other) == 1]
            if char in "kK":
                made.append((0x212A, 0x212A))
            elif char in "sS":
                made.append((0x17F, 0x17F))
    return _merged(made)


class _Builder:
    """Reads a pattern and builds its automaton."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.states: list[_State] = []
        self.names: set[str] = set()

    def build(self) -> _Piece:
        if len(self.text) > _MAX_LENGTH:
            raise LimitFault(f"the pattern has more than {_MAX_LENGTH} characters")
        piece = self._alternatives(0, frozenset())
        if self.at < len(self.text):
            raise self._wrong("unexpected )", self.text)
        return piece

    @staticmethod
    def _wrong(what: str, fragment: str) -> Fault:
        return Fault(f"error parsing regexp: {what}: `{{}}`", fragment[:100])

    def _state(self, ranges: Ranges | None = None, assertion: str = "") -> int:
        if len(self.states) >= _MAX_STATES:
            raise LimitFault("error parsing regexp: expression too large")
        self.states.append(_State(ranges, assertion))
        return len(self.states) - 1

    def _taking(self, ranges: Ranges | None = None, assertion: str = "") -> _Piece:
        first, last = self._state(ranges, assertion), self._state()
        self.states[first].out.append(last)
        return first, last

    def _join(self, pieces: list[Callable[[], _Piece]]) -> _Piece:
        first = last = self._state()
        for make in pieces:
            begin, end = make()
            self.states[last].out.append(begin)
            last = end
        return first, last

    # An atom is kept as what makes it, so that a repetition can make copies.

    def _alternatives(self, depth: int, flags: frozenset[str]) -> _Piece:
        return self._group(depth, flags)()

    def _group(self, depth: int, flags: frozenset[str]) -> Callable[[], _Piece]:
        if depth > _MAX_DEPTH:
            raise self._wrong("expression nests too deeply", self.text)
        branches: list[list[Callable[[], _Piece]]] = [[]]
        repeatable = False
        while self.at < len(self.text) and self.text[self.at] != ")":
            char = self.text[self.at]
            start = self.at
            if char == "|":
                self.at += 1
                branches.append([])
                repeatable = False
            elif found := self._quantifier():
                if not repeatable:
                    raise self._wrong("missing argument to repetition operator", self.text[start : self.at])
                if self._quantifier():
                    raise self._wrong("invalid nested repetition operator", self.text[start : self.at])
                branches[-1].append(self._repeated(branches[-1].pop(), *found))
                repeatable = False
            elif char == "(":
                inner = self._open(flags)
                if inner is None:
                    flags = self._flags
                    continue
                branches[-1].append(self._group(depth + 1, inner))
                if self.at >= len(self.text):
                    raise self._wrong("missing closing )", self.text)
                self.at += 1
                repeatable = True
            else:
                branches[-1].extend(self._atom(char, flags))
                repeatable = True
        return lambda: self._either(branches)

    def _either(self, branches: list[list[Callable[[], _Piece]]]) -> _Piece:
        if len(branches) == 1:
            return self._join(branches[0])
        first, last = self._state(), self._state()
        for branch in branches:
            begin, end = self._join(branch)
            self.states[first].out.append(begin)
            self.states[end].out.append(last)
        return first, last

    def _repeated(self, make: Callable[[], _Piece], least: int, most: int) -> Callable[[], _Piece]:
        def repeat() -> _Piece:
            first = last = self._state()
            for _ in range(least):
                begin, end = make()
                self.states[last].out.append(begin)
                last = end
            if most < 0:
                begin, end = make()
                loop = self._state()
                self.states[last].out.append(loop)
                self.states[loop].out.append(begin)
                self.states[end].out.append(loop)
                return first, loop
            final = self._state()
            for _ in range(most - least):
                self.states[last].out.append(final)
                begin, end = make()
                self.states[last].out.append(begin)
                last = end
            self.states[last].out.append(final)
            return first, final

        return repeat

    _COUNTED: Final = re.compile(r"\{(\d{1,6})(,(\d{0,6}))?\}", re.ASCII)

    def _quantifier(self) -> tuple[int, int] | None:
        if self.at >= len(self.text):
            return None
        char = self.text[self.at]
        if char in "*+?":
            self.at += 1
            bounds = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}[char]
        elif char == "{" and (found := self._COUNTED.match(self.text, self.at)):
            least = int(found[1])
            most = least if found[2] is None else int(found[3]) if found[3] else -1
            if least > _MAX_REPEAT or most > _MAX_REPEAT or 0 <= most < least:
                raise self._wrong("invalid repeat count", found[0])
            self.at = found.end()
            bounds = least, most
        else:
            return None
        if self.text[self.at : self.at + 1] == "?":
            self.at += 1
        return bounds

    _NAMED: Final = re.compile(r"\(\?P?<([^>]*)>")
    _FLAGS: Final = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
    _flags: frozenset[str] = frozenset()

    def _open(self, flags: frozenset[str]) -> frozenset[str] | None:
        """Take the beginning of a group; its flags, or None where flags hold for the rest of the group around it."""
        if not self.text.startswith("(?", self.at):
            self.at += 1
            return flags
        if named := self._NAMED.match(self.text, self.at):
            if not re.fullmatch(r"[A-Za-z0-9_]+", named[1]):
                raise self._wrong("invalid named capture", named[0])
            if named[1] in self.names:
                raise self._wrong("duplicate capture group name", named[1])
            self.names.add(named[1])
            self.at = named.end()
            return flags
        found = self._FLAGS.match(self.text, self.at)
        if not found or (found[3] == ")" and not found[1] and not found[2]):
            raise self._wrong("invalid or unsupported Perl syntax", self.text[self.at :])
        self.at = found.end()
        now = (flags | set(found[1])) - set(found[2] or "")
        if found[3] == ")":
            self._flags = now
            return None
        return now

    def _atom(self, char: str, flags: frozenset[str]) -> list[Callable[[], _Piece]]:
        if char == "[":
            return [self._of(self._class(flags))]
        if char == "\\":
            return self._escape(flags)
        self.at += 1
        if char == "^":
            return [self._assert("line start" if "m" in flags else "start")]
        if char == "$":
            return [self._assert("line end" if "m" in flags else "end")]
        if char == ".":
            return [self._of(((0, _TOP),) if "s" in flags else _negated(((10, 10),)))]
        return [self._of(self._cased(((ord(char), ord(char)),), flags))]

    def _of(self, ranges: Ranges) -> Callable[[], _Piece]:
        return lambda: self._taking(ranges)

    def _assert(self, assertion: str) -> Callable[[], _Piece]:
        return lambda: self._taking(None, assertion)

    @staticmethod
    def _cased(ranges: Ranges, flags: frozenset[str]) -> Ranges:
        return _folded(ranges) if "i" in flags else ranges

    def _escape(self, flags: frozenset[str]) -> list[Callable[[], _Piece]]:
        following = self.text[self.at + 1 : self.at + 2]
        if following == "Q":
            end = self.text.find("\\E", self.at + 2)
            literal = self.text[self.at + 2 :] if end < 0 else self.text[self.at + 2 : end]
            self.at = len(self.text) if end < 0 else end + 2
            return [self._of(self._cased(((ord(char), ord(char)),), flags)) for char in literal]
        assertions = {"A": "start", "z": "end", "b": "word", "B": "no word"}
        if following in assertions:
            self.at += 2
            return [self._assert(assertions[following])]
        return [self._of(self._cased(self._set() or self._escaped_char(), flags))]

    def _set(self) -> Ranges | None:
        r"""Take ``\d``, ``\pL`` and the like, if that stands here."""
        following = self.text[self.at + 1 : self.at + 2]
        if following and following.lower() in _PERL:
            self.at += 2
            ranges = _PERL[following.lower()]
            return _negated(ranges) if following.isupper() else ranges
        if following not in {"p", "P"}:
            return None
        found = re.compile(r"\\[pP](?:\{(\^?)(\w*)\}|(\w))").match(self.text, self.at)
        name = (found[3] or found[2]) if found else ""
        if not found or (name != "Any" and name not in _CATEGORIES):
            raise self._wrong("invalid character class range", self.text[self.at :])
        self.at = found.end()
        ranges = ((0, _TOP),) if name == "Any" else _category(name)
        return _negated(ranges) if (following == "P") != bool(found[1]) else ranges

    def _escaped_char(self) -> Ranges:
        start = self.at
        char = self.text[start + 1 : start + 2]
        code = None
        if not char:
            raise Fault("error parsing regexp: trailing backslash at end of expression: ``")
        self.at += 2
        if char in "01234567" and (found := re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}").match(self.text, start + 1)):
            self.at, code = found.end(), int(found[0], 8)
        elif char == "x":
            found = re.compile(r"x(?:([0-9a-fA-F]{2})|\{([0-9a-fA-F]{1,6})\})").match(self.text, start + 1)
            if found and (value := int(found[1] or found[2], 16)) <= _TOP:
                self.at, code = found.end(), value
        elif char in _ESCAPES:
            code = _ESCAPES[char]
        elif char.isascii() and not char.isalnum():
            code = ord(char)
        if code is None:
            raise self._wrong("invalid escape sequence", self.text[start : start + 2])
        return ((code, code),)

    def _class(self, flags: frozenset[str]) -> Ranges:
        start = self.at
        self.at += 1
        negated = self.text.startswith("^", self.at)
        self.at += negated
        ranges: list[tuple[int, int]] = []
        first = True
        while first or self.text[self.at : self.at + 1] != "]":
            if self.at >= len(self.text):
                raise self._wrong("missing closing ]", self.text[start:])
            first = False
            if self.text.startswith("[:", self.at) and (end := self.text.find(":]", self.at + 2)) >= 0:
                name = self.text[self.at + 2 : end]
                posix = _POSIX.get(name.removeprefix("^"))
                if posix is None:
                    raise self._wrong("invalid character class range", self.text[self.at : end + 2])
                ranges += _negated(posix) if name.startswith("^") else posix
                self.at = end + 2
                continue
            if self.text[self.at] == "\\" and (found := self._set()):
                ranges += found
                continue
            ranges.append(self._range(start))
        self.at += 1
        made = self._cased(_merged(ranges), flags)
        return _negated(made) if negated else made

    def _range(self, start: int) -> tuple[int, int]:
        begin = self.at
        low = high = self._class_char(start)
        if self.text.startswith("-", self.at) and self.text[self.at + 1 : self.at + 2] not in {"]", ""}:
            self.at += 1
            high = self._class_char(start)
            if high < low:
                raise self._wrong("invalid character class range", self.text[begin : self.at])
        return low, high

    def _class_char(self, start: int) -> int:
        if self.at >= len(self.text):
            raise self._wrong("missing closing ]", self.text[start:])
        if self.text[self.at] == "\\":
            return self._escaped_char()[0][0]
        self.at += 1
        return ord(self.text[self.at - 1])


class Pattern:
    """A compiled pattern; raises Fault for what RE2 does not compile."""

    def __init__(self, text: str) -> None:
        """Compile *text*."""
        builder = _Builder(text)
        self._first, self._last = builder.build()
        self._states = builder.states
        self._edges: dict[tuple[frozenset[int], str, str], tuple[frozenset[int] | None]] = {}
        self._remembered = 0

    def _closure(
        self, begin: Iterable[int], before: str, after: str, spend: Callable[[int], None]
    ) -> frozenset[int] | None:
        """All states that are reached freely between two characters; None when the pattern has matched."""
        seen: set[int] = set()
        waiting = list(begin)
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            if number == self._last:
                return None
            state = self._states[number]
            if state.ranges is None and (not state.assertion or _holds(state.assertion, before, after)):
                waiting.extend(state.out)
        spend(3 * len(seen))
        return frozenset(number for number in seen if self._states[number].ranges is not None)

    def search(self, text: str, spend: Callable[[int], None]) -> bool:
        """Whether the pattern matches anywhere in *text*; *spend* is told of each step."""
        current: frozenset[int] = frozenset()
        before = ""
        for index in range(len(text) + 1):
            after = text[index : index + 1]
            edge = current, before, after
            found = self._edges.get(edge)
            if found:
                spend(1)
                known = found[0]
            else:
                spend(len(current) + 10)
                # The pattern may begin at each place
                known = self._closure((*self._step(current, before), self._first), before, after, spend)
                self._remember(edge, known)
            if known is None:
                return True
            current, before = known, after
        return False

    def _remember(self, edge: tuple[frozenset[int], str, str], known: frozenset[int] | None) -> None:
        self._remembered += len(edge[0]) + 10
        if self._remembered > _MAX_REMEMBERED:
            self._edges.clear()
            self._remembered = 0
        self._edges[edge] = (known,)

    def _step(self, current: frozenset[int], char: str) -> list[int]:
        if not char:
            return []
        code = ord(char)
        return [
            target for number in current if _takes(self._states[number], code) for target in self._states[number].out
        ]


def _takes(state: _State, code: int) -> bool:
    return any(low <= code <= high for low, high in state.ranges or ())


def _is_word(char: str) -> bool:
    return bool(char) and char.isascii() and (char.isalnum() or char == "_")


def _holds(assertion: str, before: str, after: str) -> bool:
    match assertion:
        case "start":
            return not before
        case "end":
            return not after
        case "line start":
            return before in {"", "\n"}
        case "line end":
            return after in {"", "\n"}
    return (_is_word(before) != _is_word(after)) == (assertion == "word")


@lru_cache(maxsize=64)
def compiled(text: str) -> Pattern:
    """The compiled form of *text*; Fault as :class:`Pattern`."""
    return Pattern(text)
