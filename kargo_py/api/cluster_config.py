"""ClusterConfig: settings for all Projects of a cluster. There is one, and its name is cluster."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import StringConstraints

from kargo_py.api.meta import KubeObject
from kargo_py.api.receivers import ConfigStatus, WebhookReceiver
from kargo_py.api.types import Json, ListOf, Model


class SecretReference(Model):
    """Names a Secret."""

    name: str = ""
    """Name of the Secret."""


class GitClientConfig(Model):
    """Who makes the commits of promotion steps."""

    name: Annotated[str, StringConstraints(min_length=1)]
    """Name of the committer, e.g. Kargo."""
    email: Annotated[str, StringConstraints(min_length=1)]
    """Address of the committer, e.g. kargo@example.com."""
    signing_key_secret: SecretReference | None = None
    """A Secret whose key signingKey holds the GPG key that commits are signed with. Default: they are not signed."""


class ClusterConfigSpec(Model):
    """Settings for all Projects."""

    webhook_receivers: ListOf[WebhookReceiver] = ()
    """Where registries and Git hosts tell of something new. kargo-py receives nothing and keeps this for Kargo."""
    git_client: GitClientConfig | None = None
    """Who makes the commits of promotion steps, e.g. {name: Kargo, email: kargo@example.com}."""
    freight_links: Json = None
    """Links that Kargo's user interface shows beside Freight."""
    stage_links: Json = None
    """Links that Kargo's user interface shows beside a Stage."""
    promotion_windows: Json = None
    """Only the commercial Kargo acts on this."""


class ClusterConfig(KubeObject):
    """Settings for all Projects of the cluster. There is one, and its name is cluster."""

    kind_name: ClassVar[str] = "ClusterConfig"

    spec: ClusterConfigSpec = ClusterConfigSpec()
    """The settings."""
    status: ConfigStatus = ConfigStatus()
    """How they were taken."""
