"""The tutorial, followed word for word: every command is run, and what the page shows is compared with what is seen."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs/tutorial/first-promotion.md"
ELSEWHERE = "## With a cluster of your own"
"""From here on the page is for those who have a cluster: another beginning."""

NOT_RUN = {"python3 -m venv .venv-run", ".venv-run/bin/pip install '.[local]'"}
"""They need a package index; what they install is this package and what it needs, which is what the test runs on."""
FOREVER = re.compile(r"kargo-py (apiserver|run)\b| -w$")
"""Commands for a terminal of their own, which end with Ctrl-C."""

KINDS = {"Promotion": "promotions", "Stage": "stages", "Application": "applications"}

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="the tutorial uses kubectl")


@dataclass(frozen=True, slots=True)
class Command:
    """What a reader types, and the lines that the page shows below it; none if it shows nothing."""

    text: str
    shown: Sequence[str]


def commands(page: str) -> list[Command]:
    """The commands of a page in their order."""
    found: list[Command] = []
    for block in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for text, shown in re.findall(
            r"^\$ (.*?<<'YAML'\n.*?^YAML|[^\n]*)\n(.*?)(?=^\$ |\Z)", block, re.MULTILINE | re.DOTALL
        ):
            found.append(Command(text, shown.splitlines()))
    return found


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of an object that the page shows, as it must have stood there at some moment."""

    kind: str
    name: str
    content: Any


def excerpts(page: str) -> list[Excerpt]:
    """The YAML that is shown; its first line says of which object it is a part."""
    blocks = re.findall(r"^```yaml\n# (\w+) (\S+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == page.count("```yaml")
    return [Excerpt(kind, name, yaml.safe_load(text)) for kind, name, text in blocks]


_CHANGES = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"KUBECONFIG=\S+", "KUBECONFIG"),
    (r"\b(\d+[dhms])+\b", "AGE"),
    (r"^\d+$", "NUMBER"),
)


def stable(text: str) -> str:
    """*text* without what differs from run to run."""
    for pattern, word in _CHANGES:
        text = re.sub(pattern, word, text)
    return " ".join(text.split())


def assert_shows(seen: Sequence[str], told: Sequence[str]) -> None:
    """Fail unless *seen* is what is *told*, where ``…`` stands for any lines."""
    before, *after = "\n".join(map(stable, told)).split("\n…")
    lines = "\n".join(map(stable, seen))
    if not after:
        assert lines == before
        return
    (end,) = after
    assert lines[: len(before)] == before
    assert lines[len(lines) - len(end) :] == end


def contains(have: Any, want: Any) -> bool:
    """True if *have* has everything of *want*; items of lists in any order and among others."""
    if isinstance(want, dict):
        return isinstance(have, dict) and all(name in have and contains(have[name], want[name]) for name in want)
    if isinstance(want, list):
        return isinstance(have, list) and all(any(contains(each, item) for each in have) for item in want)
    if isinstance(want, str):
        return isinstance(have, str) and stable(have) == stable(want)
    return bool(have == want and type(have) is type(want))


@dataclass
class Reader:
    """Somebody in a checkout, with as many terminals as it takes."""

    checkout: Path
    environment: dict[str, str]
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    closing: ExitStack = field(default_factory=ExitStack)

    def type(self, command: Command) -> None:
        """Run the command, and see that it shows what the page says."""
        if command.text in NOT_RUN:
            return
        if command.text.startswith("rm "):
            self.press_ctrl_c()
        if FOREVER.search(command.text):
            seen = self._in_its_own_terminal(command)
        else:
            done = subprocess.run(
                ["bash", "-c", command.text],
                cwd=self.checkout,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert (done.returncode, done.stderr) == (0, ""), (command.text, self.said())
            seen = done.stdout.splitlines()
        if command.shown:
            assert_shows(seen, command.shown)
        for line in seen:
            if found := re.search(r"export KUBECONFIG=(\S+)", line):
                self.environment["KUBECONFIG"] = found[1]

    def _in_its_own_terminal(self, command: Command) -> list[str]:
        """Start it; the lines that it must show before the reader goes on."""
        log = self.closing.enter_context((self.checkout / f"log-{len(self.running)}").open("w"))
        output: int | IO[str] = subprocess.PIPE if command.shown else log
        process = self.start(["bash", "-c", f"exec {command.text}"], output, log)
        self.running.append(process)
        return [process.stdout.readline() for _ in command.shown] if process.stdout else []

    def start(self, command: Sequence[str], output: int | IO[str], errors: IO[str] | None) -> subprocess.Popen[str]:
        """Start a program that goes at the end of the test, if it has not ended by then."""
        process = subprocess.Popen(
            command, cwd=self.checkout, env=self.environment, stdout=output, stderr=errors, text=True
        )

        def end() -> None:
            process.kill()
            process.communicate()

        self.closing.callback(end)
        return process

    def press_ctrl_c(self) -> None:
        """End what runs in the other terminals, the last first; the programs of ours end in order."""
        for process in reversed(self.running):
            process.send_signal(signal.SIGINT)
            process.wait(30)
            assert "kargo-py" not in str(process.args) or process.returncode == 0, self.said()

    def said(self) -> str:
        """What stands in the other terminals."""
        return "\n".join(path.read_text() for path in sorted(self.checkout.glob("log-*")))


@contextmanager
def reader(tmp_path: Path) -> Iterator[Reader]:
    """A reader with a checkout in which everything is installed."""
    tools = tmp_path / ".venv-run/bin"
    tools.mkdir(parents=True)
    program = f'#!/bin/sh\nexec "{sys.executable}" -c "from kargo_py.cli.main import main; main()" "$@"\n'
    (tools / "kargo-py").write_text(program)
    (tools / "kargo-py").chmod(0o755)
    (tmp_path / "crds").symlink_to(REPOSITORY / "crds")
    environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    environment.pop("KUBECONFIG", None)
    it = Reader(tmp_path, environment)
    with it.closing:
        yield it


def versions(log: Path) -> list[Any]:
    """The JSON documents of a watch, one behind the other."""
    text, found = log.read_text().strip(), []
    while text:
        document, end = json.JSONDecoder().raw_decode(text)
        found.append(document)
        text = text[end:].strip()
    return found


@pytest.mark.timeout(300)
def test_first_promotion(tmp_path: Path) -> None:
    """Every command does what the page says, and each excerpt stood in the object at some moment."""
    page = PAGE.read_text().partition(ELSEWHERE)[0]
    watches: dict[str, subprocess.Popen[str]] = {}
    with reader(tmp_path) as somebody:
        for command in commands(page):
            if command.text.startswith("rm "):
                assert [watch.poll() for watch in watches.values()] == [None] * len(KINDS)
                for watch in watches.values():
                    watch.terminate()
                    watch.wait(30)
            somebody.type(command)
            if not watches and "KUBECONFIG" in somebody.environment:
                for kind, plural in KINDS.items():
                    log = somebody.closing.enter_context((tmp_path / kind).open("w"))
                    watches[kind] = somebody.start(["kubectl", "get", plural, "-A", "-o", "json", "-w"], log, None)
    shown = excerpts(page)
    seen = {kind: versions(tmp_path / kind) for kind in KINDS}

    assert len(shown) > 4
    for each in shown:
        mine = [version for version in seen[each.kind] if version["metadata"]["name"] == each.name]
        assert mine
        assert any(contains(version, each.content) for version in mine), (each, mine[-1])


def test_with_a_cluster(tmp_path: Path) -> None:
    """The other beginning, on an API server without the CRDs."""
    first, other = PAGE.read_text().split(ELSEWHERE)
    (start,) = (command for command in commands(first) if "kargo-py apiserver" in command.text)
    with reader(tmp_path) as somebody:
        somebody.type(Command(start.text.replace("--crds crds/ ", ""), start.shown))
        for command in commands(other):
            somebody.type(command)

    assert len(commands(other)) > 1


class TestComparison:
    """How outputs and objects are compared, since a comparison that never fails would prove nothing."""

    @pytest.mark.parametrize(
        ("one", "other", "same"),
        [
            ("prod   Ready   30s", "prod Ready 1m5s", True),
            ("prod   Ready   30s", "test   Ready   30s", False),
            ("since 2026-11-30T08:40:36Z", "since 2026-12-01T09:00:00Z", True),
            ("revision 53e28ff", "revision 53e28fe", False),
            ("235", "7", True),
        ],
    )
    def test_stable(self, one: str, other: str, same: bool) -> None:
        """Times, ages and numbers of versions may differ, and nothing else."""
        assert (stable(one) == stable(other)) == same

    @pytest.mark.parametrize(
        ("seen", "told", "same"),
        [
            ("a b c d", "a b c d", True),
            ("a b c d", "a … d", True),
            ("a d", "a … d", True),
            ("a b c", "a …", True),
            ("a b c d", "a b d", False),
            ("a b c d", "a … c", False),
            ("a b c d", "b … d", False),
            ("a", "", False),
        ],
    )
    def test_assert_shows(self, seen: str, told: str, same: bool) -> None:
        """Each line counts; dots stand for any lines, and for none."""
        if same:
            assert_shows(seen.split(), told.split())
        else:
            with pytest.raises(AssertionError):
                assert_shows(seen.split(), told.split())

    @pytest.mark.parametrize(
        ("have", "want", "same"),
        [
            ({"a": [{"b": 1}, {"b": 2, "c": 3}]}, {"a": [{"b": 2}]}, True),
            ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, False),
            ({"a": 1}, {"b": 1}, False),
            ({"a": "True"}, {"a": True}, False),
            ({}, {"a": []}, False),
        ],
    )
    def test_contains(self, have: Any, want: Any, same: bool) -> None:
        """What is shown must be there; more may be."""
        assert contains(have, want) == same
