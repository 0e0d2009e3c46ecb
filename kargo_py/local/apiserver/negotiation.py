"""How an answer is to look: JSON or YAML, the object itself, a Table, or its metadata only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from kargo_py.local.apiserver.failures import Failure

Shape: TypeAlias = Literal["", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]
_SHAPES: Final[dict[str, Shape]] = {
    shape: shape for shape in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
}
_VERSIONS: Final = frozenset({"v1", "v1beta1"})
OBJECTS: Final = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_STREAMS: Final = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an ``Accept`` header asks for."""

    shape: Shape = ""
    version: str = "v1"
    yaml: bool = False


PLAIN: Final = Wanted()


def wanted(accept: str, *, stream: bool = False) -> Wanted:
    """The first thing in *accept* that there is. Raises Failure."""
    if not accept or accept in {"*/*", "application/json"}:
        return PLAIN
    for media, parameters in _clauses(accept):
        yaml = media == "application/yaml"
        if media not in {"application/json", "application/*", "*/*"} and (not yaml or stream):
            continue
        shape = parameters.get("as", "")
        if not shape:
            return Wanted(yaml=yaml)
        version = parameters.get("v", "")
        if shape in _SHAPES and parameters.get("g") == "meta.k8s.io" and version in _VERSIONS:
            return Wanted(_SHAPES[shape], version, yaml)
    known = _STREAMS if stream else OBJECTS
    raise Failure(406, "NotAcceptable", f"only the following media types are accepted: {known}")


def check_media(accept: str, known: str = OBJECTS, *, streams: bool = False) -> None:
    """What the part of the real server that has the built-in kinds asks for first. Raises Failure."""
    known = f"{known}, {_STREAMS}" if streams else known
    media_types = {*known.split(", "), "*/*"}
    if accept and not any(media in media_types for media, _ in _clauses(accept)):
        raise Failure(406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {known}", {})


def prefers_yaml(accept: str) -> bool:
    """Whether an error should be told in YAML."""
    return next((media == "application/yaml" for media, _ in _clauses(accept)), False)


def _clauses(accept: str) -> list[tuple[str, dict[str, str]]]:
    found: list[tuple[float, str, dict[str, str]]] = []
    for clause in accept.split(","):
        media, *rest = (part.strip() for part in clause.split(";"))
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 0.0
        found.append((quality, media, parameters))
    found.sort(key=lambda clause: -clause[0])
    return [(media, parameters) for _, media, parameters in found]
