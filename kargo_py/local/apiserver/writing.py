"""Creates, updates, patches and deletions: the order in which the real server looks at them, and its words.

Everything here works on private copies; only the store's ``put`` and ``remove`` change what others see, and they come
last. A dry run is the same without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, Final
from uuid import UUID

from kargo_py.local.apiserver import managed, objectmeta
from kargo_py.local.apiserver.catalogue import Catalogue
from kargo_py.local.apiserver.failures import (
    MODIFIED,
    Cause,
    Failure,
    FieldError,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
)
from kargo_py.local.apiserver.kinds import DEFINITIONS, NAMESPACES, Kind
from kargo_py.local.apiserver.objectmeta import FOREGROUND, ORPHAN
from kargo_py.local.apiserver.options import DeleteOptions, WriteOptions
from kargo_py.local.apiserver.reading import unsigned
from kargo_py.local.apiserver.store import Store, Stored, TooLarge, object_key
from kargo_py.local.apiserver.structured import equal
from kargo_py.local.apiserver.views import in_order, private, shown
from kargo_py.local.apiserver.wire import JsonObject, copied, encode

_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # as Kubernetes: no vowels, no digits that look like letters
_SUFFIX_LENGTH: Final = 5
_LONGEST_BASE: Final = 63 - _SUFFIX_LENGTH
_GENERATE_TRIES: Final = 8
_UNDELETABLE: Final = frozenset({"default", "kube-system", "kube-public"})
_STATUS_RESET: Final = managed.resets("status")
_ALL_BUT_STATUS_RESET: Final = managed.resets("spec")
CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about."""

    kind: Kind
    namespace: str
    name: str
    subresource: str = ""

    @property
    def missing(self) -> Failure:
        """404."""
        return not_found(self.kind.group, self.kind.plural, self.name)


@dataclass(frozen=True, slots=True)
class Written:
    """The object as it is now (in a dry run: would be), and what it replaced."""

    stored: Stored
    created: bool = False
    old: JsonObject | None = None


class Writer:
    """All that changes the store."""

    def __init__(self, store: Store, catalogue: Catalogue, now: Callable[[], datetime], random: Random) -> None:
        self._store = store
        self._catalogue = catalogue
        self._now = now
        self._random = random
        self._through: dict[tuple[Kind, str], managed.Writing] = {}
        self._through_generation = catalogue.generation

    # Create

    def create(self, target: Target, obj: JsonObject, options: WriteOptions) -> Written:
        """Store *obj*, which is the writer's from now on. Raises Failure."""
        kind, metadata = target.kind, obj["metadata"]
        self._place(target, metadata)
        name = metadata.get("name") or ""
        self._admit_to_namespace(target, name or metadata.get("generateName", ""))
        self._admit_custom(target, name)
        self._begin(kind, metadata)
        generated = not name and bool(metadata.get("generateName"))
        for attempt in range(_GENERATE_TRIES if generated else 1):
            if generated:
                metadata["name"] = self._generated(metadata["generateName"])
            if attempt == 0:
                self._prepare(kind, obj, None, "", options.manager)
                self._validate_new(kind, obj)
            if _number_or_none(metadata.get("resourceVersion") or "") and not options.dry_run:
                raise Failure(500, "", "resourceVersion should not be set on objects to be created")
            key = object_key(metadata.get("namespace", ""), metadata["name"])
            there = self._catalogue.collection(kind).items.get(key)
            if there is None:
                return Written(self._put(kind, obj, dry_run=options.dry_run), created=True)
        leaving = there is not None and "deletionTimestamp" in there.obj["metadata"]
        failure = already_exists(kind.group, kind.plural, metadata["name"], leaving=leaving)
        if metadata.get("generateName"):  # also where it was not used
            failure.message += ", the server was not able to generate a unique name for the object"
            failure.details = {**(failure.details or {}), "retryAfterSeconds": 1}
            failure.headers["Retry-After"] = "1"
        raise failure

    def _place(self, target: Target, metadata: JsonObject) -> None:
        if not target.kind.namespaced:
            metadata.pop("namespace", None)
            return
        if metadata.get("namespace") not in {None, "", target.namespace}:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = target.namespace

    def _admit_to_namespace(self, target: Target, name: str) -> None:
        if not target.kind.namespaced:
            return
        namespace = self._store.collection(*NAMESPACES).items.get(target.namespace)
        if namespace is None:
            raise not_found(*NAMESPACES, target.namespace)
        if "deletionTimestamp" not in namespace.obj["metadata"]:
            return
        kind = target.kind
        details: JsonObject = {"name": name, "group": kind.group, "kind": kind.plural}
        details["causes"] = [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {target.namespace} is being terminated",
                "field": "metadata.namespace",
            }
        ]
        why = f"unable to create new content in namespace {target.namespace} because it is being terminated"
        message = f'{kind.qualified} "{name}" is forbidden: {why}'
        raise Failure(403, "Forbidden", message, {key: value for key, value in details.items() if value})

    def _admit_custom(self, target: Target, name: str) -> None:
        kind = target.kind
        if not kind.custom:
            return
        definition = self._store.collection(*DEFINITIONS).items.get(f"{kind.plural}.{kind.group}")
        if definition is None or "deletionTimestamp" not in definition.obj["metadata"]:
            return
        details = {"name": name, "group": kind.group, "kind": kind.plural}
        why = "create not allowed while custom resource definition is terminating"
        message = f'{kind.qualified} "{name}" is forbidden: {why}'
        raise Failure(403, "Forbidden", message, {key: value for key, value in details.items() if value})

    def _begin(self, kind: Kind, metadata: JsonObject) -> None:
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(field, None)
        metadata["uid"] = str(UUID(int=self._random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = stamp(self._now())
        if kind.custom or kind.counts_generations:
            metadata["generation"] = 1

    def _generated(self, base: str) -> str:
        return base[:_LONGEST_BASE] + "".join(self._random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH))

    def _validate_new(self, kind: Kind, obj: JsonObject) -> None:
        metadata = obj["metadata"]
        errors = _type_errors(kind, obj) or objectmeta.errors(metadata, None, kind)
        errors += kind.rules.validate(obj, None, "", errors)
        if errors:
            raise _invalid(kind, obj, metadata.get("name") or "", errors)

    # Update

    def update(self, target: Target, obj: JsonObject, options: WriteOptions) -> Written:
        """Replace an object, or its part that is a subresource, by *obj*. Raises Failure."""
        self.check_name(target, obj["metadata"])
        existing = self.existing(target)
        if existing is None:
            if target.kind.creates_on_update and not target.subresource:
                if uid := obj["metadata"].get("uid"):
                    raise self._uid_conflict(target, uid, "")
                obj["metadata"].pop("resourceVersion", None)
                return self.create(target, obj, options)
            raise target.missing
        uid = obj["metadata"].get("uid")
        own = existing.obj["metadata"]["uid"]
        if uid and uid != own:
            raise self._uid_conflict(target, uid, own)
        return self._replace(target, existing, obj, options)

    def check_name(self, target: Target, metadata: JsonObject) -> None:
        """That an object is the one which the path names. Raises Failure."""
        name = metadata.get("name")
        if not name:
            raise bad_request(
                f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
            )
        if name != target.name:
            raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
        self._place(target, metadata)

    def existing(self, target: Target) -> Stored | None:
        """The object that *target* names, as its kind shows it."""
        stored = self._catalogue.collection(target.kind).get(target.namespace, target.name)
        return shown(stored, target.kind) if stored else None

    def _uid_conflict(self, target: Target, given: str, own: str) -> Failure:
        kind = target.kind
        parts = ["/registry", kind.group if kind.custom else "", kind.plural, target.namespace, target.name]
        key = "/".join(part for part in parts if part)
        why = f"Precondition failed: UID in precondition: {given}, UID in object meta: {own}"
        text = f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
        return conflict(kind.group, kind.plural, target.name, text)

    def _replace(self, target: Target, existing: Stored, obj: JsonObject, options: WriteOptions) -> Written:
        kind, old, metadata = target.kind, existing.obj, obj["metadata"]
        self._check_version(target, existing, metadata)
        self._carry_over(metadata, old["metadata"], dry_run=options.dry_run)
        self._prepare(kind, obj, old, target.subresource, options.manager)
        return self._commit(target, existing, obj, options)

    def _commit(self, target: Target, existing: Stored, obj: JsonObject, options: WriteOptions) -> Written:
        kind, old, metadata = target.kind, existing.obj, obj["metadata"]
        errors = _type_errors(kind, obj) or objectmeta.errors(metadata, old["metadata"], kind)
        errors += kind.rules.validate(obj, old, target.subresource, errors)
        if errors:
            raise _invalid(kind, obj, target.name, errors)
        if equal(obj, old) or managed.with_old_times(old, obj) is old:
            return Written(existing, old=old)
        if is_deletable(kind, obj):
            if not options.dry_run:
                self._remove(kind, target)
            return Written(Stored(existing.key, kind, obj, encode(obj), existing.version), old=old)
        return Written(self._put(kind, obj, dry_run=options.dry_run), old=old)

    def _check_version(self, target: Target, existing: Stored, metadata: JsonObject) -> None:
        kind = target.kind
        version = _number(metadata.get("resourceVersion") or "0")
        current = existing.obj["metadata"]["resourceVersion"]
        if version == 0:
            if not kind.updates_unconditionally:
                why = FieldError(Cause.INVALID, "metadata.resourceVersion", 0, "must be specified for an update")
                raise invalid(kind.group, kind.plural, target.name, [why])
        elif version != int(current):
            raise conflict(kind.group, kind.plural, target.name, MODIFIED)
        metadata["resourceVersion"] = current

    def _carry_over(self, metadata: JsonObject, old: JsonObject, *, dry_run: bool) -> None:
        """What a client may leave out, and what it may not change however it is written."""
        if not dry_run:  # it is only kept out of the store
            metadata.pop("selfLink", None)
        metadata.setdefault("uid", old["uid"])
        metadata["creationTimestamp"] = old["creationTimestamp"]
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            if field in old:
                metadata[field] = old[field]
        if "generation" in old:
            metadata["generation"] = old["generation"]
        else:
            metadata.pop("generation", None)

    def _prepare(self, kind: Kind, obj: JsonObject, old: JsonObject | None, subresource: str, manager: str) -> None:
        """Let the kind, its subresources and field management have their say in a write that is no apply."""
        through = self.through(kind, subresource)
        entries = managed.update(old, obj, manager=manager, now=self._now(), through=through)
        if entries:
            obj["metadata"]["managedFields"] = entries
        else:
            obj["metadata"].pop("managedFields", None)
        self._isolate(kind, obj, old, subresource)

    def _isolate(self, kind: Kind, obj: JsonObject, old: JsonObject | None, subresource: str) -> None:
        """Undo what may not be written through the (sub)resource; count the generation."""
        if kind.has_status and (kind.custom or subresource == "status"):
            if subresource == "status" and old is not None:
                _keep_all_but_status(kind, obj, old)
            elif old is None or "status" not in old:
                obj.pop("status", None)
            else:
                obj["status"] = _kept(kind, old["status"])
        kind.rules.prepare(obj, old, subresource)
        if kind.custom and kind.has_status and "status" not in obj:
            _default_status(kind, obj)
        counts = kind.custom or kind.counts_generations
        if old is not None and counts and not subresource and _asked(kind, obj) != _asked(kind, old):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def through(self, kind: Kind, subresource: str) -> managed.Writing:
        """What field management has to know of a write."""
        if self._through_generation != self._catalogue.generation:
            self._through.clear()
            self._through_generation = self._catalogue.generation
        known = self._through.get((kind, subresource))
        if known is None:
            known = self._through[kind, subresource] = self._made_through(kind, subresource)
        return known

    def _made_through(self, kind: Kind, subresource: str) -> managed.Writing:
        reset = managed.resets()
        if kind.has_status:
            reset = _ALL_BUT_STATUS_RESET if subresource == "status" else _STATUS_RESET
        others = {
            other.api_version: self._catalogue.types(other)
            for other in self._catalogue.versions(kind)
            if other is not kind
        }
        return managed.Writing(
            types=self._catalogue.types(kind),
            api_version=kind.api_version,
            kind=kind.kind,
            subresource=subresource,
            reset=reset,
            others=others,
            zero=kind.struct.decode({"metadata": {}}, []) if kind.struct else None,
        )

    # Patch

    def patch(
        self,
        target: Target,
        make: Callable[[JsonObject], Any],
        decode: Callable[[Any], JsonObject],
        options: WriteOptions,
    ) -> Written:
        """Change an object by *make*, which gets a private copy; *decode* reads what came out. Raises Failure."""
        existing = self.existing(target)
        if existing is None:
            raise target.missing
        obj = decode(make(private(existing)))
        self.check_name(target, obj["metadata"])
        return self._replace(target, existing, obj, options)

    def apply(
        self,
        target: Target,
        applied: JsonObject,
        decode: Callable[[Any], JsonObject],
        options: WriteOptions,
    ) -> Written:
        """Server-side apply: create an object, or merge into it what *applied* wants. Raises Failure."""
        kind, existing = target.kind, self.existing(target)
        if existing is None and target.subresource:
            raise target.missing
        made = managed.apply(
            existing.obj if existing else None,
            applied,
            manager=options.manager,
            now=self._now(),
            through=self.through(kind, target.subresource),
            force=options.force,
        )
        entries = made.object["metadata"].get("managedFields")
        obj = decode(made.object)
        self.check_name(target, obj["metadata"])
        metadata = obj["metadata"]
        if entries:
            metadata["managedFields"] = entries
        if existing is None:
            return self._create_applied(target, obj, options)
        if not made.changed:
            return Written(existing, old=existing.obj)
        self._check_version(target, existing, metadata)
        self._carry_over(metadata, existing.obj["metadata"], dry_run=options.dry_run)
        self._isolate(kind, obj, existing.obj, target.subresource)
        return self._commit(target, existing, obj, options)

    def _create_applied(self, target: Target, obj: JsonObject, options: WriteOptions) -> Written:
        kind, metadata = target.kind, obj["metadata"]
        if metadata.get("uid"):
            raise conflict(
                kind.group,
                kind.plural,
                target.name,
                f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found",
            )
        self._admit_to_namespace(target, target.name)
        self._admit_custom(target, target.name)
        _number(metadata.pop("resourceVersion", None) or "0")
        self._begin(kind, metadata)
        self._isolate(kind, obj, None, "")
        self._validate_new(kind, obj)
        return Written(self._put(kind, obj, dry_run=options.dry_run), created=True)

    # Delete

    def delete(self, target: Target, options: DeleteOptions) -> Written:
        """Delete an object, or mark it as being deleted; ``created`` means that it is still there. Raises Failure."""
        existing = self.existing(target)
        if existing is None:
            raise target.missing
        kind = target.kind
        if (kind.group, kind.plural) == NAMESPACES and target.name in _UNDELETABLE:
            details = {"name": target.name, "kind": kind.plural}
            message = f'{kind.plural} "{target.name}" is forbidden: this namespace may not be deleted'
            raise Failure(403, "Forbidden", message, details)
        self._check_preconditions(target, existing, options)
        obj = private(existing)
        metadata = obj["metadata"]
        if "managedFields" in existing.obj["metadata"]:  # those of the store know which sets they are
            metadata["managedFields"] = existing.obj["metadata"]["managedFields"]
        finalizers = _finalizers_for(metadata.get("finalizers", []), options)
        if (kind.group, kind.plural) == DEFINITIONS and "deletionTimestamp" not in metadata:
            finalizers = [*finalizers, CLEANUP]
        if finalizers != metadata.get("finalizers", []):
            _set_or_drop(metadata, "finalizers", finalizers)
        if not self._is_kept(kind, obj):
            return Written(existing if options.dry_run else shown(self._remove(kind, target), kind))
        if "deletionTimestamp" not in metadata:
            self._mark(kind, obj)
        if obj == existing.obj:
            return Written(existing, created=True)
        return Written(self._put(kind, obj, dry_run=options.dry_run), created=True)

    def _is_kept(self, kind: Kind, obj: JsonObject) -> bool:
        own = (kind.group, kind.plural)
        if own == NAMESPACES:
            return bool(obj.get("spec", {}).get("finalizers")) or bool(obj["metadata"].get("finalizers"))
        return bool(obj["metadata"].get("finalizers"))

    def _mark(self, kind: Kind, obj: JsonObject) -> None:
        metadata = obj["metadata"]
        metadata["deletionTimestamp"] = stamp(self._now())
        if (kind.group, kind.plural) == NAMESPACES:
            obj["status"]["phase"] = "Terminating"
        elif (kind.group, kind.plural) == DEFINITIONS:
            conditions = obj["status"].get("conditions") or []
            obj["status"]["conditions"] = [*conditions, _terminating(metadata["deletionTimestamp"])]
        else:
            metadata["deletionGracePeriodSeconds"] = 0
            if metadata.get("generation", 0) > 0:
                metadata["generation"] += 1

    def _check_preconditions(self, target: Target, existing: Stored, options: DeleteOptions) -> None:
        kind, metadata = target.kind, existing.obj["metadata"]
        if options.uid is not None and options.uid != metadata["uid"]:
            raise conflict(
                kind.group,
                kind.kind,
                target.name,
                f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']}). "
                "The object might have been deleted and then recreated",
            )
        version = metadata["resourceVersion"]
        if options.version is not None and options.version != version:
            raise conflict(
                kind.group,
                kind.kind,
                target.name,
                f"the ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion "
                f"in record ({version}). The object might have been modified",
            )

    # The store

    def _put(self, kind: Kind, obj: JsonObject, *, dry_run: bool) -> Stored:
        base, collection = self._catalogue.base(kind), self._catalogue.collection(kind)
        obj = in_order(obj, kind)
        kept = in_order(kind.view_of.stored(obj), base) if kind.view_of else obj
        if dry_run:
            metadata = obj["metadata"]
            key = object_key(metadata.get("namespace", ""), metadata["name"])
            if key not in collection.items:
                metadata.pop("resourceVersion", None)
            return Stored(key, kind, obj, encode(obj), self._store.version)
        try:
            stored = self._store.put(collection, base, kept)
        except TooLarge:
            raise Failure(500, "", "etcdserver: request is too large") from None
        return shown(stored, kind)

    def _remove(self, kind: Kind, target: Target) -> Stored:
        collection = self._catalogue.collection(kind)
        return self._store.remove(collection, collection.items[object_key(target.namespace, target.name)])


def _default_status(kind: Kind, obj: JsonObject) -> None:
    """Do what the real server does when it reads what it has written."""
    bare = {name: obj[name] for name in ("apiVersion", "kind", "metadata")}
    kind.rules.default(bare)
    if "status" in bare:
        obj["status"] = bare["status"]


def _number(version: str) -> int:
    """*version* as a number. Raises Failure."""
    try:
        return unsigned(version)
    except ValueError as error:
        raise Failure(500, "", str(error)) from error


def _number_or_none(version: str) -> int:
    """*version* if it is a number, else 0."""
    try:
        return unsigned(version)
    except ValueError:
        return 0


def _type_errors(kind: Kind, obj: JsonObject) -> list[FieldError]:
    """Why a custom resource is not of its kind, which is looked at late."""
    if not kind.custom:
        return []
    for field, right in (("kind", kind.kind), ("apiVersion", kind.api_version)):
        if obj[field] != right:
            return [FieldError(Cause.INVALID, field, obj[field], f"must be {right}")]
    return []


def _invalid(kind: Kind, obj: JsonObject, name: str, errors: Sequence[FieldError]) -> Failure:
    """Of an object that says it is of another kind the kind is the one that it says."""
    if kind.custom and obj["kind"] != kind.kind:
        return invalid(kind.group, obj["kind"], name, errors)
    return invalid(kind.error_group, kind.kind, name, errors)


def _terminating(moment: str) -> JsonObject:
    """The condition of a CustomResourceDefinition that is being deleted."""
    return {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": moment,
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }


def stamp(moment: datetime) -> str:
    """A time as Kubernetes writes it: whole seconds, UTC."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def is_deletable(kind: Kind, obj: JsonObject) -> bool:
    """Whether an update leaves an object that only waited for its last finalizer to go."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    return (kind.group, kind.plural) != NAMESPACES or not obj.get("spec", {}).get("finalizers")


def _finalizers_for(finalizers: Sequence[str], options: DeleteOptions) -> list[str]:
    """With which finalizers of the garbage collector a deletion leaves an object."""
    orphan = _wants(ORPHAN, "Orphan", finalizers, options)
    foreground = not orphan and _wants(FOREGROUND, "Foreground", finalizers, options)
    kept = [name for name in finalizers if name not in {ORPHAN, FOREGROUND}]
    wanted = [*kept, *([ORPHAN] if orphan else []), *([FOREGROUND] if foreground else [])]
    return list(finalizers) if set(wanted) == set(finalizers) else wanted


def _wants(finalizer: str, policy: str, finalizers: Sequence[str], options: DeleteOptions) -> bool:
    if options.orphan is not None:
        return options.orphan if finalizer == ORPHAN else False
    return options.policy == policy if options.policy is not None else finalizer in finalizers


def _set_or_drop(obj: JsonObject, field: str, value: list[str]) -> None:
    if value:
        obj[field] = value
    else:
        obj.pop(field, None)


def _asked(kind: Kind, obj: JsonObject) -> JsonObject:
    """What counts for the generation: all that users write."""
    without = {"metadata", "status"} if kind.has_status else {"metadata"}
    return {name: value for name, value in obj.items() if name not in without}


def _kept(kind: Kind, part: Any) -> Any:
    """A part of a stored object as a part of the next one: the same where nobody is going to change it."""
    return part if kind.custom else copied(part)


def _keep_all_but_status(kind: Kind, obj: JsonObject, old: JsonObject) -> None:
    status, written = obj.get("status"), obj["metadata"]
    keeps_metadata = kind.custom or (kind.group, kind.plural) == DEFINITIONS
    for name in [name for name in obj if name not in {"status", "metadata"}]:
        if name not in old:
            del obj[name]
    obj.update({name: _kept(kind, value) for name, value in old.items() if name not in {"status", "metadata"}})
    if status is None:
        obj.pop("status", None)
    if keeps_metadata:
        entries = written.get("managedFields")
        kept = {**old["metadata"]}
        kept.pop("managedFields", None)
        obj["metadata"] = {**kept, **({"managedFields": entries} if entries else {})}
