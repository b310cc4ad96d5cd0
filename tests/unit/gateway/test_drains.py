"""A client grants credit, drains, detaches and attaches again while messages are on their way.

Whole turns of the loop pass between two steps, or none; the queue delivers in the middle of a
drain, before its end, and not at all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.access.access import Access
from bridge.engine.api import Disposition, NotTaken, OnSettled, Received, ReceiveMode
from bridge.gateway.client.admission import Visit
from bridge.gateway.client.settings import GatewaySettings
from bridge.gateway.connection.connection import ClientConnection
from bridge.gateway.server import Gateway
from bridge.machine.amqp10.client import CLIENT_LIMITS, ClientEndpoint
from bridge.machine.amqp10.client_link import ClientIncomingLink
from bridge.machine.amqp10.events import Closed, LinkDetached, MessageArrived
from bridge.model.access_rules import AccessRuleSet
from bridge.model.entity import Queue
from bridge.model.name import EntityPath
from bridge.wire.amqp10.performatives import Accepted, Flow, Source, Target
from bridge.wire.basic import Properties
from bridge.wire.record import Record
from tests.acceptance.wiretap import read_value
from tests.bench.memory_namespace import MemoryNamespace
from tests.fixtures.examples import examples
from tests.soak.fuzz_gateway import KEY, RULE, Sink

ATTACH, FLOW, TRANSFER, DETACH = 0x12, 0x13, 0x14, 0x16
AMQP_FRAME = 0

STEPS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 4)),
    st.tuples(st.just("bring"), st.integers(1, 4)),
    st.tuples(st.just("end withdrawal"), st.just(0)),
    st.tuples(st.just("grant"), st.integers(0, 6)),
    st.tuples(st.just("drain"), st.just(0)),
    st.tuples(st.just("drain"), st.just(0)),
    st.tuples(st.just("turns"), st.integers(1, 3)),
    st.tuples(st.just("turns"), st.integers(1, 3)),
    st.tuples(st.just("settle"), st.integers(1, 3)),
    st.tuples(st.just("read"), st.just(0)),
    st.tuples(st.just("attach"), st.just(0)),
    st.tuples(st.just("echo"), st.just(0)),
)
ENDS = st.tuples(st.sampled_from(("detach", "leave")), st.just(0))


class Shelf(MemoryNamespace):
    """A queue whose messages come when the test says so; takes note of its receivers.

    Attributes:
        waiting: numbers of messages that are available.
        published: how many there were in all.
        locked: numbers of those that a link has taken.
        receivers: those that were opened.
    """

    def __init__(self) -> None:
        super().__init__(Queue(name="q"))
        self.waiting: list[int] = []
        self.published = 0
        self.locked: set[int] = set()
        self.receivers: list[ShelfReceiver] = []

    def open_receiver(  # type: ignore[override]
        self, path: EntityPath, *, mode: ReceiveMode, deliver: Callable[[Received], None]
    ) -> ShelfReceiver:
        """Return a receiver without credit."""
        self.receivers.append(ShelfReceiver(self, deliver))
        return self.receivers[-1]

    def begin_settling(
        self, path: EntityPath, lock_token: UUID, disposition: Disposition, done: OnSettled
    ) -> None:
        """Settle at once."""
        done(None)

    def publish(self, count: int) -> None:
        """Make so many more messages available."""
        self.waiting += range(self.published, self.published + count)
        self.published += count


class ShelfReceiver:
    """A receiver as `engine.api.Receiver` has it; it checks that it is used so."""

    def __init__(self, shelf: Shelf, deliver: Callable[[Received], None]) -> None:
        self._shelf = shelf
        self._deliver = deliver
        self.asked = 0
        self.is_closed = False
        self._under_way: list[tuple[asyncio.Future[None], bool]] = []

    def add_credit(self, count: int) -> None:
        """Ask for `count` more messages."""
        assert count > 0
        assert not self.is_closed
        assert not self._under_way, "credit while it is taken back"
        self.asked += count

    async def withdraw(self) -> None:
        """Take back all credit."""
        await self._begin(is_drain=False)

    async def drain(self) -> None:
        """Deliver what is available within the credit, then take back the rest of the credit."""
        await self._begin(is_drain=True)

    def close(self) -> Awaitable[None]:
        """Take back all credit for good."""
        assert not self.is_closed
        self.is_closed = True
        self.asked = 0
        return self._begin(is_drain=False)

    def _begin(self, *, is_drain: bool) -> Awaitable[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way.append((future, is_drain))
        return future

    def bring(self, count: int) -> None:
        """Deliver up to so many."""
        waiting = self._shelf.waiting
        while count > 0 and self.asked and waiting:
            count -= 1
            self.asked -= 1
            number = waiting.pop(0)
            try:
                self._deliver(received(number))
            except NotTaken:
                waiting.insert(0, number)
                return
            self._shelf.locked.add(number)

    def end_withdrawal(self) -> None:
        """End what was begun first."""
        if self._under_way:
            future, is_drain = self._under_way.pop(0)
            if is_drain:
                self.bring(self.asked)
            self.asked = 0
            if not future.cancelled():
                future.set_result(None)


def received(number: int) -> Received:
    """Return a message that is locked."""
    return Received(
        record=Record(Properties(message_id=str(number)), b""),
        sequence_number=number + 1,
        enqueued_ms=1_000,
        delivery_count=0,
        lock_token=UUID(int=number),
        locked_until_ms=61_000,
    )


def frames_in(data: bytes) -> Iterator[tuple[bytes, int, list[Any]]]:
    """Cut bytes into frames of AMQP: each with its performative's code and fields."""
    at = 0
    while at < len(data):
        if data[at : at + 4] == b"AMQP":
            yield data[at : at + 8], -1, []
            at += 8
            continue
        end = at + int.from_bytes(data[at : at + 4], "big")
        frame, at = data[at:end], end
        if frame[5] != AMQP_FRAME or len(frame) == 8:
            yield frame, -1, []
            continue
        (_, ((_, code), (_, fields))), _ = read_value(frame, 8)
        yield frame, code, [value for _, value in fields]


@dataclass(eq=False)
class Account:
    """One link, in the order in which the bridge reads and writes.

    Attributes:
        count: the bridge's delivery count, as its frames say it.
        limit: the count that the client's credit reaches.
        reach: the most that any credit has reached: what was on its way may still come.
        drains: those that are not answered: the limit of each, and what was published before.
        is_awaited: the client's last flow was a drain, and is not answered.
    """

    count: int = 0
    limit: int = 0
    reach: int = 0
    drains: list[tuple[int, int]] = field(default_factory=list)
    is_awaited: bool = False
    is_ended: bool = False

    def asked(self, count: int, credit: int, *, drain: bool, published: int) -> None:
        """Take a flow of the client's."""
        self.limit = count + credit
        self.reach = max(self.reach, self.limit)
        self.is_awaited = drain
        if drain:
            self.drains.append((self.limit, published))

    def sent(self) -> None:
        """Take a message of the bridge's."""
        assert not self.is_ended
        self.count += 1
        assert self.count <= self.reach, "more messages than credit"

    def answered(self, count: int, credit: int, waiting: list[int], *, is_leaving: bool) -> None:
        """Take the bridge's answer to a drain: to the last one too, if it is true of that."""
        assert not self.is_ended
        assert credit == 0
        found = [at for at, each in enumerate(self.drains) if count == max(each[0], self.count)]
        assert found, "an answer that nobody asked for, or credit neither used nor given back"

        def is_true(limit: int, published: int) -> bool:
            were_there = [each for each in waiting if each < published]
            return self.count >= limit or not were_there or is_leaving

        assert is_true(*self.drains[found[0]]), "some were there"
        if found[-1] == len(self.drains) - 1 and is_true(*self.drains[-1]):
            self.is_awaited = False
        del self.drains[: found[0] + 1]
        self.count = count
        if not self.drains:
            self.reach = max(count, self.limit)


@dataclass
class Run:
    """A client, a bridge's connection, and the account of what goes between them."""

    window: int
    portion: int
    high: int
    shelf: Shelf = field(default_factory=Shelf)
    accounts: dict[int, Account] = field(default_factory=dict)
    tags: Counter[bytes] = field(default_factory=Counter)
    detached: Counter[str] = field(default_factory=Counter)
    unsettled: list[tuple[ClientIncomingLink, int]] = field(default_factory=list)
    attached: int = 0
    link: ClientIncomingLink = field(init=False)

    async def begin(self) -> None:
        """Log in, and attach a receiver."""
        limits = {"fetch_max": self.portion, "output_bytes_high": self.high}
        its = GatewaySettings(turn_s=60.0, unauthenticated_turn_s=60.0, **limits)  # type: ignore[arg-type]
        gateway = Gateway(self.shelf, Access(AccessRuleSet(namespace=(RULE,))), its)
        visit = gateway.admission.enter("127.0.0.1")
        assert isinstance(visit, Visit)
        self.bridge, self.sink = ClientConnection(gateway.connections, visit), Memory()
        self.bridge.connection_made(self.sink)
        self.client = ClientEndpoint(
            container_id="client",
            hostname="localhost",
            mechanism="PLAIN",
            response=f"\0{RULE.name}\0{KEY}".encode(),
            properties={"product": "test"},
            limits=replace(CLIENT_LIMITS, incoming_window=self.window),
            now_ms=1_000,
        )
        self.read(0)
        self.session = self.client.begin()
        self.attach(0)
        self.read(0)

    # -- bytes

    def speak(self) -> None:
        """Give the bridge what the client has written, frame by frame."""
        for frame, code, fields in frames_in(self.client.take_output()):
            self.listen()
            self.note_up(code, fields)
            self.bridge.data_received(frame)
        self.listen()

    def read(self, _: int) -> None:
        """Give the client what the bridge has written; its answers go back."""
        self.speak()
        while down := self.sink.take():
            for event in self.client.receive(down, 1_000):
                self.on_client(event)
            self.speak()

    def listen(self) -> None:
        """Account for what the bridge has written so far."""
        self.bridge.flush()
        for _, code, fields in frames_in(self.sink.fresh()):
            if code == ATTACH:
                self.accounts[fields[1]] = Account()
            elif code == TRANSFER:
                self.accounts[fields[0]].sent()
                self.tags[fields[2]] += 1
            elif code == DETACH:
                self.accounts[fields[0]].is_ended = True
            elif code == FLOW and len(fields) > 4 and fields[4] is not None:
                self.note_flow(fields)

    def note_flow(self, fields: list[Any]) -> None:
        """Account for a link's flow of the bridge's."""
        account = self.accounts[fields[4]]
        if len(fields) > 8 and fields[8]:
            is_leaving = self.bridge.is_leaving
            account.answered(fields[5], fields[6], self.shelf.waiting, is_leaving=is_leaving)
        else:
            assert fields[5] == account.count, "messages are counted that have not come"

    def note_up(self, code: int, fields: list[Any]) -> None:
        """Account for a flow of the client's."""
        if code == FLOW and len(fields) > 4 and fields[4] is not None:
            drain = len(fields) > 8 and bool(fields[8])
            published = self.shelf.published
            self.accounts[fields[4]].asked(fields[5], fields[6], drain=drain, published=published)

    def on_client(self, event: Any) -> None:
        """Note what the client is told."""
        match event:
            case MessageArrived(link, delivery_id):
                self.unsettled.append((link, delivery_id))
            case LinkDetached(link):
                self.detached[link.name] += 1
            case Closed():
                raise AssertionError(event)

    # -- steps

    async def take(self, step: str, value: int) -> None:
        """Do one thing; the bridge reads what the client has written at once."""
        if step == "turns":
            for _ in range(value):
                await asyncio.sleep(0)
        else:
            getattr(self, step.replace(" ", "_"))(value)
        self.speak()

    def publish(self, count: int) -> None:
        """Make messages available."""
        self.shelf.publish(count)

    def bring(self, count: int) -> None:
        """Let messages come."""
        for receiver in self.shelf.receivers:
            receiver.bring(count)

    def end_withdrawal(self, _: int) -> None:
        """Let RabbitMQ answer."""
        for receiver in self.shelf.receivers:
            receiver.end_withdrawal()

    def grant(self, credit: int) -> None:
        """Grant credit, or take it back."""
        if self.link.is_open:
            self.link.is_draining = False
            self.link.grant(credit)

    def drain(self, _: int) -> None:
        """Ask for unused credit back, whether or not the bridge has answered before."""
        self.link.drain()

    def echo(self, _: int) -> None:
        """Ask how the link stands, and read the answer."""
        if self.link.is_open:
            session, link = self.session, self.link
            self.session.write(
                Flow(
                    next_incoming_id=session._next_incoming_id,
                    incoming_window=session._incoming_window,
                    next_outgoing_id=session._next_outgoing_id,
                    outgoing_window=100,
                    drain=link.is_draining,
                    echo=True,
                    **link.flow_fields(),
                )
            )
            self.read(0)

    def settle(self, count: int) -> None:
        """Complete messages that have come first."""
        for link, delivery_id in self.unsettled[:count]:
            link.tell_outcome(delivery_id, Accepted(), is_settled=False)
        del self.unsettled[:count]

    def attach(self, _: int) -> None:
        """Attach a receiver, if there is none."""
        if not self.attached or not self.link.is_alive:
            self.attached += 1
            self.link = self.session.attach_receiver(
                f"in-{self.attached}",
                Source("q"),
                Target("t"),
                snd_settle_mode=0,
                rcv_settle_mode=1,
            )

    def detach(self, _: int) -> None:
        """Detach, whatever is under way."""
        if self.link.is_open:
            self.link.end()

    def leave(self, _: int) -> None:
        """Let the bridge say that the client is to go."""
        if not self.bridge.is_leaving:
            self.bridge.is_leaving = True
            self.bridge.links.leave()

    # -- the end

    async def settle_down(self) -> None:
        """Let everything come that can."""
        for _ in range(25):
            self.read(0)
            await self.take("turns", 3)
            await self.take("bring", 10)
            await self.take("end withdrawal", 0)


class Memory(Sink):
    """A socket that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self._kept = bytearray()
        self._heard = 0

    def write(self, data: Any) -> None:
        """Keep it."""
        self._kept += data

    def writelines(self, list_of_data: Any) -> None:
        """Keep it."""
        self._kept += b"".join(list_of_data)

    def fresh(self) -> bytes:
        """Return what was not listened to yet."""
        heard, self._heard = self._heard, len(self._kept)
        return bytes(self._kept[heard:])

    def take(self) -> bytes:
        """Return everything, and forget it."""
        taken = bytes(self._kept)
        self._kept.clear()
        self._heard = 0
        return taken


@given(
    window=st.sampled_from((1, 3, 100)),
    portion=st.sampled_from((1, 3, 1_000)),
    high=st.sampled_from((0, 1_048_576)),
    steps=st.lists(st.one_of(*[STEPS] * 8, ENDS), min_size=10, max_size=60),
)
@settings(max_examples=examples(300), deadline=None)
def test_each_drain_is_answered_once_behind_what_was_there(
    window: int, portion: int, high: int, steps: list[tuple[str, int]]
) -> None:
    """And nothing is lost; what the queue is asked for is what the client has granted.

    A drain ends with a flow: not before the messages that were available when it came, nor before
    those of them that wait for the client's window, and no message follows without new credit. A
    link that is detached meanwhile is answered once, and what comes for it goes back.
    """

    asyncio.run(go_through(window, portion, high, steps))


def test_messages_that_wait_for_the_window_come_before_the_end_of_a_drain() -> None:
    """A client gives up on what has not come by then: it would be locked for nobody."""
    steps = [
        *(("grant", 6), ("publish", 4), ("drain", 0), ("turns", 1)),
        *(("end withdrawal", 0), ("turns", 1)),
    ]
    asyncio.run(go_through(1, 1_000, 1_048_576, steps))


def test_a_flow_counts_no_message_that_waits_for_the_window() -> None:
    """Nor credit that is given back behind it: the client has neither."""
    steps = [
        *(("grant", 5), ("publish", 3), ("drain", 0), ("turns", 2)),
        *(("end withdrawal", 0), ("echo", 0)),
    ]
    asyncio.run(go_through(1, 1_000, 1_048_576, steps))


def test_a_drain_in_the_last_turn_of_another_brings_what_came_between() -> None:
    """The queue was found empty for the first one, and has a message for the second."""
    steps = [
        *(("grant", 5), ("drain", 0), ("turns", 2), ("end withdrawal", 0)),
        *(("publish", 1), ("drain", 0)),
    ]
    asyncio.run(go_through(100, 1_000, 1_048_576, steps))


async def go_through(window: int, portion: int, high: int, steps: list[tuple[str, int]]) -> None:
    """Take steps with a new client, and check what has become of everything.

    Args:
        window: transfers that the client takes before it reads.
        portion, high: `fetch_max` and `output_bytes_high` of the gateway's settings.
    """
    run = Run(window, portion, high)
    await run.begin()
    for step, value in steps:
        await run.take(step, value)
    await run.settle_down()
    check(run)
    run.bridge.connection_lost(None)


def check(run: Run) -> None:
    """Everything has come that can: each message, answer and bit of credit has its place."""
    assert set(run.tags.values()) <= {1}
    sent = {UUID(bytes_le=tag).int for tag in run.tags}
    assert sent <= run.shelf.locked
    assert run.shelf.locked.isdisjoint(run.shelf.waiting)
    assert run.shelf.locked | set(run.shelf.waiting) == set(range(run.shelf.published))
    assert set(run.detached.values()) <= {1}
    if not run.detached:
        assert sent == run.shelf.locked
    *earlier, last = run.shelf.receivers
    assert all(each.is_closed for each in earlier)
    if not run.link.is_open:
        assert last.is_closed
        return
    account = next(each for each in run.accounts.values() if not each.is_ended)
    assert not account.is_awaited, "a drain was not answered"
    assert run.link.credit == max(account.limit - account.count, 0)
    if run.bridge.is_leaving:
        assert not last.asked
        return
    assert not (run.link.credit and run.shelf.waiting), "nobody asks for what is there"
    assert bool(last.asked) == bool(run.link.credit)
    assert last.asked <= min(run.link.credit, run.portion)
