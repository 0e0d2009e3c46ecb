"""What the controllers have counted, for Prometheus to fetch.

Nothing is counted here: the objects that do the work count for themselves, and a scrape reads them. So metrics cost
nothing between scrapes, and two instances in one process share nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kargo_py.controllers.metric_families import counter, gauge, histogram
from kargo_py.controllers.promotion_metrics import promotion_metrics
from kargo_py.controllers.running import Assembly
from kargo_py.kube.cache import Cache
from kargo_py.kube.controller import Controller

_OF_A_CACHE: Sequence[tuple[str, str, Callable[[Cache[Any]], float]]] = (
    ("kargo_cache_lists", "Complete lists begun.", lambda c: c.stats.lists),
    ("kargo_cache_watches", "Watches begun.", lambda c: c.stats.watches),
    ("kargo_cache_watch_events", "Watch events taken in, bookmarks apart.", lambda c: c.stats.events),
    ("kargo_cache_failures", "Lists and watches that failed, and were begun again.", lambda c: c.stats.failures),
    ("kargo_cache_undecodable", "Answers and objects that could not be decoded.", lambda c: c.stats.undecodable),
    ("kargo_cache_index_errors", "Failed attempts to read an object for an index.", lambda c: c.index_errors),
    ("kargo_cache_handler_errors", "Handlers that failed: faults of this program.", lambda c: c.stats.handler_errors),
)
_OF_A_QUEUE: Sequence[tuple[str, str, Callable[[Controller[Any]], float]]] = (
    ("kargo_queue_ready", "Keys that wait for a free worker.", lambda c: len(c.queue)),
    ("kargo_queue_delayed", "Keys that wait for a time.", lambda c: c.queue.delayed),
    ("kargo_queue_active", "Keys being reconciled.", lambda c: c.queue.active),
    ("kargo_queue_oldest_seconds", "For how long the next key has been ready.", lambda c: c.queue.oldest),
    (
        "kargo_reconcile_longest_seconds",
        "For how long the key that takes longest has been worked on.",
        lambda c: c.longest[1] if c.longest is not None else 0.0,
    ),
)
_OF_A_CONTROLLER: Sequence[tuple[str, str, Callable[[Controller[Any]], float]]] = (
    ("kargo_queue_adds", "Wake-ups, those of a waiting key included.", lambda c: c.queue.stats.adds),
    ("kargo_queue_retries", "Keys put back after a failure.", lambda c: c.queue.stats.retries),
    ("kargo_reconciles", "Reconciles begun.", lambda c: c.stats.reconciles),
    ("kargo_reconcile_errors", "Reconciles that failed, conflicts apart.", lambda c: c.stats.errors),
    ("kargo_reconcile_conflicts", "Reconciles decided again after a 409.", lambda c: c.stats.conflicts),
)


class ControllerMetrics(Collector):
    """Reads the parts of an instance whenever it is asked."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are now."""
        yield from promotion_metrics(self._assembly.world)
        yield from self._objects()
        yield from self._caches()
        yield from self._controllers()
        yield from self._requests()

    def _objects(self) -> Iterator[Metric]:
        yield counter(
            "kargo_unreadable_objects",
            "Versions of objects that could not be read; an Event on each object says why.",
            ["kind"],
            (((kind,), count) for kind, count in self._assembly.world.unreadable.items()),
        )
        recorders = self._assembly.recorders
        yield counter(
            "kargo_events",
            "Kubernetes Events by what became of them; those about operations are withheld when they are too many.",
            ["outcome"],
            [
                (("written",), sum(r.written for r in recorders)),
                (("dropped",), sum(r.dropped for r in recorders)),
                (("withheld",), self._assembly.world.events_not_told),
            ],
        )

    def _caches(self) -> Iterator[Metric]:
        caches = [(str(cache.resource), cache) for cache in self._assembly.caches]
        yield gauge(
            "kargo_cache_objects", "Objects held.", ["resource"], (((name,), len(cache)) for name, cache in caches)
        )
        yield gauge(
            "kargo_cache_current",
            "1 while a cache is being kept current, 0 while its API server cannot be followed.",
            ["resource"],
            (((name,), cache.synced and cache.health is None) for name, cache in caches),
        )
        for name, text, count in _OF_A_CACHE:
            yield counter(name, text, ["resource"], (((resource,), count(cache)) for resource, cache in caches))
        yield histogram(
            "kargo_cache_watch_lag_seconds",
            "How long after the answer to a write of ours the watch showed it, where the answer came first.",
            ["resource"],
            (((name,), cache.stats.lag) for name, cache in caches),
        )

    def _controllers(self) -> Iterator[Metric]:
        controllers = [(controller.name, controller) for controller in self._assembly.controllers]
        for name, text, value in _OF_A_QUEUE:
            yield gauge(name, text, ["controller"], (((of,), value(controller)) for of, controller in controllers))
        for name, text, value in _OF_A_CONTROLLER:
            yield counter(name, text, ["controller"], (((of,), value(controller)) for of, controller in controllers))
        yield histogram(
            "kargo_reconcile_seconds",
            "How long reconciles took.",
            ["controller"],
            (((of,), controller.stats.seconds) for of, controller in controllers),
        )

    def _requests(self) -> Iterator[Metric]:
        servers = self._assembly.servers.items()
        yield counter(
            "kargo_api_requests",
            "Requests sent, repetitions included.",
            ["server", "verb", "resource"],
            (
                ((server, *call.split(" ", 1)), count)
                for server, stats in servers
                for call, count in stats.requests.items()
            ),
        )
        yield counter(
            "kargo_api_answers",
            "Answers by HTTP code; none where the code is empty.",
            ["server", "verb", "code"],
            (((server, *answer), count) for server, stats in servers for answer, count in stats.answers.items()),
        )
        yield histogram(
            "kargo_api_seconds",
            "How long answers took to begin.",
            ["server", "verb"],
            (((server, verb), seconds) for server, stats in servers for verb, seconds in stats.seconds.items()),
        )
        yield counter(
            "kargo_api_failures",
            "Requests that failed, by the kind of error.",
            ["server", "error"],
            (((server, error), count) for server, stats in servers for error, count in stats.failed.items()),
        )
        yield counter(
            "kargo_api_throttled",
            "Answers 429 Too Many Requests.",
            ["server"],
            (((server,), stats.throttled) for server, stats in servers),
        )


def registry(assembly: Assembly) -> CollectorRegistry:
    """A registry of its own with the metrics of *assembly*."""
    made = CollectorRegistry(auto_describe=True)
    made.register(ControllerMetrics(assembly))
    return made
