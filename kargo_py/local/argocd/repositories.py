"""Repositories: scripted ones, real git ones, and, where nothing is said, one that has every revision.

A scripted repository is told its commits; a path that a commit does not mention is as in the commit before. Where no
commit says anything about a path, it holds one ConfigMap that differs in every commit.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml

from kargo_py.kube.client import JsonObject
from kargo_py.local.argocd.engine import Manifest
from kargo_py.local.argocd.sources import Target, Wanted, awaited
from kargo_py.local.argocd.timing import Version

_COMMIT = re.compile(r"[0-9a-f]{40}")
_PREFIX = re.compile(r"[0-9a-f]{7,39}")


class RevisionError(Exception):
    """A revision that does not exist, or has nothing at the path; the text is what Argo CD says."""


class Unresolved(RevisionError):
    """No branch, tag or commit has this name."""


class NoSuchPath(RevisionError):
    """The commit is there, the path is not."""


class Repository(Protocol):
    """Where manifests come from."""

    async def resolve(self, revision: str) -> str:
        """The commit that a branch, a tag, a commit or the beginning of one stands for; raises RevisionError."""

    async def manifests(self, commit: str, path: str) -> Sequence[Manifest]:
        """What a commit has at a path; raises RevisionError."""


class ScriptedRepository:
    """A repository whose commits a test writes down."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._commits: dict[str, dict[str, tuple[Manifest, ...]]] = {}
        self._names: dict[str, str] = {}

    def commit(
        self,
        commit: str = "",
        *,
        branch: str = "main",
        paths: Mapping[str, Sequence[Manifest]] | None = None,
    ) -> str:
        """Add a commit at the tip of *branch*; returns its id.

        *paths* says what it changes, an empty sequence removes the path. An id that is too short is filled up.
        """
        name = commit or hashlib.sha1(f"{self.url} {len(self._commits)}".encode(), usedforsecurity=False).hexdigest()
        if not re.fullmatch(r"[0-9a-f]{1,40}", name):
            raise ValueError(f"repository {self.url}: {commit!r} is no commit id: give up to 40 hexadecimal digits")
        name = name.ljust(40, "0")
        if name in self._commits:
            raise ValueError(f"repository {self.url}: commit {name} exists; move a branch to it with branch()")
        parent = self._commits.get(self._names.get(branch, ""), {})
        self._commits[name] = parent | {path: tuple(found) for path, found in (paths or {}).items()}
        self._names[branch] = name
        return name

    def branch(self, name: str, commit: str) -> None:
        """Make or move a branch."""
        self._names[name] = self._known(commit)

    def tag(self, name: str, commit: str) -> None:
        """Make or move a tag."""
        self._names[name] = self._known(commit)

    def _known(self, commit: str) -> str:
        name = commit.ljust(40, "0")
        if name not in self._commits:
            raise ValueError(f"repository {self.url} has no commit {commit}; add it with commit() first")
        return name

    async def resolve(self, revision: str) -> str:
        name = "main" if revision in {"", "HEAD"} else revision
        if found := self._names.get(name):
            return found
        if _COMMIT.fullmatch(name):
            return name
        found_by_prefix = [commit for commit in self._commits if _PREFIX.fullmatch(name) and commit.startswith(name)]
        if len(found_by_prefix) != 1:
            raise _unresolved(revision)
        return found_by_prefix[0]

    async def manifests(self, commit: str, path: str) -> Sequence[Manifest]:
        if commit not in self._commits:
            raise _not_fetched(commit)
        found = self._commits[commit].get(path)
        if found is None:
            return [Manifest("ConfigMap", _name_for(path), content=commit)]
        if not found:
            raise NoSuchPath(f"{path}: app path does not exist")
        return found


class AnyRepository:
    """Has every commit, and a commit for every branch and tag."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def resolve(self, revision: str) -> str:
        if _COMMIT.fullmatch(revision):
            return revision
        return hashlib.sha1(f"{self.url} {revision}".encode(), usedforsecurity=False).hexdigest()

    async def manifests(self, commit: str, path: str) -> Sequence[Manifest]:
        return [Manifest("ConfigMap", _name_for(path), content=commit)]


class GitRepository:
    """A git repository on this machine; the manifests are the YAML documents in the directory at the path."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._read: dict[tuple[str, str], Sequence[Manifest]] = {}

    async def resolve(self, revision: str) -> str:
        for name in (f"refs/heads/{revision}", f"refs/tags/{revision}", revision or "HEAD"):
            code, found = await self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
            if code == 0:
                return found.strip()
        if _COMMIT.fullmatch(revision):
            return revision
        raise _unresolved(revision)

    async def manifests(self, commit: str, path: str) -> Sequence[Manifest]:
        if (commit, path) not in self._read:
            self._read[commit, path] = await self._documents(commit, path.strip("/").removeprefix("."))
        return self._read[commit, path]

    async def _documents(self, commit: str, path: str) -> Sequence[Manifest]:
        if (await self._git("cat-file", "-e", f"{commit}^{{commit}}"))[0]:
            raise _not_fetched(commit)
        code, listed = await self._git("ls-tree", "--name-only", "-z", f"{commit}:{path}")
        if code:
            raise NoSuchPath(f"{path}: app path does not exist")
        found: list[Manifest] = []
        for name in listed.split("\0"):
            if name.endswith((".yaml", ".yml")):
                _, text = await self._git("show", f"{commit}:{path}/{name}" if path else f"{commit}:{name}")
                documents = await asyncio.to_thread(_documents, text, f"{path}/{name}")
                found += [_manifest(document) for document in documents]
        return found

    async def _git(self, *arguments: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            "git",
            "-C",
            str(self.directory),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode()


def _documents(text: str, file: str) -> list[JsonObject]:
    try:
        return [document for document in yaml.safe_load_all(text) if isinstance(document, dict) and "kind" in document]
    except yaml.YAMLError as error:
        raise RevisionError(f'Failed to unmarshal "{file}": {error}') from error


def _manifest(document: JsonObject) -> Manifest:
    metadata: dict[str, Any] = document.get("metadata") or {}
    noted: dict[str, str] = metadata.get("annotations") or {}
    group, _, version = str(document.get("apiVersion") or "v1").rpartition("/")
    return Manifest(
        str(document["kind"]),
        str(metadata.get("name") or ""),
        group=group,
        version=version,
        namespace=str(metadata.get("namespace") or ""),
        content=repr(document),
        hook=noted.get("argocd.argoproj.io/hook", ""),
        wave=int(noted.get("argocd.argoproj.io/sync-wave", 0)),
    )


def _name_for(path: str) -> str:
    return path.strip("./").replace("/", "-") or "app"


def _unresolved(revision: str) -> Unresolved:
    return Unresolved(f"unable to resolve '{revision}' to a commit SHA")


def _not_fetched(commit: str) -> RevisionError:
    why = f"upload-pack: not our ref {commit}"
    return RevisionError(
        "failed to initialize repository resources: rpc error: code = Internal desc = "
        f"Failed to checkout revision {commit}: `git fetch origin {commit} --tags --force --prune` "
        f"failed exit status 128: fatal: remote error: {why}\nfatal: git {why}"
    )


async def load(
    app: JsonObject, wanted: Sequence[Wanted], repositories: Mapping[str, Repository], version: Version
) -> Target:
    """Resolve what is wanted, and read its manifests, as far as that can be done."""
    revisions = [one.revision for one in wanted]
    manifests: list[Manifest] = []
    for index, one in enumerate(wanted):
        if one.source.get("chart"):  # its versions are their own revisions
            manifests.append(Manifest("ConfigMap", one.source["chart"], content=one.revision))
            continue
        repository = repositories.get(one.source["repoURL"]) or AnyRepository(one.source["repoURL"])
        try:
            revisions[index] = await repository.resolve(one.revision)
            if one.source.get("path") or not one.source.get("ref"):
                manifests += await repository.manifests(revisions[index], one.source.get("path") or ".")
        except RevisionError as error:
            where = f"failed to generate manifest for source {index + 1} of {len(wanted)}"
            why = f"{error}{_more(error, app, version)}"
            told = f"ComparisonError: Failed to load target state: {where}: rpc error: code = Unknown desc = {why}"
            return Target(revisions, error=told)
    namespace = (app["spec"].get("destination") or {}).get("namespace") or ""
    return Target(revisions, [_in_namespace(manifest, namespace) for manifest in manifests])


def _more(error: RevisionError, app: JsonObject, version: Version) -> str:
    match error:
        case Unresolved() if version is Version.V3_6:
            return ": revision not found"
        case NoSuchPath():
            return awaited(app)
        case _:
            return ""


def _in_namespace(manifest: Manifest, namespace: str) -> Manifest:
    if manifest.namespace:
        return manifest
    return Manifest(
        manifest.kind,
        manifest.name,
        manifest.group,
        manifest.version,
        namespace,
        manifest.content,
        manifest.hook,
        manifest.wave,
        manifest.invalid,
    )
