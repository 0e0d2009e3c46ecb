"""The manifests of ``deploy/``: that they fit together, and what they set is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kargo_py import __version__
from kargo_py.cli.main import app
from kargo_py.controllers.endpoints import HEALTHZ, READYZ
from kargo_py.kube.controller import Controller
from kargo_py.kube.events import FLUSH_TIME
from tests.deploy.manifests import DEPLOY, VARIANTS, JsonObject, one, rendered, rules
from tests.envtest.access import RULES

GUIDE = DEPLOY.parent / "docs/how-to/run-in-a-cluster.md"
WITH_PROGRAM = [variant for variant in VARIANTS if variant != "argocd-cluster"]
SEPARATE = ["separate-argocd", "argocd-cluster"]


def plain(found: list[JsonObject]) -> set[str]:
    return {str(sorted((name, sorted(values)) for name, values in rule.items())) for rule in found}


def container(objects: list[JsonObject]) -> JsonObject:
    (only,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    found: JsonObject = only
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_object_once(variant: str) -> None:
    """Nothing is there twice, all of it is labelled, and what has a namespace stands in ours or in Argo CD's."""
    objects = rendered(variant)
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]

    assert len(set(names)) == len(names)
    assert {each["metadata"].get("namespace", "kargo-py") for each in objects} <= {"kargo-py", "argocd"}
    assert all(each["metadata"]["labels"]["app.kubernetes.io/name"] == "kargo-py" for each in objects)


@pytest.mark.parametrize("variants", [["."], ["argocd-namespace-only"], SEPARATE], ids=lambda variants: variants[0])
def test_rights(variants: list[str]) -> None:
    """Every way to deploy gives the rights with which all tests on a real API server pass."""
    found = [rule for variant in variants for rule in rules(rendered(variant))]

    assert plain(found) == plain(RULES["controller"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_bindings(variant: str) -> None:
    """Each role is bound, to the service account that is there."""
    objects = rendered(variant)
    account = one(objects, "ServiceAccount")["metadata"]
    bindings = [each for each in objects if each["kind"] in {"ClusterRoleBinding", "RoleBinding"}]

    assert {each["roleRef"]["name"] for each in bindings} == {
        each["metadata"]["name"] for each in objects if each["kind"] == "ClusterRole"
    }
    for each in bindings:
        assert each["subjects"] == [
            {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
        ]


def test_applications_of_one_namespace() -> None:
    """There the rights on Applications hold in that namespace only, and the program does not ask for more."""
    objects = rendered("argocd-namespace-only")

    bound = {each["metadata"]["name"] for each in objects if each["kind"] == "ClusterRoleBinding"}
    assert bound == {"kargo-py", "kargo-py-lookups"}
    assert one(objects, "RoleBinding")["metadata"]["namespace"] == "argocd"
    values = {each["name"]: each["value"] for each in container(objects)["env"]}
    assert values["ARGOCD_WATCH_ARGOCD_NAMESPACE_ONLY"] == "true"


@pytest.mark.parametrize("variant", WITH_PROGRAM)
def test_variables(variant: str) -> None:
    """Each variable that is set is one that the command reads."""
    shown = CliRunner().invoke(app, ["run", "--help"]).stdout
    known = set(re.findall(r"env\s+var:\s+([A-Z_]+)", shown))

    assert {each["name"] for each in container(rendered(variant))["env"]} <= known


@pytest.mark.parametrize("variant", WITH_PROGRAM)
def test_ports(variant: str) -> None:
    """Probes and Service find what the variables have the program serve."""
    objects = rendered(variant)
    pod = container(objects)
    values = {each["name"]: each["value"] for each in pod["env"]}
    ports = {each["name"]: each["containerPort"] for each in pod["ports"]}
    service = one(objects, "Service")["spec"]

    assert values["HEALTH_BIND_ADDRESS"] == f":{ports['health']}"
    assert values["METRICS_BIND_ADDRESS"] == f":{ports['metrics']}"
    probes = {name: pod[name]["httpGet"] for name in ("livenessProbe", "readinessProbe", "startupProbe")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "livenessProbe": HEALTHZ,
        "readinessProbe": READYZ,
        "startupProbe": HEALTHZ,
    }
    assert {probe["port"] for probe in probes.values()} == {"health"}
    assert [port["targetPort"] for port in service["ports"]] == ["metrics"]
    labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()


@pytest.mark.parametrize("variant", WITH_PROGRAM)
def test_restricted(variant: str) -> None:
    """The pod keeps the rules of Kubernetes' profile "restricted", which its namespace demands."""
    objects = rendered(variant)
    spec = one(objects, "Deployment")["spec"]["template"]["spec"]

    assert one(objects, "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(objects)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(volume.keys() & {"secret", "emptyDir"} for volume in spec.get("volumes", ()))


@pytest.mark.parametrize("variant", WITH_PROGRAM)
def test_working_directories(variant: str) -> None:
    """All else cannot be written to, so there is a volume for them, on a disk; who is left of programs has a parent."""
    spec = one(rendered(variant), "Deployment")["spec"]["template"]["spec"]
    pod = container(rendered(variant))
    values = {each["name"]: each["value"] for each in pod["env"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}

    assert volumes[mounts[values["KARGO_PY_WORK_DIR"]]]["emptyDir"] == {"sizeLimit": "1Gi"}
    assert spec["shareProcessNamespace"] is True


@pytest.mark.parametrize("variant", WITH_PROGRAM)
def test_one_at_a_time(variant: str) -> None:
    """There is no leader election: one pod, which has ended, in the time that it needs for that, before the next."""
    spec = one(rendered(variant), "Deployment")["spec"]
    signature = Controller.__init__.__kwdefaults__ or {}

    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > signature["grace"] + FLUSH_TIME


@pytest.mark.parametrize("variant", WITH_PROGRAM)
def test_image(variant: str) -> None:
    """Its tag is this version, as the Dockerfile's first line builds it."""
    image = container(rendered(variant))["image"]

    assert image == f"kargo-py:{__version__}"
    assert f"-t {image} " in (DEPLOY / "Dockerfile").read_text()


def test_the_kustomization_of_the_guide(tmp_path: Path) -> None:
    """What the guide has its reader write, with the option it shows, gives the image and the variable."""
    first, option = re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "kargo-py").symlink_to(DEPLOY.parent)
    (tmp_path / "my-kargo").mkdir()
    (tmp_path / "my-kargo/kustomization.yaml").write_text(first + option)
    objects = rendered(str(tmp_path / "my-kargo"))

    assert container(objects)["image"] == f"registry.example.com/kargo-py:{__version__}"
    assert {"name": "SHARD_NAME", "value": "eu"} in container(objects)["env"]


def test_folders_of_the_guide() -> None:
    """Each folder is told."""
    told = set(re.findall(r"^\| `(deploy[^`]*)` \|", GUIDE.read_text(), re.MULTILINE))
    folders = {str(path.parent.relative_to(DEPLOY.parent)) for path in DEPLOY.rglob("kustomization.yaml")}

    assert told == folders


def test_separate_argocd() -> None:
    """The kubeconfig of the other cluster is mounted where the program looks, and there is room for certificates."""
    objects = rendered("separate-argocd")
    spec = one(objects, "Deployment")["spec"]["template"]["spec"]
    pod = container(objects)
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["volumeMounts"]}
    volumes: dict[str, Any] = {volume["name"]: volume for volume in spec["volumes"]}
    values = {each["name"]: each["value"] for each in pod["env"]}

    folder, _, _ = values["ARGOCD_KUBECONFIG"].rpartition("/")
    assert volumes[mounts[folder]]["secret"] == {"secretName": "argocd-kubeconfig"}
    assert "emptyDir" in volumes[mounts["/tmp"]]
    assert [each["kind"] for each in objects if "argoproj.io" in str(each.get("rules"))] == []
