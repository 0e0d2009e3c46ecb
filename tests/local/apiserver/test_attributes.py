"""What a request is about. The table is what the real server said of each in its 403 for system:anonymous."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
from hypothesis import given, strategies as st

from kargo_py.local.apiserver.attributes import Attributes, attributes, user_agent
from kargo_py.local.apiserver.wire import Request


def asked(line: str) -> Attributes:
    method, _, target = line.partition(" ")
    path, _, query = target.partition("?")
    return attributes(Request(method, path, parse_qsl(query, keep_blank_values=True)))


KARGO = "kargo.akuity.io"


@pytest.mark.parametrize(
    ("line", "verb", "parts"),
    [
        ("GET /api/v1/namespaces", "list", ("", "namespaces", "", "", "")),
        ("GET /api/v1/namespaces/", "list", ("", "namespaces", "", "", "")),
        ("GET /api/v1/namespaces/x", "get", ("", "namespaces", "x", "x", "")),
        ("HEAD /api/v1/namespaces/x", "get", ("", "namespaces", "x", "x", "")),
        ("POST /api/v1/namespaces", "create", ("", "namespaces", "", "", "")),
        ("PUT /api/v1/namespaces/x/status", "update", ("", "namespaces", "x", "x", "status")),
        ("PUT /api/v1/namespaces/x/finalize", "update", ("", "namespaces", "x", "x", "finalize")),
        ("OPTIONS /api/v1/namespaces", "", ("", "namespaces", "", "", "")),
        ("GET /api/v1/namespaces/x/configmaps/y", "get", ("", "configmaps", "x", "y", "")),
        ("PATCH /api/v1/namespaces/x/configmaps/y", "patch", ("", "configmaps", "x", "y", "")),
        ("DELETE /api/v1/namespaces/x/configmaps/y", "delete", ("", "configmaps", "x", "y", "")),
        ("DELETE /api/v1/namespaces/x/configmaps", "deletecollection", ("", "configmaps", "x", "", "")),
        ("POST /api/v1/namespaces/x/pods/y/exec", "create", ("", "pods", "x", "y", "exec")),
        ("GET /api/v1/namespaces/x/nosuch/y/z/w", "get", ("", "nosuch", "x", "y", "z")),
        ("PUT /api/v1/pods", "update", ("", "pods", "", "", "")),
        ("GET /api/v1/pods?watch=false", "list", ("", "pods", "", "", "")),
        ("GET /api/v1/pods?watch=True", "watch", ("", "pods", "", "", "")),
        ("GET /api/v1/pods?watch=garbage", "watch", ("", "pods", "", "", "")),
        ("GET /api/v1/pods?watch", "watch", ("", "pods", "", "", "")),
        ("GET /api/v1/namespaces/x/pods/y?watch=1", "get", ("", "pods", "x", "y", "")),
        ("GET /api/v1/watch/namespaces/x/configmaps", "watch", ("", "configmaps", "x", "", "")),
        ("GET /api/v1/proxy/namespaces/x/pods/y/z", "proxy", ("", "pods", "x", "y", "")),
        ("GET /api/v1/configmaps?fieldSelector=metadata.name=x", "list", ("", "configmaps", "", "x", "")),
        ("GET /api/v1/configmaps?watch=1&fieldSelector=metadata.name==x", "watch", ("", "configmaps", "", "x", "")),
        ("GET /api/v1/configmaps?fieldSelector=metadata.name!=x", "list", ("", "configmaps", "", "", "")),
        ("GET //api/v1/pods", "list", ("", "pods", "", "", "")),
        (f"GET /apis/{KARGO}/v1alpha1/stages", "list", (KARGO, "stages", "", "", "")),
        (f"GET /apis/{KARGO}/v1alpha1/namespaces/p/stages/s/status", "get", (KARGO, "stages", "p", "s", "status")),
        ("GET /apis/a/b/c/d/e/f/g", "get", ("a", "c", "", "d", "e")),
        ("GET /api/v1/namespaces/%78/configmaps/%79", "get", ("", "configmaps", "x", "y", "")),
    ],
)
def test_resources(line: str, verb: str, parts: tuple[str, ...]) -> None:
    """Verb, group, resource, namespace, name and subresource."""
    found = asked(line)
    assert (found.verb, (found.group, found.resource, found.namespace, found.name, found.subresource)) == (verb, parts)


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/healthz", "/no/a/b"]
)
def test_other_paths(path: str) -> None:
    """A path of no resource has HTTP's verb and nothing else."""
    assert asked(f"PUT {path}") == Attributes("put", path)


@given(st.text(), st.text(), st.lists(st.tuples(st.sampled_from(["watch", "fieldSelector", "x"]), st.text())))
def test_takes_anything(method: str, path: str, query: list[tuple[str, str]]) -> None:
    """Whatever a client sends has attributes."""
    assert attributes(Request(method, path, query)).path is not None


@pytest.mark.parametrize(("verb", "writes"), [("POST", True), ("DELETE", True), ("GET", False)])
def test_writes(verb: str, writes: bool) -> None:
    """Which requests change something."""
    assert asked(f"{verb} /api/v1/namespaces/x").writes is writes


def test_user_agent() -> None:
    """The program's name, as the real server takes it for a field manager."""
    assert user_agent(Request("GET", "/", (), {"user-agent": "kubectl/v1.34 (linux)"})) == "kubectl"
    assert user_agent(Request("GET", "/")) == ""
