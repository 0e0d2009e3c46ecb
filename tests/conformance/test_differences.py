"""What the embedded server is known to do otherwise, beside the cases of other tables that are marked so.

Each passes on the real server, must fail on the embedded one, and is a row of docs/reference/embedded-apiserver.md.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conformance.definitions import definition, gadget, gadgets
from tests.conformance.servers import JsonObject, Server
from tests.differential.differences import LISTED

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/reference/embedded-apiserver.md"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def test_page() -> None:
    """Each mark is a row of the page's table; each row said to be tested is marked here or listed by the fuzzer."""
    table = PAGE.read_text().split("## Differences")[1]
    rows = set(re.findall(r"^\| ([^|]+) \|[^|]*\|[^|]*\| yes \|$", table, re.MULTILINE))
    marks = {
        mark for path in HERE.glob("test_*.py") for mark in re.findall(r'differs\("([^"\]]+)"\)', path.read_text())
    }

    listed = {each.row for each in LISTED}
    assert marks
    assert marks | listed == rows
    assert not marks & listed


@pytest.mark.differs("Costs of CEL rules")
def test_costs_of_rules(server: Server) -> None:
    """A definition whose rules might take for ever is refused."""
    rule = {"rule": "self.all(x, self.all(y, self.all(z, x + y + z != '')))"}
    items = {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [rule]}
    costly = definition("Costly", {"type": "object", "properties": {"a": items}}, group="costly.example.com")

    refusal = server.send("POST", CRDS + "?dryRun=All", costly).refusal

    assert "estimated rule cost exceeds budget" in refusal["message"]


@pytest.mark.differs("Deep objects")
def test_deep_objects(server: Server) -> None:
    """Objects may be deep, up to 10,000 levels."""
    deep: JsonObject = {}
    for _ in range(300):
        deep = {"a": deep}

    assert server.send("POST", gadgets(query="?dryRun=All"), gadget("deep", spec=deep)).code == 201


@pytest.mark.differs("Aggregated discovery")
def test_aggregated_discovery(server: Server) -> None:
    """All groups and resources in one document."""
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

    assert server.get("/apis", accept=accept).ok()["kind"] == "APIGroupDiscoveryList"


@pytest.mark.differs("Answers in protobuf")
def test_protobuf_answers(server: Server) -> None:
    """Who takes nothing but protobuf gets it."""
    answer = server.get("/api/v1/namespaces/default", accept="application/vnd.kubernetes.protobuf")

    assert (answer.code, answer.body[:4]) == (200, b"k8s\x00")


@pytest.mark.differs("OpenAPI v2")
def test_openapi_v2(server: Server) -> None:
    """The older description."""
    assert server.get("/openapi/v2").ok()["swagger"] == "2.0"


@pytest.mark.differs("Kinds")
@pytest.mark.parametrize(
    "path", ["/api/v1/pods", "/apis/apps/v1/deployments", "/apis/rbac.authorization.k8s.io/v1/clusterroles"]
)
def test_kinds(server: Server, path: str) -> None:
    """Workloads, roles and all the others."""
    assert server.get(path).code == 200


@pytest.mark.differs("Reviews of others' rights, and tokens")
def test_reviews(server: Server) -> None:
    """May somebody else?"""
    review = {"spec": {"user": "x", "resourceAttributes": {"verb": "get", "resource": "pods"}}}

    made = server.send("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)

    assert made.ok()["status"]["allowed"] is False


@pytest.mark.differs("Metrics")
def test_metrics(server: Server) -> None:
    """For Prometheus."""
    assert server.get("/metrics").body.startswith(b"# HELP ")
