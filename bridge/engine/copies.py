"""Which messages a source holds or has settled, so that a second copy is recognised.

After a failure of the broker a message can stand in a queue twice: the sequencer publishes again
what it does not know to be stored, and RabbitMQ may forget an ack. A message that the engine itself
put back (abandoned with changed properties) has the same identity too, and a higher generation. It
is no copy while this engine is doing so; when an engine died in between, both are there, and
whichever comes second is the copy.

What looks like a second copy of a message that is held may be that message itself: RabbitMQ has
taken it back, and brings it again before this process hears of that, or without a word (when the
nodes of a cluster lose sight of each other for a moment). So it **waits**, unacked, and shares the
fate of the held one: settled with it, it is dropped; otherwise it goes back to its queue as well.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from bridge.broker.channel import Channel
from bridge.engine.holding import Holding, Identity

SETTLED_MAX = 50_000
SETTLED_MS = 60_000
"""What was settled is remembered this long: the second copy comes soon after the failure."""


@dataclass(slots=True, eq=False)
class Copy:
    """A second copy, unacked. Its bytes are not kept: RabbitMQ has them.

    Attributes:
        fetch: what brought it.
        channel: where it is settled.
        tag: its delivery tag there.
        generation: see `Holding`.
    """

    fetch: int
    channel: Channel
    tag: int
    generation: int


class Copies:
    """The identities of one source's messages."""

    def __init__(self) -> None:
        self._held: dict[Identity, int] = {}
        self._waiting: dict[Identity, list[Copy]] = {}
        self._expected: dict[Identity, int] = {}
        self._settled: OrderedDict[Identity, tuple[int | None, int]] = OrderedDict()
        self._carried: OrderedDict[Identity, int] = OrderedDict()

    def __len__(self) -> int:
        """Return how many messages are held."""
        return len(self._held)

    def __repr__(self) -> str:
        waiting = sum(len(copies) for copies in self._waiting.values())
        return f"Copies(held={len(self._held)}, waiting={waiting})"

    def is_second(self, holding: Holding, now_ms: int) -> bool:
        """Whether this message is held already, or was settled a short while ago.

        Then it is to `wait`; `take_settled` and `take_free` say when it need not any more.
        """
        identity, generation = holding.identity, holding.generation
        if identity not in self._held and identity not in self._settled:
            return False
        return holding.is_numbered and (
            self._is_held(identity, generation) or self._is_settled(identity, generation, now_ms)
        )

    def wait(self, holding: Holding) -> None:
        """A second copy has come."""
        copy = Copy(holding.fetch, holding.channel, holding.tag, holding.generation)
        self._waiting.setdefault(holding.identity, []).append(copy)

    @property
    def has_waiting(self) -> bool:
        """Whether any second copy waits."""
        return bool(self._waiting)

    def take_settled(self, identity: Identity, now_ms: int) -> list[Copy]:
        """Take out the copies of a message that are settled with it: they are to be dropped."""
        waiting = self._waiting.get(identity, [])
        settled = [each for each in waiting if self._is_settled(identity, each.generation, now_ms)]
        return self._take(identity, settled)

    def take_free(self, identity: Identity) -> list[Copy]:
        """Take out the copies of a message that is not held: they are to go back."""
        waiting = self._waiting.get(identity, [])
        free = [each for each in waiting if not self._is_held(identity, each.generation)]
        return self._take(identity, free)

    def _take(self, identity: Identity, copies: list[Copy]) -> list[Copy]:
        if copies:
            rest = [each for each in self._waiting[identity] if each not in copies]
            if rest:
                self._waiting[identity] = rest
            else:
                del self._waiting[identity]
        return copies

    def _is_held(self, identity: Identity, generation: int) -> bool:
        """Whether a message is held that this one does not replace."""
        held = self._held.get(identity)
        if held is None:
            return False
        return generation <= held or self._expected.get(identity) != generation

    def _is_settled(self, identity: Identity, generation: int, now_ms: int) -> bool:
        settled = self._settled.get(identity)
        if settled is None:
            return False
        settled_generation, at_ms = settled
        is_newer = settled_generation is not None and generation > settled_generation
        return not is_newer and now_ms - at_ms < SETTLED_MS

    def expect(self, holding: Holding, generation: int) -> None:
        """A message is being put back as this generation."""
        self._expected[holding.identity] = generation

    def expect_no_more(self, holding: Holding) -> None:
        """That has ended, one way or the other."""
        self._expected.pop(holding.identity, None)

    def hold(self, holding: Holding) -> None:
        """A message has come and is held from now on."""
        if holding.is_numbered:
            self._held[holding.identity] = holding.generation

    def let_go(self, holding: Holding) -> None:
        """A message is held no longer; it may come again."""
        if self._held.get(holding.identity) == holding.generation:
            del self._held[holding.identity]

    def settle(self, holding: Holding, now_ms: int, *, is_put_back: bool = False) -> None:
        """A message is gone from its queue, for good or as its next generation."""
        self.let_go(holding)
        if holding.is_numbered:
            generation = holding.generation if is_put_back else None
            self._settled[holding.identity] = generation, now_ms
            self._settled.move_to_end(holding.identity)
            self._forget_old(now_ms)

    def _forget_old(self, now_ms: int) -> None:
        while self._settled:
            oldest = next(iter(self._settled))
            is_old = now_ms - self._settled[oldest][1] >= SETTLED_MS
            if not is_old and len(self._settled) <= SETTLED_MAX:
                break
            del self._settled[oldest]

    def lose_all(self) -> None:
        """RabbitMQ has taken back what was held or waited; what was settled stays so."""
        self._held.clear()
        self._waiting.clear()
        self._expected.clear()

    def failures_here(self, holding: Holding) -> int:
        """Return a dead letter's failures in the dead-letter queue itself.

        RabbitMQ 4 shows at the first delivery what was counted where the dead letter came from;
        what a message came with is therefore left out.
        """
        carried = self._carried.setdefault(holding.identity, holding.failures)
        if len(self._carried) > SETTLED_MAX:
            self._carried.popitem(last=False)
        return max(0, holding.failures - carried)
