"""set-metadata, on an API server in the test's process."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import pytest_asyncio
from hypothesis import given, strategies as st

from kargo_py.api.promotion import StepStatus
from kargo_py.expressions.hiding import Secrets
from kargo_py.expressions.templates import string_places
from kargo_py.kube.client import Client
from kargo_py.kube.errors import Conflict, Forbidden, OutcomeUnknown
from kargo_py.kube.resources import Key
from kargo_py.steps.base import Erred, Finished, Waiting
from kargo_py.steps.objects import FREIGHTS, STAGES
from kargo_py.steps.set_metadata import MOST, SetMetadata, SetMetadataConfig, wishes
from kargo_py.steps.step import Effect, StepFailed
from tests.steps.intercepting import Intercepting
from tests.steps.small_steps import PROJECT, call, context, project, read, set_status

pytestmark = pytest.mark.looptime

DONE = Finished(StepStatus.SUCCEEDED)
STRANGE = {"a/b": 2, "a~b": 3, "~1": 4, "": 5, "ü\n": 6}


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Intercepting]:
    """The server, as the step sees it."""
    async with project() as client:
        yield Intercepting(client)


def step(server: Intercepting) -> SetMetadata:
    return SetMetadata(cast("Client", server))


def update(kind: str = "Stage", name: str = "dev", **values: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "values": values}


def config(*updates: Any) -> dict[str, Any]:
    return {"updates": list(updates)}


async def metadata(server: Intercepting, name: str = "dev") -> Any:
    found = await read(cast("Client", server), STAGES if name == "dev" else FREIGHTS, name)
    return (found.get("status") or {}).get("metadata")


@pytest.mark.parametrize(
    ("before", "values", "after"),
    [
        (None, {"a": 1}, {"a": 1}),
        ({}, {"a": 1}, {"a": 1}),
        ({"b": 2}, {"a": 1}, {"a": 1, "b": 2}),
        ({"a": 2}, {"a": 1}, {"a": 1}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 3}}, {"a": {"x": 3}}),
        ({"a": {"x": 1}}, {"a": [1, None, {"deep": None}]}, {"a": [1, None, {"deep": None}]}),
        ({"a": 1, "b": 2}, {"a": None}, {"a": None, "b": 2}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": {"x": 1}}, {"a": {}}, {"a": {}}),
        ({"a/b": 1, "a~b": 1}, STRANGE, STRANGE),
    ],
    ids=["no status", "no metadata", "beside another", "again", "as a whole", "of another type", "null",
         "true is not 1", "an empty map", "strange keys"],
)  # fmt: skip
async def test_what_is_set(server: Intercepting, before: Any, values: Any, after: Any) -> None:
    """Exactly the keys that are named, each with exactly its value; all else in the status stays."""
    if before is not None:
        status = {"metadata": before, "observedGeneration": 7}
        await set_status(cast("Client", server), STAGES, "dev", status)
        server.patches = 0
    outcome = await call(step(server), config(update(**values)))
    found = await read(cast("Client", server), STAGES, "dev")

    assert outcome == DONE
    assert found["status"]["metadata"] == after
    assert [type(found["status"]["metadata"][name]) for name in after] == [type(value) for value in after.values()]
    assert found["status"].get("observedGeneration") == (7 if before is not None else None)
    assert (server.patches, len(server.reads)) == (1, 2)


@pytest.mark.parametrize(
    "values", [{"a": 1, "b": {"c": [None]}}, {"a": 1.0}, {"b": {"c": [None]}}], ids=["all", "1.0 is 1", "some"]
)
async def test_what_is_so_already_is_not_written(server: Intercepting, values: Any) -> None:
    """So a step that is called again, after a crash say, does nothing twice."""
    await set_status(cast("Client", server), STAGES, "dev", {"metadata": {"a": 1, "b": {"c": [None]}, "d": 2}})
    server.patches = 0

    assert (await call(step(server), config(update(**values))), server.patches) == (DONE, 0)


async def test_several(server: Intercepting) -> None:
    """Each object is written once; of two values of one key the later one counts."""
    updates = [update(a=1, b=1), update("Freight", "f1", deployed=True), update(b=2), update("Freight", "f2", c="x")]

    assert await call(step(server), config(*updates)) == DONE
    assert [await metadata(server, name) for name in ("dev", "f1", "f2")] == [
        {"a": 1, "b": 2}, {"deployed": True}, {"c": "x"},
    ]  # fmt: skip
    assert server.patches == 3


async def test_secrets_are_masked(server: Intercepting) -> None:
    """Whoever may look at a Stage may not look at Secrets for that."""
    secrets = Secrets()
    secrets.add("geheim")
    made = context(config(update(word="geheim", deep=[{"url": "https://geheim@example.com", "geheim": 1}])))

    assert await step(server).run(dataclasses.replace(made, mask=secrets.mask)) == DONE
    assert await metadata(server) == {"word": "***", "deep": [{"url": "https://***@example.com", "***": 1}]}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (update("Freight", "f3", a=1), 'Freight "f3" does not exist in namespace "shop"'),
        (update(name="prod", a=1), 'Stage "prod" does not exist in namespace "shop"'),
    ],
)
async def test_missing(server: Intercepting, wrong: Any, words: str) -> None:
    """An object that is not there is an error that counts, and nothing is set anywhere."""
    assert await call(step(server), config(update(a=1), wrong)) == Erred(words)
    assert (server.patches, await metadata(server)) == (0, None)


async def test_too_large(server: Intercepting) -> None:
    """What would keep a Stage from being written is refused before anything is set."""
    large = "x" * (MOST - 20)
    with pytest.raises(StepFailed) as failed:
        await call(step(server), config(update("Freight", "f1", a=1), update(first=large, second="more than is left")))

    assert str(failed.value) == 'the metadata of Stage "dev" would be 257 KiB, at most 256 KiB'
    assert (server.patches, await metadata(server, "f1")) == (0, None)
    assert await call(step(server), config(update(first=large))) == DONE


async def test_what_is_too_large_already_can_be_made_smaller(server: Intercepting) -> None:
    """Somebody else made it so."""
    await set_status(cast("Client", server), STAGES, "dev", {"metadata": {"a": "x" * MOST, "b": "x" * 100}})

    assert await call(step(server), config(update(b=""))) == DONE
    with pytest.raises(StepFailed):
        await call(step(server), config(update(c=1)))


class TestOthers:
    """What other writers do meanwhile."""

    async def test_they_are_quicker(self, server: Intercepting) -> None:
        """Then the step looks again; neither loses anything."""

        async def quicker(number: int) -> None:
            if number < 4:
                status = {"metadata": {f"theirs-{number}": {"deep": number}}, "observedGeneration": number}
                await set_status(server._client, STAGES, "dev", status)

        server.before_patch = quicker
        outcome = await call(step(server), config({**update(), "values": {"a": 1, "theirs-2": "mine"}}))
        found = await read(server._client, STAGES, "dev")

        assert (outcome, server.patches) == (DONE, 4)
        assert found["status"]["observedGeneration"] == 3
        assert found["status"]["metadata"] == {
            "a": 1, "theirs-1": {"deep": 1}, "theirs-2": "mine", "theirs-3": {"deep": 3},
        }  # fmt: skip

    async def test_they_make_it_too_large(self, server: Intercepting) -> None:
        """The limit holds for what is there by then."""

        async def quicker(_number: int) -> None:
            await set_status(server._client, STAGES, "dev", {"metadata": {"theirs": "x" * (MOST - 20)}})

        server.before_patch = quicker
        with pytest.raises(StepFailed, match="at most 256 KiB"):
            await call(step(server), config(update(a="x" * 100)))

    async def test_they_do_the_same(self, server: Intercepting) -> None:
        """Then nothing is left to do."""

        async def quicker(_number: int) -> None:
            await set_status(server._client, STAGES, "dev", {"metadata": {"a": {"b": 1}}})

        server.before_patch = quicker

        assert (await call(step(server), config(update(a={"b": 1}))), server.patches) == (DONE, 1)

    async def test_they_are_always_quicker(self, server: Intercepting) -> None:
        """It is raised in the end, as a conflict, which passes; nothing is overwritten."""

        async def quicker(number: int) -> None:
            await set_status(server._client, STAGES, "dev", {"observedGeneration": number})

        server.before_patch = quicker
        with pytest.raises(Conflict):
            await call(step(server), config(update(a=1)))

        assert (server.patches, await metadata(server)) == (5, None)

    async def test_it_goes_away(self, server: Intercepting) -> None:
        """As if it had not been there."""

        async def gone(_number: int) -> None:
            await server._client.delete(STAGES, Key(PROJECT, "dev"))

        server.before_patch = gone

        assert await call(step(server), config(update(a=1))) == Erred('Stage "dev" does not exist in namespace "shop"')


class TestFaults:
    """What the server does not do, or does not tell."""

    async def test_a_lost_answer(self, server: Intercepting) -> None:
        """The same patch is sent again, and is seen to have landed."""

        async def lost(number: int) -> None:
            if number == 1:
                raise OutcomeUnknown("connection reset")

        server.after_patch = lost

        assert await call(step(server), config(update(a=[None, 1.0]))) == DONE
        assert await metadata(server) == {"a": [None, 1]}

    async def test_a_patch_that_is_sent_again(self, server: Intercepting) -> None:
        """It does not undo what others have set after the first one landed; that is looked at anew."""
        seen = []

        async def lost(number: int) -> None:
            if number == 1:
                await set_status(server._client, STAGES, "dev", {"metadata": {"theirs": 1}})
                raise OutcomeUnknown("connection reset")

        async def look(_number: int) -> None:
            seen.append(await metadata(server))

        server.after_patch, server.before_patch = lost, look

        assert await call(step(server), config(update(a="mine"))) == DONE
        assert seen == [None, {"a": "mine", "theirs": 1}]
        assert await metadata(server) == {"a": "mine", "theirs": 1}

    @pytest.mark.parametrize(
        ("verb", "said"),
        [("get", "no; allow get on stages.kargo.akuity.io"), ("patch", "no; allow patch on stages/status")],
    )
    async def test_a_missing_right(self, server: Intercepting, verb: str, said: str) -> None:
        """The error names it."""

        async def refuse(*_: Any, **__: Any) -> Any:
            raise Forbidden(403, "Forbidden", "no")

        setattr(server, verb, refuse)

        assert await call(step(server), config(update(a=1))) == Erred(said)

    async def test_called_off(self, server: Intercepting) -> None:
        """An abort is seen between two objects; what was set stays."""
        updates = config(update(a=1), update("Freight", "f1", a=1))
        outcome = await call(step(server), updates, called_off=lambda: server.patches > 0)

        assert outcome == Waiting("the Promotion is to be aborted; objects left as they were: 1")
        assert [await metadata(server, name) for name in ("dev", "f1")] == [{"a": 1}, None]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (None, "config.updates: must be given"),
        ({"updates": []}, "config.updates: must not be empty"),
        ({"updates": {}}, "config.updates: must be a list"),
        (config("a"), "config.updates[0]: must be an object, with fields"),
        (config({}), "config.updates[0].kind: must be given"),
        (config(update("Warehouse", a=1)), "config.updates[0].kind: must be 'Stage' or 'Freight'"),
        (config(update(name="", a=1)), "config.updates[0].name: must not be empty"),
        (config(update(name="../x", a=1)), "config.updates[0].name: '../x' cannot be the name"),
        (config({**update(a=1), "name": 7}), "config.updates[0].name: must be a string"),
        (config(update()), "config.updates[0].values: must not be empty"),
        (config({**update(), "values": ["a"]}), "config.updates[0].values: must be an object, with fields"),
        (config({**update(a=1), "namespace": "other"}), "config.updates[0].namespace: there is no such field"),
    ],
)
async def test_wrong_configuration(server: Intercepting, wrong: Any, words: str) -> None:
    """Each fault is named, and nothing is asked of the server."""
    outcome = await call(step(server), wrong)

    assert isinstance(outcome, Finished)
    assert outcome.status == StepStatus.FAILED
    assert words in outcome.message
    assert server.reads == []


def test_places() -> None:
    """Names are texts, so that one of digits stays one; values are anything."""
    is_string = string_places(SetMetadataConfig.model_json_schema(by_alias=True))

    assert [is_string(("updates", 0, *rest)) for rest in [("name",), ("kind",), ("values", "a"), ("values",)]] == [
        True, True, False, False,
    ]  # fmt: skip


async def test_effect(server: Intercepting) -> None:
    """It may be done again."""
    assert step(server).effect(SetMetadataConfig.model_validate(config(update(a=1)))) is Effect.REPEATABLE


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
METADATA = st.dictionaries(st.sampled_from(["a", "b", "a/b", "~0", ""]), JSON_VALUES, max_size=4)


@given(before=METADATA, values=METADATA.filter(bool))
def test_the_change_is_exact(before: dict[str, Any], values: dict[str, Any]) -> None:
    """The operations turn the metadata into itself with the values put in, and there are none if that is the same."""
    read_config = SetMetadataConfig.model_validate(config({**update(), "values": values}))
    (wish,) = wishes(read_config, PROJECT, lambda value: value)
    obj = {"metadata": {"name": "dev", "resourceVersion": "1"}, "status": {"metadata": before}}
    change = wish.change(obj)
    if change is None:
        assert {**before, **values} == before
        return
    made = dict(before)
    for operation in change.body[1:]:
        path = operation["path"].removeprefix("/status/metadata")
        if not path:
            made = operation["value"]
        else:
            made[path[1:].replace("~1", "/").replace("~0", "~")] = operation["value"]

    assert made == {**before, **values}
    assert change.landed({"status": {"metadata": made}})
