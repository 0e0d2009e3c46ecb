"""The CustomResourceDefinitions on a server, embedded and real: taken, explained, defaulted, guarding the stored."""

import json
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from kargo_py.api.kinds import KINDS
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
    assert len(ours) == len(KINDS) == 11
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
        (_promotion(steps=[{}]), "exactly one of uses and task must be given"),
        (_promotion(steps=[{**STEP, "task": {"name": "a"}}]), "exactly one of uses and task must be given"),
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


def _columns(table: str) -> dict[str, str]:
    """The cells of a table with one line, by column: kubectl puts each cell below the first letter of its column."""
    header, line = table.splitlines()
    starts = [match.start() for match in re.finditer(r"(?<!\S)\S", re.sub(r"(?<=\S) (?=\S)", "_", header))]
    ends = [*starts[1:], None]
    return {header[a:b].strip(): line[a:b].strip() for a, b in zip(starts, ends, strict=True)}


AGO = (datetime.now(UTC) - timedelta(days=9, hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_kubectl_get_promotions(crds: ApiServer, namespace: str, kubectl: Callable[..., str]) -> None:
    """What is promoted where, how it stands, since when, and, with -o wide, why."""
    _create(crds, namespace, _promotion())
    created = _columns(kubectl("get", "promo", "--namespace", namespace))
    assert [*created] == ["NAME", "SHARD", "STAGE", "FREIGHT", "PHASE", "STARTED", "AGE"]
    assert [*created.values()][:-1] == ["dev", "", "dev", "a", "Pending", ""]

    path = f"{API}/namespaces/{namespace}/promotions/dev/status"
    status = {"phase": "Failed", "startedAt": AGO, "finishedAt": AGO, "message": "sync failed: no such image"}
    crds.request("PATCH", path, {"status": status}, content_type="application/merge-patch+json")
    wide = _columns(kubectl("get", "promo", "--namespace", namespace, "--output=wide"))
    shown = {"PHASE": "Failed", "STARTED": "9d", "FINISHED": "9d", "MESSAGE": "sync failed: no such image"}
    assert shown.items() <= wide.items()


def test_kubectl_get_stages(crds: ApiServer, namespace: str, kubectl: Callable[..., str]) -> None:
    """What is in a Stage and how it is; what comes to it, and, with -o wide, by which Promotion."""
    _create(crds, namespace, _stage(STEP))
    path = f"{API}/namespaces/{namespace}/stages/dev/status"
    ready = {"type": "Ready", "status": "False", "reason": "Promoting", "message": "Promotion dev.2 is running"}
    status = {
        "freightSummary": "calm-otter",
        "health": {"status": "Healthy"},
        "conditions": [{**ready, "lastTransitionTime": AGO}],
        "currentPromotion": {"name": "dev.2", "freight": {"name": "f2"}},
        "lastPromotion": {"name": "dev.1", "status": {"phase": "Succeeded"}},
    }
    crds.request("PATCH", path, {"status": status}, content_type="application/merge-patch+json")

    narrow = _columns(kubectl("get", "stages", "--namespace", namespace))
    assert [*narrow] == ["NAME", "SHARD", "CURRENT FREIGHT", "HEALTH", "READY", "PROMOTING", "STATUS", "AGE"]
    assert [*narrow.values()][1:-1] == ["", "calm-otter", "Healthy", "False", "f2", "Promotion dev.2 is running"]
    wide = _columns(kubectl("get", "stages", "--namespace", namespace, "--output=wide"))
    assert {"PROMOTION": "dev.2", "LAST PROMOTION": "dev.1", "LAST PHASE": "Succeeded"}.items() <= wide.items()


def test_kubectl_get_freight_and_warehouses(crds: ApiServer, namespace: str, kubectl: Callable[..., str]) -> None:
    """Where Freight comes from and what is in it; when a Warehouse last looked and what it made."""
    content = {"commits": [{"id": "3f1a0f6"}], "images": [{"tag": "v1.2.0"}]}
    _create(crds, namespace, {**_object("Freight", {}), "origin": ORIGIN, **content})
    _create(crds, namespace, _object("Warehouse", {"subscriptions": [{"git": {"repoURL": "https://h/x"}}]}))
    path = f"{API}/namespaces/{namespace}/warehouses/dev/status"
    status = {"discoveredArtifacts": {"discoveredAt": AGO}, "lastFreightID": "f1"}
    crds.request("PATCH", path, {"status": status}, content_type="application/merge-patch+json")

    freight = _columns(kubectl("get", "freights", "--namespace", namespace, "--output=wide"))
    assert {"ORIGIN (NAME)": "wh", "COMMIT": "3f1a0f6", "IMAGE TAG": "v1.2.0"}.items() <= freight.items()
    warehouses = _columns(kubectl("get", "warehouses", "--namespace", namespace, "--output=wide"))
    assert {"DISCOVERED": "9d", "LAST FREIGHT": "f1"}.items() <= warehouses.items()


@pytest.mark.parametrize("kind", ["promotions.spec.steps", "stages.spec.requestedFreight.sources"])
def test_kubectl_explain_reads_like_documentation(kubectl: Callable[..., str], kind: str) -> None:
    """Every field of it has a description."""
    explained = kubectl("explain", kind)
    _, _, fields = explained.partition("FIELDS:\n")
    told = re.split(r"^  (?=\w+\t)", fields, flags=re.MULTILINE)[1:]
    assert len(told) >= 5
    assert [field for field in told if len(field.splitlines()) < 2] == []


@pytest.mark.parametrize(
    ("field", "texts"),
    [
        ("promotions", ["A request to move Freight into a Stage", "set its annotation kargo.akuity.io/abort"]),
        ("promotions.spec.steps", ["The steps, run one after another", "Kind of step to run", "config\t<Object>"]),
        ("promotions.spec.steps.retry", ["e.g. 10m", "timeout\t<string>", "Default: the step's own"]),
        ("stages.spec.requestedFreight.sources", ["Straight from the Warehouse", "requiredSoakTime\t<string>"]),
        ("stages.spec.promotionTemplate.spec.steps.task", ["ClusterPromotionTask", "Name of the task, e.g. deploy."]),
        ("promotions.status.operations", ["changedFields\t<[]string>", "JSON pointers of the fields"]),
        ("warehouses.spec.subscriptions", ["exactly one of git, image, chart", "e.g. {repoURL:"]),
        ("projectconfigs.spec.promotionPolicies.stageSelector", ["glob:test-*", "matchLabels\t<map[string]string>"]),
        ("clusterconfigs.spec.gitClient", ["kargo@example.com"]),
        ("promotiontasks.spec", ["None may refer to another", "vars\t<[]Object>"]),
        ("targets", ["Only the commercial Kargo acts on it"]),
    ],
)
def test_kubectl_explain(kubectl: Callable[..., str], field: str, texts: list[str]) -> None:
    """``kubectl explain`` says what a field is for, with an example and the default."""
    explained = re.sub("[ \n]+", " ", kubectl("explain", field))
    assert [text for text in texts if text not in explained] == []
