"""``kargo-py demo`` as a program: the files it needs, the server it starts, the signals that end it, its exit code."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

import structlog

from kargo_py.controllers.running import StartError
from kargo_py.demo.acts import typed
from kargo_py.demo.pipeline import ARGOCD, PROJECT
from kargo_py.demo.running import PACE, cast, first, told
from kargo_py.demo.screens import screen
from kargo_py.demo.telling import NotAsTold
from kargo_py.kube.clock import utc_now
from kargo_py.kube.errors import KubeError
from kargo_py.local.apiserver import kubeconfig
from kargo_py.local.apiserver.serve import ListenError, serving
from kargo_py.local.apiserver.server import ApiServer

LOOK_AROUND: Final = (
    ("kubectl", "get", "stages,promotions,freights", "-n", PROJECT),
    ("kubectl", "get", "applications", "-n", ARGOCD),
    ("kubectl", "get", "promotion/dev.1", "-n", PROJECT, "-o", "yaml"),
    ("kubectl", "describe", "stage/prod", "-n", PROJECT),
    ("kubectl", "get", "events", "-n", PROJECT),
)
_LOG_LINES = 15


class DemoFailed(Exception):
    """It did not go as told: the text says what was expected and what was seen; ``log`` is the end of the log."""

    def __init__(self, why: str, log: Sequence[str]) -> None:
        super().__init__(why)
        self.log = log


def show(*, keep: bool = False, port: int = 0) -> int:
    """Tell the story on standard output; returns the exit code. Raises DemoFailed.

    *keep*: leave everything running at the end, until a signal. *port*: of the API server, 0 for any.
    """
    return asyncio.run(_until_signal(keep=keep, port=port))


async def _until_signal(*, keep: bool, port: int) -> int:
    """Run until the end or a signal; the exit code is then the shell's for that signal.

    Where the story has been told and everything is only kept running, a signal is the expected end.
    """
    ending = asyncio.Event()
    came: list[int] = []
    task = asyncio.ensure_future(_with_files(ending, keep=keep, port=port))

    def stop(number: int) -> None:
        came.append(number)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not came:
            raise
        return 0 if ending.is_set() else 128 + came[0]
    return 0


async def _with_files(ending: asyncio.Event, *, keep: bool, port: int) -> None:
    with tempfile.TemporaryDirectory(prefix="kargo-py-demo-") as directory:
        log = Path(directory, "kargo-py.log")
        with log.open("w", encoding="utf-8") as file:  # noqa: ASYNC230 - nothing else runs on the loop yet
            _log_to(file)
            try:
                await _show(Path(directory), ending, keep=keep, port=port)
            except (NotAsTold, StartError, ListenError, KubeError) as error:
                file.flush()
                lines = (await asyncio.to_thread(log.read_text, "utf-8")).splitlines()
                raise DemoFailed(str(error), lines[-_LOG_LINES:]) from error


def _log_to(file: TextIO) -> None:
    """The controllers' log would come between the lines of the story."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(file),
    )


async def _show(directory: Path, ending: asyncio.Event, *, keep: bool, port: int) -> None:
    began = time.monotonic()
    async with ApiServer(now=utc_now) as core, serving(core, port=port) as address:
        config = directory / "kubeconfig"
        await asyncio.to_thread(kubeconfig.write, config, address.kubeconfig())
        with screen() as out:
            async with cast(config, PACE) as company:
                out.opening(address.url, time.monotonic() - began)
                prepare = [typed(["cd", str(directory)]), typed(["export", f"KUBECONFIG={config}"])]
                for command in prepare:
                    out.command(command)
                async with told(company, directory, out):
                    look = [typed(command) for command in LOOK_AROUND]
                    out.closing(time.monotonic() - began, [*prepare, *look] if keep else look, keep=keep)
                    if keep:
                        ending.set()
                        await first(asyncio.Event().wait(), company.at_work)
