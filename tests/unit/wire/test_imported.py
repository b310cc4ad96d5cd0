"""What a migration says of a message is read, and taken off where it is no sender's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.errors import InvalidField
from bridge.remote.message import RemoteMessage
from bridge.wire import envelope, imported
from bridge.wire.amqp10.scalars import Int, Long, Timestamp
from bridge.wire.envelope import Item, MalformedEnvelope, Operation
from bridge.wire.imported import Imported, identity_of, run_digest
from bridge.wire.mapping.fields import MappingError
from bridge.wire.mapping.imported import DEAD_LETTER, SUBSCRIPTION, import_facts

numbers = st.integers(1, 2**63 - 1)
said = st.builds(
    Imported,
    numbers,
    st.integers(-(2**45), 2**45),
    st.integers(0, 2),
    st.booleans(),
    st.integers(0, 2**32 - 1),
    st.binary(min_size=6, max_size=6),
    st.integers(0, 2**63 - 1),
    st.binary(min_size=20, max_size=20),
).filter(lambda each: not (each.is_dead and each.state == imported.SCHEDULED))


@given(st.lists(said, min_size=1, max_size=4), st.binary(max_size=9))
def test_an_envelope_keeps_what_is_said_of_its_messages(found: list[Imported], body: bytes) -> None:
    """Beside all else that an item has; what is cut short is no envelope."""
    items = [Item(b"p", body, 5, 7, b"k", None, bytes(16), None, each) for each in found]
    raw = envelope.encode(Operation.IMPORT, run_digest("run"), items)
    assert len(raw) == envelope.HEAD_BYTES + sum(map(envelope.item_bytes, items))
    read = envelope.decode(raw)
    assert (read.operation, read.items) == (Operation.IMPORT, items)
    with pytest.raises(MalformedEnvelope):
        envelope.decode(raw[:-1])


@pytest.mark.parametrize("kind", [3, 6, 8, 255])
def test_an_unknown_state_is_no_envelope(kind: int) -> None:
    """Rather than a message in another state."""
    one = Imported(1, 0, 0, False, 0, bytes(6), 0, bytes(20))
    raw = bytearray(envelope.encode(Operation.IMPORT, bytes(16), [Item(b"p", b"", imported=one)]))
    raw[envelope.HEAD_BYTES + 1 + 16] = kind
    with pytest.raises(MalformedEnvelope):
        envelope.decode(bytes(raw))


@given(numbers, st.integers(-62_135_596_800_000, 253_402_300_799_999), st.integers(0, 2))
def test_annotations_are_read_and_ours_are_taken_off(
    number: int, enqueued_ms: int, state: int
) -> None:
    """Azure's stay where they are: they are dropped as any sender's."""
    annotations: dict[str, Any] = {
        "x-opt-sequence-number": Long(number),
        "x-opt-enqueued-time": Timestamp(enqueued_ms),
        "x-opt-message-state": Int(state),
        "x-opt-own": "mine",
    }
    whole = RemoteMessage.of(data=b"b", annotations=annotations)
    bare, facts = import_facts(whole.encode())
    assert bare == whole.encode()
    assert facts == (number, enqueued_ms, state, 0, "", "", False, 0)
    marked = RemoteMessage.of(
        data=b"b",
        annotations=annotations
        | {
            SUBSCRIPTION: "audit",
            DEAD_LETTER: state != imported.SCHEDULED,
            "x-opt-enqueue-sequence-number": Long(9),
            "x-opt-deadletter-source": "other",
        },
    )
    bare, facts = import_facts(marked.encode())
    assert facts[3:] == (9, "other", "audit", state != imported.SCHEDULED, 0)
    assert not {SUBSCRIPTION, DEAD_LETTER} & RemoteMessage.read(bare).annotation_values.keys()


@pytest.mark.parametrize(
    "changes",
    [
        {"x-opt-sequence-number": None},
        {"x-opt-enqueued-time": None},
        {"x-opt-sequence-number": Long(0)},
        {"x-opt-sequence-number": "1"},
        {"x-opt-message-state": Int(3)},
        {"x-opt-message-state": Int(2), DEAD_LETTER: True},
        {"x-opt-enqueue-sequence-number": Long(-1)},
        {DEAD_LETTER: "yes"},
    ],
)
def test_what_is_not_right_is_refused(changes: dict[str, Any]) -> None:
    """By name."""
    annotations = {"x-opt-sequence-number": Long(1), "x-opt-enqueued-time": Timestamp(1)} | changes
    with pytest.raises(InvalidField, match="annotation"):
        import_facts(RemoteMessage.of(data=b"b", annotations=annotations).encode())


@given(st.binary(max_size=40))
def test_bytes_that_are_no_message_are_named(raw: bytes) -> None:
    """Nothing else happens."""
    with pytest.raises((MappingError, InvalidField)):
        import_facts(raw)


def test_each_run_and_place_has_identities_of_its_own() -> None:
    """A rehearsal's copy is another message; parts do not run into each other."""
    found = [
        identity_of("run", "a", b"m"),
        identity_of("run", "b", b"m"),
        identity_of("ru", "na", b"m"),
        identity_of("run", "a", b"n"),
    ]
    assert len(set(found)) == len(found)
    assert run_digest("run") != run_digest("run2")
