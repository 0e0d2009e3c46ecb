"""Templates: what is evaluated, what the result becomes, and where nothing is guessed."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from kargo_py.api.promotion import ExpressionVariable
from kargo_py.expressions.environment import VariableError, evaluate_variables
from kargo_py.expressions.errors import ExpressionError, Kind
from kargo_py.expressions.functions import TEXT_FUNCTIONS, VERSION_FUNCTIONS
from kargo_py.expressions.templates import ConfigurationError, Scope, render, render_all, string_places, templates_in
from kargo_py.expressions.values import Guess

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ENVIRONMENT: dict[str, Any] = {
    "vars": {"tag": Guess(1.3, "1.30"), "image": "shop", "n": Guess(3.0, "3"), "on": Guess(True, "true"), "plain": "x"},
    "outputs": {"a": {"n": 5, "list": [1, 2], "sha": "1234e56"}},
}
SCOPE = Scope(ENVIRONMENT, {**TEXT_FUNCTIONS, **VERSION_FUNCTIONS}, NOW)


@pytest.mark.parametrize(
    ("template", "value", "text"),
    [
        ("42", "42", "42"),
        ("", "", ""),
        ("$ {{ 1 }}", "$ {{ 1 }}", "$ {{ 1 }}"),
        ("${{ '42' }}", 42.0, "42"),
        ("${{ 42 }}", 42.0, "42"),
        ("${{ '1.30' }}", 1.3, "1.30"),
        ("${{ 'T' }}", True, "T"),
        ("${{ 'f' }}", False, "f"),
        ("${{ '1' }}", 1.0, "1"),
        ("${{ 'yes' }}", "yes", "yes"),
        ("${{ '1234e56' }}", 1.234e59, "1234e56"),
        ("${{ '1e400' }}", "1e400", "1e400"),
        ("${{ 'null' }}", None, "null"),
        ("${{ nil }}", None, None),
        ("${{ vars.missing }}", None, None),
        ("a-${{ vars.missing }}", "a-null", "a-null"),
        ("${{ quote(42) }}", "42", "42"),
        ("${{ quote('x') }}", "x", "x"),
        ("${{ quote('he said \"x\"') }}", 'he said \\"x\\"', 'he said \\"x\\"'),
        ("${{ unsafeQuote('x') }}", '"x"', '"x"'),
        ("${{ '\"\"' }}", "", ""),
        ("${{ '\"' }}", '"', '"'),
        ("${{ quote(1) }}\n", "1\n", "1\n"),
        ("${{ 1 }}\n", 1.0, "1\n"),
        ("${{ 'a' }}\n", "a\n", "a\n"),
        ("${{ [1, 'a'] }}", [1.0, "a"], '[1,"a"]'),
        ("${{ {a: 1} }}", {"a": 1.0}, '{"a":1}'),
        ("[${{ 1 }}, ${{ 2 }}]", [1.0, 2.0], "[1, 2]"),
        ("${{ 1 }}${{ 2 }}", 12.0, "12"),
        ("${% 1 + 1 %}", 2.0, "2"),
        ("${% '}}' %}", "}}", "}}"),
        ("${{ 'a' }}-${% 'b' %}", "a-b", "a-b"),
        ("x${{}}y${{ 1 }}", "xy${{ 1 }}", "xy${{ 1 }}"),
        ("${{ vars.tag }}", 1.3, "1.30"),
        ("v${{ vars.tag }}", "v1.30", "v1.30"),
        ("${{ vars.image + ':' + vars.tag }}", "shop:1.30", "shop:1.30"),
        ("${{ quote(vars.tag) }}", "1.30", "1.30"),
        ("${{ vars.n + 1 }}", 4.0, "4"),
        ("${{ vars.n > 2 }}", True, "true"),
        ("${{ vars.on ? 'a' : 'b' }}", "a", "a"),
        ("${{ vars.on && vars.n == 3 }}", True, "true"),
        ("${{ not vars.on }}", False, "false"),
        ("${{ vars.tag == '1.30' }}", True, "true"),
        ("${{ vars.tag contains '30' }}", True, "true"),
        ("${{ vars.tag in ['1.30'] }}", True, "true"),
        ("${{ vars.n in [1, 3] }}", True, "true"),
        ("${{ [vars.tag] }}", [1.3], "[1.3]"),
        ("${{ join(['a', vars.tag], '-') }}", "a-1.30", "a-1.30"),
        ("${{ semverDiff(vars.tag, '1.31') }}", "Minor", "Minor"),
        ("${{ vars.missing ?? vars.tag }}", 1.3, "1.30"),
        ("${{ outputs.a.n }}", 5.0, "5"),
        ("${{ '<&>' }}", "<&>", "<&>"),
        ("${{ {a: '<'} }}", {"a": "<"}, '{"a":"\\u003c"}'),
        ("${{ asJSON({a: 1}) }}", '{\n  "a": 1\n}\n', '{\n  "a": 1\n}\n'),
        ("${{ asYAML({a: [1, 'x']}) }}", "a:\n    - 1\n    - x\n", "a:\n    - 1\n    - x\n"),
        ("${{ date('2026-01-31') }}", "2026-01-31T00:00:00Z", "2026-01-31T00:00:00Z"),
    ],
)
def test_render(template: str, value: Any, text: str | None) -> None:
    """Kargo's guess beside the text for places that take strings."""
    rendered = render(template, SCOPE)

    assert (value, type(value), text) == (rendered.value, type(rendered.value), rendered.text)


@pytest.mark.parametrize("text", ["nan", "Inf", "-inf"])
def test_not_finite(text: str) -> None:
    """Such numbers are a string in a place for strings, and refused with their path elsewhere."""
    assert not math.isfinite(render(f"${{{{ '{text}' }}}}", SCOPE).value)
    with pytest.raises(ConfigurationError, match=r"^a\[0\]: unsupported value"):
        render_all({"a": [f"${{{{ '{text}' }}}}"]}, SCOPE)
    assert {"a": text} == render_all({"a": f"${{{{ '{text}' }}}}"}, SCOPE, lambda _: True)


@pytest.mark.parametrize(
    ("template", "at", "why"),
    [
        ("ab ${{ 1 +", 3, 'unclosed expression: expected "}}" but reached end of template'),
        ("ab ${% 1 }}", 3, 'unclosed expression: expected "%}" but reached end of template'),
        ("ab ${{ 1 + }}", 10, "unexpected end of expression"),
        ("ab ${{ n.x }}", 9, "cannot fetch x from <nil>"),
        ("${{ {a: '}}'} }}", 9, "literal not terminated"),
        ("${{ [1/0] }}", 3, "json: unsupported value: +Inf"),
        ("${{ nope() }}", 4, "there is no function nope"),
    ],
)
def test_errors(template: str, at: int, why: str) -> None:
    """The position is that within the whole template."""
    with pytest.raises(ExpressionError) as raised:
        render(template, SCOPE)

    assert (at, why) == (raised.value.at, raised.value.why)
    assert template[:60] in str(raised.value)


def test_all_problems_at_once() -> None:
    """Each problem of a configuration is told with its path."""
    with pytest.raises(ConfigurationError) as raised:
        render_all({"a": ["ok", "${{ n.x }}"], "b": {"c": "${{ 1 + }}"}, "d": "${{ vars.tag }}"}, SCOPE)

    assert [path for path, _ in raised.value.problems] == [("a", 1), ("b", "c")]
    assert "a[1]: cannot fetch x from <nil>" in str(raised.value)


def test_names_are_untouched() -> None:
    """Only values are evaluated; other values stay what they are."""
    config = {"${{ 1 }}": "${{ 1 }}", "n": 1, "t": True, "z": None, "l": ["${{ 'a' }}", 2]}

    assert render_all(config, SCOPE) == {"${{ 1 }}": 1.0, "n": 1, "t": True, "z": None, "l": ["a", 2]}


SCHEMA = {
    "type": "object",
    "properties": {
        "tag": {"type": "string"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "any": {},
        "list": {"type": "array", "items": {"$ref": "#/$defs/App"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "kind": {"enum": ["a", "b"]},
    },
    "$defs": {"App": {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "number"}}}},
}


def test_string_places() -> None:
    """The schema says where nothing is guessed."""
    template = "${{ vars.tag }}"
    names = ["tag", "maybe", "either", "any", "unknown", "kind"]
    config = {
        **dict.fromkeys(names, template),
        "list": [{"name": template, "n": template}],
        "map": {"x": template},
        "sha": "${{ outputs.a.sha }}",
    }

    rendered = render_all(config, SCOPE, string_places(SCHEMA))

    assert {name: rendered[name] for name in names} == {
        "tag": "1.30",
        "maybe": "1.30",
        "either": 1.3,
        "any": 1.3,
        "unknown": 1.3,
        "kind": "1.30",
    }
    assert rendered["list"] == [{"name": "1.30", "n": 1.3}]
    assert rendered["map"] == {"x": "1.30"}
    assert rendered["sha"] == 1.234e59


def test_nil_stays_nil() -> None:
    """Nil in a place for strings is null, never a text."""
    assert render_all({"tag": "${{ vars.missing }}"}, SCOPE, string_places(SCHEMA)) == {"tag": None}


def test_texts_are_kept() -> None:
    """Outputs keep the text of what was guessed, so that a later step gets it back."""
    kept = render_all({"tag": "${{ '1.30' }}", "name": "${{ 'x' }}"}, SCOPE, keep_text=True)

    assert {"tag": Guess(1.3, "1.30"), "name": "x"} == kept
    assert render("v${{ outputs.tag }}", Scope({"outputs": kept}, {}, NOW)).text == "v1.30"


def test_variables() -> None:
    """A later variable uses those before it, and the texts of their guesses."""
    variables = [
        ExpressionVariable(name="tag", value="${{ '1.30' }}"),
        ExpressionVariable(name="image", value="shop:${{ vars.tag }}"),
        ExpressionVariable(name="next", value="${{ vars.tag + 1 }}"),
        ExpressionVariable(name="plain", value="42"),
    ]

    made = evaluate_variables(variables, Scope({}, {}, NOW))

    assert {"tag": Guess(1.3, "1.30"), "image": "shop:1.30", "next": Guess(2.3, "2.3"), "plain": "42"} == made


def test_variable_error() -> None:
    """The error names the variable."""
    with pytest.raises(VariableError, match=r"^variable a: cannot fetch y from <nil>"):
        evaluate_variables([ExpressionVariable(name="a", value="${{ x.y }}")], Scope({}, {}, NOW))


def test_templates_in() -> None:
    """All strings with expressions, with their paths, in order."""
    config = {"a": "${{ 1 }}", "b": ["x", {"c": "${% 2 %}"}]}

    assert list(templates_in(config)) == [(("a",), "${{ 1 }}"), (("b", 1, "c"), "${% 2 %}")]


@pytest.mark.parametrize(
    "template", ["${{ repeat('a', 1000000) + repeat('a', 100000) }}", "${{ repeat('a', 600000) }}" * 2, "${{1}}" * 1200]
)
def test_bounded(template: str) -> None:
    """A result of any size is refused."""
    with pytest.raises(ExpressionError) as raised:
        render(template, SCOPE)

    assert raised.value.kind is Kind.LIMIT


def test_deep_configuration() -> None:
    """A configuration that nests for ever is refused, not followed."""
    deep: Any = "${{ 1 }}"
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ConfigurationError, match="deep"):
        render_all(deep, SCOPE)
