"""The embedded server in a thread of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.servers import Server


@contextlib.contextmanager
def running(directory: Path) -> Iterator[Server]:
    """Run it."""
    raise NotImplementedError
    yield
