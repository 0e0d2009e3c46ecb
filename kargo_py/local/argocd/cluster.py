"""The destination: what was applied, which hooks run, and what the controller's cache has seen of it.

It goes on while the controller is down, and it lags: a refresh reads the cache, so the first verdict after an operation
is often the old one (spec 1.10).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kargo_py.kube.resources import Key
from kargo_py.local.argocd.engine import Live, Manifest, Pass, ResourceId


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that lives, and the Application it belongs to."""

    content: str
    owner: Key


@dataclass(slots=True)
class Cluster:
    """One destination for all Applications; resources of the same name are the same resource."""

    resources: dict[ResourceId, Resource] = field(default_factory=dict)
    cached: dict[ResourceId, Resource] = field(default_factory=dict)
    hooks: dict[Key, dict[ResourceId, str]] = field(default_factory=dict)
    held: set[Key] = field(default_factory=set)
    """Applications whose deleted hooks stay."""

    def live(self, owner: Key) -> Live:
        """What the sync of an Application finds."""
        contents = {name: resource.content for name, resource in self.resources.items()}
        owned = frozenset(name for name, resource in self.resources.items() if resource.owner == owner)
        return Live(contents, dict(self.hooks.get(owner, {})), owned, deletions_hang=owner in self.held)

    def carry_out(self, owner: Key, done: Pass) -> bool:
        """Do what a pass did; says whether a refresh will see a difference."""
        hooks = self.hooks.setdefault(owner, {})
        hooks |= dict.fromkeys(done.hooks_deleted, "Deleting")
        if owner not in self.held:
            self.release(owner)
        hooks |= dict.fromkeys(done.hooks_started, "Running")
        for name in done.pruned:
            del self.resources[name]
        return self.apply(owner, done.applied) or bool(done.hooks_started or done.pruned)

    def apply(self, owner: Key, manifests: Iterable[Manifest]) -> bool:
        """Make resources live; says whether anything changed."""
        before = dict(self.resources)
        self.resources |= {manifest.id: Resource(manifest.content, owner) for manifest in manifests}
        return before != self.resources

    def release(self, owner: Key) -> None:
        """Let hooks that are being deleted go."""
        hooks = self.hooks.get(owner, {})
        for name in [name for name, phase in hooks.items() if phase == "Deleting"]:
            del hooks[name]

    def catch_up(self) -> None:
        """Let the cache see everything."""
        self.cached = dict(self.resources)
