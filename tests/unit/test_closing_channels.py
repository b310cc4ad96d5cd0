"""Channels end from both sides while frames are on their way: that costs no other channel anything.

RabbitMQ sends frames of a channel after its own channel.close, until it has read the answer, and a
little longer (docs/rabbitmq-faults.md: frames-of-closed).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pamqp.body
import pamqp.commands as spec
import pamqp.frame
import pamqp.header
from hypothesis import given
from hypothesis import strategies as st

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.channel_numbers import ChannelNumbers
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError, ConnectionLost
from bridge.wire.basic import Properties

MOST = 8
TAG = "every-channels"
PLAIN = Properties().encode()


class Written(asyncio.Transport):
    """The client's socket: keeps what is written.

    Attributes:
        data: what RabbitMQ has not read yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep it."""
        self.data += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There are none."""

    def get_write_buffer_size(self) -> int:
        """Return 0: all is taken."""
        return 0

    def abort(self) -> None:
        """The end."""


@dataclass
class Served:
    """RabbitMQ's process of one channel.

    Attributes:
        serial: the how many-th channel of the client's it is.
        delivered, published, confirmed: counts, and numbers.
        is_closing: RabbitMQ has closed it; `has_ended`: and has read the answer, or the client's.
    """

    serial: int
    number: int
    delivered: int = 0
    published: int = 0
    confirmed: set[int] = field(default_factory=set)
    consumes: bool = False
    is_closing: bool = False
    has_ended: bool = False


class RabbitMq:
    """The channels of one connection, as RabbitMQ treats them.

    Attributes:
        sent: what the client has not read yet.
        channels: by number; those that RabbitMQ has closed until their number is opened again.
        all: every channel that was opened, in order.
    """

    def __init__(self, socket: Written) -> None:
        self._socket = socket
        self.sent = b""
        self.channels: dict[int, Served] = {}
        self.all: list[Served] = []

    def send(self, number: int, *frames: Any) -> None:
        """Write frames."""
        for frame in frames:
            self.sent += pamqp.frame.marshal(frame, number)

    def read(self) -> bool:
        """Read the client's next frame; return whether there was one."""
        if not self._socket.data:
            return False
        size, number, frame = pamqp.frame.unmarshal(self._socket.data)
        self._socket.data = self._socket.data[size:]
        self._handle(number, frame)
        return True

    def _handle(self, number: int, frame: Any) -> None:
        served = self.channels.get(number)
        if isinstance(frame, spec.Channel.Open):
            assert served is None or served.has_ended, "second 'channel.open' seen"
            self.channels[number] = served = Served(len(self.all), number)
            self.all.append(served)
            self.send(number, spec.Channel.OpenOk())
        elif served is None or served.has_ended:
            # An answer to RabbitMQ's close, behind the client's own.
            assert isinstance(frame, spec.Channel.CloseOk), f"expected 'channel.open', not {frame}"
        elif isinstance(frame, spec.Channel.CloseOk):
            assert served.is_closing
            served.has_ended = True
        elif isinstance(frame, spec.Channel.Close):
            self.send(number, spec.Channel.CloseOk())
            if not served.is_closing:
                del self.channels[number]
        elif served.is_closing:
            return
        elif isinstance(frame, spec.Basic.Consume):
            served.consumes = True
            self.send(number, spec.Basic.ConsumeOk(TAG))
        elif isinstance(frame, spec.Confirm.Select):
            self.send(number, spec.Confirm.SelectOk())
        elif isinstance(frame, spec.Basic.Publish):
            served.published += 1

    def deliver(self, served: Served) -> None:
        """Deliver a message that says whose it is."""
        if served.consumes:
            served.delivered += 1
            body = f"{served.serial}: {served.delivered}".encode()
            header = pamqp.header.ContentHeader(0, len(body), spec.Basic.Properties())
            method = spec.Basic.Deliver(TAG, served.delivered, False, "x", "k")
            self.send(served.number, method, header, pamqp.body.ContentBody(body))

    def confirm(self, served: Served) -> None:
        """Confirm the oldest publish."""
        number = len(served.confirmed) + 1
        if number <= served.published:
            served.confirmed.add(number)
            self.send(served.number, spec.Basic.Ack(number, False))

    def close(self, served: Served) -> None:
        """End a channel."""
        if not served.is_closing:
            served.is_closing = True
            self.send(served.number, spec.Channel.Close(404, "NOT_FOUND - no exchange", 60, 40))


@dataclass
class Opened:
    """A channel of the client's.

    Attributes:
        got: the texts of its deliveries.
        outcomes: of its publishes, by number: whether they are stored.
    """

    channel: Channel
    got: list[str] = field(default_factory=list)
    outcomes: dict[int, bool] = field(default_factory=dict)

    def on_delivery(self, delivery: Delivery) -> None:
        """Note it."""
        self.got.append(delivery.body.decode())

    def settled(self, number: int, error: BrokerError | None) -> None:
        """Note a publish's outcome."""
        assert number not in self.outcomes
        self.outcomes[number] = error is None


class Course:
    """A connection, and RabbitMQ behind it."""

    def __init__(self) -> None:
        self.connection = Connection("test", 1_000.0, 1_000.0)
        self.transport = self.connection._transport
        socket = Written()
        self.transport.connection_made(socket)
        self.connection._tune(MOST, 4_096, 0, 0.0)
        self.connection.flush()
        socket.data = b""
        self.rabbitmq = RabbitMq(socket)
        self.opened: list[Opened] = []
        self._published = 0

    @property
    def live(self) -> list[Opened]:
        """The client's open channels."""
        return [each for each in self.opened if each.channel.close_reason is None]

    def step(self, what: str, at: int) -> None:
        """Do one thing; `at`: with which channel, or how much."""
        served = list(self.rabbitmq.channels.values())
        if what == "open" and len(self.live) < MOST // 2:
            self._open()
        elif what == "read":
            self.transport.data_received(self.rabbitmq.sent[: 31 * at])
            self.rabbitmq.sent = self.rabbitmq.sent[31 * at :]
        elif what == "serve":
            for _ in range(at):
                self.rabbitmq.read()
        elif what in ("deliver", "confirm", "fail") and served:
            of = served[at % len(served)]
            does = {"deliver": self.rabbitmq.deliver, "confirm": self.rabbitmq.confirm}
            does.get(what, self.rabbitmq.close)(of)
        elif what in ("publish", "close") and self.live:
            one = self.live[at % len(self.live)]
            self._publish(one) if what == "publish" else one.channel.abandon()
        self.connection.flush()

    def end(self) -> None:
        """Have both sides read all that there is."""
        while self.rabbitmq.sent or self.rabbitmq.read():
            self.step("read", 1_000)

    def _open(self) -> None:
        try:
            channel = self.connection.channel_soon()
        except BrokerError:  # too many are being closed
            return
        opened = Opened(channel)
        self.opened.append(opened)
        channel.publisher.confirm_select()
        channel.consumers.consume_soon("q", opened.on_delivery, tag=TAG, no_ack=True)

    def _publish(self, one: Opened) -> None:
        number = one.channel.publisher._published + 1
        one.channel.publisher.publish("x", "k", PLAIN, b"", settled=partial(one.settled, number))


async def follow(steps: list[tuple[str, int]]) -> None:
    """Do all steps, then let everything arrive, and compare both sides."""
    course = Course()
    for what, at in steps:
        course.step(what, at)
    course.end()
    assert course.connection.close_reason is None
    for one, served in zip(course.opened, course.rabbitmq.all, strict=True):
        sent = [f"{served.serial}: {number + 1}" for number in range(served.delivered)]
        assert one.got == sent[: len(one.got)]
        stored = {number for number, is_stored in one.outcomes.items() if is_stored}
        assert stored <= served.confirmed
        if one.channel.close_reason is None:
            assert (one.got, stored) == (sent, served.confirmed)
            assert not one.channel.awaits_queue
    assert f"{len(course.live)} channels" in repr(course.connection)
    course.transport.lose(ConnectionLost(text="the end"))
    for one, served in zip(course.opened, course.rabbitmq.all, strict=True):
        assert len(one.outcomes) == one.channel.publisher._published >= served.published


BEGUN = [("open", 0), ("serve", 9), ("read", 99)]
KINDS = ("open", "publish", "close", "serve", "read", "deliver", "confirm", "fail")
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 20)), min_size=10, max_size=80)


@given(STEPS)
def test_frames_and_closes_in_any_order_cost_no_other_channel_anything(
    steps: list[tuple[str, int]],
) -> None:
    """Each channel has its own messages and confirms, in order, and no others."""
    asyncio.run(follow([*BEGUN, *BEGUN, *steps]))


def test_a_delivery_behind_rabbitmqs_close_is_dropped() -> None:
    """RabbitMQ sends it before it has read the answer, or behind that."""
    behind = [("fail", 0), ("deliver", 0), ("read", 99), ("serve", 9), ("deliver", 0), ("read", 99)]
    asyncio.run(follow([*BEGUN, *BEGUN, *behind, ("deliver", 1)]))


def test_a_delivery_behind_crossing_closes_is_dropped() -> None:
    """Both sides close the channel at the same time."""
    crossing = [("fail", 0), ("close", 0), ("serve", 9), ("deliver", 0), ("read", 99)]
    asyncio.run(follow([*BEGUN, *crossing, ("serve", 9), ("deliver", 0), ("read", 99)]))


def test_a_close_in_the_middle_of_a_message() -> None:
    """It ends the channel alone: what is missing of the message will not come."""

    async def play() -> None:
        course = Course()
        for what, at in BEGUN:
            course.step(what, at)
        method = spec.Basic.Deliver(TAG, 1, False, "x", "k")
        header = pamqp.header.ContentHeader(0, 10, spec.Basic.Properties())
        course.rabbitmq.send(1, method, header, pamqp.body.ContentBody(b"half"))
        course.step("fail", 0)
        course.end()
        assert course.connection.close_reason is None
        assert (course.live, course.opened[0].got) == ([], [])
        course.transport.lose(ConnectionLost(text="the end"))

    asyncio.run(play())


def test_a_number_of_a_channel_that_rabbitmq_has_closed_rests() -> None:
    """It is used again when no other is left; the one that has rested longest is the first."""
    numbers = ChannelNumbers(4)
    assert [numbers.take() for _ in range(3)] == [1, 2, 3]
    numbers.give_back(2, rests=True)
    numbers.give_back(1, rests=True)
    numbers.give_back(3, rests=False)
    assert [numbers.take() for _ in range(5)] == [3, 4, 2, 1, None]
