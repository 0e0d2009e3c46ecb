"""How list and watch of a cache fare, and what follows from that. Pure and synchronous."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from kargo_py.kube.errors import ConnectionLost, KubeError, TooManyRequests, Unreachable

PASSING = (ConnectionLost, Unreachable, TooManyRequests)
"""After these the watch goes on from the last version; after any other refusal only a new list is sure to help."""

SHORT_WATCH = 1.0
"""Seconds; a watch that ends sooner has not worked, whatever it has shown."""

Activity: TypeAlias = Literal["list", "watch"]


@dataclass(slots=True)
class Health:
    """What is known from the tries so far; each method is something that has happened, most tell what to do about it.

    ``error``: why the cache is not being kept current, None if it is. ``failures``: failed tries since the last watch
    that worked for a while; nothing less makes the pauses short again, since a server can list, or begin to watch, and
    fail, in endless turns. ``doubtful``: the server may not know our version any more; it must be asked before the next
    watch.
    """

    error: KubeError | None = None
    failures: int = 0
    doubtful: bool = False
    _failing: Activity | None = None
    _expired: bool = False

    def failed(self, error: KubeError, activity: Activity) -> bool:
        """True if this is another failure than the last, one to be told."""
        news = type(self.error) is not type(error)
        self.error, self._failing = error, activity
        self.failures += 1
        self.doubtful = self.doubtful or (activity == "watch" and isinstance(error, PASSING))
        return news

    def expired(self) -> bool:
        """The version is too old. True if it may be listed at once: for the first time since a watch that worked."""
        first = not self._expired
        self._expired = True
        return first

    def listed(self) -> bool:
        """A list is in. True if the cache is current again; it is not if a watch was refused that may be so again."""
        self.doubtful = False
        if self._failing == "watch" and not isinstance(self.error, PASSING):
            return False
        return self._well()

    def checked(self) -> bool:
        """The server answers, and knows our version. True if that ends an outage."""
        self.doubtful = False
        return isinstance(self.error, Unreachable) and self._well()

    def shown(self) -> bool:
        """The watch shows something. True if the cache is current again."""
        return self._well()

    def broke(self, seconds: float) -> None:
        """A watch that had shown something ended with an error after *seconds*."""
        self._worked(seconds)

    def ended(self, seconds: float, asked_for: float) -> bool:
        """A watch ended in order after *seconds*. True if the cache is current again.

        A server whose etcd was restored was stopped before: it ends its watches before their time.
        """
        self.doubtful = seconds < asked_for - 1
        return self._worked(seconds) and self._well()

    def _worked(self, seconds: float) -> bool:
        if seconds < SHORT_WATCH:
            return False
        self.failures, self._expired = 0, False
        return True

    def _well(self) -> bool:
        news = self.error is not None
        self.error = self._failing = None
        return news
