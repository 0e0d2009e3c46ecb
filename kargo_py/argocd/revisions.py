"""Whether the revision that was applied is the one that was wanted.

Argo CD resolves what it syncs to (a branch, a tag, a chart version range) to a commit or version before it applies it,
and records that in ``operationState.syncResult``. A full SHA or a prefix of at least 7 hex digits is compared with it;
any other text is met when the operation was told, or the source said, to sync to exactly that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kargo_py.argocd.application import Application, JsonObject, OperationState, SourceName
from kargo_py.messages import Shown, message

REVISION_NOT_RECORDED = message(
    "Argo CD did not record which revision it applied; wanted {desired}",
    do="Part of *the sync succeeded, but …*. Look in Argo CD at what the Application runs; promote again if it is "
    "something else.",
    shown=Shown.PROMOTION,
)
APPLIED_OTHER_COUNT = message(
    "it applied {count} sources ({applied}), while {desired} were wanted",
    do="Part of *the sync succeeded, but …*: the number of the Application's sources was changed meanwhile. Promote "
    "again.",
    shown=Shown.PROMOTION,
)
APPLIED_OTHER = message(
    "it applied revision {applied}, not the desired {desired}",
    do="Part of *the sync succeeded, but …*. The source's `targetRevision` leads to the applied one: set "
    "`updateTargetRevision: true` or correct `desiredRevision` of the step.",
    shown=Shown.PROMOTION,
)
APPLIED_LATER = message(
    "the history has {desired} as sync {was} and {applied} as sync {now}",
    do="Part of *which is accepted because …*: the numbers are those of the entries in `status.history` of the "
    "Application. Nothing to do.",
    shown=Shown.PROMOTION,
)

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
        return REVISION_NOT_RECORDED(desired=_join(desired))
    applied = result.applied
    if len(applied) != len(desired):
        return APPLIED_OTHER_COUNT(count=len(applied), applied=_join(applied), desired=len(desired))
    asked = _asked_for(state, len(desired))
    for want, got, name in zip(desired, applied, asked, strict=True):
        by_name = want == name and not _FULL_SHA.fullmatch(want)
        if want and not by_name and not matches(want, got):
            return APPLIED_OTHER(applied=got or "unknown", desired=want)
    return None


def newer_than_desired(app: Application, desired: Sequence[str], applied: Sequence[str]) -> str | None:
    """How the history of *app* shows each applied revision to be later than the desired one of the same source.

    That is: the desired revision was synced from this source before, and the applied one after it. None if it does not.
    """
    origins = app.spec.effective_sources
    if len(applied) != len(desired) or len(origins) != len(desired):
        return None
    shown = []
    for index, (want, got) in enumerate(zip(desired, applied, strict=True)):
        if not want or matches(want, got):
            continue
        ids = {
            revision: entry.id
            for entry in sorted(app.status.history, key=lambda entry: entry.id)
            if len(entry.applied) == len(entry.origins) == len(desired)
            and _same_source(entry.origins[index], origins[index])
            for revision in [entry.applied[index]]
        }
        was = max((number for revision, number in ids.items() if matches(want, revision)), default=None)
        now = ids.get(got)
        if was is None or now is None or now <= was:
            return None
        shown.append(APPLIED_LATER(desired=want, was=was, applied=got, now=now))
    return "; ".join(shown) or None


def _same_source(entry: SourceName, source: JsonObject) -> bool:
    return (entry.repo_url, entry.chart, entry.path) == tuple(
        str(source.get(name) or "") for name in ("repoURL", "chart", "path")
    )


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
