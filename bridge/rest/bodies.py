"""Bodies of requests, read within the entity's limit and a limit for all of them together."""

from __future__ import annotations

from types import TracebackType

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from bridge.engine import texts
from bridge.model.errors import ArgumentError, MessageSizeExceeded, ServerBusy

BODIES_BYTES_MAX = 268_435_456
"""Bytes of all bodies that are being read or stored; AMQP's unconfirmed messages have as many."""


class Bodies:
    """The count of all bodies' bytes."""

    def __init__(self) -> None:
        self.total_bytes = 0


class Body:
    """The body of one request: counted from its first byte until the message is stored."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._bytes = 0

    def __enter__(self) -> Body:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bodies.total_bytes -= self._bytes

    async def read(self, request: web.Request, entity: str, limit_bytes: int) -> bytes:
        """Return a request's body.

        Raises:
            MessageSizeExceeded: it has more bytes than the limit.
            ServerBusy: all bodies together have too many.
            ArgumentError: its rest did not come, or is malformed.
        """
        length = request.content_length
        if length is not None and length > limit_bytes:
            raise MessageSizeExceeded(texts.too_large(entity, length, limit_bytes))
        parts = []
        try:
            async for part in request.content.iter_any():
                self._bytes += len(part)
                self._bodies.total_bytes += len(part)
                if self._bytes > limit_bytes:
                    raise MessageSizeExceeded(texts.too_large(entity, self._bytes, limit_bytes))
                if self._bodies.total_bytes > BODIES_BYTES_MAX:
                    raise ServerBusy("Too many messages are being sent at a time; try again.")
                parts.append(part)
        except (ConnectionError, web.RequestPayloadError, HttpProcessingError):
            raise ArgumentError("The rest of the request did not come, or is malformed.") from None
        return b"".join(parts)
