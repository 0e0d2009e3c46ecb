"""`kargo-py abort`: what is written, who is said to ask, and what is answered where nothing needs to be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import typer

from kargo_py.api.abort import ABORT_KEY, ANNOTATION_ABORT, read_abort
from kargo_py.cli.abort import REVIEWS, Ask, Told, actor_of, ask, decide, until_aborted
from kargo_py.cli.objects import Session
from kargo_py.controllers.world import PROMOTIONS
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Conflict, OutcomeUnknown
from kargo_py.kube.resources import Key, Resource
from kargo_py.kube.rest import RestClient
from kargo_py.local.apiserver.client import client_of
from tests.in_process import api_server, create_namespaces

JsonObject = dict[str, Any]
KEY = Key("shop", "dev.1")
ANN = "kubernetes:ann"


def promotion(annotation: str | None = None, **status: Any) -> JsonObject:
    annotations = {ANNOTATION_ABORT: annotation} if annotation is not None else {}
    return {"metadata": {"name": "dev.1", "namespace": "shop", "annotations": annotations}, "status": status}


class TestDecide:
    """What an abort takes."""

    @pytest.mark.parametrize("phase", [None, "", "Pending", "Running", "Dancing"])
    @pytest.mark.parametrize("annotation", [None, "", "nonsense", '{"action": "dance"}'])
    def test_asks(self, phase: str | None, annotation: str | None) -> None:
        """Of one that has not ended, in Kargo's form, over what nobody can read."""
        decision = decide(promotion(annotation, **({"phase": phase} if phase is not None else {})), ANN, force=False)
        assert decision == Ask('{"action":"terminate","actor":"kubernetes:ann","controlPlane":false}')

    def test_what_is_written_is_understood(self) -> None:
        """What is written is read back by the controller as what it is, whatever the user is called."""
        for force in (False, True):
            decision = decide(promotion(), 'kubernetes:"ann"\\é', force=force)
            assert isinstance(decision, Ask)
            asked = read_abort(decision.annotation)
            assert asked is not None
            assert (asked.actor, asked.force) == ('kubernetes:"ann"\\é', force)

    @pytest.mark.parametrize(
        ("raw", "force", "told"),
        [
            (promotion(phase="Aborted"), False, Told('Promotion "dev.1" is Aborted already', done=True)),
            (promotion("terminate", phase="Running"), False, "being aborted already, as controller:kargo-py asked"),
            (promotion(phase="Running", state={ABORT_KEY: {"actor": "bob"}}), False, "as bob asked"),
            (promotion(phase="Running", state={ABORT_KEY: {"actor": "bob", "force": True}}), True, "as bob asked"),
            (promotion("?", phase="Running", state={ABORT_KEY: {"actor": "bob"}}), False, "as bob asked"),
            (
                promotion('{"action":"terminate","force":true}', phase="Running", state={ABORT_KEY: {"actor": "bob"}}),
                True,
                "as bob asked",
            ),
        ],
    )
    def test_nothing_to_write(self, raw: JsonObject, force: bool, told: str | Told) -> None:
        """Of one that was asked to end already, unless it was not by force and now is."""
        decision = decide(raw, ANN, force=force)
        assert isinstance(decision, Told)
        assert not decision.refused
        assert decision == told if isinstance(told, Told) else told in decision.text

    def test_force_after_all(self) -> None:
        """Force can be added."""
        decision = decide(promotion("terminate", phase="Running", state={ABORT_KEY: {}}), ANN, force=True)
        assert isinstance(decision, Ask)
        assert json.loads(decision.annotation)["force"] is True

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Errored"])
    def test_too_late(self, phase: str) -> None:
        """What has ended otherwise cannot be aborted."""
        decision = decide(promotion("terminate", phase=phase), ANN, force=True)
        assert isinstance(decision, Told)
        assert decision.refused
        assert f"ended as {phase}" in decision.text


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    """A user of a server of his own, with a Promotion."""
    client = client_of(api_server(utc_now))
    await create_namespaces(client, "shop")
    body = {
        "apiVersion": PROMOTIONS.api_version,
        "kind": "Promotion",
        "metadata": {"name": "dev.1", "annotations": {"mine": "stays"}},
        "spec": {"stage": "dev", "freight": "f1", "steps": [{"uses": "argocd-update"}]},
    }
    await client.create(PROMOTIONS, "shop", encode(body), codec=JSON)
    yield Session(client, "shop", "ann")
    await client.close()


async def notes(session: Session) -> dict[str, str]:
    found = await session.client.get(PROMOTIONS, KEY, codec=JSON)
    told: dict[str, str] = found["metadata"]["annotations"]
    return told


async def set_status(session: Session, **status: Any) -> None:
    await session.client.patch(PROMOTIONS, KEY, encode({"status": status}), codec=JSON, subresource="status")


async def test_asked(session: Session) -> None:
    """The annotation is written beside those that are there, with who asks."""
    out: list[str] = []
    assert await ask(session, "dev.1", out.append, force=False) is False
    assert out == ['Promotion "dev.1": its abort is asked for, by kubeconfig:ann']
    written = await notes(session)
    assert written["mine"] == "stays"
    assert json.loads(written[ANNOTATION_ABORT]) == {
        "action": "terminate",
        "actor": "kubeconfig:ann",
        "controlPlane": False,
    }


async def test_asked_twice(session: Session) -> None:
    """The second time nothing is written; force is added once."""
    out: list[str] = []
    for force in (False, False, True, True):
        await ask(session, "dev.1", out.append, force=force)
    assert ["already" in line for line in out] == [False, True, False, True]
    assert "by force" in out[2]


async def test_too_late(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    """One that has ended is left alone: exit code 1, and no annotation."""
    await set_status(session, phase="Succeeded")
    with pytest.raises(typer.Exit) as caught:
        await ask(session, "dev.1", lambda _: None, force=False)
    assert caught.value.exit_code == 1
    assert "ended as Succeeded" in capsys.readouterr().err
    assert ANNOTATION_ABORT not in await notes(session)


async def test_absent(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is not there is named."""
    with pytest.raises(typer.Exit):
        await ask(session, "nope", lambda _: None, force=False)
    assert 'Promotion "nope" does not exist in namespace "shop"' in capsys.readouterr().err


async def test_others_write_too(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conflict is decided again: it may have ended meanwhile."""
    patch = RestClient.patch
    conflicts = 2

    async def busy(client: RestClient, resource: Resource, key: Key, body: bytes, **options: Any) -> Any:
        nonlocal conflicts
        if conflicts:
            conflicts -= 1
            raise Conflict(409, "Conflict", "changed")
        return await patch(client, resource, key, body, **options)

    monkeypatch.setattr(RestClient, "patch", busy)
    assert await ask(session, "dev.1", lambda _: None, force=False) is False
    assert ANNOTATION_ABORT in await notes(session)


async def test_others_write_all_the_time(
    session: Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not tried for ever."""

    async def busy(*_: Any, **__: Any) -> Any:
        raise Conflict(409, "Conflict", "changed")

    monkeypatch.setattr(RestClient, "patch", busy)
    with pytest.raises(typer.Exit):
        await ask(session, "dev.1", lambda _: None, force=False)
    assert "changed by others each time" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "user", "actor"),
    [
        (
            {"status": {"userInfo": {"username": "system:serviceaccount:ci:bot"}}},
            "x",
            "kubernetes:system:serviceaccount:ci:bot",
        ),
        ({"status": {}}, "x", "kubeconfig:x"),
        (OutcomeUnknown("500"), "x", "kubeconfig:x"),
        (OutcomeUnknown("500"), "", "unknown actor"),
    ],
)
async def test_actor(
    session: Session, monkeypatch: pytest.MonkeyPatch, answer: JsonObject | Exception, user: str, actor: str
) -> None:
    """Who asks is whom the server knows; where it does not say, nothing is claimed that may be wrong."""

    async def review(_client: RestClient, resource: Resource, *_: Any, **__: Any) -> Any:
        assert resource == REVIEWS
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(RestClient, "create", review)
    assert await actor_of(Session(session.client, "shop", user)) == actor


class Printed:
    """What was printed, to be waited for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._more = asyncio.Event()

    def out(self, line: str) -> None:
        self.lines.append(line)
        self._more.set()

    async def until(self, words: str) -> None:
        async with asyncio.timeout(30):
            while not any(words in line for line in self.lines):
                self._more.clear()
                await self._more.wait()


class TestWait:
    """`--wait`."""

    async def test_until_it_is_aborted(self, session: Session) -> None:
        """What it waits for is said once each, and then how it ended."""
        printed = Printed()
        task = asyncio.create_task(until_aborted(session, "dev.1", printed.out, None))
        await printed.until("is Pending")
        step = {"alias": "update", "status": "Running", "message": "terminating the sync"}
        await set_status(session, phase="Running", stepExecutionMetadata=[step])
        await printed.until("is Running: terminating the sync")
        await set_status(session, lastHandledRefresh="nothing that is told")
        await set_status(session, phase="Aborted", message="Promotion terminated by ann")
        await task
        assert printed.lines == [
            'Promotion "dev.1" is Pending',
            'Promotion "dev.1" is Running: terminating the sync',
            'Promotion "dev.1" is Aborted: Promotion terminated by ann',
        ]

    @pytest.mark.parametrize("how", ["it ended", "deleted", "replaced"])
    async def test_in_vain(self, session: Session, how: str, capsys: pytest.CaptureFixture[str]) -> None:
        """One that ends otherwise, or goes, ends the waiting with code 1."""
        printed = Printed()
        task = asyncio.create_task(until_aborted(session, "dev.1", printed.out, None))
        await printed.until("is Pending")
        if how == "it ended":
            await set_status(session, phase="Succeeded")
        else:
            found = await session.client.get(PROMOTIONS, KEY, codec=JSON)
            await session.client.delete(PROMOTIONS, KEY)
            if how == "replaced":
                body = {**found, "metadata": {"name": "dev.1"}}
                await session.client.create(PROMOTIONS, "shop", encode(body), codec=JSON)
        with pytest.raises(typer.Exit) as caught:
            await task
        assert caught.value.exit_code == 1
        said = capsys.readouterr().err
        assert ("ended as Succeeded" if how == "it ended" else "was deleted before it was Aborted") in said

    @pytest.mark.looptime
    async def test_not_for_ever(self, session: Session, capsys: pytest.CaptureFixture[str]) -> None:
        """`--timeout` ends it, and says how it stands."""
        with pytest.raises(typer.Exit) as caught:
            await until_aborted(session, "dev.1", lambda _: None, timedelta(minutes=3))
        assert caught.value.exit_code == 1
        assert 'Promotion "dev.1" is still Pending after 3m; does a controller run?' in capsys.readouterr().err
