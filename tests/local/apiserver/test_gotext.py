"""Values as Go prints them."""

from __future__ import annotations

import pytest

from kargo_py.local.apiserver.gotext import compact, go_shown, go_source, number, quoted


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (80, "80"),
        (-3, "-3"),
        (999999, "999999"),
        (1_000_000, "1e+06"),
        (123456789, "1.23456789e+08"),
        (1.5, "1.5"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-2.5e30, "-2.5e+30"),
    ],
)
def test_number(value: float, expected: str) -> None:
    """As fmt.Sprintf("%v", float64(number)) has it."""
    assert number(float(value)) == expected


def test_quoted() -> None:
    """As fmt.Sprintf("%q", text) has it."""
    assert quoted('a"\\\n\x00\x7f\u00a0\u2028é😀\ufeff') == '"a\\"\\\\\\n\\x00\\x7f\\u00a0\\u2028é😀\\ufeff"'


def test_go_shown() -> None:
    """As fmt.Sprintf("%v") has it."""
    assert go_shown({"b": [1, True, None, 1.5], "a": {"c": "x y"}}) == "map[a:map[c:x y] b:[1 true <nil> 1.5]]"


def test_go_source() -> None:
    """As fmt.Sprintf("%#v") has it."""
    assert go_source({"a": ["x", None, 1]}) == (
        'map[string]interface {}{"a":[]interface {}{"x", interface {}(nil), 1}}'
    )


def test_compact() -> None:
    """As json.Marshal has it: sorted, whole floats as integers, and harmless in HTML and JavaScript."""
    assert compact({"b": 2.0, "a": ["<&>", "\u2028\u2029é"]}) == (
        '{"a":["\\u003c\\u0026\\u003e","\\u2028\\u2029é"],"b":2}'
    )
