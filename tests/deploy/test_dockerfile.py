"""The Dockerfile, as far as that can be judged where nothing can build it."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from dataclasses import dataclass
from itertools import groupby

from tests.deploy.manifests import DEPLOY

ROOT = DEPLOY.parent
KNOWN = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD"}


@dataclass(frozen=True)
class Line:
    """One instruction; ``stage`` counts from 1."""

    stage: int
    word: str
    rest: str


def instructions() -> list[Line]:
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found: list[Line] = []
    stage = 0
    for line in lines:
        word, _, rest = line.partition(" ")
        stage += word == "FROM"
        found.append(Line(stage, word, rest))
    return found


def of(word: str, stage: int) -> list[str]:
    return [line.rest for line in instructions() if (line.word, line.stage) == (word, stage)]


def test_instructions() -> None:
    """It begins with FROM, has two stages, and uses nothing but known instructions."""
    lines = instructions()

    assert lines[0].word == "FROM"
    assert {line.word for line in lines} <= KNOWN
    assert [stage for stage, _ in groupby(line.stage for line in lines)] == [1, 2]


def test_base_images() -> None:
    """Both stages have the same public base, by a version that the project supports; its venv fits there and here."""
    bases = [line.rest.split()[0] for line in instructions() if line.word == "FROM"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert len(set(bases)) == 1
    found = re.fullmatch(r"python:(3\.\d+)-slim", bases[0])
    assert found is not None
    assert f"Programming Language :: Python :: {found[1]}" in project["classifiers"]


def test_what_is_copied_is_there_and_enough() -> None:
    """All that the build of the package reads, and nothing that is not there."""
    sources = [word for rest in of("COPY", 1) for word in shlex.split(rest)[:-1]]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {
        "pyproject.toml",
        project["project"]["readme"],
        *project["project"]["license-files"],
        *project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"],
        project["tool"]["hatch"]["version"]["path"].split("/")[0],
    }

    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert set(sources) == needed


def test_the_image() -> None:
    """It has the environment of the first stage, in PATH, and runs as a user by number that is not root."""
    copied = [shlex.split(rest) for rest in of("COPY", 2)]
    (environment,) = of("ENV", 2)
    (user,) = of("USER", 2)
    (entry,) = of("ENTRYPOINT", 2)

    assert copied == [["--from=build", "/opt/kargo-py", "/opt/kargo-py"]]
    assert "/opt/kargo-py" in of("RUN", 1)[0]
    assert "PATH=/opt/kargo-py/bin:$PATH" in environment
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert json.loads(entry) == list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"])
