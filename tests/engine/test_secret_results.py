"""What a step is called with is made of Secrets, and put out and told as it is: nothing of that is recorded."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kargo_py.api.promotion import ExpressionVariable, PromotionStep, StepStatus
from kargo_py.engine.evaluation import Position, Program, configuration_for
from kargo_py.engine.masking import recordable
from kargo_py.engine.outputs import Output
from kargo_py.expressions.environment import Context
from kargo_py.expressions.functions import promotion_functions
from kargo_py.expressions.hiding import Secrecy, Secrets
from kargo_py.expressions.lookups import Lookup, Lookups, Source
from kargo_py.expressions.templates import Scope, render
from kargo_py.expressions.values import Function
from kargo_py.steps.base import Finished
from kargo_py.steps.compose_output import ComposeOutput

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
SECRET = {
    "pw": "qzxjQzxjqZ",
    "quoted": '"qzxjqzxjqzxj"\n',
    "csv": '"qzxjqzxj","qzxjqzxjqz"',
    "digits": "70770077707700777077",
    "zeros": "0070770077",
    "cents": "7077007.50",
    "small": "0.0000000070770077",
    "large": "7077007e30",
    "json": ' \n{"user_name": "qzxjqzxj", "pin": 70770077, "list": ["qzxjqzxjqz", 70077007.5]}',
}
S = "secret('s')"
UP = f"upper({S}.pw)"


def recorded(
    config: Any, variables: Mapping[str, str] | None = None, secret: Mapping[str, str] = SECRET
) -> tuple[Output, str]:
    """The output of compose-output with ``a: config``, and what a step would say of it."""
    lookups = Lookups()
    lookups.put(Lookup(Source.SECRET, "s"), secret)
    made = [ExpressionVariable(name=name, value=value) for name, value in (variables or {}).items()]
    program = Program(Context("shop", "p1", "production"), variables=made)
    step = PromotionStep.model_validate({"uses": "compose-output", "config": {"a": config}})
    became = configuration_for(ComposeOutput, program, Position("one", step), lookups, NOON)
    value = getattr(became["a"], "value", became["a"])
    said = f"{value} {value!r} {json.dumps(value)}"
    outcome = recordable(Finished(StepStatus.SUCCEEDED, said, dict(became)), "one", lookups.secrets)
    assert isinstance(outcome, Finished)
    assert isinstance(outcome.output, Output)
    return outcome.output, outcome.message


def told_of(output: Output, message: str) -> str:
    """What of the Secret is recorded; "" if that is nothing."""
    text = json.dumps([output, output.texts, message])
    return next(iter(re.findall(r"(?i)[qzxj]{3,}|[70][70.]{3,}", text)), "")


@pytest.mark.parametrize(
    "config",
    [
        *(f"${{{{ {S}.{name} }}}}" for name in SECRET),
        f"${{{{ {S} }}}}",
        f"${{{{ toJSON({S}) }}}}",
        *(f"${{{{ {function}({UP}) }}}}" for function in ("quote", "unsafeQuote", "asJSON", "asYAML", "toJSON")),
        *(f"${{{{ {function}([{UP}]) }}}}" for function in ("asJSON", "asYAML", "toJSON")),
        f"${{{{ quote({S}.digits) }}}}",
        f"${{{{ {{({UP}): 1}} }}}}",
        f"${{{{ [{{({UP} + 'x'): [{{'b': {UP}}}]}}] }}}}",
        f"${{{{ asJSON({{'a': {UP}}}) }}}}",
        f"${{{{ ' ' + toJSON([{UP}]) }}}}",
        f"${{{{ fromJSON({S}.json) }}}}",
        f"${{{{ fromJSON({S}.json).list[1] }}}}",
        f"${{{{ [int({S}.zeros)] }}}}",
        f"${{{{ -int({S}.zeros) }}}}",
        f"${{{{ float({S}.cents) * 10000 }}}}",
        f"${{{{ [float({S}.small)] }}}}",
        f"[${{{{ {S}.csv }}}}]",
        f'{{"a": "${{{{ {UP} }}}}", "b": ["x${{{{ {UP} }}}}"]}}',
        f'{{"${{{{ {UP} }}}}": 1}}',
        f"[1${{{{ {S}.zeros }}}}]",
        f"1${{{{ {S}.zeros }}}}",
        f"${{{{ {S}.zeros }}}}.5",
        f'"${{{{ {S}.quoted }}}}',
    ],
)
def test_nothing_of_a_secret_is_left(config: str) -> None:
    """Whatever a template makes of its text: numbers, parts of lists and maps, and texts without their quotes."""
    assert told_of(*recorded(config)) == ""


@pytest.mark.parametrize(
    "config", ["${{ quote(vars.b) }}", "${{ {(vars.b): 1} }}", "[${{ toJSON(vars.b) }}]", "${{ [vars.a] }}"]
)
def test_by_way_of_variables(config: str) -> None:
    variables = {"a": f"${{{{ quote({UP}) }}}}", "b": "${{ vars.a[0:9] }}"}

    assert told_of(*recorded(config, variables)) == ""


@settings(deadline=None, max_examples=200)
@given(
    value=st.recursive(
        st.one_of(
            st.text("qzxj", min_size=8),
            st.text('qzxj"\\\n é,[{', min_size=8).filter(lambda text: len(re.sub("[^qzxj]", "", text)) > 6),
            st.integers(70_000_000, 10**22).map(lambda n: int(str(n).translate(str.maketrans("123456789", "7" * 9)))),
        ),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner),
    ),
    template=st.sampled_from(["${{ %s }}", "[${{ %s }}]", '{"a": ${{ %s }}}', "${{ quote(%s) }}", "${{ asJSON(%s) }}"]),
)
def test_any_json_in_a_secret(value: Any, template: str) -> None:
    """No whole part of it is recorded."""
    output, message = recorded(template % "secret('s').json", secret={"json": json.dumps(value)})
    waiting, parts = [value], list[str]()
    while waiting:
        one = waiting.pop()
        if isinstance(one, list | dict):
            waiting += one.values() if isinstance(one, dict) else one
        else:
            parts.append(str(one))
    text = json.dumps([output, output.texts], ensure_ascii=False)
    assert [part for part in parts if part in text or part in message] == []


@pytest.mark.parametrize(
    ("config", "stays"),
    [
        (f"${{{{ {{'client-secret': {UP}}} }}}}", {"client-secret": "***"}),
        (f"${{{{ {{'mode': 'read-write', 'pw': {UP}}} }}}}", {"mode": "read-write", "pw": "***"}),
        (
            f"${{{{ {{'account': 123456789012, 'ratio': 0.123456789, 'pw': {UP}}} }}}}",
            {"account": 123456789012, "ratio": 0.123456789, "pw": "***"},
        ),
        (f"${{{{ [ctx.stage, vars.account, {UP}] }}}}", ["production", "123456789012", "***"]),
        (f"${{{{ {{(ctx.stage): {UP}}} }}}}", {"production": "***"}),
        (f"${{{{ fromJSON({S}.json) }}}}", {"user_name": "***", "pin": "***", "list": ["***", "***"]}),
        (
            f'{{"user-name": "production", "account": 123456789012, "pw": "${{{{ {UP} }}}}"}}',
            {"user-name": "production", "account": 123456789012, "pw": "***"},
        ),
        (
            f'{{"url": "https://${{{{ ctx.stage }}}}.example.com", "in": "https://x:${{{{ {UP} }}}}@example.com"}}',
            {"url": "https://production.example.com", "in": "https://x:***@example.com"},
        ),
        (
            f'{{"a": "shop is in \\"${{{{ ctx.stage }}}}\\" now", "b": "https:\\/\\/x.com", "c": "${{{{ {UP} }}}}"}}',
            {"a": 'shop is in "production" now', "b": "https://x.com", "c": "***"},
        ),
        (
            f'{{"text": "say \\"${{{{ {UP} }}}}\\" to production"}}',
            {"text": 'say "***" to production'},
        ),
        (f"${{{{ {UP} != '' ? 'registry/shop/image' : 'registry/shop/canary' }}}}", "registry/shop/image"),
        (f"${{{{ {UP} == '' ? '' : vars.account }}}}:x", "123456789012:x"),
        (f"${{{{ {UP} == '' ? '' : {UP} }}}}", "***"),
    ],
)
def test_what_stands_in_the_open_stays(config: str, stays: Any) -> None:
    """Beside a secret in the same text: later steps may read it, elsewhere, too."""
    output, _ = recorded(config, {"account": "123456789012"})

    assert output["a"] == stays


@pytest.mark.parametrize(
    ("secret", "value", "masked"),
    [
        ("0070770077", 70770077, True),
        ("7077.50", 7077.5, True),
        ("0001", 1, False),
        ("12.0", 12, False),
        ("7e3", 7000, False),
        ("inf", 1e300, False),
        ("70770077", 70770078, False),
        ("1e400", 1, False),
        ("true", True, False),
    ],
)
def test_numbers(secret: str, value: float, masked: bool) -> None:
    """A number that a secret is taken for, unless it has so few digits that it may be any other one."""
    secrets = Secrets()
    secrets.add(secret)

    assert (secrets.mask([value]) == ["***"]) is masked


def test_an_evaluation_that_nobody_waits_for() -> None:
    """One whose time was up goes on in its thread; it takes no secret of another one for none."""
    lookups = Lookups()
    lookups.put(Lookup(Source.SECRET, "s"), SECRET)
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> str:
        begun.set()
        assert go_on.wait(60)
        return ""

    functions = {**promotion_functions((), lookups), "wait": Function("wait", wait, 0, 0)}
    scope, made = Scope({}, functions, NOON, lookups), list[Secrecy]()
    thread = threading.Thread(target=lambda: made.append(render(f"${{{{ {UP} + wait() }}}}", scope).secrecy))
    thread.start()
    try:
        assert begun.wait(60)
        assert render("${{ 'registry' + '/image' }}", scope).secrecy is Secrecy.NONE
    finally:
        go_on.set()
        thread.join()

    assert made == [Secrecy.FULL]
    assert lookups.secrets.mask("registry/image of QZXJQZXJQZ") == "registry/image of ***"
