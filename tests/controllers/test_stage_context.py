"""What stands in a Stage's metadata."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kargo_py.api.meta import ObjectMeta
from kargo_py.controllers.stage_context import ROOM, argocd_context, metadata_patch, without_finalizer
from kargo_py.kube.resources import Key

JsonObject = dict[str, Any]
OURS = "kargo.akuity.io/finalizer"
CONTEXT = "kargo.akuity.io/argocd-context"
A, B = Key("argocd", "a"), Key("other", "b")
TEXT = '[{"name":"a","namespace":"argocd"},{"name":"b","namespace":"other"}]'


def test_context() -> None:
    """Each Application once, in their order, in Kargo's form; none where there is none."""
    assert argocd_context([A, B, A]) == TEXT
    assert argocd_context([]) is None


def test_context_of_very_many() -> None:
    """As many as there is room for."""
    text = argocd_context(Key("argocd", f"application-{number}") for number in range(5000)) or ""

    assert len(text) <= ROOM
    assert json.loads(text)[-1]["name"].startswith("application-1")


@pytest.mark.parametrize(
    ("meta", "context", "finalizer", "patch"),
    [
        ({}, None, False, {}),
        ({}, None, True, {"finalizers": [OURS]}),
        ({"finalizers": ["other", OURS]}, None, True, {}),
        ({"finalizers": ["other"]}, None, True, {"finalizers": ["other", OURS]}),
        ({}, TEXT, True, {"finalizers": [OURS], "annotations": {CONTEXT: TEXT}}),
        ({"annotations": {CONTEXT: TEXT}}, TEXT, False, {}),
        ({"annotations": {CONTEXT: json.dumps(json.loads(TEXT), indent=1)}}, TEXT, False, {}),
        ({"annotations": {CONTEXT: "nonsense"}}, TEXT, False, {"annotations": {CONTEXT: TEXT}}),
        ({"annotations": {CONTEXT: ""}}, TEXT, False, {"annotations": {CONTEXT: TEXT}}),
        ({"annotations": {CONTEXT: TEXT, "a": "b"}}, None, False, {"annotations": {CONTEXT: None}}),
    ],
)
def test_patch(meta: JsonObject, context: str | None, finalizer: bool, patch: JsonObject) -> None:
    """Only what differs is written, and what others put there stays."""
    assert metadata_patch(ObjectMeta.model_validate(meta), context, finalizer=finalizer) == patch


@pytest.mark.parametrize(
    ("finalizers", "patch"),
    [([], {}), (["x"], {}), ([OURS], {"finalizers": []}), (["x", OURS, "y"], {"finalizers": ["x", "y"]})],
)
def test_without_finalizer(finalizers: list[str], patch: JsonObject) -> None:
    """Only ours is taken off."""
    assert without_finalizer(ObjectMeta.model_validate({"finalizers": finalizers})) == patch
