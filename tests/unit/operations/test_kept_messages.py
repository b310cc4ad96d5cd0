"""Messages that a copy keeps from its first reading: as they were, in little memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from bridge.operations.migration.copy_effects import PeekedMessage, peeked
from bridge.operations.migration.kept_messages import OVERHEAD_BYTES, KeptMessages
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.scalars import Int, Long, Timestamp


def message(number: int, size_bytes: int, state: int = 0) -> PeekedMessage:
    """One as a peek shows it."""
    sent = RemoteMessage.of(
        data=bytes(size_bytes),
        properties=MessageProperties(message_id=f"message-{number}", group_id=f"session-{number}"),
        application_properties={"part": number},
        annotations={
            "x-opt-sequence-number": Long(number),
            "x-opt-enqueued-time": Timestamp(1_700_000_000_000 + number),
            "x-opt-message-state": Int(state),
            "x-opt-scheduled-enqueue-time": Timestamp(4_000_000_000_000 + number),
        },
        ttl_ms=60_000,
        priority=3,
    )
    return peeked(RemoteMessage.read(sent.encode()), is_dead=False)


@pytest.mark.parametrize("state", [0, 1, 2])
def test_a_kept_message_comes_back_as_it_was(state: int) -> None:
    """All sections, and what was read of them; once."""
    kept = KeptMessages(2, 10_000)
    kept.add(1, message(7, 20, state))
    assert kept.pop(0, 7) is None
    assert kept.pop(1, 7) == replace(message(7, 20, state), encoded_digest=b"")
    assert kept.pop(1, 7) is None


def test_one_for_which_there_is_no_room_ends_the_keeping() -> None:
    """Smaller ones behind it are read again with it."""
    first, large, small = (
        replace(message(number, size), encoded_digest=b"")
        for number, size in ((1, 10), (2, 5_000), (3, 10))
    )
    kept = KeptMessages(1, first.size_bytes + small.size_bytes + 2 * OVERHEAD_BYTES)
    for each in (first, large, small):
        kept.add(0, each)
    assert [kept.pop(0, number) for number in (1, 2, 3)] == [first, None, None]


@pytest.mark.parametrize("size_bytes", [1, 1_024])
def test_kept_messages_take_no_more_memory_than_they_may(size_bytes: int) -> None:
    """What is read of a message, which takes more than its bytes, is not kept with it."""
    numbers = range(1 << 40, (1 << 40) + 1_000)
    raw = [message(number, size_bytes, state=2).message.encode() for number in numbers]
    bytes_max = sum(map(len, raw)) + len(raw) * OVERHEAD_BYTES
    kept = KeptMessages(1, bytes_max)
    tracemalloc.start()
    try:
        for each in raw:
            kept.add(0, peeked(RemoteMessage.read(each), is_dead=False))
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept.pop(0, numbers[-1]) is not None
    assert used_bytes <= bytes_max
