"""Universes with our definitions, and with those that have only what Kargo's own have."""

from __future__ import annotations

import pytest

from tests import in_process


@pytest.fixture(params=[False, True], ids=["ours", "strict"])
def both_definitions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each universe of the test has the kinds as we define them; then once more, as Kargo does."""
    kinds = in_process.kinds(strict=request.param)
    monkeypatch.setattr(in_process, "kinds", lambda: kinds)
