"""Which form of output a command was asked for."""

from __future__ import annotations

from collections.abc import Iterable

from kargo_py.cli.main import USAGE_ERROR, fail
from kargo_py.cli.options import OUTPUT_NOT_KNOWN


def form_of(form: str, known: Iterable[str]) -> str:
    """*form* in its proper case; one that is none of *known* ends it all."""
    words = tuple(known)
    if form.lower() not in words:
        fail(OUTPUT_NOT_KNOWN(form=form, known=", ".join(words)), code=USAGE_ERROR)
    return form.lower()
