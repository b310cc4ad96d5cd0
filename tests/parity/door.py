"""A port before a bridge that counts the connections that come in."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class Door:
    """Passes on what clients and a bridge say to each other.

    Attributes:
        port: where clients find it, on loopback.
        visits: connections that have come in so far.
    """

    def __init__(self) -> None:
        """Listen; nobody is let in before `lead_to`."""
        self.visits = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # a close alone does not end an accept
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def lead_to(self, port: int) -> None:
        """Let clients in to a port of loopback."""
        threading.Thread(target=self._accept, args=(port,), daemon=True).start()

    def _accept(self, port: int) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.visits += 1
                try:
                    bridge = socket.create_connection(("127.0.0.1", port))
                except OSError:
                    client.close()
                    continue
                for each in (client, bridge):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for ends in ((client, bridge), (bridge, client)):
                    threading.Thread(target=_pass_on, args=ends, daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(65_536):
            target.sendall(chunk)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
