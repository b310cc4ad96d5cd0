"""Reserving TCP ports on loopback for processes that are about to listen."""

from __future__ import annotations

import errno
import os
import random
import socket
import sys
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Self

LASTING = range(20_000, 30_000)
"""Ports to choose from for a server that keeps its port: no system gives these to outgoing
connections by default, so that they are free the next time, too."""

_LASTING_TRIES = 200


class PortTaken(OSError):
    """A port that was asked for is in use.

    Attributes:
        port: its number.
    """

    def __init__(self, port: int) -> None:
        super().__init__(errno.EADDRINUSE, f"port {port} is taken")
        self.port = port


class Ports:
    """Ports, reserved until `release` (on Linux; elsewhere they are only free at first).

    The kernel may give a free port away before its server listens: to another server, or to an
    outgoing connection, whose port comes from the same range. So on Linux a socket is bound to each
    port meanwhile. A server that sets SO_REUSEADDR, as servers do, can listen on the port all the
    same; until then, connections are refused.

    Attributes:
        numbers: the port numbers.
    """

    def __init__(self, count: int, *, asked_for: Sequence[int] = ()) -> None:
        """Reserve `count` ports, until `release` or the end of this object's life.

        Args:
            count: the number of ports.
            asked_for: the first of them, 0 for any free one.

        Raises:
            PortTaken: somebody uses one that was asked for.
        """
        wanted = (*asked_for, *(0,) * (count - len(asked_for)))
        bound: list[socket.socket] = []
        try:
            for number in wanted:
                bound.append(_asked_for(number) if number else _free())
        except OSError:
            for each in bound:
                each.close()
            raise
        self.numbers: tuple[int, ...] = tuple(each.getsockname()[1] for each in bound)
        self.release = weakref.finalize(self, _close, [each.detach() for each in bound])
        if sys.platform != "linux":
            self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def lasting_ports(count: int) -> tuple[int, ...]:
    """Return ports of `LASTING` that are free now, at random; any free ones if all are taken."""
    chosen: list[int] = []
    for number in random.sample(LASTING, _LASTING_TRIES):
        if len(chosen) < count:
            try:
                _asked_for(number).close()
            except OSError:
                continue
            chosen.append(number)
    if len(chosen) < count:
        with Ports(count) as ports:
            return ports.numbers
    return tuple(chosen)


def _free() -> socket.socket:
    each = socket.socket()
    each.bind(("127.0.0.1", 0))
    # After bind: set before it, the kernel may choose a port that is reserved already.
    each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return each


def _asked_for(number: int) -> socket.socket:
    each = socket.socket()
    # Before bind: what has just ended leaves connections behind, and others may reserve it, too.
    each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        each.bind(("127.0.0.1", number))
    except OSError as error:
        each.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(number) from error
        raise
    return each


def _close(descriptors: Sequence[int]) -> None:
    for each in descriptors:
        os.close(each)
