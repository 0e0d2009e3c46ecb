"""The recorded answers are those of the real API server, and what is made up at random gets the same from ours."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.envtest.server import ApiServer
from tests.local.apiserver import schema_oracle
from tests.local.apiserver.schema_oracle import Oracle

pytestmark = pytest.mark.envtest
FORMS = ["a", "ab", "x", ""]


@pytest.fixture(scope="module")
def oracle(apiserver_session: ApiServer) -> Iterator[Oracle]:
    with closing(Oracle(apiserver_session)) as found:
        yield found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", schema_oracle.FILES)
def test_recorded(oracle: Oracle, name: str) -> None:
    """The recorded answers are true."""
    recorded = schema_oracle.read(name)
    cases = recorded.get("cases", recorded.get("rules", recorded))
    told = dict(schema_oracle.ASKED[name](oracle))
    wanted = {key: cases[key] if name == "rules" else cases[key]["answer"] for key in told}
    assert wanted == told


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 30) | st.sampled_from([1.5, 2.0]) | st.sampled_from(FORMS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def checks(draw: st.DrawFn) -> schema_oracle.Json:
    """Value validation without a structure of its own, as in allOf."""
    return draw(
        st.fixed_dictionaries(
            {},
            optional={
                "maxLength": st.integers(0, 2),
                "minLength": st.integers(0, 2),
                "minimum": st.sampled_from([0, 1.5, 3]),
                "maximum": st.sampled_from([0, 1.5, 20]),
                "pattern": st.sampled_from(["^a", "b$", "^(a|x)*$"]),
                "enum": st.lists(st.sampled_from(["a", "x", 1, 1.5]), min_size=1, max_size=2, unique=True),
                "minItems": st.integers(0, 2),
                "maxItems": st.integers(0, 2),
                "maxProperties": st.integers(0, 2),
            },
        )
    )


def schemas(depth: int = 2) -> st.SearchStrategy[schema_oracle.Json]:
    """Structural schemas."""
    base = checks()
    extra = st.fixed_dictionaries(
        {},
        optional={
            "nullable": st.booleans(),
            "allOf": st.lists(base, min_size=1, max_size=2),
            "anyOf": st.lists(base, min_size=1, max_size=2),
            "oneOf": st.lists(base, min_size=1, max_size=2),
            "not": base,
        },
    )
    kinds: list[st.SearchStrategy[schema_oracle.Json]] = [
        st.sampled_from([{"type": kind} for kind in ("string", "integer", "number", "boolean")]),
        st.just({"x-kubernetes-preserve-unknown-fields": True}),
        st.just({"x-kubernetes-int-or-string": True}),
    ]
    if depth:
        below = schemas(depth - 1)
        kinds += [
            st.builds(lambda items: {"type": "array", "items": items}, below),
            st.builds(lambda items: {"type": "object", "additionalProperties": items}, below),
            st.builds(
                lambda fields, keep, required: {
                    "type": "object",
                    "properties": fields,
                    **({"x-kubernetes-preserve-unknown-fields": True} if keep else {}),
                    **({"required": required} if required else {}),
                },
                st.dictionaries(st.sampled_from("abc"), below, max_size=3),
                st.booleans(),
                st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            ),
        ]
    return st.builds(lambda kind, own, more: {**own, **more, **kind}, st.one_of(kinds), base, extra)


def test_random(oracle: Oracle) -> None:
    """Random values of random schemas are pruned and refused as by the real server."""
    made: list[schema_oracle.Json] = []

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(schemas())
    def make(schema: schema_oracle.Json) -> None:
        made.append(schema)

    make()
    fields = {f"f{at}": schema for at, schema in enumerate(made)}
    raw = schema_oracle.definition(schema_oracle.around(**fields), "randoms")
    assert schema_oracle.our_definition(raw) == oracle.definition(raw) == []
    oracle.install(raw)
    ours = schema_oracle.accepted(raw)

    @settings(max_examples=400, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(sorted(fields)), VALUES)
    def compare(field: str, value: Any) -> None:
        obj = schema_oracle.thing({field: value}, "randoms")
        mine, theirs = schema_oracle.our_value(ours, obj), oracle.value(obj, "randoms")
        assert mine == theirs, (fields[field], value, mine, theirs)

    compare()
