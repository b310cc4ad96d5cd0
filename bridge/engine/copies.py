"""Which messages a source holds or has settled, so that a second copy is recognised.

After a failure of the broker a message can stand in a queue twice: the sequencer publishes again
what it does not know to be stored, and RabbitMQ may forget an ack. A message that the engine itself
put back (abandoned with changed properties) has the same identity too, and a higher generation. It
is no copy while this engine is doing so; when an engine died in between, both are there, and
whichever comes second is the copy.
"""

from __future__ import annotations

from collections import OrderedDict

from bridge.engine.holding import Holding, Identity

SETTLED_MAX = 50_000
SETTLED_MS = 60_000
"""What was settled is remembered this long: the second copy comes soon after the failure."""


class Copies:
    """The identities of one source's messages."""

    def __init__(self) -> None:
        self._held: dict[Identity, int] = {}
        self._expected: dict[Identity, int] = {}
        self._settled: OrderedDict[Identity, tuple[int | None, int]] = OrderedDict()
        self._carried: OrderedDict[Identity, int] = OrderedDict()

    def __len__(self) -> int:
        """Return how many messages are held."""
        return len(self._held)

    def is_second(self, holding: Holding, now_ms: int) -> bool:
        """Whether this message is held already, or was settled a short while ago."""
        if not holding.is_numbered:
            return False
        held = self._held.get(holding.identity)
        if held is not None and not self._replaces(holding, held):
            return True
        settled = self._settled.get(holding.identity)
        if settled is None:
            return False
        generation, at_ms = settled
        is_newer = generation is not None and holding.generation > generation
        return not is_newer and now_ms - at_ms < SETTLED_MS

    def expect(self, holding: Holding, generation: int) -> None:
        """A message is being put back as this generation."""
        self._expected[holding.identity] = generation

    def expect_no_more(self, holding: Holding) -> None:
        """That has ended, one way or the other."""
        self._expected.pop(holding.identity, None)

    def _replaces(self, holding: Holding, held: int) -> bool:
        is_expected = self._expected.get(holding.identity) == holding.generation
        return is_expected and holding.generation > held

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
        """RabbitMQ has taken back what was held; what was settled stays so."""
        self._held.clear()
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
