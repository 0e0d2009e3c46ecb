"""Who manages which fields: ``metadata.managedFields`` of every writer, and server-side apply.

Pure functions of the live object, what was sent, and the time. :func:`update` is for all writers but apply;
:func:`apply` merges. ``reset`` names what a write through this (sub)resource cannot change: ``status`` in a write of
the resource, ``spec`` in one of its status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal

from kargo_py.local.apiserver import fieldsets
from kargo_py.local.apiserver.failures import Failure, bad_request, internal
from kargo_py.local.apiserver.fieldsets import BadFields, FieldSet, Path
from kargo_py.local.apiserver.fieldtypes import Types
from kargo_py.local.apiserver.gotext import compact
from kargo_py.local.apiserver.managedentries import Managed, Owned, Owner, decoded, stamp, written
from kargo_py.local.apiserver.structured import (
    Comparison,
    TypingFailed,
    compare,
    equal,
    everything,
    field_set,
    merge,
    validate,
    with_named,
    without,
)
from kargo_py.local.apiserver.wire import ABSENT, JsonObject, copied

_HEAD: Final = frozenset({"apiVersion", "kind", "metadata"})
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_UPDATERS: Final = 10
_MAX_ANNOTATIONS_SIZE: Final = 256 * 1024
_NO_FIELDS: Final = FieldSet()
_METADATA: Final = (
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
)
# the server's own fields belong to no manager
_NOBODYS: Final = FieldSet.of(
    *((fieldsets.field(name),) for name in ("apiVersion", "kind", "metadata")),
    *((fieldsets.field("metadata"), fieldsets.field(name)) for name in _METADATA),
)


@dataclass(frozen=True, slots=True)
class Applied:
    """The object that apply makes; nothing need be written if it has not ``changed``."""

    object: JsonObject
    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Through what a write comes: one version of a kind, or a subresource of it.

    ``others`` has the types of the kind's other versions by ``apiVersion``. Managers of versions that are not there
    are forgotten.
    """

    types: Types
    api_version: str
    kind: str
    subresource: str = ""
    reset: FieldSet = field(default_factory=FieldSet)
    others: Mapping[str, Types] = field(default_factory=dict)
    zero: JsonObject | None = None
    """What an object has in which nothing is set: a Go type's structs, which nobody manages for being there."""

    def types_of(self, api_version: str) -> Types | None:
        """The types of a version; None if the kind has no such version."""
        return self.types if api_version == self.api_version else self.others.get(api_version)

    def owner(self, manager: str, operation: Literal["Apply", "Update"]) -> Owner:
        """Whose entry a write is recorded in."""
        version = self.api_version if operation == "Update" else ""
        return Owner(manager or "unknown", operation, version, self.subresource)


def resets(*names: str) -> FieldSet:
    """``Writing.reset`` for top-level fields."""
    return FieldSet.of(*((fieldsets.field(name),) for name in names))


def update(live: JsonObject | None, new: JsonObject, *, manager: str, now: datetime, through: Writing) -> list[Any]:
    """``managedFields`` of *new*, which a create, an update or a patch puts in the place of *live*.

    An empty list: the field is to be absent. That is so when the client has reset it, or nobody has ever been tracked.
    """
    managed = _sent_or_live(live, new, through)
    if managed is None and live is not None:
        return []
    managed = managed or {}
    try:
        if ignored := _ignored(live, new, through):  # all else is of its types, or will be refused
            validate(through.types.root, ignored, duplicates=True)
    except TypingFailed:
        return written(managed, through.types_of)
    try:
        managed = _updated(live, new, managed, manager, now, through)
    except TypingFailed:
        return []
    return written(managed, through.types_of)


def _ignored(live: JsonObject | None, new: JsonObject, through: Writing) -> JsonObject:
    """What is written to a part of the object that is not written through this (sub)resource."""
    if not through.reset:
        return {}
    in_status = through.subresource == "status"
    return {
        name: value
        for name, value in new.items()
        if (name == "status") != in_status and name not in _HEAD and (live is None or live.get(name) != value)
    }


def apply(
    live: JsonObject | None,
    applied: JsonObject,
    *,
    manager: str,
    now: datetime,
    through: Writing,
    force: bool = False,
) -> Applied:
    """Merge *applied* into *live*, or create it; the result is a copy that the caller may change.

    Raises:
        Failure: 409 for fields that others manage, 400 for what may not be applied, 500 for what is not of the types.
    """
    _check_kind(applied, through)
    metadata = _metadata(applied)
    if metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    base = {"apiVersion": through.api_version, "kind": through.kind} if live is None else _bare(live)
    entries = _metadata(live or {}).get("managedFields")
    try:
        managed = decoded(entries, through.types_of)
    except BadFields as error:
        raise internal(f"failed to decode managed fields: {error}") from error
    try:
        if not entries and live is not None:
            _check_live(live, base, through)
            managed = _updated(None, live, managed, "before-first-apply", now, through)
        merged, managed, changed = _applied_by(base, applied, managed, manager, now, through, force=force)
    except TypingFailed as failure:
        raise internal(f"failed to merge: {failure}") from failure
    copy = copied(merged)
    if manager == "kubectl":
        _update_last_applied(copy, applied)
    entries = written(managed, through.types_of)
    own = copy["metadata"] = copy.get("metadata") or {}
    if entries:
        own["managedFields"] = entries
    else:
        own.pop("managedFields", None)
    changed = changed or live is None or entries != (_metadata(live).get("managedFields") or [])
    return Applied(copy, changed or own.get("annotations") != _metadata(live or {}).get("annotations"))


def with_old_times(live: JsonObject, new: JsonObject) -> JsonObject:
    """*live* itself if *new* differs from it only in the times of its managedFields, which are no reason to write."""
    before, after = _metadata(live).get("managedFields") or [], _metadata(new).get("managedFields") or []
    if len(before) != len(after) or not equal(_bare(live), _bare(new)):
        return new
    timeless = [[{**entry, "time": None} for entry in entries] for entries in (before, after)]
    return live if timeless[0] == timeless[1] else new


# Entries


def _sent_or_live(live: JsonObject | None, new: JsonObject, through: Writing) -> Managed | None:
    """What the client sent, or what was there if it sent nothing that can be read; None: nobody is tracked.

    A reset is sent as nothing.
    """
    sent = _metadata(new).get("managedFields") if not through.subresource else None
    mine = _metadata(live or {}).get("managedFields")
    if sent == mine:
        sent = None
    if isinstance(sent, list):
        if not sent or (len(sent) == 1 and isinstance(sent[0], dict) and not any(sent[0].values())):
            return None
        with suppress(BadFields):
            return decoded(sent, through.types_of)
    try:
        return decoded(mine, through.types_of) if mine else None
    except BadFields:
        return None


# Changes


class _Conflicts(Exception):
    """Fields that somebody else manages."""

    def __init__(self, found: Sequence[tuple[Owner, Path]]) -> None:
        super().__init__(f"{len(found)} conflicts")
        self.found = found


def _updated(
    live: JsonObject | None, new: JsonObject, managed: Managed, manager: str, now: datetime, through: Writing
) -> Managed:
    """Give what *new* changes to *manager*, and take it from all others."""
    managed, found = _settled(live, new, managed, None, through)
    taken = (found.modified | found.added) - _NOBODYS
    if taken:
        owner = through.owner(manager, "Update")
        previous = managed.get(owner)
        fields = taken | previous.fields if previous else taken
        managed[owner] = Owned(fields, through.api_version, stamp(now))
    return _capped(managed)


def _settled(
    live: JsonObject | None,
    new: JsonObject,
    managed: Managed,
    applier: Owner | None,
    through: Writing,
    *,
    force: bool = True,
) -> tuple[Managed, Comparison]:
    """Take from all but *applier* what has changed; and the changes.

    Raises:
        _Conflicts: somebody else manages what has changed, and *force* is not set.
    """
    own = _compared(live or through.zero, new, through.types)
    comparisons = {through.api_version: own.without_trees(through.reset)}
    settled: Managed = {}
    conflicts: list[tuple[Owner, Path]] = []
    for owner, owned in managed.items():
        if owner == applier:
            settled[owner] = owned
            continue
        if owned.api_version not in comparisons:
            types = through.types_of(owned.api_version)
            comparisons[owned.api_version] = _compared(live, new, types) if types else Comparison()
        found = comparisons[owned.api_version]
        fields = owned.fields
        if lost := fields & (found.modified | found.added):
            conflicts += ((owner, path) for path in lost)
            fields -= lost
        if found.removed:
            fields -= found.removed
        if fields:
            settled[owner] = owned if fields == owned.fields else owned.having(fields)
    if conflicts and not force:
        raise _Conflicts(sorted(conflicts, key=lambda conflict: conflict[0].identifier))
    return settled, comparisons[through.api_version]


def _compared(live: JsonObject | None, new: JsonObject, types: Types) -> Comparison:
    if live is None:
        return Comparison(added=everything(types.root, _bare(new)))
    return compare(types.root, _bare(live), _bare(new))


def _capped(managed: Managed) -> Managed:
    """Put the oldest updates together when there are too many."""
    updaters = [owner for owner in managed if owner.operation == "Update"]
    if len(updaters) <= _MAX_UPDATERS:
        return managed
    updaters.sort(key=lambda owner: (managed[owner].time or "", owner.identifier))
    first: dict[str, Owner] = {}
    left = len(updaters)
    for owner in updaters:
        if left <= _MAX_UPDATERS:
            break
        owned = managed[owner]
        bucket = Owner("ancient-changes", "Update", owned.api_version, "")
        if owned.api_version not in first:
            first[owned.api_version] = owner
            continue
        if bucket not in managed:
            managed[bucket] = managed.pop(first[owned.api_version])
        fields = owned.fields | managed[bucket].fields
        managed[bucket] = Owned(fields, owned.api_version, owned.time)
        managed.pop(owner, None)
        left -= 1
    return managed


# Apply


def _check_kind(applied: JsonObject, through: Writing) -> None:
    api_version, kind = applied.get("apiVersion") or "", applied.get("kind") or ""
    if (api_version, kind) != (through.api_version, through.kind):
        raise bad_request(f"invalid object type: {_kind_shown(api_version, kind)}")


def _check_live(live: JsonObject, bare: JsonObject, through: Writing) -> None:
    """That what is there can be managed, which nobody has ever checked. Raises Failure."""
    try:
        validate(through.types.root, bare, duplicates=True)
    except TypingFailed as failure:
        what = f"failed to convert new object ({_named(live)}) to smd typed"
        raise internal(f"failed to create manager for existing fields: {what}: {failure}") from failure


def _kind_shown(api_version: Any, kind: Any) -> str:
    group, _, version = _text(api_version).rpartition("/")
    return f"{group}/{version}, Kind={_text(kind)}"


def _applied_by(
    live: JsonObject,
    applied: JsonObject,
    managed: Managed,
    manager: str,
    now: datetime,
    through: Writing,
    *,
    force: bool,
) -> tuple[JsonObject, Managed, bool]:
    try:
        return _merged(live, applied, managed, manager, now, through, force=force)
    except _Conflicts as conflicts:
        found = conflicts.found
        if manager == "kubectl" and (allowed := _last_applied_fields(live, through)) is not None:
            # kubectl owns what it has applied from the client's side before
            found = [(owner, path) for owner, path in found if path not in allowed]
            if not found:
                return _merged(live, applied, managed, manager, now, through, force=True)
        raise _conflict(found) from None


def _merged(
    live: JsonObject,
    applied: JsonObject,
    managed: Managed,
    manager: str,
    now: datetime,
    through: Writing,
    *,
    force: bool,
) -> tuple[JsonObject, Managed, bool]:
    """The new object, who manages it, and whether it is new at all."""
    root = through.types.root
    try:
        validate(root, applied)
    except TypingFailed as failure:
        raise internal(f"failed to create typed patch object ({_named(applied)}): {failure}") from failure
    owner = through.owner(manager, "Apply")
    last = managed.get(owner)
    merged = merge(root, live, applied)
    fields = field_set(root, applied).without_trees(through.reset)
    managed = {**managed, owner: Owned(fields, through.api_version, last.time if last else None)}
    if last and last.fields:
        merged = _pruned(merged, managed, last, through)
    managed, _ = _settled(live, merged, managed, owner, through, force=force)
    changed = not equal(live, merged)
    owned = managed[owner]
    owned = owned.having(owned.fields - _NOBODYS)
    if last and not changed and last.fields == owned.fields and last.api_version == owned.api_version:
        managed[owner] = last
    elif owned.fields:
        managed[owner] = replace(owned, time=stamp(now)) if changed else owned
    else:
        del managed[owner]
    return merged, managed, changed


def _pruned(merged: JsonObject, managed: Managed, last: Owned, through: Writing) -> JsonObject:
    """Remove what the applier applied before and no longer does, unless somebody else manages it."""
    types = through.types_of(last.api_version)
    if types is None:
        return merged
    claimed, dropped = _NO_FIELDS, last.fields
    for owned in managed.values():
        claimed |= owned.fields
        dropped -= owned.fields
    if not dropped:
        return merged
    root = types.root
    applied_before = with_named(root, last.fields)
    everything_merged = with_named(root, field_set(root, merged))
    pruned = without(root, merged, applied_before)
    left = with_named(root, field_set(root, pruned))
    pruned = without(root, merged, everything_merged - (left | with_named(root, claimed)))
    left = with_named(root, field_set(root, pruned))
    result: JsonObject = without(root, merged, (everything_merged - left) & applied_before)
    return result


def _last_applied_fields(live: JsonObject, through: Writing) -> FieldSet | None:
    """The fields that kubectl's annotation says were applied from the client's side, and that are still so."""
    root = through.types.root
    try:
        before = json.loads(_annotations(live)[LAST_APPLIED])
        if before["apiVersion"] != through.api_version or not before["kind"]:
            return None
        validate(root, live)
        validate(root, before)
        found = compare(root, before, live)
        return field_set(root, before) - found.modified - found.added - found.removed
    except (KeyError, TypeError, ValueError, RecursionError, TypingFailed):
        return None


def _update_last_applied(obj: JsonObject, applied: JsonObject) -> None:
    """Keep kubectl's annotation true where it is used."""
    annotations = _annotations(obj)
    if not annotations.get(LAST_APPLIED):
        return
    sent = copied(applied)
    if LAST_APPLIED in _annotations(sent):
        del sent["metadata"]["annotations"][LAST_APPLIED]
    annotations[LAST_APPLIED] = compact(sent) + "\n"
    if sum(len(name.encode()) + len(str(text).encode()) for name, text in annotations.items()) > _MAX_ANNOTATIONS_SIZE:
        del annotations[LAST_APPLIED]


def _conflict(found: Sequence[tuple[Owner, Path]]) -> Failure:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {owner}", "field": fieldsets.shown(path)}
        for owner, path in found
    ]
    if len(found) == 1:
        owner, path = found[0]
        message = f"Apply failed with 1 conflict: conflict with {owner}: {fieldsets.shown(path)}"
    else:
        lines = []
        for owner in sorted({owner for owner, _ in found}, key=lambda owner: owner.identifier):
            lines.append(f"conflicts with {owner}:")
            lines += (f"- {fieldsets.shown(path)}" for holder, path in found if holder == owner)
        message = f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)
    return Failure(409, "Conflict", message, {"causes": causes})


# Objects


def _named(obj: JsonObject) -> str:
    metadata = _metadata(obj)
    kind = _kind_shown(obj.get("apiVersion"), obj.get("kind"))
    namespace, name = (_text(metadata.get(field)) for field in ("namespace", "name"))
    return f"{namespace}/{name}; {kind}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _metadata(obj: JsonObject) -> JsonObject:
    metadata = obj.get("metadata", ABSENT)
    return metadata if isinstance(metadata, dict) else {}


def _annotations(obj: JsonObject) -> dict[str, Any]:
    annotations = _metadata(obj).get("annotations")
    return annotations if isinstance(annotations, dict) else {}


def _bare(obj: JsonObject) -> JsonObject:
    """*obj* without its managedFields, which do not manage themselves."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {name: below for name, below in metadata.items() if name != "managedFields"}}
