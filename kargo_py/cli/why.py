"""``kargo-py why``: reads what an explanation rests on, as far as that is allowed, and prints it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from kargo_py.api.types import JsonObject
from kargo_py.argocd.application import APPLICATIONS, Application, ApplicationCodec
from kargo_py.cli.objects import Session, Where, connected, read, read_all, reason, run
from kargo_py.cli.rows import age, plain, text
from kargo_py.controllers import why_promotion, why_promotion_targets, why_stage
from kargo_py.controllers.why import Explanation, Hidden, Seen, Statement
from kargo_py.controllers.world import FREIGHTS, PROMOTIONS, STAGES
from kargo_py.kube.client import Client
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON
from kargo_py.kube.connection import connect
from kargo_py.kube.errors import KubeError, NotFound
from kargo_py.kube.resources import Key, Resource
from kargo_py.messages import Shown, message

HEADLINE = message(
    '{kind} "{name}" in namespace "{namespace}" is {state}{since}',
    do="The phase of a Promotion, or the condition `Ready` of a Stage. The reasons follow.",
    shown=Shown.ANSWER,
)
SINCE = message(
    ", since {time} ({ago})",
    do="Part of a text: how long ago that was is by the clock of this machine.",
    shown=Shown.ANSWER,
)
AT = message(
    ", at {time} ({ago} ago)",
    do="Part of a text, as above.",
    shown=Shown.ANSWER,
)
SINCE_BY = message(
    ", since {time} ({clock}'s clock)",
    do="Part of a text: another machine's clock may differ from that of this one, so the time is given as it is.",
    shown=Shown.ANSWER,
)
AT_BY = message(
    ", at {time} ({clock}'s clock)",
    do="Part of a text, as above.",
    shown=Shown.ANSWER,
)
NO_REASONS = message(
    "nothing keeps it back",
    do="Nothing to do.",
    shown=Shown.ANSWER,
)

_LONGEST: Final = 2000
_MOST_LINES: Final = 300
"""Lines of one reason; a Promotion that is refused tells at most a hundred faults, of three lines each."""

T = TypeVar("T")

Print = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """``form``: text or json. Where Argo CD is: in the same cluster unless a kubeconfig is given."""

    form: str = "text"
    argocd_kubeconfig: str | None = None
    argocd_namespace: str = "argocd"


def why(resource: Resource, name: str, where: Where, options: Options, out: Print) -> None:
    """Print the explanation."""
    found = run(explanation(resource, name, where, options), resource)
    if options.form == "json":
        out(json.dumps(found.wire(), indent=4, ensure_ascii=False))
        return
    for line in lines(found, utc_now()):
        out(line)


async def explanation(resource: Resource, name: str, where: Where, options: Options) -> Explanation:
    """Read what it rests on, and explain. Raises KubeError if the object itself cannot be read."""
    async with connected(where) as session, _argocd(session, options) as argocd:
        if resource is PROMOTIONS:
            return await _promotion(session, argocd, name)
        return await _stage(session, argocd, name, options.argocd_namespace)


@asynccontextmanager
async def _argocd(session: Session, options: Options) -> AsyncIterator[Client | Hidden]:
    """A client for the cluster where Argo CD is."""
    if not options.argocd_kubeconfig:
        yield session.client
        return
    try:
        client = await connect(kubeconfig=options.argocd_kubeconfig)
    except KubeError as error:
        yield Hidden(str(error))
        return
    async with client:
        yield client


# -- reading ----------------------------------------------------------------------------------------------------------


async def _seen(reading: Awaitable[T], resource: Resource) -> T | Hidden | None:
    """What was read; None if it is not there, and why if that cannot be told."""
    try:
        return await reading
    except NotFound as error:
        return Hidden(reason(error, resource)) if error.resource_missing else None
    except KubeError as error:
        return Hidden(reason(error, resource))


async def _object(session: Session, resource: Resource, name: str) -> Seen[JsonObject]:
    if not name:
        return None
    return await _seen(session.client.get(resource, Key(session.namespace, name), codec=JSON), resource)


async def _queue(session: Session) -> Sequence[JsonObject] | Hidden:
    found = await _seen(read_all(session.client, PROMOTIONS, session.namespace), PROMOTIONS)
    return found if found is not None else []


async def _applications(client: Client | Hidden, keys: Sequence[Key]) -> dict[Key, Seen[Application]]:
    if isinstance(client, Hidden):
        return dict.fromkeys(keys, client)
    reads = [_seen(_application(client, key), APPLICATIONS) for key in keys]
    return dict(zip(keys, await asyncio.gather(*reads), strict=True))


async def _application(client: Client, key: Key) -> Application:
    return await client.get(APPLICATIONS, key, codec=ApplicationCodec())


async def _promotion(session: Session, argocd: Client | Hidden, name: str) -> Explanation:
    promotion = await read(session, PROMOTIONS, name)
    stage, freight, promotions, applications = await asyncio.gather(
        _object(session, STAGES, text(promotion, "spec", "stage")),
        _object(session, FREIGHTS, text(promotion, "spec", "freight")),
        _queue(session),
        _applications(argocd, why_promotion_targets.targets(promotion)),
    )
    facts = why_promotion.PromotionFacts(promotion, stage, freight, promotions, applications, utc_now())
    return why_promotion.explain_promotion(facts)


async def _stage(session: Session, argocd: Client | Hidden, name: str, argocd_namespace: str) -> Explanation:
    stage = await read(session, STAGES, name)
    names = why_stage.freights(stage)
    promotions, applications, freights = await asyncio.gather(
        _queue(session),
        _applications(argocd, why_stage.targets(stage, argocd_namespace)),
        asyncio.gather(*(_object(session, FREIGHTS, freight) for freight in names)),
    )
    by_name = dict(zip(names, freights, strict=True))
    facts = why_stage.StageFacts(stage, promotions, by_name, applications, utc_now(), argocd_namespace)
    return why_stage.explain_stage(facts)


# -- showing ----------------------------------------------------------------------------------------------------------


def lines(explained: Explanation, now: datetime) -> list[str]:
    """The explanation as lines of text."""
    head = HEADLINE(
        kind=explained.kind,
        name=explained.name,
        namespace=explained.namespace,
        state=explained.state,
        since=_time(Statement("", since=explained.since), now),
    )
    said = [line for statement in explained.reasons for line in _reason(statement, now)] or [f"- {NO_REASONS()}"]
    return [plain(head), *said, *(f"? {_short(plain(line))}" for line in explained.unseen)]


def _reason(statement: Statement, now: datetime) -> list[str]:
    """A reason in its lines: one that names several faults has one for each, with expressions and carets below."""
    first, *others = [line for line in statement.text.split("\n") if line.strip()] or [""]
    rest = [f"  {_short(_printable(line).rstrip())}" for line in others[:_MOST_LINES]]
    return [f"- {_short(plain(first))}{_time(statement, now)}", *rest, *(["  …"] if len(others) > _MOST_LINES else [])]


def _printable(words: str) -> str:
    """*words* with their spaces, which a caret below them counts."""
    return "".join(c if c.isprintable() else " " for c in words)


def _short(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"


def _time(statement: Statement, now: datetime) -> str:
    if statement.clock and statement.since:
        return SINCE_BY(time=plain(statement.since), clock=statement.clock)
    if statement.clock and statement.at:
        return AT_BY(time=plain(statement.at), clock=statement.clock)
    if statement.since:
        return SINCE(time=plain(statement.since), ago=age(statement.since, now))
    return AT(time=plain(statement.at), ago=age(statement.at, now)) if statement.at else ""
