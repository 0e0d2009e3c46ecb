"""Which edits an ApplicationSet would undo."""

from __future__ import annotations

from typing import Any

import pytest

from kargo_py.argocd.applicationset import undone

REVISION = "/spec/source/targetRevision"
IMAGES = "/spec/source/kustomize/images"
IN_LIST = "/spec/sources/0/targetRevision"


@pytest.mark.parametrize(
    ("spec", "changed", "left"),
    [
        ({}, [REVISION], [REVISION]),
        ({"ignoreApplicationDifferences": [{"jsonPointers": [REVISION]}]}, [REVISION], []),
        ({"ignoreApplicationDifferences": [{"jsonPointers": [REVISION]}]}, [REVISION, IMAGES], [IMAGES]),
        ({"ignoreApplicationDifferences": [{"jsonPointers": ["/spec/source"]}]}, [REVISION, IMAGES], []),
        ({"ignoreApplicationDifferences": [{"jsonPointers": ["/spec/sour"]}]}, [REVISION], [REVISION]),
        ({"ignoreApplicationDifferences": [{"name": "shop-dev", "jsonPointers": [REVISION]}]}, [REVISION], []),
        ({"ignoreApplicationDifferences": [{"name": "other", "jsonPointers": [REVISION]}]}, [REVISION], [REVISION]),
        ({"ignoreApplicationDifferences": [{"jqPathExpressions": [".spec.source.targetRevision"]}]}, [REVISION], []),
        ({"ignoreApplicationDifferences": [{"jqPathExpressions": [".spec.source | .x"]}]}, [REVISION], [REVISION]),
        ({"ignoreApplicationDifferences": [{"jsonPointers": [IN_LIST]}]}, [IN_LIST], [IN_LIST]),
        ({"ignoreApplicationDifferences": [{"jsonPointers": ["/spec/sources"]}]}, [IN_LIST], []),
        ({"syncPolicy": {"applicationsSync": "create-only"}}, [REVISION], []),
        ({"syncPolicy": {"applicationsSync": "sync"}}, [REVISION], [REVISION]),
        ({"ignoreApplicationDifferences": "x", "syncPolicy": 7}, [REVISION], [REVISION]),
        ({"ignoreApplicationDifferences": [7, {"jsonPointers": [8]}]}, [REVISION], [REVISION]),
        ({"ignoreApplicationDifferences": [{"name": [], "jsonPointers": [REVISION]}]}, [REVISION], []),
        ({"ignoreApplicationDifferences": [{"name": ["x"], "jsonPointers": [REVISION]}]}, [REVISION], [REVISION]),
        ({"syncPolicy": {"applicationsSync": ["create-only"]}}, [REVISION], [REVISION]),
        ({"ignoreApplicationDifferences": [{"jsonPointers": [""]}]}, [REVISION], [REVISION]),
        (None, [REVISION], [REVISION]),
    ],
)
def test_undone(spec: Any, changed: list[str], left: list[str]) -> None:
    """A field stays only where a rule for this Application names it, or the list or object it is in, as a whole."""
    assert left == undone({"spec": spec}, "shop-dev", changed)
