"""The kinds that are served before any CustomResourceDefinition is: their rules, columns and selectors."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from kargo_py.local.apiserver import coretypes, events, gojson, names
from kargo_py.local.apiserver.crdtypes import CUSTOM_RESOURCE_DEFINITION
from kargo_py.local.apiserver.failures import Cause, FieldError, bad_request, invalid
from kargo_py.local.apiserver.gotypes import inline
from kargo_py.local.apiserver.kinds import VERBS, Column, Kind, Rules
from kargo_py.local.apiserver.metatypes import OBJECT_META
from kargo_py.local.apiserver.objectmeta import (
    IMMUTABLE,
    KUBERNETES_FINALIZER,
    finalizer_errors,
    too_long,
    unqualified_finalizer_errors,
)
from kargo_py.local.apiserver.table import age
from kargo_py.local.apiserver.typedrules import TypedRules, column, described, internal
from kargo_py.local.apiserver.wire import JsonObject

DATA_LIMIT: Final = 1024 * 1024
NAME_LABEL: Final = "kubernetes.io/metadata.name"
_JSON_DEPTH: Final = 10_000


class NamespaceRules(TypedRules):
    """Namespaces: finalizers in ``spec``, the phase, and a label with the name."""

    def default(self, obj: JsonObject, *, keep_nulls: bool = False) -> None:
        """Label it with its name, once it has one; it is active."""
        name = obj["metadata"].get("name")
        if name:
            obj["metadata"].setdefault("labels", {})[NAME_LABEL] = name
        obj["status"].setdefault("phase", "Active")

    def prepare(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> None:
        """What is held, and the phase, come from the server."""
        self.default(obj)
        if old is None:
            held = obj["spec"].get("finalizers", [])
            if KUBERNETES_FINALIZER not in held:
                obj["spec"]["finalizers"] = [*held, KUBERNETES_FINALIZER]
            obj["status"] = {"phase": "Active"}
            return
        if subresource != "finalize":
            obj["spec"] = old["spec"]
        if subresource != "status":
            obj["status"] = old["status"]

    def validate(
        self, obj: JsonObject, old: JsonObject | None, subresource: str, found: Sequence[FieldError] = ()
    ) -> Sequence[FieldError]:
        """Finalizers have names; the phase fits the deletion."""
        if subresource == "status":
            return list(self._phase_errors(obj))
        indexed = subresource == "finalize"
        return [
            error
            for index, finalizer in enumerate(obj["spec"].get("finalizers", ()))
            for error in _kubernetes_finalizer(finalizer, f"spec.finalizers{f'[{index}]' if indexed else ''}")
        ]

    def _phase_errors(self, obj: JsonObject) -> Iterator[FieldError]:
        deleted = obj["metadata"].get("deletionTimestamp") is not None
        phase, wanted = obj["status"].get("phase", ""), "Terminating" if deleted else "Active"
        if phase != wanted:
            negation = "not " if deleted else ""
            yield FieldError.invalid(
                "status.Phase", phase, f"may only be '{wanted}' if `deletionTimestamp` is {negation}empty"
            )


def _kubernetes_finalizer(finalizer: str, path: str) -> Iterator[FieldError]:
    yield from finalizer_errors([finalizer], path)
    yield from unqualified_finalizer_errors(finalizer, path)


def _key_errors(field: str, values: JsonObject) -> Iterator[FieldError]:
    for key in values:
        for complaint in names.data_key(key):
            yield FieldError.invalid(f"{field}[{key}]", key, complaint)


def _immutable_errors(obj: JsonObject, old: JsonObject | None, fields: Sequence[str]) -> Iterator[FieldError]:
    if not old or not old.get("immutable"):
        return
    detail = "field is immutable when `immutable` is set"
    if not obj.get("immutable"):
        yield FieldError(Cause.FORBIDDEN, "immutable", detail=detail)
    for field in fields:
        if (obj.get(field) or {}) != (old.get(field) or {}):
            yield FieldError(Cause.FORBIDDEN, field, detail=detail)


def _decoded_size(values: JsonObject) -> int:
    return sum(len(value) // 4 * 3 - value.endswith("=") - value.endswith("==") for value in values.values())


class SecretRules(TypedRules):
    """Secrets: text becomes data, and the type says which keys there must be."""

    def prune(self, obj: JsonObject) -> Sequence[str]:
        """Put ``stringData`` into ``data``, too. Raises Mistyped."""
        unknown = super().prune(obj)
        text = obj.pop("stringData", None)
        if text:
            data = obj.setdefault("data", {})
            for key, value in text.items():
                data[key] = base64.b64encode(value.encode(errors="surrogatepass")).decode()
        return unknown

    def default(self, obj: JsonObject, *, keep_nulls: bool = False) -> None:
        """The type is Opaque."""
        obj.setdefault("type", "Opaque")

    def validate(
        self, obj: JsonObject, old: JsonObject | None, subresource: str, found: Sequence[FieldError] = ()
    ) -> Sequence[FieldError]:
        """Keys, size, and what the type asks for."""
        data: JsonObject = obj.get("data") or {}
        errors: list[FieldError] = []
        if old is not None and obj.get("type") != old.get("type"):
            errors.append(FieldError.invalid("type", obj.get("type", ""), IMMUTABLE))
        errors += _immutable_errors(obj, old, ("data",))
        errors += _key_errors("data", data)
        if _decoded_size(data) > DATA_LIMIT:
            errors.append(too_long("data", DATA_LIMIT))
        errors += self._type_errors(obj, data)
        return errors

    def _type_errors(self, obj: JsonObject, data: JsonObject) -> Iterator[FieldError]:
        kind = obj.get("type", "")
        if kind == "kubernetes.io/service-account-token":
            name = "kubernetes.io/service-account.name"
            if not (obj["metadata"].get("annotations") or {}).get(name):
                yield FieldError.required(f"metadata.annotations[{name}]")
        elif kind in _DOCKER:
            yield from self._docker_errors(_DOCKER[kind], data)
        elif kind == "kubernetes.io/basic-auth":
            if "username" not in data and "password" not in data:
                yield FieldError.required("data[username]")
                yield FieldError.required("data[password]")
        elif kind == "kubernetes.io/ssh-auth":
            if not data.get("ssh-privatekey"):
                yield FieldError.required("data[ssh-privatekey]")
        elif kind == "kubernetes.io/tls":
            for key in ("tls.crt", "tls.key"):
                if key not in data:
                    yield FieldError.required(f"data[{key}]")

    def _docker_errors(self, key: str, data: JsonObject) -> Iterator[FieldError]:
        if key not in data:
            yield FieldError.required(f"data[{key}]")
            return
        wrong = _no_object(base64.b64decode(data[key]))
        if wrong:
            yield FieldError.invalid(f"data[{key}]", "<secret contents redacted>", wrong)


_DOCKER: Final = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}


def _no_object(text: bytes) -> str | None:
    wrong = gojson.why_not(text, max_depth=_JSON_DEPTH)
    if wrong is not None:
        return wrong
    start = text.lstrip(b" \t\r\n")[:1]
    if start in {b"{", b"n"}:
        return None
    found = {b"[": "array", b'"': "string", b"t": "bool", b"f": "bool"}.get(start, "number")
    return f"json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"


class ConfigMapRules(TypedRules):
    """ConfigMaps: text and bytes under keys."""

    def validate(
        self, obj: JsonObject, old: JsonObject | None, subresource: str, found: Sequence[FieldError] = ()
    ) -> Sequence[FieldError]:
        """Keys, and the size of all."""
        data: JsonObject = obj.get("data") or {}
        binary: JsonObject = obj.get("binaryData") or {}
        errors = [*_immutable_errors(obj, old, ("data", "binaryData"))]
        for key in data:
            errors += _key_errors("data", {key: None})
            if key in binary:
                errors.append(FieldError.invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        errors += _key_errors("binaryData", binary)
        if sum(names.size(value) for value in data.values()) + _decoded_size(binary) > DATA_LIMIT:
            errors.append(too_long("[]", DATA_LIMIT))
        return errors


class ServiceAccountRules(TypedRules):
    """ServiceAccounts: of a Secret only the name is kept."""

    def prepare(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> None:
        """Keep the names of Secrets."""
        if "secrets" in obj:
            obj["secrets"] = [{"name": each["name"]} if "name" in each else {} for each in obj["secrets"]]


class LeaseRules(TypedRules):
    """Leases: numbers that make sense. Coordinated election is off, as by default."""

    def prepare(self, obj: JsonObject, old: JsonObject | None, subresource: str) -> None:
        """Drop what belongs to coordinated election."""
        for field in ("strategy", "preferredHolder"):
            if old is None or field not in old["spec"]:
                obj["spec"].pop(field, None)

    def validate(
        self, obj: JsonObject, old: JsonObject | None, subresource: str, found: Sequence[FieldError] = ()
    ) -> Sequence[FieldError]:
        """Durations are positive."""
        errors: list[FieldError] = []
        duration, transitions = obj["spec"].get("leaseDurationSeconds"), obj["spec"].get("leaseTransitions")
        if duration is not None and duration <= 0:
            errors.append(FieldError.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            errors.append(
                FieldError.invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
            )
        return errors


# Questions about access


class AccessReviewRules(TypedRules):
    """SelfSubjectAccessReviews: exactly one question."""

    def validate(
        self, obj: JsonObject, old: JsonObject | None, subresource: str, found: Sequence[FieldError] = ()
    ) -> Sequence[FieldError]:
        """One question, no metadata."""
        spec = obj["spec"]
        resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        errors: list[FieldError] = []
        if resource is not None and other is not None:
            shown = internal(other, ("path", "verb"))
            detail = "cannot be specified in combination with resourceAttributes"
            errors.append(FieldError.invalid("spec.nonResourceAttributes", shown, detail))
        if resource is None and other is None:
            detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            errors.append(FieldError.invalid("spec.resourceAttributes", None, detail))
        if any(key != "managedFields" for key in obj["metadata"]):
            errors.append(FieldError.invalid("metadata", obj["metadata"], "must be empty"))
        return errors


def allowed(review: JsonObject) -> JsonObject:
    """The answer to a SelfSubjectAccessReview: yes. Raises Failure."""
    errors = _ACCESS_REVIEWS.validate(review, None, "")
    if errors:
        raise invalid("authorization.k8s.io", "", "", errors)
    return {**review, "status": {"allowed": True}}


def everything_allowed(review: JsonObject) -> JsonObject:
    """The answer to a SelfSubjectRulesReview: all. Raises Failure."""
    if not review["spec"].get("namespace"):
        raise bad_request("no namespace on request")
    return {
        "kind": review["kind"],
        "apiVersion": review["apiVersion"],
        "metadata": {},
        "spec": {},
        "status": {
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        },
    }


_ACCESS_REVIEWS: Final = AccessReviewRules(coretypes.SELF_SUBJECT_ACCESS_REVIEW)


# Columns


_NAME: Final = column(
    "Name", described(OBJECT_META, "name"), lambda obj, _: obj["metadata"].get("name", ""), format="name"
)
_AGE: Final = column(
    "Age",
    described(OBJECT_META, "creationTimestamp"),
    lambda obj, now: age(obj["metadata"].get("creationTimestamp"), now),
)


def _count_of(*fields: str) -> Callable[[JsonObject, datetime], Any]:
    return lambda obj, _: sum(len(obj.get(field) or ()) for field in fields)


# Kinds


def kinds(definition_rules: Rules) -> Sequence[Kind]:
    """All built-in kinds; *definition_rules* are those of CustomResourceDefinitions."""
    return (*_core(), *events.kinds(), *_others(), _definitions(definition_rules))


def _core() -> Iterator[Kind]:
    yield Kind(
        "", "v1", "configmaps", "configmap", "ConfigMap", ConfigMapRules(coretypes.CONFIG_MAP),
        short_names=("cm",),
        schema=inline(coretypes.CONFIG_MAP),
        struct=coretypes.CONFIG_MAP,
        columns=[
            _NAME,
            column("Data", described(coretypes.CONFIG_MAP, "data"), _count_of("data", "binaryData")),
            _AGE,
        ],
        updates_unconditionally=True,
        revalidates_metadata=True,
        qualifies_finalizers=True,
    )  # fmt: skip
    yield Kind(
        "", "v1", "namespaces", "namespace", "Namespace", NamespaceRules(coretypes.NAMESPACE),
        namespaced=False,
        short_names=("ns",),
        has_status=True,
        schema=inline(coretypes.NAMESPACE),
        struct=coretypes.NAMESPACE,
        columns=[
            _NAME,
            column("Status", "The status of the namespace", lambda obj, _: obj["status"].get("phase", "")),
            _AGE,
        ],
        field_selectors=("status.phase",),
        name_rule=names.dns_label,
        verbs=[verb for verb in VERBS if verb != "deletecollection"],
        subresources=("finalize",),
        updates_unconditionally=True,
        revalidates_metadata=True,
        qualifies_finalizers=True,
    )  # fmt: skip
    yield Kind(
        "", "v1", "secrets", "secret", "Secret", SecretRules(coretypes.SECRET),
        schema=inline(coretypes.SECRET),
        struct=coretypes.SECRET,
        columns=[
            _NAME,
            column("Type", described(coretypes.SECRET, "type"), lambda obj, _: obj.get("type", "")),
            column("Data", described(coretypes.SECRET, "data"), _count_of("data")),
            _AGE,
        ],
        field_selectors=("type",),
        updates_unconditionally=True,
        revalidates_metadata=True,
        qualifies_finalizers=True,
    )  # fmt: skip
    yield Kind(
        "", "v1", "serviceaccounts", "serviceaccount", "ServiceAccount",
        ServiceAccountRules(coretypes.SERVICE_ACCOUNT),
        short_names=("sa",),
        schema=inline(coretypes.SERVICE_ACCOUNT),
        struct=coretypes.SERVICE_ACCOUNT,
        columns=[
            _NAME,
            column("Secrets", described(coretypes.SERVICE_ACCOUNT, "secrets"), _count_of("secrets")),
            _AGE,
        ],
        updates_unconditionally=True,
        revalidates_metadata=True,
        qualifies_finalizers=True,
    )  # fmt: skip


def _others() -> Iterator[Kind]:
    yield Kind(
        "coordination.k8s.io", "v1", "leases", "lease", "Lease", LeaseRules(coretypes.LEASE),
        schema=inline(coretypes.LEASE),
        struct=coretypes.LEASE,
        columns=[
            _NAME,
            column("Holder", "Who holds it.", lambda obj, _: obj["spec"].get("holderIdentity", "")),
            _AGE,
        ],
        creates_on_update=True,
    )  # fmt: skip
    yield Kind(
        "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "selfsubjectaccessreview",
        "SelfSubjectAccessReview", _ACCESS_REVIEWS,
        namespaced=False,
        schema=inline(coretypes.SELF_SUBJECT_ACCESS_REVIEW),
        struct=coretypes.SELF_SUBJECT_ACCESS_REVIEW,
        verbs=("create",),
        answer=allowed,
    )  # fmt: skip
    yield Kind(
        "authorization.k8s.io", "v1", "selfsubjectrulesreviews", "selfsubjectrulesreview",
        "SelfSubjectRulesReview", TypedRules(coretypes.SELF_SUBJECT_RULES_REVIEW),
        namespaced=False,
        schema=inline(coretypes.SELF_SUBJECT_RULES_REVIEW),
        struct=coretypes.SELF_SUBJECT_RULES_REVIEW,
        verbs=("create",),
        answer=everything_allowed,
    )  # fmt: skip


def _definitions(rules: Rules) -> Kind:
    return Kind(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", "customresourcedefinition",
        "CustomResourceDefinition", rules,
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        has_status=True,
        schema=inline(CUSTOM_RESOURCE_DEFINITION),
        struct=CUSTOM_RESOURCE_DEFINITION,
        columns=[
            _NAME,
            Column(
                "Created At", "date", "",
                description=described(OBJECT_META, "creationTimestamp"),
                cell=lambda obj, _: obj["metadata"].get("creationTimestamp"),
            ),
        ],
        counts_generations=True,
    )  # fmt: skip
