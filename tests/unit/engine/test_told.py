"""What the senders of messages are told, in every order in which RabbitMQ may do what it does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerError, is_refused
from bridge.broker.handover import Publish
from bridge.engine.sending.sender import CONFIRM_WAIT_S, Sender
from bridge.model.errors import OperationTimeout, ServerBusy
from bridge.wire.basic import Properties
from tests.fixtures.examples import examples
from tests.fixtures.model_broker import ClockLoop, ModelBroker, Verdict

PLAIN = Properties(delivery_mode=2).encode()

BURST = 210
"""Of two bursts some messages wait: RabbitMQ would read no more of a channel than 399."""

READS = {each.name.lower(): each for each in Verdict}


class Senders:
    """Senders, and hand-overs of two messages each, by what they were told.

    Attributes:
        accepted, refused, unknown: the bodies.
    """

    def __init__(self, sender: Sender) -> None:
        self.accepted: Counter[bytes] = Counter()
        self.refused: Counter[bytes] = Counter()
        self.unknown: Counter[bytes] = Counter()
        self._sender = sender
        self._sends: list[asyncio.Task[None]] = []
        self._moves: list[asyncio.Task[None]] = []

    def begin(self, exchange: str, *bodies: bytes) -> None:
        """Send a message, or move two."""
        tasks = self._sends if len(bodies) == 1 else self._moves
        tasks.append(asyncio.create_task(self._send(exchange, *bodies)))

    @property
    def all_sends_are_told(self) -> bool:
        """Whether nobody waits any more, but for what moves two messages."""
        return all(task.done() for task in self._sends)

    async def _send(self, exchange: str, *bodies: bytes) -> None:
        told = self.accepted
        try:
            if len(bodies) == 1:
                await self._sender.publish(exchange, "", PLAIN, *bodies)
            else:
                both = [Publish(exchange, "", PLAIN, body) for body in bodies]
                await self._sender.move(both, acks=(), failpoint="engine.forward")
        except ServerBusy:
            told = self.refused
        except OperationTimeout:
            told = self.unknown
        except BrokerError as error:
            told = self.refused if is_refused(error) else self.unknown
        told.update(bodies)

    async def ended(self) -> None:
        """Wait until all have been told."""
        await asyncio.gather(*self._sends, *self._moves)


Step = tuple[str, int]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *["send", "twin", "move"] * 2,
                *["stored", "late"] * 2,
                "returned",
                "refused",
                "missing",
                "burst",
                "stored all",
                "confirm",
                "block",
                "unblock",
                "lose",
                "wait",
            ]
        ),
        st.integers(0, 3),
    ),
    max_size=40,
)


def carry_out(step: Step, number: int, senders: Senders, broker: ModelBroker) -> float:
    """Do one step; return how long to wait then."""
    what, chance = step
    exchange = "ab"[chance % 2]
    begin = partial(senders.begin, exchange)

    def burst() -> None:
        for each in range(BURST):
            begin(b"%d of %d" % (each, number))

    def read_all() -> None:
        for _ in range(3 * BURST):
            broker.read(Verdict.STORED)

    does: dict[str, Callable[[], None]] = {
        "burst": burst,
        "stored all": read_all,
        "send": lambda: begin(b"%d" % number),
        "twin": lambda: begin(b"twin"),
        "move": lambda: begin(b"%d first" % number, b"%d second" % number),
        "confirm": lambda: broker.confirm(newest_first=chance > 1, multiple=chance % 2 == 0),
        "block": lambda: broker.block(is_blocked=True),
        "unblock": lambda: broker.block(is_blocked=False),
        "lose": lambda: broker.lose(reads_rest=chance > 1),
    }
    if what in READS:
        broker.read(READS[what])
    elif what in does:
        does[what]()
    return (1.0, 7.0, 21.0, 31.0)[chance] if what == "wait" else 0.0


async def tell(steps: list[Step]) -> tuple[Senders, Counter[bytes]]:
    """Carry out all steps; return what the senders were told, and what is stored in the end."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClockLoop)
    broker = ModelBroker(loop)
    sender = Sender(Endpoint(hosts=(("model", 5672),)), name="test")
    sender.start()
    await sender.ready.wait()
    senders = Senders(sender)
    for number, step in enumerate(steps):
        await asyncio.sleep(carry_out(step, number, senders, broker))
        for _ in range(5):
            await asyncio.sleep(0)
    await asyncio.sleep(CONFIRM_WAIT_S + 1)
    assert senders.all_sends_are_told
    broker.block(is_blocked=False)  # what was written may still be stored
    broker.lose(reads_rest=True)
    await senders.ended()
    await sender.close()
    return senders, Counter(broker.stored)


@given(STEPS)
@example([("send", 0), ("block", 0), ("wait", 2), ("unblock", 0), ("stored", 0)])
@example([("send", 0), ("late", 0), ("lose", 0)])
@example([("send", 0), ("send", 0), ("late", 0), ("missing", 0)])
@example([("move", 0), ("stored", 0), ("refused", 0)])
@example([("twin", 0), ("twin", 0), ("late", 0), ("returned", 0), ("confirm", 0)])
@example([("burst", 0), ("burst", 0), ("lose", 2)])
@example([("burst", 0), ("burst", 0), ("wait", 2), ("stored all", 0), ("stored all", 0)])
@settings(deadline=None, max_examples=examples(200))
def test_what_is_told_refused_is_never_stored(steps: list[Step]) -> None:
    """And what is told accepted is; each sender is told in time, however long RabbitMQ hangs."""
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        told, stored = runner.run(tell(steps))
    for body in {*told.accepted, *told.refused, *told.unknown, *stored}:
        least = told.accepted[body]
        assert least <= stored[body] <= least + told.unknown[body], body
