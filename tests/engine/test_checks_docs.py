"""The page about checks: its examples are checked, and what it says of them is what is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from kargo_py.api.promotion import Promotion
from kargo_py.engine.checks import check_promotion
from kargo_py.steps.registry import BUILT_IN
from tests.engine.drafts import document

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/checks.md"
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```\n\n```text\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_there_are_examples() -> None:
    """Of each section that has problems."""
    assert len(EXAMPLES) == PAGE.read_text().count("```yaml") >= 7


@pytest.mark.parametrize(("steps", "told"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples(steps: str, told: str) -> None:
    """Word for word."""
    spec = {"stage": "dev", "freight": "f", **yaml.safe_load(steps)}
    promotion = Promotion.model_validate(document("Promotion", spec))

    found = check_promotion(promotion, BUILT_IN)

    assert "".join(f"{'warning' if one.warning else 'error'}: {one}\n" for one in found) == told
