"""What expressions read, on an API server in the test's process."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from kargo_py.controllers.lookups import CONFIG_MAPS, SECRETS, LookupReader, LookupRefused
from kargo_py.controllers.world import FREIGHTS, STAGES
from kargo_py.expressions.lookups import Lookup, Source
from kargo_py.kube.client import Client
from kargo_py.kube.clock import utc_now
from kargo_py.kube.codec import JSON, encode
from kargo_py.kube.errors import ConnectionLost, Forbidden, ServerError
from kargo_py.kube.resources import Key, Resource
from kargo_py.local.apiserver.client import client_of
from tests.in_process import api_server, create_namespaces
from tests.kube.fakes import ScriptedClient

BINARY = base64.b64encode(b"\xff\x00key").decode()
GENERIC = {"kargo.akuity.io/cred-type": "generic"}
ORIGIN = {"kind": "Warehouse", "name": "wh"}
COMMITS = [{"repoURL": "https://git.example.com/shop", "id": "3f1a0f6"}]


async def create(client: Client, resource: Resource, namespace: str, name: str, **parts: Any) -> None:
    meta = {"name": name, "labels": parts.pop("labels", {})}
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **parts}
    status = parts.pop("status", None)
    await client.create(resource, namespace, encode(body), codec=JSON)
    if status is not None:
        patch = encode({"status": status})
        await client.patch(resource, Key(namespace, name), patch, codec=JSON, subresource="status")


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Client]:
    """A server with a Project ``shop`` and shared resources in ``shared``."""
    async with api_server(utc_now) as server:
        made = client_of(server)
        await create_namespaces(made, "shop", "shared", "other")
        await create(made, CONFIG_MAPS, "shop", "settings", data={"region": "eu", "replicas": "3"})
        await create(made, CONFIG_MAPS, "shop", "nothing-in-it")
        await create(made, CONFIG_MAPS, "shared", "settings", data={"region": "us"})
        await create(made, SECRETS, "shop", "token", data={"key": BINARY}, stringData={"word": "geheim ✓"})
        await create(made, SECRETS, "shared", "token", labels=GENERIC, stringData={"word": "for all"})
        await create(made, SECRETS, "shared", "git", labels={"kargo.akuity.io/cred-type": "git"}, stringData={"p": "x"})
        await create(made, SECRETS, "shared", "unlabelled", stringData={"p": "x"})
        requested = [{"origin": ORIGIN, "sources": {"direct": True}}]
        spec = {"requestedFreight": requested}
        await create(made, STAGES, "shop", "dev", spec=spec, status={"metadata": {"deep": {"a": [1, None]}}})
        await create(made, STAGES, "shop", "new", spec=spec)
        status = {"metadata": {"ticket": 7}, "currentlyIn": {"dev": {"since": "2026-11-30T12:00:00Z"}}}
        await create(made, FREIGHTS, "shop", "f1", origin=ORIGIN, commits=COMMITS, status=status)
        await create(made, FREIGHTS, "shop", "f2", origin=ORIGIN, commits=COMMITS)
        yield made


@pytest.mark.parametrize(
    ("source", "name", "found"),
    [
        (Source.CONFIG_MAP, "settings", {"region": "eu", "replicas": "3"}),
        (Source.CONFIG_MAP, "nothing-in-it", {}),
        (Source.CONFIG_MAP, "missing", None),
        (Source.SHARED_CONFIG_MAP, "settings", {"region": "us"}),
        (Source.SHARED_CONFIG_MAP, "nothing-in-it", None),
        (Source.SECRET, "token", {"word": "geheim ✓", "key": BINARY}),
        (Source.SECRET, "git", None),
        (Source.SHARED_SECRET, "token", {"word": "for all"}),
        (Source.SHARED_SECRET, "git", None),
        (Source.SHARED_SECRET, "unlabelled", None),
        (Source.STAGE_METADATA, "dev", {"deep": {"a": [1, None]}}),
        (Source.STAGE_METADATA, "new", None),
        (Source.STAGE_METADATA, "missing", None),
        (Source.FREIGHT_METADATA, "f1", {"ticket": 7}),
        (Source.FREIGHT_METADATA, "f2", None),
        (Source.FREIGHT_STATUS, "f1",
         {"metadata": {"ticket": 7}, "currentlyIn": {"dev": {"since": "2026-11-30T12:00:00Z"}}}),
        (Source.FREIGHT_STATUS, "f2", {}),
        (Source.FREIGHT_STATUS, "missing", None),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
async def test_what_is_read(client: Client, source: Source, name: str, found: Any) -> None:
    """Data as texts, metadata as JSON, None where there is none; shared Secrets only if they are meant for all."""
    assert found == await LookupReader(client, "shared").read("shop", Lookup(source, name))


async def test_other_projects_are_out_of_reach(client: Client) -> None:
    """What is in one Project is not there for another."""
    reader = LookupReader(client, "shared")

    for source, name in [
        (Source.SECRET, "token"),
        (Source.CONFIG_MAP, "settings"),
        (Source.STAGE_METADATA, "dev"),
        (Source.FREIGHT_STATUS, "f1"),
    ]:
        assert await reader.read("other", Lookup(source, name)) is None


async def test_what_was_just_written_is_seen(client: Client) -> None:
    """Nothing is remembered from one read to the next."""
    reader, lookup = LookupReader(client), Lookup(Source.STAGE_METADATA, "new")
    before = await reader.read("shop", lookup)
    patch = encode({"status": {"metadata": {"a": 1}}})
    await client.patch(STAGES, Key("shop", "new"), patch, codec=JSON, subresource="status")

    assert (before, await reader.read("shop", lookup)) == (None, {"a": 1})


@pytest.mark.parametrize(
    "name", ["..", ".", "", "../other/secrets/token", "token?x=1", "a/b", "A", "ü", "a b", "a\n", "a" * 254, "%2e%2e"]
)
async def test_what_can_be_no_name_gets_into_no_url(name: str) -> None:
    """It is refused before anything is asked, and not echoed at length."""
    client = ScriptedClient()
    with pytest.raises(LookupRefused, match=r"^secret\(.{,90}\): no object can have this name$"):
        await LookupReader(client).read("shop", Lookup(Source.SECRET, name))

    assert client.reads == []


@pytest.mark.parametrize("source", [Source.SHARED_CONFIG_MAP, Source.SHARED_SECRET])
async def test_without_a_namespace_of_shared_resources(client: Client, source: Source) -> None:
    """The error names the option."""
    with pytest.raises(LookupRefused, match="--shared-resources-namespace"):
        await LookupReader(client).read("shop", Lookup(source, "token"))


async def test_a_missing_right_is_named() -> None:
    """The error says what the server said, and what to allow where."""
    client = ScriptedClient()
    client.objects[Key("shared", "token")] = Forbidden(403, "Forbidden", 'secrets "token" is forbidden')
    with pytest.raises(LookupRefused) as refused:
        await LookupReader(client, "shared").read("shop", Lookup(Source.SHARED_SECRET, "token"))

    assert str(refused.value) == (
        "sharedSecret('token'): the controller may not read it: secrets \"token\" is forbidden; allow get on secrets "
        "in namespace shared"
    )


@pytest.mark.parametrize("name", ["HUNTER-2", "hunter-2"])
async def test_a_name_that_was_made_of_a_secret(name: str) -> None:
    """It is told by nobody who cannot read what has it."""
    client = ScriptedClient()
    client.objects[Key("shared", name)] = Forbidden(403, "Forbidden", f'secrets "{name}" is forbidden')
    for shared in ("shared", ""):
        with pytest.raises(LookupRefused, match="…") as refused:
            await LookupReader(client, shared).read("shop", Lookup(Source.SHARED_SECRET, name, untold=True))

        assert name not in str(refused.value)


async def test_a_name_that_was_made_of_a_secret_while_the_server_is_away() -> None:
    """What may pass stays what it is, without the name."""
    client, name = ScriptedClient(), "hunter-2"
    for untold in (True, False):
        client.objects[Key("shop", name)] = ServerError(503, "Unavailable", f"no {name}", request=f"get shop/{name}")
        with pytest.raises(ServerError) as raised:
            await LookupReader(client).read("shop", Lookup(Source.CONFIG_MAP, name, untold=untold))

        assert (name in f"{raised.value} {raised.value.message}") is not untold
        assert raised.value.code == 503


async def test_what_may_pass_is_raised_as_it_is() -> None:
    """Whoever asked decides whether to try again."""
    client = ScriptedClient()
    client.objects[Key("shop", "settings")] = ConnectionLost("reset")
    with pytest.raises(ConnectionLost):
        await LookupReader(client).read("shop", Lookup(Source.CONFIG_MAP, "settings"))
