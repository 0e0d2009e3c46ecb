"""The samples on the pages of the steps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kargo_py.api.promotion import Promotion
from kargo_py.engine.checks import check_promotion
from kargo_py.steps.registry import BUILT_IN

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES = ["compose-output", "fail", "set-freight-alias", "set-metadata"]


@pytest.mark.parametrize("uses", PAGES)
def test_samples_are_admitted(uses: str) -> None:
    """The first sample of each page uses its step, and admission has nothing to say of it."""
    text = (REFERENCE / f"{uses}.md").read_text()
    sample = re.search(r"^```yaml\n(steps:\n.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert sample is not None
    steps: list[dict[str, Any]] = yaml.safe_load(sample[1])["steps"]
    spec = {"stage": "test", "freight": "f1", "steps": steps}
    promotion = Promotion.model_validate({"metadata": {"name": "p", "namespace": "guestbook"}, "spec": spec})

    assert uses in {step["uses"] for step in steps}
    assert check_promotion(promotion, BUILT_IN) == []
