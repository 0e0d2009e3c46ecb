"""Why a text is not JSON, in the words of Go's ``encoding/json``, which clients of the real server know."""

from __future__ import annotations

import re
from typing import Final

_END: Final = "unexpected end of JSON input"
_SPACE: Final = frozenset(b" \t\r\n")
_DIGITS: Final = frozenset(b"0123456789")
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_ESCAPES: Final = frozenset(b'bfnrt\\/"')
_LITERALS: Final = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_plain = re.compile(rb'[^"\\\x00-\x1f]*').match
_ESCAPED: Final = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 39: "\\'", 92: "\\\\"}


class NotJson(Exception):
    """The text is not JSON; the message is Go's."""


def why_not(text: bytes, *, max_depth: int) -> str | None:
    """What is wrong with *text*; None if it is JSON."""
    try:
        _scan(text, max_depth)
    except NotJson as error:
        return str(error)
    return None


def quoted(code: int) -> str:
    """A byte as Go shows it in such a message."""
    if code in _ESCAPED:
        return f"'{_ESCAPED[code]}'"
    if code < 0x20 or 0x7F <= code < 0xA0 or code == 0xAD:
        return f"'\\x{code:02x}'" if code < 0x80 else f"'\\u{code:04x}'"
    return f"'{chr(code)}'"


def _scan(text: bytes, max_depth: int) -> None:
    stack: list[int] = []  # of "{" and "[" that are open
    at = _skip(text, 0)
    while True:
        at, opened = _value(text, at)
        if opened:
            if len(stack) >= max_depth:
                raise NotJson(f"invalid character {quoted(opened)} exceeded max depth")
            stack.append(opened)
            closing = ord("}") if opened == ord("{") else ord("]")
            at = _skip(text, at)
            if _byte(text, at) != closing:
                at = _key(text, at) if opened == ord("{") else at
                continue
        at = _after_value(text, at, stack, closed=bool(opened))
        if not stack:
            at = _skip(text, at)
            if at < len(text):
                raise _bad(text, at, "after top-level value")
            return


def _after_value(text: bytes, at: int, stack: list[int], *, closed: bool) -> int:
    """Past all that a value may end; where the next value begins, or the end of the text."""
    if closed:  # an empty object or list
        stack.pop()
        at += 1
    while stack:
        at = _skip(text, at)
        code = _byte(text, at)
        in_object = stack[-1] == ord("{")
        if code == ord(","):
            at = _skip(text, at + 1)
            return _key(text, at) if in_object else at
        if code != ord("}" if in_object else "]"):
            raise _bad(text, at, "after object key:value pair" if in_object else "after array element")
        stack.pop()
        at += 1
    return at


def _value(text: bytes, at: int) -> tuple[int, int]:
    """Past a scalar, or past the bracket that opens a value (which is the second result then)."""
    code = _byte(text, at)
    if code in b"{[":
        return at + 1, code
    if code == ord('"'):
        return _string(text, at), 0
    if code in _LITERALS:
        return _literal(text, at, _LITERALS[code]), 0
    if code in _DIGITS or code == ord("-"):
        return _number(text, at), 0
    raise _bad(text, at, "looking for beginning of value")


def _key(text: bytes, at: int) -> int:
    if _byte(text, at) != ord('"'):
        raise _bad(text, at, "looking for beginning of object key string")
    at = _skip(text, _string(text, at))
    if _byte(text, at) != ord(":"):
        raise _bad(text, at, "after object key")
    return _skip(text, at + 1)


def _literal(text: bytes, at: int, word: bytes) -> int:
    for index in range(1, len(word)):
        if _within(text, at + index) != word[index]:
            raise _bad(text, at + index, f"in literal {word.decode()} (expecting {quoted(word[index])})")
    return at + len(word)


def _string(text: bytes, at: int) -> int:
    at = _past_plain(text, at + 1)
    while (code := _byte(text, at)) != ord('"'):
        if code < 0x20:
            raise _bad(text, at, "in string literal")
        if code == ord("\\"):
            at += 1
            if (code := _within(text, at)) == ord("u"):
                for index in range(1, 5):
                    if _within(text, at + index) not in _HEX:
                        raise _bad(text, at + index, "in \\u hexadecimal character escape")
                at += 4
            elif code not in _ESCAPES:
                raise _bad(text, at, "in string escape code")
        at = _past_plain(text, at + 1)
    return at + 1


def _past_plain(text: bytes, at: int) -> int:
    """Past all that needs no look, which is most of a long text."""
    found = _plain(text, at)
    return found.end() if found else at


def _number(text: bytes, at: int) -> int:
    if text[at] == ord("-"):
        at += 1
        if _within(text, at) not in _DIGITS:
            raise _bad(text, at, "in numeric literal")
    at = at + 1 if text[at] == ord("0") else _digits(text, at)
    if at < len(text) and text[at] == ord("."):
        at += 1
        if _within(text, at) not in _DIGITS:
            raise _bad(text, at, "after decimal point in numeric literal")
        at = _digits(text, at)
    if at < len(text) and text[at] in b"eE":
        at += 1
        if _within(text, at) in b"+-":
            at += 1
        if _within(text, at) not in _DIGITS:
            raise _bad(text, at, "in exponent of numeric literal")
        at = _digits(text, at)
    return at


def _digits(text: bytes, at: int) -> int:
    while at < len(text) and text[at] in _DIGITS:
        at += 1
    return at


def _skip(text: bytes, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _byte(text: bytes, at: int) -> int:
    if at >= len(text):
        raise NotJson(_END)
    return text[at]


def _within(text: bytes, at: int) -> int:
    """A byte of a literal or an escape; at the end of the text Go puts a space there to see what it thinks."""
    return text[at] if at < len(text) else ord(" ")


def _bad(text: bytes, at: int, where: str) -> NotJson:
    return NotJson(f"invalid character {quoted(_within(text, at))} {where}")
