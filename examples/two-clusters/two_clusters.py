"""Two instances in one process, each on an API server of its own; they share nothing.

    $ python two_clusters.py ~/.kube/europe ~/.kube/america

Each kubeconfig is of a cluster with Kargo's CRDs and Argo CD. What happens to the Promotions of both is printed. Should
one instance die, the other is stopped, too, in order, and the program ends with the error.
"""

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import structlog

import kargo_py


def tell(cluster, controllers):
    """Print each change of the phase of a Promotion, as the cache of this instance sees it."""

    def changed(old, new):
        before, now = phase(old), phase(new)
        if new is not None and before != now:
            meta = new["metadata"]
            print(f"{cluster}: {meta['namespace']}/{meta['name']} is {now}", flush=True)

    controllers.shared.promotions.subscribe(changed)


def phase(promotion):
    return ((promotion or {}).get("status") or {}).get("phase")


async def main(kubeconfigs):
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    async with contextlib.AsyncExitStack() as stack:
        for kubeconfig in kubeconfigs:
            client = await stack.enter_async_context(await kargo_py.connect(kubeconfig=kubeconfig))
            controllers = await stack.enter_async_context(kargo_py.Controllers(client))
            tell(Path(kubeconfig).name, controllers)
        print("all instances are at work", flush=True)
        await told_to_stop()


async def told_to_stop():
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()


if __name__ == "__main__":
    if not sys.argv[1:]:
        raise SystemExit("usage: two_clusters.py KUBECONFIG...")
    asyncio.run(main(sys.argv[1:]))
