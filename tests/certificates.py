"""Certificates for tests, made on the spot: an authority, and what it signs."""

from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

# TLS compares with today's date.
FROM = datetime(2020, 1, 1, tzinfo=UTC)
LASTING = timedelta(days=365 * 100)


class Authority:
    """Signs certificates, and writes its own to ``ca``."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = generate_private_key(SECP256R1())
        self._name = _name(name)
        own = _builder(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(own.sign(self._key, SHA256()).public_bytes(Encoding.PEM))

    def issue(self, host: str) -> tuple[Path, Path]:
        """Return the files of a certificate for a host, and of its key."""
        key = generate_private_key(SECP256R1())
        names = x509.SubjectAlternativeName([_general(host)])
        cert = _builder(_name(host), self._name, key).add_extension(names, critical=False)
        cert_file, key_file = self._folder / f"{host}.pem", self._folder / f"{host}.key"
        cert_file.write_bytes(cert.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        key_file.touch(0o600)
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return cert_file, key_file


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(FROM)
        .not_valid_after(FROM + LASTING)
    )


@cache
def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
