"""TCP ports on loopback for processes that are about to listen on them."""

from __future__ import annotations

import os
import socket
import sys
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Self


class Ports:
    """Free ports that nobody else is given until they are released.

    A port that is only known to be free may be gone before its process listens: to another who asks
    for one, or to a connection, which the kernel gives a port of the same range. So on Linux these
    are bound meanwhile; a server that sets SO_REUSEADDR, as servers do, can listen there all the
    same, and until it does, connections are refused. Elsewhere they are just free.

    Attributes:
        numbers: the ports.
    """

    def __init__(self, count: int) -> None:
        """Reserve so many ports, until `release` or as long as this object lives."""
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
    # Afterwards: with it from the start the kernel may give a port that is reserved already.
    each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return each


def _close(descriptors: Sequence[int]) -> None:
    for each in descriptors:
        os.close(each)
