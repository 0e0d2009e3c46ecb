"""The rules by which a cache puts news from lists, watches and own answers together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kargo_py.kube.client import EventType, Meta
from kargo_py.kube.resources import Key
from kargo_py.kube.store import OWN_ANSWER_RANK, TOMBSTONE_LIFE, Change, Store, version_order


@dataclass(frozen=True)
class Thing:
    """An object with nothing but what the rules look at."""

    version: int
    uid: str = "u1"
    name: str = "a"
    label: str = ""


def meta(thing: Thing) -> Meta:
    return Meta(Key("ns", thing.name), thing.uid, str(thing.version))


def new_store(**options: Callable[[Thing], bool]) -> Store[Thing]:
    return Store(meta, indexes={"label": lambda thing: [thing.label] if thing.label else []}, **options)


A = Key("ns", "a")
ADDED, MODIFIED, DELETED = EventType.ADDED, EventType.MODIFIED, EventType.DELETED

# Each step: what arrives, at what time, and the (old, new) versions that handlers are told.
News = tuple[str, Thing, float, list[tuple[int | None, int | None]]]

HISTORIES: list[tuple[str, list[News]]] = [
    ("a watch in order", [("add", Thing(1), 0, [(None, 1)]), ("mod", Thing(2), 0, [(1, 2)]),
     ("del", Thing(3), 0, [(2, None)])]),
    ("own answer, then its event", [("add", Thing(1), 0, [(None, 1)]), ("own", Thing(2), 0, [(1, 2)]),
     ("mod", Thing(2), 0, [])]),
    ("own answer, then an older event", [("add", Thing(1), 0, [(None, 1)]), ("own", Thing(5), 0, [(1, 5)]),
     ("mod", Thing(3), 1, []), ("mod", Thing(5), 1, []), ("mod", Thing(6), 1, [(5, 6)])]),
    ("own answer that comes late", [("add", Thing(7), 0, [(None, 7)]), ("own", Thing(5), 0, [])]),
    ("versions by length, then text", [("add", Thing(9), 0, [(None, 9)]), ("own", Thing(10), 0, [(9, 10)]),
     ("own", Thing(9), 0, [])]),
    ("after an etcd restore the watch wins in the end", [("own", Thing(50), 0, [(None, 50)]),
     ("mod", Thing(40), OWN_ANSWER_RANK - 1, []), ("mod", Thing(40), OWN_ANSWER_RANK + 1, [(50, 40)])]),
    ("a late answer does not resurrect", [("add", Thing(1), 0, [(None, 1)]), ("del", Thing(3), 0, [(1, None)]),
     ("own", Thing(2), 1, [])]),
    ("not even of an object that was never in the cache", [("del", Thing(3), 0, []), ("own", Thing(2), 1, [])]),
    ("a tombstone does not last for ever", [("add", Thing(1), 0, [(None, 1)]), ("del", Thing(3), 0, [(1, None)]),
     ("own", Thing(4), TOMBSTONE_LIFE + 1, [(None, 4)])]),
    ("a new object of the name", [("add", Thing(1), 0, [(None, 1)]), ("del", Thing(2), 0, [(1, None)]),
     ("add", Thing(3, "u2"), 0, [(None, 3)])]),
    ("a new object whose predecessor's deletion was not seen", [("add", Thing(1), 0, [(None, 1)]),
     ("own", Thing(3, "u2"), 0, [(1, None), (None, 3)]), ("del", Thing(2), 0, [])]),
    ("a late answer of the predecessor", [("add", Thing(3, "u2"), 0, [(None, 3)]), ("own", Thing(2, "u1"), 0, [])]),
    ("our read said gone, the watch is behind", [("add", Thing(1), 0, [(None, 1)]),
     ("gone", Thing(0, "u1"), 0, [(1, None)]),
     ("mod", Thing(2), 1, []), ("del", Thing(3), 1, [])]),
    ("our read said gone before it was created", [("add", Thing(4), 0, [(None, 4)]), ("gone", Thing(0, ""), 0, [])]),
    ("our read said gone, of the predecessor", [("add", Thing(4, "u2"), 0, [(None, 4)]),
     ("gone", Thing(0, "u1"), 0, [])]),
    ("leaving the selection after a newer own answer", [("own", Thing(9), 0, [(None, 9)]), ("del", Thing(8), 1, []),
     ("mod", Thing(9), 1, [])]),
]  # fmt: skip


@pytest.mark.parametrize("steps", [h[1] for h in HISTORIES], ids=[h[0] for h in HISTORIES])
def test_history(steps: list[News]) -> None:
    """Each piece of news changes the store, or is recognised as old, by the rules the module states."""
    store = new_store()
    for what, thing, now, expected in steps:
        match what:
            case "own":
                changes = store.answered(thing, now)
            case "gone":
                changes = store.gone(A, thing.uid, now)
            case _:
                changes = store.event({"add": ADDED, "mod": MODIFIED, "del": DELETED}[what], thing, now)
        told = [(c.old and c.old.version, c.new and c.new.version) for c in changes]
        assert expected == told, what


def test_list_emits_missed_deletions() -> None:
    """What a list does not show any more is gone, unless an answer newer than the list put it there."""
    store = new_store()
    store.listed([Thing(1, "u1", "a"), Thing(2, "u2", "b")], "5", 0)
    store.answered(Thing(9, "u3", "c"), 0)

    changes = store.listed([Thing(2, "u2", "b")], "7", 1)

    assert [Change(Thing(1, "u1", "a"), None)] == list(changes)
    assert {"b", "c"} == {thing.name for thing in store.values()}


def test_list_after_the_answers_rank() -> None:
    """An own answer that no list confirms is given up after its time."""
    store = new_store()
    store.answered(Thing(9, "u3", "c"), 0)

    assert [Change(Thing(9, "u3", "c"), None)] == list(store.listed([], "7", OWN_ANSWER_RANK + 1))


def test_answers_outside_the_selection() -> None:
    """An own answer that the cache's selector would not show is not put in."""
    store = new_store(selects=lambda thing: thing.label == "mine")

    assert not store.answered(Thing(1, label="other"), 0)
    assert store.answered(Thing(1, label="mine"), 0)


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


def test_index_function_that_fails() -> None:
    """An object that an index cannot read is kept, counted, and found by its key."""
    store: Store[Thing] = Store(meta, indexes={"bad": lambda thing: [1 // (thing.version - 1)]})

    store.event(ADDED, Thing(1), 0)

    assert (Thing(1), 1) == (store.get(A), store.index_errors)


@given(st.lists(st.integers(min_value=0), min_size=2, max_size=2))
def test_version_order_is_that_of_numbers(numbers: list[int]) -> None:
    """Comparing versions by length, then text, is comparing the numbers they are."""
    one, other = numbers
    assert (one < other) == (version_order(str(one)) < version_order(str(other)))


class History(RuleBasedStateMachine):
    """A server with one object that is created, changed and deleted; news of it in every order that can happen.

    The watch delivers in order but late; answers to own requests arrive late too, each at any time after it was made.
    Within the rank of an answer (no time passes here) the store must behave like this:

    * what handlers are told is a chain;
    * no version of an object is shown after a newer one of the same object;
    * a deleted object is not shown again once its deletion was seen;
    * when all news is in, the store shows what the server has.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store = new_store()
        self.version = 0
        self.uid = 0
        self.current: Thing | None = None
        self.watch: list[tuple[EventType, Thing]] = []
        self.answers: list[Thing] = []
        self.shown: Thing | None = None
        self.deleted_seen: set[str] = set()

    def tell(self, changes: object) -> None:
        for change in changes:  # type: ignore[attr-defined]
            assert change.old == self.shown
            if change.new is not None:
                assert change.new.uid not in self.deleted_seen
                if change.old is not None:
                    assert change.old.uid == change.new.uid
                    assert change.old.version < change.new.version
            elif change.old is not None:
                self.deleted_seen.add(change.old.uid)
            self.shown = change.new

    def next_version(self) -> int:
        self.version += 1
        return self.version

    @initialize()
    def listed(self) -> None:
        self.tell(self.store.listed([], "0", 0))

    @precondition(lambda self: self.current is None)
    @rule(own=st.booleans())
    def create(self, own: bool) -> None:
        self.uid += 1
        self.current = Thing(self.next_version(), f"u{self.uid}")
        self.watch.append((ADDED, self.current))
        if own:
            self.answers.append(self.current)

    @precondition(lambda self: self.current is not None)
    @rule(own=st.booleans())
    def change(self, own: bool) -> None:
        assert self.current is not None
        self.current = Thing(self.next_version(), self.current.uid)
        self.watch.append((MODIFIED, self.current))
        if own:
            self.answers.append(self.current)

    @precondition(lambda self: self.current is not None)
    @rule()
    def delete(self) -> None:
        assert self.current is not None
        self.watch.append((DELETED, Thing(self.next_version(), self.current.uid)))
        self.current = None

    @precondition(lambda self: self.watch)
    @rule()
    def deliver(self) -> None:
        type_, thing = self.watch.pop(0)
        if type_ is DELETED:
            self.deleted_seen.add(thing.uid)
        self.tell(self.store.event(type_, thing, 0))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.answers) - 1))
        self.tell(self.store.answered(self.answers.pop(index), 0))

    @rule()
    def relist(self) -> None:
        """List again: what the watch had not delivered yet is in the list."""
        self.watch.clear()
        self.tell(self.store.listed([self.current] if self.current else [], str(self.version), 0))

    @rule()
    def read_live(self) -> None:
        if self.current is None:
            self.tell(self.store.gone(A, self.store.uid(A), 0))
        else:
            self.tell(self.store.answered(self.current, 0))

    @invariant()
    def the_chain_ends_in_the_store(self) -> None:
        assert self.store.get(A) == self.shown

    @invariant()
    def all_news_in(self) -> None:
        if not self.watch and not self.answers:
            assert self.store.get(A) == self.current


TestHistory = History.TestCase
