"""The kubeconfig that the server writes."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
import yaml

from kargo_py.local.apiserver import kubeconfig
from kargo_py.local.apiserver.kubeconfig import KubeconfigError

CONTENT = kubeconfig.render("https://127.0.0.1:1", token="secret", authority=b"PEM")


def test_content() -> None:
    """One context that needs no other file."""
    document = yaml.safe_load(CONTENT)
    assert document["current-context"] == document["contexts"][0]["name"]
    assert document["contexts"][0]["context"] == {"cluster": "kargo-py", "user": "kargo-py"}
    assert document["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": base64.b64encode(b"PEM").decode(),
    }
    assert document["users"][0]["user"] == {"token": "secret"}


def test_plain_http() -> None:
    """Without TLS there is neither a CA nor a token."""
    document = yaml.safe_load(kubeconfig.render("http://127.0.0.1:1", token=None, authority=None))
    assert document["clusters"][0]["cluster"] == {"server": "http://127.0.0.1:1"}
    assert document["users"][0]["user"] == {}


def test_write(tmp_path: Path) -> None:
    """Folders are made, and only the owner reads the token, whatever the umask; ours is overwritten."""
    path = tmp_path / "a" / "b" / "config"
    before = os.umask(0)
    try:
        for content in (CONTENT, CONTENT.replace(b"secret", b"other")):
            kubeconfig.write(path, content)
            assert path.read_bytes() == content
            assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize("content", [b"", b"apiVersion: v1\nkind: Config\n", b"\xff\x00"])
def test_not_ours(tmp_path: Path, content: bytes) -> None:
    """Somebody else's file is left as it is, and the text says what to do."""
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(KubeconfigError, match=f"{path} is not a kubeconfig that kargo-py wrote.*name another file"):
        kubeconfig.write(path, CONTENT)
    assert path.read_bytes() == content


def test_no_file(tmp_path: Path) -> None:
    """A folder is no kubeconfig of ours either."""
    with pytest.raises(KubeconfigError, match="is not a kubeconfig"):
        kubeconfig.write(tmp_path, CONTENT)


def test_unwritable(tmp_path: Path) -> None:
    """Where no folder can be, the text has the path and the reason."""
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "config"
    with pytest.raises(KubeconfigError, match=f"cannot write the kubeconfig {path}: "):
        kubeconfig.write(path, CONTENT)


def test_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it cannot be put in place, the old one is still whole, and nothing is left beside it."""
    path = tmp_path / "config"
    kubeconfig.write(path, CONTENT)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(KubeconfigError, match="No space left on device"):
        kubeconfig.write(path, b"other")
    assert path.read_bytes() == CONTENT
    assert [*tmp_path.iterdir()] == [path]
