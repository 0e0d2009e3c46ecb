"""Working directories: one for each Promotion, nobody else's, and gone when they are not needed."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kargo_py.engine.work_dirs import WorkDirError, WorkDirs, root_of

UID = "5a1b7c7e-0000-4000-8000-000000000001"


T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Tests that look into directories are no coroutines: they would block the event loop."""
    return asyncio.run(coroutine)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "far" / "away"


def test_it_is_made_when_it_is_needed(root: Path) -> None:
    """Nothing is made before; what is made, only this user can read."""
    dirs = WorkDirs(root)
    assert not root.parent.exists()
    path, whole = run(dirs.ensure(UID))
    assert (path, whole) == (root / f"promotion-{UID}", False)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (root, path)] == [0o700, 0o700]
    assert list(path.iterdir()) == []


def test_whole(root: Path) -> None:
    """It is whole once that was said, for a later process, too; and not any more when it was lost."""
    path, _ = run(WorkDirs(root).ensure(UID))
    assert run(WorkDirs(root).ensure(UID)) == (path, False)
    run(WorkDirs(root).mark_whole(UID))
    (path / "file").write_text("content")
    assert run(WorkDirs(root).ensure(UID)) == (path, True)
    assert (path / "file").read_text() == "content"
    assert [each.name for each in path.iterdir()] == ["file"]

    (path / "file").unlink()
    path.rmdir()
    assert run(WorkDirs(root).ensure(UID)) == (path, False)


def test_removing(root: Path) -> None:
    """All is removed, and that of others stays; what is not there is no error."""
    dirs = WorkDirs(root)
    path, _ = run(dirs.ensure(UID))
    run(dirs.mark_whole(UID))
    other, _ = run(dirs.ensure("other"))
    (path / "a" / "b").mkdir(parents=True)
    (path / "a" / "b" / "file").write_text("content")
    (path / "link").symlink_to(other)
    (path / "a" / "b").chmod(0o500)
    (path / "a").chmod(0)
    run(dirs.remove(UID))
    assert [each.name for each in root.iterdir()] == [other.name]
    run(dirs.remove(UID))
    run(WorkDirs(root / "nowhere").remove(UID))


def test_sweeping(root: Path) -> None:
    """Those of Promotions that are not needed are removed; what else lies there is none of ours."""
    dirs = WorkDirs(root)
    for uid in ("a", "b", "c"):
        run(dirs.ensure(uid))
        run(dirs.mark_whole(uid))
    (root / "promotion-d.whole").touch()
    (root / "promotion-e").symlink_to(root / "promotion-b")
    (root / "notes").touch()
    run(dirs.sweep({"b"}.__contains__))
    assert sorted(each.name for each in root.iterdir()) == ["notes", "promotion-b", "promotion-b.whole"]
    run(WorkDirs(root / "nowhere").sweep({"b"}.__contains__))


def test_what_somebody_else_has_made(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link, a file, and the directory of another user are refused; one that others may read is closed."""
    root.mkdir(parents=True)
    for name, make in (("link", lambda path: path.symlink_to("/tmp")), ("file", Path.touch)):
        make(root / f"promotion-{name}")
        with pytest.raises(WorkDirError, match="no directory"):
            run(WorkDirs(root).ensure(name))
    link = root.parent / "link"
    link.symlink_to(root)
    with pytest.raises(WorkDirError, match="no directory"):
        run(WorkDirs(link).ensure(UID))

    path, _ = run(WorkDirs(root).ensure(UID))
    path.chmod(0o755)
    run(WorkDirs(root).ensure(UID))
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(WorkDirError, match="of the user"):
        run(WorkDirs(root).ensure(UID))


@pytest.mark.parametrize("uid", ["", "..", "../x", "a/b", "-a", "a" * 64, "a\n", "a.whole"])
def test_no_uid(root: Path, uid: str) -> None:
    """Nothing is made or removed outside of the root."""
    with pytest.raises(WorkDirError, match="no uid"):
        run(WorkDirs(root).ensure(uid))
    run(WorkDirs(root).remove(uid))
    assert not root.exists()


def test_no_room(root: Path) -> None:
    """The error names the place, why, and the option."""
    root.parent.mkdir()
    root.touch()
    with pytest.raises(WorkDirError, match=r"away/below: .*; see --work-dir"):
        run(WorkDirs(root / "below").ensure(UID))
    with pytest.raises(WorkDirError, match="see --work-dir"):
        run(WorkDirs(root).mark_whole(UID))


def test_what_cannot_be_removed(root: Path, logged: list[Any]) -> None:
    """It is logged."""
    dirs = WorkDirs(root)
    run(dirs.ensure(UID))
    (root / f"promotion-{UID}.whole").mkdir()
    run(dirs.remove(UID))
    assert [event["event"] for event in logged] == ["working directory not removed"]
    assert UID in logged[0]["path"]


def test_root_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each control plane has its own, and each user."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/tmp")
    assert root_of("me") == Path(f"/tmp/kargo-py-{os.geteuid()}-me")
    assert root_of("me", str(tmp_path)) == tmp_path / "me"


def test_no_temporary_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be written to, that is told to the steps that need files, and keeps nothing from beginning."""

    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    assert root_of("me") == Path(f"/tmp/kargo-py-{os.geteuid()}-me")
