"""Input of a client connection, buffered until the connection's turn."""

from __future__ import annotations

import asyncio

from bridge.gateway.client.admission import Visit
from bridge.gateway.client.connections import Connections
from bridge.gateway.client.timers import Timers


class ConnectionReader(asyncio.Protocol):
    """A client connection whose input is processed in the connection's turn.

    While input is left, or the client is held, nothing more is read from the socket.

    Args:
        connections: all connections of the gateway.
    """

    def __init__(self, connections: Connections, visit: Visit) -> None:
        self._connections = connections
        self._visit = visit
        self._loop = asyncio.get_running_loop()
        self._timers = Timers(self._loop)
        self._transport: asyncio.Transport | None = None
        self._input = b""
        self._input_at = 0
        self._is_queued = False
        self._is_reading_paused = False

    @property
    def _is_held(self) -> bool:
        """Whether the client's input is not processed for now."""
        raise NotImplementedError

    def advance(self, now_s: float, until_s: float) -> bool:
        """Process input until a time of the loop's clock.

        Returns whether no input is left that may be processed.
        """
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        """Take bytes, and process them now or in this connection's turn."""
        if self._input_at < len(self._input):
            data = self._input[self._input_at :] + data
        self._input, self._input_at = data, 0
        self._go_on()

    def _go_on(self) -> None:
        """Process the input as soon as other connections leave time."""
        if not self._is_queued and self._input_at < len(self._input):
            all_of, is_unauthenticated = self._connections, self._visit.is_unauthenticated
            turns = all_of.turns_of_unauthenticated if is_unauthenticated else all_of.turns
            self._is_queued = not turns.take(self)
        self._pace()

    def _end_advance(self) -> bool:
        """End `advance`, and return its result."""
        if self._input_at >= len(self._input):
            self._forget_input()
        elif not self._is_held:
            return False
        if self._is_queued:
            self._is_queued = False
            self._pace()
        return True

    def _forget_input(self) -> None:
        self._input, self._input_at = b"", 0

    def _pace(self) -> None:
        """Pause reading while input is left or the client is held, else resume."""
        is_paused = self._input_at < len(self._input) or self._is_held
        transport = self._transport
        if is_paused == self._is_reading_paused or transport is None or transport.is_closing():
            return
        self._is_reading_paused = is_paused
        if is_paused:
            transport.pause_reading()
        else:
            transport.resume_reading()
