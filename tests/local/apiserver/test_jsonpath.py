"""JSONPath, as in printer columns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.local.apiserver import jsonpath
from kargo_py.local.apiserver.jsonpath import JSONPath, JSONPathError

DATA: Any = {
    "a": {"b": [1, 2, 3], "c.d": "dotted", "none": None},
    "l": [{"t": "x", "n": 1, "z": True}, {"t": "y", "n": 2}, {"t": 'x"y', "n": 2.0}, {"m": 1}],
    "s": "text",
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (".s", ["text"]),
        (".a.b", [[1, 2, 3]]),
        (".a.x.y", []),
        (".a.none", [None]),
        (".a.none.x", []),
        (".a.c\\.d", ["dotted"]),
        ("['a']['c\\.d']", ["dotted"]),
        ("$.s", ["text"]),
        ("@.s", ["text"]),
        (".a.b[0]", [1]),
        (".a.b[-1]", [3]),
        (".a.b[1:]", [2, 3]),
        (".a.b[:2]", [1, 2]),
        (".a.b[0:3:2]", [1, 3]),
        (".a.b[*]", [1, 2, 3]),
        (".a.b[0,2]", [1, 3]),
        (".a.b[1:1]", []),
        (".a.none[0]", []),
        ('.l[?(@.t=="x")].n', [1]),
        (".l[?(@.t!='x')].n", [2, 2.0]),
        (".l[?(@.z==true)].t", ["x"]),
        (".l[?(@.m)]", [{"m": 1}]),
        ('.l[?(@.t=="x\\"y")].n', [2.0]),
        (".l[*].t", ["x", "y", 'x"y']),
        ("..t", ["x", "y", 'x"y']),
        (".a.b.*", [1, 2, 3]),
        ('"constant"', ["constant"]),
        (".s}{.a", ["text"]),
    ],
)
def test_what_is_found(path: str, values: list[Any]) -> None:
    assert JSONPath(path).find(DATA) == values


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (".s[0]", "is not array or slice"),
        (".a.b[3]", "array index out of bounds: index 3, length 3"),
        (".a.b[-4]", "array index out of bounds: index -1, length 3"),
        (".a.b[0:9]", "array index out of bounds: index 8, length 3"),
        (".a.b[2:1]", "starting index 2 is greater than ending index 1"),
        (".a.b[0:2:0]", "step must be > 0"),
        (".s[?(@.t)]", "cannot be filtered"),
        (".l[?(@.n==1)]", "incompatible types for comparison"),
        (".l[?(@.z<true)]", "invalid type for comparison"),
        (".l[?(@.t===1)]", "unrecognized filter operator ==="),
        ("range", "unrecognized identifier range"),
    ],
)
def test_what_cannot_be_asked_of_the_data(path: str, words: str) -> None:
    compiled = JSONPath(path)
    with pytest.raises(JSONPathError) as caught:
        compiled.find(DATA)
    assert words in str(caught.value)
    assert compiled.first(DATA) is None


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (".a[", "unterminated array"),
        (".a[x]", "invalid array index x"),
        (".a[-]", "array index - is not a number"),
        (".a[?(@.b", "unterminated filter"),
        (".a[?(@.b)", "unclosed array expect ]"),
        ("'a", "unterminated quoted string"),
        ('"\\q"', "invalid syntax"),
        ("#", "unrecognized character in action"),
        (".a\n", "unclosed action"),
        ("1.2.3", "cannot parse number 1.2.3"),
        ("....", "invalid multiple recursive descent"),
        ("." + "a" * 5000, "path is longer than 4096 characters"),
        ("[?(" * 40 + "@" + ")]" * 40, ""),
    ],
)
def test_no_path(path: str, words: str) -> None:
    with pytest.raises(JSONPathError) as caught:
        JSONPath(path)
    assert words in str(caught.value)


def test_what_is_found_is_bounded() -> None:
    wide = {"l": [list(range(1000)) for _ in range(1000)]}
    with pytest.raises(JSONPathError, match="too many values"):
        JSONPath(".l[*][*]").find(wide)
    deep: Any = "end"
    for _ in range(100_001):
        deep = [deep]
    with pytest.raises(JSONPathError, match="too many values"):
        JSONPath("..").find(deep)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (5, "5"),
        (True, "true"),
        (None, "<no value>"),
        (1.5, "1.5"),
        (1e6, "1e+06"),
        (100000.0, "100000"),
        (1e-7, "1e-07"),
        (10**20, "1e+20"),
        (2**53, "9007199254740992"),
        ({"b": "<&>", "a": 1.0}, '{"a":1,"b":"\\u003c\\u0026\\u003e"}'),
        (["é\u2028", None, 1e30], '["é\\u2028",null,1e+30]'),
    ],
)
def test_how_a_value_is_printed(value: Any, text: str) -> None:
    assert jsonpath.text(value) == text


parts = st.sampled_from([".a", ".b", "[0]", "[*]", "[?(@.t=='x')]", "[", "]", "..", ".*", "'", '"', "(", ")", "5", " "])


@given(st.lists(parts, max_size=6).map("".join))
def test_any_text_is_a_path_or_an_error(path: str) -> None:
    try:
        JSONPath(path).find(DATA)
    except JSONPathError as error:
        assert str(error)  # noqa: PT017
