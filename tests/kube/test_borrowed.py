"""Beside a kubernetes_asyncio client of the same program: its server and its credentials, as they are then."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes_asyncio.client import ApiClient, Configuration

from kargo_py.kube.codec import JSON
from kargo_py.kube.connection import connect_like
from kargo_py.kube.errors import ConfigError
from kargo_py.kube.resources import Key
from tests.kube.fakes import THINGS, thing
from tests.kube.peer import serving

KEY = Key("ns", "a")


@pytest.mark.parametrize("prefix", [None, "Bearer"])
async def test_the_same_server_and_user(prefix: str | None) -> None:
    """The token, with its prefix however that was given, and the user to act as; our own name for the program."""
    async with serving() as peer:
        peer.plays(peer.answers(thing("a", 1)))
        configuration = Configuration(host=peer.url)
        configuration.api_key["BearerToken"] = "secret" if prefix else "Bearer secret"
        if prefix:
            configuration.api_key_prefix["BearerToken"] = prefix
        async with ApiClient(configuration) as theirs:
            theirs.set_default_header("Impersonate-User", "somebody")
            async with await connect_like(theirs) as client:
                await client.get(THINGS, KEY, codec=JSON)
                assert client.host == peer.url

    (request,) = peer.received
    names = ("Authorization", "Impersonate-User", "User-Agent")
    assert [request.headers.get(name) for name in names] == ["Bearer secret", "somebody", "kargo-py"]


async def test_a_token_that_is_refused_is_asked_for_again() -> None:
    """The hook by which their client renews its token renews ours."""
    tokens = iter(["Bearer old", "Bearer new"])

    async def renew(configuration: Any) -> None:
        configuration.api_key["BearerToken"] = next(tokens)

    async with serving() as peer:
        peer.plays(peer.refuses(401), peer.answers(thing("a", 1)))
        configuration = Configuration(host=peer.url)
        configuration.refresh_api_key_hook = renew
        async with ApiClient(configuration) as theirs, await connect_like(theirs) as client:
            await client.get(THINGS, KEY, codec=JSON)

    assert [request.headers["Authorization"] for request in peer.received] == ["Bearer old", "Bearer new"]


async def test_a_token_that_is_none() -> None:
    """Whose configuration is wrong is told."""
    configuration = Configuration(host="https://127.0.0.1:1")
    configuration.api_key["BearerToken"] = "Bearer a\nb"
    async with ApiClient(configuration) as theirs:
        with pytest.raises(
            ConfigError, match=r"kubernetes_asyncio client of https://127\.0\.0\.1:1 cannot be used: its"
        ):
            await connect_like(theirs)
