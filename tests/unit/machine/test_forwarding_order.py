"""What is forwarded keeps its queue's order, whatever is killed, lost or served in parts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.machine.queue.forwarding_order import ForwardingOrder
from tests.fixtures.examples import examples

MOST = 64
HELD = 8
REQUEST = 4

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 6)),
        st.tuples(st.just("serve"), st.integers(1, REQUEST)),
        st.tuples(st.just("end"), st.just(0)),
        st.tuples(st.just("pass on"), st.integers(1, 6)),
        st.tuples(st.just("ack"), st.integers(1, 6)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("lose"), st.just(0)),
    ),
    max_size=80,
)


class Source:
    """A queue with a forwarder; RabbitMQ returns what was held in any order, before what is newer.

    Attributes:
        target: what was forwarded, without what the target recognizes as a second copy.
    """

    def __init__(self, chance: st.DataObject) -> None:
        self.target: list[int] = []
        self._chance = chance
        self._published = 0
        self._returned: list[int] = []
        self._fresh: list[int] = []
        self._held: list[int] = []
        self._passed_on: list[int] = []
        self._asked = REQUEST
        self._order: ForwardingOrder[int] = ForwardingOrder(MOST)

    def publish(self, count: int) -> None:
        """New messages come into the queue."""
        self._fresh += range(self._published, self._published + count)
        self._published += count

    def serve(self, count: int) -> None:
        """RabbitMQ delivers some of the messages that were asked for, in parts."""
        count = min(count, self._asked)
        known, self._returned = self._returned[:count], self._returned[count:]
        fresh, self._fresh = self._fresh[: count - len(known)], self._fresh[count - len(known) :]
        self._asked -= len(known) + len(fresh)
        for each in self._chance.draw(st.permutations([*known, *fresh])):
            self._held.append(each)
            self._order.came(each, was_delivered=each in known)

    def end(self) -> None:
        """The request ends: first comes what RabbitMQ has for it."""
        self.serve(self._asked)
        self._order.ended(lambda message: (0, message))
        self._ask()

    def pass_on(self, count: int) -> None:
        """The forwarder publishes what waits, after the request has ended."""
        while self._order.waiting:
            self.end()
            if self._order.has_all:
                break
        for _ in range(min(count, len(self._order.waiting))):
            message = self._order.waiting.popleft()
            self._passed_on.append(message)
            if message not in self.target:
                self.target.append(message)

    def ack(self, count: int) -> None:
        """The oldest that were passed on are confirmed, and acked."""
        for each in self._passed_on[:count]:
            self._held.remove(each)
        del self._passed_on[:count]

    def kill(self) -> None:
        """Another forwarder begins; what was returned before may not have come yet."""
        self.lose()
        self._order = ForwardingOrder(MOST)

    def lose(self) -> None:
        """The channel ends: RabbitMQ takes back what was held, and the forwarder notices."""
        self._returned += self._chance.draw(st.permutations(self._held))
        self._held, self._passed_on = [], []
        self._order.lost()
        self._order.keep(lambda message: False)
        self._ask()

    def _ask(self) -> None:
        most = HELD if self._order.has_all else MOST
        self._asked = REQUEST if len(self._held) <= most else 0

    def finish(self) -> None:
        """Forward everything."""
        while self._returned or self._fresh or self._order.waiting:
            self.end()
            self.pass_on(MOST)
            self.ack(MOST)


@given(STEPS, st.data())
@settings(max_examples=examples(300), deadline=None)
def test_what_is_forwarded_is_there_once_and_in_order(
    steps: list[tuple[str, int]], chance: st.DataObject
) -> None:
    """Through kills and losses at any moment, with returned messages in any order."""
    source = Source(chance)
    for step, count in steps:
        match step:
            case "publish" | "serve" | "ack":
                getattr(source, step)(count)
            case "pass on":
                source.pass_on(count)
            case _:
                getattr(source, step)()
    source.finish()

    assert source.target == list(range(source._published))
