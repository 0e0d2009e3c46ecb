"""What a class must be to be a kind of step."""

from __future__ import annotations

from datetime import timedelta
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from kargo_py.api.promotion import StepStatus
from kargo_py.steps import registry
from kargo_py.steps.base import Finished, StepContext, StepOutcome
from kargo_py.steps.config import Config
from kargo_py.steps.registry import BUILT_IN, KindError, fault_of, find_kinds, installed_kinds
from kargo_py.steps.step import Step


class Nothing(Config):
    """Nothing."""


class Good(Step[Nothing]):
    """Does nothing."""

    uses = "good"
    config_model = Nothing

    async def perform(self, config: Nothing, context: StepContext) -> StepOutcome:
        return Finished(StepStatus.SUCCEEDED)


def changed(**attributes: Any) -> type:
    return type("Changed", (Good,), attributes)


class Named(Step[Nothing]):
    uses = "good"


class Idle(Step[Nothing]):
    uses = "good"
    config_model = Nothing


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        pytest.param(Good(), "good", "no class derived from", id="instance"),
        pytest.param(dict, "good", "no class derived from", id="another class"),
        pytest.param(None, "good", "no class derived from", id="none"),
        pytest.param(Good, "better", "its `uses` is good, and must be better", id="another name"),
        pytest.param(changed(uses="Good One"), "Good One", "lowercase letters", id="name"),
        pytest.param(changed(uses="g" * 64), "g" * 64, "1 to 63", id="long name"),
        pytest.param(changed(uses="a.b"), "a.b", "lowercase letters", id="dot"),
        pytest.param(Named, "good", "its `config_model` is no class", id="no model"),
        pytest.param(changed(config_model=dict), "good", "its `config_model` is no class", id="model"),
        pytest.param(Idle, "good", "it has no method `perform`", id="idle"),
        pytest.param(changed(perform=lambda *_: None), "good", "`perform` is not written with async def", id="sync"),
        pytest.param(changed(stop=lambda *_: None), "good", "`stop` is not written with async def", id="sync stop"),
        pytest.param(changed(default_timeout=timedelta()), "good", "`default_timeout` must be", id="no time"),
        pytest.param(changed(default_timeout=60), "good", "`default_timeout` must be", id="number"),
        pytest.param(changed(default_error_threshold=0), "good", "`default_error_threshold` must be", id="threshold"),
        pytest.param(changed(work="network"), "good", "`work` must be", id="work"),
        pytest.param(changed(work_dir_use=True), "good", "`work_dir_use` must be", id="directory"),
    ],
)
def test_faults(kind: object, name: str, words: str) -> None:
    """Each is told."""
    assert words in str(fault_of(kind, name))


def test_no_fault() -> None:
    """What is built in holds to the same rules."""
    assert fault_of(Good, "good") is None
    assert {uses: fault_of(kind, uses) for uses, kind in BUILT_IN.items()} == dict.fromkeys(BUILT_IN)


def points(monkeypatch: pytest.MonkeyPatch, *named: tuple[str, str]) -> None:
    entries = [EntryPoint(name, value, registry.GROUP) for name, value in named]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries if group == registry.GROUP else [])


def test_what_cannot_be_used_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All faults are told at once, whatever loading does; the others are there."""
    points(
        monkeypatch,
        ("argocd-update", f"{__name__}:Good"),
        ("absent", "no_such_module:Kind"),
        ("dict", "builtins:dict"),
    )
    found = find_kinds()

    assert found.kinds.keys() == BUILT_IN.keys()
    assert {each.uses for each in found.unusable} == {"argocd-update", "absent", "dict"}
    assert "there is one of that name already, which is built in" in str(found.unusable)
    with pytest.raises(KindError, match=r"the kind of step absent .*; the kind of step argocd-update "):
        installed_kinds()
