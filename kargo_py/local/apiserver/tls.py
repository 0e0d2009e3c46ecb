"""A certificate authority and a server certificate that live as long as the server does."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOCAL_NAMES = ("127.0.0.1", "::1", "localhost")

_EARLIER = timedelta(days=1)
"""A client whose clock is behind takes the certificate all the same."""
_VALID = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Credentials:
    """All are PEM. The authority's own key is gone: it signs once."""

    authority: bytes
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Credentials(…)"


def issue(names: Sequence[str] = LOCAL_NAMES, *, now: datetime | None = None) -> Credentials:
    """Make an authority and with it a certificate for *names*: host names and addresses."""
    begin = (now or datetime.now(UTC)) - _EARLIER
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("kargo-py embedded API server CA")
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key(), ca_key.public_key(), begin)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    certificate = (
        _builder(_name("kargo-py embedded API server"), ca_name, key.public_key(), ca_key.public_key(), begin)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([*map(_alternative, names)]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return Credentials(
        ca.public_bytes(Encoding.PEM),
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """What a server needs to present *credentials*. Blocks: the library takes the key from a file only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    with tempfile.TemporaryDirectory(prefix="kargo-py-tls-") as directory:  # 0700
        path = Path(directory) / "server.pem"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(credentials.key + credentials.certificate)
        context.load_cert_chain(path)
    return context


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    begin: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + _VALID)
        # With VERIFY_X509_STRICT, Python's default since 3.13, a certificate needs both identifiers.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
