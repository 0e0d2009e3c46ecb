"""Patterns mean what they mean in Go, and no pattern takes more than linear time."""

import time

import pytest

from kargo_py.local.apiserver.regex import Pattern, PatternError

NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("^a+$", "aa", "aa\n"),
        (r"\d", "5", "\u0665"),
        (r"\bé", "aé", "é"),
        ("[[:alpha:]]", "a", "1"),
        (r"\Qa.b\E", "a.b", "acb"),
        ("[a&&b]", "&", "c"),
        ("[a-]", "-", "b"),
        ("[]a]", "]", "b"),
        ("(?i)straße", "STRAßE", "strase"),
        (r"\p{Greek}", "\u03b1", "a"),
        ("a{,2}", "a{,2}", "aa"),
        (NAME, "a-b.c", "a-.c"),
        (r"\x{61}\07?$", "a", "b"),
    ],
)
def test_matches(pattern: str, matching: str, other: str) -> None:
    """A pattern finds what Go's regexp finds."""
    compiled = Pattern(pattern)
    assert (compiled.search(matching), compiled.search(other)) == (True, False)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("[b-a]", "invalid character class range: `b-a`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("(a{100}){100}", "invalid repeat count: `{100}`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        ("\\", "trailing backslash at end of expression: ``"),
        ("(" * 1000, "expression nests too deeply"),
    ],
)
def test_broken(pattern: str, message: str) -> None:
    """A broken pattern is refused in Go's words."""
    with pytest.raises(PatternError) as raised:
        Pattern(pattern)
    assert str(raised.value).startswith(f"error parsing regexp: {message}")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "a*a*a*a*a*a*b", "(a?){30}a{30}$", NAME])
def test_time(pattern: str) -> None:
    """A pattern made to backtrack does not."""
    began = time.process_time()
    Pattern(pattern).search("a" * 5000 + "!")
    assert time.process_time() - began < 1
