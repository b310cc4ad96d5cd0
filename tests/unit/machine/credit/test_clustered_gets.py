"""Receiving from a cluster before RabbitMQ 4.3: a few messages at a time, got one by one."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from bridge.machine.credit.clustered_gets import CONSUMERS_MAX, CROWDED_S, HELD_MIN, ClusteredGets
from bridge.machine.credit.effects import Get, Look
from tests.fixtures.examples import examples
from tests.unit.machine.credit.rabbitmq import Fetched, QueueModel


def asking(count: int) -> ClusteredGets[Fetched]:
    """A receiver that has asked for so many at 1.0 s."""
    gets: ClusteredGets[Fetched] = ClusteredGets()
    gets.ask(1, count, 1.0)
    return gets


def test_in_a_cluster_messages_are_got_one_by_one() -> None:
    """As many as there may be consumers."""
    gets = asking(20)
    assert gets.plan(1.0) == [Look(1)]
    gets.looked(1, 100, 1)
    effects = gets.plan(1.0)
    assert effects == [Get(fetch) for fetch in range(2, 2 + (CONSUMERS_MAX - 1 + 1) // 2)]


def test_in_a_cluster_a_few_are_got_although_others_have_all_the_consumers() -> None:
    """Else a bridge beside greedy natives would have nothing."""
    gets = asking(20)
    gets.plan(1.0)
    gets.looked(1, 100, 40)
    assert gets.plan(1.0) == [Get(fetch) for fetch in range(2, 2 + HELD_MIN)]


def test_in_a_crowd_rabbitmq_is_asked_again_after_a_while() -> None:
    """Or when a message is settled here."""
    gets = asking(20)
    gets.plan(1.0)
    gets.looked(1, 100, 40)
    gets.plan(1.0)
    for fetch in range(2, 2 + HELD_MIN):
        gets.arrived(fetch, Fetched(fetch, fetch), 1.0)
    look = 2 + HELD_MIN
    assert gets.plan(1.0) == [Look(look)]
    gets.looked(look, 100, 40)
    assert gets.plan(1.0) == []
    assert gets.due_s == 1.0 + CROWDED_S
    gets.settling(3, 1.0 + CROWDED_S / 2)
    assert gets.due_s == 1.0 + CROWDED_S / 2
    assert gets.plan(1.0 + CROWDED_S / 2) == [Look(look + 1)]


class ClusteredGetsModel(QueueModel):
    """A cluster: what a cancelled consumer holds dies with its node."""

    counts_returns = True

    def strategy(self) -> ClusteredGets[Fetched]:
        return ClusteredGets()

    def act(self) -> None:
        """Nothing arrives in the instant of a cancel, for nothing has for a while."""
        super().act()
        while any(what == "close" for what, _, _ in self.commands):
            self.rabbitmq_works()

    @rule(passed_s=st.sampled_from([0.3, 6.0]))
    def time_passes(self, passed_s: float) -> None:
        self.hear_all()
        super().time_passes(passed_s)

    @invariant()
    def no_cancelled_consumer_holds_a_message(self) -> None:
        held = [*self.held, *self.here.values()]
        assert not self.cancelled.intersection(message.fetch for message in held)

    @invariant()
    def there_are_few_consumers(self) -> None:
        assert len(self.consumers) + len(self.got) <= CONSUMERS_MAX + 1

    @property
    def must_wait(self) -> bool:
        return True


TestClusteredGetsAgainstRabbitMQ = ClusteredGetsModel.TestCase
TestClusteredGetsAgainstRabbitMQ.settings = settings(
    max_examples=examples(100), stateful_step_count=60, deadline=None
)
