"""CustomResourceDefinitions: what may be one.

Source: apiextensions-apiserver ``pkg/apis/apiextensions``, ``pkg/registry/customresourcedefinition``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from kargo_py.local.apiserver import names
from kargo_py.local.apiserver.crdshown import go_versions
from kargo_py.local.apiserver.crdstatus import condition
from kargo_py.local.apiserver.crdtypes import CUSTOM_RESOURCE_DEFINITION
from kargo_py.local.apiserver.failures import Cause, FieldError
from kargo_py.local.apiserver.formats import is_recognized
from kargo_py.local.apiserver.gotext import Verbatim, compact, quoted
from kargo_py.local.apiserver.schemapath import follow
from kargo_py.local.apiserver.structural import errors_of
from kargo_py.local.apiserver.wire import JsonObject, copied, identical

_APPROVED: Final = "api-approved.kubernetes.io"
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MAX_SELECTABLE: Final = 8
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
    errors += _versions_errors(versions, go_versions(None if spec.get("versions") is None else versions))
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
