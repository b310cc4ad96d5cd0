"""What is known of the source's messages: one that is shown again is the same by its values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.operations.migration import message_ledger
from bridge.operations.migration.copy_effects import (
    CopyPlace,
    PeekedMessage,
    digest_of,
    peeked,
)
from bridge.operations.migration.message_ledger import PlaceLedger
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.scalars import Int, Long, Timestamp

PLACE = CopyPlace(path="q")


def shown(number: int, body: bytes = b"order", **annotations: Any) -> RemoteMessage:
    """A message as a peek shows it."""
    named = {name.replace("_", "-"): value for name, value in annotations.items()}
    return RemoteMessage.of(
        data=body,
        properties=MessageProperties(message_id=f"id-{number}"),
        annotations={"x-opt-sequence-number": Long(number), **named},
    )


def ledger_of(*messages: RemoteMessage, place: CopyPlace = PLACE) -> PlaceLedger:
    """A ledger in which these are noted."""
    ledger = PlaceLedger(place)
    for each in messages:
        ledger.note(peeked(each, is_dead=place.is_dead))
    ledger.close()
    return ledger


def again(message: RemoteMessage, place: CopyPlace = PLACE) -> PeekedMessage:
    """A message as it is compared."""
    return peeked(RemoteMessage.read(message.encode()), is_dead=place.is_dead, is_noted=False)


ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        "x_opt_enqueued_time": st.sampled_from([Timestamp(1), Timestamp(2)]),
        "x_opt_message_state": st.sampled_from([Int(0), Int(1), Int(2)]),
        "x_opt_locked_until": st.sampled_from([Timestamp(7), Timestamp(8)]),
        "own": st.sampled_from([Long(1), Int(1), "text"]),
    },
)
MESSAGES = st.builds(
    lambda body, annotations: shown(1, body, **annotations),
    st.sampled_from([b"", b"order"]),
    ANNOTATIONS,
)


@given(MESSAGES, MESSAGES, st.booleans())
def test_a_message_is_the_same_when_its_values_are(
    first: RemoteMessage, second: RemoteMessage, is_dead: bool
) -> None:
    """Whatever their bytes are; its lock is of one look alone."""
    place = CopyPlace(path="q", is_dead=is_dead)
    alike = digest_of(first, is_dead=is_dead) == digest_of(second, is_dead=is_dead)
    assert ledger_of(first, place=place).is_same(0, again(second, place)) == alike


def test_the_values_of_the_same_bytes_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a ledger that was not noted in its order; of others they are."""
    ledger = ledger_of(shown(2), shown(1), shown(3))
    looked: list[int | None] = []

    def look(message: RemoteMessage, *, is_dead: bool) -> bytes:
        looked.append(message.sequence_number)
        return digest_of(message, is_dead=is_dead)

    monkeypatch.setattr(message_ledger, "digest_of", look)
    assert all(ledger.is_same(at, again(shown(at + 1))) for at in range(3))
    assert looked == []
    assert ledger.is_same(1, again(shown(2, x_opt_locked_until=Timestamp(7))))
    assert not ledger.is_same(1, again(shown(2, b"changed")))
    assert not ledger.is_same(1, again(shown(3)))
    assert looked == [2, 2, 3]
