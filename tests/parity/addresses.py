"""The names and keys under which Azure's tests find the bridge, and how they are resolved.

The tests connect to `<name>.servicebus.windows.net` at the ports that the SDK knows, in TLS. Here
that one name leads to the bridge, and no other name of Azure's leads anywhere.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SUFFIX = ".servicebus.windows.net"
NAMESPACE = "busbridge-parity"
HOST = NAMESPACE + SUFFIX
LOCAL = "localhost"
RULE = "RootManageSharedAccessKey"
KEYS = {
    RULE: ("Manage", "Send", "Listen"),
    "no-manage": ("Send", "Listen"),
    "listen": ("Listen",),
    "send": ("Send",),
}
"""Rules of the namespace: their rights. A rule's key is its name."""


@dataclass
class Lookups:
    """How often this process has looked for the bridge."""

    count: int = 0


lookups = Lookups()


def rules() -> dict[str, list[dict[str, object]]]:
    """Return what `--auth` is given."""
    return {
        "rules": [
            {"name": name, "primaryKey": name, "rights": list(rights)}
            for name, rights in KEYS.items()
        ]
    }


def connection_string(name: str = RULE, key: str | None = None) -> str:
    """Return the connection string of a rule; a namespace rule's key is its name."""
    return f"Endpoint=sb://{HOST}/;SharedAccessKeyName={name};SharedAccessKey={key or name}"


def resolve_to(port: int) -> None:
    """Let this process find the bridge at a port of loopback, and nothing else of Azure's."""
    socket.getaddrinfo = _resolver(socket.getaddrinfo, port)


def _resolver(getaddrinfo: Callable[..., Any], port: int) -> Callable[..., Any]:
    def resolve(host: Any, wanted: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if not isinstance(name, str) or not name.endswith(".windows.net"):
            return getaddrinfo(host, wanted, *args, **kwargs)
        if name != HOST:
            raise socket.gaierror(socket.EAI_NONAME, f"{name} is not resolved")
        lookups.count += 1
        return getaddrinfo("127.0.0.1", port, *args, **kwargs)

    return resolve
