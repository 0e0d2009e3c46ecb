"""``python -m kargo_py.local.argocd``: a simulated Argo CD as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import structlog

from kargo_py.kube.connection import connect
from kargo_py.kube.errors import KubeError
from kargo_py.local.argocd.simulator import ArgoCD
from kargo_py.local.argocd.timing import Timing, Version


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kargo_py.local.argocd",
        description="Act as Argo CD's controllers on the Applications of an API server, without deploying anything.",
    )
    parser.add_argument("--kubeconfig", required=True, help="kubeconfig of the API server")
    parser.add_argument("--namespace", default="", help="namespace of the Applications [all]")
    parser.add_argument(
        "--gap", type=float, default=Timing().gap, help="seconds between a read and its write [%(default)s]"
    )
    parser.add_argument("--seed", type=int, default=0, help="makes the varying delays repeatable [%(default)s]")
    parser.add_argument(
        "--version",
        choices=[version.value for version in Version],
        default="3.6",
        help="Argo CD to act as [%(default)s]",
    )
    return parser.parse_args(arguments)


async def _serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    serving = asyncio.current_task()
    if serving is None:  # pragma: no cover - a coroutine runs in a task
        raise RuntimeError("no task runs")
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    timing = replace(Timing(), gap=options.gap)
    async with await connect(kubeconfig=options.kubeconfig) as client:
        argo = ArgoCD(
            client,
            namespace=options.namespace,
            version=Version(options.version),
            timing=timing,
            seed=options.seed,
        )
        async with argo:
            where = f"namespace {options.namespace}" if options.namespace else "all namespaces"
            sys.stdout.write(f"simulated Argo CD {options.version} ready: Applications in {where}\n")
            sys.stdout.flush()
            await argo.serve()


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT."""
    options = _parse(arguments)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        with suppress(asyncio.CancelledError):
            asyncio.run(_serve(options))
    except KubeError as error:
        sys.stderr.write(f"simulated Argo CD: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
