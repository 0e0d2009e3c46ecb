"""Each Law finds what was planted, and nothing in a history that is as it should be."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from kargo_py.kube.resources import Key
from tests.explorer.laws import (
    DOUBLE_START,
    FALSE_RECORD,
    FALSE_SUCCESS,
    LOST_ENDING,
    NOT_STOPPED,
    NOT_TAKEN_BACK,
    ORPHAN,
    TRESPASS,
)
from tests.simulation.history import History, Seen, Write
from tests.simulation.laws import CLOCKS_COMPARED, CRASHED, ONE_AT_A_TIME, RESTLESS, Violation, judge
from tests.simulation.plan import OURS

JsonObject = dict[str, Any]

WANTED, OTHER = "1" * 40, "2" * 40
ALICE = {"info": [{"name": "by", "value": "alice"}], "sync": {}}
QUIET = 1000.0


def stamp(promotion: str = "p1", attempt: int = 1) -> str:
    return f"v1/me/shop/{promotion}/uid-{promotion}/sync/{attempt}"


def operation(mark: str) -> JsonObject:
    return {"info": [{"name": "kargo-py.io/stamp", "value": mark}], "sync": {}}


@dataclass
class Story:
    """A history that is told write by write, one a second."""

    writes: list[Write] = field(default_factory=list)
    objects: dict[tuple[str, Key], JsonObject] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    time: float = 0.0

    def write(self, who: str, kind: str, name: str, new: JsonObject | None) -> Write:
        key = Key("argocd" if kind == "Application" else "shop", name)
        old = self.objects.pop((kind, key), None)
        if new is not None:
            new = {"kind": kind, **copy.deepcopy(new)}
            new.setdefault("metadata", {"uid": f"uid-{name}"})
            self.objects[kind, key] = new
        self.time += 1
        write = Write(len(self.writes) + 1, self.time, who, 1 if who == OURS else 0, self.time, kind, key, old, new)
        self.writes.append(write)
        return write

    def app(self, who: str, name: str = "a", *, target: str = "main", uid: str | None = None, **parts: Any) -> Write:
        """The Application, as it is from now on."""
        new: JsonObject = {"metadata": {"uid": uid or f"uid-{name}"}, "spec": {"source": {"targetRevision": target}}}
        if "asked" in parts:
            new["operation"] = parts["asked"]
        if "phase" in parts:
            state = {"operation": parts["of"], "phase": parts["phase"], "message": parts.get("message", "")}
            new["status"] = {"operationState": state | {"syncResult": {"revision": parts.get("revision", WANTED)}}}
        return self.write(who, "Application", name, new)

    def promotion(
        self, phase: str, states: dict[str, str] | None = None, name: str = "p1", message: str = "why", **config: Any
    ) -> Write:
        """The Promotion, as we write it; *states* by stamp."""
        source = {"repoURL": "r", "desiredRevision": WANTED}
        step = {"uses": "argocd-update", "config": {"apps": [{"name": "a", "sources": [source]}], **config}}
        operations = [
            {"namespace": "argocd", "name": "a", "stamp": mark.strip(), "state": state, "attempt": 1, "message": ""}
            for mark, state in (states or {}).items()
        ]
        status = {"phase": phase, "operations": operations, "message": message}
        spec = {"stage": "dev", "steps": [step]}
        return self.write("alice" if phase == "Pending" else OURS, "Promotion", name, {"spec": spec, "status": status})

    def stage(self, current: str | None) -> None:
        status = {"currentPromotion": {"name": current}} if current else {}
        self.write(OURS, "Stage", "dev", {"metadata": {"uid": "uid-dev"}, "status": status})

    def begin(self, **config: Any) -> Story:
        """Up to the start."""
        self.app("alice")
        self.promotion("Pending", **config)
        self.stage("p1")
        self.promotion("Running", {stamp(): "Pending"}, **config)
        self.app(OURS, asked=operation(stamp()), target=WANTED)
        return self

    def sync(self, phase: str = "Succeeded", mark: str = "", **parts: Any) -> Story:
        """Argo CD picks it up, and ends it."""
        ours = operation(mark or stamp())
        self.app("argocd", asked=ours, of=ours, phase="Running", target=WANTED)
        self.app("argocd", of=ours, phase=phase, target=WANTED, **parts)
        return self

    def end(self, phase: str = "Succeeded", state: str = "Succeeded", **config: Any) -> Story:
        """The Promotion ends."""
        self.promotion(phase, {stamp(): state}, **config)
        self.stage(None)
        return self

    def judged(self) -> list[Violation]:
        history = History(self.writes, QUIET, QUIET + 200, "me", self.crashes, self.seen)
        return judge(history)


def good() -> Story:
    return Story().begin().sync().end()


def failed() -> Story:
    return Story().begin().sync("Failed").end("Failed", "Failed")


def aborted() -> Story:
    return Story().begin().sync("Failed", message="Operation terminated").end("Aborted", "Stopped")


def superseded() -> Story:
    story = Story().begin()
    story.app("alice", asked=ALICE, target=WANTED)
    return story.end("Failed", "Superseded")


def not_begun() -> Story:
    story = Story()
    story.promotion("Pending")
    story.promotion("Aborted", {})
    return story


def in_two_attempts() -> Story:
    story = Story().begin().sync(revision=OTHER)
    story.promotion("Running", {stamp(): "WrongRevision", stamp(attempt=2): "Pending"})
    story.app(OURS, asked=operation(stamp(attempt=2)), target=WANTED)
    story.sync(mark=stamp(attempt=2))
    story.promotion("Succeeded", {stamp(): "WrongRevision", stamp(attempt=2): "Succeeded"})
    story.stage(None)
    return story


def taken_back() -> Story:
    story = Story().begin(onAbort="revert").sync("Failed", message="Operation terminated")
    story.app(OURS, of=operation(stamp()), phase="Failed", message="Operation terminated")
    return story.end("Aborted", "Stopped", onAbort="revert")


def abandoned() -> Story:
    """An operation of Alice's that nobody goes on with is started over after a while."""
    story = Story()
    story.app("alice", of=ALICE, phase="Running")
    story.promotion("Pending")
    story.promotion("Running", {stamp(): "Pending"})
    story.time += 40
    story.app(OURS, asked=operation(stamp()), target=WANTED)
    return story.sync().end()


@pytest.mark.parametrize(
    "story",
    [good, failed, aborted, superseded, not_begun, in_two_attempts, taken_back, abandoned],
    ids=lambda s: s.__name__,
)
def test_what_is_as_it_should_be(story: Callable[[], Story]) -> None:
    """No Law finds anything."""
    assert story().judged() == []


def started_twice(story: Story) -> None:
    story.begin()
    story.app("alice", target=WANTED)
    story.app(OURS, asked=operation(stamp()), target=WANTED)
    story.sync().end()


def started_before_recorded(story: Story) -> None:
    story.app("alice")
    story.promotion("Pending")
    story.app(OURS, asked=operation(stamp()), target=WANTED)
    story.promotion("Running", {stamp(): "Pending"})
    story.sync().end()


def second_beside_the_first(story: Story) -> None:
    story.begin()
    story.promotion("Running", {stamp(): "Superseded", stamp(attempt=2): "Pending"})
    story.app(OURS, asked=operation(stamp(attempt=2)), target=WANTED)
    story.sync(mark=stamp(attempt=2))
    story.promotion("Succeeded", {stamp(): "Superseded", stamp(attempt=2): "Succeeded"})
    story.stage(None)


def synced_twice(story: Story) -> None:
    story.begin().sync()
    story.promotion("Running", {stamp(): "Succeeded", stamp(attempt=2): "Pending"})
    story.app(OURS, asked=operation(stamp(attempt=2)), target=WANTED)
    story.sync(mark=stamp(attempt=2))
    story.promotion("Succeeded", {stamp(): "Succeeded", stamp(attempt=2): "Succeeded"})
    story.stage(None)


def _held_by_alice(story: Story, **app: Any) -> None:
    story.app("alice", **app)
    story.promotion("Pending")
    story.promotion("Running", {stamp(): "Pending"})


def overwrites_a_request(story: Story) -> None:
    _held_by_alice(story, asked=ALICE)
    story.app(OURS, asked=operation(stamp()), target=WANTED)
    story.sync().end()


def removes_a_request(story: Story) -> None:
    story.app("alice", asked=ALICE)
    story.app(OURS)


def starts_over_what_runs(story: Story) -> None:
    _held_by_alice(story, of=ALICE, phase="Running")
    story.app(OURS, asked=operation(stamp()), target=WANTED)
    story.sync().end()


def ends_what_is_not_ours(story: Story) -> None:
    story.app("alice", asked=ALICE, of=ALICE, phase="Running")
    story.app(OURS, asked=ALICE, of=ALICE, phase="Terminating")


def succeeds_while_it_runs(story: Story) -> None:
    story.begin().end().sync()


def succeeds_by_the_success_of_another(story: Story) -> None:
    story.begin()
    story.app("argocd", of=ALICE, phase="Succeeded", target=WANTED)
    story.end()


def succeeds_with_another_revision(story: Story) -> None:
    story.begin().sync(revision=OTHER).end()


def succeeds_without_a_record(story: Story) -> None:
    story.begin().sync()
    story.promotion("Succeeded", {})
    story.stage(None)


def never_ends(story: Story) -> None:
    story.begin().sync()


def ends_late(story: Story) -> None:
    story.begin()
    story.time = QUIET + 50
    story.sync()
    story.time += 150
    story.end()


def is_left_running(story: Story) -> None:
    story.begin()
    story.app("argocd", asked=operation(stamp()), of=operation(stamp()), phase="Running", target=WANTED)
    story.end("Failed", "Failed")


def runs_on_though_deleted(story: Story) -> None:
    story.begin()
    story.write("alice", "Promotion", "p1", None)
    story.time = QUIET + 180
    story.sync("Failed")
    story.stage(None)


def a_stage_stays_busy(story: Story) -> None:
    story.begin().sync()
    story.promotion("Succeeded", {stamp(): "Succeeded"})


def aborted_while_it_runs(story: Story) -> None:
    story.begin().end("Aborted", "Stopped").sync("Failed", message="Operation terminated")


def runs_after_the_abort(story: Story) -> None:
    story.begin()
    story.app("argocd", target=WANTED)
    story.end("Aborted", "Superseded")
    story.sync("Failed")


def two_on_one_stage(story: Story) -> None:
    story.promotion("Pending")
    story.promotion("Running", {}, "p1")
    story.promotion("Running", {}, "p2")
    story.promotion("Failed", {}, "p1")
    story.promotion("Failed", {}, "p2")


def says_nothing_of_a_start(story: Story) -> None:
    story.begin().sync("Failed")
    story.promotion("Failed", {})
    story.stage(None)


def says_it_was_stopped(story: Story) -> None:
    story.begin().sync("Failed").end("Aborted", "Stopped")


def says_it_failed(story: Story) -> None:
    story.begin().sync().end("Failed", "Failed")


def says_it_was_not_started(story: Story) -> None:
    story.begin().sync("Failed").end("Failed", "NotStarted")


def says_it_goes_on(story: Story) -> None:
    story.begin().sync("Failed").end("Failed", "Running")


def says_it_was_superseded(story: Story) -> None:
    story.begin().sync().end("Failed", "Superseded")


def says_it_was_another_revision(story: Story) -> None:
    story.begin().sync("Failed").end("Failed", "WrongRevision")


def records_one_stamp_twice(story: Story) -> None:
    story.begin().sync("Failed")
    story.promotion("Failed", {stamp(): "Failed", f"{stamp()} ": "Failed"})
    story.stage(None)


def does_not_say_why(story: Story) -> None:
    story.begin().sync("Failed").end("Failed", "Failed", message="")


def forgets_what_it_was_shown(story: Story) -> None:
    story.begin().sync("Failed")
    story.seen.append(Seen(story.time, 1, len(story.writes)))
    story.end("Failed", "Superseded")


def crashes(story: Story) -> None:
    story.crashes.append("reconcile crashed: KeyError")


def times_out_early(story: Story) -> None:
    story.begin().sync("Failed").end("Failed", "Failed", message="timed out after 1m0s; it runs")


def leaves_an_orphan(story: Story) -> None:
    story.begin()
    ours = operation(stamp())
    story.app("argocd", asked=ours, of=ours, phase="Running", target=WANTED)
    story.app(OURS, of=ours, phase="Running", target=WANTED)
    story.sync("Failed").end("Failed", "Failed")


def keeps_its_change(story: Story) -> None:
    story.begin(onAbort="revert").sync("Failed", message="Operation terminated")
    story.end("Aborted", "Stopped", onAbort="revert")


def writes_for_ever(story: Story) -> None:
    story.time = QUIET + 150
    for _ in range(5):
        story.stage(None)


PLANTED: Sequence[tuple[Callable[[Story], None], str]] = [
    (started_twice, DOUBLE_START),
    (started_before_recorded, DOUBLE_START),
    (second_beside_the_first, DOUBLE_START),
    (synced_twice, DOUBLE_START),
    (overwrites_a_request, TRESPASS),
    (removes_a_request, TRESPASS),
    (starts_over_what_runs, TRESPASS),
    (ends_what_is_not_ours, TRESPASS),
    (succeeds_while_it_runs, FALSE_SUCCESS),
    (succeeds_by_the_success_of_another, FALSE_SUCCESS),
    (succeeds_with_another_revision, FALSE_SUCCESS),
    (succeeds_without_a_record, FALSE_SUCCESS),
    (never_ends, LOST_ENDING),
    (ends_late, LOST_ENDING),
    (is_left_running, LOST_ENDING),
    (runs_on_though_deleted, LOST_ENDING),
    (a_stage_stays_busy, LOST_ENDING),
    (aborted_while_it_runs, NOT_STOPPED),
    (runs_after_the_abort, NOT_STOPPED),
    (two_on_one_stage, ONE_AT_A_TIME),
    (says_nothing_of_a_start, FALSE_RECORD),
    (says_it_was_stopped, FALSE_RECORD),
    (says_it_failed, FALSE_RECORD),
    (says_it_was_not_started, FALSE_RECORD),
    (says_it_goes_on, FALSE_RECORD),
    (says_it_was_superseded, FALSE_RECORD),
    (says_it_was_another_revision, FALSE_RECORD),
    (records_one_stamp_twice, FALSE_RECORD),
    (does_not_say_why, FALSE_RECORD),
    (forgets_what_it_was_shown, FALSE_RECORD),
    (crashes, CRASHED),
    (times_out_early, CLOCKS_COMPARED),
    (leaves_an_orphan, ORPHAN),
    (keeps_its_change, NOT_TAKEN_BACK),
    (writes_for_ever, RESTLESS),
]


@pytest.mark.parametrize(("plant", "law"), [pytest.param(*case, id=case[0].__name__) for case in PLANTED])
def test_what_is_planted_is_found(plant: Callable[[Story], None], law: str) -> None:
    """By the Law that it breaks."""
    story = Story()
    plant(story)
    found = story.judged()
    assert law in {violation.law for violation in found}, [str(violation) for violation in found]
