"""Dead letters are counted by why, where and by which exception they died."""

from __future__ import annotations

import pytest

from bridge.operations import groups
from bridge.operations.groups import OTHERS, DeadLetterGroups, exception_of, kind_of
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.scalars import Long, Symbol, Timestamp

NSERVICEBUS = "NServiceBus.ExceptionInfo.ExceptionType"


def dead(
    number: int, reason: object, description: object = None, **properties: object
) -> RemoteMessage:
    """Return a dead letter."""
    return RemoteMessage.of(
        data=b"",
        application_properties={
            "DeadLetterReason": reason,
            "DeadLetterErrorDescription": description,
            **properties,
        },
        annotations={
            "x-opt-sequence-number": Long(number),
            "x-opt-enqueued-time": Timestamp(number * 1_000),
            "x-opt-deadletter-source": "events/Subscriptions/audit",
        },
    )


def test_a_group_has_count_times_and_its_first_message() -> None:
    """The largest group stands first; messages may come in any order."""
    found = DeadLetterGroups()
    for number in (7, 3, 9):
        found.add(dead(number, "bad", f"System.InvalidOperationException: order {number}"))
    found.add(dead(5, "TTLExpiredException"))
    first, second = found.found()
    assert (first.reason, first.source) == ("bad", "events/Subscriptions/audit")
    assert first.exception == "System.InvalidOperationException"
    assert (first.count, first.first, first.oldest_ms, first.newest_ms) == (3, 3, 3_000, 9_000)
    assert first.description == "System.InvalidOperationException: order 7"
    assert first.oldest_age_ms(10_000) == 7_000
    assert (second.reason, second.exception) == ("TTLExpiredException", "TTLExpiredException")
    assert found.total == 4


@pytest.mark.parametrize(
    ("message", "exception"),
    [
        (dead(1, "x", "ValueError: no total"), "ValueError"),
        (dead(1, "x", "in the handler: app.errors.OrderFault (5)"), "app.errors.OrderFault"),
        (dead(1, "x", "an error"), ""),
        (dead(1, None), ""),
        (dead(1, Symbol("KeyError")), "KeyError"),
        (dead(1, "x", b"ValueError"), "ValueError"),
        (
            dead(
                1, "x", "y", **{"NServiceBus.ExceptionInfo.ExceptionType": "System.IO.IOException"}
            ),
            "System.IO.IOException",
        ),
        (dead(1, "x", "y", **{"MT-Fault-ExceptionType": "MyFailure"}), "MyFailure"),
    ],
)
def test_an_exception_is_found_by_its_name(message: RemoteMessage, exception: str) -> None:
    """A framework's property first, then description and reason."""
    assert exception_of(message) == exception


def test_bytes_that_are_no_message_are_a_group() -> None:
    """They are dead letters, too."""
    assert kind_of(RemoteMessage(unread=b"\x00"))[0] == "(no message of AMQP 1.0)"


def test_groups_without_end_stay_in_flat_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reason that has a number in it makes no million groups."""
    monkeypatch.setattr(groups, "GROUPS_MAX", 3)
    found = DeadLetterGroups()
    for number in range(1, 11):
        found.add(dead(number, f"order {number}"))
    assert found.found()[0].reason == OTHERS
    assert [each.count for each in found.found()] == [7, 1, 1, 1]
