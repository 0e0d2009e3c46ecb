"""Steps to be checked, written as YAML, and problems told in a line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from pydantic import ConfigDict

from kargo_py.api.promotion import Promotion
from kargo_py.api.promotion_task import PromotionTask
from kargo_py.api.stage import Stage
from kargo_py.engine.checks import check_promotion, check_stage
from kargo_py.engine.problems import Problem, TaskName
from kargo_py.engine.tasks import found_in
from kargo_py.steps.config import Config
from kargo_py.steps.registry import BUILT_IN, Kinds
from kargo_py.steps.step import Step


class ComposeConfig(Config):
    """Any names and values."""

    model_config = ConfigDict(extra="allow")


class Compose(Step[ComposeConfig]):
    """As compose-output: takes anything."""

    uses = "compose"
    config_model = ComposeConfig
    propagates_output = True


class Small(Config):
    """A branch of a choice."""

    size: int


class Named(Config):
    """Another one."""

    name: str


class PickyConfig(Config):
    """Fields of many types."""

    text: str = ""
    number: int = 0
    flag: bool = False
    either: int | str = 0
    choice: Small | Named | None = None
    labels: Mapping[str, str] = {}
    items: Sequence[Small] = ()
    anything: Any = None


class Picky(Step[PickyConfig]):
    """Has fields of many types."""

    uses = "picky"
    config_model = PickyConfig


KINDS: Kinds = {**BUILT_IN, "compose": Compose, "picky": Picky}


def promotion_of(steps: Any, variables: Mapping[str, str] | None = None) -> Promotion:
    """A Promotion with *steps*, as YAML or as what YAML says."""
    spec = {
        "stage": "dev",
        "freight": "f",
        "vars": [{"name": name, "value": value} for name, value in (variables or {}).items()],
        "steps": yaml.safe_load(steps) if isinstance(steps, str) else steps,
    }
    return Promotion.model_validate(document("Promotion", spec))


def document(kind: str, spec: Any, name: str = "x") -> dict[str, Any]:
    """An object of Kargo's."""
    return {
        "apiVersion": "kargo.akuity.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "shop"},
        "spec": spec,
    }


def stage_of(steps: Any, variables: Mapping[str, str] | None = None) -> Stage:
    """A Stage with a template of *steps*."""
    template = {
        "steps": yaml.safe_load(steps) if isinstance(steps, str) else steps,
        "vars": [{"name": name, "value": value} for name, value in (variables or {}).items()],
    }
    freight = [{"origin": {"kind": "Warehouse", "name": "w"}, "sources": {"direct": True}}]
    spec = {"requestedFreight": freight, "promotionTemplate": {"spec": template}}
    return Stage.model_validate(document("Stage", spec))


def task_of(steps: str, *variables: str) -> PromotionTask:
    """A task; a variable is NAME or NAME=DEFAULT."""
    pairs = [text.partition("=") for text in variables]
    declared = [{"name": name, "value": value} if equal else {"name": name} for name, equal, value in pairs]
    return PromotionTask.model_validate(document("PromotionTask", {"steps": yaml.safe_load(steps), "vars": declared}))


def told(problems: Sequence[Problem]) -> list[str]:
    """``E place: text`` or ``W place: text``, without the lines that show the expression."""
    return [f"{'W' if problem.warning else 'E'} {str(problem).partition(chr(10))[0]}" for problem in problems]


def of_steps(steps: Any, variables: Mapping[str, str] | None = None, kinds: Kinds = KINDS) -> list[str]:
    """What is wrong with the steps of a Promotion."""
    return told(check_promotion(promotion_of(steps, variables), kinds))


def of_stage(steps: Any, variables: Mapping[str, str] | None = None, **tasks: PromotionTask) -> list[str]:
    """What is wrong with the template of a Stage."""
    known = {TaskName("PromotionTask", name): task.spec for name, task in tasks.items()}
    return told(check_stage(stage_of(steps, variables), KINDS, found_in(known)))
