"""Discovery documents."""

from __future__ import annotations

import pytest

from kargo_py.local.apiserver import discovery
from kargo_py.local.apiserver.builtin import kinds
from kargo_py.local.apiserver.crdtypes import CUSTOM_RESOURCE_DEFINITION
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.typedrules import TypedRules
from kargo_py.local.apiserver.wire import JsonObject

RULES = TypedRules(CUSTOM_RESOURCE_DEFINITION)


def custom(group: str, version: str = "v1", plural: str = "widgets") -> Kind:
    """A custom resource."""
    names = (plural, plural[:-1], plural[:-1].title())
    return Kind(group, version, *names, RULES, custom=True, has_status=True, short_names=("w",), categories=("all",))


KINDS = (*kinds(RULES), custom("b.example"), custom("a.example"), custom("a.example", "v1beta1"))


def resources(group: str, version: str) -> dict[str, JsonObject]:
    """The resources of a version by name."""
    found = discovery.resources(KINDS, group, version)
    assert found is not None
    return {each["name"]: each for each in found["resources"]}


def test_groups_are_in_order() -> None:
    found = discovery.groups(KINDS)
    assert [group["name"] for group in found["groups"]] == [
        "events.k8s.io",
        "authorization.k8s.io",
        "apiextensions.k8s.io",
        "coordination.k8s.io",
        "a.example",
        "b.example",
    ]


def test_a_group_prefers_its_stablest_version() -> None:
    found = discovery.group(KINDS, "a.example")
    assert found is not None
    assert [version["version"] for version in found["versions"]] == ["v1", "v1beta1"]
    assert found["preferredVersion"] == {"groupVersion": "a.example/v1", "version": "v1"}


@pytest.mark.parametrize("name", ["", "none.example"])
def test_no_such_group(name: str) -> None:
    assert discovery.group(KINDS, name) is None


def test_versions_are_ordered_as_kubernetes_does() -> None:
    versions = ["foo10", "v1alpha1", "v10", "v2beta1", "foo1", "v2", "v11beta2", "v1", "v2beta2"]
    ordered = ["v10", "v2", "v1", "v11beta2", "v2beta2", "v2beta1", "v1alpha1", "foo1", "foo10"]
    assert sorted(versions, key=discovery.version_order) == ordered


def test_the_core_group() -> None:
    found = discovery.resources(KINDS, "", "v1")
    assert found is not None
    assert (found["kind"], found["groupVersion"], "apiVersion" in found) == ("APIResourceList", "v1", False)
    listed = resources("", "v1")
    assert list(listed) == [
        *("configmaps", "events", "namespaces", "namespaces/finalize"),
        *("namespaces/status", "secrets", "serviceaccounts"),
    ]
    assert listed["namespaces/finalize"]["verbs"] == ["update"]
    assert "deletecollection" not in listed["namespaces"]["verbs"]
    assert listed["configmaps"] == {
        "name": "configmaps",
        "singularName": "configmap",
        "namespaced": True,
        "kind": "ConfigMap",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["cm"],
        "storageVersionHash": "qFsyl6wFWjQ=",
    }


def test_events_of_both_groups_are_stored_as_one() -> None:
    hashes = {resources(group, "v1")["events"]["storageVersionHash"] for group in ("", "events.k8s.io")}
    assert hashes == {"r2yiGXH7wu8="}


def test_reviews_can_only_be_created() -> None:
    listed = resources("authorization.k8s.io", "v1")
    assert [each["verbs"] for each in listed.values()] == [["create"], ["create"]]
    assert not any("storageVersionHash" in each for each in listed.values())


def test_a_custom_resource() -> None:
    listed = resources("b.example", "v1")
    assert listed["widgets"]["shortNames"] == ["w"]
    assert listed["widgets"]["categories"] == ["all"]
    assert listed["widgets/status"] == {
        "name": "widgets/status",
        "singularName": "",
        "namespaced": True,
        "kind": "Widget",
        "verbs": ["get", "patch", "update"],
    }


def test_no_such_version() -> None:
    assert discovery.resources(KINDS, "a.example", "v2") is None


def test_the_versions_of_the_core_group() -> None:
    found = discovery.core_versions("127.0.0.1:6443")
    assert found["versions"] == ["v1"]
    assert found["serverAddressByClientCIDRs"][0]["serverAddress"] == "127.0.0.1:6443"
