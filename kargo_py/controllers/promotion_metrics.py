"""What is counted of Promotions and their operations, in the form of metrics.

Only the queues have a label for each Stage. They are bounded: a Stage whose queue is empty is left out, and of those
that are not the :data:`MOST_QUEUES` longest are named, the rest being one.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from kargo_py.api.promotion import PromotionPhase
from kargo_py.controllers.metric_families import Samples, counter, gauge, histogram
from kargo_py.controllers.promotion_stats import QUEUE
from kargo_py.controllers.world import World
from kargo_py.deployers.base import TargetState, WaitCause
from kargo_py.kube.histogram import LONG, Histogram

MOST_QUEUES = 500

_CAUSES = (QUEUE, *(cause.value for cause in WaitCause))
_OUTCOMES = [phase.value for phase in PromotionPhase if phase.terminal]
_ENDS = [state.value for state in TargetState if state.final]


def promotion_metrics(world: World) -> Iterator[Metric]:
    """All about Promotions."""
    stats = world.stats
    yield counter("kargo_promotions_started", "Promotions that began to run.", [], [((), stats.started)])
    yield counter(
        "kargo_promotions_finished",
        "Promotions that ended, by their last phase.",
        ["phase"],
        (((phase,), stats.finished[phase]) for phase in _OUTCOMES),
    )
    yield histogram(
        "kargo_promotions_duration_seconds",
        "How long Promotions ran, without the time in the queue.",
        ["outcome"],
        (((phase,), stats.seconds.get(phase) or Histogram(LONG)) for phase in _OUTCOMES),
    )
    waited = stats.waited()
    yield counter(
        "kargo_promotions_waiting_seconds",
        "Seconds that Promotions waited, by cause; those in a queue count when they leave it.",
        ["cause"],
        (((cause,), waited.get(cause, 0.0)) for cause in _CAUSES),
    )
    oldest = stats.oldest(world.acts_on)
    yield gauge(
        "kargo_promotions_oldest_waiting_seconds",
        "Seconds for which the Promotion that waits longest for that cause has done so; 0 if none does.",
        ["cause"],
        (((cause,), oldest.get(cause, 0.0)) for cause in _CAUSES),
    )
    yield gauge(
        "kargo_promotions_queued",
        "Promotions that have not begun, by Stage; absent where there is none. Beyond the 500 longest queues the rest "
        "is one without a name.",
        ["project", "stage"],
        _queues(world),
    )
    yield from _operation_metrics(world)


def _queues(world: World) -> Samples:
    queues = world.stats.queues(world.acts_on)
    yield from (((stage.namespace, stage.name), length) for stage, length in queues[:MOST_QUEUES])
    if rest := sum(length for _, length in queues[MOST_QUEUES:]):
        yield ("", ""), rest


def _operation_metrics(world: World) -> Iterator[Metric]:
    stats = world.argocd.stats
    for name, text, count in (
        ("attempts", "Starts of operations that were issued.", stats.starts),
        (
            "conflicts",
            "Starts and terminations that another write came before; decided again at once.",
            stats.conflicts,
        ),
        (
            "unknown_outcomes",
            "Writes to Applications without an answer; what became of them is looked for.",
            stats.unknown,
        ),
        ("terminates", "Terminations that were asked for, repetitions included.", stats.terminates),
        ("terminate_repeats", "Terminations that had to be asked for again.", stats.terminates_again),
    ):
        yield counter(f"kargo_promotions_operation_{name}", text, [], [((), count)])
    yield counter(
        "kargo_promotions_operations_ended",
        "Operations by how they ended, as it was put on record: Lost and Superseded among them.",
        ["state"],
        (((state,), world.stats.operations[state]) for state in _ENDS),
    )
