"""Selectors, tables, discovery and OpenAPI beside those of a real API server."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kargo_py.local.apiserver import openapi
from kargo_py.local.apiserver.jsonpath import JSONPath, JSONPathError
from kargo_py.local.apiserver.serve import serving
from kargo_py.local.apiserver.wire import JsonObject
from tests.envtest.server import DEFINITIONS, ApiServer
from tests.local.apiserver.both import PARTIAL_LIST, TABLE, Both, embedded_server

pytestmark = pytest.mark.envtest


@pytest.fixture(scope="module")
def both(apiserver_session: ApiServer) -> Iterator[Both]:
    with closing(Both(apiserver_session)) as servers:
        yield servers


# A custom resource with odd columns

COLUMNS: list[JsonObject] = [
    *(
        {"name": f"{kind}", "type": kind, "jsonPath": ".spec.v"}
        for kind in ("string", "integer", "number", "boolean", "date")
    ),
    {"name": "Wide", "type": "string", "jsonPath": ".spec.v", "priority": 1, "format": "byte", "description": "wide"},
    *(
        {"name": f"c{index}", "type": "string", "jsonPath": path}
        for index, path in enumerate(
            [
                *(
                    '.spec.l[?(@.t=="Ready")].s',
                    ".spec.l[*].t",
                    ".spec.l[0].t",
                    ".spec.l[-1].t",
                    ".spec.l[0:2].t",
                    ".spec.l",
                ),
                *(
                    ".metadata.labels.a\\.b/c",
                    ".metadata.labels['a\\.b/c']",
                    ".spec.none",
                    ".spec.l[?(@.n>1)].t",
                    "..t",
                ),
            ]
        )
    ),
]
VALUES: list[Any] = [
    *(
        "s",
        "",
        5,
        -3,
        1.5,
        1.7,
        1e6,
        1e20,
        1e-7,
        123456789.5,
        2**53,
        True,
        False,
        None,
        {"a": "<&>", "b": 1.0},
        ["é\u2028"],
    ),
    *("2026-11-30T00:00:00Z", "2026-11-30T00:00:00.5+01:00", "2030-01-01T00:00:00Z", "2020-13-01", "null"),
]
LISTS: list[Any] = [
    [{"t": "A", "s": "True", "n": 1}, {"t": "Ready", "s": "False", "n": 2}],
    *([], None, {"a": 1}, ["x"], "text", [{"n": "5"}], [{"t": 1.5}], [{"n": 2.0}]),
]


def widgets_definition(group: str, columns: list[JsonObject]) -> JsonObject:
    """A CustomResourceDefinition with *columns*."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    selectable = {"color": {"type": "string"}, "n": {"type": "integer"}, "b": {"type": "boolean"}}
    schema = {"type": "object", "properties": {"spec": {**anything, "properties": selectable}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns,
        "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": f".spec.{name}"} for name in selectable],
    }
    plurals = {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all", "toys"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": plurals, "versions": [version]},
    }


def install(both: Both, columns: list[JsonObject]) -> str:
    """Serve widgets in both; the path of their collection."""
    group = f"g{uuid.uuid4().hex[:8]}.example"
    embedded, real = both.ask("POST", DEFINITIONS, widgets_definition(group, columns))
    assert (embedded[0], real[0]) == (201, 201)
    path = f"/apis/{group}/v1/namespaces/{both.namespace}/widgets"
    both.real.await_custom_resources()
    return path


def create(both: Both, path: str, name: str, spec: JsonObject, labels: dict[str, str]) -> None:
    """Create a widget in both."""
    group = path.split("/")[2]
    metadata = {"name": name, "labels": {"a.b/c": "label", **labels}}
    both.same("POST", path, {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": metadata, "spec": spec})


@pytest.fixture(scope="module")
def widgets(both: Both) -> str:
    path = install(both, COLUMNS)
    specs = [{"v": value} for value in VALUES] + [{"l": value} for value in LISTS]
    specs += [{"color": "red", "n": 5, "b": True}, {"color": "a,b=c\\", "n": -1, "b": False}]
    for index, spec in enumerate(specs):
        create(both, path, f"w{index:02d}", spec, {"k": f"x{index % 3}", "num": str(index)})
    return path


@pytest.mark.parametrize(
    "query", ["", "?includeObject=None", "?includeObject=Object", "?includeObject=All", "?limit=2"]
)
def test_a_table_of_custom_resources(both: Both, widgets: str, query: str) -> None:
    both.same("GET", widgets + query, accept=TABLE)


def test_one_in_a_table_and_metadata_alone(both: Both, widgets: str) -> None:
    both.same("GET", f"{widgets}/w00", accept=TABLE)
    both.same("GET", widgets, accept=PARTIAL_LIST)
    both.same("GET", f"{widgets}/w00", accept=PARTIAL_LIST.replace("List", ""))
    both.same("GET", f"{widgets}/w00", accept=TABLE.replace("v=v1;", "v=v1beta1;"))


def test_tables_of_built_in_kinds(both: Both) -> None:
    for kind in ("configmaps", "secrets", "serviceaccounts", "events"):
        base = f"/api/v1/namespaces/{both.namespace}/{kind}"
        both.same("POST", base, {"metadata": {"name": "shown"}, "involvedObject": {"namespace": both.namespace}})
        both.same("GET", f"{base}/shown", accept=TABLE)
    both.same("GET", f"/api/v1/namespaces/{both.namespace}", accept=TABLE)
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{both.namespace}/leases"
    both.same("POST", lease, {"metadata": {"name": "shown"}, "spec": {"holderIdentity": "me"}})
    both.same("GET", f"{lease}/shown", accept=TABLE)


def selected(both: Both, path: str) -> tuple[Any, Any]:
    """The names that both give, or what they say."""
    return tuple(  # type: ignore[return-value]
        [item["metadata"]["name"] for item in body["items"]] if code == 200 else (code, body["message"])
        for code, body, _ in both.ask("GET", path)
    )


label_tokens = st.sampled_from(
    [
        *("a", "k", "x1", "in", "notin", "(", ")", ",", "=", "==", "!=", "!", ">", "<", "5", "-", "a.b/c", "label"),
        " ",
        "é",
    ]
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(label_tokens, min_size=1, max_size=8), st.sampled_from(["", " "]))
def test_label_selectors(both: Both, widgets: str, tokens: list[str], between: str) -> None:
    embedded, real = selected(both, f"{widgets}?labelSelector={quote(between.join(tokens))}")
    assert embedded == real


field_tokens = st.sampled_from(
    [
        *("metadata.name", "metadata.namespace", "spec.color", "spec.n", "spec.b", "spec.x", "=", "==", "!=", ","),
        *("\\", " ", "5", "w", "w01", "red", "true", "a\\,b\\=c\\\\"),
    ]
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(field_tokens, min_size=1, max_size=7).map("".join))
def test_field_selectors(both: Both, widgets: str, selector: str) -> None:
    embedded, real = selected(both, f"{widgets}?fieldSelector={quote(selector)}")
    assert embedded == real


FIELDS = [
    "metadata.name",
    "metadata.namespace",
    "status.phase",
    "type",
    "involvedObject.kind",
    "regarding.kind",
    "source",
]
LISTED = [
    *("/api/v1/namespaces", "/api/v1/namespaces/{}/configmaps", "/api/v1/namespaces/{}/secrets"),
    *("/api/v1/namespaces/{}/events", "/apis/events.k8s.io/v1/namespaces/{}/events"),
    *("/apis/coordination.k8s.io/v1/namespaces/{}/leases", DEFINITIONS),
]


@pytest.mark.parametrize("path", LISTED)
@pytest.mark.parametrize("field", FIELDS)
def test_fields_of_built_in_kinds(both: Both, path: str, field: str) -> None:
    both.same("GET", f"{path.format(both.namespace)}?fieldSelector={field}%3Dnone")


parts = st.sampled_from(
    [
        *(".l", ".a", ".b", ".t", ".n", "..t", "['a']", "['a.b']", ".a\\.b", "@", "$", " ", '"q"', "5"),
        *("[0]", "[-1]", "[1:]", "[:2]", "[0:3:2]", "[*]", "[0,1]", "[9]", "[1:0]", "[2:2]", "[]"),
        *('[?(@.t=="x")]', "[?(@.n>1)]", "[?(@.n<=2)]", "[?(@.t!='x')]", "[?(@.t)]", "[?(@.z==true)]"),
        *("[?(@.n==1.5)]", '[?(@.t=="x\\"y")]', "[?(@.t===1)]"),
    ]
)
SEARCHED: list[JsonObject] = [
    {
        "l": [{"t": "x", "n": 1, "z": True}, {"t": "y", "n": 2, "z": False}, {"t": 'x"y', "n": 1.5}],
        "a": {"b": [1, 2, 3, 4], "a": {"t": "deep", "n": 9}},
        "a.b": "dotted",
        "t": "top",
        "n": 7,
    },
    *(
        {"l": [], "a": [], "t": None},
        {"l": None, "a": {"b": None, "t": 1}},
        {"l": {"a": 1}, "a": "str", "b": [[1], [3]]},
    ),
    *({"l": ["s", 1, None, {"t": "x"}], "a": [{"b": {"t": "q"}}], "n": "5"}, {}),
]


def _is_read(path: str) -> bool:
    try:
        JSONPath(path)
    except JSONPathError:
        return False
    return True


def _ordered(path: str) -> bool:
    return ".." not in path  # Go visits the fields of an object in any order


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(parts, min_size=1, max_size=4).map(lambda found: ".spec" + "".join(found)).filter(_is_read),
        min_size=20,
        max_size=20,
        unique=True,
    )
)
def test_paths_of_columns(both: Both, paths: list[str]) -> None:
    columns = [{"name": f"c{index}", "type": "string", "jsonPath": path} for index, path in enumerate(paths)]
    collection = install(both, columns)
    for index, spec in enumerate(SEARCHED):
        create(both, collection, f"s{index}", spec, {})
    embedded, real = both.ask("GET", collection, accept=TABLE)
    for ours, theirs in zip(embedded[1]["rows"], real[1]["rows"], strict=True):
        for path, mine, wanted in zip(["name", *paths], ours["cells"], theirs["cells"], strict=True):
            assert mine == wanted or not _ordered(path), path


# Documents


@pytest.mark.parametrize(
    "path", ["/api/v1", "/apis/coordination.k8s.io/v1", "/apis/events.k8s.io/v1", "/apis/apiextensions.k8s.io/v1"]
)
def test_discovery(both: Both, path: str) -> None:
    embedded, real = (answer[1] for answer in both.ask("GET", path))
    theirs = {each["name"]: each for each in real["resources"]}
    for ours in embedded["resources"]:
        wanted = dict(theirs[ours["name"]])
        if ours["name"] == "customresourcedefinitions":
            del wanted["storageVersionHash"]
        assert ours == wanted
    assert {**embedded, "resources": []} == {**real, "resources": []}


def test_discovery_of_a_custom_resource(both: Both, widgets: str) -> None:
    group = widgets.split("/")[2]
    both.same("GET", f"/apis/{group}")
    both.same("GET", f"/apis/{group}/v1")


OPERATION = (
    "operationId",
    "tags",
    "x-kubernetes-action",
    "x-kubernetes-group-version-kind",
    "requestBody",
    "parameters",
)


def _sorted_required(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: sorted(item) if key == "required" and isinstance(item, list) else _sorted_required(item)
            for key, item in value.items()
            if key != "description"
        }
    return [_sorted_required(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["api/v1", "apis/coordination.k8s.io/v1", "apis/events.k8s.io/v1", "widgets"])
def test_openapi(both: Both, widgets: str, name: str) -> None:
    path = f"apis/{widgets.split('/')[2]}/v1" if name == "widgets" else name
    embedded, real = (_sorted_required(answer[1]) for answer in both.ask("GET", f"/openapi/v3/{path}"))
    own = {metatype.definition for metatype in openapi._SHARED}  # theirs name every group that there is
    for definition, schema in embedded["components"]["schemas"].items():
        if definition in own or definition.endswith((".LocalObjectReference", ".RawExtension")):
            continue
        assert schema == real["components"]["schemas"][definition], definition
    for place, item in embedded["paths"].items():
        theirs = real["paths"][place]
        assert set(item) == set(theirs)
        for method in set(item) - {"parameters"}:
            ours = {key: item[method].get(key) for key in OPERATION}
            assert ours == {key: theirs[method].get(key) for key in OPERATION}, (place, method)


def explained(kubeconfig: Path, what: str, cache: Path) -> list[str]:
    """The lines of ``kubectl explain --recursive`` that name fields."""
    kubectl = shutil.which("kubectl")
    assert kubectl is not None
    done = subprocess.run(
        [kubectl, "--kubeconfig", str(kubeconfig), "explain", *what.split(), "--recursive", f"--cache-dir={cache}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return [line for line in done.stdout.splitlines() if "\t<" in line or line.startswith(("KIND", "VERSION", "GROUP"))]


EXPLAINED = (
    "secrets",
    "configmaps",
    "leases.spec",
    "namespaces",
    "events",
    "serviceaccounts",
    "events --api-version=events.k8s.io/v1",
)


@pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl")
async def test_kubectl_explain(apiserver: ApiServer, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    real = await asyncio.to_thread(apiserver.kubeconfig, "admin")
    async with await embedded_server() as server, serving(server) as address:
        await asyncio.to_thread(kubeconfig.write_bytes, address.kubeconfig())
        for what in EXPLAINED:
            ours, theirs = await asyncio.gather(
                asyncio.to_thread(explained, kubeconfig, what, tmp_path / "ours"),
                asyncio.to_thread(explained, real, what, tmp_path / "theirs"),
            )
            assert ours == theirs, what
