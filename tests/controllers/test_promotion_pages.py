"""The pages of the reference on Promotions say what the code does, as far as that are figures and names."""

from __future__ import annotations

from pathlib import Path

from kargo_py.api.admission import ANNOTATION_CUSTOM_STEPS, CUSTOM_STEPS_ALLOWED
from kargo_py.api.stamp import TEXTS_KEY
from kargo_py.controllers.events import REASON_ADMISSION_WARNING, REASON_STEPS_REPLACED
from kargo_py.controllers.promotion_admission import RECORD_AFTER
from kargo_py.controllers.stage_template import TEMPLATE_VALID
from kargo_py.engine.machine import MOST_SAID
from kargo_py.engine.outputs import MOST_OUTPUT, MOST_PROMOTION
from kargo_py.engine.retries import TOLERATED
from kargo_py.engine.stepping import RETRIED

DOCS = Path(__file__).resolve().parents[2] / "docs"


def words(page: str) -> str:
    """The page as one line."""
    return " ".join((DOCS / page).read_text(encoding="utf-8").split())


def test_how_steps_run() -> None:
    """Bounds and texts."""
    page = words("reference/promotion-steps.md")
    assert f"An output may have {MOST_OUTPUT >> 10} KiB" in page
    assert f"the whole Promotion may have {MOST_PROMOTION >> 20} MiB" in page
    assert f"A message may have {MOST_SAID >> 10} KiB" in page
    assert f"{TOLERATED.total_seconds() / 60:.0f} minutes from the first in a row" in page
    assert f"`{RETRIED(message='')}`" in page
    assert f"`{TEXTS_KEY}`" in page


def test_admission() -> None:
    """Names and times."""
    page = words("reference/admission.md")
    assert f"{ANNOTATION_CUSTOM_STEPS}: {CUSTOM_STEPS_ALLOWED}" in page
    assert f"`{REASON_STEPS_REPLACED()}`" in page
    assert f"`{REASON_ADMISSION_WARNING()}`" in page
    assert f"`{TEMPLATE_VALID}`" in page
    assert {2.0: "two seconds"}[RECORD_AFTER] in page
