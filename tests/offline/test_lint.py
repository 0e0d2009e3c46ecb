"""What lint says of files: at which line, how bad, and that an API server says the same of each object."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from kargo_py.offline.crossing import Objects, objects, references
from kargo_py.offline.files import File, load
from kargo_py.offline.findings import Finding, Level
from kargo_py.offline.lint import lint
from kargo_py.offline.manifests import Manifest, manifests
from kargo_py.offline.schemas import judge
from kargo_py.steps.registry import BUILT_IN
from tests.envtest.server import ApiServer, RequestFailed

JsonObject = dict[str, Any]


def files_of(folder: Path, **texts: str) -> list[File]:
    """*texts* as files, by their names without suffix."""
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(textwrap.dedent(text))
    return list(load([str(folder)]))


def judged(folder: Path, text: str, *, strict: bool = False, **more: str) -> list[tuple[str, int, int, str, str]]:
    """What is said of *text*: level, line, column, path and text."""
    verdict = lint(files_of(folder, main=text, **more), BUILT_IN, strict=strict)
    return [told(finding) for finding in verdict.findings if finding.place.file.endswith("main.yaml")]


def told(finding: Finding) -> tuple[str, int, int, str, str]:
    return finding.level.word, finding.place.line, finding.place.column, finding.path, finding.text


STAGE = """\
apiVersion: kargo.akuity.io/v1alpha1
kind: Stage
metadata: {name: prod, namespace: shop}
spec:
  requestedFreight:
    - origin: {kind: Warehouse, name: shop}
      sources: {direct: true}
  promotionTemplate:
    spec:
      steps:
"""
GOOD = f"""{STAGE}
        - uses: argocd-update
          as: update
          config: {{apps: [{{name: shop}}]}}
"""
TASK = """\
apiVersion: kargo.akuity.io/v1alpha1
kind: PromotionTask
metadata: {name: deploy, namespace: shop}
spec:
  vars: [{name: app}]
  steps:
    - uses: argocd-update
      config: {apps: [{name: "${{ vars.app }}", naame: x}]}
"""


def test_nothing_wrong(tmp_path: Path) -> None:
    """A good file has no findings; what is not of Kargo's group is counted and left alone, whatever is in it."""
    other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 7, name: x}\ndata: {a: !Ref b}\n"
    verdict = lint(files_of(tmp_path, main=f"{GOOD}\n---\n{other}", more=other), BUILT_IN)
    assert verdict.findings == []
    assert (verdict.files, verdict.objects, verdict.skipped, verdict.unreadable) == (2, 1, 2, 0)


@pytest.mark.parametrize(
    ("steps", "paths"),
    [
        ("- {uses: fail, as: step-9}", ["[0].as"]),
        ("- {uses: fail, as: a}\n- {uses: fail, as: a}", ["[1]"]),
        ("- {uses: fail, task: {name: x}}", ["[0].uses"]),
        ("- {task: {name: t}, config: {a: 1}}", ["[0].config"]),
        ("- {task: {name: t}, retry: {}}", ["[0].retry"]),
        ("- {task: {name: t}, if: x}", ["[0].if"]),
        ("- {task: {name: t}, continueOnError: true}", ["[0].continueOnError"]),
        ("- as: a\n- {uses: fail, task: {name: x}}", ["[0]", "[1].uses"]),
    ],
)
def test_told_once(tmp_path: Path, steps: str, paths: list[str]) -> None:
    """What both the schema and the checks see wrong is told once, at the field."""
    task = "kind: PromotionTask\nmetadata: {name: t, namespace: shop}\nspec: {steps: [{uses: fail}]}"
    verdict = lint(
        files_of(
            tmp_path,
            main=STAGE + textwrap.indent(steps, " " * 8),
            task=f"apiVersion: kargo.akuity.io/v1alpha1\n{task}\n",
        ),
        BUILT_IN,
    )
    errors = [finding.path for finding in verdict.findings if finding.level is Level.ERROR]
    assert errors == [f"spec.promotionTemplate.spec.steps{path}" for path in paths]


@pytest.mark.parametrize(
    ("alias", "level", "said"),
    [
        ("alias: first", "warning", 'it is the alias of Freight "f1", and spec.freight takes a name'),
        ("labels: {kargo.akuity.io/alias: first}", "warning", 'it is the alias of Freight "f1"'),
        ("alias: second", "info", "and others of its namespace are"),
        ("namespace: elsewhere", "", ""),
    ],
)
def test_an_alias_for_a_name(tmp_path: Path, alias: str, level: str, said: str) -> None:
    """A Promotion that gives the alias of Freight is told its name."""
    head = "apiVersion: kargo.akuity.io/v1alpha1\n"
    field = f"{alias}\n" if alias.startswith("alias") else ""
    metadata = "name: f1" if field else f"name: f1, {alias}"
    origin = "origin: {kind: Warehouse, name: w}\ncommits: [{repoURL: x, id: y}]\n"
    freight = f"{head}kind: Freight\nmetadata: {{{metadata}}}\n{field}{origin}"
    promotion = f"{head}kind: Promotion\nmetadata: {{name: p, namespace: shop}}\nspec: {{stage: s, freight: first}}\n"
    found = [one for one in judged(tmp_path, promotion, freight=freight) if one[3] == "spec.freight"]
    assert [one[0] for one in found] == ([level] if level else [])
    assert said in "".join(one[4] for one in found)


@pytest.mark.parametrize("steps", ["[{uses: fail, as: task-1}]", "[{task: {name: x}}]"])
def test_of_a_task_told_once(tmp_path: Path, steps: str) -> None:
    """What is wrong with a task is not told again for each Stage that names it."""
    task = f"kind: PromotionTask\nmetadata: {{name: t, namespace: shop}}\nspec: {{steps: {steps}}}"
    verdict = lint(
        files_of(
            tmp_path,
            main=STAGE + "        - {task: {name: t}}\n        - {task: {name: t}}",
            task=f"apiVersion: kargo.akuity.io/v1alpha1\n{task}\n",
        ),
        BUILT_IN,
    )
    errors = [finding for finding in verdict.findings if finding.level is Level.ERROR]
    assert [finding.object for finding in errors] == ["PromotionTask shop/t"]


@pytest.mark.parametrize(
    ("steps", "level", "place", "path", "words"),
    [
        ("- uses: argocd-update\n  configg: {}", "error", (13, 11), "[0].configg", "there is no such field"),
        ("- uses: 1e6", "error", (12, 17), "[0].uses", "must be a text, not integer; put it in quotes (YAML reads 1e6"),
        ("- {uses: argocd-update, as: step-1}", "error", (12, 37), "[0].as", "is reserved"),
        ("- {uses: argocd-udpate}", "error", (12, 18), "[0].uses", "there is no kind of step 'argocd-udpate'"),
        ("- {uses: x, retry: {timeout: 5x}}", "error", (12, 38), "[0].retry.timeout", "is not a duration"),
        (
            "- uses: argocd-update\n  config:\n    apps:\n      - naame: x\n        name: y",
            "error",
            (15, 17),
            "[0].config.apps[0].naame",
            "there is no such field",
        ),
        (
            "- uses: argocd-update\n  config:\n    apps:\n      - name: '${{ vars.a + }}'",
            "error",
            (15, 23),
            "[0].config.apps[0].name",
            "not an expression: unexpected end",
        ),
        (
            "- uses: argocd-update\n  if: ${{ outputs.x.y == 1 }}\n  config: {apps: [{name: x}]}",
            "error",
            (13, 15),
            "[0].if",
            "no step has the alias 'x'",
        ),
        (
            "- uses: compose-output\n  config:\n    tag: 1.30\n    on: yes",
            "warning",
            (14, 18),
            "[0].config.tag",
            "YAML reads 1.30 as 1.3; put it in quotes",
        ),
        (
            "- uses: compose-output\n  config: {sha: \"${{ imageFrom('nginx').Tag }}\"}",
            "warning",
            (13, 25),
            "[0].config.sha",
            "quote(",
        ),
        (
            "- uses: argocd-update\n  config: {apps: [{name: x}], apps: [{name: y}]}",
            "error",
            (13, 39),
            "[0].config.apps",
            "the key apps was given in line 13 already",
        ),
        ("- {task: {name: gone}}", "warning", (12, 12), "[0].task", "is in none of the files"),
    ],
)
def test_steps(tmp_path: Path, steps: str, level: str, place: tuple[int, int], path: str, words: str) -> None:
    """What is wrong with a step is told where it stands, in the words of who would refuse it."""
    text = f"{STAGE}\n{textwrap.indent(steps, ' ' * 8)}\n"
    found = [
        one
        for one in judged(tmp_path, text)
        if one[3] == f"spec.promotionTemplate.spec.steps{path}" and words in one[4]
    ]
    assert [(one[0], (one[1], one[2])) for one in found] == [(level, place)]


def test_all_at_once(tmp_path: Path) -> None:
    """Steps are checked though metadata, the requests and other steps are wrong."""
    text = """\
    apiVersion: kargo.akuity.io/v1alpha1
    kind: Stage
    metadata: {name: Prod, labels: {a: 1}}
    spec:
      requestedFreight: []
      promotionTemplate:
        spec:
          steps:
            - uses: argocd-update
              config: {}
            - uses: argocd-update
              config: {apps: [{name: "${{"}]}
    """
    found = judged(tmp_path, text)
    assert [(one[1], one[3]) for one in found] == [
        (3, "metadata.labels"),
        (5, "spec.requestedFreight"),
        (10, "spec.promotionTemplate.spec.steps[0].config.apps"),
        (12, "spec.promotionTemplate.spec.steps[1].config.apps[0].name"),
    ]


class TestTasks:
    """Tasks are looked for among the files, and their faults told in their own files."""

    STEPS = f"{STAGE}        - task: {{name: deploy}}\n"

    def test_found(self, tmp_path: Path) -> None:
        """A task's field that no step knows is told once, in the task; a variable without a value where it is named."""
        verdict = lint(files_of(tmp_path, main=self.STEPS, other=TASK), BUILT_IN)
        assert [(Path(f.place.file).name, f.place.line, f.level.word) for f in verdict.findings] == [
            ("main.yaml", 11, "error"),
            ("other.yaml", 8, "error"),
        ]
        assert "needs a value for its variable 'app'" in verdict.findings[0].text
        assert "there is no such field" in verdict.findings[1].text

    @pytest.mark.parametrize("strict", [False, True])
    def test_missing(self, tmp_path: Path, strict: bool) -> None:
        """One that is in no file may be in the cluster, so it is an error only if that is asked for."""
        ((level, line, *_, text),) = judged(tmp_path, self.STEPS, strict=strict)
        assert (level, line) == ("error" if strict else "warning", 11)
        assert 'PromotionTask "deploy" is in none of the files' in text

    def test_of_another_namespace(self, tmp_path: Path) -> None:
        """It is not the same task; one without a namespace may be."""
        elsewhere = TASK.replace("namespace: shop", "namespace: other")
        assert "is in none of the files" in judged(tmp_path, self.STEPS, other=elsewhere)[0][4]
        anywhere = TASK.replace(", namespace: shop", "")
        assert "needs a value" in judged(tmp_path, self.STEPS, other=anywhere)[0][4]

    def test_unreadable(self, tmp_path: Path) -> None:
        """One that is there and wrong is not said to be missing."""
        broken = TASK.replace("steps:", "stepps:")
        ((level, *_, text),) = judged(tmp_path, self.STEPS, other=broken, strict=True)
        assert (level, text) == ("info", "the steps are not checked until the other errors are corrected")


class Counting(Objects):
    """Counts how often something is looked up."""

    looks: int

    def __init__(self, other: Objects) -> None:
        super().__init__(other.by_name, other.by_kind)
        object.__setattr__(self, "looks", 0)

    def find(self, kind: str, name: str, namespace: str) -> Manifest | None:
        object.__setattr__(self, "looks", self.looks + 1)
        return super().find(kind, name, namespace)


class TestCrossing:
    """What objects say of each other."""

    def stage(self, name: str, sources: str, **more: str) -> str:
        spec = f"{{requestedFreight: [{{origin: {{kind: Warehouse, name: shop}}, sources: {sources}}}]}}"
        return self.object("Stage", name, spec=spec, **more)

    @staticmethod
    def object(kind: str, name: str, **fields: str) -> str:
        below = "".join(f"{field}: {value}\n" for field, value in fields.items())
        head = f"---\napiVersion: kargo.akuity.io/v1alpha1\nkind: {kind}\n"
        return f"{head}metadata: {{name: {name}, namespace: shop}}\n{below}"

    def said(self, folder: Path, *texts: str) -> list[tuple[str, str, str]]:
        return [(one[0], one[3], one[4]) for one in judged(folder, "".join(texts))]

    def test_a_chain(self, tmp_path: Path) -> None:
        """Stages that take Freight from each other in a line are fine."""
        assert self.said(tmp_path, self.stage("a", "{direct: true}"), self.stage("b", "{stages: [a]}")) == []

    @pytest.mark.parametrize("order", [1, -1])
    def test_a_long_chain(self, tmp_path: Path, order: int) -> None:
        """Each Stage is looked up a few times, and not once for every other one behind it."""
        stages = [
            self.stage("s0", "{direct: true}"),
            *(self.stage(f"s{n}", f"{{stages: [s{n - 1}]}}") for n in range(1, 200)),
        ]
        (tmp_path / "x.yaml").write_text("".join(stages[::order]))
        known = Counting(objects(manifests(load([str(tmp_path)]))))
        for each in known.by_kind["Stage"]:
            assert list(references(each, known)) == []
        assert known.looks < 2000

    def test_a_circle(self, tmp_path: Path) -> None:
        """Stages that wait for each other get nothing; nor does one behind them, or one that waits for itself."""
        found = self.said(
            tmp_path,
            self.stage("a", "{stages: [b]}"),
            self.stage("b", "{stages: [a]}"),
            self.stage("c", "{stages: [b]}"),
            self.stage("d", "{stages: [d]}"),
            self.stage("e", "{stages: [d, f]}"),
            self.stage("f", "{direct: true}"),
        )
        assert [(level, text.partition("(")[2].partition(")")[0]) for level, _, text in found] == [
            ("warning", "a, b"),
            ("warning", "a, b"),
            ("warning", "a, b, c"),
            ("warning", "d"),
        ]

    def test_an_upstream_that_has_not_the_origin(self, tmp_path: Path) -> None:
        """Nothing ever comes from there."""
        other = self.stage("a", "{direct: true}").replace("name: shop}", "name: tools}")
        ((level, path, text),) = self.said(tmp_path, other, self.stage("b", "{stages: [a]}"))
        assert (level, path) == ("warning", "spec.requestedFreight[0].sources.stages[0]")
        assert "does not request Freight of Warehouse/shop" in text

    def test_names_that_lead_nowhere(self, tmp_path: Path) -> None:
        """They are told, as information, if others of that kind are there; else the files are not all there is."""
        policies = "{promotionPolicies: [{stageSelector: {name: nope}}, {stageSelector: {name: 'glob:*'}}, {stage: a}]}"
        found = self.said(
            tmp_path, self.stage("a", "{stages: [gone]}"), self.object("ProjectConfig", "shop", spec=policies)
        )
        assert [(level, path) for level, path, _ in found] == [
            ("info", "spec.requestedFreight[0].sources.stages[0]"),
            ("info", "spec.promotionPolicies[0].stageSelector.name"),
        ]

    def test_twice(self, tmp_path: Path) -> None:
        """An object may stand once in a file; in another file it may be what a patch makes of it."""
        one = self.stage("a", "{direct: true}")
        assert [level for level, _, text in self.said(tmp_path, one, one) if "too" in text] == ["error"]
        verdict = lint(files_of(tmp_path, main=one, other=one), BUILT_IN)
        assert [finding.level for finding in verdict.findings] == [Level.WARNING]

    def test_the_name_of_a_project_config(self, tmp_path: Path) -> None:
        """It is that of its namespace."""
        ((level, _, text),) = self.said(tmp_path, self.object("ProjectConfig", "other", spec="{}"))
        assert (level, 'which is "shop"' in text) == ("error", True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("apiVersion: kargo.akuity.io/v1\nkind: Stage\n", "a Stage is of kargo.akuity.io/v1alpha1"),
        ("kind: Stage\n", "a Stage is of kargo.akuity.io/v1alpha1"),
        ("apiVersion: kargo.akuity.io/v1alpha1\nkind: Stag\n", "has no kind Stag"),
        ("apiVersion: kargo.akuity.io/v1alpha1\nkind: [Stage]\n", "has no kind ''"),
        (
            "apiVersion: kargo.akuity.io/v1alpha1\nkind: Project\nmetadata: {name: x, namespace: z}\n",
            "has no namespace",
        ),
        ("apiVersion: kargo.akuity.io/v1alpha1\nkind: Stage\nspec: text\nmetadata: 1\n", "must be of type object"),
        ("apiVersion: kargo.akuity.io/v1alpha1\nkind: PromotionTask\nspec: {steps: {a: b}}\n", "must be of type array"),
        ("apiVersion: kargo.akuity.io/v1alpha1\nkind: Promotion\nspec: {steps: [1, null]}\n", "must be of type object"),
        ("a: b: c # kargo.akuity.io\n", "mapping values are not allowed"),
    ],
)
def test_malformed(tmp_path: Path, text: str, words: str) -> None:
    """Whatever stands in a file, it is told, and without a traceback."""
    assert any(words in one[4] for one in judged(tmp_path, text))


def test_lists(tmp_path: Path) -> None:
    """What stands in a List is judged one by one, with the paths of the objects and the lines of the file."""
    items = textwrap.indent(GOOD.replace("apps:", "app:"), "    ").replace("    apiVersion", "  - apiVersion", 1)
    found = judged(tmp_path, f"apiVersion: v1\nkind: List\nitems:\n{items}")
    config = "spec.promotionTemplate.spec.steps[0].config"
    assert [(one[1], one[2], one[3]) for one in found] == [(17, 15, f"{config}.apps"), (17, 24, f"{config}.app")]


def cases() -> dict[str, JsonObject]:
    """Objects, good and bad, with which the API server must agree."""
    stage: JsonObject = yaml.safe_load(GOOD)
    steps = stage["spec"]["promotionTemplate"]["spec"]["steps"]
    step = steps[0]

    def with_step(**changes: Any) -> JsonObject:
        return with_spec(promotionTemplate={"spec": {"steps": [{**step, **changes}]}})

    def with_spec(**changes: Any) -> JsonObject:
        return {**stage, "spec": {**stage["spec"], **changes}}

    def requesting(**sources: Any) -> JsonObject:
        return with_spec(requestedFreight=[{"origin": {"kind": "Warehouse", "name": "shop"}, "sources": sources}])

    def of(kind: str, **fields: Any) -> JsonObject:
        return {"apiVersion": "kargo.akuity.io/v1alpha1", "kind": kind, "metadata": {"name": "x"}, **fields}

    subscription = {"git": {"repoURL": "https://x"}}
    return {
        "good": stage,
        "unknown field": with_spec(nope=1),
        "unknown field of metadata": {**stage, "metadata": {"name": "x", "labelz": {}}},
        "wrong type": with_spec(vars="x"),
        "no name": {**stage, "metadata": {}},
        "generateName": {**stage, "metadata": {"generateName": "x-"}},
        "bad name": {**stage, "metadata": {"name": "X_"}},
        "bad label": {**stage, "metadata": {"name": "x", "labels": {"a": "b c"}}},
        "label that is a number": {**stage, "metadata": {"name": "x", "labels": {"a": 1}}},
        "no spec": {key: value for key, value in stage.items() if key != "spec"},
        "no requests": with_spec(requestedFreight=[]),
        "reserved alias": with_step(**{"as": "step-1"}),
        "alias twice": with_spec(promotionTemplate={"spec": {"steps": [step, step]}}),
        "uses and task": with_step(task={"name": "x"}),
        "bad duration": with_step(retry={"timeout": "5x"}),
        "negative threshold": with_step(retry={"errorThreshold": -1}),
        "bad variable": with_spec(vars=[{"name": "1a"}]),
        "soak time": requesting(stages=["a"], requiredSoakTime="1h30m"),
        "bad soak time": requesting(stages=["a"], requiredSoakTime="-1h"),
        "match upstream": requesting(stages=["a", "b"], autoPromotionOptions={"selectionPolicy": "MatchUpstream"}),
        "null where a text is": with_step(**{"as": None}),
        "warehouse": of("Warehouse", spec={"subscriptions": [subscription]}),
        "subscription twice": of("Warehouse", spec={"subscriptions": [subscription, subscription]}),
        "promotion": of("Promotion", spec={"stage": "a", "freight": "b", "steps": [{"uses": "x"}]}),
        "promotion of two things": of(
            "Promotion", spec={"stage": "a", "freight": "b", "origin": {"kind": "Warehouse", "name": "x"}}
        ),
        "policy": of("ProjectConfig", spec={"promotionPolicies": [{"stage": "a"}]}),
        "policy of nothing": of("ProjectConfig", spec={"promotionPolicies": [{}]}),
        "bad pattern": of("ProjectConfig", spec={"promotionPolicies": [{"stageSelector": {"name": "regex:("}}]}),
        "freight": of("Freight", origin={"kind": "Warehouse", "name": "x"}, images=[{"repoURL": "a", "tag": "b"}]),
        "empty freight": of("Freight", origin={"kind": "Warehouse", "name": "x"}),
        "task": of("PromotionTask", spec={"steps": [{"uses": "x"}]}),
        "task in a task": of("PromotionTask", spec={"steps": [{"task": {"name": "x"}}]}),
    }


CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_the_server_agrees(crds: ApiServer, namespace: str, tmp_path: Path, name: str) -> None:
    """An object that is judged good is created, and one with errors is refused."""
    obj = {**CASES[name], "metadata": {**CASES[name].get("metadata", {})}}
    obj["metadata"].pop("namespace", None)
    (tmp_path / "x.json").write_text(yaml.safe_dump(obj))
    (manifest,) = manifests(load([str(tmp_path)]))
    errors = [finding for finding in judge(manifest) if finding.level is Level.ERROR]
    plural = {"ProjectConfig": "projectconfigs", "Freight": "freights"}.get(obj["kind"], f"{obj['kind'].lower()}s")
    path = f"/apis/kargo.akuity.io/v1alpha1/namespaces/{namespace}/{plural}?dryRun=All&fieldValidation=Strict"
    if not errors:
        crds.request("POST", path, obj)
        return
    with pytest.raises(RequestFailed, match=r"40[0-9]|422"):
        crds.request("POST", path, obj)
