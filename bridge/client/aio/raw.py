"""aio-pika with encoded properties, and with all names that RabbitMQ allows.

pamqp, aio-pika's reader of frames, has one type for all integers, so a republished message would
differ from the received one. pamqp's decoded properties stay; the encoded bytes are kept beside
them, and are all that is kept of a message whose text is no UTF-8.
pamqp also refuses names that RabbitMQ takes (`$`, `~`): the check is left to RabbitMQ.
aiormq, aio-pika's protocol layer, does not report that a connection is blocked.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any, cast

from pamqp import commands, constants, header

from bridge.wire.basic import Properties

_HEAD_BYTES = 12
"""Class, weight and body size, before the properties."""

_ATTRIBUTE = "busbridge_raw"


class RawProperties(commands.Basic.Properties):
    """Encoded properties: flags and list.

    Args:
        message_id: the properties' message id, by which aiormq finds a returned message.
    """

    def __init__(self, raw: bytes, message_id: str) -> None:
        super().__init__(message_id=message_id)
        self._busbridge_raw = raw

    def marshal(self) -> bytes:
        """Return the encoding."""
        return self._busbridge_raw


def with_id(raw: bytes, new_id: str) -> tuple[bytes, str]:
    """Return properties with a message id, and the id.

    Args:
        new_id: the id for properties without one.
    """
    properties = Properties.decode(raw)
    if properties.message_id:
        return raw, properties.message_id
    properties.message_id = new_id
    return properties.encode(), new_id


def raw_of(content_header: Any) -> bytes:
    """Return the encoded properties of a received message."""
    return cast(bytes, getattr(content_header, _ATTRIBUTE))


def tell_blocked(connection: Any, told: Callable[[str | None], None]) -> None:
    """Call `told` with the reason when RabbitMQ blocks a connection, and with `None` at the end.

    Args:
        connection: aiormq's, which gets these frames and calls no callback.
    """

    async def blocked(frame: commands.Connection.Blocked) -> None:
        told(frame.reason or "no reason given")

    async def unblocked(frame: commands.Connection.Unblocked) -> None:
        told(None)

    connection._Connection__handle_connection_blocked = blocked
    connection._Connection__handle_connection_unblocked = unblocked


def _keep_raw() -> None:
    """Make pamqp keep the bytes that it decodes."""
    unmarshal = header.ContentHeader.unmarshal

    def unmarshal_and_keep(self: Any, data: bytes) -> None:
        # A native publisher's text may be no UTF-8: the connection would end, and the message come
        # again on the next. The properties that pamqp has not read by then are not used.
        with contextlib.suppress(ValueError):
            unmarshal(self, data)
        setattr(self, _ATTRIBUTE, data[_HEAD_BYTES:])

    header.ContentHeader.unmarshal = unmarshal_and_keep  # type: ignore[method-assign]


_keep_raw()
for _name in ("exchange-name", "queue-name"):
    constants.DOMAIN_REGEX[_name] = re.compile(r"[^\0]*")
