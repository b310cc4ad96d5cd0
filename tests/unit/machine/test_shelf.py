"""The shelf of deferred messages: what is asked for is found, and bodies stay within their room."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.machine.shelf import GONE_MS, Room, Shelf

LIMIT_BYTES = 30
NUMBERS = st.integers(1, 5)


class Shelved(RuleBasedStateMachine):
    """A shelf beside a plain picture of what RabbitMQ has delivered and nobody has settled.

    A message is its own tag: every delivery has a new one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.room = Room(LIMIT_BYTES)
        self.shelf: Shelf[int] = Shelf(self.room)
        self.now_ms = 0
        self.last_tag = 0
        self.waiting: dict[int, int] = {}
        self.returned: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self.gone_ms: dict[int, int] = {}

    def deliver(self, number: int, size_bytes: int) -> int | None:
        """RabbitMQ delivers; return what is to be dropped."""
        self.last_tag += 1
        return self.shelf.arrived(
            number, self.last_tag, self.last_tag, size_bytes, now_ms=self.now_ms
        )

    @rule(number=NUMBERS, size_bytes=st.integers(0, 20))
    def arrive(self, number: int, size_bytes: int) -> None:
        """The later of two copies stays; what is gone is dropped for a while."""
        dropped = self.deliver(number, size_bytes)
        if number in self.gone_ms and self.now_ms - self.gone_ms[number] < GONE_MS:
            assert dropped == self.last_tag
            return
        assert dropped == self.waiting.get(number)
        self.waiting[number] = self.last_tag
        self.returned.pop(number, None)

    @rule(numbers=st.sets(NUMBERS, min_size=1))
    def fetch_and_take(self, numbers: set[int]) -> None:
        """All or nothing: what is not here is returned first, and comes again with its body."""
        wanted = sorted(numbers)
        missing = self.shelf.lacks(wanted)
        known = self.waiting.keys() | self.returned.keys()
        assert missing == next((number for number in wanted if number not in known), None)
        if missing is not None:
            assert self.shelf.take(wanted) is None
            return
        for tag in self.shelf.fetch(wanted):
            number = next(number for number, known in self.waiting.items() if known == tag)
            self.returned[number] = self.waiting.pop(number)
        taken = self.shelf.take(wanted)
        if any(number in self.returned for number in wanted):
            assert taken is None
            return
        assert taken == [self.waiting[number] for number in wanted]
        for number in wanted:
            self.taken[number] = self.waiting.pop(number)

    @precondition(lambda self: self.returned)
    @rule(size_bytes=st.integers(0, 100))
    def come_again(self, size_bytes: int) -> None:
        """What was returned comes again, and its body stays whatever its size."""
        number = min(self.returned)
        if number in self.gone_ms and self.now_ms - self.gone_ms[number] < GONE_MS:
            return
        del self.returned[number]
        assert self.deliver(number, size_bytes) == self.waiting.get(number)
        self.waiting[number] = self.last_tag
        assert self.shelf.fetch([number]) == []

    @precondition(lambda self: self.taken)
    @rule(size_bytes=st.integers(0, 20))
    def put_back(self, size_bytes: int) -> None:
        """A lock that is given up without a change."""
        number, tag = self.taken.popitem()
        if number not in self.waiting:
            self.shelf.put_back(number, tag, tag, size_bytes)
            self.waiting[number] = tag

    @precondition(lambda self: self.taken)
    @rule()
    def leave(self) -> None:
        """A message leaves for good, and takes a second copy with it."""
        number, _ = self.taken.popitem()
        assert self.shelf.gone(number, now_ms=self.now_ms) == self.waiting.pop(number, None)
        self.gone_ms[number] = self.now_ms

    @rule(passed_ms=st.sampled_from([1, GONE_MS]))
    def pass_time(self, passed_ms: int) -> None:
        """Time passes."""
        self.now_ms += passed_ms

    @rule()
    def lose(self) -> None:
        """The channel is lost."""
        self.shelf.clear()
        for lost in (self.waiting, self.returned, self.taken):
            lost.clear()
        assert self.room.used_bytes == 0

    @invariant()
    def counts_what_is_here(self) -> None:
        """Only what was asked for may go beyond the room, and nothing is counted that left."""
        assert len(self.shelf) == len(self.waiting)
        assert self.room.used_bytes >= 0
        if not self.waiting:
            assert self.room.used_bytes == 0


TestShelf = Shelved.TestCase
