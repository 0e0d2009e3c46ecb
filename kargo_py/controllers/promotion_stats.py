"""What is counted of Promotions, for a scrape to read. Times are of the loop's clock, and begin with this process."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from kargo_py.api.promotion import Promotion, PromotionPhase, phase_of
from kargo_py.api.types import JsonObject
from kargo_py.engine.records import newly_ended
from kargo_py.kube.codec import JSON
from kargo_py.kube.histogram import LONG, Histogram
from kargo_py.kube.resources import Key

QUEUE = "queue"
"""The cause of the wait of a Promotion that has not begun."""


class PromotionStats:
    """Counts since the start, of the Promotions that this process writes; and what waits now.

    ``seconds``: from begin to end, by phase. ``operations``: those that have ended, by state.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.started = 0
        self.finished: Counter[str] = Counter()
        self.seconds: dict[str, Histogram] = {}
        self.operations: Counter[str] = Counter()
        self._waited: defaultdict[str, float] = defaultdict(float)
        self._waiting: dict[Key, tuple[str, float]] = {}
        self._queued: dict[Key, tuple[Key, float]] = {}

    # -- what happens ---------------------------------------------------------------------------------------------

    def seen(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """A Promotion has changed; those that have not begun make up the queues of the Stages."""
        if new is not None and phase_of(new) == PromotionPhase.PENDING:
            spec = new.get("spec")
            stage = spec.get("stage") if isinstance(spec, dict) else None
            key = JSON.meta(new).key
            if isinstance(stage, str):
                _, since = self._queued.get(key, (key, self._now()))
                self._queued[key] = (Key(key.namespace, stage), since)
                return
        gone = new if new is not None else old
        if gone is not None:
            key = JSON.meta(gone).key
            self._queued.pop(key, None)
            if new is None:
                self._waiting.pop(key, None)

    def queued_since(self, key: Key) -> float | None:
        """Since when *key* has been queued; None if it is not, any more."""
        queued = self._queued.get(key)
        return queued[1] if queued is not None else None

    def wrote(self, before: Promotion, after: Promotion, queued_since: float | None) -> None:
        """The status of *after* was written in the place of that of *before*."""
        key = Key(after.namespace, after.name)
        began = not before.running and not before.finished and (after.running or after.status.started_at is not None)
        if queued_since is not None and (began or after.finished):
            self._waited[QUEUE] += self._now() - queued_since
        if began:
            self.started += 1
        for record in newly_ended(before, after):
            self.operations[record.state.value] += 1
        if after.finished:
            self.finished[after.status.phase] += 1
            self.waits(key, None)
            status = after.status
            if status.started_at is not None and status.finished_at is not None:
                took = (status.finished_at.datetime - status.started_at.datetime).total_seconds()
                self.seconds.setdefault(status.phase, Histogram(LONG)).add(took)

    def waits(self, key: Key, cause: str | None) -> None:
        """*key* waits because of *cause* from now on; None: it does not wait any more."""
        known = self._waiting.get(key)
        if known is not None and known[0] == cause:
            return
        now = self._now()
        if known is not None:
            self._waited[known[0]] += now - known[1]
            del self._waiting[key]
        if cause is not None:
            self._waiting[key] = (cause, now)

    # -- what a scrape reads --------------------------------------------------------------------------------------

    def waited(self) -> dict[str, float]:
        """Seconds that Promotions have waited, by cause; waits that go on are counted so far, those in a queue not."""
        seconds = dict(self._waited)
        for cause, since in self._waiting.values():
            seconds[cause] = seconds.get(cause, 0.0) + self._now() - since
        return seconds

    def oldest(self, ours: Callable[[Key], bool]) -> dict[str, float]:
        """Seconds for which the Promotion that has waited longest has done so, by cause."""
        longest: dict[str, float] = {}
        for cause, since in self._all(ours):
            longest[cause] = max(longest.get(cause, 0.0), self._now() - since)
        return longest

    def _all(self, ours: Callable[[Key], bool]) -> Iterator[tuple[str, float]]:
        yield from self._waiting.values()
        mine = {stage: ours(stage) for stage in {stage for stage, _ in self._queued.values()}}
        yield from ((QUEUE, since) for stage, since in self._queued.values() if mine[stage])

    def queues(self, ours: Callable[[Key], bool]) -> list[tuple[Key, int]]:
        """How many Promotions each Stage has queued, the longest queue first; *ours*: whether a Stage counts."""
        lengths = Counter(stage for stage, _ in self._queued.values())
        return [(stage, length) for stage, length in lengths.most_common() if ours(stage)]
