"""What a start asks of the operation beside syncing everything to what the spec says.

The fields are those of Argo CD's ``operation.sync``. Argo CD ignores ``revision`` on an Application with ``sources``,
and a list ``revisions`` of the wrong length altogether, syncs to the targetRevisions and says Succeeded: so a
revision goes into the field that counts for the Application at hand, or is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kargo_py.argocd.application import Spec
from kargo_py.messages import Shown, message

REVISION_OF_SEVERAL = message(
    "has {count} sources, so that revision does not say which of them is meant; give revisions, one for each source",
    do="Follows the name of the Application. Replace `revision` in the step's config by the list `revisions`, in the "
    'order of `spec.sources`; `""` stands for the source\'s own `targetRevision`.',
    shown=Shown.PROMOTION,
)
REVISIONS_OF_OTHERS = message(
    "has {count} sources, while revisions has {given} entries",
    do="Follows the name of the Application. Give `revisions` in the step's config one entry for each source, in "
    'their order; `""` stands for the source\'s own `targetRevision`.',
    shown=Shown.PROMOTION,
)


class OptionsError(ValueError):
    """Options that do not fit an Application."""


class ResourceName(msgspec.Struct, frozen=True, omit_defaults=True):
    """One resource of a partial sync; no namespace: in any."""

    kind: str
    name: str
    group: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        kind = f"{self.kind}.{self.group}" if self.group else self.kind
        return f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name}"


class SyncOptions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How to sync; as JSON these are fields of ``operation.sync``. ``resources``: these only. Revisions: "" is none."""

    prune: bool = False
    dry_run: bool = False
    resources: tuple[ResourceName, ...] = ()
    revision: str = ""
    revisions: tuple[str, ...] = ()

    def wire(self) -> dict[str, Any]:
        """As it stands in ``operation.sync``."""
        # Not to_builtins: it keeps tuples, which are not equal to the lists that come back.
        built: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return built

    @property
    def asked(self) -> tuple[str, ...]:
        """The revisions asked for, one per source; empty if none is."""
        return self.revisions or ((self.revision,) if self.revision else ())


EVERYTHING = SyncOptions()
"""Sync all to what the spec says."""


def fitted(options: SyncOptions, spec: Spec) -> SyncOptions:
    """*options* with the revision in the field that counts for *spec*; raises OptionsError."""
    asked, count = options.asked, len(spec.effective_sources)
    if not any(asked):
        return msgspec.structs.replace(options, revision="", revisions=())
    if options.revision and count != 1:
        raise OptionsError(REVISION_OF_SEVERAL(count=count))
    if len(asked) != count:
        raise OptionsError(REVISIONS_OF_OTHERS(count=count, given=len(asked)))
    if spec.has_multiple_sources:
        return msgspec.structs.replace(options, revision="", revisions=asked)
    return msgspec.structs.replace(options, revision=asked[0], revisions=())


def demanded(desired: Sequence[str], options: SyncOptions) -> tuple[str, ...]:
    """The revisions that must have been applied: the *desired* ones, and where none is desired the one asked for."""
    asked = options.asked
    if not asked or (desired and len(desired) != len(asked)):
        return tuple(desired)
    return tuple(want or name for want, name in zip(desired or [""] * len(asked), asked, strict=True))
