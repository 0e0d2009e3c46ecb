"""The rules of our CustomResourceDefinitions on a server, embedded and real: what each takes and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from kargo_py.api import rules
from kargo_py.api.kinds import KINDS
from kargo_py.api.types import JsonObject
from tests.envtest.server import ApiServer, RequestFailed

API = "/apis/kargo.akuity.io/v1alpha1"
MERGE = "application/merge-patch+json"
PLURALS = {kind.model.kind_name: kind for kind in KINDS}

STEP: JsonObject = {"uses": "argocd-update", "config": {"apps": [{"name": "shop"}]}}
TASK: JsonObject = {"task": {"name": "deploy"}}
GIT: JsonObject = {"git": {"repoURL": "https://git.example.com/shop"}}
CHART: JsonObject = {"chart": {"repoURL": "https://charts.example.com", "name": "shop"}}
IMAGE: JsonObject = {"image": {"repoURL": "ghcr.io/example/shop"}}
FREIGHT: JsonObject = {
    "origin": {"kind": "Warehouse", "name": "wh"},
    "commits": [{"repoURL": "https://git.example.com/shop", "id": "3f1a0f6", "unknown": {"kept": 1.5}}],
}
SECRET: JsonObject = {"secretRef": {"name": "webhook"}}


def collection(kind: str, namespace: str) -> str:
    known = PLURALS[kind]
    return f"{API}/{known.plural}" if known.cluster_scoped else f"{API}/namespaces/{namespace}/{known.plural}"


def wire(kind: str, name: str = "dev", **content: Any) -> JsonObject:
    return {"apiVersion": "kargo.akuity.io/v1alpha1", "kind": kind, "metadata": {"name": name}, **content}


def create(server: ApiServer, namespace: str, obj: JsonObject, query: str = "") -> JsonObject:
    return server.request("POST", collection(obj["kind"], namespace) + query, obj)


# --- Objects as they are created ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """One object that a rule takes, and one that it refuses with *says*."""

    id: str
    taken: JsonObject
    refused: JsonObject
    says: str


def promotion(**spec: Any) -> JsonObject:
    return wire("Promotion", spec={"stage": "dev", "freight": "a", "steps": [STEP], **spec})


def stage(*steps: JsonObject, **spec: Any) -> JsonObject:
    requested = [{"origin": {"kind": "Warehouse", "name": "wh"}, "sources": {"direct": True}}]
    template = {"promotionTemplate": {"spec": {"steps": list(steps)}}} if steps else {}
    return wire("Stage", spec={"requestedFreight": requested, **template, **spec})


def matching(**sources: Any) -> JsonObject:
    options = {"autoPromotionOptions": {"selectionPolicy": "MatchUpstream"}}
    return stage(requestedFreight=[request("wh", **sources, **options)])


def request(name: str, **sources: Any) -> JsonObject:
    return {"origin": {"kind": "Warehouse", "name": name}, "sources": sources}


def task(*steps: JsonObject, kind: str = "PromotionTask") -> JsonObject:
    return wire(kind, spec={"steps": list(steps)})


def warehouse(*subscriptions: JsonObject) -> JsonObject:
    return wire("Warehouse", spec={"subscriptions": list(subscriptions)})


def policies(*entries: JsonObject) -> JsonObject:
    return wire("ProjectConfig", spec={"promotionPolicies": list(entries)})


def receivers(kind: str, *entries: JsonObject) -> JsonObject:
    return wire(kind, "cluster", spec={"webhookReceivers": list(entries)})


def selected(name: str) -> JsonObject:
    return {"stageSelector": {"name": name}, "autoPromotionEnabled": True}


CASES = [
    # Promotion
    Rule(
        "freight xor origin",
        wire("Promotion", spec={"stage": "dev", "origin": {"kind": "Warehouse", "name": "wh"}}),
        promotion(origin={"kind": "Warehouse", "name": "wh"}),
        rules.ONE_OF_FREIGHT_AND_ORIGIN(),
    ),
    Rule(
        "a Promotion's steps, before tasks are written out",
        promotion(steps=[STEP, TASK]),
        promotion(steps=[STEP, {**TASK, "uses": "a"}]),
        rules.ONE_OF_USES_AND_TASK(),
    ),
    Rule(
        "a Promotion may have the default aliases, as Kargo writes them",
        promotion(steps=[{**STEP, "as": "step-1"}, {**STEP, "as": "task-2::step-1"}]),
        promotion(steps=[{}]),
        rules.ONE_OF_USES_AND_TASK(),
    ),
    # Stage
    Rule("uses xor task", stage(STEP, TASK), stage({**TASK, "uses": "a"}), rules.ONE_OF_USES_AND_TASK()),
    Rule("neither uses nor task", stage(STEP), stage({"as": "a"}), rules.ONE_OF_USES_AND_TASK()),
    Rule(
        "continueOnError of a task",
        stage({**STEP, "continueOnError": True}),
        stage({**TASK, "continueOnError": False}),
        rules.TASK_CONTINUES_ON_ERROR(),
    ),
    Rule("retry of a task", stage({**STEP, "retry": {}}), stage({**TASK, "retry": {}}), rules.TASK_WITH_RETRY()),
    Rule(
        "if of a task",
        stage({**STEP, "if": "${{ success() }}"}, {**TASK, "if": ""}),
        stage({**TASK, "if": "${{ success() }}"}),
        rules.TASK_WITH_IF(),
    ),
    Rule(
        "config of a task",
        stage({**TASK, "vars": [{"name": "app", "value": "shop"}], "as": "deploy"}, {**TASK, "config": None}),
        stage({**TASK, "config": {}}),
        "must not validate the schema (not)",
    ),
    *(
        Rule(
            f"{where}: {alias!r} is reserved",
            made({**STEP, "as": "step-a"}, {**STEP, "as": "steps-1"}, {**STEP, "as": "my-step-1"}, {**STEP, "as": ""}),
            made({**STEP, "as": alias}),
            rules.STEP_ALIAS_RESERVED(),
        )
        for where, made in (("Stage", stage), ("PromotionTask", task))
        for alias in ("step-1", "task-27", " step-3 ")
    ),
    *(
        Rule(
            f"{where}: an alias twice",
            made(
                {**STEP, "as": "a"}, STEP, {**STEP, "as": "A"}, STEP, *({**STEP, "as": a} for a in ("", "", " ", " "))
            ),
            made({**STEP, "as": "a"}, STEP, {**STEP, "as": again}),
            rules.STEP_ALIAS_TWICE(),
        )
        for where, made in (("Stage", stage), ("PromotionTask", task))
        for again in ("a", " a ")
    ),
    Rule(
        "an alias twice, of a step and a task",
        stage({**STEP, "as": "a"}, {**TASK, "as": "b"}),
        stage({**STEP, "as": "a"}, {**TASK, "as": "a"}),
        rules.STEP_ALIAS_TWICE(),
    ),
    Rule(
        "an origin twice",
        stage(requestedFreight=[request("a", direct=True), request("b", stages=["test"])]),
        stage(requestedFreight=[request("a", direct=True), request("b"), request("a", stages=["test"])]),
        rules.ORIGIN_TWICE(),
    ),
    Rule(
        "MatchUpstream and direct",
        matching(stages=["test"], direct=False),
        matching(stages=["test"], direct=True),
        rules.MATCH_UPSTREAM(),
    ),
    Rule("MatchUpstream of two", matching(stages=["a"]), matching(stages=["a", "b"]), rules.MATCH_UPSTREAM()),
    Rule("MatchUpstream of none", matching(stages=["a"]), matching(), rules.MATCH_UPSTREAM()),
    Rule(
        "other policies",
        stage(
            requestedFreight=[
                request("a", direct=True, autoPromotionOptions={"selectionPolicy": "NewestFreight"}),
                request("b", stages=["a", "b"], autoPromotionOptions={}),
                request("c", direct=True, autoPromotionOptions={"selectionPolicy": ""}),
            ]
        ),
        matching(direct=True),
        rules.MATCH_UPSTREAM(),
    ),
    # Tasks
    Rule("no task in a task", task(STEP), task(STEP, TASK), rules.STEP_OF_A_TASK()),
    Rule("a task's step uses something", task(STEP), task({"as": "a"}), rules.STEP_OF_A_TASK()),
    Rule(
        "no task in a ClusterPromotionTask",
        task(STEP, kind="ClusterPromotionTask"),
        task(TASK, kind="ClusterPromotionTask"),
        rules.STEP_OF_A_TASK(),
    ),
    # Freight
    *(
        Rule(
            f"Freight of {name} only",
            {**wire("Freight", origin=FREIGHT["origin"]), name: [{}]},
            {**wire("Freight", origin=FREIGHT["origin"]), name: []},
            rules.FREIGHT_EMPTY(),
        )
        for name in ("commits", "images", "charts", "artifacts")
    ),
    Rule("Freight of nothing", wire("Freight", **FREIGHT), wire("Freight", origin=FREIGHT["origin"]), "at least one"),
    # Warehouse
    Rule(
        "one type",
        warehouse(GIT, IMAGE, CHART, {"oci-artifact": {"config": {}}, "name": "new"}),
        warehouse({**GIT, **IMAGE}),
        rules.SUBSCRIPTION_OF_SEVERAL_TYPES(),
    ),
    Rule(
        "the name of a subscription",
        warehouse({**GIT, "name": "front-end.v2"}, {**IMAGE, "name": ""}),
        warehouse({**GIT, "name": "front_end"}),
        rules.SUBSCRIPTION_NAME_MALFORMED(),
    ),
    Rule(
        "a name twice",
        warehouse({**GIT, "name": "a"}, {**IMAGE, "name": "b"}),
        warehouse({**GIT, "name": "a"}, {**IMAGE, "name": "a"}),
        rules.SUBSCRIPTION_NAME_TWICE(),
    ),
    *(
        Rule(
            f"{next(iter(sub))} twice",
            warehouse(sub, {**sub, "name": "other"}, {**sub, "name": "another"}),
            warehouse(sub, {**sub, "name": "other"}, {**sub, "name": ""}),
            rules.SUBSCRIPTION_TWICE(),
        )
        for sub in (GIT, IMAGE, CHART)
    ),
    Rule(
        "two charts of a repository",
        warehouse(CHART, {"chart": {**CHART["chart"], "name": "other"}}),
        warehouse(CHART, {"chart": {**CHART["chart"], "semverConstraint": "^1"}}),
        rules.SUBSCRIPTION_TWICE(),
    ),
    Rule(
        "a chart's name",
        warehouse(CHART, {"chart": {"repoURL": "oci://ghcr.io/example/shop"}}),
        warehouse({"chart": {"repoURL": "https://charts.example.com"}}),
        rules.CHART_NAME_MISSING(),
    ),
    Rule(
        "a chart's name in a registry",
        warehouse({"chart": {"repoURL": "oci://ghcr.io/example/shop", "name": ""}}),
        warehouse({"chart": {"repoURL": "oci://ghcr.io/example/shop", "name": "shop"}}),
        rules.CHART_NAME_IN_OCI(),
    ),
    Rule(
        "what Digest follows",
        warehouse({"image": {**IMAGE["image"], "imageSelectionStrategy": "Digest", "constraint": "latest"}}),
        warehouse({"image": {**IMAGE["image"], "imageSelectionStrategy": "Digest"}}),
        rules.DIGEST_WITHOUT_CONSTRAINT(),
    ),
    # ProjectConfig and ClusterConfig
    Rule(
        "stage xor selector",
        policies({"stage": "dev"}, selected("test")),
        policies({"stage": "dev", **selected("test")}),
        rules.ONE_OF_STAGE_AND_SELECTOR(),
    ),
    Rule(
        "neither stage nor selector",
        policies({"stageSelector": {"matchLabels": {"a": "b"}}}),
        policies({"autoPromotionEnabled": True}),
        rules.ONE_OF_STAGE_AND_SELECTOR(),
    ),
    Rule(
        "a Stage twice",
        policies({"stage": "a"}, {"stage": "b"}),
        policies({"stage": "a"}, {"stage": "a"}),
        rules.POLICY_TWICE(),
    ),
    Rule(
        "a selected Stage twice",
        policies(selected("a"), selected(""), selected(""), selected("glob:a*"), selected("glob:a*")),
        policies(selected("a"), selected("b"), selected("a")),
        rules.POLICY_TWICE(),
    ),
    Rule(
        "a Stage twice, once selected",
        policies(selected("a"), {"stage": "b"}, {"stageSelector": {"matchLabels": {"a": "b"}}}),
        policies(selected("a"), {"stage": "a"}),
        rules.POLICY_TWICE(),
    ),
    Rule(
        "patterns",
        policies(selected("glob:a-*"), selected("regex:^a$"), selected("regexp:^b$"), selected("")),
        policies(selected("regular:a")),
        rules.PATTERN_UNKNOWN(),
    ),
    *(
        Rule(
            f"{pattern} cannot be read",
            policies(selected(r"regex:^(a|b)-\p{L}{1,3}$"), selected("regex:"), selected("glob:[")),
            policies(selected(pattern)),
            rules.PATTERN_MALFORMED(),
        )
        for pattern in ("regex:[a-z", "regexp:a{2,1}", "regex:(?=a)")
    ),
    *(
        Rule(
            f"{kind}: a receiver of one type",
            receivers(kind, {"name": "a", "github": SECRET}, {"name": "b", "of-the-future": SECRET}),
            receivers(kind, {"name": "a", "github": SECRET, "quay": SECRET}),
            rules.RECEIVER_OF_SEVERAL_TYPES(),
        )
        for kind in ("ProjectConfig", "ClusterConfig")
    ),
    *(
        Rule(
            f"{kind}: a receiver twice",
            receivers(kind, {"name": "a", "github": SECRET}, {"name": "b", "github": SECRET}),
            receivers(kind, {"name": "a", "github": SECRET}, {"name": "a", "quay": SECRET}),
            rules.RECEIVER_TWICE(),
        )
        for kind in ("ProjectConfig", "ClusterConfig")
    ),
    Rule(
        "the name of the ClusterConfig",
        wire("ClusterConfig", "cluster", spec={}),
        wire("ClusterConfig", "default", spec={}),
        rules.CLUSTER_CONFIG_NAME(),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_rule(crds: ApiServer, namespace: str, case: Rule) -> None:
    """What fits the rule is taken, and what breaks it is refused with the rule's own words."""
    create(crds, namespace, case.taken, "?dryRun=All")
    with pytest.raises(RequestFailed) as caught:
        create(crds, namespace, case.refused, "?dryRun=All")
    assert caught.value.status == 422
    assert case.says in str(caught.value)


@pytest.mark.both_definitions
def test_a_promotion_that_names_a_task(crds: ApiServer, namespace: str) -> None:
    """We write its steps out; with Kargo's definitions a webhook has to have done that before it is stored."""
    named = promotion(steps=[TASK])
    if not crds.strict:
        create(crds, namespace, named, "?dryRun=All")
        return
    with pytest.raises(RequestFailed) as caught:
        create(crds, namespace, named, "?dryRun=All")
    assert rules.STEP_OF_A_PROMOTION() in str(caught.value)


def _long(number: int) -> str:
    return f"{number:04}-of-many-and-with-a-name-of-forty-chars"


MANY = {
    "steps of a task": lambda n: task(*({**STEP, "as": _long(i)} for i in range(n))),
    "steps of a Stage": lambda n: stage(*({**STEP, "as": _long(i)} for i in range(n))),
    "origins": lambda n: stage(requestedFreight=[request(_long(i), direct=True) for i in range(n)]),
    "policies": lambda n: policies(*({"stage": _long(i)} if i % 2 else selected(_long(i)) for i in range(n))),
    "receivers": lambda n: receivers("ProjectConfig", *({"name": _long(i), "quay": SECRET} for i in range(n))),
    "subscriptions": lambda n: warehouse(
        *({"name": _long(i), "git": {"repoURL": f"https://git.example.com/{_long(i)}"}} for i in range(n // 2))
    ),
}


@pytest.mark.parametrize("many", MANY)
def test_long_lists(crds: ApiServer, namespace: str, many: str) -> None:
    """Lists up to their limits stay within what an API server spends on a rule; longer ones are refused by length."""
    create(crds, namespace, MANY[many](256), "?dryRun=All")
    with pytest.raises(RequestFailed) as caught:
        create(crds, namespace, MANY[many](258), "?dryRun=All")
    assert "must have at most" in str(caught.value)


def test_large_configurations(crds: ApiServer, namespace: str) -> None:
    """Rules do not see the configuration of a step, so its size costs them nothing."""
    config = {f"name-{i}": i for i in range(5000)}
    for made in (stage, task):
        create(crds, namespace, made({**STEP, "as": "one", "config": config}, STEP), "?dryRun=All")


def test_each_rule_has_a_case() -> None:
    """No rule is without an example above or below."""
    elsewhere = {rules.PROMOTION_ADMITTED(), rules.FREIGHT_CHANGED(), rules.STEP_OF_A_PROMOTION()}
    told = {case.says for case in CASES} | elsewhere
    assert {rule.says for kind in KINDS for rule in kind.rules} - told == set()


# --- Objects as they change -----------------------------------------------------------------------------------------


@pytest.fixture
def stored(crds: ApiServer, namespace: str) -> Mapping[str, str]:
    """The paths of a Promotion and of Freight that are there."""
    create(crds, namespace, promotion())
    create(crds, namespace, wire("Freight", **FREIGHT))
    return {kind: f"{collection(kind, namespace)}/dev" for kind in ("Promotion", "Freight")}


def patch(server: ApiServer, path: str, change: JsonObject) -> JsonObject:
    return server.request("PATCH", path, change, content_type=MERGE)


def test_a_promotions_spec_until_it_is_admitted(crds: ApiServer, stored: Mapping[str, str]) -> None:
    """Until then the controller chooses the Freight, fills the steps in, and sets variables."""
    path = stored["Promotion"]
    patch(crds, path, {"spec": {"freight": None, "origin": {"kind": "Warehouse", "name": "wh"}, "steps": None}})
    patch(crds, f"{path}/status", {"status": {"phase": "Pending", "message": "waiting"}})
    steps = [{**STEP, "config": {"apps": [], "n": 2}}]
    filled = {"freight": "b", "origin": None, "steps": steps, "vars": [{"name": "a"}]}
    assert patch(crds, path, {"spec": filled})["spec"]["steps"] == steps


ADMITTED = {"status": {"admittedAt": "2026-01-31T12:00:00Z"}}


@pytest.mark.parametrize(
    "change",
    [
        {"freight": "b"},
        {"freight": None, "origin": {"kind": "Warehouse", "name": "wh"}},
        {"stage": "test"},
        {"steps": None},
        {"steps": [STEP, STEP]},
        {"steps": [{**STEP, "config": {"apps": [{"name": "shop", "new": 1}]}}]},
        {"steps": [{**STEP, "config": {"apps": [{"name": "other"}]}}]},
        {"steps": [{**STEP, "config": None}]},
        {"steps": [{**STEP, "as": "a"}]},
        {"vars": [{"name": "a", "value": "b"}]},
        {"target": "eu"},
    ],
    ids=str,
)
def test_a_promotions_spec_once_it_is_admitted(crds: ApiServer, stored: Mapping[str, str], change: JsonObject) -> None:
    """From then on nothing of it changes, not even within the free JSON of a step's configuration."""
    path = stored["Promotion"]
    before = patch(crds, f"{path}/status", ADMITTED)
    with pytest.raises(RequestFailed) as caught:
        patch(crds, path, {"spec": change})
    assert caught.value.status == 422
    assert rules.PROMOTION_ADMITTED() in str(caught.value)
    assert crds.request("GET", path) == before


def test_an_admitted_promotion_goes_on(crds: ApiServer, stored: Mapping[str, str]) -> None:
    """Its metadata and its status change as ever, and writing the same spec again is no change."""
    path = stored["Promotion"]
    admitted = patch(crds, f"{path}/status", ADMITTED)
    patch(crds, path, {"metadata": {"annotations": {"kargo.akuity.io/abort": "terminate"}, "labels": {"a": "b"}}})
    patch(crds, path, {"spec": admitted["spec"]})
    running = patch(crds, f"{path}/status", {"status": {"phase": "Running", "state": {"a": [1]}, "currentStep": 1}})
    assert running["status"]["admittedAt"] == ADMITTED["status"]["admittedAt"]
    # A whole write of the status takes no part in the spec, whatever spec it carries.
    other = {**running, "spec": {**running["spec"], "freight": "b"}, "status": {**running["status"], "phase": "Failed"}}
    ended = crds.request("PUT", f"{path}/status", other)
    assert (ended["spec"]["freight"], ended["status"]["phase"]) == ("a", "Failed")


def test_admitting_in_the_write_that_changes_the_spec(crds: ApiServer, stored: Mapping[str, str]) -> None:
    """The main address does not write the status, so that such a change is one of a Promotion not admitted yet."""
    changed = patch(crds, stored["Promotion"], {"spec": {"freight": "b"}, **ADMITTED})
    assert changed["spec"]["freight"] == "b"
    assert "admittedAt" not in changed["status"]


@pytest.mark.parametrize(
    "change",
    [
        {"origin": {"name": "other"}},
        {"commits": None, "images": [{"tag": "1"}]},
        {"images": [{"repoURL": "ghcr.io/example/shop", "tag": "1"}]},
        {"charts": [{"version": "1"}]},
        {"artifacts": [{"version": "1"}]},
        {"commits": [*FREIGHT["commits"], *FREIGHT["commits"]]},
        {"commits": [{**FREIGHT["commits"][0], "id": "0"}]},
        {"commits": [{**FREIGHT["commits"][0], "tag": "v1"}]},
        {"commits": [{**FREIGHT["commits"][0], "unknown": {"kept": 2}}]},
        # One field less that is known, and one more that is not.
        {"commits": [{"repoURL": FREIGHT["commits"][0]["repoURL"], "unknown": {"kept": 1.5}, "other": 1}]},
    ],
    ids=str,
)
def test_freight_does_not_change(crds: ApiServer, stored: Mapping[str, str], change: JsonObject) -> None:
    """Where Freight comes from and what it holds is for ever."""
    with pytest.raises(RequestFailed) as caught:
        patch(crds, stored["Freight"], change)
    assert caught.value.status == 422
    assert rules.FREIGHT_CHANGED() in str(caught.value)


def test_what_of_freight_may_change(crds: ApiServer, stored: Mapping[str, str]) -> None:
    """Its alias, metadata and status may; none of a sort of artifacts and an empty list are the same."""
    path = stored["Freight"]
    label = {"labels": {"kargo.akuity.io/alias": "calm-otter"}}
    patch(crds, path, {"alias": "calm-otter", "discoveredAt": "2026-01-31T12:00:00Z", "metadata": label})
    patch(crds, path, {"images": [], "commits": FREIGHT["commits"]})
    patch(crds, path, {"images": None, "charts": []})
    moved = patch(crds, f"{path}/status", {"status": {"currentlyIn": {"dev": {"since": "2026-01-31T12:00:00Z"}}}})
    assert moved["status"]["currentlyIn"].keys() == {"dev"}
