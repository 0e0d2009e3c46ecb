"""Tasks written out: aliases, variables, places, and what is refused."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kargo_py.api.promotion import ExpressionVariable, PromotionStep
from kargo_py.api.promotion_task import PromotionTaskSpec
from kargo_py.engine.problems import Place, Problem, TaskName
from kargo_py.engine.tasks import MAX_STEPS, Inflated, found_in, inflate

DEPLOY = TaskName("PromotionTask", "deploy")
SHARED = TaskName("ClusterPromotionTask", "deploy")


def steps_of(*steps: dict[str, Any]) -> list[PromotionStep]:
    return [PromotionStep.model_validate(step) for step in steps]


def variables_of(*names_and_values: str) -> list[ExpressionVariable]:
    pairs = (text.partition("=") for text in names_and_values)
    return [ExpressionVariable(name=name, value=value) for name, _, value in pairs]


def task_of(steps: Sequence[PromotionStep], *variables: str) -> PromotionTaskSpec:
    return PromotionTaskSpec(steps=steps, vars=variables_of(*variables))


def inflated(*steps: dict[str, Any], variables: Sequence[str] = (), **tasks: PromotionTaskSpec) -> Inflated:
    known = {TaskName("PromotionTask", name): spec for name, spec in tasks.items()}
    return inflate(steps_of(*steps), variables_of(*variables), found_in(known), namespace="shop")


def values(step: PromotionStep) -> list[str]:
    return [f"{variable.name}={variable.value}" for variable in step.vars]


class TestAliases:
    """Aliases are written out, with the place in the list they were in."""

    def test_defaults(self) -> None:
        """A step gets its alias by its place among the author's steps, one of a task by that within the task."""
        task = task_of(steps_of({"uses": "a"}, {"uses": "b", "as": " second "}))

        found = inflated({"uses": "a"}, {"task": {"name": "deploy"}}, {"uses": "b"}, deploy=task)

        assert [step.as_ for step in found.steps] == ["step-1", "task-2::step-1", "task-2::second", "step-3"]
        assert found.problems == ()

    def test_given(self) -> None:
        """A task's alias goes before those of its steps, and blanks around it do not count."""
        task = task_of(steps_of({"uses": "a"}))

        found = inflated({"task": {"name": "deploy"}, "as": " d "}, deploy=task)

        assert [step.as_ for step in found.steps] == ["d::step-1"]

    @pytest.mark.parametrize("alias", ["step-1", "task-12", " step-3 "])
    def test_reserved(self, alias: str) -> None:
        """What looks like a default alias is refused, in a task too."""
        task = task_of(steps_of({"uses": "a", "as": alias}))

        found = inflated({"uses": "a", "as": alias}, {"task": {"name": "deploy"}}, deploy=task)

        assert [(str(p.place), p.warning) for p in found.problems] == [
            ("spec.steps[0].as", False),
            ('PromotionTask "deploy": spec.steps[0].as', False),
        ]

    @pytest.mark.parametrize("alias", ["step-", "step-a", "my-step-1", "step-1-b", "Step-1", "step-٣"])
    def test_not_reserved(self, alias: str) -> None:
        """Only that form is."""
        assert inflated({"uses": "a", "as": alias}).problems == ()


class TestVariables:
    """Which variables a step of a task gets, and in which order: the last of a name counts."""

    def test_order(self) -> None:
        """First the task's, then those of the step that names it, then the step's own."""
        task = task_of(steps_of({"uses": "a", "vars": [{"name": "own", "value": "3"}]}), "one=1", "two=1")

        found = inflated(
            {"task": {"name": "deploy"}, "vars": [{"name": "two", "value": "2"}, {"name": "more", "value": "2"}]},
            deploy=task,
        )

        assert values(found.steps[0]) == ["one=1", "two=1", "two=2", "more=2", "own=3"]
        assert found.origins[0].variables == (
            Place(("spec", "vars", 0), DEPLOY),
            Place(("spec", "vars", 1), DEPLOY),
            Place(("spec", "steps", 0, "vars", 0)),
            Place(("spec", "steps", 0, "vars", 1)),
            Place(("spec", "steps", 0, "vars", 0), DEPLOY),
        )

    def test_of_the_promotion(self) -> None:
        """A default gives way to a variable of the Promotion, unless that is empty."""
        task = task_of(steps_of({"uses": "a"}), "branch=main", "region=eu")

        found = inflated({"task": {"name": "deploy"}}, variables=["branch=release", "region="], deploy=task)

        assert values(found.steps[0]) == ["region=eu"]

    @pytest.mark.parametrize(
        ("variables", "given", "missing"),
        [
            ([], {}, True),
            (["app=shop"], {}, False),
            (["app="], {}, True),
            ([], {"vars": [{"name": "app", "value": "shop"}]}, False),
            ([], {"vars": [{"name": "app"}]}, True),
        ],
    )
    def test_without_default(self, variables: list[str], given: dict[str, Any], missing: bool) -> None:
        """It has to be set by the Promotion or by the step that names the task, and not to nothing."""
        task = task_of(steps_of({"uses": "a"}), "app")

        found = inflated({"task": {"name": "deploy"}, **given}, variables=variables, deploy=task)

        wanted = [
            Problem(("spec", "steps", 0, "task"), "PromotionTask \"deploy\" needs a value for its variable 'app'")
        ]
        assert list(found.problems) == (wanted if missing else [])

    @pytest.mark.parametrize("count", range(8))
    def test_none_overwrites_another(self, count: int) -> None:
        """Each step has its own variables: in Kargo the last step's stand in all, for some numbers of variables."""
        own = [{"uses": "a", "vars": [{"name": "own", "value": which}]} for which in ("first", "second", "third")]
        task = task_of(steps_of(*own), *(f"v{number}=x" for number in range(count)))

        found = inflated({"task": {"name": "deploy"}}, deploy=task)

        assert [step.vars[-1].value for step in found.steps] == ["first", "second", "third"]
        assert [len(step.vars) for step in found.steps] == [count + 1] * 3


class TestReferences:
    """The step that names a task."""

    def test_settings_are_those_of_the_task(self) -> None:
        """What the task's steps say of themselves stays."""
        inner = {
            "uses": "a",
            "if": "${{ always() }}",
            "continueOnError": True,
            "retry": {"timeout": "1m"},
            "config": {},
        }
        task = task_of(steps_of(inner))

        found = inflated({"task": {"name": "deploy"}, "as": "d"}, deploy=task)

        assert found.steps[0].wire() == {**inner, "as": "d::step-1"}

    @pytest.mark.parametrize(
        ("field", "value"),
        [("if", "${{ true }}"), ("continueOnError", True), ("retry", {"timeout": "1m"}), ("config", {}), ("uses", "a")],
    )
    def test_what_it_cannot_set(self, field: str, value: Any) -> None:
        """A field without effect is refused, as Kargo does, and not carried over."""
        task = task_of(steps_of({"uses": "b"}))

        found = inflated({"task": {"name": "deploy"}, field: value}, deploy=task)

        assert [str(problem.place) for problem in found.problems] == [f"spec.steps[0].{field}"]
        assert [step.wire() for step in found.steps] == [{"uses": "b", "as": "task-1::step-1"}]

    def test_missing(self) -> None:
        """The text names kind, name and namespace; all that are missing are told at once."""
        found = inflated(
            {"task": {"name": "nope"}}, {"task": {"name": "deploy", "kind": "ClusterPromotionTask"}, "as": "d"}
        )

        assert [str(problem) for problem in found.problems] == [
            'spec.steps[0].task: there is no PromotionTask "nope" in namespace "shop"',
            'spec.steps[1].task: there is no ClusterPromotionTask "deploy"',
        ]
        assert found.missing == {"task-1", "d"}
        assert found.steps == ()

    def test_kinds_are_apart(self) -> None:
        """A task of the cluster may have the name of one of the namespace."""
        known = {DEPLOY: task_of(steps_of({"uses": "own"})), SHARED: task_of(steps_of({"uses": "shared"}))}
        steps = steps_of({"task": {"name": "deploy", "kind": "ClusterPromotionTask"}}, {"task": {"name": "deploy"}})

        found = inflate(steps, (), found_in(known))

        assert [step.uses for step in found.steps] == ["shared", "own"]
        assert [origin.step.task for origin in found.origins] == [SHARED, DEPLOY]

    def test_tasks_do_not_nest(self) -> None:
        """It is told in the task, and its other steps are there all the same."""
        task = task_of(steps_of({"uses": "a"}, {"task": {"name": "inner"}}))

        found = inflated({"task": {"name": "deploy"}}, deploy=task)

        assert [str(p.place) for p in found.problems] == ['PromotionTask "deploy": spec.steps[1].task']
        assert [step.as_ for step in found.steps] == ["task-1::step-1"]
        assert found.missing == {"task-1"}


class TestBounds:
    """A few lines must not become more than can be handled."""

    def test_steps(self) -> None:
        """Beyond the limit nothing more is written out, and it is told once."""
        task = task_of(steps_of(*({"uses": "a"} for _ in range(256))))

        found = inflated(*({"task": {"name": "deploy"}} for _ in range(256)), deploy=task)

        assert len(found.steps) == MAX_STEPS + 1
        assert [str(problem) for problem in found.problems] == [
            "spec.steps: with the steps of its tasks there are more than 1000 steps"
        ]

    def test_size(self) -> None:
        """As above; a large step is measured once however often it is named."""
        task = task_of(steps_of({"uses": "a", "config": {"text": "x" * 100_000}}))

        found = inflated(*({"task": {"name": "deploy"}} for _ in range(100)), deploy=task)

        assert len(found.steps) == 6
        assert [str(problem) for problem in found.problems] == [
            "spec.steps: with those of its tasks the steps take more than 512 KiB"
        ]

    def test_shared_values(self) -> None:
        """What YAML aliases stand for counts each time, and is never written out."""
        bomb: Any = "x"
        for _ in range(30):
            bomb = [bomb] * 10
        task = task_of(steps_of({"uses": "a", "config": {"bomb": bomb}}))

        found = inflated(*({"task": {"name": "deploy"}} for _ in range(10)), deploy=task)

        assert found.problems


NAMES = st.sampled_from(["a", "b", "c"])
VARIABLES = st.lists(st.tuples(NAMES, st.sampled_from(["", "x", "y"])), max_size=4).map(
    lambda pairs: [{"name": name, "value": value} for name, value in pairs]
)
PLAIN = st.fixed_dictionaries({"uses": st.just("kind"), "vars": VARIABLES}, optional={"as": st.sampled_from("pqrs")})
NAMING = st.fixed_dictionaries(
    {"task": st.fixed_dictionaries({"name": st.sampled_from(["one", "two", "none"])}), "vars": VARIABLES},
    optional={"as": st.sampled_from("tuv")},
)
TASKS = st.fixed_dictionaries(
    {
        name: st.fixed_dictionaries({"vars": VARIABLES, "steps": st.lists(PLAIN, min_size=1, max_size=3)})
        for name in ("one", "two")
    }
)


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(PLAIN | NAMING, max_size=4), variables=VARIABLES, tasks=TASKS)
def test_properties(steps: list[dict[str, Any]], variables: list[dict[str, Any]], tasks: dict[str, Any]) -> None:
    """It changes nothing it is given; places lead to what was written; variables are those of Kargo's rules."""
    before = copy.deepcopy((steps, variables, tasks))
    given_steps = [PromotionStep.model_validate(step) for step in steps]
    given_variables = [ExpressionVariable.model_validate(variable) for variable in variables]
    specs = {TaskName("PromotionTask", name): PromotionTaskSpec.model_validate(task) for name, task in tasks.items()}

    found = inflate(given_steps, given_variables, found_in(specs))

    assert [step.wire() for step in given_steps] == before[0] == steps
    assert {key.name: spec.wire() for key, spec in specs.items()} == before[2]
    assert found == inflate(given_steps, given_variables, found_in(specs))
    documents: dict[TaskName | None, Any] = {key: {"spec": tasks[key.name]} for key in specs}
    documents[None] = {"spec": {"steps": steps}}
    for step, origin in zip(found.steps, found.origins, strict=True):
        written = at(documents[origin.step.task], origin.step.path)
        assert step.uses == written["uses"]
        assert [value.wire() for value in step.vars] == [
            at(documents[place.task], place.path) for place in origin.variables
        ]
        assert re.fullmatch(r"[p-s]|step-\d+|(?:[t-v]|task-\d+)::(?:[p-s]|step-\d+)", step.as_ or "")
    for problem in found.problems:
        assert at(documents[problem.task], problem.path)


def at(value: Any, path: Sequence[str | int]) -> Any:
    for part in path:
        value = value[part]
    return value
