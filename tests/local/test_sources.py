"""Which revisions of which sources an operation deploys (spec 1.2)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kargo_py.local.argocd.engine import Manifest
from kargo_py.local.argocd.repositories import AnyRepository, GitRepository, Repository, ScriptedRepository, load
from kargo_py.local.argocd.sources import Wanted, wanted_by
from kargo_py.local.argocd.sync import wanted_in
from kargo_py.local.argocd.timing import Version
from tests.local.conftest import Bench

JsonObject = dict[str, Any]

URL = "https://git.example.com/shop"


def source(path: str = "p", revision: str = "main", **more: Any) -> JsonObject:
    return {"repoURL": URL, "path": path, "targetRevision": revision, **more}


ONE: JsonObject = {"spec": {"source": source()}}
TWO: JsonObject = {"spec": {"sources": [source("p"), source("q", "v1")]}}
HYDRATED: JsonObject = {
    "spec": {
        "source": source(),
        "sources": [source(), source()],
        "sourceHydrator": {"drySource": {"repoURL": URL}, "syncSource": {"targetBranch": "env", "path": "out"}},
    }
}


@pytest.mark.parametrize(
    ("app", "sync", "expected"),
    [
        pytest.param(ONE, {}, ["p@main"], id="target revision"),
        pytest.param(ONE, {"revision": "x"}, ["p@x"], id="revision"),
        pytest.param(ONE, {"revisions": ["x"]}, ["p@main"], id="revisions are not for one source"),
        pytest.param(ONE, {"source": source("o", "y")}, ["o@y"], id="another source"),
        pytest.param(ONE, {"source": source("o", "y"), "revision": "x"}, ["o@x"], id="another source and revision"),
        pytest.param(TWO, {}, ["p@main", "q@v1"], id="target revisions"),
        pytest.param(TWO, {"revision": "x"}, ["p@main", "q@v1"], id="revision is not for several sources"),
        pytest.param(TWO, {"revisions": ["x", "y"]}, ["p@x", "q@y"], id="revisions"),
        pytest.param(TWO, {"revisions": ["", "y"]}, ["p@main", "q@y"], id="an empty one"),
        pytest.param(TWO, {"revisions": ["x"]}, ["p@main", "q@v1"], id="too few"),
        pytest.param(TWO, {"sources": [source("o")], "revisions": ["x"]}, ["o@x"], id="other sources"),
        pytest.param(HYDRATED, {}, ["out@env"], id="hydrated"),
        pytest.param(HYDRATED, {"revision": "x"}, ["out@x"], id="hydrated at a revision"),
    ],
)
def test_wanted(app: JsonObject, sync: JsonObject, expected: list[str]) -> None:
    """One source, several, or the hydrated one."""
    assert [f"{one.source['path']}@{one.revision}" for one in wanted_by({"sync": sync}, app)] == expected


def test_a_resolved_revision_stays() -> None:
    """Once it is in the result, its branch may go where it likes."""
    state = {"operation": {"sync": {"revision": "main"}}, "syncResult": {"revision": "abc"}}

    assert [one.revision for one in wanted_in(state, ONE)] == ["abc"]


async def loaded(repository: Repository | None, revision: str, path: str = "p") -> tuple[list[str], str, str]:
    """Revisions, names of the manifests, and the end of the error."""
    known = {URL: repository} if repository else {}
    app = {"spec": {"source": source(path), "destination": {"namespace": "ns"}}}
    target = await load(app, [Wanted(source(path), revision)], known, Version.V3_6)
    assert {"ns"} >= {manifest.namespace for manifest in target.manifests}
    names = ",".join(manifest.name for manifest in target.manifests)
    return list(target.revisions), names, target.error.rpartition(" desc = ")[2]


class TestScripted:
    """A repository whose commits a test writes down."""

    @pytest.fixture
    def repository(self) -> ScriptedRepository:
        repository = ScriptedRepository(URL)
        repository.commit("aaaaaaa1", paths={"p": [Manifest("ConfigMap", "one")]})
        repository.commit("bbbbbbb2", paths={"q": [Manifest("ConfigMap", "two")]})
        repository.tag("v1", "aaaaaaa1")
        repository.commit("ccccccc3", branch="dev", paths={"p": []})
        return repository

    @pytest.mark.parametrize(
        ("revision", "commit", "names", "error"),
        [
            ("main", "bbbbbbb2", "one", ""),
            ("HEAD", "bbbbbbb2", "one", ""),
            ("v1", "aaaaaaa1", "one", ""),
            ("aaaaaaa", "aaaaaaa1", "one", ""),
            ("bbbbbbb2".ljust(40, "0"), "bbbbbbb2", "one", ""),
            ("dev", "ccccccc3", "", "p: app path does not exist"),
            ("aaaaaa", None, "", "unable to resolve 'aaaaaa' to a commit SHA: revision not found"),
            ("gone", None, "", "unable to resolve 'gone' to a commit SHA: revision not found"),
            ("d" * 40, "d" * 40, "", f"fatal: git upload-pack: not our ref {'d' * 40}"),
        ],
    )
    async def test_revisions(
        self, repository: ScriptedRepository, revision: str, commit: str | None, names: str, error: str
    ) -> None:
        """Branches, tags, commits and their beginnings."""
        revisions, found, told = await loaded(repository, revision)

        assert revisions == [commit.ljust(40, "0") if commit else revision]
        assert found == names
        assert told.endswith(error) if error else not told

    async def test_bad_use(self, repository: ScriptedRepository) -> None:
        """The texts name the repository."""
        with pytest.raises(ValueError, match=f"{URL}: 'xyz' is no commit id: give up to 40 hexadecimal digits"):
            repository.commit("xyz")
        with pytest.raises(ValueError, match=r"exists; move a branch to it with branch\(\)"):
            repository.commit("aaaaaaa1")
        with pytest.raises(ValueError, match=f"{URL} has no commit ddd; add it"):
            repository.branch("main", "ddd")


async def test_any_repository() -> None:
    """Where nothing is said, every revision exists, and branches stay where they are."""
    revisions, names, error = await loaded(None, "main", "deploy/dev")

    assert (revisions, names, error) == ([await AnyRepository(URL).resolve("main")], "deploy-dev", "")
    assert (await loaded(None, "d" * 40))[0] == ["d" * 40]


def test_two_kinds_of_repository(tmp_path: Path) -> None:
    """A git repository is not scripted."""
    argo = Bench().argo()
    argo.git_repository(URL, tmp_path)
    with pytest.raises(TypeError, match="commit with git there"):
        argo.repository(URL)


def git(directory: Path, *arguments: str) -> str:
    """Run git; returns what it printed."""
    who = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["git", *arguments], cwd=directory, env={**os.environ, **who}, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


class TestGit:
    """A real repository on this machine."""

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        (tmp_path / "p").mkdir()
        (tmp_path / "p" / "all.yaml").write_text(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n---\n"
            "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: two\n"
            "  annotations: {argocd.argoproj.io/hook: PostSync, argocd.argoproj.io/sync-wave: '3'}\n"
        )
        (tmp_path / "p" / "README.md").write_text("not a manifest\n")
        git(tmp_path, "init", "--quiet", "--initial-branch=main")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "--quiet", "--message=one")
        git(tmp_path, "tag", "v1")
        (tmp_path / "p" / "all.yaml").write_text("kind: [\n")
        git(tmp_path, "commit", "--quiet", "--all", "--message=two")
        return tmp_path

    @pytest.fixture
    def commit(self, directory: Path) -> str:
        """The first commit."""
        return git(directory, "rev-parse", "v1")

    async def test_revisions(self, directory: Path, commit: str) -> None:
        """Branches, tags, commits and their beginnings are what git says."""
        repository = GitRepository(directory)

        for revision in ("v1", commit, commit[:7]):
            assert await repository.resolve(revision) == commit
        assert (await loaded(repository, "gone"))[2].startswith("unable to resolve 'gone'")
        assert (await loaded(repository, "d" * 40))[2].endswith(f"not our ref {'d' * 40}")
        assert (await loaded(repository, "v1", "q"))[2] == "q: app path does not exist"
        assert (await loaded(repository, "main"))[2].startswith('Failed to unmarshal "p/all.yaml"')

    async def test_manifests(self, directory: Path) -> None:
        """The YAML documents of a directory, with what annotations say."""
        repository = GitRepository(directory)
        one, two = await repository.manifests(await repository.resolve("v1"), "p")

        assert (one.kind, one.name, one.group, one.version) == ("ConfigMap", "one", "", "v1")
        assert (two.id.kind, two.group, two.hook, two.wave) == ("Job", "batch", "PostSync", 3)
        assert await repository.manifests(await repository.resolve("v1"), ".") == []
