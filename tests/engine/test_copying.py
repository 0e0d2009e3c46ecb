"""Copies of JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.engine.copying import copied
from kargo_py.expressions.values import Guess
from kargo_py.steps.base import Erred, StepContext, StepOutcome
from kargo_py.steps.step import Work
from tests.engine.calling import Told, context_of, executor

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.builds(Guess, st.lists(st.integers()), st.text()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def boxes(value: Any) -> list[int]:
    """All lists and maps in *value*, by identity."""
    found, waiting = list[int](), [value]
    while waiting:
        one = waiting.pop()
        one = one.value if isinstance(one, Guess) else one
        if isinstance(one, dict | list):
            found.append(id(one))
            waiting += one.values() if isinstance(one, dict) else one
    return found


@given(JSON)
def test_the_same_and_another(value: Any) -> None:
    """It says the same, and shares nothing that can be changed."""
    made = copied(value)

    assert made == value
    assert set(boxes(made)).isdisjoint(boxes(value))


def test_what_nests_deeper_than_python_calls() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]

    assert len(boxes(copied(deep))) == 100_001


@pytest.mark.looptime
@pytest.mark.parametrize("work", [Work.API, Work.NETWORK])
async def test_a_step_that_changes_what_it_is_called_with(work: Work) -> None:
    """The next call has it as it was, and so has whoever keeps it: the cache of Promotions, say."""
    calls: list[tuple[str, str]] = []

    async def spoil(context: StepContext) -> StepOutcome:
        calls.append((str(context.config), str(context.output)))
        context.config["apps"][0]["name"] = "other"
        del context.config["n"]
        context.output["made"].append(2)
        return Erred("not yet")

    step = Told(spoil, work)
    config = {"apps": [{"name": "shop"}], "n": Guess([1], "[1]")}
    context = dataclasses.replace(context_of(), config=config, output={"made": [1]})
    made = executor()
    for _ in range(2):
        await made.call("p", step, context, time_left=None, done=lambda: None)
    await made.stop(step, context, give_up=False)
    await made.time_out(step, context, "timed out")

    assert calls == [("{'apps': [{'name': 'shop'}], 'n': Guess(value=[1], text='[1]')}", "{'made': [1]}")] * 4
    await made.aclose()
