"""Which scheduled messages are meant, and when those that are moved are due."""

from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.duration import TIME_MAX_MS
from bridge.operations.condition import Condition
from bridge.operations.lines.scalar_values import ValueRefused
from bridge.operations.scheduled_selection import MARGIN_MS, ScheduledSelection, ScheduleMove
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.scalars import Int, Long, Timestamp

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


def message(
    number: int, due_ms: int | None, *, state: int = 2, color: str = "red"
) -> RemoteMessage:
    """Return a message as a peek shows it."""
    annotations = {"x-opt-sequence-number": Long(number), "x-opt-message-state": Int(state)}
    if due_ms is not None:
        annotations["x-opt-scheduled-enqueue-time"] = Timestamp(due_ms)
    return RemoteMessage.of(
        data=b"x", annotations=annotations, application_properties={"color": color}
    )


def test_only_what_is_scheduled_is_meant() -> None:
    """A message that was enqueued keeps its scheduled time, and is none any more."""
    everything = ScheduledSelection()
    assert everything.takes(message(1, NOW_MS))
    assert not everything.takes(message(1, NOW_MS, state=0))
    assert not everything.takes(message(1, None))


def test_a_time_and_a_number_are_meant_by_their_bounds() -> None:
    """From is with the bound, before without; through is with it."""
    day = ScheduledSelection(due_from_ms=10, due_before_ms=20)
    assert [at for at in (9, 10, 19, 20) if day.takes(message(1, at))] == [10, 19]
    some = ScheduledSelection(first=2, last=3)
    assert [at for at in (1, 2, 3, 4) if some.takes(message(at, 5))] == [2, 3]


def test_a_condition_counts_beside_the_times() -> None:
    """Both must be true."""
    red = ScheduledSelection(Condition("color = 'red'", uuid4), due_from_ms=10)
    assert red.takes(message(1, 10))
    assert not red.takes(message(1, 10, color="blue"))
    assert not red.takes(message(1, 9))


def test_numbers_alone_need_no_look() -> None:
    """With anything else they do."""
    assert ScheduledSelection(numbers=(1,)).is_numbers_alone
    assert not ScheduledSelection().is_numbers_alone
    assert not ScheduledSelection(numbers=(1,), due_from_ms=5).is_numbers_alone


@given(
    was_ms=st.integers(NOW_MS - 2 * HOUR_MS, NOW_MS + 2 * HOUR_MS),
    move=st.builds(ScheduleMove, to_ms=st.integers(NOW_MS - HOUR_MS, NOW_MS + HOUR_MS))
    | st.builds(ScheduleMove, by_ms=st.integers(-HOUR_MS, HOUR_MS)),
)
def test_what_is_moved_can_be_withdrawn(was_ms: int, move: ScheduleMove) -> None:
    """It is due far enough ahead, or it is refused; what is due then already stays."""
    asked_ms = was_ms + move.by_ms if move.to_ms is None else move.to_ms
    try:
        due_ms = move.due_ms(was_ms, NOW_MS)
    except ValueRefused:
        assert asked_ms < NOW_MS + MARGIN_MS
        return
    assert due_ms == (None if asked_ms == was_ms else asked_ms)
    assert due_ms is None or due_ms >= NOW_MS + MARGIN_MS


def test_no_message_is_moved_behind_all_times() -> None:
    """No client could read when it is due."""
    with pytest.raises(ValueRefused, match="9999"):
        ScheduleMove(by_ms=HOUR_MS).due_ms(TIME_MAX_MS - 1, NOW_MS)
