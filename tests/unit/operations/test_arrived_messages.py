"""What came to a source behind its copy is told from what the target has, too."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridge.model.number import compose
from bridge.operations.migration.arrived_messages import ArrivedMessages
from bridge.operations.migration.last_copied import LastCopied
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.scalars import Int, Long, Timestamp


def shown(number: int, body: bytes, message_id: str | None, due_ms: int = 0) -> RemoteMessage:
    """A message as a peek shows it."""
    annotations: dict[str, Any] = {"x-opt-sequence-number": Long(number)}
    if due_ms:
        annotations["x-opt-message-state"] = Int(2)
        annotations["x-opt-scheduled-enqueue-time"] = Timestamp(due_ms)
    properties = MessageProperties(message_id=message_id)
    return RemoteMessage.of(data=body, annotations=annotations, properties=properties)


def test_a_scheduled_message_that_was_due_at_the_source_is_named_with_both_numbers() -> None:
    """By its body and MessageId: it has another number and state, and was sent on, perhaps."""
    arrived = ArrivedMessages()
    arrived.add("events/Subscriptions/a", shown(9, b"pay", "m1"))
    arrived.add("orders", shown(30, b"pay", "m2"))
    arrived.add("orders", shown(31, b"other", "m1"))
    arrived.meet("events", shown(4, b"pay", "m1", 5_000))
    (text,) = arrived.twice
    assert text.startswith("events/Subscriptions/a: message 9 has come to the source, and the")
    assert "has the same one as 4 of events, scheduled" in text
    assert arrived.others == [
        f"orders: message {number} has come to the source behind the copy, and stays there."
        for number in (30, 31)
    ]


def test_of_equal_messages_that_which_is_due_first_is_named() -> None:
    """A timer's messages may be equal, and have no MessageId; the later ones are at one side."""
    arrived = ArrivedMessages()
    arrived.add("timers", shown(9, b"tick", None))
    for number, due_ms in ((4, 9_000), (5, 5_000), (6, 7_000)):
        arrived.meet("timers", shown(number, b"tick", None, due_ms))
    (text,) = arrived.twice
    assert "the same one as 5 of timers" in text


def test_without_arrivals_nothing_is_twice() -> None:
    """What is scheduled at the target alone is no matter."""
    arrived = ArrivedMessages()
    arrived.meet("timers", shown(4, b"tick", None, 9_000))
    assert not arrived
    assert (arrived.twice, arrived.others) == ([], [])


NUMBERS = st.one_of(st.integers(1, 40), st.builds(compose, st.integers(0, 15), st.integers(1, 9)))


@given(numbers=st.sets(NUMBERS, max_size=8), new=NUMBERS)
def test_what_was_not_copied_is_behind_one_of_the_next_numbers(numbers: set[int], new: int) -> None:
    """And nothing that was copied stands between."""
    copied = LastCopied.of("q", numbers)
    every = sorted({*numbers, new})
    shown_first = {next((n for n in every if n >= at), 0) for at in copied.next_numbers()}
    assert (new in shown_first) or copied.has(new)
