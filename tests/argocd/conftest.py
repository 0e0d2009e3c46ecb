"""Recorded Application objects, and a builder of small ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kargo_py.argocd.application import Application, ApplicationCodec

RECORDED = Path(__file__).parent / "recorded"

JsonObject = dict[str, Any]
Build = Callable[..., Application]


@pytest.fixture
def recorded() -> Callable[[str], JsonObject]:
    """An Application as a real Argo CD left it, by the name of its file."""

    def read(name: str) -> JsonObject:
        loaded: JsonObject = yaml.load((RECORDED / f"{name}.yaml").read_text(), Loader=yaml.CSafeLoader)
        return loaded

    return read


@pytest.fixture
def parse() -> Callable[[JsonObject], Application]:
    """As the API server would send it."""

    def decode(obj: JsonObject) -> Application:
        return ApplicationCodec().object(msgspec.json.encode(obj))

    return decode


def application(**parts: Any) -> JsonObject:
    """A small Application; *parts* are merged in at the top level, ``metadata`` and ``status`` one level down."""
    obj: JsonObject = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "shop-dev", "namespace": "argocd", "uid": "uid-1", "resourceVersion": "7"},
        "spec": {
            "project": "default",
            "source": {"repoURL": "https://git.example.com/shop", "path": ".", "targetRevision": "main"},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "shop"},
        },
        "status": {},
    }
    for name, value in parts.items():
        obj[name] = {**obj[name], **value} if name in {"metadata", "spec", "status"} else value
    return obj


@pytest.fixture
def app(parse: Callable[[JsonObject], Application]) -> Build:
    """Build a small Application."""

    def build(**parts: Any) -> Application:
        return parse(application(**parts))

    return build
