"""The publish that a returned message belongs to.

RabbitMQ returns a message without the number of its publish, before it confirms that number. The
content tells which publish it was; of two that are equal in everything, either may be meant.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.wire.basic import Properties

Sent = tuple[int, bytes, bytes]
"""The number of a publish, its encoded properties, and its body."""


def numbers_of(sent: Sequence[Sent], last: int, properties: bytes, body: bytes) -> list[int]:
    """Return the number of the returned publish, or of all that it may be.

    RabbitMQ may encode properties anew; then they are compared by value. When no publish has equal
    properties, the message may be any of those with its body, else any at all.

    Args:
        sent: the publishes with the message's route that were not returned, oldest first.
        last: the number of the publish that was returned last; later ones are more likely.
        properties: the message's encoded properties.
    """
    with_body = [each for each in sent if each[2] == body]
    for later in (True, False):
        for number, encoded, _ in with_body:
            if (number > last) is later and _are_equal(encoded, properties):
                return [number]
    return [each[0] for each in with_body or sent]


def _are_equal(sent: bytes, returned: bytes) -> bool:
    if sent == returned:
        return True
    try:
        before, after = Properties.decode(sent), Properties.decode(returned)
    except ValueError:
        return False
    # RabbitMQ routes by BCC and strips it.
    headers = {key: field for key, field in (before.headers or {}).items() if key != "BCC"}
    before.headers, after.headers = headers, after.headers or {}
    return before == after
