"""Makes the server's own CA and certificate: `python -m localkube.certificates HOME ADDRESS`.

TLS although it listens on loopback alone: kubectl sends no token over plain HTTP. A program of its own, because the
server needs the cryptography package once and should not carry it in memory for good.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME: Final = timedelta(days=3650)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    begin = datetime.now(UTC) - timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def make(home: Path, address: str) -> None:
    """Write ca.crt and server.pem (key and certificate, 0600) for an address. The CA's key is not kept."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_public = ca_key.public_key()
    authority = (
        _builder("localkube CA", "localkube CA", ca_public)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.IPAddress(ipaddress.ip_address(address)), x509.DNSName("localhost")]
    certificate = (
        _builder("localkube", "localkube CA", key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_public), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (home / "ca.crt").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    descriptor = os.open(home / "server.pem.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(private + certificate.public_bytes(serialization.Encoding.PEM))
    (home / "server.pem.part").replace(home / "server.pem")


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2])
