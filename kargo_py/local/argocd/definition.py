"""The CustomResourceDefinition of Argo CD's Application, for API servers on which Argo CD is only simulated.

As Argo CD's own it has no status subresource and the same columns; the schema lets everything pass.
"""

from __future__ import annotations

from typing import Final

from kargo_py.kube.client import JsonObject

APPLICATION: Final[JsonObject] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "applications.argoproj.io"},
    "spec": {
        "group": "argoproj.io",
        "scope": "Namespaced",
        "names": {
            "kind": "Application",
            "listKind": "ApplicationList",
            "plural": "applications",
            "singular": "application",
            "shortNames": ["app", "apps"],
        },
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "additionalPrinterColumns": [
                    {"name": "Sync Status", "type": "string", "jsonPath": ".status.sync.status"},
                    {"name": "Health Status", "type": "string", "jsonPath": ".status.health.status"},
                    {"name": "Revision", "type": "string", "jsonPath": ".status.sync.revision", "priority": 10},
                    {"name": "Project", "type": "string", "jsonPath": ".spec.project", "priority": 10},
                ],
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
