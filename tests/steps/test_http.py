"""The step http: a call of it, and whole Promotions with it in simulated time."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx
import pytest

from kargo_py.api.names import Actor
from kargo_py.api.promotion import StepStatus
from kargo_py.controllers.running import Options, assemble
from kargo_py.expressions.hiding import Secrets
from kargo_py.kube.clock import utc_now
from kargo_py.local.apiserver.client import client_of
from kargo_py.local.apiserver.server import ApiServer
from kargo_py.steps.base import Erred, Finished, StepContext, StepOutcome
from kargo_py.steps.http import Http, idempotency_key, read_within
from kargo_py.steps.http_addresses import AddressRules
from kargo_py.steps.http_config import HttpConfig
from kargo_py.steps.http_exchange import Exchange
from kargo_py.steps.step import Effect, StepFailed, WorkDirUse
from tests.protocol.universe import NOON, Process, Universe, universe

URL = "http://api.example.com/v1/s3cret?token=s3cret"
Handler = Callable[[httpx.Request], Coroutine[None, None, httpx.Response]]


def step(handler: Handler, rules: AddressRules = AddressRules()) -> Http:  # noqa: B008 - it is frozen
    return Http(lambda: Exchange(rules, connect=lambda _: httpx.MockTransport(handler)))


def context(config: Any, **fields: Any) -> StepContext:
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    names = {"instance": "i", "project": "shop", "stage": "dev", "promotion": "p1", "promotion_uid": "uid-1"}
    return StepContext(
        **{**names, "actor": Actor.of("me"), "alias": "call", "config": config, "now": now, "started_at": now, **fields}
    )


def answering(*answers: httpx.Response | Exception) -> tuple[Handler, list[httpx.Request]]:
    """One answer after the other, the last one again and again; and what was asked."""
    asked: list[httpx.Request] = []

    async def handler(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        answer = answers[min(len(asked), len(answers) - 1)]
        asked.append(request)
        if isinstance(answer, httpx.TransportError):
            await request.extensions["trace"]("http11.send_request_headers.started", {})
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    return handler, asked


async def called(answer: httpx.Response | Exception, **config: Any) -> tuple[StepOutcome, httpx.Request]:
    handler, asked = answering(answer)
    outcome = await step(handler).run(context({"url": URL, **config}))
    return outcome, asked[0]


class TestCall:
    async def test_request(self) -> None:
        """The configuration is what is sent."""
        outcome, asked = await called(
            httpx.Response(200, json={"id": 7}),
            method="PUT",
            headers=[{"name": "X-A", "value": "b"}],
            queryParams=[{"name": "q", "value": "x y"}],
            body='{"a": "ü"}',
            outputs=[{"name": "id", "fromExpression": "response.body.id"}],
        )

        assert outcome == Finished(StepStatus.SUCCEEDED, output={"id": 7})
        assert (asked.method, str(asked.url)) == ("PUT", f"{URL}&q=x+y")
        assert asked.headers["x-a"] == "b"
        assert asked.content.decode() == '{"a": "ü"}'

    async def test_dates(self) -> None:
        """They are compared with the wall clock, which may have been set since the step began."""
        handler, _ = answering(httpx.Response(503, headers={"Retry-After": "Tue, 01 Dec 2026 12:00:30 GMT"}))
        here = context({"url": URL}, threshold=3, wall_clock=datetime(2026, 12, 1, 12, tzinfo=UTC))
        outcome = await step(handler).run(here)

        assert isinstance(outcome, Erred)
        assert outcome.retry_after == 30

    async def test_configuration(self) -> None:
        """What is wrong is told, and nothing is sent."""
        handler, asked = answering(httpx.Response(200))
        outcome = await step(handler).run(context({"url": "ftp://a"}))

        assert isinstance(outcome, Finished)
        assert outcome.status is StepStatus.FAILED
        assert outcome.message.startswith("invalid configuration: config.url: is no URL")
        assert asked == []

    async def test_address(self) -> None:
        """So is an address that is not talked to."""
        outcome = await step(answering(httpx.Response(200))[0]).run(context({"url": "http://169.254.169.254/"}))

        assert isinstance(outcome, Finished)
        assert outcome.status is StepStatus.FAILED
        assert "is a link-local address" in outcome.message

    @pytest.mark.parametrize(
        ("method", "transient"),
        [("GET", True), ("HEAD", True), ("PUT", True), ("DELETE", True), ("POST", False), ("PATCH", False)],
    )
    async def test_no_answer(self, method: str, transient: bool) -> None:
        """What was sent and not answered is sent again by itself only if that does no harm."""
        outcome, _ = await called(httpx.ReadError("gone"), method=method)

        assert isinstance(outcome, Erred)
        assert (outcome.transient, outcome.failed) == (transient, False)
        assert outcome.message.startswith("http://api.example.com did not answer: gone")
        assert outcome.message.endswith("whether it was carried out is not known") is not transient
        assert "s3cret" not in outcome.message

    async def test_not_sent(self) -> None:
        """What was not sent is."""
        outcome, _ = await called(OSError(111, "refused"), method="POST")

        assert outcome == Erred("no connection to http://api.example.com: refused", transient=True)

    async def test_too_large(self) -> None:
        """An answer that is too large is an error that counts."""
        outcome, _ = await called(httpx.Response(200, content=bytes(2**21 + 1)))

        assert isinstance(outcome, Erred)
        assert not outcome.transient
        assert "more than 2097152 bytes" in outcome.message

    async def test_large(self) -> None:
        """A large one is judged beside the event loop."""
        outcome, _ = await called(
            httpx.Response(200, json={"a": "x" * 200_000}),
            outputs=[{"name": "n", "fromExpression": "len(response.body.a)"}],
        )

        assert outcome == Finished(StepStatus.SUCCEEDED, output={"n": 200_000})

    async def test_what_is_said(self) -> None:
        """Neither path nor query are in a message, nor what an expression was made of."""
        secret = {"successExpression": "response.body.token.s3cret == 's3cret' && response.body.a.b"}
        for outcome in (
            (await called(httpx.Response(200, json={}), successExpression="response.status == 0"))[0],
            (await called(httpx.Response(500)))[0],
            (await called(httpx.Response(200, json={}), **secret))[0],
        ):
            assert not isinstance(outcome, Finished) or outcome.status is StepStatus.FAILED
            assert "api.example.com" in getattr(outcome, "message", "")
            assert "v1" not in getattr(outcome, "message", "")

    async def test_what_is_said_of_a_secret_in_an_expression(self) -> None:
        """It is known for one by the mask of the context; what becomes of it in the expression is not."""
        secrets = Secrets()
        secrets.add("hunter2x")
        wanted = {"url": URL, "successExpression": "int(upper('hunter2x')) == response.status"}
        outcome = await step(answering(httpx.Response(200))[0]).run(context(wanted, mask=secrets.mask))

        assert isinstance(outcome, Erred)
        assert "cannot be evaluated, and why is not told" in outcome.message

    @pytest.mark.parametrize(
        ("method", "effect"),
        [("GET", Effect.NONE), ("OPTIONS", Effect.NONE), ("POST", Effect.ONCE), ("PUT", Effect.ONCE)],
    )
    def test_effect(self, method: str, effect: Effect) -> None:
        """What only reads has none."""
        http = step(answering(httpx.Response(200))[0])
        assert http.effect(http.read_config({"url": URL, "method": method})) is effect


class TestIdempotencyKey:
    @pytest.mark.parametrize(
        ("method", "sent"), [("GET", None), ("HEAD", None), ("POST", "uid-1/call/1"), ("PATCH", "uid-1/call/1")]
    )
    async def test_sent(self, method: str, sent: str | None) -> None:
        """With what changes something."""
        _, asked = await called(httpx.Response(200), method=method)
        assert asked.headers.get("Idempotency-Key") == sent

    async def test_given(self) -> None:
        """Unless there is one."""
        own = [{"name": "idempotency-key", "value": "mine"}]
        _, asked = await called(httpx.Response(200), method="POST", headers=own)
        assert asked.headers.get_list("Idempotency-Key") == ["mine"]

    @pytest.mark.parametrize(
        ("seconds", "fields", "number"),
        [
            *((0, {}, 1), (1000, {}, 1), (-5, {}, 1), (29, {"successExpression": "true"}, 1)),
            *((31, {"successExpression": "true"}, 2), (31, {"failureExpression": "true", "pollInterval": "10s"}, 4)),
        ],
    )
    def test_number(self, seconds: float, fields: dict[str, Any], number: int) -> None:
        """All attempts to get one answer are one request; each poll is another."""
        http = step(answering(httpx.Response(200))[0])
        here = context({}, alias="a::ü b", promotion_uid="u")
        here = context({}, alias="a::ü b", now=here.started_at + timedelta(seconds=seconds))

        assert idempotency_key(http.read_config({"url": URL, **fields}), here) == f"uid-1/a%3A%3A%C3%BC%20b/{number}"


async def test_excluded_by_the_controllers() -> None:
    """What ``--http-deny`` names is not called by the step that a controller makes."""
    client = client_of(ApiServer(now=utc_now))
    world = assemble(client, client, "i", Options(http_denied=[ip_network("127.0.0.0/8")])).world

    outcome = await world.steps["http"].run(context({"url": "http://127.0.0.1:1/"}))

    assert isinstance(outcome, Finished)
    assert outcome.message == (
        "http://127.0.0.1:1 is not called: 127.0.0.1 is in 127.0.0.0/8, which --http-deny excludes"
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A working directory with files, and with what is none."""
    home = tmp_path / "work"
    (home / "out").mkdir(parents=True)
    (home / "out/body").write_bytes(b"\x00content")
    (home / "large").write_bytes(bytes(8 * 2**20 + 1))
    (tmp_path / "outside").write_text("secret")
    for link, target in {"link": "out/body", "away": "../outside", "chain": "away", "loop": "loop"}.items():
        (home / link).symlink_to(target)
    os.mkfifo(home / "pipe")
    return home


class TestBodyFromFile:
    def test_use_of_the_directory(self) -> None:
        """Only where there is such a field."""
        http = Http(lambda: Exchange(AddressRules()))
        assert http.work_dir_use_of({"url": URL, "bodyFromFile": "${{ vars.file }}"}) is WorkDirUse.READS
        assert http.work_dir_use_of({"url": URL}) is WorkDirUse.NONE
        assert http.work_dir_use_of(None) is WorkDirUse.NONE

    @pytest.mark.parametrize("path", ["out/body", "./out/../out/body", "link"])
    async def test_sent(self, home: Path, path: str) -> None:
        """The file is what is sent."""
        handler, asked = answering(httpx.Response(200))
        outcome = await step(handler).run(context({"url": URL, "method": "POST", "bodyFromFile": path}, work_dir=home))

        assert outcome == Finished(StepStatus.SUCCEEDED, output={})
        assert asked[0].content == b"\x00content"

    @pytest.mark.parametrize(
        ("path", "why"),
        [
            *(("../outside", "not within"), ("/etc/passwd", "not within"), ("away", "not within")),
            *(
                ("chain", "not within"),
                ("missing", "No such file"),
                ("out", "it is no file"),
                ("pipe", "it is no file"),
            ),
            *(("a\x00b", "null byte"), ("large", "more than 8388608 bytes"), ("loop", "loop|Too many")),
        ],
    )
    async def test_refused(self, home: Path, path: str, why: str) -> None:
        """Nothing leads out of the working directory, and what is no file is not waited for."""
        handler, asked = answering(httpx.Response(200))

        with pytest.raises(StepFailed, match=why):
            await step(handler).perform(
                HttpConfig.model_validate({"url": URL, "bodyFromFile": path}), context({}, work_dir=home)
            )

        assert asked == []

    async def test_no_directory(self) -> None:
        """Where there is none, none is read."""
        with pytest.raises(StepFailed, match="there is no working directory"):
            await step(answering(httpx.Response(200))[0]).run(context({"url": URL, "bodyFromFile": "x"}))

    def test_most(self, tmp_path: Path) -> None:
        """Eight MiB are sent."""
        (tmp_path / "f").write_bytes(bytes(8 * 2**20))
        assert len(read_within(tmp_path, "f")) == 8 * 2**20


@asynccontextmanager
async def running(handler: Handler) -> AsyncIterator[tuple[Universe, Process]]:
    """A world of controllers whose step http is answered by *handler*."""
    async with universe() as (world, _), world.process() as process:
        assert isinstance(process.world.steps, dict)
        process.world.steps["http"] = step(handler)
        yield world, process


def call(retry: dict[str, Any] | None = None, **config: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"uses": "http", "as": "call", "config": {"url": URL, **config}}
    return {**made, "retry": retry} if retry is not None else made


def state(running_state: str) -> httpx.Response:
    return httpx.Response(200, json={"state": running_state})


class Clock:
    """Notes when something is asked for."""

    def __init__(self, world: Universe, handler: Handler) -> None:
        self.times: list[float] = []
        self._world, self._handler = world, handler

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.times.append((self._world.now() - NOON).total_seconds())
        return await self._handler(request)


@pytest.mark.looptime
class TestPromotions:
    async def test_polling(self) -> None:
        """It is asked every pollInterval and not oftener, whatever wakes the Promotion; the wait costs one write."""
        handler, _ = answering(*[state("running")] * 4, state("passed"))
        async with running(handler) as (world, process):
            clock = Clock(world, handler)
            process.world.steps["http"] = step(clock)  # type: ignore[index]  # running has made sure that it is a dict
            done: dict[str, Any] = {"successExpression": "response.body.state == 'passed'", "pollInterval": "2m"}
            output = [{"name": "state", "fromExpression": "response.body.state"}]
            await world.run(call(None, **done, outputs=output))
            await asyncio.sleep(60)
            (waiting,) = world.promotion()["status"]["stepExecutionMetadata"]
            assert "successExpression is not true yet; it is asked every 2m" in waiting["message"]

            assert await world.ended() == "Succeeded"
            promotion = world.promotion()
            writes = [key for where, key, _ in world.lines[0].writes if where == "promotions/status"]

        assert promotion["status"]["state"]["call"] == {"state": "passed"}
        pauses = [later - earlier for earlier, later in zip(clock.times, clock.times[1:], strict=False)]
        assert len(pauses) == 4
        assert all(119.99 < pause < 120.1 for pause in pauses), pauses
        assert len(writes) <= 3

    async def test_expressions(self) -> None:
        """Those in the configuration are evaluated before, texts as texts; its own expressions with the answer."""
        handler, asked = answering(state("passed"))
        async with running(handler) as (world, _):
            step_ = call(
                None,
                method="POST",
                headers=[{"name": "X-Version", "value": "${{ vars.version }}"}],
                body='${{ {"version": vars.version, "stage": ctx.stage} }}',
                timeout="${{ '20' + 's' }}",
                successExpression="response.body.state == '${{ vars.wanted }}'",
                failureExpression="response.body.state != '${{ vars.wanted }}'",
                outputs=[{"name": "said", "fromExpression": "response.body.state + '-${{ vars.version }}'"}],
            )
            variables = [{"name": "wanted", "value": "passed"}, {"name": "version", "value": "1.30"}]
            await world.run({**step_, "vars": variables})
            assert await world.ended() == "Succeeded", world.message()
            assert world.promotion()["status"]["state"]["call"] == {"said": "passed-1.30"}

        assert asked[0].headers["X-Version"] == "1.30"
        assert json.loads(asked[0].content)["stage"] == "dev"

    async def test_retry_after(self) -> None:
        """A server that says when to come back is not asked before."""
        handler, _ = answering(httpx.Response(429, headers={"Retry-After": "200"}), state("passed"))
        async with running(handler) as (world, process):
            clock = Clock(world, handler)
            process.world.steps["http"] = step(clock)  # type: ignore[index]  # as above
            await world.run(call(successExpression="response.status == 200"))
            assert await world.ended() == "Succeeded"

        first, second = clock.times
        assert 199.99 < second - first < 200.1

    async def test_final_at_once(self) -> None:
        """Without a time-out and a threshold another status than 2xx is the end."""
        handler, asked = answering(httpx.Response(503))
        async with running(handler) as (world, _):
            await world.run(call())
            assert await world.ended() == "Failed"
            message = world.message()

        assert len(asked) == 1
        assert "GET http://api.example.com answered 503 Service Unavailable" in message

    async def test_threshold(self) -> None:
        """It is tried as often as the threshold says."""
        handler, asked = answering(httpx.Response(500))
        async with running(handler) as (world, _):
            await world.run(call({"errorThreshold": 3}))
            assert await world.ended() == "Failed"

        assert len(asked) == 3

    async def test_threshold_not_met(self) -> None:
        """It succeeds if an attempt does."""
        handler, asked = answering(httpx.Response(500), httpx.Response(404), httpx.Response(204))
        async with running(handler) as (world, _):
            await world.run(call({"errorThreshold": 3}))
            assert await world.ended() == "Succeeded"

        assert len(asked) == 3

    async def test_time_out(self) -> None:
        """Or as long as there is time."""
        handler, asked = answering(httpx.Response(500))
        async with running(handler) as (world, _):
            await world.run(call({"timeout": "5m"}))
            assert await world.ended() in {"Failed", "Errored"}
            assert 300 <= (world.now() - NOON).total_seconds() < 310
            assert "answered 500" in world.message()
            assert "will be retried" not in world.message()

        assert len(asked) > 3

    async def test_poll_times_out(self) -> None:
        """A wait ends on time, between two polls."""
        handler, _ = answering(state("running"))
        async with running(handler) as (world, _):
            await world.run(call({"timeout": "75s"}, successExpression="false", pollInterval="60s"))
            assert await world.ended() in {"Failed", "Errored"}
            assert 75 <= (world.now() - NOON).total_seconds() < 80
            assert "successExpression is not true yet" in world.message()

    async def test_request_is_dropped(self) -> None:
        """An abort does not wait for an answer."""
        begun = asyncio.Event()
        dropped = asyncio.Event()

        async def handler(_: httpx.Request) -> httpx.Response:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                dropped.set()
            raise AssertionError

        async with running(handler) as (world, _):
            await world.run(call(timeout="1h"))
            await begun.wait()
            await world.abort()
            assert await world.ended(seconds=30) == "Aborted"
            async with asyncio.timeout(1):
                await dropped.wait()

    async def test_post_that_is_not_answered(self) -> None:
        """It is not sent again by itself; with a threshold it is, with the same key."""
        for retry, expected in ((None, 1), ({"errorThreshold": 3}, 3)):
            handler, asked = answering(httpx.ReadTimeout("nothing"))
            async with running(handler) as (world, _):
                await world.run(call(retry, method="POST"))
                assert await world.ended() == "Errored"
                assert "whether it was carried out is not known" in world.message()
            assert len(asked) == expected
            assert len({request.headers["Idempotency-Key"] for request in asked}) == 1

    async def test_network_comes_back(self) -> None:
        """What passes by itself does not end the step, though it has no threshold."""
        handler, asked = answering(*[OSError(113, "no route to host")] * 4, state("passed"))
        async with running(handler) as (world, _):
            await world.run(call())
            assert await world.ended() == "Succeeded"

        assert len(asked) == 5

    async def test_killed(self) -> None:
        """A process that is killed between a request and the record of its answer sends it again with the same key."""
        begun = asyncio.Event()
        keys: list[str] = []

        async def hangs(request: httpx.Request) -> httpx.Response:
            keys.append(request.headers["Idempotency-Key"])
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        async def answers(request: httpx.Request) -> httpx.Response:
            keys.append(request.headers["Idempotency-Key"])
            return httpx.Response(200)

        async with universe() as (world, _):
            async with world.process() as first:
                first.world.steps["http"] = step(hangs)  # type: ignore[index]  # as above
                await world.run(call(method="POST", timeout="1h"))
                await begun.wait()
                await first.kill()
            async with world.process() as second:
                second.world.steps["http"] = step(answers)  # type: ignore[index]  # as above
                assert await world.ended() == "Succeeded"

        assert len(keys) == 2
        assert keys[0] == keys[1]
        assert json.dumps(keys[0]).isascii()
