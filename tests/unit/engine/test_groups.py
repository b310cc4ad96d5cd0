"""Single messages that leave in groups: each is told the truth, in every order of events."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.counters import Counters
from bridge.engine.sending.groups import AHEAD_MAX, BYTES_MAX, ITEMS_MAX
from bridge.engine.sending.requests import Sending
from bridge.engine.sending.sender import CONFIRM_WAIT_S, Sender
from bridge.message.envelopes import Outgoing
from bridge.model.entity import EntityStatus, Queue, SendEntity
from bridge.model.errors import (
    ArgumentError,
    EntityNotFound,
    OperationTimeout,
    ServiceBusError,
)
from bridge.sidecar.leader.arrival_buffer import BYTES_MAX as ARRIVED_BYTES_MAX
from bridge.sidecar.leader.arrival_buffer import PREFETCH_MAX
from bridge.wire import envelope
from bridge.wire.basic import Properties, text
from bridge.wire.envelope import Envelope, Operation
from bridge.wire.record import Record
from tests.fixtures.examples import examples
from tests.fixtures.model_broker import ClockLoop, ModelBroker, Verdict

PLAIN = Queue(name="plain")
CHANGED = Queue(name="plain", max_delivery_count=7)
"""The same queue, when its definition has changed."""

SESSIONS = Queue(name="sessions", requires_session=True)
PARTITIONED = Queue(name="partitioned", enable_partitioning=True, requires_duplicate_detection=True)
ENTITIES: tuple[SendEntity, ...] = (PLAIN, CHANGED, SESSIONS, PARTITIONED)

RABBITMQ_BYTES_MAX = 1 << 20
ENTITY_BYTES_MAX = 256 * 1024
"""The size limit of a message in the Standard tier."""

READS = {each.name.lower(): each for each in Verdict}
BURST = 130
UNDER_WAY = 100


def message(body: str, **given: Any) -> Outgoing:
    """A message as a link hands it over."""
    table = {"x-any": text("x" * given.pop("header_bytes", 0))}
    properties = Properties(message_id=body.rstrip(), headers=table, delivery_mode=2)
    record = Record(properties, body.encode())
    return Outgoing(record=record, size_bytes=given.pop("size_bytes", len(body)), **given)


KINDS: dict[str, Callable[[str], list[Outgoing]]] = {
    "small": lambda body: [message(body)],
    "of a session": lambda body: [message(body, session_id="s")],
    "of 160 bytes": lambda body: [message(body + " " * 60, session_id="s")],
    "wide": lambda body: [message(body + " " * 20_000, session_id="s")],
    "wider than a group": lambda body: [message(body + " " * BYTES_MAX, session_id="s")],
    "too large": lambda body: [message(body, size_bytes=ENTITY_BYTES_MAX + 1, session_id="s")],
    "that no frame holds": lambda body: [message(body, header_bytes=130_000, session_id="s")],
    "for later": lambda body: [message(body, scheduled_ms=2**40, session_id="s")],
    "batch": lambda body: [message(f"{body} {part}", session_id="s") for part in "abc"],
    "batch with one too large": lambda body: [
        message(f"{body} a", session_id="s"),
        message(f"{body} b", size_bytes=ENTITY_BYTES_MAX + 1, session_id="s"),
    ],
}
REFUSED_ALONE = {"too large", "that no frame holds", "batch with one too large"}


@dataclass
class Senders:
    """What links have sent, and what they were told.

    Attributes:
        told: by body, the outcomes: `None`, or an error.
        waits_s: how long each send has waited for its outcome.
        batches: those that are made one by one: names, outcomes, and what happens meanwhile.
    """

    sending: Sending
    told: dict[str, list[ServiceBusError | None]] = field(default_factory=dict)
    waits_s: list[float] = field(default_factory=list)
    serial: int = 0
    batches: list[tuple[list[str], list[ServiceBusError | None], str]] = field(default_factory=list)
    tasks: set[asyncio.Future[None]] = field(default_factory=set)

    def send(self, link: int, entity: SendEntity, kind: str) -> None:
        """Hand a message over, or a batch; it names its link, its serial number and its kind."""
        self.serial += 1
        batch = KINDS[kind](f"{link}|{self.serial:06}|{kind}")
        outcomes: list[ServiceBusError | None] = []
        for each in batch:
            self.told[name_of(each.record.body)] = outcomes
        time_s = asyncio.get_running_loop().time
        begun_s = time_s()

        def told(error: ServiceBusError | None) -> None:
            outcomes.append(error)
            self.waits_s.append(time_s() - begun_s)

        try:
            self.sending.begin(entity, batch, told)
        except ServiceBusError as error:
            told(error)

    def send_each(self, entity: SendEntity, count: int, change: str) -> None:
        """Hand over a batch that is made one by one, while its entity changes, or has a fault."""
        self.serial += 1
        names = [f"each|{self.serial:06}|{change} {part}" for part in range(count)]
        outcomes: list[ServiceBusError | None] = []
        self.batches.append((names, outcomes, change))
        self.told |= dict.fromkeys(names, outcomes)
        present: list[SendEntity] = [entity]

        def find() -> SendEntity:
            if not present:
                raise EntityNotFound(f"{entity.path!r} is not there.")
            return present[0]

        def each() -> Iterator[Outgoing]:
            for at, name in enumerate(names):
                if at == count // 2:
                    present[:] = CHANGES[change](entity)
                is_last = at == count - 1
                if change == "a fault" and is_last:
                    yield message(name, size_bytes=ENTITY_BYTES_MAX + 1, session_id="s")
                yield message(name, session_id="s")

        async def work() -> None:
            try:
                await self.sending.begin_each(find, each(), outcomes.append)
            except ServiceBusError as error:
                outcomes.append(error)

        self.tasks.add(asyncio.ensure_future(work()))


CHANGES: dict[str, Callable[[SendEntity], list[SendEntity]]] = {
    "nothing": lambda entity: [entity],
    "changed": lambda entity: [replace(entity, user_metadata="changed")],
    "made anew": lambda entity: [replace(entity, incarnation="another")],
    "disabled": lambda entity: [replace(entity, status=EntityStatus.DISABLED)],
    "gone": lambda entity: [],
    "a fault": lambda entity: [entity],
}
REFUSED_CHANGES = {"made anew", "disabled", "gone", "a fault"}


def name_of(body: bytes) -> str:
    """Return a body without its padding."""
    return body.decode().rstrip()


Step = tuple[Any, ...]

SEND = st.tuples(
    st.just("send"), st.integers(0, 2), st.sampled_from(ENTITIES), st.sampled_from([*KINDS])
)
OFTEN = ("turn", "stored", "late")
RARELY = ("returned", "refused", "missing", "burst", "stored all")
EVENTS = ("confirm", "block", "unblock", "lose", "wait")
OTHER = st.tuples(st.sampled_from([*OFTEN, *OFTEN, *OFTEN, *RARELY, *EVENTS]), st.integers(0, 3))
STEPS = st.lists(st.one_of(SEND, SEND, OTHER), max_size=50)


def carry_out(step: Step, senders: Senders, broker: ModelBroker) -> float | None:
    """Do one step; return how long to wait then, `None`: the turn goes on."""
    what, chance = step[0], step[1]
    if what == "send":
        senders.send(*step[1:])
        return None
    if what == "each":
        senders.send_each(*step[1:])
        return None
    if what in READS:
        broker.read(READS[what])
    elif what == "burst":
        for each in range(BURST):
            senders.send(each % 2, PLAIN, "small")
        return None
    elif what == "stored all":
        for _ in range(3 * BURST):
            broker.read(Verdict.STORED)
    elif what == "confirm":
        broker.confirm(newest_first=chance > 1, multiple=chance % 2 == 0)
    elif what in ("block", "unblock"):
        broker.block(is_blocked=what == "block")
    elif what == "lose":
        broker.lose(reads_rest=chance > 1)
    return (1.0, 7.0, 21.0, 31.0)[chance] if what == "wait" else 0.0


async def connected() -> tuple[ModelBroker, Sender, Sending]:
    """Return a model of RabbitMQ, a connection to it, and the verbs on that."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClockLoop)
    broker = ModelBroker(loop)
    sender = Sender(Endpoint(hosts=(("model", 5672),)), name="test")
    sender.start()
    await sender.ready.wait()
    services = SimpleNamespace(sender=sender, on_missing=lambda path: None, counters=Counters())
    sending = Sending(cast(Any, services))
    sending.message_bytes_max = RABBITMQ_BYTES_MAX
    return broker, sender, sending


async def told_and_stored(steps: list[Step]) -> tuple[Senders, list[Envelope]]:
    """Carry out all steps; return what was told, and the envelopes that are stored in the end."""
    broker, sender, sending = await connected()
    senders = Senders(sending)
    for step in steps:
        wait_s = carry_out(step, senders, broker)
        if wait_s is not None:
            await asyncio.sleep(wait_s)
            for _ in range(5):
                await asyncio.sleep(0)
    await asyncio.sleep(CONFIRM_WAIT_S + 1)
    assert all(each.done() for each in senders.tasks), "none hangs"
    assert all(len(outcomes) == 1 for _, outcomes, _ in senders.batches), "each is told once"
    assert all(len(outcomes) == 1 for outcomes in senders.told.values()), "each is told once"
    assert all(wait_s <= CONFIRM_WAIT_S for wait_s in senders.waits_s), "in time"
    broker.block(is_blocked=False)  # what was written may still be stored
    broker.lose(reads_rest=True)
    await sender.close()
    return senders, [envelope.decode(body) for body in broker.stored]


@given(STEPS)
@example([("send", 0, PLAIN, "small"), ("send", 1, PLAIN, "small"), ("turn", 0), ("stored", 0)])
@example([("burst", 0), ("turn", 0), ("stored", 0), ("refused", 0), ("lose", 2)])
@example([("burst", 0), ("block", 0), ("wait", 2), ("unblock", 0), ("stored all", 0)])
@example(
    [
        ("send", 0, PLAIN, "small"),
        ("send", 0, PLAIN, "batch"),
        ("send", 0, CHANGED, "small"),
        ("send", 0, PLAIN, "for later"),
        ("send", 0, PLAIN, "wider than a group"),
        ("send", 0, PLAIN, "small"),
        ("turn", 0),
        ("stored all", 0),
    ]
)
@settings(deadline=None, max_examples=examples(200))
def test_each_message_of_a_group_is_told_the_truth(steps: list[Step]) -> None:
    """Accepted: stored once; refused: never stored; within a link and an entity in order."""
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        senders, envelopes = runner.run(told_and_stored(steps))
    stored = [name_of(item.body) for each in envelopes for item in each.items]
    counts = Counter(stored)
    for name, (outcome,) in senders.told.items():
        is_unknown = isinstance(outcome, OperationTimeout)
        assert counts[name] == 1 if outcome is None else counts[name] <= is_unknown, name
        if name.split("|")[2].rstrip(" abc") in REFUSED_ALONE:
            assert outcome is not None
        else:
            assert not isinstance(outcome, ArgumentError), "the test's own message is right"
    for link in "012":
        # An entity's messages go one way: of each link's, those to one entity.
        for entity in ({PLAIN.name}, {SESSIONS.name}, {PARTITIONED.name}):
            names = [name for name in stored if name[0] == link and _entity(steps, name) in entity]
            assert names == sorted(names)
    identities = [
        envelope.item_identity(each.identity, index)
        for each in envelopes
        for index in range(len(each.items))
    ]
    assert len(set(identities)) == len(identities)
    for each in envelopes:
        check_group(each)


EACH = st.tuples(
    st.just("each"), st.sampled_from(ENTITIES), st.integers(0, 6), st.sampled_from([*CHANGES])
)


@given(st.lists(st.one_of(SEND, EACH, EACH, OTHER), max_size=50))
@example([("each", PLAIN, 3, "made anew"), ("turn", 0), ("stored all", 0)])
@example([("each", PLAIN, 3, "disabled"), ("turn", 0), ("stored all", 0)])
@example([("each", PLAIN, 3, "gone"), ("turn", 0), ("stored all", 0)])
@example([("each", PLAIN, 3, "a fault"), ("turn", 0), ("stored all", 0)])
@example(
    [
        ("send", 0, PLAIN, "small"),
        ("each", CHANGED, 6, "nothing"),
        ("send", 0, PLAIN, "small"),
        ("turn", 0),
        ("send", 1, PLAIN, "batch"),
        ("stored all", 0),
    ]
)
@settings(deadline=None, max_examples=examples(150))
def test_a_batch_that_is_made_one_by_one_is_whole_and_told_the_truth(steps: list[Step]) -> None:
    """Beside groups, with turns of the loop between its messages, while its entity changes.

    Accepted: all are stored, in order, together and with nothing else; refused: none is. What other
    links send meanwhile keeps its own order and truth.
    """
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=ClockLoop) as runner:
        patch.setattr("bridge.background.slices.SLICE_S", -1.0)  # a turn after each message
        senders, envelopes = runner.run(told_and_stored(steps))
    stored = [[name_of(item.body) for item in each.items] for each in envelopes]
    counts = Counter(name for names in stored for name in names)
    for name, (outcome,) in senders.told.items():
        is_unknown = isinstance(outcome, OperationTimeout)
        assert counts[name] == 1 if outcome is None else counts[name] <= is_unknown, name
    for names, (outcome,), change in senders.batches:
        if names and change in REFUSED_CHANGES:
            assert outcome is not None
        if names and counts[names[0]]:
            assert names in stored
        else:
            assert not any(counts[name] for name in names)
        if not names:
            assert outcome is None or not isinstance(outcome, OperationTimeout)
    for link in "012":
        for entity in ({PLAIN.name}, {SESSIONS.name}, {PARTITIONED.name}):
            names = [
                name
                for each in stored
                for name in each
                if name[0] == link and _entity(steps, name) in entity
            ]
            assert names == sorted(names)


def _entity(steps: list[Step], name: str) -> str:
    """Return the entity that a message was sent to."""
    serial = int(name.split("|")[1])
    for step in steps:
        count = {"send": 1, "each": 1, "burst": BURST}.get(step[0], 0)
        if serial <= count:
            return str(step[2].name) if step[0] == "send" else PLAIN.name
        serial -= count
    raise AssertionError(name)


def check_group(stored: Envelope) -> None:
    """What is stored together is a batch, or a bounded group of single messages for now."""
    assert stored.operation is Operation.SEND
    serials = {name_of(item.body).split("|")[1] for item in stored.items}
    if len(serials) == 1:
        return
    assert len(serials) == len(stored.items) <= ITEMS_MAX, "no batch is in a group"
    assert all(item.scheduled_ms is None for item in stored.items)
    assert sum(len(item.properties) + len(item.body) for item in stored.items) <= BYTES_MAX


def test_messages_of_one_turn_are_one_envelope() -> None:
    """Three links may have sent them to one queue; a message that is alone does not wait."""
    alone = [("send", 0, PLAIN, "small"), ("turn", 0), ("stored", 0)]
    together = [("send", link, PLAIN, "small") for link in (0, 1, 2, 0)]
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        _, envelopes = runner.run(told_and_stored([*alone, *together, ("turn", 0), ("stored", 0)]))
    assert [len(each.items) for each in envelopes] == [1, 4]


def test_a_group_waits_while_four_are_unconfirmed() -> None:
    """It leaves when one of them is confirmed, with all that have joined."""
    alone: list[Step] = [("send", 0, PLAIN, "small"), ("turn", 0)]
    steps = [*alone * (AHEAD_MAX + 3), ("stored", 0), ("stored all", 0)]
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        _, envelopes = runner.run(told_and_stored(steps))
    assert [len(each.items) for each in envelopes] == [*[1] * AHEAD_MAX, 3]


def test_a_full_group_does_not_wait() -> None:
    """It leaves even if earlier groups are unconfirmed."""
    alone: list[Step] = [("send", 0, PLAIN, "small"), ("turn", 0)]
    steps = [*alone * AHEAD_MAX, ("burst", 0), ("turn", 0), *[("late", 0)] * (AHEAD_MAX + 1)]
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        _, envelopes = runner.run(told_and_stored([*steps, ("lose", 0)]))
    assert [len(each.items) for each in envelopes] == [*[1] * AHEAD_MAX, ITEMS_MAX]


def test_a_message_of_an_alarm_is_refused_at_once() -> None:
    """It joins no group that waits: nothing is confirmed before the alarm ends."""
    alone: list[Step] = [("send", 0, PLAIN, "small"), ("turn", 0)]
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        senders, _ = runner.run(told_and_stored([*alone * (AHEAD_MAX + 1), ("block", 0), *alone]))
    assert senders.waits_s[0] == 0
    assert [type(outcome).__name__ for (outcome,) in senders.told.values()][-1] == "ServerBusy"


def test_what_waits_for_unknown_groups_is_refused() -> None:
    """It was not written, and their links have ended."""
    alone: list[Step] = [("send", 0, PLAIN, "small"), ("turn", 0)]
    steps = [*alone * AHEAD_MAX, ("wait", 1), *alone, ("wait", 2)]
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        senders, envelopes = runner.run(told_and_stored([*steps, ("lose", 2)]))
    outcomes = [type(outcome).__name__ for (outcome,) in senders.told.values()]
    assert outcomes == ["OperationTimeout"] * AHEAD_MAX + ["ServerBusy"]
    assert len(envelopes) == AHEAD_MAX


def test_a_leader_holds_as_many_full_groups_as_arrivals() -> None:
    """This holds for the smallest messages: more bytes would end its term."""
    sends: list[Step] = [("send", 0, PLAIN, "of 160 bytes")] * 3 * ITEMS_MAX
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        _, envelopes = runner.run(told_and_stored([*sends, ("turn", 0), ("stored all", 0)]))
    assert sum(len(each.items) for each in envelopes) == 3 * ITEMS_MAX
    for each in envelopes:
        size_bytes = len(envelope.encode(each.operation, each.identity, each.items))
        assert size_bytes * PREFETCH_MAX <= ARRIVED_BYTES_MAX


async def sent_with_a_hundred_under_way(count: int) -> list[Envelope]:
    """Have a client send messages of 1 KiB, the next one whenever one is accepted."""
    broker, sender, sending = await connected()
    left = count

    def send() -> None:
        nonlocal left
        left -= 1
        sending.begin(PLAIN, [message(f"{left:06}".ljust(1024))], told)

    def told(error: ServiceBusError | None) -> None:
        assert error is None
        if left:
            send()

    for _ in range(UNDER_WAY):
        send()
    for _ in range(count):
        await asyncio.sleep(0.001)
        broker.read(Verdict.STORED)
        broker.confirm(newest_first=False, multiple=False)
    await sender.close()
    return [envelope.decode(body) for body in broker.stored]


def test_a_client_with_a_hundred_sends_under_way_fills_large_groups() -> None:
    """Each envelope costs RabbitMQ as much as several of its messages."""
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        envelopes = runner.run(sent_with_a_hundred_under_way(2_000))
    assert sum(len(each.items) for each in envelopes) == 2_000
    assert len(envelopes) <= 2_000 / 20


def test_a_group_is_full_by_its_bytes() -> None:
    """Wide messages fill it sooner than a hundred; one that is wider than a group is alone."""
    sends: list[Step] = [("send", 0, SESSIONS, "wide")] * 4
    steps = [*sends, ("send", 0, SESSIONS, "wider than a group"), ("turn", 0), ("stored all", 0)]
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        _, envelopes = runner.run(told_and_stored(steps))
    assert [len(each.items) for each in envelopes] == [3, 1, 1]


def test_a_refused_message_is_in_no_group() -> None:
    """Its neighbours are stored."""
    steps = [("send", 0, SESSIONS, kind) for kind in ("of a session", "small", "of a session")]
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        senders, envelopes = runner.run(told_and_stored([*steps, ("turn", 0), ("stored", 0)]))
    assert [len(each.items) for each in envelopes] == [2]
    outcomes = [type(outcome).__name__ for (outcome,) in senders.told.values()]
    assert outcomes == ["NoneType", "NotAllowed", "NoneType"]
