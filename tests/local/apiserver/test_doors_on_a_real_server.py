"""The doors beside those of a real API server: the same bytes are sent to both, and the answers compared."""

from __future__ import annotations

import http.client
import ssl
from contextlib import closing

import msgspec
import pytest

from kargo_py.local.apiserver.access import Guard
from kargo_py.local.apiserver.wire import Request
from tests.envtest.server import HOST, ApiServer

pytestmark = pytest.mark.envtest

STAGES = "/apis/kargo.akuity.io/v1alpha1"
TARGETS = [
    *("GET /", "GET /api", "PUT /api/v1", "GET /apis/apps/v1", "GET /openapi/v3", "POST /healthz", "GET /livez/ping"),
    *("GET /api/v1/namespaces", "GET /api/v1/namespaces/", "GET /api/v1/namespaces/x", "POST /api/v1/namespaces"),
    *("OPTIONS /api/v1/namespaces", "PUT /api/v1/namespaces/x/status", "PUT /api/v1/namespaces/x/finalize"),
    *("GET /api/v1/namespaces/x/pods/y", "DELETE /api/v1/namespaces/x/pods", "GET /api/v1/namespaces/x/a/b/c/d"),
    *("GET /api/v1/pods?watch=true", "GET /api/v1/pods?watch=garbage", "GET /api/v1/pods?watch", "GET //api/v1/pods"),
    *("GET /api/v1/watch/namespaces/x/pods", "GET /api/v1/proxy/namespaces/x/pods/y", "GET /a%3Cb%3E%26%22c"),
    *("GET /api/v1/pods?fieldSelector=metadata.name%3Dx", "GET /api/v1/pods?fieldSelector=metadata.name!%3Dx"),
    *(f"GET {STAGES}/stages", f"PATCH {STAGES}/namespaces/p/stages/s/status", "GET /apis/a/b/c/d/e/f/g"),
]


def ask(server: ApiServer, method: str, target: str, **headers: str) -> tuple[int, bytes, list[str]]:
    """What the real server answers: code, body, warnings."""
    context = ssl.create_default_context(cafile=str(server.ca_file))
    port = int(server.url.rpartition(":")[2])
    with closing(http.client.HTTPSConnection(HOST, port, context=context, timeout=30)) as connection:
        connection.request(method, target, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers.get_all("warning") or []


@pytest.mark.parametrize("line", TARGETS)
def test_forbidden(apiserver: ApiServer, line: str) -> None:
    """The Status for a client without credentials is the same, word for word."""
    method, _, target = line.partition(" ")
    code, body, _ = ask(apiserver, method, target)

    path, _, query = target.partition("?")
    pairs = [(name, value) for name, _, value in (pair.partition("=") for pair in query.split("&") if pair)]
    pairs = [(name, value.replace("%3D", "=")) for name, value in pairs]
    refused = Guard({"secret": "me"}).refusal(Request(method, path, pairs))
    assert refused is not None
    assert (refused[0].code, refused[0].status()) == (code, msgspec.json.decode(body))


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version", "/version/"])
def test_open(apiserver: ApiServer, path: str) -> None:
    """What everybody may read."""
    assert ask(apiserver, "GET", path)[0] == 200
    assert Guard({"secret": "me"}).refusal(Request("GET", path)) is None


@pytest.mark.parametrize(
    "form",
    ["Bearer {}", "bearer {}", "Bearer {} x", "Bearer  {}", "Bearer", "Token {}", "Bearer x{}", "Basic {}", "{}"],
)
def test_credentials(apiserver: ApiServer, form: str) -> None:
    """Which headers let in, which are refused, and which count as none."""
    token = apiserver.token("admin")
    code, body, warnings = ask(apiserver, "GET", "/api/v1/namespaces", Authorization=form.format(token))

    refused = Guard({token: "me"}).refusal(
        Request("GET", "/api/v1/namespaces", (), {"authorization": form.format(token)})
    )
    if refused is None:
        assert code == 200
    else:
        assert (refused[0].code, refused[0].status()) == (code, msgspec.json.decode(body))
        assert [f'299 - "{warning}"' for warning in refused[1]] == warnings
