"""Every vector that the Go library made: the same value, or an error of the same kind at the same place."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kargo_py.expressions.builtins import BUILTINS
from kargo_py.expressions.errors import ExpressionError, Kind
from kargo_py.expressions.evaluator import evaluate
from kargo_py.expressions.numbers import parse_bool, parse_float
from kargo_py.expressions.parser import BUILTINS as NAMES, PREDICATES
from kargo_py.expressions.writing import go_quoted, quoted
from tests.expressions.differences import DIFFERENCES
from tests.expressions.golang import VECTORS, encoded, environment, vectors

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
PAGE = Path(__file__).parents[2] / "docs/reference/expressions.md"


def ours(expression: str) -> tuple[Any, ExpressionError | None]:
    try:
        return encoded(evaluate(expression, environment(), now=NOW)), None
    except ExpressionError as error:
        return None, error


def disagreement(vector: dict[str, Any]) -> str:
    """In what we differ from the Go library; empty if in nothing."""
    value, error = ours(vector["expression"])
    wanted = vector.get("error")
    if not wanted:
        if error is not None:
            return f"Go has {vector['value']}, we have {error}"
        return "" if value == vector["value"] else f"Go has {vector['value']}, we have {value}"
    if error is None:
        return f"Go has the error {vector['why']}, we have {value}"
    if (wanted == "syntax") != (error.kind is Kind.SYNTAX):
        return f"Go has an error of kind {wanted}, we of kind {error.kind}"
    if wanted == "syntax" and vector.get("at", 0) != error.at:
        return f"Go points at {vector['at']}, we at {error.at}"
    return ""


def test_vectors() -> None:
    """All agree but those that are listed, and each that is listed does differ."""
    found = {v["expression"]: said for v in vectors()["vectors"] if (said := disagreement(v))}

    assert {e: s for e, s in found.items() if e not in DIFFERENCES} == {}
    assert DIFFERENCES.keys() - found.keys() == set()


def test_vectors_have_everything() -> None:
    """Each operator, builtin and kind of error is among them."""
    every = [v["expression"] for v in vectors()["vectors"]]
    text = "\n".join(every)

    assert len(every) >= 2000
    assert {v.get("error") for v in vectors()["vectors"]} == {None, "syntax", "type", "runtime"}
    assert [name for name in (*NAMES, *PREDICATES) if f"{name}(" not in text] == []
    operators = (
        *(
            "+",
            "-",
            "*",
            "/",
            "%",
            "**",
            "^",
            "==",
            "!=",
            "<",
            ">",
            "<=",
            ">=",
            " in ",
            " not in ",
            " and ",
            " or ",
            "&&",
        ),
        *(
            "||",
            "!",
            "not ",
            "..",
            "??",
            "?.",
            "?:",
            "|",
            " contains ",
            " startsWith ",
            " endsWith ",
            " matches ",
            "::",
        ),
        *("let ", "#acc", "#index", "$env", "if ", ";"),
    )
    assert [operator for operator in operators if operator not in text] == []


def test_builtins_are_those_that_parse() -> None:
    """What the parser takes for a builtin is one."""
    assert BUILTINS.keys() == NAMES


def test_vectors_are_current() -> None:
    """The vectors are of the expressions that stand beside them."""
    lines = (VECTORS / "expressions.txt").read_text().split("\n")
    wanted = [line for line in lines if line and not line.startswith(("## ", "!json "))]

    assert set(wanted) <= {v["expression"] for v in vectors()["vectors"]}


@pytest.mark.parametrize("reason", sorted(set(DIFFERENCES.values())))
def test_differences_are_told(reason: str) -> None:
    """The page has the reason of each difference."""
    assert reason in re.sub(r"\s+", " ", PAGE.read_text())


@pytest.mark.parametrize("vector", vectors()["coercions"], ids=lambda vector: repr(vector["text"]))
def test_coercions(vector: dict[str, Any]) -> None:
    """Go's ParseFloat, ParseBool, %q and JSON."""
    number = parse_float(vector["text"])

    assert (encoded(number) or {"float": None}) == {"float": vector["float"]}
    assert parse_bool(vector["text"]) == vector["bool"]
    assert go_quoted(vector["text"]) == vector["quoted"]
    assert quoted(vector["text"]) == vector["json"]


# Generated expressions, where Go is there

GO = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


class Library:
    """The Go library, asked over pipes."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen(
            [program, "serve"], cwd=VECTORS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, expression: str) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(expression) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    if GO is None:
        pytest.skip("Go is not there")
    program = tmp_path_factory.mktemp("go") / "vectors"
    built = subprocess.run(
        [GO, "build", "-o", program, "."], cwd=VECTORS, env=os.environ, capture_output=True, text=True, check=False
    )
    if built.returncode:
        pytest.skip(f"the Go library cannot be built here: {built.stderr[-300:]}")
    library = Library(program)
    yield library
    assert library.process.stdin
    assert library.process.stdout
    library.process.stdin.close()
    library.process.wait(10)
    library.process.stdout.close()


NUMBERS = st.sampled_from(["i", "j", "f", "g", "1", "2", "0.5", "vars.replicas", "len(l)", "l[0]", "m.a"])
TEXTS = st.sampled_from(["s", "t", '"ab"', "vars.tag", "vars.env", "k[0]", "upper(s)", "string(i)"])
LISTS = st.sampled_from(["l", "[1, 2.5, 3]", "1..4", "map(l, # * 2)", "e", "[i, j]"])


def numbers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/"]), inner),
        st.builds("(-{})".format, inner),
        st.builds("({0} > {1} ? {0} : {1})".format, inner, inner),
        st.builds("{}({}, {})".format, st.sampled_from(["max", "min", "mean"]), inner, inner),
        st.builds("{}({})".format, st.sampled_from(["abs", "floor", "ceil", "round", "int", "float"]), inner),
        st.builds("(let q = {}; q + {})".format, inner, inner),
        st.builds("sum(map({}, # + {}))".format, LISTS, inner),
        st.builds("(n ?? {})".format, inner),
    )


def texts(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} + {})".format, inner, inner),
        st.builds("{}({})".format, st.sampled_from(["upper", "lower", "trim", "toBase64"]), inner),
        st.builds("{}[{}:{}]".format, inner, st.integers(-3, 5), st.integers(-3, 5)),
        st.builds("replace({}, {}, {})".format, inner, inner, inner),
        st.builds("join(split({}, {}), {})".format, inner, inner, inner),
        st.builds("({} | upper() | repeat({}))".format, inner, st.integers(0, 3)),
    )


NUMBER = st.recursive(NUMBERS, numbers, max_leaves=8)
TEXT = st.recursive(TEXTS, texts, max_leaves=6)
TRUTH = st.recursive(
    st.one_of(
        st.builds("({} {} {})".format, NUMBER, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), NUMBER),
        st.builds("({} {} {})".format, TEXT, st.sampled_from(["contains", "startsWith", "endsWith", "<", "=="]), TEXT),
        st.builds("({} in {})".format, NUMBER, LISTS),
        st.builds("{}({}, # > {})".format, st.sampled_from(["all", "any", "none", "one"]), LISTS, NUMBER),
    ),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["&&", "||", "and", "or", "==", "!="]), inner),
        st.builds("(not {})".format, inner),
    ),
    max_leaves=4,
)


@pytest.mark.golang
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(expression=st.one_of(NUMBER, TEXT, TRUTH))
def test_generated(library: Library, expression: str) -> None:
    """Expressions nobody thought of agree, too."""
    vector = library.ask(expression)
    if vector.get("error") == "type":  # of constants, which we find when they are used
        return

    assert disagreement(vector) == ""


WORDS = """1 2.5 'a' "b" a l m . ?. [ ] ( ) { } , : ? ?? + - * / % ** == < >= && || ! not in contains .. | ; let x = #
map( filter( len( true nil if else #index $env ::"""
TOKENS = st.lists(
    st.sampled_from(WORDS.split()),
    max_size=12,
).map(" ".join)


@pytest.mark.golang
@settings(deadline=None, max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(expression=TOKENS)
def test_generated_syntax(library: Library, expression: str) -> None:
    """What is an expression for the Go library is one for us, and the other way round."""
    vector = library.ask(expression)
    _, error = ours(expression)

    syntax = error is not None and error.kind is Kind.SYNTAX
    if syntax and error is not None and error.why.startswith(("cannot redeclare", "unknown pointer")):
        return
    assert syntax == (vector.get("error") == "syntax"), (vector, str(error))
