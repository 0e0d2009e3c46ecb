"""Applications that Argo CD's own client could not read."""

from __future__ import annotations

from typing import Any

import pytest

from kargo_py.local.argocd.documents import misshapen

SOURCE = {"repoURL": "https://git.example.com/shop"}


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({}, ""),
        ({"spec": {"source": SOURCE, "destination": {}}, "operation": {"sync": {}}, "status": {"sync": {}}}, ""),
        ({"spec": {"sources": [SOURCE, SOURCE]}, "operation": None, "status": None}, ""),
        ({"spec": 7}, "spec"),
        ({"spec": {"destination": "here"}}, "spec.destination"),
        ({"spec": {"source": []}}, "spec.source"),
        ({"spec": {"source": {"path": "."}}}, "spec.source.repoURL"),
        ({"spec": {"sources": SOURCE}}, "spec.sources"),
        ({"spec": {"sources": [SOURCE, 7]}}, "spec.sources[1].repoURL"),
        ({"operation": 7}, "operation"),
        ({"operation": {"sync": 7}}, "operation.sync"),
        ({"status": {"operationState": "x"}}, "status.operationState"),
        ({"status": {"operationState": {"operation": "x"}}}, "status.operationState.operation"),
    ],
)
def test_misshapen(parts: dict[str, Any], field: str) -> None:
    """The first field that is not as Argo CD's CRD demands is named."""
    assert misshapen({"metadata": {"name": "a"}, **parts}) == field
