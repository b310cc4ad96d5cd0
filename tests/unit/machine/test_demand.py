"""Demand: what is fetched is what was asked for, whatever RabbitMQ would like to send."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.machine.channels import GETS_MAX, Channels
from bridge.machine.demand import (
    AHEAD_MAX,
    CONSUMERS_MAX,
    HELD_MIN,
    REFILL,
    Close,
    Demand,
    Fetched,
    Get,
    Look,
    Open,
    Withdrawn,
)


def test_a_window_that_is_full_is_closed_before_anything_of_it_is_settled() -> None:
    """Otherwise the first ack would fetch a message that nobody asked for."""
    demand: Demand[Fetched] = Demand()
    demand.ask(1, 5)
    assert demand.plan() == [Open(1, 5)]

    assert [demand.arrived(1) for _ in range(5)] == [1] * 5
    assert demand.plan() == [Close(1)]
    assert demand.settling(1) is None


def test_a_window_with_room_is_closed_before_one_of_its_messages_is_settled() -> None:
    """The rest of the demand gets a new window when the old one is closed."""
    demand: Demand[Fetched] = Demand()
    demand.ask(1, 5)
    demand.plan()
    demand.arrived(1)

    assert demand.settling(1) == Close(1)
    assert demand.plan() == []
    demand.closed(1)
    assert demand.plan() == [Open(2, 4)]


def test_a_refill_that_somebody_asked_for_is_welcome() -> None:
    """A receiver that tops up its credit as it settles keeps its window."""
    demand: Demand[Fetched] = Demand()
    demand.ask(1, 5)
    demand.plan()
    demand.arrived(1)
    demand.ask(1, 1)

    assert demand.settling(1) is REFILL
    assert demand.plan() == []
    assert demand.under_way == 5


def test_a_small_demand_is_got_until_the_queue_is_found_empty() -> None:
    """An empty get turns to a window, which waits in RabbitMQ."""
    demand: Demand[Fetched] = Demand()
    demand.ask(1, 1)
    assert demand.plan() == [Get(1)]
    demand.empty(1)
    assert demand.plan() == [Open(2, 1)]


def test_receivers_are_served_in_the_order_in_which_they_asked() -> None:
    """Five that ask for five each: the first has its five before the second has one."""
    demand: Demand[Fetched] = Demand()
    for receiver in range(1, 6):
        demand.ask(receiver, 5)
    assert demand.plan() == [Open(1, 25)]
    assert [demand.arrived(1) for _ in range(7)] == [1, 1, 1, 1, 1, 2, 2]


def test_a_withdrawal_ends_when_the_window_is_closed() -> None:
    """What comes in between still goes to the one who asked; then nothing does."""
    demand: Demand[Fetched] = Demand()
    demand.ask(1, 5)
    demand.plan()
    ticket = demand.withdraw(1)

    assert demand.plan() == [Close(1)]
    assert demand.arrived(1) == 1
    assert demand.plan() == []
    demand.closed(1)
    assert demand.plan() == [Withdrawn(ticket)]
    assert demand.arrived(1) is None


def test_a_withdrawal_that_nothing_is_fetched_for_ends_at_once() -> None:
    """A receiver without credit, or whose credit another one now uses, need not wait."""
    demand: Demand[Fetched] = Demand()
    ticket = demand.withdraw(1)
    assert demand.plan() == [Withdrawn(ticket)]


def test_kept_messages_are_offered_first_and_by_number() -> None:
    """What came back goes to the next asker, lowest number first, before anything is fetched."""
    demand: Demand[Fetched] = Demand()
    for number in (7, 3, 5):
        demand.keep(Fetched(number, 0, None))
    demand.ask(1, 4)

    offered = [demand.offer() for _ in range(4)]
    assert [found and found[1].number for found in offered] == [3, 5, 7, None]
    assert demand.plan() == [Get(1)]


def test_kept_messages_expire() -> None:
    """A kept message leaves at its expiry."""
    demand: Demand[Fetched] = Demand()
    soon, later, never = Fetched(1, 0, 10), Fetched(2, 0, 20), Fetched(3, 0, None)
    for message in (soon, later, never):
        demand.keep(message)

    assert demand.next_expiry_ms() == 10
    assert demand.expire(10) == [soon]
    assert demand.next_expiry_ms() == 20
    assert demand.kept == 2


def test_the_expiry_of_a_kept_message_that_has_left_may_still_be_looked_for_once() -> None:
    """It is too early then, never too late."""
    demand: Demand[Fetched] = Demand()
    soon, later = Fetched(1, 0, 10), Fetched(2, 0, 20)
    demand.keep(later)
    assert demand.next_expiry_ms() == 20
    demand.keep(soon)
    demand.ask(1, 1)
    assert demand.offer() == (1, soon)
    assert demand.next_expiry_ms() == 10
    assert demand.expire(10) == []
    assert demand.next_expiry_ms() == 20
    assert demand.expire(20) == [later]
    assert demand.next_expiry_ms() is None


def test_what_a_cautious_window_leaves_in_the_queue_is_the_next_one() -> None:
    """Nothing is got first, while what RabbitMQ said still counts, and as far as it goes."""
    demand: Demand[Fetched] = Demand(is_cautious=True)

    def take(fetch: int, count: int) -> None:
        for _ in range(count):
            assert demand.arrived(fetch) == 1

    demand.ask(1, 100)
    assert demand.plan() == [Get(1)]
    take(1, 1)
    demand.counted(250)
    assert demand.plan() == [Open(2, 99)]
    take(2, 99)
    assert demand.plan() == [Close(2)]
    demand.closed(2)
    demand.ask(1, 100)
    assert demand.plan() == [Open(3, 100)]
    take(3, 100)
    assert demand.plan() == [Close(3)]
    demand.closed(3)
    demand.ask(1, 52)
    assert demand.plan() == [Get(4)]
    take(4, 1)
    demand.counted(151)
    assert demand.plan() == [Open(5, 51)]
    take(5, 51)
    assert demand.plan() == [Close(5)]
    demand.closed(5)
    demand.forget_stock()
    demand.ask(1, 100)
    assert demand.plan() == [Get(6)]


def test_a_cautious_window_is_as_large_as_what_is_ready() -> None:
    """So it fills, and can be closed without a message on its way."""
    demand: Demand[Fetched] = Demand(is_cautious=True)
    demand.ask(1, 10)
    assert demand.plan() == [Get(1)]
    assert demand.arrived(1) == 1
    demand.counted(4)
    assert demand.plan() == [Open(2, 4)]
    assert [demand.arrived(2) for _ in range(4)] == [1] * 4
    assert demand.plan() == [Close(2), Get(3)]


def test_a_count_is_forgotten_when_nothing_is_wanted() -> None:
    """Others may have taken what was ready by the next time."""
    demand: Demand[Fetched] = Demand(is_cautious=True)
    demand.ask(1, 1)
    demand.plan()
    demand.arrived(1)
    demand.counted(4)
    assert demand.plan() == []
    demand.ask(1, 10)
    assert demand.plan() == [Get(2)]


def test_a_cautious_demand_waits_on_an_empty_queue_with_one_message() -> None:
    """The sentinel stays when its asker leaves; what it brings is kept, and offered at once."""
    demand: Demand[Fetched] = Demand(is_cautious=True)
    demand.ask(1, 10)
    demand.plan()
    demand.empty(1)
    assert demand.plan() == [Open(2, 1)]
    ticket = demand.withdraw(1)
    assert demand.plan() == [Withdrawn(ticket)]
    assert demand.spare == 1
    assert demand.arrived(2) is None
    message = Fetched(1, 2, None)
    demand.keep(message)
    demand.ask(2, 1)
    assert demand.offer() == (2, message)


@pytest.mark.parametrize(("channels", "gets"), [("SHARED", GETS_MAX), ("REUSED", 1), ("SPENT", 0)])
def test_a_small_demand_is_got_as_far_as_its_channels_allow(channels: str, gets: int) -> None:
    """One more is fetched by a window."""
    for wanted in range(1, GETS_MAX + 2):
        demand: Demand[Fetched] = Demand(channels=Channels[channels])
        demand.ask(1, wanted)
        effects = demand.plan()
        if wanted <= gets:
            assert effects == [Get(fetch) for fetch in range(1, wanted + 1)]
        else:
            assert effects == [Open(1, wanted)]


@pytest.mark.parametrize("is_cautious", [False, True])
def test_nothing_is_got_while_a_window_has_room(is_cautious: bool) -> None:
    """The answer to a get would overtake what is on its way to the window."""
    demand: Demand[Fetched] = Demand(is_cautious=is_cautious)
    demand.ask(1, 4)
    for effect in demand.plan():
        if isinstance(effect, Get):
            demand.arrived(effect.fetch)
            demand.counted(3)
            demand.plan()
    assert demand.under_way == (3 if is_cautious else 4)
    assert demand.arrived(2 if is_cautious else 1) == 1
    demand.ask(1, 1)
    assert not [effect for effect in demand.plan() if isinstance(effect, Get)]


def test_cautious_room_is_closed_when_nobody_has_wanted_it_for_a_while() -> None:
    """The engine says when; room that somebody wants stays."""
    demand: Demand[Fetched] = Demand(is_cautious=True)
    demand.ask(1, 3)
    demand.plan()
    demand.empty(1)
    demand.plan()
    assert demand.close_spare() == []
    demand.withdraw(1)
    assert demand.close_spare() == [Close(2)]


def test_in_a_cluster_messages_are_got_one_by_one() -> None:
    """So no cancelled consumer holds one, which a dying node would not give back."""
    demand: Demand[Fetched] = Demand(is_cautious=True, is_clustered=True)
    demand.ask(1, 10)
    assert demand.plan() == [Look(1)]
    demand.looked(1, 4, 0)
    assert demand.plan() == [Get(2), Get(3), Get(4), Get(5)]


def test_in_a_cluster_a_sentinel_is_closed_when_its_message_is_settled() -> None:
    """Until then its consumer lives, and others wait beside it."""
    demand: Demand[Fetched] = Demand(is_cautious=True, is_clustered=True)
    demand.ask(1, 2)
    assert demand.plan() == [Look(1)]
    demand.looked(1, 0, 0)
    assert demand.plan() == [Open(2, 1)]
    assert demand.plan() == []
    assert demand.arrived(2) == 1
    assert demand.plan() == [Look(3)]
    demand.looked(3, 0, 1)
    assert demand.plan() == [Open(4, 1)]
    demand.arrived(4)
    assert demand.settling(2) == Close(2)


def test_in_a_cluster_no_more_is_got_than_there_may_be_consumers() -> None:
    """Above 32 the members of a queue would give back in different orders what an end leaves."""
    demand: Demand[Fetched] = Demand(is_cautious=True, is_clustered=True)
    demand.ask(1, 100)
    gets = []
    while not demand.is_crowded:
        (look,) = demand.plan()
        assert isinstance(look, Look)
        demand.looked(look.fetch, 100, len(gets))
        for get in demand.plan():
            assert isinstance(get, Get)
            demand.arrived(get.fetch)
            gets.append(get.fetch)
    assert len(gets) == CONSUMERS_MAX
    assert demand.plan() == []
    demand.settling(gets[0])
    assert demand.plan() == [Look(gets[-1] + 2)]


def test_in_a_cluster_a_few_are_got_although_others_have_all_the_consumers() -> None:
    """Else nobody who consumes through this bridge would ever get anything."""
    demand: Demand[Fetched] = Demand(is_cautious=True, is_clustered=True)
    demand.ask(1, 100)
    demand.plan()
    demand.looked(1, 100, 40)
    gets = demand.plan()
    assert len(gets) == HELD_MIN
    for get in gets:
        assert isinstance(get, Get)
        demand.arrived(get.fetch)
    (look,) = demand.plan()
    demand.looked(look.fetch, 100, 40 + HELD_MIN)  # type: ignore[union-attr]
    assert demand.plan() == []
    assert demand.is_crowded


def test_a_settlement_that_did_not_happen_refills_nothing() -> None:
    """The room that was counted on is taken back, and fetched in another way."""
    demand: Demand[Fetched] = Demand()
    demand.ask(1, 3)
    demand.plan()
    demand.arrived(1)
    demand.ask(1, 1)
    assert demand.settling(1) is REFILL
    assert demand.under_way == 3
    demand.stayed(1)
    assert demand.under_way == 2


def in_rhythm(*, is_cautious: bool = False) -> Demand[Fetched]:
    """A demand whose one receiver has the first message of the window that stands."""
    demand: Demand[Fetched] = Demand(is_cautious=is_cautious)
    demand.is_standing = True
    demand.ask(1, 1)
    assert demand.plan() == [Open(1, AHEAD_MAX)]
    assert demand.arrived(1) == 1
    assert demand.plan() == []
    return demand


def test_in_rhythm_messages_come_before_they_are_asked_for() -> None:
    """As many as the window that stands holds, and no more; they are given by number."""
    demand = in_rhythm()
    assert demand.settling(1) is REFILL
    for number in range(2, 2 + AHEAD_MAX):
        assert demand.arrived(1) is None
        demand.keep(Fetched(number, 1, None))
    assert (demand.kept, demand.under_way) == (AHEAD_MAX, 0)
    assert demand.plan() == []
    demand.ask(1, 1)
    offer = demand.offer()
    assert offer is not None
    assert (offer[0], offer[1].number) == (1, 2)
    assert demand.plan() == []


def test_when_the_rhythm_ends_the_window_that_stands_is_closed() -> None:
    """Whether it waits for messages or all of them are here."""
    waiting, full = in_rhythm(), in_rhythm()
    for _ in range(AHEAD_MAX - 1):
        assert full.arrived(1) is None
    for demand in (waiting, full):
        demand.is_standing = False
        assert demand.plan() == [Close(1)]


def test_what_is_on_its_way_when_something_goes_back_is_given_to_nobody() -> None:
    """It goes back too, after it, though somebody asks, and nothing is fetched meanwhile: so
    messages come in the queue's order.
    """
    demand = in_rhythm()
    assert demand.arrived(1) is None
    demand.keep(Fetched(2, 1, None))
    demand.is_standing = False
    assert [each.number for each in demand.give_up_kept()] == [2]
    demand.ask(2, 40)
    assert demand.settling(1) == Close(1)
    assert demand.is_behind(1)
    assert demand.plan() == []
    demand.discarded(1)
    demand.closed(1)
    assert demand.plan() == [Open(2, 40)]
    assert not demand.is_behind(2)


def test_a_window_that_is_behind_what_went_back_is_closed() -> None:
    """Also if somebody waits for what it would bring."""
    demand = in_rhythm()
    demand.ask(2, 40)
    assert demand.plan() == [Open(2, 9)]
    demand.keep(Fetched(2, 1, None))
    demand.is_standing = False
    demand.give_up_kept()
    assert demand.plan() == [Close(1), Close(2)]


def test_when_a_cautious_rhythm_ends_what_came_ahead_is_kept_and_no_more_comes() -> None:
    """A full window is closed; one with room would lose what is on its way to it."""
    demand = in_rhythm(is_cautious=True)
    for number in range(2, 1 + AHEAD_MAX):
        assert demand.arrived(1) is None
        demand.keep(Fetched(number, 1, None))
    demand.is_standing = False
    assert demand.plan() == [Close(1)]
    assert demand.settling(1) is None
    demand.ask(2, 1)
    offer = demand.offer()
    assert offer is not None
    assert (offer[0], offer[1].number) == (2, 2)


def test_the_consumers_that_rabbitmq_counts_are_open_or_have_something_unsettled() -> None:
    """So others can be told from this process's own."""
    demand = in_rhythm(is_cautious=True)
    assert demand.consumers == 1
    demand.settling(1)
    for _ in range(AHEAD_MAX):
        demand.arrived(1)
    demand.is_standing = False
    demand.plan()
    demand.closed(1)
    assert demand.consumers == 1
    for _ in range(AHEAD_MAX):
        demand.settling(1)
    assert demand.consumers == 0


def test_a_withdrawal_does_not_wait_for_what_comes_ahead() -> None:
    """What comes ahead was not fetched for who withdraws."""
    demand = in_rhythm()
    demand.settling(1)
    ticket = demand.withdraw(1)
    assert demand.plan() == [Withdrawn(ticket)]


class DemandAgainstRabbitMQ(RuleBasedStateMachine):
    """A queue that fills every prefetch it is given, commands and deliveries on their way.

    Never is a message handed over that nobody asked for; every message is in one place; what is
    asked for is being fetched; and messages come in the order of the queue, though the answer to a
    get overtakes what is on its way to windows.
    """

    is_cautious = False
    is_clustered = False
    channels = Channels.SHARED

    def __init__(self) -> None:
        super().__init__()
        self.demand: Demand[Fetched] = Demand(
            is_cautious=self.is_cautious,
            is_clustered=self.is_clustered,
            channels=self.channels,
            windows_max=3,
        )
        self.cancelled: set[int] = set()
        self.commands: deque[tuple[str, int, int]] = deque()
        self.got: set[int] = set()
        self.counted: dict[int, int] = {}
        self.replies: deque[tuple[str, int, int]] = deque()
        self.queue: deque[int] = deque()
        self.returns: deque[int] = deque()
        self.remaining: dict[int, int] = {}
        self.consumers: dict[int, list[int]] = {}
        self.credit: dict[int, int] = {}
        self.held: list[Fetched] = []
        self.asks: dict[int, int] = {1: 0, 2: 0, 3: 0}
        self.tickets: dict[int, tuple[int, int]] = {}
        self.stood: set[int] = set()
        self.returned: set[int] = set()
        self.given_back: set[int] = set()
        self.last_heard = self.last_given = 0
        self.published = 0
        self.settled = 0

    def act(self) -> None:
        while (offer := self.demand.offer()) is not None:
            self.give(*offer)
        for effect in self.demand.plan():
            match effect:
                case Open(fetch, size):
                    self.commands.append(("open", fetch, size))
                    if fetch == self.demand._standing:
                        self.stood.add(fetch)
                case Get(fetch):
                    self.commands.append(("get", fetch, 0))
                case Look(fetch):
                    self.commands.append(("look", fetch, 0))
                case Close(fetch):
                    self.commands.append(("close", fetch, 0))
                case Withdrawn(ticket):
                    receiver, count = self.tickets.pop(ticket)
                    self.asks[receiver] -= min(count, self.asks[receiver])

    def give(self, receiver: int, message: Fetched) -> None:
        assert self.asks[receiver] > 0, "given more than asked"
        if message.number not in self.given_back:
            assert self.is_cautious or message.number > self.last_given, "given out of order"
            self.last_given = message.number
        self.asks[receiver] -= 1
        for ticket, (other, count) in self.tickets.items():
            if other == receiver and count:
                self.tickets[ticket] = (other, count - 1)
                break
        self.held.append(message)

    @rule(count=st.integers(1, 12))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.published += 1
            self.queue.append(self.published)
        self.fill()

    def fill(self) -> None:
        for fetch in self.consumers:
            while self.credit[fetch] and self.ready:
                self.credit[fetch] -= 1
                self.replies.append(("message", fetch, self.next()))

    @property
    def ready(self) -> int:
        return len(self.queue) + len(self.returns)

    def next(self) -> int:
        """What was returned comes first, in the order in which it was."""
        return (self.returns or self.queue).popleft()

    @precondition(lambda self: self.commands)
    @rule()
    def rabbitmq_works(self) -> None:
        what, fetch, size = self.commands.popleft()
        match what:
            case "open":
                self.consumers[fetch], self.credit[fetch] = [], size
            case "get" if self.ready:
                self.got.add(fetch)
                number = self.next()
                self.answer_a_get(fetch, number)
                self.remaining[number] = self.ready
            case "get":
                self.replies.append(("empty", fetch, 0))
            case "look":
                self.counted[fetch] = len(self.consumers) + len(self.got)
                self.replies.append(("looked", fetch, self.ready))
            case "close":
                del self.consumers[fetch]
                self.cancelled.add(fetch)
                self.replies.append(("closed", fetch, 0))
            case "ack":
                self.settled += 1
                self.got.discard(fetch)
                if fetch in self.consumers:
                    self.credit[fetch] += 1
            case "nack":
                self.returned.add(size)
                self.returns.append(size)
                self.got.discard(fetch)
                if fetch in self.consumers:
                    self.credit[fetch] += 1
        self.fill()

    def answer_a_get(self, fetch: int, number: int) -> None:
        """RabbitMQ's channel waits for the queue's answer; deliveries wait in its mailbox."""
        place = len(self.replies)
        while place and self.replies[place - 1][1] in self.credit:
            place -= 1
        self.replies.insert(place, ("message", fetch, number))

    @precondition(lambda self: self.replies)
    @rule()
    def hear(self) -> None:
        what, fetch, number = self.replies.popleft()
        match what:
            case "message":
                if number not in self.returned:
                    assert number > self.last_heard, "overtaken"
                    self.last_heard = number
                message = Fetched(number, fetch, None)
                if self.demand.is_behind(fetch):
                    self.demand.discarded(fetch)
                    self.give_back(message)
                elif (receiver := self.demand.arrived(fetch)) is not None:
                    self.give(receiver, message)
                elif self.is_cautious or self.demand.is_standing:
                    self.demand.keep(message)
                else:
                    assert self.stood, "nobody asked for it"
                    self.give_back(message)
                if number in self.remaining:
                    self.demand.counted(self.remaining.pop(number))
            case "empty":
                self.demand.empty(fetch)
            case "looked":
                self.demand.looked(fetch, number, self.counted.pop(fetch))
            case "closed":
                self.demand.closed(fetch)
        self.act()

    @rule()
    def hear_all(self) -> None:
        for _ in range(10_000):
            if self.commands:
                self.rabbitmq_works()
            elif self.replies:
                self.hear()
            else:
                break

    def settling(self, message: Fetched) -> None:
        under_way = self.demand.under_way
        effect = self.demand.settling(message.fetch)
        assert (effect is REFILL) == (self.demand.under_way > under_way)
        if isinstance(effect, Close):
            self.commands.append(("close", effect.fetch, 0))

    def give_back(self, message: Fetched) -> None:
        self.settling(message)
        self.commands.append(("nack", message.fetch, message.number))

    @precondition(lambda self: not self.is_clustered)
    @rule()
    def find_a_rhythm(self) -> None:
        self.demand.is_standing = True
        self.act()

    @precondition(lambda self: self.demand.is_standing)
    @rule()
    def lose_the_rhythm(self) -> None:
        self.demand.is_standing = False
        if not self.is_cautious:
            for message in self.demand.give_up_kept():
                self.give_back(message)
        self.act()

    @rule(receiver=st.integers(1, 3), count=st.just(1) | st.integers(1, 20))
    def ask(self, receiver: int, count: int) -> None:
        self.demand.ask(receiver, count)
        self.asks[receiver] += count
        self.act()

    @rule(receiver=st.integers(1, 3))
    def withdraw(self, receiver: int) -> None:
        pending = sum(count for other, count in self.tickets.values() if other == receiver)
        ticket = self.demand.withdraw(receiver)
        self.tickets[ticket] = (receiver, self.asks[receiver] - pending)
        self.act()

    @precondition(lambda self: self.held)
    @rule(choice=st.data(), how=st.sampled_from(["ack", "nack", "keep"]))
    def settle(self, choice: st.DataObject, how: str) -> None:
        message = self.held.pop(choice.draw(st.integers(0, len(self.held) - 1)))
        self.given_back.add(message.number)
        if how == "keep" and self.is_cautious:
            self.demand.keep(message)
        else:
            self.settling(message)
            self.commands.append(("ack" if how == "ack" else "nack", message.fetch, message.number))
        self.act()

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        numbers = [*self.queue, *self.returns]
        numbers += [number for what, _, number in self.replies if what == "message"]
        numbers += [number for what, _, number in self.commands if what == "nack"]
        numbers += [message.number for message in self.held]
        numbers += [entry[2].number for entry in self.demand._kept._heap]
        acks = sum(1 for what, _, _ in self.commands if what == "ack")
        assert len(numbers) == len(set(numbers))
        assert len(numbers) + acks + self.settled == self.published

    @invariant()
    def no_more_is_under_way_than_was_asked_for(self) -> None:
        on_its_way = sum(1 for what, _, _ in self.replies if what == "message")
        on_its_way += sum(1 for what, _, _ in self.commands if what == "get")
        on_its_way += sum(size for what, _, size in self.commands if what == "open")
        on_its_way += sum(self.credit[fetch] for fetch in self.consumers)
        assert on_its_way <= self.demand.under_way
        ahead = any(fetch in self.demand._fetches for fetch in self.stood)
        assert (
            self.is_cautious or self.demand.under_way <= sum(self.asks.values()) + ahead * AHEAD_MAX
        )

    def teardown(self) -> None:
        """When all has been said, what is asked for has come, or the queue is empty."""
        self.hear_all()
        assert not self.commands
        assert not self.tickets
        is_full = len(self.consumers) >= 3 or self.demand.is_crowded
        assert not self.ready or not self.demand.asked or is_full


class CautiousDemandAgainstRabbitMQ(DemandAgainstRabbitMQ):
    """The same before 4.3, where no window is closed that a message may be on its way to."""

    is_cautious = True

    @invariant()
    def rabbitmq_counts_the_consumers_that_are_expected(self) -> None:
        if not (self.commands or self.replies):
            messages = [*self.held, *(entry[2] for entry in self.demand._kept._heap)]
            assert self.demand.consumers == len({*self.consumers, *(m.fetch for m in messages)})

    @rule()
    def linger_ends(self) -> None:
        # Nothing has come for a while, and nothing comes just now.
        if not (self.ready or self.commands or self.replies):
            for close in self.demand.close_spare():
                self.commands.append(("close", close.fetch, 0))
            self.hear_all()
        self.act()


class ClusteredDemandAgainstRabbitMQ(CautiousDemandAgainstRabbitMQ):
    """The same in a cluster, where what a cancelled consumer holds dies with its node."""

    is_clustered = True

    @invariant()
    def no_cancelled_consumer_holds_a_message(self) -> None:
        assert not self.cancelled.intersection(message.fetch for message in self.held)

    @invariant()
    def there_are_few_consumers(self) -> None:
        assert len(self.consumers) + len(self.got) <= CONSUMERS_MAX + 1

    @precondition(lambda self: self.demand.is_crowded)
    @rule()
    def look_again(self) -> None:
        self.demand.is_crowded = False
        self.act()


class AnotherIsFaster(DemandAgainstRabbitMQ):
    """The same where each window has a channel of its own: what comes on another may come first."""

    @precondition(lambda self: self.replies)
    @rule(choice=st.data())
    def another_is_faster(self, choice: st.DataObject) -> None:
        fetch = choice.draw(st.sampled_from(sorted({fetch for _, fetch, _ in self.replies})))
        mine = [reply for reply in self.replies if reply[1] == fetch]
        others = [reply for reply in self.replies if reply[1] != fetch]
        self.replies = deque([*mine, *others])


class SpentDemandAgainstRabbitMQ(AnotherIsFaster):
    """The same where these channels are spent."""

    channels = Channels.SPENT

    @invariant()
    def nothing_is_got(self) -> None:
        assert "get" not in [what for what, _, _ in self.commands]


class ReusedDemandAgainstRabbitMQ(AnotherIsFaster, CautiousDemandAgainstRabbitMQ):
    """The same where they are used again: before 4.3, on one node."""

    channels = Channels.REUSED

    @invariant()
    def one_is_got_at_a_time(self) -> None:
        assert [what for what, _, _ in self.commands].count("get") <= 1


TestSpentDemandAgainstRabbitMQ = SpentDemandAgainstRabbitMQ.TestCase
TestSpentDemandAgainstRabbitMQ.settings = settings(
    max_examples=200, stateful_step_count=60, deadline=None
)
TestReusedDemandAgainstRabbitMQ = ReusedDemandAgainstRabbitMQ.TestCase
TestReusedDemandAgainstRabbitMQ.settings = settings(
    max_examples=200, stateful_step_count=60, deadline=None
)
TestClusteredDemandAgainstRabbitMQ = ClusteredDemandAgainstRabbitMQ.TestCase
TestClusteredDemandAgainstRabbitMQ.settings = settings(
    max_examples=200, stateful_step_count=60, deadline=None
)
TestCautiousDemandAgainstRabbitMQ = CautiousDemandAgainstRabbitMQ.TestCase
TestCautiousDemandAgainstRabbitMQ.settings = settings(
    max_examples=200, stateful_step_count=60, deadline=None
)
TestDemandAgainstRabbitMQ = DemandAgainstRabbitMQ.TestCase
TestDemandAgainstRabbitMQ.settings = settings(
    max_examples=200, stateful_step_count=60, deadline=None
)
