"""Faults: what each does, when it is played, and that a seed or a record plays it again. In simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import replace

import looptime
import pytest
from hypothesis import given, settings, strategies as st

from kargo_py.local.apiserver import faults
from kargo_py.local.apiserver.faults import (
    Delay,
    Drop,
    EndWatch,
    Fault,
    Faulty,
    Forget,
    FreezeWatch,
    Happening,
    Match,
    Rates,
    Refuse,
    Rule,
    Schedule,
    SlowWatch,
    Stale,
)
from kargo_py.local.apiserver.wire import Dropped, Request, Response, Stream, encode
from tests.local.apiserver.stubs import Core, collect, content, request

pytestmark = pytest.mark.looptime

POD = "/api/v1/namespaces/ns/pods/a"
STAGE = "/apis/kargo.akuity.io/v1alpha1/namespaces/ns/stages/a"


def faulty(*played: Fault, core: Core | None = None) -> tuple[Faulty, Core]:
    core = core or Core()
    return Faulty(core, Schedule([Rule(fault) for fault in played])), core


class TestEffects:
    """Each fault by itself."""

    async def test_none(self) -> None:
        """Without a rule the answer is the server's own, and nothing is recorded."""
        server, core = faulty()
        assert content(await server.handle(request(f"GET {POD}")))["path"] == POD
        assert (len(core.asked), server.happened) == (1, [])

    @pytest.mark.parametrize("after", [False, True])
    async def test_delay(self, after: bool) -> None:
        """The server sees the request after the delay, or the client the answer."""
        seen: list[float] = []
        loop = asyncio.get_running_loop()
        begun = loop.time()

        async def answer(_: Request) -> Response:
            seen.append(loop.time() - begun)
            return Response(200, b"{}")

        server, _ = faulty(Delay(5, after=after), core=Core(answer))
        await server.handle(request(f"GET {POD}"))
        assert seen == [pytest.approx(0 if after else 5)]
        assert loop.time() - begun == pytest.approx(5)

    @pytest.mark.parametrize("after", [False, True])
    async def test_drop(self, after: bool) -> None:
        """The connection breaks, and whether the request was carried out is as told."""
        server, core = faulty(Drop(after=after))
        with pytest.raises(Dropped) as raised:
            await server.handle(request(f"PATCH {POD}"))
        assert raised.value.carried_out is after
        assert len(core.asked) == after

    @pytest.mark.parametrize("after", [False, True])
    @pytest.mark.parametrize(
        ("code", "reason", "words"),
        [
            (
                409,
                "Conflict",
                'Operation cannot be fulfilled on stages.kargo.akuity.io "a": the object has been modified',
            ),
            (410, "Expired", "The resourceVersion for the provided watch is too old."),
            (500, None, "etcdserver: "),
            (503, "ServiceUnavailable", "the server is currently unable to handle the request"),
            (504, "Timeout", "Timeout: request did not complete within requested timeout - context deadline exceeded"),
        ],
    )
    async def test_refuse(self, code: int, reason: str | None, words: str, after: bool) -> None:
        """The code, with the real server's Status; the effect is there only where told."""
        server, core = faulty(Refuse(code, after=after))
        answer = await server.handle(request(f"PATCH {STAGE}"))
        status = content(answer)
        assert (answer.code, status["code"], status.get("reason")) == (code, code, reason)
        assert status["message"].startswith(words)
        assert len(core.asked) == after

    @pytest.mark.parametrize("code", [429, 503])
    async def test_retry_after(self, code: int) -> None:
        """These say when to come again; 429 is no Status, as the real server's priority and fairness sends it."""
        server, _ = faulty(Refuse(code, retry_after=7))
        answer = await server.handle(request(f"GET {POD}"))
        assert isinstance(answer, Response)
        assert (answer.code, answer.headers["Retry-After"]) == (code, "7")
        if code == 429:
            assert answer.body == b"Too many requests, please try again later.\n"
            assert answer.content_type == "text/plain; charset=utf-8"

    def test_unknown_code(self) -> None:
        """A code that nothing is known to say is no fault."""
        with pytest.raises(ValueError, match="no text is known for 418"):
            Refuse(418)

    @pytest.mark.parametrize(
        ("fault", "lines", "broken"),
        [
            (EndWatch(0, "clean"), [], False),
            (EndWatch(2, "clean"), [b"line 1\n", b"line 2\n"], False),
            (EndWatch(0, "cut"), [], True),
            (EndWatch(2, "cut"), [b"line 1\n", b"line 2\n"], True),
            (EndWatch(0, "torn"), [b"lin"], True),
            (EndWatch(1, "torn"), [b"line 1\n", b"lin"], True),
            (EndWatch(9, "torn"), [b"line 1\n", b"line 2\n", b"line 3\n"], False),
            (EndWatch(9, "cut"), [b"line 1\n", b"line 2\n", b"line 3\n"], False),
        ],
    )
    async def test_end_watch(self, fault: Fault, lines: Sequence[bytes], broken: bool) -> None:
        """The watch ends after so many events, as told; the server's stream is closed."""
        server, core = faulty(fault)
        for line in (b"line 1\n", b"line 2\n", b"line 3\n", None):
            core.lines.put_nowait(line)
        assert await collect(await server.handle(request("GET /api/v1/pods?watch=1"))) == (lines, broken)
        assert core.closed.is_set() or lines == []

    async def test_freeze_watch(self) -> None:
        """After one event nothing comes, for any time; closing it closes the server's stream."""
        server, core = faulty(FreezeWatch(1))
        for line in (b"1\n", b"2\n", None):
            core.lines.put_nowait(line)
        answer = await server.handle(request("GET /api/v1/pods?watch=1"))
        assert isinstance(answer, Stream)
        assert await anext(answer.lines) == b"1\n"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100_000):
                await anext(answer.lines)
        await answer.lines.aclose()
        assert core.closed.is_set()

    async def test_slow_watch(self) -> None:
        """Each event takes its time, and none is lost or turned round."""
        server, core = faulty(SlowWatch(3))
        for line in (b"1\n", b"2\n", None):
            core.lines.put_nowait(line)
        begun = asyncio.get_running_loop().time()
        assert await collect(await server.handle(request("GET /api/v1/pods?watch=1"))) == ([b"1\n", b"2\n"], False)
        assert asyncio.get_running_loop().time() - begun == pytest.approx(6)

    @pytest.mark.parametrize("fault", [Drop(after=True), Refuse(504, after=True)])
    async def test_stream_that_nobody_gets(self, fault: Fault) -> None:
        """A watch that is dropped or refused after it was begun does not go on in the server."""
        closed = False

        async def lines() -> AsyncGenerator[bytes]:
            nonlocal closed
            try:
                yield b"1\n"
                yield b"2\n"
            finally:
                closed = True

        stream = lines()
        await anext(stream)

        async def answer(_: Request) -> Stream:
            return Stream(200, stream)

        server, _ = faulty(fault, core=Core(answer))
        with suppress(Dropped):
            await server.handle(request("GET /api/v1/pods?watch=1"))
        assert closed

    @pytest.mark.parametrize("fault", [EndWatch(0), FreezeWatch(0), SlowWatch(9)])
    async def test_watch_faults_spare_other_answers(self, fault: Fault) -> None:
        """They mean nothing to an answer that is whole."""
        server, _ = faulty(fault)
        assert content(await server.handle(request(f"GET {POD}")))["path"] == POD

    async def test_several(self) -> None:
        """A late refusal is played after a delay, in one request."""
        server, core = faulty(Delay(5), Refuse(504, after=True))
        begun = asyncio.get_running_loop().time()
        assert (await server.handle(request(f"PATCH {POD}"))).code == 504
        assert asyncio.get_running_loop().time() - begun == pytest.approx(5)
        assert len(core.asked) == 1


class Versions:
    """A history, and a core that answers exact lists from it."""

    def __init__(self, version: int, oldest: int = 1) -> None:
        self.version = version
        self.oldest = oldest

    def forget(self) -> None:
        self.oldest = self.version

    async def answer(self, asked: Request) -> Response:
        version = int(asked.parameter("resourceVersion") or self.version)
        if asked.parameter("resourceVersionMatch") == "Exact":
            if version < self.oldest:
                return Response(410, b"{}")
        else:
            version = self.version
        pods = [{"metadata": {"name": "a", "resourceVersion": str(version)}}] if version > 5 else []
        if asked.path.endswith("/pods"):
            document = {"kind": "PodList", "apiVersion": "v1", "items": pods, "query": dict(asked.query)}
            return Response(200, encode(document))
        return Response(200, encode({"kind": "Pod", "apiVersion": "v1", **pods[0]}))


def remembering(fault: Fault, *, oldest: int = 1) -> tuple[Faulty, Versions]:
    versions = Versions(20, oldest)
    return Faulty(Core(versions.answer), Schedule([Rule(fault)]), history=versions), versions


class TestHistory:
    """Forgetting, and answers of yesterday."""

    async def test_forget(self) -> None:
        """The history goes before the request is looked at."""
        server, versions = remembering(Forget())
        await server.handle(request("GET /api/v1/pods"))
        assert versions.oldest == 20

    @pytest.mark.parametrize(
        ("query", "shown"),
        [
            ("", 17),
            ("?resourceVersion=0", 17),
            ("?resourceVersion=18", 18),
            ("?resourceVersion=18&resourceVersionMatch=NotOlderThan", 18),
            ("?resourceVersion=12", 17),
        ],
    )
    async def test_stale_list(self, query: str, shown: int) -> None:
        """The state three writes ago, but none that is older than what the client has seen already."""
        server, _ = remembering(Stale(3))
        found = content(
            await server.handle(request(f"GET /api/v1/pods{query}&labelSelector=x" if query else "GET /api/v1/pods"))
        )
        assert [pod["metadata"]["resourceVersion"] for pod in found["items"]] == [str(shown)]
        assert found["query"].get("labelSelector") == ("x" if query else None)

    @pytest.mark.parametrize("path", ["/api/v1/namespaces/ns/pods/a", "/api/v1/namespaces/ns/pods/a/status"])
    async def test_stale_get(self, path: str) -> None:
        """One object, as a get shows it; absent if it was so then."""
        server, _ = remembering(Stale(3))
        assert content(await server.handle(request(f"GET {path}"))) == {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": "a", "resourceVersion": "17"},
        }
        server, _ = remembering(Stale(15))
        answer = await server.handle(request(f"GET {path}"))
        assert (answer.code, content(answer)["message"]) == (404, 'pods "a" not found')

    @pytest.mark.parametrize(
        "line",
        [
            "GET /api/v1/pods?resourceVersion=15&resourceVersionMatch=Exact",
            "GET /api/v1/pods?continue=x",
            "GET /api/v1/pods?resourceVersion=99",
            "GET /api/v1/pods?resourceVersion=x",
            "PATCH /api/v1/namespaces/ns/pods/a",
        ],
    )
    async def test_never_stale(self, line: str) -> None:
        """Who asks for one certain state, or writes, reaches the server as it is."""
        asked = request(line)
        versions = Versions(20)
        core = Core()
        server = Faulty(core, Schedule([Rule(Stale(3))]), history=versions)
        await server.handle(asked)
        assert core.asked == [asked]

    @pytest.mark.parametrize("path", ["/api/v1/pods", "/api/v1/namespaces/ns/pods/a"])
    async def test_forgotten(self, path: str) -> None:
        """What is no longer known cannot be shown: the answer is the present one."""
        server, _ = remembering(Stale(3), oldest=19)
        answer = content(await server.handle(request(f"GET {path}")))
        assert answer.get("items", [answer])[0]["metadata"]["resourceVersion"] == "20"

    @pytest.mark.parametrize("fault", [Forget(), Stale(3)])
    async def test_no_history(self, fault: Fault) -> None:
        """Such a fault without a history is a mistake of the test that asks for it."""
        server, _ = faulty(fault)
        with pytest.raises(ValueError, match="needs the server's history"):
            await server.handle(request(f"GET {POD}"))


class TestMatch:
    """Which requests a rule is about."""

    @pytest.mark.parametrize(
        ("match", "line", "agent"),
        [
            (Match(), "GET /healthz", ""),
            (
                Match(verb="patch", resource="stages", namespace="ns", name="a", subresource="status"),
                f"PATCH {STAGE}/status",
                "",
            ),
            (Match(subresource=""), f"PATCH {STAGE}", ""),
            (Match(verb="watch"), "GET /api/v1/pods?watch=1", ""),
            (Match(verb="list"), "GET /api/v1/pods", ""),
            (Match(method="PUT"), f"PUT {POD}", ""),
            (Match(user_agent="kargo*"), f"PUT {POD}", "kargo-py/1.0"),
            (Match(name="dev.*"), "GET /api/v1/pods/dev.1", ""),
            (Match(where=lambda asked: b"x" in asked.body), f"PUT {POD}", ""),
        ],
    )
    async def test_matches(self, match: Match, line: str, agent: str) -> None:
        """Every part that is given has to fit."""
        server = Faulty(Core(), Schedule([Rule(Drop(), match)]))
        with pytest.raises(Dropped):
            await server.handle(request(line, agent=agent, body=b"x"))

    @pytest.mark.parametrize(
        "match",
        [
            Match(verb="update"),
            Match(resource="stage"),
            Match(namespace="n"),
            Match(name="b"),
            Match(subresource=""),
            Match(method="patch"),
            Match(user_agent="kargo"),
            Match(where=lambda _: False),
            Match(verb="patch", name="b"),
        ],
    )
    async def test_does_not_match(self, match: Match) -> None:
        """One part that does not fit is enough."""
        server = Faulty(Core(), Schedule([Rule(Drop(), match)]))
        assert (await server.handle(request(f"PATCH {STAGE}/status"))).code == 200
        assert server.happened == []

    @pytest.mark.parametrize(
        ("rule", "dropped"),
        [
            (Rule(Drop()), [1, 2, 3, 4]),
            (Rule(Drop(), times=2), [1, 2]),
            (Rule(Drop(), first=3), [3, 4]),
            (Rule(Drop(), first=2, times=1), [2]),
            (Rule(Drop(), probability=0), []),
        ],
    )
    async def test_turns(self, rule: Rule, dropped: list[int]) -> None:
        """A rule counts the requests that match it, and no others."""
        schedule = Schedule([Rule(rule.fault, Match(method="PUT"), rule.first, rule.times, rule.probability)])
        server = Faulty(Core(), schedule)
        found = []
        for turn in range(1, 5):
            await server.handle(request(f"GET {POD}"))
            try:
                await server.handle(request(f"PUT {POD}"))
            except Dropped:
                found.append(turn)
        assert found == dropped

    async def test_add_and_clear(self) -> None:
        """Rules can come and go while the server runs."""
        server, _ = faulty()
        server.schedule.add(Rule(Refuse(500)))
        assert (await server.handle(request(f"GET {POD}"))).code == 500
        server.schedule.clear()
        assert (await server.handle(request(f"GET {POD}"))).code == 200
        assert [str(happening) for happening in server.happened] == [
            f"#1 test get {POD} (1): Refuse(code=500, after=False, retry_after=1)"
        ]

    async def test_probability(self) -> None:
        """It is met in the long run, and the seed decides where."""

        async def played(seed: int) -> list[int]:
            server = Faulty(Core(), Schedule([Rule(Refuse(500), probability=0.3)], seed=seed))
            for _ in range(400):
                await server.handle(request(f"GET {POD}"))
            return [happening.number for happening in server.happened]

        assert 80 < len(await played(1)) < 160
        assert await played(1) == await played(1)
        assert await played(1) != await played(2)


LINES = [
    f"GET {POD}",
    f"PATCH {STAGE}/status",
    f"DELETE {STAGE}",
    "POST /api/v1/namespaces/ns/pods",
    "GET /api/v1/pods?resourceVersion=0",
    "GET /api/v1/pods?watch=1",
    "GET /healthz",
]
ALL = Rates(
    delay=0.1,
    drop_before=0.08,
    drop_after=0.08,
    conflict=0.08,
    throttled=0.08,
    failed=0.08,
    failed_after=0.08,
    timed_out=0.08,
    timed_out_after=0.08,
    end_watch=0.1,
    freeze_watch=0.1,
    slow_watch=0.1,
    forget=0.08,
    stale=0.2,
)
NONE = Rates(*[0] * 14)


async def history_of(schedule: Schedule, lines: Sequence[str]) -> list[Happening]:
    """What is played at requests that come one after the other."""

    async def answer(asked: Request) -> Response | Stream:
        return (
            await Core().handle(asked)
            if asked.parameter("watch")
            else Response(200, b'{"kind":"","apiVersion":"","items":[]}')
        )

    server = Faulty(Core(answer), schedule, history=Versions(100))
    for line in lines:
        try:
            await server.handle(request(line))
        except Dropped:
            continue
    return server.happened


class TestRandom:
    """Schedules of a seed."""

    @given(st.integers(), st.lists(st.sampled_from(LINES), max_size=60))
    @settings(max_examples=20)
    def test_replays(self, seed: int, lines: list[str]) -> None:
        """The same seed does the same to the same requests, and so does the record."""
        first, again = (play(Schedule.random(seed, ALL), lines) for _ in range(2))
        assert first == again == play(Schedule.replay(first), lines)

    @given(st.integers(), st.lists(st.sampled_from(LINES), max_size=60), st.data())
    @settings(max_examples=20)
    def test_part_of_a_record(self, seed: int, lines: list[str], data: st.DataObject) -> None:
        """Of a part of a record just that part is played: a history can be made shorter."""
        record = play(Schedule.random(seed, ALL), lines)
        part = [happening for happening in record if data.draw(st.booleans())]
        assert play(Schedule.replay(part), lines) == part

    @given(st.integers())
    @settings(max_examples=20)
    def test_other_requests_do_not_matter(self, seed: int) -> None:
        """What happens to a request is the same whatever others come between."""
        alone = play(Schedule.random(seed, ALL), [f"PATCH {STAGE}/status"] * 20)
        among = play(Schedule.random(seed, ALL), [f"PATCH {STAGE}/status", f"GET {POD}"] * 20)
        assert [(h.key, h.fault) for h in alone] == [(h.key, h.fault) for h in among if h.verb == "patch"]

    def test_everything_happens(self) -> None:
        """Every kind of fault is met, and only where it can be: a record reads as Python."""
        record = play(Schedule.random(1, ALL), LINES * 300)
        assert {type(happening.fault) for happening in record} == {*faults.Fault.__args__}
        assert {h.fault.code for h in record if isinstance(h.fault, Refuse)} == {409, 429, 500, 504}
        for happening in record:
            fault = happening.fault
            assert eval(repr(happening), vars(faults)) == happening
            assert not (happening.path == "/healthz" and not isinstance(fault, Delay))
            if isinstance(fault, EndWatch | FreezeWatch | SlowWatch):
                assert happening.verb == "watch"
            if isinstance(fault, Stale):
                assert (happening.verb, happening.path) == ("list", "/api/v1/pods")
            if isinstance(fault, Refuse | Drop) and (fault.after or fault == Refuse(409)):
                assert happening.verb in {"patch", "delete", "create"}

    def test_no_rates(self) -> None:
        """With all rates at nought nothing happens."""
        assert play(Schedule.random(1, NONE), LINES * 50) == []
        only = play(Schedule.random(1, replace(NONE, conflict=0.5)), LINES * 50)
        assert {happening.fault for happening in only} == {Refuse(409)}

    def test_seeds_differ(self) -> None:
        """Another seed is another day."""
        assert play(Schedule.random(1), LINES * 50) != play(Schedule.random(2), LINES * 50)


def play(schedule: Schedule, lines: Sequence[str]) -> list[Happening]:
    """The record, in simulated time."""
    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        return runner.run(history_of(schedule, lines))
