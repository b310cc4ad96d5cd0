"""A batch of messages under the SDK's name, and the encoding of all sent messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from bridge.client.exceptions import MessageSizeExceededError
from bridge.client.messages import Sendable, ServiceBusMessage, encoded

BATCH_BYTES_MAX = 1024 * 1024
"""A batch's limit when none is given."""

_BATCH_ENVELOPE_BYTES = 40
_OVERHEAD_BYTES = 8


class ServiceBusMessageBatch:
    """Messages that are stored as a whole or not at all.

    Args:
        max_size_in_bytes: the limit of the messages' total size.
    """

    def __init__(self, max_size_in_bytes: int | None = None) -> None:
        self._max_bytes = max_size_in_bytes or BATCH_BYTES_MAX
        self._encoded: list[bytes] = []
        self._size_bytes = _BATCH_ENVELOPE_BYTES

    def __repr__(self) -> str:
        return (
            f"ServiceBusMessageBatch(max_size_in_bytes={self._max_bytes}, "
            f"message_count={len(self)})"
        )

    def __len__(self) -> int:
        return len(self._encoded)

    @property
    def message(self) -> Any:
        """Not supported: this library does not speak AMQP 1.0."""
        raise NotImplementedError("message is not supported by bridge.client.")

    @property
    def max_size_in_bytes(self) -> int:
        """The limit of the batch's size."""
        return self._max_bytes

    @property
    def size_in_bytes(self) -> int:
        """The batch's size so far."""
        return self._size_bytes

    def add_message(self, message: ServiceBusMessage | Mapping[str, Any]) -> None:
        """Add a message.

        Raises:
            MessageSizeExceededError: the message does not fit; the batch stays as it was.
        """
        raw = encoded(message)
        size_bytes = self._size_bytes + len(raw) + _OVERHEAD_BYTES
        if size_bytes > self._max_bytes:
            raise MessageSizeExceededError(
                f"ServiceBusMessageBatch has reached its size limit: {self._max_bytes}"
            )
        self._size_bytes = size_bytes
        self._encoded.append(raw)


def all_encoded(
    message: Sendable | ServiceBusMessageBatch | Iterable[Sendable], due: datetime | None = None
) -> list[bytes]:
    """Return the sections of all messages.

    Args:
        due: the scheduled enqueue time, set in each message.
    """
    if isinstance(message, ServiceBusMessageBatch):
        return message._encoded
    if isinstance(message, ServiceBusMessage | Mapping):
        return [_encoded(message, due)]
    if not isinstance(message, Iterable):
        raise TypeError(f"A {type(message).__name__} cannot be sent.")
    return [_encoded(each, due) for each in message]


def _encoded(message: Sendable, due: datetime | None) -> bytes:
    if due is not None and isinstance(message, Mapping):
        message = ServiceBusMessage(**message)
    if due is not None and isinstance(message, ServiceBusMessage):
        message.scheduled_enqueue_time_utc = due
    return encoded(message)
