"""Freight: a set of commits, images, charts and other artifacts that moves through the Stages together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from hashlib import sha1
from typing import ClassVar, Literal

from kargo_py.api.meta import KubeObject
from kargo_py.api.types import Duration, Json, JsonObject, KubernetesName, ListOf, Model, Time


class FreightOrigin(Model):
    """Where Freight comes from."""

    kind: Literal["Warehouse"]
    """Kind of the origin: Warehouse."""
    name: KubernetesName
    """Name of the origin, e.g. shop."""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class GitCommit(Model):
    """A commit of a Git repository."""

    repo_url: str = ""
    """URL of the repository, e.g. https://git.example.com/shop.git."""
    id: str = ""
    """SHA of the commit, e.g. 3f1a0f6c29b54f0a8c7e0f3a3d9a4b5c6d7e8f90."""
    branch: str = ""
    """Branch the commit was found on, e.g. main."""
    tag: str = ""
    """Tag the commit was found by, e.g. v1.2.0."""
    message: str = ""
    """First line of the commit message."""
    author: str = ""
    """Author of the commit."""
    committer: str = ""
    """Committer of the commit."""
    subscription_name: str = ""
    """Name of the Warehouse subscription that found it."""


class Image(Model):
    """An image of a container registry."""

    repo_url: str = ""
    """Repository of the image, without tag, e.g. ghcr.io/example/shop."""
    tag: str = ""
    """Tag of the image, e.g. v1.2.0."""
    digest: str = ""
    """Digest of the image, e.g. sha256:9f86d081884c7d65."""
    annotations: dict[str, str] = {}
    """Annotations of the image's manifest."""
    subscription_name: str = ""
    """Name of the Warehouse subscription that found it."""


class Chart(Model):
    """A Helm chart."""

    repo_url: str = ""
    """Repository of the chart: https:// of a classic one, or oci://."""
    name: str = ""
    """Name of the chart; empty for a chart in an OCI registry, whose URL says it all."""
    version: str = ""
    """Version of the chart, e.g. 1.2.0."""
    subscription_name: str = ""
    """Name of the Warehouse subscription that found it."""


class ArtifactReference(Model):
    """Any other kind of artifact."""

    artifact_type: str = ""
    """Type of the artifact, often a media type."""
    subscription_name: str = ""
    """Name of the Warehouse subscription that found it."""
    version: str = ""
    """Version of the artifact."""
    metadata: Json = None
    """Whatever the subscription has to say of the artifact."""


class FreightReference(Model):
    """A copy of what a piece of Freight contains, for the record."""

    name: str = ""
    """Name of the Freight."""
    origin: FreightOrigin | None = None
    """Where the Freight came from."""
    commits: ListOf[GitCommit] = ()
    """Commits in the Freight."""
    images: ListOf[Image] = ()
    """Images in the Freight."""
    charts: ListOf[Chart] = ()
    """Charts in the Freight."""
    artifacts: ListOf[ArtifactReference] = ()
    """Other artifacts in the Freight."""


class CurrentStage(Model):
    """That Freight is in a Stage now."""

    since: Time | None = None
    """When it got there."""


class VerifiedStage(Model):
    """That Freight has been verified in a Stage."""

    verified_at: Time | None = None
    """When it was verified."""
    longest_soak: Duration | None = None
    """The longest time it has stayed in the Stage without interruption, once it has left it."""


class ApprovedStage(Model):
    """That somebody approved Freight for a Stage."""

    approved_at: Time | None = None
    """When it was approved."""


class FreightStatus(Model):
    """Where Freight is and how far it got."""

    currently_in: Mapping[str, CurrentStage] = {}
    """Stages the Freight is in now."""
    verified_in: Mapping[str, VerifiedStage] = {}
    """Stages the Freight has been verified in."""
    approved_for: Mapping[str, ApprovedStage] = {}
    """Stages the Freight was approved for by hand."""
    metadata: JsonObject = {}
    """Free JSON set by promotion steps."""


class Freight(KubeObject):
    """Artifacts that move through the Stages together. They stand at the top level, and cannot change."""

    kind_name: ClassVar[str] = "Freight"

    alias: str = ""
    """A name for people, e.g. calm-otter; the label kargo.akuity.io/alias says the same."""
    discovered_at: Time | None = None
    """When the artifacts were discovered; creation time if absent."""
    origin: FreightOrigin
    """Where the Freight comes from, e.g. {kind: Warehouse, name: shop}. It cannot change."""
    commits: ListOf[GitCommit] = ()
    """Commits in the Freight."""
    images: ListOf[Image] = ()
    """Images in the Freight."""
    charts: ListOf[Chart] = ()
    """Charts in the Freight."""
    artifacts: ListOf[ArtifactReference] = ()
    """Other artifacts in the Freight."""
    status: FreightStatus = FreightStatus()
    """Where the Freight is and how far it got."""

    def reference(self) -> FreightReference:
        """The copy that Promotions and Stages record."""
        content = {
            name: value for name in ("commits", "images", "charts", "artifacts") if (value := getattr(self, name))
        }
        return FreightReference(name=self.name, origin=self.origin, **content)


def collection_id(names: Sequence[str]) -> str:
    """The id of a collection of Freight: SHA-1 in hex of the sorted names joined by commas."""
    return sha1(",".join(sorted(names)).encode(), usedforsecurity=False).hexdigest()


def soak(status: FreightStatus, stage: str, now: Time) -> timedelta:
    """How long Freight has stayed in *stage* at a stretch at most, zero unless it is verified there."""
    verified = status.verified_in.get(stage)
    if verified is None:
        return timedelta()
    longest = timedelta(seconds=verified.longest_soak.seconds) if verified.longest_soak else timedelta()
    current = status.currently_in.get(stage)
    if current is not None and current.since is not None:
        longest = max(longest, now.datetime - current.since.datetime)
    return longest
