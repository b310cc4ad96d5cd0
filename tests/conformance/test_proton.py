"""A second witness: Apache Qpid Proton reads what we write, writes what we read, and is served."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import proton
import pytest
from proton import Data, Delivery, Message
from proton.reactor import Copy, Selector
from proton.utils import BlockingConnection, LinkDetached, SendException

from bridge.wire.amqp10.types import decode
from bridge.wire.amqp10.writing import encode
from tests.conformance.door import KEY, RULE_NAME, Door
from tests.unit.wire.amqp10.values import EXAMPLES

PROTON_NAMES = {"boolean": "bool"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_type(name: str) -> None:
    """Proton reads our bytes as the type that we mean, and we read its bytes as the same value."""
    for value in EXAMPLES[name]:
        ours = encode(value)
        data = Data()
        assert data.decode(ours) == len(ours)
        data.rewind()
        data.next()
        assert Data.type_name(data.type()).lower() == PROTON_NAMES.get(name, name)
        data.rewind()

        theirs = bytes(data.encode())

        assert encode(decode(theirs)[0]) == ours


@pytest.fixture
def connection(door: Door) -> Iterator[BlockingConnection]:
    """Proton's blocking client, authorised by SASL PLAIN."""
    opened = BlockingConnection(
        f"amqp://{RULE_NAME}:{KEY}@127.0.0.1:{door.port}",
        allowed_mechs="PLAIN",
        allow_insecure_mechs=True,
        timeout=120,
    )
    yield opened
    opened.close()


BODIES: list[Any] = [
    None,
    True,
    b"bytes",
    "text",
    proton.int32(-5),
    proton.ulong(2**64 - 1),
    proton.timestamp(1_700_000_000_123),
    uuid.UUID(int=7),
    proton.char("x"),
    1.5,
    proton.float32(0.5),
    ["list", proton.uint(1), None],
    {"map": {proton.symbol("nested"): proton.decimal64(5)}},
    proton.Array(proton.UNDESCRIBED, Data.INT, proton.int32(1), proton.int32(2)),
    proton.Described(proton.symbol("com.example"), "value"),
    bytes(range(256)) * 200,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
def test_message_there_and_back(connection: BlockingConnection, body: Any) -> None:
    """A message comes back as it was sent: body, properties, headers, in frames of 4 KiB."""
    sent = Message(
        body=body,
        id=proton.ulong(12),
        correlation_id=uuid.UUID(int=3),
        subject="subject",
        properties={"a": proton.byte(1), "b": uuid.UUID(int=4), "c": None},
        annotations={proton.symbol("x-mine"): proton.short(3)},
        ttl=60.0,
        priority=7,
    )
    connection.create_sender("q").send(sent)
    receiver = connection.create_receiver("q", credit=1)
    found = receiver.receive()
    receiver.accept()

    assert found.body == body
    assert isinstance(found.body, (type(body), memoryview))
    assert (found.id, found.correlation_id, found.subject) == (12, uuid.UUID(int=3), "subject")
    assert found.properties == sent.properties
    assert found.annotations[proton.symbol("x-mine")] == 3
    assert found.annotations[proton.symbol("x-opt-sequence-number")] == 1
    assert (found.ttl, found.priority, found.delivery_count) == (60.0, 7, 0)


def test_outcomes(connection: BlockingConnection) -> None:
    """Released comes back uncounted, modified counted, accepted never."""
    connection.create_sender("q").send(Message(body="x"))
    receiver = connection.create_receiver("q", credit=1)
    counts = []
    for settle in (
        lambda: receiver.release(delivered=False),
        lambda: receiver.release(delivered=True),
        receiver.accept,
    ):
        counts.append(receiver.receive().delivery_count)
        settle()
        receiver.flow(1)

    assert counts == [0, 0, 1]


def test_too_large(connection: BlockingConnection, door: Door) -> None:
    """A message over the limit is rejected, and the link goes on."""
    sender = connection.create_sender("q")
    with pytest.raises(SendException) as raised:
        sender.send(Message(body=bytes(1_100_000)))

    assert raised.value.state == Delivery.REJECTED
    sender.send(Message(body="small"))
    assert not door.call(lambda: [each for each in door.gateway.connections if each.is_choked])


def test_unknown_entity(connection: BlockingConnection) -> None:
    """A link to nowhere is refused with the condition and the words."""
    with pytest.raises(LinkDetached, match=r"amqp:not-found.*could not be found"):
        connection.create_receiver("nowhere")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a browser": ({"options": Copy()}, "com.microsoft:peek-message"),
    "a selector": ({"options": Selector("a = 1")}, "selector"),
    "a dynamic source": ({"dynamic": True}, "A dynamic source"),
}


@pytest.mark.parametrize(("asked", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_no_receiver_can_have(
    connection: BlockingConnection, asked: dict[str, Any], words: str
) -> None:
    """It is refused by name before a message is out; another receiver then gets all of them."""
    sender = connection.create_sender("q")
    for number in range(3):
        sender.send(Message(body=number))
    address = None if "dynamic" in asked else "q"
    with pytest.raises(LinkDetached) as caught:
        connection.create_receiver(address, credit=10, **asked)
    assert caught.value.condition == "amqp:not-implemented"
    assert words in str(caught.value)
    receiver = connection.create_receiver("q", credit=3)
    assert [receiver.receive().body for _ in range(3)] == [0, 1, 2]


def test_many(connection: BlockingConnection) -> None:
    """More messages than our credit for senders, in order."""
    sender = connection.create_sender("q")
    receiver = connection.create_receiver("q", credit=100)
    for number in range(1_500):
        sender.send(Message(body=number))
    bodies = []
    for _ in range(1_500):
        bodies.append(receiver.receive().body)
        receiver.accept()

    assert bodies == list(range(1_500))


def test_wrong_key(door: Door) -> None:
    """A wrong key is refused by SASL."""
    with pytest.raises(proton.ProtonException, match="auth"):
        BlockingConnection(
            f"amqp://{RULE_NAME}:wrong@127.0.0.1:{door.port}",
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
            timeout=120,
        )


def test_anonymous(door: Door) -> None:
    """An anonymous client may connect, and may do nothing."""
    opened = BlockingConnection(
        f"amqp://127.0.0.1:{door.port}", allowed_mechs="ANONYMOUS", timeout=120
    )
    with pytest.raises(LinkDetached, match=r"amqp:unauthorized-access.*'Send' claim"):
        opened.create_sender("q")
    opened.close()
