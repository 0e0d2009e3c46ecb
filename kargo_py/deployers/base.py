"""What a deployer is: it starts, watches and stops work that another controller does.

The durable side of it is the :class:`Record`: one for each target of a step, written into the Promotion's status before
the start is issued and completed when the end is seen. From the records alone, after any crash, it is known what may
have been started, and by looking for the stamp, whether it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Protocol, TypeAlias

import msgspec

from kargo_py.api.types import Time
from kargo_py.argocd.options import EVERYTHING, SyncOptions
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

RECORDS_UNREADABLE = message(
    "the recorded operations cannot be read back: {why}",
    do="Somebody edited `status.state` of the Promotion, so it cannot go on. Look at the Applications to see whether "
    "a sync of it runs, then create a new Promotion.",
    shown=Shown.PROMOTION,
)

JsonObject: TypeAlias = dict[str, Any]


class TargetState(Enum):
    """How one attempt on a target stands; all but the first two are final.

    *Superseded*: other work took its place. *WrongRevision*: it succeeded with another revision than the desired one.
    *Stopped*: it was terminated on our demand. *NotStarted*: it was called off before it was started. *Detached*: it
    was left running.
    """

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUPERSEDED = "Superseded"
    WRONG_REVISION = "WrongRevision"
    LOST = "Lost"
    REFUSED = "Refused"
    STOPPED = "Stopped"
    NOT_STARTED = "NotStarted"
    DETACHED = "Detached"

    @property
    def final(self) -> bool:
        """True when nothing more will happen to the attempt."""
        return self not in {TargetState.PENDING, TargetState.RUNNING}


class Before(msgspec.Struct, frozen=True, omit_defaults=True):
    """A field that a start changes, by JSON pointer, with the value it had; no value: it was absent.

    Not a mapping to null: the API server takes nulls out of what is merged, lists included.
    """

    pointer: str
    value: Any = None


class Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The recorded intent for one target, and later its end. JSON in ``status.state``.

    ``resource_version`` and ``history_id`` are those of the version decided on, ``seen_stamp`` is the stamp annotation
    it carried: as long as the Application still carries that one, ours was never carried out. ``desired`` has a
    revision per source ("" = any). ``seen_state`` tells the operation that ``operationState`` showed then, where the
    annotation is not enough. ``sync`` is how to sync. ``initiator`` is the user who appears as the one who started it.
    ``free_since`` is when the target became free for us, if it was held by somebody else's work before;
    ``stopping_since`` is when its step had had its time, or another target had failed, and it was asked to end.
    ``entries`` are the indexes of those entries of the step's config that chose the target; none: those that name it.
    An attempt 0 was started by a real Kargo and taken over. ``after_errors`` is how many errors in a row the step had
    had when the attempt was recorded: while there are no more, its bad end has not been counted as one.

    Of a target that is waited for only, ``seen_state`` names the operation that was complete then, ``seen_health`` is
    the health a regression is one from, and ``looked`` tells that the other controller has looked since.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    step: str
    attempt: int
    stamp: str
    resource_version: str
    history_id: int | None = None
    desired: tuple[str, ...] = ()
    before: tuple[Before, ...] = ()
    seen_stamp: str = ""
    seen_state: str | None = None
    initiator: str = ""
    sync: SyncOptions = EVERYTHING
    free_since: str | None = None
    stopping_since: str | None = None
    entries: tuple[int, ...] = ()
    after_errors: int = 0
    seen_health: str = ""
    looked: bool = False
    state: TargetState = TargetState.PENDING
    message: str = ""
    revisions: tuple[str, ...] = ()
    started_at: str | None = None
    finished_at: str | None = None

    @property
    def key(self) -> Key:
        """Namespace and name of the target."""
        return Key(self.namespace, self.name)

    def ended(self, state: TargetState, message: str) -> Record:
        """This record with an end that the target itself does not tell."""
        return msgspec.structs.replace(self, state=state, message=message)

    def wire(self) -> JsonObject:
        """As it stands in ``status.state``."""
        built: JsonObject = msgspec.to_builtins(self)
        return built

    def mirror(self) -> JsonObject:
        """As people read it in ``status.operations``."""
        entry: JsonObject = {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "step": self.step,
            "attempt": self.attempt,
            "stamp": self.stamp,
            "state": self.state.value,
        }
        if self.revisions:
            entry["revision"] = ", ".join(self.revisions)
        if self.before:
            entry["changedFields"] = sorted(field.pointer for field in self.before)
        if self.message:
            entry["message"] = self.message
        for name, time in (("startedAt", self.started_at), ("finishedAt", self.finished_at)):
            if time and Time.pattern.fullmatch(time):
                entry[name] = time
        return entry


class Awaited(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a step waits for until somebody makes it: an object of that name, or one that *selector* matches.

    JSON in ``status.state``, so that the object's creation wakes the Promotion.
    """

    step: str
    namespace: str
    name: str = ""
    selector: JsonObject | None = None

    def wire(self) -> JsonObject:
        """As it stands in ``status.state``."""
        built: JsonObject = msgspec.to_builtins(self)
        return built


def footprint(records: Iterable[Record]) -> int:
    """How many bytes *records* take in the Promotion, mirror included."""
    return sum(len(msgspec.json.encode(record)) + len(msgspec.json.encode(record.mirror())) for record in records)


_ANY_TIME = "2000-01-01T00:00:00Z"


class RecordError(ValueError):
    """Recorded intents that cannot be read back; somebody edited the Promotion's status."""


def read_records(stored: Any) -> tuple[Record, ...]:
    """The records that stand in ``status.state``; raises RecordError naming the field that is wrong."""
    try:
        records = msgspec.convert(stored if stored is not None else [], tuple[Record, ...])
        for record in records:
            for time in (record.free_since, record.stopping_since):
                Time(time or _ANY_TIME)
    except ValueError as error:
        raise RecordError(RECORDS_UNREADABLE(why=error)) from error
    return records


def read_awaited(stored: Any) -> tuple[Awaited, ...]:
    """What stands in ``status.state`` as waited for; what cannot be read is nothing: it is found out anew."""
    try:
        return msgspec.convert(stored if stored is not None else [], tuple[Awaited, ...])
    except msgspec.ValidationError:
        return ()


class WaitCause(StrEnum):
    """Why an attempt that was made is waited for, in one word, for metrics and Events; the worst come first.

    *Foreign*: somebody else's operation has the target. *Other*: for another reason than the tool's, such as a request
    of ours that failed.
    """

    FOREIGN = "foreign-operation"
    WINDOW = "sync-window"
    HELD_UP = "held-up"
    ASLEEP = "asleep"
    OTHER = "other"
    STOPPING = "stopping"
    PICK_UP = "pick-up"
    RUNNING = "running"


@dataclass(slots=True)
class OperationStats:
    """Counts since the start: starts issued and terminations asked for, repetitions included, and what came of them.

    ``terminates_again``: those asked for a second time and more. ``conflicts``: starts and terminations that another
    write came before. ``unknown``: those without an answer.
    """

    starts: int = 0
    terminates: int = 0
    terminates_again: int = 0
    conflicts: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """How an attempt stands.

    ``start`` is True when the attempt has left no trace and may be started now. ``notable`` marks a wait the user
    should be told about: the sync is not simply running. ``held``: somebody else's work has the target. ``look_after``:
    seconds after which time alone may change how it stands. ``repeatable``: a new attempt may follow this end.
    ``present``: its start was carried out, or may have been. ``issued``: it was, just now. ``fresh``: the record as
    it must be written before anything is started, where the one at hand is not true of the start any more. ``cause``:
    why it is waited for.
    """

    record: Record
    message: str
    start: bool = False
    notable: bool = False
    held: bool = False
    look_after: float | None = None
    repeatable: bool = False
    present: bool = False
    issued: bool = False
    fresh: Record | None = None
    cause: WaitCause = WaitCause.OTHER


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """How what was deployed is, and why; see :class:`kargo_py.argocd.health.Verdict` for the fields."""

    state: str
    issues: tuple[str, ...] = ()
    trusted: bool = True
    recheck_after: float | None = None
    refresh: bool = False


class HealthChecker(Protocol):
    """Judges the health checks that steps left behind."""

    def assess(self, configs: Sequence[Mapping[str, Any]]) -> HealthVerdict:
        """Judge checks from the cache, in the order of the steps; of two on one object the later one counts.

        *configs* are what the steps recorded, as read back: check them.
        """

    async def refresh(self, configs: Sequence[Mapping[str, Any]]) -> None:
        """Ask the tool, once, to look at those objects where the verdict says that this may help."""

    def checked(self, config: Mapping[str, Any]) -> Sequence[Key]:
        """The objects whose events may change the verdict."""
