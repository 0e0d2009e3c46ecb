"""Which Applications the entries of a step come to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.argocd.application import Annotations, Application, Metadata
from kargo_py.argocd.selectors import read_selector
from kargo_py.argocd.targets import Choice, labels_of, looked_up_by, resolve
from kargo_py.kube.resources import Key

WEB = {"tier": "web"}


def application(name: str, *, space: str = "argocd", leaves: bool = False, **labels: str) -> Application:
    """An Application with these labels."""
    return Application(
        Metadata(
            name=name,
            namespace=space,
            labels=labels,
            annotations=Annotations(),
            deletion_timestamp="2026-01-01T00:00:00Z" if leaves else None,
        )
    )


def named(name: str) -> Choice:
    return Choice("argocd", name)


def selected(space: str = "argocd", **labels: str) -> Choice:
    return Choice(space, selector=read_selector({"matchLabels": labels}))


def keys(*names: str) -> list[Key]:
    return [Key("argocd", name) for name in names]


A = application("a", tier="web")
B = application("b", tier="web", app="shop")
C = application("c", app="shop")
ALL = [C, A, B, application("d", space="other", tier="web"), application("e", tier="web", leaves=True)]


def find(choice: Choice) -> list[Application]:
    return [app for app in ALL if choice.fits(app)]


@pytest.mark.parametrize(
    ("choices", "barred", "targets", "left_out", "missing", "none_allowed"),
    [
        ([named("a")], "", {"a": [0]}, "", [], {}),
        ([named("x"), named("a"), selected(tier="db")], "", {"a": [1]}, "", [0, 2], {}),
        ([named("a")], "a", {"a": [0]}, "", [], {}),
        ([named("e")], "", {"e": [0]}, "", [], {}),
        ([selected(tier="web")], "", {"a": [0], "b": [0]}, "", [], {}),
        ([selected(tier="web")], "a", {"b": [0]}, "a", [], {}),
        ([selected(tier="web")], "ab", {}, "ab", [], {0: 2}),
        ([selected(tier="web"), selected(app="shop")], "", {"a": [0], "b": [0, 1], "c": [1]}, "", [], {}),
        ([selected(tier="web"), selected(app="shop")], "ab", {"c": [1]}, "ab", [], {0: 2}),
        ([named("b"), selected(tier="web")], "", {"b": [0, 1], "a": [1]}, "", [], {}),
        ([named("a"), selected(tier="web")], "a", {"a": [0], "b": [1]}, "", [], {}),
        ([named("a"), named("a")], "", {"a": [0, 1]}, "", [], {}),
        ([selected("nowhere", tier="web")], "", {}, "", [0], {}),
    ],
)
def test_resolve(
    choices: list[Choice],
    barred: str,
    targets: dict[str, list[int]],
    left_out: str,
    missing: list[int],
    none_allowed: dict[int, int],
) -> None:
    """Each Application once, with the entries that concern it; what may not be selected is told, and why."""
    found = resolve(choices, [find(c) for c in choices], lambda app: "no" if app.metadata.name in barred else None)

    assert {Key("argocd", name): entries for name, entries in targets.items()} == dict(found.targets)
    assert keys(*targets) == list(found.targets)
    assert [(key, "no") for key in keys(*left_out)] == [(out.key, out.why) for out in found.left_out]
    assert (missing, none_allowed) == (list(found.missing), dict(found.barred))


LABELS = st.dictionaries(st.sampled_from("xyz"), st.sampled_from("123"), max_size=3)
APPS = st.lists(
    st.builds(lambda name, space, labels: application(name, space=space, **labels), st.sampled_from("abcdefgh"),
              st.sampled_from(["argocd", "other"]), LABELS),
    unique_by=lambda app: app.key, max_size=8,
)  # fmt: skip
VALUES = st.lists(st.sampled_from("123"), min_size=1, max_size=3)
EXPRESSION = st.one_of(
    st.fixed_dictionaries({"key": st.sampled_from("xyz"), "operator": st.sampled_from(["In", "NotIn"]),
                           "values": VALUES}),
    st.fixed_dictionaries({"key": st.sampled_from("xyz"), "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
)  # fmt: skip
CHOICES = st.one_of(
    st.builds(named, st.sampled_from("abcdefgh")),
    st.builds(lambda expressions: Choice("argocd", selector=read_selector({"matchExpressions": expressions})),
              st.lists(EXPRESSION, min_size=1, max_size=3)),
)  # fmt: skip


@given(apps=APPS, choices=st.lists(CHOICES, min_size=1, max_size=4), data=st.data())
def test_the_order_of_the_applications_makes_no_difference(
    apps: list[Application], choices: list[Choice], data: st.DataObject
) -> None:
    """The targets, their order and all that is said of them depend on the Applications only, as a set."""

    def bar(app: Application) -> str | None:
        return "no" if app.metadata.name < "c" else None

    shuffled = data.draw(st.permutations(apps))
    first, second = (
        resolve(choices, [[a for a in each if c.fits(a)] for c in choices], bar) for each in (apps, shuffled)
    )

    assert first == second
    assert list(first.targets) == list(second.targets)


@given(apps=APPS, choices=st.lists(CHOICES, min_size=1, max_size=4))
def test_nothing_is_forgotten(apps: list[Application], choices: list[Choice]) -> None:
    """What fits an entry is a target or is told as left out, never both; every entry is accounted for."""
    found = resolve(
        choices, [[a for a in apps if c.fits(a)] for c in choices], lambda a: "no" if a.metadata.labels else None
    )

    fitting = {app.key for app in apps if any(choice.fits(app) for choice in choices)}
    assert fitting == {*found.targets, *(out.key for out in found.left_out)}
    assert len(fitting) == len(found.targets) + len(found.left_out)
    answered = {index for entries in found.targets.values() for index in entries}
    assert set(range(len(choices))) == answered | set(found.missing) | set(found.barred)


@given(apps=APPS, choice=CHOICES)
def test_the_index_finds_all(apps: list[Application], choice: Choice) -> None:
    """What a selector matches stands under the entries of the index where it is looked up, and but once."""
    index: dict[Any, list[Application]] = {}
    for app in apps:
        for place in labels_of(app):
            index.setdefault(place, []).append(app)

    found = [app.key for place in looked_up_by(choice) for app in index.get(place, []) if choice.fits(app)]

    assert sorted(found) == sorted(app.key for app in apps if choice.fits(app))
