"""Installing CustomResourceDefinitions on a test server, and waiting until their objects can be stored."""

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import yaml

from kargo_py.api.crd import crd
from kargo_py.api.kinds import KINDS
from kargo_py.local.argocd.definition import APPLICATION as ARGOCDS
from tests.envtest.access import JsonObject
from tests.envtest.server import DEFINITIONS, ApiServer

OURS: Final = Path(__file__).resolve().parents[2] / "crds"

_ANYTHING: Final[JsonObject] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _loose(definition: JsonObject) -> JsonObject:
    loose = copy.deepcopy(definition)
    for version in loose["spec"]["versions"]:
        version["schema"] = {"openAPIV3Schema": _ANYTHING}
    return loose


# Argo CD's Application without a schema: our own program must bear what Argo CD's would refuse.
APPLICATION: Final[JsonObject] = _loose(ARGOCDS)


def read(directory: Path) -> list[JsonObject]:
    """Read every CustomResourceDefinition in the YAML files of *directory*; raise ValueError when there is none."""
    documents = [
        document for path in sorted(directory.glob("*.yaml")) for document in yaml.safe_load_all(path.read_text())
    ]
    found = [document for document in documents if document and document.get("kind") == "CustomResourceDefinition"]
    if not found:
        raise ValueError(f"no CustomResourceDefinition in {directory}: `make crds` writes ours")
    return found


def strict() -> list[JsonObject]:
    """Give Kargo's kinds as Kargo defines them."""
    return [crd(kind, strict=True) for kind in KINDS]


def install(server: ApiServer, definitions: Iterable[JsonObject]) -> None:
    """Apply *definitions* and return when each can be read and written."""
    for definition in definitions:
        server.apply(DEFINITIONS, definition)
    server.await_custom_resources()
