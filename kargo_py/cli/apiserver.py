"""Runs the embedded API server as a process: signals, the kubeconfig, the line that says that it is ready."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kargo_py.cli.logs import Logs
from kargo_py.local.apiserver import kubeconfig, manifests
from kargo_py.local.apiserver.kubeconfig import KubeconfigError
from kargo_py.local.apiserver.manifests import Manifest, ManifestError
from kargo_py.local.apiserver.serve import ListenError, serving
from kargo_py.local.apiserver.server import ApiServer


@dataclass(frozen=True, slots=True)
class Options:
    """What the command was told."""

    host: str
    port: int
    allow_remote: bool
    write_kubeconfig: Path | None
    """None: into a temporary folder that goes when the server ends."""
    manifests: Sequence[Path]
    logs: Logs


def run_apiserver(options: Options) -> str | None:
    """Serve until SIGTERM or SIGINT; returns why it could not run, None after a clean end."""
    try:
        loaded = [manifest for path in options.manifests for manifest in manifests.read(path)]
        with ExitStack() as stack:
            path = options.write_kubeconfig
            if path is None:
                path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kargo-py-"))) / "kubeconfig"
            path = path.expanduser().absolute()
            kubeconfig.check(path)
            asyncio.run(_until_signal(options, loaded, path))
    except (KubeconfigError, ListenError, ManifestError) as error:
        return str(error)
    return None


async def _until_signal(options: Options, loaded: Sequence[Manifest], path: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with ApiServer(now=lambda: datetime.now(UTC)) as server:
        await manifests.load(server, loaded)
        async with serving(server, host=options.host, port=options.port, allow_remote=options.allow_remote) as address:
            await asyncio.to_thread(kubeconfig.write, path, address.kubeconfig())
            sys.stdout.write(
                f"Kubernetes API ready at {address.url}; for kubectl: export KUBECONFIG={shlex.quote(str(path))}\n"
            )
            sys.stdout.flush()
            # Not before: it takes as long as much of the rest, and only a fault of this server is ever logged.
            await asyncio.to_thread(options.logs.configure)
            await stop.wait()
