"""Strategic merge patches against the real server: random patches, most of them odd, of one ServiceAccount each."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import ssl
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kargo_py.local.apiserver.failures import Failure
from kargo_py.local.apiserver.strategic import strategic_merge
from kargo_py.local.apiserver.wire import JsonObject
from tests.envtest.server import HOST, ApiServer

pytestmark = pytest.mark.envtest

_SECRET: Final[JsonObject] = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("name", "kind", "fieldPath")},
}
SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "automountServiceAccountToken": {"type": "boolean"},
        "secrets": {
            "type": "array",
            "items": _SECRET,
            "x-kubernetes-patch-merge-key": "name",
            "x-kubernetes-patch-strategy": "merge",
        },
        "imagePullSecrets": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
    },
}
_numbers = itertools.count()
a_word = st.sampled_from(["a", "b", "c", "d"])
a_finalizer = a_word.map("x.y/{}".format)
a_secret = st.fixed_dictionaries({"name": a_word})  # the server keeps no other field of these
an_owner = st.fixed_dictionaries(
    {"apiVersion": st.just("v1"), "kind": st.just("ConfigMap"), "name": a_word, "uid": a_word},
    optional={"blockOwnerDeletion": st.booleans()},
)


def distinct(items: st.SearchStrategy[Any], key: str = "") -> st.SearchStrategy[list[Any]]:
    return st.lists(items, max_size=4, unique_by=lambda item: item[key] if key else item)


accounts = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.dictionaries(a_word, a_word, min_size=1),
                "finalizers": distinct(a_finalizer),
                "ownerReferences": distinct(an_owner, "uid"),
            },
        )
    },
    optional={
        "secrets": distinct(a_secret, "name"),
        "imagePullSecrets": distinct(st.fixed_dictionaries({"name": a_word}), "name"),
        "automountServiceAccountToken": st.booleans(),
    },
)


def with_order(name: str, items: st.SearchStrategy[Any], key: str, **directives: Any) -> dict[str, Any]:
    """A list in a patch, and what may be said of its order."""
    order = distinct(st.fixed_dictionaries({key: items}), key) if key else distinct(items)
    return {f"$setElementOrder/{name}": order, **directives}


def keyed(name: str, item: st.SearchStrategy[JsonObject], key: str) -> dict[str, Any]:
    some_key = item.map(lambda made: made[key])
    deleted = some_key.map(lambda value: {"$patch": "delete", key: value})
    change = item.flatmap(
        lambda made: st.sets(st.sampled_from(sorted(made))).map(
            lambda nulls: {field: None if field in nulls and field != key else value for field, value in made.items()}
        )
    )
    special = st.sampled_from([{"$patch": "replace"}, {"$patch": "delete"}, {"$patch": "merge"}, {}])
    items = st.lists(st.one_of(item, item, change, deleted, special), max_size=3)
    return {name: st.one_of(items, st.none()), **with_order(name, some_key, key)}


labels = st.fixed_dictionaries(
    {},
    optional={
        "a": st.one_of(a_word, st.none()),
        "b": st.one_of(a_word, st.none()),
        "$patch": st.sampled_from(["replace", "delete", "merge"]),
        "$retainKeys": st.lists(a_word, max_size=3),
    },
)
patches = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.one_of(labels, st.none()),
                "finalizers": st.one_of(st.lists(a_finalizer, max_size=3), st.none()),
                "$deleteFromPrimitiveList/finalizers": st.lists(a_finalizer, max_size=3),
                "$setElementOrder/finalizers": distinct(a_finalizer),
                **keyed("ownerReferences", an_owner, "uid"),
            },
        ),
        **keyed("secrets", a_secret, "name"),
        "imagePullSecrets": distinct(st.fixed_dictionaries({"name": a_word}), "name"),
        "automountServiceAccountToken": st.one_of(st.booleans(), st.none()),
    },
)


class Real:
    """A connection to it that stays open."""

    def __init__(self, server: ApiServer) -> None:
        tls = ssl.create_default_context(cafile=str(server.ca_file))
        self._connection = http.client.HTTPSConnection(HOST, int(server.url.rpartition(":")[2]), context=tls)
        self._token = server.token("admin")
        self.path = f"/api/v1/namespaces/{server.create_namespace()}/serviceaccounts"

    def close(self) -> None:
        self._connection.close()

    def __call__(self, method: str, path: str, body: Any, kind: str = "application/json") -> tuple[int, JsonObject]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        self._connection.request(method, path, json.dumps(body), headers)
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.fixture(scope="module")
def real(apiserver_session: ApiServer) -> Iterator[Real]:
    with contextlib.closing(Real(apiserver_session)) as connection:
        yield connection


def comparable(obj: JsonObject) -> JsonObject:
    """As the real server writes it, which leaves out what is empty."""
    if obj.get("kind") == "Status":
        return obj
    kept = {name: value for name, value in obj.items() if value not in ([], {}, None)}
    kept["metadata"] = {
        name: value for name, value in obj["metadata"].items() if value not in ([], {}) and name != "managedFields"
    }
    if labels := kept["metadata"].get("labels"):
        kept["metadata"]["labels"] = {name: value or "" for name, value in labels.items()}
    return kept


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(account=accounts, changes=st.lists(patches, min_size=1, max_size=6))
def test_patches(real: Real, account: JsonObject, changes: list[JsonObject]) -> None:
    """Each patch makes the same object, or is refused in the same words."""
    account["metadata"]["name"] = name = f"s{next(_numbers)}"
    _, live = real("POST", real.path, account)
    for change in changes:
        code, answer = real("PATCH", f"{real.path}/{name}?dryRun=All", change, "application/strategic-merge-patch+json")
        if code == 422 and answer["details"].get("causes"):
            continue  # the patch applies, but what comes out is no ServiceAccount
        try:
            ours = 200, strategic_merge(live, change, SCHEMA)
        except Failure as failure:
            ours = failure.code, failure.status()
        if code >= 400 and ours[0] >= 400:
            continue  # of several reasons, Go finds any first
        assert (ours[0], comparable(ours[1])) == (code, comparable(answer)), json.dumps([live, change, answer])
