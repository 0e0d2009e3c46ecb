"""What becomes of a Promotion before it begins: what is kept, filled in, replaced and refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.api.admission import ADMITTED_KEY, ANNOTATION_CUSTOM_STEPS, is_admitted
from kargo_py.api.freight import Freight
from kargo_py.api.names import ANNOTATION_CREATE_ACTOR
from kargo_py.api.promotion import ExpressionVariable, Promotion, PromotionTaskReference
from kargo_py.api.promotion_task import PromotionTaskSpec
from kargo_py.api.stage import Stage
from kargo_py.controllers.admission import (
    Plan,
    allows_custom_steps,
    collection_with,
    completion,
    metadata_patch,
    overridden,
    plan,
    program_before,
    with_admission,
)
from kargo_py.controllers.step_differences import Evaluator
from kargo_py.controllers.template import Rulebook
from kargo_py.steps.registry import BUILT_IN

JsonObject = dict[str, Any]

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
REPO = "https://git.example.com/shop"
SHA = "3f1a0f6c29b54f0a8c7e0f3a3d9a4b5c6d7e8f90"
ORIGIN = {"kind": "Warehouse", "name": "wh"}
UPDATE: JsonObject = {"uses": "argocd-update", "as": "update", "config": {"apps": [{"name": "shop"}]}}
OTHER: JsonObject = {"uses": "argocd-wait", "config": {"apps": [{"name": "shop"}]}}
TASK: JsonObject = {"task": {"name": "deploy"}, "as": "deploy"}
INFLATED: JsonObject = {
    "uses": "argocd-update",
    "as": "deploy::step-1",
    "vars": [{"name": "app", "value": "shop"}],
    "config": {"apps": [{"name": "${{ vars.app }}"}]},
}
DEPLOY: JsonObject = {
    "vars": [{"name": "app", "value": "shop"}],
    "steps": [{"uses": "argocd-update", "config": {"apps": [{"name": "${{ vars.app }}"}]}}],
}


def source(revision: str) -> JsonObject:
    """A step that names a revision."""
    app = {"name": "shop", "sources": [{"repoURL": REPO, "desiredRevision": revision}]}
    return {"uses": "argocd-update", "as": "update", "config": {"apps": [app]}}


def stage(
    *steps: JsonObject,
    variables: Sequence[JsonObject] = (),
    template_vars: Sequence[JsonObject] = (),
    custom: str | None = None,
    labels: Mapping[str, str] | None = None,
    shard: str | None = None,
) -> Stage:
    meta = {"name": "dev", "namespace": "shop", "uid": "stage-uid", "generation": 1, "labels": dict(labels or {})}
    if custom is not None:
        meta["annotations"] = {ANNOTATION_CUSTOM_STEPS: custom}
    spec: JsonObject = {
        "requestedFreight": [{"origin": ORIGIN, "sources": {"direct": True}}],
        "vars": list(variables),
        "promotionTemplate": {"spec": {"steps": list(steps), "vars": list(template_vars)}},
    }
    if shard is not None:
        spec["shard"] = shard
    return Stage.model_validate({"metadata": meta, "spec": spec})


def promotion(*steps: JsonObject, **parts: Any) -> Promotion:
    meta = {"name": "p1", "namespace": "shop", "uid": "u", "generation": 3, **parts.pop("metadata", {})}
    spec: JsonObject = {"stage": "dev", "freight": "f1", **parts}
    if steps:
        spec["steps"] = list(steps)
    return Promotion.model_validate({"metadata": meta, "spec": {n: v for n, v in spec.items() if v is not None}})


FREIGHT = Freight.model_validate(
    {
        "metadata": {"name": "f1", "namespace": "shop"},
        "origin": ORIGIN,
        "alias": "calm-otter",
        "commits": [{"repoURL": REPO, "id": SHA, "tag": "1.30"}],
        "images": [{"repoURL": "shop", "tag": "1.30"}],
    }
)


def find(reference: PromotionTaskReference) -> PromotionTaskSpec | None:
    return PromotionTaskSpec.model_validate(DEPLOY) if reference.name == "deploy" else None


RULEBOOK = Rulebook(BUILT_IN, find)


def planned(wanted: Promotion, to: Stage) -> Plan:
    program = program_before(wanted, to, FREIGHT, ui_base_url="https://kargo.example.com")
    return plan(wanted, to, RULEBOOK.template(to), RULEBOOK, Evaluator(program, NOON))


@dataclass(frozen=True)
class Case:
    """What a Promotion of *given* steps runs on a Stage of *template*: ``given``, ``template``, or these."""

    id: str
    template: Sequence[JsonObject]
    given: Sequence[JsonObject]
    runs: str | Sequence[JsonObject]
    replaced: str = ""
    custom: str | None = None
    stage: Mapping[str, Any] = field(default_factory=dict)


LATER = {"uses": "argocd-update", "config": {"apps": [{"name": "${{ outputs.a?.b ?? 'shop' }}"}]}}
CASES = [
    Case("no steps", [UPDATE], [], "template"),
    Case("the same", [UPDATE], [UPDATE], "given"),
    Case("the default alias, written or not", [OTHER], [{**OTHER, "as": "step-1"}], "given"),
    Case("blanks around the alias", [UPDATE], [{**UPDATE, "as": " update "}], "given"),
    Case(
        "fields that say nothing",
        [UPDATE],
        [{**UPDATE, "if": "", "continueOnError": False, "vars": [], "retry": {"errorThreshold": 0}}],
        "given",
    ),
    Case(
        "a time written in another way",
        [{**UPDATE, "retry": {"timeout": "5m"}}],
        [{**UPDATE, "retry": {"timeout": "5m0s"}}],
        "given",
    ),
    Case(
        "an expression as it stands",
        [source("${{ commitFrom(vars.repo).ID }}")],
        [source("${{ commitFrom(vars.repo).ID }}")],
        "given",
    ),
    Case("what an expression becomes", [source(f'${{{{ commitFrom("{REPO}").ID }}}}')], [source(SHA)], "given"),
    Case("the text of what would be guessed", [source('${{ imageFrom("shop").Tag }}')], [source("1.30")], "given"),
    Case(
        "another commit",
        [source(f'${{{{ commitFrom("{REPO}").ID }}}}')],
        [source("f" * 40)],
        "template",
        "desiredRevision",
    ),
    Case(
        "a variable of the step goes before the Promotion's",
        [{**source("${{ vars.rev }}"), "vars": [{"name": "rev", "value": "own"}]}],
        [{**source("own"), "vars": [{"name": "rev", "value": "own"}]}],
        "given",
        stage={"variables": [{"name": "rev", "value": "common"}]},
    ),
    Case(
        "and is not to be passed over",
        [{**source("${{ vars.rev }}"), "vars": [{"name": "rev", "value": "own"}]}],
        [{**source("common"), "vars": [{"name": "rev", "value": "own"}]}],
        "template",
        "desiredRevision",
        stage={"variables": [{"name": "rev", "value": "common"}]},
    ),
    Case(
        "what only a running Promotion knows is not guessed",
        [LATER],
        [{**LATER, "config": {"apps": [{"name": "shop"}]}}],
        "template",
        "name",
    ),
    Case(
        "a Secret is not read",
        [source('${{ secret("s").token ?? "x" }}')],
        [source("x")],
        "template",
        "desiredRevision",
    ),
    Case(
        "a condition is compared as it is written",
        [{**UPDATE, "if": "${{ true }}"}],
        [UPDATE],
        "template",
        "spec.steps[0].if",
    ),
    Case("more steps", [UPDATE], [UPDATE, OTHER], "template", "the number of steps is 2, and 1"),
    Case(
        "another kind", [UPDATE], [{**UPDATE, "uses": "argocd-wait"}], "template", 'spec.steps[0].uses is "argocd-wait"'
    ),
    Case(
        "a field more",
        [UPDATE],
        [{**UPDATE, "config": {"apps": [{"name": "shop", "prune": True}]}}],
        "template",
        "apps[0].prune is true, and not there",
    ),
    Case(
        "true is not 1",
        [{**UPDATE, "config": {"a": True}}],
        [{**UPDATE, "config": {"a": 1}}],
        "template",
        "spec.steps[0].config.a is 1, and true",
    ),
    Case(
        "the rest of a list",
        [{**UPDATE, "config": {"a": [1, 2]}}],
        [{**UPDATE, "config": {"a": [1]}}],
        "template",
        "is a list of 1, and a list of 2",
    ),
    Case("steps of a task, written out", [TASK], [INFLATED], "given"),
    Case("a task, as it stands in the Stage", [TASK], [TASK], "template"),
    Case(
        "a task with another variable",
        [TASK],
        [{**INFLATED, "vars": [{"name": "app", "value": "x"}]}],
        "template",
        "spec.steps[0].vars[0].value",
    ),
    Case("others are allowed", [UPDATE], [OTHER], "given", custom="allow"),
    Case("allowed, in whatever letters", [UPDATE], [OTHER], "given", custom=" Allow "),
    Case("no steps where others are allowed", [UPDATE], [], "template", custom="allow"),
    Case("a task where others are allowed", [UPDATE], [TASK], [INFLATED], custom="allow"),
    Case("another word does not allow", [UPDATE], [OTHER], "template", "spec.steps[0].as", custom="true"),
]


@pytest.mark.parametrize(
    "written",
    [
        "${{ secret('deploy').token }}",
        "${%",
        ["${{ secret('deploy').token }}"],
        {"a": {"${{ 1 }}": "${{ secret('deploy').token }}"}},
    ],
    ids=str,
)
def test_an_expression_that_does_not_come_from_the_stage_is_not_evaluated(written: Any) -> None:
    """Who creates a Promotion writes the annotation, too; what the template makes of it is a text and no template."""
    expression = "${{ ctx.meta.promotion.actor }}" if isinstance(written, str) else "${{ fromJSON(vars.by) }}"
    variables = [{"name": "by", "value": "${{ ctx.meta.promotion.actor }}"}]
    to = stage({**UPDATE, "config": {"a": expression}}, variables=variables)
    actor = written if isinstance(written, str) else json.dumps(written)
    by = {"annotations": {ANNOTATION_CREATE_ACTOR: actor}}
    wanted = promotion({**UPDATE, "config": {"a": written}}, metadata=by)
    made = planned(wanted, to)
    assert [step.config for step in made.steps] == [{"a": expression}]
    assert "spec.steps[0].config.a" in made.replaced


def test_freight_that_may_be_another_by_then_is_not_known() -> None:
    """What is in the Stage of other origins may be replaced while the Promotion waits for its turn."""
    origin = {"kind": "Warehouse", "name": "charts"}
    other = {"name": "f9", "origin": origin, "images": [{"repoURL": "proxy", "tag": "7.1"}]}
    to = stage(source('${{ imageFrom("proxy").Tag }}'))
    request = to.spec.requested_freight[0]
    history = [{"id": "h", "items": {"Warehouse/charts": other}}]
    to = Stage.model_validate(
        {
            **to.wire(),
            "spec": {**to.spec.wire(), "requestedFreight": [request.wire(), {**request.wire(), "origin": origin}]},
            "status": {"freightHistory": history},
        }
    )
    assert collection_with(to, FREIGHT).items.keys() == {"Warehouse/wh", "Warehouse/charts"}
    assert "desiredRevision" in planned(promotion(source("7.1")), to).replaced


def test_expressions_take_no_longer_than_those_of_one_step() -> None:
    """However many there are: nobody else is served as long as they are evaluated."""
    heavy = "${{ sum(1..50000) * 0 }}"
    for places, replaced in ((2, False), (20, True)):
        config = {f"a{index}": "${{ vars.heavy }}" for index in range(places)}
        to = stage({**UPDATE, "config": config}, variables=[{"name": "heavy", "value": heavy}])
        made = planned(promotion({**UPDATE, "config": dict.fromkeys(config, 0)}), to)
        assert bool(made.replaced) is replaced


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_which_steps_run(case: Case) -> None:
    """Those of the template, unless what the author wrote says the same or is allowed."""
    to = stage(*case.template, custom=case.custom, **case.stage)
    wanted = promotion(*case.given)
    made = planned(wanted, to)

    assert case.replaced in made.replaced
    assert bool(case.replaced) == bool(made.replaced)
    if case.runs == "given":
        assert made.steps is wanted.spec.steps
    elif case.runs == "template":
        assert made.steps == RULEBOOK.template(to).steps
        assert all(step.task is None and step.as_ for step in made.steps)
    else:
        assert [step.wire() for step in made.steps] == case.runs


VARS = st.lists(st.builds(ExpressionVariable, name=st.sampled_from("abcd"), value=st.sampled_from("xyz")), max_size=6)


@given(VARS, VARS)
def test_variables_of_the_author_take_the_places_of_those_of_the_same_name(
    known: list[ExpressionVariable], given_: list[ExpressionVariable]
) -> None:
    """The last value that the author gave counts, each variable is there, and doing it again changes nothing."""
    made = overridden(known, given_)

    values = {variable.name: variable.value for variable in made}
    assert values == {v.name: v.value for v in [*known, *given_]}
    assert list(overridden(known, made)) == list(made)
    assert [v for v in made if v.name not in {k.name for k in known}] == [
        v for v in given_ if v.name not in {k.name for k in known}
    ]


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ([], "env=dev url=https://${{ vars.env }}"),
        ([("env", "qa")], "env=qa url=https://${{ vars.env }}"),
        ([("base", "x"), ("url", "${{ vars.base }}")], "env=dev base=x url=${{ vars.base }}"),
        ([("more", "${{ vars.url }}")], "env=dev url=https://${{ vars.env }} more=${{ vars.url }}"),
    ],
)
def test_variables_stand_where_others_may_use_them(given_: list[tuple[str, str]], expected: str) -> None:
    """A variable is before those that use it, whoever wrote them."""
    known = [
        ExpressionVariable(name="env", value="dev"),
        ExpressionVariable(name="url", value="https://${{ vars.env }}"),
    ]
    made = overridden(known, [ExpressionVariable(name=name, value=value) for name, value in given_])

    assert " ".join(f"{v.name}={v.value}" for v in made) == expected


OWN: JsonObject = {
    "labels": {"kargo.akuity.io/stage": "dev"},
    "annotations": {"kargo.akuity.io/stage": "dev"},
    "ownerReferences": [
        {
            "apiVersion": "kargo.akuity.io/v1alpha1",
            "kind": "Stage",
            "name": "dev",
            "uid": "stage-uid",
            "controller": True,
        }
    ],
}
FORMER = {**OWN["ownerReferences"][0], "uid": "former"}
ELSE = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}


@pytest.mark.parametrize(
    ("has", "to", "patch"),
    [
        pytest.param({}, {}, OWN, id="nothing"),
        pytest.param(OWN, {}, {}, id="all"),
        pytest.param(
            {**OWN, "labels": {}},
            {"shard": "eu"},
            {"labels": {"kargo.akuity.io/shard": "eu", "kargo.akuity.io/stage": "dev"}},
            id="labels",
        ),
        pytest.param(
            {**OWN, "labels": {**OWN["labels"], "kargo.akuity.io/shard": "us"}},
            {},
            {"labels": {"kargo.akuity.io/shard": None}},
            id="a shard that the Stage does not have",
        ),
        pytest.param(
            OWN,
            {"shard": "us", "labels": {"kargo.akuity.io/shard": "eu"}},
            {"labels": {"kargo.akuity.io/shard": "eu"}},
            id="the shard of the label",
        ),
        pytest.param(
            {**OWN, "annotations": {"kargo.akuity.io/stage": "prod"}},
            {},
            {"annotations": {"kargo.akuity.io/stage": "dev"}},
            id="another Stage",
        ),
        pytest.param(
            {**OWN, "ownerReferences": [FORMER]},
            {},
            {"ownerReferences": OWN["ownerReferences"]},
            id="a Stage that was deleted",
        ),
        pytest.param(
            {**OWN, "ownerReferences": [ELSE]},
            {},
            {"ownerReferences": [ELSE, *OWN["ownerReferences"]]},
            id="another owner",
        ),
        pytest.param(
            {**OWN, "ownerReferences": [{**ELSE, "controller": True}]},
            {},
            {
                "ownerReferences": [
                    {**ELSE, "controller": True},
                    {n: v for n, v in OWN["ownerReferences"][0].items() if n != "controller"},
                ]
            },
            id="another controller",
        ),
    ],
)
def test_whose_promotion_it_is(has: JsonObject, to: JsonObject, patch: JsonObject) -> None:
    """Labels, annotation and owner say it; what is right is left alone."""
    assert metadata_patch(promotion(UPDATE, metadata=has), stage(UPDATE, **to)) == patch


def test_a_complete_promotion_costs_no_write() -> None:
    """The steps that Kargo's webhook would have written, in other words or evaluated, are left as they are."""
    to = stage(source(f'${{{{ commitFrom("{REPO}").ID }}}}'), variables=[{"name": "a", "value": "1"}])
    wanted = promotion(source(SHA), vars=[{"name": "a", "value": "1"}], metadata=OWN)

    assert completion(wanted, to, "f1", planned(wanted, to)) == {}


def test_what_is_filled_in() -> None:
    """Freight of the origin, steps with their aliases, the variables of the Stage and then of its template."""
    to = stage(OTHER, TASK, variables=[{"name": "a", "value": "1"}], template_vars=[{"name": "b", "value": "2"}])
    wanted = promotion(freight=None, origin=ORIGIN, metadata=OWN)
    made = planned(wanted, to)

    assert completion(wanted, to, "f1", made) == {
        "spec": {
            "origin": None,
            "freight": "f1",
            "steps": [{**OTHER, "as": "step-1"}, INFLATED],
            "vars": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}],
        }
    }
    assert made.replaced == ""


@pytest.mark.parametrize(
    ("custom", "variables", "replaced"), [(None, None, "vars[0].value"), ("allow", [{"name": "a", "value": "2"}], "")]
)
def test_variables_of_the_author(custom: str | None, variables: list[JsonObject] | None, replaced: str) -> None:
    """They are the Stage's, as in Kargo; where others are allowed, the author's go before them."""
    to = stage(UPDATE, variables=[{"name": "a", "value": "1"}], custom=custom)
    wanted = promotion(vars=[{"name": "a", "value": "2"}], metadata=OWN)
    made = planned(wanted, to)
    written = completion(wanted, to, "f1", made)["spec"]

    assert written.get("vars") == ([{"name": "a", "value": "1"}] if variables is None else None)
    assert replaced in made.replaced
    assert bool(replaced) == bool(made.replaced)


def test_variables_are_taken_away_where_the_stage_has_none() -> None:
    """An empty list is not left behind."""
    wanted = promotion(UPDATE, vars=[{"name": "a", "value": "2"}], metadata=OWN)
    made = planned(wanted, stage(UPDATE))

    assert completion(wanted, stage(UPDATE), "f1", made) == {"spec": {"vars": None}}
    assert "the number of variables is 1, and 0" in made.replaced


@pytest.mark.parametrize(
    ("template", "given_", "custom", "where"),
    [
        (
            [{"uses": "argocd-update", "config": {"apps": 7}}],
            [],
            None,
            "spec.promotionTemplate.spec.steps[0].config.apps",
        ),
        ([{"task": {"name": "absent"}}], [], None, "spec.promotionTemplate.spec.steps[0].task"),
        ([{"task": {"name": "absent"}}], [UPDATE], None, "spec.promotionTemplate.spec.steps[0].task"),
        ([UPDATE], [{"uses": "argocd-update", "config": {"apps": 7}}], "allow", "spec.steps[0].config.apps"),
    ],
)
def test_what_is_wrong_is_told_where_it_is_written(
    template: list[JsonObject], given_: list[JsonObject], custom: str | None, where: str
) -> None:
    """In the Stage, or in the Promotion where its own steps are kept."""
    made = planned(promotion(*given_), stage(*template, custom=custom))

    assert [str(problem.place) for problem in made.problems if not problem.warning] == [where]
    assert made.of_template == ("promotionTemplate" in where)


def test_the_mark() -> None:
    """It holds only for the generation and the Stage that were admitted, and goes beside what else is kept."""
    wanted, to = promotion(UPDATE), stage(UPDATE)
    marked = with_admission(wanted, to, NOON)

    assert is_admitted(marked.state, 3, "stage-uid")
    assert not is_admitted(marked.state, 4, "stage-uid")
    assert not is_admitted(marked.state, 3, "another")
    assert marked.admitted_at == "2026-11-30T12:00:00Z"
    kept = wanted.replace(status=wanted.status.replace(state={"other": 1}))
    assert with_admission(kept, to, NOON).state["other"] == 1


@pytest.mark.parametrize(
    "state",
    [
        None,
        7,
        [],
        {},
        {ADMITTED_KEY: 3},
        {ADMITTED_KEY: {}},
        {ADMITTED_KEY: {"generation": "3"}},
        {ADMITTED_KEY: {"generation": 3}},
    ],
)
def test_marks_that_are_none(state: Any) -> None:
    """Whatever somebody wrote there does not count as an admission."""
    assert not is_admitted(state, 3, "stage-uid")


def test_no_generation_is_admitted_without_a_generation() -> None:
    """A server that counts none gives no mark to go by."""
    assert not is_admitted({ADMITTED_KEY: {"generation": 0, "stage": "u"}}, 0, "u")


@pytest.mark.parametrize(("value", "allowed"), [("allow", True), ("ALLOW", True), ("", False), ("deny", False)])
def test_custom_steps(value: str, allowed: bool) -> None:
    """One word allows them."""
    assert allows_custom_steps(stage(UPDATE, custom=value)) == allowed
