"""The search for a subscription that a message is for and that its topic's leader does not know.

Another bridge has made it this instant, perhaps, and has sent the message. So the leader numbers
nothing until it has read the definitions anew, twice: then it knows the subscription, or that was
deleted. While they cannot be read it waits, and at last leaves the inbox to another bridge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

from bridge.background.waits import Waits
from bridge.machine.inbox.arrival import Command
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.targets import missing_target
from bridge.topology import names

SEEK_S = 30.0
"""How long a term waits for one look at the definitions. Then it ends in order.

A look takes long in a large namespace: a term that ended sooner would leave the same message to the
next one, for ever.
"""

ABSENT_S = 2.0
"""The time between the two looks that prove that a subscription was deleted: a definition is on all
nodes of RabbitMQ by then."""

LOOK_S = 0.05

SEEKS = "a message is for a subscription that its leader does not know yet"
GONE = (
    "A message is for the subscription {short}, which was deleted meanwhile: it went with it, and "
    "is in the journal alone."
)


class SearchingTerm(Protocol):
    """The term that searches; see `leader.Leader`."""

    name: str
    waits: Waits
    sequencer: Sequencer

    def start(self, work: Coroutine[None, None, None]) -> object:
        """Start work as a task of the term."""

    def note_poison(self, place: str, name: str, error: Exception | str) -> None:
        """Take note of input that could not be handled."""

    def leave(self, why: str) -> None:
        """End in order."""

    def go_on(self) -> None:
        """Carry out waiting arrivals."""


class TargetSearch:
    """The searches of one term.

    Args:
        looked: waits until all definitions are read anew, and the sequencer has them.

    Attributes:
        is_on: a subscription is looked for: nothing may be numbered.
    """

    def __init__(self, leader: SearchingTerm, looked: Callable[[], Awaitable[None]]) -> None:
        self.is_on = False
        self._leader = leader
        self._looked = looked

    def __repr__(self) -> str:
        return f"TargetSearch({self._leader.name!r}, is_on={self.is_on})"

    def must_wait(self, command: Command) -> bool:
        """Whether a message is for a subscription that is not known: then it is looked for."""
        short = missing_target(self._leader.sequencer.fanout, command)
        if short is not None:
            self.is_on = True
            self._leader.start(self._seek(short))
        return short is not None

    async def _seek(self, short: bytes) -> None:
        leader, fanout = self._leader, self._leader.sequencer.fanout
        assert fanout is not None, "a queue has no subscriptions"
        looks = asyncio.get_running_loop().create_task(self._look_twice())
        try:
            with leader.waits.begin(leader.name, SEEKS):
                while fanout.is_missing(short) and not looks.done():
                    await asyncio.wait((looks,), timeout=LOOK_S)
            if fanout.is_missing(short):
                looks.result()
                fanout.give_up(short)
                text = GONE.format(short=short.hex())
                leader.note_poison("inbox", names.inbox(leader.name), text)
        except TimeoutError:
            leader.leave(SEEKS)
        finally:
            looks.cancel()
        self.is_on = False
        leader.go_on()

    async def _look_twice(self) -> None:
        for pause_s in (0.0, ABSENT_S):
            await asyncio.sleep(pause_s)
            async with asyncio.timeout(SEEK_S):
                await self._looked()
