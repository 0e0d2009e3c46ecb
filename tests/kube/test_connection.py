"""From files to requests: the whole way, and how a fault on it reads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from kargo_py.kube.codec import JSON
from kargo_py.kube.connection import connect
from kargo_py.kube.errors import ConfigError, Unreachable
from kargo_py.kube.resources import Key
from kargo_py.kube.rest import Settings
from tests.kube.fakes import THINGS, thing
from tests.kube.peer import serving

KEY = Key("ns", "a")


async def write_kubeconfig(path: Path, server: str, token: str = "secret") -> str:
    """A kubeconfig with the contexts "here", the current one, and "there", whose user is nobody."""
    config = {
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u"}},
            {"name": "there", "context": {"cluster": "c"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
    await asyncio.to_thread(path.write_text, yaml.safe_dump(config))
    return str(path)


async def test_connect(tmp_path: Path) -> None:
    """A file and a context lead to a client that is let in."""
    async with serving() as peer:
        peer.plays(*[peer.answers(thing("a", 1))] * 2)
        path = await write_kubeconfig(tmp_path / "config", peer.url)
        for context in (None, "there"):
            async with await connect(kubeconfig=path, context=context) as client:
                assert (await client.get(THINGS, KEY, codec=JSON))["metadata"]["name"] == "a"
                assert client.host == peer.url

    assert [r.headers.get("Authorization") for r in peer.received] == ["Bearer secret", None]


async def test_a_new_login_is_noticed(tmp_path: Path) -> None:
    """Whoever logs in again while the program runs need not start it again."""
    async with serving() as peer:
        peer.plays(peer.refuses(401), peer.answers(thing("a", 1)))
        path = await write_kubeconfig(tmp_path / "config", peer.url, "expired")
        async with await connect(kubeconfig=path) as client:
            await write_kubeconfig(tmp_path / "config", peer.url, "new")
            await client.get(THINGS, KEY, codec=JSON)

    assert [r.headers["Authorization"] for r in peer.received] == ["Bearer expired", "Bearer new"]


async def test_no_such_file(tmp_path: Path) -> None:
    """A fault in the configuration is told before anything is sent."""
    with pytest.raises(ConfigError) as caught:
        await connect(kubeconfig=str(tmp_path / "absent"))

    assert str(caught.value) == (
        f"kubeconfig {tmp_path}/absent: no such file; name another with --kubeconfig or $KUBECONFIG"
    )


async def test_unreachable(tmp_path: Path) -> None:
    """A server that is not there is told at the first request, with the file it comes from."""
    async with serving() as peer:
        url = peer.url
    path = await write_kubeconfig(tmp_path / "config", url)
    async with await connect(kubeconfig=path, settings=Settings(connect_timeout=1)) as client:
        with pytest.raises(Unreachable) as caught:
            await client.get(THINGS, KEY, codec=JSON)

    assert str(caught.value) == (
        f'get things "ns/a": cannot reach the API server {url}: Connection refused;'
        f" is it running, and is the kubeconfig {path} right?"
    )
