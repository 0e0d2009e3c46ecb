"""Steps checked before they run: what is refused, what is a warning, and what is neither."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kargo_py.api.promotion import PromotionStep
from kargo_py.engine import checks_names
from kargo_py.engine.checks import check_promotion, check_task
from kargo_py.engine.evaluation import places_of
from kargo_py.engine.problems import MOST_PROBLEMS, Place, Problem, refused, written
from kargo_py.expressions.environment import Context, environment, evaluate_variables
from kargo_py.expressions.functions import promotion_functions, status_functions
from kargo_py.expressions.lookups import Lookups, Missing
from kargo_py.expressions.templates import ConfigurationError, Scope, render_all
from kargo_py.steps.config import read_as
from tests.engine.drafts import KINDS, of_stage, of_steps, promotion_of, task_of, told

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class TestKinds:
    """A kind of step that is not there ends a Promotion only if it comes to it."""

    @pytest.mark.parametrize(
        ("more", "mark"),
        [
            ("", "E"),
            ("if: ${{ always() }}", "E"),
            ("if: ${{ success() }}", "E"),
            ("if: ${{ failure() }}", "W"),
            ("if: ${{ vars.x == 'y' }}", "W"),
            ("continueOnError: true", "W"),
        ],
    )
    def test_unknown(self, more: str, mark: str) -> None:
        """It is refused where it is sure to be run, and its end counts."""
        found = of_steps(f"- uses: git-clone\n  {more}", {"x": "1"})

        assert found == [f"{mark} spec.steps[0].uses: there is no kind of step 'git-clone'"]

    def test_similar(self) -> None:
        """A typing error is recognised."""
        [problem] = of_steps("- uses: argocd-updte")
        assert problem.endswith("; did you mean argocd-update?")

    def test_nothing_to_run(self) -> None:
        """A step that says nothing, and one that names a task where tasks cannot be written out."""
        assert of_steps("- as: a\n- task: {name: deploy}") == [
            "E spec.steps[0]: a step must have uses",
            "E spec.steps[1].task: a step with a task cannot be run; its steps must be written out",
        ]


class TestAliases:
    """Outputs and records are kept by alias."""

    def test_twice(self) -> None:
        """Each after the first is told, with the place of that; a default alias counts too."""
        assert of_steps("- {uses: compose, as: step-2}\n- uses: compose\n- {uses: compose, as: ' step-2 '}") == [
            "E spec.steps[1]: has the alias 'step-2' of spec.steps[0]",
            "E spec.steps[2]: has the alias 'step-2' of spec.steps[0]",
        ]

    def test_in_a_task(self) -> None:
        """The places are those in the task; two uses of it with two aliases are no matter."""
        task = task_of("- {uses: compose, as: a}\n- {uses: compose, as: a}")

        assert of_stage("- task: {name: deploy}\n- task: {name: deploy}", deploy=task) == [
            (
                'E PromotionTask "deploy": spec.steps[1]: has the alias \'task-1::a\' of PromotionTask "deploy": '
                "spec.steps[0]"
            ),
            (
                'E PromotionTask "deploy": spec.steps[1]: has the alias \'task-2::a\' of PromotionTask "deploy": '
                "spec.steps[0]"
            ),
        ]

    def test_ours(self) -> None:
        """Names under which records are kept."""
        [problem] = of_steps("- {uses: compose, as: kargo-py.io/operations}")
        assert problem.startswith("E spec.steps[0]: the alias 'kargo-py.io/operations' is reserved")


class TestSyntax:
    """Expressions that are none."""

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("${{ 1 + }}", "unexpected end of expression (1:8)"),
            ("a ${{ vars.x", 'unclosed expression: expected "}}" but reached end of template (1:3)'),
            ("${% vars.x }}", 'unclosed expression: expected "%}" but reached end of template (1:1)'),
            ("${{ 'x }}", "(1:"),
            ("${{ a b }}", "unexpected"),
        ],
    )
    def test_everywhere(self, value: str, text: str) -> None:
        """In variables of both kinds, in conditions and in configurations, with the position."""
        steps = [{"uses": "compose", "if": value, "vars": [{"name": "v", "value": value}], "config": {"a": [value]}}]

        found = of_steps(steps, {"x": value})

        places = [
            "spec.vars[0].value",
            "spec.steps[0].vars[0].value",
            "spec.steps[0].if",
            "spec.steps[0].config.a[0]",
        ]
        assert [line.split(": ")[0] for line in found] == [f"E {place}" for place in places]
        assert all("not an expression: " in line and text in line for line in found)

    def test_caret(self) -> None:
        """The text has a line that points at the fault, in an expression of several lines at the right one."""
        [problem] = check_promotion(promotion_of([{"uses": "compose", "config": {"a": "x\n${{ 1 ** }}\n"}}]), KINDS)

        assert str(problem) == (
            "spec.steps[0].config.a: not an expression: unexpected end of expression (2:9)\n"
            " | ${{ 1 ** }}\n"
            " | ........^"
        )


class TestConditions:
    """``if`` has to be true or false."""

    @pytest.mark.parametrize(
        ("condition", "problem"),
        [
            ("success()", "E the text 'success()' is never true or false; write ${{ success() }}"),
            ("true", "E the text 'true' is never true or false; write ${{ true }}"),
            (" ", "E the text ' ' is never true or false; write ${{  }}"),
            ("${{ 'yes' }}", "E is never true or false, but 'yes'"),
            ("${{ 1 }}", "E is never true or false, but 1"),
            ("${{ nil }}", "E is never true or false, but null"),
            ("${{ always() }} && ${{ always() }}", "E is never true or false, because of the text '&&' beside"),
            ("!${{ always() }}", "E is never true or false, because of the text '!' beside"),
            ("${{ true }}", "W is always true"),
            ("${{ 1 > 2 }}", "W is always false"),
            ("${{ 'false' }}", "W is always false"),
            ("${{ 1 + 'a' }}", "E can have no value: invalid operation: + (mismatched types int and string)"),
        ],
    )
    def test_told(self, condition: str, problem: str) -> None:
        """Texts, and expressions that are always the same."""
        [found] = of_steps([{"uses": "compose", "if": condition}])
        mark, text = problem.split(" ", 1)
        assert found.startswith(f"{mark} spec.steps[0].if: {text}")

    @pytest.mark.parametrize(
        "condition",
        [
            "",
            "${{ always() }}",
            "${{ always() }}\n",
            " ${{ vars.x == '1' }} ",
            "${{ vars.x }}",
            "${% failure() || vars.x contains 'a' %}",
            "tru${{ vars.x }}",
            "${{ status('step-1') == 'Failed' }}",
        ],
    )
    def test_not_told(self, condition: str) -> None:
        """What may be true or false."""
        assert of_steps([{"uses": "compose"}, {"uses": "compose", "if": condition}], {"x": "e"}) == []


def of_value(value: str) -> list[str]:
    """What is wrong with an expression in the third of four steps, without its place."""
    steps = [
        {"uses": "compose", "as": "open-pr"},
        {"uses": "compose", "as": "commit"},
        {"uses": "picky", "as": "here", "config": {"text": value}},
        {"uses": "compose", "as": "after"},
    ]
    found = of_steps(steps, {"repo": "https://git.example.com/a.git"})
    return [line.replace("spec.steps[2].config.text: ", "").rpartition(" (")[0] for line in found]


class TestNames:
    """What is read, beside what there is."""

    @pytest.mark.parametrize(
        ("value", "problem"),
        [
            ("${{ outputs.nope.x }}", "E no step has the alias 'nope'"),
            ("${{ outputs['nope']['x'] }}", "E no step has the alias 'nope'"),
            ("${{ outputs.nope }}", "E no step has the alias 'nope'"),
            ("${{ $env.outputs.nope.x }}", "E no step has the alias 'nope'"),
            ("${{ outputs.commits.x }}", "E no step has the alias 'commits'; did you mean commit?"),
            ("${{ outputs.after.x }}", "E the step 'after' has not run by then"),
            ("${{ outputs.here.x }}", "E the step 'here' has not run by then"),
            ("${{ stepMetas.nope.Status }}", "E no step has the alias 'nope'"),
            ("${{ stepMetas.after.Status }}", "E the step 'after' has not run by then"),
            (
                "${{ stepMetas.commit.State }}",
                (
                    "E stepMetas.commit has no State; it has Alias, StartedAt, FinishedAt, ErrorCount, Status, "
                    "Message, ContinueOnError"
                ),
            ),
            ("${{ outputs.nope.x ?? 'y' }}", "W no step has the alias 'nope'"),
            ("${{ status('commit') == 'Failed' ? outputs.nope.x : 1 }}", "W no step has the alias 'nope'"),
            ("${{ task.outputs.commit.x }}", "E only steps of a task have task.outputs; here, use outputs"),
            ("${{ ctx.stag }}", "W ctx has no stag; it has project, promotion, stage, uiBaseUrl, targetFreight, meta"),
            ("${{ ctx.target.name }}", "E ctx has no target; it has project, promotion, stage, uiBaseUrl, "),
            ("${{ ctx.targetFreight.origin.kind }}", "W ctx.targetFreight.origin has no kind; it has name"),
            ("${{ foo }}", "W there is no foo, so it is nil"),
            ("${{ foo.bar }}", "E there is no foo, so it is nil"),
            (
                "${{ response.status }}",
                (
                    "E there is no response before the request is made; the expressions of http about it are written "
                    "without ${{ }}"
                ),
            ),
            ("${{ repo }}", "W there is no repo, so it is nil; did you mean vars.repo?"),
            ("${{ output.commit.x }}", "E there is no output, so it is nil; did you mean outputs?"),
            ("${{ vars.rep }}", "W there is no variable rep, so it is nil; did you mean repo?"),
            ("${{ status('nope') }}", "W no step before this one has the alias 'nope', so its status is always empty"),
            ("${{ status('after') }}", "W no step before this one has the alias 'after', so its status is always "),
            ("${{ imageform(vars.repo).Tag }}", "E there is no function imageform; did you mean imageFrom?"),
            ("${{ Upper('a') }}", "E there is no function Upper; did you mean upper?"),
            ("${{ vars.repo ? 1 : foo() }}", "W there is no function foo"),
            ("${{ quote() }}", "E the function quote cannot be called with 0 arguments; it takes 1"),
            ("${{ commitFrom('a', 'b', 'c').ID }}", "E the function commitFrom cannot be called with 3 arguments; "),
            ("${{ imageFrom(vars.repo).tags }}", "E imageFrom(…) has no tags; it has RepoURL, Tag, Digest, "),
            ("${{ imageFrom(vars.repo)?.tags }}", "W imageFrom(…) has no tags; it has "),
            ("${{ semverParse('1.2.3').Minr() }}", "E semverParse(…) has no Minr; it has "),
            ("${{ semverParse('x').Minor() }}", "E can have no value: invalid semantic version: 'x'"),
            ("${{ [1][2] }}", "E can have no value: index out of range: 2"),
        ],
    )
    def test_told(self, value: str, problem: str) -> None:
        """One problem each, with what may have been meant."""
        [found] = of_value(value)
        assert found.startswith(problem)

    def test_hyphen(self) -> None:
        """What looks like an alias with a hyphen is a subtraction."""
        assert of_value("${{ outputs.open-pr.number }}") == [
            "E no step has the alias 'open'; did you mean outputs['open-pr']?",
            "E there is no pr, so it is nil",
        ]

    @pytest.mark.parametrize(
        "value",
        [
            "${{ outputs.commit.commit }}",
            "${{ outputs['open-pr'].number }}",
            "${{ outputs.nope?.x }}",
            "${{ outputs.nope?.x ?? 'y' }}",
            "${{ outputs.nope ?? 'y' }}",
            "${{ outputs.nope == nil ? 1 : 2 }}",
            "${{ outputs[vars.repo].x }}",
            "${{ get(outputs, 'nope') }}",
            "${{ keys(outputs) | join(',') }}",
            "${{ stepMetas.commit.Status }} ${{ stepMetas.commit.status }} ${{ stepMetas.here.status }}",
            "${{ stepMetas.nope?.Status }}",
            "${{ vars.nope ?? 'x' }} ${{ vars?.repo }} ${{ vars.nope?.a }} ${{ vars.nope == nil }}",
            "${{ ctx.meta.promotion.actor }} ${{ ctx.targetFreight.origin.name }} ${{ ctx.uiBaseUrl }}",
            "${{ ctx.timestamp ?? '' }}",
            "${{ imageFrom(vars.repo).Tag }} ${{ imageFrom(vars.repo)?.tag }} ${{ commitFrom(vars.repo).repoURL }}",
            "${{ imageFrom(vars.repo).Annotations['a.b/c'] }}",
            "${{ chartFrom(vars.repo, 'a', warehouse('w')).Version }} ${{ warehouse('w').Name }}",
            "${{ semverParse('1.2.3').IncMinor().String() }}",
            "${{ secret('x').y }} ${{ configMap('x')['y'] }} ${{ freightMetadata(ctx.targetFreight.name)?.a.b }}",
            "${{ status('commit') == 'Succeeded' && success() }}",
            "${{ map(['a'], upper(#)) | join('-') }}",
            "${{ let t = imageFrom(vars.repo); t.Tag ?? 'none' }}",
            "${{ 'a' matches '^[a-z]+$' }}",
            "${{ now().Year() }}",
            "${{}}",
        ],
    )
    def test_not_told(self, value: str) -> None:
        """What Kargo runs, or what its author has provided for."""
        assert of_value(value) == []

    def test_own_outputs_of_a_condition(self) -> None:
        """A condition is looked at as the step's configuration is."""
        assert of_steps('- {uses: compose, if: "${{ outputs.nope.x == 1 }}"}') == [
            "E spec.steps[0].if: no step has the alias 'nope' (1:5)"
        ]


class TestVariables:
    """Variables are evaluated one after another, those of a step after those of the Promotion."""

    def test_of_a_promotion(self) -> None:
        """They know those before them, and no steps."""
        variables = {
            "a": "${{ vars.b }}",
            "b": "${{ vars.a }}-${{ ctx.stage }}",
            "c": "${{ outputs.x.y }}",
            "d": "${{ outputs?.x }}",
            "e": "${{ success() }}",
            "f": "${{ task.outputs.x }}",
            "g": "${{ status('x') ?? vars.z }}",
        }
        assert [line.rpartition(" (")[0] for line in of_steps([{"uses": "compose"}], variables)] == [
            "W spec.vars[0].value: the variable b is set only after this one, so it is nil",
            "E spec.vars[2].value: variables of a Promotion cannot use outputs, which is nil there",
            "W spec.vars[3].value: variables of a Promotion cannot use outputs, which is nil there",
            "E spec.vars[4].value: the function success is for if and config, not for variables",
            "E spec.vars[5].value: variables of a Promotion cannot use task, which is nil there",
            "E spec.vars[6].value: the function status is for if and config, not for variables",
            "W spec.vars[6].value: there is no variable z, so it is nil",
        ]

    def test_of_a_step(self) -> None:
        """They know outputs, and are known to that step alone."""
        steps = [
            {"uses": "compose", "as": "a", "vars": [{"name": "x", "value": "${{ vars.y }}"}]},
            {
                "uses": "compose",
                "vars": [{"name": "o", "value": "${{ outputs.a.b }}"}, {"name": "p", "value": "${{ outputs.c.d }}"}],
                "config": {"q": "${{ vars.o }} ${{ vars.x }} ${{ vars.y }}"},
            },
        ]
        assert [line.rpartition(" (")[0] for line in of_steps(steps, {"y": "1"})] == [
            "E spec.steps[1].vars[1].value: no step has the alias 'c'",
            "W spec.steps[1].config.q: there is no variable x, so it is nil",
        ]


class TestConfig:
    """Configurations beside the model of their kind; expressions stand for whatever fits."""

    @pytest.mark.parametrize(
        ("config", "problems"),
        [
            ({"text": 1}, ["config.text: must be a string; put it in quotes"]),
            ({"texts": "a"}, ["config.texts: there is no such field"]),
            ({"texts": "${{ vars.x }}"}, ["config.texts: there is no such field"]),
            ({"number": "many"}, ["config.number: must be a valid integer, unable to parse string as an"]),
            ({"items": [{"size": 1}, {}]}, ["config.items[1].size: must be given"]),
            (
                {"items": [{"sizes": "${{ vars.x }}"}]},
                ["config.items[0].size: must be given", "config.items[0].sizes: "],
            ),
            ({"labels": {"a": 1, "b": "${{ 1 }}"}}, ["config.labels.a: must be a string; "]),
            ({"items": {"size": "${{ vars.x }}"}}, []),
            ({"text": "${{ vars.x }}", "number": "${{ vars.x }}", "flag": "${{ vars.x }}"}, []),
            ({"items": "${{ vars.x }}", "labels": "${{ vars.x }}", "either": "${{ vars.x }}"}, []),
            ({"choice": {"size": "${{ vars.x }}"}}, []),
            ({"choice": {"name": "${{ vars.x }}"}}, []),
            ({"choice": "${{ vars.x }}"}, []),
            ({"items": ["${{ vars.x }}", {"size": "${{ vars.x }}"}]}, []),
            ("${{ vars.x }}", []),
            ("text", ["config: must be an object, with fields"]),
            ([], ["config: must be an object, with fields"]),
            (None, []),
        ],
    )
    def test_fields(self, config: Any, problems: list[str]) -> None:
        """Wrong is what is wrong whatever the expressions become."""
        found = of_steps([{"uses": "picky", "config": config}], {"x": "1"})

        assert len(found) == len(problems)
        assert all(a.startswith(f"E spec.steps[0].{b}") for a, b in zip(found, problems, strict=True))

    def test_a_choice_without_expressions(self) -> None:
        """What fits none of the forms is told for each of them, once for each field."""
        found = of_steps([{"uses": "picky", "config": {"choice": {}}}])

        assert found == [
            "E spec.steps[0].config.choice.size: must be given",
            "E spec.steps[0].config.choice.name: must be given",
        ]

    def test_argocd_update(self) -> None:
        """A realistic one: what needs the values of expressions is left to the step."""
        apps = [
            {"name": "${{ vars.x }}", "selector": {"matchLabels": {"a": "${{ vars.x }}"}}},
            {"name": "shop", "sources": [{"repoURL": "${{ vars.x }}", "updateTargetRevision": True}]},
            {"name": "shop", "sources": [{"repoURL": "x", "updateTargetRevision": True}]},
            {"name": "shop", "selector": {"matchLabels": {"a": "b"}}},
            {"sources": [{"desiredRevision": "${{ vars.x }}"}]},
        ]
        found = of_steps([{"uses": "argocd-update", "config": {"apps": apps}}], {"x": "1"})

        assert found == [
            "E spec.steps[0].config.apps[2].sources[0]: updateTargetRevision needs a desiredRevision",
            "E spec.steps[0].config.apps[3]: exactly one of name and selector must be given",
            "E spec.steps[0].config.apps[4].sources[0].repoURL: must be given",
        ]

    def test_required(self) -> None:
        """A step without config has an empty one."""
        assert of_steps("- uses: argocd-update") == ["E spec.steps[0].config.apps: must be given"]

    def test_names_with_expressions(self) -> None:
        """They are not evaluated, and somebody may believe they are."""
        assert of_steps([{"uses": "compose", "config": {"a": [{"${{ vars.x }}": 1}]}}]) == [
            (
                'W spec.steps[0].config.a[0]["${{ vars.x }}"]: names of fields are never evaluated: the expression '
                "stays as it is"
            )
        ]

    def test_a_model_that_fails(self) -> None:
        """Another package's model may raise anything; that is told, and is no reason to refuse."""
        broken = type("Broken", (KINDS["picky"],), {"uses": "broken", "config_model": _Broken})

        found = of_steps([{"uses": "broken", "config": {}}], kinds={"broken": broken})

        assert found == [
            "W spec.steps[0].config: cannot be checked before it runs: ZeroDivisionError: division by zero"
        ]

    def test_negative_timeout(self) -> None:
        """Kargo takes it for none."""
        assert of_steps("- {uses: compose, retry: {timeout: -5m}}") == [
            "W spec.steps[0].retry.timeout: a time of less than nothing is no limit"
        ]


class _Broken:
    @staticmethod
    def model_json_schema() -> dict[str, Any]:
        return {}

    @staticmethod
    def model_validate(value: Any) -> float:
        return len([value]) / 0


class TestGuesses:
    """A tag, a commit or a version is no number."""

    @pytest.mark.parametrize(
        ("value", "told_of"),
        [
            ("${{ imageFrom('x').Tag }}", "a tag is taken for a number"),
            ("${{ imageFrom('x')?.tag ?? 'none' }}", "a tag is taken for a number"),
            ("${{ commitFrom('x').ID }}\n", "a commit is taken for a number"),
            ("${{ vars.a ? commitFrom('x').Tag : 'x' }}", "a tag is taken for a number"),
            ("${{ chartFrom('x').Version }}", "a version is taken for a number"),
            ("${{ artifactFrom('x').Version }}", "a version is taken for a number"),
            ("${{ vars.tag }}", "a tag is taken for a number"),
            ("${{ vars.again }}", "a tag is taken for a number"),
            ("${{ vars.text }}", "a text is taken for a number"),
            ("${{ '1.30' }}", "'1.30' becomes 1.3"),
            ("${{ '1234e56' }}", "'1234e56' becomes 1.234e+59"),
            ("${{ 'T' }}", "'T' becomes true"),
            ("${{ '0755' }}", "'0755' becomes 755"),
            ("${{ '12345678901234567890' }}", "'12345678901234567890' becomes 12345678901234567000"),
        ],
    )
    def test_told(self, value: str, told_of: str) -> None:
        """Where any value is taken; a string field loses nothing."""
        variables = {"a": "x", "tag": "${{ imageFrom('x').Tag }}", "again": "${{ vars.tag }}", "text": "1.30"}

        [found] = of_steps([{"uses": "picky", "config": {"anything": [value]}}], variables)

        assert found.startswith(f"W spec.steps[0].config.anything[0]: {told_of}")
        assert of_steps([{"uses": "picky", "config": {"text": value}}], variables) == []

    @pytest.mark.parametrize(
        "value",
        [
            "${{ quote(imageFrom('x').Tag) }}",
            "v${{ imageFrom('x').Tag }}",
            "${{ imageFrom('x').Tag }}-${{ ctx.stage }}",
            "${{ imageFrom('x').Digest }}",
            "${{ imageFrom('x').RepoURL + ':' + imageFrom('x').Tag }}",
            "${{ vars.n }}",
            "${{ '42' }}",
            "${{ 'true' }}",
            "${{ 1.5 }}",
            "${{ '1.5' }}",
            "1.30",
        ],
    )
    def test_not_told(self, value: str) -> None:
        """Texts that stay themselves, and numbers that are meant."""
        assert of_steps([{"uses": "picky", "config": {"anything": value}}], {"n": "8080"}) == []

    def test_no_number_of_json(self) -> None:
        """Such a guess fails when it is made."""
        assert of_steps([{"uses": "compose", "config": {"a": "${{ 'nan' }}", "b": "${{ 'Inf' }}"}}]) == [
            (
                "E spec.steps[0].config.a: becomes NaN, which is no number of JSON; write quote(…) around it to keep "
                "the text"
            ),
            (
                "E spec.steps[0].config.b: becomes +Inf, which is no number of JSON; write quote(…) around it to keep "
                "the text"
            ),
        ]


class TestTasks:
    """Steps of tasks are told of in the task, and have outputs of their own."""

    def test_outputs(self) -> None:
        """Within a task, ``task.outputs`` has the steps before; outside, the task's alias or the full one."""
        task = task_of(
            "- {uses: picky, as: a}\n"
            "- {uses: compose, as: b, config: {x: '${{ task.outputs.a.x }}', y: '${{ task.outputs.b.x }}'}}\n"
            "- {uses: picky, as: c, config: {text: '${{ task.outputs.nope.x }} ${{ outputs.a.x }}'}}"
        )
        steps = [
            {"task": {"name": "deploy"}, "as": "d"},
            {"uses": "picky", "config": {"text": "${{ outputs.d.x }} ${{ outputs['d::a'].x }}"}},
            {
                "uses": "picky",
                "config": {"text": "${{ outputs.a.x }} ${{ outputs['d::z'].x }} ${{ task.outputs.a.x }}"},
            },
        ]
        place = 'PromotionTask "deploy": spec.steps'
        assert [line.rpartition(" (")[0] for line in of_stage(steps, deploy=task)] == [
            f"E {place}[1].config.y: the step 'b' has not run by then",
            f"E {place}[2].config.text: no step has the alias 'nope'",
            f"E {place}[2].config.text: no step has the alias 'a'; did you mean task.outputs['a']?",
            (
                "E spec.promotionTemplate.spec.steps[2].config.text: no step has the alias 'a'; did you mean "
                "outputs['d::a']?"
            ),
            "E spec.promotionTemplate.spec.steps[2].config.text: no step has the alias 'd::z'; did you mean d::c?",
            (
                "E spec.promotionTemplate.spec.steps[2].config.text: only steps of a task have task.outputs; here, use "
                "outputs"
            ),
        ]

    def test_task_without_output(self) -> None:
        """The task's alias has an output only if a step gives it one; of an unknown kind nobody can tell."""
        steps = "- {task: {name: deploy}, as: d}\n- {uses: picky, config: {text: '${{ outputs.d.x }}'}}"

        [problem] = of_stage(steps, deploy=task_of("- uses: picky"))
        assert problem.startswith(
            "E spec.promotionTemplate.spec.steps[1].config.text: the task 'd' has put nothing out by then"
        )
        assert of_stage(steps, deploy=task_of("- {uses: other, continueOnError: true}")) == [
            "W PromotionTask \"deploy\": spec.steps[0].uses: there is no kind of step 'other'"
        ]

    def test_a_missing_task_is_told_once(self) -> None:
        """What its steps would have put out is not missed."""
        steps = (
            "- {task: {name: nope}, as: d}\n"
            "- {uses: picky, config: {text: \"${{ outputs.d.x }} ${{ outputs['d::a'].x }} ${{ outputs.e.x }}\"}}"
        )
        assert [line.rpartition(" (")[0] or line for line in of_stage(steps)] == [
            'E spec.promotionTemplate.spec.steps[0].task: there is no PromotionTask "nope" in namespace "shop"',
            "E spec.promotionTemplate.spec.steps[1].config.text: no step has the alias 'e'",
        ]

    def test_places_of_variables(self) -> None:
        """A variable is told of where it is written, and once, though all steps of the task have it."""
        task = task_of("- uses: compose\n- uses: compose\n- uses: compose", "a=${{ 1 + }}", "b")
        steps = [{"task": {"name": "deploy"}, "vars": [{"name": "b", "value": "${{ foo() }}"}]}]

        assert [line.rpartition(" (")[0] for line in of_stage(steps, deploy=task)] == [
            'E PromotionTask "deploy": spec.vars[0].value: not an expression: unexpected end of expression',
            "E spec.promotionTemplate.spec.steps[0].vars[0].value: there is no function foo",
        ]

    def test_what_others_skip(self) -> None:
        """A task's step may be for some Stages only: what it reads there is no reason to refuse the others."""
        task = task_of(
            "- uses: picky\n  if: ${{ ctx.stage == 'prod' }}\n  config: {text: '${{ outputs.approval.by }}'}"
        )
        [problem] = of_stage("- task: {name: deploy}", deploy=task)
        assert problem.startswith('W PromotionTask "deploy": spec.steps[0].config.text: no step has the alias')

    def test_status(self) -> None:
        """``status`` looks among the task's own steps."""
        task = task_of("- {uses: compose, as: a}\n- {uses: compose, if: \"${{ status('a') == status('b') }}\"}")

        found = of_stage("- {uses: compose, as: b}\n- {task: {name: deploy}}", deploy=task)

        assert [line.rpartition(" (")[0] for line in found] == [
            (
                "W PromotionTask \"deploy\": spec.steps[1].if: no step before this one has the alias 'b', so its "
                "status is always empty"
            )
        ]

    def test_alone(self) -> None:
        """A task without a Stage around it: what may come from there is not missed."""
        task = task_of(
            "- {uses: compose, as: a, config: {x: '${{ vars.repo }} ${{ vars.app }} ${{ outputs.outside.x }}'}}\n"
            "- {uses: compose, config: {x: '${{ task.outputs.b.x }}', y: '${{ stepMetas.outside.Status }}'}}\n"
            "- {uses: nope, as: step-1}",
            "app",
            "branch=${{ vars.app + }}",
        )
        assert [line.partition(" (")[0] for line in told(check_task(task, KINDS))] == [
            "E spec.vars[1].value: not an expression: unexpected end of expression",
            "E spec.steps[1].config.x: no step has the alias 'b'",
            "E spec.steps[2].as: the alias 'step-1' is reserved for steps that have none",
            "E spec.steps[2].uses: there is no kind of step 'nope'",
        ]


def _nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = {"a": value}
    return value


def _bomb() -> Any:
    value: Any = ["x"]
    for _ in range(40):
        value = [value] * 10
    return value


def _cycle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


LONG = "x" * 10_000_000


class TestHostile:
    """Values that nobody writes with good intent, or that YAML makes of what looks harmless."""

    @pytest.mark.parametrize(
        ("config", "problem"),
        [
            (_nested(100_000), ".a.a.a.a.a.a.a.a.a.a.a"),
            (_bomb(), "config.a: has more than 100000 values, those behind aliases counted each time"),
            (_cycle(), ": nests more than 100 deep"),
            ([0] * 1_000_000, "config.a: has more than 100000 values"),
            ({str(n): n for n in range(200_000)}, "config.a: has more than 100000 values"),
            (LONG, "config.a: takes more than the 512 KiB that a Promotion should not exceed"),
            (f"${{{{ {LONG}", "config.a: takes more than the 512 KiB that a Promotion should not exceed"),
            ({LONG: 1}, "config: takes more than the 512 KiB that a Promotion should not exceed"),
            (1 << 100_000_000, "takes more than the 512 KiB"),
            (float("nan"), "config.a: nan is no number of JSON"),
            (float("-inf"), "config.a: -inf is no number of JSON"),
            ({1: 2}, "config.a: the name 1 must be a string, in quotes"),
            ({None: 2}, "config.a: the name None must be a string, in quotes"),
            ({(1, 2): 2}, "config.a: the name tuple must be a string, in quotes"),
            ({10**10_000: 2}, "config.a: the name int must be a string, in quotes"),
            (datetime(2026, 1, 31, tzinfo=UTC), "config.a: a datetime is no value of JSON"),
            (b"x", "config.a: a bytes is no value of JSON"),
            ({1, 2}, "config.a: a set is no value of JSON"),
        ],
        ids=range(18),
    )
    def test_refused_with_the_path(self, config: Any, problem: str) -> None:
        """One problem, quickly, and with a short text."""
        promotion = promotion_of([{"uses": "compose"}])
        step = PromotionStep.model_construct(uses="compose", config={"a": config})
        promotion = promotion.replace(spec=promotion.spec.replace(steps=[step]))

        begun = time.process_time()
        found = check_promotion(promotion, KINDS)

        assert time.process_time() - begun < 5
        assert len(refused(found)) == 1
        assert problem.removeprefix("config") in str(found[0])
        assert len(str(found[0])) < 1500

    @pytest.mark.parametrize(
        "step",
        [
            {"config": {"a": "${{ " + "1+" * 30_000 + "1 }}"}},
            {"config": {f"a{n}": "${{ " + "1+" * 4500 + "1 }}" for n in range(25)}},
            {"config": {"a": ["${{ outputs.x.y }}"] * 15_000}},
            {"config": {"a": [f"${{{{ outputs.x{n}.y }}}}" for n in range(15_000)]}},
            {"config": {"a": [f"${{{{ 'a' matches '(a*)*{n}' }}}}" for n in range(10_000)]}},
            {"config": {"a": "${{ " + "(" * 60_000 + " }}"}},
            {"config": {"a": ["${{ x"] * 40_000}},
            {"config": {"a": "${{ a" + ".b" * 30_000 + " }}"}},
            {"config": {"a": "${{ " * 50_000}},
            {"vars": [{"name": f"v{n}", "value": "${{ vars.v1 }}"} for n in range(8000)]},
            {"if": "x" * 400_000},
            {"config": [0] * 90_000},
        ],
        ids=range(12),
    )
    def test_bounded(self, step: dict[str, Any]) -> None:
        """Many or long expressions take bounded time, and what is told of them is bounded."""
        promotion = promotion_of([{"uses": "picky", **step}])

        begun = time.process_time()
        found = check_promotion(promotion, KINDS)

        assert time.process_time() - begun < 10
        assert found
        assert len(found) <= MOST_PROBLEMS + 1
        assert sum(len(str(problem)) for problem in found) < 250_000

    def test_many_conditions(self) -> None:
        """The effort is that of all steps together."""
        steps = [{"uses": "compose", "if": f"${{{{ {n} == {'1+' * 200}1 }}}}"} for n in range(900)]

        begun = time.process_time()
        found = told(check_promotion(promotion_of(steps), KINDS))

        assert time.process_time() - begun < 10
        assert found[-1] == "W spec.steps: there is more that is wrong than is told here"

    @pytest.mark.parametrize(
        "expression",
        ["vars.{}", "outputs.{}?.b ?? outputs.{}.c", "status('{}')", "stepMetas.{}.x", "1 == 2 && {}()", "{}"],
    )
    @pytest.mark.parametrize("length", [8, 80])
    def test_many_misspelt_names(self, monkeypatch: pytest.MonkeyPatch, expression: str, length: int) -> None:
        """Similar names are looked for as long as that takes tenths of a second, and no longer."""
        random = Random(0)
        compared: list[int] = []

        def counted(name: str, known: Collection[str], *options: Any) -> list[str]:
            compared.append(len(name) ** 2 * len(known))
            return get_close_matches(name, known, *options)

        def names(count: int) -> list[str]:
            return ["".join(random.choices("ab", k=length)) for _ in range(count)]

        monkeypatch.setattr(checks_names, "get_close_matches", counted)
        variables = [{"name": name, "value": ""} for name in names(300)]
        config = {"a": ["${{ " + expression.replace("{}", name) + " }}" for name in names(600)]}
        steps = [{"uses": "compose", "as": name} for name in dict.fromkeys(names(300))]
        promotion = promotion_of([*steps, {"uses": "compose", "vars": variables, "config": config}])

        found = check_promotion(promotion, KINDS)

        assert found
        assert 0 < sum(compared) < 2 * 2_000_000

    def test_many_values_in_many_steps(self) -> None:
        """So many values are checked in all steps together; what was checked before is told."""
        steps = [{"uses": "picky", "config": {"nope": 1, "anything": [0] * 4000}} for _ in range(4)]

        assert told(check_promotion(promotion_of(steps), KINDS)) == [
            "E spec.steps[0].config.nope: there is no such field",
            "E spec.steps[1].config.nope: there is no such field",
            "W spec.steps[2].config: there is more than is checked beforehand",
            "W spec.steps[3].config: there is more than is checked beforehand",
        ]

    def test_many_problems(self) -> None:
        """Reasons to refuse go before warnings, and it is said that there are more."""
        config = {"a": ["${{ vars.x }}" for _ in range(150)], "b": ["${{ 1 + }}" for _ in range(90)]}

        found = check_promotion(promotion_of([{"uses": "compose", "config": config}]), KINDS)

        assert len(refused(found)) == 90
        assert len(found) == MOST_PROBLEMS + 1
        assert told(found)[-1] == "W spec.steps: there is more that is wrong than is told here"

    def test_too_many_problems(self) -> None:
        """With too many of them, that there are more is a reason, too."""
        config = {"b": ["${{ 1 + }}" for _ in range(150)]}

        found = check_promotion(promotion_of([{"uses": "compose", "config": config}]), KINDS)

        assert len(refused(found)) == len(found) == MOST_PROBLEMS + 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("spec", "steps", 2, "config", "apps", 0, "name"), "spec.steps[2].config.apps[0].name"),
        (("spec", "a-b", "c.d", 0), 'spec.a-b["c.d"][0]'),
        (("",), '[""]'),
        (("a\nb",), '["a\\nb"]'),
        (("x" * 1000,), '["' + "x" * 80 + "…]"),
        ((), ""),
    ],
)
def test_written(path: tuple[str | int, ...], text: str) -> None:
    """Paths as people write them, also where names are strange."""
    assert written(path) == text


def test_places_in_tasks() -> None:
    """Where a problem is says which task."""
    problem = Problem(("spec", "steps", 0), "is wrong")
    assert problem.place == Place(("spec", "steps", 0))
    assert str(problem) == "spec.steps[0]: is wrong"


# Templates that work are not refused

TEXTS = st.sampled_from(["a", "b", "1.30", "${{ vars.x }}", "${{ vars.n }}-1", "${{ quote('x') }}", "${{ ctx.stage }}"])
NUMBERS = st.sampled_from([0, 7, "${{ vars.n }}", "${{ 40 + 2 }}", "${{ len(vars.x) }}"])
FLAGS = st.sampled_from([True, False, "${{ vars.x == 'x' }}", "${{ true }}"])
SMALL = st.fixed_dictionaries({"size": NUMBERS})
PICKY = st.fixed_dictionaries(
    {},
    optional={
        "text": TEXTS,
        "number": NUMBERS,
        "flag": FLAGS,
        "either": NUMBERS | TEXTS,
        "choice": SMALL | st.fixed_dictionaries({"name": TEXTS}),
        "labels": st.dictionaries(st.sampled_from("abc"), TEXTS, max_size=2),
        "items": st.lists(SMALL, max_size=2),
        "anything": st.recursive(TEXTS | NUMBERS | st.none(), lambda inner: st.lists(inner, max_size=2)),
    },
)
SOURCE = st.fixed_dictionaries({"repoURL": TEXTS}, optional={"desiredRevision": TEXTS})
UPDATE = st.fixed_dictionaries(
    {"apps": st.lists(st.fixed_dictionaries({"name": st.just("a"), "sources": st.lists(SOURCE)}), min_size=1)}
)
STEPS = st.one_of(
    st.fixed_dictionaries({"uses": st.just("picky"), "config": PICKY}),
    st.fixed_dictionaries({"uses": st.just("argocd-update"), "config": UPDATE}),
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, min_size=1, max_size=3))
def test_what_runs_is_not_refused(steps: list[dict[str, Any]]) -> None:
    """A template whose configurations evaluate and fit is not refused; one that is refused does not get so far."""
    variables = {"x": "x", "n": "3"}
    promotion = promotion_of(steps, variables)

    problems = refused(check_promotion(promotion, KINDS))

    assert problems == []
    for step in promotion.spec.steps or ():
        evaluated(promotion, step)


VALUES = st.recursive(
    TEXTS
    | NUMBERS
    | FLAGS
    | st.sampled_from(
        ["${{ outputs.no.x }}", "${{ outputs.no?.x }}", "${{ vars.y.z }}", "${{ foo() }}", "${{ 1 + }}", "${{ 'nan' }}"]
    ),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["size", "name", "x"]), inner, max_size=2)
    ),
    max_leaves=5,
)
ANY_STEPS = st.fixed_dictionaries(
    {
        "uses": st.just("picky"),
        "config": st.dictionaries(
            st.sampled_from(["text", "number", "flag", "either", "choice", "labels", "items", "anything", "nope"]),
            VALUES,
        ),
    }
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(step=ANY_STEPS)
def test_what_is_refused_cannot_run(step: dict[str, Any]) -> None:
    """Whatever is refused fails when it is evaluated and read; and each place leads to something that was written."""
    promotion = promotion_of([step], {"x": "x", "n": "3"})
    found = check_promotion(promotion, KINDS)

    for problem in found:
        assert leads_somewhere(promotion.wire(), problem.path)
    if refused(found):
        assert promotion.spec.steps or ()
        with pytest.raises((ConfigurationError, ValueError)):
            evaluated(promotion, (promotion.spec.steps or ())[0])


def leads_somewhere(value: Any, path: Iterable[str | int]) -> bool:
    """Whether *path* is there; of a field that must be given, what it must be given in."""
    *above, last = path
    for part in above:
        value = value[part]
    return isinstance(value, Mapping) or (isinstance(value, list) and isinstance(last, int) and last < len(value))


def evaluated(promotion: Any, step: PromotionStep) -> None:
    """Evaluate the configuration of *step* and read it as the engine does."""
    functions = promotion_functions((), Lookups())
    context = Context("shop", "p", "dev")
    scope = Scope(environment(context), functions, NOW)
    variables = evaluate_variables(promotion.spec.vars, scope)
    here = environment(context, alias="step-1", variables=variables, outputs={})
    scope = Scope(here, {**functions, **status_functions("step-1", ())}, NOW)
    kind = KINDS[step.uses or ""]
    try:
        config = render_all(step.config, scope, places_of(kind))
    except Missing:
        return
    read_as(kind.config_model, {} if config is None else config)


def of_schema(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """Values about as *schema* has them, some of them as expressions."""
    if "$ref" in schema:
        return of_schema(root["$defs"][schema["$ref"].rpartition("/")[2]], root, depth)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return st.one_of([of_schema(one, root, depth) for one in schema[choice]])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    match schema.get("type"):
        case "object" if "properties" in schema:
            made = {name: of_schema(one, root, depth + 1) for name, one in schema["properties"].items()}
            required = set(schema.get("required", ()))
            optional = {name: one for name, one in made.items() if name not in required and depth < 5}
            return st.fixed_dictionaries({name: made[name] for name in required}, optional=optional)
        case "array":
            return st.lists(of_schema(schema.get("items", {}), root, depth + 1), min_size=1, max_size=2)
        case "string":
            return TEXTS
        case "integer" | "number":
            return NUMBERS
        case "boolean":
            return FLAGS
        case "null":
            return st.none()
    return st.dictionaries(st.sampled_from("ab"), TEXTS | NUMBERS, max_size=2)


@pytest.mark.parametrize("uses", sorted(KINDS))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_of_each_kind(uses: str, data: st.DataObject) -> None:
    """Of configurations as each kind takes them, none is refused that the kind would take."""
    schema = KINDS[uses].config_model.model_json_schema()
    step = {"uses": uses, "config": data.draw(of_schema(schema, schema))}
    promotion = promotion_of([step], {"x": "x", "n": "3"})

    if refused(check_promotion(promotion, KINDS)):
        with pytest.raises((ConfigurationError, ValueError)):
            evaluated(promotion, (promotion.spec.steps or ())[0])
