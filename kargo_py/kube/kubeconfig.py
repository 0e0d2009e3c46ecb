"""Where the API server is and how to be let in: from kubeconfig files, or the service account of a pod.

kubernetes-asyncio turns plain credentials (tokens, certificates, passwords) into its Configuration. Credentials that
have to be fetched first (exec plugins, OIDC) are fetched here and handed to it as plain ones, so that they can be
fetched again when they expire: see :attr:`Access.renew_after`. Files are read in a thread.

Every fault is a ConfigError, one sentence that names the file and what to do.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog
import yaml

from kargo_py.kube import oidc
from kargo_py.kube._kubernetes_asyncio import load as load_library
from kargo_py.kube.errors import ConfigError
from kargo_py.kube.exec_plugin import run_plugin
from kargo_py.messages import Shown, message

POD_WITHOUT_TOKEN = message(
    "{source}: {why}; does the pod automount its token?",
    do="Set `automountServiceAccountToken: true` in the pod or its service account, or give a kubeconfig with "
    "`--kubeconfig`.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
OF_A_SOURCE = message(
    "{source}: {why}",
    do="The kubeconfig's name, and one of the texts here that say what is wrong in it.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_FILE = message(
    "no such file; name another with --kubeconfig or $KUBECONFIG",
    do="Correct the path. In a pod without these two its service account is used.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_CURRENT_CONTEXT = message(
    "it has no current-context; set one with: kubectl config use-context NAME",
    do="Set `current-context` in the kubeconfig.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
FILE_UNREADABLE = message(
    "{path} cannot be read: {why}",
    do="Correct the path or the rights of the file.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_YAML = message(
    "{path} is no YAML: {why}",
    do="Correct the file at the line named, or correct the path.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
FILE_EMPTY = message(
    "{path} is empty",
    do="Name another file with `--kubeconfig` or `$KUBECONFIG`, or write this one again.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_KUBECONFIG = message(
    "{path} is no kubeconfig: a mapping is expected, not a {type}",
    do="Name another file with `--kubeconfig` or `$KUBECONFIG`.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_LIST_OF_MAPPINGS = message(
    "{path} is no kubeconfig: {kind}s is no list of mappings",
    do="Correct that part of the file.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_MAPPING = message(
    '{path} is no kubeconfig: {kind} "{name}" is no mapping',
    do="Correct that entry of the file.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_ENTRY = message(
    'there is no {kind} "{name}"; {have}',
    do="Correct `current-context` or `--kubeconfig`; what the kubeconfig has is named.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_ENTRY_OF_CONTEXT = message(
    'there is no {kind} "{name}", which context "{context}" names; {have}',
    do="Correct the name in the context, or add the entry to the kubeconfig; what it has is named.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
SERVER_MALFORMED = message(
    'the server of cluster "{name}" is {server!r}; it must start with https:// or http://',
    do="Correct `clusters[].cluster.server` in the kubeconfig.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
PROXY_MALFORMED = message(
    'the proxy-url of cluster "{name}" is {proxy!r}; only http:// and https:// are supported',
    do="Correct `clusters[].cluster.proxy-url` in the kubeconfig; SOCKS proxies cannot be used.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_SUCH_PATH = message(
    "its {field} {path} does not exist",
    do="Correct that field of the kubeconfig; a relative path starts from the folder of the kubeconfig.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
TOKEN_FILE_EMPTY = message(
    "its tokenFile {path} is empty",
    do="Have the file written again. Once running it is read again by itself every minute.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_BASE64 = message(
    "its {field} is no base64",
    do="Write that field of the kubeconfig again: `base64 -w0 FILE`.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
EXEC_MALFORMED = message(
    "the exec section of its user is no mapping",
    do="Correct `users[].user.exec` in the kubeconfig.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
AUTH_PROVIDER_UNSUPPORTED = message(
    "its auth-provider {name!r} is not supported (nor by Kubernetes since 1.26); use exec",
    do="Replace `auth-provider` by the `exec` plugin of your cloud in the kubeconfig.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
CREDENTIALS_UNREADABLE = message(
    "its credentials or certificates cannot be read: {why}",
    do="Correct what the text names in the kubeconfig, or fetch it anew.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
KEY_ENCRYPTED = message(
    "its client key is encrypted, and nobody is there to type a passphrase",
    do="Give a key without a passphrase: `openssl pkey -in KEY -out NEW`.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
TOKEN_MALFORMED = message(
    "its token has characters that no token has; write it again",
    do="Copy the token again; often a line break or a quote got into it.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
TOKEN_NOT_SAVED = message(
    "renewed token not saved",
    do="The new OIDC token could not be written into the kubeconfig; this process goes on with it. Make the file "
    "writable, else the next start may need a login.",
    shown=Shown.LOG,
)

T = TypeVar("T")

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_FILES_RENEWED_AFTER = 60.0
"""Seconds after which token files are read again; kubelet replaces a pod's token long before it expires."""
_LONGEST_MARGIN = 300.0
_SHORTEST_RENEWAL = 10.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """A way in.

    ``configuration`` is kubernetes-asyncio's. ``headers`` prove who we are. ``renew_after`` is in seconds from now;
    None if nothing expires that we know of. ``user`` is what a person calls these credentials.
    """

    configuration: Any
    headers: Sequence[tuple[str, str]]
    renew_after: float | None
    user: str


@dataclass(frozen=True, slots=True)
class Place:
    """What is not sent, but holds where a user names nothing else.

    ``namespace`` of the context, "" if it has none; ``user``: what the kubeconfig calls the user, who may have another
    name in the cluster.
    """

    namespace: str
    user: str


class Source(Protocol):
    """Where access comes from; ``name`` is for messages. Loading again renews what has expired."""

    @property
    def name(self) -> str:
        """What a person calls it, e.g. ``kubeconfig /home/me/.kube/config``."""

    async def load(self) -> Access:
        """Read everything afresh; raises ConfigError."""


def find_source(kubeconfig: str | None, context: str | None) -> Kubeconfig | ServiceAccount:
    """The file that was named, else those of ``$KUBECONFIG``, else the pod's service account, else ``~/.kube/config``.

    Reads the file system.
    """
    if kubeconfig:
        return Kubeconfig([Path(kubeconfig).expanduser()], context)
    if paths := [Path(part).expanduser() for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]:
        return Kubeconfig(paths, context)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (_SERVICE_ACCOUNT / "token").exists():
        return ServiceAccount()
    return Kubeconfig([Path("~/.kube/config").expanduser()], context)


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """The service account that Kubernetes gives to each pod."""

    directory: Path = _SERVICE_ACCOUNT

    @property
    def name(self) -> str:
        """See :class:`Source`."""
        return f"service account in {self.directory}"

    async def load(self) -> Access:
        """See :class:`Source`."""
        return await asyncio.to_thread(self._load)

    async def place(self) -> Place:
        """Where to act as whom where nothing else is said; raises ConfigError."""
        return await asyncio.to_thread(self._place)

    def _place(self) -> Place:
        try:
            return Place((self.directory / "namespace").read_text(encoding="utf-8").strip(), "")
        except OSError as error:
            raise ConfigError(POD_WITHOUT_TOKEN(source=self.name, why=error)) from error

    def _load(self) -> Access:
        library = load_library()
        configuration = library.Configuration()
        # The library's own renewal would read the file in the event loop.
        loader = library.InClusterConfigLoader(
            token_filename=str(self.directory / "token"),
            cert_filename=str(self.directory / "ca.crt"),
            try_refresh_token=False,
        )
        try:
            loader.load_and_set(configuration)
            headers = authorization(configuration.api_key.get("BearerToken"))
        except (library.ConfigException, OSError, ConfigError) as error:
            raise ConfigError(POD_WITHOUT_TOKEN(source=self.name, why=error)) from error
        return Access(configuration, headers, _FILES_RENEWED_AFTER, "the pod's service account")


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One kubeconfig file, or several merged as kubectl does: what comes first counts."""

    paths: Sequence[Path]
    context: str | None = None

    @property
    def name(self) -> str:
        """See :class:`Source`."""
        return f"kubeconfig {os.pathsep.join(map(str, self.paths))}"

    async def load(self) -> Access:
        """See :class:`Source`."""
        try:
            chosen = await asyncio.to_thread(_choose, self.paths, self.context)
            user, renew_after = await _plain_user(chosen)
            configuration = await asyncio.to_thread(_configuration, chosen.cluster, user)
            headers = [*authorization(configuration.api_key.get("BearerToken")), *_impersonation(chosen.user)]
        except ConfigError as error:
            raise ConfigError(OF_A_SOURCE(source=self.name, why=error.message)) from error
        who = f'user "{chosen.user_name}"' if chosen.user_name else "no user"
        return Access(configuration, headers, renew_after, who)

    async def place(self) -> Place:
        """Where to act as whom where nothing else is said; raises ConfigError."""
        try:
            chosen = await asyncio.to_thread(_choose, self.paths, self.context)
        except ConfigError as error:
            raise ConfigError(OF_A_SOURCE(source=self.name, why=error.message)) from error
        return Place(chosen.namespace, str(chosen.user.get("as") or chosen.user_name))


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What the context stands for; paths in ``cluster`` and ``user`` are absolute."""

    cluster: dict[str, Any]
    user: dict[str, Any]
    user_name: str
    user_file: Path
    namespace: str


# -- reading files ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entry:
    value: dict[str, Any]
    file: Path


def _choose(paths: Sequence[Path], wanted: str | None) -> _Chosen:
    files = [(path, _read(path)) for path in paths if path.exists()]
    if not files:
        raise ConfigError(NO_FILE())
    name = wanted or next((str(c["current-context"]) for _, c in files if c.get("current-context")), "")
    if not name:
        raise ConfigError(NO_CURRENT_CONTEXT())
    context = _entry(files, "context", name).value
    cluster = _entry(files, "cluster", context.get("cluster"), name)
    _check_cluster(cluster.value, str(context.get("cluster")))
    user_name = str(context.get("user") or "")
    user = _entry(files, "user", user_name, name) if user_name else _Entry({}, cluster.file)
    return _Chosen(
        _absolute(cluster, ["certificate-authority"]),
        _absolute(user, ["client-certificate", "client-key", "tokenFile"]),
        user_name,
        user.file,
        str(context.get("namespace") or ""),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConfigError(FILE_UNREADABLE(path=path, why=error.strerror)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(NO_YAML(path=path, why=_yaml_problem(error))) from error
    if not content:
        raise ConfigError(FILE_EMPTY(path=path))
    if not isinstance(content, dict):
        raise ConfigError(NO_KUBECONFIG(path=path, type=type(content).__name__))
    return content


def _yaml_problem(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark is not None else ""
    return where + " ".join(str(getattr(error, "problem", None) or error).split())


def _entry(files: Sequence[tuple[Path, dict[str, Any]]], kind: str, name: object, context: str = "") -> _Entry:
    """The first entry of *kind* with this *name*, which *context* names."""
    known = []
    for path, content in files:
        entries = content.get(f"{kind}s") or []
        if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
            raise ConfigError(NO_LIST_OF_MAPPINGS(path=path, kind=kind))
        for entry in entries:
            if entry.get("name") == name:
                value = entry.get(kind) or {}
                if not isinstance(value, dict):
                    raise ConfigError(NO_MAPPING(path=path, kind=kind, name=name))
                return _Entry(dict(value), path)
            known.append(str(entry.get("name")))
    have = f"it has {', '.join(sorted(known))}" if known else f"it has no {kind}s"
    if context:
        raise ConfigError(NO_ENTRY_OF_CONTEXT(kind=kind, name=name, context=context, have=have))
    raise ConfigError(NO_ENTRY(kind=kind, name=name, have=have))


def _check_cluster(cluster: Mapping[str, Any], name: str) -> None:
    server = cluster.get("server")
    if not isinstance(server, str) or not re.match(r"https?://[^/]", server):
        raise ConfigError(SERVER_MALFORMED(name=name, server=server))
    proxy = cluster.get("proxy-url")
    if proxy and not re.match(r"https?://[^/]", str(proxy)):
        raise ConfigError(PROXY_MALFORMED(name=name, proxy=proxy))


def _absolute(entry: _Entry, names: Sequence[str]) -> dict[str, Any]:
    """Relative paths start from the file they stand in; a path to nothing is refused."""
    value = dict(entry.value)
    for name in names:
        # Data and tokens that stand in the file itself outrank paths, except that a tokenFile outranks a token.
        if data := value.get(f"{name}-data"):
            _check_base64(data, f"{name}-data")
        if data or not value.get(name):
            continue
        path = entry.file.parent / str(value[name])
        if not path.is_file():
            raise ConfigError(NO_SUCH_PATH(field=name, path=path))
        value[name] = str(path.absolute())
    if value.get("tokenFile"):
        value["token"] = Path(value["tokenFile"]).read_text(encoding="utf-8").strip()
        if not value["token"]:
            raise ConfigError(TOKEN_FILE_EMPTY(path=value["tokenFile"]))
    return value


def _check_base64(data: object, name: str) -> None:
    try:
        base64.b64decode("".join(str(data).split()), validate=True)
    except ValueError as error:
        raise ConfigError(NO_BASE64(field=name)) from error


# -- credentials ------------------------------------------------------------------------------------------------------


async def _plain_user(chosen: _Chosen) -> tuple[dict[str, Any], float | None]:
    """The user with credentials that need no fetching any more, and after how many seconds to fetch them again."""
    user = {name: value for name, value in chosen.user.items() if name not in {"exec", "auth-provider"}}
    directory = chosen.user_file.parent
    if provider := chosen.user.get("auth-provider"):
        token = await _oidc_token(provider, chosen, directory)
        return {**user, "token": token}, _renewal(oidc.expiry(token))
    if plugin := chosen.user.get("exec"):
        if not isinstance(plugin, dict):
            raise ConfigError(EXEC_MALFORMED())
        given = await run_plugin(plugin, cluster=chosen.cluster, directory=directory)
        if given.token:
            user["token"] = given.token
        if given.certificate:
            user["client-certificate-data"] = base64.b64encode(given.certificate.encode()).decode()
            user["client-key-data"] = base64.b64encode(given.key.encode()).decode()
        return user, _renewal(given.expires)
    return user, _FILES_RENEWED_AFTER if user.get("tokenFile") else None


def _renewal(expires: datetime | None) -> float | None:
    """Seconds until new credentials should be there: well before the old ones end."""
    if expires is None:
        return None
    left = (expires - datetime.now(UTC)).total_seconds()
    return max(left - min(_LONGEST_MARGIN, left / 5), _SHORTEST_RENEWAL)


async def _oidc_token(provider: Any, chosen: _Chosen, directory: Path) -> str:
    name = provider.get("name") if isinstance(provider, dict) else None
    if name != "oidc":
        raise ConfigError(AUTH_PROVIDER_UNSUPPORTED(name=name))
    config = provider.get("config") or {}
    token = str(config.get("id-token") or "")
    expires = oidc.expiry(token) if token else datetime.now(UTC)
    if expires is None or (expires - datetime.now(UTC)).total_seconds() > _SHORTEST_RENEWAL:
        return token
    fresh = await oidc.refresh(config, directory)
    try:
        await asyncio.to_thread(_keep_tokens, chosen.user_file, chosen.user_name, fresh)
    except OSError as error:
        # Issuers may take each refresh token only once: then the next start needs a login.
        _log.warning(TOKEN_NOT_SAVED(), file=str(chosen.user_file), why=str(error))
    return fresh["id-token"]


def _keep_tokens(path: Path, user_name: str, fresh: Mapping[str, str]) -> None:
    """Write renewed tokens into the kubeconfig, as kubectl does; the file is replaced at once or not at all."""
    content = _read(path)
    for entry in content["users"]:
        if entry.get("name") == user_name:
            entry["user"]["auth-provider"]["config"].update(fresh)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            yaml.safe_dump(content, file, default_flow_style=False, sort_keys=False)
        beside.chmod(path.stat().st_mode)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


# -- kubernetes-asyncio's part ----------------------------------------------------------------------------------------


def _configuration(cluster: dict[str, Any], user: dict[str, Any]) -> Any:
    library = load_library()
    configuration = library.Configuration()
    loader = library.KubeConfigLoader(
        {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": user}],
        }
    )
    try:
        _run(loader.load_and_set(configuration))
    except (library.ConfigException, OSError, ValueError, TypeError) as error:
        raise ConfigError(CREDENTIALS_UNREADABLE(why=error)) from error
    if configuration.key_file and b"ENCRYPTED" in Path(configuration.key_file).read_bytes():
        raise ConfigError(KEY_ENCRYPTED())
    return configuration


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that has nothing to wait for, here: plain credentials only need blocking reads of files."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("kubernetes-asyncio waits for something when loading plain credentials")


def authorization(token: str | None) -> list[tuple[str, str]]:
    """The header with *token*, which kubernetes-asyncio has put "Bearer" before; raises ConfigError."""
    value = str(token or "").strip()
    if not value:
        return []
    if not value.isprintable() or not value.isascii():
        raise ConfigError(TOKEN_MALFORMED())
    return [("Authorization", value)]


def _impersonation(user: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The headers of ``as``, which kubernetes-asyncio does not know: without them we would act as somebody else."""
    groups = [("Impersonate-Group", str(group)) for group in user.get("as-groups") or []]
    extra = [
        (f"Impersonate-Extra-{name}", str(value))
        for name, values in (user.get("as-user-extra") or {}).items()
        for value in values
    ]
    named = [(header, str(user[name])) for name, header in _IMPERSONATE.items() if user.get(name)]
    return [*named, *groups, *extra]


_IMPERSONATE = {"as": "Impersonate-User", "as-uid": "Impersonate-Uid"}
