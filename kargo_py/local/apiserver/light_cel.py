"""Imports the package ``cel`` without the terminal program in it, which costs more than all of our server's start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_PROGRAM = "cel.cli"


@contextmanager
def _without_program() -> Iterator[None]:
    """Let ``import cel`` find something in the place of its program; who wants that imports it afterwards as ever."""
    if "cel" in sys.modules:
        yield
        return
    sys.modules[_PROGRAM] = ModuleType(_PROGRAM)
    try:
        yield
    finally:
        del sys.modules[_PROGRAM]
        if (package := sys.modules.get("cel")) is not None and hasattr(package, "cli"):
            del package.cli


with _without_program():
    import cel
    from cel.stdlib import add_stdlib_to_context

__all__ = ["add_stdlib_to_context", "cel"]
