"""CustomResourceDefinitions: what may be one, what becomes of it, and the kinds that it brings.

Source: apiextensions-apiserver ``pkg/apis/apiextensions``, ``pkg/registry/customresourcedefinition``,
``pkg/controller``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from kargo_py.local.apiserver import names
from kargo_py.local.apiserver.crdtypes import CUSTOM_RESOURCE_DEFINITION
from kargo_py.local.apiserver.failures import Cause, FieldError
from kargo_py.local.apiserver.formats import is_recognized
from kargo_py.local.apiserver.gotext import Verbatim, compact, quoted
from kargo_py.local.apiserver.kinds import Column, Kind
from kargo_py.local.apiserver.objectmeta import FOREGROUND, ORPHAN
from kargo_py.local.apiserver.schema import Schema, compiled
from kargo_py.local.apiserver.structural import errors_of, follow, go_schema
from kargo_py.local.apiserver.wire import JsonObject, copied, identical

_APPROVED: Final = "api-approved.kubernetes.io"
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MAX_SELECTABLE: Final = 8
_INT32: Final = (1 << 31) - 1
_PER_VERSION: Final = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}

_invalid = FieldError.invalid
_required = FieldError.required


class DefinitionRules:
    """What happens to a CustomResourceDefinition on its way into the store."""

    def prune(self, obj: JsonObject) -> Sequence[str]:
        """Bring *obj* into the form of the Go type; fields that it does not have."""
        unknown: list[str] = []
        decoded = CUSTOM_RESOURCE_DEFINITION.decode(obj, unknown)
        obj.clear()
        obj.update(decoded)
        return unknown

    def default(self, obj: JsonObject, *, keep_nulls: bool = False) -> None:
        """Names that follow from others, no conversion."""
        spec = obj.setdefault("spec", {})
        wanted = spec.setdefault("names", {})
        kind = wanted.get("kind") or ""
        if not wanted.get("singular") and kind:
            wanted["singular"] = kind.lower()
        if not wanted.get("listKind") and kind:
            wanted["listKind"] = f"{kind}List"
        if spec.get("conversion") is None:
            spec["conversion"] = {"strategy": "None"}
        service = ((spec["conversion"].get("webhook") or {}).get("clientConfig") or {}).get("service")
        if service is not None:
            service.setdefault("port", 443)

    def prepare(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> None:
        """The status is the server's, and remembers every version that objects may be stored in."""
        if subresource == "status":
            if old is not None:
                obj["spec"] = old.get("spec", {})
            return
        nothing = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}}
        status = obj["status"] = copied((old or {}).get("status") or nothing)
        stored = status.setdefault("storedVersions", [])
        for version in obj["spec"].get("versions") or ():
            if version.get("storage"):
                if version["name"] not in stored:
                    stored.append(version["name"])
                break

    def validate(
        self, obj: JsonObject, old: JsonObject | None, subresource: str, found: Sequence[FieldError] = ()
    ) -> Sequence[FieldError]:
        """What is wrong with a definition."""
        if subresource == "status":
            return list(_names_errors((obj.get("status") or {}).get("acceptedNames") or {}, "status.acceptedNames"))
        errors = [*_identity_errors(obj)] if old is None else []
        errors += _spec_errors(obj["spec"])
        if old is not None:
            errors += _change_errors(obj, old)
        errors += _stored_errors(obj)
        errors += _approval_errors(obj, old)
        if obj["spec"].get("preserveUnknownFields"):
            instead = "set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
            errors.append(_invalid("spec.preserveUnknownFields", True, f"cannot set to true, {instead}"))
        return errors

    def warnings(self, obj: JsonObject, old: JsonObject | None) -> Sequence[str]:
        """Formats that mean nothing here, once."""
        known = _unknown_formats(old) if old is not None else set()
        return [f"unrecognized format {quoted(name)}" for name in sorted(_unknown_formats(obj) - known)]


def _identity_errors(obj: JsonObject) -> Iterator[FieldError]:
    name = (obj.get("metadata") or {}).get("name") or ""
    spec = obj["spec"]
    if name and name != f"{spec['names'].get('plural') or ''}.{spec.get('group') or ''}":
        yield _invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _spec_errors(spec: JsonObject) -> list[FieldError]:
    group = spec.get("group") or ""
    errors: list[FieldError] = []
    if not group:
        errors.append(_required("spec.group"))
    elif complaints := names.subdomain(group):
        errors.append(_invalid("spec.group", group, ",".join(complaints)))
    elif "." not in group:
        errors.append(_invalid("spec.group", group, "should be a domain with at least one dot"))
    errors += _enum_errors("spec.scope", spec.get("scope") or "", ("Cluster", "Namespaced"))
    shared, versions = _shared_parts(spec.get("versions") or [])
    if (shared.get("schema") or {}).get("openAPIV3Schema") is None:
        errors += [
            _required(f"spec.versions[{at}].schema.openAPIV3Schema")
            for at, version in enumerate(versions)
            if (version.get("schema") or {}).get("openAPIV3Schema") is None
        ]
    for at, version in enumerate(versions):
        errors += _version_errors(version, f"spec.versions[{at}]", shared)
    errors += _versions_errors(versions, _go_versions(None if spec.get("versions") is None else versions))
    wanted = spec.get("names") or {}
    errors += [
        _required(f"spec.names.{name}") for name in ("plural", "singular", "kind", "listKind") if not wanted.get(name)
    ]
    errors += _names_errors(wanted, "spec.names")
    has_status = any(_has_status(part) for part in (shared, *versions))
    errors += _part_errors(
        shared, {name: f"spec.{moved}" for name, moved in _PER_VERSION.items()}, has_status=has_status
    )
    errors += _conversion_errors(spec.get("conversion") or {})
    return errors


def _shared_parts(versions: Sequence[JsonObject]) -> tuple[JsonObject, list[JsonObject]]:
    """Parts that all versions have alike, and the versions without these.

    The API server moves them to ``spec`` before it validates, so that is where its messages place them.
    """
    if not versions:
        return {}, []
    alike = {
        name
        for name in _PER_VERSION
        if all(identical(version.get(name) or None, versions[0].get(name) or None) for version in versions)
        or all(version.get(name) == versions[0].get(name) for version in versions)
    }
    shared = {name: versions[0][name] for name in alike if versions[0].get(name) is not None}
    return shared, [{key: value for key, value in version.items() if key not in alike} for version in versions]


def _has_status(part: JsonObject) -> bool:
    return (part.get("subresources") or {}).get("status") is not None


def _version_errors(version: JsonObject, path: str, shared: JsonObject) -> Iterator[FieldError]:
    name = version.get("name") or ""
    if complaints := names.dns1035_label(name):
        yield _invalid(f"{path}.name", name, ",".join(complaints))
    warning = version.get("deprecationWarning")
    if warning is not None:
        for complaint in _warning_complaints(warning, deprecated=bool(version.get("deprecated"))):
            yield _invalid(f"{path}.deprecationWarning", Verbatim(compact(warning)), complaint)
    has_status = _has_status(version if version.get("subresources") is not None else shared)
    yield from _part_errors(version, {name: f"{path}.{name}" for name in _PER_VERSION}, has_status=has_status)


def _warning_complaints(warning: str, *, deprecated: bool) -> list[str]:
    if not deprecated:
        return ["can only be set for deprecated versions"]
    complaints = []
    if len(warning.encode()) > 256:
        complaints.append("must be <= 256 characters long")
    if not warning:
        complaints.append("must not be an empty string")
    for at, char in enumerate(warning):
        if not char.isprintable():
            where = len(warning[:at].encode())
            complaints.append(
                f"must only contain printable UTF-8 characters; non-printable character found at index {where}"
            )
            break
    return complaints


def _part_errors(part: JsonObject, paths: dict[str, str], *, has_status: bool) -> Iterator[FieldError]:
    """What is wrong with those parts of a version that versions may share."""
    schema = (part.get("schema") or {}).get("openAPIV3Schema")
    if schema is not None:
        yield from errors_of(schema, f"{paths['schema']}.openAPIV3Schema", status=has_status)
    yield from _scale_errors((part.get("subresources") or {}).get("scale"), f"{paths['subresources']}.scale")
    for at, column in enumerate(part.get("additionalPrinterColumns") or ()):
        yield from _column_errors(column, f"{paths['additionalPrinterColumns']}[{at}]")
    if part.get("selectableFields") and schema is not None:
        yield from _selectable_errors(part["selectableFields"], schema, paths["selectableFields"])


def _scale_errors(scale: JsonObject | None, path: str) -> Iterator[FieldError]:
    if scale is None:
        return
    for name, root in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        given = scale.get(name) or ""
        if not given:
            yield _required(f"{path}.{name}")
        elif wrong := _path_complaint(given):
            yield _invalid(f"{path}.{name}", given, wrong)
        elif not given.startswith(root):
            yield _invalid(f"{path}.{name}", given, f"should be a json path under {root[:-1]}")
    selector = scale.get("labelSelectorPath") or ""
    if selector and (wrong := _path_complaint(selector)):
        yield _invalid(f"{path}.labelSelectorPath", selector, wrong)
    elif selector and not selector.startswith((".spec.", ".status.")):
        what = "should be a json path under either .spec or .status"
        yield _invalid(f"{path}.labelSelectorPath", selector, what)


def _path_complaint(path: str) -> str:
    return "" if path.startswith(".") else "must be a simple json path starting with ."


def _column_errors(column: JsonObject, path: str) -> Iterator[FieldError]:
    kind, form, where = column.get("type") or "", column.get("format") or "", column.get("jsonPath") or ""
    if not column.get("name"):
        yield _required(f"{path}.name")
    types = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        yield _required(f"{path}.type", types)
    elif kind not in _COLUMN_TYPES:
        yield _invalid(f"{path}.type", kind, types)
    if form and form not in _COLUMN_FORMATS:
        yield _invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not where:
        yield _required(f"{path}.JSONPath")
    elif wrong := _path_complaint(where):
        yield _invalid(f"{path}.JSONPath", where, wrong)


def _selectable_errors(fields: Sequence[JsonObject], schema: JsonObject, path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for at, field in enumerate(fields):
        where, given = f"{path}[{at}].jsonPath", field.get("jsonPath") or ""
        if not given:
            yield _required(where)
            continue
        found = follow(given, schema, arrays=False)
        if isinstance(found, str):
            yield _invalid(where, given, f"is an invalid path: {found}")
            continue
        if given.startswith(".metadata"):
            yield _invalid(where, given, "must not point to fields in metadata")
        if found.get("type") not in {"string", "boolean", "integer"}:
            what = (
                "must point to a field of type string, boolean or integer. "
                "Enum string fields and strings with formats are allowed."
            )
            yield _invalid(where, given, what)
        if given in seen:
            yield FieldError(Cause.DUPLICATE, where, given)
        seen.add(given)
    if len(seen) > _MAX_SELECTABLE:
        yield FieldError(Cause.TOO_MANY, path, len(seen), f"must have at most {_MAX_SELECTABLE} items")


def _versions_errors(versions: Sequence[JsonObject], shown: Verbatim) -> Iterator[FieldError]:
    listed = [version.get("name") for version in versions]
    for name, what in (
        ("schema", "schemas may not all be set to identical values (top-level validation"),
        ("subresources", "subresources may not all be set to identical values (top-level subresources"),
    ):
        if versions and all(
            version.get(name) is not None and version[name] == versions[0][name] for version in versions
        ):
            yield _invalid("spec.versions", shown, f"per-version {what} should be used instead)")
    if len(set(listed)) < len(listed):
        yield _invalid("spec.versions", shown, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield _invalid("spec.versions", shown, "must have exactly one version marked as storage version")
    if listed and (complaints := names.dns1035_label(listed[0] or "")):
        yield _invalid("spec.version", listed[0], ",".join(complaints))


def _go_versions(versions: Sequence[JsonObject] | None) -> Verbatim:
    """Versions as the API server shows them: its internal type has no JSON names."""
    shown = versions and [
        {
            "Name": version.get("name") or "",
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
            "Deprecated": bool(version.get("deprecated")),
            "DeprecationWarning": version.get("deprecationWarning"),
            "Schema": _go_validation(version.get("schema")),
            "Subresources": version.get("subresources"),
            "AdditionalPrinterColumns": version.get("additionalPrinterColumns"),
            "SelectableFields": version.get("selectableFields"),
        }
        for version in versions
    ]
    return Verbatim(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))


def _go_validation(schema: JsonObject | None) -> JsonObject | None:
    if schema is None:
        return None
    raw = schema.get("openAPIV3Schema")
    return {"OpenAPIV3Schema": None if raw is None else json.loads(go_schema(raw))}


def _enum_errors(path: str, value: str, accepted: Sequence[str]) -> list[FieldError]:
    if not value:
        return [_required(path)]
    if value in accepted:
        return []
    return [FieldError.unsupported(path, value, accepted)]


def _names_errors(wanted: JsonObject, path: str) -> Iterator[FieldError]:
    mixed = "may have mixed case, but should otherwise match: "
    for name in ("plural", "singular", "kind", "listKind"):
        given = wanted.get(name) or ""
        is_kind = name in {"kind", "listKind"}
        if given and (complaints := names.dns1035_label(given.lower() if is_kind else given)):
            yield _invalid(f"{path}.{name}", given, (mixed if is_kind else "") + ",".join(complaints))
    for name in ("shortNames", "categories"):
        if name == "categories" and wanted.get("kind") and wanted["kind"] == wanted.get("listKind"):
            yield _invalid(f"{path}.listKind", wanted["listKind"], "kind and listKind may not be the same")
        for at, given in enumerate(wanted.get(name) or ()):
            if complaints := names.dns1035_label(given):
                yield _invalid(f"{path}.{name}[{at}]", given, ",".join(complaints))


def _conversion_errors(conversion: JsonObject) -> Iterator[FieldError]:
    strategy = conversion.get("strategy") or ""
    yield from _enum_errors("spec.conversion.strategy", strategy, ("None", "Webhook"))
    webhook = conversion.get("webhook") or {}
    client, reviews = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    where = "spec.conversion.webhookClientConfig"
    if strategy != "Webhook":
        unset = "should not be set when strategy is not set to Webhook"
        if client is not None:
            yield FieldError(Cause.FORBIDDEN, where, detail=unset)
        if reviews:
            yield FieldError(Cause.FORBIDDEN, "spec.conversion.conversionReviewVersions", detail=unset)
        return
    if client is None:
        yield _required(where, "required when strategy is set to Webhook")
    elif (client.get("url") is None) == (client.get("service") is None):
        yield _required(where, "exactly one of url or service is required")
    if not reviews:
        yield _required("spec.conversion.conversionReviewVersions")
    elif not {"v1", "v1beta1"} & set(reviews):
        yield _invalid("spec.conversion.conversionReviewVersions", reviews, "must include at least one of v1, v1beta1")


def _change_errors(obj: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    new_spec, old_spec = obj["spec"], old["spec"]
    fields = [("group",), ("names", "plural")]
    if condition(old, "Established") == "True":
        fields = [("scope",), ("names", "kind"), *fields]
    for steps in fields:
        new_value, old_value = new_spec, old_spec
        for step in steps:
            new_value, old_value = new_value.get(step), old_value.get(step)
        if new_value != old_value:
            yield _invalid(f"spec.{'.'.join(steps)}", new_value or "", "field is immutable")


def _stored_errors(obj: JsonObject) -> Iterator[FieldError]:
    stored: list[str] = (obj.get("status") or {}).get("storedVersions") or []
    path = "status.storedVersions"
    if not stored:
        yield _invalid(path, Verbatim("null"), "must have at least one stored version")
        return
    versions = obj["spec"].get("versions") or ()
    listed = {version.get("name") for version in versions}
    for version in versions:
        if version.get("storage") and version.get("name") not in stored:
            yield _invalid(path, stored, f"must have the storage version {version.get('name')}")
    for at, name in enumerate(stored):
        if name not in listed:
            what = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} "
                f"and removes {name} from status.storedVersions"
            )
            yield _invalid(f"{path}[{at}]", name, what)


def _approval_errors(obj: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    group: str = obj["spec"].get("group") or ""
    if group not in {"k8s.io", "kubernetes.io"} and not group.endswith((".k8s.io", ".kubernetes.io")):
        return
    given = ((obj.get("metadata") or {}).get("annotations") or {}).get(_APPROVED, "")
    if old is not None and given == ((old.get("metadata") or {}).get("annotations") or {}).get(_APPROVED, ""):
        return
    path = f"metadata.annotations[{_APPROVED}]"
    see = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not given:
        yield _required(path, f"protected groups must have approval annotation {quoted(_APPROVED)}, {see}")
    elif not given.startswith("unapproved") and not (urlsplit(given).scheme and urlsplit(given).netloc):
        what = (
            f"protected groups must have approval annotation {quoted(_APPROVED)} "
            f'with either a URL or a reason starting with "unapproved", {see}'
        )
        yield _invalid(path, given, what)


def _unknown_formats(crd: JsonObject) -> set[str]:
    """Formats of strings, in any version, that the API server warns of."""
    found: set[str] = set()
    left = [(version.get("schema") or {}).get("openAPIV3Schema") for version in crd["spec"].get("versions") or ()]
    while left:
        schema = left.pop()
        if isinstance(schema, dict):
            name = schema.get("format") or ""
            if name and schema.get("type") == "string" and not is_recognized(name):
                found.add(name)
            left += [schema.get("items"), schema.get("additionalProperties")]
            left += (schema.get("properties") or {}).values()
    return found


# Status


def condition(crd: JsonObject, kind: str) -> str:
    """The status of a condition, "" if there is none."""
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return next((str(one.get("status")) for one in conditions if one.get("type") == kind), "")


def established(crd: JsonObject, now: str, others: Iterable[JsonObject] = ()) -> JsonObject:
    """*crd* with the status that the API server's controllers would give it, sooner or later; it is not changed.

    *others* are the other definitions: names that one of the same group has may not be taken. *now* is RFC 3339.
    """
    result: JsonObject = copied(crd)
    status = result.setdefault("status", {})
    wanted, accepted = result["spec"]["names"], dict(status.get("acceptedNames") or {})
    rest = [other for other in others if other["spec"].get("group") == result["spec"].get("group")]
    rest = [other for other in rest if other["metadata"]["name"] != result["metadata"]["name"]]
    reason, message = _accept(wanted, accepted, rest)
    status["acceptedNames"] = {"plural": "", "kind": "", **accepted}
    status.setdefault("storedVersions", [])
    conditions = status["conditions"] = status.get("conditions") or []
    _set(conditions, now, "NamesAccepted", "False" if reason else "True", reason or "NoConflicts", message)
    if condition(result, "Established") != "True":
        if reason:
            _set(conditions, now, "Established", "False", "NotAccepted", "not all names are accepted")
        else:
            _set(conditions, now, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
    return result


def _accept(wanted: JsonObject, accepted: JsonObject, others: Sequence[JsonObject]) -> tuple[str, str]:
    """Take what is free of *wanted* into *accepted*; reason and message of the last conflict."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        taken = (other.get("status") or {}).get("acceptedNames") or {}
        resources |= {taken.get("plural", ""), taken.get("singular", ""), *(taken.get("shortNames") or ())}
        kinds |= {taken.get("kind", ""), taken.get("listKind", "")}
    reason, message = "", "no conflicts found"
    for name, used in (
        ("plural", resources),
        ("singular", resources),
        ("shortNames", resources),
        ("kind", kinds),
        ("listKind", kinds),
    ):
        if name == "shortNames":
            own = accepted.get(name) or []
            clashes = [quoted(short) for short in wanted.get(name) or () if short not in own and short in used]
            clash = ", ".join(f"{short} is already in use" for short in dict.fromkeys(clashes))
            clash = f"[{clash}]" if len(set(clashes)) > 1 else clash
        else:
            given = wanted.get(name) or ""
            clash = f"{quoted(given)} is already in use" if given != accepted.get(name, "") and given in used else ""
        if clash:
            reason, message = f"{name[0].upper()}{name[1:]}Conflict", clash
        elif wanted.get(name):
            accepted[name] = copied(wanted[name])
        else:
            accepted.pop(name, None)
    if wanted.get("categories"):
        accepted["categories"] = list(wanted["categories"])
    else:
        accepted.pop("categories", None)
    return reason, message


def _set(conditions: list[JsonObject], now: str, kind: str, status: str, reason: str, message: str) -> None:
    new = {"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}
    for one in conditions:
        if one["type"] == kind:
            if one["status"] == status:
                new["lastTransitionTime"] = one["lastTransitionTime"]
            one.clear()
            one.update(new)
            return
    conditions.append(new)


# Kinds


class CustomRules:
    """What happens to a custom resource on its way into the store."""

    def __init__(self, schema: Schema, scale: JsonObject | None = None) -> None:
        """*scale* is the subresource of that name."""
        self.schema = schema
        self._scale = scale

    def prune(self, obj: JsonObject) -> Sequence[str]:
        """Remove what the schema does not know."""
        return self.schema.prune(obj)

    def default(self, obj: JsonObject, *, keep_nulls: bool = False) -> None:
        """Put in the schema's defaults."""
        self.schema.default(obj, keep_nulls=keep_nulls)

    def prepare(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> None:
        """Nothing: status and generation are the same for all kinds."""

    def validate(
        self, obj: JsonObject, old: JsonObject | None, subresource: str, found: Sequence[FieldError] = ()
    ) -> Sequence[FieldError]:
        """What is wrong with *obj*."""
        if any(error.path in {"kind", "apiVersion"} for error in found):
            return self.schema.validate_mistaken(obj, old, found)
        if subresource == "status" and old is not None:
            errors = self.schema.validate_status(obj, old, found)
        else:
            errors = self.schema.validate(obj, old, found)
        if self._scale is not None:
            errors += _replicas_errors(obj, self._scale, subresource)
        return errors

    def warnings(self, obj: JsonObject, old: JsonObject | None) -> Sequence[str]:
        """New finalizers that others might choose, too."""
        before = old["metadata"].get("finalizers", ()) if old is not None else ()
        advice = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
        return [
            f'metadata.finalizers: "{name}": {advice}'
            for name in obj["metadata"].get("finalizers", ())
            if "/" not in name and name not in {ORPHAN, FOREGROUND, *before}
        ]


def _replicas_errors(obj: JsonObject, scale: JsonObject, subresource: str) -> Iterator[FieldError]:
    paths = ["statusReplicasPath"] if subresource == "status" else ["specReplicasPath", "statusReplicasPath"]
    for name in paths:
        path = scale.get(name) or ""
        value: Any = obj
        for step in path.removeprefix(".").split("."):
            value = value.get(step) if isinstance(value, dict) else None
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        if value < 0:
            yield _invalid(path, value, "should be a non-negative integer")
        elif value > _INT32:
            yield _invalid(path, value, f"should be less than or equal to {_INT32}")


def kinds_of(crd: JsonObject) -> list[Kind]:
    """One kind for each version that is served, under the names that were accepted."""
    spec = crd["spec"]
    taken = (crd.get("status") or {}).get("acceptedNames") or {}
    served_as = {**spec["names"], **{name: value for name, value in taken.items() if value}}
    return [_kind(spec, version, served_as) for version in spec["versions"] if version.get("served")]


def _kind(spec: JsonObject, version: JsonObject, served_as: JsonObject) -> Kind:
    raw: JsonObject = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"}
    subresources = version.get("subresources") or {}
    return Kind(
        group=spec["group"],
        version=version["name"],
        plural=served_as["plural"],
        singular=served_as.get("singular") or served_as["kind"].lower(),
        kind=served_as["kind"],
        list_kind=served_as.get("listKind") or "",
        rules=CustomRules(compiled(raw), subresources.get("scale")),
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(served_as.get("shortNames") or ()),
        categories=tuple(served_as.get("categories") or ()),
        has_status=subresources.get("status") is not None,
        schema=raw,
        columns=tuple(map(_column, version.get("additionalPrinterColumns") or ())),
        field_selectors=tuple(field["jsonPath"].removeprefix(".") for field in version.get("selectableFields") or ()),
        custom=True,
        counts_generations=True,
        deprecation=_deprecation(spec["group"], version, served_as["kind"]),
    )


def _deprecation(group: str, version: JsonObject, kind: str) -> str:
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{group}/{version['name']} {kind} is deprecated"


def _column(column: JsonObject) -> Column:
    return Column(
        column["name"],
        column["type"],
        column["jsonPath"],
        format=column.get("format") or "",
        description=column.get("description") or "",
        priority=column.get("priority") or 0,
    )
