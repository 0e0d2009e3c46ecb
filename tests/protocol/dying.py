"""Our program, killed by itself with SIGKILL at its Nth write: ``python -m tests.protocol.dying KUBECONFIG N when``.

``when`` is ``before`` (the write is never sent) or ``after`` (it has landed, and nothing that follows it has); N = 0
lives on. Events are no writes here.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from kargo_py.cli.logs import configure_logs
from kargo_py.controllers.running import Options, run_controllers
from kargo_py.kube import connection
from kargo_py.kube.rest import RestClient


class DyingClient(RestClient):
    """Counts the patches of all clients."""

    fatal, when, sent = 0, "", 0

    async def patch(self, *arguments: Any, **options: Any) -> Any:
        DyingClient.sent += 1
        last = DyingClient.sent == DyingClient.fatal
        if last and DyingClient.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await super().patch(*arguments, **options)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer


def main(kubeconfig: str, fatal: str, when: str) -> None:
    """Run until killed, or until SIGTERM."""
    DyingClient.fatal, DyingClient.when = int(fatal), when
    vars(connection)["RestClient"] = DyingClient
    configure_logs("json", "info")
    asyncio.run(run_controllers(Options(kubeconfig=kubeconfig, instance="proof")))


if __name__ == "__main__":
    main(*sys.argv[1:])
