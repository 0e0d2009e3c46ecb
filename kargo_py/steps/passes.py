"""One pass of a step over its targets: it ends in time, however slowly the API server of the targets answers.

Where that does not answer at all each request takes half a minute and more, and a step may have hundreds of targets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tenacity import wait_exponential, wait_random

from kargo_py.deployers.argocd import ArgoCD
from kargo_py.deployers.argocd_records import Attempt
from kargo_py.deployers.base import Record
from kargo_py.kube.errors import KubeError
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

NO_ANSWER = message(
    "no answer in {seconds} seconds about {count} of the Applications",
    do="Of *the time is up, and … cannot be seen*: Argo CD's API server is slow, or does not answer. It is asked again "
    "by itself.",
    shown=Shown.PROMOTION,
)

LONG_PASS = 10.0
"""Seconds after which a pass in which a request failed leaves the other targets to the next one.

An abort is seen between two passes only.
"""

LATE_PASS = 10.0
"""Seconds that a pass has at least which begins what should have begun long ago: the controller was away, say."""

LAST_LOOK = 5.0
"""Seconds for which, when the time of a step is up, it is waited for what the API server says of its targets."""

BETWEEN_ATTEMPTS = wait_exponential(multiplier=5, exp_base=3, max=60) + wait_random(0, 2)
"""The pauses between attempts that came to nothing, by how many they were."""

_AT_ONCE = 10


class Pass:
    """One pass over the targets of a step; it knows when it has lasted long enough.

    *left*: seconds until the time of the step is up, None without limit.
    """

    def __init__(self, left: float | None = None) -> None:
        self._began = asyncio.get_running_loop().time()
        self._ends = None if left is None else self._began + left
        self._failed = False

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return asyncio.get_running_loop().time() - self._began

    @property
    def is_over(self) -> bool:
        """Whether the targets that are left are left to the next pass."""
        late = self._ends is not None and asyncio.get_running_loop().time() >= self._ends
        return late or (self._failed and self.elapsed >= LONG_PASS)

    def note(self, error: KubeError | None) -> None:
        """A request about a target failed with *error*, or none did."""
        self._failed = self._failed or error is not None

    def limit(self) -> asyncio.Timeout:
        """What is done about one target: cut off, with TimeoutError, when the time of the step is up."""
        return asyncio.timeout_at(self._ends)


async def look_last(argocd: ArgoCD, records: Iterable[Record]) -> KubeError | None:
    """See the targets of *records* as they are, now that the time of the step is up; what keeps us from it.

    A target that was seen so is not asked about again: of many, where answers take long, some are seen each time.
    """
    attempts = [(record, argocd.attempt(record.key, record.stamp)) for record in records]
    tickets, failed = asyncio.Semaphore(_AT_ONCE), list[KubeError]()

    async def look(record: Record, attempt: Attempt) -> None:
        async with tickets:
            try:
                await argocd.applications.read_live(record.key)
            except KubeError as error:
                failed.append(error)
            else:
                attempt.seen_at_end = True

    try:
        async with asyncio.timeout(LAST_LOOK), asyncio.TaskGroup() as group:
            for record, attempt in attempts:
                if not attempt.seen_at_end:
                    group.create_task(look(record, attempt))
    except TimeoutError:
        count = sum(not attempt.seen_at_end for _, attempt in attempts)
        failed.append(KubeError(NO_ANSWER(seconds=round(LAST_LOOK), count=count)))
    return next(iter(failed), None)


async def settle_last(argocd: ArgoCD, records: Iterable[Record]) -> dict[tuple[Key, str], KubeError]:
    """Have no start land any more of the attempts that *records* name, now that their step ends.

    Of those of which that could not be made sure: why. They were seen just now, and show no start.
    """
    tickets, failed = asyncio.Semaphore(_AT_ONCE), dict[tuple[Key, str], KubeError]()
    open_ = {(record.key, record.stamp): record for record in records if argocd.may_land(record)}

    async def settle(record: Record) -> None:
        async with tickets:
            try:
                await argocd.settle(record)
            except KubeError as error:
                failed[record.key, record.stamp] = error
        del open_[record.key, record.stamp]

    try:
        async with asyncio.timeout(LAST_LOOK), asyncio.TaskGroup() as group:
            for record in list(open_.values()):
                group.create_task(settle(record))
    except TimeoutError:
        silent = KubeError(NO_ANSWER(seconds=round(LAST_LOOK), count=len(open_)))
        failed.update(dict.fromkeys(open_, silent))
    return failed
