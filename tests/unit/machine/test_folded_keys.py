"""Partitions and duplicates of messages with session ids, which have no case."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.inbox import arrival
from bridge.machine.inbox.arrival import SendCommand
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.message import envelopes
from bridge.message.envelopes import Outgoing
from bridge.model.entity import Queue, SendEntity, Tier, Topic
from bridge.model.number import PARTITION_COUNT, partition_for_key, partition_of
from bridge.model.session_id import fold
from bridge.wire import envelope, headers
from bridge.wire.basic import Properties, Table, text
from bridge.wire.envelope import Operation
from bridge.wire.record import Record

DOORS = ("bridge", "library", "native")
NOW_MS = 1_700_000_000_000
QUEUE = Queue(
    name="orders",
    enable_partitioning=True,
    requires_duplicate_detection=True,
    folds_session_ids=True,
)
TOPIC = Topic(
    name="events",
    enable_partitioning=True,
    requires_duplicate_detection=True,
    folds_session_ids=True,
)


def of(session_id: str | None, message_id: str, partition_key: str | None = None) -> Properties:
    """The properties of a message."""
    table: Table = {}
    if session_id is not None:
        table[headers.SESSION_ID] = text(session_id)
    if partition_key is not None:
        table[headers.PARTITION_KEY] = text(partition_key)
    return Properties(headers=table, message_id=message_id, delivery_mode=2)


def sent(entity: SendEntity, properties: Properties, door: str) -> SendCommand:
    """What the sequencer is to do with a message that came in by a door."""
    if door == "native":
        raw, body = properties.encode(), b"body"
    else:
        session_id = (properties.headers or {}).get(headers.SESSION_ID, ("V", None))[1]
        outgoing = Outgoing(
            record=Record(properties, b"body"),
            size_bytes=4,
            session_id=session_id.decode() if isinstance(session_id, bytes) else None,
        )
        raw = envelope.SILENT_PROPERTIES
        # The library is not told whether an entity folds session ids.
        known = replace(entity, folds_session_ids=False) if door == "library" else entity
        body = envelopes.encode(Operation.SEND, known, [outgoing], uuid4().bytes)
    command = arrival.read(
        raw,
        body,
        detects_duplicates=True,
        folds_keys=entity.enable_partitioning and entity.folds_session_ids,
    )
    assert isinstance(command, SendCommand)
    return command


def numbers(entity: SendEntity, commands: list[SendCommand]) -> list[int]:
    """The numbers that messages get one after the other; one that has come before gets none."""
    sequencer = Sequencer(entity, Tier.STANDARD, blank(is_partitioned=True), uuid4)
    found = []
    for command in commands:
        (publication,) = sequencer.apply(command, NOW_MS).publications or (None,)
        table: Table = {}
        if publication is not None:
            table = Properties.decode(publication.properties).headers or {}
        number = table.get(headers.SEQUENCE_NUMBER, ("l", 0))[1]
        assert isinstance(number, int)
        found.append(number)
    return found


@given(
    spellings=st.lists(
        st.tuples(st.sampled_from(("zoë-17", "ZOË-17", "Zoë-17", "b")), st.sampled_from(DOORS)),
        min_size=1,
    ),
    is_topic=st.booleans(),
)
def test_all_messages_of_a_session_are_in_one_partition(
    spellings: list[tuple[str, str]], is_topic: bool
) -> None:
    """This holds for all spellings of their ids, and for all senders."""
    entity = TOPIC if is_topic else QUEUE
    commands = [
        sent(entity, of(session_id, str(number)), door)
        for number, (session_id, door) in enumerate(spellings)
    ]
    found = [partition_of(number) for number in numbers(entity, commands)]
    assert found == [partition_for_key(fold(each).encode()) for each, _ in spellings]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("entity", [QUEUE, TOPIC])
def test_a_message_that_is_sent_again_is_known_in_any_spelling_of_its_session(
    entity: SendEntity, door: str
) -> None:
    """Of two sessions the same message id is two messages."""
    spelt = [sent(entity, of(each, "m"), door) for each in ("Order-1", "oRDER-1", "Order-2")]
    first, again, other = numbers(entity, spelt)
    assert (first > 0, again, other > 0) == (True, 0, True)


def test_a_partition_key_keeps_its_case() -> None:
    """It names no session; nor is anything folded in an entity that was made before."""
    keys = [f"key {number}" for number in range(PARTITION_COUNT)]
    commands = [sent(QUEUE, of(None, key, key), "bridge") for key in keys]
    assert [partition_of(each) for each in numbers(QUEUE, commands)] == [
        partition_for_key(key.encode()) for key in keys
    ]
    older = Queue(name="orders", enable_partitioning=True)
    commands = [sent(older, of(key, key), "native") for key in keys]
    assert [partition_of(each) for each in numbers(older, commands)] == [
        partition_for_key(key.encode()) for key in keys
    ]
