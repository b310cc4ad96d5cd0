"""Which messages one batch may have where the entity is partitioned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.client.core.envelopes import batch_body
from bridge.message.batch_keys import BatchKeys
from bridge.message.envelopes import Outgoing
from bridge.model.entity import Queue, Tier
from bridge.model.errors import NotAllowed
from bridge.topology.capabilities import Capabilities
from bridge.topology.description import DescribedEntity
from bridge.wire import headers
from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.types import Described as Value
from bridge.wire.amqp10.types import Symbol, Ulong
from bridge.wire.basic import Properties, Table, text
from bridge.wire.envelope import Operation
from bridge.wire.record import Record

PLAIN = Queue(name="q")
PARTITIONED = Queue(name="q", enable_partitioning=True)
DETECTING = replace(PARTITIONED, requires_duplicate_detection=True)


def outgoing(session: str | None = None, key: str | None = None, message_id: str = "") -> Outgoing:
    """Return a message with these keys."""
    table: Table = {} if key is None else {headers.PARTITION_KEY: text(key)}
    properties = Properties(message_id=message_id, headers=table)
    return Outgoing(record=Record(properties, b""), size_bytes=1, session_id=session)


ALIKE = [
    (outgoing(), outgoing()),
    (outgoing("a"), outgoing("A")),
    (outgoing("ß"), outgoing("ß")),
    (outgoing("a", "a"), outgoing("A", "A"), outgoing("a")),
    (outgoing("", "k"), outgoing(key="k")),
    (outgoing(key="k"), outgoing(key="k")),
    (outgoing(), outgoing("")),
]
DIFFERENT = [
    (outgoing("a"), outgoing("b")),
    (outgoing("a"), outgoing()),
    (outgoing(key="k"), outgoing(key="K")),
    (outgoing(key="k"), outgoing()),
    (outgoing(key="a"), outgoing("a")),
    (outgoing("a"), outgoing("a"), outgoing("b")),
]
IDS = (outgoing("a", message_id="1"), outgoing("a", message_id="2"))


def check(entity: Queue, batch: tuple[Outgoing, ...]) -> None:
    """Check a batch as a door does."""
    keys = BatchKeys(entity)
    for each in batch:
        keys.check(each)


@pytest.mark.parametrize("batch", ALIKE)
def test_messages_of_one_key_are_a_batch(batch: tuple[Outgoing, ...]) -> None:
    """A session id has no case, and is the partition key of its message."""
    for entity in (PLAIN, PARTITIONED, DETECTING):
        check(entity, batch)


@pytest.mark.parametrize("batch", DIFFERENT)
def test_messages_of_different_keys_are_no_batch_of_a_partitioned_entity(
    batch: tuple[Outgoing, ...],
) -> None:
    """One partition stores a batch as a whole, as at Azure."""
    check(PLAIN, batch)
    for entity in (PARTITIONED, DETECTING):
        with pytest.raises(NotAllowed, match="distinct SessionId"):
            check(entity, batch)


def test_different_message_ids_are_no_batch_where_they_choose_the_partition() -> None:
    """Where a partitioned entity detects duplicates; a batch of one message is any."""
    check(PARTITIONED, IDS)
    check(DETECTING, IDS[:1])
    with pytest.raises(NotAllowed, match="or MessageId"):
        check(DETECTING, IDS)


def test_the_library_refuses_the_same_batches() -> None:
    """Schedules of several messages are no batch."""
    described = DescribedEntity(PARTITIONED, Capabilities.of("4.3.6"), False, Tier.STANDARD)
    raws = [
        writing.encode(Value(Ulong(0x72), {Symbol(headers.PARTITION_KEY): key}))
        + writing.encode(Value(Ulong(0x75), b"x"))
        for key in ("a", "b")
    ]
    assert batch_body(Operation.SEND, described, raws[:1] * 2)
    with pytest.raises(NotAllowed):
        batch_body(Operation.SEND, described, raws)
    assert batch_body(Operation.SCHEDULE, described, raws, 1_000)
