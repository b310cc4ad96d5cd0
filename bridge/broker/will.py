"""What is to be published if this process is killed, in memory that the keeper shares.

Each of a connection's channels may leave one message. After a kill the keeper waits until RabbitMQ
has had time to apply all that was written to the connection, and has the messages published
(`executor`): so they say, to whom it concerns, that nothing of that was lost. A process that lives
withdraws them.
"""

from __future__ import annotations

import base64
import errno
import json
import os

from bridge.broker import keeping
from bridge.broker.endpoint import Endpoint


class Will:
    """The memory of one connection's messages.

    Args:
        endpoint: where they are to be published.

    Attributes:
        descriptor: names the memory to the keeper.

    Raises:
        OSError: the system has no memory, or no descriptor, to give; or the endpoint is too long.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._places = 0
        self._free: list[int] = []
        self.descriptor = os.memfd_create("busbridge-will")
        if self._put(endpoint.encode()) is None:
            self.close()
            raise OSError(errno.EMSGSIZE, "the endpoint is too long")

    @staticmethod
    def is_possible() -> bool:
        """Whether this operating system has what it takes."""
        return hasattr(os, "memfd_create")

    def put(self, exchange: str, routing_key: str, properties: bytes, body: bytes) -> int | None:
        """Have this published after a kill; returns its place, `None` when it is too long.

        Raises:
            OSError: the system has no memory to give.
        """
        contents = [base64.b64encode(each).decode() for each in (properties, body)]
        return self._put(json.dumps([exchange, routing_key, *contents]).encode())

    def _put(self, line: bytes) -> int | None:
        if len(line) > keeping.LINE_BYTES_MAX:
            return None
        place = self._free.pop() if self._free else self._places
        if place == self._places:
            os.ftruncate(self.descriptor, keeping.line_at(place + 1))
            self._places += 1
        at = keeping.line_at(place)
        length = keeping.LINE_LENGTH.pack(len(line))
        # A kill in between leaves nothing.
        os.pwrite(self.descriptor, line, at + len(length))
        os.pwrite(self.descriptor, length, at)
        return place

    def withdraw(self, place: int) -> None:
        """Have what was put at this place not be published."""
        os.pwrite(self.descriptor, keeping.LINE_LENGTH.pack(0), keeping.line_at(place))
        self._free.append(place)

    def close(self) -> None:
        """Free the memory; the keeper has its own view of it."""
        os.close(self.descriptor)


def decode(line: bytes) -> tuple[str, str, bytes, bytes]:
    """Return what was put: exchange, routing key, properties, body."""
    exchange, routing_key, properties, body = json.loads(line)
    return exchange, routing_key, base64.b64decode(properties), base64.b64decode(body)
