"""Bodies: values as the real server sees them, and Go's words for what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.local.apiserver.bodies import MAX_DEPTH, BadNumber, Undecodable, decode_json, decode_yaml
from kargo_py.local.apiserver.gojson import why_not

VALUES: list[tuple[bytes, Any]] = [
    (b'{"f":1.0,"h":1e3,"i":-0,"k":0.1,"z":null}', {"f": 1, "h": 1000, "i": 0, "k": 0.1, "z": None}),
    (b"[12345678901234567890123]", [12345678901234567890123.0]),
    (b"[9223372036854775807, -9223372036854775808]", [9223372036854775807, -9223372036854775808]),
    (b'"\xff"', "\ufffd"),
    (b'"\\ud800x"', "\ufffdx"),
    (b'{"\\u0022":"\\u0022"}', {'"': '"'}),
    (b" [ ] ", []),
]


@pytest.mark.parametrize(("body", "value"), VALUES)
def test_json_values(body: bytes, value: Any) -> None:
    """Whole numbers are integers within 64 bits; what is no UTF-8 is replaced."""
    found = decode_json(body)
    assert (found.value, found.twice) == (value, ())
    assert [type(one) for one in _flat(found.value)] == [type(one) for one in _flat(value)] or b"123456" in body


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [one for child in value.values() for one in _flat(child)]
    return [one for child in value for one in _flat(child)] if isinstance(value, list) else [value]


def test_keys_that_are_given_twice_are_told_and_the_last_wins() -> None:
    """With the paths that strict decoding has."""
    found = decode_json(b'{"a":1,"a":{"b":1,"b":2,"c":[0,{"x":1,"x":1,"x":2}]}}')
    assert found.value == {"a": {"b": 2, "c": [0, {"x": 2}]}}
    assert found.twice == (
        'duplicate field "a"',
        'duplicate field "a.b"',
        'duplicate field "a.c[1].x"',
    )


WRONG: dict[bytes, str] = {
    b"": "unexpected end of JSON input",
    b"{": "unexpected end of JSON input",
    b'{"a"': "unexpected end of JSON input",
    b'"abc': "unexpected end of JSON input",
    b"-": "invalid character ' ' in numeric literal",
    b"1.": "invalid character ' ' after decimal point in numeric literal",
    b'{"a":1e': "invalid character ' ' in exponent of numeric literal",
    b"nul": "invalid character ' ' in literal null (expecting 'l')",
    b'"\\': "invalid character ' ' in string escape code",
    b'"\\u1': "invalid character ' ' in \\u hexadecimal character escape",
    b"nonsense": "invalid character 'o' in literal null (expecting 'u')",
    b"{} x": "invalid character 'x' after top-level value",
    b"[1,]": "invalid character ']' looking for beginning of value",
    b"[1 2]": "invalid character '2' after array element",
    b'{"a" 1}': "invalid character '1' after object key",
    b'{"a":1 "b"}': "invalid character '\"' after object key:value pair",
    b'{"a":1,}': "invalid character '}' looking for beginning of object key string",
    b"{a:1}": "invalid character 'a' looking for beginning of object key string",
    b"01": "invalid character '1' after top-level value",
    b"1.x": "invalid character 'x' after decimal point in numeric literal",
    b"1ex": "invalid character 'x' in exponent of numeric literal",
    b"-x": "invalid character 'x' in numeric literal",
    b'"\\x"': "invalid character 'x' in string escape code",
    b'"\\u00g0"': "invalid character 'g' in \\u hexadecimal character escape",
    b'"\n"': "invalid character '\\n' in string literal",
    b"\x1f\x8b": "invalid character '\\x1f' looking for beginning of value",
    b"NaN": "invalid character 'N' looking for beginning of value",
    b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1): "invalid character '[' exceeded max depth",
    b'{"a":' * 100_000: "invalid character '{' exceeded max depth",
    b"1e400": "json: cannot unmarshal number 1e400 into Go value of type float64",
}


@pytest.mark.parametrize("body", WRONG, ids=[body[:12].decode(errors="replace") for body in WRONG])
def test_what_is_no_json(body: bytes) -> None:
    """In Go's words; also what is far too deep ends quickly."""
    with pytest.raises(Undecodable) as caught:
        decode_json(body)
    prefix = "" if "number" in WRONG[body] else "couldn't get version/kind; json parse error: "
    assert (str(caught.value), caught.value.unrecognized) == (WRONG[body], prefix + WRONG[body])


def test_a_number_of_many_digits_is_none() -> None:
    """It would cost quadratic time."""
    with pytest.raises(BadNumber):
        decode_json(b"[" + b"9" * 100_000 + b"]")


def test_as_deep_as_is_allowed() -> None:
    """And no deeper."""
    body = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert decode_json(body).value
    assert decode_json(b'{"a":"' + b"[" * 1000 + b'"}').value == {"a": "[" * 1000}


@pytest.mark.parametrize("digits", [400, 5000])
def test_integers_that_are_no_float_either(digits: int) -> None:
    """An integer is as bad as a number with an exponent."""
    with pytest.raises(BadNumber, match="cannot unmarshal number"):
        decode_json(b'{"a":%s}' % (b"1" * digits))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_any_json_comes_through(value: Any) -> None:
    """By the fast way, and by the slow one, which a long number asks for."""
    body = json.dumps(value).encode()
    assert decode_json(body).value == value
    assert decode_json(b"[1234567890123456789," + body + b"]").value[1] == value


@given(st.binary(max_size=40) | st.text(alphabet='{}[]",:0123.eE-+ truefalsn\\u', max_size=30).map(str.encode))
def test_what_python_reads_go_reads(body: bytes) -> None:
    """The scanner agrees with a parser about every text."""
    try:
        json.loads(body.decode(), parse_constant=_refuse)
    except ValueError:
        if body.decode(errors="replace").encode() == body:
            assert why_not(body, max_depth=100) is not None
    else:
        assert why_not(body, max_depth=100) is None


def _refuse(name: str) -> None:
    raise ValueError(name)


YAML: list[tuple[str, Any]] = [
    ("a: on\nb: 2020-01-01\nc: 012\n", {"a": True, "b": "2020-01-01", "c": 10}),
    ("d: 1_000\n1: 2\nx: 12:30:45\n", {"d": 1000, "1": 2, "x": "12:30:45"}),
    ("a: 1.50\nb: 1.0\nc: .5\nd: 1e3\n", {"a": 1.5, "b": 1, "c": 0.5, "d": 1000}),
    ("e: ~\nf: 0x1F\ng: !!str 5\nh: 0o17\n", {"e": None, "f": 31, "g": "5", "h": 15}),
    ("a: &x [1]\nb: *x\n<<: {z: 1}\n", {"a": [1], "b": [1], "z": 1}),
    ("true: 1\nn: 2\n", {"true": 1, "false": 2}),
    ("[y, N, yEs, 'y']", [True, False, "yEs", "y"]),
    ("", None),
    ("- a\n---\n- b\n", ["a"]),
    ("a: !!binary aGk=\n", {"a": "hi"}),
    ('{"a": 1.0}', {"a": 1}),
    ("a: y\nb: N\nc: yy\n", {"a": True, "b": False, "c": "yy"}),
    ("a: 9223372036854775808\n", {"a": 9223372036854776000}),
    (f"a: {'1' * 30}\nb: {'1' * 400}\nc: 1e400\n", {"a": float("1" * 30), "b": "1" * 400, "c": "1e400"}),
    (f"a: {'1' * 5000}\nb: 0x{'f' * 20}\n", {"a": "1" * 5000, "b": f"0x{'f' * 20}"}),
]


@pytest.mark.parametrize(("text", "value"), YAML)
def test_yaml_values(text: str, value: Any) -> None:
    """YAML 1.1 as Go reads it: no dates, no sexagesimal numbers, keys are texts."""
    found = decode_yaml(text.encode())
    assert (found.value, found.twice) == (value, ())


def test_keys_that_are_given_twice_in_yaml() -> None:
    """With the lines."""
    found = decode_yaml(b"a: 1\nb:\n  c: 1\n  c: 2\na: 2\n")
    assert found.value == {"a": 2, "b": {"c": 2}}
    assert found.twice == (
        'yaml: unmarshal errors:\n  line 4: key "c" already set in map\n  line 5: key "a" already set in map',
    )


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{here}: &{here} [{','.join(['*' + last] * 9)}]\n" for last, here in zip("abcdefg", "bcdefgh", strict=True)
)
BAD_YAML: list[tuple[str, str]] = [
    ("a: [\n", "yaml: line 1: did not find expected node content"),
    ("a: .inf\n", "json: unsupported value: +Inf"),
    ("a: -.inf\n", "json: unsupported value: -Inf"),
    ("? [a]\n: b\n", 'yaml: invalid map key: []interface {}{"a"}'),
    ("null: x\n", 'unsupported map key of type: %!s(<nil>), key: <nil>, value: "x"'),
    ("a: *x\n", "yaml: unknown anchor 'x' referenced"),
    ("a: b: c\n", "yaml: mapping values are not allowed in this context"),
    ("a: !!binary '*'\n", "yaml: !!binary value contains invalid base64 data"),
    ("[" * 5000, "yaml: "),
    ("- " * (MAX_DEPTH + 2) + "a", "yaml: exceeded max depth"),
    (BOMB, "yaml: document contains excessive aliasing"),
]


@pytest.mark.parametrize(("text", "message"), BAD_YAML, ids=[str(number) for number in range(len(BAD_YAML))])
def test_what_is_no_yaml(text: str, message: str) -> None:
    """Also a "billion laughs" and what is too deep."""
    with pytest.raises(Undecodable) as caught:
        decode_yaml(text.encode())
    assert str(caught.value).startswith(message)
