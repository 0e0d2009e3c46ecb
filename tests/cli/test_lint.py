"""kargo-py lint: forms of the output, exit codes, what is read, and what is left alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, strategies as st
from typer.testing import CliRunner, Result

from kargo_py.cli.findings import text
from kargo_py.cli.lint import lines
from kargo_py.cli.main import app
from kargo_py.offline.findings import Finding, Level, Place
from tests.offline.pipelines import STAGE, WHOLE

REPOSITORY = Path(__file__).resolve().parents[2]
BAD = STAGE.replace("uses: argocd-wait", "uses: argocd-wiat")
GUESSED = STAGE.replace("${{ quote(vars.tag) }}", "1.30")


def lint(*arguments: str | Path, given: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["lint", *map(str, arguments)], input=given, catch_exceptions=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in WHOLE.items():
        (tmp_path / f"{name}.yaml").write_text(content)
    return tmp_path


class TestOutput:
    """What is printed, and where."""

    def test_clean(self, folder: Path) -> None:
        """Nothing but the summary, on standard error."""
        done = lint(folder)
        assert (done.exit_code, done.stdout) == (0, "")
        assert done.stderr == (
            "0 errors and 0 warnings in 4 objects of 5 files; 2 objects of other kinds not looked at\n"
        )

    def test_text(self, folder: Path) -> None:
        """One line for each finding; expressions stand below with a caret."""
        (folder / "stage.yaml").write_text(BAD.replace("success()", "succeeded()"))
        done = lint(folder)
        assert done.exit_code == 1
        steps = (
            f"{folder}/stage.yaml:21:15: error: spec.promotionTemplate.spec.steps[0].if: there is no function succeeded"
        )
        first, *caret, last = done.stdout.splitlines()
        assert first.startswith(steps)
        assert caret[0] == "    | ${{ succeeded() && vars.region == 'eu' }}"
        assert caret[1].endswith("....^")
        assert last.startswith(f"{folder}/stage.yaml:33:17: error: spec.promotionTemplate.spec.steps[3].uses: there is")
        assert done.stderr.startswith("2 errors and 0 warnings in 4 objects of 5 files")

    def test_json(self, folder: Path) -> None:
        """All of it as data; an empty list where nothing is wrong."""
        assert json.loads(lint(folder, "-o", "json").stdout) == []
        (folder / "stage.yaml").write_text(BAD)
        (found,) = json.loads(lint(folder, "-o", "JSON").stdout)
        assert found.pop("message").startswith("there is no kind of step 'argocd-wiat'")
        assert found == {
            "file": f"{folder}/stage.yaml",
            "line": 33,
            "column": 17,
            "level": "error",
            "object": "Stage shop/prod",
            "path": "spec.promotionTemplate.spec.steps[3].uses",
        }

    def test_github(self, folder: Path) -> None:
        """Annotations of GitHub Actions."""
        (folder / "stage.yaml").write_text(GUESSED)
        (line,) = lint(folder, "-o", "github").stdout.splitlines()
        assert line.startswith(
            f"::warning file={folder}/stage.yaml,title=kargo-py%3A Stage shop/prod,line=23,col=18::spec"
        )

    @given(st.text(), st.text(), st.text())
    def test_nothing_gets_out(self, file: str, path: str, said: str) -> None:
        """Whatever a file has in it: one command for GitHub, and no character that moves a terminal's cursor."""
        finding = Finding(Place(file, 1, 2), Level.ERROR, path, said)
        (line,) = lines([finding], "github")
        assert line.startswith("::error file=")
        assert not {"\n", "\r"} & set(line)
        assert line.count("::") >= 2
        assert all(character == "\n" or character.isprintable() for character in text(finding))
        assert all(below.startswith("   ") for below in text(finding).split("\n")[1:])


class TestExitCode:
    """0, 1 where it is bad enough, 2 where the command makes no sense."""

    @pytest.mark.parametrize(
        ("content", "options", "code"),
        [
            (STAGE, [], 0),
            (STAGE, ["--fail-on", "warning"], 0),
            (GUESSED, [], 0),
            (GUESSED, ["--fail-on", "WARNING"], 1),
            (STAGE.replace("uses: fail", "uses: fail\n          nope: x"), [], 1),
            ("a: b: c\n", [], 1),
        ],
    )
    def test_findings(self, folder: Path, content: str, options: list[str], code: int) -> None:
        """Errors count, and warnings if that is asked for."""
        (folder / "stage.yaml").write_text(f"# kargo.akuity.io\n{content}")
        assert lint(folder, *options).exit_code == code

    def test_strict(self, folder: Path) -> None:
        """A task that is in no file is an error then."""
        (folder / "task.yaml").unlink()
        assert lint(folder).exit_code == 0
        assert lint(folder, "--strict").exit_code == 1

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["x", "-o", "xml"], "--output 'xml': must be one of text, json, github"),
            (["x", "--fail-on", "info"], "--fail-on 'info': must be error or warning"),
        ],
    )
    def test_usage(self, arguments: list[str], words: str) -> None:
        """One line, and code 2."""
        done = lint(*arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert words in done.stderr

    def test_no_files(self) -> None:
        """Without files there is nothing to do."""
        assert lint().exit_code == 2


class TestFiles:
    """What is read."""

    def test_stdin(self) -> None:
        """As of ``kustomize build | kargo-py lint -``."""
        done = lint("-", given=BAD)
        assert "<stdin>:33:17: " in done.stdout

    def test_folders(self, folder: Path) -> None:
        """All below them, but for hidden ones; each file once, however it is named."""
        below = folder / "a" / "b"
        below.mkdir(parents=True)
        (below / "x.yml").write_text(BAD.replace("name: prod", "name: other"))
        (folder / ".git").mkdir()
        (folder / ".git" / "x.yaml").write_text("a: b: c # kargo.akuity.io")
        (folder / "notes.txt").write_text("kargo.akuity.io: a: b")
        (below / "loop").symlink_to(folder)
        done = lint(folder, below, below / "x.yml", f"{folder}/a/../stage.yaml")
        assert [line.split(":")[0] for line in done.stdout.splitlines()] == [str(below / "x.yml")]
        assert "of 6 files" in done.stderr

    def test_templates_of_helm(self, folder: Path) -> None:
        """A file in a folder that cannot be read and has no word of Kargo is left alone; one that is named is told."""
        chart = folder / "deployment.yaml"
        chart.write_text("{{- if .Values.x }}\na: {{ .Values.y }}: b\n{{- end }}\n")
        done = lint(folder)
        assert (done.exit_code, done.stdout) == (0, "")
        assert "1 file in folders, without a word of Kargo, not readable as YAML" in done.stderr
        assert lint(chart).exit_code == 1

    @pytest.mark.parametrize(
        ("content", "place", "words"),
        [
            (b"a: \xff\n", "1:4", "the byte 0xff is no UTF-8"),
            (b"b: 1\n\xc3\xa4: \xc3", "2:4", "the byte 0xc3 is no UTF-8"),
            ("a: 1".encode("utf-16"), "1:1", "the file is UTF-16"),
            (b"\xef\xbb\xbfa: b: c", "1:5", "mapping values"),
            (b"\x00\x01\x02", "1:1", "control characters"),
        ],
    )
    def test_encodings(self, tmp_path: Path, content: bytes, place: str, words: str) -> None:
        """UTF-8 only, with or without a mark; all else is told with its place."""
        path = tmp_path / "x.yaml"
        path.write_bytes(content)
        done = lint(path)
        assert done.exit_code == 1
        assert done.stdout.startswith(f"{path}:{place}: error: ")
        assert words in done.stdout

    def test_what_cannot_be_read(self, tmp_path: Path) -> None:
        """It is told, and the other files are judged all the same."""
        (tmp_path / "x.yaml").write_text(BAD)
        (tmp_path / "gone.yaml").symlink_to("/nowhere/x")
        empty = tmp_path / "empty"
        empty.mkdir()
        done = lint(tmp_path / "absent.yaml", empty, tmp_path, "a\0b")
        assert done.exit_code == 1
        assert "absent.yaml: error: cannot be read: No such file or directory" in done.stdout
        assert "empty: error: there is no .yaml, .yml or .json file" in done.stdout
        assert "gone.yaml: error: cannot be read" in done.stdout
        assert "x.yaml:33:17: " in done.stdout
        assert "cannot be read: embedded null byte" in done.stdout

    def test_nothing_comes(self) -> None:
        """What was to write the manifests has failed, most likely; that is no success."""
        done = lint("-", given="# nothing\n---\n")
        assert (done.exit_code, done.stdout) == (1, "<stdin>: error: there is nothing in it\n")

    def test_a_closed_folder(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is told, and what is beside it is judged."""
        closed, scandir = folder / "closed", os.scandir
        closed.mkdir()

        def refusing(path: str) -> object:
            if str(path) == str(closed):
                raise PermissionError(13, "Permission denied", str(path))
            return scandir(path)

        monkeypatch.setattr(os, "scandir", refusing)
        done = lint(folder)
        assert (done.exit_code, done.stdout) == (1, f"{closed}: error: cannot be read: Permission denied\n")
        assert "in 4 objects" in done.stderr

    def test_a_pipe(self, tmp_path: Path) -> None:
        """As of ``lint <(kustomize build)``; one in a folder is not waited for."""
        os.mkfifo(tmp_path / "x.yaml")
        done = lint(tmp_path)
        assert "there is no .yaml" in done.stdout


def test_hostile(tmp_path: Path) -> None:
    """Files that are made to be slow or large are refused soon, each with its line."""
    head = STAGE.replace("apiVersion", "apiVersion", 1)
    aliases = "".join(f"  a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
    texts = {
        "bomb": f"{head}status:\n  a0: &a0 [1]\n{aliases}",
        "deep": f"{head}status: {'[' * 5000}",
        "large": f"{head}status: {{a: '{'x' * 10_000_000}'}}",
        "keys": head + "".join("status: 1\n" for _ in range(30_000)),
        "steps": head + "        - {uses: fail, config: {message: '${{ vars.a + }}'}}\n" * 3000,
        "expression": head.replace("success()", "(" * 5000),
        "nan": head.replace("tag: ${{", "x: .nan\n            tag: ${{"),
    }
    for name, content in texts.items():
        (tmp_path / f"{name}.yaml").write_text(content)
    started = time.process_time()
    done = lint(tmp_path)
    assert time.process_time() - started < 60
    assert done.exit_code == 1
    told = {Path(line.split(":")[0]).stem for line in done.stdout.splitlines() if ": error: " in line}
    assert told == set(texts)
    assert len(done.stdout) < 1_000_000


def test_without_the_extra(tmp_path: Path) -> None:
    """Where the package of the CRDs' rules is not installed it says so in a line."""
    code = "import sys; sys.modules['cel'] = None\nfrom kargo_py.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "lint", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "needs the package cel" in done.stderr


EXAMPLE = REPOSITORY / "examples/check-in-ci"
GUIDE = (REPOSITORY / "docs/how-to/check-in-ci.md").read_text()
SAMPLES = re.findall(r"^```console\n\$ kargo-py (.*?)\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("command", [command for command, _ in SAMPLES])
def test_the_guide(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """What the guide shows of a command is what it prints."""
    monkeypatch.chdir(EXAMPLE)
    done = CliRunner().invoke(app, command.split(), catch_exceptions=False)
    assert done.stdout + done.stderr == dict(SAMPLES)[command]


def test_the_guides_files() -> None:
    """It shows the files as they are; they are YAML, and only the mistaken ones have mistakes."""
    shown = set(re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL))
    names = ("mistakes/stage.yaml", "workflow.yaml", "pre-commit-config.yaml", "promotion.yaml")
    assert shown == {(EXAMPLE / name).read_text() for name in names}
    done = lint(*sorted(EXAMPLE.glob("*.yaml")), "--strict", "--fail-on", "warning")
    assert (done.exit_code, done.stdout) == (0, "")


def test_the_commands_of_the_guides_files() -> None:
    """What CI and pre-commit are to run is a command line that there is."""
    workflow = yaml.safe_load((EXAMPLE / "workflow.yaml").read_text())
    (hook,) = yaml.safe_load((EXAMPLE / "pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    for command in (workflow["jobs"]["lint"]["steps"][-1]["run"], hook["entry"]):
        program, *arguments, folder = command.split()
        assert (program, folder) == ("kargo-py", "kargo/")
        assert CliRunner().invoke(app, [*arguments, str(EXAMPLE / "stage.yaml")]).exit_code == 0
