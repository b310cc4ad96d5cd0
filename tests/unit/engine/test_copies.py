"""Second copies of a message are recognised; what was put back changed is none."""

from __future__ import annotations

import asyncio

from bridge.broker.channel import Channel
from bridge.broker.delivery import Delivery
from bridge.broker.transport import Transport
from bridge.engine.copies import SETTLED_MAX, SETTLED_MS, Copies
from bridge.engine.holding import Holding, read
from bridge.wire import headers
from bridge.wire.basic import Properties, Table, long
from bridge.wire.stamp import NO_IDENTITY

A, B = b"a" * 20, b"b" * 20


async def without_socket() -> Channel:
    """Return a channel that nothing is sent on."""
    return Channel(Transport(lambda _: None), 1, on_free=lambda _: None)


CHANNEL = asyncio.run(without_socket())


def message(
    number: int,
    *,
    generation: int = 0,
    failures: int = 0,
    identity: bytes = NO_IDENTITY,
    enqueued_ms: int = 1,
) -> Holding:
    """A delivery of a numbered message, read."""
    table: Table = {
        headers.SEQUENCE_NUMBER: long(number),
        headers.ENQUEUED_TIME: long(enqueued_ms),
        headers.IDENTITY: ("x", identity),
    }
    if generation:
        table[headers.DELIVERED] = long(generation)
    if failures:
        table["x-delivery-count"] = long(failures)
    raw = Properties(headers=table).encode()
    delivery = Delivery(1, False, "orders/$active", "", raw, b"", "1", CHANNEL)
    return read(delivery, 1, can_expire=True)


def test_a_message_that_is_held_is_not_held_twice() -> None:
    """Until it is let go; then it may come again."""
    copies = Copies()
    copies.hold(message(1))
    assert copies.is_second(message(1), 0)
    copies.let_go(message(1))
    assert not copies.is_second(message(1), 0)


def test_what_is_settled_is_remembered_for_a_while() -> None:
    """After that time RabbitMQ would have brought the copy."""
    copies = Copies()
    copies.settle(message(1), 0)
    assert copies.is_second(message(1), SETTLED_MS - 1)
    assert not copies.is_second(message(1), SETTLED_MS)


def test_two_messages_under_one_number_are_no_copies() -> None:
    """One of them would be lost."""
    copies = Copies()
    copies.hold(message(1, identity=A))
    copies.settle(message(2, identity=A), 0)
    copies.settle(message(3, enqueued_ms=1), 0)
    assert not copies.is_second(message(1, identity=B), 0)
    assert not copies.is_second(message(2, identity=B), 0)
    assert not copies.is_second(message(3, enqueued_ms=2), 0)


def test_one_message_under_two_numbers_is_a_copy() -> None:
    """A sequencer that does not know of the first number gives it another."""
    copies = Copies()
    copies.hold(message(1, identity=A))
    assert copies.is_second(message(2, identity=A), 0)


def test_a_message_put_back_with_changed_properties_is_no_copy() -> None:
    """Not even when it comes before the old one is acked; the old one is a copy from then on."""
    copies = Copies()
    copies.hold(message(1))
    copies.expect(message(1), 1)
    assert not copies.is_second(message(1, generation=1), 0)
    copies.hold(message(1, generation=1))
    copies.expect_no_more(message(1))
    copies.settle(message(1), 0, is_put_back=True)
    assert len(copies) == 1
    assert copies.is_second(message(1, generation=1), 0)
    copies.let_go(message(1, generation=1))
    assert copies.is_second(message(1), 0)
    assert not copies.is_second(message(1, generation=1), 0)


def test_of_what_a_dead_bridge_has_put_back_and_not_acked_the_second_is_the_copy() -> None:
    """Whichever comes first is delivered, and when it is settled the other is dropped."""
    for first, second in ((0, 1), (1, 0)):
        copies = Copies()
        copies.hold(message(1, generation=first))
        assert copies.is_second(message(1, generation=second), 0)
        copies.settle(message(1, generation=first), 0)
        assert copies.is_second(message(1, generation=second), 0)


def test_a_lost_channel_forgets_what_was_held_and_not_what_was_settled() -> None:
    """RabbitMQ brings back the one, and may bring back the other."""
    copies = Copies()
    copies.hold(message(1))
    copies.settle(message(2), 0)
    copies.lose_all()
    assert not copies.is_second(message(1), 0)
    assert copies.is_second(message(2), 0)


def test_the_memory_is_bounded() -> None:
    """In number and in time."""
    copies = Copies()
    for number in range(SETTLED_MAX + 10):
        copies.settle(message(number), 0)
    assert len(copies._settled) == SETTLED_MAX
    copies.settle(message(-1 + 10**9), SETTLED_MS)
    assert len(copies._settled) == 1


def test_failures_in_another_queue_are_left_out() -> None:
    """RabbitMQ 4 shows them at a dead letter's first delivery."""
    copies = Copies()
    assert copies.failures_here(message(1, failures=4)) == 0
    assert copies.failures_here(message(1, failures=5)) == 1
    assert copies.failures_here(message(2)) == 0
    assert copies.failures_here(message(2, failures=1)) == 1


def test_two_dead_letters_with_one_number_are_counted_apart() -> None:
    """What one came with says nothing of the other."""
    copies = Copies()
    assert copies.failures_here(message(1, identity=A, failures=4)) == 0
    assert copies.failures_here(message(1, identity=B, failures=1)) == 0
    assert copies.failures_here(message(1, identity=B, failures=2)) == 1
