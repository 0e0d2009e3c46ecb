"""The step fail: ends with a "no"."""

from __future__ import annotations

from kargo_py.messages import Shown, message
from kargo_py.steps.base import StepContext, StepOutcome
from kargo_py.steps.config import Config
from kargo_py.steps.step import Step, StepFailed, Work

FAILED = message(
    "failed{text}",
    do="The step `fail` ran, and the text is that of its `message`. Without one, its `if` says why, or the steps "
    "before it.",
    shown=Shown.PROMOTION,
)

USES = "fail"


class FailConfig(Config):
    """Configuration of fail."""

    message: str | None = None
    """What the user should read."""


class Fail(Step[FailConfig]):
    """Fails, and so the Promotion unless the step says `continueOnError`. Mostly used with `if`."""

    uses = USES
    config_model = FailConfig
    work = Work.API

    async def perform(self, config: FailConfig, context: StepContext) -> StepOutcome:
        """Say no; trying again would say the same."""
        del context
        raise StepFailed(FAILED(text=f": {config.message}" if config.message else ""))
