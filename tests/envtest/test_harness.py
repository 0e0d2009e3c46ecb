"""The harness itself: what every other envtest relies on. What ends the servers is in test_processes.py."""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.envtest import binaries, crds as definitions, server as envtest_server
from tests.envtest.access import JsonObject
from tests.envtest.binaries import module_versions
from tests.envtest.server import ApiServer, RequestFailed, ServerFailed, running

pytestmark = pytest.mark.envtest

APPLICATIONS = "/apis/argoproj.io/v1alpha1"


@pytest.fixture(scope="module")
def with_applications(apiserver_session: ApiServer) -> None:
    """Install Argo CD's Application."""
    definitions.install(apiserver_session, [definitions.APPLICATION])


def application(name: str) -> JsonObject:
    """Make an Application that says nothing."""
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": name}, "spec": {}}


def test_version(apiserver: ApiServer) -> None:
    """The server says which Kubernetes it is: the one that go.mod names, unless somebody's own binaries are used."""
    version = apiserver.request("GET", "/version")["gitVersion"]

    if binaries.find().etcd.parent == binaries.built_directory():
        assert module_versions()["k8s.io/kubernetes"] == version
    assert version.startswith("v1.")


def test_kubectl(apiserver: ApiServer, namespace: str) -> None:
    """A kubeconfig of the harness is all that kubectl needs."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl in PATH")

    answer = subprocess.run(
        [kubectl, "--kubeconfig", apiserver.kubeconfig("admin"), "get", "namespace", namespace, "--output=name"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert f"namespace/{namespace}\n" == answer.stdout


@pytest.mark.usefixtures("with_applications")
@pytest.mark.parametrize(
    ("user", "method", "allowed"),
    [
        pytest.param("admin", "POST", True, id="admin creates"),
        pytest.param("argocd", "POST", True, id="argocd creates"),
        pytest.param("controller", "GET", True, id="controller reads"),
        pytest.param("controller", "POST", False, id="controller creates none"),
        pytest.param("nobody", "GET", False, id="nobody reads none"),
    ],
)
def test_users(apiserver: ApiServer, namespace: str, user: str, method: str, allowed: bool) -> None:
    """Each user may do what its role says; others hear Forbidden."""
    body = application("shop") if method == "POST" else None
    path = f"{APPLICATIONS}/namespaces/{namespace}/applications"

    if allowed:
        apiserver.request(method, path, body, user=user)  # type: ignore[arg-type]  # a table of literals
    else:
        with pytest.raises(RequestFailed, match="403 Forbidden"):
            apiserver.request(method, path, body, user=user)  # type: ignore[arg-type]


@pytest.mark.usefixtures("with_applications")
def test_restart_keeps_data(apiserver: ApiServer, namespace: str) -> None:
    """After a crash the server is back at the same address with what it had, custom resources included."""
    path = f"{APPLICATIONS}/namespaces/{namespace}/applications"
    before = apiserver.request("POST", path, application("shop"))
    url, pid = apiserver.url, apiserver.pids["apiserver"]

    apiserver.restart()

    assert before == apiserver.request("GET", f"{path}/shop")
    assert url == apiserver.url
    assert pid != apiserver.pids["apiserver"]


@pytest.mark.usefixtures("with_applications")
@pytest.mark.parametrize("turn", range(2))
def test_lists_are_answered_after_a_restart(apiserver: ApiServer, turn: int) -> None:
    """No list, one with a selector neither, meets a watch cache that is still being filled (429 then)."""
    cores = [kind["name"] for kind in apiserver.request("GET", "/api/v1")["resources"] if "watch" in kind["verbs"]]
    apiserver.restart()

    for collection in [f"{APPLICATIONS}/applications", *(f"/api/v1/{kind}" for kind in cores)]:
        assert apiserver.request("GET", f"{collection}?fieldSelector=metadata.name%3Dturn-{turn}")["items"] == []


def test_kill_refuses_connections(apiserver: ApiServer) -> None:
    """A killed server refuses connections until it is restored."""
    apiserver.kill()

    with pytest.raises(ConnectionRefusedError):
        apiserver.request("GET", "/version")
    apiserver.restore()
    assert apiserver.request("GET", "/version")


def test_pause_and_resume(apiserver: ApiServer) -> None:
    """A request to a frozen server hangs, and is answered once it goes on."""
    apiserver.pause()
    with pytest.raises(TimeoutError):
        apiserver.request("GET", "/version", timeout=0.3)
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(apiserver.request, "GET", "/version")
        with pytest.raises(TimeoutError):
            answer.result(timeout=0.3)

        apiserver.resume()

        assert answer.result(timeout=10)


def test_without_etcd(apiserver: ApiServer, namespace: str) -> None:
    """Without etcd the server is up and stores nothing; with it again all is as before."""
    apiserver.stop_etcd()
    with pytest.raises((RequestFailed, TimeoutError)):
        apiserver.request("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"a": "b"}}}, timeout=1)

    apiserver.start_etcd()

    assert namespace == apiserver.request("GET", f"/api/v1/namespaces/{namespace}")["metadata"]["name"]


def test_forget_history(apiserver: ApiServer, namespace: str) -> None:
    """The rest of a list that had begun before is gone, and so are the changes since."""
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    for name in ("one", "two"):
        apiserver.request("POST", maps, {"metadata": {"name": name}})
    page = apiserver.request("GET", f"{maps}?limit=1")["metadata"]

    apiserver.forget_history()

    for query in (f"limit=1&continue={page['continue']}", f"watch=1&resourceVersion={page['resourceVersion']}"):
        assert gone(apiserver, f"{maps}?{query}")


def gone(apiserver: ApiServer, path: str) -> bool:
    """Tell whether a list answers 410, or a watch says so in its first event."""
    try:
        event = apiserver.request("GET", path, timeout=5)
    except RequestFailed as failure:
        return failure.status == 410
    return bool(event["type"] == "ERROR" and event["object"]["code"] == 410)


def test_audited(apiserver: ApiServer, namespace: str) -> None:
    """The audit log has every request that has ended, with its user and verb."""
    apiserver.request("GET", f"/api/v1/namespaces/{namespace}", user="argocd")

    events = [event for event in apiserver.audited("argocd") if event["requestURI"].endswith(namespace)]

    assert [event["verb"] for event in events] == ["get"]
    assert namespace in {event["objectRef"].get("name") for event in apiserver.audited() if event["verb"] == "create"}


def test_taken_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When somebody else takes a port just before a server would, others are chosen."""
    free = [envtest_server._free_ports() for _ in range(2)]
    choices = iter(free)
    monkeypatch.setattr(envtest_server, "_free_ports", lambda: next(choices))
    with envtest_server._socket_on(free[0].etcd), running(tmp_path) as server:
        assert server.url.endswith(f":{free[1].apiserver}")


def test_failed_start(tmp_path: Path) -> None:
    """A server that cannot start says so with the end of its log, and leaves nothing running."""
    broken = envtest_server.Options(apiserver_arguments=("--no-such-flag",))
    server = ApiServer(tmp_path, binaries.find(), broken)

    with pytest.raises(ServerFailed, match=r"(?s)kube-apiserver ended with 1.*unknown flag: --no-such-flag"):
        server.start()

    server.stop()
    assert server.pids == {}
