"""The properties of a message (part 3, section 3.2.4)."""

from __future__ import annotations

from bridge.wire.amqp10.composite import U32, Any_, Bin, Millis, Sym, Text
from bridge.wire.amqp10.declaration import composite


@composite(0x73, "amqp:properties:list")
class MessageProperties:
    """The immutable properties of a message."""

    message_id: Any_ | None = None
    user_id: Bin | None = None
    to: Any_ | None = None
    subject: Text | None = None
    reply_to: Any_ | None = None
    correlation_id: Any_ | None = None
    content_type: Sym | None = None
    content_encoding: Sym | None = None
    absolute_expiry_time: Millis | None = None
    creation_time: Millis | None = None
    group_id: Text | None = None
    group_sequence: U32 | None = None
    reply_to_group_id: Text | None = None
