"""Messages to be sent, under the SDK's names."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from bridge.client.constants import AmqpMessageBodyType
from bridge.client.encoding import encode

KEY_CHARACTERS_MAX = 128

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
        """The body's form: always data, for a message to be sent."""
        return AmqpMessageBodyType.DATA

    @property
    def raw_amqp_message(self) -> Any:
        """Not supported: this library does not speak AMQP 1.0."""
        raise NotImplementedError("raw_amqp_message is not supported by bridge.client.")

    @property
    def message(self) -> Any:
        """Not supported either."""
        raise NotImplementedError("message is not supported by bridge.client.")

    @property
    def session_id(self) -> str | None:
        """The session that the message belongs to."""
        return self._session_id

    @session_id.setter
    def session_id(self, value: str | None) -> None:
        self._session_id = _key("session_id", value)

    @property
    def message_id(self) -> str | None:
        """The message's id; a message without an id gets a random one."""
        return self._message_id

    @message_id.setter
    def message_id(self, value: str | None) -> None:
        self._message_id = _key("message_id", value)

    @property
    def reply_to_session_id(self) -> str | None:
        """The session for replies."""
        return self._reply_to_session_id

    @reply_to_session_id.setter
    def reply_to_session_id(self, value: str | None) -> None:
        self._reply_to_session_id = _key("reply_to_session_id", value)

    @property
    def partition_key(self) -> str | None:
        """The key that chooses the partition; with a session it must be the session's id."""
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
        """How long the message lives, from its enqueued time on."""
        return timedelta(milliseconds=self._ttl_ms) if self._ttl_ms else None

    @time_to_live.setter
    def time_to_live(self, value: timedelta | int | None) -> None:
        if value is None:
            self._ttl_ms = self._creation_ms = None
            return
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        self._ttl_ms = int(seconds) * 1000
        self._creation_ms = int(time.time()) * 1000

    def _encoded(self) -> bytes:
        return encode(self)


Sendable = ServiceBusMessage | Mapping[str, Any]


def encoded(message: Sendable) -> bytes:
    """Return a message's AMQP 1.0 sections; a mapping holds a message's arguments.

    Raises:
        TypeError: the object is neither, or has a value without a form in AMQP 1.0.
    """
    if isinstance(message, Mapping):
        message = ServiceBusMessage(**message)
    if not isinstance(message, ServiceBusMessage):
        raise TypeError(
            f"A ServiceBusMessage is sent, or a mapping of its arguments; not a "
            f"{type(message).__name__}."
        )
    return message._encoded()


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FIRST_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND


def instant(time_ms: int) -> datetime:
    """Return the time of UTC milliseconds; the nearest `datetime`, if out of range."""
    return _EPOCH + timedelta(milliseconds=min(max(time_ms, _FIRST_MS), _LAST_MS))


def _key(name: str, value: str | None) -> str | None:
    if value and len(value) > KEY_CHARACTERS_MAX:
        raise ValueError(f"{name} cannot be longer than {KEY_CHARACTERS_MAX} characters.")
    return value
