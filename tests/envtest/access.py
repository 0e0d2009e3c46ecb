"""Who may do what on the test server: its users, their roles, and what the audit log keeps."""

from dataclasses import dataclass
from typing import Any, Final, Literal

JsonObject = dict[str, Any]
UserName = Literal["admin", "controller", "argocd", "bench", "nobody"]

# What the API server itself puts every service account into; priority and fairness class by it (workload-low).
_SERVICE_ACCOUNT: Final = ("system:serviceaccounts", "system:authenticated")


@dataclass(frozen=True, slots=True)
class User:
    """One line of the token file."""

    name: str
    groups: tuple[str, ...]
    token: str


USERS: Final[dict[UserName, User]] = {
    "admin": User("admin", ("system:masters",), "admin-token"),
    "bench": User("bench", ("system:masters",), "bench-token"),
    "controller": User("system:serviceaccount:impl:controller", _SERVICE_ACCOUNT, "controller-token"),
    "argocd": User("system:serviceaccount:argocd:fake-argocd", _SERVICE_ACCOUNT, "argocd-token"),
    "nobody": User("nobody", (), "nobody-token"),
}

_READ: Final = ["get", "list", "watch"]
_WRITE: Final = ["create", "update", "patch", "delete"]


def _rule(group: str, resources: list[str], verbs: list[str]) -> JsonObject:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


# RBAC gives what is listed here and nothing else; "nobody" gets nothing.
RULES: Final[dict[UserName, list[JsonObject]]] = {
    # As deploy/ has it, no more; tests/deploy compares the two.
    "controller": [
        _rule("kargo.akuity.io", ["promotions", "stages", "freights"], _READ),
        _rule("kargo.akuity.io", ["promotiontasks", "clusterpromotiontasks"], _READ),
        _rule("kargo.akuity.io", ["promotions/status", "stages/status", "freights/status"], ["patch"]),
        _rule("kargo.akuity.io", ["promotions"], ["patch"]),
        _rule("kargo.akuity.io", ["stages"], ["patch"]),
        _rule("kargo.akuity.io", ["freights"], ["patch"]),
        _rule("", ["configmaps", "secrets"], ["get"]),
        _rule("", ["events"], ["create"]),
        {**_rule("", ["namespaces"], ["get"]), "resourceNames": ["kube-system"]},
        _rule("argoproj.io", ["applications"], [*_READ, "patch"]),
        _rule("argoproj.io", ["applicationsets"], ["get"]),
    ],
    "argocd": [
        _rule("argoproj.io", ["*"], [*_READ, *_WRITE]),
        _rule("", ["namespaces"], _READ),
        _rule("", ["events"], ["create", "patch"]),
    ],
}


def role_manifests() -> list[tuple[str, JsonObject]]:
    """ClusterRoles and their bindings, each with the path of its collection."""
    group = "rbac.authorization.k8s.io"
    manifests: list[tuple[str, JsonObject]] = []
    for user, rules in RULES.items():
        metadata = {"name": f"envtest:{user}"}
        role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": metadata["name"]},
            "subjects": [{"apiGroup": group, "kind": "User", "name": USERS[user].name}],
        }
        manifests += [(f"/apis/{group}/v1/clusterroles", role), (f"/apis/{group}/v1/clusterrolebindings", binding)]
    return manifests


# Every request of a client, with the bodies of the writes that matter; as ../shared/bench/kube-up.sh has it.
AUDIT_POLICY: Final[JsonObject] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "None",
            "nonResourceURLs": [
                *("/readyz*", "/livez*", "/healthz*", "/metrics*", "/openapi*", "/api*", "/version*"),
            ],
        },
        {"level": "None", "users": ["system:apiserver"]},
        {
            "level": "Request",
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            "resources": [{"group": "kargo.akuity.io"}, {"group": "argoproj.io"}],
        },
        {"level": "Metadata"},
    ],
}
