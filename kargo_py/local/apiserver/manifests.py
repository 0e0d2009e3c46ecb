"""Fills a server from manifests at its start: CustomResourceDefinitions first, then namespaces, then the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kargo_py.local.apiserver.bodies import MAX_DEPTH, Undecodable
from kargo_py.local.apiserver.wire import JSON, Handler, JsonObject, Request, Response, encode
from kargo_py.messages import Shown, message

UNREADABLE = message(
    "cannot read the manifest {path}: {why}",
    do="Correct the path given with `--crds`, or the rights of the file.",
    shown=Shown.COMMAND_LINE,
)
NONE_THERE = message(
    "{path}: there is no .yaml, .yml or .json file in this folder",
    do="Correct the path given with `--crds`. Folders within it are not looked into.",
    shown=Shown.COMMAND_LINE,
)
MALFORMED = message(
    "{path}: {why}",
    do="Correct the file: it is to be YAML or JSON.",
    shown=Shown.COMMAND_LINE,
)
NO_OBJECT = message(
    "{path}: document {number} is no Kubernetes object: it needs apiVersion, kind and metadata.name",
    do="Correct the file, or leave it out.",
    shown=Shown.COMMAND_LINE,
)
NOT_SERVED = message(
    "{path}: the API server does not serve {kind} ({version})",
    do="Load the CustomResourceDefinition, too, or leave the object out: only few built-in kinds are served.",
    shown=Shown.COMMAND_LINE,
)
REFUSED = message(
    '{path}: {kind} "{name}": {why}',
    do="The API server refused the object and says why. Correct the file.",
    shown=Shown.COMMAND_LINE,
)

_SUFFIXES = {".yaml", ".yml", ".json"}
_SEPARATOR = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)
_FIRST = ("CustomResourceDefinition", "Namespace")


class ManifestError(Exception):
    """A manifest cannot be loaded; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object and the file it came from."""

    path: Path
    obj: JsonObject

    @property
    def kind(self) -> str:
        return str(self.obj["kind"])


def read(path: Path) -> Sequence[Manifest]:
    """The objects in a file, or in the files of a folder; raises ManifestError. Blocks."""
    try:
        files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES) if path.is_dir() else [path]
        if not files:
            raise ManifestError(NONE_THERE(path=path))
        return [Manifest(file, obj) for file in files for obj in _objects(file, file.read_bytes())]
    except OSError as error:
        raise ManifestError(UNREADABLE(path=path, why=error.strerror or error)) from error


async def load(server: Handler, manifests: Sequence[Manifest]) -> None:
    """Create all objects, or change those that are there; raises ManifestError."""
    ranks = {kind: rank for rank, kind in enumerate(_FIRST)}
    for manifest in sorted(manifests, key=lambda manifest: ranks.get(manifest.kind, len(_FIRST))):
        await _put(server, manifest)


def _objects(path: Path, content: bytes) -> Iterator[JsonObject]:
    from kargo_py.local.apiserver.yamlbodies import load as load_yaml  # noqa: PLC0415 - its import is slow

    for number, text in enumerate(_SEPARATOR.split(content.decode(errors="replace")), 1):
        try:
            document, _ = load_yaml(text, MAX_DEPTH)
        except Undecodable as error:
            raise ManifestError(MALFORMED(path=path, why=error)) from error
        if document is None:
            continue
        items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else [document]
        for item in items if isinstance(items, list) else [None]:
            if not isinstance(item, dict) or not _is_object(item):
                raise ManifestError(NO_OBJECT(path=path, number=number))
            yield item


def _is_object(item: JsonObject) -> bool:
    metadata = item.get("metadata")
    return isinstance(metadata, dict) and all(
        isinstance(text, str) and text for text in (item.get("apiVersion"), item.get("kind"), metadata.get("name"))
    )


async def _put(server: Handler, manifest: Manifest) -> None:
    base = f"/{'apis' if '/' in manifest.obj['apiVersion'] else 'api'}/{manifest.obj['apiVersion']}"
    resource = await _resource(server, base, manifest)
    name = str(manifest.obj["metadata"]["name"])
    namespace = f"/namespaces/{manifest.obj['metadata'].get('namespace', 'default')}" if resource["namespaced"] else ""
    path, body = f"{base}{namespace}/{resource['name']}", encode(manifest.obj)
    answer = await _ask(server, Request("POST", path, (), {"content-type": JSON}, body))
    if answer.code == 409:
        headers = {"content-type": "application/merge-patch+json"}
        answer = await _ask(server, Request("PATCH", f"{path}/{name}", (), headers, body))
    if answer.code >= 400:
        why = msgspec.json.decode(answer.body)["message"]
        raise ManifestError(REFUSED(path=manifest.path, kind=manifest.kind, name=name, why=why))


async def _resource(server: Handler, base: str, manifest: Manifest) -> Mapping[str, Any]:
    answer = await _ask(server, Request("GET", base))
    resources = msgspec.json.decode(answer.body)["resources"] if answer.code == 200 else []
    for resource in resources:
        if resource["kind"] == manifest.kind and "/" not in resource["name"]:
            return dict(resource)
    raise ManifestError(NOT_SERVED(path=manifest.path, kind=manifest.kind, version=manifest.obj["apiVersion"]))


async def _ask(server: Handler, request: Request) -> Response:
    answer = await server.handle(request)
    if not isinstance(answer, Response):
        raise TypeError(f"{request.method} {request.path} was answered with a stream")
    return answer
