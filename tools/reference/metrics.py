"""The table of metrics, made of what a scrape gives."""

from __future__ import annotations

from prometheus_client.core import Metric

from kargo_py.controllers.metrics import ControllerMetrics
from kargo_py.controllers.running import Assembly, Options, assemble
from kargo_py.kube.clock import utc_now
from kargo_py.local.apiserver.client import client_of
from kargo_py.local.apiserver.server import ApiServer
from tools.reference.markdown import code, prose, table


def metrics() -> str:
    """The table."""
    rows = []
    for metric in ControllerMetrics(assembly()).collect():
        labels = [code(label) for label in labels_of(metric)]
        rows.append([code(name_of(metric)), metric.type, ", ".join(labels), prose(metric.documentation)])
    return table(["Metric", "Type", "Labels", "Meaning"], rows)


def assembly() -> Assembly:
    """An instance that has done nothing; its server is never asked."""
    client = client_of(ApiServer(now=utc_now))
    return assemble(client, client, "reference", Options())


def name_of(metric: Metric) -> str:
    """As Prometheus stores it: the name of a counter ends in ``_total``."""
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def labels_of(metric: Metric) -> tuple[str, ...]:
    """The names of its labels, which a family without samples shows nowhere else."""
    return tuple(vars(metric)["_labelnames"])
