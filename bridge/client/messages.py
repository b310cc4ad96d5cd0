"""Messages under the SDK's names: to be sent, received, and batches."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from bridge.client.constants import (
    AmqpMessageBodyType,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
)
from bridge.client.core.received import Received
from bridge.client.encoding import PARTITION_KEY, SCHEDULED_TIME, Decoded, Parts, decode, encode
from bridge.client.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageSizeExceededError,
)
from bridge.wire import headers
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.outward import message_from_record

KEY_CHARACTERS_MAX = 128
BATCH_BYTES_MAX = 1024 * 1024
"""A batch's limit when nobody says another."""

_BATCH_ENVELOPE_BYTES = 40
_OVERHEAD_BYTES = 8

_BODY_TYPES = {
    part.DATA: AmqpMessageBodyType.DATA,
    part.AMQP_SEQUENCE: AmqpMessageBodyType.SEQUENCE,
    part.AMQP_VALUE: AmqpMessageBodyType.VALUE,
}

PropertyValues = Mapping[str | bytes, Any]


class ServiceBusMessage:
    """A message to be sent.

    Args:
        body: text is sent as UTF-8.

    Raises:
        TypeError: the body is neither text nor bytes.
        ValueError: an id or a key is too long, or the partition key is not the session's id.
    """

    def __init__(
        self,
        body: str | bytes | None,
        *,
        application_properties: PropertyValues | None = None,
        session_id: str | None = None,
        message_id: str | None = None,
        scheduled_enqueue_time_utc: datetime | None = None,
        time_to_live: timedelta | None = None,
        content_type: str | None = None,
        correlation_id: str | None = None,
        subject: str | None = None,
        partition_key: str | None = None,
        to: str | None = None,
        reply_to: str | None = None,
        reply_to_session_id: str | None = None,
        **unsupported: Any,
    ) -> None:
        encoding = unsupported.pop("encoding", "UTF-8")
        if unsupported:
            raise TypeError(f"ServiceBusMessage takes no {', '.join(sorted(unsupported))}.")
        if not isinstance(body, str | bytes | None):
            raise TypeError("The body of a ServiceBusMessage is str, bytes or None.")
        self._bytes = body.encode(encoding) if isinstance(body, str) else body or b""
        self._encoding = encoding
        self._ttl_ms: int | None = None
        self._creation_ms: int | None = None
        self._session_id: str | None = None
        self._partition_key: str | None = None
        self._message_id: str | None = None
        self._reply_to_session_id: str | None = None
        self.application_properties = application_properties
        self.session_id = session_id
        self.message_id = message_id or str(uuid.uuid4())
        self.content_type = content_type
        self.correlation_id = correlation_id
        self.to = to
        self.reply_to = reply_to
        self.reply_to_session_id = reply_to_session_id
        self.subject = subject
        self.scheduled_enqueue_time_utc = scheduled_enqueue_time_utc
        self.time_to_live = time_to_live
        self.partition_key = partition_key

    def __str__(self) -> str:
        return self._bytes.decode(self._encoding)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(body={self}, message_id={self.message_id})"[:1024]

    @property
    def body(self) -> Any:
        """The body as an iterable of bytes."""
        return iter((self._bytes,))

    @property
    def body_type(self) -> AmqpMessageBodyType:
        """The body's form: always data, for what is to be sent."""
        return AmqpMessageBodyType.DATA

    @property
    def raw_amqp_message(self) -> Any:
        """Not here: this library does not speak AMQP 1.0."""
        raise NotImplementedError("raw_amqp_message is not supported by bridge.client.")

    @property
    def session_id(self) -> str | None:
        """The session that it belongs to."""
        return self._session_id

    @session_id.setter
    def session_id(self, value: str | None) -> None:
        self._session_id = _key("session_id", value)

    @property
    def message_id(self) -> str | None:
        """What tells it from others; one is made when none is given."""
        return self._message_id

    @message_id.setter
    def message_id(self, value: str | None) -> None:
        self._message_id = _key("message_id", value)

    @property
    def reply_to_session_id(self) -> str | None:
        """The session that answers are to have."""
        return self._reply_to_session_id

    @reply_to_session_id.setter
    def reply_to_session_id(self, value: str | None) -> None:
        self._reply_to_session_id = _key("reply_to_session_id", value)

    @property
    def partition_key(self) -> str | None:
        """What chooses the partition; with a session it must be the session's id."""
        return self._partition_key

    @partition_key.setter
    def partition_key(self, value: str | None) -> None:
        key = _key("partition_key", value)
        if key and self.session_id is not None and key != self.session_id:
            raise ValueError(
                f"partition_key:{key} cannot be set to a different value than "
                f"session_id:{self.session_id}"
            )
        self._partition_key = key

    @property
    def time_to_live(self) -> timedelta | None:
        """How long it lives, from its enqueued time on."""
        return timedelta(milliseconds=self._ttl_ms) if self._ttl_ms else None

    @time_to_live.setter
    def time_to_live(self, value: timedelta | int | None) -> None:
        if value is None:
            self._ttl_ms = self._creation_ms = None
            return
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        self._ttl_ms = int(seconds) * 1000
        self._creation_ms = int(time.time()) * 1000

    def _parts(self) -> Parts:
        due = self.scheduled_enqueue_time_utc
        return Parts(
            body=self._bytes,
            application_properties=self.application_properties,
            message_id=self.message_id,
            to=self.to,
            subject=self.subject,
            reply_to=self.reply_to,
            correlation_id=self.correlation_id,
            content_type=self.content_type,
            session_id=self.session_id,
            reply_to_session_id=self.reply_to_session_id,
            partition_key=self.partition_key,
            time_to_live_ms=self._ttl_ms,
            creation_ms=self._creation_ms,
            scheduled_ms=None if due is None else milliseconds(due),
        )


class ServiceBusReceivedMessage(ServiceBusMessage):
    """A message that was received; made by receivers only.

    Its sections are read when somebody asks for one that RabbitMQ does not show plainly.
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
        """Read the sections when somebody asks for what they hold."""
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
        """Its number in the entity."""
        return self._received.sequence_number

    @property
    def enqueued_sequence_number(self) -> int | None:
        """The topic's number of a subscription's message."""
        return self._read().annotations.get("x-opt-enqueue-sequence-number")

    @property
    def enqueued_time_utc(self) -> datetime | None:
        """When it was enqueued."""
        return instant(self._received.enqueued_ms) if self._received.enqueued_ms else None

    @property
    def delivery_count(self) -> int | None:
        """Failed deliveries before this one."""
        return self._received.delivery_count

    @property
    def expires_at_utc(self) -> datetime | None:
        """When it expires, or `None`."""
        if self.enqueued_time_utc and self.time_to_live:
            return self.enqueued_time_utc + self.time_to_live
        return None

    @property
    def state(self) -> ServiceBusMessageState:
        """Active, deferred or scheduled."""
        return ServiceBusMessageState(self._received.state)

    @property
    def lock_token(self) -> uuid.UUID | None:
        """What settles it; `None` when nothing can."""
        return None if self._is_settled else self._received.lock_token

    @property
    def locked_until_utc(self) -> datetime | None:
        """The end of its lock."""
        if self._is_settled or self._until_ms is None:
            return None
        return instant(self._until_ms)

    @property
    def _lock_expired(self) -> bool:
        until = self.locked_until_utc
        return until is not None and until <= datetime.now(UTC)

    @property
    def dead_letter_reason(self) -> str | None:
        """Why it is a dead letter."""
        return self._text(headers.DEAD_LETTER_REASON)

    @property
    def dead_letter_error_description(self) -> str | None:
        """What was said with that."""
        return self._text(headers.DEAD_LETTER_ERROR_DESCRIPTION)

    @property
    def dead_letter_source(self) -> str | None:
        """The entity where it was dead-lettered, if that is another one."""
        found = self._read().annotations.get("x-opt-deadletter-source")
        return None if found is None else str(found)

    @property
    def time_to_live(self) -> timedelta | None:
        """How long it lives, from its enqueued time on; `None` for ever."""
        ttl_ms = self._received.time_to_live_ms
        return timedelta(milliseconds=ttl_ms) if ttl_ms else None

    @time_to_live.setter
    def time_to_live(self, value: timedelta | int | None) -> None:
        raise AttributeError("A received message keeps its time to live.")

    def _text(self, name: str) -> str | None:
        found = (self.application_properties or {}).get(name.encode())
        return found.decode() if isinstance(found, bytes) else None

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

    def _parts(self) -> Parts:
        """Return what is sent when a received message is sent again."""
        if self.body_type is not AmqpMessageBodyType.DATA:
            raise TypeError("A received message can be sent again if its body is data.")
        self._bytes = b"".join(self.body)
        self._ttl_ms = self._received.time_to_live_ms
        self._creation_ms = int(time.time()) * 1000
        return super()._parts()


class ServiceBusMessageBatch:
    """Messages that are stored as a whole or not at all.

    Args:
        max_size_in_bytes: the most that they may take together.
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
    def max_size_in_bytes(self) -> int:
        """The most that it takes."""
        return self._max_bytes

    @property
    def size_in_bytes(self) -> int:
        """What it takes so far."""
        return self._size_bytes

    def add_message(self, message: ServiceBusMessage | Mapping[str, Any]) -> None:
        """Add a message.

        Raises:
            MessageSizeExceededError: it does not fit; the batch stays as it was.
        """
        raw = encoded(message)
        size_bytes = self._size_bytes + len(raw) + _OVERHEAD_BYTES
        if size_bytes > self._max_bytes:
            raise MessageSizeExceededError(
                f"ServiceBusMessageBatch has reached its size limit: {self._max_bytes}"
            )
        self._size_bytes = size_bytes
        self._encoded.append(raw)


Sendable = ServiceBusMessage | Mapping[str, Any]


def encoded(message: Sendable) -> bytes:
    """Return a message's AMQP 1.0 sections; a mapping is the arguments of one.

    Raises:
        TypeError: it is neither, or holds what AMQP 1.0 has no form for.
    """
    if isinstance(message, Mapping):
        message = ServiceBusMessage(**message)
    if not isinstance(message, ServiceBusMessage):
        raise TypeError(
            f"A ServiceBusMessage is sent, or a mapping of its arguments; not a "
            f"{type(message).__name__}."
        )
    return encode(message._parts())


def all_encoded(
    message: Sendable | ServiceBusMessageBatch | Iterable[Sendable],
) -> tuple[list[bytes], bool]:
    """Return the sections of all messages, and whether they were given as one."""
    if isinstance(message, ServiceBusMessageBatch):
        return message._encoded, False
    if isinstance(message, ServiceBusMessage | Mapping):
        return [encoded(message)], True
    if not isinstance(message, Iterable):
        raise TypeError(f"A {type(message).__name__} cannot be sent.")
    return [encoded(each) for each in message], False


def received_messages(
    received: Iterable[Received], *, is_peeked: bool = False
) -> Iterator[ServiceBusReceivedMessage]:
    """Yield messages as their receiver sees them."""
    for each in received:
        yield ServiceBusReceivedMessage(each, is_peeked=is_peeked)


def milliseconds(time_utc: datetime) -> int:
    """Return UTC milliseconds; a time without a zone is UTC."""
    aware = time_utc if time_utc.tzinfo is not None else time_utc.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)


def instant(time_ms: int) -> datetime:
    """Return the time of UTC milliseconds."""
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def _key(name: str, value: str | None) -> str | None:
    if value and len(value) > KEY_CHARACTERS_MAX:
        raise ValueError(f"{name} cannot be longer than {KEY_CHARACTERS_MAX} characters.")
    return value


def settleable(message: object, receive_mode: ServiceBusReceiveMode) -> uuid.UUID:
    """Return the token by which a message can be settled or renewed.

    Raises:
        TypeError: it is no received message.
        ValueError: it was received and deleted, or peeked.
        MessageAlreadySettled: it was settled before.
        MessageLockLostError: its lock has ended.
    """
    if not isinstance(message, ServiceBusReceivedMessage):
        raise TypeError("Parameter 'message' must be of type ServiceBusReceivedMessage")
    if message._is_peeked:
        raise ValueError("A message returned by peek_messages cannot be settled.")
    if receive_mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
        raise ValueError("Settling needs receive_mode PEEK_LOCK; this is RECEIVE_AND_DELETE.")
    if message._is_settled:
        raise MessageAlreadySettled("The message was settled before.")
    token = message.lock_token
    if token is None:
        raise ValueError("The message has no lock.")
    if message._lock_expired:
        raise MessageLockLostError("The lock on the message has ended.")
    return token
