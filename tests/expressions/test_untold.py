"""An error of an expression that has looked at a Secret quotes nothing, whatever has become of the secret in it."""

from __future__ import annotations

import ast
import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import kargo_py.expressions
from kargo_py.api.freight import Chart, FreightOrigin, FreightReference, GitCommit, Image
from kargo_py.api.promotion import ExpressionVariable
from kargo_py.expressions.analysis import parts
from kargo_py.expressions.builtins import BUILTINS
from kargo_py.expressions.environment import Context, VariableError, environment as names, evaluate_variables
from kargo_py.expressions.errors import ExpressionError, Fault, Kind
from kargo_py.expressions.evaluator import evaluate, prepare
from kargo_py.expressions.functions import promotion_functions, status_functions
from kargo_py.expressions.hiding import Secrecy
from kargo_py.expressions.lookups import Lookup, Lookups, Missing, Source
from kargo_py.expressions.methods import METHODS
from kargo_py.expressions.parser import PREDICATES
from kargo_py.expressions.templates import ConfigurationError, Scope, render, render_all
from kargo_py.expressions.tree import Literal, Member
from tests.expressions.golang import environment, vectors

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
TEXT = "qzxjQZXJqzxj"
"""No word of an error has two of these letters in a row; reversed, cut or in the other case it is as easily known."""
NUMBER = "70770077"
SECRET = {"t": TEXT, "n": NUMBER, "nan": "nan", "url": "https://qzxj/qzxj", "json": '{"qzxj": [1, 1e999]}'}
BASE_64 = base64.b64encode(TEXT.encode()).decode()
CONSTANTS = frozenset({"9999", "1000", "300000", "1000000", "1048576", "500", "100"})
"""The limits that errors tell."""


def freight() -> list[FreightReference]:
    """The same artifacts from two Warehouses."""
    return [
        FreightReference(
            name=f"f-{home}",
            origin=FreightOrigin(kind="Warehouse", name=home),
            commits=[GitCommit(repo_url=SECRET["url"], id="1")],
            images=[Image(repo_url=SECRET["url"], tag="1")],
            charts=[Chart(repo_url=SECRET["url"], name=TEXT, version="1"), Chart(repo_url=SECRET["url"], version="1")],
        )
        for home in ("one", "two")
    ]


def scope(lookups: Lookups) -> Scope:
    lookups.put(Lookup(Source.SECRET, "s"), SECRET)
    functions = {**promotion_functions(freight(), lookups), **status_functions("a", ())}
    return Scope(names(Context("p", "q", "stage")), functions, NOON, lookups)


class AllTold(Lookups):
    """Takes every result for secret."""

    def seen(self, *_: object) -> Secrecy:
        return Secrecy.FULL


def recorded(expression: str, *variables: ExpressionVariable, here: Scope | None = None) -> str | None:
    """The error of *expression* as it is to be recorded, even if nothing is masked; None if it has none."""
    here = here or scope(Lookups())
    try:
        known = evaluate_variables(variables, here)
        render(f"x${{{{ {expression} }}}}", Scope({**here.environment, "vars": known}, *_rest(here)))
    except VariableError as error:
        return error.error.why
    except ExpressionError as error:
        return error.why
    except Missing as missing:
        return str(missing)
    return None


def _rest(here: Scope) -> tuple[Any, ...]:
    return here.functions, here.now, here.witness, here.allowance


def told_of(why: str) -> str:
    """What of the Secret stands in *why*; "" if that is nothing."""
    found = re.search(r"[qzxj]{2}", why.casefold())
    coded = next((BASE_64[at : at + 4] for at in range(len(BASE_64) - 3) if BASE_64[at : at + 4] in why), "")
    digits = next((each for each in re.findall(r"[0-9]{3,}", why) if each not in CONSTANTS), "")
    return coded or digits or (found[0] if found else "")


S, N = "secret('s').t", "int(secret('s').n)"
URL = "secret('s').url"
FAULTS = [
    f"int(upper({S}))",
    f"float({S}[1:])",
    f"repeat('a', -{N} - 1)",
    f"date(upper({S}))",
    f"take([1], 1 - {N})",
    f"sort([1], lower({S}))",
    f"bitshl(1, -{N} - 1)",
    f"now()[upper({S})]",
    f"warehouse('a')[upper({S})]",
    f"[1][{N} + 1]",
    f"toJSON(1 / ({N} - {N}))",
    "fromJSON(upper(secret('s').json))",
    f"fromJSON(upper({S}))",
    f"duration({S}[1:])",
    f"duration('.' + lower({S}))",
    f"duration('1' + lower({S}))",
    f"duration(string({N}) + string({N}) + string({N}) + 'h')",
    f"timezone('/' + upper({S}))",
    f"timezone(upper({S}))",
    f"now().Format(repeat({S}, 100))",
    f"date(string({N} + 1) + '-99-99', '20060102-01-02')",
    f"date('2006-99-02 ' + upper({S}))",
    f"date('2006-99-02', '2006-01-02' + lower({S}))",
    f"date('2006-01-02 ' + upper({S}), '2006-01-02')",
    f"date('12 +9999' + lower({S}), '15 -0700')",
    f"date(lower({S}) + '2025-366', lower({S}) + '2006-002')",
    f"date(upper({S}), '2006' + lower({S}))",
    f"date(lower({S}) + '2025-02-30', lower({S}) + '2006-01-02')",
    f"'a' matches '(' + upper({S})",
    f"semverParse(upper({S}))",
    f"semverParse('1.2.3').SetPrerelease('_' + upper({S}))",
    f"{S} != '' && semverParse('1.2.3').Compare(semverParse('18446744073709551615.0.0').IncMajor())",
    f"commitFrom({URL})",
    f"imageFrom({URL})",
    f"chartFrom({URL})",
    f"chartFrom({URL}, {S})",
    f"chartFrom(upper({URL}))",
    f"chartFrom(upper({URL}), upper({S}))",
    f"stageMetadata(upper({S}))",
]


def pattern(template: str) -> str:
    return ".*".join(re.escape(part) for part in re.split(r"\{(?:!r)?\}", template))


def sites() -> Iterator[tuple[str, ast.Call]]:
    """Where a Fault is raised in the package."""
    for file in sorted(Path(kargo_py.expressions.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in {"Fault", "LimitFault"}
            ):
                yield f"{file.name}:{node.lineno}", node


def wordings(node: ast.Call) -> str:
    """A regular expression for the texts of a Fault with its data left out."""
    said = node.args[0]
    pieces = said.values if isinstance(said, ast.JoinedStr) else [said]
    return "".join(pattern(str(p.value)) if isinstance(p, ast.Constant) else ".*" for p in pieces)


SITES = dict(sites())
OF_DATA = {where: node for where, node in SITES.items() if len(node.args) > 1}
NO_DATA = {
    *("MAX_STEPS", "MAX_MEMORY", "MAX_TEXT", "MAX_NESTING", "_LONGEST", "_MAX_LENGTH"),
    *("takes", "len(arguments)", "operator", "function", "named", "source", "what", "name[:100]"),
    *("name", "self.name", "self.type_name", "hay.type_name", "', '.join(self.values) or 'none'"),
    *("wanted.__name__.lower()", "name.replace('_', ' ')", "kind"),
}
"""What else the texts of Faults are put together of: names of functions, of their arguments, of types, and limits."""


def test_what_texts_of_faults_are_made_of() -> None:
    """Whatever comes from a value is handed over as such: types alone may be put into the text."""
    for where, node in SITES.items():
        if isinstance(node.args[0], ast.JoinedStr):
            for piece in node.args[0].values:
                if isinstance(piece, ast.FormattedValue):
                    shown = ast.unparse(piece.value)
                    is_type = re.fullmatch(r"(?:article|type_name)\(\w+(?:\[0\])?\)", shown)
                    assert is_type or shown in NO_DATA, f"{where}: {shown} is data, or to be listed as none"
        elif not isinstance(node.args[0], ast.Constant):
            assert ast.unparse(node.args[0]) == "_ALL_TOGETHER" or isinstance(node.args[0], ast.IfExp), where


@pytest.mark.parametrize("expression", FAULTS)
def test_faults_that_quote(expression: str) -> None:
    """None of the Secret is recorded, however it was changed."""
    why = recorded(expression)

    assert why is not None
    assert told_of(why) == ""
    assert "…" in why


def test_all_faults_that_quote_are_among_them() -> None:
    found = [recorded(expression) or "" for expression in FAULTS]
    missed = {
        where: wordings(node)
        for where, node in OF_DATA.items()
        if not any(re.fullmatch(wordings(node), why) for why in found)
    }

    assert len(OF_DATA) >= 30
    assert missed == {}


CALLABLE = sorted({*BUILTINS, *PREDICATES, *promotion_functions((), Lookups()), *status_functions("a", ())})
OPERATORS = ("+", "-", "*", "/", "%", "**", "<", "==", "in", "contains", "matches", "..", "and", "??")
MADE = (
    *(f"upper({S})", f"{S}[1:]", f"toBase64({S})", f"{N} + 1", f"-{N}", f"[{S}, {N}]", f"{{(lower({S})): {N}}}"),
    *(f"join(reverse(split({S}, '')), '')", f"fromPairs([[{N}, {S}]])", f"duration(string({N}) + 'h')"),
    *(f"{URL} | upper()", f"now().AddDate({N}, 0, 0)", f"semverParse({N} | string())", "nil", "1"),
)
SECOND = (MADE[0], MADE[3], MADE[4], MADE[5])
METHODS_CALLED = sorted({name for methods in METHODS.values() for name in methods})


def combinations() -> Iterator[str]:
    for name, one in product(CALLABLE, MADE):
        yield f"{name}({one})"
        yield f"[{one}].{name}"
        for other in SECOND:
            second = f"{{# == {other}}}" if name in PREDICATES else other
            yield f"{name}({one}, {second})"
    for operator, one, other in product(OPERATORS, MADE, SECOND):
        yield f"({one}) {operator} ({other})"
    for one, other in product(MADE, MADE):
        yield f"({one})[{other}]"
        yield f"({one})[{other}:]"
    for name, one in product(METHODS_CALLED, MADE):
        yield f"now().{name}({one})"
        yield f"duration('1h').{name}({one})"
        yield f"({one}).{name}()"


def test_everything_with_everything() -> None:
    """Each function, operator and method of values that were made of a Secret."""
    told, here = set(), scope(Lookups())
    for expression in combinations():
        if why := recorded(expression, here=here):
            told.add(why)
            assert told_of(why) == "", expression

    assert len(told) > 150


DEEPER = st.recursive(
    st.sampled_from(MADE),
    lambda inner: st.one_of(
        st.builds("{}({})".format, st.sampled_from(CALLABLE), inner),
        st.builds("{}({}, {})".format, st.sampled_from(CALLABLE), inner, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(OPERATORS), inner),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
        st.builds("(let v = {}; [v, {}] | map(int(#)))".format, inner, inner),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=150)
@given(expression=DEEPER)
def test_deeper(expression: str) -> None:
    """Expressions nobody thought of tell nothing."""
    assert told_of(recorded(expression) or "") == ""


def test_errors_of_the_vectors() -> None:
    """With all that they are given taken for secret, they tell nothing of their texts."""
    here = Scope(environment(), {}, NOON, AllTold())
    looked = 0
    for vector in vectors()["vectors"]:
        try:
            expression = prepare(vector["expression"])
            evaluate(vector["expression"], environment(), now=NOON)
        except ExpressionError as error:
            if error.kind is Kind.SYNTAX:
                continue
            plain = error.why
        else:
            continue
        with pytest.raises(ExpressionError) as raised:
            render(f"${{% {vector['expression']} %}}", here)
        quoted = raised.value.untold
        assert quoted == raised.value.why
        every = list(parts(expression.tree))
        stated = {one.key.value for one in every if isinstance(one, Member) and isinstance(one.key, Literal)}
        texts = {one.value for one in every if isinstance(one, Literal) and type(one.value) is str} - stated
        assert [text for text in texts if len(text) > 3 and text in quoted] == [], (vector["expression"], plain)
        looked += plain != quoted

    assert looked > 50


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("int('abc')", "invalid operation: int(abc)"),
        ("configMap('c').x.b", "cannot fetch b from <nil>"),
        ("[1][7]", "index out of range: 7 (array length is 1)"),
        ("int(vars.open)", "invalid operation: int(a{}b)"),
        ("int(vars['op' + 'en'] + vars.open)", "invalid operation: int(…)"),
    ],
)
def test_of_nothing_secret(expression: str, why: str) -> None:
    """Errors without a Secret say what they always said, beside variables that are secret, too."""
    lookups = Lookups()
    here = scope(lookups)
    lookups.put(Lookup(Source.CONFIG_MAP, "c"), {"a": "x"})
    variables = [
        ExpressionVariable(name="open", value="a{}b"),
        ExpressionVariable(name="hidden", value=f"${{{{ upper({S}) }}}}"),
    ]
    known = evaluate_variables(variables, here)
    with pytest.raises(ExpressionError) as raised:
        render(f"${{{{ {expression} }}}}", Scope({**here.environment, "vars": known}, *_rest(here)))

    assert raised.value.why == why


HIDDEN = ExpressionVariable(name="hidden", value=f"x${{{{ upper({S}) }}}}")
SHORT = ExpressionVariable(name="short", value=f"${{{{ {S}[1:6] }}}}")
AGAIN = ExpressionVariable(name="again", value="${{ vars.hidden[1:7] }}")


@pytest.mark.parametrize(
    "expression",
    [
        "int(vars.hidden)",
        "int(lower(vars['hidden']))",
        "int(lower(vars['hid' + 'den']))",
        "int(upper(toJSON(vars)))",
        "int(toJSON($env) | lower())",
        "let v = vars; int(v.hidden)",
        "[$env] | map(int(lower(.vars.hidden)))",
        "int(lower($env.vars.hidden))",
        "int(lower($env['vars']['hidden']))",
        "int(upper(vars.short))",
        "int(upper(vars.again))",
        "map(values(vars), int(lower(#)))",
    ],
)
def test_by_way_of_variables(expression: str) -> None:
    """Read by whatever way, by name or with all others."""
    why = recorded(expression, HIDDEN, SHORT, AGAIN)

    assert why is not None
    assert told_of(why) == ""


@pytest.mark.parametrize(
    "expression",
    ["upper(toJSON(vars))", "$env | toJSON() | lower()", "let v = vars; lower(v.hidden)", "join(values(vars), '')[1:]"],
)
def test_variables_as_a_whole(expression: str) -> None:
    """What is made of all variables is as secret as the most secret of them."""
    lookups = Lookups()
    here = scope(lookups)
    known = evaluate_variables([HIDDEN, ExpressionVariable(name="open", value="open")], here)
    made = render(f"${{{{ {expression} }}}}", Scope({**here.environment, "vars": known}, *_rest(here)))

    assert made.secrecy is Secrecy.FULL
    assert told_of(lookups.secrets.mask(f"it said {made.text}")) == ""


@pytest.mark.parametrize(
    "expression", ["vars.open + ' is open'", "$env.ctx.project + ' is open'", "'hidden vars ' + '!'"]
)
def test_others_beside_a_secret_variable(expression: str) -> None:
    """They are as open as before."""
    lookups = Lookups()
    here = scope(lookups)
    known = evaluate_variables([HIDDEN, ExpressionVariable(name="open", value="open")], here)
    made = render(f"${{{{ {expression} }}}}", Scope({**here.environment, "vars": known}, *_rest(here)))

    assert made.secrecy is Secrecy.NONE
    assert lookups.secrets.mask(made.text) == made.text


def test_one_wording_with_data_and_one_without() -> None:
    fault = Fault("cannot {} {!r} in {{}}", "a{}b", "c")

    assert (str(fault), fault.untold) == ("cannot a{}b 'c' in {}", "cannot … … in {}")
    assert str(Fault("as {} it {0} is")) == Fault("as {} it {0} is").untold == "as {} it {0} is"


@pytest.mark.parametrize(
    ("expression", "untold"),
    [
        (f"configMap(lower({S}))", True),
        (f"{S} + configMap('open').a", False),
        ("configMap('open')", False),
        ("configMap(vars.hidden)", True),
    ],
)
def test_names_of_what_is_looked_up(expression: str, untold: bool) -> None:
    """A name that was made of a Secret is not told by who cannot read the object."""
    lookups = Lookups()
    here = scope(lookups)
    known = evaluate_variables([HIDDEN], here)
    with pytest.raises(Missing) as raised:
        render(f"${{{{ {expression} }}}}", Scope({**here.environment, "vars": known}, *_rest(here)))

    assert raised.value.lookup.untold is untold
    assert ("…" in raised.value.lookup.shown) is untold


def test_not_finite_and_large() -> None:
    """What templates refuse of a result says nothing of it either."""
    here = scope(Lookups())
    with pytest.raises(ConfigurationError, match="unsupported value: … is no JSON"):
        render_all({"a": "${{ secret('s').nan }}"}, here)
    with pytest.raises(ExpressionError, match="the result has … characters"):
        render(f"${{{{ repeat({S}, 80000) }}}}" + "x" * 200_000, here)
