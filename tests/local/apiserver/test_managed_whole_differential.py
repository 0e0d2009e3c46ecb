"""Field management through the whole server: random writes of objects of many kinds, answered alike by both."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import parse_qsl

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kargo_py.local.apiserver.wire import JsonObject, Request, Response, copied
from tests.envtest.server import DEFINITIONS, ApiServer
from tests.local.apiserver.both import Both
from tests.local.apiserver.things import CRD, GROUP, contents as thing_contents

pytestmark = pytest.mark.envtest

CONTENT_TYPES: Final = {
    "apply": "application/apply-patch+yaml",
    "put": "application/json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
CHANCE: Final = ("uid", "resourceVersion", "creationTimestamp", "generation")
KEPT: Final = ("managedFields", "resourceVersion")
_numbers = itertools.count()
a_word = st.sampled_from(["a", "b", "c"])
maps = st.dictionaries(a_word, a_word, max_size=2)
named = st.lists(st.fixed_dictionaries({"name": a_word}), max_size=2, unique_by=str)
metadatas = st.fixed_dictionaries(
    {},
    optional={
        "labels": maps,
        "annotations": maps,
        "finalizers": st.lists(st.sampled_from(["x.y/a", "x.y/b"]), max_size=2, unique=True),
    },
)
moments = st.sampled_from(["2026-01-02T03:04:05.000006Z", "2026-01-02T03:04:06.000000Z"])


def content(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[JsonObject]:
    return st.fixed_dictionaries({}, optional={"metadata": metadatas, **fields})


conditions = st.lists(
    st.fixed_dictionaries({"type": a_word, "status": st.sampled_from(["True", "False"])}, optional={"reason": a_word}),
    max_size=2,
    unique_by=lambda condition: condition["type"],
)
KINDS: Final[dict[str, tuple[str, str, st.SearchStrategy[JsonObject]]]] = {
    "ConfigMap": (
        "/api/v1",
        "configmaps",
        content(data=maps, binaryData=st.dictionaries(st.sampled_from("xy"), st.just("YQ=="))),
    ),
    "Secret": (
        "/api/v1",
        "secrets",
        content(data=st.dictionaries(a_word, st.sampled_from(["YQ==", "Yg=="])), stringData=maps),
    ),
    "ServiceAccount": (
        "/api/v1",
        "serviceaccounts",
        content(secrets=named, imagePullSecrets=named, automountServiceAccountToken=st.booleans()),
    ),
    "Namespace": (
        "/api/v1",
        "namespaces",
        content(status=st.fixed_dictionaries({"phase": st.just("Active")}, optional={"conditions": conditions})),
    ),
    "Thing": (f"/apis/{GROUP}/v1", "things", thing_contents(sparse=True)),
    "Lease": (
        "/apis/coordination.k8s.io/v1",
        "leases",
        content(
            spec=st.fixed_dictionaries(
                {},
                optional={"holderIdentity": a_word, "leaseTransitions": st.integers(1, 3), "renewTime": moments},
            )
        ),
    ),
}


class Writer(Both):
    """Both servers, and the answer of each to a write."""

    def write(self, method: str, path: str, bodies: list[Any], content_type: str) -> list[tuple[int, Any]]:
        ours = self.loop.run_until_complete(self._ours(method, path, json.dumps(bodies[0]).encode(), content_type))
        headers = {"Authorization": f"Bearer {self.real.token('admin')}", "Content-Type": content_type}
        self.connection.request(method, path, json.dumps(bodies[1]), headers)
        answer = self.connection.getresponse()
        return [ours, (answer.status, json.loads(answer.read()))]

    async def _ours(self, method: str, target: str, body: bytes, content_type: str) -> tuple[int, Any]:
        path, _, query = target.partition("?")
        answer = await self.embedded.handle(
            Request(method, path, parse_qsl(query, True), {"content-type": content_type}, body)
        )
        assert isinstance(answer, Response)
        return answer.code, json.loads(answer.body)


@pytest.fixture(scope="module")
def both(apiserver_session: ApiServer) -> Iterator[Writer]:
    with contextlib.closing(Writer(apiserver_session)) as writer:
        writer.ask("POST", DEFINITIONS, CRD)
        apiserver_session.await_custom_resources()
        yield writer


def comparable(code: int, answer: JsonObject) -> tuple[int, JsonObject]:
    answer = copied(answer)
    if code >= 300:
        for chance in ("message", "details"):  # they hold the whole object, with its uid, where a patch makes no object
            if "creationTimestamp" in json.dumps(answer):
                answer.pop(chance, None)
        if causes := (answer.get("details") or {}).get("causes"):
            causes.sort(key=json.dumps)
        return code, answer
    for name in CHANCE:
        answer["metadata"].pop(name, None)
    entries = [{**entry, "time": "time" in entry} for entry in answer["metadata"].pop("managedFields", [])]
    answer["metadata"]["managedFields"] = sorted(entries, key=lambda entry: json.dumps(entry, sort_keys=True))
    return code, answer


writes = st.lists(
    st.tuples(st.sampled_from(sorted(CONTENT_TYPES)), st.sampled_from(["one", "two", "kubectl"]), st.booleans()),
    min_size=2,
    max_size=6,
)


@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data(), history=writes)
def test_histories(both: Writer, kind: str, data: st.DataObject, history: list[tuple[str, str, bool]]) -> None:
    """Every write has the same answer, and stores a new version or not."""
    prefix, plural, contents = KINDS[kind]
    namespaces = "" if kind == "Namespace" else f"/namespaces/{both.namespace}"
    collection = f"{prefix}{namespaces}/{plural}"
    name = f"{both.namespace}-{next(_numbers)}"
    live: list[JsonObject] = []
    for how, manager, force in history:
        sent = data.draw(contents)
        # The embedded server collects garbage at once, the real one here never; and the real one stores, but never
        # shows, an empty map or list that was applied to the metadata of a custom resource.
        metadata = {field: value for field, value in sent.get("metadata", {}).items() if field != "ownerReferences"}
        if kind == "Thing":
            metadata = {field: value for field, value in metadata.items() if value}
        head = {"apiVersion": prefix.removeprefix("/apis/").removeprefix("/api/"), "kind": kind}
        body = {**head, **sent, "metadata": {"name": name, **metadata}}
        if (not live and how not in {"apply", "put"}) or (kind == "Thing" and how == "strategic"):
            continue
        method, path, bodies = "PATCH", f"{collection}/{name}?fieldManager={manager}", [body, body]
        if kind in {"Namespace", "Thing"} and live and "status" in sent and "spec" not in sent:
            path = path.replace("?", "/status?")
        if how == "apply":
            path += f"&force={str(force).lower()}"
        elif how == "put" and not live:
            method, path = "POST", f"{collection}?fieldManager={manager}"
        elif how == "put":
            method = "PUT"
            if force or kind == "Thing":  # as a client does that has read it before
                read = [{name: each["metadata"].get(name) for name in KEPT} for each in live]
                bodies = [{**body, "metadata": {**body["metadata"], **kept}} for kept in read]
        answers = both.write(method, path, bodies, CONTENT_TYPES[how])
        ours, theirs = (comparable(*answer) for answer in answers)
        if how == "apply" and theirs[0] == 422 and 'Invalid value: "null"' in answers[1][1]["message"]:
            break  # what apply has emptied is null there and refused; here it is absent, as it is after other writes
        assert ours == theirs, json.dumps([how, body, live, [answer[1] for answer in answers]])
        if ours[0] < 300:
            stored = [answer["metadata"]["resourceVersion"] for _, answer in answers]
            if live:
                before = [each["metadata"]["resourceVersion"] for each in live]
                assert len({stored[place] == before[place] for place in (0, 1)}) == 1, json.dumps([how, body, live])
            live = [answer for _, answer in answers]
