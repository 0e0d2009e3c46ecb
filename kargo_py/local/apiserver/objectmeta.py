"""Metadata of objects: read as the real server reads it, and checked as it does, in its order and words.

The caller says which rule the kind has for names. Source: k8s.io/apimachinery/pkg/api/validation/objectmeta.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kargo_py.local.apiserver import names
from kargo_py.local.apiserver.failures import Cause, FieldError
from kargo_py.local.apiserver.gotext import Verbatim
from kargo_py.local.apiserver.gotypes import Mismatch, json_type
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.metatypes import OBJECT_META
from kargo_py.local.apiserver.wire import JsonObject, encode

ANNOTATIONS_LIMIT: Final = 256 * 1024
MANAGER_LIMIT: Final = 128
SUBRESOURCE_LIMIT: Final = 256
IMMUTABLE: Final = "field is immutable"
ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
KUBERNETES_FINALIZER: Final = "kubernetes"
_OWNER_FIELDS: Final = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")


def decode(obj: JsonObject) -> list[str]:
    """Bring ``metadata`` into Kubernetes' form, in place; paths of fields that it does not know, which are removed.

    Raises:
        Undecodable: a field has a value of the wrong type.
    """
    raw = obj.get("metadata")
    if raw is None:
        obj["metadata"] = {}
        return []
    if type(raw) is not dict:
        raise Mismatch(json_type(raw), OBJECT_META.go)
    unknown: list[str] = []
    obj["metadata"] = OBJECT_META.decode(raw, unknown)
    return [f"metadata.{path}" for path in unknown]


def repeated_owners(metadata: JsonObject) -> list[str]:
    """Take out owners that are given again, in place; their uids."""
    owners = metadata.get("ownerReferences") or ()
    kept: list[JsonObject] = []
    repeated = []
    for owner in owners:
        if owner in kept:
            repeated.append(owner.get("uid", ""))
        else:
            kept.append(owner)
    if repeated:
        metadata["ownerReferences"] = kept
    return repeated


def validate(metadata: JsonObject, *, namespaced: bool, rule: names.NameRule) -> list[FieldError]:
    """What is wrong with the metadata of an object that is created, or of a new version of one."""
    errors = list(_name_errors(metadata, namespaced=namespaced, rule=rule))
    generation = metadata.get("generation", 0)
    if generation < 0:
        errors.append(_invalid("generation", generation, "must be greater than or equal to 0"))
    errors += _label_errors(metadata.get("labels"))
    errors += _annotation_errors(metadata.get("annotations"))
    errors += _owner_errors(metadata.get("ownerReferences"))
    errors += finalizer_errors(metadata.get("finalizers"))
    errors += _managed_errors(metadata.get("managedFields"))
    return errors


def validate_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """What may not become of the metadata *old*."""
    errors = _illegal_changes(new, old)
    errors += _label_errors(new.get("labels"))
    errors += _annotation_errors(new.get("annotations"))
    errors += _owner_errors(new.get("ownerReferences"))
    errors += _managed_errors(new.get("managedFields"))
    return errors


def _illegal_changes(new: JsonObject, old: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    if old.get("deletionTimestamp") is not None:
        errors += _new_finalizers(new.get("finalizers"), old.get("finalizers"))
    if not new.get("resourceVersion"):
        errors.append(_invalid("resourceVersion", "", "must be specified for an update"))
    if new.get("generation", 0) < old.get("generation", 0):
        errors.append(_invalid("generation", new.get("generation", 0), "must not be decremented"))
    for name, absent in _IMMUTABLE:
        if new.get(name) != old.get(name):
            errors.append(_invalid(name, new.get(name, absent), IMMUTABLE))
    return errors


_IMMUTABLE: Final[tuple[tuple[str, Any], ...]] = (
    ("name", ""),
    ("namespace", ""),
    ("uid", ""),
    ("creationTimestamp", None),
    ("deletionTimestamp", None),
    ("deletionGracePeriodSeconds", None),
)


def errors(new: JsonObject, old: JsonObject | None, kind: Kind) -> list[FieldError]:
    """All that the real server says about metadata before it says more about the object.

    It checks several times, by the rule of the URL and by that of the kind, and tells all that it finds each time.
    """
    if old is None:
        # What does not depend on the rule for names has just been found good.
        return _by_kind(new, kind) or list(_name_errors(new, namespaced=kind.namespaced, rule=names.path_segment))
    found = validate(new, namespaced=kind.namespaced, rule=names.path_segment)
    # What is no matter of names or changes is as good the next times.
    good = not found
    changes = _illegal_changes(new, old) if good else validate_update(new, old)
    found += changes
    if kind.name_rule is names.path_segment:
        return found
    found += changes
    found += _unqualified(new, kind)
    if kind.revalidates_metadata and good:
        found += _name_errors(new, namespaced=kind.namespaced, rule=kind.name_rule)
        found += _unqualified(new, kind)
    elif kind.revalidates_metadata:
        found += _by_kind(new, kind)
    return found


def _by_kind(metadata: JsonObject, kind: Kind) -> list[FieldError]:
    return [
        *validate(metadata, namespaced=kind.namespaced, rule=kind.name_rule),
        *_unqualified(metadata, kind),
    ]


def _unqualified(metadata: JsonObject, kind: Kind) -> Iterator[FieldError]:
    if kind.qualifies_finalizers:
        for index, finalizer in enumerate(metadata.get("finalizers") or ()):
            yield from unqualified_finalizer_errors(finalizer, f"metadata.finalizers[{index}]")


def unqualified_finalizer_errors(finalizer: str, path: str) -> Iterator[FieldError]:
    """That a finalizer without a DNS prefix is none of Kubernetes' own."""
    if "/" not in finalizer and finalizer not in {KUBERNETES_FINALIZER, ORPHAN, FOREGROUND}:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        yield FieldError(Cause.INVALID, path, finalizer, detail)


def _invalid(name: str, value: Any, detail: str) -> FieldError:
    return FieldError(Cause.INVALID, f"metadata.{name}", value, detail)


def _name_errors(metadata: JsonObject, *, namespaced: bool, rule: names.NameRule) -> Iterator[FieldError]:
    prefix, name, namespace = (metadata.get(each, "") for each in ("generateName", "name", "namespace"))
    if prefix:
        for complaint in rule(prefix, True):
            yield _invalid("generateName", prefix, complaint)
    if not name:
        yield FieldError(Cause.REQUIRED, "metadata.name", detail="name or generateName is required")
    for complaint in rule(name, False) if name else ():
        yield _invalid("name", name, complaint)
    if not namespaced:
        if namespace:
            yield FieldError(Cause.FORBIDDEN, "metadata.namespace", detail="not allowed on this type")
        return
    if not namespace:
        yield FieldError(Cause.REQUIRED, "metadata.namespace")
    for complaint in names.label(namespace) if namespace else ():
        yield _invalid("namespace", namespace, complaint)


def _label_errors(labels: JsonObject | None) -> Iterator[FieldError]:
    for key, value in (labels or {}).items():
        for complaint in names.qualified(key):
            yield _invalid("labels", key, complaint)
        for complaint in names.label_value(value):
            yield _invalid("labels", value, complaint)


def _annotation_errors(annotations: JsonObject | None) -> Iterator[FieldError]:
    if not annotations:
        return
    for key in annotations:
        for complaint in names.qualified(key.lower()):
            yield _invalid("annotations", key, complaint)
    if sum(names.size(key) + names.size(value) for key, value in annotations.items()) > ANNOTATIONS_LIMIT:
        yield too_long("metadata.annotations", ANNOTATIONS_LIMIT)


def too_long(path: str, limit: int) -> FieldError:
    """A field with more bytes than it may have."""
    return FieldError(Cause.TOO_LONG, path, detail=f"may not be more than {limit} bytes")


def _owner_errors(owners: list[JsonObject] | None) -> Iterator[FieldError]:
    controller = ""
    for owner in owners or ():
        api_version, kind, name = (owner.get(each, "") for each in ("apiVersion", "kind", "name"))
        if not _version(api_version):
            yield _invalid("ownerReferences.apiVersion", api_version, "version must not be empty")
        for part in ("kind", "name", "uid"):
            if not owner.get(part):
                yield _invalid(f"ownerReferences.{part}", owner.get(part, ""), "must not be empty")
        if (api_version, kind) == ("v1", "Event"):
            yield _invalid("ownerReferences", _shown_owner(owner), "/v1, Kind=Event is disallowed from being an owner")
        if not owner.get("controller"):
            continue
        if controller:
            yield _invalid(
                "ownerReferences",
                Verbatim(f"[{','.join(map(_shown_owner, owners or ()))}]"),
                'Only one reference can have Controller set to true. Found "true" in references for '
                f"{controller} and {kind}/{name}",
            )
        controller = controller or f"{kind}/{name}"


def _shown_owner(owner: JsonObject) -> Verbatim:
    fields = {name: owner[name] for name in _OWNER_FIELDS if name in owner}
    return Verbatim(encode(fields).decode())


def _version(api_version: str) -> str:
    """The version in an ``apiVersion``, "" where Kubernetes finds none."""
    if api_version.count("/") > 1 or api_version == "/":
        return ""
    return api_version.rpartition("/")[2]


def finalizer_errors(finalizers: Iterable[str] | None, path: str = "metadata.finalizers") -> Iterator[FieldError]:
    """What is wrong with the names of finalizers."""
    if not finalizers:
        return
    for finalizer in finalizers:
        for complaint in names.qualified(finalizer):
            yield FieldError(Cause.INVALID, path, finalizer, complaint)
    if {ORPHAN, FOREGROUND} <= set(finalizers):
        yield FieldError(
            Cause.INVALID, path, list(finalizers), f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set"
        )


def _new_finalizers(new: list[str] | None, old: list[str] | None) -> Iterator[FieldError]:
    extra = sorted(set(new or ()) - set(old or ()))
    if extra:
        shown = ", ".join(f'"{each}"' for each in extra)
        yield FieldError(
            Cause.FORBIDDEN,
            "metadata.finalizers",
            detail="no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{shown}}}",
        )


def manager_errors(manager: str, path: str) -> Iterator[FieldError]:
    """What is wrong with the name of a field manager; "" is none."""
    if names.size(manager) > MANAGER_LIMIT:
        yield too_long(path, MANAGER_LIMIT)
    if manager.isprintable():
        return
    place = 0
    for character in manager:
        if not character.isprintable():
            shown = f"U+{ord(character):04X}"
            yield FieldError(Cause.INVALID, path, manager, f"invalid character {shown} (at position {place})")
        place += names.size(character)


def _managed_errors(entries: list[JsonObject] | None) -> Iterator[FieldError]:
    for index, entry in enumerate(entries or ()):
        path = f"metadata.managedFields[{index}]"
        operation, kind = entry.get("operation", ""), entry.get("fieldsType", "")
        if operation not in {"Apply", "Update"}:
            yield FieldError(Cause.INVALID, f"{path}.operation", operation, "must be `Apply` or `Update`")
        if kind not in {"", "FieldsV1"}:
            yield FieldError(Cause.INVALID, f"{path}.fieldsType", kind, "must be `FieldsV1`")
        yield from manager_errors(entry.get("manager", ""), f"{path}.manager")
        if names.size(entry.get("subresource", "")) > SUBRESOURCE_LIMIT:
            yield too_long(f"{path}.subresource", SUBRESOURCE_LIMIT)
