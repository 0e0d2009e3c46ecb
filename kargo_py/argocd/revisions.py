"""Whether the revision that was applied is the one that was wanted.

Argo CD resolves what it syncs to (a branch, a tag, a chart version range) to a commit or version before it applies it,
and records that in ``operationState.syncResult``. A full SHA or a prefix of at least 7 hex digits is compared with it;
any other text is met when the operation was told, or the source said, to sync to exactly that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kargo_py.argocd.application import JsonObject, OperationState

_FULL_SHA = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")
_SHA_PREFIX = re.compile(r"[0-9a-f]{7,64}")


def matches(desired: str, applied: str) -> bool:
    """True if *applied*, a resolved revision, is *desired*: equal, or a SHA that *desired* abbreviates."""
    if desired == applied:
        return True
    prefix = desired.lower()
    return bool(_SHA_PREFIX.fullmatch(prefix)) and bool(_SHA_PREFIX.fullmatch(applied)) and applied.startswith(prefix)


def unmet(desired: Sequence[str], state: OperationState) -> str | None:
    """Why the completed operation did not apply *desired* (one entry per source, "" = no opinion); None if it did."""
    if not any(desired):
        return None
    result = state.sync_result
    if result is None or not result.applied:
        return f"Argo CD did not record which revision it applied; wanted {_join(desired)}"
    applied = result.applied
    if len(applied) != len(desired):
        return f"it applied {len(applied)} sources ({_join(applied)}), while {len(desired)} were wanted"
    asked = _asked_for(state, len(desired))
    for want, got, name in zip(desired, applied, asked, strict=True):
        by_name = want == name and not _FULL_SHA.fullmatch(want)
        if want and not by_name and not matches(want, got):
            return f"it applied revision {got}, not the desired {want}"
    return None


def resolved(desired: Sequence[str], applied: Sequence[str]) -> tuple[str, ...]:
    """The commits to hold the Application to from now on: where *desired* has an opinion, what it resolved to."""
    if len(applied) != len(desired):
        return tuple(desired)
    return tuple(got if want else "" for want, got in zip(desired, applied, strict=True))


def _asked_for(state: OperationState, count: int) -> list[str]:
    """Per source the name (branch, tag, version) the operation was to resolve, "" where unknown."""
    result = state.sync_result
    sources: Sequence[JsonObject] = ()
    if result is not None:
        sources = result.sources or ([result.source] if result.source else ())
    sync = state.operation.get("sync") or {}
    own = sync.get("revisions") if count > 1 else [sync.get("revision")]
    names = [str(source.get("targetRevision") or "") for source in sources]
    names = names if len(names) == count else [""] * count
    if isinstance(own, list) and len(own) == count:
        names = [str(mine) if mine else theirs for mine, theirs in zip(own, names, strict=True)]
    return names


def _join(revisions: Sequence[str]) -> str:
    return ", ".join(revision or "any" for revision in revisions)
