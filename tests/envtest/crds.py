"""Installing CustomResourceDefinitions on a test server, and waiting until their objects can be stored."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import yaml

from tests.envtest.access import JsonObject
from tests.envtest.server import DEFINITIONS, ApiServer

OURS: Final = Path(__file__).resolve().parents[2] / "crds"

# Argo CD's Application as far as a test needs it: anything goes, and status is no subresource, as in Argo CD's own.
APPLICATION: Final[JsonObject] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "applications.argoproj.io"},
    "spec": {
        "group": "argoproj.io",
        "scope": "Namespaced",
        "names": {
            "kind": "Application",
            "listKind": "ApplicationList",
            "plural": "applications",
            "singular": "application",
            "shortNames": ["app", "apps"],
        },
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def read(directory: Path) -> list[JsonObject]:
    """Read every CustomResourceDefinition in the YAML files of *directory*; raise ValueError when there is none."""
    documents = [
        document for path in sorted(directory.glob("*.yaml")) for document in yaml.safe_load_all(path.read_text())
    ]
    found = [document for document in documents if document and document.get("kind") == "CustomResourceDefinition"]
    if not found:
        raise ValueError(f"no CustomResourceDefinition in {directory}: `make crds` writes ours")
    return found


def install(server: ApiServer, definitions: Iterable[JsonObject]) -> None:
    """Apply *definitions* and return when each can be read and written."""
    for definition in definitions:
        server.apply(DEFINITIONS, definition)
    server.await_custom_resources()
