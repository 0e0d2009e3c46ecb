"""From a kubeconfig to a client: what is found, and what is said of one that is broken."""

from __future__ import annotations

import json
import ssl
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from kargo_py.kube.codec import JSON
from kargo_py.kube.connection import configuration_source, connect
from kargo_py.kube.errors import ConfigError, Unreachable
from kargo_py.kube.resources import Key
from tests.kube.fakes import THINGS, thing
from tests.kube.peer import serving

pytestmark = pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs and certificates in the loop")

KEY = Key("ns", "a")


def kubeconfig(path: Path, server: str, user: Any = None, **cluster: Any) -> str:
    """Write a kubeconfig with one context."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


def plugin(path: Path, body: str) -> str:
    """An executable credential plugin."""
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def exec_user(command: str) -> dict[str, Any]:
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": command}}


def credential(**status: str) -> str:
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"print({json.dumps(json.dumps(answer))})"


async def test_tls_and_token(tmp_path: Path) -> None:
    """The CA and the token of the kubeconfig are used; without the CA the server is not talked to."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    async with serving(context) as peer:
        peer.plays(peer.answers(thing("a", 1)))
        good = kubeconfig(tmp_path / "good", peer.url, **{"certificate-authority": str(ca)})
        async with await connect(kubeconfig=good) as client:
            await client.get(THINGS, KEY, codec=JSON)
        bad = kubeconfig(tmp_path / "bad", peer.url)
        async with await connect(kubeconfig=bad) as client:
            with pytest.raises(Unreachable, match="certificate"):
                await client.get(THINGS, KEY, codec=JSON)

    assert [r.headers["Authorization"] for r in peer.received] == ["Bearer secret"]


async def test_exec_plugin(tmp_path: Path) -> None:
    """The token of a credential plugin is used, and renewed when the server refuses it."""
    count = tmp_path / "count"
    body = f"open({str(count)!r}, 'a').write('x')\n{credential(token='from-plugin')}"
    async with serving() as peer:
        path = kubeconfig(tmp_path / "config", peer.url, exec_user(plugin(tmp_path / "plugin", body)))
        peer.plays(peer.refuses(401), peer.answers(thing("a", 1)))
        async with await connect(kubeconfig=path) as client:
            await client.get(THINGS, KEY, codec=JSON)

    assert [r.headers["Authorization"] for r in peer.received] == ["Bearer from-plugin"] * 2
    assert count.read_text() == "xx"


def broken(content: str) -> Any:
    def write(path: Path) -> str:
        path.write_text(content)
        return str(path)

    return write


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (str, "no such file"),
        (broken(""), "not a valid kubeconfig"),
        (broken("a: [b"), "not a valid kubeconfig"),
        (broken("[]"), "not a valid kubeconfig"),
        (broken("clusters: []"), "it has no current-context"),
        (broken("current-context: x\ncontexts: []\nclusters: []\nusers: []"), "it has no context 'x'"),
        (
            broken("current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\nclusters: []\nusers: []"),
            "names the cluster 'c', which is not in it",
        ),
        (
            lambda path: kubeconfig(path, "https://127.0.0.1:1", **{"certificate-authority": "/nowhere/ca.pem"}),
            "/nowhere/ca.pem",
        ),
        (lambda path: kubeconfig(path, "https://127.0.0.1:1", exec_user("no-such-plugin")), "no-such-plugin"),
        (
            lambda path: kubeconfig(
                path,
                "https://127.0.0.1:1",
                exec_user(plugin(path.with_name("p"), "import sys; sys.exit('not logged in')")),
            ),
            "not logged in",
        ),
        (
            lambda path: kubeconfig(path, "https://127.0.0.1:1", exec_user(plugin(path.with_name("p"), "print('no')"))),
            "failed to decode",
        ),
    ],
    ids=["absent", "empty", "no yaml", "a list", "no context", "unknown context", "unknown cluster", "no CA file",
         "no plugin", "plugin fails", "plugin talks nonsense"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:coroutine 'SubprocessStreamProtocol:RuntimeWarning")
async def test_broken(tmp_path: Path, make: Any, words: str) -> None:
    """One sentence that names the file and what is wrong, whatever the library made of it."""
    path = make(tmp_path / "config")

    with pytest.raises(ConfigError) as caught:
        await connect(kubeconfig=path)

    assert words in str(caught.value)
    assert str(tmp_path / "config") in str(caught.value)


async def test_token_that_cannot_be_renewed(tmp_path: Path) -> None:
    """A plugin that fails later is told at the request, not swallowed."""
    good = credential(token="t")
    program = plugin(tmp_path / "plugin", good)
    async with serving() as peer:
        path = kubeconfig(tmp_path / "config", peer.url, exec_user(program))
        peer.plays(peer.refuses(401))
        async with await connect(kubeconfig=path) as client:
            plugin(tmp_path / "plugin", "import sys; sys.exit('session over')")
            with pytest.raises(ConfigError, match="session over"):
                await client.get(THINGS, KEY, codec=JSON)


def test_which_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was named, else $KUBECONFIG, else the home directory's."""
    monkeypatch.setenv("KUBECONFIG", "/a:/b")
    assert configuration_source("/named") == "/named"
    assert configuration_source(None) == "/a:/b"
    monkeypatch.delenv("KUBECONFIG")
    assert configuration_source(None) == "~/.kube/config"


SCRIPT = """
import sys
from kargo_py.kube._kubernetes_asyncio import load
{before}
narrow = load()
assert {imported} == any(name.startswith("kubernetes_asyncio.client.models") for name in sys.modules)
assert narrow is load()
import kubernetes_asyncio
from kubernetes_asyncio import client, config
assert client.V1Pod and client.CoreV1Api and config.load_kube_config
assert client.ApiClient.__module__ == "kubernetes_asyncio.client.api_client"
assert config.kube_config.ApiClient is client.ApiClient
print("whole" if narrow.Configuration is client.Configuration else "narrow")
"""


@pytest.mark.parametrize(
    ("before", "imported", "expected"),
    [("", False, "narrow"), ("import kubernetes_asyncio", True, "whole")],
    ids=["alone", "beside a program that uses it"],
)
def test_narrow_import(before: str, imported: bool, expected: str) -> None:
    """Without the generated models if nobody else wants them; and whoever imports the package later gets it whole."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(before=before, imported=imported)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (0, expected) == (done.returncode, done.stdout.strip()), done.stderr


@pytest.mark.parametrize("module", ["kargo_py", "kargo_py.kube.client", "kargo_py.cli.main"])
def test_nothing_heavy_until_needed(module: str) -> None:
    """Importing the package, its protocols or its command line pulls in no HTTP client and no models."""
    heavy = ("aiohttp", "kubernetes_asyncio", "pydantic", "msgspec", "yaml")
    code = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "[]"
