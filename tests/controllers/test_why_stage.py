"""Why a Stage is not Ready, in words: every cause, and any object whatsoever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kargo_py.argocd.application import Application, ApplicationCodec
from kargo_py.cli.why import lines
from kargo_py.controllers.why import Explanation, Hidden, Seen
from kargo_py.controllers.why_stage import StageFacts, explain_stage, freights, targets
from kargo_py.kube.codec import encode
from kargo_py.kube.resources import Key

JsonObject = dict[str, Any]

PAGE = Path(__file__).parents[2] / "docs/how-to/find-out-why.md"

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
APP = Key("argocd", "shop-dev")
NAMED = 'Argo CD Application "shop-dev" in namespace "argocd"'


def at(**earlier: float) -> str:
    """The time that much before noon."""
    return (NOON - timedelta(**earlier)).strftime("%Y-%m-%dT%H:%M:%SZ")


CHECKS = {
    "checks": [{"uses": "argocd-update", "config": {"apps": [{"name": "shop-dev", "desiredRevisions": ["abcdefg"]}]}}]
}
HERE = {"id": "x", "items": {"Warehouse/wh": {"name": "f1", "origin": {"kind": "Warehouse", "name": "wh"}}}}
VERIFIED = {**HERE, "verificationHistory": [{"id": "1", "phase": "Successful", "finishTime": at(minutes=3)}]}
FREIGHT = {
    "metadata": {"name": "f1", "namespace": "shop", "labels": {"kargo.akuity.io/alias": "brave-bear"}},
    "origin": {"kind": "Warehouse", "name": "wh"},
    "status": {"currentlyIn": {"dev": {"since": at(minutes=4)}}},
}


def condition(type_: str, status: str, reason: str = "", message: str = "") -> JsonObject:
    said = {"type": type_, "status": status, "reason": reason, "message": message}
    return {**said, "lastTransitionTime": at(minutes=2)}


READY = condition("Ready", "True", "Verified", "all is well")
UNREADY = condition("Ready", "False", "Unhealthy", "a pod is gone")


def stage(
    *conditions: JsonObject, metadata: JsonObject | None = None, spec: JsonObject | None = None, **status: Any
) -> JsonObject:
    step = {"uses": "argocd-update", "config": {}}
    return {
        "metadata": {
            "name": "dev",
            "namespace": "shop",
            "generation": 1,
            "creationTimestamp": at(minutes=9),
            **(metadata or {}),
        },
        "spec": {
            "requestedFreight": [{"origin": {"kind": "Warehouse", "name": "wh"}, "sources": {"direct": True}}],
            "promotionTemplate": {"spec": {"steps": [step]}},
            **(spec or {}),
        },
        "status": {"observedGeneration": 1, "conditions": list(conditions), **status},
    }


def good(*conditions: JsonObject, **more: Any) -> JsonObject:
    """A Stage that has something, and health checks."""
    health = {"status": "Healthy", "config": CHECKS}
    return stage(*(conditions or (READY,)), **{"freightHistory": [VERIFIED], "health": health, **more})


def application(health: str = "Healthy", **parts: Any) -> Application:
    source = {"repoURL": "https://git.example.com/shop", "targetRevision": "abcdefg"}
    sync = {"status": "Synced", "revision": "abcdefg", "comparedTo": {"source": source}}
    raw = {
        "metadata": {"name": "shop-dev", "namespace": "argocd", "uid": "a1", "resourceVersion": "9"},
        "spec": {"source": source},
        "status": {"health": {"status": health}, "sync": sync, "reconciledAt": "2026-11-30T12:00:00Z"},
        **parts,
    }
    return ApplicationCodec().object(encode(raw))


def promotion(name: str, phase: str = "Pending") -> JsonObject:
    started = {"startedAt": at(seconds=20)} if phase == "Running" else {}
    return {
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": at(seconds=30)},
        "spec": {"stage": "dev"},
        "status": {"phase": phase, **started},
    }


def explained(
    raw: JsonObject,
    app: Seen[Application] = None,
    freight: Seen[JsonObject] = FREIGHT,
    promotions: list[JsonObject] | Hidden | None = None,
) -> Explanation:
    others = promotions if promotions is not None else []
    return explain_stage(StageFacts(raw, others, {"f1": freight}, {APP: app}, NOON))


def said(explanation: Explanation) -> str:
    """All of it, in lines."""
    reasons = [
        " ".join(filter(None, [s.text, s.since and f"since {s.since}", s.at and f"at {s.at}"]))
        for s in explanation.reasons
    ]
    return "\n".join([*reasons, *explanation.unseen])


FAILED = {"name": "dev.0", "finishedAt": at(seconds=50), "status": {"phase": "Failed", "message": "sync failed"}}
OTHER_CHECK = {"status": "Unknown", "config": {"checks": [{"uses": "http"}, {"uses": "argocd-update", "config": {}}]}}

CASES = [
    pytest.param(
        {"raw": good(currentPromotion={"name": "dev.1"}), "promotions": [promotion("dev.1", "Failed")]},
        ['Stage "dev" still names Promotion "dev.1"'],
        ['Promotion "dev.1" runs'],
        id="ended",
    ),
    pytest.param(
        {"raw": good(freightHistory=[{**HERE, "verificationHistory": [{"phase": "Pending"}]}])},
        ["the verification of what is here is Pending"],
        ["Pending:"],
        id="verification without a word",
    ),
    pytest.param(
        {"raw": good(), "app": application()},
        [
            f"Freight brave-bear (f1) of Warehouse/wh is here since {at(minutes=4)}",
            f"{NAMED} is healthy, at what was promoted",
            f"what is here is verified since {at(minutes=3)}",
        ],
        ["trusted", "health is"],
        id="all well",
    ),
    pytest.param(
        {"raw": good(UNREADY), "app": application("Degraded")},
        [f"Unhealthy: a pod is gone since {at(minutes=2)}", f"{NAMED} is Degraded"],
        ["is healthy"],
        id="degraded",
    ),
    pytest.param({"raw": good(), "app": None}, [f"{NAMED} does not exist"], [], id="Application gone"),
    pytest.param(
        {
            "raw": good(health={"status": "Unhealthy", "issues": ["as before"], "config": CHECKS}),
            "app": Hidden("forbidden"),
        },
        [f"{NAMED} could not be seen: forbidden", "its health is Unhealthy, as it was last judged", "as before"],
        [],
        id="Application hidden",
    ),
    pytest.param(
        {"raw": good(), "app": application(operation={"sync": {}})},
        [
            f"{NAMED} is being synced; no verdict on it can be trusted before",
            "its health is Healthy, as it was last judged",
        ],
        [],
        id="not trusted",
    ),
    pytest.param(
        {"raw": good(health=OTHER_CHECK)},
        ['the kind of health check "http" is not known', "a health check of the Stage cannot be read"],
        [],
        id="checks unreadable",
    ),
    pytest.param({"raw": good(health=None)}, ["which health checks hold here is not known"], [], id="checks unknown"),
    pytest.param(
        {
            "raw": good(currentPromotion={"name": "dev.1"}),
            "app": application(),
            "promotions": [
                promotion("dev.3"),
                promotion("dev.1", "Running"),
                promotion("dev.2"),
                promotion("dev.0", "Failed"),
            ],
        },
        [
            f'Promotion "dev.1" runs; kargo-py why promotion dev.1 says what it waits for since {at(seconds=20)}',
            '2 more in the queue, the next one is "dev.2"',
        ],
        [],
        id="promoting",
    ),
    pytest.param(
        {"raw": good(currentPromotion={"name": "dev.1"}), "promotions": Hidden("no list")},
        ['Promotion "dev.1" runs', "the queue could not be seen: no list"],
        [],
        id="queue hidden",
    ),
    pytest.param(
        {"raw": good(UNREADY, lastPromotion=FAILED)},
        [f'Promotion "dev.0" ended as Failed: sync failed at {at(seconds=50)}'],
        [],
        id="last failed",
    ),
    pytest.param(
        {"raw": good(condition("Ready", "False", "LastPromotionFailed", "sync failed"), lastPromotion=FAILED)},
        ["LastPromotionFailed: sync failed", f'Promotion "dev.0" ended as Failed at {at(seconds=50)}'],
        [],
        id="said once",
    ),
    pytest.param(
        {
            "raw": good(
                condition("Ready", "False", "InvalidPromotionTemplate", "it cannot be run: a…"),
                condition("PromotionTemplateValid", "False", "InvalidPromotionTemplate", "it cannot be run: a\nb"),
                lastPromotion={**FAILED, "status": {"phase": "Errored", "message": "the Promotion cannot run: a\nb"}},
            )
        },
        [
            "InvalidPromotionTemplate: it cannot be run: a\nb",
            'Promotion "dev.0" ended as Errored: the Promotion cannot run: a … (kargo-py why promotion dev.0 has',
        ],
        [],
        id="a template with many faults",
    ),
    pytest.param(
        {"raw": good(freightHistory=[HERE]), "app": application()},
        ["Freight is verified once the Stage is healthy"],
        ["what is here is verified"],
        id="not verified",
    ),
    pytest.param(
        {"raw": good(freightHistory=[HERE], spec={"verification": {}}), "app": application()},
        ["spec.verification is not supported"],
        [],
        id="verification",
    ),
    pytest.param(
        {
            "raw": good(
                freightHistory=[
                    {
                        **HERE,
                        "verificationHistory": [{"phase": "Failed", "message": "too slow", "startTime": at(minutes=1)}],
                    }
                ]
            )
        },
        [f"the verification of what is here is Failed: too slow since {at(minutes=1)}"],
        [],
        id="verification failed",
    ),
    pytest.param(
        {"raw": good(), "freight": Hidden("forbidden")},
        ["Freight f1 of Warehouse/wh is here", 'Freight "f1" could not be seen: forbidden'],
        [f"since {at(minutes=4)}"],
        id="Freight hidden",
    ),
    pytest.param(
        {"raw": good(), "freight": {"metadata": {}, "alias": "x", "origin": 7}},
        ["Freight x (f1)"],
        [],
        id="Freight unreadable",
    ),
    pytest.param(
        {"raw": stage(condition("Ready", "False", "NoFreight", "nothing"))},
        ["NoFreight: nothing", "nothing of Warehouse/wh was promoted here yet"],
        ["verified"],
        id="empty",
    ),
    pytest.param({"raw": stage(condition("Ready", "False"))}, [f"False since {at(minutes=2)}"], [], id="no reason"),
    pytest.param(
        {"raw": stage(observedGeneration=0, spec={"shard": "eu"})},
        [
            f"no controller has looked at it yet since {at(minutes=9)}",
            'nothing has happened for 9m, so it seems that no controller acts on Stage "dev" of shard "eu"',
        ],
        [],
        id="no controller",
    ),
    pytest.param(
        {"raw": stage(observedGeneration=0, metadata={"creationTimestamp": at(seconds=9)})},
        ["no controller has looked at it yet"],
        ["nothing has happened"],
        id="just made",
    ),
    pytest.param(
        {"raw": good(metadata={"generation": 2})},
        ["its spec was changed, and no controller has looked at it since"],
        [],
        id="changed",
    ),
    pytest.param(
        {"raw": good(metadata={"deletionTimestamp": at(seconds=9)})},
        [f"it is being deleted since {at(seconds=9)}"],
        [],
        id="deleted",
    ),
    pytest.param(
        {"raw": stage(spec={"promotionTemplate": None})}, ["it only passes Freight on"], ["looked"], id="control flow"
    ),
    pytest.param(
        {"raw": {"metadata": {"name": "dev"}, "spec": {}}},
        ["Stage cannot be read: spec.requestedFreight"],
        [],
        id="unreadable",
    ),
]


@pytest.mark.parametrize(("facts", "told", "not_told"), CASES)
def test_causes(facts: dict[str, Any], told: list[str], not_told: list[str]) -> None:
    """Each cause is told, with since when; what is not the cause is not."""
    text = said(explained(**facts))
    for words in told:
        assert words in text
    for words in not_told:
        assert words not in text


def test_headline() -> None:
    """What is explained, how it stands, and since when."""
    told = [explained(raw) for raw in (good(), good(UNREADY), stage())]
    assert [(e.kind, e.name, e.state, e.since) for e in told] == [
        ("Stage", "dev", "Ready", at(minutes=2)),
        ("Stage", "dev", "not Ready", at(minutes=2)),
        ("Stage", "dev", "not judged", at(minutes=9)),
    ]


def test_the_page() -> None:
    """The output on the page "Find out why" is what is said."""
    told = lines(explained(good(UNREADY), application("Degraded")), NOON)
    output = "\n".join(["$ kargo-py why stage dev", *told])
    assert f"```console\n{output}\n```\n" in PAGE.read_text()


def test_what_has_to_be_read() -> None:
    """The Freight that is here, and a bounded number of Applications; nothing for what cannot be read."""
    many = {"checks": [{"uses": "argocd-update", "config": {"apps": [{"name": f"a{n}"} for n in range(1000)]}}]}
    assert targets(good(), "argocd") == [APP]
    assert targets(good(), "elsewhere") == [Key("elsewhere", "shop-dev")]
    assert 1 < len(targets(good(health={"config": many}), "argocd")) < 100
    assert list(freights(good())) == ["f1"]
    assert not freights({"spec": 1})
    assert not targets({"spec": 1}, "argocd")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=5)
    | st.sampled_from([at(), "argocd-update", "Ready"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
CONDITIONS = st.lists(
    st.sampled_from([READY, UNREADY, condition("Verified", "Unknown"), condition("Promoting", "True")]), max_size=3
)
STATUS = st.fixed_dictionaries(
    {},
    optional={
        "conditions": CONDITIONS | JSON,
        "observedGeneration": st.integers(-1, 3),
        "freightHistory": st.lists(
            st.sampled_from([HERE, VERIFIED, {"items": {}}, {**HERE, "verificationHistory": [{"phase": 7}]}]),
            max_size=2,
        )
        | JSON,
        "health": st.fixed_dictionaries(
            {}, optional={"status": st.just("Unhealthy"), "issues": st.just(["x"]), "config": st.just(CHECKS) | JSON}
        )
        | JSON,
        "currentPromotion": st.just({"name": "dev.1"}) | JSON,
        "lastPromotion": st.sampled_from([FAILED, {"name": "x"}]) | JSON,
    },
)
SEEN = st.none() | st.just(Hidden("forbidden"))
APPS = SEEN | st.sampled_from(
    [
        application(),
        application("Degraded"),
        application(operation={"sync": {}}),
        Application(application().metadata, unreadable="spec: no"),
    ]
)


@settings(max_examples=300)
@given(STATUS | JSON, APPS, SEEN | st.just(FREIGHT) | st.fixed_dictionaries({"status": JSON}))
def test_any_status(status: Any, app: Any, freight: Any) -> None:
    """Whatever stands in the objects there is an answer, and it can be written as JSON."""
    raw = {**stage(), "status": status}
    seen = dict.fromkeys(freights(raw), freight)
    told = explain_stage(StageFacts(raw, [promotion("dev.1")], seen, dict.fromkeys(targets(raw, "argocd"), app), NOON))
    encode(told.wire())
    assert told.name == "dev"
    assert told.reasons


@given(JSON, JSON)
def test_any_object(spec: Any, metadata: Any) -> None:
    """The same for a spec and metadata that no server would have let in."""
    raw = {"metadata": metadata, "spec": spec}
    assert explain_stage(StageFacts(raw, Hidden("no"), {}, {}, NOON)).kind == "Stage"
