"""The way in that a kubernetes_asyncio ``ApiClient`` of the same program has.

Server, certificates, token, proxy and impersonation are taken from it; its connections are not, since it has no
time-outs, and would read each answer twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kargo_py.kube.errors import ConfigError
from kargo_py.kube.kubeconfig import Access, authorization
from kargo_py.messages import Shown, message

OF_AN_API_CLIENT = message(
    "the {source} cannot be used: {why}",
    do="Correct the `Configuration` that the program gave its kubernetes_asyncio `ApiClient`.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)

_HOOK_ASKED_AGAIN_AFTER = 60.0
"""Seconds; a hook itself knows whether its token is about to expire."""
_OURS = frozenset({"user-agent", "accept", "content-type"})


class ApiClient(Protocol):
    """What is wanted of a kubernetes_asyncio ``ApiClient``, which has no type information of its own."""

    configuration: Any
    default_headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Borrowed:
    """A :class:`~kargo_py.kube.kubeconfig.Source`: what the client's configuration says now."""

    client: ApiClient

    @property
    def name(self) -> str:
        """See :class:`~kargo_py.kube.kubeconfig.Source`."""
        return f"kubernetes_asyncio client of {self.client.configuration.host}"

    async def load(self) -> Access:
        """See :class:`~kargo_py.kube.kubeconfig.Source`."""
        configuration = self.client.configuration
        try:
            # It asks the hook that renews the token, if there is one.
            token = authorization(await configuration.get_api_key_with_prefix("BearerToken"))
        except Exception as error:  # the hook is the program's own code
            raise ConfigError(OF_AN_API_CLIENT(source=self.name, why=error)) from error
        given = [(name, str(value)) for name, value in self.client.default_headers.items() if name.lower() not in _OURS]
        renew_after = _HOOK_ASKED_AGAIN_AFTER if configuration.refresh_api_key_hook is not None else None
        return Access(configuration, [*token, *given], renew_after, "the user")
