"""What one client may ask for at once: large batches, long lists, many reply links."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from bridge.gateway.client.reply_links import ReplyLinks
from bridge.gateway.nodes.node_operation import ITEMS_MAX
from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.message import (
    BATCH_FORMAT,
    AmqpMessage,
    encode_message,
)
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.performatives import Accepted, Attach, Detach, Rejected
from bridge.wire.amqp10.types import Array, Described, Symbol, Timestamp, Ulong
from tests.conformance.client import MANAGEMENT_OUT, Client
from tests.conformance.probe import check, undisturbed
from tests.conformance.served import client, gateway, message, queue_of
from tests.conformance.test_storms import probing
from tests.fixtures.waiting import until

MEGABYTE = 1_048_576

TURN_S_MAX = 0.15
"""Half more than is promised, for the tests share their cores."""

MANY = 16_001
"""More messages than a batch of Azure's might have until its SDKs ceased to count them."""

ONE = message(b"12345")
"""A message of ten bytes."""


def batch_of(messages: list[bytes]) -> bytes:
    """Return a batch."""
    return b"".join(map(message, messages))


async def sender(peer: Client) -> Client:
    """Attach a sender to `q`."""
    peer.attach(7, "q", role=False)
    await peer.next(Attach, handle=7)
    return peer


def send(peer: Client, payload: bytes) -> int:
    """Send a batch; returns its delivery id."""
    return peer.deliver(7, payload, message_format=BATCH_FORMAT)


@undisturbed
async def test_a_batch_of_many_messages() -> None:
    """All are stored, in order, and no turn of the loop takes long."""
    batch = batch_of([message(b"%05d" % number) for number in range(MANY)])
    async with gateway(message_bytes_max=MEGABYTE) as (served, port), client(port) as peer:
        await sender(peer)
        with probing() as probe:
            numbers = [send(peer, batch), peer.transfer(7, message(b"small"))]
            for number in numbers:
                assert isinstance(await peer.outcome(number), Accepted)

        stored = [each.record.body for each in sorted(queue_of(served).active)]
        assert stored == [b"%05d" % number for number in range(MANY)] + [b"small"]
    check(probe.longest_s, TURN_S_MAX)


@undisturbed
async def test_a_batch_of_many_properties() -> None:
    """A megabyte of them is read while others have their turns."""
    properties: dict[str, Any] = {f"p{number}": number for number in range(30)}
    one = encode_message(AmqpMessage(application_properties=properties, value="x"))
    batch = batch_of([one] * 2_000)
    async with gateway(message_bytes_max=MEGABYTE) as (served, port), client(port) as peer:
        await sender(peer)
        with probing() as probe:
            assert isinstance(await peer.outcome(send(peer, batch)), Accepted)

        assert len(queue_of(served).active) == 2_000
    check(probe.longest_s, TURN_S_MAX)


@undisturbed
async def test_a_megabyte_of_tiny_messages() -> None:
    """A batch is limited by its size alone; no turn of the loop takes long."""
    count = MEGABYTE // len(message(ONE))
    tiny = batch_of([ONE] * count)
    async with gateway(message_bytes_max=MEGABYTE) as (served, port), client(port) as peer:
        await sender(peer)
        with probing() as probe:
            assert isinstance(await peer.outcome(send(peer, tiny)), Accepted)

        assert len(queue_of(served).active) == count
    check(probe.longest_s, TURN_S_MAX)


async def batch_size_told(peer: Client, handle: int) -> tuple[object, int]:
    """Attach a sender; returns what its answer says of a batch, and of a message."""
    peer.attach(handle, "q", role=False)
    answer = await peer.next(Attach, handle=handle)
    return (answer.properties or {}).get("com.microsoft:max-message-batch-size"), (
        answer.max_message_size
    )


@pytest.mark.parametrize(("limit", "told"), [(262_144, 262_144), (100 * MEGABYTE, MEGABYTE)])
async def test_the_answer_to_a_sender_says_how_large_a_batch_may_be(limit: int, told: int) -> None:
    """As large as a message, a megabyte at most; the SDKs make batches by it."""
    async with gateway(message_bytes_max=limit) as (_, port), client(port) as peer:
        found, message_size = await batch_size_told(peer, 7)
    assert (found, type(found), message_size) == (told, Ulong, limit)


async def test_a_batch_above_the_size_is_refused_for_its_size() -> None:
    """Not by an error that the client tries again; a message of that size is taken."""
    text = b"x" * (MEGABYTE // 2)
    async with gateway(message_bytes_max=4 * MEGABYTE) as (served, port), client(port) as peer:
        await sender(peer)
        refused = await peer.outcome(send(peer, batch_of([message(text), message(text)])))
        assert isinstance(refused, Rejected)
        assert refused.error.condition == "amqp:link:message-size-exceeded"
        assert str(MEGABYTE) in refused.error.description
        assert not queue_of(served).active

        assert isinstance(await peer.outcome(peer.deliver(7, message(text * 4))), Accepted)
        assert len(queue_of(served).active) == 1


async def test_a_large_batch_with_a_malformed_message() -> None:
    """Nothing of it is stored; what comes behind it is."""
    bodies = [ONE] * 3_000 + [b"\xff" * 10]
    async with gateway() as (served, port), client(port) as peer:
        await sender(peer)
        numbers = [send(peer, batch_of(bodies)), peer.transfer(7, message(b"small"))]
        assert isinstance(await peer.outcome(numbers[0]), Rejected)
        assert isinstance(await peer.outcome(numbers[1]), Accepted)
        assert [each.record.body for each in queue_of(served).active] == [b"small"]
        assert served.backlog.waiting_bytes == 0


async def test_a_client_that_leaves_behind_a_large_batch() -> None:
    """A batch that has come whole is stored whole, and none of it stays counted."""
    async with gateway(message_bytes_max=MEGABYTE) as (served, port):
        async with client(port) as peer:
            await sender(peer)
            send(peer, batch_of([ONE] * MANY))
            await peer._writer.drain()
        async with client(port) as other:
            assert await other.manage("q", "com.microsoft:renew-lock", {"lock-tokens": []})

        await until(lambda: not served.backlog.waiting_bytes)
        assert len(queue_of(served).active) in (0, MANY)


def scheduled(body: bytes) -> bytes:
    """Return a message with a time in the future."""
    when = Timestamp(int(time.time() * 1000) + 3_600_000)
    annotations = {Symbol("x-opt-scheduled-enqueue-time"): when}
    return writing.encode(Described(Ulong(0x72), annotations)) + message(body)


_TOKENS = Array("uuid", (UUID(int=0),) * (ITEMS_MAX + 1))
_NUMBERS = Array("long", tuple(range(ITEMS_MAX + 1)))

LISTS: dict[str, tuple[str, Any]] = {
    "renew-lock": ("lock-tokens", _TOKENS),
    "update-disposition": ("lock-tokens", _TOKENS),
    "cancel-scheduled-message": ("sequence-numbers", _NUMBERS),
    "receive-by-sequence-number": ("sequence-numbers", _NUMBERS),
    "schedule-message": ("messages", [{"message": scheduled(b"x")}] * (ITEMS_MAX + 1)),
}


@pytest.mark.parametrize("operation", LISTS)
async def test_long_lists(operation: str) -> None:
    """A request for more messages than there may be is refused, with the limit."""
    name, items = LISTS[operation]
    body = {name: items, "disposition-status": "completed"}
    async with gateway() as (served, port), client(port) as peer:
        reply = await peer.manage("q", f"com.microsoft:{operation}", body)

        fields = reply.application_properties
        assert fields["statusCode"] == 400
        assert fields["errorCondition"] == "com.microsoft:argument-out-of-range"
        assert str(ITEMS_MAX) in fields["statusDescription"]
        assert name in fields["statusDescription"]
        assert not queue_of(served).scheduled


LARGE: dict[str, Callable[[], Any]] = {
    "an array of tokens": lambda: {"lock-tokens": Array("uuid", (UUID(int=7),) * 61_000)},
    "a list of tokens": lambda: {"lock-tokens": [UUID(int=7)] * 61_000},
    "a map of tokens": lambda: {UUID(int=number): UUID(int=7) for number in range(30_500)},
    "an array of numbers": lambda: {"sequence-numbers": Array("long", (7,) * 130_000)},
    "texts": lambda: {"messages": ["x" * 80] * 12_000},
}
"""Made by their test: every worker reads this module."""


@pytest.mark.parametrize("make_body", LARGE.values(), ids=LARGE.keys())
@undisturbed
async def test_a_megabyte_of_request(make_body: Callable[[], Any]) -> None:
    """A request of any contents is answered or refused, and no turn of the loop takes long."""
    operation = {"operation": "com.microsoft:renew-lock"}
    request = encode_message(AmqpMessage(application_properties=operation, value=make_body()))
    assert 0.9 * MEGABYTE < len(request) < MEGABYTE
    async with gateway() as (_, port), client(port) as peer:
        await peer.manage("q", "com.microsoft:renew-lock", {"lock-tokens": []})
        with probing() as probe:
            outcome = await peer.outcome(peer.deliver(MANAGEMENT_OUT, request))
            await asyncio.sleep(0.1)  # it is answered
    assert isinstance(outcome, Accepted | Rejected)
    check(probe.longest_s, TURN_S_MAX)


@undisturbed
async def test_many_schedules_in_one_request() -> None:
    """As many as there may be are scheduled; no turn of the loop takes long."""
    entries = [{"message": scheduled(bytes(50)), "message-id": "m"}] * ITEMS_MAX
    operation = {"operation": "com.microsoft:schedule-message"}
    request = encode_message(
        AmqpMessage(application_properties=operation, value={"messages": entries})
    )
    async with gateway() as (served, port), client(port) as peer:
        await peer.manage("q", "com.microsoft:renew-lock", {"lock-tokens": []})
        with probing() as probe:
            peer.deliver(MANAGEMENT_OUT, request)
            await until(lambda: len(queue_of(served).scheduled) == ITEMS_MAX)
    check(probe.longest_s, TURN_S_MAX)


async def test_a_request_to_a_missing_entity() -> None:
    """The refused attach of its `$management` names the entity."""
    async with gateway() as (_, port), client(port) as peer:
        for role in (True, False):
            peer.attach(9, "Missing/$management", role=role)
            await peer.next(Attach, handle=9)
            refused = await peer.next(Detach, handle=9)
            assert refused.error.condition == "amqp:not-found"
            assert "'sb://localhost/Missing'" in refused.error.description
            peer.send_detach(9)


REPLY_LINKS = 4_900
REQUESTS = 300
FACTOR_MAX = 3
"""To look at all links for each request takes several times as much."""


async def requests_s(peer: Client) -> float:
    """What requests take of the processor, with their client."""
    begin_s = time.thread_time()
    for _ in range(REQUESTS):
        request = AmqpMessage(application_properties={"operation": "nothing"}, value="")
        request.properties = MessageProperties(message_id=uuid4(), reply_to="client-1")
        await peer.request(0, 1, request)
    return time.thread_time() - begin_s


@undisturbed
async def test_requests_beside_many_reply_links() -> None:
    """A request costs the same with one reply link as with thousands."""
    async with gateway() as (_, port), client(port) as peer:
        alone_s = await requests_s(peer)
        for handle in range(10, 10 + REPLY_LINKS):
            peer.attach(handle, "$cbs", role=True)
        await peer.next(Attach, handle=9 + REPLY_LINKS)
        peer.frames.clear()  # or the client looks through them for each reply
        check(await requests_s(peer), FACTOR_MAX * alone_s)


class _Session:
    """Nothing but itself."""


class _Link:
    """A reply link, as far as it is looked for."""

    def __init__(self, node: str, names: set[str], session: _Session) -> None:
        self.node, self.names, self.link = node, names, self
        self.session = session


def test_which_link_a_reply_takes() -> None:
    """The link that the request names, else one of its session, else any of its node."""
    here, there = _Session(), _Session()
    links: Any = ReplyLinks()
    first, named = _Link("q", {"a"}, there), _Link("q", {"b"}, there)
    mine, both = _Link("q", {"c"}, here), _Link("q", {"b"}, here)
    for link in (first, named, mine, _Link("r", {"b"}, here)):
        links.add(link)
    assert links.find("q", "b", here) is named
    links.add(both)
    assert links.find("q", "b", here) is both
    assert links.find("q", "", here) is mine
    links.remove(mine)
    links.remove(both)
    assert links.find("q", "x", here) is first
    links.remove(first)
    links.remove(named)
    assert links.find("q", "b", here) is None
    assert not [key for key in links._found if key[0] == "q"]
