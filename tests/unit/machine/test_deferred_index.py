"""The index of deferred messages: what is asked for is found, and bodies stay within a budget."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.machine.queue.deferred_index import DeferredIndex
from bridge.machine.queue.memory_budget import MemoryBudget

LIMIT_BYTES = 30
MESSAGES = st.integers(1, 6)


def number_of(message: int) -> int:
    """Two messages each have one number, as a failure may leave them."""
    return message // 2


class Index(RuleBasedStateMachine):
    """A index beside a plain picture of what RabbitMQ has delivered and nobody has settled.

    Every delivery has a new tag, which stands for its content here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.budget = MemoryBudget(LIMIT_BYTES)
        self.index: DeferredIndex[int] = DeferredIndex(self.budget)
        self.last_tag = 0
        self.waiting: dict[int, int] = {}
        self.returned: set[int] = set()
        self.taken: dict[int, int] = {}

    def deliver(self, message: int, size_bytes: int) -> None:
        """RabbitMQ delivers: the later of two copies stays."""
        self.last_tag += 1
        dropped = self.index.arrived(
            message, number_of(message), self.last_tag, self.last_tag, size_bytes
        )
        self.returned.discard(message)
        assert dropped == self.waiting.get(message)
        self.waiting[message] = self.last_tag

    @rule(message=MESSAGES, size_bytes=st.integers(0, 20))
    def arrive(self, message: int, size_bytes: int) -> None:
        """A message comes, or a copy of one."""
        self.deliver(message, size_bytes)

    @rule(messages=st.sets(MESSAGES, min_size=1))
    def fetch_and_take(self, messages: set[int]) -> None:
        """All or nothing: what is not here is returned first, and comes again with its body."""
        wanted = sorted({number_of(message) for message in messages})
        known = {number_of(message) for message in self.waiting.keys() | self.returned}
        missing = self.index.lacks(wanted)
        assert missing == next((number for number in wanted if number not in known), None)
        if missing is not None:
            assert self.index.take(wanted) is None
            return
        returned = {self.by_tag(tag) for tag in self.index.fetch(wanted)}
        for message in returned:
            del self.waiting[message]
        self.returned |= returned
        taken = self.index.take(wanted)
        if taken is None:
            assert self.returned
            return
        found = [self.by_tag(tag) for tag in taken]
        assert [number_of(message) for message in found] == wanted
        for message in found:
            self.taken[message] = self.waiting.pop(message)

    def by_tag(self, tag: int) -> int:
        """Return the message that waits with this tag."""
        return next(message for message, known in self.waiting.items() if known == tag)

    @precondition(lambda self: self.returned)
    @rule(size_bytes=st.integers(0, 100))
    def come_again(self, size_bytes: int) -> None:
        """What was returned comes again, and its body stays whatever its size."""
        message = min(self.returned)
        self.deliver(message, size_bytes)
        if message in self.waiting:
            assert self.index.fetch([number_of(message)]) == []
            taken = self.index.take([number_of(message)])
            assert taken is not None
            found = self.by_tag(taken[0])
            self.taken[found] = self.waiting.pop(found)

    @precondition(lambda self: self.taken)
    @rule(size_bytes=st.integers(0, 20))
    def put_back(self, size_bytes: int) -> None:
        """A lock is given up without a change; a copy that has come meanwhile is the later one."""
        message, tag = self.taken.popitem()
        has_copy = message in self.waiting or message in self.returned
        dropped = self.index.put_back(message, number_of(message), tag, tag, size_bytes)
        assert dropped == (tag if has_copy else None)
        if not has_copy:
            self.waiting[message] = tag

    @precondition(lambda self: self.taken)
    @rule()
    def leave(self) -> None:
        """A message leaves for good, and takes a second copy with it, and nothing else."""
        message, _ = self.taken.popitem()
        assert self.index.gone(message) == self.waiting.pop(message, None)
        self.returned.discard(message)

    @rule()
    def lose(self) -> None:
        """The channel is lost."""
        self.index.clear()
        for lost in (self.waiting, self.returned, self.taken):
            lost.clear()
        assert self.budget.used_bytes == 0

    @invariant()
    def counts_what_is_here(self) -> None:
        """Only what was asked for may go beyond the budget, and nothing is counted that left."""
        assert len(self.index) == len(self.waiting) + len(self.returned)
        assert self.budget.used_bytes >= 0
        if not self.waiting:
            assert self.budget.used_bytes == 0


TestIndex = Index.TestCase
