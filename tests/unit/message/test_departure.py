"""Messages that leave their queue while RabbitMQ refuses, is silent, and loses channels.

After every step a message is in its queue or stored elsewhere; it is acked only when it is stored
elsewhere; whoever asked is told once, and the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.machine.inbox.publication import Publication
from bridge.machine.queue.fate import Fate
from bridge.machine.queue.second_copies import Left
from bridge.message import moves
from bridge.message.departure import RETRY_S, Departure, Ended, Message, Outcome, Told
from bridge.message.end_rules import MessagePlace
from bridge.message.held import Held, HeldCopy
from bridge.message.message import facts
from bridge.message.moves import Move
from bridge.model import entity as model
from bridge.topology import names
from bridge.wire import stamp
from bridge.wire.basic import Properties, text
from tests.fixtures.examples import examples

NOW_MS = 1_700_000_000_000
ORDERS = model.Queue(name="orders", max_delivery_count=3)


class Alarm(Exception):
    """RabbitMQ takes no messages now."""


class TooLarge(Exception):
    """Properties above the limit."""


@dataclass(eq=False)
class Channel:
    """A channel that delivered messages."""

    is_closed: bool = False


@dataclass(eq=False)
class Pending:
    """A hand-over that RabbitMQ has not answered."""

    held: Message
    ended: Ended


@dataclass(eq=False)
class RabbitMQ:
    """Stores, refuses, and forgets whom it has acked nothing from."""

    has_alarm: bool = False
    pending: list[Pending] = field(default_factory=list)
    shown: list[Told] = field(default_factory=list)
    timers: list[Callable[[], None]] = field(default_factory=list)
    stored: set[int] = field(default_factory=set)
    acked: list[int] = field(default_factory=list)
    passing: tuple[type[Exception], ...] = (Alarm,)
    sent_back: int = 0
    expired: int = 0
    second_copies: int = 0

    def begin(
        self, source: MessagePlace, held: Message, publishes: Move, point: str, ended: Ended
    ) -> None:
        """Publish."""
        if self.has_alarm:
            raise Alarm
        assert len(publishes[0].properties) <= moves.PROPERTIES_BYTES_MAX
        assert not held.channel.is_closed, "a message that is RabbitMQ's again is not moved"
        self.pending.append(Pending(held, ended))

    def show(self, entry: Publication, told: Told) -> None:
        """Publish for peeks."""
        if self.has_alarm:
            raise Alarm
        self.shown.append(told)

    def ack(self, held: Message | HeldCopy[Any], point: str) -> None:
        """Ack."""
        self.acked.append(held.tag)

    def later(self, wait_s: float, call: Callable[[], None]) -> None:
        """Keep it for later."""
        assert wait_s == RETRY_S
        self.timers.append(call)

    def too_large(self, path: str, size_bytes: int) -> Exception:
        """Refuse."""
        return TooLarge()


@dataclass(eq=False)
class Source:
    """The queue that messages leave."""

    queue: model.ReceiveEntity = ORDERS
    resource: str = names.active_queue("orders")
    is_dead_letter: bool = False
    is_deferred: bool = False
    gone: dict[int, Left] = field(default_factory=dict)

    def putting_back(self, held: Any, generation: int) -> None:
        """A message is published again."""

    def left(self, held: Any, how: Left) -> None:
        """A message has left; once."""
        assert held.number not in self.gone
        self.gone[held.number] = how


def message(number: int, channel: Channel, size_bytes: int = 0) -> Message:
    """Return a held message."""
    properties = Properties(headers={"x-own": text("x" * size_bytes)})
    fields = stamp.active(number, NOW_MS, number.to_bytes(20, "big"), None)
    raw = stamp.put(properties.encode(), fields, None)
    found = facts(raw, b"body", names.active_exchange("orders"), can_expire=True)
    return Held(*found, 1, channel, number)


class Departures(RuleBasedStateMachine):
    """Clients and the bridge move messages; RabbitMQ does as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.rabbitmq = RabbitMQ()
        self.source = Source()
        self.departure = Departure(self.rabbitmq, self.rabbitmq, lambda: NOW_MS)
        self.channel = Channel()
        self.messages: dict[int, Message] = {}
        self.asked: dict[int, list[Exception | None]] = {}
        self.lost: set[int] = set()

    @rule(
        how=st.sampled_from(["dead-letter", "defer", "again", "refuse", "finish", "send back"]),
        size_bytes=st.sampled_from([0, moves.PROPERTIES_BYTES_MAX]),
    )
    def leave(self, how: str, size_bytes: int) -> None:
        number = len(self.messages) + 1
        held = self.messages[number] = message(number, self.channel, size_bytes)
        answers: list[Exception | None] = []
        departure, source = self.departure, self.source
        try:
            match how:
                case "dead-letter":
                    self.asked[number] = answers
                    departure.dead_letter(source, held, "why", None, {}, answers.append)
                case "defer":
                    self.asked[number] = answers
                    departure.defer(source, held, {}, answers.append)
                case "again":
                    self.asked[number] = answers
                    departure.again(source, held, {}, answers.append)
                case "refuse":
                    departure.refuse(source, held, "why", "because")
                case "finish":
                    departure.finish(source, held, Fate.DELIVERY_COUNT_EXCEEDED)
                case _:
                    departure.send_back(source, held)
        except (Alarm, TooLarge) as refusal:
            assert number in self.asked, "the bridge itself tries again"
            assert not answers
            answers.append(refusal)

    @precondition(lambda self: self.rabbitmq.pending)
    @rule(choice=st.data(), outcome=st.sampled_from(Outcome), is_stored=st.booleans())
    def rabbitmq_answers(self, choice: st.DataObject, outcome: Outcome, is_stored: bool) -> None:
        pending = choice.draw(st.sampled_from(self.rabbitmq.pending))
        self.answer(pending, outcome, is_stored=is_stored)

    def answer(self, pending: Pending, outcome: Outcome, *, is_stored: bool = False) -> None:
        self.rabbitmq.pending.remove(pending)
        held = pending.held
        if outcome in (Outcome.MOVED, Outcome.ACK_LOST):
            outcome = Outcome.ACK_LOST if held.channel.is_closed else Outcome.MOVED
        if outcome in (Outcome.MOVED, Outcome.ACK_LOST) or (
            outcome is Outcome.UNKNOWN and is_stored
        ):
            self.rabbitmq.stored.add(held.number)
        if outcome is Outcome.MOVED:
            self.rabbitmq.acked.append(held.tag)
            pending.ended(outcome, None)
        else:
            pending.ended(outcome, Exception(outcome.value))

    @precondition(lambda self: self.rabbitmq.shown)
    @rule(is_refused=st.booleans())
    def peeks_are_told(self, is_refused: bool) -> None:
        self.rabbitmq.shown.pop(0)(Alarm() if is_refused else None)

    @precondition(lambda self: self.rabbitmq.timers)
    @rule(choice=st.data())
    def time_passes(self, choice: st.DataObject) -> None:
        timers = self.rabbitmq.timers
        timers.pop(choice.draw(st.integers(0, len(timers) - 1)))()

    @rule(has_alarm=st.booleans())
    def alarm(self, has_alarm: bool) -> None:
        self.rabbitmq.has_alarm = has_alarm

    @rule()
    def channel_is_lost(self) -> None:
        """RabbitMQ takes back what is not acked, and delivers it on another channel."""
        self.channel.is_closed = True
        self.lost |= {each for each in self.messages if each not in self.rabbitmq.acked}
        self.channel = Channel()

    @invariant()
    def nothing_is_lost(self) -> None:
        assert set(self.rabbitmq.acked) <= self.rabbitmq.stored
        assert len(self.rabbitmq.acked) == len(set(self.rabbitmq.acked)), "acked twice"
        assert set(self.source.gone) == set(self.rabbitmq.acked)

    @invariant()
    def whoever_gives_the_queue_back_knows_what_is_on_its_way(self) -> None:
        rabbitmq = self.rabbitmq
        on_way = len(rabbitmq.pending) + len(rabbitmq.timers) + len(rabbitmq.shown)
        assert self.departure.under_way(self.source) == on_way
        assert self.departure.is_idle == (not on_way)

    @invariant()
    def who_asked_is_told_once_and_the_truth(self) -> None:
        for number, answers in self.asked.items():
            assert len(answers) <= 1
            if answers == [None]:
                assert number in self.rabbitmq.acked
            elif answers:
                assert number not in self.rabbitmq.acked
                is_in_both = number in self.rabbitmq.stored and number not in self.lost
                assert not is_in_both, "a message that stays locked is nowhere else"

    def teardown(self) -> None:
        """In the end RabbitMQ takes all: each message has left, or stays as its client was told."""
        rabbitmq = self.rabbitmq
        rabbitmq.has_alarm = False
        while rabbitmq.pending or rabbitmq.timers or rabbitmq.shown:
            while rabbitmq.timers:
                rabbitmq.timers.pop()()
            while rabbitmq.shown:
                rabbitmq.shown.pop()(None)
            while rabbitmq.pending:
                self.answer(rabbitmq.pending[0], Outcome.MOVED)
        self.nothing_is_lost()
        self.who_asked_is_told_once_and_the_truth()
        for number in self.messages:
            answers = self.asked.get(number)
            assert answers is None or len(answers) == 1, "nobody is told"
            if answers is None:
                assert number in rabbitmq.acked or number in self.lost


TestDepartures = Departures.TestCase
TestDepartures.settings = settings(
    max_examples=examples(200), stateful_step_count=40, deadline=None
)


def test_a_refused_message_is_shown_again_before_its_client_is_told() -> None:
    """Peeks may have been told that it has left; a later move must come behind that."""
    rabbitmq, source, answers = RabbitMQ(), Source(), list[Exception | None]()
    departure = Departure(rabbitmq, rabbitmq, lambda: NOW_MS)
    departure.dead_letter(source, message(1, Channel()), None, None, {}, answers.append)
    refusal = Exception("the queue is full")
    rabbitmq.pending.pop().ended(Outcome.SHOWN, refusal)
    assert answers == []
    rabbitmq.shown.pop()(Alarm())
    assert answers == []
    rabbitmq.timers.pop()()
    rabbitmq.shown.pop()(None)
    assert answers == [refusal]


def test_a_message_that_expires_without_a_dead_letter_is_acked_at_once() -> None:
    """Nothing is published, so nothing is waited for."""
    rabbitmq, source = RabbitMQ(), Source()
    departure = Departure(rabbitmq, rabbitmq, lambda: NOW_MS)
    departure.finish(source, message(7, Channel()), Fate.EXPIRED)
    assert (rabbitmq.acked, source.gone, rabbitmq.expired) == ([7], {7: Left.SETTLED}, 1)


def test_headers_are_dropped_of_what_the_bridge_itself_moves() -> None:
    """A frame above the limit would end the connection; of a client's move it is an error."""
    rabbitmq, source = RabbitMQ(), Source()
    departure = Departure(rabbitmq, rabbitmq, lambda: NOW_MS)
    large = message(1, Channel(), moves.PROPERTIES_BYTES_MAX)
    departure.finish(source, large, Fate.DELIVERY_COUNT_EXCEEDED)
    assert len(rabbitmq.pending) == 1
