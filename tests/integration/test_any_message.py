"""What a sequencer publishes, RabbitMQ takes: into a quorum queue and into a stream at once.

It closes the connection over a header that it, or the stream, cannot read; the message would come
again and again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.sending.requests import new_identity
from bridge.machine.inbox import arrival
from bridge.machine.inbox.arrival import Command
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.message.envelopes import Outgoing, encode
from bridge.model.entity import Queue, Tier
from bridge.topology import names
from bridge.wire import envelope
from bridge.wire.amqp10.primitives import (
    encode_list,
    encode_map,
    encode_string,
)
from bridge.wire.basic import Properties
from bridge.wire.envelope import Operation
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.inward import record_from_message
from tests.fixtures.broker import Broker
from tests.integration.door import open_door
from tests.unit.test_mapping import data, section, values
from tests.unit.test_mapping import names as property_names
from tests.unit.wire.test_any_message import any_properties

EXAMPLES = 300
ORDERS = Queue(name="orders")

any_value = st.one_of(
    values,
    st.floats(width=32).map(lambda number: b"\x72" + struct.pack(">f", number)),
    st.floats().map(lambda number: b"\x82" + struct.pack(">d", number)),
)
"""An encoded AMQP 1.0 value, numbers that Erlang has not among them."""


def samples(read: Callable[[Any], Command], strategy: st.SearchStrategy[Any]) -> list[Command]:
    """The same arrivals each time."""
    found: list[Command] = []

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(drawn: Any) -> None:
        found.append(read(drawn))

    collect()
    return found


def from_a_client(drawn: tuple[dict[str, bytes], list[bytes]]) -> Command:
    """A client's message, as a door hands it in."""
    pairs = [(encode_string(name.encode()), value) for name, value in drawn[0].items()]
    raw = section(part.PROPERTIES, encode_list(drawn[1]))
    raw += section(part.APPLICATION_PROPERTIES, encode_map(pairs)) + data(b"x")
    try:
        record = record_from_message(raw, new_message_id="m").record
        body = encode(
            Operation.SEND, ORDERS, [Outgoing(record=record, size_bytes=len(raw))], new_identity()
        )
    except ValueError:  # refused
        body = envelope.encode_cancel(new_identity(), [1])
    return arrival.read(envelope.SILENT_PROPERTIES, body)


def from_a_native_publisher(properties: Properties) -> Command:
    """A native message."""
    return arrival.read(properties.encode(), b"x")


def publications(commands: list[Command]) -> list[Publication]:
    """What a sequencer makes of them, but for what needs a bucket first."""
    sequencer = Sequencer(ORDERS, Tier.STANDARD, blank(is_partitioned=False))
    made: list[Publication] = []
    for command in commands:
        if sequencer.missing_bucket(command, 0) is None:
            made += sequencer.apply(command, 0).publications
    return made


async def test_rabbitmq_takes_whatever_is_numbered(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """Messages of clients with properties of any type, and whatever a native publisher may say."""
    client_messages = st.tuples(
        st.dictionaries(property_names, any_value, max_size=5), st.lists(any_value, max_size=13)
    )
    commands = samples(from_a_client, client_messages)
    commands += samples(from_a_native_publisher, any_properties)
    async with open_door(endpoint, broker.management_url, ORDERS, with_sidecar=False):
        count = 0
        for each in publications(commands):
            if each.exchange == names.active_exchange(ORDERS.name):
                count += 1
                await confirming.publisher.publish_confirmed(*each)
    assert count > EXAMPLES
