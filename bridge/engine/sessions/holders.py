"""Where the sessions of each entity are held: by a holder in this process, or in which other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.browse.settlements import Settlements
from bridge.engine.counters import Counters
from bridge.engine.peers import Peers
from bridge.engine.receiving.intake import Intake
from bridge.engine.sending.sender import REPLY_TIMEOUT_S, Sender
from bridge.engine.sessions.holder import Holder
from bridge.engine.sessions.messages import Tell
from bridge.engine.sessions.seat import ASK_HEADERS
from bridge.engine.sessions.whereabouts import Here, There, Whereabouts
from bridge.engine.settlement.departure import Departure
from bridge.engine.settlement.locktable import LockTable
from bridge.machine.memory_budget import MemoryBudget
from bridge.machine.settled import SettledMemory
from bridge.model import entity as model
from bridge.model.errors import OperationTimeout, ServerBusy
from bridge.model.name import EntityPath
from bridge.topology.capabilities import Capabilities
from bridge.topology.definitions import incarnation_of
from bridge.wire.reply import Done, decode_reply

BODIES_BYTES_MAX = 256 << 20
"""Bodies of sessions' messages that are in memory; others are read again when they are wanted."""

SETTLED_BYTES_MAX = 32 << 20


class Holders:
    """The holders of this process, and what is known of others.

    Args:
        settlements: hears of what has left its queue.
        capabilities: returns RabbitMQ's.
        tell: called with what a receiver is to hear.
        on_ready: called with an entity's path (lower case) when this process has become its holder.
        on_gone: called with the name of a bridge that turns out to be gone.

    Attributes:
        budget: where the bodies that are here are counted.
        peers: asks other bridges.
    """

    def __init__(
        self,
        *,
        intake: Intake,
        sender: Sender,
        departure: Departure,
        locks: LockTable,
        counters: Counters,
        settlements: Settlements,
        capabilities: Callable[[], Capabilities],
        tell: Tell,
        on_ready: Callable[[str], None],
        on_gone: Callable[[bytes], None],
    ) -> None:
        self._intake = intake
        self._sender = sender
        self._departure = departure
        self._locks = locks
        self._counters = counters
        self._settlements = settlements
        self._capabilities = capabilities
        self._tell = tell
        self._on_ready = on_ready
        self._on_gone = on_gone
        self._settled = SettledMemory(SETTLED_BYTES_MAX)
        self._here: dict[str, Holder] = {}
        self._elsewhere: dict[str, bytes] = {}
        self.budget = MemoryBudget(BODIES_BYTES_MAX)
        self.peers: Peers

    def __repr__(self) -> str:
        return f"Holders({list(self._here.values())})"

    @property
    def all(self) -> list[Holder]:
        """The holders of this process, those that stand by included."""
        return list(self._here.values())

    def ready(self, path: str) -> Holder | None:
        """Return what holds an entity's sessions (lower case) here, or `None`."""
        holder = self._here.get(path)
        return holder if holder is not None and holder.is_ready else None

    def held(self, path: str) -> int:
        """Return how many messages of an entity (lower case) this process holds."""
        holder = self._here.get(path)
        return 0 if holder is None else len(holder.messages.machine)

    async def find(self, queue: model.ReceiveEntity) -> Whereabouts:
        """Return where an entity's sessions are held.

        Raises:
            ServerBusy, OperationTimeout: nobody says so.
        """
        key = queue.path.lower()
        holder = self._holder(queue)
        try:
            async with asyncio.timeout(REPLY_TIMEOUT_S):
                await holder.stand_by()
            if holder.is_ready:
                return Here(holder)
            bridge = self._elsewhere.get(key)
            if bridge is None:
                bridge = await self._ask(holder)
        except TimeoutError as error:
            raise OperationTimeout("RabbitMQ does not deliver messages of sessions now.") from error
        except BrokerError as error:
            raise ServerBusy(f"{texts.SERVER_BUSY} ({error})") from error
        if self._locks.is_named(bridge):
            return Here(holder)
        self._elsewhere[key] = bridge
        return There(bridge, EntityPath(queue.path), self.peers, self._on_gone)

    def ask_again(self, path: str) -> None:
        """An entity's sessions (lower case) are not held where they were."""
        self._elsewhere.pop(path, None)

    def forget(self, bridge: bytes) -> None:
        """A bridge is gone: it holds nothing."""
        for key in [key for key, each in self._elsewhere.items() if each == bridge]:
            del self._elsewhere[key]

    def follow(self, namespace: model.Namespace) -> list[str]:
        """The definitions have changed; return the entities (lower case) that are no more."""
        there = {each.path.lower(): each for each in model.receive_entities(namespace)}
        gone = []
        for key, holder in list(self._here.items()):
            queue = there.get(key)
            if queue is None or incarnation_of(queue) != incarnation_of(holder.messages.queue):
                del self._here[key]
                self.ask_again(key)
                holder.drop()
                gone.append(key)
            else:
                holder.messages.update(queue)
        return gone

    async def end(self) -> None:
        """Let go of everything."""
        ends = (holder.end() for holder in self._here.values())
        await asyncio.gather(*ends, return_exceptions=True)

    async def _ask(self, holder: Holder) -> bytes:
        answer = await self._sender.ask(
            "", holder.seat.resource, ASK_HEADERS, b"", persistent=True, can_expire=True
        )
        reply = decode_reply(answer)
        if not isinstance(reply, Done):
            raise ServerBusy(texts.SERVER_BUSY)
        return reply.content

    def _holder(self, queue: model.ReceiveEntity) -> Holder:
        key = queue.path.lower()
        holder = self._here.get(key)
        if holder is None:
            holder = self._here[key] = Holder(
                queue,
                budget=self.budget,
                settled=self._settled,
                intake=self._intake,
                sender=self._sender,
                departure=self._departure,
                locks=self._locks,
                counters=self._counters,
                compacts_logs=self._capabilities().compacts_logs,
                tell=self._tell,
                on_ready=partial(self._is_ready, key),
            )
            messages = holder.messages
            record = self._settlements.of(messages.resource)
            record.known = messages.settled.numbers
            messages.record = record.left_active
        return holder

    def _is_ready(self, path: str) -> None:
        self.ask_again(path)
        self._on_ready(path)
