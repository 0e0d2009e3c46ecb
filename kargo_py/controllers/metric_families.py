"""Samples put into the form that Prometheus' client gives out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isinf
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from kargo_py.kube.histogram import Histogram

Samples: TypeAlias = Iterable[tuple[Sequence[str], float]]


def _le(bound: float) -> str:
    """A bound as the label of a bucket has it."""
    return "+Inf" if isinf(bound) else str(bound)


def counter(name: str, text: str, labels: Sequence[str], samples: Samples) -> Metric:
    """Something that only grows; Prometheus sees ``<name>_total``."""
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in samples:
        family.add_metric(values, count)
    return family


def gauge(name: str, text: str, labels: Sequence[str], samples: Samples) -> Metric:
    """Something as it is now."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def histogram(
    name: str, text: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], Histogram]]
) -> Metric:
    """How long things took."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, seconds in samples:
        family.add_metric(values, [(_le(bound), count) for bound, count in seconds.buckets()], seconds.total)
    return family
