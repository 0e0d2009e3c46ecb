"""The CustomResourceDefinitions: what they say, that they are current, and that the models read all they allow."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kargo_py.api import crd, kinds
from kargo_py.api.types import Duration, JsonObject, MicroTime, Time

CRDS = Path(__file__).parents[2] / "crds"
KINDS = {kind.plural: kind for kind in kinds.KINDS}


@cache
def _definition(plural: str) -> JsonObject:
    return crd.crd(KINDS[plural])


def _schema(plural: str) -> JsonObject:
    (version,) = _definition(plural)["spec"]["versions"]
    schema: JsonObject = version["schema"]["openAPIV3Schema"]
    return schema


def _field(plural: str, path: str) -> JsonObject:
    """The schema of a field, e.g. ``spec.steps[].uses``."""
    schema = _schema(plural)
    for name in path.replace("[]", ".[]").split("."):
        schema = schema["items"] if name == "[]" else schema["properties"][name]
    return schema


def _nodes(schema: JsonObject, path: str) -> Iterator[tuple[str, JsonObject]]:
    """Every schema within *schema*, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from _nodes(inner, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            yield from _nodes(schema[keyword], f"{path}[]")


# --- What they say --------------------------------------------------------------------------------------------------

_RULES = "x-kubernetes-validations"
EVERY = pytest.mark.parametrize("plural", list(KINDS))

_ALLOWED = {
    *("type", "description", "properties", "required", "items", "additionalProperties", "enum", "format", "pattern"),
    *("minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "default", "not"),
    *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
}


@EVERY
def test_schema_is_structural(plural: str) -> None:
    """Every node has a type or lets everything through, uses no other keyword, and requires only what it has."""
    for path, schema in _nodes(_schema(plural), plural):
        assert schema.keys() <= _ALLOWED, path
        assert "type" in schema or schema["x-kubernetes-preserve-unknown-fields"] is True, path
        assert ("items" in schema) == (schema.get("type") == "array"), path
        assert not {"properties", "additionalProperties"} <= schema.keys(), path
        assert set(schema.get("required", ())) <= schema.get("properties", {}).keys(), path
        if schema.get("type") == "integer":
            assert schema["format"] in {"int32", "int64"}, path
        if schema.get("type") == "object":
            assert {"properties", "additionalProperties", "x-kubernetes-preserve-unknown-fields"} & schema.keys() or (
                path.endswith(".metadata")
            ), path


@EVERY
def test_every_field_is_explained(plural: str) -> None:
    """``kubectl explain`` has a sentence, without markup, for the kind and for each of its fields."""
    for path, schema in _nodes(_schema(plural), plural):
        for name, field in schema.get("properties", {}).items():
            if (path, name) == (plural, "metadata"):  # the API server's own words
                continue
            text = field.get("description", "")
            assert text[:1].isupper(), f"{path}.{name}"
            assert text.endswith("."), f"{path}.{name}"
            assert "`" not in text, f"{path}.{name}"
    assert _schema(plural)["description"]


@pytest.mark.parametrize(
    ("plural", "scope", "short_names", "columns"),
    [
        ("promotions", "Namespaced", ["promo", "promos"], ["Shard", "Stage", "Freight", "Phase", "Age"]),
        ("stages", "Namespaced", [], ["Shard", "Current Freight", "Health", "Ready", "Status", "Age"]),
        ("freights", "Namespaced", [], ["Alias", "Origin (Kind)", "Origin (Name)", "Age"]),
        ("warehouses", "Namespaced", [], ["Shard", "Age"]),
        ("projects", "Cluster", [], ["Ready", "Status", "Age"]),
        ("projectconfigs", "Namespaced", [], ["Ready", "Status", "Age"]),
        ("clusterconfigs", "Cluster", ["clusterconfig", "clusterconfigs"], ["Ready", "Status", "Age"]),
        ("promotiontasks", "Namespaced", ["promotask", "promotasks"], ["Age"]),
        ("clusterpromotiontasks", "Cluster", ["clusterpromotask", "clusterpromotasks"], ["Age"]),
        (
            "promotionrequests",
            "Namespaced",
            ["promotionrequest", "promotionrequests"],
            ["Stage", "Freight", "Phase", "Age"],
        ),
        ("targets", "Namespaced", [], ["Age"]),
    ],
)
def test_definition(plural: str, scope: str, short_names: list[str], columns: list[str]) -> None:
    """Names, scope, columns and the status subresource are Kargo's; ours has more columns, in no other order."""
    definition = crd.crd(KINDS[plural], strict=True)
    spec = definition["spec"]
    kind = KINDS[plural].model.kind_name
    assert definition["metadata"]["name"] == f"{plural}.kargo.akuity.io"
    assert spec["scope"] == scope
    assert spec["names"].get("shortNames", []) == short_names
    assert (spec["names"]["kind"], spec["names"]["listKind"]) == (kind, f"{kind}List")
    assert spec["names"]["singular"] == kind.lower()
    (version,) = spec["versions"]
    assert version["name"] == "v1alpha1"
    assert version.get("subresources") == (None if plural.endswith("tasks") else {"status": {}})
    assert [column["name"] for column in version["additionalPrinterColumns"]] == columns

    ours = _definition(plural)
    (our_version,) = ours["spec"]["versions"]
    more = [column["name"] for column in our_version["additionalPrinterColumns"]]
    assert [name for name in more if name in columns] == columns
    assert {**ours["spec"], "versions": []} == {**spec, "versions": []}
    assert our_version.get("subresources") == version.get("subresources")


@pytest.mark.parametrize(
    ("plural", "path", "keywords"),
    [
        ("promotions", "spec.stage", {"type": "string", "minLength": 1, "maxLength": 253}),
        ("promotions", "spec.steps", {"type": "array", "minItems": 1}),
        ("promotions", "spec.steps[].config", {"x-kubernetes-preserve-unknown-fields": True}),
        ("promotions", "spec.steps[].task.kind", {"enum": ["PromotionTask", "ClusterPromotionTask"]}),
        ("promotions", "spec.steps[].retry.errorThreshold", {"type": "integer", "format": "int32", "minimum": 0}),
        ("promotions", "status", {"default": {}, "x-kubernetes-preserve-unknown-fields": True}),
        ("promotions", "status.phase", {"type": "string", "default": "Pending"}),
        ("promotions", "status.startedAt", {"type": "string", "format": "date-time"}),
        ("promotions", "status.currentStep", {"type": "integer", "format": "int64"}),
        ("promotions", "status.operations[].changedFields[]", {"type": "string"}),
        ("promotions", "status.freightCollection.verificationHistory[].analysisRun.name", {"type": "string"}),
        ("stages", "spec.requestedFreight", {"minItems": 1}),
        ("stages", "spec.requestedFreight[]", {"required": ["origin", "sources"]}),
        ("stages", "spec.requestedFreight[].origin.kind", {"enum": ["Warehouse"]}),
        ("stages", "spec.requestedFreight[].sources.requiredSoakTime", {"pattern": r"^([0-9]+(\.[0-9]+)?(s|m|h))+$"}),
        ("stages", "spec.requestedFreight[].sources.availabilityStrategy", {"enum": ["", "All", "OneOf"]}),
        ("stages", "spec.promotionTemplate.spec.steps", {"minItems": 1}),
        ("stages", "status.conditions", {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
        ("stages", "status.metadata", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        ("freights", "commits[].repoURL", {"type": "string"}),
        ("warehouses", "spec.interval", {"default": "5m0s"}),
        ("warehouses", "spec.freightCreationPolicy", {"enum": ["Automatic", "Manual"], "default": "Automatic"}),
        ("warehouses", "spec.subscriptions[]", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_field(plural: str, path: str, keywords: JsonObject) -> None:
    """Types, limits, enums, defaults and openness are what users of Kargo's API rely on."""
    assert keywords.items() <= _field(plural, path).items()


def test_only_a_promotions_own_phase_has_a_default() -> None:
    """The copies of a status that a Stage keeps say what was written, and nothing is made up."""
    assert "default" not in _field("stages", "status.lastPromotion.status.phase")
    assert "default" not in _field("stages", "status.lastPromotion.status")


def test_spec_is_closed_and_status_open() -> None:
    """A misspelt field of a spec is told to its author; a field that another program wrote into a status is kept."""
    assert "x-kubernetes-preserve-unknown-fields" not in _field("promotions", "spec")
    assert "x-kubernetes-preserve-unknown-fields" not in _field("stages", "spec.promotionTemplate.spec.steps[]")
    for path in ("status", "status.freightHistory[]", "status.lastPromotion", "status.health"):
        assert _field("stages", path)["x-kubernetes-preserve-unknown-fields"] is True


# --- As Kargo defines them --------------------------------------------------------------------------------------------

KARGOS = {
    "promotions": {
        "spec": "stage freight origin target vars steps",
        "spec.steps[]": "uses task as if continueOnError retry vars config",
        "status": "lastHandledRefresh phase message freight freightCollection healthChecks startedAt finishedAt "
        "currentStep stepExecutionMetadata state",
        "status.stepExecutionMetadata[]": "alias startedAt finishedAt errorCount status message continueOnError",
        "status.freight": "name commits images charts artifacts origin",
    },
    "stages": {
        "spec": "shard vars requestedFreight promotionTemplate verification targets",
        "status": "conditions lastHandledRefresh freightHistory freightSummary health observedGeneration "
        "currentPromotion lastPromotion autoPromotionEnabled autoPromotionHolds effectiveAutoPromotionHolds metadata "
        "currentPromotionRequest lastPromotionRequest promotionWindowStatus",
        "status.health": "status issues config output",
        "status.lastPromotion": "name freight status finishedAt",
        "status.lastPromotion.status": "lastHandledRefresh phase message freight freightCollection healthChecks "
        "startedAt finishedAt currentStep stepExecutionMetadata state",
        "status.freightHistory[]": "id items verificationHistory",
    },
    "freights": {
        "": "apiVersion kind metadata alias discoveredAt origin commits images charts artifacts status",
        "commits[]": "repoURL id branch tag message author committer subscriptionName",
        "images[]": "repoURL tag digest annotations subscriptionName",
        "charts[]": "repoURL name version subscriptionName",
        "artifacts[]": "artifactType subscriptionName version metadata",
        "status": "currentlyIn verifiedIn approvedFor metadata",
    },
    "warehouses": {
        "spec": "shard interval freightCreationPolicy subscriptions freightCreationCriteria",
        "status": "conditions lastHandledRefresh observedGeneration lastFreightID discoveredArtifacts",
        "status.discoveredArtifacts": "discoveredAt git images charts results",
    },
    "projects": {"status": "conditions stats"},
    "projectconfigs": {
        "spec": "promotionPolicies webhookReceivers freightLinks stageLinks promotionWindows",
        "spec.promotionPolicies[]": "stage stageSelector autoPromotionEnabled autoRollback",
        "spec.promotionPolicies[].stageSelector": "name matchLabels matchExpressions",
        "status": "conditions observedGeneration lastHandledRefresh webhookReceivers",
    },
    "clusterconfigs": {
        "spec": "webhookReceivers gitClient freightLinks stageLinks promotionWindows",
        "status": "conditions observedGeneration lastHandledRefresh webhookReceivers",
    },
    "promotiontasks": {"spec": "vars steps"},
    "clusterpromotiontasks": {"spec": "vars steps"},
}
"""The fields that Kargo's API has, as far as somebody acts on them."""

WHOLE = {
    "promotions": {"spec.steps[].config", "status.healthChecks[].config", "status.state"},
    "stages": {"spec.targets", "spec.promotionTemplate.spec.steps[].config", "status.health.config"},
    "freights": {"artifacts[].metadata", "status.metadata"},
}
"""Some fields that are JSON of any form with Kargo, too."""


def _strict(plural: str) -> JsonObject:
    (version,) = crd.crd(KINDS[plural], strict=True)["spec"]["versions"]
    schema: JsonObject = version["schema"]["openAPIV3Schema"]
    return schema


def _below(schema: JsonObject, path: str) -> JsonObject:
    for name in path.replace("[]", ".[]").split(".") if path else ():
        schema = schema["items"] if name == "[]" else schema["properties"][name]
    return schema


@pytest.mark.parametrize(("plural", "path"), [(plural, path) for plural, paths in KARGOS.items() for path in paths])
def test_strict_has_kargos_fields(plural: str, path: str) -> None:
    """No field of ours, none less than Kargo's, and whatever is not described is pruned."""
    found = _below(_strict(plural), path)
    assert found["properties"].keys() == set(KARGOS[plural][path].split())
    assert "x-kubernetes-preserve-unknown-fields" not in found


@pytest.mark.parametrize(("plural", "path"), [(plural, path) for plural, paths in WHOLE.items() for path in paths])
def test_strict_keeps_json(plural: str, path: str) -> None:
    """What may be anything with Kargo is kept whole."""
    assert _below(_strict(plural), path)["x-kubernetes-preserve-unknown-fields"] is True


def test_strict_says_nothing_more() -> None:
    """It has Kargo's own rules and no others, no limits of lists and no default of the status."""
    rules = {
        plural: [rule["rule"] for _, node in _nodes(_strict(plural), "") for rule in node.get(_RULES, ())]
        for plural in KINDS
    }
    assert {plural: len(found) for plural, found in rules.items() if found} == {
        "promotions": 2,
        "stages": 3,
        "projectconfigs": 1,
        "promotiontasks": 1,
        "clusterpromotiontasks": 1,
    }
    for plural in KINDS:
        for path, node in _nodes(_strict(plural), plural):
            assert not {"maxItems", "not"} & node.keys(), path
    assert not {"default"} & (_strict("promotions")["properties"]["status"].keys())


def test_strict_demands_what_kargo_does_of_conditions() -> None:
    """A condition that Kargo's definitions refuse is refused, for our controllers to be tried against them."""
    condition = _below(_strict("stages"), "status.conditions[]")
    assert set(condition["required"]) == {"type", "status", "reason", "message", "lastTransitionTime"}
    assert condition["properties"]["reason"]["minLength"] == 1


def test_strict_is_part_of_ours() -> None:
    """An object that fits the strict definitions fits ours: they have every field."""
    for plural in KINDS:
        ours = {path for path, _ in _nodes(_schema(plural), plural)}
        assert {path for path, _ in _nodes(_strict(plural), plural)} <= ours


# --- The files ------------------------------------------------------------------------------------------------------


def test_files_are_current() -> None:
    """The definitions in crds/ are those of these models (``make crds`` writes them)."""
    assert crd.main(["--check", str(CRDS)]) == 0


def test_write_and_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files are written so that they check, leftovers of a kind that is gone are removed, and changes are named."""
    directory = tmp_path / "new"
    assert crd.main(["--check", str(directory)]) == 1
    assert crd.main([str(directory)]) == 0
    (directory / "kargo.akuity.io_gone.yaml").touch()
    (directory / "kustomization.yaml").touch()
    (directory / "kargo.akuity.io_stages.yaml").write_text("edited")
    capsys.readouterr()
    assert crd.main(["--check", str(directory)]) == 1
    gone, edited = "kargo.akuity.io_gone.yaml", "kargo.akuity.io_stages.yaml"
    assert capsys.readouterr().err == f"not current: {gone}, {edited}; run `make crds` and commit the result\n"
    assert crd.main([str(directory)]) == 0
    assert crd.main(["--check", str(directory)]) == 0
    assert (directory / "kustomization.yaml").exists()


# --- The models read all that the definitions allow -----------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
UNKNOWN = st.from_regex(r"new[A-Z][a-z]{0,3}", fullmatch=True)
NAMES = st.sampled_from(["a", "dev", "a.b-c", "0" * 253])
METADATA: JsonObject = {"name": "a", "namespace": "b", "generation": 3, "labels": {}, "selfLink": "of an old server"}


def _texts(schema: JsonObject) -> st.SearchStrategy[str]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("format") == "date-time":
        instants = st.datetimes(min_value=_YEAR_2, max_value=_YEAR_9998, timezones=st.timezones())
        return instants.map(Time.of) | instants.map(MicroTime.of) | st.just("2026-01-31T12:00:00.5+05:30")
    pattern = schema.get("pattern", "")
    if "ns|" in pattern:
        return st.integers(-(2**63), 2**63 - 1).map(Duration.of_nanoseconds) | st.sampled_from(["0", "90m", "+1.50h"])
    if pattern.startswith("^[a-z0-9]"):
        return NAMES
    if pattern.endswith("(s|m|h))+$"):
        return st.sampled_from(["5m0s", "0s", "1.50h", "90s1m"])
    if pattern:
        return st.sampled_from(["image", "_", "A1"])  # names of variables
    return st.text(min_size=schema.get("minLength", 0), max_size=8)


def _values(schema: JsonObject) -> st.SearchStrategy[Any]:
    match schema.get("type"):
        case "string":
            return _texts(schema)
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema.get("minimum", -(2**63)), schema.get("maximum", 2**63 - 1))
        case "array":
            return st.lists(_values(schema["items"]), min_size=schema.get("minItems", 0), max_size=2)
        case "object" if "properties" in schema:
            return _objects(schema)
        case "object" if "additionalProperties" in schema:
            inner = _values(schema["additionalProperties"])
            return st.dictionaries(st.text(max_size=8), inner, max_size=2)
        case "object":
            return st.dictionaries(st.text(max_size=5), JSON, max_size=2)
        case _:
            return JSON


def _objects(schema: JsonObject) -> st.SearchStrategy[JsonObject]:
    """Objects of *schema* with any of the optional fields, and with some that it does not have."""
    fields = {name: _values(inner) for name, inner in schema["properties"].items()}
    required = {name: fields.pop(name) for name in schema.get("required", ())}
    known = st.fixed_dictionaries(required, optional=fields)
    return st.builds(lambda some, new: {**new, **some}, known, st.dictionaries(UNKNOWN, JSON, max_size=1))


_YEAR_2, _YEAR_9998 = (Time(f"{year}-01-01T00:00:00Z").datetime.replace(tzinfo=None) for year in ("0002", "9998"))


@EVERY
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_models_read_what_the_definitions_allow(plural: str, data: st.DataObject) -> None:
    """Any object the API server may store is read, and written again it is the same to the last character."""
    schema = _schema(plural)
    own = {name: field for name, field in schema["properties"].items() if name != "metadata"}
    wire = {**data.draw(_objects({**schema, "properties": own})), "metadata": METADATA}
    read = KINDS[plural].model.model_validate(wire)
    assert json.dumps(read.wire(), sort_keys=True) == json.dumps(wire, sort_keys=True)
