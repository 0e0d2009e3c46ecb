"""Bodies of answers as values: what they are read as, and that none takes long or much."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st

from kargo_py.steps.http_body import UnreadableBody, read_body
from kargo_py.steps.http_config import ContentType

YAML = "application/yaml"
LEAVES = (
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8"))
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
)


@pytest.mark.parametrize(
    ("body", "content_type", "wanted", "value"),
    [
        ('{"a": [1, null]}', "application/json; charset=utf-8", None, {"a": [1.0, None]}),
        ('"text"', "APPLICATION/JSON", None, "text"),
        ('\ufeff{"a": 1}', "application/json", None, {"a": 1.0}),
        ('{"a": 1}', "", None, {"a": 1.0}),
        ('{"a": 1}', "application/problem+json", None, {"a": 1.0}),
        ("<html>", "text/html", None, {}),
        ("", "application/json", None, {}),
        ("", YAML, ContentType.YAML, {}),
        ('{"a": 1}', "text/plain; charset=x", None, '{"a": 1}'),
        ('{"a": 1}', "application/json", ContentType.TEXT, '{"a": 1}'),
        ("a: 1", "text/html", ContentType.YAML, {"a": 1.0}),
        ("a: 1", "text/yaml", None, {"a": 1.0}),
        ("a: 1", "application/x-yaml", None, {"a": 1.0}),
        ('{"a": 1}', "text/plain", ContentType.JSON, {"a": 1.0}),
        (b"\xff", "text/plain", None, "�"),
    ],
)
def test_read(body: str | bytes, content_type: str, wanted: ContentType | None, value: Any) -> None:
    """The header says what a body is, unless the step does; what nobody knows is JSON or an empty map."""
    assert read_body(body if isinstance(body, bytes) else body.encode(), content_type, wanted) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("Off", False),
        ("~", None),
        ("a:", {"a": None}),
        ("'yes'", "yes"),
        ("y", "y"),
        ("0x1F", 31.0),
        ("010", 8.0),
        ("0b11", 3.0),
        ("-1_000", -1000.0),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.30", 1.3),
        ("'1.30'", "1.30"),
        ("1:30", "1:30"),
        (".inf", ".inf"),
        ("1e999", "1e999"),
        ("2001-01-31", "2001-01-31"),
        ("!!str 5", "5"),
        ("! 5", "5"),
        ("!!python/object/apply:os.system [ls]", ["ls"]),
        ("1: a\ntrue: b\n~: c\n1.5: d", {"1": "a", "true": "b", "null": "c", "1.5": "d"}),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", {"a": {"b": 1.0, "c": 2.0}, "d": {"b": 1.0, "c": 3.0}}),
        ("a: &x {b: 1}\nc: &y {d: 2}\ne: {<<: [*x, *y]}", {"a": {"b": 1}, "c": {"d": 2}, "e": {"b": 1, "d": 2}}),
        ("a: '<<'", {"a": "<<"}),
        ("a: &x [1]\nb: *x", {"a": [1.0], "b": [1.0]}),
        ("a\n---\nb", "a"),
        ("# nothing", None),
    ],
)
def test_yaml(text: str, value: Any) -> None:
    """As Go's library has it: YAML 1.1 but for its oddest numbers and dates."""
    assert read_body(text.encode(), YAML, None) == value


@given(VALUES)
def test_any_value(value: Any) -> None:
    """What was written as JSON or YAML is read as it was."""
    wanted = json.loads(json.dumps(value))
    assert read_body(json.dumps(value).encode(), "application/json", None) == wanted
    assert read_body(yaml.safe_dump(value).encode(), YAML, None) == wanted


BILLION = "\n".join(
    f"{name}: &{name} [{', '.join([before] * 9)}]"
    for before, name in zip(["1", *(f"*{c}" for c in "abcdefghi")], "abcdefghij", strict=True)
)
MERGES = (
    "a: &a {"
    + ", ".join(f"k{n}: 1" for n in range(2000))
    + "}\n"
    + "\n".join(f"m{n}: {{<<: [{', '.join(['*a'] * 50)}]}}" for n in range(20))
)


@pytest.mark.parametrize(
    ("body", "content_type", "why"),
    [
        ("{", "application/json", "JSON"),
        ("NaN", "application/json", "JSON"),
        ("1e999", "application/json", "JSON"),
        ("[" * 100_000, "application/json", "nests more than 100 deep"),
        ("[" + "1," * 400_000 + "1]", "application/json", "more than 300000 values"),
        ("a: b: c", YAML, "YAML"),
        ("\x07", YAML, "YAML"),
        ("[" * 200, YAML, "nests more than 100 deep"),
        ("[" * 100_000, YAML, "YAML"),
        (BILLION, YAML, "more than 300000 values"),
        (MERGES, YAML, "more than 300000 values"),
        ("[" + "1," * 400_000 + "1]", YAML, "more than 300000 values"),
        ("a: &a [*a]", YAML, "refers"),
        ("*a", YAML, "refers"),
        ("? [a]\n: b", YAML, "list or a map"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else None,
)
def test_refused(body: str, content_type: str, why: str) -> None:
    """What is no JSON or YAML, or far too much of it, is refused with the reason."""
    with pytest.raises(UnreadableBody, match=why):
        read_body(body.encode(), content_type, None)


@given(st.binary(max_size=60) | st.text("abc:-[]{}&*!<>|'\"#%@` \n\t?,1.", max_size=60).map(str.encode))
def test_any_bytes(body: bytes) -> None:
    """Any bytes are a value or refused."""
    for content_type in ("application/json", YAML, "text/plain", ""):
        try:
            json.dumps(read_body(body, content_type, None), allow_nan=False)
        except UnreadableBody:
            continue
