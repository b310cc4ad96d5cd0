"""Reserving TCP ports on loopback for processes that are about to listen."""

from __future__ import annotations

import os
import socket
import sys
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Self


class Ports:
    """Free ports, reserved until `release` (on Linux; elsewhere they are only free at first).

    The kernel may give a free port away before its server listens: to another server, or to an
    outgoing connection, whose port comes from the same range. So on Linux a socket is bound to each
    port meanwhile. A server that sets SO_REUSEADDR, as servers do, can listen on the port all the
    same; until then, connections are refused.

    Attributes:
        numbers: the port numbers.
    """

    def __init__(self, count: int) -> None:
        """Reserve `count` ports, until `release` or the end of this object's life."""
        bound = [_bound() for _ in range(count)]
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


def _bound() -> socket.socket:
    each = socket.socket()
    each.bind(("127.0.0.1", 0))
    # After bind: set before it, the kernel may choose a port that is reserved already.
    each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return each


def _close(descriptors: Sequence[int]) -> None:
    for each in descriptors:
        os.close(each)
