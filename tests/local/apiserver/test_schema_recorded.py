"""Definitions, values, updates and rules get the answers that a real API server gave, as recorded in ``recorded/``."""

import json
from typing import Any, Final

import pytest

from tests.local.apiserver import schema_oracle as oracle

# Where ours is another answer, and why.
DIFFERENT_DEFINITIONS: Final = {
    "rule uncorrelated": "the cost of rules is not estimated",
}
DIFFERENT_RULES: Final = {
    "self.s.find('(') == 'a'": "a literal argument of find is looked at when it is used",
    "int('9223372036854775808') == 1": "a literal argument of a conversion is looked at when it is used",
    "timestamp('x') == self.dt": "a literal argument of a conversion is looked at when it is used",
    "duration('x') == self.dur": "a literal argument of a conversion is looked at when it is used",
    "self.?s.optMap(x, x + 'b').orValue('z') == 'abcb'": "the cost of rules is not estimated",
    "self.l.all(i, x, i < 3)": "the CEL library has no loops with two variables",
    "self.m.transformList(k, v, v).size() == 1": "the CEL library has no loops with two variables",
    "semver('1.0.0').isGreaterThan(semver('1.0.1'))": "semver is not here",
    "isSemver(self.s)": "semver is not here",
    "self.s.isSemver()": "semver is not here",
    "google.protobuf.Timestamp{seconds: 1} == self.dt": "messages are not here",
    "self.o{x: 1}": "messages are not here",
    "self.dt.getHours('UTC') == 1": "time zones are not here",
    "self.dt.getHours('02:00') == 5": "time zones are not here",
    "self.ios.foo == 1": "the CEL library has other words for it",
    "duration(self.i) < duration('1h')": "the CEL library has other words for it",
    "quantity('1.5Gi').asInteger() == 1610612736": "a whole number is an integer, however it is written",
    "uint(self.i) == 1u": "the CEL library has other words for it",
    "ip('1.2.3').family() == 4": "one text for all that is no address",
}


def _by_schema(name: str) -> dict[str, list[dict[str, Any]]]:
    cases: dict[str, list[dict[str, Any]]] = {}
    for case in oracle.read(name)["cases"]:
        cases.setdefault(case["schema"], []).append(case)
    return cases


VALUES: Final = _by_schema("values")
UPDATES: Final = _by_schema("updates")
SCHEMAS: Final = oracle.read("values")["schemas"]
DEFINITIONS: Final = oracle.read("definitions")
RULES: Final = oracle.read("rules")
DIFFERENT_UPDATES: Final = {
    ("ruled", '"a"'): "a text that is no moment stays a text",
    ("rulel", "[1]"): "only the value itself is checked for its type before rules see it, not what is in it",
}
DIFFERENT_VALUES: Final = {
    ("rule", "{}"): "where both sides of || fail, the error of the right one is told",
    ("emb", '{"apiVersion": 1, "kind": "P_d"}'): "metadata of embedded resources is validated, not decoded",
}


def _definition(schema: str, plural: str = "things") -> oracle.Json:
    return oracle.accepted(oracle.definition(oracle.around(**{schema: SCHEMAS[schema]}), plural))


@pytest.mark.parametrize("name", DEFINITIONS)
def test_definitions(name: str) -> None:
    """A definition is refused for what the real server refuses it for."""
    case = DEFINITIONS[name]
    same = oracle.our_definition(case["definition"]) == case["answer"]
    assert same is (name not in DIFFERENT_DEFINITIONS), (oracle.our_definition(case["definition"]), case["answer"])


def _comparable(answer: Any, schema: str) -> Any:
    """*answer* without the note on rules that were not evaluated, where only other fields have any."""
    if "causes" in answer:
        has_rules = "x-kubernetes-validations" in str(SCHEMAS[schema])
        answer = {"causes": [cause for cause in answer["causes"] if has_rules or "were not checked" not in cause[2]]}
    return answer


@pytest.mark.parametrize("schema", VALUES)
def test_values(schema: str) -> None:
    """A value is pruned, filled and refused as by the real server."""
    raw = _definition(schema)
    for case in VALUES[schema]:
        ours = oracle.our_value(raw, oracle.thing({schema: case["value"]}))
        same = ours == _comparable(case["answer"], schema)
        assert same is ((schema, json.dumps(case["value"])) not in DIFFERENT_VALUES), (case, ours)


@pytest.mark.parametrize("schema", UPDATES)
def test_updates(schema: str) -> None:
    """What was wrong before and is as it was is forgiven as by the real server."""
    raw = _definition(schema, "olds")
    for case in UPDATES[schema]:
        old, new = (oracle.thing({schema: case[which]}, "olds") for which in ("old", "new"))
        ours = oracle.our_value(raw, new, old)
        different = case["old"] == case["new"] and (schema, json.dumps(case["new"])) in DIFFERENT_UPDATES
        assert (ours == _comparable(case["answer"], schema)) is not different, (case, ours)


@pytest.mark.parametrize("rule", RULES["rules"])
def test_rules(rule: str) -> None:
    """A rule compiles, and holds of values, as on the real server."""
    ours, theirs = oracle.our_rule(RULES, rule), RULES["rules"][rule]
    assert (ours == theirs) is (rule not in DIFFERENT_RULES), (ours, theirs)
