"""A socket that listens on a port."""

from __future__ import annotations

import socket


def bound(host: str, number: int) -> socket.socket:
    """Return a socket that listens on a port of an address; raises OSError.

    It is made for TCP by name: asyncio sets no TCP_NODELAY on one of `socket.create_server`, and
    each answer in two pieces would take 40 ms.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(512)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener
