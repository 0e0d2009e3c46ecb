"""Faults that a network, a proxy or an API server really has, played at chosen requests.

    schedule = Schedule([Rule(Refuse(504, after=True), Match(verb="patch", resource="stages"), first=2, times=1)])
    server = Faulty(core, schedule)

A schedule decides by the request alone: who sends it, its verb and path, and how often that came before. So the same
requests meet the same faults whatever comes between them, and a part of a record can be played again.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Literal, Protocol, Self, TypeAlias

import msgspec

from kargo_py.local.apiserver.attributes import Attributes, attributes, user_agent
from kargo_py.local.apiserver.failures import MODIFIED, Failure, conflict, expired, not_found
from kargo_py.local.apiserver.wire import Dropped, Handler, JsonObject, Request, Response, Stream, encode

# What can happen to one request


@dataclass(frozen=True, slots=True)
class Delay:
    """The request, or (*after*) its answer, is under way for a while."""

    seconds: float
    after: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection breaks before the request is read, or (*after*) after it was carried out."""

    after: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """The answer is an error: 409, 410, 429, 500, 503 or 504. *after*: and yet the request was carried out."""

    code: int
    after: bool = False
    retry_after: int = 1
    """Seconds in the header ``Retry-After``, with 429 and 503."""

    def __post_init__(self) -> None:
        if self.code not in {429, *_REFUSALS}:
            raise ValueError(f"Refuse: no text is known for {self.code}; one of {sorted({429, *_REFUSALS})}")


@dataclass(frozen=True, slots=True)
class EndWatch:
    """The watch ends after so many events, bookmarks included.

    ``clean``: as the server ends watches that have lasted long enough. ``cut``: the connection breaks between two
    lines. ``torn``: it breaks in the middle of the line that comes next.
    """

    events: int
    how: Literal["clean", "cut", "torn"] = "cut"


@dataclass(frozen=True, slots=True)
class FreezeWatch:
    """After so many events nothing comes any more, and the connection stays open."""

    events: int = 0


@dataclass(frozen=True, slots=True)
class SlowWatch:
    """Each event is under way for a while, one after the other."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Forget:
    """Before the request the server drops its history, as a compaction does: who watches from before gets 410."""


@dataclass(frozen=True, slots=True)
class Stale:
    """A get or list shows the state some writes ago, but none older than the resourceVersion it asks for.

    Kubernetes may do so where ``resourceVersion`` is given, and never else; a rule can.
    """

    writes: int


Fault: TypeAlias = Delay | Drop | Refuse | EndWatch | FreezeWatch | SlowWatch | Forget | Stale


# Which request


@dataclass(frozen=True, slots=True)
class Match:
    """Requests by what they are about; what is left out matches all. Names may have ``*``, as in file names."""

    verb: str = "*"
    """get, list, watch, create, update, patch, delete, deletecollection; elsewhere the method in small letters."""
    resource: str = "*"
    """The plural."""
    namespace: str = "*"
    name: str = "*"
    subresource: str = "*"
    """"" matches requests to the object itself only."""
    method: str = "*"
    user_agent: str = "*"
    """Up to the first slash."""
    where: Callable[[Request], bool] | None = None
    """A further condition."""

    def __call__(self, request: Request, asked: Attributes) -> bool:
        pairs = (
            (asked.verb, self.verb),
            (asked.resource, self.resource),
            (asked.namespace, self.namespace),
            (asked.name, self.name),
            (asked.subresource, self.subresource),
            (request.method, self.method),
            (user_agent(request), self.user_agent),
        )
        return all(pattern == "*" or fnmatchcase(value, pattern) for value, pattern in pairs) and (
            self.where is None or self.where(request)
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """Play *fault* at requests that match: from the *first* on, *times* of them (None: all), by a probability."""

    fault: Fault
    match: Match = field(default_factory=Match)
    first: int = 1
    times: int | None = None
    probability: float = 1.0


@dataclass(frozen=True, slots=True)
class Happening:
    """One fault that was played: at the *number*-th of all requests, *occurrence*-th of its agent, verb and path."""

    number: int
    agent: str
    verb: str
    path: str
    occurrence: int
    fault: Fault

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What its request is known by in another run."""
        return self.agent, self.verb, self.path, self.occurrence

    def __str__(self) -> str:
        return f"#{self.number} {self.agent} {self.verb} {self.path} ({self.occurrence}): {self.fault!r}"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as schedules see it."""

    number: int
    occurrence: int
    agent: str
    request: Request
    asked: Attributes

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What it is known by in another run."""
        return self.agent, self.asked.verb, self.asked.path, self.occurrence

    def dice(self, *salt: object) -> random.Random:
        """Chance that depends on nothing but the request and *salt*."""
        return random.Random(repr((*salt, *self.key)))  # noqa: S311 - to be repeated


class Schedule:
    """Decides what happens to a request: by rules, which can be added at any time, and perhaps by something else."""

    def __init__(self, rules: Iterable[Rule] = (), *, seed: int = 0) -> None:
        """*seed* decides for the rules that have a probability."""
        self._seed = seed
        self._rules: list[Rule] = [*rules]
        self._matched: Counter[int] = Counter()
        self._more: Callable[[Sent], Sequence[Fault]] = lambda _: ()

    @classmethod
    def random(cls, seed: int, rates: Rates | None = None) -> Self:
        """A schedule that *seed* decides: at each request a delay perhaps, and at most one other fault."""
        schedule = cls(seed=seed)
        schedule._more = partial(_by_chance, seed, rates or Rates())
        return schedule

    @classmethod
    def replay(cls, happenings: Iterable[Happening]) -> Self:
        """A schedule that plays what is in a record, or in a part of one."""
        known: dict[tuple[str, str, str, int], list[Fault]] = {}
        for happening in happenings:
            known.setdefault(happening.key, []).append(happening.fault)
        schedule = cls()
        schedule._more = lambda sent: known.get(sent.key, ())
        return schedule

    def add(self, rule: Rule) -> None:
        """Let *rule* hold from now on."""
        self._rules.append(rule)

    def clear(self) -> None:
        """Take all rules away."""
        self._rules.clear()
        self._matched.clear()

    def faults(self, sent: Sent) -> Sequence[Fault]:
        """All faults of a request; to be called once for each."""
        return [
            *(rule.fault for index, rule in enumerate(self._rules) if self._applies(index, rule, sent)),
            *self._more(sent),
        ]

    def _applies(self, index: int, rule: Rule, sent: Sent) -> bool:
        if not rule.match(sent.request, sent.asked):
            return False
        self._matched[index] += 1
        turn = self._matched[index] - rule.first
        if turn < 0 or (rule.times is not None and turn >= rule.times):
            return False
        return rule.probability >= 1 or sent.dice(self._seed, index).random() < rule.probability


@dataclass(frozen=True, slots=True)
class Rates:
    """How probable each fault is at a request that it can happen to."""

    delay: float = 0.1
    drop_before: float = 0.01
    drop_after: float = 0.01
    conflict: float = 0.01
    throttled: float = 0.01
    failed: float = 0.01
    failed_after: float = 0.005
    timed_out: float = 0.005
    timed_out_after: float = 0.01
    end_watch: float = 0.3
    freeze_watch: float = 0.05
    slow_watch: float = 0.1
    forget: float = 0.02
    stale: float = 0.2
    longest_delay: float = 2.0
    """Seconds; most delays are much shorter."""
    most_events: int = 20
    """Before a watch ends or freezes."""
    most_writes: int = 20
    """That a stale answer lags behind."""


def _by_chance(seed: int, rates: Rates, sent: Sent) -> Sequence[Fault]:
    dice = sent.dice(seed)
    delays: list[Fault] = []
    if dice.random() < rates.delay:
        delays.append(Delay(_seconds(rates, dice), after=dice.random() < 0.5))
    pick = dice.random()
    for rate, make in _possible(rates, sent.request, sent.asked):
        if pick < rate:
            return [*delays, make(dice)]
        pick -= rate
    return delays


def _possible(
    rates: Rates, request: Request, asked: Attributes
) -> Iterator[tuple[float, Callable[[random.Random], Fault]]]:
    """What can happen to the request where all parts do what Kubernetes promises, with its probability."""
    if not asked.resource:
        return
    yield rates.drop_before, lambda _: Drop()
    yield rates.throttled, lambda dice: Refuse(429, retry_after=dice.randint(1, 3))
    yield rates.failed, lambda _: Refuse(500)
    yield rates.timed_out, lambda _: Refuse(504)
    yield rates.forget, lambda _: Forget()
    if asked.writes:
        yield rates.drop_after, lambda _: Drop(after=True)
        yield rates.failed_after, lambda _: Refuse(500, after=True)
        yield rates.timed_out_after, lambda _: Refuse(504, after=True)
        if asked.verb in {"update", "patch", "delete"}:
            yield rates.conflict, lambda _: Refuse(409)
    elif asked.verb == "watch":
        yield rates.end_watch, lambda dice: EndWatch(_events(rates, dice), dice.choice(_ENDINGS))
        yield rates.freeze_watch, lambda dice: FreezeWatch(_events(rates, dice))
        yield rates.slow_watch, lambda dice: SlowWatch(_seconds(rates, dice))
    elif request.parameter("resourceVersion"):
        yield rates.stale, lambda dice: Stale(dice.randint(1, rates.most_writes))


def _seconds(rates: Rates, dice: random.Random) -> float:
    return round(rates.longest_delay * dice.random() ** 3, 4)


def _events(rates: Rates, dice: random.Random) -> int:
    return int(dice.random() ** 2 * (rates.most_events + 1))


# Playing them


class History(Protocol):
    """What forgetting and stale answers need of a server."""

    version: int
    """Of the last write."""

    def forget(self) -> None:
        """Drop what happened up to now."""


class Faulty:
    """Stands before *server* and plays what *schedule* says; ``happened`` is the record."""

    def __init__(self, server: Handler, schedule: Schedule | None = None, *, history: History | None = None) -> None:
        """*history* is the server's; without it a Forget or Stale raises ValueError."""
        self.schedule = schedule or Schedule()
        self.happened: list[Happening] = []
        self._server = server
        self._history = history
        self._number = 0
        self._occurrences: Counter[tuple[str, str, str]] = Counter()

    async def handle(self, request: Request) -> Response | Stream:
        """Answer *request*, or do not; raises Dropped."""
        sent = self._sent(request)
        faults = self.schedule.faults(sent)
        self.happened += [Happening(sent.number, *sent.key, fault) for fault in faults]
        for fault in faults:
            await self._before(fault, sent.asked)
        answer = await self._answer(request, sent.asked, faults)
        for fault in faults:
            answer = await _after(fault, answer, sent.asked)
        return answer

    def _sent(self, request: Request) -> Sent:
        asked = attributes(request)
        agent = user_agent(request)
        self._number += 1
        self._occurrences[agent, asked.verb, asked.path] += 1
        return Sent(self._number, self._occurrences[agent, asked.verb, asked.path], agent, request, asked)

    async def _before(self, fault: Fault, asked: Attributes) -> None:
        match fault:
            case Delay(seconds, after=False):
                await asyncio.sleep(seconds)
            case Drop(after=False):
                raise Dropped(carried_out=False)
            case Forget():
                self._needed_history(fault).forget()

    async def _answer(self, request: Request, asked: Attributes, faults: Sequence[Fault]) -> Response | Stream:
        for fault in faults:
            if isinstance(fault, Refuse) and not fault.after:
                return _refusal(fault, asked)
            if isinstance(fault, Stale) and (seen := self._seen_late(fault, request, asked)) is not None:
                return await _state_at(self._server, seen, request, asked)
        return await self._server.handle(request)

    def _seen_late(self, fault: Stale, request: Request, asked: Attributes) -> int | None:
        """The version that is shown; None where the request asks for something else than a recent state."""
        latest = self._needed_history(fault).version
        at_least = request.parameter("resourceVersion") or "0"
        if len(at_least) > _MOST_DIGITS:
            return None
        exact = request.parameter("resourceVersionMatch") == "Exact" or request.parameter("continue")
        if (
            exact
            or not asked.resource
            or asked.verb not in {"get", "list"}
            or not at_least.isdecimal()
            or int(at_least) > latest
        ):
            return None
        return max(latest - fault.writes, int(at_least), 1)

    def _needed_history(self, fault: Fault) -> History:
        if self._history is None:
            raise ValueError(f"{fault!r} needs the server's history: Faulty(server, schedule, history=server.store)")
        return self._history


async def _state_at(server: Handler, version: int, request: Request, asked: Attributes) -> Response | Stream:
    """The answer that *request* would have got at *version*; the present one where that is forgotten."""
    query = {name: value for name, value in request.query if name not in {"resourceVersion", "resourceVersionMatch"}}
    exact = {"resourceVersion": str(version), "resourceVersionMatch": "Exact"}
    if asked.verb == "list":
        answer = await server.handle(replace(request, query=[*{**query, **exact}.items()]))
        return await server.handle(request) if answer.code == 410 else answer
    if any(other in request.headers.get("accept", "") for other in ("as=", "yaml")):
        return await server.handle(request)
    path = request.path.rstrip("/").rsplit("/", 2 if asked.subresource else 1)[0]
    only = {"fieldSelector": f"metadata.name={asked.name}", **exact}
    answer = await server.handle(replace(request, path=path, query=[*only.items()]))
    if not isinstance(answer, Response) or answer.code != 200:
        return await server.handle(request)
    found = msgspec.json.decode(answer.body, type=_Found)
    if not found.items:
        return not_found(asked.group, asked.resource, asked.name).response()
    kind = {"kind": found.kind.removesuffix("List"), "apiVersion": found.apiVersion}
    return replace(answer, body=encode({**kind, **found.items[0]}))


class _Found(msgspec.Struct):
    kind: str
    apiVersion: str  # noqa: N815 - the wire's name
    items: list[JsonObject]


async def _after(fault: Fault, answer: Response | Stream, asked: Attributes) -> Response | Stream:
    match fault:
        case Delay(seconds, after=True):
            await asyncio.sleep(seconds)
        case Drop(after=True):
            await _discard(answer)
            raise Dropped(carried_out=True)
        case Refuse(after=True):
            await _discard(answer)
            return _refusal(fault, asked)
        case EndWatch() if isinstance(answer, Stream):
            return replace(answer, lines=_ended(answer.lines, fault))
        case FreezeWatch(events) if isinstance(answer, Stream):
            return replace(answer, lines=_frozen(answer.lines, events))
        case SlowWatch(seconds) if isinstance(answer, Stream):
            return replace(answer, lines=_slow(answer.lines, seconds))
    return answer


async def _discard(answer: Response | Stream) -> None:
    if isinstance(answer, Stream):
        await answer.lines.aclose()


async def _ended(lines: AsyncGenerator[bytes], fault: EndWatch) -> AsyncGenerator[bytes]:
    async with aclosing(lines):
        left = fault.events
        while left or fault.how == "torn":
            line = await anext(lines, None)
            if line is None:
                return
            if not left:
                yield line[: len(line) // 2]
                break
            yield line
            left -= 1
        if fault.how != "clean":
            raise Dropped(carried_out=True)


async def _frozen(lines: AsyncGenerator[bytes], events: int) -> AsyncGenerator[bytes]:
    async with aclosing(lines):
        for _ in range(events):
            line = await anext(lines, None)
            if line is None:
                return
            yield line
        await asyncio.Event().wait()


async def _slow(lines: AsyncGenerator[bytes], seconds: float) -> AsyncGenerator[bytes]:
    async with aclosing(lines):
        async for line in lines:
            await asyncio.sleep(seconds)
            yield line


def _refusal(fault: Refuse, asked: Attributes) -> Response:
    if fault.code == 429:  # as the real server's priority and fairness says it: no Status
        headers = {"Retry-After": str(fault.retry_after), "X-Content-Type-Options": "nosniff"}
        return Response(429, b"Too many requests, please try again later.\n", "text/plain; charset=utf-8", headers)
    failure = _REFUSALS[fault.code](asked)
    if fault.code == 500 and fault.after:
        failure.message = "etcdserver: request timed out"
    if fault.code == 503:
        failure.headers["Retry-After"] = str(fault.retry_after)
    return failure.response()


_MOST_DIGITS = 20
"""Of a number of 64 bits."""
_ENDINGS: Sequence[Literal["clean", "cut", "torn"]] = ("clean", "cut", "torn")

_LATE = "Timeout: request did not complete within requested timeout - context deadline exceeded"
_REFUSALS: Mapping[int, Callable[[Attributes], Failure]] = {
    409: lambda asked: conflict(asked.group, asked.resource, asked.name, MODIFIED),
    410: lambda _: expired("The resourceVersion for the provided watch is too old."),
    500: lambda _: Failure(500, "", "etcdserver: leader changed"),
    503: lambda _: Failure(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    504: lambda _: Failure(504, "Timeout", _LATE, {}),
}
