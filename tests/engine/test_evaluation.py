"""What the expressions of steps become, and what of it may be recorded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kargo_py.api.freight import Freight
from kargo_py.api.promotion import (
    ExpressionVariable,
    HealthCheckStep,
    Promotion,
    PromotionStatus,
    PromotionStep,
    StepStatus,
)
from kargo_py.engine.evaluation import (
    EvaluationError,
    Position,
    Program,
    condition,
    configuration,
    configuration_for,
    has_expressions,
    may_use_secrets,
    position_of,
    program_of,
)
from kargo_py.engine.machine import MOST_SAID, bounded
from kargo_py.engine.masking import MOST_TOLD, masked_error, recordable
from kargo_py.engine.outputs import Output, outputs_of
from kargo_py.engine.retries import outcome_of
from kargo_py.expressions.environment import Context
from kargo_py.expressions.hiding import Secrets
from kargo_py.expressions.lookups import Lookup, Lookups, Missing, Source
from kargo_py.expressions.values import Guess
from kargo_py.kube.errors import ServerError
from kargo_py.steps.argocd_update import ArgoCDUpdate
from kargo_py.steps.base import Erred, Finished, Intend, StepOutcome, Waiting
from kargo_py.steps.compose_output import ComposeOutput
from kargo_py.steps.step import StepFailed
from tests.engine.test_machine import record

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
PROGRAM = Program(Context("shop", "p1", "dev"), variables=[ExpressionVariable(name="tag", value="${{ '1.30' }}")])


def position(**step: Any) -> Position:
    return Position("t::one", PromotionStep.model_validate({"uses": "x", **step}), {"t::zero": {"a": 1}})


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, False),
        ({"a": [{"b": "${{ x }}"}]}, True),
        ({"a": "${% x %}"}, True),
        ({"${{ key }}": "value", "n": 1}, False),
        ("$ {{ x }}", False),
    ],
)
def test_has_expressions(value: object, found: bool) -> None:
    assert has_expressions(value) is found


def test_has_expressions_however_deep() -> None:
    value: Any = "${{ x }}"
    for _ in range(5000):
        value = [value]

    assert has_expressions(value)


def test_configuration() -> None:
    """Variables of the step go before those of the Promotion, may use them and outputs; texts stay texts."""
    made = configuration(
        PROGRAM,
        position(
            vars=[{"name": "v", "value": "v${{ vars.tag }}-${{ task.outputs.zero.a }}"}],
            config={"v": "${{ vars.v }}", "tag": "${{ vars.tag }}", "who": "${{ ctx.meta.step.alias }}", "n": 1},
        ),
        Lookups(),
        NOW,
        lambda path: path == ("tag",),
    )

    assert made == {"v": "v1.30-1", "tag": "1.30", "who": "t::one", "n": 1}


def test_of_a_kind() -> None:
    """Its model says which places take strings; only some kinds get guesses with their texts."""
    source = {"repoURL": "https://x", "desiredRevision": "${{ '1234e56' }}"}
    update = configuration_for(
        ArgoCDUpdate, PROGRAM, position(config={"apps": [{"name": "a", "sources": [source]}]}), Lookups(), NOW
    )
    composed = configuration_for(ComposeOutput, PROGRAM, position(config={"t": "${{ vars.tag }}"}), Lookups(), NOW)

    assert update["apps"][0]["sources"][0]["desiredRevision"] == "1234e56"
    assert composed == {"t": Guess(1.3, "1.30")}


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"config": {"a": ["${{ vars.none.x }}"]}}, "config: a[0]: cannot fetch x from <nil>"),
        ({"config": {"a": "${{ vars.b }}"}, "vars": [{"name": "b", "value": "${{ nope() }}"}]}, "config: variable b: "),
        ({"config": {"a": "${{ always() }}", "b": "${{"}}, "config: b: unclosed expression"),
        ({"if": "${{ 7 }}"}, "if: the result must be true or false, and it is 7"),
        ({"if": "${{ nil }}"}, "and it is null"),
        ({"if": "${{ [true] }}"}, "and it is a list or object"),
        ({"if": "true"}, "and it is 'true'"),
        ({"if": "${{ 1 +"}, "if: unclosed expression"),
    ],
)
def test_faults(step: dict[str, Any], words: str) -> None:
    evaluate = condition if "if" in step else configuration
    with pytest.raises(EvaluationError) as caught:
        evaluate(PROGRAM, position(**step), Lookups(), NOW)

    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("source", "runs"),
    [(None, True), ("${{ true }}", True), ("${{ 'false' }}", False), ("${{ vars.tag == '1.30' }}", True)],
)
def test_conditions(source: str | None, runs: bool) -> None:
    assert condition(PROGRAM, position(**({"if": source} if source else {})), Lookups(), NOW) is runs


def test_what_is_missing_is_asked_for() -> None:
    lookups = Lookups()
    asks = position(config={"a": "${{ secret('s').token }}"})
    with pytest.raises(Missing) as caught:
        configuration(PROGRAM, asks, lookups, NOW)
    lookups.put(caught.value.lookup, {"token": "open sesame"})

    assert caught.value.lookup == Lookup(Source.SECRET, "s")
    assert configuration(PROGRAM, asks, lookups, NOW) == {"a": "open sesame"}
    assert lookups.has_secrets
    assert lookups.secrets.mask("say open sesame") == "say ***"


def test_program_and_position() -> None:
    origin = {"kind": "Warehouse", "name": "w"}
    reference = {"name": "f", "origin": origin, "images": [{"repoURL": "nginx", "tag": "1.30"}]}
    promotion = Promotion.model_validate(
        {
            "metadata": {
                "name": "p",
                "namespace": "shop",
                "annotations": {"kargo.akuity.io/create-actor": "email:a@b", "kargo.akuity.io/rollback": "true"},
            },
            "spec": {
                "stage": "dev",
                "freight": "f",
                "steps": [
                    {"uses": "x", "as": "a"},
                    {"uses": "x", "config": {"all": "${{ [imageFrom('nginx').Tag, ctx.targetFreight.alias, "
                     "ctx.meta.promotion.actor, ctx.meta.promotion.rollback, ctx.uiBaseUrl, outputs.a.o, "
                     "stepMetas.a.Status] }}"}},
                ],
            },
            "status": {
                "freight": reference,
                "freightCollection": {"items": {"Warehouse/w": reference}},
                "stepExecutionMetadata": [{"alias": "a", "status": "Succeeded"}],
                "state": {"a": {"o": 1}, "kargo-py.io/operations": []},
            },
        }
    )  # fmt: skip
    freight = Freight.model_validate({"metadata": {"name": "f"}, "origin": origin, "alias": "quick-fox"})
    program = program_of(promotion, freight=freight, ui_base_url="https://kargo")

    made = configuration(program, position_of(promotion, 1), Lookups(), NOW)

    assert made == {"all": ["1.30", "quick-fox", "email:a@b", True, "https://kargo", 1, "Succeeded"]}
    assert set(position_of(promotion, 1).outputs) == {"a"}


@pytest.mark.parametrize(
    ("if_", "calls"),
    [("", 0), ("${{ ctx.stage == 'dev' && vars.tag == '1.30' && success() }}", 0), ("${{ outputs.a.o == 1 }}", 1)],
)
def test_outputs_are_gathered_when_read(monkeypatch: pytest.MonkeyPatch, if_: str, calls: int) -> None:
    """A step that reads no outputs does not have those of all steps before it gathered."""
    gathered: list[PromotionStatus] = []

    def counted(status: PromotionStatus) -> dict[str, Any]:
        gathered.append(status)
        return outputs_of(status)

    monkeypatch.setattr("kargo_py.engine.evaluation.outputs_of", counted)
    steps = [{"uses": "x", "as": "a"}, {"uses": "x", "if": if_}]
    status = {"state": {"a": {"o": 1}}, "stepExecutionMetadata": [{"alias": "a", "status": "Succeeded"}]}
    promotion = Promotion.model_validate({"spec": {"stage": "dev", "freight": "f", "steps": steps}, "status": status})

    assert condition(PROGRAM, position_of(promotion, 1), Lookups(), NOW)
    assert len(gathered) == calls


@pytest.mark.parametrize(
    ("config", "variable", "may"),
    [
        ({"a": "${{ secret('x').y }}"}, "", True),
        ({"a": "${{ vars.v }}"}, "${{ sharedSecret('x').y }}", True),
        ({"a": "secret"}, "", False),
    ],
)
def test_may_use_secrets(config: Any, variable: str, may: bool) -> None:
    step = PromotionStep.model_validate({"uses": "x", "config": config})

    assert may_use_secrets(step, [ExpressionVariable(name="v", value=variable)]) is may


# -- masking -----------------------------------------------------------------------------------------------------------

SECRETS = Secrets()
SECRETS.add("hunter2")
CHECK = HealthCheckStep(uses="x", config={"token": "hunter2"})


@pytest.mark.parametrize(
    ("outcome", "recorded"),
    [
        (
            Waiting("is hunter2", [record(message="hunter2!", desired=("hunter2",))], error=None),
            Waiting("is ***", [record(message="***!", desired=("hunter2",))]),
        ),
        (Intend([record()], warning="hunter2"), Intend([record()], warning="***")),
        (
            Erred("hunter2", output={"a": ["hunter2", Guess(True, "hunter2")]}),
            Erred("***", output=Output({"a": ["***", True]}, {"/a/1": "***"})),
        ),
        (
            Finished(StepStatus.SUCCEEDED, "hunter2", {"hunter2": 1}, CHECK),
            Finished(
                StepStatus.SUCCEEDED,
                "***",
                Output({"***": 1}, {}),
                HealthCheckStep(uses="x", config={"token": "***"}),
                [],
            ),
        ),
        (
            Finished(StepStatus.SUCCEEDED, output={"hunter2": {"a": b""}}, records=[record()]),
            Finished(
                StepStatus.ERRORED,
                "output.***.a of step one is of type bytes, which is no JSON",
                records=[record()],
            ),
        ),
        (
            Intend([record()], output={"a": {1}}),
            Finished(StepStatus.ERRORED, "output.a of step one is of type set, which is no JSON"),
        ),
    ],
)
def test_what_is_recorded(outcome: StepOutcome, recorded: StepOutcome) -> None:
    made = recordable(outcome, "one", SECRETS)

    assert made == recorded
    assert getattr(getattr(made, "output", None), "texts", {}) == getattr(
        getattr(recorded, "output", None), "texts", {}
    )


def test_a_health_check_of_a_step_without_secrets() -> None:
    made = recordable(Finished(StepStatus.SUCCEEDED, health_check=CHECK), "one", SECRETS, used_secrets=False)

    assert isinstance(made, Finished)
    assert made.health_check == CHECK


def test_errors_are_masked_for_the_log() -> None:
    error = ServerError(500, "x", "cannot use hunter2", request="patch a/b")
    masked = masked_error(error, SECRETS)

    assert (str(masked), type(masked)) == ("patch a/b: cannot use ***", ServerError)
    assert masked_error(ServerError(500, "x", "oh"), SECRETS).message == "oh"


@pytest.mark.parametrize("error", [RuntimeError, StepFailed])
def test_a_secret_is_masked_before_a_text_is_cut(error: type[Exception]) -> None:
    """Of one at the cut nothing is shown, wherever that is."""
    secrets, token = Secrets(), "".join(f"Z{n}" for n in range(10, 30))
    secrets.add(token)
    for length in (MOST_SAID, MOST_TOLD):
        for kept in range(1, len(token), 7):
            made = recordable(outcome_of(error("-" * (length - kept) + token)), "one", secrets)
            assert not isinstance(made, Intend)
            assert "Z" not in bounded(made.message), (length, kept)


def test_a_secret_that_a_fault_would_cut() -> None:
    """The result is quoted up to its 80th character."""
    lookups = Lookups()
    lookups.put(Lookup(Source.SECRET, "s"), {"token": "".join(f"{n:03}" for n in range(100, 130))})
    step = position(**{"if": "-" * 40 + "${{ secret('s').token }}"})
    with pytest.raises(EvaluationError, match=r"it is '\*\*\*';"):
        condition(PROGRAM, step, lookups, NOW)


CHANGED = "upper(secret('s').pw)"
SHOUTED = ExpressionVariable(name="loud", value=f"${{{{ {CHANGED} }}}}")


@pytest.mark.parametrize("expression", [f"int({CHANGED})", "int(vars.loud)", f"[1][int({CHANGED}[7:]) + 1]"])
@pytest.mark.parametrize("password", ["hunter2", "hunter2hunter2", "hunter-70707"])
def test_a_fault_tells_nothing_of_a_changed_secret(expression: str, password: str) -> None:
    """Masking would not know it: neither in the condition, nor in a variable, nor in the configuration."""
    template, program = f"${{{{ {expression} }}}}", Program(PROGRAM.context, variables=[SHOUTED])
    of_variable = {"vars": [{"name": "v", "value": template}], "config": "${{ 1 }}"}
    places: list[dict[str, Any]] = [{"if": template}, of_variable, {"config": template}]
    for step, evaluate in zip(places, (condition, configuration, configuration), strict=True):
        lookups = Lookups()
        lookups.put(Lookup(Source.SECRET, "s"), {"pw": password})
        with pytest.raises(EvaluationError) as raised:
            evaluate(program, position(**step), lookups, NOW)
        assert "…" in str(raised.value)
        assert not any(part in str(raised.value).casefold() for part in ("hunter", "7070"))


@pytest.mark.parametrize("result", [CHANGED, f"len({CHANGED}) * 1001", "vars.loud[1:]", f"{{(lower({CHANGED})): 1}}"])
def test_what_a_condition_is_made_of(result: str) -> None:
    """A result that is too short to be looked for elsewhere is not told as that of a condition either."""
    lookups, program = Lookups(), Program(PROGRAM.context, variables=[SHOUTED])
    lookups.put(Lookup(Source.SECRET, "s"), {"pw": "hunter2"})
    with pytest.raises(EvaluationError, match=r"and it is '\*\*\*';"):
        condition(program, position(**{"if": f"${{{{ {result} }}}}"}), lookups, NOW)
