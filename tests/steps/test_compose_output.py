"""compose-output and fail."""

from __future__ import annotations

from typing import Any

import pytest

from kargo_py.api.promotion import StepStatus
from kargo_py.expressions.templates import string_places
from kargo_py.expressions.values import Guess
from kargo_py.steps.base import Finished
from kargo_py.steps.compose_output import ComposeOutput, ComposeOutputConfig
from kargo_py.steps.fail import Fail, FailConfig
from kargo_py.steps.step import Effect, StepFailed
from tests.steps.small_steps import call


class TestComposeOutput:
    """It puts out its configuration."""

    @pytest.mark.parametrize(
        "config",
        [
            {},
            {"url": "https://example.com/pull/1"},
            {"deep": {"list": [1, None, {"": True}]}, "nothing": None, "": "", "model_config": 1, "uses": "x"},
            {"tag": Guess(1.3, "1.30"), "deep": [Guess(True, "T")]},
        ],
        ids=["nothing", "a text", "anything", "guesses"],
    )
    async def test_output(self, config: Any) -> None:
        """Whatever the values are; guesses keep their texts."""
        outcome = await call(ComposeOutput(), config)

        assert outcome == Finished(StepStatus.SUCCEEDED, output=config)

    async def test_no_configuration(self) -> None:
        """Without any, there is nothing to put out."""
        assert await call(ComposeOutput(), None) == Finished(StepStatus.SUCCEEDED, output={})

    @pytest.mark.parametrize("config", ["a", ["a"], 1, True])
    async def test_no_map(self, config: Any) -> None:
        """What is no map has no names."""
        outcome = await call(ComposeOutput(), config)

        assert outcome == Finished(StepStatus.FAILED, "invalid configuration: config: must be an object, with fields")

    def test_what_it_is(self) -> None:
        """Within a task it speaks for the task; it does nothing outside, and guesses are made in all its places."""
        is_string = string_places(ComposeOutputConfig.model_json_schema(by_alias=True))

        assert ComposeOutput.propagates_output
        assert ComposeOutput.keeps_texts
        assert ComposeOutput().effect(ComposeOutputConfig()) is Effect.NONE
        assert not is_string(("tag",))


class TestFail:
    """It says no."""

    @pytest.mark.parametrize(
        ("config", "said"),
        [
            (None, "failed"),
            ({}, "failed"),
            ({"message": ""}, "failed"),
            ({"message": None}, "failed"),
            ({"message": "chart {x} is another"}, "failed: chart {x} is another"),
        ],
    )
    async def test_message(self, config: Any, said: str) -> None:
        """In the words of its configuration, if it has any; what an expression became may be empty or nil."""
        with pytest.raises(StepFailed) as failed:
            await call(Fail(), config)

        assert str(failed.value) == said

    @pytest.mark.parametrize(
        ("config", "words"),
        [
            ({"message": 7}, "config.message: must be a string"),
            ({"message": ["a"]}, "config.message: must be a valid string"),
            ({"Message": "a"}, "config.Message: there is no such field"),
        ],
    )
    async def test_wrong_configuration(self, config: Any, words: str) -> None:
        """It fails then, too, and says why."""
        outcome = await call(Fail(), config)

        assert isinstance(outcome, Finished)
        assert (outcome.status, words in outcome.message) == (StepStatus.FAILED, True)

    def test_message_is_a_text(self) -> None:
        """A version in the message is not taken for a number."""
        assert string_places(FailConfig.model_json_schema(by_alias=True))(("message",))
