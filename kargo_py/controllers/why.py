"""Answers to "why does this not go on?": what they are made of, and what Promotions and Stages have in common there.

Pure: from objects as they were read to sentences. Nothing here is known that the objects do not say, and what could not
be read is said to be unseen instead of being guessed. An answer is given whatever stands in the objects.

The times that Argo CD wrote are shown as they are: its clock and those of others are never compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar

from pydantic import ValidationError

from kargo_py.api.freight import Freight
from kargo_py.api.meta import KubeObject
from kargo_py.api.names import LABEL_ALIAS, LABEL_SHARD
from kargo_py.api.promotion import PromotionPhase, phase_of, queue_order
from kargo_py.api.stage import Stage
from kargo_py.api.types import JsonObject, Time
from kargo_py.controllers.world import OBJECT_UNREADABLE
from kargo_py.kube.clock import in_short
from kargo_py.messages import Shown, message

NOT_SEEN = message(
    "{what} could not be seen: {why}",
    do="The answer may miss something. Get the right to read it, or ask somebody who has it.",
    shown=Shown.ANSWER,
)
NOTHING_HAPPENS = message(
    "nothing has happened for {time}, so it seems that no controller acts on {whose}: see that it runs, and its log",
    do="`kubectl get pods` where kargo-py runs. With shards, the controller of the Stage's shard must run; a Stage "
    "without a shard needs the default controller.",
    shown=Shown.ANSWER,
)
STAGE_OF_SHARD = message(
    'Stage "{stage}" of shard "{shard}"',
    do="Part of a message above: the controller that runs with `--shard` of that name acts on this Stage.",
    shown=Shown.ANSWER,
)
STAGE_WITHOUT_SHARD = message(
    'Stage "{stage}"',
    do="Part of a message above: the default controller acts on this Stage.",
    shown=Shown.ANSWER,
)
IS_BEING_DELETED = message(
    "it is being deleted",
    do="It goes once its finalizers are gone: `metadata.finalizers` says who is waited for.",
    shown=Shown.ANSWER,
)

STILL_NAMED = message(
    'Stage "{stage}" still names Promotion "{other}" as the one that runs, which has ended or is gone; a controller '
    "that runs takes that in within seconds",
    do="Nothing to do. If it stays so, see that a controller runs that acts on this Stage.",
    shown=Shown.ANSWER,
)

ARGOCD_CLOCK = "Argo CD"

QUIET = timedelta(minutes=2)
"""A controller that runs has done what is its turn long before that."""

_TERMINAL = frozenset(phase.value for phase in PromotionPhase if phase.terminal)

T = TypeVar("T")
M = TypeVar("M", bound=KubeObject)


@dataclass(frozen=True, slots=True)
class Hidden:
    """Stands for what could not be read, and says why."""

    why: str


Seen: TypeAlias = T | Hidden | None
"""What was read; None: it is not there."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One sentence; since when that is so, or at which time it happened, each "" or an RFC 3339 time.

    ``clock``: whose time that is, where it is not Kubernetes' or ours.
    """

    text: str
    since: str = ""
    at: str = ""
    clock: str = ""

    def wire(self) -> JsonObject:
        """As JSON."""
        parts = {"text": self.text, "since": self.since, "at": self.at, "clock": self.clock}
        return {name: value for name, value in parts.items() if value}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer: how the object stands and why, what matters most first, and what could not be seen."""

    kind: str
    namespace: str
    name: str
    state: str
    since: str = ""
    reasons: Sequence[Statement] = ()
    unseen: Sequence[str] = ()

    def wire(self) -> JsonObject:
        """As JSON."""
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "state": self.state,
            **({"since": self.since} if self.since else {}),
            "reasons": [statement.wire() for statement in self.reasons],
            "unseen": list(self.unseen),
        }


@dataclass(slots=True)
class Answer:
    """The reasons of an explanation, and what could not be seen, as they are found out."""

    reasons: list[Statement] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)

    def say(self, text: str, since: str | None = "", clock: str = "") -> None:
        """Something that is so."""
        self.reasons.append(Statement(text, since=since or "", clock=clock if since else ""))

    def tell(self, text: str, at: str | None = "", clock: str = "") -> None:
        """Something that has happened."""
        self.reasons.append(Statement(text, at=at or "", clock=clock if at else ""))

    def hidden(self, what: str, hidden: Hidden) -> None:
        """Something that could not be read."""
        said = NOT_SEEN(what=what, why=hidden.why)
        if said not in self.unseen:
            self.unseen.append(said)


def model_of(model: type[M], raw: JsonObject) -> M | str:
    """*raw* as *model*; a sentence that says which field is wrong if it cannot be read."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return OBJECT_UNREADABLE(kind=model.kind_name, field=where, why=first["msg"])


def at(raw: Any, *path: str) -> Any:
    """What stands in *raw* at *path*; None if there is no such place."""
    for name in path:
        raw = raw.get(name) if isinstance(raw, dict) else None
    return raw


def text_at(raw: Any, *path: str) -> str:
    """The text that stands in *raw* at *path*, "" if there is none."""
    found = at(raw, *path)
    return found if isinstance(found, str) else ""


def queued(promotions: Sequence[JsonObject], stage: str) -> list[JsonObject]:
    """The Promotions to *stage* that have not ended, in the order in which they run."""
    waiting = [
        p
        for p in promotions
        if text_at(p, "spec", "stage") == stage
        and phase_of(p) not in _TERMINAL
        and not at(p, "metadata", "deletionTimestamp")
    ]
    return sorted(waiting, key=_order)


def _order(promotion: JsonObject) -> tuple[bool, tuple[str, str, str]]:
    name, created = text_at(promotion, "metadata", "name"), text_at(promotion, "metadata", "creationTimestamp")
    return phase_of(promotion) != PromotionPhase.RUNNING, queue_order(name, created)


def called(name: str, freight: Seen[JsonObject]) -> str:
    """How people call Freight: its alias, with its name behind it; the name where there is no alias."""
    alias = ""
    if isinstance(freight, dict):
        labels = at(freight, "metadata", "labels")
        label = labels.get(LABEL_ALIAS) if isinstance(labels, dict) else None
        alias = text_at(freight, "alias") or (label if isinstance(label, str) else "")
    return f"{alias} ({name})" if alias else name


def of_shard(stage: Stage) -> str:
    """How the Stage is called where it matters which controller acts on it."""
    shard = stage.metadata.labels.get(LABEL_SHARD) or stage.spec.shard
    return STAGE_OF_SHARD(stage=stage.name, shard=shard) if shard else STAGE_WITHOUT_SHARD(stage=stage.name)


def quiet_for(since: Time | None, now: datetime) -> str | None:
    """For how long nothing has happened since *since*, if that is so long that somebody should look; else None."""
    if since is None or now - since.datetime < QUIET:
        return None
    return in_short(now - since.datetime)


def freight_model(freight: Seen[JsonObject]) -> Freight | None:
    """The Freight, if it could be seen and read."""
    found = model_of(Freight, freight) if isinstance(freight, dict) else None
    return found if isinstance(found, Freight) else None
