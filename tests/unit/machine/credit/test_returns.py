"""What several channels return reaches the queue in one order, and before anything is fetched."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.machine.credit.returns import Returns

CHANNELS = 3

STEPS = st.lists(
    st.tuples(st.just("return"), st.integers(0, CHANNELS - 1))
    | st.tuples(st.just("work"), st.integers(0, CHANNELS - 1))
    | st.tuples(st.just("close"), st.integers(0, CHANNELS - 1))
    | st.tuples(st.sampled_from(("lose", "fetch")), st.just(0)),
    max_size=60,
)


class Queue:
    """A queue of RabbitMQ whose channels work when they like, each in its own order."""

    def __init__(self) -> None:
        self.written: list[deque[Callable[[], None]]] = [deque() for _ in range(CHANNELS)]
        self.back: list[int] = []
        self.closed: set[int] = set()
        self.passed = 0
        self.returns = Returns(self.barrier, lambda each: each not in self.closed, self.on_passed)

    def barrier(self, channel: int, then: Callable[[], None]) -> None:
        """An answer comes behind what was written before."""
        self.written[channel].append(then)

    def on_passed(self) -> None:
        """A fetch may begin."""
        self.passed += 1

    def give_back(self, channel: int, number: int) -> None:
        """A message goes back on a channel."""
        write = partial(self.written[channel].append, partial(self.back.append, number))
        self.returns.add(channel, write)

    def work(self, channel: int) -> bool:
        """One channel carries out one request."""
        if not self.written[channel]:
            return False
        self.written[channel].popleft()()
        return True

    def work_all(self) -> None:
        """All channels carry out all."""
        while any(self.work(channel) for channel in range(CHANNELS)):
            pass


def test_the_second_channel_returns_when_the_first_has() -> None:
    """Otherwise RabbitMQ could carry out the second one's return first."""
    queue = Queue()
    for number, channel in enumerate((0, 0, 1)):
        queue.give_back(channel, number)
    assert not queue.work(1)
    assert queue.returns.is_under_way
    queue.work_all()
    assert (queue.back, queue.returns.is_under_way, queue.passed) == ([0, 1, 2], False, 1)


def test_what_waits_is_written_before_the_channels_are_closed() -> None:
    """A failed delivery counts, even if the order is lost."""
    queue = Queue()
    queue.give_back(0, 0)
    queue.give_back(1, 1)
    queue.returns.finish()
    assert [len(each) for each in queue.written] == [2, 1, 0]


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_what_goes_back_is_in_order_and_before_what_is_fetched(
    steps: list[tuple[str, int]],
) -> None:
    """Whichever channel works when, and whichever is closed meanwhile."""
    queue = Queue()
    number = 0
    for what, channel in steps:
        match what:
            case "return":
                if channel not in queue.closed:
                    queue.give_back(channel, number)
                    number += 1
            case "work":
                queue.work(channel)
            case "close":
                queue.work_all()
                queue.closed.add(channel)
            case "lose":
                queue.returns.lose()
                for each in queue.written:
                    each.clear()
                queue.closed.clear()
                queue.back.clear()
            case "fetch":
                if not queue.returns.is_under_way:
                    assert not any(queue.written)
        assert queue.back == sorted(queue.back)
    queue.work_all()
    assert queue.back == sorted(queue.back)
    assert not queue.returns.is_under_way
