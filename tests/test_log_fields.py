"""What is logged can be handed on to logging, as embedding programs do (``structlog.stdlib.render_to_log_kwargs``)."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "kargo_py"
TAKEN = {*vars(logging.makeLogRecord({})), "message", "asctime"} - {"exc_info", "stack_info"}
"""Names of a LogRecord's own: logging refuses a field that has one, by a KeyError."""


def fields(source: str) -> Iterator[str]:
    """Each field that a call of a logger is given, also by ``**{...}``."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            whose = ast.unparse(call.func.value)
            if whose.endswith("log") or call.func.attr in {"bind_contextvars", "bound_contextvars"}:
                yield from (keyword.arg for keyword in call.keywords if keyword.arg is not None)
                for spread in (keyword.value for keyword in call.keywords if keyword.arg is None):
                    for inner in ast.walk(spread):
                        if isinstance(inner, ast.Dict):
                            yield from (
                                key.value
                                for key in inner.keys
                                if isinstance(key, ast.Constant) and isinstance(key.value, str)
                            )


@pytest.mark.parametrize(
    "source", ['_log.info("x", name=1)', "self._log.bind(args=1)", '_log.info("x", **({"message": 1} if x else {}))']
)
def test_it_sees(source: str) -> None:
    assert TAKEN.intersection(fields(source))


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_fields(path: Path) -> None:
    assert TAKEN.intersection(fields(path.read_text())) == set()
