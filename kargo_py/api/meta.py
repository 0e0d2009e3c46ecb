"""Object metadata, conditions, and the base of all kinds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

from kargo_py.api.types import ListOf, Model, Time

GROUP = "kargo.akuity.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

MAX_CONDITION_MESSAGE = 32768


class OwnerReference(Model):
    """Names the object this one belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Model):
    """Standard object metadata, as far as it is read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: ListOf[str] = ()
    owner_references: ListOf[OwnerReference] = ()


class KubeObject(Model):
    """Base of the kinds; ``kind_name`` is what stands in ``kind``."""

    kind_name: ClassVar[str]

    api_version: str = API_VERSION
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """``metadata.namespace``, the Project; "" for cluster-scoped kinds."""
        return self.metadata.namespace


class Condition(Model):
    """One aspect of an object's current state."""

    type: str
    """Type of the condition, in CamelCase."""
    status: str
    """Status of the condition: True, False or Unknown."""
    reason: str = ""
    """Reason for the last transition, in CamelCase."""
    message: str = ""
    """Details about the transition, for people."""
    last_transition_time: Time | None = None
    """The last time the status changed from one value to another."""
    observed_generation: int | None = None
    """The metadata.generation that the condition was set for."""


def set_condition(conditions: Iterable[Condition], new: Condition, now: datetime) -> tuple[Condition, ...]:
    """*conditions* with *new* in the place of the one of its type; the rest keep their order.

    By Kubernetes' rules: ``lastTransitionTime`` moves exactly when the status changes.
    """
    rest = list(conditions)
    known = next((index for index, old in enumerate(rest) if old.type == new.type), len(rest))
    kept = next((old.last_transition_time for old in rest[known : known + 1] if old.status == new.status), None)
    cut = new.message.encode()[:MAX_CONDITION_MESSAGE].decode(errors="ignore")
    fresh = new.replace(message=cut, last_transition_time=kept or Time.of(now))
    return (*rest[:known], fresh, *drop_condition(rest[known:], new.type))


def drop_condition(conditions: Iterable[Condition], type_: str) -> tuple[Condition, ...]:
    """*conditions* without the one of *type_*."""
    return tuple(c for c in conditions if c.type != type_)
