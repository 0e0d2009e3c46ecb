"""Which revisions of which sources are meant: the rules for one source, for several, and for a hydrated one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kargo_py.kube.client import JsonObject
from kargo_py.local.argocd.engine import Manifest


@dataclass(frozen=True, slots=True)
class Wanted:
    """A source at a revision that is still to be resolved."""

    source: JsonObject
    revision: str


@dataclass(frozen=True, slots=True)
class Target:
    """The target state: what was wanted, resolved.

    ``revisions`` holds what was asked for where it cannot be resolved; ``error`` then says why.
    """

    revisions: Sequence[str]
    manifests: Sequence[Manifest] = ()
    error: str = ""


def has_multiple_sources(app: JsonObject) -> bool:
    """Whether the Application is a multi-source one; a hydrated one never is (spec 1.11)."""
    return "sourceHydrator" not in app["spec"] and bool(app["spec"].get("sources"))


def sources_of(app: JsonObject) -> list[JsonObject]:
    """The sources that count."""
    spec = app["spec"]
    if hydrator := spec.get("sourceHydrator"):
        sync = hydrator["syncSource"]
        repository = sync.get("repoURL") or hydrator["drySource"]["repoURL"]
        return [{"repoURL": repository, "path": sync["path"], "targetRevision": sync["targetBranch"]}]
    return list(spec.get("sources") or ([spec["source"]] if spec.get("source") else []))


def wanted_by_spec(app: JsonObject) -> list[Wanted]:
    """What status.sync compares with: the target revisions."""
    return [Wanted(source, source.get("targetRevision") or "") for source in sources_of(app)]


def wanted_by(operation: JsonObject, app: JsonObject) -> list[Wanted]:
    """What an operation deploys (spec 1.2).

    A multi-source Application does not look at ``revision``, and ignores ``revisions`` of the wrong length as a whole;
    an empty revision means the target revision of its source.
    """
    sync = operation.get("sync") or {}
    if has_multiple_sources(app):
        sources = sync.get("sources") or sources_of(app)
        revisions = sync.get("revisions") or ()
        if len(revisions) != len(sources):
            revisions = [""] * len(sources)
    else:
        sources = [sync.get("source") or sources_of(app)[0]]
        revisions = [sync.get("revision") or ""]
    return [
        Wanted(source, revision or source.get("targetRevision") or "")
        for source, revision in zip(sources, revisions, strict=True)
    ]


def sync_result(wanted: Sequence[Wanted], revisions: Sequence[str], *, multiple: bool) -> JsonObject:
    """What syncResult says of revisions and sources; that of several sources has an empty ``revision`` beside them."""
    sources = [one.source for one in wanted]
    if multiple:
        return {"revision": "", "revisions": list(revisions), "source": sources[0], "sources": sources}
    return {"revision": revisions[0], "source": sources[0]}


def awaited(app: JsonObject) -> str:
    """What a hydrated Application waits for while its sync branch has nothing at the path."""
    hydrator = app["spec"].get("sourceHydrator") or {}
    if not (staging := (hydrator.get("hydrateTo") or {}).get("targetBranch")):
        return ""
    branch = hydrator["syncSource"]["targetBranch"]
    return f" - waiting for an external process to update {branch} from {staging}"
