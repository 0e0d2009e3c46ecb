"""What is served, as clients ask for it: groups, versions, resources and their verbs."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final

from kargo_py.local.apiserver.kinds import VERBS, Kind
from kargo_py.local.apiserver.wire import JsonObject

VERSION: Final[JsonObject] = {
    "major": "1",
    "minor": "34",
    "emulationMajor": "1",
    "emulationMinor": "34",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "33",
    "gitVersion": "v1.34.3+kargo-py",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
"""The answer to ``/version``: the Kubernetes that the server behaves as."""

# The order of groups in the real server: built-in ones by importance, then those of custom resources by name.
_FIRST: Final = ("events.k8s.io", "authorization.k8s.io", "apiextensions.k8s.io", "coordination.k8s.io")
_SUBRESOURCE_VERBS: Final = {"status": ["get", "patch", "update"], "finalize": ["update"]}
_CUSTOM_VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")

_kubernetes_version = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?", re.ASCII).fullmatch


def core_versions(address: str) -> JsonObject:
    """The answer to ``/api``. *address* is the server's: ``127.0.0.1:6443``."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def groups(kinds: Iterable[Kind]) -> JsonObject:
    """The answer to ``/apis``."""
    versions = _versions(kinds)
    listed = [_group(name, versions[name]) for name in sorted(versions, key=_group_order) if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def group(kinds: Iterable[Kind], name: str) -> JsonObject | None:
    """The answer to ``/apis/<group>``; None if there is no such group."""
    found = _versions(kinds).get(name) if name else None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, found)} if found else None


def resources(kinds: Iterable[Kind], group: str, version: str) -> JsonObject | None:
    """The answer to ``/api/v1`` and ``/apis/<group>/<version>``; None if there is no such version."""
    kinds = tuple(kinds)
    served = sorted(
        (kind for kind in kinds if (kind.group, kind.version) == (group, version)), key=lambda kind: kind.plural
    )
    if not served:
        return None
    listed: list[JsonObject] = []
    for kind in served:
        listed.append(_resource(kind, kinds))
        listed += [_subresource(kind, name) for name in subresources(kind)]
    typed = {"kind": "APIResourceList", "apiVersion": "v1"} if group else {"kind": "APIResourceList"}
    return {**typed, "groupVersion": served[0].api_version, "resources": listed}


def subresources(kind: Kind) -> Sequence[str]:
    """Names of the kind's subresources, in order."""
    return sorted([*kind.subresources, *(("status",) if kind.has_status else ())])


def version_order(version: str) -> tuple[int, int, int, str]:
    """A sort key that puts the version first that clients should prefer: v2, v1, v1beta2, v1alpha1, others."""
    match = _kubernetes_version(version)
    if match is None:
        return 3, 0, 0, version
    stability = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return stability, -int(match[1]), -int(match[3] or 0), ""


def _versions(kinds: Iterable[Kind]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for kind in kinds:
        found.setdefault(kind.group, set()).add(kind.version)
    return {name: sorted(versions, key=version_order) for name, versions in found.items()}


def _group_order(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST)), name


def _group(name: str, versions: Sequence[str]) -> JsonObject:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource(kind: Kind, kinds: Sequence[Kind]) -> JsonObject:
    verbs = _CUSTOM_VERBS if kind.custom and tuple(kind.verbs) == VERBS else kind.verbs
    entry: JsonObject = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    stored = _stored(kind, kinds)
    if stored:
        digest = hashlib.sha256(stored.encode()).digest()[:8]
        entry["storageVersionHash"] = base64.b64encode(digest).decode()
    return entry


def _stored(kind: Kind, kinds: Sequence[Kind]) -> str:
    """Group, version and kind that objects are stored as, "" where that is not known or nothing is stored."""
    if kind.answer is not None or kind.plural == "customresourcedefinitions":  # stored by the real one as v1beta1
        return ""
    if kind.view_of is not None:
        return f"{kind.view_of.group}/{kind.view_of.version}/{kind.kind}"
    alike = [other for other in kinds if (other.group, other.plural) == (kind.group, kind.plural)]
    return f"{kind.group}/{kind.version}/{kind.kind}" if len(alike) == 1 else ""


def _subresource(kind: Kind, name: str) -> JsonObject:
    return {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _SUBRESOURCE_VERBS[name],
    }
