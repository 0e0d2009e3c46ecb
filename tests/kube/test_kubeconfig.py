"""From kubeconfig files, or a pod's service account, to a way in; and what is said of those that are broken."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import ssl
import stat
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from kargo_py.kube.errors import ConfigError
from kargo_py.kube.exec_plugin import run_plugin
from kargo_py.kube.kubeconfig import Access, Kubeconfig, Place, ServiceAccount, find_source
from tests.kube.peer import Peer, serving

SERVER = "https://127.0.0.1:1"
V1 = "client.authentication.k8s.io/v1"


def content(server: object = SERVER, user: Any = None, **cluster: Any) -> dict[str, Any]:
    """A kubeconfig with one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"token": "secret"} if user is None else user}],
    }


def write(path: Path, what: object) -> Path:
    path.write_text(what if isinstance(what, str) else yaml.safe_dump(what))
    return path


def loaded(path: Path, context: str | None = None) -> Access:
    """Load in an event loop, which must not be blocked; the tests themselves read and write files outside of it."""
    return asyncio.run(Kubeconfig([path], context).load())


def plugin(path: Path, code: str) -> str:
    """An executable credential plugin."""
    path.write_text(f"#!{sys.executable}\n{code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def exec_user(command: str, **more: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": V1, "command": command, **more}}


def prints(api_version: str = V1, **status: Any) -> str:
    answer = {"apiVersion": api_version, "kind": "ExecCredential", "status": status}
    return f"print({json.dumps(json.dumps(answer))})"


def rfc3339(left: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=left)).isoformat().replace("+00:00", "Z")


# -- credentials that stand in the file -------------------------------------------------------------------------------


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("user", "headers"),
    [
        ({"token": "secret"}, [("Authorization", "Bearer secret")]),
        ({"token": "secret\n"}, [("Authorization", "Bearer secret")]),
        ({"tokenFile": "token"}, [("Authorization", "Bearer from-file")]),
        ({"tokenFile": "token", "token": "old"}, [("Authorization", "Bearer from-file")]),
        ({"username": "me", "password": "p"}, [("Authorization", basic("me:p"))]),
        ({}, []),
        (
            {"token": "t", "as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"scope": ["x"]}},
            [
                ("Authorization", "Bearer t"),
                ("Impersonate-User", "jane"),
                ("Impersonate-Uid", "7"),
                ("Impersonate-Group", "a"),
                ("Impersonate-Group", "b"),
                ("Impersonate-Extra-scope", "x"),
            ],
        ),
    ],
    ids=["token", "token with a line end", "token file", "token file before token", "password", "none",
         "somebody else"],
)  # fmt: skip
def test_plain_credentials(tmp_path: Path, user: dict[str, Any], headers: list[tuple[str, str]]) -> None:
    """Tokens, passwords and impersonation become headers; a token file is read again each minute."""
    write(tmp_path / "token", "from-file\n")
    access = loaded(write(tmp_path / "config", content(user=user)))

    assert list(access.headers) == headers
    assert access.renew_after == (60.0 if "tokenFile" in user else None)
    assert access.user == 'user "u"'


def test_cluster(tmp_path: Path) -> None:
    """Server, CA, TLS name and proxy arrive; relative paths start from the file they stand in."""
    write(tmp_path / "ca.pem", "a CA")
    settings = {"certificate-authority": "ca.pem", "tls-server-name": "kube", "proxy-url": "http://proxy:1"}
    access = loaded(write(tmp_path / "config", content(SERVER + "/", **settings)))

    found = access.configuration
    assert (found.host, found.tls_server_name, found.proxy) == (SERVER, "kube", "http://proxy:1")
    assert found.ssl_ca_cert == str(tmp_path / "ca.pem")
    assert found.verify_ssl


def test_files_are_merged(tmp_path: Path) -> None:
    """Of several files the first that says something counts, as for kubectl; files that are not there are no matter."""
    (tmp_path / "b").mkdir()
    write(tmp_path / "b" / "token", "in-b")
    first = write(tmp_path / "a", {"current-context": "one", "contexts": None})
    second = content("https://second", {"tokenFile": "token"})
    second |= {"current-context": "two", "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}]}
    third = write(tmp_path / "c", content("https://third"))
    paths = [first, tmp_path / "absent", write(tmp_path / "b" / "config", second), third]
    access = asyncio.run(Kubeconfig(paths).load())

    assert access.configuration.host == "https://second"
    assert list(access.headers) == [("Authorization", "Bearer in-b")]


def test_context(tmp_path: Path) -> None:
    """The context asked for is used instead of the current one."""
    two = content()
    two["contexts"].append({"name": "there", "context": {"cluster": "d"}})
    two["clusters"].append({"name": "d", "cluster": {"server": "https://there"}})
    access = loaded(write(tmp_path / "config", two), "there")

    assert (access.configuration.host, list(access.headers), access.user) == ("https://there", [], "no user")


# -- exec plugins -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "renewal"),
    [(3600.0, 3300.0), (600.0, 480.0), (5.0, 10.0), (-60.0, 10.0), (None, None)],
    ids=["an hour", "ten minutes", "seconds", "over", "not said"],
)
def test_exec_token(tmp_path: Path, left: float | None, renewal: float | None) -> None:
    """A plugin's token is used, and renewed well before it ends; one that never ends is not."""
    expires = {} if left is None else {"expirationTimestamp": rfc3339(left)}
    plugin(tmp_path / "login", prints(token="fresh", **expires))
    # A relative path starts from the kubeconfig.
    access = loaded(write(tmp_path / "config", content(user=exec_user("./login"))))

    assert list(access.headers) == [("Authorization", "Bearer fresh")]
    assert access.renew_after == (None if renewal is None else pytest.approx(renewal, abs=5))


def test_exec_certificate(tmp_path: Path) -> None:
    """A plugin may give a client certificate instead."""
    login = plugin(tmp_path / "login", prints(clientCertificateData="CERT", clientKeyData="KEY"))
    access = loaded(write(tmp_path / "config", content(user=exec_user(login))))

    written = [Path(access.configuration.cert_file), Path(access.configuration.key_file)]
    assert [path.read_text() for path in written] == ["CERT", "KEY"]


def test_exec_environment(tmp_path: Path) -> None:
    """A plugin is told its arguments, its environment, and of the cluster if it asks; it has no terminal."""
    code = """
import json, os, sys
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
told = [sys.argv[1:], os.environ["REGION"], sys.stdin.read(), info["spec"]]
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": {"token": json.dumps(told)}}))
print("chatter" * 100_000, file=sys.stderr)
"""
    config = {
        "apiVersion": V1,
        "command": plugin(tmp_path / "login", code),
        "args": ["token", 7],
        "env": [{"name": "REGION", "value": "eu"}],
        "provideClusterInfo": True,
    }
    given = asyncio.run(run_plugin(config, cluster={"server": SERVER, "extensions": []}, directory=tmp_path))

    spec = {"interactive": False, "cluster": {"server": SERVER}}
    assert json.loads(given.token) == [["token", "7"], "eu", "", spec]


def test_exec_that_hangs(tmp_path: Path) -> None:
    """A plugin that gives no answer is ended, with what it started, and told of."""
    pids = tmp_path / "pids"
    code = f"""
import os, subprocess
child = subprocess.Popen(["sleep", "1000"])
open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
child.wait()
"""
    config = {"apiVersion": V1, "command": plugin(tmp_path / "login", code)}
    with pytest.raises(ConfigError, match=r"login' gave no answer in 0\.5 s"):
        asyncio.run(run_plugin(config, cluster={}, directory=tmp_path, patience=0.5))

    for pid in map(int, pids.read_text().split()):
        assert not running(pid)


def running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


# -- OIDC -------------------------------------------------------------------------------------------------------------


def token(left: float, **claims: Any) -> str:
    """A JSON Web Token; "?>" gives characters that only base64url has."""
    parts = ({"alg": "none"}, {"exp": time.time() + left, "sub": "?>?>?>~~~", **claims})
    coded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join([*coded, "signature"])


def oidc_user(**config: str) -> dict[str, Any]:
    return {"auth-provider": {"name": "oidc", "config": config}}


def test_oidc_token(tmp_path: Path) -> None:
    """A token that is still good is used as it is, and renewed before it ends."""
    good = token(3600)
    access = loaded(write(tmp_path / "config", content(user=oidc_user(**{"id-token": good}))))

    assert list(access.headers) == [("Authorization", f"Bearer {good}")]
    assert access.renew_after == pytest.approx(3300, abs=5)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def refreshed(
    config: Path,
    given: Mapping[str, str],
    answer: Mapping[str, str],
    authority: trustme.CA | None = None,
    discovery: object = None,
) -> tuple[Peer, Access]:
    """Load a kubeconfig with an OIDC user whose issuer answers *answer*, and *discovery* when asked where to ask."""
    tls = tls_of(authority) if authority else None

    async def run() -> tuple[Peer, Access]:
        async with serving(tls) as peer:
            peer.plays(peer.answers({"token_endpoint": f"{peer.url}/token"} if discovery is None else discovery))
            peer.plays(peer.answers(answer))
            user = oidc_user(**given, **{"idp-issuer-url": peer.url})
            await asyncio.to_thread(write, config, content(user=user))
            return peer, await Kubeconfig([config]).load()

    return asyncio.run(run())


def test_oidc_refresh(tmp_path: Path, authority: trustme.CA) -> None:
    """An expired token is exchanged at its issuer, over verified TLS, and both new tokens are kept in the file."""
    ca = base64.b64encode(authority.cert_pem.bytes()).decode()
    fresh = token(3600)
    given = {"id-token": token(-5), "refresh-token": "once", "client-id": "me", "client-secret": "p"}
    given["idp-certificate-authority-data"] = ca
    path = tmp_path / "config"
    path.touch(0o640)
    peer, access = refreshed(path, given, {"id_token": fresh, "refresh_token": "next"}, authority)

    assert list(access.headers) == [("Authorization", f"Bearer {fresh}")]
    assert [r.path for r in peer.received] == ["/.well-known/openid-configuration", "/token"]
    assert peer.received[1].headers["Authorization"] == basic("me:p")
    assert peer.received[1].body == b"grant_type=refresh_token&refresh_token=once"
    kept = {**given, "id-token": fresh, "refresh-token": "next", "idp-issuer-url": peer.url}
    assert yaml.safe_load(path.read_text()) == content(user=oidc_user(**kept))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [path] == list(tmp_path.iterdir())


def test_oidc_refresh_that_cannot_be_kept(tmp_path: Path, logged: list[Any]) -> None:
    """A kubeconfig that cannot be written is no reason not to go on; it is said."""
    fresh = token(3600)
    # Not by permissions: tests may run as root.
    (tmp_path / f".config.{os.getpid()}").mkdir()
    given = {"refresh-token": "again", "client-id": "me"}
    _, access = refreshed(tmp_path / "config", given, {"id_token": fresh})

    assert list(access.headers) == [("Authorization", f"Bearer {fresh}")]
    assert [(entry["event"], entry["file"]) for entry in logged] == [
        ("renewed token not saved", str(tmp_path / "config"))
    ]


def test_oidc_issuer_is_verified(tmp_path: Path, authority: trustme.CA) -> None:
    """An issuer whose certificate is not trusted gets neither the secret nor the refresh token."""
    given = {"refresh-token": "once", "client-id": "me", "client-secret": "p"}
    with pytest.raises(ConfigError, match=r"https://127\.0\.0\.1:\d+ gave no new one: .*certificate"):
        refreshed(tmp_path / "config", given, {"id_token": token(3600)}, authority)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([{}, {}], "gave no new one: its openid-configuration has no token_endpoint"),
        ([["x"], {}], r"gave no new one: http://127\.0\.0\.1:\d+/\.well-known/\S+ answered no JSON object"),
        ([None, {"access_token": "a"}], "the answer of .* has no new one"),
    ],
    ids=["no endpoint", "no object", "no token"],
)
def test_oidc_strange_answers(tmp_path: Path, answers: list[Any], words: str) -> None:
    """An issuer that answers something else is told."""
    given = {"refresh-token": "once", "client-id": "me"}
    with pytest.raises(ConfigError, match=words):
        refreshed(tmp_path / "config", given, answers[1], discovery=answers[0])


@pytest.mark.parametrize(
    "authority",
    [{"idp-certificate-authority": "nowhere.pem"}, {"idp-certificate-authority-data": "bm9uc2Vuc2U="}],
    ids=["no file", "no certificate"],
)
def test_oidc_broken_authority(tmp_path: Path, authority: dict[str, str]) -> None:
    """A CA that cannot be loaded is told, and nothing is sent."""
    given = {"refresh-token": "once", "client-id": "me", **authority}
    with pytest.raises(ConfigError, match="the idp-certificate-authority of its user cannot be loaded"):
        refreshed(tmp_path / "config", given, {"id_token": token(3600)})


def tls_of(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


# -- what is broken ---------------------------------------------------------------------------------------------------


def named(**entries: Any) -> dict[str, Any]:
    return {**content(), **entries}


def with_user(user: Any) -> dict[str, Any]:
    return content(user=user)


def failing(code: str) -> Callable[[Path], dict[str, Any]]:
    return lambda folder: content(user=exec_user(plugin(folder / "login", code)))


BROKEN: list[tuple[str, Any, str]] = [
    ("absent", None, "no such file; name another with --kubeconfig or $KUBECONFIG"),
    ("empty", "", "{file} is empty"),
    ("no yaml", "a: [b\nc: d", "{file} is no YAML: line 2: "),
    ("no text", "\0", "{file} is no YAML: "),
    ("a list", "[x]", "{file} is no kubeconfig: a mapping is expected, not a list"),
    ("no current context", named(**{"current-context": ""}), "it has no current-context; set one with: kubectl config"),
    ("unknown context", named(**{"current-context": "x"}), 'there is no context "x"; it has here'),
    ("no contexts", named(contexts=[]), 'there is no context "here"; it has no contexts'),
    ("contexts no list", named(contexts={"a": 1}), "{file} is no kubeconfig: contexts is no list of mappings"),
    ("context no mapping", named(contexts=[{"name": "here", "context": "x"}]), 'context "here" is no mapping'),
    ("unknown cluster", named(clusters=[]), 'there is no cluster "c", which context "here" names; it has no clusters'),
    ("unknown user", named(users=[{"name": "v"}]), 'there is no user "u", which context "here" names; it has v'),
    ("no server", content(None), 'the server of cluster "c" is None; it must start with https:// or http://'),
    ("no scheme", content("127.0.0.1:6443"), 'the server of cluster "c" is \'127.0.0.1:6443\'; it must start with'),
    ("proxy", content(**{"proxy-url": "socks5://p:1"}), "'socks5://p:1'; only http:// and https:// are supported"),
    ("no CA file", content(**{"certificate-authority": "/nowhere/ca"}), "its certificate-authority /nowhere/ca does"),
    ("no certificate", with_user({"client-certificate": "c"}), "its client-certificate {folder}/c does not exist"),
    ("no token file", with_user({"tokenFile": "t"}), "its tokenFile {folder}/t does not exist"),
    ("bad base64", content(**{"certificate-authority-data": "%"}), "its certificate-authority-data is no base64"),
    ("bad token", with_user({"token": "a\nb"}), "its token has characters that no token has"),
    ("auth provider", with_user({"auth-provider": {"name": "gcp"}}), "its auth-provider 'gcp' is not supported"),
    ("oidc, no token", with_user(oidc_user()), "has expired and cannot be renewed: there is no idp-issuer-url"),
    ("oidc, bad token", with_user(oidc_user(**{"id-token": "a.b.c"})), "the id-token of its user is no JSON Web Token"),
    ("oidc, short token", with_user(oidc_user(**{"id-token": "a"})), "the id-token of its user is no JSON Web Token"),
    ("no plugin", with_user(exec_user("no-such-plugin")), "'no-such-plugin' is not there or cannot be run: install"),
    (
        "no plugin, hint",
        with_user(exec_user("no-such-plugin", installHint="brew install\nit")),
        "plugin 'no-such-plugin' is not there or cannot be run: brew install it",
    ),
    ("no command", with_user({"exec": {"apiVersion": V1}}), "the exec section of its user has no command"),
    ("exec no mapping", with_user({"exec": "login"}), "the exec section of its user is no mapping"),
    ("args no list", with_user(exec_user("x", args="y")), "the args of its credential plugin 'x' are no list"),
    ("interactive", with_user(exec_user("x", interactiveMode="Always")), "'x' needs a terminal"),
    ("plugin fails", failing("import sys; sys.exit('not\\nlogged in')"), "failed with exit code 1: not logged in"),
    ("silent plugin", failing("raise SystemExit(3)"), "failed with exit code 3: it said nothing on stderr"),
    ("no json", failing("print('secret')"), "printed no usable ExecCredential: not JSON"),
    ("json, but no credential", failing("print('[]')"), "printed no usable ExecCredential: it has no status"),
    ("other version", failing(prints("v0", token="t")), "apiVersion is 'v0', the kubeconfig asks for"),
    ("nothing in it", failing(prints()), "neither a token nor a client certificate"),
    ("half a certificate", failing(prints(clientKeyData="k")), "and clientKeyData, one is missing"),
    ("no time", failing(prints(token="t", expirationTimestamp="soon")), "expirationTimestamp 'soon' is no time"),
    (
        "no zone",
        failing(prints(token="t", expirationTimestamp="2026-01-01T00:00:00")),
        "expirationTimestamp '2026-01-01T00:00:00' has no time zone",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "words"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_broken(
    tmp_path: Path,
    make: Any,
    words: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line that names the file and what is wrong; nobody else prints or logs anything, and no secret is shown."""
    path = tmp_path / "config"
    what = make(tmp_path) if callable(make) else make
    if what is not None:
        write(path, what)

    with pytest.raises(ConfigError) as caught:
        loaded(path)

    text = str(caught.value)
    assert text.startswith(f"kubeconfig {path}: ")
    assert words.format(file=path, folder=tmp_path) in text
    assert "\n" not in text
    assert "secret" not in text
    assert (*capfd.readouterr(), caplog.records) == ("", "", [])


def test_unreadable(tmp_path: Path) -> None:
    """A path that is no file is told as what it is."""
    with pytest.raises(ConfigError, match=f"{tmp_path} cannot be read: Is a directory"):
        loaded(tmp_path)


def test_encrypted_key(tmp_path: Path) -> None:
    """A key with a passphrase is refused; OpenSSL would ask for it on the terminal and wait."""
    key = "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
    user = {name: base64.b64encode(key.encode()).decode() for name in ("client-certificate-data", "client-key-data")}
    with pytest.raises(ConfigError, match="its client key is encrypted"):
        loaded(write(tmp_path / "config", content(user=user)))


# -- which configuration ----------------------------------------------------------------------------------------------


def test_which(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file that was named, else $KUBECONFIG, else the pod's service account, else the home directory's."""
    monkeypatch.setattr("kargo_py.kube.kubeconfig._SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("KUBECONFIG", "/a::~/b")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert find_source("~/named", "x") == Kubeconfig([Path("/home/me/named")], "x")
    assert find_source(None, None) == Kubeconfig([Path("/a"), Path("/home/me/b")])
    monkeypatch.delenv("KUBECONFIG")
    assert find_source(None, None) == Kubeconfig([Path("/home/me/.kube/config")])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert find_source(None, None) == Kubeconfig([Path("/home/me/.kube/config")])
    write(tmp_path / "token", "t")
    assert isinstance(find_source(None, None), ServiceAccount)


def test_service_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a pod, address, token and CA come from where Kubernetes puts them; the token is read again each minute."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    write(tmp_path / "ca.crt", "a CA")
    source = ServiceAccount(tmp_path)
    for text in ("first", "second\n"):
        write(tmp_path / "token", text)
        access = asyncio.run(source.load())
        assert list(access.headers) == [("Authorization", f"Bearer {text.strip()}")]

    assert (access.configuration.host, access.renew_after) == ("https://[fd00::1]:443", 60.0)
    assert access.configuration.ssl_ca_cert == str(tmp_path / "ca.crt")
    (tmp_path / "ca.crt").unlink()
    with pytest.raises(ConfigError, match=f"service account in {tmp_path}: .*; does the pod automount its token?"):
        asyncio.run(source.load())


class TestPlace:
    """Where to act as whom where nothing else is said."""

    @pytest.mark.parametrize(
        ("context", "user", "place"),
        [
            ({}, None, Place("", "u")),
            ({"namespace": "shop"}, None, Place("shop", "u")),
            ({"namespace": None}, {"as": "ann"}, Place("", "ann")),
        ],
    )
    def test_of_a_kubeconfig(self, tmp_path: Path, context: Mapping[str, Any], user: Any, place: Place) -> None:
        """The context's namespace, and the user by the name in the file, or whom it acts as."""
        config = content(user=user)
        config["contexts"][0]["context"] |= context
        source = find_source(str(write(tmp_path / "config", config)), None)

        assert asyncio.run(source.place()) == place

    def test_of_a_broken_kubeconfig(self, tmp_path: Path) -> None:
        """The file is named, as when it is loaded."""
        path = tmp_path / "absent"
        with pytest.raises(ConfigError, match=f"kubeconfig {re.escape(str(path))}: no such file"):
            asyncio.run(find_source(str(path), None).place())

    def test_of_a_pod(self, tmp_path: Path) -> None:
        """The namespace that stands beside the token."""
        with pytest.raises(ConfigError, match="automount"):
            asyncio.run(ServiceAccount(tmp_path).place())
        (tmp_path / "namespace").write_text("shop\n")

        assert asyncio.run(ServiceAccount(tmp_path).place()) == Place("shop", "")
