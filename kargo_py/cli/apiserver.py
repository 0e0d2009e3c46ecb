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
from pathlib import Path

from kargo_py.cli.logs import Logs
from kargo_py.kube.clock import utc_now
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
    argocd: bool
    """Act as Argo CD, too."""
    logs: Logs


def run_apiserver(options: Options) -> str | None:
    """Serve until SIGTERM or SIGINT; returns why it could not run, None after a clean end."""
    try:
        loaded = [manifest for path in options.manifests for manifest in manifests.read(path)]
        if options.argocd:
            loaded += _for_argocd()
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
    async with ApiServer(now=utc_now) as server:
        await manifests.load(server, loaded)
        async with serving(server, host=options.host, port=options.port, allow_remote=options.allow_remote) as address:
            await asyncio.to_thread(kubeconfig.write, path, address.kubeconfig())
            sys.stdout.write(
                f"Kubernetes API ready at {address.url}; for kubectl: export KUBECONFIG={shlex.quote(str(path))}\n"
            )
            sys.stdout.flush()
            # Not before: it takes as long as much of the rest, and only a fault of this server is ever logged.
            await asyncio.to_thread(options.logs.configure)
            await (_act_as_argocd(server, stop) if options.argocd else stop.wait())


def _for_argocd() -> Sequence[Manifest]:
    """What Argo CD's installation would have created."""
    from kargo_py.local.argocd.definition import APPLICATION, NAMESPACE  # noqa: PLC0415 - only where it is wanted

    return [Manifest(Path("argocd"), obj) for obj in (APPLICATION, NAMESPACE)]


async def _act_as_argocd(server: ApiServer, stop: asyncio.Event) -> None:
    """Act on Applications until *stop* is set. Raises what Argo CD fails of."""
    from kargo_py.local.apiserver.client import client_of  # noqa: PLC0415 - only where it is wanted
    from kargo_py.local.argocd.simulator import ArgoCD  # noqa: PLC0415 - only where it is wanted

    async with ArgoCD(client_of(server, user_agent="argocd"), namespace="") as argocd:
        acting, stopping = asyncio.create_task(argocd.serve()), asyncio.create_task(stop.wait())
        await asyncio.wait([acting, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in (acting, stopping):
            task.cancel()
        if not stop.is_set():
            await acting
