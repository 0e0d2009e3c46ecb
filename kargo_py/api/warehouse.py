"""Warehouse: subscribes to repositories and makes Freight of what it finds there."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kargo_py.api.meta import Condition, KubeObject
from kargo_py.api.types import JsonObject, ListOf, Model, PlainDuration, Time

RepoURL = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
"""The URL of a repository."""

_Limit = Annotated[int, Field(ge=1, le=100)]


class GitSubscription(Model):
    """A subscription to the commits of a Git repository."""

    repo_url: RepoURL
    """URL of the repository, e.g. https://git.example.com/shop.git."""
    branch: str | None = None
    """Branch whose newest commit is taken, e.g. main. Default: the default branch of the repository."""
    commit_selection_strategy: Literal["Lexical", "NewestFromBranch", "NewestTag", "SemVer"] | None = None
    """How a commit is chosen: NewestFromBranch (the default) takes the newest of the branch, SemVer the tag with the
    greatest version, NewestTag the newest tag, Lexical the last tag by name."""
    semver_constraint: str = ""
    """Which versions SemVer may take, e.g. ^1.2.0. Default: any."""
    strict_semvers: bool | None = None
    """Whether a tag must have all three parts of a version, as v1.2.0 has. Default: true."""
    allow_tags_regexes: ListOf[str] = ()
    """Only tags that match one of these regular expressions are taken, e.g. ^release-. Default: all tags."""
    ignore_tags_regexes: ListOf[str] = ()
    """Tags that match one of these regular expressions are not taken."""
    include_paths: ListOf[str] = ()
    """Only commits that change one of these paths are taken, e.g. charts/shop, glob:*.yaml or regex:^apps/."""
    exclude_paths: ListOf[str] = ()
    """Commits that change nothing but these paths are not taken."""
    expression_filter: str = ""
    """An expression that must be true of a commit or tag, e.g. !(author contains 'bot')."""
    since: str | None = None
    """Commits from before this time are not taken, e.g. 2026-01-31T12:00:00Z."""
    blobless: bool | None = None
    """Whether to clone without the contents of files, which saves time with large repositories. Default: false."""
    discovery_limit: _Limit | None = None
    """How many commits are kept for people to choose from, 1 to 100. Default: 20."""
    insecure_skip_tls_verify: bool | None = Field(default=None, alias="insecureSkipTLSVerify")
    """Whether the certificate of the server goes unchecked. Default: false."""


class ImageSubscription(Model):
    """A subscription to the images of one repository in a container registry."""

    repo_url: RepoURL
    """Repository of the images, without tag, e.g. ghcr.io/example/shop."""
    image_selection_strategy: Literal["Digest", "Lexical", "NewestBuild", "SemVer"] | None = None
    """How an image is chosen: SemVer (the default) takes the tag with the greatest version, Digest whatever one mutable
    tag stands for, NewestBuild the newest image, Lexical the last tag by name."""
    constraint: str = ""
    """With SemVer, which versions may be taken, e.g. ^1.2.0 (default: any). With Digest, the mutable tag, e.g. latest;
    it must be given."""
    semver_constraint: str = ""
    """The older name of constraint."""
    strict_semvers: bool | None = None
    """Whether a tag must have all three parts of a version, as 1.2.0 has. Default: true."""
    platform: str = ""
    """Only images for this platform are taken, e.g. linux/amd64. Default: all."""
    allow_tags_regexes: ListOf[str] = ()
    """Only tags that match one of these regular expressions are taken, e.g. ^v. Default: all tags."""
    ignore_tags_regexes: ListOf[str] = ()
    """Tags that match one of these regular expressions are not taken."""
    cache_by_tag: bool | None = None
    """Whether what was read of a tag may be kept, because its tags are never moved. Default: false."""
    discovery_limit: _Limit | None = None
    """How many images are kept for people to choose from, 1 to 100. Default: 20."""
    insecure_skip_tls_verify: bool | None = Field(default=None, alias="insecureSkipTLSVerify")
    """Whether the certificate of the registry goes unchecked. Default: false."""


class ChartSubscription(Model):
    """A subscription to the versions of a Helm chart."""

    repo_url: RepoURL
    """Repository of the chart, e.g. https://charts.example.com (a classic one) or oci://ghcr.io/example/charts/shop."""
    name: Annotated[str, StringConstraints(max_length=253)] = ""
    """Name of the chart, e.g. shop. It must be given with a classic repository, and must not be with oci://."""
    semver_constraint: str = ""
    """Which versions may be taken, e.g. ^1.2.0. Default: any."""
    discovery_limit: _Limit | None = None
    """How many versions are kept for people to choose from, 1 to 100. Default: 20."""


class RepoSubscription(Model):
    """A subscription to one repository: exactly one of git, image, chart or another type that Kargo knows.

    A type that is not described here is kept as it is: its key holds config and discoveryLimit.
    """

    name: Annotated[str, StringConstraints(max_length=253)] = ""
    """Name of the subscription, e.g. frontend. Needed where two subscriptions of a Warehouse have the same URL; the
    artifacts carry it as subscriptionName."""
    git: GitSubscription | None = None
    """A Git repository, e.g. {repoURL: https://git.example.com/shop.git, branch: main}."""
    image: ImageSubscription | None = None
    """A repository of container images, e.g. {repoURL: ghcr.io/example/shop, constraint: ^1.2.0}."""
    chart: ChartSubscription | None = None
    """A Helm chart, e.g. {repoURL: oci://ghcr.io/example/charts/shop, semverConstraint: ^1.2.0}."""


class FreightCreationCriteria(Model):
    """When discovered artifacts become Freight."""

    expression: str = ""
    """An expression that must be true of the discovered artifacts, e.g.
    imageFrom('ghcr.io/example/shop').Tag == commitFrom('https://git.example.com/shop.git').Tag."""


class WarehouseSpec(Model):
    """What a Warehouse subscribes to."""

    shard: str = ""
    """Name of the shard whose controller is responsible, e.g. eu. Default: the controller of no shard."""
    interval: PlainDuration = PlainDuration("5m0s")
    """How often the repositories are looked at, e.g. 10m. Default: 5m0s."""
    freight_creation_policy: Literal["Automatic", "Manual"] = "Automatic"
    """Whether Freight is made of new artifacts by itself (Automatic, the default) or by people only (Manual)."""
    subscriptions: Annotated[ListOf[RepoSubscription], Field(min_length=1)]
    """The repositories; each entry has exactly one of git, image, chart or another type of subscription. Freight has
    one artifact for each."""
    freight_creation_criteria: FreightCreationCriteria | None = None
    """What must be true of new artifacts before Freight is made of them. Default: nothing."""


class DiscoveredCommit(Model):
    """A commit that was found."""

    id: str = ""
    """SHA of the commit."""
    branch: str = ""
    """Branch it was found on."""
    tag: str = ""
    """Tag it was found by."""
    subject: str = ""
    """First line of the commit message."""
    author: str = ""
    """Author of the commit."""
    committer: str = ""
    """Committer of the commit."""
    creator_date: Time | None = None
    """When the commit, or its annotated tag, was made."""


class GitDiscoveryResult(Model):
    """What was found in a Git repository."""

    repo_url: str = ""
    """URL of the repository."""
    subscription_name: str = ""
    """Name of the subscription."""
    commits: ListOf[DiscoveredCommit] = ()
    """Commits that fit the subscription, best first."""


class DiscoveredImageReference(Model):
    """An image that was found."""

    tag: str = ""
    """Tag of the image."""
    digest: str = ""
    """Digest of the image."""
    annotations: dict[str, str] = {}
    """Annotations of the image's manifest."""
    created_at: Time | None = None
    """When the image was built, where that is known."""


class ImageDiscoveryResult(Model):
    """What was found in an image repository."""

    repo_url: str = ""
    """Repository of the images, without tag."""
    platform: str = ""
    """The platform that the subscription asks for."""
    subscription_name: str = ""
    """Name of the subscription."""
    references: ListOf[DiscoveredImageReference] = ()
    """Images that fit the subscription, best first."""


class ChartDiscoveryResult(Model):
    """What was found of a Helm chart."""

    repo_url: str = ""
    """Repository of the chart."""
    name: str = ""
    """Name of the chart; empty in an OCI registry."""
    semver_constraint: str = ""
    """The versions that the subscription asks for."""
    subscription_name: str = ""
    """Name of the subscription."""
    versions: ListOf[str] = ()
    """Versions that fit the subscription, best first."""


class DiscoveredArtifacts(Model):
    """What a Warehouse found at its last look."""

    discovered_at: Time | None = None
    """When it looked."""
    git: ListOf[GitDiscoveryResult] = ()
    """Commits, by subscription."""
    images: ListOf[ImageDiscoveryResult] = ()
    """Images, by subscription."""
    charts: ListOf[ChartDiscoveryResult] = ()
    """Helm charts, by subscription."""
    results: ListOf[JsonObject] = ()
    """Artifacts of other types, by subscription."""


class WarehouseStatus(Model):
    """What a Warehouse found."""

    conditions: ListOf[Condition] = ()
    """Conditions: Ready, Reconciling, Healthy, FreightCreationCriteriaSatisfied, FreightCreated."""
    last_handled_refresh: str = ""
    """The value of the annotation kargo.akuity.io/refresh that was last acted on."""
    observed_generation: int = 0
    """The metadata.generation that was last acted on."""
    last_freight_id: str = ""
    """Name of the Freight made last."""
    discovered_artifacts: DiscoveredArtifacts | None = None
    """What was found at the last look."""


class Warehouse(KubeObject):
    """A source of Freight: it watches repositories, and makes Freight of the newest artifacts in them."""

    kind_name: ClassVar[str] = "Warehouse"

    spec: WarehouseSpec
    """What the Warehouse subscribes to."""
    status: WarehouseStatus = WarehouseStatus()
    """What it found."""
