"""What a kind of step is: a small class with a pydantic model of its configuration.

The engine does the rest: it evaluates the expressions in the configuration, checks it, counts errors and pauses after
them, cancels a call whose time is up or that is called off, and keeps secrets out of what is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, StrEnum
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from kargo_py.api.promotion import StepStatus
from kargo_py.deployers.argocd import ArgoCD
from kargo_py.deployers.base import Record, TargetState
from kargo_py.kube.client import Client
from kargo_py.messages import Shown, message
from kargo_py.steps.base import Finished, StepContext, StepOutcome, StopOutcome
from kargo_py.steps.config import INVALID_CONFIGURATION, Config, read_as
from kargo_py.steps.http_addresses import AddressRules

LEFT_AFTER_TIMEOUT = message(
    "left running: the step has had its time",
    do="Of an object that a step had work under way on when its `retry.timeout` was up. Look at the object; raise the "
    "time of the step, then promote again.",
    shown=Shown.PROMOTION,
)

C = TypeVar("C", bound=Config)


class StepFailed(Exception):
    """The step has decided "no": it is Failed with this text, and not called again."""


class Effect(Enum):
    """What calling a step does outside its Promotion, and how often it may be done.

    *INTENDED*: it answers :class:`~kargo_py.steps.base.Intend` before it does anything. *REPEATABLE*: the same again
    changes nothing. *ONCE*: so its end is on record before anything else is done.
    """

    NONE = "none"
    INTENDED = "intended"
    REPEATABLE = "repeatable"
    ONCE = "once"


class Work(StrEnum):
    """What a call of a step spends its time with; how many run at once is limited for each kind of work.

    *API*: short requests to API servers only. Such a call asks ``called_off`` itself whether it is to end, and has half
    a minute for that before it is cancelled; none if the abort is forced, or the Promotion gone. All others may take
    long, and are cancelled at once.
    """

    API = "api"
    NETWORK = "network"
    PROCESS = "process"
    FILES = "files"


class WorkDirUse(Enum):
    """What a step has to do with the working directory. What FILLS it is run again where the directory was lost."""

    NONE = "none"
    FILLS = "fills"
    READS = "reads"


@dataclass(frozen=True, slots=True)
class Services:
    """What a kind of step may use of the controller it runs in; ``client`` is for Kargo's API server."""

    client: Client
    argocd: ArgoCD
    addresses: AddressRules = field(default_factory=AddressRules)
    """Which addresses steps talk to."""


class Step(Generic[C]):
    """A kind of step: derive from it, name it, give the model of its configuration, and implement :meth:`perform`.

    The docstring of the class, and those of the fields of its configuration, are its documentation
    (``kargo-py explain``). An instance serves all Promotions at once, so it keeps nothing of one of them.
    """

    uses: ClassVar[str]
    """How a Promotion's step names it."""
    config_model: ClassVar[type[Config]]
    """The form of its configuration."""
    default_timeout: ClassVar[timedelta | None] = None
    """How long a step may take in all, unless its ``retry.timeout`` says otherwise; None: no limit."""
    default_error_threshold: ClassVar[int] = 1
    """How many errors in a row end a step, unless its ``retry.errorThreshold`` says otherwise."""
    keeps_time: ClassVar[bool] = False
    """Whether it sees itself when its time is up: because that does not count from when the step began, say."""
    work: ClassVar[Work] = Work.NETWORK
    work_dir_use: ClassVar[WorkDirUse] = WorkDirUse.NONE
    propagates_output: ClassVar[bool] = False
    """Whether, within a task, its output is the task's, too."""
    keeps_texts: ClassVar[bool] = False
    """Whether values in its configuration that were guessed from a text come as
    :class:`~kargo_py.expressions.values.Guess`: because it puts them out, and later steps may need the text."""

    @classmethod
    def make(cls, services: Services) -> Self:
        """The instance that a controller uses."""
        del services
        return cls()

    def effect(self, config: C) -> Effect:
        """What a step with this configuration does outside its Promotion."""
        del config
        return Effect.NONE

    def work_dir_use_of(self, config: Any) -> WorkDirUse:
        """What a step with this *config*, as it is written, has to do with the working directory."""
        del config
        return self.work_dir_use

    async def run(self, context: StepContext) -> StepOutcome:
        """Go on with the step as far as possible now, with the configuration checked first."""
        try:
            config = self.read_config(context.config)
        except ValueError as error:
            return Finished(StepStatus.FAILED, INVALID_CONFIGURATION(faults=error))
        return await self.perform(config, context)

    def read_config(self, config: Any) -> C:
        """The configuration, checked. Raises ValueError that names each wrong field, or the first few."""
        return cast("C", read_as(self.config_model, {} if config is None else config))

    async def perform(self, config: C, context: StepContext) -> StepOutcome:
        """Go on with the step as far as possible now.

        What it raises is an error that is counted (:class:`Erred`); requests that failed for a reason that passes are
        transient. :class:`StepFailed` ends it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no perform")

    async def stop(self, context: StepContext, *, give_up: bool) -> StopOutcome:
        """End what the step has under way, without starting anything; called again until it is finished.

        With *give_up* it finishes now and its records say what was left running. Intend: something was found under way
        that is not on record yet. May raise KubeError.
        """
        del give_up
        return Finished(StepStatus.ABORTED, records=_left(context.records))

    async def time_out(self, context: StepContext, message: str) -> StepOutcome:
        """The time is up, and a call that was under way has been cancelled: end the step, with *message*."""
        return Finished(StepStatus.ERRORED, message, records=_left(context.records))


def _left(records: Iterable[Record]) -> list[Record]:
    return [r if r.state.final else r.ended(TargetState.DETACHED, LEFT_AFTER_TIMEOUT()) for r in records]
