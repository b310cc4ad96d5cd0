"""Application properties come in the sender's order, though RabbitMQ sorts headers."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bridge.wire import headers
from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.message import decode_message
from bridge.wire.amqp10.types import Described, Ulong
from bridge.wire.basic import Properties, Table, text
from bridge.wire.mapping.inward import record_from_message
from bridge.wire.mapping.outward import merge_properties, message_from_record
from bridge.wire.native import clean
from bridge.wire.record import Record

NAMES = st.lists(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(
        headers.is_application_key
    ),
    min_size=1,
    max_size=8,
    unique=True,
)


def as_rabbitmq_returns_it(record: Record) -> Record:
    """Return a message as out of a queue, whose headers RabbitMQ has sorted."""
    found = Properties.decode(record.properties.encode())
    table = found.headers or {}
    ordered = sorted(table.items(), key=lambda pair: pair[0].encode())
    return Record(replace(found, headers=dict(ordered)), record.body)


def names_of(record: Record) -> list[object]:
    """Return the names of the properties as a client gets them."""
    raw = message_from_record(record, sequence_number=1, enqueued_ms=1)
    return list(
        decode_message(raw + writing.encode(Described(Ulong(0x78), {}))).application_properties
    )


def sent(names: list[str]) -> Record:
    """Return the record of a message whose properties have these names."""
    raw = writing.encode(Described(Ulong(0x74), {name: name for name in names}))
    return record_from_message(
        raw + writing.encode(Described(Ulong(0x75), b"")), new_message_id="m"
    ).record


@given(NAMES)
def test_the_order_is_the_sender_s(names: list[str]) -> None:
    """Whether or not RabbitMQ sorts them; it costs nothing where they are sorted anyway."""
    record = sent(names)
    assert names_of(record) == names
    assert names_of(as_rabbitmq_returns_it(record)) == names
    if names == sorted(names):
        assert headers.ORDER not in (record.properties.headers or {})


@given(NAMES, NAMES, st.data())
def test_what_is_changed_keeps_its_place(
    names: list[str], changed: list[str], data: st.DataObject
) -> None:
    """New entries are last, in their order; a removed one leaves no gap."""
    removed = data.draw(st.lists(st.sampled_from(names), unique=True))
    record = as_rabbitmq_returns_it(sent(names))
    changes: Table = {name: text("changed") for name in changed}

    merged = as_rabbitmq_returns_it(merge_properties(record, changes, removed))

    kept = [name for name in names if name not in removed]
    assert names_of(merged) == kept + [name for name in changed if name not in kept]


@given(NAMES)
def test_a_message_that_a_native_client_moves_keeps_its_order(names: list[str]) -> None:
    """It publishes the headers that it has received."""
    moved = clean(as_rabbitmq_returns_it(sent(names)).properties)
    assert names_of(Record(Properties.decode(moved.properties), b"")) == names


@given(NAMES, st.sampled_from([("x", b"123"), ("x", b""), ("I", 7), ("S", b"12345678")]))
def test_an_order_that_is_none_loses_no_property(
    names: list[str], field: tuple[str, object]
) -> None:
    """Anybody may write that header."""
    table: Table = {name: text(name) for name in names}
    table[headers.ORDER] = field  # type: ignore[assignment]
    record = Record(Properties(headers=table), b"")
    assert set(names_of(record)) == set(names)
    assert clean(Properties(headers=dict(table)))
