"""Azure's batch: one AMQP message whose Data sections hold encoded messages."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.remote.message import RemoteMessage
from bridge.wire import headers
from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.message import BATCH_FORMAT
from bridge.wire.amqp10.primitives import encode_binary
from bridge.wire.amqp10.scalars import Symbol
from bridge.wire.mapping.sections import DATA, MESSAGE_ANNOTATIONS, descriptor

_DATA = descriptor(DATA)


def payload_of(messages: Sequence[RemoteMessage]) -> tuple[bytes, int]:
    """Return the payload of a transfer, and its message-format.

    One message is sent as it is. A batch says of itself what its first message says, as the SDKs
    write it: its properties (with the session id), and its partition key.
    """
    if len(messages) == 1:
        return messages[0].encode(), 0
    first = messages[0]
    parts = [_annotations(first), first.properties]
    for each in messages:
        parts += (_DATA, encode_binary(each.encode()))
    return b"".join(parts), BATCH_FORMAT


def _annotations(first: RemoteMessage) -> bytes:
    key = first.partition_key if first.annotations else None
    if key is None:
        return b""
    return descriptor(MESSAGE_ANNOTATIONS) + writing.write_map({Symbol(headers.PARTITION_KEY): key})
