"""Names: what is one, and what is said of others. The words are checked against the real server elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from kargo_py.local.apiserver import names

LABEL = "a lowercase RFC 1123 label must consist of"
SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of"


def beginnings(complaints: list[str], length: int = 30) -> list[str]:
    """The first words of each."""
    return [complaint[:length] for complaint in complaints]


@pytest.mark.parametrize("good", ["a", "a-b", "0", "a.b-c.d", "x" * 253])
def test_a_subdomain(good: str) -> None:
    assert names.subdomain(good) == []


@pytest.mark.parametrize("bad", ["", "A", "a_b", "-a", "a-", "a..b", ".", "a\n", "é", "a/b"])
def test_no_subdomain(bad: str) -> None:
    assert beginnings(names.subdomain(bad)) == [SUBDOMAIN[:30]]


def test_a_subdomain_that_is_too_long() -> None:
    assert names.subdomain("x" * 254) == ["must be no more than 253 characters"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", []),
        ("a.b", ["must not contain dots"]),
        ("A", [LABEL]),
        ("x" * 64, ["must be no more than 63 characters"]),
        ("x" * 64 + "_", ["must be no more than 63 characters", LABEL]),
    ],
)
def test_a_label(text: str, expected: list[str]) -> None:
    assert beginnings(names.label(text)) == beginnings(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", []),
        ("A_b.C", []),
        ("example.com/a", []),
        ("/a", ["prefix part must be non-empty"]),
        ("a/", ["name part must be non-empty", "name part must consist of alphanumeric"]),
        ("A/b", ["prefix part a lowercase RFC 1123"]),
        ("a/b/c", ["a qualified name must consist of"]),
        ("a" * 64, ["name part must be no more than 63 characters"]),
        ("a b", ["name part must consist of"]),
    ],
)
def test_a_qualified_name(text: str, expected: list[str]) -> None:
    assert beginnings(names.qualified(text), 20) == beginnings(expected, 20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.B_c-d", []),
        ("", ["a valid config key"]),
        (".", ["must not be '.'"]),
        ("..", ["must not be '..'"]),
        ("..a", ["must not start with '..'"]),
        ("a/b", ["a valid config key"]),
    ],
)
def test_a_key(text: str, expected: list[str]) -> None:
    assert beginnings(names.data_key(text), 18) == beginnings(expected, 18)


@pytest.mark.parametrize(
    ("name", "prefix", "good"),
    [("a-", True, True), ("a-", False, False), ("-", True, False), ("a.-", True, True), ("a.", True, False)],
)
def test_a_prefix_may_end_in_a_dash(name: str, prefix: bool, good: bool) -> None:
    assert (names.dns_subdomain(name, prefix) == []) is good


@pytest.mark.parametrize(
    ("name", "prefix", "expected"),
    [
        ("A_ b", False, []),
        (".", False, ["may not be '.'"]),
        (".", True, []),
        ("a/b%c", False, ["may not contain '/'", "may not contain '%'"]),
    ],
)
def test_a_segment_of_a_path(name: str, prefix: bool, expected: list[str]) -> None:
    assert names.path_segment(name, prefix) == expected


@given(st.text(max_size=80))
def test_a_label_is_a_subdomain_and_a_value(text: str) -> None:
    if not names.label(text):
        assert not names.subdomain(text)
        assert not names.label_value(text)
        assert not names.qualified(text)
        assert not names.data_key(text)
