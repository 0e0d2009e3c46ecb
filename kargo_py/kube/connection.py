"""From a kubeconfig, the service account of the pod, or somebody else's client, to a client."""

from __future__ import annotations

import asyncio

from kargo_py.kube.borrowed import ApiClient, Borrowed
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


async def connect_like(api_client: ApiClient, *, settings: Settings | None = None) -> RestClient:
    """A client for the server of a kubernetes_asyncio ``ApiClient``, as the same user; close it like any other.

    It has connections of its own, and closes none of theirs. Raises ConfigError.
    """
    chosen = settings or Settings()
    return RestClient(await open_transport(Borrowed(api_client), pause=chosen.renewal_pause), chosen)
