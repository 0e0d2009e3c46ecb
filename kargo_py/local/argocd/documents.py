"""Applications as the controllers read and patch them."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from kargo_py.kube.client import JsonObject, PatchType
from kargo_py.kube.resources import Key, Resource

APPLICATIONS: Final = Resource("argoproj.io", "v1alpha1", "applications", "Application")
REFRESH: Final = "argocd.argoproj.io/refresh"
REFRESH_TIMESTAMP: Final = "argocd.argoproj.io/refresh-timestamp"
SKIP_RECONCILE: Final = "argocd.argoproj.io/skip-reconcile"

IN_PROGRESS: Final = frozenset({"Running", "Terminating"})


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch to send; *body* is plain JSON."""

    type: PatchType
    body: Any


def merge(body: JsonObject) -> Patch:
    """A merge patch."""
    return Patch(PatchType.MERGE, body)


def operation_state(app: JsonObject) -> JsonObject | None:
    """What stands in status.operationState."""
    state: JsonObject | None = (app.get("status") or {}).get("operationState")
    return state


def annotations_of(app: JsonObject) -> Mapping[str, str]:
    """The annotations; none is an empty mapping."""
    return app["metadata"].get("annotations") or {}


def is_skipped(app: JsonObject) -> bool:
    """Whether skip-reconcile keeps the controller off: no operation, no status, no refresh (spec 1.11)."""
    return annotations_of(app).get(SKIP_RECONCILE) == "true"


def key_of(app: JsonObject) -> Key:
    """Namespace and name."""
    return Key(app["metadata"].get("namespace") or "", app["metadata"]["name"])


def timestamp(moment: datetime) -> str:
    """As the controllers write it, with a resolution of one second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime:
    """Read a timestamp."""
    return datetime.fromisoformat(text)


_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def seconds(duration: str) -> float:
    """Read a duration such as 3m or 1m30s."""
    parts = _PART.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        raise ValueError(f"{duration!r} is no duration: write it like 5s or 1m30s")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def difference(old: JsonObject, new: JsonObject) -> JsonObject:
    """The merge patch that makes *new* of *old*."""
    changed: JsonObject = dict.fromkeys(old.keys() - new.keys())
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            if below := difference(before, value):
                changed[name] = below
        elif name not in old or value != before:
            changed[name] = copy.deepcopy(value)
    return changed


_OBJECTS: Final = (
    ("spec",),
    ("spec", "destination"),
    ("spec", "source"),
    ("spec", "sourceHydrator"),
    ("spec", "syncPolicy"),
    ("operation",),
    ("operation", "sync"),
    ("operation", "retry"),
    ("status",),
    ("status", "sync"),
    ("status", "health"),
    ("status", "operationState"),
    ("status", "operationState", "operation"),
    ("status", "operationState", "syncResult"),
)


def misshapen(app: JsonObject) -> str:
    """The first field of an Application that Argo CD's CRD would refuse, as a path; "" if there is none.

    Only on servers with a looser definition such objects exist, and Argo CD's own client could not read them.
    """
    for path in _OBJECTS:
        value: Any = app
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None and not isinstance(value, dict):
            return ".".join(path)
    spec = app.get("spec") or {}
    sources = spec.get("sources")
    if sources is not None and not isinstance(sources, list):
        return "spec.sources"
    given = [
        ("spec.source", spec.get("source")),
        *((f"spec.sources[{n}]", each) for n, each in enumerate(sources or ())),
    ]
    for place, source in given:
        if source is not None and not (isinstance(source, dict) and isinstance(source.get("repoURL"), str)):
            return f"{place}.repoURL"
    return ""
