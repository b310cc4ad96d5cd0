"""The bridge's TLS setup: a given certificate, its own certificate, or none."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bridge.cli.certificates import CertificateError, OwnCertificate, own_certificate
from bridge.cli.settings import Settings, SettingsError

_log = logging.getLogger("busbridge.serve")


@dataclass(frozen=True, slots=True)
class Certified:
    """TLS setup of a bridge.

    Attributes:
        tls: `None` without a certificate: then TLS is not served.
        ca: the CA certificate for clients, if the bridge made its certificate.
    """

    tls: ssl.SSLContext | None
    ca: Path | None = None

    @property
    def said(self) -> str:
        """The part of the `ready` line about the CA certificate."""
        return "" if self.ca is None else f" ca={self.ca}"


def certify(settings: Settings) -> Certified:
    """Return the TLS setup.

    If the folder cannot be written, the bridge runs without TLS, unless TLS was asked for.

    Raises:
        SettingsError: the bridge's own certificate cannot be made, or used.
    """
    if not settings.has_own_certificate:
        return Certified(settings.tls)
    try:
        made = own(settings)
    except SettingsError as error:
        if settings.tls_names or settings.tls_ports:
            raise
        _log.warning("tls.none reason=%r", str(error))
        return Certified(None)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.server)
    return Certified(context, made.ca)


def own(settings: Settings) -> OwnCertificate:
    """Return the bridge's own certificate, made if need be.

    Raises:
        SettingsError: the certificate cannot be made, or used.
    """
    folder = settings.tls_folder.resolve()
    try:
        return own_certificate(folder, settings.certificate_names, now=datetime.now(UTC))
    except CertificateError as error:
        raise SettingsError(str(error)) from error
    except OSError as error:
        raise SettingsError(
            f"No certificate can be kept in {folder}: {error.strerror}. Give another --data-dir, "
            "or --tls-cert."
        ) from error
