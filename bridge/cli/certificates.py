"""The bridge's own certificate: a CA and a server certificate, made on first use.

`ca.pem` is the certificate that clients must trust. `ca.key` signs the next certificate;
`server.pem` is the bridge's certificate with its key. Both keys are readable by their owner alone,
and of the elliptic curve P-256, which all of Azure's SDKs accept.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAMES = ("localhost", "127.0.0.1", "::1")
"""The names in every certificate."""

CA_TIME = timedelta(days=3_650)

SERVER_TIME = timedelta(days=397)
"""The longest validity that browsers and systems with a limit accept."""

LEFT_MIN = timedelta(days=30)
"""A certificate with less time left is replaced when the bridge starts."""

_SKEW = timedelta(days=1)
"""Allowance for a client's clock that is behind."""


class CertificateError(Exception):
    """Error for an unusable file or name; the text names it and the remedy."""


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """A bridge's own certificate.

    Attributes:
        ca: the file of the CA certificate, for clients.
        server: the file of the bridge's certificate and key.
        names: host names and addresses in the certificate.
        until: the end of its validity.
    """

    ca: Path
    server: Path
    names: tuple[str, ...]
    until: datetime


def own_certificate(folder: Path, names: Sequence[str] = (), *, now: datetime) -> OwnCertificate:
    """Return a folder's certificate; a missing or soon expiring certificate is made anew.

    Args:
        names: host names and addresses for the certificate, besides `NAMES`.

    Raises:
        CertificateError: a file in the folder is damaged, or a name is invalid.
        OSError: the folder cannot be written.
    """
    wanted = [_alternative(name) for name in dict.fromkeys((*NAMES, *names))]
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        ca = _stored(folder / "ca.pem")
        server = _stored(folder / "server.pem")
        if ca is None or server is None or not _is_good(server, ca, wanted, now):
            ca, key = _ca_with_key(folder, ca, now)
            server = _issue(folder / "server.pem", wanted, ca, key, now)
    return OwnCertificate(
        ca=folder / "ca.pem",
        server=folder / "server.pem",
        names=tuple(str(each.value) for each in _names_of(server)),
        until=server.not_valid_after_utc,
    )


_NAME = r"[A-Za-z0-9._*-]+(:[0-9]{1,5})?"
"""A port is allowed too: the Go SDK looks for `host:port` when its connection string has a port."""


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not re.fullmatch(_NAME, name):
        raise CertificateError(f"{name!r} is no host name and no address.")
    return x509.DNSName(name)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from making certificates in a folder at the same time."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _stored(path: Path) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CertificateError(
            f"{path} is no certificate. Remove {path.parent} to have new ones made; "
            "clients then trust the new ca.pem."
        ) from error


def _stored_key(path: Path) -> ec.EllipticCurvePrivateKey | None:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _is_good(
    server: x509.Certificate,
    ca: x509.Certificate,
    wanted: Sequence[x509.GeneralName],
    now: datetime,
) -> bool:
    """Whether a certificate is of the CA, for all wanted names, and valid for long enough."""
    try:
        server.verify_directly_issued_by(ca)
        found = set(_names_of(server))
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    ends = min(server.not_valid_after_utc, ca.not_valid_after_utc)
    return found.issuperset(wanted) and ends - now > LEFT_MIN


def _names_of(server: x509.Certificate) -> x509.SubjectAlternativeName:
    return server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def _ca_with_key(
    folder: Path, ca: x509.Certificate | None, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the stored CA, or a new CA if the key is gone or the CA ends too soon."""
    key = _stored_key(folder / "ca.key")
    if (
        ca is not None
        and key is not None
        and ca.public_key() == key.public_key()
        and ca.not_valid_after_utc - now > SERVER_TIME
    ):
        return ca, key
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    name = _name(f"busbridge CA {serial:040x}"[:21])
    builder = (
        _builder(name, name, key, serial, now, now + CA_TIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_ca=True), critical=True)
    )
    ca = builder.sign(key, SHA256())
    _write(folder / "ca.key", _pem_of(key), 0o600)
    _write(folder / "ca.pem", ca.public_bytes(Encoding.PEM), 0o644)
    return ca, key


def _issue(
    path: Path,
    wanted: Sequence[x509.GeneralName],
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    now: datetime,
) -> x509.Certificate:
    """Make a certificate and its key; both are in the same file, so they always match."""
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + SERVER_TIME, ca.not_valid_after_utc)
    serial = x509.random_serial_number()
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    builder = (
        _builder(_name("busbridge"), ca.subject, key, serial, now, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(authority, critical=False)
        .add_extension(x509.SubjectAlternativeName(wanted), critical=False)
    )
    certificate = builder.sign(ca_key, SHA256())
    _write(path, certificate.public_bytes(Encoding.PEM) + _pem_of(key), 0o600)
    return certificate


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    serial: int,
    begins: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(begins - _SKEW)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_ca,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, text: bytes, mode: int) -> None:
    """Write a file whole or not at all; nobody else can read a key at any time."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    temporary.replace(path)
