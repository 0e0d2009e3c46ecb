"""An API server in the test's own process, with our kinds, Applications and some namespaces, made in a millisecond.

For tests in simulated time, which need thousands. Nothing is installed on it: the kinds of our definitions are compiled
once, and shared by all servers. There are no CustomResourceDefinitions to be read, and everything else is as if there
were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from random import Random

from kargo_py.controllers.world import NAMESPACES
from kargo_py.kube.client import Client
from kargo_py.kube.codec import JSON, encode
from kargo_py.local.apiserver import builtin
from kargo_py.local.apiserver.crd import DefinitionRules
from kargo_py.local.apiserver.crdkinds import kinds_of
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.server import ApiServer
from kargo_py.testing.definitions import definitions


@cache
def kinds(*, strict: bool = False) -> Sequence[Kind]:
    """The kinds of a server; *strict*: Kargo's as Kargo defines them."""
    defined = (kind for definition in definitions(strict=strict) for kind in kinds_of(definition))
    return [*builtin.kinds(DefinitionRules()), *defined]


kinds()  # now: it reads sources, and no event loop may be kept from its work by that


def api_server(now: Callable[[], datetime]) -> ApiServer:
    """A server that gives the same names and uids every time."""
    return ApiServer(now=now, random=Random(0), kinds=kinds())


async def create_namespaces(client: Client, *names: str) -> None:
    """Create namespaces."""
    for name in names:
        await client.create(NAMESPACES, "", encode({"metadata": {"name": name}}), codec=JSON)
