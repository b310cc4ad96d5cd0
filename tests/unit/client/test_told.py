"""What senders of the library are told, in every order in which RabbitMQ may do what it does."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.client.core.confirms import Confirms
from bridge.client.core.publisher import Publisher, is_refused
from bridge.client.core.wire import Confirmed
from bridge.client.exceptions import ServiceBusConnectionError, ServiceBusError
from bridge.machine.inbox.publication import Publication
from bridge.wire.basic import Properties
from tests.fixtures.scripted_wire import ScriptedChannel, ScriptedWire


class Broker(ScriptedWire):
    """RabbitMQ's side of the sending connection.

    Attributes:
        stored: the bodies of all stored messages.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stored: Counter[bytes] = Counter()
        self.current: ConfirmingChannel | None = None

    def open(  # type: ignore[override]
        self, on_closed: Callable[[ServiceBusError], None], *, has_confirms: bool = False
    ) -> ConfirmingChannel:
        """Return a channel."""
        self.current = ConfirmingChannel(self, on_closed)
        return self.current


class ConfirmingChannel(ScriptedChannel):
    """A channel in confirm mode, with the client's own record of what waits."""

    def __init__(self, broker: Broker, on_closed: Callable[[ServiceBusError], None]) -> None:
        super().__init__()
        self._broker = broker
        self._on_closed = on_closed
        self._confirms = Confirms()
        self._unread: deque[tuple[int, str, str, bytes, bytes]] = deque()
        self._late: list[int] = []

    def publish(
        self, exchange: str, key: str, properties: bytes, body: bytes, confirmed: Confirmed
    ) -> None:
        """Write a message; RabbitMQ reads it later."""
        tag = self._confirms.add(exchange, key, properties, body, confirmed)
        self._unread.append((tag, exchange, key, properties, body))

    def read(self, verdict: str) -> None:
        """Read the next message and decide what becomes of it."""
        if not self._unread or self._broker.blocked is not None:
            return
        tag, exchange, key, properties, body = self._unread.popleft()
        if verdict == "missing":
            self.lose(f"(404, \"NOT_FOUND - no exchange '{exchange}' in vhost '/'\")")
            return
        if verdict == "returned":
            self._confirms.on_return(exchange, key, properties, body)
        elif verdict == "returned anew":  # RabbitMQ has encoded the properties otherwise
            other = Properties(content_type="other").encode()
            self._confirms.on_return(exchange, key, other, body)
        elif verdict != "refused":
            self._broker.stored[body] += 1
        if verdict == "late":
            self._late.append(tag)
        else:
            self._confirms.on_confirm(tag, is_multiple=False, is_taken=verdict != "refused")

    def confirm(self, *, is_multiple: bool) -> None:
        """Confirm what is stored."""
        late, self._late = self._late, []
        for tag in late[-1:] if is_multiple else late:
            self._confirms.on_confirm(tag, is_multiple=is_multiple, is_taken=True)

    def lose(self, why: str, *, reads_rest: bool = False) -> None:
        """End the channel."""
        if reads_rest:
            self._broker.stored.update(body for *_, body in self._unread)
        self.is_closed = True
        self._broker.current = None
        self._confirms.lose(why)
        self._on_closed(ServiceBusConnectionError(why))


Step = tuple[str, int]
READS = ("stored", "late", "returned", "returned anew", "refused", "missing")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *["send", "twin", "move"] * 3,
                *["stored", "late"] * 2,
                *READS,
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


class Told:
    """The bodies, by what their senders were told."""

    def __init__(self, broker: Broker) -> None:
        self.accepted: Counter[bytes] = Counter()
        self.refused: Counter[bytes] = Counter()
        self.unknown: Counter[bytes] = Counter()
        self.waiting = 0
        self._publisher = Publisher(broker)

    def send(self, exchange: str, *bodies: bytes) -> None:
        """Send messages, one, or several as a move."""
        self.waiting += 1

        def confirmed(error: Exception | None) -> None:
            self.waiting -= 1
            if error is None:
                self.accepted.update(bodies)
            else:
                (self.refused if is_refused(error) else self.unknown).update(bodies)

        plain = Properties().encode()
        publishes = [Publication(exchange, "", plain, body) for body in bodies]
        try:
            if len(publishes) == 1:
                self._publisher.publish(*publishes[0], confirmed)
            else:
                self._publisher.publish_all(publishes, confirmed)
        except ServiceBusError:  # nothing was published
            self.waiting -= 1
            self.refused.update(bodies)


@given(STEPS)
@example([("send", 0), ("block", 0), ("wait", 1), ("unblock", 0), ("stored", 0)])
@example([("send", 0), ("send", 0), ("late", 0), ("returned", 0), ("confirm", 0)])
@example([("send", 0), ("send", 0), ("late", 0), ("returned anew", 0), ("confirm", 0)])
@example([("twin", 0), ("twin", 0), ("late", 0), ("returned anew", 0), ("confirm", 0)])
@example([("send", 0), ("send", 0), ("late", 0), ("missing", 0)])
@example([("move", 0), ("stored", 0), ("refused", 0)])
@example([("move", 0), ("late", 0), ("returned", 0), ("lose", 0)])
@settings(deadline=None)
def test_what_is_told_refused_is_never_stored(steps: list[Step]) -> None:
    """And what is told accepted is; each sender is told once, however long RabbitMQ hangs."""
    broker = Broker()
    told = Told(broker)
    for number, (what, chance) in enumerate(steps):
        exchange = "ab"[chance % 2]
        if what == "send":
            told.send(exchange, b"%d" % number)
        elif what == "twin":
            told.send(exchange, b"twin")
        elif what == "move":
            told.send(exchange, b"%d first" % number, b"%d second" % number)
        elif what in ("block", "unblock"):
            broker.blocked = "disk" if what == "block" else None
        elif what == "wait":
            broker.advance((1.0, 31.0, 7.0, 29.0)[chance])
        elif broker.current is None:
            continue
        elif what in READS:
            broker.current.read(what)
        elif what == "confirm":
            broker.current.confirm(is_multiple=chance > 1)
        else:
            broker.current.lose("the cable", reads_rest=chance > 1)
    broker.advance(31.0)
    assert not told.waiting
    if broker.current is not None:  # what was written may still be stored
        broker.current.lose("the end", reads_rest=True)
    for body in {*told.accepted, *told.refused, *told.unknown, *broker.stored}:
        least = told.accepted[body]
        assert least <= broker.stored[body] <= least + told.unknown[body], body
