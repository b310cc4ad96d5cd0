"""TLS of a remote namespace: its certificate is always verified."""

from __future__ import annotations

import ssl

from bridge.remote.address import RemoteAddress
from bridge.remote.errors import NOT_REACHED, RemoteRefused


def context_of(address: RemoteAddress) -> ssl.SSLContext | None:
    """Return the context for connections to a namespace; `None` for plain ones.

    Trusted are the system's authorities (OpenSSL's `SSL_CERT_FILE`) and those of `ca_file`.

    Raises:
        RemoteRefused: `ca_file` cannot be read, or has no certificates.
    """
    if not address.tls:
        return None
    context = ssl.create_default_context()
    if address.ca_file is not None:
        try:
            context.load_verify_locations(cafile=address.ca_file)
        except OSError as error:  # ssl.SSLError is one
            text = f"The CA file {address.ca_file} cannot be read: {error}."
            raise RemoteRefused(NOT_REACHED, text) from error
    return context
