"""A real kube-apiserver with its etcd, on 127.0.0.1, for tests and for the benchmark.

``with running(directory) as server`` starts both on free ports with certificates, users and data of their own and ends
exactly these two. There is no controller-manager: nothing collects garbage, and a deleted namespace stays Terminating.

Every method may block. In an async test call it as ``await asyncio.to_thread(server.restart)``; ``pause``, ``resume``
and ``token`` return at once.
"""

import base64
import contextlib
import csv
import dataclasses
import http.client
import json
import random
import shutil
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeVar
from urllib.parse import quote

import trustme

from tests.envtest import access
from tests.envtest.access import JsonObject, UserName
from tests.envtest.binaries import Binaries, find
from tests.envtest.processes import ChildProcess

HOST: Final = "127.0.0.1"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
START_SECONDS: Final = 60.0
_PORT_TRIES: Final = 5
_POLL_SECONDS: Final = 0.02
# A list of nothing that must come from the server's watch cache: while that is filled it answers 429 ("storage is
# (re)initializing"). With a limit and no selector etcd itself is asked, and the cache may not be there yet.
# https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4568-resilient-watchcache-init
FROM_THE_CACHE: Final = "fieldSelector=metadata.name%3Dnone-of-them"
T = TypeVar("T")

# As kube-up.sh: admission that needs a controller-manager, or that no test here is about.
_NO_ADMISSION: Final = (
    "ServiceAccount,TaintNodesByCondition,Priority,DefaultTolerationSeconds,DefaultStorageClass,DefaultIngressClass,"
    "StorageObjectInUseProtection,PersistentVolumeClaimResize,RuntimeClass,PodSecurity,LimitRanger,ResourceQuota,"
    "CertificateApproval,CertificateSigning,CertificateSubjectRestriction,ClusterTrustBundleAttest"
)


@dataclass(frozen=True, slots=True)
class Options:
    """How a server is run.

    ``audit="blocking"`` writes a request's line before the request ends, ``"batch"`` within a second and at less cost.
    ``fsync=False`` trusts that the machine will not lose power. ``port`` is the API server's; 0: any that is free.
    """

    audit: Literal["off", "blocking", "batch"] = "blocking"
    authorization: Literal["RBAC", "AlwaysAllow"] = "RBAC"
    fsync: bool = False
    port: int = 0
    apiserver_arguments: tuple[str, ...] = ()


class ServerFailed(Exception):
    """A server did not start, or ended by itself; the text has the end of its log."""


class RequestFailed(Exception):
    """The API server answered with an error."""

    def __init__(self, request: str, status: int, body: JsonObject) -> None:
        """Keep the HTTP *status* and the answer, which is mostly a Kubernetes Status."""
        super().__init__(f"{request}: {status} {body.get('reason', '')}: {body.get('message', body)}")
        self.status = status
        self.body = body


class ApiServer:
    """A kube-apiserver and its etcd; made by :func:`running`.

    ``strict`` if the kinds on it are to be as Kargo defines them.
    """

    strict = False

    def __init__(self, directory: Path, programs: Binaries, options: Options) -> None:
        """Only lay the files; :meth:`start` starts."""
        self.directory = directory
        self.options = options
        self.ca_file = directory / "ca.crt"
        self.audit_log = directory / "audit.log"
        self._programs = programs
        self._ports = Ports(0, 0, 0)
        self._etcd: ChildProcess | None = None
        self._apiserver: ChildProcess | None = None
        self._paused = False
        _lay_files(self)
        self._tls = ssl.create_default_context(cafile=str(self.ca_file))

    @property
    def url(self) -> str:
        """Where clients connect; the certificate also names ``localhost``."""
        return f"https://{HOST}:{self._ports.apiserver}"

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of what runs now: "etcd", "apiserver"."""
        running_now = {"etcd": self._etcd, "apiserver": self._apiserver}
        return {name: child.pid for name, child in running_now.items() if child and child.exit_code is None}

    # Users

    def token(self, user: UserName) -> str:
        """Bearer token of *user*."""
        return access.USERS[user].token

    def kubeconfig(self, user: UserName) -> Path:
        """File for kubectl and for our own clients."""
        path = self.directory / f"kubeconfig.{user}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "envtest", "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)}}
            ],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": "envtest", "context": {"cluster": "envtest", "user": user}}],
            "current-context": "envtest",
        }
        path.write_text(json.dumps(config, indent=2))  # JSON is YAML
        return path

    # Life

    @property
    def _backup(self) -> Path:
        return self.directory / "etcd.backup"

    def start(self) -> None:
        """Start both on free ports; once somebody else is quicker to a port, on others. Raises ServerFailed."""
        for _ in range(_PORT_TRIES - 1):
            try:
                self._start_on(self._choose_ports())
            except _PortTaken:
                self._discard()
            else:
                break
        else:
            self._start_on(self._choose_ports())
        if self.options.authorization == "RBAC":
            for collection, manifest in access.role_manifests():
                self.apply(collection, manifest)

    def stop(self) -> None:
        """End both and remove the data; the logs stay. Nothing when they are ended."""
        self._discard()

    def pause(self) -> None:
        """Freeze the API server: connections stay open, new ones are accepted by the kernel, nothing answers."""
        _alive(self._apiserver).pause()
        self._paused = True

    def resume(self) -> None:
        """Undo :meth:`pause`."""
        _alive(self._apiserver).resume()
        self._paused = False

    def kill(self) -> None:
        """SIGKILL the API server: connections are reset, later ones refused. Its data stays in etcd."""
        _alive(self._apiserver).kill()
        self._paused = False

    def restart(self) -> None:
        """Kill the API server if it runs, and start it again on the same port and data; return when it is ready."""
        if "apiserver" in self.pids:
            self.kill()
        self._start_apiserver()
        self._await_ready()

    def stop_etcd(self) -> None:
        """SIGKILL etcd: the API server stays up and answers with errors, or late."""
        _alive(self._etcd).kill()

    def start_etcd(self) -> None:
        """Start etcd again on the same port and data; return when the API server is ready."""
        self._start_etcd()
        self._await_ready()

    def back_up(self) -> None:
        """Keep a copy of etcd's data as it is now, for :meth:`roll_back`; both servers are restarted."""
        with self._data_at_rest() as data:
            shutil.rmtree(self._backup, ignore_errors=True)
            shutil.copytree(data, self._backup)

    def roll_back(self) -> None:
        """Go back to the data of :meth:`back_up`, as after a disaster: later versions have never been."""
        with self._data_at_rest() as data:
            shutil.rmtree(data)
            shutil.copytree(self._backup, data)

    @contextmanager
    def _data_at_rest(self) -> Iterator[Path]:
        for child in (self._apiserver, self._etcd):
            _alive(child).kill()
        yield self.directory / "etcd"
        self._start_etcd()
        self._start_apiserver()
        self._await_ready()

    def restore(self) -> None:
        """Make it serve again, whatever a test has done to it."""
        if self._paused:
            self.resume()
        running_now = self.pids
        if "etcd" not in running_now:
            self._start_etcd()
        if "apiserver" not in running_now:
            self._start_apiserver()
        if len(running_now) < len(("etcd", "apiserver")):
            self._await_ready()

    # Requests

    def request(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        content_type: str = "application/json",
        user: UserName = "admin",
        timeout: float = 30.0,
    ) -> JsonObject:
        """Send one request on a connection of its own; return the JSON answer.

        Raises:
            RequestFailed: the server answered with 4xx or 5xx.
            OSError: it did not answer.
        """
        connection = http.client.HTTPSConnection(HOST, self._ports.apiserver, context=self._tls, timeout=timeout)
        headers = {"Authorization": f"Bearer {self.token(user)}", "Content-Type": content_type}
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        try:
            decoded = json.loads(text)
        except ValueError:  # /readyz, and filters in front of the API, speak plain text
            decoded = {"message": text}
        if answer.status >= 400:
            raise RequestFailed(f"{method} {path}", answer.status, decoded)
        return decoded if isinstance(decoded, dict) else {"items": decoded}

    def watch(self, path: str, *, seconds: float, user: UserName = "admin") -> Iterator[JsonObject]:
        """The events of a watch that the server ends after *seconds* at the latest.

        Raises:
            RequestFailed: the server answered with 4xx or 5xx.
            OSError: it did not answer, or went away.
        """
        connection = http.client.HTTPSConnection(HOST, self._ports.apiserver, context=self._tls, timeout=seconds + 5)
        target = f"{path}&timeoutSeconds={max(1, round(seconds))}"
        with contextlib.closing(connection):
            connection.request("GET", target, headers={"Authorization": f"Bearer {self.token(user)}"})
            answer = connection.getresponse()
            if answer.status >= 400:
                raise RequestFailed(f"GET {target}", answer.status, json.loads(answer.read()))
            yield from map(json.loads, answer)

    def apply(self, collection: str, manifest: JsonObject) -> JsonObject:
        """Server-side apply *manifest* in *collection*, a path such as ``/api/v1/namespaces``."""
        path = f"{collection}/{quote(manifest['metadata']['name'])}?fieldManager=envtest&force=true"
        return self.request("PATCH", path, manifest, content_type="application/apply-patch+yaml")

    def await_custom_resources(self) -> None:
        """Return when every kind that has a CustomResourceDefinition can be read and written."""
        for definition in self.request("GET", DEFINITIONS)["items"]:
            name = definition["metadata"]["name"]
            poll(partial(self._is_served, definition), f"CRD {name} is not served after {START_SECONDS:.0f} s")

    def create_namespace(self, prefix: str = "test") -> str:
        """Make a namespace with a name nobody had; return the name."""
        name = f"{prefix}-{uuid.uuid4().hex[:10]}"
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    # etcd and the audit log

    def forget_history(self) -> None:
        """Compact etcd to now, and restart: continue tokens and resourceVersions from before answer 410 Expired.

        The restart is needed because the API server keeps a history of its own for lists and watches.
        """
        for _ in range(2):  # so that the first version after the last that a client may have seen is gone, too
            put = self._ask_etcd("kv/put", {"key": base64.b64encode(b"envtest").decode()})
        self._ask_etcd("kv/compaction", {"revision": put["header"]["revision"], "physical": True})
        self.restart()

    def audited(self, user: UserName | None = None) -> list[JsonObject]:
        """Audit events so far, oldest first, of *user* or of all: every request that ended before this call.

        Watches have one event when they begin (stage ResponseStarted) and one when they end.
        """
        if self.options.audit == "off":
            raise ValueError("this server was started without an audit log")
        mark = f"audit-mark-{uuid.uuid4().hex}"
        with contextlib.suppress(RequestFailed):  # there is none: a 404, and a line in the log
            self.request("GET", f"/api/v1/namespaces/{mark}")
        events = poll(lambda: self._events_to(mark), f"the audit log {self.audit_log} has no line for our own request")
        name = access.USERS[user].name if user else None
        return [event for event in events if name in {None, event["user"].get("username")}]

    def _events_to(self, mark: str) -> list[JsonObject] | None:
        text = self.audit_log.read_text()
        if mark not in text or not text.endswith("\n"):
            return None
        events = [event for line in text.splitlines() if (event := _audit_event(line)) is not None]
        return [event for event in events if "/namespaces/audit-mark-" not in event["requestURI"]]

    def _ask_etcd(self, call: str, body: JsonObject) -> JsonObject:
        connection = http.client.HTTPConnection(HOST, self._ports.etcd, timeout=10)
        with contextlib.closing(connection):
            connection.request("POST", f"/v3/{call}", json.dumps(body))
            answer = connection.getresponse()
            decoded: JsonObject = json.loads(answer.read())
        if answer.status >= 400:
            raise RequestFailed(f"etcd {call}", answer.status, decoded)
        return decoded

    def _is_served(self, definition: JsonObject) -> bool:
        spec = definition["spec"]
        version = next(version["name"] for version in spec["versions"] if version["served"])
        try:
            live = self.request("GET", f"{DEFINITIONS}/{definition['metadata']['name']}")
            # Until its storage is set up, also after each start of the server, a kind answers 404, then 429.
            self.request("GET", f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?{FROM_THE_CACHE}")
            # Its OpenAPI comes later still, and `kubectl explain` and `create` ask for it.
            described = self.request("GET", f"/openapi/v3/apis/{spec['group']}/{version}")["components"]["schemas"]
        except RequestFailed as failure:
            if failure.status in {404, 429, 503}:
                return False
            raise
        # Null, not absent, in the moment between the creation and the first look of the server's own controller.
        conditions = live.get("status", {}).get("conditions") or []
        established = any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
        return established and any(name.endswith(f".{spec['names']['kind']}") for name in described)

    # Processes

    def _choose_ports(self) -> "Ports":
        ports = _free_ports()
        if not (wanted := self.options.port):
            return ports
        try:
            _socket_on(wanted, reuse=True).close()
        except OSError as error:
            raise ServerFailed(f"port {wanted} of {HOST}: {error.strerror}; choose another one") from error
        return dataclasses.replace(ports, apiserver=wanted)

    def _start_on(self, ports: "Ports") -> None:
        self._ports = ports
        # Both at once: the API server needs a second before it first asks etcd.
        self._start_etcd()
        self._start_apiserver()
        self._await_ready()

    def _start_etcd(self) -> None:
        command = _etcd_command(self)
        self._etcd = ChildProcess("etcd", [self._programs.etcd, *command], self.directory / "etcd.log")

    def _start_apiserver(self) -> None:
        command = _apiserver_command(self)
        self._apiserver = ChildProcess(
            "kube-apiserver", [self._programs.kube_apiserver, *command], self.directory / "apiserver.log"
        )

    def _await_ready(self) -> None:
        poll(self._is_ready, f"not ready after {START_SECONDS:.0f} s", failure=self._failure)
        poll(self._are_core_kinds_cached, f"core kinds cannot be listed after {START_SECONDS:.0f} s")
        self.await_custom_resources()

    def _are_core_kinds_cached(self) -> bool:
        try:
            for kind in self.request("GET", "/api/v1")["resources"]:
                if {"list", "watch"} <= set(kind["verbs"]):
                    self.request("GET", f"/api/v1/{kind['name']}?{FROM_THE_CACHE}")
        except RequestFailed as failure:
            if failure.status in {429, 503}:
                return False
            raise
        return True

    def _is_ready(self) -> bool:
        for child in (_alive(self._etcd), _alive(self._apiserver)):
            if child.exit_code is not None:
                if "address already in use" in child.output():
                    raise _PortTaken(f"{child.name}: its port is taken\n{child.tail()}")
                raise self._failure(f"{child.name} ended with {child.exit_code}")
        try:
            self._ask_etcd("maintenance/status", {})
            self.request("GET", "/readyz", timeout=5)
        except (OSError, http.client.HTTPException, RequestFailed):
            return False
        return True

    def _failure(self, what: str) -> "ServerFailed":
        tails = [child.tail() for child in (self._etcd, self._apiserver) if child]
        return ServerFailed("\n".join([f"kube-apiserver and etcd in {self.directory}: {what}", *tails]))

    def _discard(self) -> None:
        for child in (self._apiserver, self._etcd):
            if child:
                child.kill()
        shutil.rmtree(self._backup, ignore_errors=True)
        shutil.rmtree(self.directory / "etcd", ignore_errors=True)  # 64 MB of preallocated log and more


@contextmanager
def running(
    directory: Path,
    *,
    programs: Binaries | None = None,
    options: Options | None = None,
) -> Iterator[ApiServer]:
    """Run a server that keeps its files in *directory*.

    Raises:
        BinariesMissing: there is nothing to run.
        ServerFailed: it did not start.
    """
    server = ApiServer(directory, programs or find(), options or Options())
    try:
        server.start()
        yield server
    finally:
        server.stop()


class _PortTaken(ServerFailed):
    """Another process got the port between our choice and its use."""


@dataclass(frozen=True, slots=True)
class Ports:
    apiserver: int
    etcd: int
    etcd_peer: int


def _free_ports() -> Ports:
    """Choose ports that are free now.

    Not from the kernel's ephemeral range: while a server there is down, a client's own connection may be given its
    port, or even connect to itself.
    """
    with contextlib.ExitStack() as held:
        return Ports(*(held.enter_context(_socket_on_any()).getsockname()[1] for _ in range(3)))


def _socket_on_any() -> socket.socket:
    while True:
        with contextlib.suppress(OSError):
            return _socket_on(random.SystemRandom().randrange(15000, _first_ephemeral_port()))


def _socket_on(port: int, *, reuse: bool = False) -> socket.socket:
    """*reuse*: closed connections of a server that has just ended there do not matter, as to a Go program."""
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
    try:
        taken.bind((HOST, port))
    except OSError:
        taken.close()
        raise
    return taken


def _first_ephemeral_port() -> int:
    with contextlib.suppress(OSError):  # Linux only
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        return first if first > 20000 else 32768
    return 32768


def _audit_event(line: str) -> JsonObject | None:
    """One event; None for a request whose body is nested more deeply than Python reads."""
    try:
        event: JsonObject = json.loads(line)
    except RecursionError:
        return None
    return event


def _alive(child: ChildProcess | None) -> ChildProcess:
    if child is None:
        raise ValueError("this server has not been started")
    return child


def poll(
    probe: Callable[[], T | None],
    complaint: str,
    failure: Callable[[str], Exception] = TimeoutError,
    seconds: float = START_SECONDS,
) -> T:
    deadline = time.monotonic() + seconds
    while not (found := probe()):
        if time.monotonic() > deadline:
            raise failure(complaint)
        time.sleep(_POLL_SECONDS)
    return found


def _lay_files(server: ApiServer) -> None:
    """Certificates, users and audit policy, in the server's directory."""
    directory = server.directory
    directory.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(server.ca_file)
    certificate = authority.issue_cert(HOST, "localhost", "kubernetes.default.svc")
    certificate.private_key_pem.write_to_path(directory / "server.key")
    certificate.cert_chain_pems[0].write_to_path(directory / "server.crt")
    (directory / "audit-policy.yaml").write_text(json.dumps(access.AUDIT_POLICY))
    with (directory / "tokens.csv").open("w", newline="") as tokens:
        lines = csv.writer(tokens)
        lines.writerows([u.token, u.name, f"uid-{key}", ",".join(u.groups)] for key, u in access.USERS.items())


def _etcd_command(server: ApiServer) -> list[str]:
    ports = server._ports
    clients, peers = f"http://{HOST}:{ports.etcd}", f"http://{HOST}:{ports.etcd_peer}"
    return [
        "--name=envtest",
        f"--data-dir={server.directory / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=envtest={peers}",
        "--quota-backend-bytes=4294967296",
        "--snapshot-count=10000",
        "--log-level=warn",
        f"--unsafe-no-fsync={'false' if server.options.fsync else 'true'}",
    ]


def _apiserver_command(server: ApiServer) -> list[str]:
    directory, ports = server.directory, server._ports
    return [
        f"--etcd-servers=http://{HOST}:{ports.etcd}",
        f"--bind-address={HOST}",
        f"--secure-port={ports.apiserver}",
        f"--advertise-address={HOST}",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={directory / 'server.crt'}",
        f"--tls-private-key-file={directory / 'server.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={directory / 'server.key'}",
        f"--service-account-key-file={directory / 'server.key'}",
        "--service-cluster-ip-range=10.96.0.0/24",
        f"--token-auth-file={directory / 'tokens.csv'}",
        f"--authorization-mode={server.options.authorization}",
        f"--disable-admission-plugins={_NO_ADMISSION}",
        "--profiling=false",
        "--v=1",
        *_audit_arguments(server),
        *server.options.apiserver_arguments,
    ]


def _audit_arguments(server: ApiServer) -> list[str]:
    if server.options.audit == "off":
        return []
    arguments = [
        f"--audit-policy-file={server.directory / 'audit-policy.yaml'}",
        f"--audit-log-path={server.audit_log}",
        f"--audit-log-mode={server.options.audit}",
        "--audit-log-maxsize=2000",
    ]
    if server.options.audit == "batch":
        arguments += ["--audit-log-batch-max-wait=1s", "--audit-log-batch-buffer-size=100000"]
    return arguments
