"""set-freight-alias, on an API server in the test's process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import pytest_asyncio

from kargo_py.api.promotion import StepStatus
from kargo_py.expressions.templates import string_places
from kargo_py.kube.client import Client
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import Forbidden, OutcomeUnknown
from kargo_py.kube.resources import Key
from kargo_py.steps.base import Erred, Finished, StepOutcome
from kargo_py.steps.objects import FREIGHTS
from kargo_py.steps.set_freight_alias import SetFreightAlias, SetFreightAliasConfig
from kargo_py.steps.step import Effect, StepFailed
from tests.steps.intercepting import Intercepting
from tests.steps.small_steps import PROJECT, call, project, read

pytestmark = pytest.mark.looptime

LABEL = "kargo.akuity.io/alias"


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Intercepting]:
    """The server, as the step sees it."""
    async with project() as client:
        yield Intercepting(client)


def step(server: Intercepting) -> SetFreightAlias:
    return SetFreightAlias(cast("Client", server))


def config(name: Any = "f1", alias: Any = "spring") -> dict[str, Any]:
    return {"name": name, "alias": alias}


def done(name: str = "f1", alias: str = "spring") -> Finished:
    return Finished(StepStatus.SUCCEEDED, f'the alias of Freight "{name}" is {alias}')


async def said(server: Intercepting, name: str = "f1") -> tuple[Any, Any]:
    """The alias as the field and the label have it."""
    found = await read(server._client, FREIGHTS, name)
    return found.get("alias"), (found["metadata"].get("labels") or {}).get(LABEL)


async def change(server: Intercepting, name: str = "f1", **parts: Any) -> None:
    await server._client.patch(FREIGHTS, Key(PROJECT, name), encode(parts), codec=JSON)


@pytest.mark.parametrize("alias", ["spring", "1.30", "v", "A_b.c-9", "a" * 63])
async def test_it_is_set(server: Intercepting, alias: str) -> None:
    """In the field and in the label, by one write; other labels stay."""
    await change(server, metadata={"labels": {"other": "label"}})

    assert await call(step(server), config(alias=alias)) == done(alias=alias)
    assert await said(server) == (alias, alias)
    assert (await read(server._client, FREIGHTS, "f1"))["metadata"]["labels"]["other"] == "label"
    assert server.patches == 1


@pytest.mark.parametrize(
    ("before", "writes"),
    [
        ({"alias": "spring", "metadata": {"labels": {LABEL: "spring"}}}, 0),
        ({"alias": "spring"}, 1),
        ({"metadata": {"labels": {LABEL: "spring"}}}, 1),
        ({"alias": "calm-otter", "metadata": {"labels": {LABEL: "calm-otter"}}}, 1),
    ],
    ids=["as it should be", "no label", "no field", "another"],
)
async def test_what_was_before(server: Intercepting, before: Any, writes: int) -> None:
    """Only what is not so yet is written; so it may be called again."""
    await change(server, **before)

    assert await call(step(server), config()) == done()
    assert (await said(server), server.patches) == (("spring", "spring"), writes)


async def test_taken(server: Intercepting) -> None:
    """An alias is that of one piece of Freight; the other one is named."""
    assert await call(step(server), config("f2")) == done("f2")
    with pytest.raises(StepFailed) as failed:
        await call(step(server), config("f1"))

    assert str(failed.value) == 'the alias spring is taken by Freight "f2"'
    assert await said(server) == (None, None)


async def test_taken_twice(server: Intercepting) -> None:
    """So it is if another one has it although this one has it, too."""
    for name in ("f1", "f2"):
        await change(server, name, alias="spring", metadata={"labels": {LABEL: "spring"}})
    with pytest.raises(StepFailed, match='taken by Freight "f2"'):
        await call(step(server), config("f1"))


async def test_two_want_the_same(server: Intercepting) -> None:
    """Of two steps of a Project at the same time one gets it."""
    one = step(server)

    async def outcome(name: str) -> StepOutcome | str:
        try:
            return await call(one, config(name))
        except StepFailed as failed:
            return str(failed)

    found = await asyncio.gather(outcome("f1"), outcome("f2"))

    assert list(found) == [done("f1"), 'the alias spring is taken by Freight "f1"']


async def test_missing(server: Intercepting) -> None:
    """Freight that is not there is an error that counts."""
    assert await call(step(server), config("f3")) == Erred('Freight "f3" does not exist in namespace "shop"')


async def test_others_are_quicker(server: Intercepting) -> None:
    """Then it looks again; what they wrote stays."""

    async def quicker(number: int) -> None:
        if number == 1:
            await change(server, metadata={"labels": {"theirs": "1", LABEL: "theirs"}})

    server.before_patch = quicker

    assert await call(step(server), config()) == done()
    found = await read(server._client, FREIGHTS, "f1")
    assert found["metadata"]["labels"] == {"theirs": "1", LABEL: "spring"}


async def test_a_lost_answer(server: Intercepting) -> None:
    """The write is seen to have landed."""

    async def lost(number: int) -> None:
        if number == 1:
            raise OutcomeUnknown("connection reset")

    server.after_patch = lost

    assert await call(step(server), config()) == done()
    assert await said(server) == ("spring", "spring")


@pytest.mark.parametrize(
    ("verb", "right"),
    [
        ("get", "get on freights.kargo.akuity.io"),
        ("list", "list on freights.kargo.akuity.io"),
        ("patch", "patch on freights"),
    ],
)
async def test_a_missing_right(server: Intercepting, verb: str, right: str) -> None:
    """The error names it."""

    async def refuse(*_: Any, **__: Any) -> Any:
        raise Forbidden(403, "Forbidden", "no")

    setattr(server, verb, refuse)

    assert await call(step(server), config()) == Erred(f"no; allow {right}")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (None, "config.name: must be given; config.alias: must be given"),
        (config(name=""), "config.name: must not be empty"),
        (config(name="a/b"), "config.name: 'a/b' cannot be the name"),
        (config(alias=""), "config.alias: must not be empty"),
        (config(alias=1.3), "config.alias: must be a string"),
        (config(alias=None), "config.alias: must be a string, and is null"),
        *(
            (config(alias=alias), f"config.alias: {alias!r} cannot be an alias")
            for alias in ("a b", "-a", "a-", "ü", "a\n", "a,b", "a=b", "a" * 64)
        ),
        (config(alias="a" * 999), f"config.alias: '{'a' * 80}…' cannot be an alias"),
        ({**config(), "newAlias": "a"}, "config.newAlias: there is no such field"),
    ],
)
async def test_wrong_configuration(server: Intercepting, wrong: Any, words: str) -> None:
    """Each fault is named, and nothing is asked of the server."""
    outcome = await call(step(server), wrong)

    assert isinstance(outcome, Finished)
    assert outcome.status == StepStatus.FAILED
    assert words in outcome.message
    assert server.reads == []


async def test_what_it_is(server: Intercepting) -> None:
    """It may be done again; both fields are texts, so that an alias like 1.30 stays one."""
    is_string = string_places(SetFreightAliasConfig.model_json_schema(by_alias=True))

    assert step(server).effect(SetFreightAliasConfig.model_validate(config())) is Effect.REPEATABLE
    assert is_string(("name",))
    assert is_string(("alias",))
