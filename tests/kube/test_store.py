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

    assert behind.backwards


def test_list_emits_missed_deletions() -> None:
    """What a list does not show any more is gone, unless an answer newer than the list put it there."""
    store = new_store()
    all_of(listed(store, [Thing(1, "u1", "a"), Thing(2, "u2", "b")], "5", 0))
    known = store.furthest
    store.answered(Thing(9, "u3", "c"), 0)

    changes = all_of(store.listed([Thing(2, "u2", "b")], "7", began=0, known=known))

    assert [Change(A, Thing(1, "u1", "a"), None)] == changes
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

    assert next(steps) == (Change(A, Thing(1, "u1", "a"), None),)
    assert not store.answered(Thing(5, "u1", "a"), 1)
    assert [Change(key_of("b"), Thing(2, "u2", "b"), None)] == all_of(steps)


def test_restored_from_a_backup(logged: list[Any]) -> None:
    """A list older than what was seen replaces everything: also what is newer, buried, or of the same version."""
    store = new_store()
    all_of(listed(store, [Thing(55, "u1", "a"), Thing(70, "u2", "b")], "90", 0))
    store.answered(Thing(95, "u3", "c"), 0)
    store.gone(key_of("b"), "u2", 0)
    assert version_order("95") == store.furthest

    restored = [Thing(55, "u1", "a", serial=1), Thing(40, "u2", "b")]
    changes = all_of(listed(store, restored, "60", 0))

    assert changes == [
        Change(A, Thing(55, "u1", "a"), restored[0]),
        Change(key_of("b"), None, restored[1]),
        Change(key_of("c"), Thing(95, "u3", "c"), None),
    ]
    assert store.answered(Thing(61, "u1", "a"), 0)
    assert version_order("61") == store.furthest
    assert [event["event"] for event in logged] == ["the server's history was rewound"]


def test_restored_to_what_the_watch_had_not_reached() -> None:
    """What only an answer has shown is history as well: a list that was asked for afterwards and is older undoes it."""
    store = new_store()
    all_of(listed(store, [Thing(5)], "10", 0))
    store.answered(Thing(20), 0)

    assert [Change(A, Thing(20), Thing(5, serial=1))] == all_of(listed(store, [Thing(5, serial=1)], "15", 0))


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

    assert len(store._tombstones) <= MEMORY + 1
    assert len(store._burials) <= MEMORY + 1


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


class History(RuleBasedStateMachine):
    """A server with two objects that come, change, leave the selection and go; news of it in any order that can happen.

    The watch delivers in order but late; a list interrupts it and is taken in step by step; answers to own writes and
    reads arrive late, in any order, at any time; now and then the server is restored from a backup. Then:

    * what handlers are told of a name is a chain, and what they were told last is what the store has, also by index;
    * no version of an object, and no incarnation of a name, is shown after a newer one, and none twice; what is known
      to be gone is not shown again: unless an own answer has lost its rank, and then the step backwards is marked;
    * when all news is in, the store has what the server has.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store = new_store()
        self.now = 0.0
        self.version = self.reached = self.learned = 0
        self.serial = 0
        self.objects: dict[str, Thing] = {}
        self.watch: list[tuple[EventType, Thing]] = []
        self.answers: list[tuple[float, Thing]] = []
        self.reads: list[Read] = []
        self.backup = Backup(0, {})
        self.listing: Iterator[Sequence[Change[Thing]]] | None = None
        self.list_version = 0
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
            self.watch.append((MODIFIED if was and is_ else ADDED if is_ else DELETED, thing))
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
                self.watch.append((DELETED, last))

    @rule()
    def back_up(self) -> None:
        self.backup = Backup(self.version, dict(self.objects))

    # -- the news

    @initialize()
    def first_list(self) -> None:
        self.tell(all_of(listed(self.store, [], "0", 0)))

    @precondition(lambda self: self.watch and self.listing is None)
    @rule()
    def deliver(self) -> None:
        type_, thing = self.watch.pop(0)
        self.reached = thing.version
        if self.deaths.get(thing.uid) == thing.version:
            self.known_dead.add(thing.uid)
        self.tell(self.store.event(type_, thing, self.now))

    @precondition(lambda self: not self.watch and self.listing is None)
    @rule()
    def bookmark(self) -> None:
        self.reached = self.version
        self.store.bookmark(str(self.version))

    @precondition(lambda self: self.listing is None)
    @rule()
    def begin_list(self) -> None:
        self.watch.clear()
        self.list_version = self.version
        self.dead_when_listed = set(self.deaths)
        items = [thing for thing in self.objects.values() if selected(thing)]
        self.listing = listed(self.store, items, str(self.version), self.now)

    @precondition(lambda self: self.listing is not None)
    @rule()
    def list_one(self) -> None:
        assert self.listing is not None
        changes = next(self.listing, None)
        if changes is not None:
            self.tell(changes)
        else:
            self.listing = None
            self.reached = self.list_version
            self.known_dead |= self.dead_when_listed

    @precondition(lambda self: self.listing is None and self.backup.version < max(self.reached, self.learned))
    @rule()
    def restore(self) -> None:
        """All connections break, and what was shown counts no more."""
        self.version, self.objects = self.backup.version, dict(self.backup.objects)
        self.reached = self.learned = self.version
        self.answers.clear()
        self.reads.clear()
        self.newest.clear()
        self.deaths.clear()
        self.known_dead.clear()
        self.begin_list()
        self.list_one()

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        sent, thing = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        if self.now < sent + MEMORY:
            self.learned = max(self.learned, thing.version)
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
            self.learned = max(self.learned, answer.version)
            self.tell(self.store.answered(answer, self.now))
        else:
            if read.uid:
                self.known_dead.add(read.uid)
            self.tell(self.store.gone(key_of(read.name), read.uid, self.now))

    @rule(seconds=st.sampled_from([1.0, MEMORY]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    # -- what must hold

    def tell(self, changes: Sequence[Change[Thing]]) -> None:
        for change in changes:
            assert change.old == self.shown.get(change.key)
            if change.new is None:
                gone = self.shown.pop(change.key)
                if change.backwards:
                    assert self.now >= MEMORY
                    del self.newest[gone.name]
            else:
                assert change.old is None or change.old.uid == change.new.uid
                self.show(change.key, change.new, backwards=change.backwards)

    def show(self, key: Key, thing: Thing, *, backwards: bool) -> None:
        if backwards:
            assert self.now >= MEMORY
            self.known_dead.discard(thing.uid)
        else:
            assert self.newest.get(thing.name, -1) < thing.version
            assert thing.uid not in self.known_dead
        self.newest[thing.name] = thing.version
        self.shown[key] = thing

    @invariant()
    def what_was_told_is_there(self) -> None:
        assert self.shown == dict(zip(self.store.keys(), self.store.values(), strict=True))
        for label in LABELS:
            found = {thing.name for thing in self.shown.values() if thing.label == label}
            assert found == {thing.name for thing in self.store.indexed("label", label)}

    @invariant()
    def all_news_is_in(self) -> None:
        if not self.watch and not self.answers and not self.reads and self.listing is None:
            assert {n: thing for n, thing in self.objects.items() if selected(thing)} == {
                thing.name: thing for thing in self.store.values()
            }


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=60, stateful_step_count=40)
