"""Selectors: what they select, and what is said of those that cannot be read."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from kargo_py.local.apiserver import selectors
from kargo_py.local.apiserver.builtin import kinds
from kargo_py.local.apiserver.crdtypes import CUSTOM_RESOURCE_DEFINITION
from kargo_py.local.apiserver.events import as_new_event
from kargo_py.local.apiserver.failures import Failure
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.typedrules import TypedRules
from kargo_py.local.apiserver.wire import JsonObject

KINDS = {kind.qualified: kind for kind in kinds(TypedRules(CUSTOM_RESOURCE_DEFINITION))}
CUSTOM = Kind(
    *("example.com", "v1", "widgets", "widget", "Widget", TypedRules(CUSTOM_RESOURCE_DEFINITION)),
    custom=True,
    field_selectors=("spec.color", "spec.size", "spec.on"),
)
OBJECTS: dict[str, JsonObject] = {
    name: {"metadata": {"name": name, "namespace": "n", **({"labels": labels} if labels else {})}, "spec": spec}
    for name, labels, spec in [
        ("bare", {}, {}),
        ("red", {"color": "red", "n": "5"}, {"color": "red", "size": 5, "on": True}),
        ("blue", {"color": "blue", "n": "-3", "e/x": ""}, {"color": "a,b=c\\", "on": False}),
        ("odd", {"n": "five", "in": "notin"}, {"color": None, "size": 1.5}),
    ]
}


def chosen(predicate: selectors.Predicate | None) -> list[str]:
    """Names of the objects that it selects."""
    return [name for name, obj in OBJECTS.items() if predicate is None or predicate(obj)]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", "bare red blue odd"),
        ("color", "red blue"),
        ("!color", "bare odd"),
        ("color=red", "red"),
        ("color == red", "red"),
        ("color!=red", "bare blue odd"),
        ("color in (red, green)", "red"),
        ("color in (red,blue)", "red blue"),
        ("color notin (red,green)", "bare blue odd"),
        ("n>4", "red"),
        ("n < 5", "blue"),
        ("color,n>0", "red"),
        ("e/x=", "blue"),
        ("e/x in ()", "blue"),
        ("e/x in (,)", "blue"),
        ("in in (notin)", "odd"),
        ("in", "odd"),
        ("color,!e/x", "red"),
        ("\tcolor\nin\r( red )", "red"),
    ],
)
def test_labels(selector: str, names: str) -> None:
    assert chosen(selectors.labels(selector)) == names.split()


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a,,b", "found ',', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        (
            "a<x",
            (
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value "
                "must be an integer"
            ),
        ),
        ("x/y/z", 'unable to parse requirement: <nil>: Invalid value: "x/y/z": a qualified name'),
        ("a in (b,-)", 'unable to parse requirement: values[0][a]: Invalid value: "-": a valid label'),
        ("a>-", "unable to parse requirement: [values[0]: Invalid value"),
    ],
)
def test_labels_that_cannot_be_read(selector: str, words: str) -> None:
    with pytest.raises(Failure) as caught:
        selectors.labels(selector)
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")
    assert caught.value.message.startswith(words)


def test_a_selector_is_bounded() -> None:
    with pytest.raises(Failure, match="longer than 65536"):
        selectors.labels("a," * 40_000)
    with pytest.raises(Failure, match="longer than 65536"):
        selectors.field_terms("a=b," * 20_000)


key = st.sampled_from(["a", "b", "e/x"])
value = st.sampled_from(["", "1", "x"])


@given(st.dictionaries(key, value), key, st.sets(value, min_size=1))
def test_each_operator_has_its_opposite(labels: dict[str, str], name: str, values: set[str]) -> None:
    one = min(values)
    for some, others in [
        (name, f"!{name}"),
        (f"{name}={one}", f"{name}!={one}"),
        (f"{name} in ({','.join(values)})", f"{name} notin ({','.join(values)})"),
    ]:
        first, second = selectors.label_test(some), selectors.label_test(others)
        assert first is not None
        assert second is not None
        assert first(labels) is not second(labels)


@given(st.text(alphabet="ab=!<>(), in/", max_size=12))
def test_any_text_is_a_selector_or_a_bad_request(text: str) -> None:
    with suppress(Failure):
        selected = selectors.labels(text)
        assert selected is None or selected({"metadata": {}}) in {True, False}


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", "bare red blue odd"),
        (",", "bare red blue odd"),
        ("=", "bare red blue odd"),
        ("metadata.name=red", "red"),
        ("metadata.name==red,", "red"),
        ("metadata.name!=red", "bare blue odd"),
        ("metadata.namespace=n,metadata.name=odd", "odd"),
        ("spec.color=", "bare odd"),
        (r"spec.color=a\,b\=c\\", "blue"),
        ("spec.size=5", "red"),
        ("spec.on=true", "red"),
        ("spec.on!=false", "bare red odd"),
    ],
)
def test_fields(selector: str, names: str) -> None:
    assert chosen(selectors.fields(selector, CUSTOM)) == names.split()


@pytest.mark.parametrize(
    ("selector", "kind", "words"),
    [
        ("spec.foo=1", "widgets.example.com", "field label not supported: spec.foo"),
        ("metadata.name", "widgets.example.com", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("metadata.name=\\x", "widgets.example.com", "invalid field selector: invalid escape sequence: \\x"),
        ("metadata.name=\\", "widgets.example.com", "invalid field selector: invalid escape sequence: \\"),
        ("metadata.name=a=b", "widgets.example.com", "invalid field selector: unescaped character in value: 61"),
        (
            "data.x=1",
            "configmaps",
            '"data.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        ("data.x=1", "secrets", "field label not supported: data.x"),
        ("metadata.namespace=x", "namespaces", "field label not supported: metadata.namespace"),
        ("regarding.kind=x", "events", "field label not supported: regarding.kind"),
        ("involvedObject.kind=x", "events.events.k8s.io", "field label not supported: involvedObject.kind"),
    ],
)
def test_fields_that_cannot_be_selected_by(selector: str, kind: str, words: str) -> None:
    with pytest.raises(Failure) as caught:
        selectors.fields(selector, {**KINDS, CUSTOM.qualified: CUSTOM}[kind])
    assert (caught.value.code, caught.value.message) == (400, words)


def test_events_by_their_source() -> None:
    event: JsonObject = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"}, "reportingComponent": "c"}
    by_source = selectors.fields("source=c,involvedObject.kind=Pod", KINDS["events"])
    assert by_source is not None
    assert by_source(event)
    assert not by_source({**event, "source": {"component": "d"}})
    regarding = selectors.fields("regarding.kind=Pod,reportingController=c", KINDS["events.events.k8s.io"])
    assert regarding is not None
    assert regarding(as_new_event({**event, "kind": "Event"}))


def test_the_name_that_a_selector_asks_for() -> None:
    assert selectors.required_name("spec.color=x,metadata.name=a") == "a"
    assert selectors.required_name("metadata.name!=a") is None


def test_both_of_nothing_is_everything() -> None:
    assert selectors.both(None, None) is None
    named = selectors.fields("metadata.name=red", CUSTOM)
    assert selectors.both(None, named) is named
    assert chosen(selectors.both(named, selectors.labels("color=blue"))) == []


@given(st.text(max_size=10))
def test_any_value_can_be_asked_for_with_escapes(text: str) -> None:
    escaped = text.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
    (term,) = selectors.field_terms(f"spec.color={escaped}")
    assert (term.path, term.value, term.negated) == ("spec.color", text, False)
