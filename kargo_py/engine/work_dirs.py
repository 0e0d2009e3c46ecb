"""The working directories of Promotions: one for each, for its steps alone, on the disk of this process.

``<root>/promotion-<uid>``, readable by nobody else. A file beside it, ``promotion-<uid>.whole``, says that all is in it
that steps have put there: without that file the directory is a new one, or one that was being filled again when the
process died.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import structlog

from kargo_py.messages import Shown, message

ROOT_UNUSABLE = message(
    "the working directory cannot be made in {path}: {why}; see --work-dir",
    do="Give a directory of this user with `--work-dir`, or make room on its disk; in a cluster mount an `emptyDir`. "
    "Only steps that need files on disk suffer.",
    shown=Shown.PROMOTION,
)
NOT_OURS = message(
    "it is {what}, which somebody else may have put there",
    do="Remove it, or give another directory with `--work-dir`.",
    shown=Shown.PROMOTION,
)
NOT_REMOVED = message(
    "working directory not removed",
    do="`error` says why. What is left of it is removed when the program begins again.",
    shown=Shown.LOG,
)

_UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]{0,62}")
_PREFIX = "promotion-"
_WHOLE = ".whole"

_log = structlog.get_logger(__name__)


class WorkDirError(Exception):
    """There can be no working directory; the text says why."""


def root_of(instance: str, parent: str = "") -> Path:
    """Where the working directories of a control plane are: in *parent*, else where this machine keeps what is passing.

    Each control plane has a place of its own, since each removes those that it does not know.
    """
    if parent:
        return Path(parent).absolute() / instance
    try:
        passing = Path(tempfile.gettempdir()).absolute()
    except FileNotFoundError:
        # It can be written nowhere, as in a container. That is told when a step needs it
        passing = Path("/tmp")  # noqa: S108 - others' directories are refused
    return passing / f"kargo-py-{os.geteuid()}-{instance}"


class WorkDirs:
    """Makes and removes them; what *root* is in is made when it is needed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def ensure(self, uid: str) -> tuple[Path, bool]:
        """The directory of the Promotion *uid*, made if need be; and whether it is whole. Raises WorkDirError."""
        return await asyncio.to_thread(self._ensure, uid)

    async def mark_whole(self, uid: str) -> None:
        """All is in the directory that steps have put there so far, or nothing was. Raises WorkDirError."""
        await asyncio.to_thread(self._mark_whole, uid)

    async def remove(self, uid: str) -> None:
        """Remove the directory of *uid*, if there is one. What cannot be removed is logged."""
        if _UID.fullmatch(uid):
            await asyncio.to_thread(self._remove, f"{_PREFIX}{uid}")

    async def sweep(self, needed: Callable[[str], bool]) -> None:
        """Remove the directories of all Promotions but those whose uid is *needed*."""
        for name in await asyncio.to_thread(self._names):
            if not needed(name.removeprefix(_PREFIX)):
                await asyncio.to_thread(self._remove, name)

    def _ensure(self, uid: str) -> tuple[Path, bool]:
        if not _UID.fullmatch(uid):
            raise WorkDirError(ROOT_UNUSABLE(path=self._root, why=f"{uid[:100]!r} is no uid"))
        path = self._root / f"{_PREFIX}{uid}"
        try:
            self._root.parent.mkdir(parents=True, exist_ok=True)
            _make(self._root)
            if _make(path):
                _marker(path).unlink(missing_ok=True)
            return path, _marker(path).is_file()
        except OSError as error:
            raise WorkDirError(ROOT_UNUSABLE(path=self._root, why=error.strerror or error)) from error

    def _mark_whole(self, uid: str) -> None:
        marker = _marker(self._root / f"{_PREFIX}{uid}")
        try:
            os.close(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise WorkDirError(ROOT_UNUSABLE(path=self._root, why=error.strerror or error)) from error

    def _remove(self, name: str) -> None:
        path = self._root / name
        try:
            _marker(path).unlink(missing_ok=True)
            _remove_tree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning(NOT_REMOVED(), path=str(path), error=str(error))

    def _names(self) -> list[str]:
        """The names of the directories there are."""
        try:
            names = {entry.name.removesuffix(_WHOLE) for entry in os.scandir(self._root)}
        except FileNotFoundError:
            return []
        except OSError as error:
            _log.warning(NOT_REMOVED(), path=str(self._root), error=str(error))
            return []
        return sorted(n for n in names if n.startswith(_PREFIX) and _UID.fullmatch(n.removeprefix(_PREFIX)))


def _marker(path: Path) -> Path:
    return path.with_name(path.name + _WHOLE)


def _make(path: Path) -> bool:
    """Make the directory *path*; False if it is there, and is our own. Raises WorkDirError and OSError."""
    try:
        path.mkdir(mode=stat.S_IRWXU)
    except FileExistsError:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise WorkDirError(ROOT_UNUSABLE(path=path, why=NOT_OURS(what="no directory"))) from None
        if found.st_uid != os.geteuid():
            raise WorkDirError(ROOT_UNUSABLE(path=path, why=NOT_OURS(what=f"of the user {found.st_uid}"))) from None
        if stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            path.chmod(stat.S_IRWXU)
        return False
    return True


def _remove_tree(path: Path) -> None:
    """Remove *path* and all in it, what is in directories that nobody may write to included. Raises OSError."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    try:
        shutil.rmtree(path)
    except PermissionError:
        for folder, _, _ in os.walk(path):
            Path(folder).chmod(stat.S_IRWXU)
        shutil.rmtree(path)
