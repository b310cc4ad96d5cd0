"""A request that a client writes again is carried out once, and each copy answered the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.machine.amqp10.known_requests import ANSWERED_MAX, REPLY_BYTES_MAX
from bridge.message.envelopes import Outgoing
from bridge.model.entity import Queue
from bridge.model.name import EntityPath
from bridge.wire.amqp10.message import AmqpMessage, decode_message, encode_message
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.performatives import Flow, Transfer
from tests.bench.memory_namespace import MemoryNamespace
from tests.conformance.client import CBS_IN, CBS_OUT, MANAGEMENT_IN, MANAGEMENT_OUT, Client, sas
from tests.conformance.served import QUEUE, client, gateway, message, queue_of
from tests.conformance.test_large_requests import scheduled
from tests.fixtures.waiting import until

NODE = "q/$management"


class Slow(MemoryNamespace):
    """A namespace in which schedules take as long as the test wants.

    Attributes:
        gate: open while schedules are carried out.
    """

    def __init__(self, *queues: Queue) -> None:
        super().__init__(*queues)
        self.gate = asyncio.Event()
        self.gate.set()

    async def schedule(
        self, path: EntityPath, batch: Sequence[Outgoing], moved: Sequence[int] | None = None
    ) -> list[int]:
        """Store messages for later, when the gate is open."""
        await self.gate.wait()
        return await super().schedule(path, batch, moved)


def request(message_id: Any, body: bytes = b"x", reply_to: str = "client-3") -> bytes:
    """Return a request to schedule one message."""
    properties = MessageProperties(message_id=message_id, reply_to=reply_to)
    fields = {"operation": "com.microsoft:schedule-message"}
    value = {"messages": [{"message": scheduled(body), "message-id": "m"}]}
    return encode_message(AmqpMessage(properties, fields, value))


async def managing(peer: Client) -> Client:
    """Attach the links of a node."""
    await peer._attach_node(NODE, MANAGEMENT_OUT, MANAGEMENT_IN)
    return peer


async def replies(peer: Client, count: int) -> list[bytes]:
    """Take so many replies."""
    return [(await peer.next(Transfer, handle=MANAGEMENT_IN))[1] for _ in range(count)]


def bodies(served: Any) -> Counter[bytes]:
    """Return what is scheduled."""
    return Counter(item.record.body for item, _ in queue_of(served).scheduled.values())


@pytest.mark.parametrize(
    "message_id", [uuid4(), "request-1", b"\x01", 7], ids=lambda each: type(each).__name__
)
async def test_copies_in_one_write(message_id: Any) -> None:
    """One message is scheduled; each copy is answered, with the same bytes."""
    async with gateway() as (served, port), client(port) as peer:
        await managing(peer)
        raw = request(message_id)
        for _ in range(3):
            peer.deliver(MANAGEMENT_OUT, raw)
        first, *others = await replies(peer, 3)
        assert decode_message(first).application_properties["statusCode"] == 200
        assert decode_message(first).properties.correlation_id == message_id
        assert others == [first, first]
        assert bodies(served) == {b"x": 1}
        assert served.backlog.waiting_bytes == 0


async def test_a_copy_while_the_first_is_under_way() -> None:
    """It waits for the answer of the first, which holds both."""
    namespace = Slow(QUEUE)
    async with gateway(namespace=namespace) as (served, port), client(port) as peer:
        await managing(peer)
        raw = request("a")
        namespace.gate.clear()
        for _ in range(2):
            await peer.outcome(peer.deliver(MANAGEMENT_OUT, raw))
        assert served.backlog.waiting_bytes == 2 * len(raw)
        namespace.gate.set()
        first, second = await replies(peer, 2)
        assert first == second
        assert bodies(served) == {b"x": 1}
        assert served.backlog.waiting_bytes == 0


async def test_an_id_is_used_anew_after_a_thousand_other_requests() -> None:
    """Until then it is a copy's, then another request's."""
    async with gateway() as (served, port), client(port) as peer:
        await managing(peer)
        raw = request("a")
        peer.deliver(MANAGEMENT_OUT, raw)
        (first,) = await replies(peer, 1)
        for number in range(ANSWERED_MAX - 1):
            peer.deliver(MANAGEMENT_OUT, request(number, b"other"))
            await replies(peer, 1)
            if number % 100 == 0:
                peer.credit(MANAGEMENT_IN, 1_000, count=number + 2)
        peer.deliver(MANAGEMENT_OUT, raw)
        assert await replies(peer, 1) == [first]
        assert bodies(served)[b"x"] == 1

        for each in (request("another", b"other"), raw):
            peer.deliver(MANAGEMENT_OUT, each)
            assert await replies(peer, 1) != [first]
        assert bodies(served)[b"x"] == 2


async def test_the_ids_of_another_link() -> None:
    """Some clients count from one on, on each link anew."""
    async with gateway() as (served, port), client(port) as peer:
        await managing(peer)
        peer.deliver(MANAGEMENT_OUT, request(1))
        await replies(peer, 1)
        peer.attach(9, NODE, role=False)
        peer.deliver(9, request(1))
        await replies(peer, 1)
        assert bodies(served) == {b"x": 2}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (request(None), request(None)),
        (request("a", b"x"), request("a", b"y")),
        (request("a"), request("a", reply_to="link")),
    ],
    ids=["no id", "another message", "another reply-to"],
)
async def test_what_is_no_copy(first: bytes, second: bytes) -> None:
    """Both are carried out: the second is not known to be the first, or known not to be."""
    async with gateway() as (served, port), client(port) as peer:
        await managing(peer)
        peer.deliver(MANAGEMENT_OUT, first)
        peer.deliver(MANAGEMENT_OUT, second)
        await replies(peer, 2)
        assert sum(bodies(served).values()) == 2


async def test_a_reply_that_is_too_large_to_be_kept() -> None:
    """A copy that comes after it is not carried out, and told so."""
    async with gateway(message_bytes_max=2 * REPLY_BYTES_MAX) as (_, port), client(port) as peer:
        peer.attach(7, "q", role=False)
        await peer.outcome(peer.deliver(7, message(bytes(REPLY_BYTES_MAX))))
        await managing(peer)
        fields = {"operation": "com.microsoft:peek-message"}
        value = {"from-sequence-number": 0, "message-count": 1}
        properties = MessageProperties(message_id="a", reply_to="client-3")
        raw = encode_message(AmqpMessage(properties, fields, value))
        for status in (200, 400):
            peer.deliver(MANAGEMENT_OUT, raw)
            parts = [await peer.next(Transfer, handle=MANAGEMENT_IN)]
            while parts[-1][0].more:
                parts.append(await peer.next(Transfer, handle=MANAGEMENT_IN))
            reply = decode_message(b"".join(payload for _, payload in parts))
            assert reply.application_properties["statusCode"] == status


async def test_a_token_that_is_put_with_the_same_id() -> None:
    """`$cbs` carries each out: clients with one id for all of their tokens renew them."""
    async with gateway() as (_, port), client(port) as peer:
        for token, status in ((sas(), 202), ("nonsense", 401), (sas(), 202)):
            fields = {"operation": "put-token", "name": "sb://localhost/"}
            properties = MessageProperties(message_id="1")
            peer.deliver(CBS_OUT, encode_message(AmqpMessage(properties, fields, token)))
            _, payload = await peer.next(Transfer, handle=CBS_IN)
            assert decode_message(payload).application_properties["status-code"] == status


async def test_the_credit_of_nodes() -> None:
    """`$management` takes 2,000 requests at a time, `$cbs` 100."""
    async with gateway() as (_, port), client(port) as peer:
        assert (await peer.next(Flow, handle=CBS_OUT)).link_credit == 100
        peer.attach(MANAGEMENT_OUT, NODE, role=False)
        assert (await peer.next(Flow, handle=MANAGEMENT_OUT)).link_credit == 2_000


async def test_two_thousand_requests_at_a_time() -> None:
    """All that the credit allows are carried out and answered, however long the first ones take."""
    namespace = Slow(QUEUE)
    async with gateway(namespace=namespace) as (served, port), client(port) as peer:
        await managing(peer)
        peer.credit(MANAGEMENT_IN, 5_000)
        namespace.gate.clear()
        numbers = [peer.deliver(MANAGEMENT_OUT, request(each)) for each in range(2_000)]
        await peer.outcome(numbers[-1])
        namespace.gate.set()
        await replies(peer, len(numbers))
        assert bodies(served) == {b"x": len(numbers)}
        assert served.backlog.waiting_bytes == 0


async def test_the_bytes_of_requests_under_way() -> None:
    """A client with more of them than it may have is not read from until they are done."""
    namespace = Slow(QUEUE)
    bound = 1_000_000
    bounded = gateway(namespace=namespace, input_bytes_high=bound)
    async with bounded as (served, port), client(port) as peer:
        await managing(peer)
        namespace.gate.clear()
        raw = [request(each, bytes(50_000)) for each in range(100)]
        for each in raw:
            peer.deliver(MANAGEMENT_OUT, each)
        await until(lambda: served.backlog.waiting_bytes > bound)
        for _ in range(20):  # turns in which nothing more is read
            await asyncio.sleep(0)
        assert served.backlog.waiting_bytes < 2 * bound
        namespace.gate.set()
        await replies(peer, len(raw))
        assert bodies(served) == {bytes(50_000): len(raw)}
        assert served.backlog.waiting_bytes == 0


STEP = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["turn", "close", "open"]), st.just(0)),
)


@settings(max_examples=40)
@given(st.lists(STEP, max_size=30))
def test_any_mix_of_repeats(steps: list[tuple[str, int]]) -> None:
    """Copies within a turn and across turns, under way or answered: one message, one reply each."""

    async def run() -> None:
        namespace = Slow(QUEUE)
        raw = [request(each, b"%d" % each) for each in range(5)]
        async with gateway(namespace=namespace) as (served, port), client(port) as peer:
            await managing(peer)
            sent = []
            for kind, which in steps:
                if kind == "send":
                    sent.append(which)
                    number = peer.deliver(MANAGEMENT_OUT, raw[which])
                elif kind == "turn" and sent:
                    await peer.outcome(number)
                elif kind == "close":
                    namespace.gate.clear()
                elif kind == "open":
                    namespace.gate.set()
            namespace.gate.set()
            answers = await replies(peer, len(sent))
            ids = Counter(decode_message(each).properties.correlation_id for each in answers)
            assert ids == Counter(sent)
            assert len(set(answers)) == len(set(sent))
            assert bodies(served) == {b"%d" % each: 1 for each in sent}
            assert served.backlog.waiting_bytes == 0

    asyncio.run(run())
