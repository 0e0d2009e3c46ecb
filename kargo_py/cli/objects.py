"""What the commands for people share: how they connect, which objects they mean, and how they end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kargo_py.api.meta import GROUP
from kargo_py.api.types import JsonObject
from kargo_py.cli.main import INTERRUPTED, USAGE_ERROR, fail
from kargo_py.controllers.world import PROMOTIONS, STAGES
from kargo_py.kube.client import Client
from kargo_py.kube.codec import JSON
from kargo_py.kube.connection import connect
from kargo_py.kube.errors import Forbidden, KubeError, NotFound
from kargo_py.kube.kubeconfig import find_source
from kargo_py.kube.resources import Key, Resource
from kargo_py.messages import Shown, message

KIND_NOT_KNOWN = message(
    "{kind!r} is no kind that this command knows; give one of {known}",
    do="Correct the first argument. Other kinds are for `kubectl`.",
    shown=Shown.COMMAND_LINE,
)
NAME_MISSING = message(
    "which {kind}? Give its name, as in: kargo-py {command} {kind} NAME",
    do="Give the name; `kargo-py get promotions` and `kargo-py get stages` show those there are.",
    shown=Shown.COMMAND_LINE,
)
NAME_TWICE = message(
    "{first!r} names an object already; {second!r} is one too many",
    do="Write `promotion NAME` or `promotion/NAME`.",
    shown=Shown.COMMAND_LINE,
)
NAME_MALFORMED = message(
    "{name!r} cannot be the name of a {kind}: lowercase letters, digits, '-' and '.' only",
    do="Correct the name: no object can have this one.",
    shown=Shown.COMMAND_LINE,
)
NAMESPACE_IMPOSSIBLE = message(
    "--namespace {namespace!r}: must be 1 to 63 lowercase letters, digits or '-', starting and ending with a letter or "
    "digit",
    do="Correct `--namespace`, or the namespace of the kubeconfig's context: no namespace can have this name.",
    shown=Shown.COMMAND_LINE,
)
NO_SUCH_OBJECT = message(
    '{kind} "{name}" does not exist in namespace "{namespace}"; is the namespace (-n) right?',
    do="Correct the name or the namespace; `kargo-py get promotions -A` shows all.",
    shown=Shown.COMMAND_LINE,
)
KIND_NOT_SERVED = message(
    "the API server does not serve {resource} ({version}); is it the right cluster? The CRDs are applied with: kubectl "
    "apply -f crds/",
    do="Choose another cluster with `--kubeconfig` or `--context`, or apply the CRDs of Kargo or kargo-py.",
    shown=Shown.COMMAND_LINE,
)
MAY_NOT = message(
    "{why}; ask for the right to do that",
    do="The text names the user, the verb and the resource: somebody who may has to allow it by RBAC.",
    shown=Shown.COMMAND_LINE,
)

_KINDS = {word: resource for resource in (PROMOTIONS, STAGES) for word in (resource.plural, resource.kind.lower())}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DEFAULT_NAMESPACE: Final = "default"
_PAGE: Final = 500

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Where:
    """Which cluster and namespace the options name; "" and None: what the kubeconfig says."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """A client, the namespace to act in, and what the kubeconfig calls the user."""

    client: Client
    namespace: str
    user: str = ""


def subject(
    command: str, kind: str, name: str, kinds: Sequence[Resource] = (PROMOTIONS, STAGES), *, named: bool = False
) -> tuple[Resource, str]:
    """The resource and the name that ``KIND NAME`` or ``KIND/NAME`` mean; anything else ends it all.

    The name may be "" unless it must be *named*.
    """
    word, slash, within = kind.partition("/")
    resource = _KINDS.get(word.lower().removesuffix(f".{GROUP}"))
    if resource is None or resource not in kinds:
        known = ", ".join(known.kind.lower() for known in kinds)
        fail(KIND_NOT_KNOWN(kind=word, known=known), code=USAGE_ERROR)
    singular = resource.kind.lower()
    if within and name:
        fail(NAME_TWICE(first=within, second=name), code=USAGE_ERROR)
    found = within or name
    if not found and (named or slash):
        fail(NAME_MISSING(kind=singular, command=command), code=USAGE_ERROR)
    if found and not _NAME.fullmatch(found):
        fail(NAME_MALFORMED(name=found, kind=singular), code=USAGE_ERROR)
    return resource, found


def check_namespace(namespace: str) -> None:
    """End it all if no namespace can have this name."""
    if namespace and not _NAMESPACE.fullmatch(namespace):
        fail(NAMESPACE_IMPOSSIBLE(namespace=namespace), code=USAGE_ERROR)


@asynccontextmanager
async def connected(where: Where) -> AsyncIterator[Session]:
    """A session there; raises KubeError."""
    place = await (await asyncio.to_thread(find_source, where.kubeconfig, where.context)).place()
    namespace = where.namespace or place.namespace or _DEFAULT_NAMESPACE
    async with await connect(kubeconfig=where.kubeconfig, context=where.context) as client:
        yield Session(client, namespace, place.user)


async def read(session: Session, resource: Resource, name: str) -> JsonObject:
    """One object; if it is not there, that is the end. Raises KubeError."""
    try:
        return await session.client.get(resource, Key(session.namespace, name), codec=JSON)
    except NotFound as error:
        if error.resource_missing:
            raise
        fail(NO_SUCH_OBJECT(kind=resource.kind, name=name, namespace=session.namespace))


async def read_all(client: Client, resource: Resource, namespace: str) -> list[JsonObject]:
    """All objects of *namespace*, "" for all; raises KubeError."""
    found: list[JsonObject] = []
    token = ""
    while True:
        page = await client.list(resource, namespace, codec=JSON, limit=_PAGE, continue_token=token)
        found += page.items
        token = page.continue_token
        if not token:
            return found


def run(work: Coroutine[Any, Any, T], resource: Resource) -> T:
    """Do *work*, which is about *resource*; what goes wrong is said in one line.

    Ctrl-C ends it with a shell's code for that.
    """
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except KubeError as error:
        fail(reason(error, resource))


def reason(error: KubeError, resource: Resource) -> str:
    """*error* of a request about *resource*, for people."""
    if isinstance(error, NotFound) and error.resource_missing:
        return KIND_NOT_SERVED(resource=resource, version=resource.api_version)
    if isinstance(error, Forbidden):
        return MAY_NOT(why=error.message)
    return str(error)
