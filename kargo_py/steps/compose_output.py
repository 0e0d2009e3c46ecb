"""The step compose-output: puts values together under names of one's own."""

from __future__ import annotations

from pydantic import ConfigDict

from kargo_py.api.promotion import StepStatus
from kargo_py.steps.base import Finished, StepContext, StepOutcome
from kargo_py.steps.config import Config
from kargo_py.steps.step import Step, Work

USES = "compose-output"


class ComposeOutputConfig(Config):
    """Any names with values of any type."""

    model_config = ConfigDict(extra="allow")


class ComposeOutput(Step[ComposeOutputConfig]):
    """Puts out what its configuration says, for later steps to read; within a task it is the task's output, too."""

    uses = USES
    config_model = ComposeOutputConfig
    work = Work.API
    propagates_output = True
    keeps_texts = True

    async def perform(self, config: ComposeOutputConfig, context: StepContext) -> StepOutcome:
        """Hand on the configuration as it was evaluated, guesses with their texts."""
        del config
        return Finished(StepStatus.SUCCEEDED, output=dict(context.config or {}))
