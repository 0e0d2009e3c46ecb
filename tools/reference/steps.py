"""The tables of the steps' configurations, made of the models that check them."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import getdoc
from pathlib import Path

from pydantic import BaseModel

from kargo_py.cli.kinds import summary, time_limit
from kargo_py.steps.registry import BUILT_IN
from kargo_py.steps.schema import documented
from tools.reference.markdown import code, prose, table
from tools.reference.schemas import HEAD, fields

CONFIGURATIONS: Mapping[str, type[BaseModel]] = {uses: kind.config_model for uses, kind in BUILT_IN.items()}
"""The model of each kind of step."""


_PAGES = Path(__file__).resolve().parents[2] / "docs/reference"


def kinds() -> str:
    """The table of the built-in kinds, each with a link to the page that has its configuration."""
    rows = [
        [_linked(uses), prose(summary(kind)), code(time_limit(kind)), str(kind.default_error_threshold)]
        for uses, kind in sorted(BUILT_IN.items())
    ]
    return table(["Kind", "What it does", "Time-out", "Errors in a row"], rows)


def _linked(uses: str) -> str:
    mark = f"<!-- generated: configuration of {uses} -->"
    page = next((page for page in sorted(_PAGES.glob("*.md")) if mark in page.read_text(encoding="utf-8")), None)
    return f"[{code(uses)}]({page.name})" if page is not None else code(uses)


def configuration(uses: str) -> str:
    """The table of the fields that ``config`` of such a step may have; in words where their names are free."""
    model = CONFIGURATIONS[uses]
    rows = fields(documented(model))
    return table(HEAD, rows) if rows else f"{getdoc(model)}\n"
