"""The HTTP proxy through which a namespace is reached, as the environment names it."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from bridge.remote.errors import NOT_REACHED, RemoteRefused

_SCHEMES = {"wss": "https", "ws": "http"}
"""A WebSocket begins as a request of HTTP, so the proxy is the same."""


def proxy_of(url: str) -> str | None:
    """Return the URL of the proxy for a URL, of HTTP or of a WebSocket; `None` for none.

    `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` are read as other clients of HTTP read
    them, in either case. This machine itself is never reached through a proxy.

    Raises:
        RemoteRefused: the proxy is of another kind than HTTP; its password is not shown.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_this_machine(host) or proxy_bypass(host):
        return None
    proxies = getproxies()
    found = proxies.get(_SCHEMES.get(parts.scheme, parts.scheme)) or proxies.get("all")
    if not found:
        return None
    found = found if "://" in found else f"http://{found}"
    if urlsplit(found).scheme not in ("http", "https"):
        text = f"The proxy {shown(found)} of the environment is none of HTTP: it cannot be used."
        raise RemoteRefused(NOT_REACHED, text)
    return found


def is_this_machine(host: str) -> bool:
    """Whether a host is this machine by its name or address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def shown(proxy: str) -> str:
    """Return a proxy's URL for people, without user and password."""
    parts = urlsplit(proxy)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
