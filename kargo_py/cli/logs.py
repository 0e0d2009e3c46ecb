"""Logging of the program: structlog, as JSON for machines or coloured for a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kargo_py.messages import Shown, message

if TYPE_CHECKING:
    from structlog.typing import Processor

LEVEL_UNKNOWN = message(
    "--log-level {level!r}: must be one of {known}",
    do="Correct `--log-level` or `LOG_LEVEL`.",
    shown=Shown.COMMAND_LINE,
)
FORMAT_UNKNOWN = message(
    "--log-format {format!r}: must be json, console or auto",
    do="Correct `--log-format` or `LOG_FORMAT`.",
    shown=Shown.COMMAND_LINE,
)

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass(frozen=True, slots=True)
class Logs:
    """How to log, to standard error."""

    console: bool
    """For a terminal, coloured; else JSON."""
    level: int

    def configure(self) -> None:
        """Set structlog up; its import takes a while."""
        import structlog  # noqa: PLC0415 - its import takes a while, and the ready line comes first

        rendering: Sequence[Processor] = (
            [structlog.dev.ConsoleRenderer()]
            if self.console
            else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        )
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                *rendering,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(self.level),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
            cache_logger_on_first_use=True,
        )


def parse_logs(log_format: str, level: str) -> Logs:
    """Read the options; raises ValueError for a word that is not known.

    *log_format*: json, console or auto. *level*: debug, info, warning or error. Both in any case (Kargo's levels are in
    capitals).
    """
    number = _LEVELS.get(level.lower())
    if number is None:
        raise ValueError(LEVEL_UNKNOWN(level=level, known=", ".join(_LEVELS)))
    chosen = log_format.lower()
    if chosen not in {"json", "console", "auto"}:
        raise ValueError(FORMAT_UNKNOWN(format=log_format))
    return Logs(chosen == "console" or (chosen == "auto" and sys.stderr.isatty()), number)


def configure_logs(log_format: str, level: str) -> None:
    """Set structlog up as the options say; raises ValueError for a word that is not known."""
    parse_logs(log_format, level).configure()
