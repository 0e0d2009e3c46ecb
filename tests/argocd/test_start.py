"""The write that starts a sync."""

from __future__ import annotations

from collections.abc import Callable

from kargo_py.argocd.application import Application
from kargo_py.argocd.options import ResourceName, SyncOptions
from kargo_py.argocd.sources import SourceEdit
from kargo_py.argocd.start import REASON, Initiator, start_patch

Build = Callable[..., Application]


def test_start(app: Build) -> None:
    """Guard, spec edit, operation with stamp, stamp annotation, refresh and reset stand in one patch."""
    seen = app(spec={"syncPolicy": {"syncOptions": ["CreateNamespace=true"], "retry": {"limit": 3}}})
    edit = SourceEdit(("abc",), {"source": {"targetRevision": "abc"}})

    patch = start_patch(
        seen, stamp="s", promotion="dev.01k", stage="shop:dev", initiator=Initiator("a@b", automated=False), edit=edit
    )

    assert patch == {
        "metadata": {
            "resourceVersion": "7",
            "annotations": {"argocd.argoproj.io/refresh": "hard", "kargo-py.io/stamp": "s"},
        },
        "spec": {"source": {"targetRevision": "abc"}},
        "operation": {
            "initiatedBy": {"username": "a@b"},
            "info": [
                {"name": "Reason", "value": REASON},
                {"name": "kargo.akuity.io/promotion", "value": "dev.01k"},
                {"name": "kargo-py.io/stamp", "value": "s"},
                {"name": "kargo-py.io/stage", "value": "shop:dev"},
            ],
            "sync": {"syncOptions": ["CreateNamespace=true"]},
            "retry": {"limit": 3},
        },
        "status": {"operationState": None},
    }


def test_options(app: Build) -> None:
    """How to sync stands in the operation beside the options of the spec."""
    seen = app(spec={"syncPolicy": {"syncOptions": ["Validate=false"]}})
    options = SyncOptions(prune=True, resources=(ResourceName("Service", "web"),), revision="abc")

    patch = start_patch(
        seen,
        stamp="s",
        promotion="p",
        stage="shop:dev",
        initiator=Initiator("a@b", automated=False),
        edit=SourceEdit(("",), sync=options),
    )

    assert patch["operation"]["sync"] == {
        "prune": True,
        "resources": [{"kind": "Service", "name": "web"}],
        "revision": "abc",
        "syncOptions": ["Validate=false"],
    }


def test_a_dry_run_asks_for_no_refresh(app: Build) -> None:
    """A refresh may make auto-sync deploy what is only to be tried."""
    patch = start_patch(
        app(),
        stamp="s",
        promotion="p",
        stage="shop:dev",
        initiator=Initiator("a@b", automated=False),
        edit=SourceEdit(("",), sync=SyncOptions(dry_run=True)),
    )

    assert patch["operation"]["sync"] == {"dryRun": True}
    assert patch["metadata"]["annotations"] == {"kargo-py.io/stamp": "s"}


def test_nothing_to_copy(app: Build) -> None:
    """Without a sync policy and without an edit, nothing is invented; the controller's own syncs count as automated."""
    patch = start_patch(
        app(),
        stamp="s",
        promotion="p",
        stage="shop:dev",
        initiator=Initiator("kargo-controller", automated=True),
        edit=SourceEdit(("",)),
    )

    assert "spec" not in patch
    assert patch["operation"]["sync"] == {}
    assert "retry" not in patch["operation"]
    assert patch["operation"]["initiatedBy"] == {"username": "kargo-controller", "automated": True}
