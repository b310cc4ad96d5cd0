"""What AMQP 1.0 clients settle in bursts is settled as they asked, message by message, in order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from proton import Message as ProtonMessage
from proton import symbol
from proton.utils import BlockingConnection

from bridge.testing.process import Bridge
from bridge.wire.amqp10.message import AmqpMessage, encode_message
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Flow,
    Modified,
    Rejected,
    Released,
    Source,
    Transfer,
)
from bridge.wire.amqp10.types import Array, Symbol, Uint
from tests.acceptance.sdk import native_channel
from tests.conformance.client import Client, sas
from tests.conformance.door import KEY, RULE_NAME
from tests.fixtures.waiting import eventually
from tests.unit.machine.amqp10.peer import frame

_LONG = {"LockDuration": "PT5M", "MaxDeliveryCount": 10}
ENTITIES = {
    "bursts": _LONG,
    "dispositions": _LONG,
    "next": _LONG,
    "leaving": {**_LONG, "RequiresSession": True},
}

WITHIN_S = 120.0

COMPLETED, ABANDONED, RELEASED, DEFERRED, DEAD = (
    "completed", "abandoned", "released", "deferred", "dead-lettered",
)  # fmt: skip

OUTCOMES: dict[str, Any] = {
    COMPLETED: Accepted(),
    ABANDONED: Modified(delivery_failed=True),
    RELEASED: Released(),
    DEFERRED: Modified(undeliverable_here=True),
    DEAD: Rejected(),
}

_SENDER, _RECEIVER, _DEAD_LETTERS = 10, 11, 12


@dataclass
class Application:
    """One client of one queue; it speaks AMQP 1.0 in bytes.

    Attributes:
        ids: the delivery ids of the messages that came to the receiver.
        bodies: their bodies.
        numbers: their sequence numbers.
        counts: their delivery counts.
    """

    client: Client
    queue: str
    ids: list[int] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    granted: int = 0

    @classmethod
    @asynccontextmanager
    async def opened(cls, bridge: Bridge, queue: str) -> AsyncIterator[Application]:
        """Connect, and hang up at the end."""
        client = await (await Client.connect(bridge.port)).open()
        try:
            assert await client.put_token(sas()) == 202
            yield cls(client, queue)
        finally:
            await client.close()

    async def send(self, *bodies: str, session_id: str | None = None) -> None:
        """Send messages, and wait until they are stored."""
        self.client.attach(_SENDER, self.queue, role=False)
        await self.client.next(Attach, handle=_SENDER)
        await self.client.next(Flow, handle=_SENDER)
        for body in bodies:
            properties = MessageProperties(group_id=session_id)
            number = self.client.deliver(
                _SENDER, encode_message(AmqpMessage(value=body, properties=properties))
            )
            assert isinstance(await self.client.outcome(number), Accepted)
        self.client.frames = [
            each for each in self.client.frames if not isinstance(each[0], Disposition)
        ]

    async def attach(self, address: str, handle: int = _RECEIVER, **fields: Any) -> None:
        """Begin to receive."""
        self.client.attach(handle, address, role=True, **fields)
        await self.client.next(Attach, handle=handle)
        self.granted = 0

    async def receive(self, count: int, handle: int = _RECEIVER, *, credit: bool = True) -> None:
        """Take messages; `credit`: ask for them first."""
        if credit:
            self.client.credit(handle, count, count=self.granted)
        self.granted += count
        for _ in range(count):
            transfer, payload = await self.client.next(Transfer, handle=handle)
            message = ProtonMessage()
            message.decode(payload)
            self.ids.append(transfer.delivery_id)
            self.bodies.append(message.body)
            self.numbers.append(message.annotations[symbol("x-opt-sequence-number")])
            self.counts.append(message.delivery_count)

    def forget(self) -> None:
        """Forget what came so far."""
        for each in (self.ids, self.bodies, self.numbers, self.counts):
            each.clear()

    def write(self, *performatives: Any) -> None:
        """Write frames in one piece."""
        self.client.write(b"".join(frame(0, each) for each in performatives))

    async def settled(self, delivery_id: int) -> Any:
        """Wait for the bridge's answer to an unsettled outcome."""
        return await self.client.outcome(delivery_id)

    async def take_deferred(self, numbers: list[int]) -> None:
        """Receive and delete deferred messages, once they are all there."""
        body = {
            "sequence-numbers": Array("long", tuple(numbers)),
            "receiver-settle-mode": Uint(0),
        }
        async with asyncio.timeout(WITHIN_S):
            while True:  # nobody answers who settled by itself
                reply = await self.client.manage(
                    self.queue, "com.microsoft:receive-by-sequence-number", body
                )
                if reply.application_properties["statusCode"] == 200:
                    break
        assert len(reply.value["messages"]) == len(numbers)


Told = tuple[int, int, str, bool]
"""A disposition: first and last delivery, counted from 0, the outcome, and whether it is settled.
"""


def _bursts(count: int) -> st.SearchStrategy[list[list[Told]]]:
    place = st.integers(0, count - 1)
    told = st.tuples(place, place, st.sampled_from(list(OUTCOMES)), st.booleans())
    ordered = told.map(lambda each: (min(each[:2]), max(each[:2]), each[2], each[3]))
    return st.lists(st.lists(ordered, min_size=1, max_size=5), max_size=3)


def _ready(bridge: Bridge, queue: str) -> int:
    with native_channel(bridge) as channel:
        return int(channel.queue_declare(queue, passive=True).method.message_count)


COUNT = 10


QUEUE = "dispositions"


async def _settle_and_account(here: Application, bursts: list[list[Told]]) -> None:
    """Settle ten messages in bursts; each is then where it was told to go, once."""
    await here.send(*map(str, range(COUNT)))
    await here.attach(QUEUE)
    await here.receive(COUNT)
    assert here.bodies == [str(each) for each in range(COUNT)]
    told: dict[int, tuple[str, bool]] = {}
    for burst in bursts:
        first_id = here.ids[0]
        here.write(
            *(
                Disposition(True, first_id + first, first_id + last, settled, OUTCOMES[what])
                for first, last, what, settled in burst
            )
        )
        for first, last, what, settled in burst:
            for each in range(first, last + 1):
                told.setdefault(each, (what, settled))
    for each, (what, settled) in told.items():
        if not settled:
            assert type(await here.settled(here.ids[each])) is type(OUTCOMES[what])

    went = {each: what for each, (what, _) in told.items()}
    numbers = dict(enumerate(here.numbers))
    left = [each for each in range(COUNT) if each not in went]
    for each in left:
        here.write(Disposition(True, here.ids[each], None, False, Accepted()))
        assert isinstance(await here.settled(here.ids[each]), Accepted)
    back = {each for each, what in went.items() if what in (ABANDONED, RELEASED)}
    here.forget()
    await here.receive(len(back))
    assert dict(zip(here.bodies, here.counts, strict=True)) == {
        str(each): int(went[each] == ABANDONED) for each in back
    }
    for each in here.ids:
        here.write(Disposition(True, each, None, False, Accepted()))
        assert isinstance(await here.settled(each), Accepted)
    deferred = [numbers[each] for each, what in went.items() if what == DEFERRED]
    if deferred:
        await here.take_deferred(deferred)
    here.forget()
    await here.attach(f"{QUEUE}/$deadletterqueue", _DEAD_LETTERS)
    dead = [str(each) for each, what in went.items() if what == DEAD]
    await here.receive(len(dead), _DEAD_LETTERS)
    assert sorted(here.bodies) == sorted(dead)
    for each in here.ids:
        here.write(Disposition(True, each, None, False, Accepted()))
        assert isinstance(await here.settled(each), Accepted)


async def _run(bridge: Bridge, bursts: list[list[Told]]) -> None:
    async with Application.opened(bridge, QUEUE) as here:
        await _settle_and_account(here, bursts)


def test_each_message_goes_where_its_first_outcome_says(bridge: Bridge) -> None:
    """Ranges over one another, mixed outcomes, settled or not: nothing astray in RabbitMQ."""

    @settings(max_examples=25, deadline=None)
    @given(_bursts(COUNT))
    @example([[(0, 0, ABANDONED, False), (1, 2, COMPLETED, False)]])
    def holds(bursts: list[list[Told]]) -> None:
        asyncio.run(_run(bridge, bursts))
        for queue in (QUEUE, f"{QUEUE}/$deadletterqueue"):
            eventually(partial(_is_empty, bridge, queue), within_s=WITHIN_S)

    holds()


def test_a_client_that_settles_in_bursts_loses_nothing(bridge: Bridge) -> None:
    """Proton abandons every third of a hundred messages beside completions: each comes again."""
    connection = BlockingConnection(
        f"amqp://{RULE_NAME}:{KEY}@127.0.0.1:{bridge.port}",
        allowed_mechs="PLAIN",
        allow_insecure_mechs=True,
        timeout=WITHIN_S,
    )
    sender = connection.create_sender("bursts")
    for number in range(100):
        sender.send(ProtonMessage(body=number))
    receiver = connection.create_receiver("bursts", credit=30)
    completed: list[int] = []
    abandoned: Counter[int] = Counter()
    while len(completed) < 100:
        burst = min(10, 100 - len(completed))
        for message in [receiver.receive() for _ in range(burst)]:
            if message.body % 3 == 0 and not abandoned[message.body]:
                abandoned[message.body] += 1
                receiver.release(delivered=True)
            else:
                completed.append(message.body)
                receiver.accept()
    connection.close()

    assert sorted(completed) == list(range(100))
    assert len(abandoned) == 34
    eventually(partial(_is_empty, bridge, "bursts"), within_s=WITHIN_S)


def _is_empty(bridge: Bridge, queue: str) -> bool:
    return _ready(bridge, queue) == 0


async def test_what_was_abandoned_first_is_next(bridge: Bridge) -> None:
    """Abandon, complete and credit in one write: no later message overtakes."""
    async with Application.opened(bridge, "next") as here:
        for _ in range(5):
            await here.send("1", "2", "3")
            await here.attach("next")
            await here.receive(2)
            first, second = here.ids
            here.write(
                Disposition(True, first, None, True, Modified(delivery_failed=True)),
                Disposition(True, second, None, True, Accepted()),
            )
            here.forget()
            await here.receive(2)
            assert (here.bodies, here.counts) == (["1", "3"], [1, 0])
            for each in here.ids:
                here.write(Disposition(True, each, None, False, Accepted()))
                assert isinstance(await here.settled(each), Accepted)
            here.write(Detach(_SENDER, True, None), Detach(_RECEIVER, True, None))
            await here.client.next(Detach, handle=_SENDER)
            await here.client.next(Detach, handle=_RECEIVER)
            here.forget()


def _of_session(session_id: str) -> Source:
    return Source("leaving", filter={Symbol("com.microsoft:session-filter"): session_id})


async def test_what_was_settled_before_the_link_ended_is_settled(bridge: Bridge) -> None:
    """Dead-letter, defer, abandon and complete, then detach, in one write of a session's client."""
    async with Application.opened(bridge, "leaving") as here:
        await here.send("1", "2", "3", "4", session_id="s")
        await here.attach("leaving", source=_of_session("s"))
        await here.receive(4)
        outcomes = (DEAD, DEFERRED, ABANDONED, COMPLETED)
        here.write(
            *(
                Disposition(True, each, None, True, OUTCOMES[what])
                for each, what in zip(here.ids, outcomes, strict=True)
            ),
            Detach(_RECEIVER, True, None),
        )
        await here.client.next(Detach, handle=_RECEIVER)
        here.forget()
        await here.attach("leaving/$deadletterqueue", _DEAD_LETTERS)
        await here.receive(1, _DEAD_LETTERS)
        assert here.bodies == ["1"]
        here.write(Disposition(True, here.ids[0], None, False, Accepted()))
        assert isinstance(await here.settled(here.ids[0]), Accepted)
        here.forget()
        await here.attach("leaving", source=_of_session("s"))
        await here.receive(1)
        assert (here.bodies, here.counts) == (["3"], [1])
        here.write(Disposition(True, here.ids[0], None, False, Accepted()))
        assert isinstance(await here.settled(here.ids[0]), Accepted)
    eventually(partial(_is_empty, bridge, "leaving"), within_s=WITHIN_S)
