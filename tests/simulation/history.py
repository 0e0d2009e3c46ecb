"""What the API server saw: every write in its order, with what was there before and who it came from.

This is all that the Laws are judged by. Nothing in here is the controllers' word, but what they wrote into their own
objects, which is judged as a claim.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kargo_py.api.stamp import Stamp, StampError, parse_stamp
from kargo_py.argocd.application import mark_of
from kargo_py.kube.codec import encode
from kargo_py.kube.resources import Key
from tests.simulation.plan import OURS

JsonObject = dict[str, Any]

COMPLETE = frozenset({"Succeeded", "Failed", "Error"})
TERMINAL = frozenset({"Succeeded", "Failed", "Errored", "Aborted"})


@dataclass(frozen=True, slots=True)
class Write:
    """One write that was carried out; ``old`` None: it was created, ``new`` None: it was deleted.

    ``life`` tells the processes of one program apart; ``decided`` is when it first sent these bytes.
    """

    number: int
    time: float
    writer: str
    life: int
    decided: float
    kind: str
    key: Key
    old: JsonObject | None
    new: JsonObject | None

    @property
    def ours(self) -> bool:
        """Whether our program asked for it."""
        return self.writer == OURS

    def __str__(self) -> str:
        return f"{self.time:9.3f} s  #{self.number} {self.writer}: {self.kind} {self.key.name}"


@dataclass(frozen=True, slots=True)
class Seen:
    """A process of ours was shown the version of an Application that write *number* made."""

    time: float
    life: int
    number: int


@dataclass(frozen=True)
class History:
    """All writes; ``quiet`` is the time from which nobody but the controllers did anything, ``end`` when it was over.

    ``crashes`` are faults of our program that came to light by themselves, each as a sentence. ``instance`` is the
    name of our control plane.
    """

    writes: Sequence[Write]
    quiet: float
    end: float
    instance: str = "me"
    crashes: Sequence[str] = ()
    seen: Sequence[Seen] = ()

    @cached_property
    def _by_kind(self) -> Mapping[str, Sequence[Write]]:
        found: dict[str, list[Write]] = defaultdict(list)
        for write in self.writes:
            found[write.kind].append(write)
        return found

    def of(self, kind: str) -> Sequence[Write]:
        """Those of one kind."""
        return self._by_kind.get(kind, ())

    @cached_property
    def _timelines(self) -> Mapping[tuple[str, Key], Sequence[Write]]:
        found: dict[tuple[str, Key], list[Write]] = defaultdict(list)
        for write in self.writes:
            found[write.kind, write.key].append(write)
        return found

    def timeline(self, kind: str, key: Key) -> Sequence[Write]:
        """Those of one object, or of several after one another by that name."""
        return self._timelines.get((kind, key), ())

    def at(self, kind: str, key: Key, number: int) -> JsonObject | None:
        """The object right after write *number*."""
        last = None
        for write in self.timeline(kind, key):
            if write.number > number:
                break
            last = write.new
        return last

    def last(self, kind: str, key: Key) -> JsonObject | None:
        """The object as it is in the end, None if there is none."""
        writes = self.timeline(kind, key)
        return writes[-1].new if writes else None

    def final(self, kind: str) -> Iterator[tuple[Key, JsonObject]]:
        """What is there in the end."""
        for (of, key), writes in self._timelines.items():
            if of == kind and (obj := writes[-1].new) is not None:
                yield key, obj

    @cached_property
    def digest(self) -> str:
        """Equal for two histories that are the same in everything."""
        told = hashlib.sha256()
        for write in self.writes:
            told.update(f"{write.number} {write.time!r} {write.writer} {write.life} {write.key}\n".encode())
            told.update(encode(write.new))
        return told.hexdigest()[:16]

    def stamp(self, mark: str | None) -> Stamp | None:
        """The stamp that *mark* is, if it is one of ours."""
        try:
            stamp = parse_stamp(mark or "")
        except StampError:
            return None
        return stamp if stamp.instance == self.instance else None

    def is_ours(self, mark: str | None) -> bool:
        """Whether it names an operation of ours."""
        return self.stamp(mark) is not None


# -- reading objects -------------------------------------------------------------------------------------------------


def uid(obj: JsonObject) -> str:
    """Of any object."""
    return str(obj["metadata"].get("uid"))


def state_of(app: JsonObject | None) -> JsonObject:
    """The operationState of an Application, {} if there is none."""
    status = (app or {}).get("status")
    return (status.get("operationState") if isinstance(status, dict) else None) or {}


def in_progress(app: JsonObject | None) -> bool:
    """Whether its operationState shows one that has not ended."""
    phase = state_of(app).get("phase")
    return bool(phase) and phase not in COMPLETE


def requested(app: JsonObject | None) -> str | None:
    """The mark of the operation that is asked for."""
    return mark_of((app or {}).get("operation"))


def shown(app: JsonObject | None) -> str | None:
    """The mark of the operation that the operationState is about."""
    return mark_of(state_of(app).get("operation"))


def phase_of(promotion: JsonObject | None) -> str:
    """The phase of a Promotion, Pending if there is none yet."""
    return str(((promotion or {}).get("status") or {}).get("phase") or "Pending")


def operations_of(promotion: JsonObject | None) -> Sequence[JsonObject]:
    """What a Promotion records of the operations it started."""
    return ((promotion or {}).get("status") or {}).get("operations") or ()


def target_of(operation: JsonObject) -> Key:
    """The Application that a record is about."""
    return Key(str(operation["namespace"]), str(operation["name"]))


def revisions_in(state: JsonObject) -> Sequence[str]:
    """What an operation has applied, one for each source."""
    result = state.get("syncResult") or {}
    return result.get("revisions") or [result.get("revision") or ""]


def desired_by(promotion: JsonObject, target: Key) -> str:
    """The revision that a Promotion wants of an Application, "" for any. There is one source each here."""
    for step in promotion["spec"].get("steps") or ():
        for app in step["config"].get("apps") or ():
            if isinstance(app, dict) and app.get("name") == target.name:
                for source in app.get("sources") or ():
                    return str(source.get("desiredRevision") or "")
    return ""
