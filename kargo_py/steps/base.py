"""What a step is called with, and what it may answer. What a kind of step is: :mod:`kargo_py.steps.step`.

A step is called again and again until it is finished. It keeps nothing between the calls that it could not do without:
what was started is in the records, which are durable before anything is started. So it does not matter whether the next
call comes a moment later or from another process after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from kargo_py.api.freight import FreightReference
from kargo_py.api.names import Actor
from kargo_py.api.promotion import FreightCollection, HealthCheckStep, StepStatus
from kargo_py.api.stamp import Stamp, make_stamp
from kargo_py.api.types import Duration, Time
from kargo_py.deployers.base import Awaited, Record, WaitCause
from kargo_py.kube.cache import Cache
from kargo_py.kube.errors import KubeError
from kargo_py.kube.predicates import Predicate, always
from kargo_py.kube.resources import Key

T = TypeVar("T")


def _never() -> bool:
    return False


def _open(value: Any) -> Any:
    return value


ROOM = 512 * 1024
"""Bytes that a Promotion should not exceed: etcd takes 1.5 MiB, and its Stage and its readers have to cope with it."""


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a step knows of the Promotion it is part of.

    ``now`` is the step's own clock: ``started_at`` and what has passed since, however the wall clock is set meanwhile.
    ``wall_clock`` is that one, for comparing with dates from elsewhere; None: it says the same.
    ``records`` are this step's own, as they stand in the Promotion's status. ``instance`` names the control plane.
    ``timeout`` None: the step may take as long as it takes; it counts from ``started_at``. What is being stopped is
    waited for as long as ``patience``. ``taken_over``: the Promotion was Running without records when it was read, so
    something else, a real Kargo say, may have begun this step. ``awaited`` is what this step is recorded to wait for,
    ``output`` what it has put out so far. ``spare`` gives ``room``. ``called_off``
    tells whether it was meanwhile asked to abort: then nothing more is to be begun, and ``stop`` is called next.
    ``config`` is what the expressions in it became. ``errors`` is how many times in a row the step has erred: a step
    with targets may make that many new attempts on each. ``work_dir`` belongs to this Promotion alone, and is there for
    kinds that fill or read it. ``freight`` is what is promoted, ``collection`` all that the Stage will have then.
    ``mask`` takes what came from Secrets out of a value that is to be kept where others may read it.
    ``threshold`` is the step's ``retry.errorThreshold``, None if it has none of its own.
    """

    instance: str
    project: str
    stage: str
    promotion: str
    promotion_uid: str
    actor: Actor
    alias: str
    config: Any
    now: datetime
    started_at: datetime
    timeout: timedelta | None = None
    patience: timedelta = timedelta(minutes=10)
    records: Sequence[Record] = ()
    taken_over: bool = False
    awaited: Sequence[Awaited] = ()
    output: Any = None
    spare: Callable[[], int] = lambda: ROOM
    called_off: Callable[[], bool] = _never
    errors: int = 0
    work_dir: Path | None = None
    freight: FreightReference | None = None
    collection: FreightCollection | None = None
    mask: Callable[[Any], Any] = _open
    threshold: int | None = None
    wall_clock: datetime | None = None

    @property
    def room(self) -> int:
        """Bytes that the records of the step may take in the Promotion; encoding it is left until somebody asks."""
        return self.spare()

    @property
    def stage_key(self) -> str:
        """``<project>:<stage>``, as Applications authorise it."""
        return f"{self.project}:{self.stage}"

    def stamp(self, attempt: int) -> Stamp:
        """What names an attempt of this step; raises StampError."""
        return make_stamp(self.instance, self.project, self.promotion, self.promotion_uid, self.alias, attempt)

    def time_left(self, records: Iterable[Record]) -> float | None:
        """Seconds that a target with these *records* may still take, None without limit.

        They count from the start of the step, or from when the target became free.
        """
        if self.timeout is None:
            return None
        free = [Time(record.free_since).datetime for record in records if record.free_since]
        since = max([self.started_at, *(time for time in free if time <= self.now)])
        return (self.timeout - (self.now - since)).total_seconds()

    @property
    def time(self) -> str:
        """How long the step may take, in the words of its configuration; "" without limit."""
        return Duration.of(self.timeout.total_seconds()) if self.timeout is not None else ""


@dataclass(frozen=True, slots=True)
class Intend:
    """Write this into the Promotion's status, then call again; nothing was started.

    ``awaited``: objects whose creation is waited for. ``output``: what the step puts out already, if not None.
    ``warning``: what the user should be told of in an Event.
    """

    records: Sequence[Record]
    awaited: Sequence[Awaited] = ()
    output: Mapping[str, Any] | None = None
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Work is under way elsewhere; an event on a target brings the next call, or the time that ``look_after`` says.

    A wait without records is progress: errors before it are no longer "in a row". ``records`` carry endings seen
    meanwhile. ``notable``: the user should read ``message`` while it lasts.
    ``look_after``: seconds after which to call again if no event does. ``error``: a request about one of the targets
    failed; the call is repeated after a back-off, and what is known of the others is written first; but not later than
    in ``up_in`` seconds, when the step has had its time. ``causes``: why each target is waited for.
    ``polls``: no event tells, and each call asks somebody, so that it is not called before ``look_after``.
    """

    message: str
    records: Sequence[Record] = ()
    notable: bool = False
    look_after: float | None = None
    error: KubeError | None = None
    causes: Mapping[Key, WaitCause] = field(default_factory=dict)
    up_in: float | None = None
    polls: bool = False

    @property
    def cause(self) -> WaitCause:
        """Why the step waits: the worst of the causes."""
        return next((cause for cause in WaitCause if cause in self.causes.values()), WaitCause.OTHER)


@dataclass(frozen=True, slots=True)
class Finished:
    """The step has ended: SUCCEEDED, SKIPPED, FAILED ("no"), ERRORED (something broke), or ABORTED by ``stop``."""

    status: StepStatus
    message: str = ""
    output: Mapping[str, Any] | None = None
    health_check: HealthCheckStep | None = None
    records: Sequence[Record] = ()


@dataclass(frozen=True, slots=True)
class Erred:
    """The step did not get its way this time; it is called again after a pause, until it has erred too often in a row.

    ``failed``: in the end it is Failed, somebody said "no", and not Errored. ``transient``: it is likely to pass by
    itself, and does not count as long as the step has time. ``retry_after``: seconds before which another call is of no
    use. ``records`` None: they are as they were.
    """

    message: str
    failed: bool = False
    transient: bool = False
    retry_after: float | None = None
    output: Mapping[str, Any] | None = None
    records: Sequence[Record] | None = None


StepOutcome: TypeAlias = Intend | Waiting | Finished | Erred
"""What a call of a step may answer."""

StopOutcome: TypeAlias = Intend | Waiting | Finished
"""What a step that is to stop may answer."""


@dataclass(frozen=True, slots=True)
class Watch(Generic[T]):
    """Where the targets of a kind of step are seen: a change there wakes the Promotions and Stages it is about.

    Those are the Promotions that have the changed object on record, and the Stages whose health checks name it. ``key``
    gives its namespace and name, ``predicate`` which changes count.
    """

    cache: Cache[T]
    key: Callable[[T], Key]
    predicate: Predicate[T] = field(default_factory=always)


_SHOWN = 3


def first_few(messages: Sequence[str], count: int = 0) -> str:
    """The first few of *messages*, and how many more there are of *count*, if not all are given."""
    rest = max(count, len(messages)) - _SHOWN
    return "; ".join(messages[:_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")
