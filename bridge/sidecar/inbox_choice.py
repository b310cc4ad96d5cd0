"""The inboxes that this process consumes: it begins, stops and hands over as `Standbys` decides."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial

from bridge.machine.inbox.standbys import Standbys
from bridge.sidecar.leader.leader import Leader
from bridge.sidecar.leader.leader_state import LeaderState

TICK_S = 0.25
"""Time between two looks while something changes with time alone."""

COSTLY = 100_000
"""Number of scheduled messages and of ids for duplicate detection from which on a takeover takes
seconds: such an entity is handed over only when its bridge ends."""


def _nothing() -> None:
    pass


class InboxChoice:
    """Which inboxes one sidecar consumes.

    Args:
        standbys: decides; without other bridges it wants every inbox.
        states, leaders: of the sidecar, by the entity's path (lower case).
        clock: the time (UTC ms).

    Attributes:
        on_changed: called when the other bridges are to be told of something.
    """

    def __init__(
        self,
        standbys: Standbys,
        states: Mapping[str, LeaderState],
        leaders: Mapping[str, Leader],
        clock: Callable[[], int],
    ) -> None:
        self.on_changed: Callable[[], None] = _nothing
        self._standbys = standbys
        self._states = states
        self._leaders = leaders
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._wanted: dict[str, asyncio.Event] = {}
        standbys.may_hand_over = self._may_hand_over

    def add(self, key: str) -> None:
        """Add an entity."""
        self._standbys.add(key, self._loop.time())
        self.wake()

    def remove(self, key: str) -> None:
        """Remove an entity that is gone."""
        self._standbys.remove(key)
        self._wanted.pop(key, None)
        self.wake()

    def wake(self) -> None:
        """Decide soon: another bridge has come, gone, or told something."""
        self._wake.set()

    async def wanted(self, key: str) -> None:
        """Wait until this process should consume an inbox."""
        while not self._standbys.wants(key):
            self._wanted[key] = wanted = asyncio.Event()
            self._look_for_leader(key)
            await wanted.wait()

    def watch(self, key: str, leader: Leader) -> None:
        """Follow a term that is about to begin."""
        leader.on_consuming = partial(self._began, key)
        leader.on_leading = partial(self._leads, key)

    def ended(self, key: str, leader: Leader) -> None:
        """Note the end of a term."""
        has_failed = leader.elected.is_set() and not leader.has_begun and leader.over is None
        self._standbys.end(key, self._loop.time(), has_failed=has_failed)
        self.wake()

    async def run(self) -> None:
        """Decide when something changes, until cancelled."""
        while True:
            self._wake.clear()
            self._decide()
            if self._standbys.is_due:
                await asyncio.sleep(0)
                continue
            within_s = TICK_S if self._standbys.waits else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._wake.wait()

    def _decide(self) -> None:
        decisions = self._standbys.decide(self._loop.time())
        for key in decisions.join:
            if (wanted := self._wanted.pop(key, None)) is not None:
                wanted.set()
        for key in decisions.stop:
            if (leader := self._leaders.get(key)) is not None:
                leader.leave("two other bridges consume the inbox")
        for key in decisions.hand_over:
            if (leader := self._leaders.get(key)) is not None:
                leader.leave("another bridge is to lead")
        for key in decisions.apart:
            self._look_for_leader(key)
        if self._standbys.has_untold:
            self.on_changed()

    def _look_for_leader(self, key: str) -> None:
        """Note whether a bridge is known to lead an inbox that this process does not consume."""
        state = self._states.get(key)
        if state is None:
            return
        if self._standbys.is_known(key):
            state.leaderless_ms = None
        else:
            state.note_leaderless(self._clock())

    def _began(self, key: str) -> None:
        self._standbys.begin(key)
        self.wake()

    def _leads(self, key: str) -> None:
        self._standbys.lead(key, self._loop.time())
        self.wake()

    def _may_hand_over(self, key: str) -> bool:
        leader = self._leaders.get(key)
        if leader is None or not leader.is_ready:
            return False
        memory = leader.sequencer.memory
        return len(memory.pending) + len(memory.history) <= COSTLY
