"""What ProjectConfig and ClusterConfig have in common: receivers of webhooks, and their status.

kargo-py receives no webhooks and has no user interface. These fields are checked as Kargo checks them, and kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from kargo_py.api.meta import Condition
from kargo_py.api.types import JsonObject, KubernetesName, ListOf, Model


class WebhookReceiver(Model):
    """Where a registry or a Git host tells of something new: exactly one type of receiver, under a name."""

    name: KubernetesName
    """Name of the receiver, unique among its neighbours, e.g. github-shop."""
    artifactory: JsonObject | None = None
    """JFrog Artifactory, e.g. {secretRef: {name: webhook}}."""
    azure: JsonObject | None = None
    """Azure Container Registry and Azure DevOps, e.g. {secretRef: {name: webhook}}."""
    bitbucket: JsonObject | None = None
    """Bitbucket, e.g. {secretRef: {name: webhook}}."""
    dockerhub: JsonObject | None = None
    """Docker Hub, e.g. {secretRef: {name: webhook}}."""
    generic: JsonObject | None = None
    """Anything that can send JSON: {secretRef: {name: webhook}, actions: [...]}."""
    gitea: JsonObject | None = None
    """Gitea, e.g. {secretRef: {name: webhook}}."""
    github: JsonObject | None = None
    """GitHub, e.g. {secretRef: {name: webhook}}."""
    gitlab: JsonObject | None = None
    """GitLab, e.g. {secretRef: {name: webhook}}."""
    harbor: JsonObject | None = None
    """Harbor, e.g. {secretRef: {name: webhook}}."""
    quay: JsonObject | None = None
    """Quay, e.g. {secretRef: {name: webhook}}."""


RECEIVER_TYPES: Sequence[str] = tuple(name for name in WebhookReceiver.model_fields if name != "name")
"""The types of receivers that are known here."""


class WebhookReceiverDetails(Model):
    """Where a receiver can be reached."""

    name: str = ""
    """Name of the receiver."""
    path: str = ""
    """Path of its address."""
    url: str = ""
    """Its whole address."""


class ConfigStatus(Model):
    """How the settings were taken."""

    conditions: ListOf[Condition] = ()
    """Conditions: Ready."""
    observed_generation: int = 0
    """The metadata.generation that was last acted on."""
    last_handled_refresh: str = ""
    """The value of the annotation kargo.akuity.io/refresh that was last acted on."""
    webhook_receivers: ListOf[WebhookReceiverDetails] = ()
    """Where the receivers can be reached."""
