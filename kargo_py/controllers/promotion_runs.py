"""What this process keeps of the Promotions that it works on: nothing that it could not do without after a restart."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kargo_py.api.promotion import Promotion
from kargo_py.api.types import JsonObject
from kargo_py.expressions.lookups import Lookups, Secrets
from kargo_py.kube.resources import Key
from kargo_py.steps.base import StepOutcome
from kargo_py.steps.step import Effect


@dataclass(slots=True)
class StepRun:
    """The step that a Promotion is at. Times are of the loop's clock.

    ``began``: when it started, None as long as it has not. ``config``: what its configuration was evaluated to, once it
    was. ``effect``: what its calls do outside the Promotion, once that is known. ``errs``: how many of its calls have
    erred in a row, those that do not count included, ``failing_since`` when the first of these was. ``again_at``: when
    it may be called again. ``idle``: how often in a row it had nothing new written. ``said``: what it has said last.
    """

    alias: str
    lookups: Lookups
    began: float | None = None
    config: Any = None
    is_evaluated: bool = False
    effect: Effect | None = None
    errs: int = 0
    failing_since: float | None = None
    again_at: float = 0.0
    idle: int = 0
    said: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """What a step that may not be called twice has answered, until that is on record; ``errors``: those before it."""

    step: StepRun
    errors: int
    outcome: StepOutcome
    timed_out: bool


@dataclass(slots=True)
class Run:
    """A Promotion. ``unwritten_since``: since when news of its wait wait to be written. ``give_up_at``: of an abort.

    ``work_dir``: its working directory, once all is in it that its steps have put there; ``filling`` is the step that
    is run again for that, ``filled`` are those that were. ``uses_work_dir``: whether it may have one.
    ``knows_secrets``: those of the steps before were read, so that they can be masked; ``learning_since``:
    since when that has failed. ``given`` is an answer that
    could not be written yet.
    """

    uid: str
    secrets: Secrets = field(default_factory=Secrets)
    unwritten_since: float | None = None
    give_up_at: float | None = None
    step: StepRun | None = None
    work_dir: Path | None = None
    filling: str = ""
    filled: set[str] = field(default_factory=set)
    uses_work_dir: bool | None = None
    knows_secrets: bool | None = None
    learning_since: float | None = None
    given: Given | None = None

    def at(self, alias: str) -> StepRun:
        """The step *alias*, which the Promotion is at."""
        if self.step is None or self.step.alias != alias:
            self.step = StepRun(alias, Lookups(self.secrets))
        return self.step

    @property
    def call(self) -> Hashable | None:
        """What names the call of the step that may be under way."""
        return (self.uid, self.step.alias, self.filling) if self.step is not None else None


class Runs:
    """Those of all Promotions, by their keys."""

    def __init__(self) -> None:
        self._runs: dict[Key, Run] = {}

    def of(self, promotion: Promotion) -> Run:
        """That of *promotion*."""
        key, uid = Key(promotion.namespace, promotion.name), promotion.metadata.uid
        run = self._runs.get(key)
        if run is None:
            run = self._runs[key] = Run(uid)
        return run

    def pop(self, key: Key, uid: str | None = None) -> Run | None:
        """Forget that of *key*; with *uid*, only if it is another one's."""
        run = self._runs.get(key)
        return self._runs.pop(key) if run is not None and run.uid != uid else None


@dataclass(slots=True)
class Turn:
    """One pass over a Promotion: as it is on record, *recorded* and *raw*, and as it is by now.

    ``taken_over``: it was Running without records when it was read. ``owes``: a step has ended that may not be run
    again, and that is not on record yet.
    """

    raw: JsonObject
    recorded: Promotion
    promotion: Promotion
    run: Run
    taken_over: bool = False
    owes: bool = False

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.promotion.namespace, self.promotion.name)

    @property
    def is_unwritten(self) -> bool:
        """Whether it is not on record as it is by now."""
        return self.promotion is not self.recorded
