"""What an ApplicationSet writes on its Applications (spec 4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kargo_py.kube.resources import Key
from kargo_py.local.apiserver.patches import merge_patch
from kargo_py.local.argocd.application_set import RollingSync, Template, revert
from kargo_py.local.argocd.documents import REFRESH, timestamp

JsonObject = dict[str, Any]

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SOURCES = [{"repoURL": "r", "targetRevision": "main"}, {"repoURL": "s", "targetRevision": "main"}]
SPEC: JsonObject = {"project": "p", "source": SOURCES[0]}
MULTI: JsonObject = {"project": "p", "sources": SOURCES}


def app(spec: JsonObject, **metadata: Any) -> JsonObject:
    return {"metadata": {"name": "a", **metadata}, "spec": spec}


def pinned(revision: str, **more: Any) -> JsonObject:
    return {**SPEC, "source": {**SOURCES[0], "targetRevision": revision, **more}}


IGNORING = Template(SPEC, ignored=["/spec/source/targetRevision"])
IGNORING_IN_A_LIST = Template(MULTI, ignored=["/spec/sources/0/targetRevision"])


@pytest.mark.parametrize(
    ("found", "template", "expected"),
    [
        pytest.param(app(SPEC), Template(SPEC), None, id="as it should be"),
        pytest.param(app(pinned("x")), Template(SPEC), SPEC, id="target revision"),
        pytest.param(app(pinned("x", path="p")), Template(SPEC), SPEC, id="a new field"),
        pytest.param(app(pinned("x")), IGNORING, None, id="ignored"),
        pytest.param(app(pinned("x", path="p")), IGNORING, pinned("x"), id="ignored beside another"),
        pytest.param(
            app({**MULTI, "sources": [{**SOURCES[0], "targetRevision": "x"}, SOURCES[1]]}),
            IGNORING_IN_A_LIST,
            None,
            id="ignored in a list",
        ),
        pytest.param(
            app({**MULTI, "sources": [{**SOURCES[0], "targetRevision": "x"}, {}]}),
            IGNORING_IN_A_LIST,
            MULTI,
            id="ignored in a list that differs",
        ),
    ],
)
def test_specs(found: JsonObject, template: Template, expected: JsonObject | None) -> None:
    """A merge patch makes the spec what the template says, except for what is ignored."""
    patch = revert(found, template)

    assert (merge_patch(found, patch.body)["spec"] if patch else None) == expected


def test_labels_and_annotations() -> None:
    """Those of others go, but for the annotations that are always kept."""
    found = app(SPEC, labels={"a": "1", "b": "2"}, annotations={"c": "3", REFRESH: "hard", f"{REFRESH}-timestamp": "4"})
    patch = revert(found, Template(SPEC, {"a": "0"}, {"d": "5"}))

    assert patch is not None
    assert merge_patch(found, patch.body)["metadata"] == {
        "name": "a",
        "labels": {"a": "0"},
        "annotations": {"d": "5", REFRESH: "hard"},
    }


DEV, PROD = Key("argocd", "dev"), Key("argocd", "prod")


def rolled(revision: str, sync: str, *, started: float | None = None, phase: str = "Succeeded") -> JsonObject:
    """An Application; *started*: the second in which its last operation began."""
    status: JsonObject = {"sync": {"status": sync, "revision": revision}, "health": {"status": "Healthy"}}
    if started is not None:
        status["operationState"] = {"phase": phase, "startedAt": timestamp(NOW + timedelta(seconds=started))}
    return {"metadata": {}, "status": status}


def test_rolling_sync() -> None:
    """One step after the other; an operation that began in the second of the request does not count."""
    rolling = RollingSync([[DEV], [PROD]])
    old, new = rolled("1", "Synced", started=-60), rolled("2", "OutOfSync", started=-60)
    acts = [
        ({DEV: old, PROD: old}, 0.0, []),
        ({DEV: new, PROD: new}, 0.2, [DEV]),
        ({DEV: rolled("2", "OutOfSync", started=0.3, phase="Running"), PROD: new}, 0.4, [DEV]),
        ({DEV: rolled("2", "Synced", started=0.6), PROD: new}, 0.8, [DEV]),
        ({DEV: rolled("2", "Synced", started=1.0, phase="Running"), PROD: new}, 1.1, []),
        ({DEV: rolled("2", "Synced", started=1.0), PROD: new}, 1.3, [PROD]),
        ({DEV: rolled("2", "Synced", started=1.0), PROD: rolled("2", "Synced", started=2.0)}, 2.1, []),
        ({DEV: rolled("2", "OutOfSync", started=1.0), PROD: rolled("2", "Synced", started=2.0)}, 9.0, []),
    ]

    for apps, at, expected in acts:
        assert [key for key, _ in rolling.advance(apps, NOW + timedelta(seconds=at))] == expected
