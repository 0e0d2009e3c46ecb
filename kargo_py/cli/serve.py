"""Runs the controllers as a process: signals, and the settings of the interpreter that suit a long run."""

from __future__ import annotations

import asyncio
import signal

import structlog

from kargo_py.cli.collecting import collect_seldom
from kargo_py.controllers.running import Options, StartError, run_controllers

_log = structlog.get_logger(__name__)


def serve(options: Options) -> str | None:
    """Run until SIGTERM or SIGINT; returns why it could not run, None after a clean end."""
    collect_seldom()
    try:
        asyncio.run(_until_signal(options))
    except StartError as error:
        return str(error)
    return None


async def _until_signal(options: Options) -> None:
    task = asyncio.ensure_future(run_controllers(options))
    loop = asyncio.get_running_loop()

    def stop(name: str) -> None:
        _log.info("stopping", signal=name)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, signal.Signals(number).name)
    try:
        await task
    except asyncio.CancelledError:
        _log.info("stopped")
