"""The two servers under one suite, as one kind of value, and a plain HTTP client for either.

Nothing here is asynchronous: the embedded server runs in a thread of its own, so that tests, kubectl and
kubernetes-asyncio meet it as they meet the real one, through a socket.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from tests.envtest.server import FROM_THE_CACHE

JsonObject = dict[str, Any]
Which = Literal["embedded", "real"]
T = TypeVar("T")

SECONDS = 15.0
"""How long a test waits for what the real server does a moment later."""

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered."""

    code: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    warnings: Sequence[str] = ()

    @property
    def json(self) -> JsonObject:
        """The body, which must be a JSON object."""
        decoded = json.loads(self.body)
        assert isinstance(decoded, dict), decoded
        return decoded

    def ok(self) -> JsonObject:
        """The body of a request that must have succeeded."""
        assert self.code < 300, f"{self.code} {self.body.decode(errors='replace')}"
        return self.json

    @property
    def refusal(self) -> JsonObject:
        """The Status of a refused request, without what all of them have."""
        status = self.json
        assert (status["kind"], status["apiVersion"], status["metadata"]) == ("Status", "v1", {})
        assert (status["status"], status["code"]) == ("Failure", self.code)
        return {key: status[key] for key in ("code", "reason", "message", "details") if status.get(key)}


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ended."""

    code: int
    out: str
    err: str


_FILLING = b"storage is (re)initializing"
_CLOSED_MEANWHILE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, ssl.SSLEOFError)


@dataclass(frozen=True, slots=True, eq=False)
class Server:
    """One of the servers, and how to reach it as its administrator."""

    which: Which
    url: str
    token: str
    ca_file: Path
    kubeconfig: Path
    forget_history: Callable[[], None]
    """Let no old resourceVersion be known any more."""
    home: Path
    """kubectl's home and cache."""
    _idle: list[http.client.HTTPSConnection] = field(default_factory=list)

    # Plain HTTP

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        as_: str = "application/json",
        **headers: str,
    ) -> Answer:
        """Send one request; *body* is sent as it is if it is text or bytes, else as JSON. ``a_b`` is the header A-B.

        While the real server fills the watch cache of a kind, anew after each change of its definition, it refuses
        lists and watches of it; it is asked again then, as clients do.
        """
        sent = {"Authorization": f"Bearer {self.token}"}
        payload: bytes | None = None
        if body is not None:
            sent["Content-Type"] = as_
            payload = (
                body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
            )
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in sent.items() if value}

        def answer() -> Answer | None:
            found = self._answer(method, path, payload, sent)
            return None if found.code == 429 and _FILLING in found.body else found

        return eventually(answer)

    def _answer(self, method: str, path: str, payload: bytes | None, sent: Mapping[str, str]) -> Answer:
        connection = self._idle.pop() if self._idle else self.connect()
        try:
            try:
                connection.request(method, path, payload, dict(sent))
                received = connection.getresponse()
            except _CLOSED_MEANWHILE:  # it was idle for too long, or the server was restarted by another test
                connection.close()
                connection.request(method, path, payload, dict(sent))
                received = connection.getresponse()
            text = received.read()
        except BaseException:
            connection.close()
            raise
        if received.will_close:
            connection.close()
        self._idle.append(connection)
        received_headers = {name.lower(): value for name, value in received.getheaders()}
        return Answer(received.status, received_headers, text, received.headers.get_all("Warning") or ())

    def connect(self, timeout: float = 30.0) -> http.client.HTTPSConnection:
        """Make a connection that is not shared."""
        address = urlsplit(self.url)
        assert address.hostname
        context = ssl.create_default_context(cafile=str(self.ca_file))
        return http.client.HTTPSConnection(address.hostname, address.port, context=context, timeout=timeout)

    def close(self) -> None:
        """Close what is idle."""
        while self._idle:
            self._idle.pop().close()

    def get(self, path: str, **headers: str) -> Answer:
        """Read."""
        return self.send("GET", path, **headers)

    def create(self, path: str, body: JsonObject) -> JsonObject:
        """Create, which must succeed."""
        answer = self.send("POST", path, body)
        assert answer.code == 201, f"{answer.code} {answer.body.decode()}"
        return answer.json

    def patch(self, path: str, body: object, *, as_: str = MERGE) -> Answer:
        """Patch; a merge patch unless told."""
        return self.send("PATCH", path, body, as_=as_)

    def apply(self, path: str, body: object, *, manager: str = "tests", force: bool = False) -> Answer:
        """Server-side apply."""
        separator = "&" if "?" in path else "?"
        return self.send(
            "PATCH", f"{path}{separator}fieldManager={manager}{'&force=true' if force else ''}", body, as_=APPLY
        )

    @contextlib.contextmanager
    def watch(self, path: str, **headers: str) -> Iterator[Watching]:
        """Open a watch; as in :meth:`send`, again if its kind is not ready for it."""
        connection = self.connect(timeout=SECONDS)

        def opened() -> http.client.HTTPResponse | None:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"} | headers)
            response = connection.getresponse()
            if response.status == 429:
                connection.close()
                return None
            return response

        with contextlib.closing(connection):
            yield Watching(eventually(opened))

    # kubectl

    def kubectl(self, *arguments: str, stdin: object = None, ok: bool = True, **environment: str) -> Finished:
        """Run kubectl; *stdin* is text or goes in as JSON. With *ok* it must succeed."""
        finished = subprocess.run(
            self.command(*arguments),
            input=None if stdin is None else stdin if isinstance(stdin, str) else json.dumps(stdin),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=self.environment | environment,
        )
        assert finished.returncode == 0 or not ok, finished.stderr
        return Finished(finished.returncode, finished.stdout, finished.stderr)

    def command(self, *arguments: str) -> list[str]:
        """The command line."""
        program = shutil.which("kubectl")
        assert program
        return [program, "--kubeconfig", str(self.kubeconfig), "--cache-dir", str(self.home / "cache"), *arguments]

    @property
    def environment(self) -> dict[str, str]:
        """What kubectl is run with."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "TZ": "UTC"}

    # What tests begin with

    def namespace(self) -> str:
        """Name of a new namespace."""
        name = f"conf-{uuid.uuid4().hex[:10]}"
        self.create("/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    def install(self, definition: JsonObject) -> JsonObject:
        """Create a CustomResourceDefinition; return it when its objects can be stored and are described."""
        name, spec = definition["metadata"]["name"], definition["spec"]
        self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        version = next(version["name"] for version in spec["versions"] if version["served"])
        api, kind = f"apis/{spec['group']}/{version}", spec["names"]["kind"]

        def served() -> JsonObject | None:
            # The real server's own controllers bring these one after the other, the description last.
            if self.get(f"/{api}/{spec['names']['plural']}?{FROM_THE_CACHE}").code != 200:
                return None
            # An empty 200 comes for a moment after a definition of the same name was deleted.
            described = self.get(f"/openapi/v3/{api}")
            if (
                described.code != 200
                or not described.body
                or not any(each.endswith(f".{kind}") for each in described.json["components"]["schemas"])
            ):
                return None
            return self.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}").ok()

        return eventually(served)


class Watching:
    """An open watch, or the refusal of one."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.code = response.status
        self.content_type = response.headers.get("Content-Type", "")
        self._response = response

    def event(self) -> JsonObject:
        """The next event; fails when there is none for long, or the watch has ended."""
        line = self._response.readline()
        assert line, "the watch has ended"
        event: JsonObject = json.loads(line)
        return event

    def events(self, count: int) -> list[JsonObject]:
        """The next events."""
        return [self.event() for _ in range(count)]

    def rest(self) -> list[JsonObject]:
        """All events until the server ends the watch."""
        return [json.loads(line) for line in self._response.read().splitlines()]


def eventually(look: Callable[[], T | None], seconds: float = SECONDS) -> T:
    """Look until there is something; fail when there is nothing for long."""
    end = time.monotonic() + seconds
    while (found := look()) is None or found is False:
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found


def names(listed: JsonObject) -> list[str]:
    """Names of the objects in a list, in its order."""
    return [item["metadata"]["name"] for item in listed["items"]]


def told(event: JsonObject) -> tuple[str, str]:
    """What an event says: its type and the object's name."""
    return event["type"], event["object"]["metadata"].get("name", "")
