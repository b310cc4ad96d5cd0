"""The numbers that a message had before it was moved under a new one."""

from __future__ import annotations

from bridge.relay.plan.relayed_message import SEQUENCE
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.errors import DecodeError


def former_numbers(message: RemoteMessage) -> tuple[int, ...]:
    """Return the sequence numbers at the entities where a message was before, the first one first.

    None for a message that was sent where it is, and for one whose property says something else.
    """
    try:
        text = message.application_property_values.get(SEQUENCE)
    except DecodeError:
        return ()
    numbers = [each.strip() for each in str(text).split(";")] if isinstance(text, str) else []
    if not all(each.isascii() and each.isdecimal() for each in numbers):
        return ()
    return tuple(map(int, numbers))
