"""Why a namespace is not reached, in one sentence."""

from __future__ import annotations

import os
import socket
import ssl

from bridge.remote.errors import NOT_REACHED, RemoteConnectionLost
from bridge.remote.proxy import shown


def not_reached(
    url: str,
    error: BaseException,
    *,
    retryable: bool | None = None,
    proxy: str | None = None,
) -> RemoteConnectionLost:
    """Return the error for a connection that was not made.

    Args:
        retryable: whether another attempt may succeed; never where a certificate is not trusted.
        proxy: the proxy through which it was tried.
    """
    fault = certificate_fault(error)
    if fault is not None:
        text = (
            f"The certificate of {url} is not trusted: {fault.verify_message}. Give its "
            "authority's certificate (--ca-file)."
        )
        return RemoteConnectionLost(NOT_REACHED, text, False)
    way = "" if proxy is None else f" through the proxy {shown(proxy)}"
    text = f"{url} does not answer{way}: {reason_of(error)}."
    return RemoteConnectionLost(NOT_REACHED, text, retryable)


def certificate_fault(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return the fault of a certificate behind an error; aiohttp wraps it."""
    while error is not None:
        found = getattr(error, "certificate_error", error)
        if isinstance(found, ssl.SSLCertVerificationError):
            return found
        error = error.__cause__
    return None


def reason_of(error: BaseException) -> str:
    """Return why a connection failed; asyncio has its own words for the system's errors."""
    status = getattr(error, "status", None)  # of aiohttp: a proxy's, or that of no WebSocket
    if isinstance(status, int):
        return f"{status} {getattr(error, 'message', '')}".rstrip()
    cause = getattr(error, "os_error", error)  # of aiohttp
    number = getattr(cause, "errno", None)
    if isinstance(cause, OSError) and not isinstance(cause, socket.gaierror | ssl.SSLError):
        return os.strerror(number) if number else str(cause) or type(cause).__name__
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
