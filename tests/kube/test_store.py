"""The rules by which a cache puts news from lists, watches and own answers together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kargo_py.kube.client import EventType, Meta
from kargo_py.kube.resources import Key
from kargo_py.kube.store import MEMORY, Change, Store, version_order


@dataclass(frozen=True)
class Thing:
    """An object with nothing but what the rules look at; ``serial`` tells apart what has the same version."""

    version: int
    uid: str = "u1"
    name: str = "a"
    label: str = ""
    serial: int = 0


def meta(thing: Thing) -> Meta:
    return Meta(key_of(thing.name), thing.uid, str(thing.version))


def key_of(name: str) -> Key:
    return Key("ns", name)


def selected(thing: Thing) -> bool:
    return thing.label != "out"


def new_store() -> Store[Thing]:
    return Store(meta, indexes={"label": lambda thing: [thing.label] if thing.label else []}, selects=selected)


def listed(
    store: Store[Thing], objects: Sequence[Thing], version: str, now: float
) -> Iterator[Sequence[Change[Thing]]]:
    return store.listed(objects, version, began=now, known=store.furthest)


def all_of(steps: Iterable[Sequence[Change[Thing]]]) -> list[Change[Thing]]:
    return [change for changes in steps for change in changes]


A = key_of("a")
ADDED, MODIFIED, DELETED = EventType.ADDED, EventType.MODIFIED, EventType.DELETED

# Each step: what arrives, at what time, and the (old, new) versions that handlers are told.
News = tuple[str, Thing, float, list[tuple[int | None, int | None]]]
OUT = "out"

HISTORIES: list[tuple[str, list[News]]] = [
    ("a watch in order", [("add", Thing(1), 0, [(None, 1)]), ("mod", Thing(2), 0, [(1, 2)]),
     ("del", Thing(3), 0, [(2, None)])]),
    ("own answer, then its event", [("add", Thing(1), 0, [(None, 1)]), ("own", Thing(2), 0, [(1, 2)]),
     ("mod", Thing(2), 0, [])]),
    ("own answer, then an older event", [("add", Thing(1), 0, [(None, 1)]), ("own", Thing(5), 0, [(1, 5)]),
     ("mod", Thing(3), 1, []), ("mod", Thing(5), 1, []), ("mod", Thing(6), 1, [(5, 6)])]),
    ("own answer that comes late", [("add", Thing(7), 0, [(None, 7)]), ("own", Thing(5), 0, [])]),
    ("own answers in the wrong order", [("own", Thing(7), 0, [(None, 7)]), ("own", Thing(5), 0, [])]),
    ("versions by length, then text", [("add", Thing(9), 0, [(None, 9)]), ("own", Thing(10), 0, [(9, 10)]),
     ("own", Thing(9), 0, [])]),
    ("an own answer outranks the watch for a while only", [("own", Thing(50), 0, [(None, 50)]),
     ("mod", Thing(40), MEMORY - 1, []), ("mod", Thing(41), MEMORY, [(50, 41)])]),
    ("a confirmed answer has no rank left", [("own", Thing(50), 0, [(None, 50)]), ("mod", Thing(50), 1, []),
     ("mod", Thing(40), 2, [(50, 40)])]),
    ("a late answer does not resurrect", [("add", Thing(1), 0, [(None, 1)]), ("del", Thing(3), 0, [(1, None)]),
     ("own", Thing(2), 1, [])]),
    ("not even of an object that was never in the cache", [("del", Thing(3), 0, []), ("own", Thing(2), 1, [])]),
    ("nor when only a bookmark has passed it", [("mark", Thing(3), 0, []), ("own", Thing(2), 1, [])]),
    ("nor when one has just reached it", [("mark", Thing(3), 0, []), ("own", Thing(3), 1, [])]),
    ("a new object of the name", [("add", Thing(1), 0, [(None, 1)]), ("del", Thing(2), 0, [(1, None)]),
     ("add", Thing(3, "u2"), 0, [(None, 3)])]),
    ("a new object whose predecessor's deletion was not seen", [("add", Thing(1), 0, [(None, 1)]),
     ("own", Thing(3, "u2"), 0, [(1, None), (None, 3)]), ("del", Thing(2), 0, [])]),
    ("a late answer of the predecessor", [("add", Thing(3, "u2"), 0, [(None, 3)]), ("own", Thing(2, "u1"), 0, [])]),
    ("a late answer of a predecessor that the watch has not reached", [("add", Thing(1), 0, [(None, 1)]),
     ("own", Thing(5, "u2"), 0, [(1, None), (None, 5)]), ("own", Thing(3, "u1"), 0, []),
     ("del", Thing(4, "u1"), 0, []), ("add", Thing(5, "u2"), 0, [])]),
    ("our read said gone, the watch is behind", [("add", Thing(1), 0, [(None, 1)]), ("gone", Thing(0), 0, [(1, None)]),
     ("mod", Thing(2), 1, []), ("own", Thing(2), 1, []), ("del", Thing(3), 1, [])]),
    ("our read said gone, the watch is far behind", [("add", Thing(1), 0, [(None, 1)]),
     ("gone", Thing(0), 0, [(1, None)]), ("mod", Thing(2), MEMORY, [(None, 2)]),
     ("del", Thing(3), MEMORY, [(2, None)])]),
    ("our read said gone, of the predecessor", [("add", Thing(4, "u2"), 0, [(None, 4)]), ("gone", Thing(0), 0, [])]),
    ("our read said gone, of what was created since", [("add", Thing(4), 0, [(None, 4)]),
     ("gone", Thing(0, ""), 0, [])]),
    ("two deaths of the name", [("add", Thing(1), 0, [(None, 1)]), ("own", Thing(5, "u2"), 0, [(1, None), (None, 5)]),
     ("gone", Thing(0, "u2"), 0, [(5, None)]), ("gone", Thing(0), 0, []), ("own", Thing(6, "u2"), 0, [])]),
    ("a death does not hide since when the name is vacant", [("add", Thing(1), 0, [(None, 1)]),
     ("own", Thing(5, "u2"), 0, [(1, None), (None, 5)]), ("own", Thing(6, "u2", label=OUT), 0, [(5, None)]),
     ("gone", Thing(0, "u2"), 0, []), ("mod", Thing(3), 0, [])]),
    ("an old death does not prolong a newer one", [("gone", Thing(0), 0, []), ("gone", Thing(0, "u2"), MEMORY - 1, []),
     ("own", Thing(4), MEMORY, [(None, 4)])]),
    ("a later burial does not end an earlier one", [("gone", Thing(0), 0, []), ("gone", Thing(0), MEMORY - 1, []),
     ("own", Thing(4), MEMORY, []), ("own", Thing(4), 2 * MEMORY - 1, [(None, 4)])]),
    ("the watch wins in the end, also when it says gone", [("own", Thing(50), 0, [(None, 50)]),
     ("del", Thing(40), MEMORY - 1, []), ("del", Thing(41), MEMORY, [(50, None)])]),
    ("gone is remembered, but not for ever", [("gone", Thing(0), 0, []), ("own", Thing(4), MEMORY - 1, []),
     ("own", Thing(4), MEMORY, [(None, 4)])]),
    ("our read said gone, of what nobody knew", [("gone", Thing(0, ""), 0, []), ("own", Thing(4, ""), 0, [(None, 4)])]),
    ("the predecessor's deletion, when the own answer has no rank left", [("own", Thing(3, "u2"), 0, [(None, 3)]),
     ("del", Thing(2, "u1"), MEMORY, [])]),
    ("leaving the selection after a newer own answer", [("own", Thing(9), 0, [(None, 9)]), ("del", Thing(8), 1, []),
     ("mod", Thing(9), 1, [])]),
    ("leaving the selection, and back at once", [("add", Thing(1), 0, [(None, 1)]), ("del", Thing(2), 0, [(1, None)]),
     ("add", Thing(3), 0, [(None, 3)])]),
    ("leaving by an own write", [("add", Thing(1), 0, [(None, 1)]), ("own", Thing(4, label=OUT), 0, [(1, None)]),
     ("mod", Thing(3), 1, []), ("del", Thing(4, label=OUT), 1, []), ("own", Thing(2), 1, [])]),
    ("leaving by an own write, and back", [("add", Thing(1), 0, [(None, 1)]),
     ("own", Thing(4, label=OUT), 0, [(1, None)]), ("own", Thing(6), 0, [(None, 6)]), ("mod", Thing(3), 1, []),
     ("del", Thing(4, label=OUT), 1, []), ("add", Thing(6), 1, [])]),
    ("an older incarnation after a newer one has come and left", [("own", Thing(4, "u2"), 0, [(None, 4)]),
     ("own", Thing(5, "u2", label=OUT), 0, [(4, None)]), ("mod", Thing(2, "u1"), 0, [])]),
    ("an answer outside the selection is not put in", [("own", Thing(4, label=OUT), 0, []),
     ("add", Thing(3), 1, []), ("del", Thing(4, label=OUT), 1, [])]),
]  # fmt: skip


@pytest.mark.parametrize("steps", [h[1] for h in HISTORIES], ids=[h[0] for h in HISTORIES])
def test_history(steps: list[News]) -> None:
    """Each piece of news changes the store, or is recognised as old, by the rules the module states."""
    store = new_store()
    for what, thing, now, expected in steps:
        changes: Sequence[Change[Thing]] = ()
        match what:
            case "own":
                changes = store.answered(thing, now)
            case "gone":
                changes = store.gone(A, thing.uid, now)
            case "mark":
                store.bookmark(str(thing.version))
            case _:
                changes = store.event({"add": ADDED, "mod": MODIFIED, "del": DELETED}[what], thing, now)
        told = [(c.old and c.old.version, c.new and c.new.version) for c in changes]
        assert expected == told, what


def test_watch_far_behind_is_said() -> None:
    """What the watch shows against a newer own answer, once that has lost its rank, is told as a step backwards."""
    store = new_store()
    store.answered(Thing(5), 0)

    (behind,) = store.event(MODIFIED, Thing(3), MEMORY)
    (ahead,) = store.event(MODIFIED, Thing(6), MEMORY)

    assert (behind.backwards, ahead.backwards) == (True, False)


def test_watch_far_behind_a_deletion_is_said() -> None:
    """So is an object that a live read found gone, when the watch shows it once more."""
    store = new_store()
    store.event(ADDED, Thing(1), 0)
    store.gone(A, "u1", 0)

    (behind,) = store.event(MODIFIED, Thing(3), MEMORY)

    assert (behind.backwards, behind.leap) == (True, True)


def test_watch_behind_what_nobody_remembers() -> None:
    """What was gone so long ago that it is forgotten is new when it is shown, whatever else is still kept."""
    store = new_store()
    store.gone(A, "u1", 0)

    assert [Change(A, None, Thing(3))] == store.event(MODIFIED, Thing(3), 2 * MEMORY)


def test_watch_far_behind_an_own_answer_says_gone() -> None:
    """So is a deletion, when an own answer had shown a later version."""
    store = new_store()
    store.answered(Thing(5), 0)

    (behind,) = store.event(DELETED, Thing(3), MEMORY)

    assert behind == Change(A, Thing(5), None, backwards=True, leap=True)


def test_another_burial_does_not_hide_that_the_watch_is_far_behind() -> None:
    """Whether a step goes backwards does not depend on what else has been buried meanwhile."""
    store = new_store()
    store.event(ADDED, Thing(1), 0)
    store.gone(A, "u1", 0)
    store.gone(key_of("b"), "u2", MEMORY)

    (behind,) = store.event(MODIFIED, Thing(3), MEMORY)

    assert behind.backwards


def test_list_emits_missed_deletions() -> None:
    """What a list does not show any more is gone, unless an answer newer than the list put it there."""
    store = new_store()
    all_of(listed(store, [Thing(1, "u1", "a"), Thing(2, "u2", "b")], "5", 0))
    known = store.furthest
    store.answered(Thing(9, "u3", "c"), 0)

    changes = all_of(store.listed([Thing(2, "u2", "b")], "7", began=0, known=known))

    assert [Change(A, Thing(1, "u1", "a"), None, leap=True)] == changes
    assert {"b", "c"} == {thing.name for thing in store.values()}


def test_answer_during_a_long_list() -> None:
    """What is created while a list is on its way stays, however long the list takes, and its event is no news."""
    store = new_store()
    known = store.furthest
    store.answered(Thing(9), 5)

    assert not all_of(store.listed([], "7", began=0, known=known))
    assert not store.event(ADDED, Thing(9), 1000)


def test_object_that_a_list_missed_comes_back() -> None:
    """That a list as of an older version did not show an object does not keep a later event of it out."""
    store = new_store()
    store.answered(Thing(9), 0)
    all_of(listed(store, [], "7", MEMORY))

    assert [Change(A, None, Thing(9))] == store.event(ADDED, Thing(9), MEMORY)


def test_late_answer_while_a_list_is_taken_in() -> None:
    """Between two steps of a list an answer from before it does not resurrect what the list has just removed."""
    store = new_store()
    all_of(listed(store, [Thing(1, "u1", "a"), Thing(2, "u2", "b")], "2", 0))
    steps = listed(store, [], "9", 1)

    assert next(steps) == (Change(A, Thing(1, "u1", "a"), None, leap=True),)
    assert not store.answered(Thing(5, "u1", "a"), 1)
    assert [Change(key_of("b"), Thing(2, "u2", "b"), None, leap=True)] == all_of(steps)


def test_late_answer_after_the_last_removal() -> None:
    """An answer from before the list, of what the list does not show, does not outlast the list."""
    store = new_store()
    all_of(listed(store, [Thing(1)], "2", 0))
    steps = listed(store, [], "9", 1)
    next(steps)

    assert store.answered(Thing(5, "u2", "b"), 1)
    assert [Change(key_of("b"), Thing(5, "u2", "b"), None, leap=True)] == all_of(steps)
    assert not store.answered(Thing(6, "u2", "b"), 1)


def test_newer_answer_during_the_sweep() -> None:
    """What is created anew while the sweep goes on is not swept away with its predecessor."""
    store = new_store()
    all_of(listed(store, [Thing(1, "u1", "a"), Thing(2, "u2", "b")], "2", 0))
    steps = listed(store, [], "9", 1)
    next(steps)
    store.answered(Thing(20, "u3", "b"), 1)

    assert not all_of(steps)
    assert [Thing(20, "u3", "b")] == store.values()


def test_list_is_not_old_news_to_itself() -> None:
    """An object that is removed by a handler between two steps of the sweep is not removed twice."""
    store = new_store()
    all_of(listed(store, [Thing(1, "u1", "a"), Thing(2, "u2", "b")], "2", 0))
    steps = listed(store, [], "9", 1)
    next(steps)
    assert store.gone(key_of("b"), "u2", 1)

    assert not all_of(steps)


def test_caught_up_after_a_restore() -> None:
    """A restored server whose versions have passed ours is not found out, but its lists are believed all the same.

    They overrule own answers, what the watch said is gone, what a read found gone, and another content of the version.
    """
    store = new_store()
    before = [Thing(40, "u1", "a"), Thing(41, "u2", "b"), Thing(42, "u3", "c"), Thing(43, "u4", "d")]
    all_of(listed(store, before, "90", 0))
    store.answered(Thing(95, "u1", "a"), 0)
    store.event(DELETED, Thing(91, "u2", "b"), 0)
    store.gone(key_of("c"), "u3", 0)

    now = [*before[:3], Thing(43, "u4", "d", serial=1)]
    changes = all_of(listed(store, now, "100", 10))

    assert changes == [
        Change(A, Thing(95), now[0], backwards=True, leap=True),
        Change(key_of("b"), None, now[1], backwards=True, leap=True),
        Change(key_of("c"), None, now[2], backwards=True, leap=True),
        Change(key_of("d"), before[3], now[3], leap=True),
    ]
    assert store.event(MODIFIED, Thing(101, "u3", "c"), 11)


def test_caught_up_after_a_restore_outside_the_selection() -> None:
    """Nor does what was known before a list stand against what its watch shows later."""
    store = new_store()
    all_of(listed(store, [Thing(40)], "90", 0))
    store.gone(A, "u1", 0)
    all_of(listed(store, [], "100", 1))

    assert [Change(A, None, Thing(101))] == store.event(ADDED, Thing(101), 2)


def test_what_is_newer_than_a_list_stands() -> None:
    """Against a list stand: an answer of a later version, also one outside the selection, and a death learned since."""
    store = new_store()
    before = [Thing(40, "u1", "a"), Thing(41, "u2", "b"), Thing(42, "u3", "c")]
    all_of(listed(store, before, "90", 0))
    steps = listed(store, before, "100", 10)
    store.answered(Thing(101, "u1", "a"), 11)
    store.answered(Thing(102, "u2", "b", label=OUT), 11)
    store.gone(key_of("c"), "u3", 11)

    assert not all_of(steps)
    assert [Thing(101)] == store.values()


def test_list_confirms() -> None:
    """What a list shows as it is known is no news, and an own answer needs no rank any more."""
    store = new_store()
    store.answered(Thing(5), 0)

    assert not all_of(listed(store, [Thing(5)], "5", 1))
    assert [Change(A, Thing(5), Thing(4), backwards=True, leap=True)] == store.event(MODIFIED, Thing(4), 2)


def test_answer_while_a_rewound_list_is_taken_in() -> None:
    """What a live read finds then is believed, though an answer of that version would have been old news before."""
    store = new_store()
    all_of(listed(store, [Thing(5)], "90", 0))
    steps = listed(store, [Thing(5), Thing(20, "u2", "b")], "60", 1)
    next(steps)

    assert [Change(key_of("b"), None, Thing(20, "u2", "b"))] == store.answered(Thing(20, "u2", "b"), 1)
    assert not all_of(steps)
    assert not store.answered(Thing(59, "u3", "c"), 1)


def test_answer_while_a_rewound_list_is_on_its_way() -> None:
    """What was learned after a list was asked for is of the history that the list shows: it stands."""
    store = new_store()
    all_of(listed(store, [Thing(5), Thing(6, "u2", "b"), Thing(7, "u3", "c")], "90", 0))
    steps = listed(store, [Thing(5), Thing(6, "u2", "b"), Thing(7, "u3", "c")], "60", 1)
    store.answered(Thing(99), 2)
    store.gone(key_of("b"), "u2", 2)

    assert not all_of(steps)
    assert [Thing(7, "u3", "c"), Thing(99)] == sorted(store.values(), key=lambda thing: thing.version)


def test_death_while_a_rewound_list_is_on_its_way() -> None:
    """That a read found an object gone says nothing of the versions that the new history has reached."""
    store = new_store()
    all_of(listed(store, [Thing(80)], "90", 0))
    steps = listed(store, [], "60", 1)
    store.gone(A, "u1", 2)
    all_of(steps)

    assert not store.event(MODIFIED, Thing(61), 2)
    assert store.event(ADDED, Thing(62, "u2"), 2)


def test_predecessor_after_a_death_while_a_list_is_taken_in() -> None:
    """A late answer of a predecessor is old news, also when the list has shown the successor and a read its death."""
    store = new_store()
    all_of(listed(store, [], "2", 0))
    steps = listed(store, [Thing(9, "u2")], "9", 1)
    next(steps)
    store.gone(A, "u2", 2)

    assert not store.answered(Thing(7, "u1"), 2)
    assert not all_of(steps)


def test_burial_that_a_rewound_list_leaves_standing() -> None:
    """What it knows counts as known: the next list may be rewound in turn."""
    store = new_store()
    all_of(listed(store, [], "90", 0))
    steps = listed(store, [], "5", 1)
    store.answered(Thing(98, label=OUT), 1)
    all_of(steps)
    assert version_order("98") == store.furthest

    assert all_of(listed(store, [Thing(6, "u2")], "7", 2))


def test_death_outlasts_a_predecessor_that_the_watch_shows() -> None:
    """A watch that lags so far behind that it is believed again does not make another death forgotten."""
    store = new_store()
    store.answered(Thing(2, "u1", label=OUT), 0)
    store.gone(A, "u2", MEMORY - 1)

    assert [Change(A, None, Thing(1), backwards=True, leap=True)] == store.event(ADDED, Thing(1), MEMORY)
    assert store.event(DELETED, Thing(2), MEMORY)
    assert not store.event(ADDED, Thing(3, "u2"), MEMORY)


def test_list_that_was_not_taken_in_to_the_end() -> None:
    """What it has shown is known all the same: a list that is older than that is of a history that was rewound."""
    store = new_store()
    all_of(listed(store, [], "2", 0))
    next(listed(store, [Thing(8)], "9", 1))

    assert [Change(A, Thing(8), None, leap=True)] == all_of(listed(store, [], "5", 2))


def test_rewound_twice() -> None:
    """What a first rewound list has not shown yet is overruled by a second list like the rest."""
    store = new_store()
    all_of(listed(store, [Thing(5), Thing(6, "u2", "b")], "90", 0))
    next(listed(store, [Thing(5, serial=1)], "60", 1))

    assert [Change(key_of("b"), Thing(6, "u2", "b"), None, leap=True)] == all_of(
        listed(store, [Thing(5, serial=1)], "60", 2)
    )


def test_unchanged_by_a_restore() -> None:
    """What a restore did not touch is not told again."""
    store = new_store()
    all_of(listed(store, [Thing(5)], "90", 0))

    assert not all_of(listed(store, [Thing(5)], "60", 1))
    assert version_order("5") == store.order(A)
    assert version_order("") == store.order(key_of("b"))


def test_burials_of_a_rewound_history() -> None:
    """They say nothing about the new one: neither now, nor when their time comes."""
    store = new_store()
    all_of(listed(store, [Thing(5)], "90", 0))
    store.gone(A, "u1", 0)
    all_of(listed(store, [Thing(5)], "60", MEMORY))
    store.gone(A, "u1", MEMORY)
    store.gone(key_of("b"), "u2", 2 * MEMORY)

    assert len(store._burials) == 2
    assert not store.answered(Thing(61), 2 * MEMORY - 1)


def test_restored_from_a_backup(logged: list[Any]) -> None:
    """A list older than what was seen replaces everything: also what is newer, buried, or of the same version."""
    store = new_store()
    all_of(listed(store, [Thing(55, "u1", "a"), Thing(70, "u2", "b")], "90", 0))
    store.answered(Thing(95, "u3", "c"), 0)
    store.gone(key_of("b"), "u2", 0)
    assert version_order("95") == store.furthest

    restored = [Thing(55, "u1", "a", serial=1), Thing(40, "u2", "b")]
    changes = all_of(listed(store, restored, "60", 1))

    assert changes == [
        Change(A, Thing(55, "u1", "a"), restored[0], leap=True),
        Change(key_of("b"), None, restored[1]),
        Change(key_of("c"), Thing(95, "u3", "c"), None, leap=True),
    ]
    assert store.answered(Thing(61, "u1", "a"), 0)
    assert version_order("61") == store.furthest
    assert [event["event"] for event in logged] == ["the server's history was rewound"]


def test_restored_to_what_the_watch_had_not_reached() -> None:
    """What only an answer has shown is history as well: a list that was asked for afterwards and is older undoes it."""
    store = new_store()
    all_of(listed(store, [Thing(5)], "10", 0))
    store.answered(Thing(20), 0)

    changes = all_of(listed(store, [Thing(5, serial=1)], "15", 1))

    assert [Change(A, Thing(20), Thing(5, serial=1), leap=True)] == changes


def test_index_follows() -> None:
    """An index shows an object under its current values only."""
    store = new_store()
    store.event(ADDED, Thing(1, label="x"), 0)
    store.event(MODIFIED, Thing(2, label="y"), 0)

    assert list(store.indexed("label", "x")) == []
    assert [Thing(2, label="y")] == list(store.indexed("label", "y"))

    store.event(DELETED, Thing(3, label="y"), 0)

    assert list(store.indexed("label", "y")) == []
    with pytest.raises(KeyError, match="no index 'colour'; there are: label"):
        store.indexed("colour", "red")


def test_index_that_gives_a_value_twice() -> None:
    """A value given twice is one value, also when the object leaves it."""
    store: Store[Thing] = Store(meta, indexes={"label": lambda thing: [thing.label, thing.label]})
    store.event(ADDED, Thing(1, label="x"), 0)
    assert [Thing(1, label="x")] == store.indexed("label", "x")

    store.event(MODIFIED, Thing(2, label="y"), 0)

    assert not store.indexed("label", "x")


def not_hashable(thing: Thing) -> Any:
    return [[thing.version]] if thing.version < 3 else [thing.version]


def raises_midway(thing: Thing) -> Iterator[int]:
    yield 7
    if thing.version < 3:
        raise KeyError("spec")


@pytest.mark.parametrize("indexer", [not_hashable, raises_midway], ids=["not hashable", "raises"])
def test_index_function_that_fails(indexer: Any, logged: list[Any]) -> None:
    """An object that an index cannot read is kept, in no part of that index, counted, and logged once."""
    store: Store[Thing] = Store(meta, indexes={"bad": indexer, "good": lambda thing: [thing.name]})

    store.event(ADDED, Thing(1), 0)
    store.event(MODIFIED, Thing(2), 0)

    assert (Thing(2), 2) == (store.get(A), store.index_errors)
    assert [Thing(2)] == store.indexed("good", "a")
    assert not store.indexed("bad", 7)
    assert [(e["event"], e["index"], e["key"]) for e in logged] == [("object cannot be indexed", "bad", "ns/a")]

    store.event(MODIFIED, Thing(3), 0)
    store.event(MODIFIED, Thing(1), 0)

    assert len(logged) == 2


def test_tombstones_do_not_pile_up() -> None:
    """What is gone is forgotten after its time, so that a long life costs no memory."""
    store = new_store()
    for number in range(1000):
        store.event(ADDED, Thing(2 * number, f"u{number}"), number)
        store.event(DELETED, Thing(2 * number + 1, f"u{number}"), number)

    assert len(store._buried) <= 2 * MEMORY + 1
    assert len(store._burials) <= 2 * MEMORY + 1


def test_tombstones_of_one_name_do_not_pile_up() -> None:
    """Nor do those of a name that comes and goes without end."""
    store = new_store()
    for number in range(1, 1000):
        store.answered(Thing(number, f"u{number}"), 0)
        store.gone(A, f"u{number}", 0)

    assert len(store._buried[A]) < 100


def test_only_the_newest_burial_is_kept() -> None:
    """One that says all that an earlier one says takes its place."""
    store = new_store()
    for number in range(1, 10):
        store.answered(Thing(number, label=OUT), number)

    assert len(store._buried[A]) == 1


@given(st.integers(min_value=0), st.integers(min_value=0))
def test_version_order_is_that_of_numbers(one: int, other: int) -> None:
    """Comparing versions by length, then text, is comparing the numbers they are."""
    assert (one < other) == (version_order(str(one)) < version_order(str(other)))


NAMES = ("a", "b")
LABELS = ("x", "y", OUT)


@dataclass
class Read:
    """A live read on its way: the uid known when it was sent; its answer is made at once, or when it arrives."""

    name: str
    uid: str
    sent: float
    answered: bool
    answer: Thing | None = None


@dataclass
class Backup:
    """The server at some time."""

    version: int
    objects: dict[str, Thing]


def store_versions(store: Store[Thing]) -> tuple[int, int]:
    """What a restore that bumps the versions leaves behind: all that anybody can have seen."""
    return int(store.furthest[1] or 0), max((thing.version for thing in store.values()), default=0)


class History(RuleBasedStateMachine):
    """A server with two objects that come, change, leave the selection and go; news of it in any order that can happen.

    The watch delivers in order but late; a list interrupts it and is taken in step by step; answers to own writes and
    reads arrive late, in any order, at any time. Now and then the server is restored from a backup: its versions go
    back, or jump ahead of all that were; and if they went back they may have caught up by the next list. Then:

    * what handlers are told of a name is a chain, and what they were told last is what the store has, also by index;
    * no version of an object, and no incarnation of a name, is shown after a newer one, and none twice; what is known
      to be gone is not shown again: unless an own answer has lost its rank, and then the step backwards is marked;
    * a step backwards, and one that a list shows of what was known, is marked as a leap;
    * when all news is in, the store has what the server has.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store = new_store()
        self.now = 0.0
        self.version = 0
        self.restored = self.must_list = False
        self.serial = 0
        self.objects: dict[str, Thing] = {}
        self.watch: list[tuple[float, EventType, Thing]] = []
        self.answers: list[tuple[float, Thing]] = []
        self.reads: list[Read] = []
        self.backup = Backup(0, {})
        self.listing: Iterator[Sequence[Change[Thing]]] | None = None
        self.list_began = 0.0
        self.dead_when_listed: set[str] = set()
        self.deaths: dict[str, int] = {}
        self.shown: dict[Key, Thing] = {}
        self.newest: dict[str, int] = {}
        self.known_dead: set[str] = set()

    # -- the server

    def write(self, name: str, label: str, uid: str) -> Thing:
        self.version += 1
        self.serial += 1
        before = self.objects.get(name)
        thing = self.objects[name] = Thing(self.version, uid, name, label, self.serial)
        was, is_ = before is not None and selected(before), selected(thing)
        if was or is_:
            self.watch.append((self.now, MODIFIED if was and is_ else ADDED if is_ else DELETED, thing))
        return thing

    @rule(name=st.sampled_from(NAMES), label=st.sampled_from(LABELS), own=st.booleans())
    def write_one(self, name: str, label: str, own: bool) -> None:
        known = self.objects.get(name)
        thing = self.write(name, label, known.uid if known is not None else f"u{self.serial}")
        if own:
            self.answers.append((self.now, thing))

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if (thing := self.objects.pop(name, None)) is not None:
            self.version += 1
            self.deaths[thing.uid] = self.version
            if selected(thing):
                last = Thing(self.version, thing.uid, name, thing.label, thing.serial)
                self.watch.append((self.now, DELETED, last))

    @rule()
    def back_up(self) -> None:
        self.backup = Backup(self.version, dict(self.objects))

    # -- the news

    @initialize()
    def first_list(self) -> None:
        self.tell(all_of(listed(self.store, [], "0", 0)))

    @precondition(lambda self: self.watch and self.listing is None and not self.must_list)
    @rule()
    def deliver(self) -> None:
        written, type_, thing = self.watch.pop(0)
        if self.deaths.get(thing.uid) == thing.version:
            self.known_dead.add(thing.uid)
        if self.now >= written + 2 * MEMORY:
            self.forget(thing.name)
        self.tell(self.store.event(type_, thing, self.now))

    @precondition(lambda self: not self.watch and self.listing is None and not self.must_list)
    @rule()
    def bookmark(self) -> None:
        self.store.bookmark(str(self.version))

    @precondition(lambda self: self.listing is None)
    @rule()
    def begin_list(self) -> None:
        self.watch.clear()
        self.must_list = False
        self.list_began = self.now
        self.dead_when_listed = set(self.deaths)
        items = [thing for thing in self.objects.values() if selected(thing)]
        self.listing = listed(self.store, items, str(self.version), self.now)

    @precondition(lambda self: self.listing is not None)
    @rule()
    def list_one(self) -> None:
        assert self.listing is not None
        if self.now >= self.list_began + 2 * MEMORY:
            for name in NAMES:
                self.forget(name)
        changes = next(self.listing, None)
        if changes is not None:
            self.tell(changes, listed=True)
        else:
            self.listing = None
            self.known_dead |= self.dead_when_listed

    @rule(bump=st.sampled_from([0, 0, 1000]))
    def restore(self, bump: int) -> None:
        """All connections break, a list that was being taken in among them, and what was shown counts no more."""
        self.version = max(self.version, *store_versions(self.store)) + bump if bump else self.backup.version
        self.objects = dict(self.backup.objects)
        self.now += 1
        self.restored = self.must_list = True
        self.listing = None
        self.watch.clear()
        self.answers.clear()
        self.reads.clear()
        self.newest.clear()
        self.deaths.clear()
        self.known_dead.clear()

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        sent, thing = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        if self.now < sent + MEMORY:
            self.tell(self.store.answered(thing, self.now))

    @rule(name=st.sampled_from(NAMES), at_once=st.booleans())
    def send_read(self, name: str, at_once: bool) -> None:
        answer = self.objects.get(name) if at_once else None
        self.reads.append(Read(name, self.store.uid(key_of(name)), self.now, at_once, answer))

    @precondition(lambda self: self.reads)
    @rule(data=st.data())
    def receive_read(self, data: st.DataObject) -> None:
        read = self.reads.pop(data.draw(st.integers(0, len(self.reads) - 1)))
        answer = read.answer if read.answered else self.objects.get(read.name)
        if self.now >= read.sent + MEMORY:
            return
        if answer is not None:
            self.tell(self.store.answered(answer, self.now))
        else:
            if read.uid:
                self.known_dead.add(read.uid)
            self.tell(self.store.gone(key_of(read.name), read.uid, self.now))

    @rule(seconds=st.sampled_from([1.0, MEMORY]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    # -- what must hold

    def tell(self, changes: Sequence[Change[Thing]], *, listed: bool = False) -> None:
        known = bool(changes) and changes[0].key in self.shown
        for change in changes:
            assert change.old == self.shown.get(change.key)
            assert change.leap == (change.backwards or (listed and known))
            assert self.now >= MEMORY or self.restored or not change.backwards
            if change.new is None:
                gone = self.shown.pop(change.key)
                if change.backwards:
                    self.newest.pop(gone.name, None)
            else:
                assert change.old is None or change.old.uid == change.new.uid
                self.show(change.key, change.new, backwards=change.backwards)

    def show(self, key: Key, thing: Thing, *, backwards: bool) -> None:
        if backwards:
            self.known_dead.discard(thing.uid)
        else:
            assert self.newest.get(thing.name, -1) < thing.version
            assert thing.uid not in self.known_dead
        self.newest[thing.name] = thing.version
        self.shown[key] = thing

    def forget(self, name: str) -> None:
        """News of *name* is so old that nobody remembers what is newer."""
        self.newest.pop(name, None)
        self.known_dead.clear()

    @invariant()
    def what_was_told_is_there(self) -> None:
        assert self.shown == dict(zip(self.store.keys(), self.store.values(), strict=True))
        for label in LABELS:
            found = {thing.name for thing in self.shown.values() if thing.label == label}
            assert found == {thing.name for thing in self.store.indexed("label", label)}

    @invariant()
    def all_news_is_in(self) -> None:
        if not (self.watch or self.answers or self.reads or self.must_list) and self.listing is None:
            assert {n: thing for n, thing in self.objects.items() if selected(thing)} == {
                thing.name: thing for thing in self.store.values()
            }


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=60, stateful_step_count=40)
