"""A throw-away certificate authority for TLS tests."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Authority:
    """PEM of the authority's certificate, and the means to issue from it."""

    certificate: str
    issuer: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def issue(self, name: str, *, host: str = "", days_ago: float = 0) -> tuple[str, str]:
        """(certificate, key) in PEM, for a server on loopback, for one of that host name, or a client.

        It is valid for an hour from a moment that was ``days_ago``.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        known: x509.GeneralName = x509.DNSName(host) if host else x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        loopback = x509.SubjectAlternativeName([known])
        builder = _builder(name, key, days_ago).issuer_name(self.issuer.subject).add_extension(loopback, critical=False)
        return _pem(builder.sign(self.key, hashes.SHA256())), _key_pem(key)

    def server_context(self, folder: Path, *, ask_client: bool = False, host: str = "") -> ssl.SSLContext:
        cert, key = self.issue("server", host=host)
        (folder / "server.pem").write_text(cert + key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=self.certificate)
        context.load_cert_chain(folder / "server.pem")
        if ask_client:
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def authority() -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-ca")])
    builder = _builder("test-ca", key).issuer_name(name)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    issuer = builder.sign(key, hashes.SHA256())
    return Authority(certificate=_pem(issuer), issuer=issuer, key=key)


def _builder(name: str, key: ec.EllipticCurvePrivateKey, days_ago: float = 0) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC) - dt.timedelta(days=days_ago)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(hours=1))
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()
