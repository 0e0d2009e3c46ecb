"""The files that a command is given, as texts."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kargo_py.api.meta import GROUP
from kargo_py.messages import Shown, message
from kargo_py.offline.documents import Document, read
from kargo_py.offline.findings import Finding, Level, Place

NO_SUCH_FILE = message(
    "cannot be read: {why}",
    do="Correct the path, or the rights of the file.",
    shown=Shown.LINT,
)
EMPTY_INPUT = message(
    "there is nothing in it",
    do="The command that is piped into this one has written nothing: look whether it has failed.",
    shown=Shown.LINT,
)
NO_FILES = message(
    "there is no .yaml, .yml or .json file in this folder or below it",
    do="Correct the path. Folders whose names begin with a dot are not looked into.",
    shown=Shown.LINT,
)
FILE_TOO_LARGE = message(
    "has more than {limit} bytes",
    do="Split the file: an object has at most 3 MiB.",
    shown=Shown.LINT,
)
NOT_UTF8 = message(
    "the byte 0x{byte:02x} is no UTF-8; save the file as UTF-8",
    do="Kubernetes takes UTF-8 only.",
    shown=Shown.LINT,
)
UTF16 = message(
    "the file is UTF-16; save it as UTF-8",
    do="kubectl reads files as UTF-8. PowerShell's `>` writes UTF-16: use `Out-File -Encoding utf8`.",
    shown=Shown.LINT,
)

STDIN: Final = "-"
STDIN_NAME: Final = "<stdin>"
MOST_BYTES: Final = 64 * 1024 * 1024
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class File:
    """A file and what is in it."""

    name: str
    documents: Sequence[Document] = ()
    findings: Sequence[Finding] = ()
    """Why it could not be read."""
    foreign: bool = False
    """It was found in a folder, cannot be read, and does not look as if it had to do with Kargo."""


def load(names: Iterable[str]) -> Iterator[File]:
    """The files of *names*, in their order and each once; a folder stands for those below it. Blocks."""
    seen: set[str] = set()
    for name in names:
        if name == STDIN:
            if STDIN not in seen:
                file = _parsed(STDIN_NAME, sys.stdin.buffer.read(MOST_BYTES + 1), given=True)
                empty = not file.documents and not file.findings
                yield (
                    replace(file, findings=[Finding(Place(STDIN_NAME), Level.ERROR, "", EMPTY_INPUT())])
                    if empty
                    else file
                )
            seen.add(STDIN)
        elif Path(name).is_dir():
            closed: list[OSError] = []
            below = list(_below(name, closed.append))
            for error in closed:
                yield _unread(str(error.filename), error)
            if not below and not closed:
                yield File(name, findings=[Finding(Place(name), Level.ERROR, "", NO_FILES())])
            for path in below:
                yield from _once(path, seen, given=False)
        else:
            yield from _once(name, seen, given=True)


def _once(name: str, seen: set[str], *, given: bool) -> Iterator[File]:
    try:
        real = os.path.realpath(name)
        if real in seen:
            return
        seen.add(real)
        with Path(name).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        yield _unread(name, error)
        return
    yield _parsed(name, content, given=given)


def _unread(name: str, error: OSError | ValueError) -> File:
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return File(name, findings=[Finding(Place(name), Level.ERROR, "", NO_SUCH_FILE(why=why))])


def _below(folder: str, closed: Callable[[OSError], object]) -> Iterator[str]:
    """The files in *folder* and below; *closed* gets why a folder cannot be looked into."""
    for where, folders, files in os.walk(folder, onerror=closed):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = str(Path(where, name))
            if name.endswith(_SUFFIXES) and _is_regular(path):
                yield path


def _is_regular(path: str) -> bool:
    """Whether reading it ends; what cannot be looked at is told when it is opened."""
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:
        return True


def _parsed(name: str, content: bytes, *, given: bool) -> File:
    foreign = not given and GROUP.encode() not in content
    fault: Finding | None = None
    text = ""
    if len(content) > MOST_BYTES:
        fault = Finding(Place(name), Level.ERROR, "", FILE_TOO_LARGE(limit=MOST_BYTES))
    elif content[:2] in _UTF16:
        fault = Finding(Place(name, 1, 1), Level.ERROR, "", UTF16())
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            before = content[: error.start]
            column = len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
            place = Place(name, before.count(b"\n") + 1, column)
            fault = Finding(place, Level.ERROR, "", NOT_UTF8(byte=content[error.start]))
    if fault:
        return File(name, foreign=True) if foreign else File(name, findings=[fault])
    documents = list(read(text))
    if foreign and any(document.broken for document in documents):
        return File(name, [document for document in documents if not document.broken], foreign=True)
    return File(name, documents)
