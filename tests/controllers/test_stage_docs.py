"""docs/reference/stage.md against the code."""

from __future__ import annotations

import re
from pathlib import Path

from kargo_py.api.promotion import PromotionPhase
from kargo_py.api.stage import MAX_HISTORY, HealthState, VerificationPhase
from kargo_py.argocd import health
from kargo_py.controllers import (
    control_flow,
    stage_conditions,
    stage_context,
    stage_health,
    stage_history,
    stage_queue,
    stage_size,
    stage_template,
    stage_verification,
)
from kargo_py.messages import Message

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/stage.md").read_text()


def table(title: str) -> list[list[str]]:
    """The cells of the first table of a section, without its head."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[1:]]


def test_reasons() -> None:
    """Each reason that a condition can have stands in the table, and no other."""
    told = {reason for row in table("Conditions") for reason in re.findall(r"`(\w+)`", row[2])}
    modules = (control_flow, stage_conditions, stage_health, stage_template, stage_verification)
    words = {
        each.template
        for module in modules
        for each in vars(module).values()
        if isinstance(each, Message) and " " not in each.template
    }
    ended = {"Failed", "Error", "Aborted", "Inconclusive"}
    promotions = {str(phase) for phase in PromotionPhase if phase.terminal} - {"Succeeded"}
    patterns = {"Verification{phase}": ended, "LastPromotion{phase}": {*promotions, "Unknown"}}
    known = {word.format(phase=phase) for word in words for phase in patterns.get(word, {""})}

    assert set(patterns) <= words
    assert ended < {str(phase) for phase in VerificationPhase}
    assert told == known | {str(state) for state in HealthState}


def test_numbers() -> None:
    """Those that the page gives are the code's."""
    limits = {row[0]: row[1] for row in table("Limits")}

    assert limits["`freightHistory`"] == f"{MAX_HISTORY} collections"
    assert limits["issues"] == f"{stage_health.MAX_ISSUES}, each of {stage_health.MAX_ISSUE // 1024} KiB"
    assert limits["the whole status"].startswith(f"{stage_size.LIMIT // 1024} KiB")
    assert limits["`argocd-context`"] == f"{stage_context.ROOM // 1024} KiB"
    assert f"{stage_history.MAX_MESSAGE // 1024} KiB each" in limits["messages in `lastPromotion.status`"]
    assert f"for {stage_queue.JUDGING_LIMIT.seconds} seconds at most" in PAGE
    assert f"for {health.PATIENCE:.0f} seconds, a Stage asks" in PAGE
    assert f"for {health.SETTLE} seconds" in PAGE
