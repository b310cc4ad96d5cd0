"""The search for a message's only subscription ends, however long a look takes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from uuid import uuid4

from bridge.background.waits import Waits
from bridge.machine.inbox.arrival import SendCommand
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.model.entity import Tier, Topic
from bridge.sidecar.leader.target_search import TargetSearch
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item
from tests.fixtures.model_broker import ClockLoop

LOOK_S = 8.0
"""In a large namespace a look at all definitions and resources takes so long."""

COMMAND = SendCommand(None, (Item(Properties().encode(), b"", target=b"absent"),))


class SearchedTerm:
    """A term whose head message is for a subscription that was deleted.

    Attributes:
        left: why the term ends.
    """

    def __init__(self) -> None:
        self.name = "news"
        self.left: list[str] = []
        self.named: list[str] = []
        self.waits = Waits(clock=asyncio.get_running_loop().time)
        self.sequencer = Sequencer(
            Topic(name="news"), Tier.STANDARD, blank(is_partitioned=False), uuid4
        )
        self.over = asyncio.Event()

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start a task."""
        self.task = asyncio.get_running_loop().create_task(work)
        return self.task

    def note_poison(self, place: str, name: str, error: Exception | str) -> None:
        """Take note of what goes nowhere."""
        self.named.append(str(error))

    def leave(self, why: str) -> None:
        """End in order."""
        self.left.append(why)

    def go_on(self) -> None:
        """Go on."""
        self.over.set()


async def _search() -> SearchedTerm:
    async def looked() -> None:
        await asyncio.sleep(LOOK_S)

    term = SearchedTerm()
    search = TargetSearch(term, looked)
    assert search.must_wait(COMMAND)
    await term.over.wait()
    assert search.must_wait(COMMAND) is bool(term.left)
    return term


def test_a_deleted_subscription_is_given_up_though_each_look_takes_long() -> None:
    """The topic goes on: every other term would find the same message first."""
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        term = runner.run(_search())
    assert (term.left, len(term.named)) == ([], 1)
