"""Field management against the real server: random histories of several managers, step by step.

After each write the real server's answer is compared with what our functions make of the object that was there before:
code, message, causes, the object with its managedFields (but for times), and whether a new version was stored.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kargo_py.local.apiserver.failures import Failure
from kargo_py.local.apiserver.fieldtypes import Types
from kargo_py.local.apiserver.managed import Writing, apply, resets, update, with_old_times
from kargo_py.local.apiserver.patches import json_patch, merge_patch
from kargo_py.local.apiserver.schema import Schema
from kargo_py.local.apiserver.wire import JsonObject, copied
from tests.envtest.server import DEFINITIONS, HOST, ApiServer
from tests.local.apiserver.things import CRD, GROUP, SCHEMA, VERSIONS, contents, spec_fields

pytestmark = pytest.mark.envtest

_types = Types.of(SCHEMA)
_schema = Schema.compile(SCHEMA)
_numbers = itertools.count()


@dataclass(frozen=True)
class Write:
    """One request to write the object."""

    kind: str
    manager: str
    version: str
    subresource: str
    content: JsonObject = field(default_factory=dict)
    force: bool = False
    managed: str = "kept"


shared: Final[dict[str, Any]] = {
    "manager": st.sampled_from(["one", "two", "three", "kubectl"]),
    "version": st.sampled_from(VERSIONS[:1] * 3 + VERSIONS),
    "subresource": st.sampled_from(["", "", "", "status"]),
}
writes = st.one_of(
    st.builds(
        Write,
        st.just("apply"),
        content=contents(sparse=True),
        force=st.booleans(),
        **shared,
    ),
    st.builds(
        Write,
        st.just("put"),
        content=contents(sparse=False),
        managed=st.sampled_from(["kept", "left out", "reset", "empty"]),
        **shared,
    ),
    st.builds(Write, st.just("merge"), content=contents(sparse=True), **shared),
    st.builds(
        Write,
        st.just("json"),
        content=st.sampled_from(sorted(spec_fields)).flatmap(
            lambda name: st.fixed_dictionaries(
                {
                    "op": st.sampled_from(["add", "replace", "remove", "test"]),
                    "path": st.just(f"/spec/{name}"),
                    "value": spec_fields[name],
                }
            )
        ),
        **shared,
    ),
)


# The real server


class Real:
    """A connection to it that stays open."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        port = int(server.url.rpartition(":")[2])
        self._connection = http.client.HTTPSConnection(
            HOST, port, context=ssl.create_default_context(cafile=str(server.ca_file))
        )
        self._token = server.token("admin")
        self.namespace = namespace

    def close(self) -> None:
        self._connection.close()

    def __call__(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type, "User-Agent": "tester/1"}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.fixture(scope="module")
def real(apiserver_session: ApiServer) -> Iterator[Real]:
    apiserver_session.apply(DEFINITIONS, CRD)
    apiserver_session.await_custom_resources()
    with contextlib.closing(Real(apiserver_session, apiserver_session.create_namespace())) as connection:
        for version in VERSIONS:  # the second one is served a little later
            path = f"/apis/{GROUP}/{version}/namespaces/{connection.namespace}/things"
            while connection("GET", path)[0] != 200:
                time.sleep(0.05)
        yield connection


CONTENT_TYPES: Final = {
    "apply": "application/apply-patch+yaml",
    "put": "application/json",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
}


def sent(write: Write, live: JsonObject | None, name: str, namespace: str) -> Any:
    """The body of the request."""
    head = {"apiVersion": f"{GROUP}/{write.version}", "kind": "Thing"}
    if write.kind == "json":
        return [write.content]
    if write.kind == "merge":
        return write.content
    body = {**head, **copied(write.content)}
    body["metadata"] = {"name": name, "namespace": namespace, **body.get("metadata", {})}
    if write.kind == "put" and live is not None:
        body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
        if write.managed == "kept":
            body["metadata"]["managedFields"] = live["metadata"].get("managedFields")
        elif write.managed != "left out":
            body["metadata"]["managedFields"] = [{}] if write.managed == "reset" else []
    return body


def made(write: Write, live: JsonObject | None, body: Any) -> tuple[int, JsonObject]:
    """What we make of it."""
    api_version = f"{GROUP}/{write.version}"
    through = Writing(
        types=_types,
        api_version=api_version,
        kind="Thing",
        subresource=write.subresource,
        reset=resets("spec" if write.subresource else "status"),
        others={f"{GROUP}/{version}": _types for version in VERSIONS},
    )
    before = None if live is None else {**live, "apiVersion": api_version}
    now = datetime.now(UTC)
    try:
        if write.kind == "apply":
            new = apply(before, body, manager=write.manager, now=now, through=through, force=write.force).object
            decoded(new)
            merged = copied(new)
            _schema.default(new)
            if has_lost_nulls(merged, new):
                return 422, {}  # what apply leaves null is not taken for absent, as it is in other bodies
        else:
            if write.kind == "json":
                assert before is not None
                new = copied(json_patch(before, json.dumps(body).encode()))
            elif write.kind == "merge":
                assert before is not None
                new = copied(merge_patch(before, json.dumps(body).encode()))
            else:
                new = copied(body)
            decoded(new)
            _schema.prune(new)
            _schema.default(new)
            entries = update(before, new, manager=write.manager, now=now, through=through)
            new["metadata"]["managedFields"] = entries
    except Failure as failure:
        return failure.code, failure.status()
    prepared(new, before, write.subresource)
    if before is not None:
        new = with_old_times(before, new)
    return (200 if before else 201), new


def has_lost_nulls(merged: Any, new: Any) -> bool:
    """A null is no more, and nothing stands in its place."""
    if isinstance(merged, list):
        return any(map(has_lost_nulls, merged, new))
    return isinstance(merged, dict) and any(
        name not in new or has_lost_nulls(below, new[name]) for name, below in merged.items()
    )


def decoded(new: JsonObject) -> None:
    """Metadata goes through Go's ObjectMeta, which leaves out what is empty."""
    for name in [name for name, value in new["metadata"].items() if value in ({}, [], None)]:
        del new["metadata"][name]


def prepared(new: JsonObject, before: JsonObject | None, subresource: str) -> None:
    """What the server does to every write of a custom resource: keep what this one cannot change."""
    if not new["metadata"].get("managedFields"):
        new["metadata"].pop("managedFields", None)
    if before is None:
        new.pop("status", None)
        return
    kept = {"uid", "creationTimestamp", "generation", "resourceVersion"}
    new["metadata"].update({name: value for name, value in before["metadata"].items() if name in kept})
    if subresource:
        managed = new["metadata"].get("managedFields")
        status = new.get("status")
        new.clear()
        new.update(copied(before))
        new["metadata"].pop("managedFields", None)
        if managed:
            new["metadata"]["managedFields"] = managed
        new.pop("status", None)
        if status is not None:
            new["status"] = status
    else:
        new.pop("status", None)
        if "status" in before:
            new["status"] = before["status"]


def comparable(obj: JsonObject) -> JsonObject:
    """The object without what only time and chance say."""
    obj = copied(obj)
    if obj.get("kind") == "Status":
        if causes := (obj.get("details") or {}).get("causes"):
            causes.sort(key=json.dumps)
        return obj
    metadata = obj["metadata"]
    for name in ("uid", "creationTimestamp", "generation", "resourceVersion"):
        metadata.pop(name, None)
    entries = [{**entry, "time": "time" in entry} for entry in metadata.pop("managedFields", [])]
    metadata["managedFields"] = sorted(entries, key=lambda entry: json.dumps(entry, sort_keys=True))
    return obj


def told(write: Write, *objects: JsonObject | None) -> str:
    return "\n".join((str(write), *(json.dumps(each, sort_keys=True) for each in objects)))


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(history=st.lists(writes, min_size=2, max_size=8))
def test_histories_of_a_custom_resource(real: Real, history: list[Write]) -> None:
    """Every write has the same answer."""
    name = f"t{next(_numbers)}"
    live: JsonObject | None = None
    was_hidden = False  # an empty map or list of metadata was applied: it is stored, but never shown
    for write in history:
        collection = f"/apis/{GROUP}/{write.version}/namespaces/{real.namespace}/things"
        if live is None and (write.kind not in {"apply", "put"} or write.subresource):
            continue
        if live is not None:
            live = real("GET", f"{collection}/{name}")[1]
        body = sent(write, live, name, real.namespace)
        if live is None and write.kind == "put":
            code, answer = real("POST", f"{collection}?fieldManager={write.manager}", body)
        else:
            path = f"{collection}/{name}{'/' if write.subresource else ''}{write.subresource}"
            method = "PUT" if write.kind == "put" else "PATCH"
            force = f"&force={str(write.force).lower()}" if write.kind == "apply" else ""
            code, answer = real(method, f"{path}?fieldManager={write.manager}{force}", body, CONTENT_TYPES[write.kind])
        our_code, ours = made(write, live, body)
        if our_code < 300 and _schema.validate(ours, live):
            our_code = 422
        if code == our_code == 422:
            continue
        assert (our_code, comparable(ours)) == (code, comparable(answer)), told(write, live, ours, answer)
        if code >= 300:
            continue
        hidden = write.kind == "apply" and any(not value for value in write.content.get("metadata", {}).values())
        if live is not None and not (hidden or was_hidden):
            stored = answer["metadata"]["resourceVersion"] != live["metadata"]["resourceVersion"]
            assert stored == (ours != {**live, "apiVersion": ours["apiVersion"]}), told(write, live, ours, answer)
        live, was_hidden = answer, hidden
