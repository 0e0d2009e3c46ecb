"""The CustomResourceDefinitions on a server, embedded and real: taken, explained, defaulted, guarding the stored."""

import json
import subprocess
from collections.abc import Callable

import pytest

from kargo_py.api.promotion import Promotion
from kargo_py.api.types import JsonObject
from tests.envtest.server import DEFINITIONS, ApiServer, RequestFailed

API = "/apis/kargo.akuity.io/v1alpha1"
ORIGIN = {"kind": "Warehouse", "name": "wh"}
STEP = {"uses": "argocd-update", "config": {"apps": [{"name": "shop", "n": 1.5, "list": [None, {}]}]}}


def _object(kind: str, spec: JsonObject) -> JsonObject:
    return {"apiVersion": "kargo.akuity.io/v1alpha1", "kind": kind, "metadata": {"name": "dev"}, "spec": spec}


def _promotion(**spec: object) -> JsonObject:
    return _object("Promotion", {"stage": "dev", "freight": "a", "steps": [STEP], **spec})


def _stage(step: JsonObject, **sources: object) -> JsonObject:
    requested = [{"origin": ORIGIN, "sources": {"direct": True, **sources}}]
    return _object("Stage", {"requestedFreight": requested, "promotionTemplate": {"spec": {"steps": [step]}}})


def _create(server: ApiServer, namespace: str, wire: JsonObject, query: str = "") -> JsonObject:
    return server.request("POST", f"{API}/namespaces/{namespace}/{wire['kind'].lower()}s{query}", wire)


def test_definitions_are_accepted(crds: ApiServer) -> None:
    """The server has nothing to say against them: no condition but that they are accepted and served."""
    ours = [d for d in crds.request("GET", DEFINITIONS)["items"] if d["spec"]["group"] == "kargo.akuity.io"]
    assert len(ours) == 5
    for definition in ours:
        conditions = {c["type"]: c["status"] for c in definition["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}


def test_created_promotion_is_pending(crds: ApiServer, namespace: str) -> None:
    """A Promotion shows Pending as it is created, which costs no write, and its free JSON is stored as it was given."""
    stored = _create(crds, namespace, _promotion())
    assert stored["status"] == {"phase": "Pending"}
    assert stored["metadata"]["generation"] == 1
    assert stored["spec"]["steps"] == [STEP]
    assert json.dumps(Promotion.model_validate(stored).wire(), sort_keys=True) == json.dumps(stored, sort_keys=True)


def test_unknown_fields_of_a_status_are_kept(crds: ApiServer, namespace: str) -> None:
    """What another program writes into a status is not pruned, neither there nor deeper."""
    _create(crds, namespace, _promotion())
    status = {"phase": "Running", "new": {"a": [1]}, "freight": {"name": "a", "new": True}}
    path = f"{API}/namespaces/{namespace}/promotions/dev/status"
    stored = crds.request("PATCH", path, {"status": status}, content_type="application/merge-patch+json")
    assert stored["status"] == status


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        (_promotion(origin=ORIGIN), "exactly one of freight and origin must be given"),
        (_promotion(freight=None), "exactly one of freight and origin must be given"),
        (_promotion(steps=[]), "spec.steps in body should have at least 1 items"),
        (_promotion(steps=[{"task": {"name": "a"}}]), "must have uses and no task"),
        (_promotion(steps=[{**STEP, "task": {"name": "a"}}]), "must have uses and no task"),
        (_promotion(steps=[{**STEP, "retry": {"timeout": "5 minutes"}}]), "spec.steps[0].retry.timeout"),
        (_promotion(steps=[{**STEP, "retry": {"errorThreshold": -1}}]), "spec.steps[0].retry.errorThreshold"),
        (_promotion(stage="Dev"), "spec.stage in body should match"),
        (_promotion(vars=[{"name": "1a"}]), "spec.vars[0].name in body should match"),
        (_stage({}), "exactly one of uses and task"),
        (_stage({"uses": "a", "task": {"name": "a"}}), "exactly one of uses and task"),
        (_stage({"task": {"name": "a"}, "continueOnError": False}), "a step with a task cannot set continueOnError"),
        (_stage({"task": {"name": "a"}, "retry": {}}), "a step with a task cannot set retry"),
        (_stage(STEP, requiredSoakTime="1d"), "requiredSoakTime in body should match"),
        (_stage(STEP, availabilityStrategy="Most"), 'supported values: "", "All", "OneOf"'),
        (_object("Stage", {"requestedFreight": []}), "spec.requestedFreight in body should have at least 1 items"),
        (_object("Warehouse", {"subscriptions": []}), "spec.subscriptions in body should have at least 1 items"),
    ],
)
def test_bad_objects_are_refused(crds: ApiServer, namespace: str, wire: JsonObject, reason: str) -> None:
    """What breaks a rule is not stored; the answer names the field or the rule."""
    with pytest.raises(RequestFailed) as caught:
        _create(crds, namespace, wire, "?dryRun=All")
    assert caught.value.status == 422
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "wire",
    [
        _promotion(),
        _object("Promotion", {"stage": "dev", "origin": ORIGIN}),
        _stage(STEP, requiredSoakTime="1.5h", availabilityStrategy=""),
        _stage({"task": {"name": "a", "kind": "ClusterPromotionTask"}, "vars": [{"name": "a"}]}),
        _object("Stage", {"requestedFreight": [{"origin": ORIGIN, "sources": {"stages": ["test"]}}]}),
        _object("Warehouse", {"subscriptions": [{"git": {"repoURL": "https://h/x"}}]}),
    ],
)
def test_good_objects_are_taken(crds: ApiServer, namespace: str, wire: JsonObject) -> None:
    """What Kargo takes is taken, strictly: no field of it is unknown to us."""
    _create(crds, namespace, wire, "?dryRun=All&fieldValidation=Strict")


@pytest.fixture
def kubectl(crds: ApiServer, kubectl_path: str) -> Callable[..., str]:
    """Give a function that runs kubectl as admin and returns what it says."""

    def run(*arguments: str) -> str:
        command = [kubectl_path, "--kubeconfig", str(crds.kubeconfig("admin")), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    return run


def test_kubectl_get(crds: ApiServer, namespace: str, kubectl: Callable[..., str]) -> None:
    """``kubectl get promo`` shows where a Promotion goes and where it stands."""
    _create(crds, namespace, _promotion())
    header, line = kubectl("get", "promo", "--namespace", namespace).splitlines()
    assert header.split() == ["NAME", "SHARD", "STAGE", "FREIGHT", "PHASE", "AGE"]
    assert line.split()[:4] == ["dev", "dev", "a", "Pending"]


@pytest.mark.parametrize(
    ("field", "texts"),
    [
        ("promotions.spec.steps", ["The steps, run one after another.", "Kind of step to run.", "config\t<Object>"]),
        ("stages.spec.requestedFreight.sources", ["Straight from the Warehouse.", "requiredSoakTime\t<string>"]),
        ("promotions.status.operations", ["changedFields\t<[]string>", "JSON pointers of the fields"]),
    ],
)
def test_kubectl_explain(kubectl: Callable[..., str], field: str, texts: list[str]) -> None:
    """``kubectl explain`` says what a field is for."""
    explained = kubectl("explain", field)
    assert [text for text in texts if text not in explained] == []
