"""What expressions are found to read and call without being evaluated."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kargo_py.expressions.analysis import Called, Read, chain, is_constant, outcomes, uses
from kargo_py.expressions.errors import ExpressionError
from kargo_py.expressions.evaluator import evaluate
from kargo_py.expressions.parser import parse
from kargo_py.expressions.values import Function


def reads(source: str) -> list[str]:
    """Each read, with ``?`` before members that may be absent, and what is known of it."""
    return [written(read) for read in uses(parse(source)).reads]


def written(read: Read) -> str:
    text = read.path[0]
    for index, optional in enumerate(read.optional):
        key = read.path[index + 1] if index + 1 < len(read.path) else "*"
        text += ("?." if optional else ".") + key
    return text + ("" if read.sure else " unsure") + (" excused" if read.excused else "")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("a", ["a"]),
        ("a.b.c", ["a.b.c"]),
        ("a['b-c'].d", ["a.b-c.d"]),
        ("a?.b.c", ["a?.b.c"]),
        ("a?.b?.['c']", ["a?.b?.c"]),
        ("a[0].b", ["a.*.*"]),
        ("a[b].c", ["a.*.*", "b"]),
        ("a[b.c]", ["a.*", "b.c"]),
        ("(a.b).c", ["a.b.c"]),
        ("a.open-pr.c", ["a.open", "pr.c"]),
        ("$env.a.b", ["a.b"]),
        ("$env", []),
        ("a.b[1:c]", ["a.b", "c"]),
        ("a && b || c", ["a", "b unsure", "c unsure"]),
        ("not a", ["a"]),
        ("-a + b * c", ["a", "b", "c"]),
        ("a.b ?? c.d", ["a.b excused", "c.d unsure"]),
        ("a.b ?? c.d ?? e", ["a.b excused", "c.d unsure excused", "e unsure"]),
        ("a.b == nil", ["a.b excused"]),
        ("nil != a.b", ["a.b excused"]),
        ("a == b", ["a", "b"]),
        ("a ? b : c", ["a", "b unsure", "c unsure"]),
        ("(a ? b : c) ?? d", ["a", "b unsure excused", "c unsure excused", "d unsure"]),
        ("if a { b } else { c }", ["a", "b unsure", "c unsure"]),
        ("a < b <= c", ["a", "b", "c unsure"]),
        ("[a, {x: b, (c): 1}]", ["a", "b", "c"]),
        ("map(a, # + b)", ["a", "b unsure"]),
        ("filter(a.list, .x == c)", ["a.list", "c unsure"]),
        ("a | map(#.b) | join(c)", ["a", "c"]),
        ("let x = a.b; x.c + d", ["a.b", "d"]),
        ("let a = 1; a", []),
        ("a; b", ["a", "b"]),
        ("len(a) + len(b.c)", ["a", "b.c"]),
        ("a.b.upper()", ["a.b.upper"]),
        ("f(a, b?.c)", ["a", "b?.c"]),
        ("'a.b'", []),
        ("1..a", ["a"]),
    ],
)
def test_reads(source: str, found: list[str]) -> None:
    """Paths as far as they are constant, and whether evaluation comes there."""
    assert reads(source) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("f()", [("f", 0, (), True)]),
        ("f(1, g(2)).B?.C", [("f", 2, ("B", "C"), True), ("g", 1, (), True)]),
        ("a | f(1)", [("f", 2, (), True)]),
        ("a && f()", [("f", 0, (), False)]),
        ("let f = a; f(1)", []),
        ("f(1)[g()].C", [("f", 1, (), True), ("g", 0, (), True)]),
        ("len(a)", []),
        ("f(1).B.String()", [("f", 1, ("B", "String"), True)]),
        ("map(a, f(#))", [("f", 1, (), False)]),
    ],
)
def test_calls(source: str, found: list[tuple[Any, ...]]) -> None:
    """Functions of the environment, with the members of their results."""
    calls = uses(parse(source)).calls
    assert [(call.name, len(call.arguments), call.members, call.sure) for call in calls] == found


@pytest.mark.parametrize(
    ("source", "constant"),
    [
        ("1 + 2", True),
        ("quote('a')", True),
        ("'a' | quote()", True),
        ("f('a')", False),
        ("vars.a", False),
        ("$env", False),
        ("[1, 2][0]", True),
        ("let a = 1; a + 1", True),
        ("now()", False),
        ("1..1000000", False),
        ("2 ** 3", False),
        ("repeat('a', 1000)", False),
        ("map([1], #)", False),
        ("split('a,b', ',')", True),
    ],
)
def test_constant(source: str, constant: bool) -> None:
    """What reads nothing, and is quickly evaluated."""
    tree = parse(source)
    assert is_constant(tree, uses(tree), frozenset({"quote"})) is constant


@pytest.mark.parametrize(
    ("source", "count"), [("a", 1), ("a ?? b", 2), ("a ? b : c ?? d", 3), ("a ?: b", 1), ("let a = 1; b ?? a", 2)]
)
def test_outcomes(source: str, count: int) -> None:
    """What the value may be."""
    assert len(list(outcomes(parse(source)))) == count


def test_chain() -> None:
    """A name or a call with members, and nothing else, is told apart; what is within its brackets is not."""
    assert isinstance(chain(parse("a.b?.c")), Read)
    assert isinstance(chain(parse("f(x.y).B")), Called)
    assert isinstance(chain(parse("a[b.c]")), Read)
    for source in ("a + b", "'x'", "[a]", "(a ?? b).c", "upper(a)"):
        assert chain(parse(source)) is None, source


def test_long_chains() -> None:
    """However long a chain of operators or members is, no stack is used up."""
    assert len(reads(" + ".join(["a"] * 3000))) == 3000
    assert reads("a" + ".b" * 3000) == ["a" + ".b" * 3000]


NAMES = st.sampled_from(["a", "b", "c"])
LEAVES = NAMES | st.sampled_from(["nil", "true", "1", "'x'"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({}).{}".format, inner, NAMES),
        st.builds("({})?.{}".format, inner, NAMES),
        st.builds("({} ?? {})".format, inner, inner),
        st.builds("({} == nil && {} == 1)".format, inner, inner),
        st.builds("({} == nil ? {} : {})".format, inner, inner, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("map([{}], #)".format, inner),
        st.builds("(let x = {}; [x, 1])".format, inner),
        st.builds("f({})".format, inner),
    )


@settings(max_examples=300, deadline=None)
@given(source=st.recursive(LEAVES, grown, max_leaves=12))
def test_sure_reads_are_evaluated(source: str) -> None:
    """Whatever is found to be read for sure is fetched, unless an error comes before it."""
    fetched: list[str] = []

    class Watched(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            fetched.append(key)
            return super().get(key, default)

    found = uses(parse(source))
    called: list[int] = []

    def call(value: Any) -> Any:
        called.append(1)
        return value

    functions = {"f": Function("f", call, 1, 1)}
    try:
        evaluate(source, Watched(a={"b": {"c": 1}, "a": None}), functions)
    except ExpressionError:
        return
    assert {read.path[0] for read in found.reads if read.sure} <= set(fetched)
    assert set(fetched) <= {read.path[0] for read in found.reads}
    assert len(called) >= sum(call.sure for call in found.calls)


@settings(max_examples=300, deadline=None)
@given(source=st.recursive(LEAVES, grown, max_leaves=12))
def test_needed_members(source: str) -> None:
    """A read for sure of a name that is nil, of which a member is needed and no nil is provided for, is an error."""
    needs = [r for r in uses(parse(source)).reads if r.sure and not r.excused and r.needs(0)]
    if not needs:
        return
    with pytest.raises(ExpressionError):
        evaluate(source, {}, {"f": Function("f", lambda value: value, 1, 1)})
