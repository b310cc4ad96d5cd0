"""Transactions of two bridges on one queue, in every order in which locks and answers are lost."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.background.supervisor import Supervisor
from bridge.broker.errors import ChannelClosed
from bridge.engine.api import Abandon, Complete, Disposition
from bridge.engine.counters import Counters
from bridge.engine.peers import Peers
from bridge.engine.settlement import locktable
from bridge.engine.settlement.held_message import HeldMessage
from bridge.engine.settlement.locktable import ProcessLocks
from bridge.engine.settlement.settling import Settling
from bridge.engine.transaction_verbs import PinnedLock, TransactionWork
from bridge.engine.transactions.pins import Pins
from bridge.engine.transactions.pins_anywhere import PinsAnywhere
from bridge.engine.transactions.reports import CarriedOutReports
from bridge.engine.transactions.state_pins import StatePins
from bridge.engine.transactions.transacting import Transacting
from bridge.machine.inbox import arrival
from bridge.machine.inbox.arrival import Commit
from bridge.machine.inbox.commits import apply_transaction
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.machine.queue.inquiries import locked_message
from bridge.message.held import Held
from bridge.message.locked_source import source_of
from bridge.model.entity import Queue, Tier
from bridge.model.errors import (
    MessageLockLost,
    OperationTimeout,
    ServerBusy,
    TransactionInDoubt,
    TransactionRolledBack,
)
from bridge.model.name import EntityPath
from bridge.wire import envelope, inquiries
from bridge.wire.basic import Properties
from bridge.wire.commits import INQUIRY_BYTES, CommitVerdict
from bridge.wire.envelope import Item
from bridge.wire.record import Record
from bridge.wire.reply import Done, decode_reply
from tests.fixtures.examples import examples
from tests.fixtures.model_broker import ClockLoop

QUEUE = Queue(name="orders", lock_duration_ms=5_000)
PATH = EntityPath("orders")
STATES = StatePins(lambda path: QUEUE, cast(Any, None), cast(Any, None))
MESSAGES = 4
WAITS = Properties(
    headers=envelope.HEADERS, delivery_mode=2, reply_to="address", correlation_id="1"
).encode()


class Channel:
    """A channel of a bridge, as RabbitMQ and the bridge see it.

    Attributes:
        is_closed: the bridge knows that it has ended.
        is_lost: RabbitMQ has ended it.
    """

    def __init__(self) -> None:
        self.is_closed = False
        self.is_lost = False

    async def barrier(self) -> None:
        """Return when RabbitMQ has answered."""
        if self.is_lost:
            raise ChannelClosed(0, "lost")

    def when_written(self, told: Callable[[None], None]) -> None:
        """Call back at once."""
        if self.is_closed:
            raise ChannelClosed(0, "lost")
        told(None)


@dataclass
class Message:
    """A message of the queue.

    Attributes:
        deliveries: those to receivers, in order.
        holder: the channel that has it; `None`: it waits.
    """

    number: int
    holder: Channel | None = None
    is_redelivered: bool = False
    is_gone: bool = False
    deliveries: int = 0


class World:
    """The queue, and its leader, with what is on the way to it.

    Attributes:
        fates: what becomes of the next questions to the leader.
        late: questions that are still on their way.
        stored: what transactions have sent.
        decided: by transaction, the verdict; first and only.
    """

    def __init__(self) -> None:
        self.messages = [Message(number) for number in range(1, MESSAGES + 1)]
        self.fates: list[str] = []
        self.late: list[bytes] = []
        self.stored: Counter[bytes] = Counter()
        self.decided: dict[bytes, CommitVerdict] = {}
        self.locked: dict[tuple[bytes, int], int] = {}
        self.completed: Counter[int] = Counter()
        memory = blank(is_partitioned=False)
        self.sequencer = Sequencer(QUEUE, Tier.STANDARD, memory)

    def lead(self, body: bytes) -> bytes:
        """Carry out an envelope that has come into the inbox; return the answer's content."""
        command = arrival.read(WAITS, body)
        assert isinstance(command, arrival.TransactionCommand)
        made = apply_transaction(self.sequencer, command, 0)
        if isinstance(command, Commit):
            verdict = self.sequencer.memory.decided.verdict_of(command.identity)
            assert verdict is not None
            if command.identity not in self.decided:
                self.decided[command.identity] = verdict
                if verdict is CommitVerdict.COMMITTED:
                    self._check_locks(command)
            assert self.decided[command.identity] is verdict
        self.stored.update(each.body for each in made.publications if each.exchange)
        if made.answer is None:
            return b""
        reply = decode_reply(made.answer.body)
        assert isinstance(reply, Done)
        return reply.content

    def _check_locks(self, command: Commit) -> None:
        """No receiver has got a message since the transaction's lock on it began."""
        for outcome in command.content.outcomes:
            number = outcome.message.number
            message = self.messages[number - 1]
            assert self.locked[command.identity, number] == message.deliveries
            if outcome.is_kept:
                self.completed[number] += 1

    async def ask_leader(self, entity: object, body: bytes) -> Done:
        """Ask as a bridge does; the answer, or the question, may be lost, or come late."""
        await asyncio.sleep(0.1)
        match self.fates.pop(0) if self.fates else "":
            case "busy":
                raise ServerBusy("alarm")
            case "lost":
                await asyncio.sleep(30)
                raise OperationTimeout("lost")
            case "unanswered":
                self.lead(body)
                await asyncio.sleep(30)
                raise OperationTimeout("lost")
            case "late":
                self.late.append(body)
                await asyncio.sleep(30)
                raise OperationTimeout("late")
            case _:
                return Done(content=self.lead(body))

    def begin_publish(
        self, exchange: str, key: str, properties: bytes, body: bytes, told: Callable[[None], None]
    ) -> None:
        """Publish a report, which may be lost."""
        if not self.fates or self.fates[0] != "lost":
            self.lead(body)
        told(None)

    def lose(self, channel: Channel) -> None:
        """Take back the messages of a channel; its bridge does not know that yet."""
        channel.is_lost = True
        for each in self.messages:
            if each.holder is channel:
                each.holder = None


class Bridge:
    """A bridge with one receiver; the owner of what it holds (`engine.settlement.owner`)."""

    is_deferred = is_dead_letter = False
    resource = "orders"
    queue = QUEUE
    path = PATH

    def __init__(self, world: World) -> None:
        loop = asyncio.get_running_loop()
        self.world = world
        self.channel = Channel()
        self.locks = ProcessLocks(lambda owner, holding: self.settling.expire(owner, holding))
        services = SimpleNamespace(departure=None, counters=Counters(), locks=self.locks)
        self.settling = Settling(cast(Any, services), cast(Any, None))
        supervisor = Supervisor(loop.time)
        sending: Any = SimpleNamespace(
            tier=Tier.STANDARD, message_bytes_max=1 << 24, ask_leader=world.ask_leader
        )
        directory: Any = SimpleNamespace(send_entity=lambda path: QUEUE, find=lambda path: QUEUE)

        async def inquire(path: str, body: bytes) -> bytes:
            return (await world.ask_leader(QUEUE, body)).content

        pins = Pins(
            *(self.locks, self.settling, supervisor, cast(Any, None)),
            inquire,
            clock=lambda: int(loop.time() * 1000),
        )
        anywhere = PinsAnywhere(Peers(cast(Any, None)), self.locks, pins, lambda path: None)
        reports = CarriedOutReports(cast(Any, world))

        async def first_use(path: str) -> None:
            await asyncio.sleep(0.1)

        self.verbs = Transacting(
            directory,
            sending,
            anywhere,
            reports,
            supervisor,
            first_use,
            lambda feature: None,
            STATES,
        )
        self.received: dict[UUID, int] = {}
        self.open: list[Transaction] = []

    # The interface for settling.

    def holds(self, holding: HeldMessage) -> bool:
        """Whether the bridge believes that it has a message."""
        return not holding.channel.is_closed

    def ack(self, holding: HeldMessage, point: str) -> None:
        """Remove a message, if RabbitMQ still takes it for this channel's."""
        message = self.world.messages[holding.number - 1]
        if message.holder is holding.channel:
            message.is_gone, message.holder = True, None

    def give_back(self, holding: HeldMessage, point: str = "") -> None:
        """Make a message available again."""
        message = self.world.messages[holding.number - 1]
        if message.holder is holding.channel:
            message.holder = None

    release = give_back

    def departing(self, holding: HeldMessage) -> None:
        """Nothing has to be noted."""

    stayed = departing

    def left(self, holding: HeldMessage, how: object) -> None:
        """Nothing has to be noted."""

    # What its client does.

    async def receive(self) -> None:
        """Get the next message, if there is one; what comes again is asked for before."""
        message = next(
            (each for each in self.world.messages if not (each.is_gone or each.holder)), None
        )
        if message is None:
            return
        channel = message.holder = self.channel
        was_redelivered, message.is_redelivered = message.is_redelivered, True
        number = message.number
        record = Record(Properties(delivery_mode=2), b"")
        identity = number.to_bytes(16, "big")
        holding: HeldMessage = Held(
            number, None, "", record, 0, None, 0, 0, 0, identity, 1, cast(Any, channel), number
        )
        if was_redelivered and not await self._ask(holding, channel):
            return
        if channel.is_closed:
            return
        if not channel.is_lost:  # else the client gets it, and RabbitMQ does not know
            message.deliveries += 1
        delivery = message.deliveries if not channel.is_lost else -1
        token, _ = self.locks.acquire(self, holding, QUEUE.lock_duration_ms)
        self.received[token] = delivery

    async def _ask(self, holding: HeldMessage, channel: Channel) -> bool:
        """Ask the leader until it answers; return whether the message is free."""
        source = source_of(cast(Any, self))
        for count in itertools.count():
            identity = (len(self.world.late) * 1_000 + count + id(holding)).to_bytes(16, "little")
            asks = inquiries.encode_inquiry(identity, [locked_message(holding, source)])
            with suppress(OperationTimeout, ServerBusy):
                (told,) = inquiries.decode_answer(
                    (await self.world.ask_leader(QUEUE, asks)).content
                )
                break
            if channel.is_closed:
                return False
        if told is None:
            holding.inquiry = identity[:INQUIRY_BYTES]
            return True
        self.ack(holding, "")
        return False

    def notice(self) -> None:
        """Learn that RabbitMQ has ended the channel, and open another one."""
        if self.channel.is_lost:
            self.channel.is_closed = True
            self.locks.lose_channel(self.channel)
            self.channel = Channel()


class Transaction:
    """A transaction of a bridge's client, and what became of it."""

    def __init__(self, bridge: Bridge, serial: int) -> None:
        self.bridge = bridge
        self.identity = serial.to_bytes(16, "big")
        self.settlements: list[tuple[PinnedLock, Disposition]] = []
        self.end = "open"

    async def pin(self, token: UUID, disposition: Disposition) -> None:
        """Take a message into it, if its lock is not lost."""
        with suppress(MessageLockLost):
            pin = await self.bridge.verbs.pin(PATH, token)
            self.settlements.append((pin, disposition))
            number = cast(Any, pin).message.number
            self.bridge.world.locked[self.identity, number] = self.bridge.received[token]

    async def commit(self) -> None:
        """Commit, with one message."""
        item = Item(Properties(delivery_mode=2).encode(), self.identity)
        verbs, self.end = self.bridge.verbs, "committing"
        send: Any = SimpleNamespace(target=PATH, items=[item], size_bytes=envelope.item_bytes(item))
        work = TransactionWork(
            identity=self.identity, pinned=PATH, sends=[send], settlements=self.settlements
        )
        try:
            await verbs.commit(work)
            self.end = "committed"
        except TransactionRolledBack:
            self.end = "rolled back"
        except TransactionInDoubt:
            self.end = "in doubt"

    def roll_back(self) -> None:
        """Let all go."""
        self.bridge.verbs.release([pin for pin, _ in self.settlements])
        self.end = "rolled back"


Step = tuple[str, int]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *["receive", "pin", "commit"] * 3,
                *["busy", "lost", "unanswered", "late"],
                *["arrive", "lose", "notice"] * 2,
                *["abandon", "complete", "roll back", "wait"],
            ]
        ),
        st.integers(0, 3),
    ),
    max_size=40,
)


async def carry_out(steps: Sequence[Step]) -> tuple[World, list[Transaction]]:
    """Carry out all steps; at the end all losses are noticed, and all that is late has come."""
    world = World()
    bridges = [Bridge(world), Bridge(world)]
    ended: list[Transaction] = []
    tasks: list[asyncio.Task[None]] = []
    serials = itertools.count(1)
    pauses = (0.0, 0.3, 0.3, 0.3)
    for what, chance in steps:
        bridge = bridges[chance % 2]
        tokens = [each for each in bridge.received if bridge.locks.find(each) is not None]
        token = tokens[-1 - chance % len(tokens)] if tokens else None
        if not bridge.open:
            bridge.open.append(Transaction(bridge, next(serials)))
        if what == "receive":
            tasks.append(asyncio.create_task(bridge.receive()))
        elif what in ("pin", "abandon") and token is not None:
            await bridge.open[0].pin(token, Complete() if what == "pin" else Abandon())
        elif what == "complete" and token is not None:
            with suppress(MessageLockLost):
                await bridge.settling.settle(PATH, token, Complete())
        elif what in ("commit", "roll back") and (bridge.open[0].settlements or chance == 3):
            one = bridge.open.pop()
            ended.append(one)
            if what == "commit":
                tasks.append(asyncio.create_task(one.commit()))
            else:
                one.roll_back()
        elif what in ("busy", "lost", "unanswered", "late"):
            world.fates.append(what)
        elif what == "arrive" and world.late:
            world.lead(world.late.pop(0))
        elif what == "lose":
            world.lose(bridge.channel)
        elif what == "notice":
            bridge.notice()
        await asyncio.sleep((0.05, 2.0, 6.0, 31.0)[chance] if what == "wait" else pauses[chance])
    world.fates.clear()
    for each in bridges:
        for open_one in each.open:
            open_one.roll_back()
        world.lose(each.channel)
        each.notice()
    await asyncio.sleep(200)
    for body in world.late:
        world.lead(body)
    await asyncio.gather(*tasks)
    assert all(each.verbs.in_doubt == 0 for each in bridges)
    await bridges[0].receive()
    for _ in range(3 * MESSAGES):
        await bridges[0].receive()
    for each in bridges:
        await each.verbs.close()
    return world, ended


@given(STEPS)
@settings(max_examples=examples(300), deadline=None)
@example([("receive", 0), ("pin", 0), ("late", 0), ("commit", 0), ("wait", 3), ("wait", 3)])
@example(
    [
        *[("receive", 0), ("wait", 1), ("pin", 0), ("late", 0), ("commit", 0), ("wait", 1)],
        *[("lose", 0), ("receive", 1), ("wait", 1), ("arrive", 0)],
    ]
)
def test_whatever_is_lost_a_transaction_is_whole_or_nothing(steps: list[Step]) -> None:
    """Each message is completed by one transaction at most, by the last receiver that got it."""
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=ClockLoop) as runner:
        loop = runner.get_loop()
        patch.setattr(locktable, "now_ms", lambda: int(loop.time() * 1000))
        world, ended = runner.run(carry_out(steps))
    for each in ended:
        verdict = world.decided.get(each.identity)
        if each.end == "committed":
            assert verdict is CommitVerdict.COMMITTED
        if each.end == "rolled back":
            assert verdict is not CommitVerdict.COMMITTED
        is_committed = verdict is CommitVerdict.COMMITTED
        assert world.stored[each.identity] == 0 or is_committed
        assert not is_committed or each.identity in world.stored
    assert all(count == 1 for count in world.completed.values())
    for number in world.completed:
        assert world.messages[number - 1].is_gone
