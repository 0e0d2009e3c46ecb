"""From a kubeconfig, or the service account of the pod, to a client."""

from __future__ import annotations

import asyncio

from kargo_py.kube.kubeconfig import find_source
from kargo_py.kube.rest import RestClient, Settings
from kargo_py.kube.transport import open_transport


async def connect(
    *, kubeconfig: str | None = None, context: str | None = None, settings: Settings | None = None
) -> RestClient:
    """A client for an API server; use it as an async context manager, or close it. Raises ConfigError.

    Which one: that of the file *kubeconfig*; else of ``$KUBECONFIG``; else, inside a cluster, the one that runs this
    pod; else of ``~/.kube/config``; *context* chooses among those of a kubeconfig. Nothing is sent yet: whether the
    server can be reached shows at the first request.
    """
    chosen = settings or Settings()
    source = await asyncio.to_thread(find_source, kubeconfig, context)
    return RestClient(await open_transport(source, pause=chosen.renewal_pause), chosen)
