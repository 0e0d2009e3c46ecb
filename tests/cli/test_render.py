"""kargo-py render: what is printed of a pipeline, what is not known, what is wrong, and that no secret gets out."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from kargo_py.cli.main import app
from tests.envtest.server import ApiServer
from tests.offline.pipelines import DATA, FREIGHT, PROMOTION, SECRET, STAGE, TASK, WHOLE

JsonObject = dict[str, Any]
Render = Callable[..., Result]

RENDERED = """\
---
promotion: prod.1
project: shop
stage: prod
freight: abc123
vars:
  tag: '1.30'
  password: '***'
  region: eu
steps:
- as: compose
  uses: compose-output
  config:
    tag: '1.30'
    token: '***'
- as: deploy::names
  uses: compose-output
  vars:
    app: shop-prod
  config:
    name: shop-prod
- as: deploy::sync
  uses: argocd-update
  vars:
    app: shop-prod
  config:
    apps:
    - name: shop-prod
      sources:
      - repoURL: https://git.example.com/shop.git
        desiredRevision: 1234567e10
        helm:
          images:
          - key: image.tag
            value: '1.30'
- as: step-3
  uses: fail
  runs: false
- as: last
  uses: argocd-wait
  config:
    apps:
    - name: shop-prod
"""


@pytest.fixture
def render(tmp_path: Path) -> Render:
    """The command over texts as files; options come after them."""

    def run(*options: str, **texts: str) -> Result:
        for old in tmp_path.glob("*.yaml"):
            old.unlink()
        for name, text in texts.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        return CliRunner().invoke(app, ["render", "-f", str(tmp_path), *options], catch_exceptions=False)

    return run


def document(done: Result) -> JsonObject:
    made: JsonObject = yaml.safe_load(done.stdout)
    return made


def step(done: Result, alias: str) -> JsonObject:
    found: list[JsonObject] = [one for one in document(done)["steps"] if one["as"] == alias]
    assert len(found) == 1
    return found[0]


def test_a_pipeline(render: Render) -> None:
    """Tasks are written out, expressions evaluated, secrets and what is made of them masked."""
    done = render(**WHOLE)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == RENDERED
    as_json = render("-o", "json", **WHOLE)
    assert json.loads(as_json.stdout) == yaml.safe_load(RENDERED)


class TestNotKnown:
    """What nobody can know here is left as it is, with a note of what is missing, and is no error."""

    def test_outputs(self, render: Render) -> None:
        """Those of steps that would have to run, unless they are given; and what depends on them."""
        stage = STAGE.replace("${{ quote(vars.tag) }}", "${{ outputs.clone.commit }}").replace(
            "        - uses: compose-output",
            "        - {uses: git-clone, as: clone}\n        - uses: compose-output",
            1,
        )
        texts = {**WHOLE, "stage": stage}
        done = render(**texts)
        assert done.exit_code == 0
        assert step(done, "compose")["config"]["tag"] == "<not evaluated> ${{ outputs.clone.commit }}"
        (note,) = step(done, "compose")["notes"]
        assert note.startswith('config.tag: not evaluated: the output of step "clone" is known only once it has run')
        image = step(done, "deploy::sync")["config"]["apps"][0]["sources"][0]["helm"]["images"][0]
        assert image["value"] == "<not evaluated> ${{ outputs.compose.tag }}"
        assert step(done, "last")["config"]["apps"] == [{"name": "shop-prod"}]

        given = render("--step-output", 'clone={"commit": "abc"}', **texts)
        assert step(given, "compose")["config"]["tag"] == "abc"
        assert "<not evaluated>" not in given.stdout

    def test_a_variable_of_the_same_name(self, render: Render) -> None:
        """A step's variable that is made of the one before it is as little known as that."""
        task = TASK.replace("vars: [{name: app}]", "vars: [{name: app, value: '${{ vars.app }}-x'}]").replace(
            "      as: names", "      as: names\n      vars: [{name: app, value: '${{ vars.app }}-y'}]"
        )
        stage = STAGE.replace("shop-${{ ctx.stage }}", "${{ ctx.uiBaseUrl }}")
        done = render(**{**WHOLE, "task": task, "stage": stage})
        assert step(done, "deploy::names")["vars"]["app"] == "<not evaluated> ${{ vars.app }}-y"
        assert step(done, "deploy::names")["config"] == {"name": "<not evaluated> ${{ vars.app }}"}
        assert "<not evaluated>" not in render("--ui-base-url", "u", **{**WHOLE, "task": task, "stage": stage}).stdout

    def test_numbers(self, render: Render) -> None:
        """They are shown as JSON has them; the text of a guess where the number would be written otherwise."""
        values = {"a": "${{ 10 }}", "b": "${{ 1.5 }}", "c": "${{ '1.30' }}", "d": "${{ [1, 2] }}"}
        stage = STAGE.replace("tag: ${{ quote(vars.tag) }}", f"v: {json.dumps(values)}")
        done = render("-o", "json", **{**WHOLE, "stage": stage.replace("outputs.deploy.name", "'x'")})
        assert json.loads(done.stdout)["steps"][0]["config"]["v"] == {
            "a": 10,
            "b": 1.5,
            "c": "1.30",
            "d": [1, 2],
        }
        assert '"a": 10,' in done.stdout

    def test_metadata_that_is_set_before(self, render: Render) -> None:
        """What a step would have set is not what a file or a cluster has; an error would be a false alarm."""
        steps = [
            {"uses": "compose-output", "as": "a", "config": {"x": "${{ stageMetadata('prod') == nil }}"}},
            {
                "uses": "set-metadata",
                "as": "set",
                "config": {"updates": [{"kind": "Stage", "name": "prod", "values": {"x": 1}}]},
            },
            {"uses": "compose-output", "as": "b", "config": {"x": "${{ stageMetadata('prod').x }}"}},
        ]
        stage = yaml.safe_load(STAGE)
        stage["spec"]["promotionTemplate"]["spec"]["steps"] = steps
        stage["status"] = {}
        found = render(**{**WHOLE, "stage": yaml.safe_dump(stage)})
        assert found.exit_code == 0, found.output
        first, _, last = yaml.safe_load(found.stdout)["steps"]
        assert first["config"] == {"x": True}
        assert last["config"]["x"].startswith("<not evaluated>")
        assert 'step "set" sets metadata before' in last["notes"][0]

    def test_given_in_a_file(self, render: Render, tmp_path: Path) -> None:
        """An output may be in a file; it goes before what would be computed."""
        path = tmp_path / "out.json.txt"
        path.write_text('{"tag": "9.9"}')
        done = render("--step-output", f"compose=@{path}", **WHOLE)
        assert step(done, "deploy::sync")["config"]["apps"][0]["sources"][0]["helm"]["images"][0]["value"] == "9.9"

    def test_files(self, render: Render) -> None:
        """ConfigMaps, Secrets and Freight that no file has; an `if` that is not known is taken to be true."""
        done = render(**{name: WHOLE[name] for name in ("stage", "task", "promotion")})
        assert done.exit_code == 0
        made = document(done)
        assert made["vars"] == {
            "tag": '<not evaluated> ${{ imageFrom("ghcr.io/example/shop").Tag }}',
            "password": "<not evaluated> ${{ secret('creds').password }}",
            "region": "<not evaluated> ${{ configMap('settings').region }}",
        }
        assert made["freight"] == "abc123"
        assert 'Freight "abc123" is in none of the files' in made["notes"]
        assert 'vars.region: not evaluated: ConfigMap "settings" is in none of the files' in made["notes"]
        assert step(done, "compose")["runs"] == "unknown"
        assert "config" in step(done, "compose")

    def test_the_controllers_options(self, render: Render) -> None:
        """What only its options say."""
        stage = STAGE.replace("shop-${{ ctx.stage }}", "${{ ctx.uiBaseUrl }}${{ sharedConfigMap('x').key }}")
        texts = {**WHOLE, "stage": stage}
        notes = step(render(**texts), "deploy::names")["notes"]
        assert "ctx.uiBaseUrl is an option of the controller" in notes[0]
        shared = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: shared}\ndata: {key: z}\n"
        given = ["--ui-base-url", "https://k/", "--shared-resources-namespace", "shared"]
        done = render(*given, shared=shared, **texts)
        assert step(done, "deploy::names")["config"] == {"name": "https://k/z"}

    def test_other_origins(self, render: Render) -> None:
        """Freight of other origins that the Stage has is taken from its status; else it is told that it is missing."""
        stage = STAGE.replace(
            "  promotionTemplate:",
            "    - origin: {kind: Warehouse, name: tools}\n      sources: {direct: true}\n  promotionTemplate:",
        )
        (note,) = document(render(**{**WHOLE, "stage": stage}))["notes"]
        assert note.startswith("Freight of Warehouse/tools is not known here")
        status = {"freightHistory": [{"items": {"Warehouse/tools": {"name": "t", "images": [], "charts": []}}}]}
        known = document(render(**{**WHOLE, "stage": f"{stage}status: {json.dumps(status)}\n"}))
        assert "notes" not in known


class TestSteps:
    """Which steps are rendered."""

    OWN = PROMOTION.replace("freight: abc123}", "freight: abc123, steps: [{uses: fail, config: {message: own}}]}")

    def test_other_steps_than_the_stages(self, render: Render) -> None:
        """They would be replaced, which is told, unless the Stage allows them."""
        done = render(**{**WHOLE, "promotion": self.OWN})
        assert document(done)["steps"][0]["as"] == "compose"
        assert document(done)["notes"][0].startswith("the steps were replaced by those of the Stage")
        allowed = STAGE.replace("namespace: shop}", "namespace: shop, annotations: {kargo-py.io/custom-steps: allow}}")
        done = render(**{**WHOLE, "promotion": self.OWN, "stage": allowed})
        assert document(done)["steps"] == [{"as": "step-1", "uses": "fail", "config": {"message": "own"}}]

    def test_without_the_stage(self, render: Render) -> None:
        """Those of the Promotion are all there is; none at all is an error."""
        texts = {"freight": FREIGHT, "promotion": self.OWN}
        assert step(render(**texts), "step-1")["config"] == {"message": "own"}
        none = render(freight=FREIGHT, promotion=PROMOTION)
        assert (none.exit_code, none.stdout) == (1, "")
        assert "there are no steps" in none.stderr

    def test_the_newest_freight(self, render: Render) -> None:
        """Of an origin, the newest of the files stands for what a controller would choose."""
        promotion = PROMOTION.replace("freight: abc123", "origin: {kind: Warehouse, name: shop}")
        made = document(render(**{**WHOLE, "promotion": promotion}))
        assert made["freight"] == "abc123"
        assert "the newest one of Warehouse/shop in the files" in made["notes"][0]

    def test_several(self, render: Render) -> None:
        """Each Promotion is a document."""
        two = f"{PROMOTION}---\n{PROMOTION.replace('prod.1', 'prod.2')}"
        done = render(**{**WHOLE, "promotion": two})
        assert [one["promotion"] for one in yaml.safe_load_all(done.stdout)] == ["prod.1", "prod.2"]

    def test_outputs_of_several(self, render: Render) -> None:
        """An output may be that of a step which only one of the Promotions has."""
        other = f"---\n{self.OWN}".replace("prod", "other").replace("uses: fail", "as: mine, uses: fail")
        texts = {**WHOLE, "promotion": PROMOTION + other}
        done = render("--step-output", "mine={}", "--step-output", 'compose={"tag": "1"}', **texts)
        assert (done.exit_code, done.stderr) == (0, "")


class TestFaults:
    """What is wrong is told where it is written, all at once; what can be rendered is."""

    def test_expressions(self, render: Render, tmp_path: Path) -> None:
        """In variables, `if` and configurations, of the Stage and of tasks."""
        stage = STAGE.replace("configMap('settings').region", "configMap('settings').region.x.y").replace(
            "status('compose') == 'Failed'", "'text'"
        )
        task = TASK.replace("task.outputs.names.name", "task.outputs.nmaes.name")
        done = render(**{**WHOLE, "stage": stage, "task": task})
        assert done.exit_code == 1
        told = [line.split(": ")[:3] for line in done.stderr.splitlines() if "error" in line]
        template = "spec.promotionTemplate.spec"
        assert told == [
            [f"{tmp_path}/stage.yaml:17:18", "error", f"{template}.vars[0].value"],
            [f"{tmp_path}/stage.yaml:31:15", "error", f"{template}.steps[2].if"],
            [f"{tmp_path}/task.yaml:14:19", "error", "spec.steps[1].config.apps[0].name"],
        ]
        assert done.stderr.splitlines()[-1].endswith("which stand above: 3")
        assert step(done, "deploy::names")["config"] == {"name": "shop-prod"}

    def test_where_a_configuration_is_wrong(self, render: Render, tmp_path: Path) -> None:
        """Each wrong field is told where it is written, with what became of its expression."""
        stage = yaml.safe_load(STAGE)
        stage["spec"]["promotionTemplate"]["spec"]["steps"] = [
            {"uses": "http", "as": "a", "config": {"url": "${{ 'x' + 'y' }}", "headers": [{"name": "a"}], "no": 1}}
        ]
        done = render(**{**WHOLE, "stage": yaml.safe_dump(stage)})
        assert done.exit_code == 1
        at = "spec.promotionTemplate.spec.steps[0].config"
        told = [line.split(": ")[2] for line in done.stderr.splitlines() if ": error: " in line]
        assert sorted(told) == [f"{at}.headers[0].value", f"{at}.no", f"{at}.url"]
        assert all(line.startswith(f"{tmp_path}/stage.yaml:") for line in done.stderr.splitlines()[:3])

    def test_configurations(self, render: Render) -> None:
        """A configuration that its step would not take."""
        done = render(**{**WHOLE, "stage": STAGE.replace("outputs.deploy.name", "'Not_A_Name'")})
        assert done.exit_code == 1
        assert "cannot be the name of an object of Kubernetes" in done.stderr

    def test_missing_tasks(self, render: Render) -> None:
        """Nothing can be rendered then."""
        done = render(**{name: text for name, text in WHOLE.items() if name != "task"})
        assert (done.exit_code, done.stdout) == (1, "")
        assert 'there is no PromotionTask "deploy" in namespace' in done.stderr

    @pytest.mark.parametrize(
        ("name", "text", "words"),
        [
            ("promotion", "a: b: c # kargo.akuity.io\n", "mapping values are not allowed"),
            ("promotion", PROMOTION.replace("stage: prod", "stage: 1"), "Promotion is not as it should be: spec.stage"),
            ("stage", STAGE.replace("requestedFreight", "requested"), "Stage is not as it should be"),
            ("freight", FREIGHT.replace("alias: old", "alias: [old]\nx: old"), "Freight is not as it should be: alias"),
        ],
    )
    def test_malformed(self, render: Render, name: str, text: str, words: str) -> None:
        """Files that are wrong are told, without a traceback."""
        done = render(**{**WHOLE, name: text})
        assert (done.exit_code, done.stdout) == (1, "")
        assert words in done.stderr

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            ("data: {region: 1}", "ConfigMap shop/settings: data.region must be a text, in quotes ("),
            ("data: [eu]", "ConfigMap shop/settings: data must be a text"),
            ("data: text", "ConfigMap shop/settings: data must be a text"),
        ],
    )
    def test_malformed_data(self, render: Render, data: str, words: str) -> None:
        """What an API server would not take is not known, and the note says why."""
        done = render(**{**WHOLE, "data": DATA.replace("data: {region: eu}", data)})
        assert done.exit_code == 0
        assert any(words in note for note in document(done)["notes"])

    @pytest.mark.parametrize(
        "data", ["data: {password: 'no base64'}", "data: {password: ä}", "stringData: {password: 1}"]
    )
    def test_malformed_secrets(self, render: Render, data: str) -> None:
        """Nor is what is no Secret, and its text is not told."""
        text = DATA.replace(f"stringData: {{password: {SECRET}}}", data)
        done = render(**{**WHOLE, "data": text})
        assert done.exit_code == 0
        assert any("Secret shop/creds: " in note and "password must be" in note for note in document(done)["notes"])
        assert "no base64" not in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-o", "table"], "--output 'table': must be one of yaml, json"),
        (["--step-output", "x"], "--step-output 'x': must be ALIAS=JSON"),
        (["--step-output", "x=1"], "--step-output 'x=1': must be ALIAS=JSON"),
        (["--step-output", "x={"], "--step-output x:"),
        (["--step-output", "x=@/nowhere/x"], "--step-output x: No such file"),
        (["--step-output", "x={}"], "no step has the alias 'x'; there are compose, deploy::names"),
        (["-n", "A_B"], "--namespace 'A_B'"),
    ],
)
def test_usage(render: Render, options: list[str], words: str) -> None:
    """What makes no sense is one line and code 2."""
    done = render(*options, **WHOLE)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_promotion(render: Render) -> None:
    """Files without one are not what is meant."""
    done = render(stage=STAGE)
    assert done.exit_code == 2
    assert "there is no Promotion in the files" in done.stderr


@pytest.mark.parametrize(
    "template",
    [
        "${{ secret('creds').password }}",
        "a ${{ secret('creds').password }} b",
        "${{ upper(secret('creds').password) }}",
        "${{ split(secret('creds').password, '-') }}",
        "${{ toBase64(secret('creds').password) }}",
        "${{ secret('creds') }}",
        "${{ toJSON(secret('creds')) }}",
        "${{ secret('creds').password + 1 }}",
        "${{ secret('creds').password matches '(' + secret('creds').password }}",
        "${{ vars.password }}",
        "${{ {(vars.password): 1} }}",
        "${{ int(vars.password) }}",
        "${{ int(upper(vars.password)) }}",
        "${{ upper(toJSON(vars)) }}",
    ],
)
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_secrets(render: Render, template: str, form: str) -> None:
    """Whatever is made of a Secret, its text is nowhere: not in values, in names, nor in what is wrong."""
    quoted = json.dumps(template)
    stage = STAGE.replace("tag: ${{ quote(vars.tag) }}", f"tag: {quoted}").replace("'Failed'", f"({template[4:-3]})")
    if " b" in template:
        stage = STAGE.replace("tag: ${{ quote(vars.tag) }}", f"tag: {quoted}")
    done = render("-o", form, **{**WHOLE, "stage": stage})
    for text in (done.stdout, done.stderr):
        assert SECRET not in text
        assert SECRET.upper() not in text
        assert base64.b64encode(SECRET.encode()).decode() not in text
    assert done.exception is None or isinstance(done.exception, SystemExit)


@pytest.mark.parametrize("expression", ["int(upper(vars.password))", "upper(vars.password)", "lower(toJSON(vars))[1:]"])
def test_secrets_in_a_step_without_a_condition(render: Render, expression: str) -> None:
    """That a variable is secret is known when it has been evaluated once."""
    stage = STAGE.replace("tag: ${{ quote(vars.tag) }}", f"tag: ${{{{ {expression} }}}}")
    stage = stage.replace("          if: ${{ success() && vars.region == 'eu' }}\n", "")
    done = render(**{**WHOLE, "stage": stage})

    assert "tag: '***'" in done.stdout or "int(…)" in done.stderr
    assert SECRET not in (done.stdout + done.stderr).casefold()


@pytest.mark.nonblocking_exempt(reason="kubernetes-asyncio reads kubeconfigs in the loop")
def test_live(crds: ApiServer, namespace: str, tmp_path: Path) -> None:
    """What is in none of the files is read from the cluster; nothing is written there."""

    def there(text: str) -> str:
        return text.replace("namespace: shop", f"namespace: {namespace}")

    group = f"/apis/kargo.akuity.io/v1alpha1/namespaces/{namespace}"
    core = f"/api/v1/namespaces/{namespace}"
    secret, config_map = yaml.safe_load_all(there(DATA))
    crds.request("POST", f"{group}/stages", yaml.safe_load(there(STAGE)))
    crds.request("POST", f"{group}/promotiontasks", yaml.safe_load(there(TASK)))
    crds.request("POST", f"{group}/freights", yaml.safe_load(there(FREIGHT)))
    crds.request("POST", f"{core}/secrets", secret)
    crds.request("POST", f"{core}/configmaps", config_map)
    for name, text in {
        "named": PROMOTION.replace(", namespace: shop", ""),
        "of-an-origin": there(PROMOTION).replace("freight: abc123", "origin: {kind: Warehouse, name: shop}"),
    }.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        options = ["--live", "-n", namespace, "--kubeconfig", str(crds.kubeconfig("admin"))]
        done = CliRunner().invoke(app, ["render", "-f", str(path), *options], catch_exceptions=False)
        assert (done.exit_code, done.stderr) == (0, "")
        # A real server gives the names of a map in its own order
        assert document(done) == {**yaml.safe_load(RENDERED), "project": namespace}
    assert crds.request("GET", f"{group}/promotions")["items"] == []

    path.write_text(there(PROMOTION).replace("abc123", "gone"))
    done = CliRunner().invoke(app, ["render", "-f", str(path), *options], catch_exceptions=False)
    assert 'Freight "gone" does not exist' in done.stdout


def test_without_the_extra(tmp_path: Path) -> None:
    """It needs none of the packages of the embedded API server."""
    for name, text in WHOLE.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    absent = ("cel", "cryptography", "httptools", "rich", "uvicorn")
    code = f"import sys; sys.modules |= dict.fromkeys({absent})\nfrom kargo_py.cli.main import main; main()"
    command = [sys.executable, "-c", code, "render", "-f", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", RENDERED)
