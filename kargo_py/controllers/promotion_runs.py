"""What this process keeps of the Promotions that it works on: nothing that it could not do without after a restart."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kargo_py.api.promotion import Promotion, PromotionStatus
from kargo_py.api.types import JsonObject
from kargo_py.engine.rebasing import rebased
from kargo_py.expressions.hiding import Secrets
from kargo_py.expressions.lookups import Lookups
from kargo_py.kube.clock import Steady
from kargo_py.kube.resources import Key
from kargo_py.steps.step import Effect


@dataclass(slots=True)
class StepRun:
    """The step that a Promotion is at. Times are of the loop's clock.

    ``clock``: its own, None as long as it has not started. ``config``: what its configuration was evaluated to, once it
    was. ``effect``: what its calls do outside the Promotion, once that is known. ``errs``: how many of its calls have
    erred in a row, those that do not count included, ``failing_since`` when the first of these was. ``again_at``: when
    it may be called again. ``idle``: how often in a row it had nothing new written. ``said``: what it has said last.
    ``late``: how often it has had something written since it is to end.
    """

    alias: str
    lookups: Lookups
    clock: Steady | None = None
    config: Any = None
    is_evaluated: bool = False
    effect: Effect | None = None
    errs: int = 0
    failing_since: float | None = None
    again_at: float = 0.0
    idle: int = 0
    said: str = ""
    late: int = 0


@dataclass(frozen=True, slots=True)
class Owed:
    """What a step has made of the status *before* that may not be run again, and that is not on record yet."""

    before: PromotionStatus
    after: PromotionStatus


@dataclass(slots=True)
class Run:
    """A Promotion. ``unwritten_since``: since when news of its wait wait to be written. ``abort``: its abort's clock.

    ``work_dir``: its working directory, once all is in it that its steps have put there; ``filling`` is the step that
    is run again for that, ``filled`` are those that were. ``uses_work_dir``: whether it may have one.
    ``knows_secrets``: those of the steps before were read, so that they can be masked; ``learning_since``: since when
    that has failed. ``owed``: a call has ended that may not be made again, and writing that has failed, or is still to
    be done. ``generation``: of its spec.
    """

    uid: str
    generation: int = 0
    secrets: Secrets = field(default_factory=Secrets)
    unwritten_since: float | None = None
    abort: Steady | None = None
    step: StepRun | None = None
    work_dir: Path | None = None
    filling: str = ""
    filled: set[str] = field(default_factory=set)
    uses_work_dir: bool | None = None
    knows_secrets: bool | None = None
    learning_since: float | None = None
    owed: Owed | None = None

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
            run = self._runs[key] = Run(uid, promotion.metadata.generation)
        return run

    def pop(self, key: Key) -> Run | None:
        """Forget that of *key*."""
        return self._runs.pop(key, None)

    def pop_other(self, promotion: Promotion) -> Run | None:
        """Forget what is kept of another one of its name, or of *promotion* as it was before it was edited.

        What was begun and could not be written for that has not begun.
        """
        key, meta = Key(promotion.namespace, promotion.name), promotion.metadata
        run = self._runs.get(key)
        if run is None or (run.uid == meta.uid and (promotion.running or run.generation == meta.generation)):
            return None
        return self._runs.pop(key)


@dataclass(slots=True)
class Turn:
    """One pass over a Promotion: as it is on record, *recorded* and *raw*, and as it is by now.

    ``taken_over``: it was Running without records when it was read.
    """

    raw: JsonObject
    recorded: Promotion
    promotion: Promotion
    run: Run
    taken_over: bool = False

    @classmethod
    def of(cls, raw: JsonObject, promotion: Promotion, run: Run) -> Turn:
        """A pass over *promotion* as it is on record; what a write that failed did not bring there is not lost.

        Nor is it where somebody else has written the status meanwhile, unless that has left the step.
        """
        owed = run.owed
        status = rebased(owed.before, owed.after, promotion) if owed is not None else None
        if status is None or status.wire() == promotion.status.wire():
            run.owed = None
            return cls(raw, promotion, promotion, run)
        run.owed = Owed(promotion.status, status)
        return cls(raw, promotion, promotion.replace(status=status), run)

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.promotion.namespace, self.promotion.name)

    @property
    def is_unwritten(self) -> bool:
        """Whether it is not on record as it is by now."""
        return self.promotion is not self.recorded
