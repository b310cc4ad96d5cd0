"""aio-pika with encoded properties, and with all names that RabbitMQ takes.

pamqp, which it reads frames with, has one type for all integers, so a message that is published
again would not be the one that came. What it decodes stays as it is; the bytes are kept beside it,
and are all there is of a message whose text is no UTF-8.
It also refuses names that RabbitMQ takes (`$`, `~`): that is left to RabbitMQ.
aiormq, which it speaks to RabbitMQ with, keeps to itself that a connection is blocked.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any, cast

from pamqp import commands, constants, header

from bridge.wire.basic import Properties

_HEAD_BYTES = 12
"""Class, weight and body size, in front of the properties."""

_ATTRIBUTE = "busbridge_raw"


class RawProperties(commands.Basic.Properties):
    """Properties as they stand on the wire: flags and list.

    Args:
        message_id: theirs; by it aiormq knows what is returned.
    """

    def __init__(self, raw: bytes, message_id: str) -> None:
        super().__init__(message_id=message_id)
        self._busbridge_raw = raw

    def marshal(self) -> bytes:
        """Return them."""
        return self._busbridge_raw


def with_id(raw: bytes, new_id: str) -> tuple[bytes, str]:
    """Return properties that have a message id, and the id.

    Args:
        new_id: for those that have none.
    """
    properties = Properties.decode(raw)
    if properties.message_id:
        return raw, properties.message_id
    properties.message_id = new_id
    return properties.encode(), new_id


def raw_of(content_header: Any) -> bytes:
    """Return the properties of a message that came, encoded."""
    return cast(bytes, getattr(content_header, _ATTRIBUTE))


def tell_blocked(connection: Any, told: Callable[[str | None], None]) -> None:
    """Have somebody told why RabbitMQ reads nothing of a connection, and when it does again.

    Args:
        connection: aiormq's, which knows it and tells nobody.
    """

    async def blocked(frame: commands.Connection.Blocked) -> None:
        told(frame.reason or "no reason given")

    async def unblocked(frame: commands.Connection.Unblocked) -> None:
        told(None)

    connection._Connection__handle_connection_blocked = blocked
    connection._Connection__handle_connection_unblocked = unblocked


def _keep_raw() -> None:
    """Have pamqp keep what it decodes."""
    unmarshal = header.ContentHeader.unmarshal

    def unmarshal_and_keep(self: Any, data: bytes) -> None:
        # A native publisher's text may be no UTF-8: the connection would end, and the message come
        # again on the next. What pamqp has not read by then nobody asks it for.
        with contextlib.suppress(ValueError):
            unmarshal(self, data)
        setattr(self, _ATTRIBUTE, data[_HEAD_BYTES:])

    header.ContentHeader.unmarshal = unmarshal_and_keep  # type: ignore[method-assign]


_keep_raw()
for _name in ("exchange-name", "queue-name"):
    constants.DOMAIN_REGEX[_name] = re.compile(r"[^\0]*")
