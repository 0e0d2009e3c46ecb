"""A value of a Secret, changed on the way and told by steps: it is in no object and in no log."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from typing import Any

import pytest
from structlog.testing import capture_logs

from kargo_py.api.promotion import HealthCheckStep, StepStatus
from kargo_py.controllers.world import FREIGHTS, PROMOTIONS
from kargo_py.kube.resources import Key
from kargo_py.steps.base import Finished, StepContext, StepOutcome
from tests.protocol.test_steps import Toy, toy
from tests.protocol.test_steps_attacked import everything, secret
from tests.protocol.universe import PROJECT, Universe

pytestmark = pytest.mark.looptime

PASSWORD, DIGITS, PHRASE = "qzxjqzxjqZ", "0070770077", "qzx jqzxjqzx zxj"
VARIABLES = {
    "v": "${{ upper(secret('s').pw) }}",
    "w": "${{ join(reverse(split(vars.v, '')), '') }}",
    "q": "${{ quote(vars.w) }}",
}
COMPOSE = {
    "uses": "compose-output",
    "as": "o",
    "config": {
        "a": "${{ vars.q }}",
        "b": "${{ {(vars.v): [1, vars.w]} }}",
        "c": "x${{ vars.v }}",
        "n": "${{ secret('s').digits }}",
    },
}
LOCAL = "http://127.0.0.1:1/"


def http(**config: Any) -> dict[str, Any]:
    return {"uses": "http", "config": {"url": LOCAL, **config}}


def update(kind: str, **values: Any) -> dict[str, Any]:
    return {"kind": kind, "name": "dev" if kind == "Stage" else "f1", "values": values}


async def blurt(context: StepContext) -> StepOutcome:
    """Tell the configuration, put it out, and leave it for the Stage's health."""
    config = context.config
    said = f"{config} {json.dumps(config)} {config.get('say')!r}"
    output = {"config": config, str(config.get("text")): 1}
    return Finished(StepStatus.SUCCEEDED, said, output, health_check=HealthCheckStep(uses="toy", config=config))


@pytest.mark.parametrize(
    "steps",
    [
        [COMPOSE, toy(config={"say": "${{ outputs.o }}", "text": "${{ outputs.o.c }}"})],
        [COMPOSE, {"uses": "fail", "config": {"message": "${{ lower(outputs.o.c + vars.w) }}"}}],
        [{"uses": "fail", "config": {"message": "${{ asJSON({(vars.v): vars.w}) }}"}}],
        [{"uses": "fail", "config": {"message": "${{ asYAML([vars.v]) }}"}}],
        [toy(config={"say": "${{ [vars.v, {(vars.w): int(secret('s').digits)}] }}"})],
        [toy(config={"say": '[{"a": "x ${{ vars.v }}"}, 1${{ secret(\'s\').digits }}]'})],
        [toy(config={"say": "${{ int(secret('s').digits) }}", "times": "${{ secret('s').digits }}"})],
        [toy(config={"say": "${{ groupBy([vars.v, vars.w], #) }}", "text": "${{ toBase64('user:' + vars.v) }}"})],
        [
            {
                "uses": "set-metadata",
                "config": {
                    "updates": [
                        update("Stage", a="${{ [vars.q] }}", n="${{ secret('s').digits }}"),
                        update("Freight", a="${{ {(vars.v): vars.w} }}", n="${{ [int(secret('s').digits)] }}"),
                    ]
                },
            },
            toy(config={"say": "${{ stageMetadata('dev') }}", "text": "${{ toJSON(freightMetadata('f1')) }}"}),
        ],
        [{"uses": "set-freight-alias", "config": {"name": "f1", "alias": "${{ vars.v + '!' }}"}}],
        [{"uses": "argocd-update", "config": {"apps": [{"name": "${{ lower(vars.w) }}"}]}}],
        [toy(**{"if": "${{ vars.v matches vars.w + '(' }}"})],
        [toy(config={"say": "${{ configMap(lower(vars.v)).x }}"})],
        [http(headers=[{"name": "${{ vars.v + ' ' }}", "value": "${{ vars.w }}"}])],
        [http(url=f"{LOCAL}${{{{ vars.v }}}}", timeout="${{ vars.w }}")],
        [http(successExpression="response.body == ${{ secret('s').phrase }}")],
        [http(successExpression="response.body == ${{ split(vars.v, 'QZX')[1] + ' ' + vars.w }}")],
    ],
)
async def test_it_is_told_nowhere(steps: list[dict[str, Any]]) -> None:
    world = Universe()
    async with world.core:
        await world.prepare()
        await secret(world, pw=PASSWORD, digits=DIGITS, phrase=PHRASE)
        with capture_logs() as logs:
            async with world.process(further={"toy": Toy(blurt)}):
                variables = [{"name": name, "value": value} for name, value in VARIABLES.items()]
                spec = {"stage": "dev", "freight": "f1", "vars": variables, "steps": steps}
                await world._create(PROMOTIONS, "p1", spec=spec)
                await world.ended()
                await asyncio.sleep(10)
        told = json.loads(everything(world, logs))
        told[0].pop("spec")
        told.append(world._object(FREIGHTS, Key(PROJECT, "f1")))
    coded = base64.b64encode(f"user:{PASSWORD.upper()}".encode()).decode()
    assert re.findall(rf"(?i)[qzxj]{{3,}}|7077|{coded[:10]}", json.dumps(told)) == []
    assert len(world.promotion()["status"]["stepExecutionMetadata"]) == len(steps), "all of them have run"
