"""CustomResourceDefinitions: names, status, the kinds they bring, and what is too much."""

from typing import Any

import pytest

from kargo_py.local.apiserver import crd, crdkinds, crdstatus
from kargo_py.local.apiserver.wire import copied
from tests.local.apiserver.schema_oracle import accepted, around, definition, our_definition, our_value, thing

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:00:05Z"


def conditions(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(one["type"], one["status"], one["reason"]) for one in found["status"]["conditions"]]


def test_established() -> None:
    """A definition whose names are free is established, and keeps the moment."""
    raw = accepted(definition(around()))
    found = crdstatus.established(raw, NOW)
    assert conditions(found) == [
        ("NamesAccepted", "True", "NoConflicts"),
        ("Established", "True", "InitialNamesAccepted"),
    ]
    assert (found["status"]["acceptedNames"]) == {
        "plural": "things",
        "singular": "things",
        "kind": "Things",
        "listKind": "ThingsList",
    }
    assert found["status"]["storedVersions"] == ["v1"]
    assert raw["status"]["conditions"] is None
    assert found == crdstatus.established(found, LATER)


@pytest.mark.parametrize(
    ("names", "reason", "message"),
    [
        ({"singular": "things"}, "SingularConflict", '"things" is already in use'),
        ({"kind": "Things", "listKind": "OtherList"}, "KindConflict", '"Things" is already in use'),
        ({"shortNames": ["th", "things"]}, "ShortNamesConflict", '"things" is already in use'),
        ({"listKind": "ThingsList"}, "ListKindConflict", '"ThingsList" is already in use'),
    ],
)
def test_conflicts(names: dict[str, Any], reason: str, message: str) -> None:
    """A definition that wants a name which another of the group has is not established."""
    first = crdstatus.established(accepted(definition(around())), NOW)
    raw = accepted(definition(around(), names={"plural": "others", "kind": "Other", **names}))
    found = crdstatus.established(raw, NOW, [first, raw])
    assert [("NamesAccepted", "False", reason), ("Established", "False", "NotAccepted")] == conditions(found)
    assert message == found["status"]["conditions"][0]["message"]
    assert conditions(crdstatus.established(found, LATER))[0] == ("NamesAccepted", "True", "NoConflicts")


def test_kinds() -> None:
    """Each version that is served is a kind."""
    schema = {"schema": {"openAPIV3Schema": around(a={"type": "string"})}}
    columns = [{"name": "A", "type": "string", "jsonPath": ".spec.a"}]
    versions = [
        {"name": "v1", "served": True, "storage": True, **schema, "additionalPrinterColumns": columns},
        {"name": "v2", "served": True, "storage": False, **schema, "subresources": {"status": {}}},
        {"name": "v3", "served": False, "storage": False, **schema},
    ]
    first, second = crdkinds.kinds_of(accepted(definition(around(), versions=versions)))
    assert (first.api_version, second.api_version) == ("example.com/v1", "example.com/v2")
    assert [column.json_path for column in first.columns] == [".spec.a"]
    assert (first.has_status, second.has_status) == (False, True)
    assert not first.namespaced


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group": "other.com"}, 'spec.group: Invalid value: "other.com": field is immutable'),
        ({"scope": "Namespaced"}, 'spec.scope: Invalid value: "Namespaced": field is immutable'),
    ],
)
def test_immutable(change: dict[str, Any], message: str) -> None:
    """What decides where objects are stored does not change."""
    old = crdstatus.established(accepted(definition(around())), NOW)
    new = copied(old)
    new["spec"].update(change)
    assert [message] == [str(error) for error in crd.DefinitionRules().validate(new, old, "")]


def test_stored_versions() -> None:
    """A version that objects may be stored in stays."""
    old = crdstatus.established(accepted(definition(around())), NOW)
    new = copied(old)
    new["spec"]["versions"][0]["name"] = "v2"
    rules = crd.DefinitionRules()
    rules.prepare(new, old, "")
    assert new["status"]["storedVersions"] == ["v1", "v2"]
    (error,) = rules.validate(new, old, "")
    assert str(error).startswith('status.storedVersions[0]: Invalid value: "v1": missing from spec.versions')


def test_deep_schema() -> None:
    """A schema deeper than this server takes is refused, not walked."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        schema = {"type": "object", "properties": {"a": schema}}
    ((_, field, message),) = our_definition(definition(schema))
    assert (field, "this server" in message) == ("spec.validation.openAPIV3Schema", True)


def test_costly_rule() -> None:
    """A rule that loops within loops over much is stopped."""
    rule = {"rule": "self.all(x, self.all(y, self.all(z, x + y + z > 0)))"}
    items = {"type": "array", "maxItems": 500, "items": {"type": "integer"}, "x-kubernetes-validations": [rule]}
    raw = accepted(definition(around(a=items)))
    ((_, field, message),) = our_value(raw, thing({"a": list(range(1, 500))}))["causes"]
    assert (field, "cost limit exceeded" in message) == ("spec.a", True)


def test_transition() -> None:
    """A rule about the old value holds for updates, an optional one for a create, too."""
    rules = [
        {"rule": "self == oldSelf", "message": "never changes"},
        {
            "rule": "oldSelf.orValue('a') == 'a'",
            "optionalOldSelf": True,
            "messageExpression": "'was ' + oldSelf.orValue('')",
        },
    ]
    raw = accepted(definition(around(a={"type": "string", "maxLength": 9, "x-kubernetes-validations": rules})))
    old, new = thing({"a": "b"}), thing({"a": "c"})
    assert "causes" not in our_value(raw, new)
    assert our_value(raw, new, old)["causes"] == [
        ["FieldValueInvalid", "spec.a", 'Invalid value: "string": never changes'],
        ["FieldValueInvalid", "spec.a", 'Invalid value: "string": was b'],
    ]
