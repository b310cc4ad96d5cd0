"""Received, deferred or peeked messages, under the SDK's names."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from bridge.client.constants import AmqpMessageBodyType, ServiceBusMessageState
from bridge.client.encoding import PARTITION_KEY, SCHEDULED_TIME, Decoded, decode
from bridge.client.messages import ServiceBusMessage, instant
from bridge.message.received import Received
from bridge.wire import headers
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.outward import message_from_record

_BODY_TYPES = {
    part.DATA: AmqpMessageBodyType.DATA,
    part.AMQP_SEQUENCE: AmqpMessageBodyType.SEQUENCE,
    part.AMQP_VALUE: AmqpMessageBodyType.VALUE,
}

_TTL_MAX_MS = timedelta.max // timedelta(milliseconds=1)


class ServiceBusReceivedMessage(ServiceBusMessage):
    """A received message; made by receivers only.

    The sections are read at the first access to an attribute that only they hold.
    """

    def __init__(self, received: Received, *, is_peeked: bool = False) -> None:
        self._received = received
        self._decoded: Decoded | None = None
        self._is_peeked = is_peeked
        self._until_ms = received.locked_until_ms
        self._is_settled = False
        self._is_loaded = False
        self.auto_renew_error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        """Read the sections at the first access to an attribute of theirs."""
        if name.startswith("__") or self.__dict__.get("_is_loaded", True):
            raise AttributeError(f"A ServiceBusReceivedMessage has no {name}.")
        self._load()
        return getattr(self, name)

    def _load(self) -> None:
        self._is_loaded = True
        found = self._read()
        items = [*found.properties, *[None] * 13]
        texts = [None if each is None else str(each) for each in items]
        due_ms = found.annotations.get(SCHEDULED_TIME)
        key = found.annotations.get(PARTITION_KEY)
        for name, value in {
            "_message_id": texts[0],
            "to": texts[2],
            "subject": texts[3],
            "reply_to": texts[4],
            "correlation_id": texts[5],
            "content_type": texts[6],
            "_session_id": texts[10],
            "_reply_to_session_id": texts[12],
            "_partition_key": None if key is None else str(key),
            "scheduled_enqueue_time_utc": None if due_ms is None else instant(due_ms),
            "application_properties": found.application_properties,
        }.items():
            self.__dict__.setdefault(name, value)

    def __str__(self) -> str:
        found = self._read()
        if found.body_code == part.DATA:
            return b"".join(found.bodies).decode()
        return str(self.body)

    @property
    def body(self) -> Any:
        """The body: of data an iterable of bytes, of a sequence a list, else the value."""
        found = self._read()
        if found.body_code == part.AMQP_VALUE:
            return found.bodies[0]
        return iter(found.bodies)

    @property
    def body_type(self) -> AmqpMessageBodyType:
        """The body's form."""
        return _BODY_TYPES[self._read().body_code]

    @property
    def sequence_number(self) -> int | None:
        """The message's number in the entity."""
        return self._received.sequence_number

    @property
    def enqueued_sequence_number(self) -> int | None:
        """The topic's number of a subscription's message."""
        return self._read().annotations.get("x-opt-enqueue-sequence-number")

    @property
    def enqueued_time_utc(self) -> datetime | None:
        """When the message was enqueued."""
        return instant(self._received.enqueued_ms) if self._received.enqueued_ms else None

    @property
    def delivery_count(self) -> int | None:
        """Failed deliveries before this one."""
        return self._received.delivery_count

    @property
    def expires_at_utc(self) -> datetime | None:
        """When the message expires, or `None`."""
        enqueued_ms, ttl_ms = self._received.enqueued_ms, self._received.time_to_live_ms
        return instant(enqueued_ms + ttl_ms) if enqueued_ms and ttl_ms else None

    @property
    def state(self) -> ServiceBusMessageState:
        """Active, deferred or scheduled."""
        return ServiceBusMessageState(self._received.state)

    @property
    def lock_token(self) -> uuid.UUID | None:
        """The lock's token; `None` without a lock."""
        return None if self._is_settled else self._received.lock_token

    @property
    def locked_until_utc(self) -> datetime | None:
        """The end of the lock."""
        if self._is_settled or self._until_ms is None:
            return None
        return instant(self._until_ms)

    @property
    def _lock_expired(self) -> bool:
        until_ms = None if self._is_settled else self._until_ms
        return until_ms is not None and until_ms <= time.time_ns() // 1_000_000

    @property
    def dead_letter_reason(self) -> str | None:
        """Why the message was dead-lettered."""
        return self._text(headers.DEAD_LETTER_REASON)

    @property
    def dead_letter_error_description(self) -> str | None:
        """The description given with the reason."""
        return self._text(headers.DEAD_LETTER_ERROR_DESCRIPTION)

    @property
    def dead_letter_source(self) -> str | None:
        """The entity that dead-lettered the message, if another one."""
        found = self._read().annotations.get("x-opt-deadletter-source")
        return None if found is None else str(found)

    @property
    def time_to_live(self) -> timedelta | None:
        """How long the message lives, from its enqueued time on; `None` for ever."""
        ttl_ms = self._received.time_to_live_ms
        return timedelta(milliseconds=min(ttl_ms, _TTL_MAX_MS)) if ttl_ms else None

    @time_to_live.setter
    def time_to_live(self, value: timedelta | int | None) -> None:
        raise AttributeError("A received message keeps its time to live.")

    def _settled(self, found: object) -> None:
        self._is_settled = True

    def _renewed(self, until_ms: int) -> datetime:
        self._until_ms = until_ms
        return instant(until_ms)

    def _text(self, name: str) -> str | None:
        found = (self.application_properties or {}).get(name.encode())
        return found.decode(errors="replace") if isinstance(found, bytes) else None

    def _read(self) -> Decoded:
        if self._decoded is None:
            got = self._received
            self._decoded = decode(
                message_from_record(
                    got.record,
                    sequence_number=got.sequence_number,
                    enqueued_ms=got.enqueued_ms,
                    delivery_count=got.delivery_count,
                    locked_until_ms=got.locked_until_ms,
                    time_to_live_ms=got.time_to_live_ms,
                    state=got.state,
                    dead_letter=got.dead_letter,
                )
            )
        return self._decoded

    def _encoded(self) -> bytes:
        """Return the sections for sending a received message again."""
        if self.body_type is not AmqpMessageBodyType.DATA:
            raise TypeError("A received message can be sent again if its body is data.")
        self._bytes = b"".join(self.body)
        self._ttl_ms = self._received.time_to_live_ms
        self._creation_ms = int(time.time()) * 1000
        return super()._encoded()


def received_messages(
    received: Iterable[Received], *, is_peeked: bool = False
) -> Iterator[ServiceBusReceivedMessage]:
    """Yield messages in the application's form."""
    for each in received:
        yield ServiceBusReceivedMessage(each, is_peeked=is_peeked)
