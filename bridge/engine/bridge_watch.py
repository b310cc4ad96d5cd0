"""Notices that another bridge is gone for which this one keeps something.

A bridge's own queue is exclusive to its connection, so a question to a bridge that was killed comes
back unroutable. One that is slow has its queue, and counts as there. A bridge that has lost its
connection has another name afterwards: by the earlier one it is gone, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Final

from bridge.background.supervisor import Supervisor
from bridge.broker.errors import BrokerError, PublishRefused, Unroutable
from bridge.engine.peers import Peers
from bridge.model.errors import ServiceBusError
from bridge.wire.basic import text
from bridge.wire.sessions import PING

WATCH_S: Final = 2.0
"""The time between two questions to a watched bridge."""


class BridgeWatch:
    """Watches bridges as long as something is kept for them; others are asked nothing.

    Attributes:
        on_gone: called first of all with the name of a bridge that is found to be gone.
    """

    def __init__(self, peers: Peers, supervisor: Supervisor) -> None:
        self.on_gone: list[Callable[[bytes], object]] = []
        self._peers = peers
        self._supervisor = supervisor
        self._kept: dict[bytes, dict[Hashable, Callable[[], None]]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"BridgeWatch({len(self._kept)} bridges)"

    def begin(self, bridge: bytes, kept: Hashable, on_gone: Callable[[], None]) -> None:
        """Watch a bridge, by its name; `on_gone` is called once when it is found to be gone."""
        there = self._kept.get(bridge)
        if there is not None:
            there[kept] = on_gone
            return
        self._kept[bridge] = {kept: on_gone}
        watch = partial(self._watch, bridge)
        asking = self._supervisor.repeat("bridge watch", watch, subject=bridge.hex()).task
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    def end(self, bridge: bytes, kept: Hashable) -> None:
        """Keep something for a bridge no more; the bridge is watched for what else is kept."""
        self._kept.get(bridge, {}).pop(kept, None)

    async def close(self) -> None:
        """Ask no bridge any more."""
        self._kept.clear()
        for each in self._asking:
            each.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _watch(self, bridge: bytes) -> None:
        while self._kept.get(bridge):
            try:
                with suppress(ServiceBusError):  # no answer, or no connection here
                    await self._peers.ask(bridge, {"do": text(PING)})
            except (Unroutable, PublishRefused):
                self._gone(bridge)
                return
            except BrokerError:
                pass  # this bridge's connection, perhaps
            await asyncio.sleep(WATCH_S)
        self._kept.pop(bridge, None)

    def _gone(self, bridge: bytes) -> None:
        kept = self._kept.pop(bridge, {})
        for told in self.on_gone:
            told(bridge)
        for each in kept.values():
            each()
