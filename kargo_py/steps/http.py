"""The step ``http``: makes a request, and waits for what its answer is to say.

A call of it makes one request. What the answer means stands in :mod:`kargo_py.steps.http_judging`, how it is made, and
what is not done for anybody, in :mod:`kargo_py.steps.http_exchange`, which is imported when the first step runs.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

from kargo_py.api.promotion import StepStatus
from kargo_py.messages import Shown, message
from kargo_py.steps.base import Erred, Finished, StepContext, StepOutcome
from kargo_py.steps.http_addresses import AddressRules
from kargo_py.steps.http_asking import Ask, NoAnswer, NotSent, Refused, Tls, Untrusted, Unusable
from kargo_py.steps.http_config import HttpConfig
from kargo_py.steps.http_judging import Answer, Patience, judge
from kargo_py.steps.http_url import Url, read_proxy, read_url
from kargo_py.steps.step import Effect, Services, Step, StepFailed, Work, WorkDirUse

if TYPE_CHECKING:
    from kargo_py.steps.http_exchange import Exchange

UNKNOWN_WHETHER_DONE = message(
    "{why}; whether it was carried out is not known",
    do="A `POST` or `PATCH` was sent, and no answer came. It is sent again only if `retry.errorThreshold` of the step "
    "allows it, with the same header `Idempotency-Key`. Look at the server to see whether it was carried out.",
    shown=Shown.PROMOTION,
)
NO_SUCH_FILE = message(
    "bodyFromFile {path!r}: {why}",
    do="Name a file that an earlier step has put into the working directory, by its path in there.",
    shown=Shown.PROMOTION,
)
OUTSIDE = message(
    "it is not within the working directory",
    do="Part of *bodyFromFile*. Neither `..` nor a link may lead out of the working directory.",
    shown=Shown.PROMOTION,
)
NO_FILE = message(
    "it is no file",
    do="Part of *bodyFromFile*. A directory, say, cannot be sent.",
    shown=Shown.PROMOTION,
)
FILE_TOO_LARGE = message(
    "it has more than {most} bytes",
    do="Part of *bodyFromFile*. Send less.",
    shown=Shown.PROMOTION,
)
NO_WORK_DIR = message(
    "there is no working directory",
    do="Part of *bodyFromFile*. The step was run by something that gives it none.",
    shown=Shown.PROMOTION,
)

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
_MOST_SENT: Final = 8 * 1024 * 1024
_QUICK: Final = 64 * 1024
"""Bytes of an answer whose reading holds nobody up."""


class Http(Step[HttpConfig]):
    """Makes an HTTP request, and succeeds or fails by what is answered; can ask again until it is as expected."""

    uses = "http"
    config_model = HttpConfig
    work = Work.NETWORK
    work_dir_use = WorkDirUse.READS

    @classmethod
    def make(cls, services: Services) -> Self:
        """With the addresses that may be called."""
        return cls(lambda: exchange_under(services.addresses))

    def __init__(self, make_exchange: Callable[[], Exchange]) -> None:
        self._make_exchange = make_exchange
        self._exchange: Exchange | None = None

    def work_dir_use_of(self, config: Any) -> WorkDirUse:
        """It reads the directory only with ``bodyFromFile``."""
        reads = isinstance(config, dict) and config.get("bodyFromFile")
        return WorkDirUse.READS if reads else WorkDirUse.NONE

    def effect(self, config: HttpConfig) -> Effect:
        """By the method: what only reads has none."""
        return Effect.NONE if config.method.safe else Effect.ONCE

    async def perform(self, config: HttpConfig, context: StepContext) -> StepOutcome:
        """Make the request once, and judge the answer."""
        exchange = await self._ready_exchange()
        body = await _body(config, context)
        outcome = await _answer(exchange, config, asked(config, context, body))
        if not isinstance(outcome, Answer):
            return outcome
        patience = Patience(context.timeout is not None, context.threshold)
        arguments = (config, outcome, named(config), patience, context.wall_clock or context.now, context.mask)
        if len(outcome.body) <= _QUICK:
            return judge(*arguments)
        return await asyncio.to_thread(judge, *arguments)

    async def _ready_exchange(self) -> Exchange:
        if self._exchange is None:
            # In a thread, since it imports modules.
            self._exchange = await asyncio.to_thread(self._make_exchange)
        return self._exchange


def exchange_under(rules: AddressRules) -> Exchange:
    """What sends requests to the addresses that *rules* allow."""
    from kargo_py.steps.http_exchange import Exchange  # noqa: PLC0415 - httpx takes its time and memory

    return Exchange(rules)


def asked(config: HttpConfig, context: StepContext, body: bytes) -> Ask:
    """The request of a step."""
    headers = [(header.name, header.value) for header in config.headers]
    if not config.method.safe and IDEMPOTENCY_KEY.lower() not in {name.lower() for name, _ in headers}:
        headers.append((IDEMPOTENCY_KEY, idempotency_key(config, context)))
    return Ask(
        method=config.method,
        url=_url(config).with_query([(each.name, each.value) for each in config.query_params]),
        headers=headers,
        body=body,
        timeout=config.timeout.seconds,
        tls=Tls(config.insecure_skip_tls_verify, config.ca_bundle),
        proxy=read_proxy(config.proxy) if config.proxy else None,
        follow=config.follow_redirects,
    )


def idempotency_key(config: HttpConfig, context: StepContext) -> str:
    """What names a request, so that a server can tell the same one once more from another one.

    All attempts of a step to have one answer are one request. One that polls makes another request in each interval.
    """
    since = max((context.now - context.started_at).total_seconds(), 0.0)
    number = 1 if config.by_status else 1 + int(since / config.poll_interval.seconds)
    return f"{quote(context.promotion_uid)}/{quote(context.alias)}/{number}"


def named(config: HttpConfig) -> str:
    """The request for people, without what may be secret."""
    return f"{config.method.value} {_url(config).origin}"


def _url(config: HttpConfig) -> Url:
    return read_url(config.url)


async def _answer(exchange: Exchange, config: HttpConfig, ask: Ask) -> Answer | StepOutcome:
    """The answer, or what it means that there is none."""
    try:
        return await exchange.send(ask)
    except Refused as error:
        return Finished(StepStatus.FAILED, str(error))
    except NotSent as error:
        return Erred(str(error), transient=True)
    except NoAnswer as error:
        if config.method.repeatable:
            return Erred(str(error), transient=True)
        return Erred(UNKNOWN_WHETHER_DONE(why=error))
    except (Untrusted, Unusable) as error:
        return Erred(str(error))


async def _body(config: HttpConfig, context: StepContext) -> bytes:
    if not config.body_from_file:
        return config.body.encode("utf-8", "replace")
    if context.work_dir is None:
        raise StepFailed(NO_SUCH_FILE(path=config.body_from_file, why=NO_WORK_DIR()))
    try:
        return await asyncio.to_thread(read_within, context.work_dir, config.body_from_file)
    except (OSError, ValueError, RuntimeError) as error:
        # RuntimeError: of a link that leads to itself, before Python 3.13
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise StepFailed(NO_SUCH_FILE(path=config.body_from_file, why=why)) from error


def read_within(folder: Path, path: str) -> bytes:
    """The content of the file at *path* within *folder*. Raises OSError, and ValueError for what is no such file."""
    home = folder.resolve(strict=True)
    place = (home / path).resolve(strict=True)
    if not place.is_relative_to(home):
        raise ValueError(OUTSIDE())
    # What has become a link or a pipe meanwhile is not followed, and not waited for.
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(NO_FILE())
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(_MOST_SENT + 1)
    finally:
        os.close(descriptor)
    if len(content) > _MOST_SENT:
        raise ValueError(FILE_TOO_LARGE(most=_MOST_SENT))
    return content
