"""The certificates that the server makes for itself."""

from __future__ import annotations

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from kargo_py.local.apiserver import tls


def handshake(server: ssl.SSLContext, authority: bytes, name: str) -> dict[str, object]:
    """Let a strict client and the server shake hands in memory; what the client knows of the server then."""
    client = ssl.create_default_context(cadata=authority.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(back, there, server_hostname=name)
    theirs = server.wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return dict(ours.getpeercert() or {})


@pytest.mark.parametrize("name", ["127.0.0.1", "::1", "localhost"])
def test_strict_client(name: str) -> None:
    """A client that looks at everything takes the certificate, by each name of this machine."""
    credentials = tls.issue()
    assert handshake(tls.server_context(credentials), credentials.authority, name)


def test_other_name() -> None:
    """By another name it is refused; a name or address that is asked for is in it."""
    credentials = tls.issue()
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(tls.server_context(credentials), credentials.authority, "192.0.2.1")
    credentials = tls.issue(["192.0.2.1", "cluster.example"])
    for name in ("192.0.2.1", "cluster.example"):
        assert handshake(tls.server_context(credentials), credentials.authority, name)


def test_other_authority() -> None:
    """Each server has its own authority: no client of another one is deceived."""
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        handshake(tls.server_context(tls.issue()), tls.issue().authority, "localhost")


def test_certificate() -> None:
    """Elliptic curves, a year, a clock that is a little behind; the key in no text of the object."""
    now = datetime(2026, 11, 30, tzinfo=UTC)
    credentials = tls.issue(now=now)
    authority, certificate = (
        x509.load_pem_x509_certificate(pem) for pem in (credentials.authority, credentials.certificate)
    )

    assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)
    assert certificate.not_valid_before_utc == authority.not_valid_before_utc == now - timedelta(days=1)
    assert certificate.not_valid_after_utc == now + timedelta(days=364)
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    certificate.verify_directly_issued_by(authority)
    assert "PRIVATE" not in repr(credentials)


def test_no_file_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The key is in a file only while the library reads it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tls.server_context(tls.issue())
    assert [*tmp_path.iterdir()] == []
