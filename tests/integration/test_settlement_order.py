"""What is written to RabbitMQ settles what was asked: each delivery once, in the order asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import pika as pika_client
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pika.exceptions import ChannelClosedByBroker

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.connection.receiving_channel import ReceivingChannel
from bridge.client.address import Address
from bridge.client.aio.connection import AioWire
from bridge.client.exceptions import ServiceBusError
from bridge.client.sync.connection import PikaWire
from bridge.client.sync.thread import IoThread
from bridge.message import port
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually, until
from tests.integration.delivery_tags import (
    ACKED,
    DROPPED,
    NACKED,
    QUEUE,
    REJECTED,
    Queue,
    Settled,
    in_order,
    is_beginning,
)
from tests.integration.inbox import QUORUM, WITHIN_S, Inbox
from tests.integration.scripted_broker import scripted_broker
from tests.integration.test_channel import send

GET, FORGOTTEN_GET, CANCEL, UP_TO = "get", "forgotten get", "cancel", "ack up to"

Step = tuple[str, int]
"""What is asked, and of which of the outstanding deliveries (counted round)."""

Turn = tuple[int, list[Step]]
"""How many deliveries come, and what is asked in the turn of the loop in which the last one came.
"""


class Client(Protocol):
    """A channel of a client that consumes from the queue.

    Attributes:
        can: the steps that it has.
        on_delivery: called with the tag of each delivery, of consumer and gets.
        outstanding: the count of deliveries that are not settled.
        is_settled: whether it has said that all are settled, and none has come since.
        is_closed: whether the channel has ended.
        losses: how often it has said that the channel has ended without a `close`.
        after: what it has said after that.
    """

    can: frozenset[str]
    is_closed: bool
    losses: int
    after: list[str]
    on_delivery: Callable[[int], None]
    outstanding: int
    is_settled: bool

    def run(self, turn: Callable[[], None]) -> None:
        """Call a function where the channel may be used, in one turn."""

    def settle(self, how: str, tag: int) -> None:
        """Ack, reject or nack a delivery."""

    def get(self) -> None:
        """Ask for a message."""

    def forget_get(self) -> None:
        """Ask for a message, and give up at once."""

    def cancel(self) -> None:
        """End the consumer."""

    def close(self) -> None:
        """Close the channel."""

    async def passed(self) -> None:
        """Wait until RabbitMQ has carried out all that was asked."""


class PortClient:
    """A channel as receiving has it (`message.port`)."""

    can = frozenset((ACKED, REJECTED, NACKED, GET, CANCEL))

    def __init__(self, channel: port.Channel, run: Callable[[Callable[[], None]], None]) -> None:
        self.on_delivery: Callable[[int], None] = _ignore
        self.run = run
        self.is_settled = True
        self.losses = 0
        self.after: list[str] = []
        self._channel = channel
        channel.on_settled = self._on_settled

    @property
    def outstanding(self) -> int:
        return self._channel.outstanding

    async def begin(self) -> None:
        """Begin to consume."""
        ended = partial(self._note, "the consumer has ended")
        self.run(lambda: self._channel.consume(QUEUE, "c", 0, self._on_delivery, ended))
        await self.passed()

    @property
    def is_closed(self) -> bool:
        return self._channel.is_closed

    def lost(self, error: Exception) -> None:
        """Take it that the channel has ended."""
        assert self.is_closed
        self.losses += 1

    def _note(self, what: str) -> None:
        if self.losses:
            self.after.append(what)

    def _on_settled(self) -> None:
        self.is_settled = True

    def _on_delivery(self, delivery: port.Delivery | None) -> None:
        assert delivery is not None
        self._note("a message")
        self.is_settled = False
        self.on_delivery(delivery.tag)

    def settle(self, how: str, tag: int) -> None:
        channel = self._channel
        {ACKED: channel.ack, REJECTED: channel.reject, NACKED: channel.nack}[how](tag)

    def get(self) -> None:
        self._channel.get(QUEUE, self._on_delivery, self._on_silent)

    def _on_silent(self) -> None:
        assert self.losses, "RabbitMQ has answered"
        self._note("RabbitMQ does not answer a get")

    def forget_get(self) -> None:
        raise NotImplementedError

    def cancel(self) -> None:
        self._channel.cancel("c")

    def close(self) -> None:
        self._channel.close()

    async def passed(self) -> None:
        loop = asyncio.get_running_loop()
        passed = asyncio.Event()
        self.run(lambda: self._channel.barrier(lambda: _set_soon(loop, passed)))
        async with asyncio.timeout(WITHIN_S):
            await passed.wait()


class BridgeClient(PortClient):
    """The bridge's own client, with what others than receiving ask of it."""

    can = PortClient.can | {UP_TO, DROPPED, FORGOTTEN_GET}

    def __init__(self, channel: Channel) -> None:
        super().__init__(ReceivingChannel(channel, self.lost), lambda turn: turn())
        self._consumers = channel.consumers

    def settle(self, how: str, tag: int) -> None:
        if how == UP_TO:
            self._consumers.ack(tag, multiple=True)
        elif how == DROPPED:
            self._consumers.reject(tag, requeue=False)
        else:
            super().settle(how, tag)

    def forget_get(self) -> None:
        self._consumers.get(QUEUE).cancel()


def _ignore(tag: int) -> None:
    pass


def _set_soon(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set an event, from any thread."""
    loop.call_soon_threadsafe(event.set)


def _address(endpoint: Endpoint) -> Address:
    return Address(endpoint.hosts, "/", "guest", "guest", None)


class Losses:
    """Passes on to a client that its channel has ended."""

    client: PortClient | None = None

    def __call__(self, error: ServiceBusError) -> None:
        assert self.client is not None
        self.client.lost(error)


@asynccontextmanager
async def the_bridges_own(endpoint: Endpoint) -> AsyncIterator[BridgeClient]:
    """The bridge's own client."""
    connection = await Connection.open(endpoint, name="test")
    client = BridgeClient(await connection.channel())
    await client.begin()
    yield client
    await connection.close()


@asynccontextmanager
async def pika(endpoint: Endpoint) -> AsyncIterator[PortClient]:
    """The library's client on pika."""
    thread = IoThread()
    wire = PikaWire(thread, _address(endpoint), "test")
    opened: list[port.Channel] = []
    losses = Losses()
    try:
        thread.call(wire.start)
        await until(lambda: wire.is_up)
        thread.call(lambda: opened.append(wire.open(losses)))
        await until(lambda: opened)
        client = losses.client = PortClient(opened[0], thread.call)
        await client.begin()
        yield client
        closed = asyncio.Event()
        loop = asyncio.get_running_loop()
        thread.call(wire.close)
        thread.call(lambda: _set_soon(loop, closed))
        await closed.wait()
        await until(lambda: not wire.is_closing)
    finally:
        thread.stop()
        await asyncio.to_thread(thread.join, WITHIN_S)


@asynccontextmanager
async def aio_pika(endpoint: Endpoint) -> AsyncIterator[PortClient]:
    """The library's client on aio-pika."""
    wire = AioWire(_address(endpoint), "test")
    await wire.ready(WITHIN_S)
    losses = Losses()
    client = losses.client = PortClient(wire.open(losses), lambda turn: turn())
    await client.begin()
    yield client
    await wire.close()


Opened = Callable[[Endpoint], AbstractAsyncContextManager[Any]]

CLIENTS: list[tuple[Opened, int]] = [(the_bridges_own, 300), (pika, 40), (aio_pika, 40)]


@dataclass
class Application:
    """What the turns of an example ask of a client, and what RabbitMQ should come to know of it.

    Attributes:
        asked: the settlements asked for, in order.
        outstanding: the deliveries that came and are not settled.
        gets: for each get of this turn whether it was forgotten.
        came: how many deliveries came.
        due: how many deliveries have come when the turn is over.
    """

    client: Client
    queue: Queue
    asked: list[Settled] = field(default_factory=list)
    outstanding: list[int] = field(default_factory=list)
    gets: list[bool] = field(default_factory=list)
    came: int = 0
    due: int = 0
    is_cancelled: bool = False

    async def take(self, turn: Turn) -> None:
        """Have a turn happen, and wait for the answers to its gets."""
        count, steps = turn
        loop = asyncio.get_running_loop()
        is_over = asyncio.Event()
        count = 0 if self.is_cancelled else count
        last = self.came + count
        self.due += count

        def act() -> None:
            for step in steps:
                self._ask(step)
            _set_soon(loop, is_over)

        def arrived(tag: int) -> None:
            self.outstanding.append(tag)
            self.came += 1
            if self.came == last:
                act()

        self.client.on_delivery = arrived
        if count:
            self.queue.deliver(count)
        else:
            self.client.run(act)
        await is_over.wait()
        if self.gets:
            await self._await_gets()

    async def settle(self, steps: list[Step], *, waits: bool) -> None:
        """Ask in one turn, unless the channel has ended; wait until RabbitMQ may have told it."""
        loop = asyncio.get_running_loop()
        is_over = asyncio.Event()
        self.client.on_delivery = self.outstanding.append

        def act() -> None:
            if not self.client.is_closed:
                for step in steps:
                    self._ask(step)
            _set_soon(loop, is_over)

        self.client.run(act)
        await is_over.wait()
        if waits:
            await asyncio.sleep(0.001)

    async def _await_gets(self) -> None:
        """Wait for the answers to gets; a forgotten one's message goes back at once."""
        gets, self.gets = self.gets, []
        self.due += gets.count(False)
        await self.client.passed()
        await until(lambda: self.came == self.due)
        tags = self.queue.got[-len(gets) :]
        self.asked += [(NACKED, tag) for tag, was_lost in zip(tags, gets, strict=True) if was_lost]

    def _ask(self, step: Step) -> None:
        what, which = step
        if what == CANCEL:
            if not self.is_cancelled:
                self.is_cancelled = True
                self.client.cancel()
        elif what == GET:
            self.gets.append(False)
            self.client.get()
        elif what == FORGOTTEN_GET:
            self.gets.append(True)
            self.client.forget_get()
        elif self.outstanding:
            self._settle(what, self.outstanding[which % len(self.outstanding)])

    def _settle(self, what: str, tag: int) -> None:
        settled = [each for each in self.outstanding if each <= tag] if what == UP_TO else [tag]
        self.asked += [(ACKED if what == UP_TO else what, each) for each in settled]
        self.outstanding = [each for each in self.outstanding if each not in settled]
        self.client.settle(what, tag)


async def _play(opened: Opened, turns: list[Turn], *, closes_in_last_turn: bool) -> None:
    queue = Queue()
    async with scripted_broker(queue.script) as endpoint, opened(endpoint) as client:
        application = Application(client, queue)
        for count, steps in turns:
            known = [step for step in steps if step[0] in client.can]
            await application.take((count, known))
        if not closes_in_last_turn:
            await client.passed()
            assert client.outstanding == len(application.outstanding)
            assert client.is_settled == (not application.outstanding)
        client.run(client.close)
        await queue.closed()

        assert queue.refusal is None
        assert in_order(queue.unacked.settled) == in_order(application.asked)
        assert queue.unacked.tags == sorted(application.outstanding)


def _turns() -> st.SearchStrategy[list[Turn]]:
    what = (ACKED, ACKED, UP_TO, REJECTED, DROPPED, NACKED, GET, FORGOTTEN_GET, CANCEL)
    steps = st.lists(st.tuples(st.sampled_from(what), st.integers(0, 7)), max_size=8)
    return st.lists(st.tuples(st.integers(0, 5), steps), max_size=8)


@pytest.mark.parametrize(("opened", "examples"), CLIENTS, ids=["bridge", "pika", "aio-pika"])
def test_what_is_written_settles_what_was_asked(opened: Opened, examples: int) -> None:
    """Within a turn of the loop and across turns: no delivery twice, none that was not named."""

    @settings(max_examples=examples, deadline=None)
    @given(_turns(), st.booleans())
    @example([(3, [(ACKED, 1), (ACKED, 1), (REJECTED, 0)])], False)
    @example([(3, [(ACKED, 1), (ACKED, 1), (NACKED, 0)])], True)
    @example([(5, [(ACKED, 3), (ACKED, 3), (UP_TO, 2)])], False)
    def holds(turns: list[Turn], closes_in_last_turn: bool) -> None:
        asyncio.run(_play(opened, turns, closes_in_last_turn=closes_in_last_turn))

    holds()


async def _lose(
    opened: Opened, came: int, turns: list[list[Step]], ends_after: int, *, is_told_late: bool
) -> None:
    """Have messages come, and settle them in turns; meanwhile RabbitMQ ends the channel."""
    queue = Queue(ends_after)
    async with scripted_broker(queue.script) as endpoint, opened(endpoint) as client:
        application = Application(client, queue)
        await application.take((came, []))
        for steps in turns:
            known = [step for step in steps if step[0] in client.can]
            await application.settle(known, waits=not is_told_late)
        queue.end()
        await until(lambda: client.losses)
        await queue.closed()

        assert queue.refusal is None
        assert is_beginning(queue.unacked.settled, application.asked)
        assert client.losses == 1
        assert client.after == []


@pytest.mark.parametrize(("opened", "examples"), CLIENTS, ids=["bridge", "pika", "aio-pika"])
def test_what_was_settled_when_a_channel_is_lost_was_asked_first(
    opened: Opened, examples: int
) -> None:
    """RabbitMQ ends the channel at any frame: the rest goes back, the loss is told once, last."""
    what = st.sampled_from((ACKED, ACKED, UP_TO, REJECTED, DROPPED, NACKED, GET, CANCEL))
    turns = st.lists(st.lists(st.tuples(what, st.integers(0, 7)), max_size=6), max_size=5)

    @settings(max_examples=examples, deadline=None)
    @given(st.integers(1, 8), turns, st.integers(0, 8), st.booleans())
    @example(3, [[(GET, 0), (ACKED, 0)], [(ACKED, 0), (ACKED, 0)]], 1, True)
    @example(3, [[(ACKED, 2), (REJECTED, 0)], [(ACKED, 0)]], 1, False)
    def holds(came: int, turns: list[list[Step]], ends_after: int, is_told_late: bool) -> None:
        asyncio.run(_lose(opened, came, turns, ends_after, is_told_late=is_told_late))

    holds()


async def _settle_in_one_turn(channel: Channel, give_back: Callable[[int], None]) -> Inbox:
    """Take three messages, and in one turn ack the second and the third and return the first."""
    await channel.publisher.confirm_select()
    await channel.declarations.declare_queue("q", arguments=QUORUM)
    inbox = Inbox()
    await channel.consumers.consume("q", inbox)
    await send(channel, "q", b"1", b"2", b"3")
    first, second, third = await inbox.until(3)
    channel.consumers.ack(second.tag)
    channel.consumers.ack(third.tag)
    give_back(first.tag)
    return inbox


@pytest.mark.parametrize("verb", ["reject", "nack"])
async def test_a_returned_message_comes_again_beside_acks(
    connection: Connection, verb: str
) -> None:
    """RabbitMQ has the first message back, and the channel lives on."""
    channel = await connection.channel()
    consumers = channel.consumers
    returns = {"reject": lambda tag: consumers.reject(tag, True), "nack": consumers.nack}
    inbox = await _settle_in_one_turn(channel, returns[verb])
    again = (await inbox.until(4))[3]
    consumers.ack(again.tag)
    await channel.barrier()
    state = await channel.declarations.declare_queue("q", passive=True)

    assert (again.body, again.redelivered) == (b"1", True)
    assert channel.close_reason is None
    assert (state.messages, consumers.outstanding) == (0, 0)


@pytest.mark.parametrize("multiple", [False, True])
def test_rabbitmq_closes_the_channel_for_an_unknown_tag(
    broker: Broker, vhost: str, multiple: bool
) -> None:
    """As `delivery_tags` plays it: also with `multiple`, and though earlier tags are unacked."""
    parameters = pika_client.URLParameters(broker.url_of(vhost))
    with pika_client.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
        for _ in range(3):
            channel.basic_publish("", "q", b"m")
        eventually(lambda: _ready(channel) == 3, within_s=120)
        tags = [channel.basic_get("q")[0].delivery_tag for _ in range(3)]
        channel.basic_ack(tags[2])
        channel.basic_ack(tags[2], multiple=multiple)
        with pytest.raises(ChannelClosedByBroker, match="unknown delivery tag 3") as closed:
            channel.basic_qos()
        assert closed.value.reply_code == 406
        channel = connection.channel()
        eventually(lambda: _ready(channel) == 2, within_s=120)


def _ready(channel: Any) -> int:
    return int(channel.queue_declare("q", passive=True).method.message_count)
