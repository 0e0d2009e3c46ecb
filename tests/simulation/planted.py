"""Faults planted into the controllers, to see that the simulation finds them: ``python -m tests.simulation.planted``.

Each is one mistake in the real code. The command plays seeds until the Law falls that the mistake breaks, makes the
history short and prints which seed it was, and what is needed of it. Some were found so, others were thought of.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from kargo_py.api.abort import read_abort
from kargo_py.argocd.application import Application
from kargo_py.argocd.operation import Decision, Verb, Waiting, decide_operation
from kargo_py.argocd.start import start_patch
from kargo_py.argocd.stop import Patch, terminate_patch
from kargo_py.controllers import (
    promotion_aborting as aborting_module,
    promotion_calling as calling_module,
    sweep as sweep_module,
)
from kargo_py.controllers.promotion import PromotionReconciler
from kargo_py.deployers import argocd as deployer
from kargo_py.kube.client import PatchType
from kargo_py.kube.clock import Steady
from kargo_py.kube.queue import WorkQueue
from kargo_py.local.apiserver.faults import Delay, FreezeWatch, Refuse
from kargo_py.steps.base import StepContext
from tests.explorer.laws import (
    DOUBLE_START,
    FALSE_RECORD,
    FALSE_SUCCESS,
    LOST_ENDING,
    NOT_STOPPED,
    NOT_TAKEN_BACK,
    ORPHAN,
    TRESPASS,
)
from tests.simulation.laws import CLOCKS_COMPARED, CRASHED, ONE_AT_A_TIME
from tests.simulation.plan import LONG, Act, Mishap, Plan, plan
from tests.simulation.shrink import shrink
from tests.simulation.simulation import run

MOST = 150
"""Seeds that are played at most in search of one fault."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A mistake, the Law that it breaks, and a short history in which it does."""

    name: str
    law: str
    plant: Callable[[pytest.MonkeyPatch], None]
    history: Plan


def drawn(seed: int, *indices: int) -> Plan:
    """Of what *seed* draws, what stands at these places."""
    return plan(seed).only(indices)


# -- the mistakes ----------------------------------------------------------------------------------------------------


def _decide(wrong: Callable[[Any, Any, Any, Decision], Decision]) -> Callable[[pytest.MonkeyPatch], None]:
    """Decide as ever, and then otherwise."""

    def decide(app: Application | None, intent: Any, known: Any) -> Decision:
        return wrong(app, intent, known, decide_operation(app, intent, known))

    return lambda monkeypatch: monkeypatch.setattr(deployer, "decide_operation", decide)


def _starts_anyway(app: Any, _intent: Any, _known: Any, decision: Decision) -> Decision:
    busy = decision.waiting is Waiting.FOREIGN and app.operation is not None
    return dataclasses.replace(decision, verb=Verb.START) if busy and "waiting" in decision.message else decision


def _takes_any_success(app: Any, intent: Any, known: Any, decision: Decision) -> Decision:
    state = app.status.operation_state if app is not None else None
    if state is not None and state.phase == "Succeeded":
        return decide_operation(app, intent, dataclasses.replace(known, latched=state))
    return decision


def _takes_a_request_to_end_for_the_end(_app: Any, _intent: Any, _known: Any, decision: Decision) -> Decision:
    if decision.waiting is Waiting.STOPPING:
        return dataclasses.replace(decision, verb=Verb.STOPPED, waiting=None)
    return decision


def _supersedes_at_once(app: Any, intent: Any, known: Any, _decision: Decision) -> Decision:
    return decide_operation(app, intent, dataclasses.replace(known, unchanged=10.0**6))


def _accepts_any_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kargo_py.argocd.operation.unmet", lambda *_: None)


def _keeps_no_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployer.ArgoCD, "_latch", lambda *_: None)


def _starts_without_a_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(app: Application, **options: Any) -> Any:
        patch = start_patch(app, **options)
        del patch["metadata"]["resourceVersion"]
        return patch

    monkeypatch.setattr(deployer, "start_patch", start)


def _ends_without_a_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    def terminate(app: Application, mark: str, now: str) -> Patch:
        patch = terminate_patch(app, mark, now)
        if isinstance(patch.body, list):
            return Patch([part for part in patch.body if part["op"] != "test"], patch.type)
        return patch

    monkeypatch.setattr(deployer, "terminate_patch", terminate)


def _removes_the_operation_to_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployer, "terminate_patch", lambda *_: Patch({"operation": None}, PatchType.MERGE))


def _uses_one_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    stamped = StepContext.stamp
    monkeypatch.setattr(StepContext, "stamp", lambda context, _attempt: stamped(context, 1))


def _never_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkQueue, "add_after", lambda *_: None)


def _does_not_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> None:
        return None

    monkeypatch.setattr(sweep_module.Sweeper, "reconcile", nothing)


def _does_not_take_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> str:
        return ""

    monkeypatch.setattr(deployer.ArgoCD, "revert", nothing)


def _stumbles_over_annotations(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(annotation: str | None) -> Any:
        if annotation and annotation.startswith("{"):
            return msgspec.json.decode(annotation)
        return read_abort(annotation)

    monkeypatch.setattr(aborting_module, "read_abort", read)
    monkeypatch.setattr(calling_module, "read_abort", read)


def _reads_the_wall_clock_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    steady = calling_module.Calling._clock

    def clock(self: Any, turn: Any, current: Any) -> Steady:
        turn.run.at(current.alias).clock = None
        return steady(self, turn, current)

    monkeypatch.setattr(calling_module.Calling, "_clock", clock)


def _asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a Promotion whether its Stage has acknowledged it or not."""
    reconcile = PromotionReconciler.reconcile

    async def eager(self: PromotionReconciler, key: Any) -> Any:
        raw = self._world.promotions.get(key)
        model = self._world.promotion_models.read(raw)
        stage_raw = self._world.stages.get(key._replace(name=model.spec.stage)) if model is not None else None
        stage = self._world.stage_models.read(stage_raw)
        if raw is None or model is None or stage is None or model.finished or model.running:
            return await reconcile(self, key)
        return await self._run(raw, model, stage)

    monkeypatch.setattr(PromotionReconciler, "reconcile", eager)


def _story(*happenings: Act | Mishap) -> Plan:
    """A history that was thought of, not drawn."""
    return Plan(1, "3.6", 0.008, 0.002, 0.0, happenings, range(len(happenings)))


def _promote(at: float, name: str = "p1", *, app: str = "dev-a", **how: Any) -> Act:
    return Act(at, "promote", name, {"stage": "dev", "apps": [app], "freight": "f1", "update": True, **how})


_HANG = Act(1, "script", "dev-a", {"hang": True})

PLANTED: Sequence[Planted] = [
    Planted("starts while another operation is under way", TRESPASS, _decide(_starts_anyway), drawn(8, 0, 1, 2)),
    Planted("takes somebody else's success for its own", FALSE_SUCCESS, _decide(_takes_any_success), drawn(2, 1, 18)),
    Planted("accepts any revision", FALSE_SUCCESS, _accepts_any_revision, drawn(5, 1)),
    Planted(
        "takes Terminating for the end", NOT_STOPPED, _decide(_takes_a_request_to_end_for_the_end), drawn(2, 22, 24)
    ),
    Planted("concludes superseded at once", DOUBLE_START, _decide(_supersedes_at_once), drawn(59, 0, 1)),
    Planted("removes the operation to end it", ORPHAN, _removes_the_operation_to_end_it, drawn(10, 5, 6)),
    Planted("starts without a guard", TRESPASS, _starts_without_a_guard, drawn(25, 0, 1, 5, 6)),
    Planted(
        "ends without a guard",
        ORPHAN,
        _ends_without_a_guard,
        _story(_promote(2), Act(2.05, "abort", "p1"), Mishap("watch applications", 1, FreezeWatch(5))),
    ),
    Planted(
        "does not keep an ending that an event showed",
        FALSE_RECORD,
        _keeps_no_ending,
        _story(_promote(1), Act(5, "replace", "dev-a"), Mishap("patch applications", 1, Delay(LONG, after=True))),
    ),
    Planted("uses one stamp for all attempts", FALSE_RECORD, _uses_one_stamp, _story(_promote(1, update=False))),
    Planted(
        "never comes back by itself",
        LOST_ENDING,
        _never_comes_back,
        _story(_promote(1), Mishap("patch promotions/status", 1, Refuse(409))),
    ),
    Planted(
        "does not sweep",
        LOST_ENDING,
        _does_not_sweep,
        _story(_HANG, _promote(1), Act(5, "kill", "", {"back after": 5.0}), Act(6, "delete promotion", "p1")),
    ),
    Planted(
        "does not take back",
        NOT_TAKEN_BACK,
        _does_not_take_back,
        _story(_HANG, _promote(1, onAbort="revert"), Act(5, "abort", "p1")),
    ),
    Planted(
        "stumbles over annotations",
        CRASHED,
        _stumbles_over_annotations,
        _story(_HANG, _promote(1), Act(3, "annotate badly", "p1")),
    ),
    Planted(
        "reads the wall clock each time",
        CLOCKS_COMPARED,
        _reads_the_wall_clock_each_time,
        _story(_HANG, _promote(1, timeout="1m"), Act(10, "set clock", "", {"by": 86400.0})),
    ),
    Planted(
        "runs what its Stage has not acknowledged",
        ONE_AT_A_TIME,
        _asks_nobody,
        _story(_HANG, _promote(1), _promote(2, "p2", app="dev-b")),
    ),
]


def main(names: Sequence[str]) -> None:
    """Find those whose names begin so, or all, and say which seed it took."""
    for planted in PLANTED:
        if names and not planted.name.startswith(tuple(names)):
            continue
        with pytest.MonkeyPatch.context() as monkeypatch:
            planted.plant(monkeypatch)
            sys.stdout.write(f"{planted.name}: {_search(planted.law)}\n")
            sys.stdout.flush()


def _search(law: str) -> str:
    for seed in range(MOST):
        found = {violation.law for violation in run(plan(seed)).violations}
        if law not in found and found:
            sys.stdout.write(f"  seed {seed} breaks {', '.join(sorted(found))}\n")
            sys.stdout.flush()
        if law in found:
            return f"seed {seed}, {tuple(shrink(plan(seed), law).indices)}"
    return f"not found in {MOST} seeds"


if __name__ == "__main__":
    main(sys.argv[1:])
