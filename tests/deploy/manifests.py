"""What ``kubectl apply -k`` would send of a folder of ``deploy/``."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
VARIANTS = [".", "argocd-namespace-only", "separate-argocd", "argocd-cluster"]

JsonObject = dict[str, Any]


def rendered(variant: str = ".") -> list[JsonObject]:
    """The objects; skips the test without kubectl."""
    return list(yaml.safe_load_all(_text(variant)))


@cache
def _text(variant: str) -> str:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl, which has kustomize, is not in PATH")
    done = subprocess.run(
        [kubectl, "kustomize", str(DEPLOY / variant)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def rules(objects: list[JsonObject]) -> list[JsonObject]:
    """Those of all ClusterRoles."""
    return [rule for each in objects if each["kind"] == "ClusterRole" for rule in each["rules"]]


def one(objects: list[JsonObject], kind: str) -> JsonObject:
    """The only object of a kind."""
    (found,) = [each for each in objects if each["kind"] == kind]
    return found
