"""Manifests that fill a server at its start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from kargo_py.local.apiserver import manifests
from kargo_py.local.apiserver.failures import Failure, already_exists
from kargo_py.local.apiserver.manifests import ManifestError
from kargo_py.local.apiserver.wire import JsonObject, Request, Response, encode
from tests.local.apiserver.stubs import Core

CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.example.com}
"""
SHOP = """\
apiVersion: example.com/v1
kind: Shop
metadata: {name: a, namespace: shops}
spec: {since: 2026-11-30, open: 08:30, on: yes}
"""
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shops}\n"
SERVED = {
    "/api/v1": [("namespaces", "Namespace", False), ("configmaps", "ConfigMap", True)],
    "/apis/apiextensions.k8s.io/v1": [
        ("customresourcedefinitions/status", "CustomResourceDefinition", False),
        ("customresourcedefinitions", "CustomResourceDefinition", False),
    ],
    "/apis/example.com/v1": [("shops", "Shop", True)],
}


async def served(asked: Request) -> Response:
    """Discovery of a few kinds; whatever is written is taken."""
    if asked.method != "GET":
        return Response(201, b"{}")
    if asked.path not in SERVED:
        return Failure(404, "NotFound", "the server could not find the requested resource").response()
    resources = [{"name": name, "kind": kind, "namespaced": scope} for name, kind, scope in SERVED[asked.path]]
    return Response(200, encode({"resources": resources}))


def written(core: Core) -> list[tuple[str, str, JsonObject]]:
    return [(a.method, a.path, msgspec.json.decode(a.body)) for a in core.asked if a.method != "GET"]


def load(core: Core, path: Path) -> None:
    """Read and load, as the command does: files are read before there is an event loop."""
    loaded = manifests.read(path)
    asyncio.run(manifests.load(core, loaded))


def folder(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


def test_order(tmp_path: Path) -> None:
    """Definitions come first, then namespaces, then the rest, wherever they stand; a time is a text."""
    folder(tmp_path, a__yaml=f"{SHOP}---\n---\n{NAMESPACE}", b__json="", c__yml=CRD)
    core = Core(served)
    load(core, tmp_path)

    assert [(method, path) for method, path, _ in written(core)] == [
        ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
        ("POST", "/api/v1/namespaces"),
        ("POST", "/apis/example.com/v1/namespaces/shops/shops"),
    ]
    assert written(core)[2][2]["spec"]["since"] == "2026-11-30"


def test_list_and_default_namespace(tmp_path: Path) -> None:
    """A List is its items; an object without a namespace goes into the default one, as with kubectl."""
    items = "".join(f"- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}\n" for name in "ab")
    folder(tmp_path, a__yaml=f"apiVersion: v1\nkind: List\nitems:\n{items}", README__md="nothing")
    core = Core(served)
    load(core, tmp_path / "a.yaml")

    assert [path for _, path, _ in written(core)] == ["/api/v1/namespaces/default/configmaps"] * 2


def test_already_there(tmp_path: Path) -> None:
    """An object that is there (the namespace default, say) is changed."""

    async def answer(asked: Request) -> Response:
        if asked.method == "POST":
            return already_exists("", "namespaces", "shops").response()
        return await served(asked)

    core = Core(answer)
    load(core, folder(tmp_path, a__yaml=NAMESPACE))
    assert [(method, path) for method, path, _ in written(core)][1:] == [("PATCH", "/api/v1/namespaces/shops")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "a.yaml: "),
        ("\x00", "a.yaml: "),
        ("[1]", "document 1 is no Kubernetes object"),
        (f"{NAMESPACE}---\nkind: Shop\nmetadata: {{name: a}}\n", "document 2 is no Kubernetes object"),
        ("apiVersion: v1\nkind: Namespace\nmetadata: {}\n", "document 1 is no Kubernetes object"),
        ("apiVersion: v1\nkind: List\nitems: 3\n", "document 1 is no Kubernetes object"),
        ("- " * 20_000 + "a", "a.yaml: "),
    ],
    ids=["no YAML", "bytes", "list", "no version", "no name", "no items", "deep"],
)
def test_malformed(tmp_path: Path, text: str, words: str) -> None:
    """The file is named, and what is wrong in it."""
    with pytest.raises(ManifestError, match=words):
        manifests.read(folder(tmp_path, a__yaml=text))


def test_nothing_there(tmp_path: Path) -> None:
    """A path that leads nowhere, or to nothing."""
    with pytest.raises(ManifestError, match=r"cannot read the manifest .*absent: No such file"):
        manifests.read(tmp_path / "absent")
    with pytest.raises(ManifestError, match=r"there is no \.yaml, \.yml or \.json file"):
        manifests.read(folder(tmp_path, README__md=SHOP))


@pytest.mark.parametrize("text", [SHOP.replace("Shop", "Shed"), SHOP.replace("example.com", "example.org")])
def test_not_served(tmp_path: Path, text: str) -> None:
    """A kind or group that the server does not know is named."""
    with pytest.raises(ManifestError, match=r"a.yaml: the API server does not serve \w+ \(example\.\w+/v1\)"):
        load(Core(served), folder(tmp_path, a__yaml=text))


def test_refused(tmp_path: Path) -> None:
    """What the server says against an object is passed on, with the file and the object."""

    async def answer(asked: Request) -> Response:
        return Failure(422, "Invalid", "spec.x: Required value").response() if asked.body else await served(asked)

    with pytest.raises(ManifestError, match=r'a\.yaml: Namespace "shops": spec.x: Required value'):
        load(Core(answer), folder(tmp_path, a__yaml=NAMESPACE))


def test_no_json(tmp_path: Path) -> None:
    """YAML that JSON cannot say is refused, too."""
    text = f"{NAMESPACE}x: {{? [1] : 2}}\n"
    with pytest.raises(ManifestError, match=r"a\.yaml: "):
        load(Core(served), folder(tmp_path, a__yaml=text))
