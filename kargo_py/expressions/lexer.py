"""An expression's text as tokens."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

from kargo_py.expressions.errors import ExpressionError, Kind


class Type(Enum):
    """What a token is."""

    NAME = auto()
    NUMBER = auto()
    TEXT = auto()
    BYTES = auto()
    OPERATOR = auto()
    BRACKET = auto()
    END = auto()


class Token(NamedTuple):
    """A word of an expression; *value* is what a text says, without its quotes."""

    type: Type
    value: str
    at: int

    def __str__(self) -> str:
        return "end of expression" if self.type is Type.END else f"{self.type.name.lower()} {self.value!r}"


_OPERATOR_WORDS: Final = frozenset(
    {"in", "or", "and", "matches", "contains", "startsWith", "endsWith", "let", "if", "else", "not"}
)
SPACES: Final = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {
    chr(code) for code in range(0x2000, 0x200B)
}
_WORD: Final = re.compile(r"[A-Za-z0-9_$]*")
_NUMBER: Final = re.compile(
    r"(?:0[xX][0-9a-fA-F_]*|0[oO][0-7_]*|0[bB][01_]*|[0-9_]*)(?:\.(?!\.)[0-9a-fA-F_]*)?(?:[eE][+-]?[0-9_]*)?"
)
_DECIMAL: Final = re.compile(r"[0-9_]*(?:\.(?!\.)[0-9_]*)?(?:[eE][+-]?[0-9_]*)?")
_SYMBOL: Final = re.compile(r"\?[.?]?|\|\|?|::?|\.\.?|[&!=*<>][&=*]?|[,;%+\-^/]")
_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    **{char: char for char in "\\'\"`?"},
}
_ESCAPE: Final = re.compile(
    r"\\(?:u\{([0-9a-fA-F]{1,6})\}|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))",
    re.DOTALL,
)


def is_letter(char: str) -> bool:
    """Whether a name may begin with *char*."""
    return char in "_$" or unicodedata.category(char)[0] == "L"


def is_word(char: str) -> bool:
    """Whether *char* may stand within a name."""
    return is_letter(char) or unicodedata.category(char) == "Nd"


def tokens(source: str) -> Iterator[Token]:
    """The tokens of *source*, the last of type END. Raises ExpressionError at what is none."""
    at, length = 0, len(source)
    while at < length:
        char = source[at]
        if char in SPACES:
            at += 1
        elif char in "'\"`":
            text, end = _raw(source, at) if char == "`" else _quoted(source, at, of_bytes=False)
            yield Token(Type.TEXT, text, at)
            at = end
        elif char in "bB" and source[at + 1 : at + 2] in {"'", '"'}:
            text, end = _quoted(source, at + 1, of_bytes=True)
            yield Token(Type.BYTES, text, at)
            at = end
        elif char in "0123456789" or (char == "." and source[at + 1 : at + 2].isdecimal() and source[at + 1].isascii()):
            end = _number(source, at)
            yield Token(Type.NUMBER, source[at:end], at)
            at = end
        elif char == "/" and source[at + 1 : at + 2] in {"/", "*"}:
            at = _comment(source, at)
        elif char == "#":
            yield Token(Type.OPERATOR, "#", at)
            at += 1
            end = _word(source, at)
            if end > at:
                yield Token(Type.NAME, source[at:end], at)
            at = end
        elif char in "([{)]}":
            yield Token(Type.BRACKET, char, at)
            at += 1
        elif symbol := _SYMBOL.match(source, at):
            yield Token(Type.OPERATOR, symbol[0], at)
            at = symbol.end()
        elif (end := _word(source, at)) > at:
            word = source[at:end]
            yield Token(Type.OPERATOR if word in _OPERATOR_WORDS else Type.NAME, word, at)
            at = end
        else:
            raise _wrong(f"unrecognized character {char!r}", source, at)
    yield Token(Type.END, "", max(length - 1, 0))


def _wrong(why: str, source: str, at: int) -> ExpressionError:
    return ExpressionError(why, source, at, Kind.SYNTAX)


def _word(source: str, at: int) -> int:
    while True:
        found = _WORD.match(source, at)
        at = found.end() if found else at
        if at >= len(source) or source[at].isascii() or not is_word(source[at]):
            return at
        at += 1


def _number(source: str, at: int) -> int:
    prefixed = source[at] == "0" and source[at + 1 : at + 2] in set("xXoObB")
    found = (_NUMBER if prefixed else _DECIMAL).match(source, at)
    end = found.end() if found else at
    if end < len(source) and is_word(source[end]):
        raise _wrong(f"bad number syntax: {source[at : end + 1]!r}", source, end)
    return end


def _comment(source: str, at: int) -> int:
    if source[at + 1] == "/":
        end = source.find("\n", at)
        return len(source) if end < 0 else end + 1
    end = source.find("*/", at + 2)
    if end < 0:
        raise _wrong("unclosed comment", source, len(source))
    return end + 2


def _raw(source: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    begin = at + 1
    while True:
        end = source.find("`", begin)
        if end < 0:
            raise _wrong("literal not terminated", source, len(source))
        parts.append(source[begin:end])
        if source[end + 1 : end + 2] != "`":
            return "`".join(parts), end + 1
        begin = end + 2


def _quoted(source: str, at: int, *, of_bytes: bool) -> tuple[str, int]:
    """The text between quotes; that of bytes has a character for each byte."""
    quote = source[at]
    parts: list[str] = []
    begin = at + 1
    while True:
        at = begin
        while at < len(source) and source[at] not in (quote, "\\", "\n"):
            at += 1
        plain = source[begin:at].replace("\r", "\n")
        parts.append(plain.encode("utf-8", "surrogatepass").decode("latin-1") if of_bytes else plain)
        if at >= len(source) or source[at] == "\n":
            raise _wrong("literal not terminated", source, at)
        if source[at] == quote:
            return "".join(parts), at + 1
        found = _ESCAPE.match(source, at)
        char = _unescaped(found, of_bytes=of_bytes) if found else None
        if found is None or char is None:
            raise _wrong("invalid char escape", source, at + 1)
        parts.append(char)
        begin = found.end()


def _unescaped(found: re.Match[str], *, of_bytes: bool) -> str | None:
    braced, pair, four, eight, octal, other = found.groups()
    if other is not None:
        return _ESCAPES.get(other)
    if of_bytes and (braced or four or eight):
        return None
    code = int(octal, 8) if octal else int(braced or pair or four or eight, 16)
    if code > (0xFF if of_bytes else 0x10FFFF):
        return None
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else chr(code)
