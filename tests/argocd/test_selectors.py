"""Choosing Applications by their labels."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.argocd.selectors import read_selector
from kargo_py.local.apiserver.selectors import label_test

JsonObject = dict[str, Any]


def expression(key: str, operator: str, *values: str) -> JsonObject:
    """A selector of one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


SHOP = {"app": "shop", "tier": "web", "empty": ""}

MATCHES: list[tuple[JsonObject, bool]] = [
    ({"matchLabels": {"app": "shop"}}, True),
    ({"matchLabels": {"app": "shop", "tier": "db"}}, False),
    ({"matchLabels": {"absent": ""}}, False),
    ({"matchLabels": {"empty": ""}}, True),
    (expression("app", "In", "cart", "shop"), True),
    (expression("app", "In", "cart"), False),
    (expression("absent", "In", ""), False),
    (expression("app", "NotIn", "shop"), False),
    (expression("app", "NotIn", "cart"), True),
    (expression("absent", "NotIn", "shop"), True),
    (expression("empty", "Exists"), True),
    (expression("absent", "Exists"), False),
    (expression("empty", "DoesNotExist"), False),
    (expression("absent", "DoesNotExist"), True),
    ({"matchExpressions": [{"key": "app", "operator": "Exists", "values": []}]}, True),
    ({"matchLabels": {"app": "shop"}, **expression("tier", "NotIn", "web")}, False),
    ({"matchLabels": {"app": "shop"}, "matchExpressions": None}, True),
    ({"matchLabels": {}, **expression("app", "Exists")}, True),
    (expression("kargo.akuity.io/part_of", "DoesNotExist"), True),
]


@pytest.mark.parametrize(("selector", "matches"), MATCHES, ids=[str(case[0]) for case in MATCHES])
def test_matches(selector: JsonObject, matches: bool) -> None:
    """All requirements must hold, by the rules of Kubernetes."""
    assert matches is read_selector(selector).matches(SHOP)


REFUSED: list[tuple[Any, str]] = [
    ({}, "at least one of matchLabels and matchExpressions"),
    ({"matchLabels": {}, "matchExpressions": []}, "at least one of"),
    (None, "selector: must be an object, not None"),
    ("app=shop", "selector: must be an object, not 'app=shop'"),
    ({"labels": {"a": "b"}}, "labels: a selector has no such field"),
    ({"matchLabels": ["app"]}, "matchLabels: must be an object"),
    ({"matchLabels": {"app": 7}}, "matchLabels['app']: must be a string, not 7"),
    ({"matchLabels": {"a b": "x"}}, "matchLabels: 'a b' cannot be the key of a label"),
    ({"matchLabels": {"a": "x y"}}, "matchLabels['a']: 'x y' cannot be the value of a label"),
    ({"matchLabels": {"a": "x" * 64}}, "cannot be the value of a label"),
    ({"matchLabels": {"x" * 64: "a"}}, "cannot be the key of a label"),
    ({"matchLabels": {"/a": "a"}}, "cannot be the key of a label"),
    ({"matchLabels": {"A.b/a": "a"}}, "cannot be the key of a label"),
    ({"matchLabels": {"a/b/c": "a"}}, "cannot be the key of a label"),
    ({"matchLabels": {"a." * 126 + "ab/c": "a"}}, "cannot be the key of a label"),
    ({"matchLabels": {"a\n": "a"}}, "cannot be the key of a label"),
    ({"matchLabels": {"a": "a\n"}}, "cannot be the value of a label"),
    ({"matchExpressions": {}}, "matchExpressions: must be a list"),
    ({"matchExpressions": ["a"]}, "matchExpressions[0]: must be an object"),
    ({"matchExpressions": [{"operator": "In", "values": ["a"]}]}, "matchExpressions[0].key: must be a string"),
    ({"matchExpressions": [{"key": "a", "op": "In"}]}, "matchExpressions[0].op: a selector has no such field"),
    ({"matchExpressions": [{"key": "a"}]}, "matchExpressions[0].operator: must be In, NotIn, Exists or DoesNotExist"),
    ({"matchExpressions": [{"key": "a", "operator": ["In"]}]}, "matchExpressions[0].operator: must be In"),
    (expression("a", "in", "x"), "must be In, NotIn, Exists or DoesNotExist, not 'in'"),
    (expression("a", "In"), "matchExpressions[0].values: In needs at least one value"),
    (expression("a", "NotIn"), "NotIn needs at least one value"),
    (expression("a", "Exists", "x"), "matchExpressions[0].values: Exists takes no values"),
    (expression("a", "DoesNotExist", ""), "DoesNotExist takes no values"),
    ({"matchExpressions": [{"key": "a", "operator": "In", "values": "x"}]}, "values: must be a list"),
    ({"matchExpressions": [{"key": "a", "operator": "In", "values": [True]}]}, "values[0]: must be a string, not True"),
]


@pytest.mark.parametrize(("selector", "words"), REFUSED, ids=[str(case[0])[:60] for case in REFUSED])
def test_refused(selector: Any, words: str) -> None:
    """What is no selector is refused with the field named."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the words are compared, not matched
        read_selector(selector)

    assert words in str(caught.value)


def said_of(value: Any) -> str:
    """The selector as text, or why it is none."""
    try:
        return str(read_selector(value))
    except ValueError as error:
        return str(error)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=300),
                    lambda inner: st.lists(inner) | st.dictionaries(
                        st.sampled_from(["matchLabels", "matchExpressions", "key", "operator", "values", "x" * 300]),
                        inner)))  # fmt: skip
def test_any_json(value: Any) -> None:
    """Whatever stands there is read or refused with a text of bounded length."""
    assert 0 < len(said_of(value)) < 400


def test_two_texts_of_one_meaning() -> None:
    """Order and repetition make no difference, nor does the form."""
    one = read_selector({"matchLabels": {"a": "1"}, **expression("b", "In", "y", "x")})
    other = read_selector(
        {
            "matchExpressions": [
                {"key": "b", "operator": "In", "values": ["x", "y", "x"]},
                {"key": "a", "operator": "In", "values": ["1"]},
            ]
        }
    )

    assert one == other
    assert str(one) == "a=1,b in (x,y)"


KEYS = st.sampled_from(["a", "b", "example.com/c"])
VALUES = st.sampled_from(["", "x", "y", "z"])


@given(
    labels=st.dictionaries(KEYS, VALUES),
    equal=st.dictionaries(KEYS, VALUES),
    expressions=st.lists(
        st.one_of(
            st.tuples(KEYS, st.sampled_from(["In", "NotIn"]), st.lists(VALUES, min_size=1, max_size=3)),
            st.tuples(KEYS, st.sampled_from(["Exists", "DoesNotExist"]), st.just([])),
        ),
        max_size=3,
    ),
)
def test_as_the_api_server_selects(
    labels: dict[str, str], equal: dict[str, str], expressions: list[tuple[str, str, list[str]]]
) -> None:
    """The text of a selector is one for ``kubectl get -l``, and selects there what it selects here."""
    written = {
        "matchLabels": equal,
        "matchExpressions": [{"key": k, "operator": o, "values": v} for k, o, v in expressions],
    }
    if not equal and not expressions:
        return
    selector = read_selector(written)
    test = label_test(str(selector))

    assert test is not None
    assert test(labels) is selector.matches(labels)
