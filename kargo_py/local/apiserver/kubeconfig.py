"""A kubeconfig for the embedded server: one cluster, one user, one context, nothing in other files."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
from pathlib import Path

from kargo_py.messages import Shown, message

NOT_OURS = message(
    "{path} is not a kubeconfig that kargo-py wrote, so it is left as it is; name another file, or remove this one",
    do="Name another file with `--write-kubeconfig`: a kubeconfig with other clusters is never changed.",
    shown=Shown.COMMAND_LINE,
)
UNWRITABLE = message(
    "cannot write the kubeconfig {path}: {why}",
    do="Correct the path or the rights of the folder, or name another file with `--write-kubeconfig`.",
    shown=Shown.COMMAND_LINE,
)

NAME = "kargo-py"
"""Of the cluster, the user and the context."""

_MARK = b"# Written by kargo-py for its embedded API server; it overwrites this file when told to write it again.\n"

# Written by hand: to import a YAML library would be a tenth of the server's start.
_TEMPLATE = """\
apiVersion: v1
kind: Config
clusters:
- name: {name}
  cluster:
    server: {url}{trusted}
users:
- name: {name}
  user: {credentials}
contexts:
- name: {name}
  context: {{cluster: {name}, user: {name}}}
current-context: {name}
"""


class KubeconfigError(Exception):
    """The file cannot be written; the text says why and what to do."""


def render(url: str, *, token: str | None, authority: bytes | None) -> bytes:
    """The file. *authority* is the CA's PEM; None for plain HTTP. *token* is None where none is asked for."""
    trusted = "" if authority is None else f"\n    certificate-authority-data: {base64.b64encode(authority).decode()}"
    credentials = {} if token is None else {"token": token}
    return (
        _MARK
        + _TEMPLATE.format(
            name=NAME, url=json.dumps(url), trusted=trusted, credentials=json.dumps(credentials)
        ).encode()
    )


def check(path: Path) -> None:
    """Raise KubeconfigError if *path* is there and not ours. Blocks."""
    try:
        if path.exists() and (not path.is_file() or not _is_ours(path)):
            raise KubeconfigError(NOT_OURS(path=path))
    except OSError as error:
        raise KubeconfigError(UNWRITABLE(path=path, why=_why(error))) from error


def write(path: Path, content: bytes) -> None:
    """Put *content* at *path*, whole or not at all, readable by its owner only. Blocks.

    Raises:
        KubeconfigError: something that is not ours stands there, or it cannot be written.
    """
    check(path)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise KubeconfigError(UNWRITABLE(path=path, why=_why(error))) from error


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_MARK)) == _MARK


def _why(error: OSError) -> str:
    return error.strerror or str(error)
