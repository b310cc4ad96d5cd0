"""A TCP balancer before several bridges: each connection goes to the next one that listens."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Balancer:
    """Passes bytes on, and ends one side when the other has ended.

    Args:
        ends_at: says of what a client has written that all connections end before it is passed on;
            asked until it has said so.

    Attributes:
        port: where it listens.
        ports: where the bridges do; who comes while there is none is hung up on.
        visits: connections that have come in so far.
        cuts: how often all were ended.
    """

    def __init__(self, *ports: int, ends_at: Callable[[bytes], bool] | None = None) -> None:
        self.ports = ports
        self.visits = 0
        self.cuts = 0
        self._ends_at = ends_at
        self._turns = itertools.count()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def cut(self) -> None:
        """End all connections that there are; new ones are passed on."""
        self.cuts += 1
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.visits += 1
                bridge = self._connect()
                if bridge is None:
                    client.close()
                    continue
                self._sockets += [client, bridge]
                for each in (client, bridge):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for pair in ((client, bridge, True), (bridge, client, False)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _connect(self) -> socket.socket | None:
        first = next(self._turns)
        for turn in range(len(self.ports)):
            address = "127.0.0.1", self.ports[(first + turn) % len(self.ports)]
            with contextlib.suppress(OSError):
                return socket.create_connection(address)
        return None

    def _pass(self, source: socket.socket, target: socket.socket, is_of_client: bool) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(65_536):
                if is_of_client and self._ends_at is not None and self._ends_at(chunk):
                    self._ends_at = None
                    self.cut()
                    break
                target.sendall(chunk)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_WR if each is target else socket.SHUT_RD)
