"""What has come to a migration's source behind its copy, and what of it the target has, too.

A scheduled message that becomes due before it is cancelled at the source is there under a new
number, and at the target, which is held, under its old one. A topic's is at its subscriptions then,
where a rule may have changed properties, and what forwards has sent it on: so what tells it is its
body and its MessageId.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress

from bridge.operations.migration.copy_effects import DIGEST_BYTES
from bridge.operations.migration.verification import compared_values
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.errors import DecodeError


class ArrivedMessages:
    """Messages of the source that no run has copied, beside what is scheduled at the target."""

    def __init__(self) -> None:
        self._arrived: dict[bytes, list[tuple[str, int]]] = {}
        self._scheduled: dict[bytes, tuple[int, str, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._arrived)

    def add(self, path: str, message: RemoteMessage) -> None:
        """Note a message of the source that came behind the copy."""
        self._arrived.setdefault(_content(message), []).append((path, _number(message)))

    def meet(self, path: str, message: RemoteMessage) -> None:
        """Note a message that is scheduled at the target; of equal ones that which is due first."""
        content = _content(message)
        if content in self._arrived:
            found = (message.scheduled_enqueue_time_ms or 0, path, _number(message))
            self._scheduled[content] = min(found, self._scheduled.get(content, found))

    @property
    def twice(self) -> list[str]:
        """A sentence for each message of the source that the target has as scheduled."""
        return [
            f"{path}: message {number} has come to the source, and the target has the same one as "
            f"{self._scheduled[content][2]} of {self._scheduled[content][1]}, scheduled: it was "
            "due at the source before it was cancelled there."
            for content, arrived in self._arrived.items()
            if content in self._scheduled
            for path, number in arrived
        ]

    @property
    def others(self) -> list[str]:
        """A sentence for each message of the source that the target has not."""
        return [
            f"{path}: message {number} has come to the source behind the copy, and stays there."
            for content, arrived in self._arrived.items()
            if content not in self._scheduled
            for path, number in arrived
        ]


def _content(message: RemoteMessage) -> bytes:
    digest = hashlib.blake2b(compared_values(message)["body"], digest_size=DIGEST_BYTES)
    with suppress(DecodeError):
        digest.update(repr(message.message_id).encode())
    return digest.digest()


def _number(message: RemoteMessage) -> int:
    with suppress(DecodeError):
        return message.sequence_number or 0
    return 0
