"""What a user types: kubectl on either server, with the words it prints."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.definitions import GROUP, config_map, maps, widget, widgets
from tests.conformance.servers import SECONDS, Finished, Server

pytestmark = pytest.mark.usefixtures("kubectl")


@pytest.fixture
def run(server: Server, namespace: str) -> Callable[..., Finished]:
    """Run kubectl in a new namespace."""

    def run(*arguments: str, **options: Any) -> Finished:
        return server.kubectl("--namespace", namespace, *arguments, **options)

    return run


def out(finished: Finished) -> list[str]:
    """Return the lines it printed."""
    assert finished.err == ""
    return finished.out.splitlines()


def cells(line: str) -> list[str]:
    """Return the columns of a line."""
    return line.split()


Run = Callable[..., Finished]


def test_create_and_get(run: Run) -> None:
    """The first minutes of a user."""
    assert out(run("create", "-f", "-", stdin=widget(size=4))) == [f"widget.{GROUP}/w created"]
    assert [cells(line)[:2] for line in out(run("get", "widgets"))] == [["NAME", "SIZE"], ["w", "4"]]
    assert cells(out(run("get", "wd", "w"))[1])[:2] == ["w", "4"]
    assert out(run("get", "conformance", "-o", "name")) == [f"widget.{GROUP}/w"]
    assert out(run("get", "widget/w", "-o", "jsonpath={.spec.size}{.metadata.generation}")) == ["41"]


@pytest.mark.parametrize("how", [["create"], ["apply"], ["apply", "--server-side"]], ids=" ".join)
def test_list_in_a_manifest(run: Run, how: list[str]) -> None:
    """What ``kubectl get -o yaml`` printed can be sent again; kubectl asks for OpenAPI v2 before it does so."""
    several = {"apiVersion": "v1", "kind": "List", "items": [config_map("a"), widget()]}

    assert len(out(run(*how, "-f", "-", stdin=several))) == 2
    misspelt = {"apiVersion": "v1", "kind": "List", "items": [{**config_map("c"), "dat": {"a": "1"}}]}
    assert 'unknown field "dat"' in run("create", "-f", "-", stdin=misspelt, ok=False).err


def test_create_twice(run: Run) -> None:
    """The error is the server's."""
    run("create", "-f", "-", stdin=widget())

    again = run("create", "-f", "-", stdin=widget(), ok=False)

    assert (again.code, again.out) == (1, "")
    assert again.err == (
        f'Error from server (AlreadyExists): error when creating "STDIN": widgets.{GROUP} "w" already exists\n'
    )


def test_create_invalid(run: Run) -> None:
    """What is wrong is told, with the field."""
    wrong = run("create", "-f", "-", stdin=widget(size=11), ok=False)
    unknown = run("create", "-f", "-", stdin=widget(sizes=1), ok=False)

    assert wrong.err == (
        'The Widget "w" is invalid: spec.size: Invalid value: 11: '
        "spec.size in body should be less than or equal to 10\n"
    )
    assert unknown.err == (
        'Error from server (BadRequest): error when creating "STDIN": Widget in version "v1" cannot be handled as a '
        'Widget: strict decoding error: unknown field "spec.sizes"\n'
    )


def test_create_generated(run: Run) -> None:
    """GenerateName needs create; apply says so."""
    made = widget() | {"metadata": {"generateName": "g-"}}

    (line,) = out(run("create", "-f", "-", stdin=made))
    assert line.startswith(f"widget.{GROUP}/g-")
    assert "cannot use generate name with apply" in run("apply", "-f", "-", stdin=made, ok=False).err


def test_create_shorthands(run: Run) -> None:
    """The built-in generators: namespaces, secrets, maps, accounts."""
    assert out(run("create", "configmap", "m", "--from-literal=a=1")) == ["configmap/m created"]
    assert out(run("create", "secret", "generic", "s", "--from-literal=a=1")) == ["secret/s created"]
    assert out(run("create", "serviceaccount", "a")) == ["serviceaccount/a created"]
    assert cells(out(run("get", "secret", "s"))[1])[:3] == ["s", "Opaque", "1"]
    assert out(run("get", "secret", "s", "-o", "jsonpath={.data.a}")) == ["MQ=="]


def test_apply(run: Run) -> None:
    """Client-side: created, unchanged, configured; what is left out goes."""
    first, second = widget(size=4, code="AB1"), widget(size=5)

    assert out(run("apply", "-f", "-", stdin=first)) == [f"widget.{GROUP}/w created"]
    assert out(run("apply", "-f", "-", stdin=first)) == [f"widget.{GROUP}/w unchanged"]
    assert out(run("apply", "-f", "-", stdin=second)) == [f"widget.{GROUP}/w configured"]
    spec = json.loads(run("get", "widget", "w", "-o", "json").out)["spec"]
    assert spec == {"size": 5, "mode": "safe"}


def test_apply_built_in(run: Run) -> None:
    """A strategic merge patch under it."""
    assert out(run("apply", "-f", "-", stdin=config_map(a="1", b="2"))) == ["configmap/m created"]
    assert out(run("apply", "-f", "-", stdin=config_map(a="1", b="2"))) == ["configmap/m unchanged"]
    assert out(run("apply", "-f", "-", stdin=config_map(b="3"))) == ["configmap/m configured"]
    assert json.loads(run("get", "cm", "m", "-o", "json").out)["data"] == {"b": "3"}


def test_apply_several(run: Run) -> None:
    """A file of YAML documents, in order."""
    text = yaml.safe_dump_all([config_map("a"), widget("b"), config_map("c")])

    assert out(run("apply", "-f", "-", stdin=text)) == [
        "configmap/a created",
        f"widget.{GROUP}/b created",
        "configmap/c created",
    ]
    assert out(run("delete", "-f", "-", stdin=text)) == [
        'configmap "a" deleted',
        f'widget.{GROUP} "b" deleted',
        'configmap "c" deleted',
    ]


def test_apply_server_side(run: Run) -> None:
    """Conflicts are told with advice, and forced."""
    assert out(run("apply", "--server-side", "-f", "-", stdin=widget(size=4))) == [
        f"widget.{GROUP}/w serverside-applied"
    ]
    assert out(run("apply", "--server-side", "-f", "-", stdin=widget(size=4))) == [
        f"widget.{GROUP}/w serverside-applied"
    ]

    refused = run("apply", "--server-side", "--field-manager=other", "-f", "-", stdin=widget(size=5), ok=False)
    forced = run(
        "apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-", stdin=widget(size=5)
    )

    assert refused.err.startswith('error: Apply failed with 1 conflict: conflict with "kubectl": .spec.size\n')
    assert out(forced) == [f"widget.{GROUP}/w serverside-applied"]


def test_from_client_side_to_server_side(run: Run) -> None:
    """Kubectl hands the fields over from one manager to the other."""
    run("apply", "-f", "-", stdin=config_map(a="1"))

    assert out(run("apply", "--server-side", "-f", "-", stdin=config_map(a="2"))) == ["configmap/m serverside-applied"]
    assert json.loads(run("get", "cm", "m", "-o", "json").out)["data"] == {"a": "2"}


def test_dry_runs(run: Run) -> None:
    """Nothing is stored."""
    assert out(run("apply", "--dry-run=server", "-f", "-", stdin=widget())) == [
        f"widget.{GROUP}/w created (server dry run)"
    ]
    assert out(run("create", "--dry-run=server", "-f", "-", stdin=widget())) == [
        f"widget.{GROUP}/w created (server dry run)"
    ]
    assert run("get", "widgets").err.startswith("No resources found in ")


def test_get_outputs(run: Run) -> None:
    """Wide has the columns of priority 1; json and yaml the whole; labels are shown and selected by."""
    run("create", "-f", "-", stdin=widget(metadata={"labels": {"tier": "web"}}))

    assert cells(out(run("get", "widgets", "-o", "wide"))[0]) == ["NAME", "SIZE", "PHASE", "MODE", "AGE"]
    assert json.loads(run("get", "widgets", "-o", "json").out)["kind"] == "List"
    assert yaml.safe_load(run("get", "widget", "w", "-o", "yaml").out)["kind"] == "Widget"
    assert out(run("get", "widgets", "-o", "name")) == [f"widget.{GROUP}/w"]
    assert cells(out(run("get", "widgets", "--show-labels"))[1])[-1] == "tier=web"
    assert cells(out(run("get", "widgets", "-L", "tier"))[1])[-1] == "web"
    assert out(run("get", "widgets", "-l", "tier=web", "-o", "name")) == [f"widget.{GROUP}/w"]
    assert run("get", "widgets", "-l", "tier=db").err.startswith("No resources found in ")
    assert out(run("get", "widgets", "--field-selector", "spec.mode=safe", "-o", "name")) == [f"widget.{GROUP}/w"]
    assert cells(out(run("get", "widgets", "-o", "custom-columns=A:.metadata.name,B:.spec.mode"))[1]) == ["w", "safe"]
    assert cells(out(run("get", "widgets", "--sort-by=.metadata.name"))[1])[0] == "w"
    assert cells(out(run("get", "widgets", "-A", "-l", "tier=web"))[0])[:2] == ["NAMESPACE", "NAME"]


def test_get_in_pages(run: Run, server: Server, namespace: str) -> None:
    """Chunks are put together."""
    for name in "abcde":
        server.create(maps(namespace), config_map(name))

    assert out(run("get", "cm", "--chunk-size=2", "-o", "name")) == [f"configmap/{name}" for name in "abcde"]


def test_get_nothing(run: Run, namespace: str) -> None:
    """What is not there, and what nobody has heard of."""
    assert run("get", "cm", "nope", ok=False).err == 'Error from server (NotFound): configmaps "nope" not found\n'
    assert run("get", "nopes", ok=False).err == 'error: the server doesn\'t have a resource type "nopes"\n'
    assert run("get", "cm").err == f"No resources found in {namespace} namespace.\n"
    assert out(run("get", "cm", "nope", "--ignore-not-found")) == []


@contextlib.contextmanager
def running(server: Server, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run kubectl until the block is left, or has lasted for long: then its output is at its end."""
    process = subprocess.Popen(
        server.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=server.environment
    )
    late = threading.Timer(SECONDS, process.kill)
    with process:
        late.start()
        try:
            yield process
        finally:
            late.cancel()
            process.kill()


def test_get_watch(server: Server, namespace: str) -> None:
    """A line for what is there, and one for each change."""
    server.create(widgets(namespace), widget(size=4))

    with running(server, "-n", namespace, "get", "widgets", "-w") as process:
        assert process.stdout
        head, first = process.stdout.readline(), process.stdout.readline()
        server.patch(widgets(namespace, "w"), {"spec": {"size": 5}}).ok()
        second = process.stdout.readline()
        server.create(widgets(namespace), widget("x", size=6))
        third = process.stdout.readline()

    assert cells(head)[:2] == ["NAME", "SIZE"]
    assert [cells(line)[:2] for line in (first, second, third)] == [["w", "4"], ["w", "5"], ["x", "6"]]


def test_get_watch_events(server: Server, namespace: str) -> None:
    """Of some objects, with the sort of each event."""
    labelled = {**config_map(), "metadata": {"name": "m", "labels": {"a": "b"}}}
    server.create(maps(namespace), labelled)
    server.create(maps(namespace), config_map("other"))

    # Not of one object by name: that watch begins after the first line, and does not tell of a deletion before it.
    with running(server, "-n", namespace, "get", "cm", "-l", "a=b", "-w", "--output-watch-events") as process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(2)]
        server.send("DELETE", maps(namespace, "m")).ok()
        lines.append(process.stdout.readline())

    assert [cells(line)[:2] for line in lines] == [["EVENT", "NAME"], ["ADDED", "m"], ["DELETED", "m"]]


def test_describe(run: Run, server: Server, namespace: str) -> None:
    """The object in words, with its events."""
    made = server.create(widgets(namespace), widget(size=4))
    about = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "name": "w", "namespace": namespace}
    about["uid"] = made["metadata"]["uid"]
    time = "2026-11-30T12:00:00Z"
    server.create(
        f"/api/v1/namespaces/{namespace}/events",
        {
            "metadata": {"name": "e"},
            "involvedObject": about,
            "reason": "Tried",
            "message": "for the suite",
            "type": "Normal",
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
            "source": {"component": "suite"},
        },
    )

    text = run("describe", "widget", "w").out

    assert "Name:         w\n" in text
    assert f"API Version:  {GROUP}/v1\n" in text
    assert "  Size:  4\n" in text
    assert cells(text.splitlines()[-1])[:2] == ["Normal", "Tried"]
    assert text.rstrip().endswith("for the suite")


def test_describe_built_in(run: Run) -> None:
    """The kinds that kubectl has words of its own for."""
    run("create", "configmap", "m", "--from-literal=a=1")
    run("create", "secret", "generic", "s", "--from-literal=a=1")

    assert "Data\n====\na:\n----\n1\n" in run("describe", "cm", "m").out
    assert "a:  1 bytes\n" in run("describe", "secret", "s").out
    assert "Status:       Active\n" in run("describe", "namespace", "default").out


def test_edit(run: Run, tmp_path: Path) -> None:
    """An editor changes a line."""
    run("create", "-f", "-", stdin=widget(size=4))
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/size: 4/size: 5/' \"$1\"\n")
    editor.chmod(0o700)

    assert out(run("edit", "widget", "w", KUBE_EDITOR=str(editor))) == [f"widget.{GROUP}/w edited"]
    assert out(run("get", "widget", "w", "-o", "jsonpath={.spec.size}")) == ["5"]
    editor.write_text("#!/bin/sh\n")
    assert run("edit", "widget", "w", KUBE_EDITOR=str(editor)).err == "Edit cancelled, no changes made.\n"


def test_label_and_annotate(run: Run) -> None:
    """Set, refuse to overwrite, overwrite, remove."""
    run("create", "configmap", "m")

    assert out(run("label", "cm", "m", "a=b")) == ["configmap/m labeled"]
    assert "already has a value (b), and --overwrite is false" in run("label", "cm", "m", "a=c", ok=False).err
    assert out(run("label", "cm", "m", "a=c", "--overwrite")) == ["configmap/m labeled"]
    assert out(run("label", "cm", "m", "a-")) == ["configmap/m unlabeled"]
    assert out(run("annotate", "cm", "m", "example.com/refresh=now")) == ["configmap/m annotated"]
    metadata = json.loads(run("get", "cm", "m", "-o", "json").out)["metadata"]
    assert "labels" not in metadata
    assert metadata["annotations"] == {"example.com/refresh": "now"}
    bad = run("label", "cm", "m", "a=b c", ok=False)
    assert bad.err.startswith("error: invalid label value: ")


def test_patch(run: Run) -> None:
    """Three sorts, and what is not one."""
    run("create", "-f", "-", stdin=widget(size=4))
    run("create", "configmap", "m")

    assert out(run("patch", "widget", "w", "--type=merge", "-p", '{"spec":{"size":5}}')) == [
        f"widget.{GROUP}/w patched"
    ]
    assert out(run("patch", "widget", "w", "--type=merge", "-p", '{"spec":{"size":5}}')) == [
        f"widget.{GROUP}/w patched (no change)"
    ]
    operations = '[{"op":"replace","path":"/spec/size","value":6}]'
    assert out(run("patch", "widget", "w", "--type=json", "-p", operations)) == [f"widget.{GROUP}/w patched"]
    assert out(run("patch", "cm", "m", "-p", '{"data":{"a":"1"}}')) == ["configmap/m patched"]
    assert out(
        run("patch", "widget", "w", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"x"}}')
    ) == [f"widget.{GROUP}/w patched"]
    assert "application/strategic-merge-patch+json is not supported" in run(
        "patch", "widget", "w", "-p", "{}", ok=False
    ).err or ("UnsupportedMediaType" in run("patch", "widget", "w", "-p", "{}", ok=False).err)
    assert out(run("get", "widget", "w", "-o", "jsonpath={.spec.size}{.status.phase}")) == ["6x"]


def test_replace(run: Run, server: Server, namespace: str) -> None:
    """With the version it was read with; an old one is refused."""
    made = server.create(widgets(namespace), widget(size=4))
    made["spec"]["size"] = 5

    assert out(run("replace", "-f", "-", stdin=made)) == [f"widget.{GROUP}/w replaced"]
    stale = run("replace", "-f", "-", stdin=made, ok=False)
    assert stale.err == (
        'Error from server (Conflict): error when replacing "STDIN": Operation cannot be fulfilled on '
        f'widgets.{GROUP} "w": the object has been modified; '
        "please apply your changes to the latest version and try again\n"
    )


def test_diff(run: Run) -> None:
    """What an apply would change; 1 when it would."""
    run("apply", "-f", "-", stdin=widget(size=4))

    same = run("diff", "-f", "-", stdin=widget(size=4))
    other = run("diff", "-f", "-", stdin=widget(size=5), ok=False)

    assert (same.code, same.out) == (0, "")
    assert other.code == 1
    assert "-  size: 4\n+  size: 5\n" in other.out


def test_delete(run: Run, server: Server, namespace: str) -> None:
    """It waits until the object is gone; nothing there is an error, or not."""
    for name in "abcd":
        server.create(maps(namespace), {"metadata": {"name": name, "labels": {"x": "y" if name in "cd" else "z"}}})

    assert run("delete", "cm", "a").out.startswith('configmap "a" deleted')
    assert run("delete", "cm", "a", ok=False).err == 'Error from server (NotFound): configmaps "a" not found\n'
    assert out(run("delete", "cm", "a", "--ignore-not-found")) == []
    assert run("delete", "cm", "b", "--cascade=orphan", "--wait=false").out.startswith('configmap "b" deleted')
    assert len(out(run("delete", "cm", "-l", "x=y"))) == 2
    assert out(run("get", "cm", "-o", "name")) == (["configmap/b"] if server.which == "real" else [])


def test_delete_waits_for_finalizers(server: Server, namespace: str) -> None:
    """Kubectl delete stays until the last finalizer is gone."""
    server.create(widgets(namespace), widget(metadata={"finalizers": ["example.com/a"]}))

    with running(server, "-n", namespace, "delete", "widget", "w") as process:
        assert process.stdout
        assert process.stdout.readline().startswith(f'widget.{GROUP} "w" deleted')
        assert process.poll() is None
        server.patch(widgets(namespace, "w"), {"metadata": {"finalizers": None}}).ok()
        assert process.wait(timeout=10) == 0


def test_wait(server: Server, namespace: str, run: Run) -> None:
    """For a condition, for a value, for an end."""
    server.create(widgets(namespace), widget())
    ready = {"status": {"phase": "Done", "conditions": [{"type": "Ready", "status": "True"}]}}

    with running(server, "-n", namespace, "wait", "widget/w", "--for=condition=Ready", "--timeout=20s") as process:
        server.patch(widgets(namespace, "w", "/status"), ready).ok()
        assert process.stdout
        assert process.stdout.readline() == f"widget.{GROUP}/w condition met\n"
        assert process.wait(timeout=10) == 0
    assert out(run("wait", "widget/w", "--for=jsonpath={.status.phase}=Done")) == [f"widget.{GROUP}/w condition met"]
    late = run("wait", "widget/w", "--for=jsonpath={.status.phase}=Other", "--timeout=0.2s", ok=False)
    assert late.err == "error: timed out waiting for the condition on widgets/w\n"
    with running(server, "-n", namespace, "wait", "widget/w", "--for=delete", "--timeout=20s") as process:
        server.send("DELETE", widgets(namespace, "w")).ok()
        assert process.wait(timeout=10) == 0


def test_wait_for_a_definition(server: Server) -> None:
    """As every installation does."""
    name = f"crd/widgets.{GROUP}"
    finished = server.kubectl("wait", "--for=condition=Established", name)
    assert finished.out == f"customresourcedefinition.apiextensions.k8s.io/widgets.{GROUP} condition met\n"


def test_explain(run: Run) -> None:
    """The schema in words: of custom and of built-in kinds."""
    lines = run("explain", "widget.spec").out
    size = run("explain", "widget.spec.size").out
    tree = run("explain", "widget", "--recursive").out

    assert f"GROUP:      {GROUP}\nKIND:       Widget\nVERSION:    v1\n\nFIELD: spec <Object>\n" in lines
    assert "What is wanted.\n" in lines
    assert "  size\t<integer>\n    How big it is.\n" in lines
    assert "FIELD: size <integer>\n\n\nDESCRIPTION:\n    How big it is.\n" in size
    assert (
        "    parts\t<[]Object>\n      amount\t<integer>\n      colour\t<string>\n      name\t<string> -required-\n"
        in tree
    )
    assert "FIELD: data <map[string]string>" in run("explain", "configmap.data").out
    assert "FIELD: renewTime <string>" in run("explain", "lease.spec.renewTime").out
    assert run("explain", "widget.spec.nope", ok=False).err == 'error: field "nope" does not exist\n'


def test_events(run: Run, server: Server, namespace: str) -> None:
    """Kubectl events: of all, and for one object."""
    made = server.create(maps(namespace), config_map())
    about = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "m",
        "namespace": namespace,
        "uid": made["metadata"]["uid"],
    }
    event = {
        "metadata": {"name": "e"},
        "eventTime": "2026-11-30T12:00:00.000000Z",
        "reportingController": "example.com/c",
        "reportingInstance": "c-0",
        "action": "Try",
        "reason": "Tried",
        "note": "for the suite",
        "type": "Normal",
        "regarding": about,
    }
    server.create(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", event)

    for lines in (out(run("events")), out(run("events", "--for", "configmap/m")), out(run("get", "events"))):
        assert cells(lines[0])[:2] == ["LAST", "SEEN"]
        assert cells(lines[1])[1:4] == ["Normal", "Tried", "ConfigMap/m"] or cells(lines[1])[1:4] == [
            "Normal",
            "Tried",
            "configmap/m",
        ]
        assert lines[1].rstrip().endswith("for the suite")


def test_api_resources(run: Run) -> None:
    """Kinds and versions."""
    lines = [cells(line) for line in out(run("api-resources", f"--api-group={GROUP}"))]
    wide = out(run("api-resources", f"--api-group={GROUP}", "-o", "wide"))

    assert sorted(lines[1:]) == [
        ["gadgets", f"{GROUP}/v1", "false", "Gadget"],
        ["widgets", "wd", f"{GROUP}/v1", "true", "Widget"],
    ]
    assert (
        "create,delete,deletecollection,get,list,patch,update,watch" in wide[1].replace(" ", "") or "watch" in wide[1]
    )
    assert {f"{GROUP}/v1", "v1", "apiextensions.k8s.io/v1"} <= set(out(run("api-versions")))
    assert "configmaps" in {line.split()[0] for line in out(run("api-resources", "--namespaced=true"))[1:]}


def test_permissions(run: Run) -> None:
    """May I? The administrator may."""
    assert out(run("auth", "can-i", "create", "widgets")) == ["yes"]
    assert out(run("auth", "can-i", "*", "*")) == ["yes"]


def test_version_and_health(run: Run) -> None:
    """Is it there?"""
    assert run("version").out.splitlines()[-1].startswith("Server Version: v1.34.")
    assert out(run("get", "--raw", "/readyz")) == ["ok"]


def test_config(run: Run, server: Server) -> None:
    """The kubeconfig is one that kubectl reads."""
    view = yaml.safe_load(run("config", "view", "--minify").out)

    assert view["clusters"][0]["cluster"]["server"] == server.url
    assert view["users"][0]["user"] == {"token": "REDACTED"}
    assert out(run("config", "current-context"))[0] == view["current-context"]


def test_set_and_run_nothing(run: Run) -> None:
    """Kinds that are not served are told by name."""
    assert run("get", "widgets.other.example.com", ok=False).err == (
        'error: the server doesn\'t have a resource type "widgets"\n'
    )


def test_namespaces(server: Server) -> None:
    """Made and listed."""
    name = server.namespace() + "-k"

    assert server.kubectl("create", "namespace", name).out == f"namespace/{name} created\n"
    assert cells(server.kubectl("get", "ns", name).out.splitlines()[1])[:2] == [name, "Active"]
    assert server.kubectl("delete", "namespace", name, "--wait=false").out == f'namespace "{name}" deleted\n'


def test_definition(server: Server) -> None:
    """A definition is an object as others are."""
    assert server.kubectl("get", "crd", f"widgets.{GROUP}", "-o", "jsonpath={.spec.scope}").out == "Namespaced"
    described = server.kubectl("describe", "crd", f"widgets.{GROUP}").out
    assert "  Type:                  Established\n" in described


def test_scale_of_nothing(run: Run) -> None:
    """What a kind does not have is refused with words."""
    run("create", "-f", "-", stdin=widget())

    refused = run("scale", "widget", "w", "--replicas=2", ok=False)

    assert refused.code == 1
    assert "NotFound" in refused.err or "could not find" in refused.err
