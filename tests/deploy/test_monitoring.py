"""The dashboard and the alerts name what exists: metrics, their labels, and values that can occur."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.core import Metric

from kargo_py.controllers.metrics import ControllerMetrics
from tests.controllers.test_metrics import assembly
from tests.deploy.promql import PromQLError, read

MONITORING = Path(__file__).parents[2] / "deploy/monitoring"
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
ALERTS = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
RULES = [rule for group in ALERTS["spec"]["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

ADDED = {"job", "instance"}
"""Labels that Prometheus itself puts on."""


def queries() -> Iterator[tuple[str, str]]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield f"panel {panel['title']} {target['refId']}", target["expr"].replace("$job", "kargo")
    for rule in RULES:
        yield f"alert {rule['alert']}", rule["expr"]


def existing() -> Mapping[str, tuple[Metric, set[str]]]:
    """Each series that a registry gives, with its metric and its labels."""
    found = {}
    for metric in ControllerMetrics(assembly()).collect():
        labels = {*vars(metric)["_labelnames"], *ADDED}
        if metric.type == "counter":
            found[f"{metric.name}_total"] = (metric, labels)
        elif metric.type == "histogram":
            found |= {f"{metric.name}_{part}": (metric, labels) for part in ("sum", "count")}
            found[f"{metric.name}_bucket"] = (metric, {*labels, "le"})
        else:
            found[metric.name] = (metric, labels)
    return found


@pytest.mark.parametrize("expr", [e for _, e in queries()], ids=[name for name, _ in queries()])
async def test_query(expr: str) -> None:
    """It is PromQL, each metric is one that is served, and has each label that is selected or grouped by."""
    known = existing()
    query = read(expr)
    assert query.selectors
    for name, matchers in query.selectors:
        assert name in known
        metric, labels = known[name]
        assert {label for label, _, _ in matchers} <= labels
        for label, sign, value in matchers:
            shown = {sample.labels[label] for sample in metric.samples if label in sample.labels}
            # Where a scrape shows all values that a label can have, one that is none of them is a slip.
            if label in {"phase", "cause", "state", "outcome"} and sign in {"=", "=~", "!~"}:
                assert set(value.split("|")) <= shown, f"{name} has no {label} {value}"
    for grouped, names in query.grouped:
        for name in names:
            assert set(grouped) <= known[name][1]


@pytest.mark.parametrize("expr", [e for _, e in queries()], ids=[name for name, _ in queries()])
async def test_counters_are_not_shown_as_they_are(expr: str) -> None:
    """What only grows begins anew with each process: it is looked at through rate, increase or absent."""
    for name in re.findall(r"kargo_\w+", expr):
        if name.endswith(("_total", "_bucket", "_count")):
            assert re.search(rf"(rate|increase|absent)\({name}\b", expr), name


@pytest.mark.parametrize(
    "expr",
    [
        "sum(",
        "rate(kargo_x_total)",
        "kargo_x{phase}",
        'kargo_x{phase="a}',
        "sum by phase (kargo_x)",
        "speed(kargo_x[5m])",
        "kargo_x[5m]",
        "kargo_x >",
        "kargo_x kargo_y",
        "sum(rate(kargo_x[5m])))",
        "rate(kargo_x[five])",
    ],
)
def test_the_reader_refuses(expr: str) -> None:
    """So the tests above can fail."""
    with pytest.raises(PromQLError):
        read(expr)


def test_alerts_say_what_to_do() -> None:
    """Each has a severity, a summary and a description; the labels in its text are those of its result."""
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        text = "\n".join(rule["annotations"][name] for name in ("summary", "description"))
        for label in re.findall(r"\$labels\.(\w+)", text):
            assert re.search(rf"by \([^)]*\b{label}\b", rule["expr"]), (rule["alert"], label)
        assert all(re.fullmatch(r"\d+[smh]", rule[name]) for name in ("for",) if name in rule)


def test_panels() -> None:
    """Ids are unique, nothing overlaps, and each panel says what it shows."""
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    taken: set[tuple[int, int]] = set()
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in PANELS:
        assert panel["description"]
        for target in panel["targets"]:
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert re.search(rf"by \([^)]*\b{label}\b", target["expr"]), (panel["title"], label)


async def test_all_about_promotions_is_shown() -> None:
    """No metric about Promotions is counted in vain."""
    shown = " ".join(expr for _, expr in queries())
    for metric in ControllerMetrics(assembly()).collect():
        if metric.name.startswith("kargo_promotions"):
            assert metric.name in shown
