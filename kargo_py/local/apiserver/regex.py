"""Regular expressions as Go has them (RE2's syntax), matched in time linear in the text.

Schemas and CEL rules bring patterns from outside, and Python's engine can be made to backtrack for ever. So a pattern
is parsed here, which also finds Go's words for a broken one, and then matched by one of two engines: by ``re`` where
its backtracking is bounded by a small polynomial of the text, otherwise by the Rust engine within the CEL library,
which is linear as RE2 is but compiles at each call (some 70 us); its answers on short texts are remembered.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from typing import Final

from kargo_py.local.apiserver.light_cel import cel

_MAX_REPEAT: Final = 1000
_MAX_DEPTH: Final = 200
_MAX_LENGTH: Final = 65536
_MAX_STEPS: Final = 100_000
"""How many steps ``re`` may need for one text; 100,000 take about a millisecond."""
_REMEMBERED_LENGTH: Final = 256
_FLAGS: Final = frozenset("imsU")
_PERL: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}
_ESCAPES: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_POSIX: Final = frozenset(
    {
        "alnum",
        "alpha",
        "ascii",
        "blank",
        "cntrl",
        "digit",
        "graph",
        "lower",
        "print",
        "punct",
        "space",
        "upper",
        "word",
        "xdigit",
    }
)


class PatternError(ValueError):
    """A pattern that Go does not compile; the text is Go's."""

    def __init__(self, what: str, fragment: str) -> None:
        """*fragment* is the part of the pattern that is wrong."""
        super().__init__(f"error parsing regexp: {what}: `{fragment}`")


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_python", "_quadratic", "_rust", "text")

    def __init__(self, text: str) -> None:
        """Raise PatternError if Go would not compile *text*."""
        parser = _Parser(text)
        parser.parse()
        self.text = text
        self._rust = "".join(parser.rust)
        self._python: re.Pattern[str] | None = None
        self._quadratic = parser.unbounded
        if parser.simple:
            try:
                self._python = re.compile("".join(parser.python))
            except (re.error, OverflowError, RecursionError):
                self._python = None

    def search(self, text: str) -> bool:
        """Whether the pattern matches anywhere in *text*."""
        if self._python is not None and (len(text) + 1) ** (self._quadratic + 1) <= _MAX_STEPS:
            return self._python.search(text) is not None
        if len(text) <= _REMEMBERED_LENGTH:
            return _remembered(self._rust, text)
        return _search(self._rust, text)

    def find(self, text: str, limit: int) -> list[str]:
        """The first *limit* matches in *text*, all if it is negative; PatternError where only RE2 could tell."""
        if self._python is None or (len(text) + 1) ** (self._quadratic + 1) > _MAX_STEPS:
            raise PatternError("too costly to find matches of here", self.text)
        found = (match[0] for match in self._python.finditer(text))
        return list(found if limit < 0 else islice(found, limit))


@lru_cache(maxsize=1024)
def compiled(text: str) -> Pattern:
    """The compiled form of *text*; PatternError as :class:`Pattern`."""
    return Pattern(text)


_matches: Callable[..., bool] = cel.compile("text.matches(pattern)").execute


def _search(pattern: str, text: str) -> bool:
    try:
        return _matches({"text": text, "pattern": pattern})
    except RuntimeError as error:  # the Rust engine's limit on size, which RE2 shares
        raise PatternError("expression too large", "") from error


_remembered = lru_cache(maxsize=4096)(_search)


class _Parser:
    """One pass over a pattern: checks it, and writes it down for both engines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.rust: list[str] = []
        self.python: list[str] = []
        self.simple = True
        """``re`` may be used: no flags, no Unicode classes, no unbounded repetition within a repetition."""
        self.unbounded = 0
        self._names: set[str] = set()

    def parse(self) -> None:
        if len(self.text) > _MAX_LENGTH:
            raise PatternError("expression too large", "")
        self._alternatives(depth=0, flags=frozenset())
        if self.at < len(self.text):
            raise PatternError("unexpected )", self.text)

    def _put(self, rust: str, python: str | None = None) -> None:
        self.rust.append(rust)
        self.python.append(rust if python is None else python)

    def _alternatives(self, depth: int, flags: frozenset[str]) -> int:
        """Everything to the end of this group; the number of copies that its repetitions make."""
        if depth > _MAX_DEPTH:
            raise PatternError("expression nests too deeply", self.text)
        repeatable = False
        last: tuple[int, int, int, int] | None = (
            None  # where the last atom began in rust, python; its copies; quantifiers
        )
        most = 1
        text = self.text
        while self.at < len(text) and text[self.at] != ")":
            char = text[self.at]
            if char == "|":
                self._put("|")
                self.at += 1
                repeatable = False
                continue
            if quantifier := self._quantifier():
                start, copies, unbounded = quantifier
                fragment = text[start : self.at]
                if not repeatable or last is None:
                    raise PatternError("missing argument to repetition operator", fragment)
                most = max(most, self._repeat(fragment, last, copies, unbounded))
                if self._quantifier():
                    raise PatternError("invalid nested repetition operator", text[start : self.at])
                repeatable = False
                last = None
                continue
            marks = len(self.rust), len(self.python), self.unbounded
            copies = 1
            if char == "(":
                opened = self._open(flags)
                if opened is None:  # (?i): flags for the rest of this group
                    flags = self._flags_now
                    continue
                copies = self._alternatives(depth + 1, opened)
                if self.at >= len(text):
                    raise PatternError("missing closing )", text)
                self.at += 1
                self._put(")")
            else:
                self._atom(char, flags)
            most = max(most, copies)
            last = marks[0], marks[1], copies, marks[2]
            repeatable = True
        return most

    def _quantifier(self) -> tuple[int, int, bool] | None:
        """Take a repetition operator: where it began, the copies it makes, whether it is without bound."""
        text, start = self.text, self.at
        if start >= len(text):
            return None
        char = text[start]
        if char in "*+?":
            self.at += 1
            copies, unbounded = 1, char != "?"
        elif char == "{" and (found := re.compile(r"\{(\d+)(,(\d*))?\}").match(text, start)):
            low, comma, high = found[1], found[2], found[3]
            self.at = found.end()
            # More digits than int() converts cheaply are out of range anyway.
            least = int(low) if len(low) < 6 else _MAX_REPEAT + 1
            top = least if not comma else -1 if not high else int(high) if len(high) < 6 else _MAX_REPEAT + 1
            if least > _MAX_REPEAT or top > _MAX_REPEAT or 0 <= top < least:
                raise PatternError("invalid repeat count", found[0])
            copies, unbounded = max(least, top, 1), top < 0
        else:
            return None
        if self.at < len(text) and text[self.at] == "?":
            self.at += 1
        return start, copies, unbounded

    def _repeat(self, fragment: str, last: tuple[int, int, int, int], copies: int, unbounded: bool) -> int:
        rust_mark, python_mark, inner, before = last
        if inner * copies > _MAX_REPEAT:
            raise PatternError("invalid repeat count", fragment)
        if self.unbounded > before and (unbounded or copies > 1):
            self.simple = False
        if unbounded:
            self.unbounded += 1
        elif copies > 1 or fragment.startswith("{"):
            self.unbounded += 1 if copies > 4 else 0
        self.rust[rust_mark:] = ["(?:", *self.rust[rust_mark:], ")", fragment]
        self.python[python_mark:] = ["(?:", *self.python[python_mark:], ")", fragment]
        return inner * copies

    def _open(self, flags: frozenset[str]) -> frozenset[str] | None:
        """Take the beginning of a group; its flags, or None for flags without a group."""
        text, start = self.text, self.at
        if not text.startswith("(?", start):
            self.at += 1
            self._put("(?:")
            return flags
        if text.startswith(("(?P<", "(?<"), start):
            begin = text.index("<", start) + 1
            end = text.find(">", begin)
            if end < 0:
                raise PatternError("invalid named capture", text[start:])
            name = text[begin:end]
            if not re.fullmatch(r"[A-Za-z0-9_]+", name):
                raise PatternError("invalid named capture", text[start : end + 1])
            if name in self._names:
                raise PatternError("duplicate capture group name", name)
            self._names.add(name)
            self.at = end + 1
            self._put("(?:")
            return flags
        at, sign, now, seen, signed = start + 2, True, set(flags), False, False
        while at < len(text):
            char = text[at]
            at += 1
            if char in _FLAGS:
                (now.add if sign else now.discard)(char)
                seen = True
            elif char == "-" and sign:
                sign, signed, seen = False, True, False
            elif char in ":)" and (seen or not signed):
                if char == ")" and not seen and not signed:
                    break
                self.at = at
                taken = text[start + 2 : at - 1]
                if taken:
                    self.simple = False
                if char == ":":
                    self._put(f"(?{taken}:")
                    return frozenset(now)
                self._put(f"(?{taken})")
                self._flags_now = frozenset(now)
                return None
            else:
                break
        if at >= len(text) and text[-1:] not in {":", ")"} and at == len(text) and text[at - 1] in _FLAGS | {"-", "?"}:
            raise PatternError("missing closing )", text)
        raise PatternError("invalid or unsupported Perl syntax", text[start:at])

    _flags_now: frozenset[str] = frozenset()

    def _atom(self, char: str, flags: frozenset[str]) -> None:
        if char == "[":
            self._class()
        elif char == "\\":
            self._escape()
        else:
            self.at += 1
            if char == "^":
                self._put("^" if "m" in flags else r"\A")
            elif char == "$":
                self._put("$" if "m" in flags else r"\z", r"\Z")
            elif char == ".":
                self._put(".")
            else:
                self._put(_literal(char))

    def _escape(self) -> None:
        text, start = self.text, self.at
        if start + 1 >= len(text):
            raise PatternError("trailing backslash at end of expression", "")
        char = text[start + 1]
        if char == "Q":
            end = text.find(r"\E", start + 2)
            literal = text[start + 2 :] if end < 0 else text[start + 2 : end]
            self.at = len(text) if end < 0 else end + 2
            for one in literal:
                self._put(_literal(one))
            if not literal:
                self._put("(?:)")
            return
        if char in "AzbB":
            self.at += 2
            if char in "bB":
                self.simple = False
                self._put(rf"(?-u:\{char})")
            elif char == "A":
                self._put(r"\A")
            else:
                self._put(r"\z", r"\Z")
            return
        if char.lower() in _PERL:
            self.at += 2
            self._put(f"[{'^' if char.isupper() else ''}{_PERL[char.lower()]}]")
            return
        if char in "pP":
            self._put(self._unicode())
            return
        self._put(_literal(self._escaped_char(start)))

    def _escaped_char(self, start: int) -> str:
        r"""Take ``\n``, ``\x41``, ``\.`` and the like."""
        text = self.text
        self.at = start + 2
        if self.at > len(text):
            raise PatternError("trailing backslash at end of expression", "")
        char = text[start + 1]
        if char in "01234567" and (
            found := re.compile(r"[0-7]{1,3}").match(text, start + 1)
        ):  # \1 to \7 alone would be a back-reference
            if char == "0" or len(found[0]) > 1:
                self.at = found.end()
                return chr(int(found[0], 8))
        elif char == "x":
            found = re.compile(r"x(?:([0-9a-fA-F]{2})|\{([0-9a-fA-F]{1,8})\})").match(text, start + 1)
            if found and (code := int(found[1] or found[2], 16)) <= 0x10FFFF:
                self.at = found.end()
                return chr(code)
        elif char in _ESCAPES:
            return _ESCAPES[char]
        elif char.isascii() and not char.isalnum():
            return char
        raise PatternError("invalid escape sequence", text[start : start + 2])

    def _unicode(self) -> str:
        text, start = self.text, self.at
        found = re.compile(r"\\[pP](?:\{(\^?)([^}]*)\}|(.))", re.DOTALL).match(text, start)
        if not found:
            raise PatternError("invalid character class range", text[start:])
        self.simple = False
        self.at = found.end()
        name = found[2] if found[3] is None else found[3]
        negated = (text[start + 1] == "P") != bool(found[1])
        general = {unicodedata.category(chr(code)) for code in range(0x250)} | {"L", "M", "N", "P", "S", "Z", "C", "Mn"}
        written = f"\\{'P' if negated else 'p'}{{{name}}}"
        if name not in general and name != "Any" and not _rust_knows(written):
            raise PatternError("invalid character class range", found[0])
        return written

    def _class(self) -> None:
        text, start = self.text, self.at
        self.at += 1
        negated = text.startswith("^", self.at)
        self.at += negated
        parts: list[str] = []
        first = True
        while first or self.at >= len(text) or text[self.at] != "]":
            if self.at >= len(text):
                raise PatternError("missing closing ]", text[start:])
            char = text[self.at]
            if (
                char == "-"
                and not first
                and self.at + 1 < len(text)
                and text[self.at + 1] != "]"
                and parts[-1:] == ["-"]
            ):
                raise PatternError("invalid character class range", text[self.at : self.at + 2])
            first = False
            if char == "[" and text.startswith("[:", self.at) and (end := text.find(":]", self.at + 2)) >= 0:
                name = text[self.at + 2 : end].removeprefix("^")
                if name not in _POSIX:
                    raise PatternError("invalid character class range", text[self.at : end + 2])
                parts.append(text[self.at : end + 2])
                self.simple = False
                self.at = end + 2
                continue
            if char == "\\" and self.at + 1 < len(text):
                following = text[self.at + 1]
                if following in "pP":
                    parts.append(self._unicode())
                    continue
                if following.lower() in _PERL:
                    self.at += 2
                    if following.isupper():
                        self.simple = False
                        parts.append(f"[^{_PERL[following.lower()]}]")
                    else:
                        parts.append(_PERL[following])
                    continue
            parts.append(self._range(start))
        self.at += 1
        self._put(f"[{'^' if negated else ''}{''.join(parts)}]")

    def _range(self, start: int) -> str:
        text, begin = self.text, self.at
        low = self._class_char(start)
        if text.startswith("-", self.at) and self.at + 1 < len(text) and text[self.at + 1] != "]":
            self.at += 1
            high = self._class_char(start)
            if high < low:
                raise PatternError("invalid character class range", text[begin : self.at])
            return f"{_literal(low)}-{_literal(high)}"
        return _literal(low)

    def _class_char(self, start: int) -> str:
        if self.at >= len(self.text):
            raise PatternError("missing closing ]", self.text[start:])
        if self.text[self.at] == "\\":
            return self._escaped_char(self.at)
        self.at += 1
        return self.text[self.at - 1]


def _literal(char: str) -> str:
    """*char* for either engine, within a class or outside of one."""
    if char.isascii() and not char.isalnum():
        return f"\\x{ord(char):02x}"
    return char


@lru_cache(maxsize=256)
def _rust_knows(pattern: str) -> bool:
    try:
        _search(pattern, "")
    except PatternError:
        return False
    return True
